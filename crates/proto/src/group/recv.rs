//! The receiving side: chunks to their places, gaps that are asked for, acknowledgements.

use super::{Chunk, End, Group, GroupEvent, Place, To, Word, GAPS_MAX};
use crate::base::granules::GranuleSet;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Requests for what is missing are repeated with pauses that double up to this.
const NACK_PAUSE_MAX_NS: u64 = 10_000_000;
/// One of so many requests goes to the root: the collector may lack the chunk itself, or be dead.
const TRIES_PER_ROOT: u32 = 3;
/// Where members acknowledge on their own, what they owe waits this many round trips for company.
const ACK_DELAY_TRIPS: u64 = 16;

/// All that comes in.
#[derive(Debug, Default)]
pub(super) struct Receiving {
    roots: BTreeMap<u16, FromRoot>,
    /// Broadcasts of others that are under way, by number.
    broadcasts: BTreeMap<u64, Incoming>,
    early_bytes: u64,
}

/// The chunks of one root.
#[derive(Debug)]
struct FromRoot {
    got: GranuleSet,
    /// All chunks below are here.
    next: u64,
    /// Chunks below are known to have been sent.
    high: u64,
    /// What was acknowledged last, and broadcasts that arrived since.
    told: u64,
    ended: u32,
    ack_at: u64,
    nack_at: u64,
    tries: u32,
    /// Chunks from here on found no room: nobody asks for them before there is some.
    no_room_from: u64,
}

impl Default for FromRoot {
    fn default() -> FromRoot {
        FromRoot {
            got: GranuleSet::default(),
            next: 0,
            high: 0,
            told: 0,
            ended: 0,
            ack_at: u64::MAX,
            nack_at: u64::MAX,
            tries: 0,
            no_room_from: u64::MAX,
        }
    }
}

/// A broadcast on its way in.
#[derive(Debug)]
struct Incoming {
    root: u16,
    total: u64,
    here: u64,
    /// The operation; none yet: the broadcast came early.
    handle: Option<u32>,
}

impl FromRoot {
    fn lacks_some(&self) -> bool {
        self.next < self.high.min(self.no_room_from)
    }

    /// The first ranges of chunks that are missing, each as its first and the one after its last.
    fn gaps(&self) -> Vec<(u64, u64)> {
        let (mut gaps, mut at) = (Vec::new(), self.next);
        let end = self.high.min(self.no_room_from);
        while at < end && gaps.len() < GAPS_MAX {
            let missing = self.got.free_from(at, end - at);
            gaps.push((at, at + missing));
            at += missing;
            while at < end && self.got.contains(at) {
                at += 1;
            }
        }
        gaps
    }
}

impl Receiving {
    pub(super) fn deadline(&self) -> Option<u64> {
        let due = |from: &FromRoot| from.ack_at.min(from.nack_at);
        self.roots
            .values()
            .map(due)
            .min()
            .filter(|&at| at < u64::MAX)
    }

    /// Roots of receives that wait.
    pub(super) fn awaited_roots(&self) -> impl Iterator<Item = u16> + '_ {
        let posted = self.broadcasts.values().filter(|b| b.handle.is_some());
        posted.map(|b| b.root)
    }

    /// All chunks of this root below the answer are here.
    pub(super) fn next_of(&self, root: u16) -> u64 {
        self.roots.get(&root).map_or(0, |from| from.next)
    }
}

impl Group {
    pub(super) fn post_receive(
        &mut self,
        now: u64,
        (broadcast, root): (u64, u16),
        handle: u32,
        len: u64,
    ) {
        if len == 0 || self.dead.contains(&root) {
            let end = if len == 0 { End::Well } else { End::Dead(root) };
            self.events.push_back(GroupEvent::Done { handle, end });
            return;
        }
        let early = self.receiving.broadcasts.get_mut(&broadcast);
        if let Some(early) = early {
            self.receiving.early_bytes -= early.total;
            early.handle = Some(handle);
            let fits = early.root == root && early.total == len;
            let event = match fits {
                true => GroupEvent::Adopt { broadcast, handle },
                false => GroupEvent::Drop { broadcast },
            };
            self.events.push_back(event);
            if !fits {
                self.end_receive(broadcast, End::Mismatch);
            } else if early_is_whole(&self.receiving, broadcast) {
                self.end_receive(broadcast, End::Well);
            }
        } else {
            let incoming = Incoming {
                root,
                total: len,
                here: 0,
                handle: Some(handle),
            };
            self.receiving.broadcasts.insert(broadcast, incoming);
        }
        self.make_room(now);
    }

    /// There may be room for what found none.
    fn make_room(&mut self, now: u64) {
        for from in self.receiving.roots.values_mut() {
            if from.no_room_from < u64::MAX {
                from.no_room_from = u64::MAX;
                from.nack_at = if from.lacks_some() { now } else { u64::MAX };
            }
        }
    }

