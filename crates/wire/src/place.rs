//! Discovery: a question to the endpoint that has a host's port, and the answer with the endpoint's
//! address. Both have the same size, so that a forged question cannot amplify traffic.
//!
//! ```text
//!  0  u32 CRC-32C over [4, 128)
//!  4  u8  version, any        5  u8 0   6  u16 128
//!  8  u64 number of the question, random
//! 16  zeros                 39  u8 kind: 2 question, 3 answer
//! 40  question: address for the answer (see RailAddr); answer: the address blob, 64 bytes
//! 120 question: u64 tag over [4, 120) under a key of the job, or 0
//! ... zeros
//! ```

use crate::header::{u16_at, u32_at, u64_at, KIND_AT, TAG_LEN};
use crate::hello::ADDRESS_LEN_MAX;
use crate::rail_addr::{RailAddr, RailList, RAIL_MAX};
use crate::version::{FIRST_NEGOTIATED, VERSION};

/// Bytes of a question, and of an answer.
pub const PLACE_LEN: usize = 128;
const BODY_AT: usize = 40;
const TAG_AT: usize = PLACE_LEN - TAG_LEN;
const QUESTION: u8 = 2;
const ANSWER: u8 = 3;

/// Asks for the address of the endpoint that has the place to which the question is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Random number, repeated in the answer.
    pub number: u64,
    /// The rail that receives the answer.
    pub from: RailAddr,
}

/// The reply with an endpoint's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The question's number.
    pub number: u64,
    /// The endpoint's address; unchecked.
    pub blob: [u8; ADDRESS_LEN_MAX],
}

impl Question {
    /// Returns whether these bytes claim to be a question, without any check.
    #[inline]
    pub fn claimed(bytes: &[u8]) -> bool {
        bytes.len() == PLACE_LEN && bytes[KIND_AT] == QUESTION
    }

    /// Encodes the datagram.
    pub fn encode(&self, crc32c: impl Fn(&[u8]) -> u32) -> [u8; PLACE_LEN] {
        let mut body = [0; RAIL_MAX];
        RailList::write(&mut body, &[self.from]);
        encode(QUESTION, self.number, &body, crc32c)
    }

    /// Puts the tag of a job with a key into an encoded question; `tag` computes it from the bytes
    /// that it covers.
    pub fn add_tag(
        bytes: &mut [u8; PLACE_LEN],
        tag: impl Fn(&[u8]) -> u64,
        crc32c: impl Fn(&[u8]) -> u32,
    ) {
        let tag = tag(&bytes[4..TAG_AT]);
        bytes[TAG_AT..].copy_from_slice(&tag.to_le_bytes());
        let sum = crc32c(&bytes[4..]);
        bytes[0..4].copy_from_slice(&sum.to_le_bytes());
    }

    /// The bytes of a question that its tag covers, and the tag.
    pub fn tagged(bytes: &[u8]) -> Option<(&[u8], u64)> {
        let bytes: &[u8; PLACE_LEN] = bytes.try_into().ok()?;
        Some((&bytes[4..TAG_AT], u64_at(bytes, TAG_AT)))
    }

    /// Reads a datagram that contains only a question.
    pub fn parse(bytes: &[u8], crc32c: impl Fn(&[u8]) -> u32) -> Option<Question> {
        let number = check(QUESTION, bytes, crc32c)?;
        let from = RailList::of(&bytes[BODY_AT..BODY_AT + RAIL_MAX])
            .iter()
            .next()?;
        Some(Question { number, from })
    }
}

impl Answer {
    /// Encodes the datagram.
    pub fn encode(&self, crc32c: impl Fn(&[u8]) -> u32) -> [u8; PLACE_LEN] {
        encode(ANSWER, self.number, &self.blob, crc32c)
    }

    /// Reads a datagram that contains only an answer.
    pub fn parse(bytes: &[u8], crc32c: impl Fn(&[u8]) -> u32) -> Option<Answer> {
        let number = check(ANSWER, bytes, crc32c)?;
        let mut blob = [0; ADDRESS_LEN_MAX];
        blob.copy_from_slice(&bytes[BODY_AT..BODY_AT + ADDRESS_LEN_MAX]);
        Some(Answer { number, blob })
    }
}

