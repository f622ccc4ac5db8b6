//! Outages of a job, derived from the events of its processes: the rail and host, begin and end,
//! packets moved, and longest time without delivery.
//!
//! Each process sees only its own paths. Failures that coincide in time and share a rail are one
//! outage. The rail that failed is the one that its own system reports or that all failed paths
//! share.

use super::events::{Event, Kind, Reason};
use super::raise;
use super::rows::JobPage;
use crate::platform::wall_clock::LocalTime;
use std::collections::{BTreeSet, HashMap};

/// Largest difference in time between processes that notice the same outage.
const TOGETHER_NS: u64 = 500_000_000;

/// A rail of a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    /// Host name, or an address if no name is known.
    pub host: String,
    /// The rail's name.
    pub rail: String,
}

/// One outage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outage {
    /// The rails that failed, or between which no packets passed.
    pub ends: Vec<End>,
    /// True if these rails are known to have failed; otherwise the fault lies between them.
    pub certain: bool,
    /// True if damaged packets were the reason.
    pub corrupt: bool,
    /// Number of outages at one place ([`by_place`]); 0 and 1: one.
    pub times: usize,
    /// Begin in nanoseconds since 1970.
    pub from_unix_ns: u64,
    /// End in nanoseconds since 1970; `None`: not over.
    pub to_unix_ns: Option<u64>,
    /// Packets moved to other paths.
    pub moved: u64,
    /// Longest time in nanoseconds without delivery to some peer; 0: nothing was waiting.
    pub gap_ns: u64,
}

/// An outage of a path or a rail as one process saw it.
struct Seen {
    outage: Outage,
    /// True if the operating system reported a rail.
    system: bool,
    peer: u64,
}

/// The outages in a job's pages, in order of time.
pub fn outages(pages: &[JobPage]) -> Vec<Outage> {
    let by_endpoint = by_endpoint(pages);
    let seen = pages.iter().flat_map(|page| seen_by(page, &by_endpoint));
    let mut seen: Vec<Seen> = seen.collect();
    seen.sort_by_key(|one| one.outage.from_unix_ns);
    let (mut over, mut open): (Vec<Vec<Seen>>, Vec<Vec<Seen>>) = Default::default();
    for one in seen {
        let (mut apart, mut together) = (Vec::new(), vec![one]);
        for group in open {
            match () {
                () if touches(&group, &together[0]) => together.extend(group),
                () if is_over(&group, &together[0]) => over.push(group),
                () => apart.push(group),
            }
        }
        apart.push(together);
        open = apart;
    }
    over.append(&mut open);
    let mut outages: Vec<Outage> = over.iter().map(|group| outage(group)).collect();
    outages.sort_by_key(|outage| outage.from_unix_ns);
    outages
}

/// Pages by endpoint number.
pub fn by_endpoint<'a>(pages: impl IntoIterator<Item = &'a JobPage>) -> HashMap<u64, &'a JobPage> {
    let numbers = |page: &'a JobPage| page.endpoints.iter().map(move |&number| (number, page));
    pages.into_iter().flat_map(numbers).collect()
}

fn is_over(group: &[Seen], next: &Seen) -> bool {
    let over = |one: &Seen| {
        let to = one.outage.to_unix_ns;
        to.is_some_and(|to| to.saturating_add(TOGETHER_NS) < next.outage.from_unix_ns)
    };
    group.iter().all(over)
}

fn touches(group: &[Seen], next: &Seen) -> bool {
    let here = |end: &End| next.outage.ends.contains(end);
    let shares = |other: &Seen| other.outage.ends.iter().any(here);
    !is_over(group, next) && group.iter().any(shares)
}

/// The outages that one process saw.
fn seen_by(page: &JobPage, by_endpoint: &HashMap<u64, &JobPage>) -> Vec<Seen> {
    let mut seen: Vec<Seen> = Vec::new();
    // Open outages: of a path by peer and rails, of a rail by peer 0.
    let mut open: HashMap<(u64, u8, u8), usize> = HashMap::new();
    for event in &page.events.list {
        let key = (event.peer, event.rail, event.peer_rail);
        match event.kind {
            Kind::PathDown | Kind::PathIsolated | Kind::RailDown => {
                open.entry(key).or_insert_with(|| {
                    seen.push(begun(page, event, by_endpoint));
                    seen.len() - 1
                });
            }
            Kind::PathUp | Kind::RailUp => {
                if let Some(one) = open.remove(&key) {
                    seen[one].outage.to_unix_ns = Some(event.unix_ns);
                }
            }
            Kind::Resumed => {
                let waits = |one: &Seen| one.outage.gap_ns == 0 && one.peer == event.peer;
                // The last path is never declared down: its rail failed.
                let of = seen.iter().rposition(waits).or(seen.len().checked_sub(1));
                if let Some(one) = of {
                    raise(&mut seen[one].outage.gap_ns, event.gap_ns);
                }
            }
            _ => {}
        }
    }
    seen
}

