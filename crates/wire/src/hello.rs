//! HELLO and the address blob: an endpoint's identity and the addresses of its rails.

use crate::header::{u32_at, u64_at};
use crate::rail_addr::{RailAddr, RailList, RAILS_MAX, RAIL_MAX};
use crate::skip::HelloFields;
use crate::version::Versions;
use core::fmt;

/// The payload algorithm of all packets before the peer's HELLO, and the fallback if a peer does
/// not know the requested one: CRC-64/NVME, which every version knows.
pub const FIRST_ALGORITHM: u8 = 1;
/// Bytes of the largest address blob: the limit of MPICH and FI_NAME_MAX.
pub const ADDRESS_LEN_MAX: usize = 64;
/// Bytes of a HELLO without its rails.
pub(crate) const HELLO_FIXED: usize = 56;
/// Most bytes of the rails in a HELLO.
pub const HELLO_RAIL_BYTES_MAX: usize = RAILS_MAX * RAIL_MAX;

/// Bytes of an address blob before its rails.
const ADDRESS_FIXED: usize = 16;
/// Most bytes of the rails in an address blob: two of 24, or four over IPv4, of 12.
const ADDRESS_RAIL_BYTES: usize = ADDRESS_LEN_MAX - ADDRESS_FIXED;
/// The second of the two bytes that identify our blobs: `M`. The first has the versions, so that
/// peers without a common one notice when they exchange addresses, before any packet.
const ADDRESS_MAGIC: u8 = b'M';
/// Bits of the number of rails; the bits above are the upper bits of the key's mark.
const COUNT_BITS: u16 = 4;
/// Bits of the key's mark among the flags.
const MARK_IN_FLAGS: u16 = 7;
/// Most kinds named in an error.
const KINDS_NAMED: usize = 4;

/// The address blob that libfabric exchanges: `id u64, token u32, versions u8, 'M', count u8, flags
/// u8` (bit 0: the owner has, or waits for, further rails), then the addresses of the rails for
/// first contact. 64 bytes at most; bytes behind the rails are skipped. Four bits of the count are
/// the number of rails; its other four bits and the other seven flags are the mark of the job's
/// key. Of the versions bits 0 to 4 are the newest, bits 5 and 6 the number of earlier ones, bit 7
/// is set. (Up to version 3, which was not negotiated, this byte was a digit.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Random endpoint id.
    pub id: u64,
    /// Random token of this life.
    pub token: u32,
    /// The owner has rails that did not fit, or waits for rails.
    pub has_more: bool,
    /// Mark of the key with which the owner tags its packets (11 bits); 0: its packets have no
    /// tags.
    pub key_mark: u16,
    /// The versions that the owner speaks, encoded.
    versions: u8,
    /// Encoded rails, then zeros: compact, for thousands of known peers.
    rails: [u8; ADDRESS_RAIL_BYTES],
}

/// The reason why a blob names no endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// The blob is not from Marline.
    Foreign,
    /// The blob is from a version of Marline that was not negotiated, with this digit.
    Version(u8),
    /// The blob has an impossible value.
    Malformed,
    /// All rails are of kinds that this version does not know: the kinds' numbers; 0 for none.
    UnknownKinds([u8; KINDS_NAMED]),
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressError::Foreign => write!(f, "this is no address of Marline"),
            AddressError::Version(theirs) => write!(
                f,
                "this is an address of another version of Marline (that one speaks version {} of \
                 the protocol, this one {}): both sides need a library with a common version",
                *theirs as char,
                Versions::OURS
            ),
            AddressError::Malformed => write!(f, "this address of Marline is damaged"),
            AddressError::UnknownKinds(kinds) => {
                write!(f, "this version of Marline knows none of the rails' kinds:")?;
                let mut kinds = kinds.iter().filter(|kind| **kind != 0);
                kinds.try_for_each(|kind| write!(f, " {kind}"))
            }
        }
    }
}

impl Address {
    /// An address with as many of `rails`, beginning with the first, as fit into a blob.
    pub fn new(id: u64, token: u32, rails: &[RailAddr]) -> Address {
        let mut bytes = [0; ADDRESS_RAIL_BYTES];
        RailList::write(&mut bytes, rails);
        Address {
            id,
            token,
            has_more: false,
            key_mark: 0,
            versions: Versions::OURS.encode(),
            rails: bytes,
        }
    }

    /// An address that names no endpoint.
    pub const NOBODY: Address = Address {
        id: 0,
        token: 0,
        has_more: false,
        key_mark: 0,
        versions: Versions::OURS.encode(),
        rails: [0; ADDRESS_RAIL_BYTES],
    };

