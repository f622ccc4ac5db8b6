//! Reliable broadcast to a group by multicast: one member's state.
//!
//! All members of a group call broadcasts in one order, so each broadcast has a number that all
//! know without being told. Its root cuts it into chunks and multicasts each once; chunks have
//! numbers of their own, one sequence per root, which is what losses and acknowledgements are told
//! by. Members acknowledge to a *collector*: the root, or one of its *co-roots*, which repairs
//! losses in its part of the group and tells the root how far all of the part are (Liu, Mamidala,
//! Panda: broadcast by InfiniBand multicast, co-root design). Losses are found by the receivers,
//! which ask with a delay that keeps a large group from asking at once (RFC 5740, sections 5.3 and
//! 5.5).
//!
//! Like the rest of the protocol it has no clock, no socket and no payload: packets and time come
//! in, packets, placements and events go out. Nothing that it sends needs to arrive.
//!
//! `recv` is the receiving side, `send` the root's and the collectors', `parts` says who collects
//! for whom, `delay` draws the delays.

mod delay;
mod parts;
mod recv;
mod send;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use delay::Draw;
use parts::Parts;
use recv::Receiving;
use send::Sending;

/// Members that a TAIL names at most; more are asked all together.
pub const ASKED_MAX: usize = 8;
/// Ranges of chunks that a NACK names at most.
pub const GAPS_MAX: usize = 4;

/// How a group works: the paper's schemes are settings of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// Chunks that a root may have under way.
    pub window: u32,
    /// Members besides the root that collect acknowledgements.
    pub co_roots: u16,
    /// Members acknowledge after so many broadcasts; `u32::MAX`: when asked, or when a quarter of
    /// the window is theirs to acknowledge.
    pub ack_every: u32,
    /// Receivers ask for what they miss; otherwise collectors find out by time.
    pub nacks: bool,
}

impl Scheme {
    /// The root waits for all acknowledgements before the next chunk leaves.
    pub const BASIC: Scheme = Scheme {
        window: 1,
        co_roots: 0,
        ack_every: 1,
        nacks: false,
    };
    /// A window of chunks, each broadcast acknowledged by all to the root.
    pub const WINDOW: Scheme = Scheme {
        window: WINDOW,
        ..Scheme::BASIC
    };
    /// The same with one co-root: two members collect.
    pub const CO_ROOT: Scheme = Scheme {
        co_roots: 1,
        ..Scheme::WINDOW
    };
    /// A window, and one acknowledgement for ten broadcasts.
    pub const AGGREGATE: Scheme = Scheme {
        ack_every: 10,
        ..Scheme::WINDOW
    };
    /// Receivers ask for what they miss, and acknowledge when asked.
    pub const NACK: Scheme = Scheme {
        ack_every: u32::MAX,
        nacks: true,
        ..Scheme::WINDOW
    };
}

/// Chunks of the usual window: at 64,000 bytes each more than a switch queues.
const WINDOW: u32 = 64;

/// One member's part in a group.
#[derive(Clone, Copy, Debug)]
pub struct GroupConfig {
    /// Number of members.
    pub members: u16,
    /// This member, from 0.
    pub me: u16,
    /// Bytes of a chunk; the last of a broadcast may be shorter.
    pub chunk: u32,
    /// Bytes of broadcasts that arrived before they were posted, at most.
    pub early_max: u64,
    /// Time that a small packet takes to any member and its answer back, about.
    pub round_trip_ns: u64,
    /// How it works.
    pub scheme: Scheme,
    /// Seed of the delays.
    pub seed: u64,
}

/// A chunk's place, as its packet says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Who sends the broadcast.
    pub root: u16,
    /// Number of the chunk among all that this root sends to the group.
    pub number: u64,
    /// Number of the broadcast among all of the group.
    pub broadcast: u64,
    /// Where the chunk begins, in bytes.
    pub offset: u64,
    /// Bytes of the chunk.
    pub len: u32,
    /// Bytes of the broadcast.
    pub total: u64,
}

/// What members tell each other beside chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// All chunks below a number are here; a co-root says it of all its part.
    Ack {
        /// Whose chunks.
        root: u16,
        /// The number.
        next: u64,
    },
    /// Some chunks are not here.
    Nack {
        /// Whose chunks.
        root: u16,
        /// Ranges of them, each as its first and the one after its last.
        gaps: Vec<(u64, u64)>,
    },
    /// All chunks below a number have been sent: a member that lacks some asks for them.
    Tail {
        /// Whose chunks.
        root: u16,
        /// The number.
        next: u64,
        /// Members that are to say how far they are; empty: all.
        asked: Vec<u16>,
    },
}

/// Whom a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// The group, by multicast.
    All,
    /// One member.
    Member(u16),
}

/// What a packet carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A chunk of an own broadcast, from the memory of operation `handle`.
    Own {
        /// The operation.
        handle: u32,
        /// Which chunk.
        chunk: Chunk,
    },
    /// A chunk of another root that this member keeps as its co-root.
    Kept(Chunk),
    /// Control.
    Word(Word),
}

/// A packet to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Whom it is for.
    pub to: To,
    /// What it carries.
    pub content: Content,
}

