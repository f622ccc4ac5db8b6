//! The conversation with a peer: message numbers, queues, credit, paths.

use crate::base::config::{RailPolicy, FIRST_CREDIT, MESSAGE_OVERHEAD};
use crate::base::granules::GranuleSet;
use crate::base::slab::Key;
use crate::base::stats::PeerStats;
use crate::base::types::{PathState, PeerId};
use crate::state::absences::Verdicts;
use crate::state::path::{LocalRail, Path};
use crate::state::resends::Resends;
use crate::state::sent_packets::FrameRef;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use marline_wire::{path_code, RailAddr, FIRST_ALGORITHM, RAILS_MAX};

/// Credit that only rendezvous requests may use: 64 of them under way.
const REQUEST_RESERVE: u64 = 64 * MESSAGE_OVERHEAD;
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
    pub remote_slot: u32,
    /// Known once its HELLO came.
    pub epoch: Option<u32>,
    pub algorithm: u8,
    /// The algorithms that the peer can check, bit n for number n; known since its HELLO.
    pub algorithms: u32,
    pub hello_acked: bool,
    pub dead: bool,
    pub closed: bool,
    /// It is the endpoint itself: nothing is sent, nothing is waited for.
    pub own: bool,
    pub paths: Vec<Path>,
    /// More waited than one packet took: how large packets may be is worth a probe.
    pub wide: bool,
    /// Codes of the paths, in their order, where these are many ([`CODES_FROM`]); else empty.
    codes: Vec<u16>,
    /// Some path is to say once more what another has said ([`Path::echo`]).
    pub echoes: bool,
    /// Since when no path is known to carry, unless one is healthy again (see `contact.rs`); 0: one
    /// is.
    pub contact_lost: u64,
    /// When the peer, which had lost contact, was last answered on all paths; where it asked.
    pub answered_ns: u64,
    pub asked_at: u16,
    /// It is in the node's list of peers with memory to give back.
    pub oversized: bool,
    pub ready: bool,
    /// It waits for a rail that has no room.
    pub stalled: bool,
    // -- outgoing
    pub next_number: u64,
    pub queue: VecDeque<Key>,
    pub bulk: VecDeque<Key>,
    pub resend: Resends,
    pub grants: VecDeque<Key>,
    /// Other control: READs, refusals, empty grants.
    pub control: VecDeque<FrameRef>,
    /// Messages that wait for grants, and answers to the peer's READs, by number.
    pub rendezvous: BTreeMap<u32, Key>,
    pub replies: BTreeMap<u32, Key>,
    pub credit_limit: u64,
    pub credit_used: u64,
    /// BYEs still to be said, all that were said, and whether the peer has heard one.
    pub bye: u16,
    pub byes: u16,
    pub bye_heard: bool,
    // -- incoming
    /// All messages below were matched or queued as unexpected.
    pub next_match: u64,
    pub inbound: BTreeMap<u64, Key>,
    /// Eager bytes that the peer may have unread here; decided once, at first contact.
    pub credit_window: u64,
    pub credit_given: u64,
    pub credit_announced: u64,
    /// Credit that the messages seen so far have used.
    pub credit_seen: u64,
    pub credit_due: bool,
    pub next_read: u32,
    pub pending_reads: BTreeMap<u32, Key>,
    pub served_reads: GranuleSet,
    // -- time
    pub armed: u64,
    pub owed_since: Option<u64>,
    /// Since when nothing of ours was acknowledged, though something waits for that.
    pub unanswered_since: Option<u64>,
    /// Since when nothing was delivered, where that is in question; else 0. Its end is to be told.
    pub gap_from: u64,
    pub gap_told: bool,
    pub heard_ns: u64,
    /// So often it was waited for longer, because it had not been asked enough since then.
    pub more_time: (u64, u64),
    /// When it was last heard by packets that were read as they came, when it was heard after a
    /// silence, and how long that was.
    pub lively_ns: u64,
    pub woke_ns: u64,
    pub silent_ns: u64,
    pub(crate) verdicts: Verdicts,
    /// Refusals since the peer was heard, of paths that have worked, and when the first came.
    pub refused: u32,
    pub refused_since: u64,
    pub pinged_ns: u64,
    /// Posted receives that name this peer: it is kept alive by probes.
    pub watchers: u32,
    /// Every path corrupts: none is left for that before.
    pub all_corrupt_until: u64,
    pub stats: PeerStats,
}

