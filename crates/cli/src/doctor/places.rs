//! The places of bad ways in words: the rail, host or name of rails that they have in common, and
//! the direction.

use super::facts::{Cluster, Path};
use crate::report::{common, Common, End, Ends, Known, Place};
use std::collections::{BTreeMap, BTreeSet};

/// Most ways that a sentence lists.
const LISTED_MAX: usize = 4;

/// Bad ways with something in common.
#[derive(Debug)]
pub struct Group<'a> {
    /// The place in words: `between h1:rail0 and the other hosts`.
    pub place: String,
    /// The ends to look at.
    pub look_at: Vec<End>,
    /// Packets pass in the other direction.
    pub one_way: bool,
    /// The ways.
    pub paths: Vec<&'a Path>,
}

/// Groups bad ways by place. `good` are ways like them that are not bad.
pub fn groups<'a>(cluster: &Cluster, bad: Vec<&'a Path>, good: &[&Path]) -> Vec<Group<'a>> {
    let ends: BTreeSet<_> = bad.iter().map(|path| (path.from, path.to)).collect();
    let (both, single): (Vec<&Path>, Vec<&Path>) = bad
        .into_iter()
        .partition(|path| ends.contains(&(path.to, path.from)));
    let mut all = between(cluster, both, good);
    all.extend(one_way(cluster, single));
    all
}

/// Groups of ways that are bad in both directions, one by one until all have a place.
fn between<'a>(cluster: &Cluster, mut bad: Vec<&'a Path>, good: &[&Path]) -> Vec<Group<'a>> {
    let mut all = Vec::new();
    while !bad.is_empty() {
        let ends = |paths: &[&Path]| paths.iter().map(|p| cluster.ends(p)).collect();
        let (of_bad, of_good): (BTreeSet<Ends>, BTreeSet<Ends>) = (ends(&bad), ends(good));
        let found = common(Known {
            bad: &of_bad,
            good: &of_good,
            reported: &BTreeSet::new(),
        });
        let place = found.map(|Common { place, .. }| place);
        let place = place.unwrap_or_else(|| Place::End(most(cluster, &bad)));
        let (paths, left): (Vec<&Path>, Vec<&Path>) = bad
            .into_iter()
            .partition(|path| belongs(cluster, path, &place));
        bad = left;
        all.push(Group {
            place: words(&place, &paths, cluster),
            look_at: look_at(&place, &paths, cluster),
            one_way: false,
            paths,
        });
    }
    all
}

/// The rail at the end of most of these ways.
fn most(cluster: &Cluster, paths: &[&Path]) -> End {
    let mut counts: BTreeMap<End, usize> = BTreeMap::new();
    for path in paths {
        *counts.entry(cluster.end(path.from)).or_default() += 1;
        *counts.entry(cluster.end(path.to)).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(end, _)| end).unwrap_or_default()
}

fn belongs(cluster: &Cluster, path: &Path, place: &Place) -> bool {
    let ends = [cluster.end(path.from), cluster.end(path.to)];
    match place {
        Place::End(end) => ends.contains(end),
        Place::Between(a, b) => ends.contains(a) && ends.contains(b),
        Place::Host(host) => ends.iter().any(|end| end.host == *host),
        Place::Rail(rail) => ends.iter().any(|end| end.rail == *rail),
    }
}

fn words(place: &Place, paths: &[&Path], cluster: &Cluster) -> String {
    match place {
        Place::End(end) => match &others(paths, cluster, end)[..] {
            [one] => format!("between {} and {}", end.name(), one.name()),
            _ => format!("between {} and the other hosts", end.name()),
        },
        Place::Between(a, b) => format!("between {} and {}", a.name(), b.name()),
        Place::Host(host) => format!("between {host} ({}) and the other hosts", {
            let own = all_ends(paths, cluster).filter(|end| end.host == *host);
            names(own.map(|end| end.rail).collect())
        }),
        Place::Rail(rail) => format!("between the rails {rail} of all hosts"),
    }
}

fn all_ends<'a>(paths: &'a [&Path], cluster: &'a Cluster) -> impl Iterator<Item = End> + 'a {
    let ends = paths.iter().flat_map(|path| [path.from, path.to]);
    ends.map(|id| cluster.end(id))
}

fn others(paths: &[&Path], cluster: &Cluster, end: &End) -> Vec<End> {
    let others: BTreeSet<End> = all_ends(paths, cluster)
        .filter(|other| other != end)
        .collect();
    others.into_iter().collect()
}

