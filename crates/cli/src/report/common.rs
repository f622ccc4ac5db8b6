//! The common factor of bad paths: the rail, host or name of rails that all or most of them share.

use super::data::{Common, End, Place};
use std::collections::{BTreeMap, BTreeSet};

/// The two ends of a path, the lesser first: both sides see the same path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ends(End, End);

impl Ends {
    /// The path between two rails.
    pub fn of(a: End, b: End) -> Ends {
        if b < a {
            Ends(b, a)
        } else {
            Ends(a, b)
        }
    }

    fn both(&self) -> [&End; 2] {
        [&self.0, &self.1]
    }

    fn has(&self, end: &End) -> bool {
        self.both().contains(&end)
    }
}

/// Paths of a job.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// Bad paths.
    pub bad: &'a BTreeSet<Ends>,
    /// Paths in use that are not bad.
    pub good: &'a BTreeSet<Ends>,
    /// Rails that their own system reported down.
    pub reported: &'a BTreeSet<End>,
}

/// Share of the bad paths, in percent, from which a rail that most of them have is named. In a full
/// mesh in which all paths between rails of one name are bad, three hosts give each rail two of
/// three paths: this share is well above.
const MOST_PERCENT: usize = 80;

/// The place that the bad paths have in common.
pub fn common(known: Known<'_>) -> Option<Common> {
    let bad = known.bad;
    let all = |place| Common {
        place,
        paths: bad.len(),
    };
    let most = || most_shared(bad);
    let found = shared_by_all(known).map(all).or_else(most);
    found
        .or_else(|| one_host(known).map(|host| all(Place::Host(host))))
        .or_else(|| one_name(bad).map(|rail| all(Place::Rail(rail))))
}

/// The rail that all bad paths share; of a single path, the end that the rest of the job speaks
/// against, or both.
fn shared_by_all(known: Known<'_>) -> Option<Place> {
    let first = known.bad.first()?;
    let mut ends = first.both().to_vec();
    ends.dedup();
    ends.retain(|end| known.bad.iter().all(|path| path.has(end)));
    narrow(&mut ends, |end| known.reported.contains(end));
    narrow(&mut ends, |end| {
        !known.good.iter().any(|path| path.has(end))
    });
    match ends[..] {
        [end] => Some(Place::End(end.clone())),
        [a, b] => Some(Place::Between(a.clone(), b.clone())),
        _ => None,
    }
}

/// Keeps only the ends with a property, unless none has it.
fn narrow(ends: &mut Vec<&End>, has: impl Fn(&End) -> bool) {
    if ends.iter().any(|end| has(end)) {
        ends.retain(|end| has(end));
    }
}

/// The rail that most bad paths share.
fn most_shared(bad: &BTreeSet<Ends>) -> Option<Common> {
    let mut counts: BTreeMap<&End, usize> = BTreeMap::new();
    for path in bad {
        let ends: BTreeSet<&End> = path.both().into_iter().collect();
        ends.into_iter()
            .for_each(|end| *counts.entry(end).or_default() += 1);
    }
    let (end, paths) = counts.into_iter().max_by_key(|&(_, count)| count)?;
    (paths * 100 >= bad.len() * MOST_PERCENT).then(|| Common {
        place: Place::End(end.clone()),
        paths,
    })
}

/// The only host that all bad paths share. Of two hosts, the one whose system reported rails down.
fn one_host(known: Known<'_>) -> Option<String> {
    let first = known.bad.first()?;
    let hosts: BTreeSet<&String> = first.both().map(|end| &end.host).into_iter().collect();
    let mut hosts: Vec<&String> = hosts.into_iter().collect();
    let at = |path: &Ends, host: &String| path.both().iter().any(|end| end.host == *host);
    hosts.retain(|host| known.bad.iter().all(|path| at(path, host)));
    if hosts.len() > 1 {
        hosts.retain(|host| known.reported.iter().any(|end| end.host == **host));
    }
    match hosts[..] {
        [host] => Some(host.clone()),
        _ => None,
    }
}