/// Where the bytes of a chunk that just came belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the memory of an operation, at the chunk's offset.
    Posted {
        /// The operation.
        handle: u32,
        /// A copy is to be kept until [`GroupEvent::Forget`]: this member is a co-root.
        keep: bool,
    },
    /// In a buffer of `total` bytes for a broadcast that was not posted yet.
    Early {
        /// As above.
        keep: bool,
    },
    /// It is here already, or of no broadcast that is under way.
    Duplicate,
    /// There is no room for it now; it will be asked for again.
    NoRoom,
    /// It contradicts what is known of its broadcast, or lies outside the window.
    Nonsense,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupEvent {
    /// An operation has ended: a receive has all its bytes, a root's memory is not read any more.
    Done {
        /// The operation.
        handle: u32,
        /// How it ended.
        end: End,
    },
    /// What came early of a broadcast belongs to this operation from now on.
    Adopt {
        /// The broadcast.
        broadcast: u64,
        /// The operation.
        handle: u32,
    },
    /// The buffer of an early broadcast is not needed any more.
    Drop {
        /// The broadcast.
        broadcast: u64,
    },
    /// Copies that were kept of a root's chunks are not needed any more.
    Forget {
        /// Whose chunks.
        root: u16,
        /// Those below this number.
        next: u64,
    },
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Well,
    /// This member, the root or one that has to acknowledge, is dead.
    Dead(u16),
    /// Root and receiver disagree about the broadcast's root or length.
    Mismatch,
}

/// Counters of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// Chunks multicast for the first time.
    pub chunks: u64,
    /// Chunks sent again to one member.
    pub repairs: u64,
    /// Chunks sent again to all.
    pub repairs_to_all: u64,
    /// Acknowledgements sent.
    pub acks: u64,
    /// Requests for missing chunks sent.
    pub nacks: u64,
    /// TAILs sent.
    pub tails: u64,
    /// Chunks that came twice.
    pub duplicates: u64,
    /// Chunks that found no room before their broadcast was posted.
    pub no_room: u64,
    /// Chunks and words that made no sense.
    pub nonsense: u64,
    /// Most bytes that waited in early buffers.
    pub early_bytes_max: u64,
    /// Acknowledgements and requests heard.
    pub heard: u64,
}

/// One member of a group.
#[derive(Debug)]
pub struct Group {
    cfg: GroupConfig,
    parts: Parts,
    draw: Draw,
    /// Number of the next broadcast that is posted here.
    next_broadcast: u64,
    receiving: Receiving,
    /// What this member sends as root, and keeps as co-root, by root.
    sending: BTreeMap<u16, Sending>,
    dead: Vec<u16>,
    words: VecDeque<(To, Word)>,
    events: VecDeque<GroupEvent>,
    stats: GroupStats,
}

impl Group {
    /// A member of a new group, in which nothing was broadcast.
    pub fn new(cfg: GroupConfig) -> Group {
        Group {
            parts: Parts::new(cfg.members, cfg.scheme.co_roots),
            draw: Draw::new(cfg.seed, cfg.members),
            cfg,
            next_broadcast: 0,
            receiving: Receiving::default(),
            sending: BTreeMap::new(),
            dead: Vec::new(),
            words: VecDeque::new(),
            events: VecDeque::new(),
            stats: GroupStats::default(),
        }
    }

    /// Posts the next broadcast of the group: `len` bytes from the memory of operation `handle` if
    /// this member is the `root`, else into it.
    pub fn post(&mut self, now_ns: u64, root: u16, handle: u32, len: u64) {
        let broadcast = self.next_broadcast;
        self.next_broadcast += 1;
        if root == self.cfg.me {
            let chunk = self.cfg.chunk;
            let own = self.sending_of(root);
            own.post(broadcast, handle, len, chunk);
            self.pump(now_ns);
        } else {
            self.post_receive(now_ns, (broadcast, root), handle, len);
        }
    }

    /// What another member said.
    pub fn handle_word(&mut self, now_ns: u64, from: u16, word: &Word) {
        if from >= self.cfg.members || from == self.cfg.me || self.dead.contains(&from) {
            self.stats.nonsense += 1;
            return;
        }
        match word {
            Word::Ack { root, next } => self.on_ack(now_ns, from, *root, *next),
            Word::Nack { root, gaps } => self.on_nack(now_ns, from, *root, gaps),
            Word::Tail { root, next, asked } => self.on_tail(now_ns, *root, *next, asked),
        }
    }

    /// A member will not speak again: nobody waits for it, and what it was the root of ends.
    pub fn on_dead(&mut self, now_ns: u64, member: u16) {
        if self.dead.contains(&member) {
            return;
        }
        self.dead.push(member);
        self.fail_receives(member);
        self.stop_waiting_for(now_ns, member);
    }

    /// The next packet to send.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<Packet> {
        if let Some((to, word)) = self.words.pop_front() {
            match word {
                Word::Ack { .. } => self.stats.acks += 1,
                Word::Nack { .. } => self.stats.nacks += 1,
                Word::Tail { .. } => self.stats.tails += 1,
            }
            let content = Content::Word(word);
            return Some(Packet { to, content });
        }
        self.next_chunk(now_ns)
    }

    /// The next event, oldest first.
    pub fn poll_event(&mut self) -> Option<GroupEvent> {
        self.events.pop_front()
    }

    /// When [`Group::handle_timeouts`] has something to do next.
    pub fn next_deadline(&self) -> Option<u64> {
        let sending = self.sending.values().filter_map(Sending::deadline).min();
        let all = [sending, self.receiving.deadline()];
        all.into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn handle_timeouts(&mut self, now_ns: u64) {
        self.ask_and_tell(now_ns);
        self.remind(now_ns);
    }

    /// Counters.
    pub fn stats(&self) -> &GroupStats {
        &self.stats
    }

    /// Members whose word something here waits for: roots of posted receives, and members that
    /// have not acknowledged.
    pub fn awaited(&self) -> Vec<u16> {
        let mut members: Vec<u16> = self.receiving.awaited_roots().collect();
        members.extend(self.sending.values().flat_map(Sending::lagging));
        members.sort_unstable();
        members.dedup();
        members
    }
}

#[cfg(test)]
mod tests;
