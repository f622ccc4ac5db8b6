//! Eager sends that leave from their caller's memory, in order of posting (docs/design/eager.md).

use std::collections::VecDeque;

/// A borrowed send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub handle: u32,
    /// Unique number; handles are reused.
    pub number: u64,
    /// Time of the application's first poll after the send was posted; 0: no poll yet.
    pub since_ns: u64,
}

/// All borrowed sends. Ended sends stay until they reach the front.
#[derive(Debug, Default)]
pub(crate) struct Borrowed {
    entries: VecDeque<Entry>,
    /// Number of entries at the front that existed at the last poll.
    seen: usize,
    /// True if a send ended since the last poll.
    pub(crate) ended: bool,
    /// Time of the last poll that noticed an end.
    ended_ns: u64,
    numbers: u64,
}

impl Borrowed {
    /// Allocates a number.
    pub(crate) fn next(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Appends a send.
    pub(crate) fn push(&mut self, handle: u32, number: u64) {
        self.entries.push_back(Entry {
            handle,
            number,
            since_ns: 0,
        });
    }

    /// Removes the first send.
    pub(crate) fn pop(&mut self) {
        self.entries.pop_front();
        self.seen = self.seen.saturating_sub(1);
    }

    /// The first send.
    pub(crate) fn first(&self) -> Option<Entry> {
        self.entries.front().copied()
    }

    /// Notes a poll of the application.
    pub(crate) fn polled(&mut self, now: u64) {
        for entry in self.entries.iter_mut().skip(self.seen) {
            entry.since_ns = now;
        }
        self.seen = self.entries.len();
        if std::mem::take(&mut self.ended) {
            self.ended_ns = now;
        }
    }

    /// Time of polling during which no borrowed send has ended.
    pub(crate) fn quiet_ns(&self, now: u64) -> u64 {
        now.saturating_sub(self.ended_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_begins_with_the_first_poll_after_the_send() {
        let mut b = Borrowed::default();
        let two = [b.next(), b.next()];
        assert_ne!(two[0], two[1]);
        b.push(7, two[0]);
        b.polled(100);
        b.push(8, two[1]);
        b.polled(300);
        assert_eq!(b.first().map(|e| (e.handle, e.since_ns)), Some((7, 100)));
        b.pop();
        assert_eq!(b.first().map(|e| (e.handle, e.since_ns)), Some((8, 300)));
        b.push(9, 3);
        b.pop();
        b.polled(400);
        assert_eq!(b.first().map(|e| (e.handle, e.since_ns)), Some((9, 400)));
        b.pop();
        assert_eq!(b.first(), None);
    }

    #[test]
    fn an_end_restarts_the_time_without_ends() {
        let mut b = Borrowed {
            ended: true,
            ..Borrowed::default()
        };
        b.polled(1_000);
        b.polled(5_000);
        assert_eq!(b.quiet_ns(6_000), 5_000);
    }
}
