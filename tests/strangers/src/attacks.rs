//! Attacks by packets: what each of them sends.

use crate::forge::{Names, Rails, Tag};
use marline_wire::{
    DirectHead, Frame, Hello, MsgHead, Read, Rts, DIRECT_HEAD_LEN, FLAG_PUT, FLAG_RPC,
};

/// Requests in one packet: together with a HELLO they fit the smallest common MTU.
const REQUESTS: u32 = 40;
/// Keys that are tried: a process's first ones.
const KEYS: u64 = 64;
/// A number that no packet of the job has reached.
const FAR: u64 = u32::MAX as u64;
/// The word of a call of verb `Over` that brings data and names no region.
const OVER_WITH_DATA: u64 = u64::from_le_bytes([3, 0, 1, 2, 0, 0, 0, 0]);

/// An attack by packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// First contacts, each of another stranger, which then is silent.
    Hello,
    /// A HELLO and requests (RTS) that are never followed by data.
    Rts,
    /// A HELLO and a call of verb `Over` with data, which names no region.
    Call,
    /// A HELLO and reads of memory under guessed keys.
    Read,
    /// A HELLO and requests to write memory under guessed keys.
    Put,
    /// Direct writes under guessed keys.
    Direct,
    /// A peer's BYE.
    Bye,
    /// A peer's probe with a number far ahead.
    Jump,
    /// A peer's HELLO with new addresses.
    Rails,
    /// A peer's message with a number far ahead.
    Future,
}

impl Attack {
    /// All attacks, with their names.
    pub const NAMES: [(&'static str, Attack); 10] = [
        ("hello", Attack::Hello),
        ("rts", Attack::Rts),
        ("call", Attack::Call),
        ("read", Attack::Read),
        ("put", Attack::Put),
        ("direct", Attack::Direct),
        ("bye", Attack::Bye),
        ("jump", Attack::Jump),
        ("rails", Attack::Rails),
        ("future", Attack::Future),
    ];

    /// The attack with this name.
    pub fn named(name: &str) -> Option<Attack> {
        let mut all = Attack::NAMES.iter();
        all.find_map(|&(other, attack)| (other == name).then_some(attack))
    }

    /// Returns whether it speaks in the name of a peer.
    pub fn is_in_a_peers_name(self) -> bool {
        use Attack::{Bye, Future, Jump};
        matches!(self, Bye | Jump | Attack::Rails | Future)
    }

    /// Packet `n` of the attack. `first`: the packet number after the peer's last one, or the first
    /// key of direct writes.
    pub fn packet(
        self,
        n: u32,
        first: u64,
        (names, tag): (&Names, &Tag),
        rails: &Rails,
    ) -> Vec<u8> {
        if self == Attack::Direct {
            return direct(first + u64::from(n) % KEYS);
        }
        let mut names = *names;
        if self == Attack::Hello {
            names.source.0 = names.source.0.wrapping_add(n.into());
        }
        let number = match self {
            Attack::Jump => FAR + u64::from(n),
            Attack::Hello => 0,
            _ => first + u64::from(n),
        };
        let payload = [0x5a; 24];
        let mut frames = self.frames(n, &names, &payload);
        if !self.is_in_a_peers_name() {
            frames.insert(0, (rails.hello(&names, 0), &[]));
        } else if self == Attack::Rails {
            frames.push((rails.hello(&names, 1_000), &[]));
        }
        names.packet(tag, number, &frames)
    }

    fn frames<'a>(
        self,
        n: u32,
        names: &Names,
        payload: &'a [u8],
    ) -> Vec<(Frame<Hello<'static>>, &'a [u8])> {
        let head = |number: u32| MsgHead {
            number,
            flags: 0,
            tag: 0,
            data: 0,
            total: 1 << 20,
        };
        let alone = |frame| vec![(frame, &[][..])];
        let key = u64::from(n) % KEYS + 1;
        match self {
            Attack::Hello | Attack::Jump | Attack::Direct => alone(Frame::Ping),
            Attack::Rails => Vec::new(),
            Attack::Bye => alone(Frame::Bye { arrived: 0 }),
            Attack::Rts => (0..REQUESTS)
                .map(|at| {
                    Frame::Rts(Rts {
                        head: head(REQUESTS * n + at),
                    })
                })
                .map(|frame| (frame, &[][..]))
                .collect(),
            Attack::Put => alone(Frame::Rts(Rts {
                head: MsgHead {
                    flags: FLAG_PUT,
                    tag: key,
                    ..head(n)
                },
            })),
            Attack::Call => {
                let call = MsgHead {
                    flags: FLAG_RPC,
                    data: OVER_WITH_DATA,
                    ..head(n)
                };
                vec![(names.eager(call, payload), payload)]
            }
            Attack::Future => vec![(names.eager(head(1_000_000 + n), payload), payload)],
            Attack::Read => alone(Frame::Read(Read {
                number: n,
                flags: 0,
                key,
                addr: 0,
                len: 4_096,
                upto: 4_096,
            })),
        }
    }
}

/// A direct write of a few bytes under a key.
fn direct(key: u64) -> Vec<u8> {
    let head = DirectHead {
        key,
        offset: 0,
        len: 448,
        packet_len: 0,
        spare: 0,
    };
    let mut bytes = vec![0x5a; head.total()];
    bytes[..DIRECT_HEAD_LEN].copy_from_slice(&head.write());
    bytes
}
