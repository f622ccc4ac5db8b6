//! A bound on the number of series. Pages name hosts and rails, and any user may write a page.

use super::totals::Totals;
use marline_engine::stats::rows::JobPage;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Most hosts: those of a large job's directory.
pub const HOSTS_MAX: usize = 4_096;
/// Most rails of a host: twice as many as a process may have.
pub const RAILS_MAX: usize = 64;

/// Names of hosts with their rails.
pub struct Names(BTreeMap<String, BTreeSet<String>>);

impl Names {
    /// The names that have totals.
    pub fn of(totals: &Totals) -> Names {
        let hosts = totals.iter();
        let rails = |(host, of): (&String, &super::totals::OfHost)| {
            (host.clone(), of.rails.keys().cloned().collect())
        };
        Names(hosts.map(rails).collect())
    }

    /// The pages with known names, or new ones within the limits.
    pub fn within(mut self, pages: Vec<&(PathBuf, JobPage)>) -> Vec<&(PathBuf, JobPage)> {
        pages
            .into_iter()
            .filter(|(_, page)| self.fits(page))
            .collect()
    }

    fn fits(&mut self, page: &JobPage) -> bool {
        let new = page.rails.iter().map(|rail| rail.name.clone());
        let known = self.0.get(&page.host);
        let rails: BTreeSet<String> = known.into_iter().flatten().cloned().chain(new).collect();
        let fits = rails.len() <= RAILS_MAX && (known.is_some() || self.0.len() < HOSTS_MAX);
        if fits {
            self.0.insert(page.host.clone(), rails);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marline_engine::stats::rows::RailRow;

    fn page(host: &str, rails: std::ops::Range<usize>) -> (PathBuf, JobPage) {
        let rail = |n| RailRow {
            name: format!("eth{n}"),
            ..RailRow::default()
        };
        let page = JobPage {
            host: host.into(),
            rails: rails.map(rail).collect(),
            ..JobPage::default()
        };
        (PathBuf::new(), page)
    }

    #[test]
    fn names_are_bounded() {
        let invented = (0..5_000).map(|n| page(&format!("h{n}"), 0..1));
        let hosts: Vec<_> = invented.collect();
        let within = |pages: &[(PathBuf, JobPage)]| {
            let names = Names::of(&Totals::from([("n1".to_owned(), Default::default())]));
            names.within(pages.iter().collect()).len()
        };
        assert_eq!(within(&hosts), HOSTS_MAX - 1);
        let rails = [0..32, 32..64, 64..65, 0..32].map(|rails| page("n1", rails));
        assert_eq!(within(&rails), 3);
    }
}
