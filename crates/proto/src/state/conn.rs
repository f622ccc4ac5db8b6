//! The connection to a peer: its parts and its paths.

use crate::base::config::{Config, RailPolicy, MESSAGE_OVERHEAD};
use crate::base::stats::PeerStats;
use crate::base::types::{PathState, PeerId};
use crate::state::credit::Credit;
use crate::state::latency::{ALIKE_SHARE, LONE_BYTES};
use crate::state::path::{LocalRail, Path};
use crate::state::resends::Why;
use crate::state::session::{ByeState, Liveness, Reachability, Refusals, Session};
use crate::state::sides::{ReceiveSide, SendSide};
use crate::state::uptime::Uptime;
use alloc::boxed::Box;
use alloc::vec::Vec;
use marline_wire::{path_code, RailAddr, RAILS_MAX};

/// Most paths of first contact, which lead to the rails in an address; the remaining paths are for
/// the rails that HELLO names.
pub const FIRST_PATHS: usize = 8;
/// Number of paths from which on their codes are listed separately, so that a lookup does not touch
/// each path. Nearly all peers have fewer paths and no list.
const CODES_FROM: usize = 24;

/// The connection to one peer.
#[derive(Debug)]
pub struct Conn {
    pub peer: PeerId,
    pub session: Session,
    pub bye: ByeState,
    pub life: Liveness,
    pub reachability: Reachability,
    pub refusals: Refusals,
    pub credit: Credit,
    pub tx: SendSide,
    pub rx: ReceiveSide,
    pub listed: Listed,
    pub paths: Vec<Path>,
    /// Codes of the paths, in order, if there are at least [`CODES_FROM`].
    codes: Option<Box<Codes>>,
    /// More data was queued than one packet takes, so probing the packet size pays.
    pub wide: bool,
    /// All paths corrupt packets: no path is isolated before this time.
    pub all_corrupt_until: u64,
    pub stats: PeerStats,
}

/// Codes of paths. (Boxed: most connections have none, and then need a pointer only.)
#[derive(Debug, Default)]
struct Codes(Vec<u16>);

/// The connection's place in the node's lists of peers: with packets to send, waiting for room,
/// with memory to reclaim, and with deadlines.
#[derive(Debug)]
pub struct Listed {
    pub ready: bool,
    pub stalled: bool,
    pub oversized: bool,
    pub armed: u64,
}

impl Conn {
    pub fn new(peer: PeerId) -> Conn {
        Conn {
            peer,
            session: Session::default(),
            bye: ByeState::default(),
            life: Liveness::default(),
            reachability: Reachability::default(),
            refusals: Refusals::default(),
            credit: Credit::default(),
            tx: SendSide::default(),
            rx: ReceiveSide::default(),
            listed: Listed {
                ready: false,
                stalled: false,
                oversized: false,
                armed: u64::MAX,
            },
            paths: Vec::new(),
            codes: None,
            wide: false,
            all_corrupt_until: 0,
            stats: PeerStats::default(),
        }
    }

    /// True if the peer's credit covered all messages up to this number: each message that has not
    /// arrived has used at least the overhead.
    pub(crate) fn had_credit_for(&self, number: u64) -> bool {
        let missing = self.credit.outstanding() / MESSAGE_OVERHEAD;
        number < self.rx.next_match + self.rx.inbound.len() as u64 + missing
    }

    /// Bytes of the connection with its queues and paths.
    pub fn bytes(&self) -> usize {
        let paths: usize = self.paths.iter().map(Path::bytes).sum();
        let spare = (self.paths.capacity() - self.paths.len()) * size_of::<Path>();
        let codes = self.codes.as_ref();
        let codes = codes.map_or(0, |c| {
            size_of::<Codes>() + c.0.capacity() * size_of::<u16>()
        });
        let sides = self.tx.heap_bytes() + self.rx.heap_bytes();
        size_of::<Conn>() + sides + codes + paths + spare
    }