fn begun(page: &JobPage, event: &Event, by_endpoint: &HashMap<u64, &JobPage>) -> Seen {
    let mut ends = vec![End {
        host: page.host.clone(),
        rail: rail_name(page, event.rail),
    }];
    if event.peer != 0 {
        ends.push(match by_endpoint.get(&event.peer) {
            Some(peer) => End {
                host: peer.host.clone(),
                rail: rail_name(peer, event.peer_rail),
            },
            None => End {
                host: address_of(page, event.peer),
                rail: format!("rail {}", event.peer_rail),
            },
        });
    }
    Seen {
        outage: Outage {
            ends,
            corrupt: event.reason == Reason::Corrupt,
            times: 1,
            from_unix_ns: event.unix_ns,
            moved: event.moved,
            ..Outage::default()
        },
        system: event.kind == Kind::RailDown,
        peer: event.peer,
    }
}

/// Name of a rail on a page.
pub fn rail_name(page: &JobPage, rail: u8) -> String {
    let known = page.rails.get(usize::from(rail));
    known.map_or_else(|| format!("rail {rail}"), |rail| rail.name.clone())
}

fn address_of(page: &JobPage, endpoint: u64) -> String {
    let peer = page.peers.iter().find(|peer| peer.endpoint == endpoint);
    peer.map_or_else(|| "?".to_owned(), |peer| peer.address.clone())
}

/// The outage that a group of processes saw.
fn outage(group: &[Seen]) -> Outage {
    let of = |seen: &mut dyn Iterator<Item = &Seen>| {
        let ends: BTreeSet<&End> = seen.flat_map(|one| &one.outage.ends).collect();
        ends.into_iter().cloned().collect::<Vec<End>>()
    };
    let failed = of(&mut group.iter().filter(|one| one.system));
    let all = of(&mut group.iter());
    let shared = |end: &&End| group.iter().all(|one| one.outage.ends.contains(end));
    let common: Vec<End> = all.iter().filter(shared).cloned().collect();
    let certain = !failed.is_empty() || common.len() == 1;
    let sets = [failed, common, all];
    let ends = sets.into_iter().find(|ends| !ends.is_empty());
    let mut whole = group[0].outage.clone();
    group[1..].iter().for_each(|one| whole.merge(&one.outage));
    Outage {
        ends: ends.unwrap_or_default(),
        certain,
        ..whole
    }
}

/// Merges the outages of each place, in order of first occurrence.
pub fn by_place(outages: &[Outage]) -> Vec<Outage> {
    let mut places: Vec<Outage> = Vec::new();
    for outage in outages {
        let kind = |one: &Outage| (one.certain, one.corrupt);
        let same = |place: &&mut Outage| place.ends == outage.ends && kind(place) == kind(outage);
        match places.iter_mut().find(same) {
            None => places.push(outage.clone()),
            Some(place) => {
                place.times += 1;
                place.merge(outage);
            }
        }
    }
    places
}

/// Formats a duration in milliseconds or seconds.
pub fn format_gap(ns: u64) -> String {
    match ns as f64 / 1e6 {
        ms if ms < 1_000.0 => format!("{ms:.1} ms"),
        ms => format!("{:.1} s", ms / 1e3),
    }
}

impl Outage {
    /// Adds another report: from the first begin to the last end.
    fn merge(&mut self, other: &Outage) {
        self.corrupt |= other.corrupt;
        self.from_unix_ns = self.from_unix_ns.min(other.from_unix_ns);
        let both = self.to_unix_ns.zip(other.to_unix_ns);
        self.to_unix_ns = both.map(|(a, b)| a.max(b));
        self.moved = self.moved.saturating_add(other.moved);
        raise(&mut self.gap_ns, other.gap_ns);
    }

    /// Rail and host: `rail0 on h1`.
    pub fn place(&self) -> String {
        let [first, others @ ..] = &self.ends[..] else {
            return "a rail".to_owned();
        };
        let one_name = others.iter().all(|end| end.rail == first.rail);
        match (others, one_name) {
            ([], _) => format!("{} on {}", first.rail, first.host),
            ([second], true) if self.certain => {
                format!("{} on {} and {}", first.rail, first.host, second.host)
            }
            ([second], true) => {
                format!("{} between {} and {}", first.rail, first.host, second.host)
            }
            ([second], false) => {
                let (a, b) = (&first.rail, &second.rail);
                format!("{a} on {} and {b} on {}", first.host, second.host)
            }
            (_, true) => format!("{} on {} hosts", first.rail, self.ends.len()),
            (_, false) => format!("{} rails", self.ends.len()),
        }
    }

