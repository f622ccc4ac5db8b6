//! Addresses of rails: a kind, fields common to all kinds, and bytes that only the kind interprets.
//!
//! ```text
//!  0 u8  kind (RailKind)     1 u8 length: bytes that follow
//!  2 u8  bits 0-4: the owner's index of the rail; bit 5: backed; bits 6-7: writes (RailWrites)
//!  3 u16 largest datagram in bytes
//!  5 ... the kind's own bytes, at most RAIL_BYTES_MAX
//! ```
//!
//! A version that does not know a kind skips the address by its length. So the first two bytes must
//! keep their meaning; the rest may differ by kind. The bytes of a kind never change: a rail with
//! others gets another kind.

use crate::header::u16_at;

/// Maximum of rails per endpoint. Sets of local rails are masks of 32 bits, and a HELLO with all
/// addresses fits into the smallest packet that every IPv6 path carries.
pub const RAILS_MAX: usize = 32;
/// Most bytes of a rail's address that belong to its kind: a full verbs address has 23 (GID 16,
/// queue pair 3, LID 2, P_Key 2). The blob has room for any two addresses of at most 19 bytes, as
/// many as an IPv6 address with port and subnet has.
pub const RAIL_BYTES_MAX: usize = 24;
/// Bytes of an encoded rail before the address itself: kind, length, index, datagram size.
pub(crate) const RAIL_HEAD: usize = 5;
/// Bytes of the longest address.
pub(crate) const RAIL_MAX: usize = RAIL_HEAD + RAIL_BYTES_MAX;
/// Minimum of a rail's largest datagram: smaller datagrams cannot hold our packets (IPv4 guarantees
/// 548).
const DATAGRAM_MIN: u16 = 512;
const INDEX_MASK: u8 = 0x1f;
const BACKED: u8 = 0x20;
const WRITES_SHIFT: u32 = 6;

/// Kinds of rails by their number on the wire. Numbers are never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum RailKind {
    /// No rail.
    #[default]
    Absent = 0,
    /// UDP over IPv4.
    Udp4 = 1,
    /// UDP over IPv6.
    Udp6 = 2,
    /// TCP over IPv4.
    Tcp4 = 3,
    /// TCP over IPv6.
    Tcp6 = 4,
    /// Shared memory between processes of one host.
    Shm = 5,
    /// Verbs, reliable connection; InfiniBand and RoCE alike.
    Rc = 6,
    /// Verbs, unreliable connection.
    Uc = 7,
    /// Verbs, unreliable datagrams.
    Ud = 8,
    /// A rail within one process, for tests.
    Loopback = 9,
}

impl RailKind {
    /// All kinds in the order in which an address names rails: first the kinds by which any host
    /// can reach the owner without earlier contact. The connected kinds of verbs come late, because
    /// their queue pairs must be exchanged first, and shared memory comes last.
    pub const BY_REACH: [RailKind; 9] = [
        RailKind::Udp4,
        RailKind::Udp6,
        RailKind::Tcp4,
        RailKind::Tcp6,
        RailKind::Ud,
        RailKind::Rc,
        RailKind::Uc,
        RailKind::Shm,
        RailKind::Loopback,
    ];

    /// Returns whether rails of this kind reach only processes of their own host.
    #[inline]
    pub fn is_near(self) -> bool {
        matches!(self, RailKind::Shm)
    }

    /// Returns whether rails of this kind move granted data from memory to memory without a copy of
    /// ours, so that only the request costs anything.
    #[inline]
    pub fn spares_copies(self) -> bool {
        matches!(self, RailKind::Shm | RailKind::Tcp4 | RailKind::Tcp6)
    }

