//! Packets of groups, and one member of a group that receives arbitrary packets.

use crate::input::Input;
use crate::packet::seal;
use marline_checksum::crc32c;
use marline_proto::group::{
    AckFlags, Asked, Chunk, End, Frame, Gaps, Group, GroupConfig, GroupEvent, GroupHeld, Heard,
    Identity, Scheme,
};
use marline_wire::{GroupPacket, GroupWriter, GROUP_HEAD_LEN, PACKET_MAX, PIECE_LEN, VERSION};
use std::collections::BTreeSet;

/// Most steps of one input.
const STEPS_MAX: usize = 400;
const CHUNK: u32 = 1_000;
const EARLY_MAX: u64 = 20_000;
const KEEP_MAX: u64 = 5_000;
const MEMBERS: u16 = 5;

/// Parses any bytes as a packet of a group, unchanged and with corrected version, kind and CRC. A
/// packet that parses is written again and must read back the same.
pub fn group_packet(data: &[u8]) {
    let _ = GroupPacket::parse(data, crc32c);
    let mut bytes = data.to_vec();
    if bytes.len() >= GROUP_HEAD_LEN {
        bytes[4] = VERSION;
        bytes[39] = 1;
    }
    let Some(crc) = seal(&mut bytes) else { return };
    let Ok(packet) = GroupPacket::parse(&bytes, |_| crc) else {
        return;
    };
    let mut again = vec![0; 2 * PACKET_MAX];
    let mut writer = GroupWriter::with_seal(&mut again, packet.seal());
    assert!(packet.frames().all(|frame| writer.push(&frame)));
    let chunk = packet.chunk();
    let head = chunk.as_ref().map(|(chunk, sum, _)| (chunk, *sum));
    let len = writer.finish(&packet.head, head).expect("there is room");
    again.truncate(len);
    again.extend(chunk.iter().flat_map(|(_, _, payload)| payload.iter()));
    again.extend(packet.tag().iter().flat_map(|tag| tag.to_le_bytes()));
    seal(&mut again);
    let read = GroupPacket::parse(&again, crc32c).expect("what we write parses");
    assert_eq!(read.head, packet.head);
    assert_eq!((read.seal(), read.tag()), (packet.seal(), packet.tag()));
    assert!(read.frames().eq(packet.frames()));
    assert_eq!(read.chunk(), chunk);
}

/// A member that receives anything from the others, in any order: memory stays bounded,
/// operations end once, and when all others are dead every operation has ended and nothing is
/// retained.
pub fn group(data: &[u8]) {
    let mut input = Input::new(data);
    let mut member = Member::new(&mut input);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        member.step(&mut input);
        member.drain();
    }
    member.finish();
}

struct Member {
    group: Group,
    now: u64,
    posted: u32,
    ended: BTreeSet<u32>,
}

