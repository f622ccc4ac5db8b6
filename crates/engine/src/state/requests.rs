//! The form of peers' requests on registered memory, and log lines about refused requests.

use crate::state::rpcs::{Verb, Word, COMPARES, FETCHES, HAS_DATA, MORE, PART};

/// Least interval in nanoseconds between two log lines about refused requests: a flood of requests
/// must not flood the log.
const NOTICE_NS: u64 = 1_000_000_000;

/// Returns whether an engine could have made this request. Other requests are refused before any of
/// their fields has an effect: a request without memory of its own could otherwise put an entry
/// into a queue.
pub(crate) fn is_well_formed(word: Word, addr: u64, data: u64, payload: &[u8]) -> bool {
    let only = |flags: u8| word.flags & !flags == 0;
    let plain = word.datatype == 0 && word.count == 0;
    match word.verb {
        Verb::Write => {
            let brings = word.flags & HAS_DATA != 0;
            // Only the last part of an operation has its data, and that part has no bytes.
            let ends = word.op > 0 || word.count > 0;
            let alone = !brings && only(PART | MORE) && data == 0 || brings && only(HAS_DATA);
            word.datatype == 0 && alone && (!ends || brings && payload.is_empty())
        }
        Verb::Atomic => only(FETCHES | COMPARES | PART | MORE) && data == 0,
        Verb::Over => {
            let nothing = addr == 0 && data == 0 && payload.is_empty();
            plain && nothing && word.op > 0 && only(FETCHES | MORE)
        }
        Verb::Writes => plain && word.op == 0 && only(0),
        Verb::Atomics => word.count == 0 && only(0),
        Verb::Answer => false,
    }
}

/// Requests of peers that were refused.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// Remote memory is not offered: every request is refused.
    pub(crate) all: bool,
    /// When the next refused request may be reported.
    next_ns: u64,
}

impl Refusals {
    /// Returns whether a request that is refused now is to be reported.
    pub(crate) fn is_news(&mut self, now_ns: u64) -> bool {
        let news = now_ns >= self.next_ns;
        if news {
            self.next_ns = now_ns + NOTICE_NS;
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(verb: Verb, op: u8, flags: u8, count: u32) -> Word {
        Word {
            op,
            ..Word::new(verb, flags, count)
        }
    }

    #[test]
    fn requests_of_engines_are_well_formed() {
        let (write, atomic, over) = (Verb::Write, Verb::Atomic, Verb::Over);
        for (word, data, payload) in [
            (word(write, 0, 0, 0), 0, &[1][..]),
            (word(write, 0, HAS_DATA, 0), 5, &[1]),
            (word(write, 0, HAS_DATA, 0), 0, &[]),
            (word(write, 0, MORE, 0), 0, &[1]),
            (word(write, 0, PART, 0), 0, &[1]),
            (word(write, 3, HAS_DATA, 70_000), 5, &[]),
            (word(atomic, 18, FETCHES | COMPARES | PART, 2), 0, &[1]),
            (word(Verb::Writes, 0, 0, 0), 9, &[1]),
            (word(Verb::Atomics, 2, 0, 0), 9, &[1]),
        ] {
            assert!(is_well_formed(word, 64, data, payload), "{word:?}");
        }
        assert!(is_well_formed(word(over, 2, FETCHES | MORE, 0), 0, 0, &[]));
    }

    #[test]
    fn no_other_is() {
        let (write, atomic, over) = (Verb::Write, Verb::Atomic, Verb::Over);
        for (word, addr, data, payload) in [
            (word(over, 1, HAS_DATA, 0), 0, 5, &[][..]),
            (word(over, 0, 0, 0), 0, 0, &[]),
            (word(over, 1, 0, 1), 0, 0, &[]),
            (word(over, 1, 0, 0), 8, 0, &[]),
            (word(over, 1, 0, 0), 0, 0, &[1]),
            (word(over, 1, PART, 0), 0, 0, &[]),
            (word(atomic, 2, HAS_DATA, 1), 0, 0, &[1]),
            (word(atomic, 2, 0, 1), 0, 5, &[1]),
            (word(atomic, 2, 0x80, 1), 0, 0, &[1]),
            (word(write, 1, 0, 0), 0, 0, &[]),
            (word(write, 0, 0, 9), 0, 0, &[1]),
            (word(write, 1, HAS_DATA, 9), 0, 5, &[1]),
            (word(write, 0, HAS_DATA | MORE, 0), 0, 5, &[1]),
            (word(write, 0, COMPARES, 0), 0, 0, &[1]),
            (word(write, 0, 0, 0), 0, 5, &[1]),
            (word(Verb::Writes, 0, HAS_DATA, 0), 0, 0, &[]),
            (word(Verb::Writes, 1, 0, 0), 0, 0, &[]),
            (word(Verb::Atomics, 2, FETCHES, 0), 0, 0, &[]),
            (word(Verb::Answer, 0, 0, 0), 0, 0, &[]),
        ] {
            assert!(!is_well_formed(word, addr, data, payload), "{word:?}");
        }
    }

    #[test]
    fn a_flood_of_refusals_is_one_line_a_second() {
        let mut refusals = Refusals::default();
        let lines = (0..5_000_000).step_by(1_000).map(|us| us * 1_000);
        let lines = lines.filter(|ns| refusals.is_news(*ns)).count();
        assert_eq!(lines, 5);
    }
}
