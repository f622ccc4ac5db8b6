//! The instructions that the 128-bit kernels need of a processor.

/// 16 bytes in a register, little endian, and the instructions on them.
///
/// # Safety
/// Of every function: the CPU has the features that the implementation names.
pub(crate) trait Vector: Copy {
    /// True if folding is quicker with eight accumulators than with four: the processor has
    /// registers for them, and starts more than one multiplication per cycle or takes long for
    /// each.
    const EIGHT: bool;

    /// # Safety
    /// 16 bytes are readable at `from`.
    unsafe fn load(from: *const u8) -> Self;
    /// # Safety
    /// 16 bytes are writable at `to`.
    unsafe fn store(self, to: *mut u8);
    /// Stores past the caches, where there are such stores.
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
    /// AES's SubBytes, ShiftRows, MixColumns, and then the key.
    unsafe fn round(self, key: Self) -> Self;
    /// The bytes that `indices`, each below 16, name.
    unsafe fn pick(self, indices: Self) -> Self;
    /// Where `mask` has bytes of ones, `other`'s bytes; where it has zeros, its own.
    unsafe fn replace(self, other: Self, mask: Self) -> Self;
    /// A CRC-32C register after a word.
    unsafe fn crc32c_word(state: u32, word: u64) -> u32;
    /// A CRC-32C register after half a word.
    unsafe fn crc32c_half(state: u32, half: u32) -> u32;
    /// A CRC-32C register after a byte.
    unsafe fn crc32c_byte(state: u32, byte: u8) -> u32;
}
