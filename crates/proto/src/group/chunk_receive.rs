//! The receiving side: destinations and acceptance of chunks.

use super::incoming::Incoming;
use super::mutation::GroupMutation;
use super::pieces::whole_of;
use super::state::Group;
use super::types::{Chunk, End, GroupEvent, Heard, Place, Rebuild};
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;

impl Group {
    pub(super) fn post_receive(
        &mut self,
        now: u64,
        (broadcast, root): (u64, u16),
        handle: u32,
        len: u64,
    ) {
        if len == 0 {
            self.end(broadcast, handle, End::Well);
        } else if self.dead.contains(&root) {
            self.order.break_off(broadcast, root);
            self.end(broadcast, handle, End::Dead(root));
        } else if let Entry::Vacant(place) = self.receiving.broadcasts.entry(broadcast) {
            place.insert(Incoming {
                root,
                total: len,
                here: 0,
                first: None,
                handle: Some(handle),
            });
        } else {
            self.adopt(now, (broadcast, (root, len)), handle);
        }
        self.make_room(now);
    }

    /// Refuses to take part in a broadcast and drops its early bytes. Chunks that found no room are
    /// requested again: they now find room, or are dropped.
    pub(super) fn refuse(&mut self, now: u64, broadcast: u64, handle: u32, end: End) {
        if let Some(early) = self.receiving.broadcasts.remove(&broadcast) {
            self.receiving.early_bytes -= early.here;
            self.events.push_back(GroupEvent::Drop { broadcast });
        }
        self.end(broadcast, handle, end);
        self.make_room(now);
    }

    /// Gives an early broadcast its operation.
    fn adopt(&mut self, now: u64, (broadcast, posted): (u64, (u16, u64)), handle: u32) {
        let Some(early) = self.receiving.broadcasts.get_mut(&broadcast) else {
            return;
        };
        self.receiving.early_bytes -= early.here;
        early.handle = Some(handle);
        let whole = early.here == early.total;
        if (early.root, early.total) != posted {
            self.events.push_back(GroupEvent::Drop { broadcast });
            return self.end_receive(broadcast, End::Mismatch);
        }
        if !self.cfg.errs(GroupMutation::LoseEarly) {
            let event = GroupEvent::Adopt { broadcast, handle };
            self.events.push_back(event);
        }
        if whole {
            self.end_receive(broadcast, End::Well);
        }
        self.ack_freed_room(now);
    }

    /// Requests chunks again that had no room.
    pub(super) fn make_room(&mut self, now: u64) {
        for from in self.receiving.roots.values_mut() {
            if from.no_room_from < u64::MAX {
                from.no_room_from = u64::MAX;
                from.nack_at = if from.has_gaps() { now } else { u64::MAX };
            }
        }
    }

    fn end_receive(&mut self, broadcast: u64, end: End) {
        let ended = self.receiving.broadcasts.remove(&broadcast);
        if let Some(handle) = ended.and_then(|b| b.handle) {
            self.end(broadcast, handle, end);
        }
    }

    /// Returns the destination of a received chunk. It counts once [`Group::commit`] confirms its
    /// bytes.
    pub fn place(&mut self, now_ns: u64, heard: Heard, chunk: &Chunk) -> Place {
        let place = self.place_of(now_ns, heard, chunk);
        match place {
            Place::Duplicate => {
                self.stats.duplicates += 1;
                self.hear_chunk(now_ns, heard, chunk, false);
            }
            Place::NoRoom => self.stats.no_room += 1,
            Place::Invalid => self.stats.nonsense += 1,
            Place::Posted { .. } | Place::Early { .. } => return place,
        }
        self.watch_gaps(now_ns, chunk.root, false);
        self.begin(now_ns);
        place
    }

    /// Returns whether a chunk has the place and length that the cutting of its broadcast gives it,
    /// and comes from its root or a collector.
    pub(super) fn is_consistent(&self, heard: Heard, chunk: &Chunk) -> bool {
        let Chunk { root, offset, .. } = *chunk;
        let size = self.cfg.chunk as u64;
        let known = root < self.members() && root != self.cfg.me && !self.dead.contains(&root);
        known
            && (heard.from == root || self.parts.collects(root, heard.from))
            && chunk.len > 0
            && offset < chunk.total
            && offset % size == 0
            && chunk.len as u64 == size.min(chunk.total - offset)
            && chunk.number >= offset / size
    }

    /// The whole chunk that a piece belongs to, or the chunk itself.
    fn whole_of(&self, chunk: &Chunk) -> Option<Chunk> {
        whole_of(chunk, self.cfg.chunk)
    }

