//! First bytes of long messages, which come with their requests.

use crate::world::state::World;
use marline_proto::DropReason;
use marline_wire::Rts;

/// Longest message whose bytes need no grant and no request.
const EAGER_LIMIT: u64 = 65_536;

impl World {
    /// Counts a request that brings bytes. Returns the flags of its payload: none.
    pub(crate) fn request_came(&mut self, rts: &Rts, taken: bool) -> u8 {
        let brings = u64::from(rts.first > 0 && taken);
        *self.troubles.entry("request with bytes").or_default() += brings;
        0
    }

    /// Counts a fragment of a long message that no receive has matched. Returns whether the node
    /// dropped it: it came before its request, or without room.
    pub(crate) fn is_early(&mut self, uid: u32, result: Result<(), DropReason>) -> bool {
        let msg = &self.truth.msgs[uid as usize];
        if !msg.awaits_match() || msg.size() <= EAGER_LIMIT {
            return false;
        }
        let early = result == Err(DropReason::Early);
        let kind = match early {
            true => "bytes before their request",
            false => "first bytes held",
        };
        *self.troubles.entry(kind).or_default() += 1;
        early
    }
}
