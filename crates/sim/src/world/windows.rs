//! Memory open to peers, as its owner keeps it.

use crate::base::table::Table;
use crate::truth::remote::{Admissions, Cells};
use std::collections::VecDeque;

/// The memory of a process open to peers.
#[derive(Debug, Default)]
pub struct Windows {
    /// Open windows.
    pub open: Vec<Window>,
    /// Closed keys to be reused.
    pub(crate) keys_free: Vec<u64>,
    /// Number of keys made so far.
    pub(crate) keys_made: u64,
    /// Remote writes not requested yet, in order, by writer.
    pub puts_due: Table<u32, VecDeque<u32>>,
    /// Pending reads and their segments, by reader and number.
    pub reads_due: Table<u32, Vec<(u32, usize)>>,
    /// Parts of writes, accepted in this call, whose bytes are no longer in memory: message,
    /// offset, length.
    pub(crate) overwritten: Vec<(u32, u64, u64)>,
    /// Data of remote writes, in order: writer, data, length.
    pub data_due: VecDeque<(u32, u64, usize)>,
    /// Memory for atomics.
    pub cells: Cells,
}

/// Memory of a process open to peers, under one key.
#[derive(Clone, Debug)]
pub struct Window {
    /// The operation that owns the window's memory.
    pub handle: u32,
    pub(crate) key: u64,
    pub(crate) len: u64,
    /// The offset by which users address the first byte: 0, or its virtual address.
    pub(crate) origin: u64,
    pub(crate) writable: bool,
    /// Operations for which the window was opened.
    pub(crate) users: Vec<User>,
    /// The window's ranges, and their users.
    pub(crate) places: Vec<Place>,
    /// Number of reserved bytes from the start.
    pub(crate) taken: u64,
    /// Time until which the window stays open.
    pub(crate) until: u64,
    pub(crate) haste: u64,
    /// Admitted operations, which are counted here.
    pub(crate) admissions: Admissions,
}

/// The user of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// The remote write of this message.
    Put(u32),
    /// A read of an endpoint, and its segment.
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
    /// The owner stored generated content; the value is its base.
    Content(u64),
    /// A peer was admitted.
    User(User),
}

impl Window {
    /// The offset of a request in the window, if the whole request is inside.
    pub(crate) fn admits(&self, addr: u64, len: u64, write: bool) -> Option<u64> {
        let at = addr.checked_sub(self.origin)?;
        let fits = at.checked_add(len)? <= self.len;
        (fits && (self.writable || !write)).then_some(at)
    }

    /// Users whose ranges overlap this one.
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
