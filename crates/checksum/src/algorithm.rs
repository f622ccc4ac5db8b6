//! The algorithms by number and name.

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
    #[inline]
    pub fn from_u8(n: u8) -> Option<Algorithm> {
        match n {
            0 => Some(Algorithm::None),
            1 => Some(Algorithm::Crc64Nvme),
            2 => Some(Algorithm::Crc32c),
            _ => None,
        }
    }
}
