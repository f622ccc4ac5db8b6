//! One path: my rail to the peer's rail. Round-trip time, congestion window, health.
//!
//! Two clocks (design section 5). *Repair*: a timer of max(4 SRTT, floor), doubling, sends one
//! packet per expiry, on the best other path. *Health* is relative: a path goes down on an error
//! of its rail, or when, in a *duel*, a probe on another path is answered and this path's
//! probes, sent no later, are not. If no path answers, the peer is silent and nothing moves.

use crate::base::config::Config;
use crate::base::config::Delivery;
use crate::base::stats::PathStats;
use crate::base::types::PathState;
use crate::state::damage::{Damage, Quarantine};
use crate::state::given_up::GivenUp;
use crate::state::latency::Latency;
use crate::state::link::PathLink;
use crate::state::recv_window::RecvWindow;
use crate::state::sent_packets::{Delivered, SendRing};
use crate::state::sizes::{Sizes, DATAGRAM_BASE};
use core::num::NonZeroU64;
use marline_wire::{path_code, RailAddr};

/// Packets that may overtake another before it counts as lost without regard to time: more than a
/// super-packet, because a sender that moves to another core can have one overtaken as a whole.
pub const REORDER_START: u64 = 64;
/// The same where packets keep their order: the next one that arrives shows that one is missing.
const REORDER_NONE: u64 = 1;

/// With no more packets than this under way, they do not queue behind each other.
pub(crate) const FEW_PACKETS: u32 = 4;
/// The first repair comes no later than this, whatever round trips were: no network that MPI runs
/// on takes so long, and what looked like it was a peer that was off its processor (of which an
/// answer can tell a second and more).
pub(crate) const REPAIR_START_MAX_NS: u64 = 100_000_000;

/// The mean rate of a busy path is one over about so long.
const BUSY_MEMORY_NS: u64 = 2_000_000;
/// Less than this between a packet and its ack was no deep queue, and tells how long the peer took.
const BUSY_BYTES_MIN: u64 = CWND_FLOOR / 2;
/// Queues make nothing later than this: a mean rate that low is a peer's absence.
const QUEUED_MAX_NS: u64 = 30_000_000;

pub(crate) const NS_PER_S: u64 = 1_000_000_000;

/// Floor of the congestion window: two super-packets (design rule 5).
pub const CWND_FLOOR: u64 = 128_000;
const CWND_CAP: u64 = 64 << 20;
/// Round trip at least assumed for the window: on a loopback-like path batching, not wire, is the
/// delay; and as long as nothing was lost for a second, far more.
const RTT_FLOOR_NS: u64 = 50_000;
const RTT_ROOM_NS: u64 = 500_000;
/// Less than this between a packet and its ack (probes, small messages) tells what was asked of a
/// path and not what it can carry: one that came back would never get its chance. So after a fall
/// only more than this counts, for the first time.
pub(crate) const RATE_BYTES_MIN: u64 = 16_000;
/// A loss makes the window strict for so long.
pub const STRICT_NS: u64 = 1_000_000_000;
/// A path that fell gets its hold time doubled each time, from 1 ms up to this (flap damping).
const HOLD_MIN_NS: u32 = 1_000_000;
const HOLD_CAP_NS: u64 = 1_000_000_000;
/// Up for so long: the damping is forgotten.
const HOLD_FORGET_NS: u64 = 10_000_000_000;

/// A running comparison with another path.
#[derive(Clone, Copy, Debug)]
pub struct Duel {
    /// When its probes left.
    pub started_ns: u64,
    /// When the other path answered a packet sent after the start.
    pub answered_ns: Option<NonZeroU64>,
    /// We were away ourselves meanwhile, and gave the path another round for that.
    pub patient: bool,
    /// The first round shows that the peer is awake, the second that this path is not: a peer
    /// that wakes up reads one socket before the other.
    pub second: bool,
    /// Something waited at the start that was written past packets.
    pub written: bool,
    /// The peer may write a long part of a message on it.
    pub expects: bool,
    /// Bytes that had come on the path when this round began, counted in a circle.
    pub came: u32,
    /// Bytes that may still come on it before its answer.
    pub before: u32,
}

/// How writes on a path went lately.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteLuck {
    pub strikes: u8,
    pub skips: u8,
}

