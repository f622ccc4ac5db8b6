//! Leads the agents through the steps of an examination, each with a deadline.

use super::agent::unix_ns;
use super::facts::{Cluster, Host, Path, RailId};
use super::launch::By;
use super::messages::{Answer, HostRail, Open, Opened, Purpose, Request, Row, Target, WORDS};
use super::schedule;
use super::session::{Failure, Session};
use super::subnets;
use marline_rails::{pairing, UdpAddr};
use marline_wire::RailAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Longest wait for the start of all agents, and for the answers of each step: far beyond their
/// usual time, for hosts under load.
const START: Duration = Duration::from_secs(8);
const ANSWER: Duration = Duration::from_secs(4);
const STEP: Duration = Duration::from_secs(8);
/// Readings of each clock, of which the one with the shortest way counts.
const CLOCKS: u32 = 3;
/// Sizes of IP packets in bytes that are tried below the interfaces' own.
const SIZES: [u16; 9] = [9_000, 4_096, 2_048, 1_500, 1_450, 1_400, 1_280, 1_200, 576];

/// Settings of a job.
pub struct How {
    /// `FI_MARLINE_RAILS`, if set.
    pub rails: Option<String>,
    /// `FI_MARLINE_PORTS`, if set.
    pub ports: Option<(u16, u16)>,
}

/// Examines hosts.
pub fn examine(names: &[String], by: &By, how: &How) -> Cluster {
    let commands = names.iter().map(|name| by.command(name)).collect();
    let mut session = Session::start(commands);
    let mut opened = open(&mut session, names.len(), how);
    let clocks = clocks(&mut session, &opened);
    let failed = |session: &Session, at: usize| {
        let failure = session.failure(at)?;
        Some(by.failed(&names[at], failure))
    };
    let hosts = names.iter().enumerate().map(|(at, name)| Host {
        name: name.clone(),
        opened: opened.remove(&at).ok_or_else(|| {
            let other = Failure::Other("its words have another number".to_owned());
            failed(&session, at).unwrap_or_else(|| by.failed(name, &other))
        }),
        clock: clocks.get(&at).copied(),
    });
    let mut cluster = Cluster {
        hosts: hosts.collect(),
        paths: Vec::new(),
        ports: how.ports,
        partners: schedule::partners(names.len()),
    };
    let rounds = schedule::rounds(names.len());
    cluster.paths = paths(&cluster, &rounds);
    contact(&mut session, &mut cluster);
    tally(&mut session, &mut cluster);
    for round in &rounds {
        measure(&mut session, &mut cluster, round);
    }
    tally(&mut session, &mut cluster);
    for (at, host) in cluster.hosts.iter_mut().enumerate() {
        if let (true, Some(finding)) = (host.opened.is_ok(), failed(&session, at)) {
            host.opened = Err(finding);
        }
    }
    let hosts = &cluster.hosts;
    let examined = |id: RailId| hosts[id.host].opened.is_ok();
    cluster
        .paths
        .retain(|path| examined(path.from) && examined(path.to));
    cluster
}

/// Starts the agents.
fn open(session: &mut Session, hosts: usize, how: &How) -> BTreeMap<usize, Opened> {
    // Two examinations at one time must not count each other's packets.
    let run = unix_ns() ^ u64::from(std::process::id()) << 32;
    let request = |at: usize| {
        let open = Open {
            run,
            host: at as u16,
            rails: how.rails.clone(),
            ports: how.ports,
        };
        (at, Request::Open(open))
    };
    let answers = session.ask((0..hosts).map(request), START);
    let opened = answers.into_iter().filter_map(|(at, answer)| match answer {
        Answer::Opened(opened) if opened.words == WORDS => Some((at, opened)),
        _ => None,
    });
    opened.collect()
}

