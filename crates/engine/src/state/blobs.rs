//! Addresses as they are encoded, one after another. Room of removed ones serves others of the same
//! size.

use crate::state::paged::Paged;
use marline_wire::{Address, ADDRESS_LEN_MAX};

/// Unit of an address in the store, in bytes.
const UNIT: usize = 8;
/// Sizes of addresses, in units: 0 stands for none.
const SIZES: usize = ADDRESS_LEN_MAX / UNIT + 1;

/// Place of an address: its first unit, and its size in bytes; 0 without an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blob {
    at: u32,
    bytes: u8,
}

impl Blob {
    /// True if there is an address.
    pub(crate) fn is_some(self) -> bool {
        self.bytes > 0
    }

    fn units(self) -> usize {
        (self.bytes as usize).div_ceil(UNIT)
    }
}

/// The store.
#[derive(Default)]
pub(crate) struct Blobs {
    units: Paged<[u8; UNIT]>,
    /// First units of removed addresses, by size.
    free: [Vec<u32>; SIZES],
}

impl Blobs {
    /// Stores an encoded address of at most [`ADDRESS_LEN_MAX`] bytes.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Blob {
        let size = bytes.len().div_ceil(UNIT);
        let at = self.free[size].pop().unwrap_or_else(|| {
            let at = self.units.len() as u32;
            (0..size).for_each(|_| self.units.push([0; UNIT]));
            at
        });
        for (n, part) in bytes.chunks(UNIT).enumerate() {
            if let Some(unit) = self.units.get_mut(at as usize + n) {
                unit[..part.len()].copy_from_slice(part);
            }
        }
        Blob {
            at,
            bytes: bytes.len() as u8,
        }
    }

    /// Frees the room of an address.
    pub(crate) fn remove(&mut self, blob: Blob) {
        self.free[blob.units()].push(blob.at);
    }

    /// The id of an address: its first unit.
    pub(crate) fn id(&self, blob: Blob) -> u64 {
        let unit = self.units.get(blob.at as usize);
        unit.map_or(0, |unit| u64::from_le_bytes(*unit))
    }

    /// An address.
    pub(crate) fn address(&self, blob: Blob) -> Address {
        let mut bytes = [0; ADDRESS_LEN_MAX];
        for (n, to) in bytes.chunks_mut(UNIT).enumerate().take(blob.units()) {
            if let Some(unit) = self.units.get(blob.at as usize + n) {
                to.copy_from_slice(unit);
            }
        }
        Address::of_encoded(&bytes[..blob.bytes as usize])
    }

    /// Bytes of heap memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        let free: usize = self.free.iter().map(Vec::capacity).sum();
        self.units.heap_bytes() + free * size_of::<u32>()
    }
}