    fn end_receive(&mut self, broadcast: u64, end: End) {
        let ended = self.receiving.broadcasts.remove(&broadcast);
        if let Some(handle) = ended.and_then(|b| b.handle) {
            self.events.push_back(GroupEvent::Done { handle, end });
        }
    }

    /// A chunk came: where its bytes belong. They count when [`Group::commit`] says that they are
    /// there.
    pub fn place(&mut self, now_ns: u64, chunk: &Chunk) -> Place {
        let place = self.place_of(chunk);
        match place {
            Place::Duplicate => self.stats.duplicates += 1,
            Place::NoRoom => self.stats.no_room += 1,
            Place::Nonsense => self.stats.nonsense += 1,
            Place::Posted { .. } | Place::Early { .. } => return place,
        }
        self.watch_gaps(now_ns, chunk.root, false);
        place
    }

    fn place_of(&mut self, chunk: &Chunk) -> Place {
        let (me, window) = (self.cfg.me, self.cfg.scheme.window as u64);
        let end = chunk.offset.saturating_add(chunk.len as u64);
        let inside = chunk.len > 0 && end <= chunk.total;
        let known = chunk.root < self.cfg.members && chunk.root != me;
        if !inside || !known || self.dead.contains(&chunk.root) {
            return Place::Nonsense;
        }
        let from = self.receiving.roots.entry(chunk.root).or_default();
        if chunk.number >= from.next + window {
            return Place::Nonsense;
        }
        if from.got.contains(chunk.number) {
            return Place::Duplicate;
        }
        from.high = from.high.max(chunk.number + 1);
        let keep = self.parts.collects(chunk.root, me);
        let posted = chunk.broadcast < self.next_broadcast;
        let Some(incoming) = self.receiving.broadcasts.get(&chunk.broadcast) else {
            // One that was posted and is over takes no more; it ended badly.
            return match posted {
                true => Place::Nonsense,
                false => self.place_early(chunk, keep),
            };
        };
        let same = incoming.root == chunk.root && incoming.total == chunk.total;
        match incoming.handle {
            Some(handle) if same => Place::Posted { handle, keep },
            Some(_) => {
                self.end_receive(chunk.broadcast, End::Mismatch);
                Place::Nonsense
            }
            None if same => Place::Early { keep },
            None => Place::Nonsense,
        }
    }

    /// The first chunk of a broadcast that was not posted yet: a buffer for all of it, within what
    /// may be buffered.
    fn place_early(&mut self, chunk: &Chunk, keep: bool) -> Place {
        let bytes = self.receiving.early_bytes.saturating_add(chunk.total);
        if bytes > self.cfg.early_max {
            if let Some(from) = self.receiving.roots.get_mut(&chunk.root) {
                from.no_room_from = from.no_room_from.min(chunk.number);
            }
            return Place::NoRoom;
        }
        self.receiving.early_bytes = bytes;
        self.stats.early_bytes_max = self.stats.early_bytes_max.max(bytes);
        let incoming = Incoming {
            root: chunk.root,
            total: chunk.total,
            here: 0,
            handle: None,
        };
        self.receiving.broadcasts.insert(chunk.broadcast, incoming);
        Place::Early { keep }
    }

    /// The bytes of a chunk are where [`Group::place`] said, and right (`ok`), or were damaged.
    pub fn commit(&mut self, now_ns: u64, chunk: &Chunk, ok: bool) {
        let Some(from) = self.receiving.roots.get_mut(&chunk.root) else {
            return;
        };
        if !ok || from.got.insert(chunk.number, 1) == 0 {
            return self.watch_gaps(now_ns, chunk.root, false);
        }
        let before = from.next;
        while from.got.contains(from.next) {
            from.next += 1;
        }
        let progress = from.next > before;
        if progress {
            from.tries = 0;
        }
        if let Some(incoming) = self.receiving.broadcasts.get_mut(&chunk.broadcast) {
            incoming.here += chunk.len as u64;
            if incoming.here == incoming.total {
                from.ended += 1;
                if incoming.handle.is_some() {
                    self.end_receive(chunk.broadcast, End::Well);
                }
            }
        }
        self.keep(now_ns, chunk);
        self.watch_gaps(now_ns, chunk.root, progress);
        self.owe_ack(now_ns, chunk.root);
    }

    /// Sets the time to ask for what is missing of a root. `progress`: the first that was missing
    /// just came, and what is missing now has not been asked for long.
    fn watch_gaps(&mut self, now: u64, root: u16, progress: bool) {
        let Some(from) = self.receiving.roots.get_mut(&root) else {
            return;
        };
        if !from.lacks_some() {
            from.nack_at = u64::MAX;
        } else if self.cfg.scheme.nacks && (from.nack_at == u64::MAX || progress) {
            from.nack_at = now + self.draw.delay_ns(self.cfg.round_trip_ns / 2);
        }
    }