    /// Text line about the outage: rail, begin and end, packets moved, longest gap.
    pub fn line(&self) -> String {
        let clock = |unix_ns| LocalTime::of(unix_ns).clock();
        let from = clock(self.from_unix_ns);
        let time = match self.to_unix_ns {
            Some(to) => format!("{from} to {}", clock(to)),
            None => format!("since {from}"),
        };
        let why = if self.corrupt {
            " for damaged packets"
        } else {
            ""
        };
        let moved = match self.moved {
            1 => "1 packet".to_owned(),
            moved => format!("{moved} packets"),
        };
        let gap = match self.gap_ns {
            0 => String::new(),
            gap => format!(", longest gap {}", format_gap(gap)),
        };
        let times = match self.times {
            ..=1 => String::new(),
            times => format!(" {times} times"),
        };
        format!(
            "{} down{times}{why} {time}, {moved} moved{gap}",
            self.place()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::events::Events;
    use crate::stats::rows::RailRow;

    const MS: u64 = 1_000_000;
    const START: u64 = 1_764_166_226_000_000_000;

    /// A page of process `n` on a host, with two rails and these events.
    fn page(n: u64, host: &str, list: &[Event]) -> JobPage {
        let rail = |n| RailRow {
            name: format!("rail{n}"),
            ..RailRow::default()
        };
        JobPage {
            endpoints: vec![n + 100, n],
            host: host.to_owned(),
            rails: vec![rail(0), rail(1)],
            events: Events {
                list: list.to_vec(),
                missing: 0,
            },
            ..JobPage::default()
        }
    }

    fn event(ms: u64, kind: Kind, peer: u64, rail: u8) -> Event {
        Event {
            unix_ns: START + ms * MS,
            kind,
            peer,
            rail,
            peer_rail: rail,
            moved: u64::from(kind == Kind::PathDown) * 100,
            gap_ns: u64::from(kind == Kind::Resumed) * 1_900_000,
            ..Event::default()
        }
    }

    #[test]
    fn a_failure_reported_by_the_system_names_the_host() {
        let there = [
            event(0, Kind::RailDown, 0, 0),
            event(0, Kind::PathDown, 1, 0),
            event(2, Kind::Resumed, 1, 1),
            event(2_000, Kind::RailUp, 0, 0),
            event(2_003, Kind::PathUp, 1, 0),
        ];
        let here = [
            event(3, Kind::PathDown, 2, 0),
            event(2_005, Kind::PathUp, 2, 0),
        ];
        let found = outages(&[page(1, "h0", &here), page(2, "h1", &there)]);
        assert_eq!(found.len(), 1, "{found:?}");
        let line = found[0].line();
        assert!(line.starts_with("rail0 on h1 down "), "{line}");
        assert!(
            line.ends_with(", 200 packets moved, longest gap 1.9 ms"),
            "{line}"
        );
        let from = LocalTime::of(START).clock();
        let to = LocalTime::of(START + 2_005 * MS).clock();
        assert!(line.contains(&format!("down {from} to {to},")), "{line}");
    }

    #[test]
    fn silence_is_attributed_to_two_hosts_or_to_the_shared_one() {
        let down = |peer| [event(0, Kind::PathDown, peer, 1)];
        let two = [page(1, "h0", &down(2)), page(2, "h1", &down(1))];
        let found = outages(&two);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].place(), "rail1 between h0 and h1");
        assert!(found[0].line().contains(" since "), "{}", found[0].line());
        let three = [
            page(1, "h0", &down(2)),
            page(2, "h1", &[]),
            page(3, "h2", &down(2)),
        ];
        let found = outages(&three);
        assert_eq!(found[0].place(), "rail1 on h1");
    }

    #[test]
    fn outages_apart_in_time_or_place_are_several() {
        let list = [
            event(0, Kind::PathDown, 2, 0),
            event(10, Kind::PathDown, 2, 1),
            event(50, Kind::PathUp, 2, 0),
            event(60, Kind::PathUp, 2, 1),
            event(5_000, Kind::PathDown, 2, 0),
            event(5_050, Kind::PathUp, 2, 0),
        ];
        let found = outages(&[page(1, "h0", &list), page(2, "h1", &[])]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found[0].gap_ns, 0);
        assert!(!found[0].line().contains("gap"));
        let places = by_place(&found);
        assert_eq!(places.len(), 2);
        let (line, to) = (places[0].line(), LocalTime::of(START + 5_050 * MS).clock());
        assert!(
            line.contains(" down 2 times ") && line.contains(&to),
            "{line}"
        );
        assert!(line.ends_with(" 200 packets moved"), "{line}");
    }

    #[test]
    fn a_peer_without_a_page_is_named_by_its_address() {
        let found = outages(&[page(1, "h0", &[event(0, Kind::PathDown, 9, 0)])]);
        assert_eq!(found[0].place(), "rail 0 on ? and rail0 on h0");
        assert!(outages(&[page(1, "h0", &[])]).is_empty());
    }
}
