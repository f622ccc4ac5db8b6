//! Totals that survive their processes: a small file beside the metrics has the last counts of each
//! page, so that no sum goes backwards when a page is removed.

use super::totals::{OfHost, Totals};
use crate::tool;
use marline_codes::Code;
use marline_engine::owned;
use marline_engine::stats::process::host_name;
use marline_engine::stats::rows::JobPage;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Time in nanoseconds for which another host without pages is remembered. (Containers have new
/// names each time.)
const FORGET_NS: u64 = 24 * 3_600_000_000_000;

/// Most bytes of a file that are read.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A page at the last look.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Seen {
    host: String,
    opened_unix_ns: u64,
    counts: OfHost,
}

/// The totals of a host, and the time of its last page in nanoseconds since 1970.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Gone {
    seen_unix_ns: u64,
    counts: OfHost,
}

/// The counts of all looks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Kept {
    /// Pages by file.
    pages: BTreeMap<String, Seen>,
    /// Pages that were removed or replaced, by host.
    gone: BTreeMap<String, Gone>,
}

/// The file with the totals of a file of metrics. The collector reads no files with this ending.
fn beside(metrics: &Path) -> PathBuf {
    let mut name = metrics.as_os_str().to_owned();
    name.push(".totals");
    name.into()
}

/// The name of a page's file, the same from every directory.
fn name_of(path: &Path) -> String {
    let whole = path.canonicalize();
    let whole = whole.unwrap_or_else(|_| path.to_owned());
    whole.to_string_lossy().into_owned()
}

impl Kept {
    /// The totals beside a file of metrics, if there are any. A damaged file is reported: counters
    /// begin anew, which Prometheus notices.
    pub fn load(metrics: &Path) -> Kept {
        let path = beside(metrics);
        let mut text = String::new();
        let file = owned::open_to_read(&path);
        let read = file.and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
        let why = match read {
            Err(error) if error.kind() == ErrorKind::NotFound => return Kept::default(),
            Err(error) => error.to_string(),
            Ok(_) => match serde_json::from_str(&text) {
                Ok(kept) => return kept,
                Err(error) => error.to_string(),
            },
        };
        let path = path.display();
        let text = format!("{path}: {why}; counters begin anew");
        tool::say(&Code::StatisticsUnreadable.message(text));
        Kept::default()
    }

    /// Writes the totals beside a file of metrics.
    pub fn save(&self, metrics: &Path) -> Result<(), String> {
        let path = beside(metrics);
        let text = serde_json::to_string(self).map_err(|e| format!("{}: {e}", path.display()))?;
        super::file::replace(&path, &text)
    }