    /// Sets the time to acknowledge what came of a root.
    fn owe_ack(&mut self, now: u64, root: u16) {
        let told_to_root = self.reached(root);
        let scheme = &self.cfg.scheme;
        let Some(from) = self.receiving.roots.get_mut(&root) else {
            return;
        };
        // Not all members at the same chunk.
        let quarter = (scheme.window as u64 / 4).max(1);
        let enough = quarter + self.cfg.me as u64 % quarter;
        if from.ended >= scheme.ack_every || told_to_root >= from.told + enough {
            from.ack_at = now;
        } else if !scheme.nacks && told_to_root > from.told {
            let delay = ACK_DELAY_TRIPS * self.cfg.round_trip_ns;
            from.ack_at = from.ack_at.min(now + delay);
        }
    }

    /// A collector's part has come further: it may be time to tell the root.
    pub(super) fn part_reached(&mut self, now: u64, root: u16) {
        self.owe_ack(now, root);
    }

    /// What this member acknowledges of a root: how far it is, and all whose acknowledgements it
    /// collects.
    fn reached(&self, root: u16) -> u64 {
        let part = self.sending.get(&root).map_or(u64::MAX, |kept| kept.base());
        self.receiving.next_of(root).min(part)
    }

    /// A collector asks how far this member is, and says how far it should be.
    pub(super) fn on_tail(&mut self, now: u64, root: u16, next: u64, asked: &[u16]) {
        let (me, window) = (self.cfg.me, self.cfg.scheme.window as u64);
        let from = self.receiving.roots.entry(root).or_default();
        if next > from.next + window || root == me {
            self.stats.nonsense += 1;
            return;
        }
        from.high = from.high.max(next);
        if from.lacks_some() && from.nack_at == u64::MAX {
            from.nack_at = now + self.draw.delay_ns(self.cfg.round_trip_ns / 2);
        }
        if asked.contains(&me) {
            from.ack_at = now;
        } else if asked.is_empty() {
            let at = now + self.draw.delay_ns(self.cfg.round_trip_ns / 2);
            from.ack_at = from.ack_at.min(at);
        }
    }

    /// Acknowledges, and asks for what is missing, where it is time.
    pub(super) fn ask_and_tell(&mut self, now: u64) {
        let due = |from: &FromRoot| from.ack_at.min(from.nack_at) <= now;
        let roots = self.receiving.roots.iter().filter(|(_, from)| due(from));
        let roots: Vec<u16> = roots.map(|(&root, _)| root).collect();
        for root in roots {
            let reached = self.reached(root);
            let collector = self.living_collector(root);
            let pause = self.cfg.round_trip_ns + self.draw.delay_ns(self.cfg.round_trip_ns / 2);
            let Some(from) = self.receiving.roots.get_mut(&root) else {
                continue;
            };
            if from.ack_at <= now {
                from.ack_at = u64::MAX;
                (from.told, from.ended) = (reached, 0);
                let ack = Word::Ack {
                    root,
                    next: reached,
                };
                self.words.push_back((To::Member(collector), ack));
            }
            if from.nack_at <= now {
                let gaps = from.gaps();
                let to = match from.tries % TRIES_PER_ROOT {
                    0 if from.tries > 0 => root,
                    _ => collector,
                };
                from.nack_at = now + (pause << from.tries.min(16)).min(NACK_PAUSE_MAX_NS);
                from.tries += 1;
                if !gaps.is_empty() {
                    self.words
                        .push_back((To::Member(to), Word::Nack { root, gaps }));
                }
            }
        }
    }

    /// Whom this member acknowledges to: the root, where its collector is dead.
    fn living_collector(&self, root: u16) -> u16 {
        let collector = self.parts.collector(root, self.cfg.me);
        match self.dead.contains(&collector) {
            true => root,
            false => collector,
        }
    }

    /// The root of these receives is dead.
    pub(super) fn fail_receives(&mut self, root: u16) {
        self.receiving.roots.remove(&root);
        let theirs = |b: &Incoming| b.root == root;
        let broadcasts = self.receiving.broadcasts.iter().filter(|(_, b)| theirs(b));
        let numbers: Vec<u64> = broadcasts.map(|(&number, _)| number).collect();
        for broadcast in numbers {
            let early = self.receiving.broadcasts.get(&broadcast);
            if let Some(early) = early.filter(|b| b.handle.is_none()) {
                self.receiving.early_bytes -= early.total;
                self.events.push_back(GroupEvent::Drop { broadcast });
            }
            self.end_receive(broadcast, End::Dead(root));
        }
    }
}

fn early_is_whole(receiving: &Receiving, broadcast: u64) -> bool {
    let incoming = receiving.broadcasts.get(&broadcast);
    incoming.is_some_and(|b| b.here == b.total)
}
