//! Lengths of writes by rails into registered memory.

use crate::base::config::RailSpec;
use crate::state::conn::Conn;
use crate::state::local::Local;
use crate::state::path::Path;
use marline_wire::{BLOCK_BYTES, DIRECT_HEAD_LEN, PACKET_MAX};

/// Most bytes of one write. Bounds what a failed write loses, and how long other packets on the
/// path wait.
const SPAN_MAX: u64 = 65_536 / BLOCK_BYTES * BLOCK_BYTES;
/// Most bytes of one write on rails that spare copies: a message of 64 KiB is one write, without a
/// remainder in a packet.
const SPAN_LONG: u64 = 65_536u64.next_multiple_of(BLOCK_BYTES);
/// Bytes of a super-packet reserved for a direct write's head and for the packet in front of its
/// bytes. That packet has the write notification, and may have acks and grants; a longer packet is
/// sent separately.
const DIRECT_ROOM: usize = (DIRECT_HEAD_LEN + DIRECT_PACKET_MAX).next_multiple_of(64) + 64;
/// Longest packet in front of a direct write's bytes. (Written frame and header: 88 bytes; one ack
/// of four masks and a grant with its keys: 120.)
pub const DIRECT_PACKET_MAX: usize = 256;
/// Shorter fragments are sent in packets.
pub(crate) const SPAN_MIN: u64 = 4 * BLOCK_BYTES;

/// The longest write that the peer is expected to make into local memory: as long as local writes
/// into its memory.
pub(crate) fn write_span(local: &Local, conn: &Conn) -> Option<u64> {
    let ours = |path: &Path| &local.rails[path.local as usize];
    let able = |path: &&Path| path.usable() && path.to.writes() && ours(path).addr.writes();
    let path = conn.paths.iter().find(able)?;
    let span = span_max(ours(path), path.mtu.datagram_max());
    // A few short datagrams have no room for a write.
    Some(span).filter(|&span| span >= SPAN_MIN)
}

/// Most bytes of one write, in whole blocks, on a rail with datagrams of `datagram` bytes.
pub(crate) fn span_max(rail: &RailSpec, datagram: usize) -> u64 {
    let room = match rail.direct_datagrams {
        0 if rail.addr.kind.spares_copies() => return SPAN_LONG,
        0 => return SPAN_MAX,
        n => (n * datagram).min(PACKET_MAX).saturating_sub(DIRECT_ROOM) as u64,
    };
    room / BLOCK_BYTES * BLOCK_BYTES
}
