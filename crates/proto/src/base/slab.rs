//! A slab with generations: the key of a freed entry never finds a later entry in the same slot, so
//! late frames of finished transfers have no effect.

use alloc::vec::Vec;

/// Key of a slab entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// A number that no later entry has (until a slot's generation wraps after 2^32 reuses).
    pub fn name(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The key with that name.
    pub fn of(name: u64) -> Key {
        Key {
            index: name as u32,
            generation: (name >> 32) as u32,
        }
    }
}

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// The slab.
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub fn new() -> Slab<T> {
        Slab {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Heap bytes of the slab, including free entries, without memory that entries own.
    pub fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<T>>() + self.free.capacity() * size_of::<u32>()
    }

    pub fn insert(&mut self, value: T) -> Key {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return Key {
                index,
                generation: slot.generation,
            };
        }
        self.slots.push(Slot {
            generation: 0,
            value: Some(value),
        });
        Key {
            index: self.slots.len() as u32 - 1,
            generation: 0,
        }
    }

    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        slot.value.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        slot.value.as_mut()
    }

    pub fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Live entries in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots.iter().enumerate().filter_map(|(i, s)| {
            let key = Key {
                index: i as u32,
                generation: s.generation,
            };
            s.value.as_ref().map(|v| (key, v))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_map_of_all_keys(
            steps in proptest::collection::vec((any::<bool>(), any::<prop::sample::Index>()),
                1..if cfg!(miri) { 20 } else { 200 }))
        {
            let (mut slab, mut all) = (Slab::new(), Vec::<(Key, Option<usize>)>::new());
            for (n, (insert, at)) in steps.into_iter().enumerate() {
                if insert || all.is_empty() {
                    let key = slab.insert(n);
                    prop_assert!(all.iter().all(|(k, _)| *k != key && k.name() != key.name()));
                    all.push((key, Some(n)));
                } else {
                    let at = at.index(all.len());
                    let (key, value) = &mut all[at];
                    prop_assert_eq!(slab.remove(*key), value.take());
                }
                for (key, value) in &all {
                    prop_assert_eq!(slab.get(*key), value.as_ref());
                }
                let live = all.iter().filter(|(_, value)| value.is_some()).count();
                prop_assert_eq!((slab.len(), slab.iter().count()), (live, live));
            }
        }
    }

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut slab = Slab::new();
        let a = slab.insert(1);
        assert_eq!(slab.remove(a), Some(1));
        let b = slab.insert(2);
        assert_eq!(a.name() as u32, b.name() as u32);
        assert_ne!(a.name(), b.name());
        assert_eq!((slab.get(a), slab.get(b), slab.len()), (None, Some(&2), 1));
        assert_eq!(slab.remove(a), None);
    }
}
