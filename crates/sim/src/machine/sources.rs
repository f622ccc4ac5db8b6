//! Memory that devices of simulated rails may read for writes of their own process.

use std::collections::BTreeMap;

/// Address and length of pieces of memory.
pub type Pieces = Vec<(usize, usize)>;

/// Memory of one rail.
#[derive(Debug, Default)]
pub struct Sources {
    /// Number of keys made so far. Keys for peers are above this range.
    count: u32,
    /// By key; empty if opening failed.
    open: BTreeMap<u64, Pieces>,
    /// Memory of writes in progress by token, with the key that each names.
    reading: BTreeMap<u64, (Option<u64>, Pieces)>,
    /// A violation by the process.
    pub(crate) mistake: Option<&'static str>,
}

impl Sources {
    /// Opens memory and returns its key. Opening fails if more than `most` pieces are open.
    pub(crate) fn open(&mut self, pieces: Pieces, most: usize) -> u64 {
        let room = self.open.values().map(Vec::len).sum::<usize>() < most;
        self.count += 1;
        let key = self.count.into();
        self.open
            .insert(key, if room { pieces } else { Pieces::new() });
        key
    }

    /// Closes memory, which no write may be reading.
    pub(crate) fn close(&mut self, key: u64) {
        let closed = self.open.remove(&key).is_some();
        if closed && self.reading.values().any(|(of, _)| *of == Some(key)) {
            self.mistake = Some("memory is closed that a write still reads");
        }
    }

    /// A write starts reading.
    pub(crate) fn read(&mut self, token: u64, of: Option<u64>, pieces: Pieces) {
        if of.is_some_and(|key| !self.open.contains_key(&key)) {
            self.mistake = Some("a write names memory that is not open");
        }
        self.reading.insert(token, (of, pieces));
    }

    /// A write ends.
    pub(crate) fn over(&mut self, token: u64) {
        self.reading.remove(&token);
    }

    /// All writes end.
    pub(crate) fn drain(&mut self) {
        self.reading.clear();
    }

    /// Memory that a device may read.
    pub(crate) fn readable(&self) -> impl Iterator<Item = &(usize, usize)> {
        let read = self.reading.values().map(|(_, pieces)| pieces);
        read.chain(self.open.values()).flatten()
    }

    /// Number of open keys and of writes in progress.
    pub(crate) fn count(&self) -> usize {
        self.open.len() + self.reading.len()
    }
}
