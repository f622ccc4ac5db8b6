//! Publishes the engine's counters on its page in shared memory.

use crate::api::{EpId, LogLevel, LogSink, ADDR_UNSPEC};
use crate::config::settings::Settings;
use crate::core::peer_rows::peer_row;
use crate::core::peer_scan::{PeerScan, SLICE};
use crate::core::Core;
use crate::memory::op_table::Role;
use crate::platform::system::System;
use crate::stats::disabled::Disabled;
use crate::stats::events::Recorder;
use crate::stats::given;
use crate::stats::page::{rank_from_env, run_from_env, Page, PageInfo, DEFAULT_DIR, ENDPOINTS_MAX};
use crate::stats::reader::read_page;
use crate::stats::report::report;
use crate::stats::rows::RailRow;
use crate::stats::stale;
use crate::stats::summary::Summary;
use crate::stats::waits::ProcessWaits;
use crate::stats::ProcessCounters;
use marline_codes::Code;
use marline_proto as proto;
use marline_rails::show_addr;
use marline_rails::RailTx;

/// Writer of the page, if there is one.
pub(crate) struct Publisher {
    page: Option<Page>,
    scan: PeerScan,
    /// Peak reliability memory.
    memory_max: u64,
    /// Number of dead peers at the last update.
    deaths: u64,
    /// True if this process prints its counters at its end.
    speaks: bool,
}

impl Publisher {
    /// A publisher without a page.
    pub(crate) fn none() -> Publisher {
        Publisher {
            page: None,
            scan: PeerScan::default(),
            memory_max: 0,
            deaths: 0,
            speaks: false,
        }
    }

    /// Creates the page. Without a page (no room) the engine works all the same.
    pub(crate) fn open(settings: &Settings, log: &LogSink) -> Publisher {
        // The new directory of `marline run` does not exist on other hosts. Their pages go where
        // `marline stats` searches by default.
        let wanted = std::path::Path::new(&settings.stats_dir);
        let there = wanted.is_dir();
        if !there && !settings.stats_dir.is_empty() {
            let text = format!(
                "no directory {} here: statistics are in {DEFAULT_DIR} until this process ends",
                wanted.display()
            );
            (log.0)(LogLevel::Info, &text);
        }
        let (differing, versions) = (given::given(settings), settings.versions());
        let info = PageInfo {
            dir: if there { &settings.stats_dir } else { "" },
            rank: rank_from_env(),
            run: run_from_env(),
            disabled: Disabled::from(settings),
            settings: &differing,
            wire: (versions.oldest, versions.newest),
        };
        if !there {
            stale::clean_up();
        }
        let page = Page::open(&info).map_err(|e| (log.0)(LogLevel::Warn(Code::StatisticsRoom), &e));
        Publisher {
            page: page.ok(),
            scan: PeerScan::default(),
            memory_max: 0,
            deaths: 0,
            speaks: settings.summary && info.rank.unwrap_or(0) == 0,
        }
    }

    /// Publishes if peers have died since the last update: an application that learns of a death
    /// may end its job, and this process with it, before the next update.
    pub(crate) fn publish_deaths<S: System>(&mut self, core: &Core<S>) {
        if core.counters.process.peers_dead > self.deaths {
            self.publish_all(core);
        }
    }

    /// A writer of events on the page, if there is one.
    pub(crate) fn recorder(&self) -> Option<Recorder> {
        self.page.as_ref().map(Page::recorder)
    }

    /// Text of this process's counters, if it prints them; `None` if it never communicated.
    pub(crate) fn report(&self) -> Option<String> {
        let page = self.page.as_ref().filter(|_| self.speaks)?;
        let page = read_page(page.path()).ok()?;
        let summary = Summary::of(&[page]);
        (summary.processes > 0).then(|| report(&summary))
    }

    /// Copies all counters to the page; of many peers only a part is read anew.
    pub(crate) fn publish<S: System>(&mut self, core: &Core<S>) {
        if self.page.is_some() {
            self.scan.advance(&core.dir.all_nodes(), SLICE);
            self.write(core);
        }
    }

    /// Copies all counters to the page.
    pub(crate) fn publish_all<S: System>(&mut self, core: &Core<S>) {
        if self.page.is_some() {
            self.scan.whole(&core.dir.all_nodes());
            self.write(core);
        }
    }