/// The treatment of a path, decided once, when it is made, by what its rail promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Packets get lost while the path works. So what is not acknowledged in time is sent again,
    /// and a congestion window bounds what is under way. Else it waits as long as the path does.
    pub lossy: bool,
    /// Packets may overtake each other.
    pub unordered: bool,
    /// The size of packets is to be found out.
    pub sized: bool,
    /// Data that left counts as arrived.
    pub native: bool,
}

impl Policy {
    /// The treatment that a rail with this promise wants. `native`: without software reliability.
    pub fn new(delivery: Delivery, native: bool) -> Policy {
        Policy {
            lossy: !delivery.lossless,
            unordered: !delivery.ordered,
            sized: !delivery.fixed_mtu,
            native,
        }
    }
}

/// A local rail as paths are made from it.
#[derive(Clone, Copy, Debug)]
pub struct LocalRail {
    pub datagram_max: usize,
    pub tier: u8,
    pub policy: Policy,
}

/// One path.
#[derive(Debug)]
pub struct Path {
    pub local: u8,
    pub policy: Policy,
    /// While a path of a lower tier works this one carries nothing for its peer.
    pub tier: u8,
    pub to: RailAddr,
    /// By which what is sent leaves: each number has a source port of its own where the rail has no
    /// connections, and after the last one the first follows.
    pub flow: u8,
    pub write_luck: WriteLuck,
    pub state: PathState,
    pub datagram_max: usize,
    pub sizes: Sizes,
    pub ring: SendRing,
    pub native: crate::state::native::OfPath,
    pub window: RecvWindow,
    pub stats: PathStats,
    pub srtt_ns: u64,
    pub rttvar_ns: u64,
    pub latency: Latency,
    pub(crate) min_rtt_ns: u64,
    pub(crate) min_rtt_at: u64,
    pub delivered: Delivered,
    /// Best delivery rate (bytes/s) of this half window and of the one before.
    pub(crate) rate: [u64; 2],
    pub(crate) rate_since: u64,
    /// Mean delivery rate of late while it had more to do, in KiB/s; 0: not known.
    busy_kib_per_s: u32,
    /// Given up since its rate was measured.
    pub(crate) fell: bool,
    pub cwnd: u64,
    /// Something was lost lately: no generous window before this.
    pub strict_until: u64,
    /// Start of the running repair interval: oldest send or last ack progress.
    pub repair_from: u64,
    /// The interval in which it was asked whether the peer is there; of a path that loses nothing,
    /// when that was.
    pub asked_from: u64,
    /// A packet that was sent again, of which nobody knows yet whether that was needless.
    pub repaired: Option<u64>,
    pub backoff: u16,
    /// So often some of what waits on it was repeated on others, since anything was acknowledged.
    pub hedges: u8,
    pub reorder: u64,
    pub(crate) given_up: GivenUp,
    pub duel: Option<Duel>,
    pub largest_acked: u64,
    pub acked_any: bool,
    /// Send times of the newest packet that was acknowledged.
    pub newest_acked_sent_ns: u64,
    /// Its bytes, of a write those of one datagram.
    pub newest_acked_bytes: usize,
    /// When to probe next (down or unproven paths), and the interval.
    pub probe_at: u64,
    pub probe_every: u64,
    pub(crate) hold_ns: u32,
    pub up_since: u64,
    /// An ack is owed: since when, and whether at once.
    pub ack_since: u64,
    pub ack_now: bool,
    /// It is to say once more what another path has said of packets that arrived.
    pub echo: bool,
    /// Nothing leaves on it: its rail is down, or its link is not up.
    pub rail_down: bool,
    pub link: PathLink,
    /// Probes to send at the next transmit: plain, padded.
    pub want_ping: bool,
    pub want_padded: bool,
    /// Probes that arrived since something of ours was acknowledged.
    pub asked: u8,
    /// Packets sent in a row that wanted no ack.
    pub quiet: u8,
    /// So often it was asked since the peer was heard, which was then.
    pub unheard: u8,
    pub unheard_since_ns: u64,
    /// The peer's host refused a packet on it since the peer was heard (see `Refusals`).
    pub refused: bool,
    /// Damaged packets that arrived on it.
    pub damage: Damage,
    /// It was left because what we send arrives damaged.
    pub quarantine: Quarantine,
}

