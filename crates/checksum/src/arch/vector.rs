//! The processor instructions used by the 128-bit kernels.

/// 16 bytes in a register, little endian, with the instructions on them.
///
/// # Safety
/// For every function: the CPU has the features that the implementation names.
pub(crate) trait Vector: Copy {
    /// True if folding is faster with eight accumulators than with four: the processor has enough
    /// registers, and starts more than one multiplication per cycle or has a long latency.
    const EIGHT: bool;

    /// # Safety
    /// 16 bytes are readable at `from`.
    unsafe fn load(from: *const u8) -> Self;
    /// # Safety
    /// 16 bytes are writable at `to`.
    unsafe fn store(self, to: *mut u8);
    /// Stores past the caches, if the processor can.
    ///
    /// # Safety
    /// As [`Vector::store`], and `to` is aligned to 16 bytes.
    unsafe fn stream(self, to: *mut u8);
    /// From the low and the high half.
    unsafe fn of(halves: [u64; 2]) -> Self;
    /// The low and the high half.
    unsafe fn halves(self) -> [u64; 2];
    /// Exclusive or.
    unsafe fn xor(self, other: Self) -> Self;
    /// Carry-less product of the low halves.
    unsafe fn multiply_low(self, by: Self) -> Self;
    /// Carry-less product of the high halves.
    unsafe fn multiply_high(self, by: Self) -> Self;
    /// Carry-less product of its low half and its high half.
    unsafe fn multiply_halves(self) -> Self;
    /// AES's SubBytes, ShiftRows and MixColumns, then the addition of the key.
    unsafe fn round(self, key: Self) -> Self;
    /// Selects bytes by `indices`, each below 16.
    unsafe fn pick(self, indices: Self) -> Self;
    /// Takes `other`'s bytes where `mask` is all ones, and its own where `mask` is zero.
    unsafe fn replace(self, other: Self, mask: Self) -> Self;
    /// The CRC-32C register after a word.
    unsafe fn crc32c_word(state: u32, word: u64) -> u32;
    /// The CRC-32C register after half a word.
    unsafe fn crc32c_half(state: u32, half: u32) -> u32;
    /// The CRC-32C register after a byte.
    unsafe fn crc32c_byte(state: u32, byte: u8) -> u32;
}
