//! The conversation with a peer: its parts, and its paths.

use crate::base::config::RailPolicy;
use crate::base::stats::PeerStats;
use crate::base::types::{PathState, PeerId};
use crate::state::credit::Credit;
use crate::state::latency::{ALIKE_SHARE, LONE_BYTES};
use crate::state::path::{LocalRail, Path};
use crate::state::session::{Contact, Farewell, Liveness, Refusals, Session};
use crate::state::sides::{ReceiveSide, SendSide};
use crate::state::uptime::Uptime;
use alloc::boxed::Box;
use alloc::vec::Vec;
use marline_wire::{path_code, RailAddr, RAILS_MAX};

/// Paths that first contact takes at most, to the rails that an address names: the rest of what is
/// chosen is for the rails that HELLO names.
pub const FIRST_PATHS: usize = 8;
/// With so many paths their codes are kept beside them, where a packet's is found without touching
/// each path; peers with fewer, which are nearly all, do not pay for the list.
const CODES_FROM: usize = 24;

/// The conversation with one peer.
#[derive(Debug)]
pub struct Conn {
    pub peer: PeerId,
    pub session: Session,
    pub bye: Farewell,
    pub life: Liveness,
    pub contact: Contact,
    pub refusals: Refusals,
    pub credit: Credit,
    pub tx: SendSide,
    pub rx: ReceiveSide,
    pub listed: Listed,
    pub paths: Vec<Path>,
    /// Codes of the paths, in their order, where these are many ([`CODES_FROM`]).
    codes: Option<Box<Codes>>,
    /// More waited than one packet took: how large packets may be is worth a probe.
    pub wide: bool,
    /// Every path corrupts: none is left for that before.
    pub all_corrupt_until: u64,
    pub stats: PeerStats,
}

/// Codes of paths. (Few peers have so many that there are any: a word is enough for the others.)
#[derive(Debug, Default)]
struct Codes(Vec<u16>);

