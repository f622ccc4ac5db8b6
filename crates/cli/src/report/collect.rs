//! Collects the facts of a job from its statistics pages.

use super::common::{common, Ends, Known};
use super::data::{Dead, End, Facts, Outage, Pair, Paths, Protection, Rail, Size, Wait};
use super::given::{settings, versions};
use super::traffic::{bandwidth, matrix, talkers};
use crate::json::verdict;
use crate::run::stats_dir::process;
use crate::stats::averages::means;
use crate::stats::jobs::Job;
use marline_checksum::Algorithm;
use marline_engine::stats::dead::DeadPeer;
use marline_engine::stats::events::{Event, Kind, Reason};
use marline_engine::stats::outages::{self, by_endpoint, by_place, rail_name};
use marline_engine::stats::rows::{JobPage, PathRow, PathState, PeerRow, PeerState};
use marline_engine::stats::summary::{RailSummary, Summary};
use marline_engine::stats::waits::{ProcessWaits, Waits, WAIT_CLASSES};
use marline_engine::stats::ProcessCounters;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Most pairs with a row of their own: a screenful. A job of many ranks has a square of them.
const PAIRS_MAX: usize = 20;

/// The facts of a job.
pub fn facts(job: &Job) -> Facts {
    let pages: Vec<&JobPage> = job.pages.iter().map(|(_, page)| page).collect();
    let s = &job.summary;
    let used = || pages.iter().filter(|page| page.is_used());
    let hosts: BTreeSet<&String> = used().map(|page| &page.host).collect();
    let (pairs, pairs_all) = pairs(&pages);
    let [given_up, damaged] = paths(&pages);
    let from_unix_ns = used().map(|page| page.opened_unix_ns).min().unwrap_or(0);
    let to_unix_ns = used().map(|page| page.published_unix_ns).max().unwrap_or(0);
    Facts {
        job: job.id(),
        ended: job.has_ended(),
        verdict: verdict(s),
        from_unix_ns,
        to_unix_ns,
        hosts: hosts.into_iter().cloned().collect(),
        processes: s.processes,
        processes_unused: s.idle,
        left_behind: left_behind(&pages),
        messages_sent: s.peers.messages_sent,
        bytes_sent: s.peers.bytes_sent,
        sizes: sizes(&s.process),
        waits: waits(&s.waits),
        message_wait_max_ns: s.process.message_wait_max_ns,
        ack_wait_max_ns: s.process.ack_wait_max_ns,
        rails: rails(&pages),
        outages: s.outages.iter().map(outage).collect(),
        outages_by_place: by_place(&s.outages).iter().map(outage).collect(),
        given_up,
        damaged,
        dead_peers: s.dead.iter().map(dead).collect(),
        cut_off: cut_off(&pages),
        pairs,
        pairs_all,
        talkers: talkers(&pages),
        bandwidth: bandwidth(&pages, from_unix_ns, to_unix_ns),
        between_hosts: matrix(&pages),
        averages: means(pages.iter().copied(), s),
        versions: versions(&pages),
        settings: settings(&pages),
        protection: protection(&pages, s),
        events: pages.iter().map(|page| page.events.list.len()).sum(),
        events_missing: pages
            .iter()
            .fold(0, |sum, page| page.events.missing.saturating_add(sum)),
    }
}

fn left_behind(pages: &[&JobPage]) -> Vec<String> {
    let left = pages.iter().filter(|page| page.is_left_behind());
    let mut names: Vec<String> = left.map(|page| process(page)).collect();
    names.dedup();
    names
}

fn sizes(p: &ProcessCounters) -> Vec<Size> {
    let classes = [
        (Some(64), p.sizes_to_64),
        (Some(1 << 10), p.sizes_to_1k),
        (Some(8 << 10), p.sizes_to_8k),
        (Some(64 << 10), p.sizes_to_64k),
        (Some(1 << 20), p.sizes_to_1m),
        (Some(16 << 20), p.sizes_to_16m),
        (None, p.sizes_above),
    ];
    let size = |(up_to_bytes, messages)| Size {
        up_to_bytes,
        messages,
    };
    classes.map(size).into()
}

/// The classes of waits.
fn waits(of: &ProcessWaits) -> Vec<Wait> {
    let class = |class| Wait {
        up_to_ns: Waits::bound_ns(class),
        eager: of.eager.0[class],
        rendezvous: of.rendezvous.0[class],
    };
    (0..WAIT_CLASSES).map(class).collect()
}