    /// The rails.
    pub fn rails(&self) -> RailList<'_> {
        RailList::of(&self.rails)
    }

    /// The versions that the owner speaks.
    pub fn versions(&self) -> Versions {
        // The encoding was checked when the address was read.
        Versions::decode(self.versions).unwrap_or(Versions::OURS)
    }

    /// Sets the versions that the owner speaks.
    pub fn set_versions(&mut self, versions: Versions) {
        self.versions = versions.encode();
    }

    /// Returns whether a blob with these rails has room for one more.
    pub fn has_room(rails: &[RailAddr], more: &RailAddr) -> bool {
        let taken: usize = rails.iter().map(RailAddr::wire_len).sum();
        taken + more.wire_len() <= ADDRESS_RAIL_BYTES
    }

    /// Encodes the blob; returns also its length.
    pub fn encode(&self) -> ([u8; ADDRESS_LEN_MAX], usize) {
        let mut out = [0; ADDRESS_LEN_MAX];
        let rails = self.rails();
        out[0..8].copy_from_slice(&self.id.to_le_bytes());
        out[8..12].copy_from_slice(&self.token.to_le_bytes());
        out[12] = self.versions;
        out[13] = ADDRESS_MAGIC;
        out[14] = rails.count() as u8 | (self.key_mark >> MARK_IN_FLAGS << COUNT_BITS) as u8;
        out[15] = self.has_more as u8 | (self.key_mark << 1) as u8;
        let end = ADDRESS_FIXED + rails.bytes().len();
        out[ADDRESS_FIXED..end].copy_from_slice(rails.bytes());
        (out, end)
    }

    /// Reads a blob; trailing bytes are allowed (MPIs pad names). Rails of unknown kinds are kept;
    /// [`RailList::unknown`] lists them.
    pub fn decode(b: &[u8]) -> Result<Address, AddressError> {
        if b.len() < ADDRESS_FIXED || b[13] != ADDRESS_MAGIC {
            return Err(AddressError::Foreign);
        }
        Versions::decode(b[12]).ok_or(match b[12].is_ascii_digit() {
            true => AddressError::Version(b[12]),
            false => AddressError::Foreign,
        })?;
        let room = &b[ADDRESS_FIXED..b.len().min(ADDRESS_LEN_MAX)];
        let count = b[14] & ((1 << COUNT_BITS) - 1);
        let rails = RailList::read(room, count as usize).ok_or(AddressError::Malformed)?;
        if rails.iter().next().is_none() {
            let mut kinds = [0; KINDS_NAMED];
            let unknown = rails.unknown();
            kinds.iter_mut().zip(unknown).for_each(|(to, k)| *to = k);
            return Err(match kinds[0] {
                0 => AddressError::Malformed,
                _ => AddressError::UnknownKinds(kinds),
            });
        }
        Ok(Address::of_parts(b, rails))
    }

    /// The address of which [`Address::encode`] gave these bytes; other bytes may give an address
    /// that nothing reaches.
    pub fn of_encoded(b: &[u8]) -> Address {
        match b.get(ADDRESS_FIXED..b.len().min(ADDRESS_LEN_MAX)) {
            Some(rails) => Address::of_parts(b, RailList::of(rails)),
            None => Address::NOBODY,
        }
    }

    fn of_parts(b: &[u8], rails: RailList<'_>) -> Address {
        let mut address = Address {
            id: u64_at(b, 0),
            token: u32_at(b, 8),
            has_more: b[15] & 1 == 1,
            key_mark: u16::from(b[14] >> COUNT_BITS) << MARK_IN_FLAGS | u16::from(b[15] >> 1),
            versions: b[12],
            rails: [0; ADDRESS_RAIL_BYTES],
        };
        address.rails[..rails.bytes().len()].copy_from_slice(rails.bytes());
        address
    }
}

/// First contact: all that a peer must know of an endpoint.
///
/// ```text
///  0 prefix (flags = rail count, aux = frame length, word = slot I keep for you)
///  8 u64 my id   16 u32 my token  20 u32 my epoch
/// 24 u8 algorithm I would use, u8 bit 0: reliable, bit 1: eager puts, u8 bit 0: refused, u8 -
/// 28 u32 algorithms I can check, bit n: number n
/// 32 u64 credit bytes   40 u64 0   48 u32 revision of the rails
/// 52 u8 oldest, u8 newest version of mine, then of yours as I know them, or 0
/// 56 rails (see RailAddr), further fields (see HelloFields), zeros up to a multiple of 8
/// ```
///
/// The first 56 bytes and the form of what follows are the same in every version, so that a refusal
/// can be read by every version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The sender's slot for the destination (goes into [`crate::Header::dst_slot`]).
    pub slot: u32,
    /// Sender's endpoint id.
    pub id: u64,
    /// Sender's token.
    pub token: u32,
    /// Sender's epoch.
    pub epoch: u32,
    /// Payload algorithm that the sender prefers.
    pub algorithm: u8,
    /// Algorithms that the sender can verify: bit n stands for number n.
    pub algorithms: u32,
    /// The sender has software reliability on; both sides must have the same setting.
    pub reliable: bool,
    /// The sender takes remote writes as eager messages.
    pub eager_puts: bool,
    /// The sender has refused the destination because of conflicting settings: it expects no answer
    /// and ignores all further packets.
    pub refused: bool,
    /// Initial cumulative eager credit in bytes.
    pub credit: u64,
    /// Number of changes of the sender's rail addresses in this life.
    pub revision: u32,
    /// The versions that the sender speaks.
    pub versions: Versions,
    /// The versions that the destination speaks, as the sender knows them: another range than the
    /// destination's own was altered on the way. `None`: unknown.
    pub of_destination: Option<Versions>,
    /// Rail addresses, at most [`RAILS_MAX`].
    pub rails: RailList<'a>,
    /// Further fields, of later versions.
    pub further: HelloFields<'a>,
}