    fn place_of(&mut self, now: u64, heard: Heard, chunk: &Chunk) -> Place {
        let window = self.cfg.scheme.window as u64;
        let whole = self.whole_of(chunk).filter(|_| chunk.parity == 0);
        if !whole.is_some_and(|whole| self.is_consistent(heard, &whole)) {
            return Place::Invalid;
        }
        let from = self.receiving.roots.entry(chunk.root).or_default();
        if chunk.number >= from.next + window {
            return Place::Invalid;
        }
        let here = from.got.contains(chunk.number) || from.pieces.has(chunk);
        if here && !self.cfg.errs(GroupMutation::DeliverTwice) {
            return Place::Duplicate;
        }
        from.high = from.high.max(chunk.number + 1);
        let network = heard
            .network
            .and_then(|l| from.network_high.get_mut(l as usize));
        network
            .into_iter()
            .for_each(|high| *high = (*high).max(chunk.number + 1));
        if chunk.asks {
            from.wanted = from.wanted.max(chunk.number + 1);
        }
        if chunk.leaves {
            self.leave(chunk.broadcast);
        }
        let place = self.place_in(now, chunk);
        if place.takes() && self.cfg.errs(GroupMutation::AckBeforeCommit) {
            self.took(now, chunk);
        }
        place
    }

    fn place_in(&mut self, now: u64, chunk: &Chunk) -> Place {
        let begun = chunk.broadcast < self.order.next();
        // A co-root keeps no chunk that arrived in pieces; members of its part request such chunks
        // from the root.
        let keep = chunk.piece == 0 && self.keeps(chunk);
        let first = chunk.number - chunk.offset / self.cfg.chunk as u64;
        let broadcast = self.broadcast_of(chunk);
        let Some(incoming) = self.receiving.broadcasts.get_mut(&broadcast) else {
            if begun || self.order.refuses(chunk.broadcast) {
                return self.count_unwanted(now, chunk);
            }
            return self.place_early(chunk, first, keep);
        };
        let same = incoming.root == chunk.root && incoming.total == chunk.total;
        let in_line = *incoming.first.get_or_insert(first) == first;
        match incoming.handle {
            Some(handle) if same && in_line => Place::Posted { handle, keep },
            Some(_) if !same => {
                self.end_receive(chunk.broadcast, End::Mismatch);
                self.count_unwanted(now, chunk)
            }
            None if same && in_line => self.place_early(chunk, first, keep),
            _ => Place::Invalid,
        }
    }

    /// The broadcast that a chunk belongs to.
    fn broadcast_of(&self, chunk: &Chunk) -> u64 {
        if !self.cfg.errs(GroupMutation::MixBroadcasts) {
            return chunk.broadcast;
        }
        let theirs = |(_, b): &(&u64, &Incoming)| b.root == chunk.root && b.handle.is_some();
        let first = self.receiving.broadcasts.iter().find(theirs);
        let first = first.map(|(&broadcast, _)| broadcast);
        first.unwrap_or(chunk.broadcast)
    }

    /// Counts a chunk of an unwanted broadcast as received, since its root would otherwise wait for
    /// it.
    fn count_unwanted(&mut self, now: u64, chunk: &Chunk) -> Place {
        if let Some(from) = self.receiving.roots.get_mut(&chunk.root) {
            from.take(chunk.number, 1);
            from.ended += 1;
        }
        // Members of this co-root's part may request the chunk.
        self.keep(now, chunk, false);
        self.owe_ack(now, chunk.root);
        Place::Duplicate
    }

    /// Reserves early-buffer space for a chunk of a broadcast that is not posted yet.
    fn place_early(&mut self, chunk: &Chunk, first: u64, keep: bool) -> Place {
        if chunk.len as u64 > self.early_room(chunk.offset) {
            if let Some(from) = self.receiving.roots.get_mut(&chunk.root) {
                from.no_room_from = from.no_room_from.min(chunk.number);
            }
            return Place::NoRoom;
        }
        let broadcast = self.receiving.broadcasts.entry(chunk.broadcast);
        broadcast.or_insert(Incoming {
            root: chunk.root,
            total: chunk.total,
            here: 0,
            first: Some(first),
            handle: None,
        });
        Place::Early { keep }
    }

    /// Bytes from `offset` on of a broadcast that is not posted yet for which the early buffers
    /// have room. No broadcast is kept beyond offset `early_max`.
    pub(super) fn early_room(&self, offset: u64) -> u64 {
        if self.cfg.errs(GroupMutation::BoundlessEarly) {
            return u64::MAX;
        }
        let used = self.receiving.early_bytes.max(offset);
        self.cfg.early_max.saturating_sub(used)
    }

