//! Packets that wait until their process has time for them.

use super::net::Harm;
use super::setup::GroupSetup;
use marline_proto::group::Backlog;
use std::collections::VecDeque;
use std::rc::Rc;

/// A packet that arrived.
pub(super) struct Parcel {
    /// Sender, rail, and whether the packet was multicast.
    pub flow: (usize, usize, bool),
    pub bytes: Rc<Vec<u8>>,
    pub harm: Harm,
}

/// The packets of one process, each with the time at which the process takes it.
#[derive(Default)]
pub(super) struct Inbox {
    waiting: VecDeque<(u64, Parcel)>,
    busy_until: u64,
    /// The backlog of received packets, as in the engine.
    pub backlog: Backlog,
}

impl Inbox {
    /// Adds a packet that arrived; `false`: there is no room.
    pub fn push(&mut self, now: u64, setup: &GroupSetup, parcel: Parcel) -> bool {
        let start = self.busy_until.max(now);
        let fits = start - now <= setup.queue_ns;
        if fits {
            self.busy_until = start + setup.packet_ns;
            self.waiting.push_back((start + setup.gather_ns, parcel));
        }
        fits
    }

    /// When the next is taken.
    pub fn next_at(&self) -> Option<u64> {
        self.waiting.front().map(|(at, _)| *at)
    }

    /// Counts a look of the process at its rails, which costs time.
    pub fn look(&mut self) {
        if self.waiting.is_empty() {
            self.backlog.caught_up();
        }
    }

    /// Takes the next packet, and packets of the same flow and length that wait behind it, as a
    /// kernel joins them.
    pub fn batch(&mut self, most: usize) -> Vec<Parcel> {
        let mut batch: Vec<Parcel> = Vec::new();
        while let Some((_, next)) = self.waiting.front() {
            let joins =
                |first: &Parcel| first.flow == next.flow && first.bytes.len() == next.bytes.len();
            if batch.len() == most.max(1) || !batch.first().is_none_or(joins) {
                break;
            }
            batch.extend(self.waiting.pop_front().map(|(_, parcel)| parcel));
        }
        self.backlog.came();
        batch
    }
}