    fn write<S: System>(&mut self, core: &Core<S>) {
        let Some(page) = &mut self.page else { return };
        let peers = self.scan.peers();
        self.deaths = core.counters.process.peers_dead;
        let (memory, memory_out_max) = memory_bytes(core, peers.bytes);
        self.memory_max = self.memory_max.max(memory).max(memory_out_max);
        page.publish(|w| {
            let mut process = core.counters.process;
            let mut waits = core.counters.waits;
            for endpoint in core.dir.eps.iter().flatten() {
                add_node((&mut process, &mut waits), endpoint.node.stats());
            }
            process.log_bytes_max = core.buffers.pool.log_bytes_max() as u64;
            process.summed_by_workers = core.rails.sums.bytes;
            process.reliability_bytes = memory;
            process.reliability_bytes_max = self.memory_max;
            for rail in core.rails.iter() {
                let address = rail.tx.local_addr();
                w.page.rails.push(RailRow {
                    name: rail.name.clone(),
                    address: show_addr(&address),
                    up: rail.up,
                    standby: !address.is_some() || rail.tx.caps().standby,
                    packet_bytes_max: rail.tx.caps().datagram_max as u64,
                    counters: rail.counters,
                });
            }
            process.unacked_packets_max = process.unacked_packets_max.max(peers.queue_max);
            peers.rows.iter().for_each(|row| w.peer(row.clone()));
            let closed = core.counters.closed_rows.iter();
            closed.for_each(|row| w.peer(row.clone()));
            for (count, sum) in [&peers.beyond, &core.counters.past] {
                w.without_rows(*count, sum);
            }
            process.peers_contacted += w.peers();
            w.page.endpoints.clone_from(&core.dir.first_ids);
            w.page.endpoints_beyond = core.dir.opened.saturating_sub(ENDPOINTS_MAX as u64);
            w.page.process = process;
            w.page.waits = waits;
        });
    }
}

/// Most rows kept for peers of closed endpoints. Further peers are summed, so that memory does not
/// grow in a process that opens and closes endpoints.
const CLOSED_ROWS_MAX: usize = 1024;

/// Memory for reliability (log with its free buffers, connections, tables): at present, and with
/// the log at its peak.
fn memory_bytes<S: System>(core: &Core<S>, connections: usize) -> (u64, u64) {
    let nodes = core.dir.eps.iter().flatten();
    let nodes: usize = nodes.map(|e| e.node.table_bytes()).sum();
    let tables = connections + nodes + core.ops.sends.heap_bytes() + core.ops.recvs.heap_bytes();
    let (held, out_max) = (
        core.buffers.pool.held_bytes(),
        core.buffers.pool.out_bytes_max(),
    );
    ((tables + held) as u64, (tables + out_max) as u64)
}

fn add_node((to, waits): (&mut ProcessCounters, &mut ProcessWaits), from: &proto::NodeStats) {
    waits.eager.merge(&from.eager_waits);
    waits.rendezvous.merge(&from.rendezvous_waits);
    to.message_wait_max_ns = to.message_wait_max_ns.max(from.message_wait_max_ns);
    let [a, b, c, d, e, f, g] = from.sent_by_size;
    to.sizes_to_64 += a;
    to.sizes_to_1k += b;
    to.sizes_to_8k += c;
    to.sizes_to_64k += d;
    to.sizes_to_1m += e;
    to.sizes_to_16m += f;
    to.sizes_above += g;
    to.eager_sent += from.eager_sent;
    to.rendezvous_sent += from.rendezvous_sent;
    to.written += from.written;
    to.written_wrong += from.written_wrong;
    to.written_lost += from.written_lost;
    to.pulled += from.pulled;
    to.pulls_failed += from.pulls_failed;
    to.unknown_rails += from.unknown_rails;
    to.unacked_packets_max = to.unacked_packets_max.max(from.queue_max);
    to.ack_wait_max_ns = to.ack_wait_max_ns.max(from.ack_wait_max_ns);
    to.ack_delay_max_ns = to.ack_delay_max_ns.max(from.ack_delay_max_ns);
    to.thread_ack_delay_max_ns = to.thread_ack_delay_max_ns.max(from.thread_ack_delay_max_ns);
    to.unexpected_bytes_max = to.unexpected_bytes_max.max(from.unexpected_bytes_max);
}

