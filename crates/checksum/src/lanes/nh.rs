//! The constants and the state of the CRC of products (`crate::nh`), shared by all of its kernels.

use super::aes::splitmix_from;
use crate::store::Store;

/// Bytes of a lane: two words that are multiplied.
pub(crate) const LANE: usize = 16;

/// Lanes of a block. More lanes would take more of L1 for constants (1 KiB); fewer would cost more
/// folds (two multiplications per 64 lanes).
pub(crate) const BLOCK_LANES: usize = 64;

/// Words of the widest register.
const WIDEST: usize = 8;

/// The constants that are added to the words of a block, followed by the first ones again for a
/// register that spans two blocks; aligned for the wider kernels.
#[repr(align(64))]
pub(crate) struct Keys(pub(crate) [u64; 2 * BLOCK_LANES + WIDEST]);

/// Start of SplitMix64: the first bits of the fraction of pi. Started from 0, its 146th number is
/// twice its 73rd, and more such pairs follow. With numbers 66 to 193 as constants, a wrong byte in
/// a lane of zeros could then be cancelled by a wrong byte in another lane (found by
/// `no_two_wrong_bytes_of_different_lanes_cancel`).
const START: u64 = 0x243f_6a88_85a3_08d3;

pub(crate) static KEYS: Keys = Keys({
    let mut keys = [0; 2 * BLOCK_LANES + WIDEST];
    let mut i = 0;
    while i < keys.len() {
        keys[i] = splitmix_from(START, (i % (2 * BLOCK_LANES)) as u64);
        i += 1;
    }
    keys
});

/// The state after whole lanes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Products {
    /// Sum of all whole blocks, each advanced by the later ones: low and high half.
    pub(crate) blocks: [u64; 2],
    /// Sum of the lanes of the incomplete block.
    pub(crate) open: [u64; 2],
    /// Number of lanes in the unfinished block, less than [`BLOCK_LANES`].
    pub(crate) lanes: usize,
}

/// The words of an incomplete last lane, padded with zeros, if it has any bytes; stored at `dst`
/// according to `S`, from the bytes read for the sum.
///
/// # Safety
/// `src` readable for `len` bytes, fewer than [`LANE`]; if `S` stores, `dst` writable for as many,
/// not overlapping.
#[inline(always)]
pub(crate) unsafe fn last<S: Store>(dst: *mut u8, src: *const u8, len: usize) -> Option<[u64; 2]> {
    // SAFETY: all accesses end at or before `len`; arrays of bytes need no alignment. If two stores
    // overlap, the later one has the bytes that count for the sum.
    unsafe {
        match len {
            0 => None,
            1..4 => {
                let mut word = [0; 8];
                for (i, byte) in word.iter_mut().enumerate().take(len) {
                    *byte = src.add(i).read();
                    if S::STORE {
                        dst.add(i).write(*byte);
                    }
                }
                Some([u64::from_le_bytes(word), 0])
            }
            4..8 => {
                let low = src.cast::<[u8; 4]>().read();
                let end = src.add(len - 4).cast::<[u8; 4]>().read();
                if S::STORE {
                    dst.add(len - 4).cast::<[u8; 4]>().write(end);
                    dst.cast::<[u8; 4]>().write(low);
                }
                let high = u64::from(u32::from_le_bytes(end)) >> (8 * (8 - len));
                Some([u64::from(u32::from_le_bytes(low)) | high << 32, 0])
            }
            _ => {
                let low = src.cast::<[u8; 8]>().read();
                let end = src.add(len - 8).cast::<[u8; 8]>().read();
                if S::STORE {
                    dst.add(len - 8).cast::<[u8; 8]>().write(end);
                    dst.cast::<[u8; 8]>().write(low);
                }
                // Shift in two steps, since a shift by all 64 bits is not allowed.
                let high = u64::from_le_bytes(end) >> (8 * (15 - len)) >> 8;
                Some([u64::from_le_bytes(low), high])
            }
        }
    }
}
