//! Marline's checksums. API skeleton: the implementation lands beside it.
//!
//! Every sum starts from a `seed` (design rule 7: seeded with endpoint, message, offset, length).

/// A payload checksum algorithm; the number travels in packet headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Algorithm {
    /// No payload checksum.
    None = 0,
    /// CRC-64/NVME.
    Crc64Nvme = 1,
    /// CRC-32C (Castagnoli).
    Crc32c = 2,
}

impl Algorithm {
    /// From the number in a packet header.
    pub fn from_u8(n: u8) -> Option<Algorithm> {
        match n {
            0 => Some(Algorithm::None),
            1 => Some(Algorithm::Crc64Nvme),
            2 => Some(Algorithm::Crc32c),
            _ => None,
        }
    }
}

/// CRC-32C of `bytes` (initial value and final xor as in RFC 3720), for packet heads.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for &b in bytes {
        crc ^= b as u32;
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

/// A sum that is fed piece by piece (iovecs; the converter of paper 3).
#[derive(Clone, Copy, Debug)]
pub struct Summer {
    algorithm: Algorithm,
    state: u64,
}

impl Summer {
    /// Starts a sum.
    pub fn new(algorithm: Algorithm, seed: u64) -> Summer {
        Summer { algorithm, state: seed }
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        if self.algorithm != Algorithm::None {
            for &b in bytes {
                self.state = self.state.rotate_left(5) ^ (b as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
        }
    }

    /// Copies `len` bytes from `src` to `dst` and adds them.
    ///
    /// # Safety
    /// `src` readable and `dst` writable for `len` bytes, not overlapping.
    pub unsafe fn copy(&mut self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller's contract.
        unsafe {
            std::ptr::copy_nonoverlapping(src, dst, len);
            self.update(std::slice::from_raw_parts(dst, len));
        }
    }

    /// The sum (0 for [`Algorithm::None`]).
    pub fn finish(self) -> u64 {
        if self.algorithm == Algorithm::None { 0 } else { self.state }
    }
}
