//! Open operations, and the memory that peers may access.

use crate::api::{Counter, Region};
use crate::memory::borrowed::Borrowed;
use crate::memory::op_table::{OpTable, Pieces, RecvOp, SendOp};
use crate::state::requests::Refusals;
use marline_proto::Claim;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;

/// A range of a region: its key, its offset or address, its length.
pub(crate) type Range = (u64, u64, u64);

/// Origin of a part of an operation: endpoint index, peer, and whether the operation reads.
pub(crate) type Whose = (u32, u32, bool);

/// A registered region.
#[derive(Debug)]
pub struct Registered {
    pub(crate) region: Region,
    /// The region's memory.
    pub(crate) pieces: Pieces,
    /// Number of peers' operations that use the region now.
    pub(crate) users: u32,
    /// Counters of peers' reads, and of their writes and updates.
    pub(crate) counters: [Option<Arc<Counter>>; 2],
    /// Numbers of received parts of peers' operations whose end has not been reported.
    parts: BTreeMap<Whose, u32>,
}

/// Open operations and registered regions.
#[derive(Default)]
pub struct Operations {
    pub(crate) sends: OpTable<SendOp>,
    pub(crate) recvs: OpTable<RecvOp>,
    /// Sends that leave from their caller's memory, until they are logged or end.
    pub(crate) borrowed: Borrowed,
    /// Registered memory by its key.
    pub(crate) regions: BTreeMap<u64, Registered>,
    /// Number of regions that peers may read or write.
    open: usize,
    pub(crate) refusals: Refusals,
    /// Messages claimed by a peek, by endpoint index and context.
    pub(crate) claims: BTreeMap<(u32, usize), Claim>,
}

impl Registered {
    /// Offset of an address, if `len` bytes from there are registered without a gap.
    fn offset_of(&self, addr: u64, len: u64) -> Option<u64> {
        let (pieces, mut before) = (self.pieces.as_slice(), 0);
        for (i, piece) in pieces.iter().enumerate() {
            let base = piece.base as u64;
            let joined = pieces[i..].iter().scan(base, |end, next| {
                let joins = next.base as u64 == *end;
                *end = end.wrapping_add(next.len as u64);
                joins.then_some(next.len as u64)
            });
            let joined: u64 = joined.sum();
            let at = addr.checked_sub(base);
            if at.is_some_and(|at| at.checked_add(len).is_some_and(|end| end <= joined)) {
                return at.map(|at| before + at);
            }
            before += piece.len as u64;
        }
        None
    }
}

impl Operations {
    /// True if peers may read or write some memory.
    pub(crate) fn is_open(&self) -> bool {
        self.open > 0
    }

    /// Registers memory under a key; `false`: the key is in use.
    pub(crate) fn add_region(&mut self, key: u64, region: Region, pieces: Pieces) -> bool {
        let Entry::Vacant(slot) = self.regions.entry(key) else {
            return false;
        };
        slot.insert(Registered {
            region,
            pieces,
            users: 0,
            counters: Default::default(),
            parts: BTreeMap::new(),
        });
        self.open += usize::from(region.is_open());
        true
    }

    /// Removes a region.
    pub(crate) fn remove_region(&mut self, key: u64) -> Option<Registered> {
        let removed = self.regions.remove(&key)?;
        self.open -= usize::from(removed.region.is_open());
        Some(removed)
    }

    /// Ends a peer's use of a region.
    pub(crate) fn leave_region(&mut self, key: u64) {
        if let Some(region) = self.regions.get_mut(&key) {
            region.users = region.users.saturating_sub(1);
        }
    }

    /// Counts a successful operation of a peer that reads or writes, or both: once, even if one
    /// counter is bound for both.
    pub(crate) fn count(&self, key: u64, [reads, writes]: [bool; 2]) {
        let Some(Registered { counters, .. }) = self.regions.get(&key) else {
            return;
        };
        let of_reads = counters[0].as_ref().filter(|_| reads);
        let same = |other: &&Arc<Counter>| of_reads.is_some_and(|first| Arc::ptr_eq(first, other));
        let of_writes = counters[1].as_ref().filter(|other| writes && !same(other));
        let counting = of_reads.into_iter().chain(of_writes);
        counting.for_each(|counter| counter.count(true));
    }

    /// Notes a part of a peer's operation on a region.
    pub(crate) fn part_came(&mut self, key: u64, whose: Whose) {
        if let Some(region) = self.regions.get_mut(&key) {
            *region.parts.entry(whose).or_default() += 1;
        }
    }

    /// Ends a peer's operation with `parts` parts under a key; `false`: its parts belong to an
    /// earlier region with this key.
    pub(crate) fn take_parts(&mut self, key: u64, whose: Whose, parts: u8) -> bool {
        let Some(region) = self.regions.get_mut(&key) else {
            return false;
        };
        let came = region.parts.remove(&whose).unwrap_or(0);
        let left = came.checked_sub(parts.into());
        if let Some(left) = Some(left.unwrap_or(came)).filter(|left| *left > 0) {
            region.parts.insert(whose, left);
        }
        left.is_some()
    }

    /// Forgets the open operations of peers that will not report their ends.
    pub(crate) fn forget_parts(&mut self, of: impl Fn(u32, u32) -> bool) {
        for region in self.regions.values_mut() {
            region.parts.retain(|&(ep, peer, _), _| !of(ep, peer));
        }
    }

    /// Like [`Operations::region_at`], and notes a use until [`Operations::leave_region`].
    pub(crate) fn enter_region(&mut self, range: Range, write: bool) -> Option<Pieces> {
        let place = self.region_at(range, (!write, write))?;
        self.regions.get_mut(&range.0)?.users += 1;
        Some(place)
    }

    /// The memory that a peer names, if all of it is registered for the peer's access (read,
    /// write).
    pub(crate) fn region_at(
        &self,
        (key, addr, len): Range,
        (reads, writes): (bool, bool),
    ) -> Option<Pieces> {
        let may = |r: &Region| (r.readable || !reads) && (r.writable || !writes);
        let open = |found: &&Registered| may(&found.region) && !self.refusals.all;
        let found = self.regions.get(&key).filter(open)?;
        let offset = match found.region.virt_addr {
            true => found.offset_of(addr, len)?,
            false => addr,
        };
        let end = offset.checked_add(len)?;
        let inside = end <= found.region.len as u64;
        inside.then(|| found.pieces.range(offset, len as usize))
    }
}