/// The difference of each clock and its error, in nanoseconds.
fn clocks(session: &mut Session, opened: &BTreeMap<usize, Opened>) -> BTreeMap<usize, (i64, u64)> {
    let mut clocks: BTreeMap<usize, (i64, u64)> = BTreeMap::new();
    for _ in 0..CLOCKS {
        for &at in opened.keys() {
            let (before, asked) = (unix_ns(), Instant::now());
            let answers = session.ask([(at, Request::Clock)], ANSWER);
            let error = asked.elapsed().as_nanos() as u64 / 2;
            let Some((_, Answer::Clock { unix_ns })) = answers.first() else {
                continue;
            };
            let difference = i128::from(*unix_ns) - i128::from(before) - i128::from(error);
            let known = clocks.entry(at).or_insert((0, u64::MAX));
            if error < known.1 {
                *known = (difference as i64, error);
            }
        }
    }
    clocks
}

/// Returns whether two rails share a subnet.
fn near(cluster: &Cluster, a: RailId, b: RailId) -> bool {
    let both = cluster.rail(a).zip(cluster.rail(b));
    both.is_some_and(|(a, b)| subnets::same(a, b))
}

/// The ways between the hosts that meet in these rounds. Where a host has lost a rail, jobs try its
/// other ones across subnets; here only rails at the same place are expected to be routed.
fn paths(cluster: &Cluster, rounds: &[Vec<(usize, usize)>]) -> Vec<Path> {
    let twice = subnets::twice(cluster);
    let mut found = BTreeSet::new();
    for &(a, b) in rounds.iter().flatten() {
        let of = |host: usize| {
            let rails = cluster.hosts[host].rails().iter().enumerate();
            let addrs =
                rails.map(|(rail, r)| addr(rail, r, twice.contains(&RailId { host, rail })));
            addrs.collect::<Vec<RailAddr>>()
        };
        let (ours, theirs) = (of(a), of(b));
        let there = pairing::pairs(&ours, &theirs);
        let back = pairing::pairs(&theirs, &ours)
            .into_iter()
            .map(|(y, x)| (x, y));
        let pairs = there.into_iter().chain(back);
        let pairs = pairs.map(|(x, y)| (RailId { host: a, rail: x }, RailId { host: b, rail: y }));
        found.extend(pairs.filter(|&(x, y)| x.rail == y.rail || near(cluster, x, y)));
    }
    let both = found.into_iter().flat_map(|(a, b)| [(a, b), (b, a)]);
    both.map(|(from, to)| new_path(cluster, from, to)).collect()
}

/// A rail's address for the pairing; none for a rail that cannot carry.
fn addr(at: usize, rail: &HostRail, twice: bool) -> RailAddr {
    let Some(udp) = rail.udp.filter(|_| !twice) else {
        return RailAddr::NONE;
    };
    let mut addr = UdpAddr::new(rail.ip, udp.port());
    addr.prefix_len = rail.prefix_len;
    let mut addr = addr.rail();
    addr.index = at as u8;
    addr
}

fn new_path(cluster: &Cluster, from: RailId, to: RailId) -> Path {
    let rail = |id| cluster.rail(id);
    let both =
        |has: fn(&HostRail) -> bool| rail(from).is_some_and(has) && rail(to).is_some_and(has);
    let mtu = |id| rail(id).map_or(0, |rail| rail.mtu);
    // Members of a group share a subnet.
    let near = near(cluster, from, to);
    Path {
        from,
        to,
        contact: Default::default(),
        contacts_arrived: 0,
        any_port_arrived: both(|rail| rail.any_port.is_some()).then_some(0),
        group_arrived: (near && both(|rail| rail.multicast)).then_some(0),
        size_wanted: mtu(from).min(mtu(to)).min(usize::from(u16::MAX)) as u16,
        size_arrived: 0,
        loss_arrived: 0,
        measure: None,
    }
}