impl Conn {
    pub fn new(peer: PeerId) -> Conn {
        Conn {
            peer,
            remote_slot: marline_wire::SLOT_UNKNOWN,
            epoch: None,
            algorithm: FIRST_ALGORITHM,
            algorithms: 0,
            hello_acked: false,
            dead: false,
            closed: false,
            own: false,
            paths: Vec::new(),
            wide: false,
            codes: Vec::new(),
            echoes: false,
            contact_lost: 0,
            answered_ns: 0,
            asked_at: 0,
            oversized: false,
            ready: false,
            stalled: false,
            next_number: 0,
            queue: VecDeque::new(),
            bulk: VecDeque::new(),
            resend: Resends::default(),
            grants: VecDeque::new(),
            control: VecDeque::new(),
            rendezvous: BTreeMap::new(),
            replies: BTreeMap::new(),
            credit_limit: FIRST_CREDIT,
            credit_used: 0,
            bye: 0,
            byes: 0,
            bye_heard: false,
            next_match: 0,
            inbound: BTreeMap::new(),
            credit_window: FIRST_CREDIT,
            credit_given: FIRST_CREDIT,
            credit_announced: FIRST_CREDIT,
            credit_seen: 0,
            credit_due: false,
            next_read: 0,
            pending_reads: BTreeMap::new(),
            served_reads: GranuleSet::default(),
            armed: u64::MAX,
            owed_since: None,
            unanswered_since: None,
            gap_from: 0,
            gap_told: false,
            heard_ns: 0,
            more_time: (0, 0),
            lively_ns: 0,
            woke_ns: 0,
            silent_ns: 0,
            verdicts: Verdicts::default(),
            refused: 0,
            refused_since: 0,
            pinged_ns: 0,
            watchers: 0,
            all_corrupt_until: 0,
            stats: PeerStats::default(),
        }
    }

    /// Bytes of the conversation with its queues and paths.
    pub fn bytes(&self) -> usize {
        let queues = self.queue.capacity() + self.bulk.capacity() + self.grants.capacity();
        let frames = self.control.capacity() * size_of::<FrameRef>() + self.resend.bytes();
        // A tree that is not empty has at least one node of eleven entries.
        let tree = |len: usize, entry: usize| match len {
            0 => 0,
            n => n.div_ceil(11) * (11 * entry + 16),
        };
        let trees = tree(self.rendezvous.len() + self.replies.len(), 12)
            + tree(self.inbound.len(), 16)
            + tree(self.pending_reads.len(), 12);
        let paths: usize = self.paths.iter().map(Path::bytes).sum();
        let spare = (self.paths.capacity() - self.paths.len()) * size_of::<Path>();
        size_of::<Conn>()
            + queues * size_of::<Key>()
            + frames
            + trees
            + self.served_reads.heap_bytes()
            + self.codes.capacity() * size_of::<u16>()
            + paths
            + spare
    }

    /// Cumulative credit as told to the peer.
    pub fn credit_limit_announced(&self) -> u64 {
        self.credit_given + self.credit_window - FIRST_CREDIT
    }

    /// The 64-bit number that a 32-bit one on the wire stands for, nearest to `next_match`.
    pub fn expand(&self, number: u32) -> u64 {
        let near = self.next_match;
        let delta = number.wrapping_sub(near as u32) as i32;
        near.saturating_add_signed(delta as i64)
    }

    /// Path for small things: the quickest healthy one; else what there is. None from the rails of
    /// `full`, which have no room now (bit n: rail n): what they carry as a rule waits for them
    /// only where no other works.
    pub fn small_path(&self, avoid: Option<u16>, standby: bool, full: u32) -> Option<usize> {
        let rank = |i: &usize| {
            let p = &self.paths[*i];
            let class = match p.state {
                PathState::Up => 0,
                PathState::Suspect => 1,
                PathState::Unproven => 2,
                PathState::Down => 3,
            };
            let avoided = avoid == Some(p.send_code());
            // Within a quarter of each other, rails count as equal: the lower index wins, so
            // that noise does not make messages jump between rails.
            let rtt = if standby { 0 } else { p.srtt_ns.max(1).ilog2() };
            (
                p.rail_down,
                avoided && class < 3,
                class,
                p.backoff > 0 && class == 2,
                p.tier,
                rtt,
                *i,
            )
        };
        let free = |i: &usize| self.paths[*i].link.up && self.paths[*i].has_room(full);
        let at = (0..self.paths.len()).filter(free).min_by_key(rank)?;
        let better = |p: &Path| p.usable() && !p.has_room(full);
        let waits = full != 0 && avoid.is_none() && !self.paths[at].usable();
        (!waits || !self.paths.iter().any(better)).then_some(at)
    }