    /// Reports that a chunk's bytes are at the place that [`Group::place`] returned, and whether
    /// they are correct (`ok`) or damaged.
    pub fn commit(&mut self, now_ns: u64, heard: Heard, chunk: &Chunk, ok: bool) {
        let ok = ok || self.cfg.errs(GroupMutation::IgnoreSum);
        match ok {
            true => self.hear_chunk(now_ns, heard, chunk, true),
            false => self.forget_pieces(chunk),
        }
        let turns_unreachable = self.reachability.alone.turns_unreachable(now_ns);
        if let Some(from) = self.receiving.roots.get_mut(&chunk.root) {
            if from.alone.turns_unreachable(now_ns) || turns_unreachable {
                from.ack_at = now_ns;
            }
        }
        if !ok || !self.took(now_ns, chunk) {
            self.watch_gaps(now_ns, chunk.root, false);
        }
        self.begin(now_ns);
    }

    /// Records whether multicast carried a chunk or a piece. A repeat (not `fresh`) that arrived as
    /// a unicast packet is no evidence against multicast.
    fn hear_chunk(&mut self, now: u64, heard: Heard, chunk: &Chunk, fresh: bool) {
        // The first piece counts for the whole chunk.
        let counts = fresh && chunk.piece <= 1 && !self.cfg.scheme.alone;
        let len = self.whole_of(chunk).map_or(0, |whole| whole.len);
        let from = self.receiving.roots.get_mut(&chunk.root);
        let of_root = from.map(|from| &mut from.alone);
        if heard.network.is_some() {
            self.reachability.reaches(Some(len));
            of_root.into_iter().for_each(|alone| {
                alone.reaches(Some(len));
            });
        } else if counts {
            self.reachability.alone.came(now, len);
            of_root.into_iter().for_each(|alone| alone.came(now, len));
        }
    }

    /// Records a multicast probe of a root, or of a collector.
    pub(super) fn hear_probe(&mut self, by: u16) {
        self.reachability.reaches(None);
        let (parts, me) = (&self.parts, self.cfg.me);
        for (&root, from) in &mut self.receiving.roots {
            if root == by || parts.collector(root, me) == by {
                from.alone.reaches(None);
            }
        }
    }

    /// Forgets the pieces of a chunk after a damaged whole chunk was stored over them.
    fn forget_pieces(&mut self, chunk: &Chunk) {
        let from = self.receiving.roots.get_mut(&chunk.root);
        let Some(from) = from.filter(|_| chunk.piece == 0) else {
            return;
        };
        let bytes = from.pieces.bytes(chunk.number);
        from.pieces.remove(chunk.number, 1);
        if let Some(incoming) = self.receiving.broadcasts.get_mut(&chunk.broadcast) {
            incoming.here -= bytes;
            let early = incoming.handle.is_none() as u64;
            self.receiving.early_bytes -= early * bytes;
        }
    }

    /// Counts a received piece. Returns the chunk that it completes.
    fn took_piece(&mut self, now: u64, piece: &Chunk) -> Option<Chunk> {
        let whole = self.whole_of(piece)?;
        let trip_ns = self.trip.ns();
        let from = self.receiving.roots.get_mut(&piece.root)?;
        if from.got.contains(piece.number) || !from.pieces.add(piece) {
            return None;
        }
        let all = from.pieces.bytes(piece.number) == whole.len as u64;
        if all || self.cfg.errs(GroupMutation::PieceIsWhole) {
            return Some(whole);
        }
        // The other pieces may still arrive, so the next request waits for two round trips.
        from.tries = from.tries.min(1);
        from.nack_at = now + 2 * trip_ns;
        let bytes = piece.len as u64;
        if let Some(incoming) = self.receiving.broadcasts.get_mut(&piece.broadcast) {
            incoming.here += bytes;
            if incoming.handle.is_none() {
                self.count_early(bytes);
            }
        }
        None
    }

    /// Counts a received chunk or piece. Returns true if a whole chunk is new.
    fn took(&mut self, now: u64, chunk: &Chunk) -> bool {
        if chunk.piece == 0 {
            return self.took_whole(now, chunk, (chunk.len as u64, true));
        }
        let whole = self.took_piece(now, chunk);
        whole.is_some_and(|whole| self.took_whole(now, &whole, (chunk.len as u64, false)))
    }