impl Path {
    /// Bytes of the path with its windows.
    pub fn bytes(&self) -> usize {
        let windows = self.ring.heap_bytes() + self.window.heap_bytes();
        size_of::<Path>() + windows + self.given_up.heap_bytes()
    }

    pub fn new(local: u8, rail: &LocalRail, to: RailAddr) -> Path {
        let ceiling = rail.datagram_max.min(to.datagram_max as usize);
        let policy = rail.policy;
        Path {
            local,
            policy,
            tier: rail.tier,
            to,
            flow: 0,
            write_luck: WriteLuck::default(),
            state: PathState::Unproven,
            datagram_max: match policy.sized {
                true => DATAGRAM_BASE.min(ceiling),
                false => ceiling,
            },
            sizes: match policy.sized {
                true => Sizes::new(ceiling),
                false => Sizes::fixed(ceiling),
            },
            ring: SendRing::default(),
            native: policy.native.then(Default::default),
            window: RecvWindow::default(),
            stats: PathStats::default(),
            srtt_ns: 0,
            rttvar_ns: 0,
            latency: Latency::default(),
            min_rtt_ns: u64::MAX,
            min_rtt_at: 0,
            delivered: Delivered::default(),
            rate: [0; 2],
            rate_since: 0,
            busy_kib_per_s: 0,
            fell: false,
            cwnd: match policy.lossy {
                true => CWND_FLOOR,
                false => u64::MAX,
            },
            strict_until: 0,
            repair_from: 0,
            asked_from: u64::MAX,
            repaired: None,
            backoff: 0,
            hedges: 0,
            reorder: [REORDER_NONE, REORDER_START][policy.unordered as usize],
            given_up: GivenUp::default(),
            duel: None,
            largest_acked: 0,
            acked_any: false,
            newest_acked_sent_ns: 0,
            newest_acked_bytes: 0,
            probe_at: 0,
            probe_every: 1_000_000,
            hold_ns: HOLD_MIN_NS,
            up_since: 0,
            ack_since: 0,
            ack_now: false,
            echo: false,
            rail_down: false,
            link: PathLink::new(false),
            want_ping: false,
            want_padded: false,
            asked: 0,
            quiet: 0,
            unheard: 0,
            unheard_since_ns: 0,
            refused: false,
            damage: Damage::default(),
            quarantine: Quarantine::default(),
        }
    }

    /// Nothing on it is sent again for time alone: what was sent waits in the rail, which loses it
    /// only with the path. (Whether there is a path at all, its first answer shows.)
    #[inline]
    pub fn waits(&self) -> bool {
        !self.policy.lossy && self.is_proven()
    }

    /// A timer expired in vain once more. Far beyond what anything asks for, the count goes on in a
    /// circle, since every fourth expiry does more than others.
    pub(crate) fn back_off(&mut self) {
        self.backoff = self.backoff.checked_add(1).unwrap_or(u16::MAX / 2);
    }

    /// `Header::path` of packets that I send on it.
    pub fn send_code(&self) -> u16 {
        path_code(self.local, self.to.index)
    }

    /// `Header::path` of packets that I receive on it.
    pub fn recv_code(&self) -> u16 {
        path_code(self.to.index, self.local)
    }

    /// True if it uses this link of a local rail.
    #[inline]
    pub fn is_on(&self, rail: usize, link: u32) -> bool {
        self.local as usize == rail && self.link.id == Some(link)
    }

    /// The peer answered on it once.
    pub fn is_proven(&self) -> bool {
        self.state != PathState::Unproven
    }

    /// Its rail is not among those that have no room (bit n: rail n).
    #[inline]
    pub fn has_room(&self, full: u32) -> bool {
        full >> self.local & 1 == 0
    }

    /// Proven and not given up (its rail may be down at the moment).
    pub fn carries(&self) -> bool {
        matches!(self.state, PathState::Up | PathState::Suspect)
    }

    /// Carries its own acks.
    #[inline]
    pub fn healthy(&self) -> bool {
        !self.rail_down && self.state == PathState::Up
    }

    /// It is in doubt whether it carries acks: if there is a healthy path, they go there. (One that
    /// was never proven carries them until the peer asks again.)
    #[inline]
    pub fn left_by_acks(&self) -> bool {
        let doubted = match self.state {
            PathState::Up => false,
            PathState::Unproven => self.asked > 1,
            PathState::Suspect | PathState::Down => true,
        };
        self.rail_down || doubted
    }

