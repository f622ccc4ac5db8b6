//! Rates from two readings of a page. The time between them is that between two updates of the page
//! by its process, so that the reader's own delays change no rate.

use marline_engine::stats::rows::JobPage;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Counts of a rail, or changes of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RailSums {
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets of paths that were sent.
    pub path_packets_sent: u64,
    /// Packets of paths that were lost.
    pub lost: u64,
}

impl RailSums {
    /// The counts of rail `n` of a page.
    fn of(page: &JobPage, n: usize) -> RailSums {
        let own = page.rails.get(n).map(|rail| rail.counters);
        let (own, paths) = (own.unwrap_or_default(), page.path_totals(n));
        RailSums {
            bytes_sent: own.wire_bytes_sent,
            bytes_received: own.wire_bytes_received,
            packets_sent: own.wire_packets_sent,
            path_packets_sent: paths.packets_sent,
            lost: paths.lost.saturating_sub(paths.spurious),
        }
    }

    fn since(self, before: RailSums) -> RailSums {
        RailSums {
            bytes_sent: self.bytes_sent.saturating_sub(before.bytes_sent),
            bytes_received: self.bytes_received.saturating_sub(before.bytes_received),
            packets_sent: self.packets_sent.saturating_sub(before.packets_sent),
            path_packets_sent: self
                .path_packets_sent
                .saturating_sub(before.path_packets_sent),
            lost: self.lost.saturating_sub(before.lost),
        }
    }
}

/// Counts of a page.
#[derive(Clone, Debug, Default)]
struct PageSums {
    unix_ns: u64,
    messages_sent: u64,
    bytes_sent: u64,
    rails: Vec<RailSums>,
}

impl PageSums {
    fn of(page: &JobPage) -> PageSums {
        let peers = page.peer_totals();
        PageSums {
            unix_ns: page.published_unix_ns,
            messages_sent: peers.messages_sent,
            bytes_sent: peers.bytes_sent,
            rails: (0..page.rails.len())
                .map(|n| RailSums::of(page, n))
                .collect(),
        }
    }
}

/// Changes of a page's counts between two updates of it.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// Time between the updates in seconds; 0: the page was not updated.
    seconds: f64,
    /// Messages sent.
    messages_sent: u64,
    /// Payload bytes sent.
    bytes_sent: u64,
    /// Changes by rail.
    rails: Vec<RailSums>,
}

impl Change {
    /// A count per second.
    pub fn per_s(&self, count: u64) -> f64 {
        match self.seconds > 0.0 {
            true => count as f64 / self.seconds,
            false => 0.0,
        }
    }

    /// Messages sent per second.
    pub fn messages_sent_per_s(&self) -> f64 {
        self.per_s(self.messages_sent)
    }

    /// Payload bytes sent per second.
    pub fn bytes_sent_per_s(&self) -> f64 {
        self.per_s(self.bytes_sent)
    }

    /// The changes of rail `n`.
    pub fn rail(&self, n: usize) -> RailSums {
        self.rails.get(n).copied().unwrap_or_default()
    }
}

/// The counts of each page at the reading before, by file.
#[derive(Default)]
pub struct Rates {
    before: HashMap<PathBuf, PageSums>,
}

impl Rates {
    /// The changes of a page since the reading before; of a page that is new, since its start.
    pub fn change(&self, file: &Path, page: &JobPage) -> Change {
        let now = PageSums::of(page);
        let known = self.before.get(file);
        let known = known.filter(|before| before.unix_ns >= page.opened_unix_ns);
        let start = PageSums {
            unix_ns: page.opened_unix_ns,
            ..PageSums::default()
        };
        let before = known.unwrap_or(&start);
        let rails = now.rails.iter().enumerate();
        let change = |(n, sums): (usize, &RailSums)| {
            sums.since(before.rails.get(n).copied().unwrap_or_default())
        };
        Change {
            seconds: now.unix_ns.saturating_sub(before.unix_ns) as f64 / 1e9,
            messages_sent: now.messages_sent.saturating_sub(before.messages_sent),
            bytes_sent: now.bytes_sent.saturating_sub(before.bytes_sent),
            rails: rails.map(change).collect(),
        }
    }

    /// Keeps the counts of these pages for the next reading, and of no others.
    pub fn keep<'a>(&mut self, pages: impl Iterator<Item = &'a (PathBuf, JobPage)>) {
        let sums = |(file, page): &(PathBuf, JobPage)| (file.clone(), PageSums::of(page));
        self.before = pages.map(sums).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marline_engine::stats::rows::RailRow;

    fn page(unix_s: u64, bytes: u64) -> (PathBuf, JobPage) {
        let mut page = JobPage {
            opened_unix_ns: 10_000_000_000,
            published_unix_ns: unix_s * 1_000_000_000,
            rails: vec![RailRow::default()],
            ..JobPage::default()
        };
        page.rails[0].counters.wire_bytes_sent = bytes;
        ("p".into(), page)
    }

    fn bytes_per_s(rates: &Rates, page: &(PathBuf, JobPage)) -> f64 {
        let change = rates.change(&page.0, &page.1);
        change.per_s(change.rail(0).bytes_sent)
    }

    #[test]
    fn rates_are_of_the_time_between_two_updates() {
        let mut rates = Rates::default();
        let first = page(20, 1_000);
        assert_eq!(bytes_per_s(&rates, &first), 100.0, "since the start");
        rates.keep([&first].into_iter());
        assert_eq!(bytes_per_s(&rates, &first), 0.0, "no update");
        assert_eq!(bytes_per_s(&rates, &page(22, 1_500)), 250.0);
    }

    #[test]
    fn another_process_with_the_same_file_begins_anew() {
        let mut rates = Rates::default();
        rates.keep([&page(9, 9_000)].into_iter());
        assert_eq!(bytes_per_s(&rates, &page(20, 1_000)), 100.0);
    }
}