    /// Counts a whole chunk, of which the last `last` bytes arrived now. Returns true if the chunk
    /// is new. `keeps`: a co-root may keep a copy.
    fn took_whole(&mut self, now: u64, chunk: &Chunk, (last, keeps): (u64, bool)) -> bool {
        let Some(from) = self.receiving.roots.get_mut(&chunk.root) else {
            return false;
        };
        let before = from.next;
        let bytes = match keeps {
            true => last.saturating_sub(from.pieces.bytes(chunk.number)),
            false => last,
        };
        let twice = self.cfg.errs(GroupMutation::DeliverTwice);
        if !from.take(chunk.number, 1) && !twice {
            return false;
        }
        let progress = from.next > before;
        if from.asked.is_some_and(|(number, _)| number == chunk.number) {
            let (_, at) = from.asked.take().unwrap_or_default();
            self.trip.sample(now.saturating_sub(at));
        }
        let early = self.cfg.errs(GroupMutation::EndEarly) as u64 * chunk.len as u64;
        if let Some(incoming) = self.receiving.broadcasts.get_mut(&chunk.broadcast) {
            incoming.here += bytes;
            let whole = incoming.here + early >= incoming.total;
            let posted = incoming.handle.is_some();
            from.ended += whole as u32;
            match posted {
                true if whole => self.end_receive(chunk.broadcast, End::Well),
                true => {}
                false => self.count_early(bytes),
            }
        }
        self.keep(now, chunk, keeps);
        self.watch_gaps(now, chunk.root, progress);
        self.owe_ack(now, chunk.root);
        true
    }

    /// Counts stored bytes of a broadcast that is not posted yet.
    pub(super) fn count_early(&mut self, bytes: u64) {
        let early = &mut self.receiving.early_bytes;
        *early += bytes;
        self.stats.early_bytes_max = self.stats.early_bytes_max.max(*early);
    }

    /// Handles a parity: returns the chunk to rebuild if exactly one of its chunks is missing here.
    /// The rebuilt chunk is committed like a received one.
    pub fn place_parity(&mut self, now_ns: u64, heard: Heard, parity: &Chunk) -> Option<Rebuild> {
        let chunk = self.missing_of(now_ns, heard, parity)?;
        let place = self.place_of(now_ns, heard, &chunk);
        let end = parity.number + parity.parity as u64 - chunk.number;
        let end = chunk.offset + end * self.cfg.chunk as u64;
        place.takes().then(|| {
            self.stats.rebuilt += 1;
            Rebuild {
                place,
                chunk,
                span: (parity.offset, end.min(parity.total)),
            }
        })
    }

    fn missing_of(&mut self, now: u64, heard: Heard, parity: &Chunk) -> Option<Chunk> {
        let count = parity.parity as u64;
        let (size, window) = (self.cfg.chunk as u64, self.cfg.scheme.window as u64);
        let first = Chunk {
            parity: 0,
            ..*parity
        };
        let last = parity.offset.checked_add(count.saturating_sub(1) * size)?;
        if count < 2 || !self.is_consistent(heard, &first) || last >= parity.total {
            self.stats.nonsense += 1;
            return None;
        }
        let end = parity.number.saturating_add(count);
        let from = self.receiving.roots.entry(parity.root).or_default();
        if end > from.next + window {
            self.stats.nonsense += 1;
            return None;
        }
        from.high = from.high.max(end);
        let mut missing = (parity.number..end).filter(|&number| !from.got.contains(number));
        let number = missing.next();
        let more = missing.next().is_some() && !self.cfg.errs(GroupMutation::TrustParity);
        self.watch_gaps(now, parity.root, false);
        let number = number.filter(|_| !more)?;
        let offset = parity.offset + (number - parity.number) * size;
        Some(Chunk {
            number,
            offset,
            len: size.min(parity.total - offset) as u32,
            ..first
        })
    }

    /// Ends the receives from a dead root.
    pub(super) fn fail_receives(&mut self, root: u16) {
        self.receiving.roots.remove(&root);
        let theirs = |b: &Incoming| b.root == root;
        let broadcasts = self.receiving.broadcasts.iter().filter(|(_, b)| theirs(b));
        let numbers: Vec<u64> = broadcasts.map(|(&number, _)| number).collect();
        for broadcast in numbers {
            self.order.break_off(broadcast, root);
            let early = self.receiving.broadcasts.get(&broadcast);
            if let Some(early) = early.filter(|b| b.handle.is_none()) {
                self.receiving.early_bytes -= early.here;
                self.events.push_back(GroupEvent::Drop { broadcast });
            }
            if !self.cfg.errs(GroupMutation::WaitForDead) {
                self.end_receive(broadcast, End::Dead(root));
            }
        }
    }
}
