//! Slots by the id of what they hold: a hash table of slot numbers alone, as the ids are in the
//! slots. Ids are random numbers, and need no hash.

/// An empty place.
const EMPTY: u32 = u32::MAX;
/// Places of the first table.
const FIRST: usize = 16;

/// The table: places that hold slot numbers, each at the first free place from where its id points.
#[derive(Default)]
pub(crate) struct IdIndex {
    places: Vec<u32>,
    used: usize,
}

impl IdIndex {
    fn mask(&self) -> usize {
        self.places.len().wrapping_sub(1)
    }

    /// Place to which an id points: its upper bits, as tests number ids from 0.
    fn home(&self, id: u64) -> usize {
        (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & self.mask()
    }

    /// The place of a slot whose id points there.
    fn place(&self, id: u64, is: impl Fn(u32) -> bool) -> Option<usize> {
        if self.places.is_empty() {
            return None;
        }
        let mut at = self.home(id);
        while self.places[at] != EMPTY {
            if is(self.places[at]) {
                return Some(at);
            }
            at = (at + 1) & self.mask();
        }
        None
    }

    /// The slot with this id. `id_of` gives the id of a slot.
    pub(crate) fn slot(&self, id: u64, id_of: impl Fn(u32) -> u64) -> Option<u32> {
        let at = self.place(id, |slot| id_of(slot) == id)?;
        Some(self.places[at])
    }

    /// Enters a slot whose id is not there.
    pub(crate) fn insert(&mut self, id: u64, slot: u32, id_of: impl Fn(u32) -> u64) {
        // At most seven eighths are used.
        if (self.used + 1) * 8 > self.places.len() * 7 {
            let room = (self.places.len() * 2).max(FIRST);
            let old = std::mem::replace(&mut self.places, vec![EMPTY; room]);
            let there = old.into_iter().filter(|&slot| slot != EMPTY);
            there.for_each(|slot| self.put(id_of(slot), slot));
        }
        self.put(id, slot);
        self.used += 1;
    }

    fn put(&mut self, id: u64, slot: u32) {
        let mut at = self.home(id);
        while self.places[at] != EMPTY {
            at = (at + 1) & self.mask();
        }
        self.places[at] = slot;
    }

    /// Replaces the slot of an id.
    pub(crate) fn replace(&mut self, id: u64, from: u32, to: u32) {
        if let Some(at) = self.place(id, |slot| slot == from) {
            self.places[at] = to;
        }
    }

    /// Removes the slot of an id, and moves later ones up, so that each is found from its home.
    pub(crate) fn remove(&mut self, id: u64, slot: u32, id_of: impl Fn(u32) -> u64) {
        let Some(mut hole) = self.place(id, |other| other == slot) else {
            return;
        };
        let mask = self.mask();
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            if self.places[at] == EMPTY {
                break;
            }
            let home = self.home(id_of(self.places[at]));
            // A slot may move if its home is not between the hole and its place.
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.places[hole] = self.places[at];
                hole = at;
            }
        }
        self.places[hole] = EMPTY;
        self.used -= 1;
    }

    /// Bytes of heap memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.places.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Few ids, so that many share a home, and all removals move others.
    #[test]
    fn the_index_finds_what_a_map_finds() {
        let (mut index, mut map) = (IdIndex::default(), BTreeMap::new());
        let mut seed = 1_u64;
        for slot in 0..20_000_u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let id = seed >> 33 & 255;
            let ids: BTreeMap<u32, u64> = map.iter().map(|(id, slot)| (*slot, *id)).collect();
            match map.remove(&id) {
                Some(old) => index.remove(id, old, |slot| ids[&slot]),
                None => {
                    index.insert(id, slot, |slot| ids[&slot]);
                    map.insert(id, slot);
                }
            }
            let ids: BTreeMap<u32, u64> = map.iter().map(|(id, slot)| (*slot, *id)).collect();
            let asked = seed >> 20 & 255;
            let found = index.slot(asked, |slot| ids[&slot]);
            assert_eq!(found, map.get(&asked).copied());
        }
        assert_eq!(index.used, map.len());
    }
}
