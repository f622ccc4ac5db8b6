//! Address vectors. Slots of removed addresses are reused, the longest unused first. In a map the
//! index includes the generation of its slot, so that a stale index names no address; in a table
//! the index is a plain number, as libfabric requires.

use crate::api::{FiAddr, ADDR_UNSPEC};
use marline_wire::Address;
use std::collections::{BTreeSet, VecDeque};

/// Generations of a slot count up to this, then restart from 0.
const LIVES: u32 = 1 << 31;

/// An address vector.
#[derive(Default)]
pub struct Av {
    slots: Vec<Slot>,
    free: VecDeque<u32>,
    /// All indices by id, the lowest first.
    names: BTreeSet<(u64, FiAddr)>,
    /// True for a map.
    map: bool,
}

#[derive(Default)]
struct Slot {
    address: Option<Address>,
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

    /// Current index of a slot.
    fn name_of(&self, slot: u32) -> FiAddr {
        let life = match self.map {
            true => self.slots[slot as usize].life,
            false => 0,
        };
        (life as FiAddr) << 32 | slot as FiAddr
    }

    /// Adds an address.
    pub(crate) fn insert(&mut self, address: Address) -> FiAddr {
        let slot = self.free.pop_front().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize].address = Some(address);
        let addr = self.name_of(slot);
        self.names.insert((address.id, addr));
        addr
    }

    /// The address of an index.
    pub(crate) fn get(&self, addr: FiAddr) -> Option<&Address> {
        let at = Av::slot_of(addr);
        let slot = self.slots.get(at)?;
        let address = slot.address.as_ref()?;
        (self.name_of(at as u32) == addr).then_some(address)
    }

    /// Removes the address of an index.
    pub(crate) fn remove(&mut self, addr: FiAddr) -> Option<Address> {
        let address = *self.get(addr)?;
        let at = Av::slot_of(addr);
        let slot = &mut self.slots[at];
        slot.address = None;
        slot.life = (slot.life + 1) % LIVES;
        // Index 0 is never reused, because MPICH takes it for no address.
        if self.map || at > 0 {
            self.free.push_back(at as u32);
        }
        self.names.remove(&(address.id, addr));
        Some(address)
    }

    /// The lowest index with this id; [`ADDR_UNSPEC`] without one.
    pub(crate) fn find(&self, id: u64) -> FiAddr {
        let mut named = self.names.range((id, 0)..=(id, ADDR_UNSPEC));
        named.next().map_or(ADDR_UNSPEC, |&(_, addr)| addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(id: u64) -> Address {
        Address::new(id, 1, &[])
    }

    #[test]
    fn slots_are_reused_and_stale_indices_of_a_map_name_no_address() {
        for map in [false, true] {
            let mut av = Av::new(map);
            let first = [1, 3, 5].map(|id| av.insert(address(id)));
            assert_eq!(first, [0, 1, 2]);
            for round in 0..1_000 {
                let old = av.find(3);
                assert!(av.remove(old).is_some() && av.remove(old).is_none());
                assert!(av.get(old).is_none() && av.find(3) == ADDR_UNSPEC);
                let new = av.insert(address(3));
                assert_eq!(Av::slot_of(new), 1);
                assert_eq!(av.get(old).is_none(), map, "round {round}");
                assert_eq!(av.get(new).map(|a| a.id), Some(3));
            }
            assert_eq!((av.slots.len(), av.names.len()), (3, 3));
        }
    }

    #[test]
    fn the_second_of_two_indices_is_found_after_removal_of_the_first() {
        let mut av = Av::new(false);
        let (one, two) = (av.insert(address(7)), av.insert(address(7)));
        assert_eq!(av.find(7), one);
        av.remove(one);
        assert_eq!(av.find(7), two);
        av.remove(two);
        assert_eq!(av.find(7), ADDR_UNSPEC);
    }
}
