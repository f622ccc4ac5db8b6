//! Memory that the devices of simulated rails may read for writes of their own process.

use std::collections::BTreeMap;

/// Address and length of pieces of memory.
pub type Pieces = Vec<(usize, usize)>;

/// Memory of one rail.
#[derive(Debug, Default)]
pub struct Sources {
    /// Keys so far. Those that peers name are above.
    count: u32,
    /// By key; none: it could not be opened.
    open: BTreeMap<u64, Pieces>,
    /// Memory that writes read which are not over, by token, with the key that they name.
    reading: BTreeMap<u64, (Option<u64>, Pieces)>,
    /// A mistake of the process.
    pub(crate) mistake: Option<&'static str>,
}

impl Sources {
    /// Opens memory, unless there are `most` pieces of it; its key.
    pub(crate) fn open(&mut self, pieces: Pieces, most: usize) -> u64 {
        let room = self.open.values().map(Vec::len).sum::<usize>() < most;
        self.count += 1;
        let key = self.count.into();
        self.open
            .insert(key, if room { pieces } else { Pieces::new() });
        key
    }

    /// Closes memory, which nothing may read now.
    pub(crate) fn close(&mut self, key: u64) {
        let closed = self.open.remove(&key).is_some();
        if closed && self.reading.values().any(|(of, _)| *of == Some(key)) {
            self.mistake = Some("memory is closed that a write still reads");
        }
    }

    /// A write begins to read.
    pub(crate) fn read(&mut self, token: u64, of: Option<u64>, pieces: Pieces) {
        if of.is_some_and(|key| !self.open.contains_key(&key)) {
            self.mistake = Some("a write names memory that is not open");
        }
        self.reading.insert(token, (of, pieces));
    }

    /// A write is over.
    pub(crate) fn over(&mut self, token: u64) {
        self.reading.remove(&token);
    }

    /// All writes are.
    pub(crate) fn drain(&mut self) {
        self.reading.clear();
    }

    /// Memory that may be read.
    pub(crate) fn readable(&self) -> impl Iterator<Item = &(usize, usize)> {
        let read = self.reading.values().map(|(_, pieces)| pieces);
        read.chain(self.open.values()).flatten()
    }

    /// Keys that are open, and writes that are not over.
    pub(crate) fn count(&self) -> usize {
        self.open.len() + self.reading.len()
    }
}
