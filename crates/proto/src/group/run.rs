//! Consecutive chunks in a batch: each is copied and summed separately, but all are accounted for
//! together, so that most of a receiver's cost per chunk is paid once per run.

use super::mutation::GroupMutation;
use super::owner::GroupOwner;
use super::state::Group;
use super::types::{Chunk, Heard, Load, Place};
use marline_wire::{GroupHead, GroupPacket};

/// Most chunks of a run: more than the kernel's GRO joins.
const RUN_MAX: u64 = 64;

/// Chunks that follow a stored chunk, all missing so far, with the same place and sender. Excludes
/// the last missing chunk of a broadcast.
pub(super) struct Run {
    head: GroupHead,
    heard: Heard,
    place: Place,
    /// The next chunk.
    next: Chunk,
    /// Chunks that the run may still take, and chunks that it has taken.
    left: u64,
    count: u64,
}

impl Run {
    /// Stores a packet that has the next chunk of the run and nothing else; `false`: process it
    /// normally.
    pub(super) fn take(&mut self, packet: &GroupPacket<'_>, owner: &mut impl GroupOwner) -> bool {
        let Some((chunk, sum, payload)) = packet.chunk().filter(|_| self.left > 0) else {
            return false;
        };
        if chunk != self.next || packet.head != self.head || packet.frames().next().is_some() {
            return false;
        }
        let load = Load::of(&packet.head, &chunk, sum, payload);
        if owner.land(self.place, &chunk, &load) != Some(true) {
            return false; // damaged: the normal processing handles it again
        }
        self.next.number += 1;
        self.next.offset += chunk.len as u64;
        self.left -= 1;
        self.count += 1;
        true
    }
}

impl Group {
    /// The run that may follow a processed packet.
    pub(super) fn begin_run(&mut self, heard: Heard, packet: &GroupPacket<'_>) -> Option<Run> {
        let (chunk, _, _) = packet.chunk()?;
        let size = self.cfg.chunk as u64;
        let next = Chunk {
            number: chunk.number.checked_add(1)?,
            offset: chunk.offset.checked_add(size)?,
            asks: false,
            ..chunk
        };
        // The last chunk of a broadcast is shorter, or excluded from runs.
        let whole = chunk.parity == 0 && chunk.piece == 0;
        let plain = heard.network.is_some() && whole && !chunk.leaves;
        let sane = plain && chunk.len as u64 == size && self.is_consistent(heard, &next);
        if !sane || self.parts.collects(chunk.root, self.cfg.me) {
            return None;
        }
        let from = self.receiving.roots.get(&chunk.root)?;
        let incoming = self.receiving.broadcasts.get(&chunk.broadcast)?;
        let first = chunk.number - chunk.offset / size;
        let same = (incoming.root, incoming.total) == (chunk.root, chunk.total);
        if !same || incoming.first != Some(first) {
            return None;
        }
        let keep = false;
        let place = match incoming.handle {
            Some(handle) => Place::Posted { handle, keep },
            None => Place::Early { keep },
        };
        let window = (from.next + self.cfg.scheme.window as u64).saturating_sub(next.number);
        let lacks = (incoming.total - incoming.here).saturating_sub(1) / size;
        let rest = (chunk.total - next.offset) / size;
        let room = match incoming.handle {
            Some(_) => u64::MAX,
            None => self.early_room(next.offset) / size,
        };
        let pieces = from.pieces.first_from(next.number);
        let rest = rest.min(pieces.map_or(u64::MAX, |first| first - next.number));
        let most = RUN_MAX.min(window).min(lacks).min(rest).min(room);
        let left = match self.cfg.errs(GroupMutation::RunOn) {
            true => most,
            false => from.got.free_from(next.number, most),
        };
        (left > 0).then_some(Run {
            head: packet.head,
            heard,
            place,
            next,
            left,
            count: 0,
        })
    }

    /// Accounts for the chunks of a run.
    pub(super) fn end_run(&mut self, now: u64, run: Option<Run>) {
        let Some(run) = run.filter(|run| run.count > 0) else {
            return;
        };
        let Chunk { root, number, .. } = run.next;
        let (count, bytes) = (run.count, run.count * self.cfg.chunk as u64);
        let Some(from) = self.receiving.roots.get_mut(&root) else {
            return;
        };
        from.high = from.high.max(number);
        let network = run
            .heard
            .network
            .and_then(|l| from.network_high.get_mut(l as usize));
        network
            .into_iter()
            .for_each(|high| *high = (*high).max(number));
        let before = from.next;
        from.take(number - count, count);
        let progress = from.next > before;
        let asked = from
            .asked
            .filter(|(asked, _)| (number - count..number).contains(asked));
        if let Some((_, at)) = asked {
            from.asked = None;
            self.trip.sample(now.saturating_sub(at));
        }
        if let Some(incoming) = self.receiving.broadcasts.get_mut(&run.next.broadcast) {
            incoming.here += bytes;
            let early = incoming.handle.is_none() as u64;
            self.count_early(early * bytes);
        }
        self.watch_gaps(now, root, progress);
        self.owe_ack(now, root);
    }
}
