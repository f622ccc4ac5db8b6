//! Chunks to send again, in an order that is fair to the members.

use alloc::collections::BTreeSet;

/// Member (`None`: all), chunk, and the chunk's piece (0: the whole chunk).
type Entry = (Option<u16>, u64, u16);

/// Retransmissions to send, each once: one chunk for each member in turn, a member's lowest chunk
/// first. In order of chunks alone, one member's only missing chunk would wait for all lower ones
/// of all others.
#[derive(Debug, Default)]
pub(super) struct Retransmissions {
    queue: BTreeSet<Entry>,
    /// Member and chunk of the last one.
    turn: (Option<u16>, u64),
}

impl Retransmissions {
    /// A chunk is multicast again.
    pub fn add_for_all(&mut self, number: u64) {
        self.queue.insert((None, number, 0));
    }

    /// A chunk, or a piece of it, is sent to a member.
    pub fn add(&mut self, number: u64, member: u16, piece: u16) {
        self.queue.insert((Some(member), number, piece));
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes the next one: chunk, member (`None`: all), piece.
    pub fn pop(&mut self) -> Option<(u64, Option<u16>, u16)> {
        let (member, number) = self.turn;
        let (begin, end) = ((member, number, 0), (member, u64::MAX, u16::MAX));
        let of_chunk = self.queue.range(begin..=(member, number, u16::MAX)).next();
        let of_others = || self.queue.range(end..).next();
        let next = of_chunk.or_else(of_others).or_else(|| self.queue.first());
        let (member, number, piece) = *next?;
        self.queue.remove(&(member, number, piece));
        self.turn = (member, number);
        Some((number, member, piece))
    }

    pub fn heap_bytes(&self) -> usize {
        self.queue.len() * size_of::<Entry>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Regression: nothing arrived for 1.6 seconds at a member that lacked one chunk (simulator,
    /// group seed 740696).
    #[test]
    fn members_take_turns_by_chunks() {
        let mut queue = Retransmissions::default();
        for number in [3, 4] {
            queue.add(number, 1, 0);
            queue.add(number, 1, 1);
        }
        queue.add(9, 2, 0);
        queue.add(9, 2, 0);
        queue.add_for_all(7);
        let order: Vec<_> = core::iter::from_fn(|| queue.pop()).collect();
        let to = Some;
        let all = [
            (3, to(1), 0),
            (3, to(1), 1),
            (9, to(2), 0),
            (7, None, 0),
            (4, to(1), 0),
            (4, to(1), 1),
        ];
        assert_eq!(order, all);
        assert!(queue.is_empty());
    }
}