    /// The kind's name for users, as in settings; empty if the address itself shows the kind, and
    /// for no rail.
    pub fn name(self) -> &'static str {
        match self {
            RailKind::Udp4 | RailKind::Udp6 => "udp",
            RailKind::Tcp4 | RailKind::Tcp6 => "tcp",
            RailKind::Rc => "rc",
            RailKind::Uc => "uc",
            RailKind::Ud => "ud",
            RailKind::Absent | RailKind::Shm | RailKind::Loopback => "",
        }
    }

    /// The kind's name for users where no address is shown.
    pub fn full_name(self) -> &'static str {
        match self {
            RailKind::Absent => "none",
            RailKind::Udp4 => "UDP over IPv4",
            RailKind::Udp6 => "UDP over IPv6",
            RailKind::Tcp4 => "TCP over IPv4",
            RailKind::Tcp6 => "TCP over IPv6",
            RailKind::Shm => "shared memory",
            RailKind::Rc => "rc",
            RailKind::Uc => "uc",
            RailKind::Ud => "ud",
            RailKind::Loopback => "loopback",
        }
    }

    /// The kind with this number; `None` if this version does not know it.
    pub fn of(number: u8) -> Option<RailKind> {
        let mut all = RailKind::BY_REACH.into_iter();
        all.find(|kind| *kind as u8 == number)
    }
}

/// How a rail accepts writes into its owner's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RailWrites {
    /// The rail accepts no writes.
    #[default]
    None = 0,
    /// The hardware places writes, under a key (an rkey).
    Keyed = 1,
    /// Writes are datagrams ([`crate::DirectHead`]), which the receiving half puts in place.
    Direct = 2,
}

/// Address of one rail of an endpoint. Only the rail's kind interprets the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RailAddr {
    /// The kind of rail.
    pub kind: RailKind,
    /// The owner's index of this rail.
    pub index: u8,
    /// The writes that the rail accepts.
    pub writes: RailWrites,
    /// A standby rail exists: see [`RailAddr::behind`].
    pub backed: bool,
    len: u8,
    /// Largest datagram in bytes that the owner's rail accepts.
    pub datagram_max: u16,
    bytes: [u8; RAIL_BYTES_MAX],
}

impl RailAddr {
    /// An absent rail.
    pub const NONE: RailAddr = RailAddr {
        kind: RailKind::Absent,
        index: 0,
        writes: RailWrites::None,
        backed: false,
        len: 0,
        datagram_max: 0,
        bytes: [0; RAIL_BYTES_MAX],
    };

    /// An address of `kind` with these bytes, truncated to [`RAIL_BYTES_MAX`]; index, writes and
    /// largest datagram are 0.
    #[inline]
    pub fn new(kind: RailKind, bytes: &[u8]) -> RailAddr {
        let len = bytes.len().min(RAIL_BYTES_MAX);
        let mut addr = RailAddr {
            kind,
            len: len as u8,
            ..RailAddr::NONE
        };
        addr.bytes[..len].copy_from_slice(&bytes[..len]);
        addr
    }

    /// The bytes that belong to the kind.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..(self.len as usize).min(RAIL_BYTES_MAX)]
    }

    /// The same bytes padded with zeros, for comparing and hashing at a fixed length.
    #[inline]
    pub fn padded(&self) -> &[u8; RAIL_BYTES_MAX] {
        &self.bytes
    }

    /// The standby rail of this rail, if it exists: at the owner's next index, by TCP at the same
    /// address and port. So an address need not name both.
    pub fn behind(&self) -> Option<RailAddr> {
        let kind = match self.kind {
            RailKind::Udp4 => RailKind::Tcp4,
            RailKind::Udp6 => RailKind::Tcp6,
            RailKind::Loopback => RailKind::Loopback,
            _ => return None,
        };
        let index = self.index + 1;
        (self.backed && (index as usize) < RAILS_MAX).then_some(RailAddr {
            kind,
            index,
            writes: match kind {
                RailKind::Loopback => RailWrites::None,
                _ => RailWrites::Keyed,
            },
            backed: false,
            datagram_max: crate::PACKET_MAX as u16,
            ..*self
        })
    }

    /// Returns whether there is a rail.
    pub fn is_some(&self) -> bool {
        self.kind != RailKind::Absent
    }

    /// Returns whether the rail can write and accepts writes.
    #[inline]
    pub fn writes(&self) -> bool {
        self.writes != RailWrites::None
    }

    /// Bytes of the address in a blob or a HELLO.
    pub fn wire_len(&self) -> usize {
        RAIL_HEAD + self.bytes().len()
    }

    fn write(&self, out: &mut [u8]) {
        let bytes = self.bytes();
        out[0] = self.kind as u8;
        out[1] = (RAIL_HEAD - 2 + bytes.len()) as u8;
        let backed = u8::from(self.backed) * BACKED;
        out[2] = self.index & INDEX_MASK | backed | (self.writes as u8) << WRITES_SHIFT;
        out[3..5].copy_from_slice(&self.datagram_max.to_le_bytes());
        out[RAIL_HEAD..RAIL_HEAD + bytes.len()].copy_from_slice(bytes);
    }

    /// Reads an address of a known kind that fills `b`; `None` if a common field is impossible.
    fn read(kind: RailKind, b: &[u8]) -> Option<RailAddr> {
        if b.len() < RAIL_HEAD || b.len() > RAIL_MAX {
            return None;
        }
        let writes = match b[2] >> WRITES_SHIFT {
            0 => RailWrites::None,
            1 => RailWrites::Keyed,
            2 => RailWrites::Direct,
            // A way of a later version, which this one cannot use.
            _ => RailWrites::None,
        };
        let addr = RailAddr {
            index: b[2] & INDEX_MASK,
            writes,
            backed: b[2] & BACKED != 0,
            datagram_max: u16_at(b, 3),
            ..RailAddr::new(kind, &b[RAIL_HEAD..])
        };
        (addr.datagram_max >= DATAGRAM_MIN).then_some(addr)
    }
}