/// The rails of each host.
fn rails(pages: &[&JobPage]) -> Vec<Rail> {
    let hosts: BTreeSet<&String> = pages.iter().map(|page| &page.host).collect();
    let mut all: Vec<Rail> = Vec::new();
    for host in hosts {
        let here = pages.iter().filter(|page| page.host == *host);
        let here: Vec<JobPage> = here.map(|&page| page.clone()).collect();
        let sums = Summary::of(&here).rails;
        let used = sums.iter().filter(|sum| !sum.is_unused());
        all.extend(used.map(|sum| rail(host, sum, &here)));
    }
    all.sort_by(|a, b| a.end.cmp(&b.end));
    all
}

fn rail(host: &str, sum: &RailSummary, pages: &[JobPage]) -> Rail {
    let mut rows = pages.iter().flat_map(|page| &page.rails);
    let row = rows.find(|row| row.name == sum.name);
    let (c, p) = (&sum.counters, &sum.paths);
    Rail {
        end: End {
            host: host.to_owned(),
            rail: sum.name.clone(),
        },
        address: row.map_or_else(String::new, |row| row.address.clone()),
        packet_bytes_max: row.map_or(0, |row| row.packet_bytes_max),
        processes: sum.rails,
        up: sum.up,
        bytes_sent: c.wire_bytes_sent,
        bytes_received: c.wire_bytes_received,
        packets_sent: c.wire_packets_sent,
        packets_received: c.wire_packets_received,
        lost: sum.lost(),
        resent: sum.resent(),
        resent_spurious: sum.resent_spurious(),
        corrupt: sum.corrupt(),
        failovers: p.downs,
        failbacks: p.ups,
        downs: c.downs,
        receiver_drops: c.receiver_drops,
        shrinks: p.shrinks,
        wrong_version: c.wrong_version,
        forged: c.forged,
    }
}

fn outage(outage: &outages::Outage) -> Outage {
    let end = |end: &outages::End| End {
        host: end.host.clone(),
        rail: end.rail.clone(),
    };
    Outage {
        place: outage.place(),
        code: outage.code().to_string(),
        ends: outage.ends.iter().map(end).collect(),
        certain: outage.certain,
        corrupt: outage.corrupt,
        times: outage.times.max(1),
        from_unix_ns: outage.from_unix_ns,
        to_unix_ns: outage.to_unix_ns,
        packets_moved: outage.moved,
        gap_ns: outage.gap_ns,
    }
}

fn dead(peer: &DeadPeer) -> Dead {
    Dead {
        name: peer.name(),
        host: peer.host.clone(),
        reason: peer.reason.name(),
        code: peer.reason.code_of_peer().to_string(),
        why: peer.why().to_owned(),
        named_by: peer.named_by,
        from_unix_ns: peer.from_unix_ns,
        gone: peer.gone,
        refused: peer.is_refused(),
        follows: peer.follows,
    }
}

/// The host on one side of all declarations that a peer is silent.
fn cut_off(pages: &[&JobPage]) -> Option<String> {
    let by_endpoint = by_endpoint(pages.iter().copied());
    let mut pairs = BTreeSet::new();
    for page in pages {
        for event in page.events.list.iter().filter(|event| is_silence(event)) {
            if let Some(peer) = by_endpoint.get(&event.peer) {
                pairs.insert([&page.host, &peer.host]);
            }
        }
    }
    let mut shared: Vec<&String> = pairs.first()?.to_vec();
    shared.retain(|host| pairs.iter().all(|pair| pair.contains(host)));
    shared.dedup();
    match shared[..] {
        [host] => Some(host.clone()),
        _ => None, // a single pair of hosts, or several faults
    }
}

fn is_silence(event: &Event) -> bool {
    event.kind == Kind::PeerDead && matches!(event.reason, Reason::Silent | Reason::Unreachable)
}

