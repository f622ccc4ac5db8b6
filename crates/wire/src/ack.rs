//! The ACK frame: masks of received packets of one path.

use crate::header::u64_at;
use crate::prefix::{prefix, put, BadFrame, KIND_ACK};

/// Most 64-bit masks in one ACK frame: 1,024 packets of a path in one ack.
pub const ACK_MASKS_MAX: usize = 16;

/// Acknowledgement masks of one path (the VFRAG of paper 3, generalised). Bit `i` of mask `m` is
/// set if packet `base + 64·m + i` arrived with correct sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<M = AckMasks> {
    /// Path whose packets are acknowledged, as in [`crate::Header::path`] of those packets.
    pub path: u16,
    /// Time between the newest packet's arrival and this ack, in microseconds (saturating).
    pub delay_us: u16,
    /// Packet number of the first bit.
    pub base: u64,
    /// The masks.
    pub masks: M,
}

/// Up to [`ACK_MASKS_MAX`] masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckMasks {
    /// Masks in use.
    pub count: u8,
    /// The masks; masks from `count` on are zero.
    pub bits: [u64; ACK_MASKS_MAX],
}

/// The single mask of an ACK frame, in its encoded form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoneMask([u8; 8]);

/// The masks of an ACK frame in its received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MasksView<'a>(&'a [u8]);

impl<'a> MasksView<'a> {
    /// The masks in order.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + 'a {
        self.0.chunks_exact(8).map(|mask| u64_at(mask, 0))
    }

    /// A copy.
    pub fn owned(&self) -> AckMasks {
        let mut masks = AckMasks {
            count: self.iter().len() as u8,
            bits: [0; ACK_MASKS_MAX],
        };
        for (bits, mask) in masks.bits.iter_mut().zip(self.iter()) {
            *bits = mask;
        }
        masks
    }
}

impl Ack<MasksView<'_>> {
    /// A copy that outlives its packet.
    pub fn owned(&self) -> Ack {
        Ack {
            path: self.path,
            delay_us: self.delay_us,
            base: self.base,
            masks: self.masks.owned(),
        }
    }

    /// A copy that outlives its packet, if the ack has a single mask, as in the reply to a message.
    #[inline]
    pub fn lone(&self) -> Option<Ack<LoneMask>> {
        Some(Ack {
            path: self.path,
            delay_us: self.delay_us,
            base: self.base,
            masks: LoneMask(self.masks.0.try_into().ok()?),
        })
    }
}

impl Ack<LoneMask> {
    /// A view, as of an ack read from a packet.
    #[inline]
    pub fn view(&self) -> Ack<MasksView<'_>> {
        Ack {
            path: self.path,
            delay_us: self.delay_us,
            base: self.base,
            masks: MasksView(&self.masks.0),
        }
    }
}

impl<M> Ack<M> {
    /// Writes an ACK frame with `count` masks into `out`, which has the frame's length.
    #[inline]
    pub(crate) fn write(&self, count: u8, mut mask: impl FnMut(usize) -> u64, out: &mut [u8]) {
        prefix(out, KIND_ACK, count, self.delay_us, self.path as u32);
        put(out, 8, self.base);
        for (m, out) in out[16..].chunks_exact_mut(8).enumerate() {
            put(out, 0, mask(m));
        }
    }
}

/// Reads an ack from its whole frame: the masks fill the frame after the fixed part.
pub(crate) fn read_ack(b: &[u8], aux: u16, word: u32) -> Result<Ack<MasksView<'_>>, BadFrame> {
    let base = u64_at(b, 8);
    if word > u16::MAX as u32 || base > crate::PACKET_NUMBER_MAX {
        return Err(BadFrame);
    }
    Ok(Ack {
        path: word as u16,
        delay_us: aux,
        base,
        masks: MasksView(&b[16..]),
    })
}
