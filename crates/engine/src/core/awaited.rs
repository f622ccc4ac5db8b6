//! Hosts that are silent while something here waits for them: for whom one waits, and why, said
//! once in ten seconds.

use crate::platform::system::System;
use crate::state::core::Core;
use crate::stats::events::{Event, Kind, Reason};
use marline_proto::Silence;
use marline_rails::{RailTx, UdpAddr};
use std::collections::BTreeMap;

/// So often it is looked who is silent, and so long a host is before it is said, and again.
const LOOK_NS: u64 = 1_000_000_000;
const SAY_NS: u64 = 10_000_000_000;

/// The hosts that are waited for, and when it is said of each the next time.
#[derive(Debug, Default)]
pub(crate) struct AwaitedHosts {
    look_ns: u64,
    said: BTreeMap<String, u64>,
}

/// The silent peers of one host.
#[derive(Clone, Copy, Debug, Default)]
struct Waited {
    peers: u64,
    /// A peer of the group, by its endpoint.
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

/// Something to be said of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// Its address.
    pub(crate) host: String,
    /// The line.
    pub(crate) text: String,
    /// The wait for the peer ended.
    pub(crate) over: bool,
}

impl<S: System> Core<S> {
    /// The hosts of which it is to be said now that they are waited for, or that they answer again.
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

    /// Peers that owe an answer for long, by the address of their host.
    fn silent_hosts(&self, now: u64) -> BTreeMap<String, Waited> {
        let mut silent: BTreeMap<String, Waited> = BTreeMap::new();
        for endpoint in self.dir.eps.iter().flatten() {
            let node = &endpoint.node;
            node.for_each_silent(now, SAY_NS, |silence| {
                let Some(address) = node.peer_address(silence.peer) else {
                    return;
                };
                // Processes of one host name its rails in orders of their own.
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
