//! Choices derived from a fuzzer's bytes. When the bytes are used up, every choice is the first.

use arbitrary::{Arbitrary, Unstructured};

/// The remaining bytes of an input.
pub(crate) struct Input<'a>(Unstructured<'a>);

impl<'a> Input<'a> {
    pub fn new(data: &'a [u8]) -> Input<'a> {
        Input(Unstructured::new(data))
    }

    /// Returns whether no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Any value.
    pub fn any<T: Arbitrary<'a> + Default>(&mut self) -> T {
        self.0.arbitrary().unwrap_or_default()
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        match n {
            0..=0x100 => u64::from(self.any::<u8>()) % n.max(1),
            0x101..=0x1_0000 => u64::from(self.any::<u16>()) % n,
            _ => self.any::<u64>() % n,
        }
    }

    /// An element of a list.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    /// Up to `n` bytes.
    pub fn bytes(&mut self, n: usize) -> &'a [u8] {
        let n = n.min(self.0.len());
        self.0.bytes(n).unwrap_or_default()
    }
}