/// A checked sequence of addresses, as in a blob or a HELLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RailList<'a>(&'a [u8]);

impl<'a> RailList<'a> {
    /// No addresses.
    pub const EMPTY: RailList<'static> = RailList(&[]);

    /// Writes `rails` to `out`, one after another, while the next one fits; skips absent ones.
    pub fn write<'b>(out: &'b mut [u8], rails: &[RailAddr]) -> RailList<'b> {
        let mut at = 0;
        for rail in rails.iter().filter(|rail| rail.is_some()) {
            let Some(room) = out.get_mut(at..at + rail.wire_len()) else {
                break;
            };
            rail.write(room);
            at += rail.wire_len();
        }
        RailList(&out[..at])
    }

    /// The first `count` addresses in `b`; `None` if some are missing or an address of a known kind
    /// is invalid.
    pub(crate) fn read(b: &'a [u8], count: usize) -> Option<RailList<'a>> {
        let mut at = 0;
        for _ in 0..count {
            let (one, kind) = next(&b[at..])?;
            if let Some(kind) = RailKind::of(kind) {
                RailAddr::read(kind, one)?;
            }
            at += one.len();
        }
        Some(RailList(&b[..at]))
    }

    /// The list in `b`, up to the first truncated address.
    pub fn of(b: &'a [u8]) -> RailList<'a> {
        let mut rest = b;
        while let Some((one, _)) = next(rest) {
            rest = &rest[one.len()..];
        }
        RailList(&b[..b.len() - rest.len()])
    }

    fn all(&self) -> impl Iterator<Item = (&'a [u8], u8)> + 'a {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let (one, kind) = next(rest)?;
            rest = &rest[one.len()..];
            Some((one, kind))
        })
    }

    /// The rails of known kinds.
    pub fn iter(&self) -> impl Iterator<Item = RailAddr> + 'a {
        self.all()
            .filter_map(|(one, kind)| RailAddr::read(RailKind::of(kind)?, one))
    }

    /// The kind numbers of rails whose kinds are unknown.
    pub fn unknown(&self) -> impl Iterator<Item = u8> + 'a {
        self.all()
            .map(|(_, kind)| kind)
            .filter(|kind| RailKind::of(*kind).is_none())
    }

    /// The number of addresses, of known and unknown kinds.
    pub fn count(&self) -> usize {
        self.all().count()
    }

    /// The encoded addresses.
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }
}

/// The first address in `b`, and its kind's number. (Kind 0 means no rail and is never written.)
fn next(b: &[u8]) -> Option<(&[u8], u8)> {
    let (&kind, &len) = b.first().zip(b.get(1))?;
    let one = b.get(..2 + len as usize)?;
    (kind != RailKind::Absent as u8).then_some((one, kind))
}