    /// Takes note of the pages that are there at `now` in nanoseconds since 1970.
    pub fn look<'a>(&mut self, pages: impl Iterator<Item = &'a (PathBuf, JobPage)>, now: u64) {
        let mut before = std::mem::take(&mut self.pages);
        for (path, page) in pages {
            let name = name_of(path);
            let mut seen = Seen {
                host: page.host.clone(),
                opened_unix_ns: page.opened_unix_ns,
                counts: OfHost::of(page),
            };
            let same =
                |old: &&Seen| (&old.host, old.opened_unix_ns) == (&seen.host, seen.opened_unix_ns);
            if let Some(old) = before.get(&name).filter(same) {
                seen.counts.raise(&old.counts);
                before.remove(&name);
            }
            let gone = self.gone.entry(seen.host.clone()).or_default();
            gone.seen_unix_ns = now;
            self.pages.insert(name, seen);
        }
        for (name, old) in before {
            // A page that cannot be read at the moment is still there.
            if Path::new(&name).exists() && !self.pages.contains_key(&name) {
                self.pages.insert(name, old);
            } else {
                let gone = self.gone.entry(old.host).or_default();
                gone.counts.add(&old.counts);
            }
        }
        self.forget(now);
    }

    fn forget(&mut self, now: u64) {
        let own = host_name();
        let pages = &self.pages;
        self.gone.retain(|host, gone| {
            let lately = now.saturating_sub(gone.seen_unix_ns) < FORGET_NS;
            lately || *host == own || pages.values().any(|seen| seen.host == *host)
        });
        // An idle host has counters, too, which begin at 0.
        if self.gone.is_empty() {
            self.gone.insert(own, Gone::default());
        }
    }

    /// All that was counted.
    pub fn totals(&self) -> Totals {
        let gone = self.gone.iter();
        let mut totals: Totals = gone
            .map(|(host, gone)| (host.clone(), gone.counts.clone()))
            .collect();
        for seen in self.pages.values() {
            totals
                .entry(seen.host.clone())
                .or_default()
                .add(&seen.counts);
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marline_engine::stats::rows::RailRow;
    use std::slice;

    const POLLS: &str = "marline_process_polls_total";

    fn page(path: &str, host: &str, opened: u64, polls: u64) -> (PathBuf, JobPage) {
        let mut page = JobPage {
            host: host.into(),
            opened_unix_ns: opened,
            ..JobPage::default()
        };
        page.process.polls = polls;
        page.rails.push(RailRow {
            name: "eth0".into(),
            ..RailRow::default()
        });
        (path.into(), page)
    }

    fn polls(kept: &Kept, host: &str) -> Option<u64> {
        let totals = kept.totals();
        totals.get(host).map(|of| of.own[POLLS])
    }

    #[test]
    fn totals_never_go_backwards() {
        let mut kept = Kept::default();
        let mut look = |pages: &[(PathBuf, JobPage)]| {
            kept.look(pages.iter(), 1);
            polls(&kept, "n1").unwrap()
        };
        let (a, b) = (page("/gone/a", "n1", 1, 10), page("/gone/b", "n1", 1, 5));
        assert_eq!(look(&[a.clone(), b.clone()]), 15);
        // A process ends; another begins with its page's name; a torn page says less.
        assert_eq!(look(std::slice::from_ref(&b)), 15);
        assert_eq!(look(&[b.clone(), page("/gone/a", "n1", 2, 3)]), 18);
        assert_eq!(look(&[page("/gone/b", "n1", 1, 2)]), 18);
        assert_eq!(look(&[]), 18);
        assert_eq!(look(&[a]), 28);
        assert!(kept.totals()["n1"].rails.contains_key("eth0"));
    }

    #[test]
    fn a_page_that_cannot_be_read_counts_once() {
        let path = std::env::temp_dir();
        let page = page(path.to_str().unwrap(), "n1", 1, 10);
        let mut kept = Kept::default();
        for pages in [slice::from_ref(&page), &[], slice::from_ref(&page)] {
            kept.look(pages.iter(), 1);
            assert_eq!(polls(&kept, "n1"), Some(10));
        }
    }

    #[test]
    fn only_this_host_is_remembered_for_ever() {
        let own = host_name();
        let mut kept = Kept::default();
        let pages = [page("/gone/a", "pod-7", 1, 10), page("/gone/b", &own, 1, 5)];
        kept.look(pages.iter(), 1);
        kept.look([].iter(), FORGET_NS);
        assert_eq!(polls(&kept, "pod-7"), Some(10));
        kept.look([].iter(), FORGET_NS + 1);
        assert_eq!(polls(&kept, "pod-7"), None);
        assert_eq!(polls(&kept, &own), Some(5));
    }

    #[test]
    fn totals_are_kept_in_a_file() {
        let dir = std::env::temp_dir().join(format!("marline-kept-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let metrics = dir.join("m.prom");
        let mut kept = Kept::load(&metrics);
        kept.look([page("/gone/a", "n1", 1, 10)].iter(), 1);
        kept.look([].iter(), 1);
        kept.save(&metrics).unwrap();
        assert_eq!(polls(&Kept::load(&metrics), "n1"), Some(10));
        std::fs::write(beside(&metrics), "{").unwrap();
        assert_eq!(polls(&Kept::load(&metrics), "n1"), None);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
