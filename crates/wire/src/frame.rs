//! Frames, the contents of a packet. Every frame header is a multiple of 8 bytes and starts with
//! `kind u8, flags u8, aux u16, word u32`; frames with payload have the payload's length in `aux`
//! and its sum in their last 8 bytes.

use crate::ack::{read_ack, Ack, AckMasks, MasksView, ACK_MASKS_MAX};
use crate::header::{u16_at, u32_at, u64_at};
use crate::hello::{Hello, HelloView, HELLO_FIXED};
use crate::prefix::{
    prefix, put, BadFrame, KIND_ACK, KIND_ADVERTISEMENT, KIND_BYE, KIND_CORRUPT, KIND_CREDIT,
    KIND_DATA, KIND_EAGER, KIND_GRANT, KIND_HAVE, KIND_HELLO, KIND_KEY, KIND_PAD,
    KIND_PATH_CHALLENGE, KIND_PATH_RESPONSE, KIND_PING, KIND_READ, KIND_READ_FAIL, KIND_RTS,
    KIND_WRITTEN,
};
use crate::rail_addr::RAILS_MAX;
use crate::segments::{Advertisement, Have, ADVERTISEMENT_LEN, HAVE_LEN};
use crate::skip::Extension;
use crate::{blocks, BLOCK_BYTES};

/// The message is tagged (matched by tag); otherwise untagged.
pub const FLAG_TAGGED: u8 = 1;
/// Remote CQ data is present.
pub const FLAG_CQ_DATA: u8 = 2;
/// The sender's completion waits for delivery: acknowledge at once when complete.
pub const FLAG_DELIVERY: u8 = 4;
/// This fragment (or grant) belongs to the reply to the READ of this number, not to a message.
pub const FLAG_READ_REPLY: u8 = 8;
/// The message's payload has no sum (a setting, by length) and is not checked.
pub const FLAG_UNSUMMED: u8 = 16;
/// Some bytes of this message were written ([`Written`]) and did not arrive: before placing this
/// fragment, deregister the memory, so that no late write lands.
pub const FLAG_DEREGISTER: u8 = 32;
/// A remote write: the message goes into the registered memory with the tag as key, at the offset
/// in `data`. It matches no receive. It is eager only to a peer whose HELLO allows that
/// ([`Hello::eager_puts`]), and ends with the grant of no bytes that answers it.
pub const FLAG_PUT: u8 = 64;

/// The remote write or READ is a part of a larger operation, and is not counted separately.
pub const FLAG_PART: u8 = 2;
/// In a grant of no bytes: the remote write does not name writable memory.
pub const FLAG_REFUSED: u8 = 128;

/// In a head: an RPC to the peer's engine, or its reply. The message matches no receive, is
/// processed in the order of its sender's messages, and is always eager.
pub const FLAG_RPC: u8 = 128;

/// Bytes of an EAGER frame header.
pub const EAGER_LEN: usize = 40;
/// Bytes of a DATA frame header: the same as EAGER (8 bytes unused), so that all packets of a
/// message have one length, as UDP segmentation offload requires.
pub const DATA_LEN: usize = 40;
/// Bytes of an RTS frame.
pub const RTS_LEN: usize = 32;
/// Bytes of a PATH_CHALLENGE or PATH_RESPONSE frame.
pub const PATH_CHALLENGE_LEN: usize = 16;
/// Bytes of a GRANT frame.
pub const GRANT_LEN: usize = 24;
/// Most filler in the head of a PAD frame.
const PAD_HEAD_MAX: u16 = u16::MAX / 8 * 8;
/// Bytes of an ACK frame with one mask.
pub(crate) const ACK_LONE_LEN: usize = 24;

