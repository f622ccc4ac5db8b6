//! What can be summed of a rendezvous message before its grant comes: how its fragments will most
//! likely be cut, so that their sums can be made while request and grant are under way.

use crate::base::types::{sum_seed, PeerId};
use crate::node::Node;
use marline_wire::{DATA_LEN, FLAG_UNSUMMED, GRANULE, HEADER_LEN};

/// A fragment that will most likely leave as it is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AheadSpan {
    /// Bytes from the offset asked for.
    pub len: u32,
    /// Seed of its sum.
    pub seed: u64,
    /// Algorithm number of its sum.
    pub algorithm: u8,
}

impl Node {
    /// The fragment at `offset` of send `handle`, while its request is under way. `None`: its
    /// request has not left, its grant has come, or there is nothing to sum at that offset.
    pub fn ahead(&self, peer: PeerId, handle: u32, offset: u64) -> Option<AheadSpan> {
        let conn = self.conn(peer)?;
        let sends = conn.rendezvous.values().rev();
        let mut sends = sends.filter_map(|&key| self.sends.get(key));
        let send = sends.find(|s| s.handle == handle)?;
        let left = send.head.total.checked_sub(offset).filter(|&n| n > 0)?;
        if send.granted || send.head.flags & FLAG_UNSUMMED != 0 {
            return None;
        }
        // All paths have the same MTU in most networks; where they do not, sums are made again.
        let at = conn.small_path(None, false, self.full)?;
        let room = conn.paths[at]
            .datagram_max
            .checked_sub(HEADER_LEN + DATA_LEN)? as u64;
        let most = (room / GRANULE * GRANULE).min(self.cfg.fragment_max as u64);
        let len = left.min(most) as u32;
        let seed = sum_seed(self.id, send.head.number, false, offset, len as usize);
        let algorithm = self.algorithm_on(conn, at);
        Some(AheadSpan {
            len,
            seed,
            algorithm,
        })
    }
}