fn look_at(place: &Place, paths: &[&Path], cluster: &Cluster) -> Vec<End> {
    let ends: BTreeSet<End> = all_ends(paths, cluster).collect();
    let at = |end: &End| match place {
        Place::End(one) => one == end,
        Place::Between(a, b) => [a, b].contains(&end),
        Place::Host(host) => end.host == *host,
        Place::Rail(rail) => end.rail == *rail,
    };
    ends.into_iter().filter(at).collect()
}

/// Groups of ways that are bad in one direction: by receiver, else by sender.
fn one_way<'a>(cluster: &Cluster, bad: Vec<&'a Path>) -> Vec<Group<'a>> {
    let mut by_host: BTreeMap<(bool, usize), Vec<&Path>> = BTreeMap::new();
    let count = |of: &dyn Fn(&Path) -> bool| bad.iter().filter(|path| of(path)).count();
    for path in &bad {
        let to = count(&|other| other.to.host == path.to.host);
        let from = count(&|other| other.from.host == path.from.host);
        let key = match from > to {
            true => (false, path.from.host),
            false => (true, path.to.host),
        };
        by_host.entry(key).or_default().push(path);
    }
    let group = |((receives, host), paths): ((bool, usize), Vec<&'a Path>)| {
        let own = |path: &&Path| cluster.end(if receives { path.to } else { path.from });
        let far = |path: &&Path| cluster.end(if receives { path.from } else { path.to });
        let own: BTreeSet<End> = paths.iter().map(own).collect();
        let far: BTreeSet<End> = paths.iter().map(far).collect();
        let name = &cluster.hosts[host].name;
        let here = match own.iter().next() {
            Some(end) if own.len() == 1 => end.name(),
            _ => format!(
                "{name} ({})",
                names(own.iter().map(|e| e.rail.clone()).collect())
            ),
        };
        let there = names(far.iter().map(End::name).collect());
        Group {
            place: match receives {
                true => format!("to {here} from {there}"),
                false => format!("from {here} to {there}"),
            },
            look_at: own.into_iter().collect(),
            one_way: true,
            paths,
        }
    };
    by_host.into_iter().map(group).collect()
}

/// `a, b, c, d and 3 more`.
fn names(all: BTreeSet<String>) -> String {
    let more = all.len().saturating_sub(LISTED_MAX);
    let shown: Vec<String> = all.into_iter().take(LISTED_MAX).collect();
    match more {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::healthy;
    use super::*;

    /// The places of the ways of a healthy cluster of four hosts that are bad.
    fn places(bad: impl Fn(&str, &str) -> bool) -> Vec<String> {
        let cluster = healthy(4, 2);
        let name = |id| cluster.end(id).name();
        let is_bad = |path: &&Path| bad(&name(path.from), &name(path.to));
        let (bad, good): (Vec<&Path>, Vec<&Path>) = cluster.paths.iter().partition(is_bad);
        let groups = groups(&cluster, bad, &good);
        groups.into_iter().map(|group| group.place).collect()
    }

    #[test]
    fn the_common_rail_or_host_is_named() {
        let rail = |a: &str, b: &str| [a, b].contains(&"h2:rail1");
        assert_eq!(places(rail), ["between h2:rail1 and the other hosts"]);
        let host = |a: &str, b: &str| a.starts_with("h3") || b.starts_with("h3");
        assert_eq!(
            places(host),
            ["between h3 (rail0, rail1) and the other hosts"]
        );
        let pair = |a: &str, b: &str| [[a, b], [b, a]].contains(&["h0:rail0", "h1:rail0"]);
        assert_eq!(places(pair), ["between h0:rail0 and h1:rail0"]);
        let switch = |a: &str, b: &str| a.ends_with('1') && b.ends_with('1');
        assert_eq!(places(switch), ["between the rails rail1 of all hosts"]);
    }

    #[test]
    fn unrelated_places_are_named_apart() {
        let two = |a: &str, b: &str| [a, b].contains(&"h0:rail0") || [a, b].contains(&"h3:rail1");
        let mut said = places(two);
        said.sort();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].contains("h0:rail0") && said[1].contains("h3:rail1"),
            "{said:?}"
        );
    }

    #[test]
    fn a_direction_is_named() {
        let to = |_: &str, b: &str| b == "h1:rail0";
        assert_eq!(
            places(to),
            ["to h1:rail0 from h0:rail0, h2:rail0, h3:rail0"]
        );
        let from = |a: &str, _: &str| a == "h1:rail0";
        assert_eq!(
            places(from),
            ["from h1:rail0 to h0:rail0, h2:rail0, h3:rail0"]
        );
        let host = |_: &str, b: &str| b.starts_with("h2");
        let said = places(host);
        assert!(
            said[0].starts_with("to h2 (rail0, rail1) from "),
            "{said:?}"
        );
        assert!(said[0].ends_with(" and 2 more"), "{said:?}");
    }
}
