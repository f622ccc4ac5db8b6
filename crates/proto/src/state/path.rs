//! A path: a local rail to a rail of the peer. Round-trip time, congestion window, health.
//!
//! Two timers (design section 5). *Retransmission*: a timer of max(4 SRTT, floor), doubling, sends
//! one packet per expiry, on the best other path. *Health* is relative: a path goes down on an
//! error of its rail, or when it loses a path comparison (`Comparison`): a probe on another path is
//! answered, and this path's probes, sent no later, are not. If no path answers, the peer is silent
//! and nothing is requeued.

use crate::base::config::Config;
use crate::base::config::Delivery;
use crate::base::stats::PathStats;
use crate::base::types::PathState;
use crate::state::acks_owed::AcksOwed;
use crate::state::address_validation::AddressValidation;
use crate::state::congestion::{Congestion, CWND_FLOOR};
use crate::state::health::Health;
use crate::state::health_table::Input;
use crate::state::link::PathLink;
use crate::state::loss_detector::LossDetector;
use crate::state::mtu_search::MtuSearch;
use crate::state::probing::Probing;
use crate::state::pto_timer::PtoTimer;
use crate::state::round_trip::RoundTrip;
use crate::state::sent_packets::{SendRing, Sent};
use marline_wire::{path_code, RailAddr};

/// Up to this many packets in flight do not queue behind each other.
pub(crate) const FEW_PACKETS: u32 = 4;
/// Bound of the first retransmission interval, whatever the round trips: no MPI network is slower,
/// and longer samples mean a descheduled peer (which may answer after a second or more).
pub(crate) const PTO_INITIAL_MAX_NS: u64 = 100_000_000;

/// How a path is treated, fixed by its rail's delivery guarantees when the path is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The path carries nothing while a path of a lower tier works.
    pub tier: u8,
    /// The path loses packets while it works: late packets are retransmitted, and a congestion
    /// window bounds those in flight. On other paths packets wait as long as the path is up.
    pub lossy: bool,
    /// Packets may be reordered.
    pub unordered: bool,
    /// The packet size is to be probed.
    pub sized: bool,
    /// Data counts as arrived once it has left.
    pub native: bool,
    /// The rail of the same port whose long messages the path carries: that rail's paths carry
    /// short ones.
    pub bulk_of: Option<u8>,
}

impl Policy {
    /// The policy for a rail's guarantees. `native`: without software reliability.
    pub fn new(tier: u8, delivery: Delivery, native: bool) -> Policy {
        Policy {
            tier,
            lossy: !delivery.lossless,
            unordered: !delivery.ordered,
            sized: !delivery.fixed_mtu,
            native,
            bulk_of: None,
        }
    }
}

/// A local rail as a parameter of new paths.
#[derive(Clone, Copy, Debug)]
pub struct LocalRail {
    pub datagram_max: usize,
    pub policy: Policy,
}

/// A path.
#[derive(Debug)]
pub struct Path {
    pub local: u8,
    pub policy: Policy,
    pub to: RailAddr,
    pub mtu: MtuSearch,
    pub ring: SendRing,
    pub acks: AcksOwed,
    pub stats: PathStats,
    pub rtt: RoundTrip,
    pub congestion: Congestion,
    pub pto: PtoTimer,
    pub loss: LossDetector,
    pub probing: Probing,
    pub health: Health,
    pub link: PathLink,
    pub validation: AddressValidation,
}

impl Path {
    /// Bytes of the path with its windows.
    pub fn bytes(&self) -> usize {
        let windows = self.ring.heap_bytes() + self.acks.heap_bytes();
        size_of::<Path>() + windows + self.loss.heap_bytes()
    }

    pub fn new(local: u8, rail: &LocalRail, to: RailAddr) -> Path {
        let ceiling = rail.datagram_max.min(to.datagram_max as usize);
        let policy = rail.policy;
        Path {
            local,
            policy,
            to,
            mtu: match policy.sized {
                true => MtuSearch::new(ceiling),
                false => MtuSearch::fixed(ceiling),
            },
            ring: SendRing::default(),
            acks: AcksOwed::default(),
            stats: PathStats::default(),
            rtt: RoundTrip::default(),
            congestion: Congestion::new(policy.lossy),
            pto: PtoTimer::default(),
            loss: LossDetector::new(policy.unordered, policy.native),
            probing: Probing::default(),
            health: Health::default(),
            link: PathLink::new(false),
            validation: AddressValidation::default(),
        }
    }

    /// True if packets are not retransmitted by time: the rail is reliable, and loses packets only
    /// when the path fails. (An unproven path may lead nowhere, so its packets are.)
    #[inline]
    pub fn waits(&self) -> bool {
        !self.policy.lossy && self.is_proven()
    }

    /// Value of `Header::path` in outgoing packets.
    pub fn send_code(&self) -> u16 {
        path_code(self.local, self.to.index)
    }

    /// Value of `Header::path` in incoming packets.
    pub fn recv_code(&self) -> u16 {
        path_code(self.to.index, self.local)
    }

    /// True if the path uses this link of a local rail.
    #[inline]
    pub fn is_on(&self, rail: usize, link: u32) -> bool {
        self.local as usize == rail && self.link.id == Some(link)
    }

    /// The state as shown to the owner.
    #[inline]
    pub(crate) fn state(&self) -> PathState {
        self.health.state()
    }

    /// True if nothing leaves on the path: its rail is down, or its link is not up.
    #[inline]
    pub(crate) fn rail_down(&self) -> bool {
        self.health.rail_down()
    }

