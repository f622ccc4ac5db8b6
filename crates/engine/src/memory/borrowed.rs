//! Eager sends that leave from the memory of their caller, in the order in which they were posted
//! (docs/design/eager.md).

use std::collections::VecDeque;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub handle: u32,
    /// Handles are reused, numbers are not.
    pub number: u64,
    /// When the application first polled after it was posted; 0: it has not.
    pub since_ns: u64,
}

/// All of them. Those that are over stay until they come to the front.
#[derive(Debug, Default)]
pub(crate) struct Borrowed {
    entries: VecDeque<Entry>,
    /// How many of the first a poll has seen.
    seen: usize,
    /// One ended since the last poll.
    pub(crate) ended: bool,
    /// When one last did.
    ended_ns: u64,
    numbers: u64,
}

impl Borrowed {
    /// The number of another one.
    pub(crate) fn next(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Adds a send by its number.
    pub(crate) fn push(&mut self, handle: u32, number: u64) {
        self.entries.push_back(Entry {
            handle,
            number,
            since_ns: 0,
        });
    }

    /// Drops the first.
    pub(crate) fn pop(&mut self) {
        self.entries.pop_front();
        self.seen = self.seen.saturating_sub(1);
    }

    /// The one that was posted first.
    pub(crate) fn first(&self) -> Option<Entry> {
        self.entries.front().copied()
    }

    /// The application polls.
    pub(crate) fn polled(&mut self, now: u64) {
        for entry in self.entries.iter_mut().skip(self.seen) {
            entry.since_ns = now;
        }
        self.seen = self.entries.len();
        if std::mem::take(&mut self.ended) {
            self.ended_ns = now;
        }
    }

    /// Time for which the application has polled and none has ended.
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
    fn an_end_starts_the_quiet_anew() {
        let mut b = Borrowed {
            ended: true,
            ..Borrowed::default()
        };
        b.polled(1_000);
        b.polled(5_000);
        assert_eq!(b.quiet_ns(6_000), 5_000);
    }
}
