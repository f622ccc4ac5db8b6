//! Checks completion order: if one receive could match either of two messages of a peer, the
//! earlier is reported first.

use crate::truth::memory::OpKind;
use crate::truth::messages::{Match, Msg};
use crate::world::state::World;

/// Number of earlier messages examined.
const LOOK_BACK: u32 = 256;

impl World {
    /// Checks a tagged message's report: no earlier message waits that this message's receive could
    /// have matched, or whose receive could have matched this message.
    pub(crate) fn check_turn(&self, e: u32, matched: &Match) -> Result<(), String> {
        let msg = &self.truth.msgs[matched.uid as usize];
        let first = msg.number.saturating_sub(LOOK_BACK);
        let earlier = (first..msg.number).filter_map(|n| self.truth.find(msg.src, msg.dst, n));
        let ignores = self.ignored(e, matched.handle);
        for uid in earlier {
            let other = &self.truth.msgs[uid as usize];
            // A message whose receive was posted later may come after the entry read now.
            let first = other.match_order < msg.match_order && self.waits(e, uid, other);
            if first && akin(msg, other, ignores | self.ignored_by(e, other)) {
                return Err(format!(
                    "out of turn: message {} is told before {}, which one receive could take",
                    msg.number, other.number
                ));
            }
        }
        Ok(())
    }

    fn ignored(&self, e: u32, handle: u32) -> u64 {
        match &self.eps[e as usize].ops[handle as usize].kind {
            OpKind::Recv(recv) => recv.ignore,
            _ => 0,
        }
    }

    fn ignored_by(&self, e: u32, msg: &Msg) -> u64 {
        msg.matched.map_or(0, |(handle, _)| self.ignored(e, handle))
    }

    /// True if the message's receive has not reported it.
    fn waits(&self, e: u32, uid: u32, msg: &Msg) -> bool {
        let Some((handle, _)) = msg.matched.filter(|_| !msg.delivered && !msg.discarded) else {
            return false;
        };
        let op = &self.eps[e as usize].ops[handle as usize];
        let OpKind::Recv(recv) = &op.kind else {
            return false;
        };
        let due = |m: &(Match, bool)| m.0.uid == uid && !m.1;
        op.done_ns.is_none() && recv.matches.iter().any(due)
    }
}

fn akin(a: &Msg, b: &Msg, ignored: u64) -> bool {
    let tags = a.tag.zip(b.tag);
    tags.is_some_and(|(a, b)| (a ^ b) & !ignored == 0)
}
