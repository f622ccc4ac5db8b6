//! Tables with small integer keys, looked up for every packet: a fast hash that is the same in
//! every run. (The standard hash resists attacks, and is measurably slower.)

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table by small numbers.
pub type Table<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

/// Multiplies and folds.
#[derive(Default)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte as u64);
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(n as u64);
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(n as u64);
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
