//! The queue in front of a rail, which takes one packet after the other.
//!
//! A packet's place is settled when it is sent, but its turn comes when it arrives: one that is
//! sent later and arrives earlier (the other waited in its sender's own queue, or was held back)
//! goes first. Were turns given away as packets are sent, one sender with a full queue of its own
//! would shut everybody else out, who would find the place taken by packets that have not come yet
//! (seed 9251642 of an earlier version: a peer not heard for a second).

use std::collections::VecDeque;

/// One packet's turn.
#[derive(Clone, Copy, Debug)]
struct Turn {
    arrives_ns: u64,
    takes_ns: u64,
    /// When the rail is free again.
    free_ns: u64,
}

/// The packets that arrive from now on and the last one that did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    turns: VecDeque<Turn>,
}

impl Queue {
    /// When a packet that arrives at `arrives_ns` (not before `now`) and takes `takes_ns` has come
    /// through. `None`: it would wait for longer than `longest_ns`, and is lost.
    pub(crate) fn take(
        &mut self,
        now: u64,
        arrives_ns: u64,
        takes_ns: u64,
        longest_ns: u64,
    ) -> Option<u64> {
        while self.turns.get(1).is_some_and(|t| t.arrives_ns <= now) {
            self.turns.pop_front();
        }
        let place = match self.turns.back() {
            Some(last) if last.arrives_ns > arrives_ns => {
                self.turns.partition_point(|t| t.arrives_ns <= arrives_ns)
            }
            _ => self.turns.len(),
        };
        let before = place.checked_sub(1).map_or(0, |i| self.turns[i].free_ns);
        let start = before.max(arrives_ns);
        if start - arrives_ns > longest_ns {
            return None;
        }
        let free_ns = start + takes_ns;
        let turn = Turn {
            arrives_ns,
            takes_ns,
            free_ns,
        };
        self.turns.insert(place, turn);
        self.put_off(place + 1, free_ns);
        Some(free_ns)
    }

    /// The turns from `place` on come after `free_ns`. (Who has been told when his packet is
    /// through keeps that time: it is a little early.)
    fn put_off(&mut self, place: usize, mut free_ns: u64) {
        for turn in self.turns.range_mut(place..) {
            let later = free_ns.max(turn.arrives_ns) + turn.takes_ns;
            if later == turn.free_ns {
                break;
            }
            turn.free_ns = later;
            free_ns = later;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_come_in_the_order_of_arrival() {
        let mut queue = Queue::default();
        assert_eq!(queue.take(0, 1_000, 100, 150), Some(1_100));
        assert_eq!(
            queue.take(0, 10, 100, 150),
            Some(110),
            "what comes later holds nobody up"
        );
        assert_eq!(queue.take(0, 950, 100, 150), Some(1_050));
        assert_eq!(queue.take(0, 1_001, 100, 150), Some(1_250), "behind both");
        assert_eq!(queue.take(0, 1_050, 100, 150), None, "200 ns to wait");
        assert_eq!(
            queue.take(2_000, 2_000, 100, 0),
            Some(2_100),
            "it is empty again"
        );
    }

    #[test]
    fn a_queue_forgets_what_came() {
        let mut queue = Queue::default();
        for at in 0..1_000 {
            queue.take(at * 100, at * 100, 90, 0);
        }
        assert!(queue.turns.len() <= 2);
    }
}
