//! Processing of received packets: their frames, and the placing of their chunks.

use super::mutation::GroupMutation;
use super::owner::GroupOwner;
use super::run::Run;
use super::state::Group;
use super::types::{Chunk, Heard, Load};
use marline_wire::{GroupHead, GroupPacket, TO_ALL};

/// Outcome of a packet.
enum Took {
    Right,
    /// Payload with a wrong sum.
    Damaged,
    /// Payload whose sum algorithm is unknown here.
    BadAlgorithm,
}

/// Outcomes of the packets of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Packets for this group.
    pub packets: usize,
    /// Packets whose sender or token does not belong to this group.
    pub strangers: u64,
    /// Packets with an unknown sum algorithm.
    pub bad_algorithm: u64,
    /// Packets with damaged payload.
    pub damaged: u64,
    /// Packets with a tag for another member, or whose number had arrived or is too old.
    pub replayed: u64,
    /// Source of the last packet from a member.
    pub heard: Option<Heard>,
}

impl Group {
    /// Processes the packets of a batch up to the first for another group, and sends the
    /// acknowledgements that are due. The caller has checked the tags of packets that have one.
    /// Send packets and call [`Group::take_events`] afterwards.
    pub fn take_batch<'a>(
        &mut self,
        now_ns: u64,
        packets: impl Iterator<Item = GroupPacket<'a>>,
        owner: &mut impl GroupOwner,
    ) -> Tally {
        let mut tally = Tally::default();
        let mut run: Option<Run> = None;
        for packet in packets {
            if !self.is_for(&packet.head) {
                break;
            }
            tally.packets += 1;
            if !self.is_fresh(&packet) {
                tally.replayed += 1;
                continue;
            }
            if run.as_mut().is_some_and(|run| run.take(&packet, owner)) {
                continue;
            }
            self.end_run(now_ns, run.take());
            let Some(heard) = self.admit(&packet.head) else {
                tally.strangers += 1;
                continue;
            };
            tally.heard = Some(heard);
            match self.take_packet(now_ns, heard, &packet, owner) {
                Took::Right => run = self.begin_run(heard, &packet),
                Took::BadAlgorithm => tally.bad_algorithm += 1,
                Took::Damaged => tally.damaged += 1,
            }
        }
        self.end_run(now_ns, run);
        self.acknowledge(now_ns);
        tally
    }

    /// Returns whether a packet with a right tag is for this member and has not arrived before.
    /// Notes its number. Packets without a tag have none.
    fn is_fresh(&mut self, packet: &GroupPacket<'_>) -> bool {
        let Some(seal) = packet.seal() else {
            return true;
        };
        let multicast = packet.head.flags & GroupHead::FLAG_MULTICAST != 0;
        let to = if multicast { TO_ALL } else { self.cfg.me };
        if seal.to != to && !self.cfg.errs(GroupMutation::AcceptMisdirected) {
            return false;
        }
        let from = (packet.head.member, self.members());
        let window = self.cfg.scheme.window;
        self.replays.take(from, seal.number, window) || self.cfg.errs(GroupMutation::AcceptReplays)
    }

    /// Processes a packet that passed [`Group::admit`].
    fn take_packet(
        &mut self,
        now_ns: u64,
        heard: Heard,
        packet: &GroupPacket<'_>,
        owner: &mut impl GroupOwner,
    ) -> Took {
        for frame in packet.frames() {
            self.handle_frame(now_ns, heard, &frame);
        }
        let chunk = packet.chunk().filter(|_| !self.retired);
        let Some((chunk, sum, payload)) = chunk else {
            return Took::Right;
        };
        let load = Load::of(&packet.head, &chunk, sum, payload);
        if owner.sum(load.algorithm, 0, &[]).is_none() {
            return Took::BadAlgorithm;
        }
        if chunk.parity > 0 {
            return self.take_parity(now_ns, heard, (&chunk, &load), owner);
        }
        let place = self.place(now_ns, heard, &chunk);
        self.hand_over(owner); // the early bytes may include a damaged copy of this chunk
        let Some(right) = owner.land(place, &chunk, &load) else {
            return Took::Right; // already stored, or without a place
        };
        self.commit(now_ns, heard, &chunk, right);
        match right {
            true => Took::Right,
            false => Took::Damaged,
        }
    }

    fn take_parity(
        &mut self,
        now: u64,
        heard: Heard,
        (parity, load): (&Chunk, &Load<'_>),
        owner: &mut impl GroupOwner,
    ) -> Took {
        // A damaged parity would rebuild damaged chunks.
        if !owner.is_right(load) {
            return Took::Damaged;
        }
        if let Some(rebuild) = self.place_parity(now, heard, parity) {
            self.hand_over(owner); // the early bytes may include the other chunks
            let made = owner.rebuild(&rebuild, load.payload).is_some();
            self.commit(now, heard, &rebuild.chunk, made);
        }
        Took::Right
    }

    /// Delivers pending early bytes before the chunk that was just placed.
    fn hand_over(&mut self, owner: &mut impl GroupOwner) {
        if !self.cfg.errs(GroupMutation::HandOverLate) {
            self.take_events(owner);
        }
    }

    /// Passes all events to the owner. Returns whether there were any.
    pub fn take_events(&mut self, owner: &mut impl GroupOwner) -> bool {
        let mut some = false;
        while let Some(event) = self.poll_event() {
            some = true;
            owner.take_event(event);
        }
        some
    }
}