    /// Returns whether the acks of path `at` wait for a rail that has no room.
    pub fn holds_acks(&self, at: usize, policy: RailPolicy, full: u32) -> bool {
        let path = &self.paths[at];
        let standby = policy == RailPolicy::Standby;
        if path.healthy() {
            return !path.has_room(full);
        }
        let mut healthy = self.paths.iter().filter(|p| p.healthy()).peekable();
        match path.left_by_acks() && healthy.peek().is_some() {
            true => !healthy.any(|p| p.has_room(full)),
            false => self.small_path(None, standby, full).is_none(),
        }
    }

    /// Returns whether the payload of a message of `len` bytes may leave unasked. It leaves the
    /// reserve to requests: they must go on when the receiver is full of messages it does not want
    /// yet, for one that it does may come after them.
    pub fn has_credit_for(&self, len: u64) -> bool {
        self.credit_used + Conn::cost(len) + REQUEST_RESERVE <= self.credit_limit
    }

    /// Packets of all paths that wait for an ack.
    pub fn waiting(&self) -> u32 {
        self.paths.iter().map(|p| p.ring.waiting()).sum()
    }

    /// Returns whether the peer owes an answer: something waits on a path that should bring one.
    /// Probes of paths that are down, or never worked, prove nothing.
    pub fn owes(&self) -> bool {
        // No rail of ours reaches it: whatever waits for it waits in vain.
        // Or the links of all are down.
        if self.paths.iter().all(|p| !p.link.up) {
            return self.watched();
        }
        // The last path is never given up, and its rail may be down.
        let any = self.paths.iter().any(|p| p.usable());
        self.paths
            .iter()
            .any(|p| p.ring.waiting() > 0 && (p.carries() || !any))
    }

    /// Returns whether something here waits for the peer to speak: a posted receive that names it,
    /// a message that has begun, a read; a send that waits for credit or a grant. Then it is asked
    /// now and then whether it lives.
    pub fn watched(&self) -> bool {
        if self.own {
            return false;
        }
        let incoming = self.watchers > 0 || !self.inbound.is_empty();
        let asked = !self.pending_reads.is_empty() || !self.replies.is_empty();
        incoming || asked || !self.queue.is_empty() || !self.rendezvous.is_empty()
    }

    /// Returns whether anything here depends on a word of the peer. More than [`owes`](Conn::owes):
    /// what was lost and is yet to be sent again is owed as before, though nothing is under way.
    pub fn depends(&self) -> bool {
        self.owes() || self.watched() || self.has_small() || !self.bulk.is_empty()
    }

    /// Returns whether anything may be sent: data, control, probes or urgent acks.
    pub fn has_work(&self) -> bool {
        let asks = |p: &Path| p.ack_now || p.want_ping || p.want_padded;
        let paths = self.echoes || self.paths.iter().any(asks);
        self.has_small() || !self.bulk.is_empty() || paths
    }

    /// Returns whether anything but acks and bulk waits.
    pub fn has_small(&self) -> bool {
        self.credit_due || self.has_control() || !self.queue.is_empty()
    }

    /// Returns whether anything waits but acks, credit, and messages of which nothing has left.
    pub fn has_control(&self) -> bool {
        self.bye > 0
            || !self.grants.is_empty()
            || !self.control.is_empty()
            || !self.resend.is_empty()
    }

    /// Index of the path whose packets of ours have this code.
    pub fn path_by_send_code(&self, code: u16) -> Option<usize> {
        match self.codes.is_empty() {
            true => self.paths.iter().position(|p| p.send_code() == code),
            false => self.codes.iter().position(|c| *c == code),
        }
    }

    /// One path more; its index.
    pub fn push_path(&mut self, path: Path) -> usize {
        self.paths.push(path);
        if self.paths.len() >= CODES_FROM {
            let known = self.codes.len();
            let new = self.paths[known..].iter().map(Path::send_code);
            self.codes.extend(new);
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
            to[path.remote as usize] += 1;
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
