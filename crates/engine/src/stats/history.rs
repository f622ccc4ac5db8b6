//! Bytes of rails over time, in a bounded number of intervals: when all of them are in use, each
//! two become one.

use super::layout::HISTORY_SLOTS;
use super::words::record;

/// Length of an interval at first: a short job shows its phases, and every interval has an update
/// of the page.
const INTERVAL_NS: u64 = 200_000_000;

record! {
    /// Bytes of a rail in each interval, without UDP and IP headers.
    RailHistory {
        /// Bytes sent.
        sent: Vec<u64>,
        /// Bytes received.
        received: Vec<u64>,
    }
}

record! {
    /// Bytes of an engine's rails in intervals since it opened.
    History {
        /// Length of an interval in nanoseconds.
        interval_ns: u64,
        /// The rails, in the order of the page's.
        rails: Vec<RailHistory>,
    }
}

impl History {
    fn halve(&mut self) {
        self.interval_ns = self.interval_ns.saturating_mul(2);
        for rail in &mut self.rails {
            for slots in [&mut rail.sent, &mut rail.received] {
                *slots = slots.chunks(2).map(|two| two.iter().sum()).collect();
            }
        }
    }
}

/// The writer of a history.
#[derive(Debug)]
pub(super) struct Sampler {
    history: History,
    /// Bytes sent and received by each rail at the last update.
    last: Vec<(u64, u64)>,
}

impl Sampler {
    pub(super) fn new() -> Sampler {
        Sampler {
            history: History {
                interval_ns: INTERVAL_NS,
                rails: Vec::new(),
            },
            last: Vec::new(),
        }
    }

    /// Adds the bytes since the last update to the interval of this age of the engine. `totals`:
    /// bytes sent and received by each rail so far.
    pub(super) fn add(&mut self, age_ns: u64, totals: &[(u64, u64)]) -> &History {
        while age_ns / self.history.interval_ns >= HISTORY_SLOTS as u64 {
            self.history.halve();
        }
        let slot = (age_ns / self.history.interval_ns) as usize;
        let known = self.last.len().max(totals.len());
        self.last.resize(known, (0, 0));
        self.history.rails.resize_with(known, Default::default);
        let seen = self.last.iter_mut().zip(&mut self.history.rails);
        for (&now, (last, history)) in totals.iter().zip(seen) {
            add_to(&mut history.sent, slot, now.0.saturating_sub(last.0));
            add_to(&mut history.received, slot, now.1.saturating_sub(last.1));
            *last = now;
        }
        &self.history
    }
}

fn add_to(slots: &mut Vec<u64>, slot: usize, bytes: u64) {
    // The clock may have been set back.
    let room = slots.len().max(slot + 1);
    slots.resize(room, 0);
    slots[slot] = slots[slot].saturating_add(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_in_the_interval_of_their_update() {
        let mut sampler = Sampler::new();
        sampler.add(0, &[(10, 1)]);
        sampler.add(INTERVAL_NS - 1, &[(15, 1)]);
        let history = sampler.add(3 * INTERVAL_NS, &[(115, 4), (7, 0)]);
        assert_eq!(history.rails[0].sent, [15, 0, 0, 100]);
        assert_eq!(history.rails[0].received, [1, 0, 0, 3]);
        assert_eq!(
            history.rails[1].sent,
            [0, 0, 0, 7],
            "a rail that came later"
        );
        // A clock that was set back loses nothing.
        let history = sampler.add(INTERVAL_NS, &[(120, 4), (7, 0)]);
        assert_eq!(history.rails[0].sent, [15, 5, 0, 100]);
    }

    #[test]
    fn a_long_job_has_longer_intervals_and_all_its_bytes() {
        let mut sampler = Sampler::new();
        let updates = 10 * HISTORY_SLOTS as u64;
        for n in 0..updates {
            sampler.add(n * INTERVAL_NS, &[(n + 1, 2 * n + 2)]);
        }
        let history = sampler.add(updates * INTERVAL_NS, &[(updates, 2 * updates)]);
        assert_eq!(history.interval_ns, 16 * INTERVAL_NS);
        let rail = &history.rails[0];
        assert!(rail.sent.len() <= HISTORY_SLOTS && rail.sent.len() > HISTORY_SLOTS / 2);
        assert!(rail.sent[..updates as usize / 16]
            .iter()
            .all(|&bytes| bytes == 16));
        assert_eq!(rail.received.iter().sum::<u64>(), 2 * updates);
        // A century between two updates.
        let history = sampler.add(3_200_000_000_000_000_000, &[(updates, 0)]);
        assert_eq!(history.rails[0].sent.iter().sum::<u64>(), updates);
        assert!(history.rails[0].sent.len() <= HISTORY_SLOTS);
    }
}
