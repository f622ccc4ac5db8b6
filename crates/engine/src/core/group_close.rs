//! Closing groups. Members close a group independently of each other: a closed group continues for
//! other members until they have all that they may request from it, and afterwards answers members
//! that missed its acknowledgement.

use crate::api::{EpId, GroupId};
use crate::core::Core;
use crate::platform::system::System;
use crate::state::group_table::{GroupMemory, OpenGroup};
use marline_checksum::SumKey;
use marline_proto::Dest;
use marline_rails::{GroupLink, Groups as _, LinkId};

/// Most closed groups that still answer; each holds its member's state without payload. Beyond that
/// the group closed first is dropped: members ask again after 10 ms, so their questions have been
/// answered by then.
const CLOSED_MAX: usize = 64;

impl<S: System> Core<S> {
    /// Closes a group. Forgets open operations and no longer uses their memory. In that case, and
    /// if the group had no operation at all, nothing is kept for other members.
    pub fn group_close(&mut self, group: GroupId) {
        let Some(open) = self.groups.get(group.0) else {
            return;
        };
        let broken = open.memory.ops.values().any(|op| op.end.is_none());
        if broken || !open.group.is_used() {
            return self.drop_group(group.0);
        }
        self.groups.closed += 1;
        let closed = self.groups.closed;
        if let Some(open) = self.groups.get(group.0) {
            open.closed = Some(closed);
            open.memory.ops.clear();
        }
        let slot = self.groups.list.get_mut(group.0 as usize);
        if let Some(mut open) = slot.and_then(Option::take) {
            self.retire_if_over(&mut open);
            self.groups.list[group.0 as usize] = Some(open);
        }
        self.drop_oldest_closed();
        self.groups.note_deadlines();
    }

    /// Retires a closed group once no member needs its copies: from then on it only answers
    /// questions.
    pub(super) fn retire_if_over(&mut self, open: &mut OpenGroup) {
        if open.closed.is_none() || !open.group.may_retire() {
            return;
        }
        open.group.retire();
        open.memory = GroupMemory::new(0, SumKey::default());
        self.leave_networks(open);
        for member in open.members.iter_mut().filter(|member| member.watched) {
            member.watched = false;
            if let Some(endpoint) = self.dir.ep(open.ep) {
                endpoint.node.watch_peer(0, member.peer, false);
            }
        }
    }

    /// Leaves the group's multicast addresses.
    fn leave_networks(&mut self, open: &mut OpenGroup) {
        self.groups.batches.forget(|rail, dest| match dest {
            Dest::Group(link) => open.networks.contains(&(rail, GroupLink(link))),
            Dest::Link { .. } => false,
        });
        for (rail, link) in open.networks.drain(..) {
            self.rails.list[rail].tx.leave(link);
        }
    }

    /// Drops the oldest retired groups beyond [`CLOSED_MAX`].
    fn drop_oldest_closed(&mut self) {
        let retired = |(at, open): (usize, &Option<Box<OpenGroup>>)| {
            let open = open.as_ref().filter(|open| open.group.is_retired())?;
            Some((open.closed?, at as u32))
        };
        let list = self.groups.list.iter().enumerate();
        let mut closed: Vec<(u64, u32)> = list.filter_map(retired).collect();
        closed.sort_unstable();
        let over = closed.len().saturating_sub(CLOSED_MAX);
        for (_, number) in closed.drain(..over) {
            self.drop_group(number);
        }
    }

    /// Drops a group immediately.
    fn drop_group(&mut self, number: u32) {
        let slot = self.groups.list.get_mut(number as usize);
        let Some(mut open) = slot.and_then(Option::take) else {
            return;
        };
        self.leave_networks(&mut open);
        let ways = open.members.iter().flat_map(|member| &member.links);
        let ways: Vec<(usize, LinkId)> = ways.copied().collect();
        let connections = open.members.iter().flat_map(|member| &member.connections);
        let all: Vec<(usize, LinkId)> = connections.chain(&ways).copied().collect();
        self.groups.batches.forget(|rail, dest| match dest {
            Dest::Group(_) => false,
            Dest::Link { link, .. } => all.contains(&(rail, LinkId(link))),
        });
        for (rail, link) in ways {
            self.close_link(rail, link);
        }
        for member in &open.members {
            if let Some(endpoint) = self.dir.ep(open.ep).filter(|_| member.watched) {
                endpoint.node.watch_peer(0, member.peer, false);
            }
        }
        self.groups.note_deadlines();
    }

    /// True if the groups of an endpoint have no open operations.
    pub(crate) fn groups_are_idle(&mut self, ep: EpId) -> bool {
        let mut numbers = 0..self.groups.list.len() as u32;
        numbers.all(|number| {
            let ours = self.groups.get(number).is_some_and(|open| open.ep == ep);
            !ours || self.group_is_idle(GroupId(number))
        })
    }

    /// Drops the groups of an endpoint.
    pub(crate) fn close_groups(&mut self, ep: EpId) {
        for number in 0..self.groups.list.len() as u32 {
            if self.groups.get(number).is_some_and(|open| open.ep == ep) {
                self.drop_group(number);
            }
        }
    }
}