    /// Path for small packets: the healthy path with the least latency, else the best other path.
    /// Rails in `full` have no room (bit n: rail n). `None`: usable paths exist but have no room.
    pub fn small_path(&self, avoid: Option<u16>, standby: bool, full: u32) -> Option<usize> {
        let healthy_on = |rail| self.paths.iter().any(|p| p.local == rail && p.healthy());
        let rank = |p: &Path| {
            let class = match p.state() {
                PathState::Up => 0,
                PathState::Suspect => 1,
                PathState::Unproven => 2,
                PathState::Down => 3,
            };
            let avoided = avoid == Some(p.send_code());
            (
                p.rail_down(),
                avoided && class < 3,
                class,
                p.pto.backoff() > 0 && class == 2,
                p.policy.tier,
                p.policy.bulk_of.is_some_and(healthy_on),
            )
        };
        let free = |p: &Path| p.link.up && p.has_room(full);
        let mut best = None;
        for (at, path) in self.paths.iter().enumerate().filter(|(_, p)| free(p)) {
            let takes_ns = if standby { 0 } else { takes_short_ns(path) };
            let (rank, alike_ns) = (rank(path), takes_ns + takes_ns / ALIKE_SHARE);
            if best.is_none_or(|(r, ns, _)| rank < r || rank == r && alike_ns < ns) {
                best = Some((rank, takes_ns, at));
            }
        }
        let (_, _, at) = best?;
        let better = |p: &Path| p.usable() && !p.has_room(full);
        let waits = full != 0 && avoid.is_none() && !self.paths[at].usable();
        (!waits || !self.paths.iter().any(better)).then_some(at)
    }

    /// Probes the other healthy paths of this path's tier for their round trips, if that is due.
    pub fn compare(&mut self, at: usize, now: u64) {
        if self.paths.len() < 2 || !self.paths[at].rtt.is_to_compare(now) {
            return;
        }
        let tier = self.paths[at].policy.tier;
        let others = self.paths.iter_mut().enumerate().filter(|(i, _)| *i != at);
        for (_, path) in others.filter(|(_, p)| p.healthy() && p.policy.tier == tier) {
            path.probing.request_if(path.ring.waiting() == 0);
        }
    }

    /// True if the acks of path `at` wait for a rail without room.
    pub fn holds_acks(&self, at: usize, policy: RailPolicy, full: u32) -> bool {
        let path = &self.paths[at];
        let standby = policy == RailPolicy::Standby;
        if path.healthy() {
            return !path.has_room(full);
        }
        // Healthy paths carry the due acks of all paths.
        let mut healthy = self.paths.iter().filter(|p| p.healthy()).peekable();
        match healthy.peek().is_some() {
            true => !healthy.any(|p| p.has_room(full)),
            false => self.small_path(None, standby, full).is_none(),
        }
    }

    /// Probes a peer that was neither heard nor probed recently; otherwise returns `None`.
    /// `Some(false)`: no path takes the probe. `full`: rails without room.
    pub(crate) fn ask(&mut self, now: u64, cfg: &Config, full: u32) -> Option<bool> {
        let every = cfg.keepalive_interval_ns();
        let last = self.life.heard_ns.max(self.life.pinged_ns);
        if self.session.closed || now < last + every {
            return None;
        }
        self.life.pinged_ns = now;
        // The peer's silence counts from its last packet if that is recent, but from this probe if
        // the peer was never heard.
        let since = match self.life.heard_ns {
            0 => now,
            _ => last.max(now.saturating_sub(2 * every)),
        };
        self.life.owed_since.get_or_insert(since);
        let free = self.small_path(None, false, full);
        let at = free.or_else(|| self.small_path(None, false, 0));
        if let Some(at) = at {
            self.paths[at].probing.request();
        }
        Some(at.is_some())
    }

    /// Handles a duplicate fragment on path `at`: our ack may have been lost on a path that carries
    /// only one direction. Probes the other paths to find out.
    pub fn note_duplicate(&mut self, at: usize) {
        self.stats.duplicates += 1;
        for (i, path) in self.paths.iter_mut().enumerate() {
            path.probing
                .request_if(i != at && path.usable() && path.ring.waiting() == 0);
        }
    }

    /// Packets in flight on all paths.
    pub fn waiting(&self) -> u32 {
        self.paths.iter().map(|p| p.ring.waiting()).sum()
    }