/// The fields on which MPI matches, once per message, in EAGER or RTS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsgHead {
    /// Number of the message from this peer, which determines the order of matching.
    pub number: u32,
    /// [`FLAG_TAGGED`] | [`FLAG_CQ_DATA`] | [`FLAG_DELIVERY`] | [`FLAG_UNSUMMED`] | [`FLAG_PUT`]
    /// | [`FLAG_RPC`]; with [`FLAG_PUT`] also [`FLAG_PART`].
    pub flags: u8,
    /// All 64 tag bits (0 for untagged messages); the key of a remote write.
    pub tag: u64,
    /// Remote CQ data (0 when absent); the address of a remote write.
    pub data: u64,
    /// Length of the whole message in bytes.
    pub total: u64,
}

/// First fragment of an eager message: matching head and payload from offset 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eager {
    /// The matching head; `total` fits 32 bits.
    pub head: MsgHead,
    /// Payload bytes in this packet.
    pub len: u16,
    /// Sum of the payload, seeded (see `proto`).
    pub sum: u64,
}

/// Any other fragment: of an eager or rendezvous message or of a READ's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Message number, or READ number with [`FLAG_READ_REPLY`].
    pub number: u32,
    /// [`FLAG_READ_REPLY`], [`FLAG_DELIVERY`], [`FLAG_UNSUMMED`], [`FLAG_DEREGISTER`].
    pub flags: u8,
    /// Offset in the message, a multiple of [`BLOCK_BYTES`].
    pub offset: u64,
    /// Length of the whole message in bytes.
    pub total: u64,
    /// Payload bytes in this packet.
    pub len: u16,
    /// Sum of the payload, seeded.
    pub sum: u64,
}

/// Ready to send: request of a rendezvous message, which waits for its grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rts {
    /// The matching head.
    pub head: MsgHead,
}

/// The receiver's permission to send a message up to an offset. Cumulative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Message (or READ) number.
    pub number: u32,
    /// Only [`FLAG_READ_REPLY`] and [`FLAG_REFUSED`].
    pub flags: u8,
    /// Bytes below this offset may be sent.
    pub upto: u64,
    /// Bytes that the receiver wants: fewer than the message has if it truncates the message.
    pub wanted: u64,
}

/// The key for writing a granted message's bytes on one rail. Sent along with the message's grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rkey {
    /// Message (or READ) number.
    pub number: u32,
    /// Only [`FLAG_READ_REPLY`].
    pub flags: u8,
    /// The receiver's index of the rail.
    pub rail: u8,
    /// The rail's key of the memory; offsets under the key are those of the message.
    pub key: u64,
}

/// A fragment whose bytes were written into registered memory, not sent in the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Message number, or READ number with [`FLAG_READ_REPLY`].
    pub number: u32,
    /// Only [`FLAG_READ_REPLY`] and [`FLAG_UNSUMMED`].
    pub flags: u8,
    /// Offset in the message, a multiple of [`BLOCK_BYTES`].
    pub offset: u64,
    /// Length of the whole message in bytes.
    pub total: u64,
    /// Bytes written; may exceed the size of a packet.
    pub len: u32,
    /// Sum of the bytes, seeded as if they were in the packet.
    pub sum: u64,
}

/// Request to read remote registered memory (`fi_readmsg`); answered by DATA with
/// [`FLAG_READ_REPLY`], subject to the reader's grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The reader's number for this read.
    pub number: u32,
    /// Only [`FLAG_PART`].
    pub flags: u8,
    /// Registered region's key.
    pub key: u64,
    /// Offset inside the region in bytes.
    pub addr: u64,
    /// Number of bytes wanted.
    pub len: u64,
    /// Bytes granted from the start.
    pub upto: u64,
}