    /// True if the peer ever answered on the path.
    pub fn is_proven(&self) -> bool {
        self.health.is_proven()
    }

    /// The largest datagram that may leave.
    #[inline]
    pub(crate) fn datagram_max(&self) -> usize {
        self.mtu.datagram_max().min(self.validation.left())
    }

    /// True if the congestion window takes another packet.
    #[inline]
    pub(crate) fn window_has_room(&self) -> bool {
        self.congestion.has_room(self.ring.in_flight())
    }

    /// True if the path's rail has room (bit n of `full`: rail n has none), and the path's address
    /// is validated or may get more bytes.
    #[inline]
    pub fn has_room(&self, full: u32) -> bool {
        full >> self.local & 1 == 0 && !self.validation.is_blocked()
    }

    /// True if a size probe leaves next. (An address that is not validated gets none.)
    pub(crate) fn sends_size_probe(&self, full: u32) -> bool {
        let wants = self.mtu.wants_probe() && !self.validation.is_pending();
        wants && !self.rail_down() && self.has_room(full)
    }

    /// True if the path is proven and not down (its rail may be down at the moment).
    pub fn carries(&self) -> bool {
        self.health.carries()
    }

    /// True if the path carries its own acks.
    #[inline]
    pub fn healthy(&self) -> bool {
        self.health.is_healthy()
    }

    /// True if acks should take a healthy path, if there is one, because this path may not carry
    /// them. (An unproven path carries its acks until the peer probes again.)
    #[inline]
    pub fn left_by_acks(&self) -> bool {
        let doubted = match self.state() {
            PathState::Up => false,
            PathState::Unproven => self.probing.is_asked_again(),
            PathState::Suspect | PathState::Down => true,
        };
        self.health.rail_down() || doubted
    }

    /// True if the path may carry data.
    #[inline]
    pub fn usable(&self) -> bool {
        self.health.is_usable()
    }

    /// True if delivery on the path is doubtful: packets in flight were retransmitted twice.
    #[inline]
    pub fn doubtful(&self) -> bool {
        self.state() == PathState::Suspect || self.pto.is_doubtful()
    }

    /// Time without an ack after which a reliable path is probed: before that its rail may be
    /// retransmitting.
    pub fn stall_ns(&self, cfg: &Config) -> u64 {
        self.rtt.four_ns().clamp(cfg.pto_cap_ns, PTO_INITIAL_MAX_NS)
    }

    /// Time in which a running peer answers.
    #[inline]
    pub(crate) fn answer_ns(&self, cfg: &Config) -> u64 {
        // Descheduled peers stretch the mean, and a waiting message should not wait for that mean.
        // If round trips are long but even, the cause is a queue at the peer in which acks wait.
        // (Bounded by two windows: round trips are even, too, if a fault delays all packets to a
        // retransmission.)
        let queue_ns = match self.rtt.is_even() {
            true => (self.rtt.with_variation_ns()).min(self.congestion.takes_ns(2 * CWND_FLOOR)),
            false => 0,
        };
        self.rtt.four_unqueued_ns(queue_ns).max(cfg.pto_floor_ns)
    }

    /// Time in which the next ack may come, at the measured rate: with a deep queue to a slow rail,
    /// late packets are not lost. The ack may wait in such a queue at the peer, which shows in the
    /// round trip.
    #[inline]
    pub(crate) fn queued_ns(&self) -> u64 {
        let ours = self.congestion.takes_ns(self.ring.in_flight());
        ours.max(self.rtt.four_ns())
            .min(self.congestion.takes_ns(CWND_FLOOR))
    }

    /// Time to drain the bytes in flight; no packet is late before that.
    #[inline]
    pub(crate) fn drains_ns(&self) -> u64 {
        self.congestion.drains_ns(self.ring.in_flight())
    }

    /// Adds a round-trip sample.
    pub fn on_rtt(&mut self, rtt_ns: u64, now: u64) {
        self.rtt.on_sample(rtt_ns, now);
        self.stats.srtt_ns = self.rtt.srtt_ns();
    }

    /// Adds a delivery-rate sample, from the ack of packet `sent`.
    pub(crate) fn on_rate(&mut self, sent: &Sent, now: u64) {
        let in_flight = self.ring.in_flight();
        if self.congestion.on_sample(sent, in_flight, &self.rtt, now) {
            self.stats.bytes_per_s = self.congestion.rate_bytes_per_s();
            if self.congestion.is_bounded() {
                self.stats.window_bytes = self.congestion.cwnd();
            }
        }
    }

    /// Takes the path down. The path returns after a hold time of at most `hold_down_max_ns` (flap
    /// damping).
    pub(crate) fn fall(&mut self, now: u64, hold_down_max_ns: u64, input: Input) {
        let hold_ns = self.health.on_failure(now, hold_down_max_ns, input);
        self.pto.reset();
        self.probing.restart(now, hold_ns);
        self.congestion.on_down();
        self.stats.failovers += 1;
    }

    /// Brings the path up after it answered a probe.
    pub(crate) fn bring_up(&mut self, now: u64, input: Input) {
        if self.state() == PathState::Down {
            self.stats.returns += 1;
            self.mtu.suspect_black_hole_sooner();
        }
        self.health.on_up(now, input);
        self.pto.on_up();
        self.probing.on_up();
    }

    /// Notes an ack with news on the path; returns true if the path was suspect.
    #[inline]
    pub(crate) fn on_progress(&mut self, now: u64) -> bool {
        self.pto.on_ack(now);
        self.health.on_ack()
    }
}