    /// True if the peer owes an answer: packets are in flight on a path that should bring acks.
    /// Probes of paths that are down or unproven do not count.
    pub fn owes(&self) -> bool {
        let (mut linked, mut usable, mut waits, mut carried) = (false, false, false, false);
        for path in &self.paths {
            linked |= path.link.up;
            usable |= path.usable();
            if path.ring.waiting() > 0 {
                waits = true;
                carried |= path.carries();
            }
        }
        // No rail reaches the peer, or all links are down: queued and requeued frames cannot leave.
        if !linked {
            return self.watched() || !self.tx.resend.is_empty();
        }
        // The last path is never given up, even if its rail is down.
        carried || (waits && !usable)
    }

    /// True if an operation waits for the peer to send something: a posted receive that names the
    /// peer, an incoming message, a read, a send that waits for credit or a grant. The peer is then
    /// probed from time to time.
    pub fn watched(&self) -> bool {
        if self.session.own {
            return false;
        }
        let incoming = self.rx.watchers > 0 || !self.rx.inbound.is_empty();
        let asked = !self.rx.pending_reads.is_empty() || !self.tx.replies.is_empty();
        incoming || asked || !self.tx.queue.is_empty() || !self.tx.rendezvous.is_empty()
    }

    /// Starts the wait for the peer's answer, if the peer owes one and owed none before.
    pub fn begin_waiting(&mut self, now: u64) {
        if self.life.owed_since.is_none() && self.owes() {
            (self.life.owed_since, self.life.unanswered_since) = (Some(now), None);
        }
    }

    /// Notes whether all rails to the peer are down, after a rail or the paths changed.
    pub fn note_cut(&mut self, now: u64, uptimes: &[Uptime]) {
        let down = |p: &Path| uptimes[p.local as usize].is_down();
        let cut = !self.paths.is_empty() && self.paths.iter().all(down);
        self.life.note_cut(now, cut);
    }

    /// True if any work depends on the peer. Includes more than [`owes`](Conn::owes): also frames
    /// queued for retransmission while nothing is in flight.
    pub fn depends(&self) -> bool {
        self.owes() || self.watched() || self.has_small() || !self.tx.bulk.is_empty()
    }

    /// True if anything may be sent: data, control, probes or urgent acks.
    pub fn has_work(&self) -> bool {
        let asks = |p: &Path| p.acks.is_urgent() || p.probing.is_requested() || p.mtu.wants_probe();
        let paths = self.reachability.echoes || self.paths.iter().any(asks);
        self.has_small() || !self.tx.bulk.is_empty() || paths
    }

    /// True if anything but acks and bulk is queued.
    pub fn has_small(&self) -> bool {
        self.credit.is_due() || self.has_control() || !self.tx.queue.is_empty()
    }

    /// True if anything is queued except acks, credit, and messages that have not begun to leave.
    pub fn has_control(&self) -> bool {
        self.bye.due > 0 || self.session.refusals_due > 0 || self.tx.has_control()
    }

    /// Called when a packet is filled. If more data waits, or will wait for a grant, each path is
    /// probed for its PMTU. (Peers that get little data are not probed: in an all-to-all of small
    /// messages most bytes would be probes.)
    pub(crate) fn probe_sizes_if_bulk(&mut self, reliable: bool) {
        let long = !self.tx.rendezvous.is_empty() || !self.tx.replies.is_empty();
        if self.wide || !(long || !self.tx.queue.is_empty() || !self.tx.bulk.is_empty()) {
            return;
        }
        self.wide = true;
        if self.session.epoch.is_some() {
            self.ask_sizes(reliable);
        }
    }

    /// Starts PMTU probes on every path, if wanted. All paths are probed at once, since their first
    /// measurements decide how they share a long message. Native mode has no acks that could answer
    /// a probe, and assumes the sizes that both rails declare.
    pub(crate) fn ask_sizes(&mut self, reliable: bool) {
        let wanted = self.wide || self.paths.len() > 1;
        let paths = self.paths.iter_mut().filter(|_| wanted);
        paths.for_each(|path| path.mtu.resume(reliable));
    }

    /// Returns whether an unacknowledged packet waits on a path that will retransmit it.
    pub(crate) fn asks(&self) -> bool {
        let mut paths = self.paths.iter();
        paths.any(|p| p.ring.waiting() > 0 && !p.rail_down() && p.state() != PathState::Down)
    }

    /// Requests HELLO soon on each path whose rail is up.
    pub(crate) fn announce_rails(&mut self) {
        let paths = self.paths.iter_mut().filter(|p| !p.rail_down());
        paths.for_each(|path| path.probing.request());
    }

