//! RPCs in flight (remote writes and atomics in one message each way), and the encoding of requests
//! and responses.

use crate::api::{EpId, OpError, REMOTE_PIECES_MAX};
use crate::memory::op_table::{OpTable, Pieces};
use marline_proto::{PeerId, RPC_MAX};
use std::collections::BTreeMap;

/// Most open RPCs of an endpoint to one peer: the peer keeps each response until it is
/// acknowledged.
pub(crate) const OPEN_MAX: u32 = 1_024;
/// Most operations in open RPCs of an endpoint to one peer: the callers' contexts are kept until
/// the answer. Operations that share an RPC count each.
pub(crate) const OPERATIONS_MAX: u32 = 16 * OPEN_MAX;

/// An RPC that waits for its response.
#[derive(Debug)]
pub(crate) struct RpcOp {
    pub ep: EpId,
    pub peer: PeerId,
    /// Distinguishes the RPC from earlier RPCs with the same handle.
    pub serial: u32,
    /// Caller's context.
    pub context: usize,
    /// True if success writes a completion entry.
    pub completion: bool,
    /// Completion flags; 0: the operation's end was already reported.
    pub flags: u64,
    /// Destination of the peer's old values.
    pub result: Pieces,
    /// The longer operation of which the RPC is a part.
    pub whole: Option<u32>,
    /// Further operations that share the RPC.
    pub joined: Vec<Joined>,
}

/// An operation that shares the RPC of an operation before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined {
    /// Caller's context.
    pub context: usize,
    /// The operation's success writes a completion entry.
    pub completion: bool,
    /// The longer operation of which this is a part.
    pub whole: Option<u32>,
}

/// Open RPCs and operations of an endpoint to one peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Open {
    pub rpcs: u32,
    /// Operations in open RPCs; those that share an RPC count each.
    pub operations: u32,
}

impl Open {
    /// No further RPC may be opened.
    pub(crate) fn is_full(self) -> bool {
        self.rpcs >= OPEN_MAX || self.operations >= OPERATIONS_MAX
    }
}

/// The last RPC that an endpoint posted to a peer, if others may share it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastRpc {
    pub rpc: u32,
    /// The first word of the RPC.
    pub id: u64,
    pub word: Word,
    pub key: u64,
    /// The address after the RPC's last operation.
    pub end: u64,
    /// Encoded length of the RPC's first operation.
    pub first: u64,
    /// Bytes of the RPC.
    pub len: usize,
}

impl LastRpc {
    /// Returns whether an operation of this kind on the memory of this key may share the RPC.
    pub(crate) fn takes(&self, word: Word, key: u64) -> bool {
        let kind = |word: Word| (word.verb, word.datatype, word.op, word.flags & !MORE);
        self.key == key && kind(self.word) == kind(word)
    }
}

/// The first word of an RPC.
pub(crate) fn id_of(serial: u32, rpc: u32) -> u64 {
    (u64::from(serial) << 32) | u64::from(rpc)
}

/// A part of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The operation, in [`Rpcs::wholes`].
    pub whole: u32,
    /// [`PART`], [`MORE`], or 0 for the part with which the peer counts the operation.
    pub flags: u8,
}

/// Distinct keys of an operation's memory with the number of parts that name each; at most as many
/// keys as a request may name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keys {
    keys: [(u64, u8); REMOTE_PIECES_MAX],
    count: usize,
}

impl Keys {
    /// Adds `more` parts with a key, if there is room.
    pub(crate) fn add(&mut self, key: u64, more: u8) {
        let known = self.keys[..self.count].iter_mut().find(|of| of.0 == key);
        match known {
            Some((_, parts)) => *parts = parts.saturating_add(more),
            None if self.count < REMOTE_PIECES_MAX => {
                self.keys[self.count] = (key, more);
                self.count += 1;
            }
            None => {}
        }
    }

    pub(crate) fn as_slice(&self) -> &[(u64, u8)] {
        &self.keys[..self.count]
    }
}

/// Received RPCs of one operation, while its last RPC is missing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    /// True if one of them was refused.
    pub failed: bool,
    /// The memory that they accessed or name.
    pub keys: Keys,
}

/// An operation in several parts.
#[derive(Debug)]
pub(crate) struct Whole {
    pub ep: EpId,
    /// Number of parts that have not ended.
    pub left: usize,
    /// Result of the operation: that of its first failed part.
    pub end: Result<(), OpError>,
    /// Notification to send to the peer when all parts have succeeded.
    pub trailer: Option<EndNotice>,
}

/// The end of an operation in parts, with which the peer counts it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndNotice {
    pub peer: PeerId,
    /// True if the operation read.
    pub reads: bool,
    /// Regions of its pieces; the first piece's region is first.
    pub keys: Keys,
    /// Key and address of the written memory, remote CQ data, and the reported length (32 bits, as
    /// in verbs). The operation ends when the peer has reported the data.
    pub data: Option<((u64, u64), u64, u32)>,
    pub completion: bool,
}

/// The RPCs of an engine.
#[derive(Default)]
pub(crate) struct Rpcs {
    pub ops: OpTable<RpcOp>,
    pub wholes: OpTable<Whole>,
    /// Number of open RPCs by endpoint index and peer.
    pub open: BTreeMap<(u32, u32), Open>,
    /// The last RPC, which later operations may join, by endpoint index and peer.
    pub last: BTreeMap<(u32, u32), LastRpc>,
    pub serial: u32,
    /// Long writes that are parts of operations: the operation in `wholes`, by handle.
    pub puts: BTreeMap<u32, u32>,
    /// Reads that are parts of operations: the operation in `wholes`, by handle.
    pub reads: BTreeMap<u32, u32>,
    /// Operations of which some RPCs were received, by endpoint index and peer.
    pub runs: BTreeMap<(u32, u32), Run>,
}