/// The name that the rails at both ends of all bad paths have.
fn one_name(bad: &BTreeSet<Ends>) -> Option<String> {
    let names: BTreeSet<&String> = bad
        .iter()
        .flat_map(|path| path.both())
        .map(|end| &end.rail)
        .collect();
    match (names.len(), names.first()) {
        (1, Some(name)) => Some((*name).clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &str) -> End {
        let (host, rail) = text.split_once(':').unwrap();
        End {
            host: host.to_owned(),
            rail: rail.to_owned(),
        }
    }

    fn paths(texts: &[(&str, &str)]) -> BTreeSet<Ends> {
        let path = |(a, b): &(&str, &str)| Ends::of(end(a), end(b));
        texts.iter().map(path).collect()
    }

    /// The common factor, in the form `place (paths)`.
    fn found(bad: &[(&str, &str)], good: &[(&str, &str)], reported: &[&str]) -> String {
        let (bad, good) = (paths(bad), paths(good));
        let reported = reported.iter().map(|text| end(text)).collect();
        let known = Known {
            bad: &bad,
            good: &good,
            reported: &reported,
        };
        common(known).map_or_else(String::new, |common| {
            let place = match common.place {
                Place::End(end) => end.name(),
                Place::Between(a, b) => format!("{} - {}", a.name(), b.name()),
                Place::Host(host) => host,
                Place::Rail(rail) => rail,
            };
            format!("{place} ({})", common.paths)
        })
    }

    const STAR: [(&str, &str); 3] = [
        ("h3:rail0", "h0:rail0"),
        ("h1:rail0", "h3:rail0"),
        ("h2:rail0", "h3:rail0"),
    ];

    #[test]
    fn the_rail_of_all_bad_paths_is_named() {
        assert_eq!(found(&STAR, &[], &[]), "h3:rail0 (3)");
        // Both sides see the same path.
        let twice = [("h0:r", "h1:r"), ("h1:r", "h0:r"), ("h1:r", "h2:r")];
        assert_eq!(found(&twice, &[], &[]), "h1:r (2)");
    }

    #[test]
    fn the_rail_of_most_bad_paths_is_named_with_their_number() {
        let mut bad: Vec<(String, String)> = Vec::new();
        for n in 0..5 {
            bad.push((format!("h{n}:rail0"), "h9:rail0".to_owned()));
        }
        bad.push(("h0:rail0".to_owned(), "h1:rail0".to_owned()));
        let bad: Vec<(&str, &str)> = bad.iter().map(|(a, b)| (&**a, &**b)).collect();
        assert_eq!(found(&bad, &[], &[]), "h9:rail0 (5)");
    }

    #[test]
    fn a_single_bad_path_is_attributed_by_the_rest_of_the_job() {
        let bad = [("h0:rail0", "h1:rail0")];
        assert_eq!(found(&bad, &[], &[]), "h0:rail0 - h1:rail0 (1)");
        assert_eq!(found(&bad, &[], &["h1:rail0"]), "h1:rail0 (1)");
        assert_eq!(
            found(&bad, &[("h0:rail0", "h2:rail0")], &[]),
            "h1:rail0 (1)"
        );
        let good = [("h0:rail0", "h2:rail0"), ("h1:rail0", "h2:rail0")];
        assert_eq!(found(&bad, &good, &[]), "h0:rail0 - h1:rail0 (1)");
    }

    #[test]
    fn a_host_and_a_switch_are_common_factors_too() {
        let host = [
            ("h3:rail0", "h0:rail0"),
            ("h3:rail1", "h0:rail1"),
            ("h3:rail0", "h1:rail0"),
            ("h3:rail1", "h1:rail1"),
        ];
        assert_eq!(found(&host, &[], &[]), "h3 (4)");
        let mesh = [
            ("h0:rail1", "h1:rail1"),
            ("h0:rail1", "h2:rail1"),
            ("h1:rail1", "h2:rail1"),
        ];
        assert_eq!(found(&mesh, &[], &[]), "rail1 (3)");
    }

    #[test]
    fn unrelated_paths_have_nothing_in_common() {
        let bad = [("h0:rail0", "h1:rail0"), ("h2:rail1", "h3:rail1")];
        assert_eq!(found(&bad, &[], &[]), "");
        assert_eq!(found(&[], &[], &[]), "");
        let both = [("h0:rail0", "h1:rail0"), ("h0:rail1", "h1:rail1")];
        assert_eq!(found(&both, &[], &[]), "", "of two hosts, either");
        let reported = ["h1:rail0", "h1:rail1"];
        assert_eq!(found(&both, &[], &reported), "h1 (2)");
    }
}
