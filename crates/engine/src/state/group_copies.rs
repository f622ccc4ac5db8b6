//! Copies of group chunks: those that a root or co-root keeps, and those that came before their
//! broadcast was posted. Buffers are used again, as a broadcast of a megabyte would cost as many
//! fresh pages each time.

use std::collections::BTreeMap;

/// Chunks that one buffer of kept copies has room for.
const SLAB_CHUNKS: usize = 64;
/// Buffers of kept copies that wait to be used again: those of a window.
const SPARE_SLABS: usize = 32;
/// Bytes of broadcasts of a group that came before they were posted, at most: a root is ahead of a
/// member that is away by as much.
pub(crate) const EARLY_MAX: usize = 8 << 20;

/// Chunks of one root in a row.
struct Slab {
    root: u16,
    first: u64,
    count: usize,
    bytes: Vec<u8>,
}

impl Slab {
    fn end(&self) -> u64 {
        self.first + self.count as u64
    }
}

/// Copies of chunks, by root and number.
#[derive(Default)]
pub(crate) struct KeptChunks {
    slabs: Vec<Slab>,
    spare: Vec<Vec<u8>>,
    /// Bytes of a chunk.
    chunk: usize,
}

impl KeptChunks {
    /// Of chunks of so many bytes.
    pub(crate) fn new(chunk: usize) -> KeptChunks {
        KeptChunks {
            chunk,
            ..KeptChunks::default()
        }
    }

    /// Keeps a chunk, of which nothing is longer than a chunk.
    pub(crate) fn insert(&mut self, (root, number): (u16, u64), bytes: &[u8]) {
        let continues = |s: &Slab| s.root == root && s.end() == number && s.count < SLAB_CHUNKS;
        let at = match self.slabs.iter().rposition(continues) {
            Some(at) => at,
            None => {
                let whole = || vec![0; SLAB_CHUNKS * self.chunk];
                self.slabs.push(Slab {
                    root,
                    first: number,
                    count: 0,
                    bytes: self.spare.pop().unwrap_or_else(whole),
                });
                self.slabs.len() - 1
            }
        };
        let slab = &mut self.slabs[at];
        let from = slab.count * self.chunk;
        if let Some(to) = slab.bytes.get_mut(from..from + bytes.len()) {
            to.copy_from_slice(bytes);
            slab.count += 1;
        }
    }

    /// The first `len` bytes of a chunk.
    pub(crate) fn get(&self, (root, number): (u16, u64), len: usize) -> Option<&[u8]> {
        let of = |s: &&Slab| s.root == root && (s.first..s.end()).contains(&number);
        let slab = self.slabs.iter().find(of)?;
        let from = (number - slab.first) as usize * self.chunk;
        slab.bytes.get(from..from.checked_add(len)?)
    }

    /// The chunks of a root below a number are not needed any more.
    pub(crate) fn forget(&mut self, root: u16, next: u64) {
        let mut at = 0;
        while let Some(slab) = self.slabs.get(at) {
            if slab.root != root || slab.end() > next {
                at += 1;
                continue;
            }
            let over = self.slabs.remove(at);
            if self.spare.len() < SPARE_SLABS {
                self.spare.push(over.bytes);
            }
        }
    }
}

/// A broadcast that was not posted yet.
pub(crate) struct Early {
    bytes: Vec<u8>,
    /// From where to where bytes have come, as they came.
    parts: Vec<(usize, usize)>,
}

impl Early {
    /// The bytes that have come, each with its place.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (usize, &[u8])> + '_ {
        let part = |&(from, to): &(usize, usize)| Some((from, self.bytes.get(from..to)?));
        self.parts.iter().filter_map(part)
    }
}

/// Bytes of broadcasts that were not posted yet, by the broadcast's number.
#[derive(Default)]
pub(crate) struct EarlyBytes {
    broadcasts: BTreeMap<u64, Early>,
    spare: Vec<Vec<u8>>,
}

impl EarlyBytes {
    /// Room for bytes `at .. at + len` of a broadcast of `total` bytes; `None`: it has no such
    /// bytes, or so much of it is not kept.
    pub(crate) fn room(
        &mut self,
        (broadcast, total): (u64, usize),
        at: usize,
        len: usize,
    ) -> Option<&mut [u8]> {
        let (spare, total) = (&mut self.spare, total.min(EARLY_MAX));
        let early = self.broadcasts.entry(broadcast).or_insert_with(|| {
            let fits = spare.iter().position(|bytes| bytes.len() >= total);
            Early {
                bytes: fits.map_or_else(|| vec![0; total], |at| spare.swap_remove(at)),
                parts: Vec::new(),
            }
        });
        let end = at.checked_add(len).filter(|end| *end <= total)?;
        match early.parts.last_mut().filter(|(_, to)| *to == at) {
            Some((_, to)) => *to = end,
            None => early.parts.push((at, end)),
        }
        early.bytes.get_mut(at..end)
    }

    /// A broadcast is not early any more.
    pub(crate) fn take(&mut self, broadcast: u64) -> Option<Early> {
        self.broadcasts.remove(&broadcast)
    }

    /// Its buffer may be used again.
    pub(crate) fn give_back(&mut self, early: Early) {
        let bytes: usize = self.spare.iter().map(Vec::len).sum();
        if bytes + early.bytes.len() <= EARLY_MAX {
            self.spare.push(early.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_kept_until_they_are_forgotten() {
        let mut kept = KeptChunks::new(4);
        for number in 0..200u64 {
            kept.insert((1, number), &[number as u8; 4]);
        }
        kept.insert((1, 300), &[9; 3]);
        kept.insert((2, 0), &[7; 4]);
        for number in 0..200u64 {
            assert_eq!(kept.get((1, number), 4), Some(&[number as u8; 4][..]));
        }
        assert_eq!(kept.get((1, 300), 3), Some(&[9; 3][..]));
        assert_eq!((kept.get((1, 200), 4), kept.get((2, 1), 4)), (None, None));
        kept.forget(1, 130);
        assert_eq!(kept.get((1, 127), 4), None);
        assert_eq!(kept.get((1, 130), 4), Some(&[130; 4][..]));
        kept.forget(1, 301);
        assert_eq!(kept.slabs.len(), 1, "of the other root");
        kept.insert((3, 5), &[1; 4]);
        assert_eq!(kept.get((3, 5), 4), Some(&[1; 4][..]), "in a used buffer");
    }

    #[test]
    fn only_what_came_early_is_handed_over() {
        let mut early = EarlyBytes::default();
        let mut put = |at: usize, bytes: &[u8]| {
            let room = early.room((5, 10), at, bytes.len());
            room.map(|room| room.copy_from_slice(bytes)).is_some()
        };
        assert!(put(2, &[1, 2]) && put(4, &[3]) && put(8, &[4, 5]));
        assert!(!put(9, &[0, 0]), "it has ten bytes");
        let taken = early.take(5).unwrap();
        let parts: Vec<(usize, &[u8])> = taken.parts().collect();
        assert_eq!(parts, [(2, &[1, 2, 3][..]), (8, &[4, 5][..])]);
        assert!(early.take(5).is_none());
        early.give_back(taken);
        early.room((6, 7), 0, 1).unwrap()[0] = 9;
        let again = early.take(6).unwrap();
        assert_eq!(again.bytes.len(), 10, "a used buffer");
        assert_eq!(again.parts().count(), 1);
    }
}
