//! Packets that came, taken whole: their words, and their chunks into their places.

use super::mutation::GroupMutation;
use super::owner::GroupOwner;
use super::run::Run;
use super::state::Group;
use super::types::{Chunk, Heard, Load};
use marline_wire::GroupPacket;

/// The outcome of a packet.
enum Took {
    Right,
    /// Its payload was damaged on the way.
    Damaged,
    /// Its payload has a sum that cannot be made here.
    BadAlgorithm,
}

/// The outcomes of the packets of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Packets that name the group.
    pub packets: usize,
    /// Those of them whose sender or token is none of this group's.
    pub strangers: u64,
    /// Those whose algorithm is not known.
    pub bad_algorithm: u64,
    /// Those whose payload is damaged.
    pub damaged: u64,
    /// Whom the last of a member came from, and how.
    pub heard: Option<Heard>,
}

impl Group {
    /// Takes the packets of a batch up to the first that names another group, and acknowledges what
    /// is to be acknowledged at once. Then come packets to send and [`Group::take_events`].
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

    /// Takes a packet that [`Group::admit`] let in.
    fn take_packet(
        &mut self,
        now_ns: u64,
        heard: Heard,
        packet: &GroupPacket<'_>,
        owner: &mut impl GroupOwner,
    ) -> Took {
        for word in packet.words() {
            self.handle_word(now_ns, heard, &word);
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
        self.hand_over(owner); // it may be this chunk, damaged
        let Some(right) = owner.land(place, &chunk, &load) else {
            return Took::Right; // it is here already, or has no place
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
        // A damaged parity makes damaged chunks: it is not looked at.
        if !owner.is_right(load) {
            return Took::Damaged;
        }
        if let Some(rebuild) = self.place_parity(now, heard, parity) {
            self.hand_over(owner); // it may be the neighbours
            let made = owner.rebuild(&rebuild, load.payload).is_some();
            self.commit(now, heard, &rebuild.chunk, made);
        }
        Took::Right
    }

    /// Puts in place, before the chunk that was just placed, those that came early.
    fn hand_over(&mut self, owner: &mut impl GroupOwner) {
        if !self.cfg.errs(GroupMutation::HandOverLate) {
            self.take_events(owner);
        }
    }

    /// Has the owner take all events; whether there were any.
    pub fn take_events(&mut self, owner: &mut impl GroupOwner) -> bool {
        let mut some = false;
        while let Some(event) = self.poll_event() {
            some = true;
            owner.take_event(event);
        }
        some
    }
}