/// A frame. `H` and `M` are the types of its long parts: owned, or ([`FrameView`]) borrowed from
/// the received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // lives on the stack, one at a time
pub enum Frame<H = Hello<'static>, M = AckMasks> {
    /// First fragment of an eager message.
    Eager(Eager),
    /// Any other fragment.
    Data(Data),
    /// Rendezvous request.
    Rts(Rts),
    /// Rendezvous grant.
    Grant(Grant),
    /// Key of a granted message's memory.
    Key(Rkey),
    /// A written fragment.
    Written(Written),
    /// A readable segment of a rendezvous message's memory.
    Advertisement(Advertisement),
    /// Segments that the receiver has read.
    Have(Have),
    /// Packet acknowledgement.
    Ack(Ack<M>),
    /// Cumulative eager credit: total bytes that this peer may have sent since its first message.
    Credit {
        /// Total bytes (with per-message overhead) allowed so far.
        bytes: u64,
    },
    /// The sender's identity and rails; first contact.
    Hello(H),
    /// Path probe; its packet requests an immediate ack, which is the answer.
    Ping,
    /// The sender closes its endpoint and sends nothing more.
    Bye {
        /// All messages of the addressee numbered below this arrived whole.
        arrived: u32,
    },
    /// Remote read request.
    Read(Read),
    /// The READ named no valid memory.
    ReadFail {
        /// The READ's number.
        number: u32,
    },
    /// Filler up to a probe's size; `aux` bytes of payload without a sum follow.
    Pad {
        /// Bytes of filler in the payload area.
        len: u16,
        /// Bytes of filler after the frame, a multiple of 8, covered by the head's CRC.
        head: u16,
    },
    /// Too many packets on this path arrive damaged: use other paths.
    Corrupt {
        /// The path's code: [`crate::Header::path`] of the damaged packets.
        path: u16,
    },
    /// Asks for proof that the receiver is at the address to which this packet was sent.
    PathChallenge {
        /// Data that cannot be guessed.
        data: u64,
    },
    /// The proof: data of a challenge, as received.
    PathResponse {
        /// The challenge's data.
        data: u64,
    },
    /// A frame of a kind that this version does not know.
    Extension(Extension),
}

/// A frame in its received packet. Kept small, since it is passed through three calls before it
/// takes effect.
pub type FrameView<'a> = Frame<HelloView<'a>, MasksView<'a>>;

const _: () = assert!(size_of::<FrameView<'_>>() <= 64);

impl Frame<Hello<'_>> {
    /// Bytes of this frame's header, a multiple of 8.
    pub fn head_len(&self) -> usize {
        match self {
            Frame::Eager(_) => EAGER_LEN,
            Frame::Data(_) => DATA_LEN,
            Frame::Written(_) => DATA_LEN,
            Frame::Rts(_) => RTS_LEN,
            Frame::Grant(_) => GRANT_LEN,
            Frame::Key(_) => 16,
            Frame::PathChallenge { .. } | Frame::PathResponse { .. } => PATH_CHALLENGE_LEN,
            Frame::Advertisement(_) => ADVERTISEMENT_LEN,
            Frame::Have(_) => HAVE_LEN,
            Frame::Ack(a) => 16 + 8 * a.masks.count as usize,
            Frame::Credit { .. } => 16,
            Frame::Hello(h) => h.frame_len(),
            Frame::Ping | Frame::Bye { .. } | Frame::ReadFail { .. } => 8,
            Frame::Corrupt { .. } => 8,
            Frame::Pad { head, .. } => 8 + *head as usize,
            Frame::Read(_) => 40,
            Frame::Extension(e) => e.len as usize,
        }
    }

    /// Writes the frame header into `out[..head_len()]`.
    pub fn write(&self, out: &mut [u8]) {
        match self {
            Frame::Eager(e) => write_eager(e, out),
            Frame::Data(d) => write_data(d, out),
            Frame::Rts(r) => {
                prefix(out, KIND_RTS, r.head.flags, 0, r.head.number);
                put(out, 8, r.head.tag);
                put(out, 16, r.head.data);
                put(out, 24, r.head.total);
            }
            Frame::Grant(g) => {
                prefix(out, KIND_GRANT, g.flags, 0, g.number);
                put(out, 8, g.upto);
                put(out, 16, g.wanted);
            }
            Frame::Key(k) => {
                prefix(out, KIND_KEY, k.flags, k.rail as u16, k.number);
                put(out, 8, k.key);
            }
            Frame::Written(w) => {
                prefix(out, KIND_WRITTEN, w.flags, 0, w.number);
                put(out, 8, w.offset);
                put(out, 16, w.total);
                put(out, 24, w.len as u64);
                put(out, 32, w.sum);
            }
            Frame::Advertisement(o) => o.write(out),
            Frame::Have(h) => h.write(out),
            Frame::Ack(a) => {
                let count = a.masks.count.min(ACK_MASKS_MAX as u8);
                a.write(count, |m| a.masks.bits[m], out);
            }
            Frame::Credit { bytes } => write_long(KIND_CREDIT, *bytes, out),
            Frame::Hello(h) => {
                prefix(
                    out,
                    KIND_HELLO,
                    h.rail_count(),
                    h.frame_len() as u16,
                    h.slot,
                );
                h.write(out);
            }
            Frame::Ping => prefix(out, KIND_PING, 0, 0, 0),
            Frame::Bye { arrived } => prefix(out, KIND_BYE, 0, 0, *arrived),
            Frame::Read(r) => {
                prefix(out, KIND_READ, r.flags, 0, r.number);
                put(out, 8, r.key);
                put(out, 16, r.addr);
                put(out, 24, r.len);
                put(out, 32, r.upto);
            }
            Frame::ReadFail { number } => prefix(out, KIND_READ_FAIL, 0, 0, *number),
            Frame::Pad { len, head } => {
                prefix(out, KIND_PAD, 0, *len, *head as u32);
                out[8..8 + *head as usize].fill(0);
            }
            Frame::Corrupt { path } => prefix(out, KIND_CORRUPT, 0, 0, *path as u32),
            Frame::PathChallenge { data } => write_long(KIND_PATH_CHALLENGE, *data, out),
            Frame::PathResponse { data } => write_long(KIND_PATH_RESPONSE, *data, out),
            Frame::Extension(e) => e.write(out),
        }
    }
}

