//! Sums over the pages of many processes. [`super::report`] formats them as text.

use super::dead::{dead_peers, DeadPeer};
use super::outages::{outages, Outage};
use super::rows::{JobPage, ProcessKey};
use super::waits::ProcessWaits;
use super::{Counters, PathCounters, PeerCounters, ProcessCounters, RailCounters};
use marline_checksum::Algorithm;
use std::collections::BTreeSet;

/// All rails of one name on all hosts of a job.
#[derive(Clone, Debug, Default)]
pub struct RailSummary {
    /// Interface.
    pub name: String,
    /// Number of rails in the sum.
    pub rails: usize,
    /// Number of rails that are up.
    pub up: usize,
    /// Number of rails on standby or waiting for their interface.
    pub standby: usize,
    /// Counters of the rails alone, without those of paths.
    pub counters: RailCounters,
    /// Counters of all paths of the rails.
    pub paths: PathCounters,
    /// Counters of the rails' paths to peers that were not declared dead.
    pub alive: PathCounters,
}

impl RailSummary {
    /// Packets received with a bad header or payload, which count as lost and are retransmitted.
    pub fn corrupt(&self) -> u64 {
        self.counters
            .corrupt_heads
            .saturating_add(self.paths.corrupt_payloads)
    }

    /// True if all of them stayed on standby or waited for their interface, and carried no packets.
    pub fn is_unused(&self) -> bool {
        let c = &self.counters;
        self.standby == self.rails && c.wire_packets_sent == 0 && c.wire_packets_received == 0
    }

    /// Packets that were lost; late acks are excluded.
    pub fn lost(&self) -> u64 {
        self.paths.lost.saturating_sub(self.paths.spurious)
    }

    /// Spurious retransmissions: packets sent again although neither loss nor a failed path
    /// required it. Their acks were late, as on oversubscribed cores. Packets to dead peers are
    /// excluded, since their delivery is unknown.
    pub fn resent_spurious(&self) -> u64 {
        let p = &self.alive;
        let lost = p.lost.saturating_sub(p.spurious);
        let needed = lost.saturating_add(p.resent_failover);
        p.resent().saturating_sub(needed)
    }

    /// Packets retransmitted because of loss or failed paths.
    pub fn resent(&self) -> u64 {
        self.paths.resent().saturating_sub(self.resent_spurious())
    }
}

/// Numbers of processes whose settings disable a protection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unprotected {
    /// Software reliability is off.
    pub reliability: usize,
    /// No payload to or from some peer has a checksum.
    pub sums: usize,
    /// Some payloads have no checksum, by size, rail or time.
    pub some_sums: usize,
    /// Faults are injected.
    pub faults: usize,
}

/// A job.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Processes that were in touch with others. A process has one page per libfabric domain.
    pub processes: usize,
    /// Processes that never were in touch with others.
    pub idle: usize,
    /// Rank of the process, if there is only one.
    pub rank: Option<u32>,
    /// Peers that were declared dead.
    pub dead: Vec<DeadPeer>,
    /// Disabled protection.
    pub unprotected: Unprotected,
    /// Rail failures in order of time.
    pub outages: Vec<Outage>,
    /// Rails by name in order of appearance.
    pub rails: Vec<RailSummary>,
    /// Sum of all process counters.
    pub process: ProcessCounters,
    /// Sum of the waits of all processes.
    pub waits: ProcessWaits,
    /// Sum of the counters of all peers of all processes.
    pub peers: PeerCounters,
    /// Longest run time of a process.
    pub elapsed_ns: u64,
}

impl Summary {
    /// Sums pages. Engines that never were in touch with another are only counted.
    pub fn of(pages: &[JobPage]) -> Summary {
        let mut summary = Summary::default();
        let mut known = BTreeSet::new();
        let (used, idle): (Vec<_>, Vec<_>) = pages.iter().partition(|page| page.is_used());
        for page in used {
            summary.processes += usize::from(is_new(page, &mut known));
            summary.add(page);
        }
        for page in idle {
            summary.idle += usize::from(is_new(page, &mut known));
        }
        summary.dead = dead_peers(pages);
        summary.outages = outages(pages);
        summary
    }

    fn add(&mut self, page: &JobPage) {
        self.rank = page.rank.filter(|_| self.processes == 1);
        self.process.merge(&page.process);
        self.waits.merge(&page.waits);
        self.peers.merge(&page.peer_totals());
        self.elapsed_ns = self.elapsed_ns.max(page.elapsed_ns());
        for (n, rail) in page.rails.iter().enumerate() {
            let paths = page.path_totals(n);
            let sum = self.rail(&rail.name);
            sum.rails += 1;
            sum.up += usize::from(rail.up);
            sum.standby += usize::from(rail.standby);
            sum.counters.merge(&rail.counters);
            sum.paths.merge(&paths);
            sum.alive.merge(&page.path_totals_alive(n));
        }
        self.add_unprotected(page);
    }

    fn add_unprotected(&mut self, page: &JobPage) {
        const NONE: Option<u8> = Some(Algorithm::None as u8);
        let others = page.peers.iter().filter(|peer| !peer.paths.is_empty());
        let unsummed = others.filter(|peer| peer.checksum == NONE).count() > 0;
        let of = &mut self.unprotected;
        of.reliability += usize::from(page.disabled.reliability);
        of.sums += usize::from(unsummed);
        of.some_sums += usize::from(page.disabled.some_sums);
        of.faults += usize::from(page.disabled.faults);
    }

