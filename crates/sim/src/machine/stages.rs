//! Staging memory of simulated rails, written by peers. Keys stay valid after the end of a message,
//! as on real adapters: a late write lands in data staged later.

use std::collections::{BTreeMap, BTreeSet};

/// Regions per rail.
const REGIONS_MAX: usize = 4;
/// Number of keys that stay valid.
const KEYS_MAX: usize = 64;

/// The staging memory of a rail.
#[derive(Debug, Default)]
pub struct Stages {
    regions: Vec<Vec<u8>>,
    /// Regions without a message.
    free: Vec<usize>,
    /// Region and length of each key.
    of: BTreeMap<u64, (usize, usize)>,
    /// Keys of messages in progress.
    pub(crate) open: BTreeSet<u64>,
}

impl Stages {
    /// Opens a region under a key; `false` if none is free.
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

    /// Ends a message.
    pub(crate) fn close(&mut self, key: u64) {
        if self.open.remove(&key) {
            self.free.extend(self.of.get(&key).map(|of| of.0));
        }
    }

    /// The bytes under a key, also after the end of its message.
    pub(crate) fn bytes(&mut self, key: u64, offset: u64, len: usize) -> Option<&mut [u8]> {
        let &(region, all) = self.of.get(&key)?;
        let (from, to) = (offset as usize, offset as usize + len);
        (to <= all).then(|| &mut self.regions[region][from..to])
    }
}