/// The kind of an RPC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Response.
    Answer,
    Write,
    /// An atomic operation or a read of length 0.
    Atomic,
    /// All parts of an operation have ended.
    Over,
    /// Several writes into one region.
    Writes,
    /// Several atomic operations of one kind on one region that return no values.
    Atomics,
}

/// The response to an atomic carries the old values, or the operation that ended was a read.
pub(crate) const FETCHES: u8 = 1;
/// The request carries remote CQ data.
pub(crate) const HAS_DATA: u8 = 2;
/// Comparison values follow the operands.
pub(crate) const COMPARES: u8 = 4;
/// A part that is not counted: a separate message counts its operation.
pub(crate) const PART: u8 = 8;
/// The next RPC belongs to the same operation; the last of them counts the operation.
pub(crate) const MORE: u8 = 16;

/// The second word of an RPC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub verb: Verb,
    /// Datatype of an atomic.
    pub datatype: u8,
    /// Operation of an atomic; in the end of an operation in parts, number of parts in its region.
    pub op: u8,
    /// [`FETCHES`], [`HAS_DATA`], [`COMPARES`], [`PART`], [`MORE`].
    pub flags: u8,
    /// Number of elements of an atomic; bytes of a write, if this is its data; not 0 in a response
    /// if the request was refused.
    pub count: u32,
}

impl Word {
    /// A word for messages other than atomics.
    pub(crate) const fn new(verb: Verb, flags: u8, count: u32) -> Word {
        let (datatype, op) = (0, 0);
        Word {
            verb,
            datatype,
            op,
            flags,
            count,
        }
    }

    /// The word of an RPC that operations of this kind share.
    pub(crate) fn shared(self) -> Word {
        let verb = match self.verb {
            Verb::Write => Verb::Writes,
            Verb::Atomic => Verb::Atomics,
            other => other,
        };
        Word {
            verb,
            flags: 0,
            count: 0,
            ..self
        }
    }

    /// The word of a single operation of a shared RPC, which has `elements` elements. `more`: the
    /// next operation of the RPC is a part of the same operation.
    pub(crate) fn alone(self, elements: usize, more: bool) -> Word {
        let (verb, count) = match self.verb {
            Verb::Writes => (Verb::Write, 0),
            Verb::Atomics => (Verb::Atomic, elements as u32),
            other => (other, self.count),
        };
        Word {
            verb,
            flags: MORE * more as u8,
            count,
            ..self
        }
    }

    /// The word on the wire.
    pub(crate) fn pack(self) -> u64 {
        let verb = match self.verb {
            Verb::Answer => 0,
            Verb::Write => 1,
            Verb::Atomic => 2,
            Verb::Over => 3,
            Verb::Writes => 4,
            Verb::Atomics => 5,
        };
        u64::from_le_bytes({
            let [a, b, c, d] = self.count.to_le_bytes();
            [verb, self.datatype, self.op, self.flags, a, b, c, d]
        })
    }

    /// Decodes a word; `None`: a verb that this version does not know.
    pub(crate) fn unpack(word: u64) -> Option<Word> {
        let [verb, datatype, op, flags, a, b, c, d] = word.to_le_bytes();
        let verb = match verb {
            0 => Verb::Answer,
            1 => Verb::Write,
            2 => Verb::Atomic,
            3 => Verb::Over,
            4 => Verb::Writes,
            5 => Verb::Atomics,
            _ => return None,
        };
        Some(Word {
            verb,
            datatype,
            op,
            flags,
            count: u32::from_le_bytes([a, b, c, d]),
        })
    }
}

/// Bytes before a request's payload: key, address, data.
pub(crate) const HEAD: usize = 24;
/// Longest payload of an RPC.
pub(crate) const PAYLOAD_MAX: usize = RPC_MAX - HEAD;

/// Encodes the head of a request.
pub(crate) fn head((key, addr): (u64, u64), data: u64) -> [u8; HEAD] {
    let mut bytes = [0; HEAD];
    for (slot, word) in bytes.chunks_exact_mut(8).zip([key, addr, data]) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Splits a request into key and address, data, and payload; `None`: too short.
pub(crate) fn parse(bytes: &[u8]) -> Option<((u64, u64), u64, &[u8])> {
    let (head, payload) = bytes.split_at_checked(HEAD)?;
    let mut words = head.chunks_exact(8).map(|word| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        u64::from_le_bytes(bytes)
    });
    Some(((words.next()?, words.next()?), words.next()?, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_heads_are_decoded_as_encoded() {
        let word = Word {
            verb: Verb::Atomic,
            datatype: 7,
            op: 18,
            flags: FETCHES | COMPARES,
            count: 77_000,
        };
        assert_eq!(Word::unpack(word.pack()), Some(word));
        assert_eq!(Word::unpack(6), None);
        assert_eq!(Word::unpack(word.shared().pack()), Some(word.shared()));
        let flags = MORE;
        assert_eq!(word.shared().alone(77_000, true), Word { flags, ..word });
        let mut bytes = head((1, u64::MAX), 9).to_vec();
        bytes.push(5);
        assert_eq!(parse(&bytes), Some(((1, u64::MAX), 9, &[5][..])));
        assert_eq!(parse(&bytes[..HEAD - 1]), None);
    }
}
