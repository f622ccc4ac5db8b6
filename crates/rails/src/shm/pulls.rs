//! Runs of pulls: consecutive pulls that one system call can read from the producer's memory.

use super::frame::{read_pieces, read_pull, To};
use crate::sys::PULL_PIECES_MAX;
use marline_wire::DirectHead;
use std::ops::Range;

/// Most bytes of a run: longer runs cost no less per byte, and the receiver sums the bytes while
/// they are in the core's own cache.
const RUN_MAX: u32 = 264 << 10;

/// Pulls of memory that lands in one contiguous range, and their packets.
#[derive(Debug, Default)]
pub(super) struct Run {
    to: Option<To>,
    pieces: Vec<(u64, u64)>,
    len: u32,
    /// Ranges of the packets in the buffer to which the frames were copied.
    packets: Vec<Range<usize>>,
}

/// The result of adding a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// The pull belongs to the run.
    Yes,
    /// The pull begins another run.
    No,
    /// The pull is malformed.
    Nonsense,
}

impl Run {
    /// Empties the run and retains its allocations.
    pub(super) fn clear(&mut self) {
        (self.to, self.len) = (None, 0);
        self.pieces.clear();
        self.packets.clear();
    }

    /// Adds a pull; `rest` are its pieces and packet, copied to offset `at` of the buffer.
    pub(super) fn add(&mut self, to: To, rest: &[u8], at: usize) -> Added {
        let Some((list, len)) = read_pull(&to, rest) else {
            return Added::Nonsense;
        };
        let pieces = read_pieces(list);
        if let Some(first) = &self.to {
            let next = first.offset.checked_add(u64::from(self.len));
            let follows = first.key == to.key && next == Some(to.offset);
            let few = self.pieces.len() + pieces.len() <= PULL_PIECES_MAX;
            let short = self.len.checked_add(len).is_some_and(|len| len <= RUN_MAX);
            if !(follows && few && short) {
                return Added::No;
            }
        }
        self.to.get_or_insert(to);
        self.len += len;
        for (address, len) in pieces {
            match self.pieces.last_mut() {
                Some((from, before)) if from.checked_add(*before) == Some(address) => {
                    *before += len; // the total does not exceed the run
                }
                _ => self.pieces.push((address, len)),
            }
        }
        self.packets.push(at + list.len()..at + rest.len());
        Added::Yes
    }

    /// The destination of the run.
    pub(super) fn head(&self) -> DirectHead {
        let (key, offset) = self.to.map_or((0, 0), |to| (to.key, to.offset));
        DirectHead {
            key,
            offset,
            len: self.len,
            packet_len: 0,
            spare: 0,
        }
    }

    /// The pieces of the producer's memory.
    pub(super) fn pieces(&self) -> &[(u64, u64)] {
        &self.pieces
    }

    /// The packets of the run, one per pull.
    pub(super) fn packets(&self) -> &[Range<usize>] {
        &self.packets
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::write_piece;
    use super::*;

    fn pull(offset: u64, pieces: &[(u64, u64)]) -> (To, Vec<u8>) {
        let count = pieces.len() as u64;
        let list = pieces.iter().flat_map(|p| write_piece(p.0, p.1));
        let to = To {
            key: 7,
            offset,
            count,
        };
        (to, list.chain(*b"packet").collect())
    }

    fn added(run: &mut Run, (to, rest): &(To, Vec<u8>), at: usize) -> Added {
        run.add(*to, rest, at)
    }

    #[test]
    fn adjacent_pulls_are_one_read() {
        let mut run = Run::default();
        assert_eq!(added(&mut run, &pull(0, &[(4096, 100)]), 0), Added::Yes);
        let second = pull(100, &[(4196, 60), (9000, 40)]);
        assert_eq!(added(&mut run, &second, 22), Added::Yes);
        assert_eq!(run.pieces(), [(4096, 160), (9000, 40)]);
        assert_eq!((run.head().offset, run.head().len), (0, 200));
        assert_eq!(run.packets(), [16..22, 54..60]);
    }

    #[test]
    fn a_pull_elsewhere_starts_another_run() {
        let mut run = Run::default();
        assert_eq!(added(&mut run, &pull(64, &[(4096, 100)]), 0), Added::Yes);
        for offset in [0, 64, 163, 165, u64::MAX] {
            assert_eq!(added(&mut run, &pull(offset, &[(4196, 9)]), 0), Added::No);
        }
        let (to, rest) = pull(164, &[(4196, 9)]);
        assert_eq!(run.add(To { key: 8, ..to }, &rest, 0), Added::No);
        assert_eq!(run.add(To { count: 0, ..to }, &rest, 0), Added::Nonsense);
        let long = pull(164, &[(4196, u64::from(RUN_MAX))]);
        assert_eq!(added(&mut run, &long, 0), Added::No);
        let pieces = [(1, 1); PULL_PIECES_MAX];
        assert_eq!(added(&mut run, &pull(164, &pieces), 0), Added::No);
        assert_eq!((run.head().len, run.packets().len()), (100, 1));
        assert_eq!(run.add(to, &rest, 0), Added::Yes);
    }
}
