//! Packet and frame layouts of Marline: **parse = validate**.
//!
//! A rail carries packets; a packet is one fixed header, then all frame headers and
//! control, then the payloads, each starting on an 8-byte boundary:
//!
//! ```text
//! 0        48                 head_len (multiple of 8)
//! +--------+------------------+---------+-----+---------+-----+
//! | header | frames ...       | payload | pad | payload | pad |
//! +--------+------------------+---------+-----+---------+-----+
//!  \___ CRC-32C over bytes 4..head_len ___/     each with its own sum, in its frame
//! ```
//!
//! A packet of a job with a key ends with a tag of 8 bytes over bytes 4..head_len
//! ([`Header::FLAG_TAGGED`]).
//!
//! No field of a packet takes effect before the head CRC has passed. The caller computes the CRC
//! (`marline-checksum`), because this crate imports nothing. All integers are
//! little endian. No `unsafe`, no allocation, `no_std`.
//!
//! Called by `marline-proto` (which writes heads and reads frames) and `marline-engine`
//! (which moves payloads).
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod ack;
mod direct;
mod follow;
mod frame;
mod group;
mod group_flags;
mod group_seal;
mod header;
mod hello;
mod packet;
mod place;
mod prefix;
mod rail_addr;
mod segments;
mod skip;
mod version;

pub use ack::{Ack, AckMasks, LoneMask, MasksView, ACK_MASKS_MAX};
pub use direct::{DirectHead, DIRECT_HEAD_LEN};
pub use follow::{FragmentHead, FRAGMENT_HEAD_LEN, FRAGMENT_SUM_AT};
pub use frame::{
    Data, Eager, Frame, FrameView, Grant, MsgHead, Read, Rkey, Rts, Written, DATA_LEN, EAGER_LEN,
    FLAG_CQ_DATA, FLAG_DELIVERY, FLAG_DEREGISTER, FLAG_PART, FLAG_PUT, FLAG_READ_REPLY,
    FLAG_REFUSED, FLAG_RPC, FLAG_TAGGED, FLAG_UNSUMMED, GRANT_LEN, PATH_CHALLENGE_LEN, RTS_LEN,
};
pub use group::{
    Asked, Chunk, Gaps, GroupFrame, GroupHead, GroupPacket, GroupWriter, ASKED_MAX, CHUNK_HEAD_LEN,
    GROUP_HEAD_LEN, PARITY_MAX, PIECES_MAX, PIECE_LEN,
};
pub use group_flags::AckFlags;
pub use group_seal::{GroupSeal, GROUP_SEAL_LEN, GROUP_TAG_BYTES, TO_ALL};
pub use header::{
    path_code, Ends, Header, TaggedHead, HEADER_LEN, PACKET_NUMBER_MAX, SLOT_UNKNOWN, TAG_LEN,
};
pub use hello::{
    Address, AddressError, Hello, HelloView, ADDRESS_LEN_MAX, FIRST_ALGORITHM, HELLO_RAIL_BYTES_MAX,
};
pub use packet::{HeadWriter, Packet, ParseError, PayloadSlot};
pub use place::{Answer, Question, PLACE_LEN};
pub use rail_addr::{RailAddr, RailKind, RailList, RailWrites, RAILS_MAX, RAIL_BYTES_MAX};
pub use segments::{Advertisement, Have, ADVERTISEMENT_LEN, HAVE_LEN, SEGMENTS_MAX};
pub use skip::{Extension, HelloFields, EXTENSION_KINDS, HELLO_FIELDS_MAX};
pub use version::{Versions, VERSION};

/// Bytes of a block. Messages are divided into blocks; a fragment has `k` of them, and only the
/// last block of a message may be shorter. 448 = 7 cache lines of 64: three fill a 1500-byte MTU
/// (1,344 of 1,372 usable bytes) and one fits the 576-byte minimum of IPv4. So a fragment can move
/// to any path without negotiation, whatever the path's MTU.
pub const BLOCK_BYTES: u64 = 448;

/// Largest packet in bytes on any rail (the kernel silently splits 65,507).
pub const PACKET_MAX: usize = 64_000;

/// Rounds a length up to the packet's 8-byte payload alignment.
#[inline]
pub const fn align8(len: usize) -> usize {
    (len + 7) & !7
}

/// Number of blocks that cover `len` bytes. An empty message has one block (in its only, empty
/// fragment), so that "all blocks arrived" has the same meaning for every length.
#[inline]
pub const fn blocks(len: u64) -> u64 {
    if len == 0 {
        1
    } else {
        len.div_ceil(BLOCK_BYTES)
    }
}