    /// True if messages were carried without software reliability or without checksums.
    pub fn is_unprotected(&self) -> bool {
        self.unprotected.reliability + self.unprotected.sums > 0
    }

    /// Number of lost and damaged packets and of paths declared down.
    pub fn problems(&self) -> u64 {
        let of = |rail: &RailSummary| [rail.lost(), rail.corrupt(), rail.paths.downs];
        self.rails.iter().flat_map(of).fold(0, u64::saturating_add)
    }

    fn rail(&mut self, name: &str) -> &mut RailSummary {
        let known = self.rails.iter().position(|rail| rail.name == name);
        let n = known.unwrap_or_else(|| {
            self.rails.push(RailSummary {
                name: name.to_owned(),
                ..RailSummary::default()
            });
            self.rails.len() - 1
        });
        &mut self.rails[n]
    }
}

/// True for the first page of a process.
fn is_new<'a>(page: &'a JobPage, known: &mut BTreeSet<ProcessKey<'a>>) -> bool {
    page.process_key().is_none_or(|key| known.insert(key))
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::stats::events::{Event, Kind, Reason};
    use crate::stats::rows::PeerState;
    use crate::stats::test_page;

    /// A process whose paths lost packets, with one rail down.
    fn page(messages: u64) -> JobPage {
        let mut page = test_page::page();
        let peer = &mut page.peers[0];
        peer.counters.messages_sent = messages;
        for path in &mut peer.paths {
            let path = &mut path.counters;
            (path.lost, path.resent_loss, path.resent_failover) = (3, 2, 1);
        }
        page.rails[1].up = false;
        page.process.reliability_bytes_max = 100 * messages;
        page
    }

    #[test]
    fn processes_are_put_together_by_rail() {
        let pages = [page(10), page(30), JobPage::default()];
        let summary = Summary::of(&pages);
        assert_eq!(summary.processes, 2, "a page without peers does not count");
        assert_eq!(summary.rails.len(), 2);
        assert_eq!(summary.rails[1].paths.lost, 6);
        assert_eq!(summary.rails[1].paths.resent(), 6);
        assert_eq!((summary.rails[0].up, summary.rails[1].up), (2, 0));
        assert_eq!(summary.process.reliability_bytes_max, 3000);
    }

    /// MPICH with several communication interfaces opens one domain for each.
    #[test]
    fn pages_of_one_process_are_one_process() {
        let mut pages = [page(10), page(30), page(10), JobPage::default()];
        for (page, pid) in pages.iter_mut().zip([7, 8, 7, 8]) {
            page.pid = pid;
        }
        let summary = Summary::of(&pages);
        assert_eq!((summary.processes, summary.idle), (2, 0));
    }

    #[test]
    fn spurious_retransmissions_exclude_loss_and_failover() {
        let mut page = page(10);
        let path = &mut page.peers[0].paths[0].counters;
        (path.lost, path.spurious) = (10, 4);
        (path.resent_loss, path.resent_pto, path.resent_failover) = (10, 20, 5);
        let of = |page: &JobPage| {
            let summary = Summary::of(std::slice::from_ref(page));
            let rail = &summary.rails[0];
            (rail.lost(), rail.resent(), rail.resent_spurious())
        };
        assert_eq!(of(&page), (6, 11, 24));
        // Delivery to a dead peer is unknown.
        page.peers[0].state = PeerState::Dead;
        assert_eq!(of(&page), (6, 35, 0));
    }

    #[test]
    fn dead_peers_are_known_by_rank_where_their_page_is() {
        let mut pages = [page(1), page(1), page(1)];
        for (n, page) in pages.iter_mut().enumerate() {
            page.endpoints = vec![n as u64 + 10, n as u64];
            page.rank = Some(n as u32);
            page.host = "h".into();
        }
        for page in &mut pages[..2] {
            page.peers[0].endpoint = 2;
            page.peers[0].state = PeerState::Dead;
        }
        let dead = Summary::of(&pages).dead;
        assert_eq!(dead.len(), 1);
        assert_eq!((dead[0].rank, dead[0].named_by), (Some(2), 2));
        assert!(!dead[0].gone, "it was silent");
        pages[1].events.list.push(Event {
            kind: Kind::PeerDead,
            reason: Reason::Refused,
            peer: 2,
            ..Event::default()
        });
        assert!(Summary::of(&pages).dead[0].gone);
        let dead = Summary::of(&pages[..1]).dead;
        assert_eq!((dead[0].rank, dead[0].named_by), (None, 1));
    }

    #[test]
    fn loopback_messages_use_no_rail() {
        let mut page = page(1);
        page.peers[0].paths.clear();
        let summary = Summary::of(&[page, JobPage::default()]);
        assert_eq!((summary.processes, summary.idle), (0, 2));
    }

    #[test]
    fn disabled_protection_is_counted() {
        let mut page = page(1);
        assert!(!Summary::of(std::slice::from_ref(&page)).is_unprotected());
        page.peers[0].checksum = Some(0);
        page.disabled.reliability = true;
        let summary = Summary::of(&[page]);
        assert!(summary.is_unprotected());
        let of = summary.unprotected;
        assert_eq!((of.sums, of.reliability, of.some_sums), (1, 1, 0));
    }
}
