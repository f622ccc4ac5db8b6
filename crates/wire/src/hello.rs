//! HELLO and the address blob: who an endpoint is and where its rails are.

use crate::header::{u16_at, u32_at, u64_at};

/// Number of the payload algorithm of all packets before the peer's HELLO has come, and what stands
/// for a wish that one of two peers does not know: CRC-64/NVME, which every version knows.
pub const FIRST_ALGORITHM: u8 = 1;
/// Rails that one HELLO may name (a path is two nibbles).
pub const HELLO_RAILS_MAX: usize = 8;
/// Bytes of the largest address blob: MPICH's and FI_NAME_MAX's limit.
pub const ADDRESS_LEN_MAX: usize = 64;
const RAIL_LEN: usize = 24;
/// Bytes of a HELLO without its rails.
pub(crate) const HELLO_FIXED: usize = 56;

/// Address of one rail of an endpoint.
///
/// 24 bytes: `kind u8 (4 = IPv4/UDP, 6 = IPv6/UDP, 16 more for a rail that
/// can write, 32 more for one with direct writes), index u8,
/// port u16, mtu u16, scope u16, ip 16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RailAddr {
    /// 4: UDP over IPv4, 6: UDP over IPv6; with [`RailAddr::WRITES`]: a rail of that address family
    /// that can also write into the memory of its peers. 0: none. Rails reach their own kind only.
    pub kind: u8,
    /// The owner's index of this rail.
    pub index: u8,
    /// UDP port, host order.
    pub port: u16,
    /// Largest datagram (UDP payload, bytes) that the owner's interface takes.
    pub mtu: u16,
    /// Not used on the wire between hosts: scope of a link-local address is the receiver's.
    pub prefix_len: u16,
    /// Address; IPv4 in the first four bytes.
    pub ip: [u8; 16],
}

impl RailAddr {
    /// An absent rail.
    pub const NONE: RailAddr = RailAddr {
        kind: 0,
        index: 0,
        port: 0,
        mtu: 0,
        prefix_len: 0,
        ip: [0; 16],
    };

    /// In `kind`: the rail takes writes.
    pub const WRITES: u8 = 16;

    /// In `kind`: the rail takes direct writes ([`crate::DirectHead`]), and is else as others.
    pub const DIRECT: u8 = 32;

    /// Whether the rail can write, and takes writes.
    #[inline]
    pub fn writes(&self) -> bool {
        self.kind & (RailAddr::WRITES | RailAddr::DIRECT) != 0
    }

    /// Whether rails of the two kinds reach each other.
    #[inline]
    pub fn reaches(&self, other: &RailAddr) -> bool {
        (self.kind ^ other.kind) & !RailAddr::DIRECT == 0
    }

    /// 4 or 6, as in IPv4 and IPv6; 0: none.
    pub fn family(&self) -> u8 {
        self.kind & !(RailAddr::WRITES | RailAddr::DIRECT)
    }

    fn write(&self, out: &mut [u8]) {
        out[0] = self.kind;
        out[1] = self.index;
        out[2..4].copy_from_slice(&self.port.to_le_bytes());
        out[4..6].copy_from_slice(&self.mtu.to_le_bytes());
        out[6..8].copy_from_slice(&self.prefix_len.to_le_bytes());
        out[8..24].copy_from_slice(&self.ip);
    }

    fn read(b: &[u8]) -> Option<RailAddr> {
        let mut ip = [0; 16];
        ip.copy_from_slice(&b[8..24]);
        let addr = RailAddr {
            kind: b[0],
            index: b[1],
            port: u16_at(b, 2),
            mtu: u16_at(b, 4),
            prefix_len: u16_at(b, 6),
            ip,
        };
        let known = addr.family() == 4 || addr.family() == 6;
        let limit = if addr.family() == 4 { 32 } else { 128 };
        (known
            && (addr.index as usize) < HELLO_RAILS_MAX
            && addr.port != 0
            && addr.prefix_len <= limit
            && addr.mtu >= 512)
            .then_some(addr)
    }

    /// Whether `other` lies in the subnet of `self` (same family, equal first `prefix_len` bits).
    pub fn same_subnet(&self, other: &RailAddr) -> bool {
        if !self.reaches(other) {
            return false;
        }
        let bits = self.prefix_len as usize;
        (0..16).all(|i| {
            let keep = bits.saturating_sub(8 * i).min(8);
            let mask = (0xff00u16 >> keep) as u8;
            self.ip[i] & mask == other.ip[i] & mask
        })
    }
}

/// The address blob that libfabric exchanges: `id u64, token u32, magic u16, count u8, pad u8`,
/// then one or two rail addresses. 64 bytes at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Random endpoint id.
    pub id: u64,
    /// Random token of this life.
    pub token: u32,
    /// One or two rails on which first contact is made; absent ones are [`RailAddr::NONE`].
    pub rails: [RailAddr; 2],
}

const ADDRESS_MAGIC: u16 = 0x4d31;

/// An address blob that is not one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressError;

