//! Checks that nodes and engines keep no more than settings promise: of the sender's log, packets
//! that wait for acks, unexpected messages, grants, deadlines.

use crate::world::endpoint::Endpoint;
use crate::world::state::World;
use marline_engine::INJECT_MAX;
use marline_proto::{Held, Kept, CALL_MAX, MESSAGE_OVERHEAD};

/// One in so many turns looks: it is a look at every path of every peer.
const EVERY: u64 = 8;
/// Endpoints up to which they look at all.
const ENDPOINTS_MAX: usize = 64;
/// Packets of a path that wait for an ack at most: twice as many as its receiver can tell apart
/// (`RecvWindow`). A window may allow more, but not the credit and the grants of these clusters.
const PACKETS_MAX: usize = 2 * 4_096;
/// Frames to be sent again to one peer at most: so much data is never under way.
const RESENDS_MAX: usize = 8_192;
/// Deadlines of a node beside two of each peer.
const DEADLINES_SPARE: usize = 256;
/// A send that is no longer is never refused: beyond the log's bound it may have so many bytes.
const RESERVE_MAX: usize = 64;
/// Answers that wait for their acks when nobody waits for them any more.
const ANSWERS_SPARE: usize = 64;
/// Bytes that messages of one endpoint may have granted at least, and the most of all rails
/// (`IN_FLIGHT_MAX` of the engine).
const GRANTED_BYTES: (u64, u64) = (64_000, 2 << 20);
/// The first window of a remote read at least.
const READ_BYTES: u64 = 64 * 1024;

impl World {
    /// Checks that endpoint `e` keeps no more than it may.
    pub(crate) fn check_kept(&mut self, e: u32) {
        if self.events % EVERY != 0 || self.eps.len() > ENDPOINTS_MAX {
            return;
        }
        let ep = &self.eps[e as usize];
        let Some((kept, held)) = ep.node(|node| (node.kept(), node.held())) else {
            return;
        };
        let excess = self.excess(ep, &kept, &held);
        if let Some(what) = excess {
            self.broken(e, format!("keeps too much: {what}: {kept:?} {held:?}"));
        }
    }

    fn excess(&self, ep: &Endpoint, kept: &Kept, held: &Held) -> Option<String> {
        let (log, unexpected) = ep.engine.inspect(|core| core.pool_bytes());
        // Old values that atomics of others wait for are beside that, and those of some whose acks
        // are on their way.
        let answers = ep.windows.cells.fetching as usize + ANSWERS_SPARE;
        let log_max = self.setup.log_bytes + RESERVE_MAX * ep.open as usize + CALL_MAX * answers;
        let reads = kept.reads as u64;
        // Reads get their first window at once.
        let (least, most) = GRANTED_BYTES;
        let budget = (self.setup.socket_bytes / 3).clamp(least, most);
        let granted_max = budget + reads * (budget / 2).max(READ_BYTES);
        let inbounds_max = held.unexpected_bytes / MESSAGE_OVERHEAD + reads;
        let pairs = [
            ("packets that wait", kept.packets, PACKETS_MAX),
            ("frames to send again", kept.resends, RESENDS_MAX),
            ("of dead peers", kept.dead, 0),
            (
                "deadlines",
                kept.deadlines,
                2 * kept.peers + DEADLINES_SPARE,
            ),
            ("bytes of the log", log, log_max),
            // A buffer has less than twice the bytes that its message is charged (`pool.rs`).
            (
                "bytes of unexpected messages",
                unexpected,
                2 * held.unexpected_bytes as usize,
            ),
            (
                "granted bytes",
                held.granted_bytes as usize,
                granted_max as usize,
            ),
            ("messages coming in", held.inbounds, inbounds_max as usize),
        ];
        let beyond = pairs.iter().find(|(_, used, most)| used > most);
        beyond.map(|(what, used, most)| format!("{used} {what}, at most {most}"))
    }

    /// A send of `len` bytes to `dst` was refused for want of room: there must be none.
    pub(crate) fn check_refused(&mut self, e: u32, dst: u32, len: usize) {
        let ep = &self.eps[e as usize];
        let (log, _) = ep.engine.inspect(|core| core.pool_bytes());
        // A buffer of the log has less than twice the bytes, or four times (of 256).
        let size = (2 * len).clamp(4 * RESERVE_MAX, INJECT_MAX);
        let full = log + size > self.setup.log_bytes;
        if !full && dst != e {
            let all = self.setup.log_bytes;
            self.broken(
                e,
                format!("a send of {len} bytes refused: {log} of {all} in the log"),
            );
        }
    }
}
