//! Address vectors. Slots of removed addresses are reused, the longest unused first. In a map the
//! index includes the generation of its slot, so that a stale index names no address; in a table
//! the index is a plain number, as libfabric requires.

use crate::api::{FiAddr, ADDR_UNSPEC};
use crate::state::blobs::{Blob, Blobs};
use crate::state::paged::Paged;
use hashbrown::HashTable;
use marline_wire::Address;
use std::collections::{BTreeSet, VecDeque};

/// Generations of a slot count up to this, then restart from 0.
const LIVES: u32 = 1 << 31;

/// An address vector. Jobs insert all their ranks and speak to few, so an entry is small: its
/// address as it was encoded, a slot, and a number in the index of ids.
#[derive(Default)]
pub struct Av {
    slots: Paged<Slot>,
    blobs: Blobs,
    free: VecDeque<u32>,
    /// Slots by id: of each id the slot with the lowest index.
    ids: HashTable<u32>,
    /// Further indices of ids that were inserted more than once.
    again: BTreeSet<(u64, FiAddr)>,
    /// True for a map.
    map: bool,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    address: Blob,
    life: u32,
}

impl Av {
    /// Creates an empty address vector.
    pub(crate) fn new(map: bool) -> Av {
        Av {
            map,
            ..Av::default()
        }
    }

    /// Slot of an index of any generation.
    #[inline]
    pub(crate) fn slot_of(addr: FiAddr) -> usize {
        addr as u32 as usize
    }

    /// Generation of an index; 0 in a table.
    #[inline]
    pub(crate) fn life_of(addr: FiAddr) -> u32 {
        (addr >> 32) as u32
    }

    /// Current index of a slot.
    fn name_of(&self, slot: u32) -> FiAddr {
        let life = match self.map {
            true => self.slots.get(slot as usize).map_or(0, |slot| slot.life),
            false => 0,
        };
        (life as FiAddr) << 32 | slot as FiAddr
    }

    /// The id of the address in a slot.
    fn id_in(slots: &Paged<Slot>, blobs: &Blobs, slot: u32) -> u64 {
        let slot = slots.get(slot as usize);
        slot.map_or(0, |slot| blobs.id(slot.address))
    }

    /// Where an id is in the table: ids are random, except in tests, which number them from 0.
    fn hash(id: u64) -> u64 {
        id.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Adds an address.
    pub(crate) fn insert(&mut self, address: &Address) -> FiAddr {
        let slot = self.free.pop_front().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let (bytes, len) = address.encode();
        if let Some(entry) = self.slots.get_mut(slot as usize) {
            entry.address = self.blobs.add(&bytes[..len]);
        }
        let addr = self.name_of(slot);
        let Av {
            slots, blobs, ids, ..
        } = self;
        let (id, of) = (address.id, |slot: &u32| Av::id_in(slots, blobs, *slot));
        match ids.find(Av::hash(id), |slot| of(slot) == id) {
            Some(&first) => self.insert_again(id, first, addr),
            None => drop(ids.insert_unique(Av::hash(id), slot, |slot| Av::hash(of(slot)))),
        }
        addr
    }

    /// Enters another index of an id whose lowest index so far is that of slot `first`.
    #[cold]
    fn insert_again(&mut self, id: u64, first: u32, addr: FiAddr) {
        let known = self.name_of(first);
        self.again.insert((id, known.max(addr)));
        if addr < known {
            self.rename(id, first, Av::slot_of(addr) as u32);
        }
    }

    /// Makes slot `to` the first one of an id in place of `from`.
    fn rename(&mut self, id: u64, from: u32, to: u32) {
        if let Some(slot) = self.ids.find_mut(Av::hash(id), |slot| *slot == from) {
            *slot = to;
        }
    }

    /// The slot of an index, if it holds an address.
    fn entry(&self, addr: FiAddr) -> Option<&Slot> {
        let at = Av::slot_of(addr);
        let slot = self.slots.get(at).filter(|slot| slot.address.is_some())?;
        (self.name_of(at as u32) == addr).then_some(slot)
    }

    /// The address of an index.
    pub(crate) fn get(&self, addr: FiAddr) -> Option<Address> {
        Some(self.blobs.address(self.entry(addr)?.address))
    }

    /// Removes the address of an index.
    pub(crate) fn remove(&mut self, addr: FiAddr) -> Option<Address> {
        let blob = self.entry(addr)?.address;
        let address = self.blobs.address(blob);
        let at = Av::slot_of(addr);
        self.leave_index(address.id, at as u32, addr);
        self.blobs.remove(blob);
        if let Some(slot) = self.slots.get_mut(at) {
            slot.address = Blob::default();
            slot.life = (slot.life + 1) % LIVES;
        }
        // Index 0 is never reused, because MPICH takes it for no address.
        if self.map || at > 0 {
            self.free.push_back(at as u32);
        }
        Some(address)
    }

    /// Removes an index from those of its id.
    fn leave_index(&mut self, id: u64, slot: u32, addr: FiAddr) {
        if self.again.remove(&(id, addr)) {
            return;
        }
        let next = self.again.range((id, 0)..=(id, ADDR_UNSPEC)).next();
        if let Some(&(_, next)) = next {
            self.again.remove(&(id, next));
            return self.rename(id, slot, Av::slot_of(next) as u32);
        }
        if let Ok(found) = self.ids.find_entry(Av::hash(id), |other| *other == slot) {
            found.remove();
        }
    }

    /// The lowest index with this id; [`ADDR_UNSPEC`] without one.
    pub(crate) fn find(&self, id: u64) -> FiAddr {
        let is = |slot: &u32| Av::id_in(&self.slots, &self.blobs, *slot) == id;
        let slot = self.ids.find(Av::hash(id), is);
        slot.map_or(ADDR_UNSPEC, |&slot| self.name_of(slot))
    }

    /// Bytes of heap memory, including what is kept for more addresses.
    pub(crate) fn heap_bytes(&self) -> usize {
        let again = self.again.len() * 2 * size_of::<(u64, FiAddr)>();
        let free = self.free.capacity() * size_of::<u32>();
        let tables = self.slots.heap_bytes() + self.blobs.heap_bytes() + self.ids.allocation_size();
        tables + free + again
    }
}

#[cfg(test)]
#[path = "av_test.rs"]
mod test;
