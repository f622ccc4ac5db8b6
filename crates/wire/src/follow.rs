//! Heads of packets that differ from the head before in three fields only: consecutive fragments of
//! a long message.

use crate::frame::{is_data, DATA_LEN};
use crate::header::{u32_at, Header, FLAGS_AT, HEADER_LEN, NUMBER_AT};

/// Length of the head of a packet with one DATA frame.
pub const FRAGMENT_HEAD_LEN: usize = HEADER_LEN + DATA_LEN;

/// Offset of the frame's sum in such a packet.
pub const FRAGMENT_SUM_AT: usize = FRAGMENT_HEAD_LEN - 8;

/// Offset of the fragment's offset in such a packet.
const OFFSET_AT: usize = HEADER_LEN + 8;

const _: () = assert!(FRAGMENT_SUM_AT.is_multiple_of(8) && NUMBER_AT.is_multiple_of(8));

/// The head of a packet with one DATA frame, from which the following heads are derived.
#[derive(Clone, Copy, Debug)]
pub struct FragmentHead([u8; FRAGMENT_HEAD_LEN]);

impl FragmentHead {
    /// The head of `packet`, if its only frame is a DATA frame. Drops the CRC, and all flags except
    /// those for the data's reliability and the tag.
    pub fn of(packet: &[u8], head_len: usize) -> Option<FragmentHead> {
        let head: &[u8; FRAGMENT_HEAD_LEN] = packet.first_chunk()?;
        if head_len != FRAGMENT_HEAD_LEN || !is_data(&head[HEADER_LEN..]) {
            return None;
        }
        let mut head = *head;
        head[..4].fill(0);
        let kept = Header::FLAG_NATIVE | Header::FLAG_NO_ACK | Header::FLAG_TAGGED;
        head[FLAGS_AT] &= kept;
        if head[FLAGS_AT] & Header::FLAG_NATIVE == 0 {
            head[FLAGS_AT] &= Header::FLAG_TAGGED;
        }
        Some(FragmentHead(head))
    }

    /// Returns whether the packets are native and not acknowledged.
    #[inline]
    pub fn is_native(&self) -> bool {
        self.0[FLAGS_AT] & Header::FLAG_NATIVE != 0
    }

    /// Returns whether the frame belongs to this message (or READ, by `flags`).
    #[inline]
    pub fn is_of(&self, number: u32, flags: u8) -> bool {
        self.0[HEADER_LEN + 1] == flags && u32_at(&self.0, HEADER_LEN + 4) == number
    }

    /// Returns whether `packet` begins with this head, with another packet number and fragment
    /// offset (bytes in the message). Ignores the CRC and the sum.
    ///
    /// The expected words are computed in registers and compared one by one: a head just written to
    /// memory would still be in the store buffer.
    #[inline]
    pub fn leads(&self, packet: &[u8], number: u64, offset: u64) -> bool {
        let Some(packet) = packet.first_chunk::<FRAGMENT_HEAD_LEN>() else {
            return false;
        };
        let (ours, theirs) = (self.0.as_chunks().0, packet.as_chunks().0);
        let mut differ = 0;
        for at in 0..FRAGMENT_SUM_AT / 8 {
            let want = match 8 * at {
                NUMBER_AT => number,
                OFFSET_AT => offset,
                _ => u64::from_le_bytes(ours[at]),
            };
            // The first four bytes are the CRC.
            let seen = if at == 0 { !0 << 32 } else { !0 };
            differ |= (want ^ u64::from_le_bytes(theirs[at])) & seen;
        }
        differ == 0
    }

    /// Writes the head with another packet number and fragment offset (bytes in the message).
    #[inline]
    pub fn write(&self, out: &mut [u8], number: u64, offset: u64) {
        let out = &mut out[..FRAGMENT_HEAD_LEN];
        out.copy_from_slice(&self.0);
        out[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&number.to_le_bytes());
        out[OFFSET_AT..OFFSET_AT + 8].copy_from_slice(&offset.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Data, Frame, HeadWriter, Header};

    fn packet(number: u64, flags: u8, offset: u64) -> ([u8; 512], usize) {
        let mut out = [0; 512];
        let mut writer = HeadWriter::new(&mut out, 512);
        let data = Data {
            number: 7,
            flags: 0,
            offset,
            total: 1 << 40,
            len: 100,
            sum: 0,
        };
        writer.push(&Frame::Data(data)).unwrap();
        let header = Header {
            version: crate::VERSION,
            algorithm: 1,
            dst_id: 2,
            dst_token: 3,
            dst_slot: 4,
            src_id: 5,
            src_epoch: 6,
            path: 0x10,
            flags,
            number,
        };
        let (head_len, _) = writer.finish(&header);
        (out, head_len)
    }

    #[test]
    fn a_following_head_is_what_the_writer_would_have_written() {
        let (model, head_len) = packet(1 << 33, Header::FLAG_ACK_NOW, 896);
        let (wanted, _) = packet((1 << 33) + 1, 0, 1_792);
        let mut out = [0xff; 512];
        let head = FragmentHead::of(&model, head_len).unwrap();
        assert!(head.is_of(7, 0) && !head.is_of(8, 0) && !head.is_of(7, 1));
        head.write(&mut out, (1 << 33) + 1, 1_792);
        assert_eq!(out[..head_len], wanted[..head_len]);
    }

    #[test]
    fn only_following_fragments_match_the_head() {
        let (model, head_len) = packet(1 << 33, Header::FLAG_ACK_NOW, 896);
        let head = FragmentHead::of(&model, head_len).unwrap();
        let (next, _) = packet((1 << 33) + 1, 0, 1_792);
        assert!(head.leads(&next, (1 << 33) + 1, 1_792));
        assert!(!head.leads(&next[..head_len - 1], (1 << 33) + 1, 1_792));
        assert!(!head.leads(&next, 1 << 33, 1_792) && !head.leads(&next, (1 << 33) + 1, 896));
        for at in 0..FRAGMENT_HEAD_LEN {
            let mut other = next;
            other[at] ^= 1;
            let unseen = !(4..FRAGMENT_SUM_AT).contains(&at);
            assert_eq!(
                head.leads(&other, (1 << 33) + 1, 1_792),
                unseen,
                "byte {at}"
            );
        }
    }

    #[test]
    fn other_packets_give_no_fragment_head() {
        let (model, head_len) = packet(1, 0, 0);
        assert!(FragmentHead::of(&model, head_len + 8).is_none());
        assert!(FragmentHead::of(&model[..40], head_len).is_none());
        let mut ping = model;
        ping[HEADER_LEN] = 8;
        assert!(FragmentHead::of(&ping, head_len).is_none());
    }
}
