//! The facts about several hosts and the ways between them, from which findings are made.

use super::finding::Finding;
use super::messages::{Contact, HostRail, Measure, Opened};
use crate::report::{End, Ends};

/// All hosts and ways of an examination.
#[derive(Debug, Default)]
pub struct Cluster {
    /// The hosts in the order of the list.
    pub hosts: Vec<Host>,
    /// Ways between rails, each direction apart.
    pub paths: Vec<Path>,
    /// `FI_MARLINE_PORTS`.
    pub ports: Option<(u16, u16)>,
    /// Other hosts with which each was examined, if these are not all.
    pub partners: Option<usize>,
}

/// A host.
#[derive(Debug)]
pub struct Host {
    /// Name in the list.
    pub name: String,
    /// The host's rails, or the finding that it cannot be examined.
    pub opened: Result<Opened, Finding>,
    /// Its clock minus the coordinator's, and the error of that, in nanoseconds.
    pub clock: Option<(i64, u64)>,
}

impl Host {
    /// Its rails; none if it cannot be examined.
    pub fn rails(&self) -> &[HostRail] {
        self.opened.as_ref().map_or(&[], |opened| &opened.rails)
    }
}

/// A rail: the numbers of its host and of the rail there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RailId {
    /// The host.
    pub host: usize,
    /// Its rail.
    pub rail: usize,
}

/// A way from a rail to one of another host.
#[derive(Clone, Debug)]
pub struct Path {
    /// The sender.
    pub from: RailId,
    /// The receiver.
    pub to: RailId,
    /// The sender's first impression.
    pub contact: Contact,
    /// Packets that arrived at the receiver's port of a job.
    pub contacts_arrived: u32,
    /// Packets that arrived at another port, where one was tried.
    pub any_port_arrived: Option<u32>,
    /// Packets that arrived by multicast, where some were sent.
    pub group_arrived: Option<u32>,
    /// Largest IP packet that both interfaces can take, in bytes.
    pub size_wanted: u16,
    /// Largest that arrived.
    pub size_arrived: u16,
    /// Packets of those sent for the loss that arrived.
    pub loss_arrived: u32,
    /// The sender's measurements.
    pub measure: Option<Measure>,
}

impl Path {
    /// Returns whether packets pass.
    pub fn carries(&self) -> bool {
        self.contacts_arrived > 0
    }

    /// Share of lost packets in percent; `None` if none were sent.
    pub fn loss_percent(&self) -> Option<f64> {
        let sent = self.measure.as_ref()?.sent;
        let lost = sent.saturating_sub(self.loss_arrived);
        (sent > 0).then(|| f64::from(lost) * 100.0 / f64::from(sent))
    }
}

impl Cluster {
    /// A rail's description.
    pub fn rail(&self, id: RailId) -> Option<&HostRail> {
        self.hosts.get(id.host)?.rails().get(id.rail)
    }

    /// A rail's host and name.
    pub fn end(&self, id: RailId) -> End {
        End {
            host: self.hosts.get(id.host).map_or("?", |h| &h.name).to_owned(),
            rail: self.rail(id).map_or("?", |rail| &rail.name).to_owned(),
        }
    }

    /// The two ends of a path in either direction.
    pub fn ends(&self, path: &Path) -> Ends {
        Ends::of(self.end(path.from), self.end(path.to))
    }

    /// All rails of the hosts that can be examined.
    pub fn rails(&self) -> impl Iterator<Item = (RailId, &HostRail)> {
        let hosts = self.hosts.iter().enumerate();
        hosts.flat_map(|(host, h)| {
            let rails = h.rails().iter().enumerate();
            rails.map(move |(rail, r)| (RailId { host, rail }, r))
        })
    }
}

/// A cluster of hosts with healthy rails for tests: `rail0`, `rail1`, … in `10.100.0.0/16`,
/// `10.101.0.0/16`, ….
#[cfg(test)]
pub fn healthy(hosts: usize, rails: usize) -> Cluster {
    use super::messages::{Tcp, WORDS};
    let rail = |host: usize, rail: usize| HostRail {
        name: format!("rail{rail}"),
        ip: format!("10.{}.0.{}", 100 + rail, 1 + host).parse().unwrap(),
        prefix_len: 16,
        mtu: 1_500,
        mbit_per_s: 10_000,
        down: None,
        udp: None,
        any_port: None,
        tcp: None,
        multicast: true,
    };
    let host = |at: usize| Host {
        name: format!("h{at}"),
        opened: Ok(Opened {
            words: WORDS,
            version: "1".to_owned(),
            wire: 4,
            rails: (0..rails).map(|r| rail(at, r)).collect(),
            findings: Vec::new(),
        }),
        clock: Some((0, 0)),
    };
    let path = |from: usize, to: usize, rail: usize| Path {
        from: RailId { host: from, rail },
        to: RailId { host: to, rail },
        contact: Contact {
            answered: true,
            tcp: Tcp::Open,
        },
        contacts_arrived: 1,
        any_port_arrived: None,
        group_arrived: Some(3),
        size_wanted: 1_500,
        size_arrived: 1_500,
        loss_arrived: 320,
        measure: Some(Measure {
            sent: 320,
            rtt_min_us: Some(10.0),
            rtt_median_us: Some(12.0),
            mbit_per_s: Some(9_000.0),
        }),
    };
    let pairs = (0..hosts).flat_map(|a| (0..hosts).map(move |b| (a, b)));
    let pairs = pairs.filter(|(a, b)| a != b);
    Cluster {
        hosts: (0..hosts).map(host).collect(),
        paths: pairs
            .flat_map(|(a, b)| (0..rails).map(move |r| path(a, b, r)))
            .collect(),
        ports: None,
        partners: None,
    }
}
