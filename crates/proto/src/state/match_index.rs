//! A queue that matching searches in constant time, whatever its length.
//!
//! Entries stay in arrival order. In addition each *class* of patterns in use (with a source or any
//! source; which bits of the tag are ignored) has a hash table from source and tag to the matching
//! entries, oldest first. MPI libraries use few classes: with a source or without, the tag's
//! protocol bits ignored or the whole tag.

use alloc::vec::Vec;
use core::hash::{BuildHasherDefault, Hasher};
use hashbrown::HashMap;

/// Classes with a table, at most. Entries of other classes are searched from the front.
const CLASSES_MAX: usize = 8;
/// No entry.
const NONE: u32 = u32::MAX;

/// A class of patterns: those that compare the same parts of a message's source and tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// The patterns name their source.
    pub directed: bool,
    /// Bits of the tag that the patterns ignore.
    pub ignore: u64,
}

impl Class {
    /// The part of a message's source and tag that patterns of this class compare.
    pub fn view(&self, peer: u32, tag: u64) -> View {
        View {
            peer: if self.directed { peer } else { 0 },
            tag: tag & !self.ignore,
        }
    }
}

/// Source and tag as a class compares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct View {
    peer: u32,
    tag: u64,
}

/// An entry of the queue.
pub trait Entry: Copy {
    /// The only class whose patterns can match the entry; `None`: patterns of any class can.
    fn class(&self) -> Option<Class>;
    /// The entry's source and tag as the class compares them.
    fn view(&self, class: &Class) -> View;
}

/// The entries before and after an entry in its list.
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

/// Linked lists; each entry is in at most one of them.
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
    /// Each entry with its age: older entries have lower numbers.
    entries: Vec<Option<(u64, T)>>,
    free: Vec<u32>,
    next_age: u64,
    order: Lists,
    ends: Ends,
    tables: Vec<Table>,
    /// Number of entries whose only class has no table.
    without_table: usize,
}

impl<T: Entry> MatchIndex<T> {
    /// A queue with these entries.
    pub fn new(entries: impl Iterator<Item = T>) -> MatchIndex<T> {
        let mut index = MatchIndex {
            entries: Vec::new(),
            free: Vec::new(),
            next_age: 0,
            order: Lists::default(),
            ends: EMPTY,
            tables: Vec::new(),
            without_table: 0,
        };
        entries.for_each(|entry| index.push(entry));
        index
    }

    /// True if `first_for` finds every entry: each class has a table.
    pub fn is_complete(&self) -> bool {
        self.without_table == 0
    }

    /// Appends an entry.
    pub fn push(&mut self, entry: T) {
        let has_table = entry.class().is_none_or(|class| self.add_table(class));
        self.without_table += !has_table as usize;
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

    /// The entry at an index that a search returned.
    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        let (_, entry) = self.entries.get_mut(at)?.as_mut()?;
        Some(entry)
    }

    /// Removes the entry at an index that a search returned.
    pub fn remove(&mut self, at: usize) -> Option<T> {
        let (_, entry) = self.entries.get_mut(at)?.take()?;
        let at = at as u32;
        self.order.unlink(&mut self.ends, at);
        for table in &mut self.tables {
            table.unlink(&entry, at);
        }
        let has_table = entry.class().is_none_or(|class| self.has_table(&class));
        self.without_table -= !has_table as usize;
        self.free.push(at);
        Some(entry)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// All entries with their indices, oldest first.
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

    /// The index of the oldest entry with this view of source and tag, in a class with a table.
    pub fn first_of(&self, class: &Class, view: &View) -> Option<usize> {
        let table = self.tables.iter().find(|table| table.class == *class)?;
        Some(table.ends.get(view)?.first as usize)
    }

    /// The index of the oldest entry that a message of this source and tag matches, over all
    /// classes with a table.
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

/// A hash without a random seed, so that runs are reproducible.
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
