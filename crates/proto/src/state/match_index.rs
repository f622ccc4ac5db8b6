//! A queue that matching searches in constant time, however long it is.
//!
//! Entries stay in the order in which they came. Beside that order each *class* of patterns in use
//! (does it name its source, which bits of the tag does it ignore) has a hash table from source and
//! tag to the entries with these, oldest first. MPIs use few classes: with a source or without,
//! the tag's protocol bits ignored or all of it.

use alloc::vec::Vec;
use core::hash::{BuildHasherDefault, Hasher};
use hashbrown::HashMap;

/// Classes that get a table. What is beyond them is searched from the front.
const CLASSES_MAX: usize = 8;
/// No entry.
const NONE: u32 = u32::MAX;

/// Patterns that look at the same things of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// They name their source.
    pub directed: bool,
    /// Bits of the tag that they do not look at.
    pub ignore: u64,
}

impl Class {
    /// The part of a message's source and tag that patterns of this class look at.
    pub fn view(&self, peer: u32, tag: u64) -> View {
        View {
            peer: if self.directed { peer } else { 0 },
            tag: tag & !self.ignore,
        }
    }
}

/// Source and tag as a class sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct View {
    peer: u32,
    tag: u64,
}

/// An entry of the queue.
pub trait Entry: Copy {
    /// The only class whose patterns find it; `None`: those of every class may.
    fn class(&self) -> Option<Class>;
    /// Its source and tag as the class sees them.
    fn view(&self, class: &Class) -> View;
}

/// The entries before and after one in a list.
#[derive(Clone, Copy, Debug)]
struct Links {
    before: u32,
    after: u32,
}

/// The first and last entry of a list.
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

const EMPTY: Ends = Ends {
    first: NONE,
    last: NONE,
};

/// Lists of entries: each entry is in one of them at most.
#[derive(Debug, Default)]
struct Lists(Vec<Links>);

impl Lists {
    fn append(&mut self, ends: &mut Ends, at: u32) {
        if self.0.len() <= at as usize {
            let unlinked = Links {
                before: NONE,
                after: NONE,
            };
            self.0.resize(at as usize + 1, unlinked);
        }
        self.0[at as usize] = Links {
            before: ends.last,
            after: NONE,
        };
        match ends.last {
            NONE => ends.first = at,
            last => self.0[last as usize].after = at,
        }
        ends.last = at;
    }

    fn unlink(&mut self, ends: &mut Ends, at: u32) {
        let Links { before, after } = self.0[at as usize];
        match before {
            NONE => ends.first = after,
            before => self.0[before as usize].after = after,
        }
        match after {
            NONE => ends.last = before,
            after => self.0[after as usize].before = before,
        }
    }

    fn after(&self, at: u32) -> u32 {
        self.0[at as usize].after
    }
}

/// The table of one class.
#[derive(Debug)]
struct Table {
    class: Class,
    lists: Lists,
    ends: HashMap<View, Ends, BuildHasherDefault<Mix>>,
}

impl Table {
    fn holds(&self, entry: &impl Entry) -> bool {
        entry.class().is_none_or(|class| class == self.class)
    }

    fn append(&mut self, entry: &impl Entry, at: u32) {
        if self.holds(entry) {
            let ends = self.ends.entry(entry.view(&self.class)).or_insert(EMPTY);
            self.lists.append(ends, at);
        }
    }

    fn unlink(&mut self, entry: &impl Entry, at: u32) {
        if !self.holds(entry) {
            return;
        }
        let view = entry.view(&self.class);
        let Some(ends) = self.ends.get_mut(&view) else {
            return;
        };
        self.lists.unlink(ends, at);
        if ends.first == NONE {
            self.ends.remove(&view);
        }
    }
}

/// The queue.
#[derive(Debug)]
pub struct MatchIndex<T> {
    /// Each entry with its age: older ones have lower numbers.
    entries: Vec<Option<(u64, T)>>,
    free: Vec<u32>,
    next_age: u64,
    order: Lists,
    ends: Ends,
    tables: Vec<Table>,
    /// Entries whose only class has no table.
    homeless: usize,
}

impl<T: Entry> MatchIndex<T> {
    /// A queue of these entries.
    pub fn new(entries: impl Iterator<Item = T>) -> MatchIndex<T> {
        let mut index = MatchIndex {
            entries: Vec::new(),
            free: Vec::new(),
            next_age: 0,
            order: Lists::default(),
            ends: EMPTY,
            tables: Vec::new(),
            homeless: 0,
        };
        entries.for_each(|entry| index.push(entry));
        index
    }

    /// Returns whether `first_for` finds every entry: each class has a table.
    pub fn is_complete(&self) -> bool {
        self.homeless == 0
    }

    /// Appends an entry.
    pub fn push(&mut self, entry: T) {
        let homed = entry.class().is_none_or(|class| self.add_table(class));
        self.homeless += !homed as usize;
        let at = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        self.entries[at as usize] = Some((self.next_age, entry));
        self.next_age += 1;
        self.order.append(&mut self.ends, at);
        for table in &mut self.tables {
            table.append(&entry, at);
        }
    }

    /// The entry at a place that a search gave.
    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        let (_, entry) = self.entries.get_mut(at)?.as_mut()?;
        Some(entry)
    }

    /// Removes the entry at a place that a search gave.
    pub fn remove(&mut self, at: usize) -> Option<T> {
        let (_, entry) = self.entries.get_mut(at)?.take()?;
        let at = at as u32;
        self.order.unlink(&mut self.ends, at);
        for table in &mut self.tables {
            table.unlink(&entry, at);
        }
        let homed = entry.class().is_none_or(|class| self.has_table(&class));
        self.homeless -= !homed as usize;
        self.free.push(at);
        Some(entry)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// All entries with their places, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let mut at = self.ends.first;
        core::iter::from_fn(move || {
            let (_, entry) = self.entries.get(at as usize)?.as_ref()?;
            let here = at as usize;
            at = self.order.after(at);
            Some((here, entry))
        })
    }

    /// Makes a table for a class that has none. `false`: there are too many classes.
    pub fn add_table(&mut self, class: Class) -> bool {
        if self.has_table(&class) {
            return true;
        }
        if self.tables.len() == CLASSES_MAX {
            return false;
        }
        let mut table = Table {
            class,
            lists: Lists::default(),
            ends: HashMap::default(),
        };
        for (at, entry) in self.iter() {
            table.append(entry, at as u32);
        }
        self.tables.push(table);
        true
    }

    fn has_table(&self, class: &Class) -> bool {
        self.tables.iter().any(|table| table.class == *class)
    }

    /// The place of the oldest entry with this view of source and tag, in a class with a table.
    pub fn first_of(&self, class: &Class, view: &View) -> Option<usize> {
        let table = self.tables.iter().find(|table| table.class == *class)?;
        Some(table.ends.get(view)?.first as usize)
    }

    /// The place of the oldest entry that a message of this source and tag fits, over all classes
    /// with a table.
    pub fn first_for(&self, peer: u32, tag: u64) -> Option<usize> {
        let oldest = |table: &Table| {
            let at = table.ends.get(&table.class.view(peer, tag))?.first as usize;
            let (age, _) = self.entries[at].as_ref()?;
            Some((*age, at))
        };
        let (_, at) = self.tables.iter().filter_map(oldest).min()?;
        Some(at)
    }
}

/// Multiplies and folds: the same in every run, so that runs can be repeated.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte as u64));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(n as u64);
    }

    fn write_u64(&mut self, n: u64) {
        // Fibonacci hashing: the upper bits of the product depend on all bits of its factors.
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