/// The targets of each host among these paths, by index.
fn targets(cluster: &Cluster, wanted: &[usize]) -> BTreeMap<usize, (Vec<usize>, Vec<Target>)> {
    let mut of_host: BTreeMap<usize, (Vec<usize>, Vec<Target>)> = BTreeMap::new();
    for &at in wanted {
        let path = &cluster.paths[at];
        let Some((to, udp)) = cluster.rail(path.to).and_then(|to| Some((to, to.udp?))) else {
            continue;
        };
        let smaller = SIZES.into_iter().filter(|size| *size < path.size_wanted);
        let (indices, targets) = of_host.entry(path.from.host).or_default();
        indices.push(at);
        targets.push(Target {
            from: path.from.rail as u8,
            host: path.to.host as u16,
            rail: path.to.rail as u8,
            udp,
            any_port: to.any_port,
            tcp: to.tcp,
            sizes: std::iter::once(path.size_wanted).chain(smaller).collect(),
        });
    }
    of_host
}

/// All hosts try all ways at the same time.
fn contact(session: &mut Session, cluster: &mut Cluster) {
    let all: Vec<usize> = (0..cluster.paths.len()).collect();
    let mut of_host = targets(cluster, &all);
    let requests: Vec<(usize, Request)> = of_host
        .iter_mut()
        .map(|(&host, (_, targets))| {
            let targets = std::mem::take(targets);
            (host, Request::Contact { targets })
        })
        .collect();
    for (host, answer) in session.ask(requests, STEP) {
        if let (Answer::Contacted { contacts }, Some((indices, _))) = (answer, of_host.get(&host)) {
            for (&at, contact) in indices.iter().zip(contacts) {
                cluster.paths[at].contact = contact;
            }
        }
    }
}

/// The pairs of a round measure the ways that carry.
fn measure(session: &mut Session, cluster: &mut Cluster, round: &[(usize, usize)]) {
    let meet = |path: &Path| {
        let (a, b) = (path.from.host, path.to.host);
        path.carries() && round.contains(&(a.min(b), a.max(b)))
    };
    let wanted = (0..cluster.paths.len()).filter(|&at| meet(&cluster.paths[at]));
    let wanted: Vec<usize> = wanted.collect();
    let mut of_host = targets(cluster, &wanted);
    let requests: Vec<(usize, Request)> = of_host
        .iter_mut()
        .map(|(&host, (_, targets))| {
            let targets = std::mem::take(targets);
            (host, Request::Measure { targets })
        })
        .collect();
    for (host, answer) in session.ask(requests, STEP) {
        if let (Answer::Measured { measures }, Some((indices, _))) = (answer, of_host.get(&host)) {
            for (&at, measure) in indices.iter().zip(measures) {
                cluster.paths[at].measure = Some(measure);
            }
        }
    }
}

/// Reads what arrived at all hosts.
fn tally(session: &mut Session, cluster: &mut Cluster) {
    let there = (0..cluster.hosts.len()).filter(|&at| cluster.hosts[at].opened.is_ok());
    let requests: Vec<_> = there.map(|at| (at, Request::Tally)).collect();
    for (host, answer) in session.ask(requests, ANSWER) {
        if let Answer::Tally { rows } = answer {
            rows.iter().for_each(|row| enter(cluster, host, row));
        }
    }
}

/// Enters packets that arrived at a host into their path.
fn enter(cluster: &mut Cluster, host: usize, row: &Row) {
    let rail = |rail: u8| usize::from(rail);
    let from = RailId {
        host: usize::from(row.host),
        rail: rail(row.rail),
    };
    let to = RailId {
        host,
        rail: rail(row.at),
    };
    let found = |path: &&mut Path| (path.from, path.to) == (from, to);
    let Some(path) = cluster.paths.iter_mut().find(found) else {
        return;
    };
    match row.purpose {
        Purpose::Contact => path.contacts_arrived = row.count,
        Purpose::AnyPort => path.any_port_arrived = Some(row.count),
        Purpose::Group => path.group_arrived = path.group_arrived.map(|_| row.count),
        Purpose::Size => path.size_arrived = row.longest,
        Purpose::Loss => path.loss_arrived = row.count,
        Purpose::RoundTrip => {}
    }
}
