//! Unreliable InfiniBand connections (UC): landed writes, as reported by immediates, and stuck
//! connections.
//!
//! Each part of a write has an immediate, which arrives after the part has landed. Sometimes an
//! immediate alone is lost, or a rail reports falsely: the immediate precedes the bytes or arrives
//! without them. The packet that reports the writes is accepted when all immediates have arrived;
//! the rails' own code decides that. A replaced connection continues the numbering.

use crate::machine::out::OutWrite;
use crate::machine::place::target_of;
use crate::machine::port::UC_MTU;
use crate::traffic::dials::end_of;
use crate::world::state::World;
use marline_proto::Mutation;
use marline_rails::immediate::{of_packet, WRITES_MAX};
use marline_wire::RailAddr;
use std::ops::Range;

impl OutWrite {
    /// The parts of a write's bytes, which are written separately; a single part without
    /// immediates.
    pub(crate) fn parts(&self) -> Vec<Range<usize>> {
        let mut lens: Vec<usize> = self.pieces.iter().map(|p| p.1).collect();
        if self.call.is_none() {
            lens = vec![lens.iter().sum()];
        }
        let count = |max| -> usize { lens.iter().map(|len| len.div_ceil(max)).sum() };
        let mut part_max = self.part_max;
        while count(part_max) > WRITES_MAX {
            part_max *= 2;
        }
        let (mut parts, mut from) = (Vec::new(), 0);
        for len in lens {
            let end = from + len;
            while from < end {
                let to = end.min(from.saturating_add(part_max));
                parts.push(from..to);
                from = to;
            }
        }
        parts
    }

    /// The immediate of the packet that reports the write.
    pub(crate) fn immediate(&self) -> Option<u32> {
        let call = self.call?;
        Some(of_packet(call, self.parts().len()))
    }
}

impl World {
    /// The immediate of a write arrives.
    pub(crate) fn said(&mut self, e: u32, from: u32, rail: usize, immediate: Option<u32>) {
        if let Some(immediate) = immediate {
            let landed = self.connections.landed.entry((e, rail)).or_default();
            landed.write(from, immediate);
        }
    }

    /// Returns whether an endpoint accepts a packet: all writes that it reports must have landed.
    pub(crate) fn believes(&mut self, e: u32, slot: u32) -> bool {
        let flying = &mut self.flying[slot as usize];
        let (from, rail) = (flying.from, flying.to.1);
        let Some(immediate) = flying.immediate.take() else {
            return true;
        };
        let landed = self.connections.landed.entry((e, rail)).or_default();
        landed.packet(from, immediate) || self.setup.node.errs(Mutation::TrustImmediates)
    }

    /// A packet of this length was lost: if it had several parts, its connection gets stuck.
    pub(crate) fn lost_part(
        &mut self,
        e: u32,
        start: (usize, usize),
        target: (usize, usize),
        len: usize,
    ) {
        if len > UC_MTU && self.setup.is_uc(start.1) {
            self.stick(e, start, target);
        }
    }

    /// Makes a connection lose everything in one direction, without notification.
    pub(crate) fn stick(&mut self, e: u32, start: (usize, usize), target: (usize, usize)) {
        if self.setup.sticks && !self.is_stuck(e, start, target) {
            let breaks = self.breaks(e, start, target);
            self.connections.stuck.insert((start, target), breaks);
            self.net.stats.stuck += 1;
        }
    }

    /// Returns whether a connection is stuck in this direction.
    pub(crate) fn is_stuck(&self, e: u32, start: (usize, usize), target: (usize, usize)) -> bool {
        let stuck = &self.connections.stuck;
        !stuck.is_empty() && stuck.get(&(start, target)) == Some(&self.breaks(e, start, target))
    }

    /// An end replaces its connection.
    pub(crate) fn remake(&mut self, e: u32, rail: usize, to: RailAddr) {
        let (start, target) = ((self.eps[e as usize].host, rail), target_of(&to));
        if !self.setup.is_uc(rail) {
            if self.setup.renews(rail) {
                self.replace(e, start, target);
            }
            return;
        }
        self.net.stats.remade += 1;
        self.break_connection(start, target);
        self.hear(&end_of(e, rail, &to));
    }
}