impl<H, M> Frame<H, M> {
    /// Payload bytes of this frame.
    #[inline]
    pub fn payload_len(&self) -> usize {
        match self {
            Frame::Eager(e) => e.len as usize,
            Frame::Data(d) => d.len as usize,
            Frame::Pad { len, .. } => *len as usize,
            Frame::Extension(e) => e.payload as usize,
            _ => 0,
        }
    }
}

impl<'a> FrameView<'a> {
    /// Converts to the owned form. The rails of a HELLO remain in the packet.
    pub fn fields(&self) -> Frame<Hello<'a>> {
        match *self {
            Frame::Eager(eager) => Frame::Eager(eager),
            Frame::Data(data) => Frame::Data(data),
            Frame::Rts(rts) => Frame::Rts(rts),
            Frame::Grant(grant) => Frame::Grant(grant),
            Frame::Key(key) => Frame::Key(key),
            Frame::Written(written) => Frame::Written(written),
            Frame::Advertisement(advertisement) => Frame::Advertisement(advertisement),
            Frame::Have(have) => Frame::Have(have),
            Frame::Ack(ack) => Frame::Ack(ack.owned()),
            Frame::Credit { bytes } => Frame::Credit { bytes },
            Frame::Hello(hello) => Frame::Hello(hello.fields()),
            Frame::Ping => Frame::Ping,
            Frame::Bye { arrived } => Frame::Bye { arrived },
            Frame::Read(read) => Frame::Read(read),
            Frame::ReadFail { number } => Frame::ReadFail { number },
            Frame::Pad { len, head } => Frame::Pad { len, head },
            Frame::Corrupt { path } => Frame::Corrupt { path },
            Frame::PathChallenge { data } => Frame::PathChallenge { data },
            Frame::PathResponse { data } => Frame::PathResponse { data },
            Frame::Extension(extension) => Frame::Extension(extension),
        }
    }

    /// Bytes of the frame that begins with this prefix.
    #[inline(always)]
    fn len_of((kind, flags, aux, word): (u8, u8, u16, u32)) -> Result<usize, BadFrame> {
        Ok(match kind {
            KIND_EAGER | KIND_DATA | KIND_READ | KIND_WRITTEN => 40,
            KIND_RTS => 32,
            KIND_GRANT => 24,
            KIND_ACK if flags as usize <= ACK_MASKS_MAX => 16 + 8 * flags as usize,
            KIND_CREDIT | KIND_PATH_CHALLENGE | KIND_PATH_RESPONSE => 16,
            KIND_KEY if (aux as usize) < RAILS_MAX => 16,
            KIND_ADVERTISEMENT if (aux as usize) < RAILS_MAX => ADVERTISEMENT_LEN,
            KIND_HAVE => HAVE_LEN,
            KIND_HELLO if aux % 8 == 0 && aux as usize >= HELLO_FIXED => aux as usize,
            KIND_PING | KIND_BYE | KIND_READ_FAIL => 8,
            KIND_PAD if word <= PAD_HEAD_MAX as u32 && word % 8 == 0 => 8 + word as usize,
            KIND_CORRUPT if word <= u16::MAX as u32 => 8,
            _ => Extension::frame_len(kind, aux).ok_or(BadFrame)?,
        })
    }

    /// Reads the frame at the start of `b` (the rest of the packet's head), and checks every field
    /// that can be checked without state.
    #[inline(always)] // without it the check of a packet calls it: 1% more instructions a message
    pub(crate) fn read(b: &'a [u8]) -> Result<(FrameView<'a>, usize), BadFrame> {
        if b.len() < 8 {
            return Err(BadFrame);
        }
        let (kind, flags, aux, word) = (b[0], b[1], u16_at(b, 2), u32_at(b, 4));
        let need = Self::len_of((kind, flags, aux, word))?;
        if b.len() < need {
            return Err(BadFrame);
        }
        let b = &b[..need];
        let frame = match kind {
            KIND_EAGER => Frame::Eager(read_eager(b, flags, aux, word)?),
            KIND_DATA => Frame::Data(read_data(b, flags, aux, word)?),
            KIND_RTS if flags & FLAG_RPC != 0 => return Err(BadFrame),
            KIND_RTS => Frame::Rts(Rts {
                head: read_head(b, flags, word, u64_at(b, 24)),
            }),
            KIND_GRANT => Frame::Grant(Grant {
                number: word,
                flags,
                upto: u64_at(b, 8),
                wanted: u64_at(b, 16),
            }),
            KIND_KEY => Frame::Key(Rkey {
                number: word,
                flags,
                rail: aux as u8,
                key: u64_at(b, 8),
            }),
            KIND_WRITTEN => Frame::Written(read_written(b, flags, word)?),
            KIND_ADVERTISEMENT => Frame::Advertisement(Advertisement::read(b, flags, aux, word)),
            KIND_HAVE => Frame::Have(Have::read(b, word)),
            KIND_ACK => Frame::Ack(read_ack(b, aux, word)?),
            KIND_CREDIT => Frame::Credit {
                bytes: u64_at(b, 8),
            },
            KIND_HELLO => Frame::Hello(HelloView::read(b).ok_or(BadFrame)?),
            KIND_PING => Frame::Ping,
            KIND_BYE => Frame::Bye { arrived: word },
            KIND_READ => Frame::Read(Read {
                number: word,
                flags,
                key: u64_at(b, 8),
                addr: u64_at(b, 16),
                len: u64_at(b, 24),
                upto: u64_at(b, 32),
            }),
            KIND_READ_FAIL => Frame::ReadFail { number: word },
            KIND_CORRUPT => Frame::Corrupt { path: word as u16 },
            KIND_PATH_CHALLENGE => Frame::PathChallenge { data: u64_at(b, 8) },
            KIND_PATH_RESPONSE => Frame::PathResponse { data: u64_at(b, 8) },
            KIND_PAD => Frame::Pad {
                len: aux,
                head: word as u16,
            },
            _ => Frame::Extension(Extension::read(b)),
        };
        Ok((frame, need))
    }
}

