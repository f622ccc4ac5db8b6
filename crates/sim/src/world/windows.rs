//! Memory that others may write and read, as its owner keeps it.

use crate::base::table::Table;
use crate::truth::remote::{Cells, Lets};
use std::collections::VecDeque;

/// The memory of a process that others may write or read.
#[derive(Debug, Default)]
pub struct Windows {
    /// Those that are open.
    pub open: Vec<Window>,
    /// Keys of some that are closed, to be used again.
    pub(crate) keys_free: Vec<u64>,
    /// Keys that there ever were.
    pub(crate) keys_made: u64,
    /// Remote writes that it was not asked for yet, in order, by their writer.
    pub puts_due: Table<u32, VecDeque<u32>>,
    /// Operations of all reads, and pieces of them, by their reader and number.
    pub reads_due: Table<u32, Vec<(u32, usize)>>,
    /// Of writes that the node took in this call, what is not there: message, offset, length.
    pub(crate) overwritten: Vec<(u32, u64, u64)>,
    /// Data that remote writes brought, in order: writer, data, length.
    pub data_due: VecDeque<(u32, u64, usize)>,
    /// Memory for atomics.
    pub cells: Cells,
}

/// Memory of a process that others use.
#[derive(Clone, Debug)]
pub struct Window {
    /// The operation that its memory is of.
    pub handle: u32,
    pub(crate) key: u64,
    pub(crate) len: u64,
    /// The offset by which users name its first byte: 0 or its address.
    pub(crate) origin: u64,
    pub(crate) writable: bool,
    /// Operations that it is for.
    pub(crate) users: Vec<User>,
    /// The parts of it, and who was let in.
    pub(crate) places: Vec<Place>,
    /// Bytes from its start that are for somebody.
    pub(crate) taken: u64,
    /// It stays until then.
    pub(crate) until: u64,
    pub(crate) haste: u64,
    /// The operations that were let in, and count here.
    pub(crate) lets: Lets,
}

/// The user of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// The remote write of this message.
    Put(u32),
    /// This read of an endpoint, and piece of it.
    Read(u32, (u32, usize)),
}

/// A range of a window, from and to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) what: Within,
}

/// The state of a range of a window.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Within {
    /// Its owner put content there, from this base.
    Content(u64),
    /// A peer was let in.
    User(User),
}

impl Window {
    /// Where a request is in it, if all of it is.
    pub(crate) fn admits(&self, addr: u64, len: u64, write: bool) -> Option<u64> {
        let at = addr.checked_sub(self.origin)?;
        let fits = at.checked_add(len)? <= self.len;
        (fits && (self.writable || !write)).then_some(at)
    }

    /// The ranges of those that were let in, and overlap this one.
    pub(crate) fn meets(&self, from: u64, to: u64) -> impl Iterator<Item = User> + '_ {
        let over = move |p: &&Place| p.from < to && from < p.to;
        self.places
            .iter()
            .filter(over)
            .filter_map(|p| match p.what {
                Within::User(user) => Some(user),
                Within::Content(_) => None,
            })
    }
}
