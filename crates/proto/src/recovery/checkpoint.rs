//! What became of all packets that left on a path up to some moment: an engine that lent the kernel
//! the memory they were built in wants to use it again.

use crate::base::mutation::Mutation;
use crate::base::types::{Batch, PeerId};
use crate::node::Node;

/// A moment in what is sent on a path of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    peer: PeerId,
    path: usize,
    next: u64,
    lost: u64,
}

/// What became of the packets before a [`Mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Some may still be under way.
    UnderWay,
    /// Each was acknowledged: the peer has it, nobody else wants it.
    Received,
    /// None is waited for any more, and some were given up on this path: they may still lie in a
    /// queue, and arrive.
    GivenUp,
}

impl Node {
    /// The moment after the `count` packets just built for a batch. `None`: some of them want no
    /// ack, so that nobody will ever know.
    pub fn mark(&self, batch: &Batch, count: usize) -> Option<Mark> {
        let ring = &self.conn(batch.peer)?.paths.get(batch.path)?.ring;
        let next = ring.next_number();
        (ring.unasked() + count as u64 <= next).then_some(Mark {
            peer: batch.peer,
            path: batch.path,
            next,
            lost: ring.lost(),
        })
    }

    /// What became of the packets before `mark`. Losses of later packets count as theirs.
    pub fn fate(&self, mark: &Mark) -> Fate {
        // Of one who is gone nothing is waited for any more, and rings begin anew.
        let conn = self.conn(mark.peer).filter(|c| !c.dead && !c.closed);
        let Some(path) = conn.and_then(|conn| conn.paths.get(mark.path)) else {
            return Fate::GivenUp;
        };
        if self.cfg.errs(Mutation::Overwrite) && path.acked_any {
            return Fate::Received;
        }
        match path.ring.first() >= mark.next {
            false => Fate::UnderWay,
            true if path.ring.lost() == mark.lost => Fate::Received,
            true => Fate::GivenUp,
        }
    }
}