#[inline]
fn write_eager(e: &Eager, out: &mut [u8]) {
    prefix(out, KIND_EAGER, e.head.flags, e.len, e.head.number);
    put(out, 8, e.head.tag);
    put(out, 16, e.head.data);
    put(out, 24, e.head.total);
    put(out, 32, e.sum);
}

/// Returns whether a DATA frame begins here.
#[inline]
pub(crate) fn is_data(b: &[u8]) -> bool {
    b.first() == Some(&KIND_DATA)
}

/// Reads an ACK frame with one mask that fills these bytes.
#[inline]
pub(crate) fn read_lone_ack(b: &[u8]) -> Option<Ack<MasksView<'_>>> {
    let is_it = b.first_chunk() == Some(&[KIND_ACK, 1]);
    is_it.then(|| read_ack(b, u16_at(b, 2), u32_at(b, 4)).ok())?
}

/// Reads an EAGER frame that fills these bytes.
#[inline]
pub(crate) fn read_lone_eager(b: &[u8]) -> Option<Eager> {
    let is_it = b.first() == Some(&KIND_EAGER);
    is_it.then(|| read_eager(b, b[1], u16_at(b, 2), u32_at(b, 4)).ok())?
}

fn write_data(d: &Data, out: &mut [u8]) {
    prefix(out, KIND_DATA, d.flags, d.len, d.number);
    put(out, 8, d.offset);
    put(out, 16, d.total);
    put(out, 24, 0);
    put(out, 32, d.sum);
}

