//! Sends packets of groups: packets of equal length to one destination leave by one call.

use crate::core::Core;
use crate::platform::system::System;
use crate::state::group_table::OpenGroup;
use marline_proto::group::{Packet, To};
use marline_proto::Dest;
use marline_rails::{LinkId, RailTx, SendOutcome};

/// Number of unicast sends to a member of which one avoids the rail on which the member was heard
/// last, if there is another: a rail that receives need not carry packets in the other direction.
const OTHER_RAIL_EVERY: usize = 4;

impl<S: System> Core<S> {
    /// Sends a group's packets and handles its events until there are none.
    pub(super) fn pump_group(&mut self, now: u64, open: &mut OpenGroup) {
        loop {
            let mut idle = true;
            while !self.is_blocked(open) {
                let Some(packet) = open.group.poll_transmit(now) else {
                    break;
                };
                idle = false;
                self.stage_group_packet(now, open, &packet);
            }
            // Built packets hold copies, so operations may end before the packets leave.
            idle &= !open.group.take_events(&mut open.memory);
            open.memory.end_operations();
            if idle {
                return self.send_batches(now);
            }
        }
    }

    /// True if a rail of the group has no room, since the next packet may be for that rail.
    fn is_blocked(&mut self, open: &OpenGroup) -> bool {
        let full = self.rails.full_mask;
        let blocked = open.networks.iter().any(|(rail, _)| full >> rail & 1 == 1);
        self.groups.blocked |= blocked;
        blocked
    }

    /// Appends a packet to the batch for its destination.
    fn stage_group_packet(&mut self, now: u64, open: &mut OpenGroup, packet: &Packet) {
        let Some((rail, dest)) = self.way_of(open, packet.to) else {
            return;
        };
        let Some(lens) = open.measure(packet) else {
            return;
        };
        // A connection without room does not hold up rails.
        let network = open.networks.iter().any(|(of, _)| *of == rail);
        if !network && self.rails.full_mask >> rail & 1 == 1 {
            return;
        }
        if matches!(dest, Dest::Group(_)) {
            self.send_on_other_networks(now, open, rail);
        }
        let caps = self.rails.list[rail].tx.caps();
        let most = (caps.batch_segments_max, caps.batch_bytes_max);
        let mut open_batch = self.groups.batches.find(rail, dest);
        if let Some(at) = open_batch {
            if !self.groups.batches.get(at).takes(lens.whole, most) {
                self.send_batch(now, at); // if it has to wait, this packet starts another batch
                open_batch = None;
            }
        }
        let at = open_batch.unwrap_or_else(|| self.groups.batches.begin(rail, dest));
        let out = self.groups.batches.get(at).room(lens.whole);
        if open.encode(packet, &lens, out).is_none() {
            self.groups.batches.get(at).undo(lens.whole);
        }
    }

    /// Sends the batches of other networks first, so that chunks leave in order and no member
    /// reports earlier ones as missing.
    fn send_on_other_networks(&mut self, now: u64, open: &OpenGroup, network: usize) {
        for &(rail, link) in open.networks.iter().filter(|(rail, _)| *rail != network) {
            if let Some(at) = self.groups.batches.find(rail, Dest::Group(link.0)) {
                self.send_batch(now, at);
            }
        }
    }

    /// Sends all batches.
    pub(super) fn send_batches(&mut self, now: u64) {
        for at in 0..self.groups.batches.len() {
            if self.rails.full_mask >> self.groups.batches.get(at).rail & 1 == 0 {
                self.send_batch(now, at);
            }
        }
    }

    /// Sends a rail's batches; `false`: it has no room.
    pub(crate) fn send_batches_of(&mut self, now: u64, rail: usize) -> bool {
        let mut numbers = 0..self.groups.batches.len();
        numbers.all(|at| self.groups.batches.get(at).rail != rail || self.send_batch(now, at))
    }

    /// Sends a batch; `false`: its rail has no room, and the batch stays.
    fn send_batch(&mut self, now: u64, at: usize) -> bool {
        let batch = self.groups.batches.get(at);
        let (rail, dest, segment) = (batch.rail, batch.dest, batch.segment);
        if batch.bytes().is_empty() {
            return true;
        }
        let packets = batch.bytes().len().div_ceil(segment);
        let state = &mut self.rails.list[rail];
        state.counters.send_calls += 1;
        let outcome = state.send_to(dest, batch.bytes(), segment);
        if outcome == SendOutcome::Busy {
            state.counters.busy += 1;
            self.groups.blocked = true;
            self.no_room(now, rail, None);
            return false;
        }
        let counters = &mut state.counters;
        counters.wire_packets_sent += packets as u64;
        counters.wire_bytes_sent += batch.bytes().len() as u64;
        batch.clear();
        // A packet that exceeds a path's MTU is lost there. Groups use only networks where their
        // probes, which are as long as the longest packet, arrive.
        if matches!(outcome, SendOutcome::Fault(_)) {
            self.after_send(now, rail, LinkId::NONE, outcome);
        }
        true
    }

    /// Rail and destination of a packet.
    fn way_of(&self, open: &mut OpenGroup, to: To) -> Option<(usize, Dest)> {
        let member = match to {
            To::All { network } => {
                let &(rail, link) = open.networks.get(network as usize)?;
                return Some((rail, Dest::Group(link.0)));
            }
            To::Member(member) => open.members.get(member as usize)?,
        };
        open.turn = open.turn.wrapping_add(1);
        let up = |(rail, _): &&(usize, LinkId)| self.rails[*rail].up;
        let all = || member.links.iter().chain(&member.connections).filter(up);
        let works = |way: &&(usize, LinkId)| member.unacked >> (way.0 & 31) & 1 == 0;
        let others = || all().filter(|(rail, _)| *rail != member.heard_by);
        let another = || {
            let count = others().count().max(1);
            others().nth(open.turn / OTHER_RAIL_EVERY % count)
        };
        let heard = all().filter(works).find(|way| way.0 == member.heard_by);
        let heard = heard.or_else(|| all().find(works));
        let heard = heard.filter(|_| open.turn % OTHER_RAIL_EVERY != 0);
        let way = heard.or_else(another).or(member.links.first());
        way.map(|&(rail, link)| {
            let (link, flow) = (link.0, 0);
            (rail, Dest::Link { link, flow })
        })
    }

    /// Sends packets that waited for room.
    pub(crate) fn flush_groups(&mut self, now: u64) {
        if !std::mem::take(&mut self.groups.blocked) {
            return;
        }
        let order = self.groups.turns.order(self.groups.list.len());
        for number in order {
            let had_room = !self.groups.blocked;
            self.with_group(now, number as u32, |_| ());
            if had_room && self.groups.blocked {
                self.groups.turns.took_last_room(number);
            }
        }
    }
}