impl Member {
    fn new(input: &mut Input<'_>) -> Member {
        let co_roots = input.below(3) as u16;
        let schemes = [
            Scheme::NACK,
            Scheme::WINDOW,
            Scheme::BASIC,
            Scheme::ORIGINAL,
            Scheme::AGGREGATE,
        ];
        let scheme = Scheme {
            co_roots,
            parity: input.pick(&[0, 2, 8]),
            ..input.pick(&schemes)
        };
        let cfg = GroupConfig {
            chunk: CHUNK,
            copy_max: input.pick(&[0, 2_500]),
            early_max: EARLY_MAX,
            keep_max: KEEP_MAX,
            networks: 2,
            chunk_ns: input.pick(&[0, 1_000]),
            scheme,
            ..GroupConfig::default()
        };
        let who = Identity {
            id: 1,
            token: 2,
            members: (0..MEMBERS).map(|m| (m as u64, 1)).collect(),
        };
        Member {
            group: Group::new(cfg, who),
            now: 1,
            posted: 0,
            ended: BTreeSet::new(),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let from = 1 + input.below(MEMBERS as u64 - 1) as u16;
        let network = input.pick(&[None, Some(0), Some(1)]);
        let heard = Heard { from, network };
        let (now, group) = (self.now, &mut self.group);
        match input.below(9) {
            0 | 1 => {
                let root = input.below(MEMBERS as u64) as u16;
                let len = input.pick(&[0, 1, 1_000, 2_500, 7_001, 90_000]);
                group.post(now, root, self.posted, len);
                self.posted += 1;
            }
            2 => {
                let frame = frame(input);
                group.handle_frame(now, heard, &frame);
            }
            3..=5 => {
                let (chunk, ok) = (chunk(input), input.below(8) > 0);
                if chunk.parity > 0 {
                    if let Some(rebuild) = group.place_parity(now, heard, &chunk) {
                        group.commit(now, heard, &rebuild.chunk, ok);
                    }
                } else if group.place(now, heard, &chunk).takes() {
                    group.commit(now, heard, &chunk, ok);
                }
            }
            6 => group.handle_mark(now, from, input.below(6) as u16, input.any()),
            7 => {
                self.now += input.pick(&[1, 50_000, 5_000_000]);
                group.handle_timeouts(self.now);
            }
            _ if input.below(16) == 0 => group.on_dead(now, from),
            _ => drop(group.piggyback(now, from)),
        }
    }

    /// Processes all packets and events.
    fn drain(&mut self) {
        loop {
            let packet = self.group.poll_transmit(self.now).is_some();
            let event = self.group.poll_event();
            match event {
                Some(GroupEvent::Done { handle, .. }) => {
                    assert!(handle < self.posted && self.ended.insert(handle));
                }
                Some(_) => {}
                None if !packet => break,
                None => {}
            }
        }
        let held = self.group.held();
        assert!(held.early_bytes <= EARLY_MAX && held.kept_bytes <= KEEP_MAX);
        let open = self.posted as u64 - self.ended.len() as u64;
        assert_eq!(held.operations, open, "operations are forgotten");
    }

    fn finish(&mut self) {
        for member in 1..MEMBERS {
            self.group.on_dead(self.now, member);
            self.drain();
        }
        assert_eq!(self.ended.len(), self.posted as usize, "{:?}", self.group);
        assert_eq!(self.group.held(), GroupHeld::default());
        assert!(self.group.awaited().is_empty());
        self.group.post(self.now, 1, self.posted, 1);
        let dead = GroupEvent::Done {
            handle: self.posted,
            end: End::Dead(1),
        };
        let left = GroupEvent::Done {
            handle: self.posted,
            end: End::NotCarried,
        };
        let last = self.group.poll_event();
        let broken = matches!(
            last,
            Some(GroupEvent::Done {
                end: End::Dead(_),
                ..
            })
        );
        assert!(
            last == Some(dead) || last == Some(left) || broken,
            "{last:?}"
        );
    }
}

/// Usually a number near the limits, sometimes any.
fn number(input: &mut Input<'_>) -> u64 {
    match input.below(8) {
        0 => input.any(),
        _ => input.below(70),
    }
}

fn frame(input: &mut Input<'_>) -> Frame {
    let root = input.below(6) as u16;
    match input.below(4) {
        0 => Frame::Ack {
            root,
            next: number(input),
            flags: AckFlags::of(input.any()),
        },
        1 => {
            let mut gaps = Gaps::default();
            let first = number(input).min(u64::MAX - 200);
            gaps.push(first);
            for _ in 0..input.below(9) {
                let _ = gaps.push(first + input.below(130));
            }
            (gaps.missing, gaps.of) = (input.any(), input.any());
            Frame::Nack { root, gaps }
        }
        2 => {
            let asked: Vec<u16> = (0..input.below(4)).map(|m| m as u16).collect();
            Frame::Tail {
                root,
                next: number(input),
                asked: Asked::of(&asked),
            }
        }
        _ => Frame::Probe,
    }
}

fn chunk(input: &mut Input<'_>) -> Chunk {
    let total = input.pick(&[1, 1_000, 2_500, 7_001, 90_000, u64::MAX]);
    let offset = input.below(8) * CHUNK as u64;
    let len = (CHUNK as u64).min(total.saturating_sub(offset)) as u32;
    let before = offset / CHUNK as u64;
    let chunk = Chunk {
        root: input.below(6) as u16,
        number: number(input).saturating_add(before),
        broadcast: number(input) / 4,
        offset,
        len,
        total,
        parity: input.pick(&[0, 0, 0, 2, 5, 33]),
        asks: input.any(),
        leaves: input.below(16) == 1,
        piece: 0,
    };
    piece_of(chunk, input.pick(&[0, 0, 0, 1, 2, 3, 4, 255]))
}

/// The chunk itself (`piece` 0), or its piece of that number, which may not exist.
fn piece_of(chunk: Chunk, piece: u8) -> Chunk {
    let piece = Chunk { piece, ..chunk };
    let within = piece.within();
    let len = chunk.len.saturating_sub(within);
    match piece.piece {
        0 => chunk,
        _ => Chunk {
            offset: chunk.offset + within as u64,
            len: len.min(PIECE_LEN),
            ..piece
        },
    }
}