/// The pairs with most traffic, and the number of all.
fn pairs(pages: &[&JobPage]) -> (Vec<Pair>, usize) {
    let by_endpoint = by_endpoint(pages.iter().copied());
    let mut sums: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
    for page in pages {
        for row in page.peers.iter().filter(|row| !row.paths.is_empty()) {
            let to = match by_endpoint.get(&row.endpoint) {
                Some(peer) => process(peer),
                None => format!("peer {:016x} {}", row.endpoint, row.address),
            };
            let sum = sums.entry((process(page), to)).or_default();
            sum.0 = sum.0.saturating_add(row.counters.messages_sent);
            sum.1 = sum.1.saturating_add(row.counters.bytes_sent);
        }
    }
    sums.retain(|_, sum| *sum != (0, 0));
    let all = sums.len();
    let pair = |((from, to), (messages, bytes))| Pair {
        from,
        to,
        messages,
        bytes,
    };
    let mut pairs: Vec<Pair> = sums.into_iter().map(pair).collect();
    // Stable: pairs of equal traffic stay in order of their names.
    pairs.sort_by_key(|pair| Reverse((pair.bytes, pair.messages)));
    pairs.truncate(PAIRS_MAX);
    (pairs, all)
}

fn protection(pages: &[&JobPage], s: &Summary) -> Protection {
    let rows = pages.iter().flat_map(|page| &page.peers);
    let name = |number: u8| {
        let known = Algorithm::from_u8(number);
        known.map_or_else(|| format!("number {number}"), |a| a.name().to_owned())
    };
    let names = rows.filter_map(|row| row.checksum).map(name);
    let names: BTreeSet<String> = names.collect();
    Protection {
        checksums: names.into_iter().collect(),
        without_reliability: s.unprotected.reliability,
        without_checksums: s.unprotected.sums,
        some_checksums: s.unprotected.some_sums,
        faults: s.unprotected.faults,
    }
}

/// The paths that were given up, and those with damaged packets.
fn paths(pages: &[&JobPage]) -> [Paths; 2] {
    let by_endpoint = by_endpoint(pages.iter().copied());
    let mut seen: Vec<(Ends, &PathRow)> = Vec::new();
    for page in pages {
        // The end of a process is no fault of the paths to it.
        for row in page.peers.iter().filter(|row| !is_dead(page, row)) {
            let peer = by_endpoint.get(&row.endpoint).copied();
            // Paths without traffic show nothing, sums of several paths no place.
            let reported = row.paths.iter().filter(|path| {
                path.peer_rail != PathRow::SEVERAL && path.state != PathState::Unknown
            });
            seen.extend(reported.map(|path| (ends(page, row, peer, path), path)));
        }
    }
    let down = pages.iter().flat_map(|page| {
        let rails = page.rails.iter().filter(|rail| rail.counters.downs > 0);
        rails.map(|rail| End {
            host: page.host.clone(),
            rail: rail.name.clone(),
        })
    });
    let reported: BTreeSet<End> = down.collect();
    let none = BTreeSet::new();
    [
        bad_paths(&seen, &reported, |path| path.counters.downs > 0),
        bad_paths(&seen, &none, |path| path.counters.corrupt_payloads > 0),
    ]
}

/// True if a page declares a peer dead. After an endpoint closes, the rows of its dead peers say
/// closed, but the event stays.
fn is_dead(page: &JobPage, row: &PeerRow) -> bool {
    let mut events = page.events.list.iter();
    let dead = |event: &Event| event.kind == Kind::PeerDead && event.peer == row.endpoint;
    row.state == PeerState::Dead || events.any(dead)
}

/// The ends of a path, by the page of the peer where there is one.
fn ends(page: &JobPage, row: &PeerRow, peer: Option<&JobPage>, path: &PathRow) -> Ends {
    let end = |host: &str, rail: String| End {
        host: host.to_owned(),
        rail,
    };
    let number = |n: u32| u8::try_from(n).unwrap_or(u8::MAX);
    let there = match peer {
        Some(peer) => end(&peer.host, rail_name(peer, number(path.peer_rail))),
        None => end(&row.address, format!("rail {}", path.peer_rail)),
    };
    Ends::of(end(&page.host, rail_name(page, number(path.rail))), there)
}

fn bad_paths(
    seen: &[(Ends, &PathRow)],
    reported: &BTreeSet<End>,
    is_bad: impl Fn(&PathRow) -> bool,
) -> Paths {
    // A path is bad if either side saw it so.
    let mut sides: BTreeMap<&Ends, bool> = BTreeMap::new();
    for (ends, path) in seen {
        *sides.entry(ends).or_default() |= is_bad(path);
    }
    let of = |wanted: bool| {
        let kept = sides.iter().filter(|(_, &bad)| bad == wanted);
        kept.map(|(&ends, _)| ends.clone()).collect::<BTreeSet<_>>()
    };
    let (bad, good) = (of(true), of(false));
    Paths {
        paths: bad.len(),
        common: common(Known {
            bad: &bad,
            good: &good,
            reported,
        }),
    }
}
