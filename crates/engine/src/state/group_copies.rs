//! Copies of group chunks: those that a root or co-root retains, and those that arrived before
//! their broadcast was posted. Buffers are reused, since fresh pages for each broadcast cost page
//! faults.

use std::collections::BTreeMap;

/// Capacity of one buffer of retained copies, in chunks.
const SLAB_CHUNKS: usize = 64;
/// Most free buffers kept for copies: as many as one window needs.
const SPARE_SLABS: usize = 32;
/// Most bytes of a group's broadcasts that arrive before they are posted: so far a root may be
/// ahead of a descheduled member.
pub(crate) const EARLY_MAX: usize = 8 << 20;

/// Consecutive chunks of one root.
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

/// Retained copies of chunks by root and number.
#[derive(Default)]
pub(crate) struct KeptChunks {
    slabs: Vec<Slab>,
    spare: Vec<Vec<u8>>,
    /// Length of a chunk in bytes.
    chunk: usize,
}

impl KeptChunks {
    /// Creates a store for chunks of `chunk` bytes.
    pub(crate) fn new(chunk: usize) -> KeptChunks {
        KeptChunks {
            chunk,
            ..KeptChunks::default()
        }
    }

    /// Retains a chunk of at most the group's chunk length.
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

    /// Drops a root's chunks below a number, which are no longer needed.
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

/// A broadcast that arrived before it was posted.
pub(crate) struct Early {
    bytes: Vec<u8>,
    /// Ranges of received bytes in order of arrival.
    parts: Vec<(usize, usize)>,
}

impl Early {
    /// Received bytes with their offsets.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (usize, &[u8])> + '_ {
        let part = |&(from, to): &(usize, usize)| Some((from, self.bytes.get(from..to)?));
        self.parts.iter().filter_map(part)
    }
}

/// Bytes of broadcasts that were not posted yet, by number of the broadcast.
#[derive(Default)]
pub(crate) struct EarlyBytes {
    broadcasts: BTreeMap<u64, Early>,
    spare: Vec<Vec<u8>>,
}

impl EarlyBytes {
    /// Buffer for the bytes `at .. at + len` of a broadcast of `total` bytes; `None`: out of range,
    /// or beyond the limit.
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

    /// Takes a broadcast that is now posted.
    pub(crate) fn take(&mut self, broadcast: u64) -> Option<Early> {
        self.broadcasts.remove(&broadcast)
    }

    /// Returns a broadcast's buffer for reuse.
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
    fn only_early_bytes_are_handed_over() {
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
