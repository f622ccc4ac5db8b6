//! Checks that nodes and engines stay within their settings' limits: sender's log, unacked packets,
//! unexpected messages, grants, deadlines.

use crate::world::endpoint::Endpoint;
use crate::world::state::World;
use marline_engine::INJECT_MAX;
use marline_proto::{Held, Retained, MESSAGE_OVERHEAD, RPC_MAX};

/// Turns per check: a check examines every path of every peer.
const EVERY: u64 = 8;
/// Largest number of endpoints with checks.
const ENDPOINTS_MAX: usize = 64;
/// Most unacked packets of a path: twice the number that its receiver can distinguish
/// (`RecvWindow`). Congestion windows may allow more packets; credit and grants of these clusters
/// do not.
const PACKETS_MAX: usize = 2 * 4_096;
/// Most frames to retransmit per peer: more data is never in flight.
const RESENDS_MAX: usize = 8_192;
/// Deadlines of a node beside two per peer.
const DEADLINES_SPARE: usize = 256;
/// Sends up to this length are never refused; each may exceed the log's bound by this many bytes.
const RESERVE_MAX: usize = 64;
/// Unacked RPC answers whose operations have ended.
const ANSWERS_SPARE: usize = 64;
/// Least bytes that messages of an endpoint may have granted, and the maximum for all rails
/// (`IN_FLIGHT_MAX` of the engine).
const GRANTED_BYTES: (u64, u64) = (64_000, 2 << 20);
/// Least first window of a remote read.
const READ_BYTES: u64 = 64 * 1024;

impl World {
    /// Checks that endpoint `e` stays within its limits.
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

    fn excess(&self, ep: &Endpoint, kept: &Retained, held: &Held) -> Option<String> {
        let (log, unexpected) = ep.engine.inspect(|core| core.pool_bytes());
        // Beyond its bound the log keeps old values for peers' pending atomics, including some
        // whose acks are in flight.
        let answers = ep.windows.cells.fetching as usize + ANSWERS_SPARE;
        let log_max = self.setup.log_bytes + RESERVE_MAX * ep.open as usize + RPC_MAX * answers;
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
            // A buffer is less than twice as long as its message's charge (`pool.rs`).
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

    /// Checks, after a send of `len` bytes to `dst` was refused, that the log has no room.
    pub(crate) fn check_refused(&mut self, e: u32, dst: u32, len: usize) {
        let ep = &self.eps[e as usize];
        let (log, _) = ep.engine.inspect(|core| core.pool_bytes());
        // A buffer of the log is less than twice as long as its message, or four times (of 256).
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
