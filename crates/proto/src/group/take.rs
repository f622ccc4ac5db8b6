//! A packet that came, taken whole: its words, and its chunk into its place.

use super::mutation::GroupMutation;
use super::state::Group;
use super::types::{Chunk, GroupEvent, Heard, Load, Place, Rebuild, Took};
use marline_wire::GroupPacket;

/// The memory of a group's operations, which its owner has.
pub trait GroupOwner {
    /// The sum of bytes by the algorithm of this number; `None`: it is not known.
    fn sum(&self, algorithm: u8, seed: u64, bytes: &[u8]) -> Option<u64>;

    /// Says if a payload has the sum that it was sent with.
    fn is_right(&self, load: &Load<'_>) -> bool {
        self.sum(load.algorithm, load.seed, load.payload) == Some(load.sum)
    }

    /// Copies a chunk to its place, and says if it is right there; `None`: it is not taken.
    fn land(&mut self, place: Place, chunk: &Chunk, load: &Load<'_>) -> Option<bool>;

    /// Makes a chunk of a parity that is right, and its neighbours; `None`: it has no place.
    fn rebuild(&mut self, rebuild: &Rebuild, parity: &[u8]) -> Option<()>;

    /// Does what an event says. Operations that end belong to the group until the packets that
    /// [`Group::poll_transmit`] gives have been built.
    fn take_event(&mut self, event: GroupEvent);
}

impl Group {
    /// Takes a packet that [`Group::admit`] let in. After the last of a batch come
    /// [`Group::acknowledge`], packets to send and [`Group::take_events`].
    pub fn take_packet(
        &mut self,
        now_ns: u64,
        heard: Heard,
        packet: &GroupPacket<'_>,
        owner: &mut impl GroupOwner,
    ) -> Took {
        for word in packet.words() {
            self.handle_word(now_ns, heard, &word);
        }
        let Some((chunk, sum, payload)) = packet.chunk() else {
            return Took::Right;
        };
        let load = Load {
            algorithm: packet.head.algorithm,
            seed: chunk.seed(packet.head.group),
            sum,
            payload,
        };
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