impl Hello<'_> {
    /// Bytes of the frame.
    pub fn frame_len(&self) -> usize {
        crate::align8(HELLO_FIXED + self.rails.bytes().len() + self.further.bytes().len())
    }

    /// Most bytes of rails in a frame of `room` bytes.
    pub fn rail_bytes_in(room: usize) -> usize {
        room.saturating_sub(HELLO_FIXED) / 8 * 8
    }

    /// Number of rails.
    pub(crate) fn rail_count(&self) -> u8 {
        self.rails.count() as u8
    }

    pub(crate) fn write(&self, out: &mut [u8]) {
        out[8..16].copy_from_slice(&self.id.to_le_bytes());
        out[16..20].copy_from_slice(&self.token.to_le_bytes());
        out[20..24].copy_from_slice(&self.epoch.to_le_bytes());
        out[24..32].fill(0);
        out[24] = self.algorithm;
        out[25] = self.reliable as u8 | (self.eager_puts as u8) << 1;
        out[26] = self.refused as u8;
        out[28..32].copy_from_slice(&self.algorithms.to_le_bytes());
        out[32..40].copy_from_slice(&self.credit.to_le_bytes());
        out[40..HELLO_FIXED].fill(0);
        out[48..52].copy_from_slice(&self.revision.to_le_bytes());
        (out[52], out[53]) = (self.versions.oldest, self.versions.newest);
        if let Some(theirs) = self.of_destination {
            (out[54], out[55]) = (theirs.oldest, theirs.newest);
        }
        let (rails, rest) = out[HELLO_FIXED..].split_at_mut(self.rails.bytes().len());
        rails.copy_from_slice(self.rails.bytes());
        let (fields, pad) = rest.split_at_mut(self.further.bytes().len());
        fields.copy_from_slice(self.further.bytes());
        pad.fill(0);
    }
}

/// A HELLO in its received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloView<'a>(&'a [u8]);

impl<'a> HelloView<'a> {
    /// Reads a frame that fills `b`; `None` if a field is impossible.
    pub(crate) fn read(b: &'a [u8]) -> Option<HelloView<'a>> {
        let view = HelloView(b);
        let rails = view.list()?;
        HelloFields::read(&b[HELLO_FIXED + rails.bytes().len()..])?;
        let right = b[1] as usize <= RAILS_MAX && versions_at(b, 52).is_possible();
        right.then_some(view)
    }

    fn list(&self) -> Option<RailList<'a>> {
        RailList::read(&self.0[HELLO_FIXED..], self.0[1] as usize)
    }

    /// Initial cumulative eager credit in bytes.
    pub fn credit(&self) -> u64 {
        u64_at(self.0, 32)
    }

    /// The sender's slot for the destination.
    pub fn slot(&self) -> u32 {
        u32_at(self.0, 4)
    }

    /// All fields; the rails remain in the packet.
    pub fn fields(&self) -> Hello<'a> {
        let b = self.0;
        let rails = self.list().unwrap_or(RailList::EMPTY);
        let further = HelloFields::read(&b[HELLO_FIXED + rails.bytes().len()..]);
        Hello {
            slot: self.slot(),
            id: u64_at(b, 8),
            token: u32_at(b, 16),
            epoch: u32_at(b, 20),
            algorithm: b[24],
            algorithms: u32_at(b, 28),
            reliable: b[25] & 1 == 1,
            eager_puts: b[25] & 2 == 2,
            refused: self.refuses(),
            credit: self.credit(),
            revision: u32_at(b, 48),
            versions: versions_at(b, 52),
            of_destination: Some(versions_at(b, 54)).filter(|theirs| theirs.is_possible()),
            rails,
            further: further.unwrap_or(HelloFields::NONE),
        }
    }

    /// Returns whether the sender has refused the destination.
    pub(crate) fn refuses(&self) -> bool {
        self.0[26] & 1 == 1
    }
}

fn versions_at(b: &[u8], at: usize) -> Versions {
    Versions {
        oldest: b[at],
        newest: b[at + 1],
    }
}
