//! Detection of silent hosts for which operations wait, reported with the reason every ten seconds.

use crate::core::Core;
use crate::platform::system::System;
use crate::stats::events::{Event, Kind, Reason};
use marline_proto::Silence;
use marline_rails::{RailTx, UdpAddr};
use std::collections::BTreeMap;

/// Interval between checks in nanoseconds. [`SAY_NS`] is the silence before a report, and the
/// interval between reports.
const LOOK_NS: u64 = 1_000_000_000;
const SAY_NS: u64 = 10_000_000_000;

/// Hosts with waiting operations, and the time of the next report about each.
#[derive(Debug, Default)]
pub(crate) struct AwaitedHosts {
    look_ns: u64,
    said: BTreeMap<String, u64>,
}

/// The silent peers of one host.
#[derive(Clone, Copy, Debug, Default)]
struct Waited {
    peers: u64,
    /// Endpoint number of one of the peers on the host.
    first: u64,
    longest_ns: u64,
    stranger: bool,
    refused_ns: u64,
    rails: u32,
}

impl Waited {
    fn add(&mut self, silence: &Silence, id: u64) {
        self.peers += 1;
        self.longest_ns = self.longest_ns.max(silence.silent_ns);
        self.stranger |= silence.stranger;
        self.refused_ns = match self.peers {
            1 => silence.refused_ns,
            _ => self.refused_ns.min(silence.refused_ns),
        };
        self.rails |= silence.rails;
        self.first = id;
    }
}

/// A report about a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// Address of the host.
    pub(crate) host: String,
    /// Text of the log line.
    pub(crate) text: String,
    /// True if the wait has ended.
    pub(crate) over: bool,
}

impl<S: System> Core<S> {
    /// Handles reports that are due: of hosts that operations wait for, and of hosts that answer
    /// again.
    pub(crate) fn say_awaited(&mut self, now: u64, hosts: &mut AwaitedHosts) -> Vec<Said> {
        if now < hosts.look_ns {
            return Vec::new();
        }
        hosts.look_ns = now + LOOK_NS;
        let silent = self.silent_hosts(now);
        let mut all = Vec::new();
        hosts.said.retain(|host, _| {
            let over = !silent.contains_key(host);
            if over {
                let text = format!("host {host} is waited for no more");
                let host = host.clone();
                all.push(Said { host, text, over });
            }
            !over
        });
        for (host, waited) in silent {
            let due = hosts.said.entry(host.clone()).or_insert(now);
            if now < *due {
                continue;
            }
            *due = now + SAY_NS;
            let text = self.waiting_line(now, &host, &waited);
            self.outages.record(Event {
                kind: Kind::PeerAwaited,
                reason: match waited.refused_ns {
                    0 => Reason::Silent,
                    _ => Reason::Refused,
                },
                peer: waited.first,
                moved: waited.peers,
                gap_ns: waited.longest_ns,
                ..Event::default()
            });
            let over = false;
            all.push(Said { host, text, over });
        }
        all
    }

    /// Peers with long overdue answers, by their host's address.
    fn silent_hosts(&self, now: u64) -> BTreeMap<String, Waited> {
        let mut silent: BTreeMap<String, Waited> = BTreeMap::new();
        for endpoint in self.dir.eps.iter().flatten() {
            let node = &endpoint.node;
            node.for_each_silent(now, SAY_NS, |silence| {
                let Some(address) = node.peer_address(silence.peer) else {
                    return;
                };
                // Processes of one host may list its rails in different orders.
                let ips = address
                    .rails()
                    .iter()
                    .filter_map(|rail| UdpAddr::read(&rail));
                let ip = ips.map(|at| at.ip).min();
                let host = ip.map_or_else(|| "this one".to_owned(), |ip| ip.to_string());
                silent.entry(host).or_default().add(silence, address.id);
            });
        }
        silent
    }

    fn waiting_line(&self, now: u64, host: &str, waited: &Waited) -> String {
        let seconds = |ns: u64| ns / 1_000_000_000;
        let peers = match waited.peers {
            1 => "1 process".to_owned(),
            more => format!("{more} processes"),
        };
        let why = match (waited.refused_ns, waited.stranger) {
            (0, true) => "nothing was ever heard on any rail".to_owned(),
            (0, false) => "silent on all rails".to_owned(),
            (ns, _) => format!("it has refused what is sent to it for {} s", seconds(ns)),
        };
        let mut text = format!(
            "waiting {} s for host {host} ({peers}): {why}",
            seconds(waited.longest_ns)
        );
        let of_it = |n: usize| waited.rails.checked_shr(n as u32).unwrap_or(0) & 1 == 1;
        let down = self.rails.iter().enumerate().filter(|(n, _)| of_it(*n));
        for (_, rail) in down.filter(|(_, rail)| !rail.up && !rail.tx.caps().standby) {
            let for_s = seconds(now.saturating_sub(rail.down_ns));
            text += &format!("; {} is down here since {for_s} s ago", rail.name);
        }
        let limit_s = seconds(self.cfg.proto.peer_timeout_ns);
        text + &format!("; given up after {limit_s} s of silence (FI_MARLINE_PEER_TIMEOUT_MS)")
    }
}
