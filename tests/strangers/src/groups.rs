//! Attacks on multicast groups: a host joins the address of a group, and sends in the name of a
//! member whose packets it has heard.

use crate::names::Recorded;
use marline_checksum::{crc32c, sum, Algorithm};
use marline_wire::{
    AckFlags, Chunk, GroupFrame, GroupHead, GroupPacket, GroupWriter, FIRST_ALGORITHM,
};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

/// Time after which no more packets are expected.
const SILENCE: Duration = Duration::from_secs(20);
/// Longest datagram.
const DATAGRAM_MAX: usize = 65_536;
/// Chunks that a forged packet is ahead of a recorded one: within the window of its root.
const AHEAD: u64 = 8;

/// Joins the group at an address and records packets as lines of destination and bytes. Returns how
/// many came.
pub fn join(at: SocketAddr, from: Ipv4Addr, count: u32, path: &str) -> Result<u32, String> {
    let said = |why: std::io::Error| format!("{at}: {why}");
    let IpAddr::V4(group) = at.ip() else {
        return Err("to=IPV4_ADDRESS:PORT".to_owned());
    };
    let socket = UdpSocket::bind(at).map_err(said)?;
    socket.join_multicast_v4(&group, &from).map_err(said)?;
    socket.set_read_timeout(Some(SILENCE)).map_err(said)?;
    let (mut text, mut bytes, mut came) = (String::new(), vec![0; DATAGRAM_MAX], 0);
    while came < count {
        let Ok(len) = socket.recv(&mut bytes) else {
            break;
        };
        let digits = bytes[..len].iter().fold(String::new(), |mut digits, byte| {
            let _ = write!(digits, "{byte:02x}");
            digits
        });
        let _ = writeln!(text, "{at} {digits}");
        came += 1;
    }
    std::fs::write(path, text).map_err(|why| format!("{path}: {why}"))?;
    Ok(came)
}

/// Packet `n` in the name of the sender of the last recorded packet with a chunk, and where it
/// goes. In turn: multicast is lost, all chunks are missing, a later chunk with other bytes.
pub fn forged(recording: &[Recorded], n: u32) -> Option<(SocketAddr, Vec<u8>)> {
    let mut packets = recording.iter().rev();
    let (to, head, chunk) = packets.find_map(|record| {
        let packet = GroupPacket::parse(&record.bytes, crc32c).ok()?;
        Some((record.to, packet.head, packet.chunk()?.0))
    })?;
    let head = GroupHead {
        algorithm: FIRST_ALGORITHM,
        ..head
    };
    let root = chunk.root;
    let flags = AckFlags {
        unreachable: true,
        lossy: true,
    };
    let next = chunk.number;
    let bytes = match n % 3 {
        0 => packet(&head, &[GroupFrame::Ack { root, next, flags }], None),
        1 => {
            let asked = marline_wire::Asked::default();
            let next = chunk.number + u64::from(n);
            packet(&head, &[GroupFrame::Tail { root, next, asked }], None)
        }
        _ => {
            let later = Chunk {
                number: chunk.number + AHEAD + u64::from(n),
                broadcast: chunk.broadcast + AHEAD + u64::from(n),
                offset: 0,
                total: u64::from(chunk.len),
                parity: 0,
                piece: 0,
                leaves: true,
                ..chunk
            };
            packet(&head, &[], Some(&later))
        }
    };
    Some((to, bytes))
}

/// An acknowledgement to a group that no process is in.
pub fn unknown(group: u64) -> Vec<u8> {
    let head = GroupHead {
        algorithm: FIRST_ALGORITHM,
        group,
        token: 0,
        member: 0,
        src_id: group,
        src_epoch: 0,
        network: 0,
        flags: 0,
    };
    let (root, next) = (0, 0);
    let flags = AckFlags::default();
    packet(&head, &[GroupFrame::Ack { root, next, flags }], None)
}

/// A packet without a tag, as of a process without a key.
fn packet(head: &GroupHead, frames: &[GroupFrame], chunk: Option<&Chunk>) -> Vec<u8> {
    let payload = vec![0x5a; chunk.map_or(0, |chunk| chunk.len as usize)];
    let seeded = |chunk: &Chunk| sum(Algorithm::Crc64Nvme, chunk.seed(head.group), &payload);
    let mut bytes = vec![0; DATAGRAM_MAX];
    let mut writer = GroupWriter::new(&mut bytes);
    for frame in frames {
        assert!(writer.push(frame), "room for a frame");
    }
    // (The head of one chunk always fits.)
    let chunk = chunk.map(|chunk| (chunk, seeded(chunk)));
    let len = writer.finish(head, chunk).expect("room for the head");
    bytes.truncate(len);
    let crc = crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    bytes.extend(payload);
    bytes
}
