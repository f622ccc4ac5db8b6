//! Memory of simulated rails' own that others write into. Its keys stay open when a message is
//! over, as a card's do: a late write lands among what is staged next.

use std::collections::{BTreeMap, BTreeSet};

/// Pieces of memory that a rail has.
const REGIONS_MAX: usize = 4;
/// Keys that are remembered.
const KEYS_MAX: usize = 64;

/// The memory of a rail's own.
#[derive(Debug, Default)]
pub struct Stages {
    regions: Vec<Vec<u8>>,
    /// Of which nobody's message is now.
    free: Vec<usize>,
    /// The region of each key, and its length.
    of: BTreeMap<u64, (usize, usize)>,
    /// Keys of messages that are under way.
    pub(crate) open: BTreeSet<u64>,
}

impl Stages {
    /// Opens a piece of it under a key; `false`: all have one.
    pub(crate) fn open(&mut self, key: u64, len: usize) -> bool {
        let region = match self.free.pop() {
            Some(region) => region,
            None if self.regions.len() < REGIONS_MAX => {
                self.regions.push(Vec::new());
                self.regions.len() - 1
            }
            None => return false,
        };
        let room = self.regions[region].len().max(len);
        self.regions[region].resize(room, 0);
        self.of.insert(key, (region, len));
        self.open.insert(key);
        if self.of.len() > KEYS_MAX {
            let old = self.of.keys().find(|key| !self.open.contains(key)).copied();
            old.map(|key| self.of.remove(&key));
        }
        true
    }

    /// A message is over.
    pub(crate) fn close(&mut self, key: u64) {
        if self.open.remove(&key) {
            self.free.extend(self.of.get(&key).map(|of| of.0));
        }
    }

    /// Bytes under a key, also of a message that is over.
    pub(crate) fn bytes(&mut self, key: u64, offset: u64, len: usize) -> Option<&mut [u8]> {
        let &(region, all) = self.of.get(&key)?;
        let (from, to) = (offset as usize, offset as usize + len);
        (to <= all).then(|| &mut self.regions[region][from..to])
    }
}