impl<S: System> Core<S> {
    /// Retains the counters of a closing endpoint for the page.
    pub(crate) fn keep_totals(&mut self, ep: EpId) {
        let Some(endpoint) = self.dir.eps.get(ep.0 as usize).and_then(Option::as_ref) else {
            return;
        };
        let (node, mut kept) = (&endpoint.node, Vec::new());
        node.for_each_peer(|peer, id, stats, paths| {
            kept.push(peer_row(node, (peer, id), true, stats, paths));
        });
        let counters = &mut self.counters;
        add_node((&mut counters.process, &mut counters.waits), node.stats());
        for row in kept {
            match self.counters.closed_rows.len() < CLOSED_ROWS_MAX {
                true => self.counters.closed_rows.push(row),
                false => self.counters.forget(&row),
            }
        }
    }

    /// Forgets a peer that left: adds its counters to the sum of such peers.
    pub(crate) fn peer_left(&mut self, ep: EpId, peer: proto::PeerId) {
        let Some(endpoint) = self.dir.eps.get_mut(ep.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        let (node, counters) = (&endpoint.node, &mut self.counters);
        node.for_peer(peer, |peer, id, stats, paths| {
            counters.forget(&peer_row(node, (peer, id), false, stats, paths));
        });
        endpoint.node.forget(peer);
        self.outages.forget(ep.0, peer.0);
        if let Some(addr) = endpoint.addrs.get_mut(peer.0 as usize) {
            *addr = ADDR_UNSPEC;
        }
    }

    /// Drops an endpoint and all its operations, without completions.
    pub(crate) fn ep_forget(&mut self, ep: EpId) {
        let index = ep.0 as usize;
        self.close_groups(ep);
        self.outages.forget_endpoint(ep.0);
        self.close_links(index);
        if let Some(slot) = self.dir.eps.get_mut(index) {
            *slot = None;
        }
        self.dir.by_id.retain(|&(_, e)| e != ep.0);
        self.stop_writes(ep);
        self.forget_rpcs(ep);
        let sends: Vec<u32> = self.ops.sends.find(|op| op.ep == ep);
        for handle in sends {
            let Some(op) = self.ops.sends.remove(handle) else {
                continue;
            };
            if let Some(buffer) = op.log {
                self.buffers.pool.give(buffer);
            }
            if let Some(served) = op.serves {
                self.ops.leave_region(served.region);
            }
        }
        let recvs: Vec<u32> = self.ops.recvs.find(|op| op.ep == ep);
        for handle in recvs {
            let role = self.ops.recvs.remove(handle).map(|op| op.role);
            if let Some(Role::Put(region, _)) = role {
                self.ops.leave_region(region);
            }
        }
        let bounces: Vec<_> = self
            .buffers
            .bounces
            .keys()
            .filter(|k| k.0 == ep.0)
            .copied()
            .collect();
        for key in bounces {
            if let Some(buffer) = self.buffers.bounces.remove(&key) {
                self.buffers.pool.give(buffer);
            }
        }
        self.ops.claims.retain(|k, _| k.0 != ep.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    /// Returns the page's publisher and the levels of its log lines.
    fn opened(stats_dir: &str) -> (Publisher, Vec<LogLevel>) {
        let settings = Settings {
            stats_dir: stats_dir.to_owned(),
            ..Settings::default()
        };
        let said = Arc::new(Mutex::new(Vec::new()));
        let log = said.clone();
        let sink = LogSink(Arc::new(move |level, _: &str| {
            log.lock().unwrap().push(level);
        }));
        let publisher = Publisher::open(&settings, &sink);
        let said = said.lock().unwrap().clone();
        (publisher, said)
    }

    /// Only the host of `marline run` has its directory.
    #[test]
    fn without_its_directory_a_page_is_where_stats_looks() {
        let (publisher, said) = opened("/no/such/directory");
        let page = publisher.page.as_ref().expect("a page");
        assert!(!page.is_kept());
        assert_eq!(page.path().parent(), Some(Path::new(DEFAULT_DIR)));
        assert_eq!(said, [LogLevel::Info]);
        let path = page.path().to_owned();
        drop(publisher);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_that_is_there_keeps_the_page() {
        let name = format!("marline-test-{}-publish", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let (publisher, said) = opened(dir.to_str().unwrap());
        let page = publisher.page.as_ref().expect("a page");
        assert!(page.is_kept() && page.path().starts_with(&dir) && said.is_empty());
        drop(publisher);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
