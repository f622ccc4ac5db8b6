//! The queue of a rail, which serves one packet after another.
//!
//! A packet gets its place when it is sent, but the order is that of arrival: a packet sent later
//! may arrive and be served earlier, if the other one waited in its sender's queue or was delayed.
//! If packets were served in order of sending, one sender with a full queue would block all others
//! by packets that have not arrived (seed 9251642 of an earlier version: a peer not heard for a
//! second).

use std::collections::VecDeque;

/// The service of one packet.
#[derive(Clone, Copy, Debug)]
struct Turn {
    arrives_ns: u64,
    takes_ns: u64,
    /// Time at which the rail is free again.
    free_ns: u64,
}

/// The packets with coming arrivals, and the last one that arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    turns: VecDeque<Turn>,
}

impl Queue {
    /// The time at which a packet that arrives at `arrives_ns` (not before `now`) and takes
    /// `takes_ns` has been served. `None`: the packet would wait longer than `longest_ns` and is
    /// lost.
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

    /// Delays the turns from `place` on until after `free_ns`. (Times already returned for these
    /// packets stay slightly too early.)
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