    /// Counts a retransmitted frame, unless the frame found no room.
    pub(crate) fn count_resent(&mut self, at: usize, why: Why, fits: bool) {
        let stats = &mut self.paths[at].stats;
        let count = match why {
            Why::Loss => &mut stats.resent_loss,
            Why::Pto => &mut stats.resent_pto,
            Why::Failover => &mut stats.resent_failover,
        };
        *count += fits as u64;
    }

    /// True if an ack has waited for its delay, or if it is urgent and its own path may not carry
    /// it.
    pub(crate) fn due_ack(&self, now: u64, delay_ns: u64) -> bool {
        let due = |p: &Path| {
            p.acks.is_due(now, delay_ns) || (p.acks.any() && p.acks.is_urgent() && p.left_by_acks())
        };
        self.paths.iter().any(due)
    }

    /// Payload algorithm of packets on a path.
    #[inline]
    pub fn algorithm_on(&self, cfg: &Config, at: usize) -> u8 {
        let local = self.paths[at].local as usize;
        let own = cfg.rail_algorithm.get(local).copied().flatten();
        // Only algorithms that the peer can verify.
        own.filter(|&n| n < 32 && self.session.algorithms >> n & 1 == 1)
            .unwrap_or(self.session.algorithm)
    }

    /// Index of the path whose outgoing packets have this code.
    pub fn path_by_send_code(&self, code: u16) -> Option<usize> {
        match &self.codes {
            None => self.paths.iter().position(|p| p.send_code() == code),
            Some(codes) => codes.0.iter().position(|c| *c == code),
        }
    }

    /// Adds a path; returns its index.
    pub fn push_path(&mut self, mut path: Path) -> usize {
        path.validation = self.session.new_address;
        self.paths.push(path);
        if self.paths.len() >= CODES_FROM {
            let codes = &mut self.codes.get_or_insert_default().0;
            let known = codes.len();
            let new = self.paths[known..].iter().map(Path::send_code);
            codes.extend(new);
        }
        self.paths.len() - 1
    }

    /// Adds paths from rails `locals` to rails `remotes`, out of `pairs` (indices into both), up to
    /// `most` paths. Each path joins the two rails with the fewest paths so far. So the load is
    /// even, and only the failure of all rails of one side leaves no path.
    pub fn add_paths(
        &mut self,
        locals: &[LocalRail],
        remotes: &[RailAddr],
        mut pairs: Vec<(usize, usize)>,
        most: usize,
    ) {
        let code = |&(i, remote): &(usize, usize)| path_code(i as u8, remotes[remote].index);
        pairs.retain(|pair| self.path_by_send_code(code(pair)).is_none());
        // Exactly, as few paths are added after HELLO and a path is large.
        let room = most.saturating_sub(self.paths.len());
        self.paths.reserve_exact(pairs.len().min(room));
        let (mut from, mut to) = ([0_u16; RAILS_MAX], [0_u16; RAILS_MAX]);
        for path in &self.paths {
            from[path.local as usize] += 1;
            to[path.to.index as usize] += 1;
        }
        while self.paths.len() < most && !pairs.is_empty() {
            let load = |&(i, remote): &(usize, usize)| {
                let j = remotes[remote].index as usize;
                let turn = (RAILS_MAX + j - i) % RAILS_MAX;
                (from[i].max(to[j]), from[i] + to[j], turn, i)
            };
            let least = (0..pairs.len()).min_by_key(|&n| load(&pairs[n]));
            let pair = pairs.swap_remove(least.unwrap_or(0));
            // A list may name an index twice.
            if self.path_by_send_code(code(&pair)).is_some() {
                continue;
            }
            let (i, remote) = (pair.0, &remotes[pair.1]);
            self.push_path(Path::new(i as u8, &locals[i], *remote));
            from[i] += 1;
            to[remote.index as usize] += 1;
        }
    }
}

/// Time after which a short message arrives on a path, with the queue if more than one lone message
/// is in flight.
#[inline]
fn takes_short_ns(path: &Path) -> u64 {
    let queued = path.ring.in_flight() > LONE_BYTES;
    path.rtt.one_way_ns() + if queued { path.drains_ns() } else { 0 }
}