impl Address {
    /// Bytes of the encoded blob: 16 + 24 per rail.
    pub fn encode(&self) -> ([u8; ADDRESS_LEN_MAX], usize) {
        let mut out = [0; ADDRESS_LEN_MAX];
        let count = self.rails.iter().filter(|r| r.kind != 0).count();
        out[0..8].copy_from_slice(&self.id.to_le_bytes());
        out[8..12].copy_from_slice(&self.token.to_le_bytes());
        out[12..14].copy_from_slice(&ADDRESS_MAGIC.to_le_bytes());
        out[14] = count as u8;
        for (i, rail) in self.rails.iter().filter(|r| r.kind != 0).enumerate() {
            rail.write(&mut out[16 + RAIL_LEN * i..]);
        }
        (out, 16 + RAIL_LEN * count)
    }

    /// Reads a blob; trailing bytes are allowed (MPIs pad names).
    pub fn decode(b: &[u8]) -> Result<Address, AddressError> {
        if b.len() < 16 || u16_at(b, 12) != ADDRESS_MAGIC {
            return Err(AddressError);
        }
        let count = b[14] as usize;
        if count == 0 || count > 2 || b.len() < 16 + RAIL_LEN * count {
            return Err(AddressError);
        }
        let mut rails = [RailAddr::NONE; 2];
        for (i, rail) in rails[..count].iter_mut().enumerate() {
            *rail = RailAddr::read(&b[16 + RAIL_LEN * i..]).ok_or(AddressError)?;
        }
        Ok(Address {
            id: u64_at(b, 0),
            token: u32_at(b, 8),
            rails,
        })
    }
}

/// First contact: everything a peer must know of an endpoint.
///
/// ```text
///  0 prefix (flags = rail count, aux = frame length, word = slot I keep for you)
///  8 u64 my id   16 u32 my token  20 u32 my epoch
/// 24 u8 algorithm I would use, u8 reliable, u16 -, u32 algorithms I can check, bit n: number n
/// 32 u64 credit bytes   40 u64 the destination's id   48 u64 reserved
/// 56 rails, 24 bytes each
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Index the sender keeps for the destination (goes into [`crate::Header::dst_slot`]).
    pub slot: u32,
    /// Sender's endpoint id.
    pub id: u64,
    /// Sender's token.
    pub token: u32,
    /// Sender's epoch.
    pub epoch: u32,
    /// Payload algorithm the sender would use.
    pub algorithm: u8,
    /// Algorithms the sender can check: bit n stands for number n.
    pub algorithms: u32,
    /// Whether the sender's software reliability is on; both sides must agree.
    pub reliable: bool,
    /// Initial cumulative eager credit in bytes.
    pub credit: u64,
    /// Rails in use in `rails`.
    pub rail_count: u8,
    /// Rail addresses.
    pub rails: [RailAddr; HELLO_RAILS_MAX],
}

impl Hello {
    /// Bytes of the frame.
    pub fn frame_len(&self) -> usize {
        HELLO_FIXED + RAIL_LEN * (self.rail_count as usize).min(HELLO_RAILS_MAX)
    }

    pub(crate) fn write(&self, out: &mut [u8]) {
        out[8..16].copy_from_slice(&self.id.to_le_bytes());
        out[16..20].copy_from_slice(&self.token.to_le_bytes());
        out[20..24].copy_from_slice(&self.epoch.to_le_bytes());
        out[24..32].fill(0);
        out[24] = self.algorithm;
        out[25] = self.reliable as u8;
        out[28..32].copy_from_slice(&self.algorithms.to_le_bytes());
        out[32..40].copy_from_slice(&self.credit.to_le_bytes());
        out[40..HELLO_FIXED].fill(0);
        let count = (self.rail_count as usize).min(HELLO_RAILS_MAX);
        for (i, rail) in self.rails[..count].iter().enumerate() {
            rail.write(&mut out[HELLO_FIXED + RAIL_LEN * i..]);
        }
    }
}

/// A HELLO in the packet that brought it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloView<'a>(&'a [u8]);

impl<'a> HelloView<'a> {
    /// The frame that is all of `b`, if its fields are possible.
    pub(crate) fn read(b: &'a [u8]) -> Option<HelloView<'a>> {
        let count = b[1] as usize;
        let view = HelloView(b);
        let right = count <= HELLO_RAILS_MAX
            && b.len() == HELLO_FIXED + RAIL_LEN * count
            && b[25] <= 1
            && view.rails().all(|rail| rail.is_some());
        right.then_some(view)
    }

    fn rails(&self) -> impl Iterator<Item = Option<RailAddr>> + 'a {
        self.0[HELLO_FIXED..]
            .chunks_exact(RAIL_LEN)
            .map(RailAddr::read)
    }

    /// Initial cumulative eager credit in bytes.
    pub fn credit(&self) -> u64 {
        u64_at(self.0, 32)
    }

    /// Index the sender keeps for the destination.
    pub fn slot(&self) -> u32 {
        u32_at(self.0, 4)
    }

    /// A copy that outlives its packet.
    pub fn owned(&self) -> Hello {
        let b = self.0;
        let mut rails = [RailAddr::NONE; HELLO_RAILS_MAX];
        for (rail, read) in rails.iter_mut().zip(self.rails().flatten()) {
            *rail = read;
        }
        Hello {
            slot: self.slot(),
            id: u64_at(b, 8),
            token: u32_at(b, 16),
            epoch: u32_at(b, 20),
            algorithm: b[24],
            algorithms: u32_at(b, 28),
            reliable: b[25] == 1,
            credit: self.credit(),
            rail_count: b[1],
            rails,
        }
    }
}