    /// Carries data if anything does.
    #[inline]
    pub fn usable(&self) -> bool {
        !self.rail_down && self.carries()
    }

    /// Returns whether it is in doubt that what is sent on it arrives: something waits that was
    /// repaired twice.
    #[inline]
    pub fn doubtful(&self) -> bool {
        self.state == PathState::Suspect || self.backoff >= 2
    }

    /// A path that loses nothing is asked whether it works once nothing was acknowledged on it for
    /// so long: the rail may be repeating what the network lost.
    pub fn stall_ns(&self, cfg: &Config) -> u64 {
        (4 * self.srtt_ns).clamp(cfg.repair_cap_ns, REPAIR_START_MAX_NS)
    }

    /// Within this a peer answers that is on its processor.
    #[inline]
    pub(crate) fn answer_ns(&self, cfg: &Config) -> u64 {
        // What stretched the mean was a peer off its processor, and a message that waits should
        // not wait for that mean.
        // Where round trips are long and alike, it was the peer's queue, in which acks wait. (No
        // longer than that: what is late for a fault comes with a repair, and is alike as well.)
        let queue_ns = match 2 * self.rttvar_ns <= self.srtt_ns {
            true => (self.srtt_ns + 4 * self.rttvar_ns).min(self.takes_ns(2 * CWND_FLOOR)),
            false => 0,
        };
        (4 * self.srtt_ns)
            .min(self.min_rtt_ns.saturating_mul(16).max(queue_ns))
            .max(cfg.repair_floor_ns)
    }

    /// Time that the path may need for what is before the next ack, by the rate that it has shown:
    /// as a queue on the way to a slow rail may be deep, what is late there is not lost. The ack
    /// may wait in such a queue of the peer's, of which round trips tell.
    #[inline]
    pub(crate) fn queued_ns(&self) -> u64 {
        let ours = self.takes_ns(self.ring.in_flight());
        ours.max(4 * self.srtt_ns).min(self.takes_ns(CWND_FLOOR))
    }

    /// Time that what is under way takes before the next ack, by the mean rate of late: nothing is
    /// late before that on a slow path. Few and short packets take none.
    pub(crate) fn drains_ns(&self) -> u64 {
        match self.ring.in_flight() {
            ..RATE_BYTES_MIN => 0,
            bytes => self.takes_ns(bytes.min(CWND_FLOOR)),
        }
    }

    /// The same of so many bytes; 0 before there was a rate.
    pub(crate) fn takes_ns(&self, bytes: u64) -> u64 {
        match self.busy_bytes_per_s() {
            0 => 0,
            rate => product_over(bytes, NS_PER_S, rate).min(QUEUED_MAX_NS),
        }
    }

    /// The mean rate of late in bytes/s, 0 before there was one.
    pub(crate) fn busy_bytes_per_s(&self) -> u64 {
        u64::from(self.busy_kib_per_s) << 10
    }

    /// Takes a round-trip sample.
    pub fn on_rtt(&mut self, rtt_ns: u64, now: u64) {
        let rtt = rtt_ns.max(1);
        if self.srtt_ns == 0 {
            self.srtt_ns = rtt;
            self.rttvar_ns = rtt / 2;
        } else {
            let err = self.srtt_ns.abs_diff(rtt);
            self.rttvar_ns = (3 * self.rttvar_ns + err) / 4;
            self.srtt_ns = (7 * self.srtt_ns + rtt) / 8;
        }
        // A ten-second window, so that a changed route is learnt.
        if rtt < self.min_rtt_ns || now.saturating_sub(self.min_rtt_at) > 10_000_000_000 {
            self.min_rtt_ns = rtt;
            self.min_rtt_at = now;
        }
        self.latency.take(rtt, now);
        self.stats.srtt_ns = self.srtt_ns;
    }

