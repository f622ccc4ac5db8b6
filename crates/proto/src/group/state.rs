//! The fields of one member's state.

use super::collectors::Parts;
use super::config::{GroupConfig, Identity};
use super::delay::Draw;
use super::incoming::Receiving;
use super::mutation::GroupMutation;
use super::networks::Networks;
use super::order::Order;
use super::outgoing::Sending;
use super::pace::Pace;
use super::reachability::{Reachability, Trip};
use super::replay::Replays;
use super::types::{End, Frame, GroupEvent, GroupStats, To};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// A posted broadcast that has not begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) root: u16,
    pub(super) handle: u32,
    pub(super) len: u64,
}

/// The state of a member of a group.
#[derive(Debug)]
pub struct Group {
    pub(super) cfg: GroupConfig,
    pub(super) who: Identity,
    pub(super) parts: Parts,
    pub(super) draw: Draw,
    pub(super) order: Order,
    /// Posted while too many broadcasts were unfinished, oldest first.
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) receiving: Receiving,
    /// Chunks that this member sends as root or retains as co-root, by root.
    pub(super) sending: BTreeMap<u16, Sending>,
    /// Retained bytes of other roots' chunks.
    pub(super) kept_bytes: u64,
    pub(super) networks: Networks,
    pub(super) pace: Pace,
    pub(super) reachability: Reachability,
    pub(super) trip: Trip,
    pub(super) dead: Vec<u16>,
    /// Numbers of each member's packets, once one with a tag has arrived.
    pub(super) replays: Replays,
    /// All operations are over, and no more are posted.
    pub(super) retired: bool,
    pub(super) frames: VecDeque<(To, Frame)>,
    /// The last packet had a chunk, and could not take acknowledgements that wait.
    pub(super) passed_acks: bool,
    pub(super) events: VecDeque<GroupEvent>,
    pub(super) stats: GroupStats,
}

impl Group {
    pub(super) fn members(&self) -> u16 {
        self.who.members.len() as u16
    }

    /// Ends an operation and its broadcast.
    pub(super) fn end(&mut self, broadcast: u64, handle: u32, end: End) {
        self.order.over(broadcast);
        self.events.push_back(GroupEvent::Done { handle, end });
    }

    /// Handles a broadcast's announcement that the group is abandoned.
    pub(super) fn leave(&mut self, broadcast: u64) {
        if let Some(from) = self.order.leaves(broadcast) {
            self.events.push_back(GroupEvent::NotCarried { from });
        }
    }

    pub(super) fn sending_of(&mut self, root: u16) -> &mut Sending {
        let forgets = self.cfg.errs(GroupMutation::ForgetAck);
        let orphans = root == self.cfg.me && !self.cfg.errs(GroupMutation::ForgetOrphans);
        let (parts, me, dead) = (&self.parts, self.cfg.me, &self.dead);
        self.sending.entry(root).or_insert_with(|| {
            // Includes the members of co-roots that died before anything was sent.
            let gone = dead.iter().filter(|_| orphans);
            let orphans = gone.flat_map(|&co_root| parts.of(me, co_root));
            let part = parts.of(root, me).skip(forgets as usize).chain(orphans);
            Sending::new(part.filter(|member| !dead.contains(member)))
        })
    }
}