/// Writes a frame of 8 bytes.
fn write_long(kind: u8, value: u64, out: &mut [u8]) {
    prefix(out, kind, 0, 0, 0);
    put(out, 8, value);
}

fn read_head(b: &[u8], flags: u8, word: u32, total: u64) -> MsgHead {
    MsgHead {
        number: word,
        flags,
        tag: u64_at(b, 8),
        data: u64_at(b, 16),
        total,
    }
}

#[inline]
fn read_eager(b: &[u8], flags: u8, aux: u16, word: u32) -> Result<Eager, BadFrame> {
    let head = read_head(b, flags, word, u64_at(b, 24));
    let both = FLAG_PUT | FLAG_RPC;
    if !covers(0, aux as u64, head.total) || flags & both == both {
        return Err(BadFrame);
    }
    Ok(Eager {
        head,
        len: aux,
        sum: u64_at(b, 32),
    })
}

#[inline]
fn read_data(b: &[u8], flags: u8, aux: u16, word: u32) -> Result<Data, BadFrame> {
    let (offset, total) = (u64_at(b, 8), u64_at(b, 16));
    if !covers(offset, aux as u64, total) {
        return Err(BadFrame);
    }
    Ok(Data {
        number: word,
        flags,
        offset,
        total,
        len: aux,
        sum: u64_at(b, 32),
    })
}

fn read_written(b: &[u8], flags: u8, word: u32) -> Result<Written, BadFrame> {
    let (offset, total, len) = (u64_at(b, 8), u64_at(b, 16), u64_at(b, 24));
    // A fragment without bytes is never written.
    if len == 0 || len > u32::MAX as u64 || !covers(offset, len, total) {
        return Err(BadFrame);
    }
    Ok(Written {
        number: word,
        flags,
        offset,
        total,
        len: len as u32,
        sum: u64_at(b, 32),
    })
}

/// Checks that a fragment covers whole blocks; only the last block of the message may be short.
#[inline]
fn covers(offset: u64, len: u64, total: u64) -> bool {
    let Some(end) = offset.checked_add(len) else {
        return false;
    };
    offset % BLOCK_BYTES == 0
        && end <= total
        && total < 1 << 56
        && (len % BLOCK_BYTES == 0 || end == total)
        && (len > 0 || total == 0)
        && blocks(total) > offset / BLOCK_BYTES
}
