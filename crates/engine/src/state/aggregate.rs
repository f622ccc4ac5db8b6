//! Layout of an RPC that short operations share, and of its answer.
//!
//! The first operation has the layout of a lone one, with its length in place of the data. Each
//! later operation has the distance of its address from the end of the previous one and its length,
//! both in as few bytes as possible, and its payload. The lowest bit of a length marks that the
//! next entry is a part of the same operation. The answer lists the refused operations.

use crate::state::rpcs::parse;
use marline_wire::BLOCK_BYTES;

/// Longest shared RPC: whole blocks, so that three packets of Ethernet carry it without a fourth
/// for the last bytes.
pub(crate) const AGGREGATE_MAX: usize = 9 * BLOCK_BYTES as usize;
// `Core::join` lengthens an RPC before it takes the memory for the longer one.
const _: () = assert!(AGGREGATE_MAX <= marline_proto::RPC_MAX);
/// Most bytes of an encoded 64-bit number.
const NUMBER_MAX: usize = 10;
/// Bytes of a refused operation in an answer: the operation's place in its RPC.
const REFUSED: usize = size_of::<u16>();

/// Encodes a length; `more`: the next entry is a part of the same operation.
pub(crate) fn length(len: usize, more: bool) -> u64 {
    (len as u64) << 1 | more as u64
}

/// Decodes a length, and whether the next entry is a part of the same operation.
fn length_of(word: u64) -> Option<(usize, bool)> {
    Some(((word >> 1).try_into().ok()?, word & 1 == 1))
}

/// Distance and length of an operation that follows another, before its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefix {
    bytes: [u8; 2 * NUMBER_MAX],
    len: usize,
}

impl Prefix {
    /// The prefix of an operation of this many bytes at an address, after an operation that ended
    /// at `end`.
    pub(crate) fn new(addr: u64, length: u64, end: u64) -> Prefix {
        let mut prefix = Prefix {
            bytes: [0; 2 * NUMBER_MAX],
            len: 0,
        };
        let gap = addr.wrapping_sub(end) as i64;
        prefix.push(((gap << 1) ^ (gap >> 63)) as u64);
        prefix.push(length);
        prefix
    }

    fn push(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes[self.len] = number as u8 | 0x80;
            self.len += 1;
            number >>= 7;
        }
        self.bytes[self.len] = number as u8;
        self.len += 1;
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Removes the number at the start of `bytes` and returns it; `None`: there is no valid number.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for at in 0..NUMBER_MAX {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        let shifted = part << (7 * at);
        if shifted >> (7 * at) != part {
            return None;
        }
        number |= shifted;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// An operation of a shared RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation<'a> {
    pub(crate) addr: u64,
    pub(crate) payload: &'a [u8],
    /// The next entry is a part of the same operation.
    pub(crate) more: bool,
}

/// The operations of an RPC, in order. An invalid RPC yields an error.
#[derive(Debug)]
pub(crate) struct Operations<'a> {
    /// Address and length of the next operation, and the remaining bytes.
    next: Option<(u64, (usize, bool))>,
    rest: &'a [u8],
}

impl<'a> Operations<'a> {
    /// The key, and the operations on its memory; `None`: the bytes are no shared RPC.
    pub(crate) fn of(bytes: &'a [u8]) -> Option<(u64, Operations<'a>)> {
        let ((key, addr), len, rest) = parse(bytes)?;
        let next = Some((addr, length_of(len)?));
        Some((key, Operations { next, rest }))
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Result<Operation<'a>, ()>;

    fn next(&mut self) -> Option<Self::Item> {
        let (addr, (len, more)) = self.next.take()?;
        let Some((payload, mut rest)) = self.rest.split_at_checked(len) else {
            return Some(Err(()));
        };
        if !rest.is_empty() {
            let numbers = number(&mut rest).zip(number(&mut rest));
            let Some((gap, len)) = numbers.and_then(|(gap, len)| Some((gap, length_of(len)?)))
            else {
                return Some(Err(()));
            };
            let gap = (gap >> 1) as i64 ^ -((gap & 1) as i64);
            let end = addr.wrapping_add(payload.len() as u64);
            self.next = Some((end.wrapping_add(gap as u64), len));
        }
        self.rest = rest;
        Some(Ok(Operation {
            addr,
            payload,
            more,
        }))
    }
}

/// Adds an operation to an answer's list of refused ones.
pub(crate) fn refuse(refused: &mut Vec<u8>, at: usize) {
    refused.extend_from_slice(&(at as u16).to_le_bytes());
}

/// Returns whether an answer refuses the operation at this place. An answer with an empty list
/// refuses all.
pub(crate) fn is_refused(refused: &[u8], at: usize) -> bool {
    let name = (at as u16).to_le_bytes();
    refused.is_empty() || refused.chunks_exact(REFUSED).any(|bytes| bytes == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::rpcs::head;

    /// Address and payload of each operation.
    fn read(bytes: &[u8]) -> Option<Vec<(u64, Vec<u8>)>> {
        let (key, operations) = Operations::of(bytes)?;
        assert_eq!(key, 5);
        let each = operations.map(|one| {
            let one = one?;
            assert_eq!(one.more, one.payload.len() == 300);
            Ok::<_, ()>((one.addr, one.payload.to_vec()))
        });
        each.collect::<Result<_, _>>().ok()
    }

    #[test]
    fn operations_come_back_in_their_order() {
        let all: [(u64, Vec<u8>); 6] = [
            (1_000, vec![1; 4]),
            (1_008, vec![2; 4]),
            (1_012, vec![3; 300]),
            (0, vec![]),
            (u64::MAX, vec![4]),
            (u64::MAX - 70_000, vec![5; 4]),
        ];
        let mut bytes = head((5, all[0].0), length(all[0].1.len(), false)).to_vec();
        bytes.extend_from_slice(&all[0].1);
        let mut end = all[0].0.wrapping_add(all[0].1.len() as u64);
        for (addr, payload) in &all[1..] {
            let length = length(payload.len(), payload.len() == 300);
            bytes.extend_from_slice(Prefix::new(*addr, length, end).as_slice());
            bytes.extend_from_slice(payload);
            end = addr.wrapping_add(payload.len() as u64);
        }
        assert_eq!(read(&bytes), Some(all.to_vec()));
        for len in 0..bytes.len() {
            if let Some(some) = read(&bytes[..len]) {
                assert_eq!(some, all[..some.len()], "a part is taken for others");
            }
        }
    }

    #[test]
    fn a_short_stride_takes_two_bytes() {
        assert_eq!(Prefix::new(16, length(4, false), 12).as_slice(), [8, 8]);
    }

    #[test]
    fn numbers_beyond_64_bits_are_none() {
        let mut bytes = head((5, 0), 0).to_vec();
        bytes.extend_from_slice(&[0xff; 9]);
        bytes.extend_from_slice(&[2, 0]);
        assert_eq!(read(&bytes), None);
    }

    #[test]
    fn an_answer_names_what_was_refused_or_all() {
        let mut refused = Vec::new();
        assert!(is_refused(&refused, 3));
        refuse(&mut refused, 300);
        assert!(is_refused(&refused, 300) && !is_refused(&refused, 3));
    }
}