    /// Takes a delivery-rate sample (bytes acknowledged since the packet left, over the time since
    /// the acknowledgement before it: acks come in clumps, and one that was due when the packet
    /// left does not count for it) and sets the window to 2 x rate x min RTT (rule 5).
    pub fn on_rate(&mut self, bytes: u64, elapsed_ns: u64, now: u64) {
        if self.fell && bytes < RATE_BYTES_MIN {
            return;
        }
        self.fell = false;
        let rate = product_over(bytes, NS_PER_S, elapsed_ns.max(1_000));
        if now.saturating_sub(self.rate_since) > 20 * self.srtt_ns.max(500_000) {
            self.rate = [rate, self.rate[0]];
            self.rate_since = now;
        }
        self.rate[0] = self.rate[0].max(rate);
        if self.ring.in_flight() > 0 && bytes >= BUSY_BYTES_MIN {
            self.on_busy(bytes, elapsed_ns);
        }
        if self.policy.lossy && self.min_rtt_ns != u64::MAX {
            // A path that loses nothing may keep a peer's slice-long absence in flight (grants
            // bound it, too); one that does is held to what it carries.
            let floor = if now < self.strict_until {
                RTT_FLOOR_NS
            } else {
                RTT_ROOM_NS
            };
            let rtt = self.min_rtt_ns.max(floor);
            // (Half of the best on average is nothing unusual; less is what a burst was.)
            let rate = match self.busy_bytes_per_s() {
                0 => self.rate_bytes_per_s(),
                busy => self.rate_bytes_per_s().min(2 * busy),
            };
            let window = product_over(2 * rate, rtt, NS_PER_S);
            self.cwnd = window.clamp(CWND_FLOOR, CWND_CAP);
            self.stats.window_bytes = self.cwnd;
        }
        self.stats.bytes_per_s = self.rate_bytes_per_s();
    }

    /// So much was delivered in this time, and more is under way: the path's rate and not that of
    /// its sender. The mean is one over time, so that a burst which a bucket of tokens lets pass
    /// counts for little.
    fn on_busy(&mut self, bytes: u64, elapsed_ns: u64) {
        let before = match self.busy_bytes_per_s() {
            0 => 0,
            rate => product_over(rate, BUSY_MEMORY_NS, NS_PER_S),
        };
        let memory_ns = if before == 0 { 0 } else { BUSY_MEMORY_NS };
        let mean = product_over(
            before + bytes,
            NS_PER_S,
            (memory_ns + elapsed_ns).max(1_000),
        );
        self.busy_kib_per_s = (mean >> 10).clamp(1, u32::MAX.into()) as u32;
    }

    /// Best recent delivery rate in bytes/s, 0 before the first sample.
    pub fn rate_bytes_per_s(&self) -> u64 {
        self.rate[0].max(self.rate[1])
    }

    /// The path fell; when it may come back is damped, by `hold_max_ns` at most.
    pub fn fall(&mut self, now: u64, hold_max_ns: u64) {
        if now.saturating_sub(self.up_since) > HOLD_FORGET_NS {
            self.hold_ns = HOLD_MIN_NS;
        } else {
            let hold_ns = 2 * u64::from(self.hold_ns);
            self.hold_ns = hold_ns.min(HOLD_CAP_NS).min(hold_max_ns) as u32;
        }
        self.state = PathState::Down;
        self.duel = None;
        (self.backoff, self.hedges) = (0, 0);
        self.probe_every = self.hold_ns.into();
        self.probe_at = now + self.probe_every;
        self.rate = [0; 2];
        self.fell = true;
        if self.policy.lossy {
            self.cwnd = CWND_FLOOR;
        }
        self.stats.failovers += 1;
    }

    /// It answered a probe.
    pub fn rise(&mut self, now: u64) {
        if self.state == PathState::Down {
            self.stats.returns += 1;
            self.doubt_sooner();
        }
        self.state = PathState::Up;
        self.up_since = now;
        self.backoff = 0;
        self.duel = None;
        self.probe_every = 1_000_000;
    }

    /// Something on it was acknowledged: it works. `true`: that was in doubt.
    #[inline]
    pub fn on_progress(&mut self, now: u64) -> bool {
        (self.backoff, self.hedges) = (0, 0);
        self.duel = None;
        self.repair_from = now;
        let suspect = self.state == PathState::Suspect;
        if suspect {
            self.state = PathState::Up;
        }
        suspect
    }
}

/// `a * b / c`. Almost always the product fits in 64 bits, where a division costs a third.
pub(crate) fn product_over(a: u64, b: u64, c: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product / c,
        None => (a as u128 * b as u128 / c as u128) as u64,
    }
}
