//! Matches of receives and messages. Receives from any source that a message of a stranger matched,
//! which dies before the message is whole, are posted again in their place, or given back without a
//! message.

use crate::truth::memory::OpKind;
use crate::truth::messages::Match;
use crate::world::endpoint::Due;
use crate::world::state::World;
use marline_engine::Completion;

impl World {
    /// The truth matched a receive with a message.
    pub(crate) fn note_match(&mut self, e: u32, found: Match) {
        self.truth.matches += 1;
        let msg = &mut self.truth.msgs[found.uid as usize];
        msg.matched = Some((found.handle, found.room));
        msg.match_order = self.truth.matches;
        let src = msg.src;
        self.truth.settle(found.uid);
        let keyed = self.setup.node.key_mark != 0;
        let ep = &mut self.eps[e as usize];
        if keyed || ep.addrs.contains_key(&src) {
            ep.plain.before.remove(&found.uid);
        }
        ep.owed += 1;
        if let Some(recv) = ep.recv_mut(found.handle) {
            recv.matches.push((found, false));
        }
    }

    /// Posts the receives again that the unfinished messages of a dead stranger matched.
    pub(crate) fn give_back(&mut self, e: u32, dead: u32) {
        let msgs = &self.truth.msgs;
        let ep = &mut self.eps[e as usize];
        if ep.addrs.contains_key(&dead) {
            return;
        }
        let (mut again, before) = (Vec::new(), &ep.plain.before);
        for op in ep.ops.iter_mut().filter(|op| op.done_ns.is_none()) {
            let OpKind::Recv(recv) = &mut op.kind else {
                continue;
            };
            recv.matches.retain(|(found, done)| {
                let msg = &msgs[found.uid as usize];
                let lost = !done && msg.src == dead && !msg.complete();
                let posted = before.get(&found.uid).filter(|(_, stays)| lost && !stays);
                again.extend(posted.map(|(recv, _)| recv.clone()));
                posted.is_none()
            });
        }
        ep.owed -= again.len() as u32;
        again.sort_by_key(|recv| recv.order);
        for recv in again {
            *self.troubles.entry("receive given back").or_default() += 1;
            let handle = recv.handle;
            let ep = &mut self.eps[e as usize];
            if let Some(recv) = ep.recv_mut(handle) {
                recv.has_parts = true;
            }
            let matches = ep.plain.post_again(recv, &self.truth.msgs);
            if ep.plain.is_news(handle) {
                ep.recv_mut(handle)
                    .into_iter()
                    .for_each(|recv| recv.lost_with_sender = true);
            }
            matches
                .into_iter()
                .for_each(|found| self.note_match(e, found));
        }
    }

    /// A buffer for several messages is given back without a message.
    pub(crate) fn released(
        &mut self,
        e: u32,
        handle: u32,
        entry: &Completion,
    ) -> Result<Due, String> {
        let ep = &mut self.eps[e as usize];
        let posted = ep.plain.posted.iter().any(|p| p.handle == handle);
        let recv = ep.recv_mut(handle).ok_or("not a receive")?;
        let open = recv.matches.iter().any(|(_, done)| !done);
        if !recv.multi || !recv.lost_with_sender || open || posted {
            return Err("a buffer is given back that is in use".into());
        }
        self.end(e, handle)?;
        Ok(Due::of(entry))
    }
}