fn encode(kind: u8, number: u64, body: &[u8], crc32c: impl Fn(&[u8]) -> u32) -> [u8; PLACE_LEN] {
    let mut out = [0; PLACE_LEN];
    out[4] = VERSION;
    out[6..8].copy_from_slice(&(PLACE_LEN as u16).to_le_bytes());
    out[8..16].copy_from_slice(&number.to_le_bytes());
    out[KIND_AT] = kind;
    out[BODY_AT..BODY_AT + body.len()].copy_from_slice(body);
    let sum = crc32c(&out[4..]);
    out[0..4].copy_from_slice(&sum.to_le_bytes());
    out
}

/// The number of a valid datagram of this kind.
fn check(kind: u8, bytes: &[u8], crc32c: impl Fn(&[u8]) -> u32) -> Option<u64> {
    if bytes.len() != PLACE_LEN || u32_at(bytes, 0) != crc32c(&bytes[4..]) {
        return None;
    }
    // The layout is the same in all negotiated versions; the blob in the answer names them.
    let ours = (FIRST_NEGOTIATED..128).contains(&bytes[4]) && bytes[KIND_AT] == kind;
    (ours && u16_at(bytes, 6) as usize == PLACE_LEN).then(|| u64_at(bytes, 8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rail_addr::RailKind;
    use crate::GroupPacket;

    /// A constant sum, so that only the checks of fields can reject a datagram.
    fn none(_: &[u8]) -> u32 {
        0
    }

    /// A sum that depends on every byte.
    fn sum(bytes: &[u8]) -> u32 {
        bytes.iter().fold(1, |sum: u32, b| {
            sum.wrapping_mul(31).wrapping_add(*b as u32)
        })
    }

    fn question() -> Question {
        let mut from = RailAddr::new(RailKind::Udp6, &[7; 19]);
        from.datagram_max = 1_472;
        Question { number: 77, from }
    }

    #[test]
    fn questions_and_answers_are_read_as_they_were_written() {
        let asked = question().encode(sum);
        assert!(Question::claimed(&asked) && !GroupPacket::claimed(&asked));
        assert_eq!(Question::parse(&asked, sum), Some(question()));
        assert_eq!(Answer::parse(&asked, sum), None);
        let answer = Answer {
            number: 77,
            blob: [9; ADDRESS_LEN_MAX],
        };
        let encoded = answer.encode(sum);
        assert!(!Question::claimed(&encoded));
        assert_eq!(Answer::parse(&encoded, sum), Some(answer));
        assert_eq!(Question::parse(&encoded, sum), None);
        assert_eq!(Question::parse(&asked[..127], sum), None);
        assert_eq!(Question::parse(&[], sum), None);
    }

    #[test]
    fn a_tag_covers_all_that_a_question_says() {
        let tag = |bytes: &[u8]| u64::from(sum(bytes)) << 32 | 7;
        let mut asked = question().encode(sum);
        Question::add_tag(&mut asked, tag, sum);
        assert_eq!(Question::parse(&asked, sum), Some(question()));
        let right = |bytes: &[u8]| {
            let (covered, claimed) = Question::tagged(bytes).unwrap();
            tag(covered) == claimed
        };
        assert!(right(&asked) && !right(&question().encode(sum)));
        for at in 4..PLACE_LEN {
            let mut bytes = asked;
            bytes[at] ^= 1;
            assert!(!right(&bytes), "byte {at}");
        }
        assert_eq!(Question::tagged(&asked[1..]), None);
    }

    #[test]
    fn any_damage_is_detected() {
        let asked = question().encode(sum);
        for at in 0..PLACE_LEN {
            let mut bytes = asked;
            bytes[at] ^= 0x10;
            assert_eq!(Question::parse(&bytes, sum), None, "byte {at}");
        }
        // The sum is correct for any content, so the datagram is accepted only if its fields are
        // valid.
        let asked = question().encode(none);
        for at in [4, 6, 7, KIND_AT, BODY_AT, BODY_AT + 3] {
            let mut bytes = asked;
            bytes[at] = 0xff;
            if at == BODY_AT + 3 {
                bytes[at] = 0; // the largest datagram is too small
                bytes[at + 1] = 0;
            }
            assert_eq!(Question::parse(&bytes, none), None, "byte {at}");
        }
    }
}