/// Where the conversation stands in the node's lists: of peers that have something to send, of
/// those that wait for a rail that has no room, of those with memory to give back, of deadlines.
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
            bye: Farewell::default(),
            life: Liveness::default(),
            contact: Contact::default(),
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

    /// Bytes of the conversation with its queues and paths.
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

    /// Path for small things: the quickest healthy one; else what there is. None from the rails of
    /// `full`, which have no room now (bit n: rail n): what they carry as a rule waits for them
    /// only where no other works.
    pub fn small_path(&self, avoid: Option<u16>, standby: bool, full: u32) -> Option<usize> {
        let rank = |p: &Path| {
            let class = match p.state {
                PathState::Up => 0,
                PathState::Suspect => 1,
                PathState::Unproven => 2,
                PathState::Down => 3,
            };
            let avoided = avoid == Some(p.send_code());
            (
                p.rail_down,
                avoided && class < 3,
                class,
                p.backoff > 0 && class == 2,
                p.tier,
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

    /// Asks the other paths that could carry what path `at` does for their round trips, where it is
    /// time for that.
    pub fn compare(&mut self, at: usize, now: u64) {
        if self.paths.len() < 2 || !self.paths[at].latency.is_to_compare(now) {
            return;
        }
        let tier = self.paths[at].tier;
        let others = self.paths.iter_mut().enumerate().filter(|(i, _)| *i != at);
        for (_, path) in others.filter(|(_, p)| p.healthy() && p.tier == tier) {
            path.want_ping |= path.ring.waiting() == 0;
        }
    }

    /// Returns whether the acks of path `at` wait for a rail that has no room.
    pub fn holds_acks(&self, at: usize, policy: RailPolicy, full: u32) -> bool {
        let path = &self.paths[at];
        let standby = policy == RailPolicy::Standby;
        if path.healthy() {
            return !path.has_room(full);
        }
        // Acks that are due leave with what healthy paths send, whatever path they are of.
        let mut healthy = self.paths.iter().filter(|p| p.healthy()).peekable();
        match healthy.peek().is_some() {
            true => !healthy.any(|p| p.has_room(full)),
            false => self.small_path(None, standby, full).is_none(),
        }
    }

    /// Packets of all paths that wait for an ack.
    pub fn waiting(&self) -> u32 {
        self.paths.iter().map(|p| p.ring.waiting()).sum()
    }

    /// Returns whether the peer owes an answer: something waits on a path that should bring one.
    /// Probes of paths that are down, or never worked, prove nothing.
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
        // No rail of ours reaches it, or the links of all are down: whatever waits for it waits in
        // vain, what is to be sent again as well.
        if !linked {
            return self.watched() || !self.tx.resend.is_empty();
        }
        // The last path is never given up, and its rail may be down.
        carried || (waits && !usable)
    }

    /// Returns whether something here waits for the peer to speak: a posted receive that names it,
    /// a message that has begun, a read; a send that waits for credit or a grant. Then it is asked
    /// now and then whether it lives.
    pub fn watched(&self) -> bool {
        if self.session.own {
            return false;
        }
        let incoming = self.rx.watchers > 0 || !self.rx.inbound.is_empty();
        let asked = !self.rx.pending_reads.is_empty() || !self.tx.replies.is_empty();
        incoming || asked || !self.tx.queue.is_empty() || !self.tx.rendezvous.is_empty()
    }

    /// Something waits for the peer's answer from now on, if nothing did before.
    pub fn begin_waiting(&mut self, now: u64) {
        if self.life.owed_since.is_none() && self.owes() {
            (self.life.owed_since, self.life.unanswered_since) = (Some(now), None);
        }
    }

    /// A rail went down or came back, or there are new paths.
    pub fn note_cut(&mut self, now: u64, uptimes: &[Uptime]) {
        let down = |p: &Path| uptimes[p.local as usize].is_down();
        let cut = !self.paths.is_empty() && self.paths.iter().all(down);
        self.life.note_cut(now, cut);
    }

    /// Returns whether anything here depends on a word of the peer. More than [`owes`](Conn::owes):
    /// what was lost and is yet to be sent again is owed as before, though nothing is under way.
    pub fn depends(&self) -> bool {
        self.owes() || self.watched() || self.has_small() || !self.tx.bulk.is_empty()
    }

    /// Returns whether anything may be sent: data, control, probes or urgent acks.
    pub fn has_work(&self) -> bool {
        let asks = |p: &Path| p.ack_now || p.want_ping || p.want_padded;
        let paths = self.contact.echoes || self.paths.iter().any(asks);
        self.has_small() || !self.tx.bulk.is_empty() || paths
    }

    /// Returns whether anything but acks and bulk waits.
    pub fn has_small(&self) -> bool {
        self.credit.is_due() || self.has_control() || !self.tx.queue.is_empty()
    }

    /// Returns whether anything waits but acks, credit, and messages of which nothing has left.
    pub fn has_control(&self) -> bool {
        self.bye.due > 0 || self.session.refusals_due > 0 || self.tx.has_control()
    }

    /// Index of the path whose packets of ours have this code.
    pub fn path_by_send_code(&self, code: u16) -> Option<usize> {
        match &self.codes {
            None => self.paths.iter().position(|p| p.send_code() == code),
            Some(codes) => codes.0.iter().position(|c| *c == code),
        }
    }

    /// One path more; its index.
    pub fn push_path(&mut self, path: Path) -> usize {
        self.paths.push(path);
        if self.paths.len() >= CODES_FROM {
            let codes = &mut self.codes.get_or_insert_default().0;
            let known = codes.len();
            let new = self.paths[known..].iter().map(Path::send_code);
            codes.extend(new);
        }
        self.paths.len() - 1
    }

    /// Adds paths to the remote rails `remotes` from `locals`, of those that `pairs` names by their
    /// places, as long as there are fewer than `most`. Each comes from the two rails that have the
    /// fewest yet, so that all have their share, and as many rails have to fail as one side has
    /// before none is left.
    pub fn add_paths(
        &mut self,
        locals: &[LocalRail],
        remotes: &[RailAddr],
        mut pairs: Vec<(usize, usize)>,
        most: usize,
    ) {
        // Exactly: there are no more after HELLO, and a path is not small.
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
            let (i, remote) = pairs.swap_remove(least.unwrap_or(0));
            let remote = &remotes[remote];
            if self
                .path_by_send_code(path_code(i as u8, remote.index))
                .is_some()
            {
                continue;
            }
            self.push_path(Path::new(i as u8, &locals[i], *remote));
            from[i] += 1;
            to[remote.index as usize] += 1;
        }
    }
}

/// Time after which a short message arrives on a path, behind more than one lone message.
#[inline]
fn takes_short_ns(path: &Path) -> u64 {
    let queued = path.ring.in_flight() > LONE_BYTES;
    path.latency.one_way_ns() + if queued { path.drains_ns() } else { 0 }
}
