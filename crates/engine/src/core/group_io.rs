//! Groups: received packets, timers, and the calls on an open group.
//!
//! After each call of a group's protocol its packets leave and its events are taken, packets first,
//! as an operation may end with the packet that reads its memory last.

use crate::api::{GroupEnd, GroupError, GroupId, GroupOpId};
use crate::core::Core;
use crate::platform::system::System;
use crate::state::group_seal::is_believed;
use crate::state::group_table::{OpenGroup, SLEEP_WINDOW_BYTES};
use crate::stats::RailCounters;
use marline_checksum::crc32c;
use marline_proto::group::GroupStats;
use marline_proto::{Mutation, PeerId};
use marline_rails::{GroupLink, RailTx};
use marline_wire::{GroupPacket, ParseError, RailKind};

/// Interval at which an operation that waits for members checks whether they are dead: well below
/// the peer timeout.
pub(super) const LOOK_NS: u64 = 100_000_000;

impl<S: System> Core<S> {
    /// Runs `action` on a group's protocol, then sends its packets and takes its events.
    pub(super) fn with_group<R>(
        &mut self,
        now: u64,
        number: u32,
        action: impl FnOnce(&mut OpenGroup) -> R,
    ) -> Option<R> {
        let slot = self.groups.list.get_mut(number as usize)?;
        let mut open = slot.take()?;
        let result = action(&mut open);
        self.pump_group(now, &mut open);
        self.retire_if_over(&mut open);
        self.groups.list[number as usize] = Some(open);
        self.groups.note_deadlines();
        Some(result)
    }

    /// Takes a packet that claims to belong to a group, and further packets of that group in the
    /// same batch (`after`). Returns the number of packets.
    pub(crate) fn ingest_group(
        &mut self,
        now: u64,
        rail: usize,
        datagram: &[u8],
        after: &[u8],
    ) -> usize {
        let counters = &mut self.rails[rail].counters;
        let packet = match GroupPacket::parse(datagram, crc32c) {
            Ok(packet) => packet,
            Err(why) => {
                *match why {
                    ParseError::HeadCrc => &mut counters.corrupt_heads,
                    ParseError::Truncated => &mut counters.truncated,
                    ParseError::Version => &mut counters.wrong_version,
                    ParseError::Malformed => &mut counters.unknown,
                } += 1;
                return 0;
            }
        };
        let Some(number) = self.groups.number_of(&packet.head) else {
            counters.unknown += 1;
            return 0;
        };
        let key = self.groups.key_of(number);
        let believed = |packet: &GroupPacket<'_>| {
            is_believed(key.as_ref(), packet) || self.cfg.proto.errs(Mutation::IgnoreTag)
        };
        if !believed(&packet) {
            self.refuse_group_packet(now, rail, key, &packet);
            return 0;
        }
        self.groups.backlog.came();
        let same = |next| {
            GroupPacket::parse(next, crc32c)
                .ok()
                .filter(|p| is_believed(key.as_ref(), p))
        };
        let more = after.chunks_exact(datagram.len()).map_while(same);
        let packets = std::iter::once(packet).chain(more);
        let take = |open: &mut OpenGroup| open.take_batch(now, rail, packets);
        let tally = self.with_group(now, number as u32, take);
        let tally = tally.unwrap_or_default();
        let more = tally.packets.saturating_sub(1);
        let counters = &mut self.rails[rail].counters;
        counters.wire_packets_received += more as u64;
        counters.wire_bytes_received += (more * datagram.len()) as u64;
        counters.wrong_token += tally.strangers;
        counters.wrong_algorithm += tally.bad_algorithm;
        counters.corrupt_heads += tally.damaged;
        counters.replayed += tally.replayed;
        more
    }

    /// Runs the due timers of groups, and checks for dead members.
    pub(crate) fn tick_groups(&mut self, now: u64) {
        let due = self.groups.due_at.is_some_and(|at| at <= now);
        if !due || self.groups.backlog.must_read_first() {
            return;
        }
        for number in 0..self.groups.list.len() as u32 {
            let open = self.groups.get(number);
            if open.is_some_and(|open| open.deadline().is_some_and(|at| at <= now)) {
                let gone = self.look_for_deaths(now, number);
                self.with_group(now, number, |open| {
                    for &(member, closed) in &gone {
                        match closed {
                            true => open.group.on_closed(now, member),
                            false => open.group.on_dead(now, member),
                        }
                    }
                    open.group.handle_timeouts(now);
                });
            }
        }
    }

    /// Makes the endpoint's node watch the members for which the group waits. Returns the members
    /// that are gone, and whether each has closed its endpoint.
    fn look_for_deaths(&mut self, now: u64, number: u32) -> Vec<(u16, bool)> {
        let Some(open) = self.groups.get(number).filter(|open| open.look_at <= now) else {
            return Vec::new();
        };
        open.look_at = now + LOOK_NS;
        let awaited = open.group.awaited();
        let ep = open.ep;
        let mut watch = Vec::new();
        for (at, member) in open.members.iter_mut().enumerate() {
            let wanted = awaited.binary_search(&(at as u16)).is_ok();
            if wanted != std::mem::replace(&mut member.watched, wanted) {
                watch.push((member.peer, wanted));
            }
        }
        let peer_of = |&at: &u16| Some((at, open.members.get(at as usize)?.peer));
        let awaited: Vec<(u16, PeerId)> = awaited.iter().filter_map(peer_of).collect();
        let Some(endpoint) = self.dir.ep(ep) else {
            return Vec::new();
        };
        for (peer, wanted) in watch {
            endpoint.node.watch_peer(now, peer, wanted);
        }
        for &(at, peer) in &awaited {
            let Some(member) = open.members.get_mut(at as usize) else {
                continue;
            };
            member.note_paths(now, endpoint.node.paths_of(peer), |rail| {
                let kind = self.rails.list.get(rail).map(|r| r.tx.local_addr().kind);
                matches!(kind, Some(RailKind::Tcp4 | RailKind::Tcp6))
            });
        }
        let gone = |(_, peer): &&(u16, PeerId)| endpoint.node.peer_gone(*peer);
        awaited
            .iter()
            .filter(gone)
            .map(|(member, peer)| (*member, endpoint.node.peer_closed(*peer)))
            .collect()
    }

    /// Multicasts a probe on each network.
    pub fn group_probe(&mut self, now: u64, group: GroupId) -> Result<(), GroupError> {
        self.with_group(now, group.0, |open| open.group.probe())
            .ok_or(GroupError::Invalid)
    }

    /// Networks on which all expected probes arrived, as bits.
    pub fn group_heard(&mut self, group: GroupId) -> Result<u8, GroupError> {
        let open = self.groups.get(group.0).ok_or(GroupError::Invalid)?;
        Ok(open.heard_networks())
    }

    /// Makes a group use these networks and no others.
    pub fn group_start(&mut self, group: GroupId, networks: u8) -> Result<(), GroupError> {
        let open = self.groups.get(group.0).ok_or(GroupError::Invalid)?;
        open.group.set_networks(networks);
        Ok(())
    }

    /// Window of a group's roots in bytes, if a member's small receive buffer limits it. `None`,
    /// too, for groups on rails other than UDP, whose buffers are no setting of the system.
    pub fn group_narrow_window(&mut self, group: GroupId) -> Result<Option<u64>, GroupError> {
        let chosen = self.groups.scheme.is_some();
        let rails = &self.rails;
        let open = self.groups.list.get(group.0 as usize);
        let open = open.and_then(Option::as_ref).ok_or(GroupError::Invalid)?;
        let kind = |(rail, _): &(usize, GroupLink)| rails[*rail].tx.local_addr().kind;
        let is_udp = |of| matches!(of, RailKind::Udp4 | RailKind::Udp6);
        let bytes = open.group.window_bytes();
        let narrow =
            bytes < SLEEP_WINDOW_BYTES && !chosen && open.networks.iter().map(kind).all(is_udp);
        Ok(narrow.then_some(bytes))
    }

    /// Posts the next broadcast of a group.
    pub fn group_post(
        &mut self,
        now: u64,
        group: GroupId,
        root: u16,
        (base, len): (*mut u8, usize),
    ) -> Result<GroupOpId, GroupError> {
        let post = |open: &mut OpenGroup| {
            if root as usize >= open.members.len() || open.closed.is_some() {
                return Err(GroupError::Invalid);
            }
            let handle = open.memory.insert(base, len);
            open.group.post(now, root, handle, len as u64);
            Ok(GroupOpId(handle))
        };
        self.with_group(now, group.0, post)
            .unwrap_or(Err(GroupError::Invalid))
    }

    /// The result of an operation, which is then forgotten. `None`: the operation has not ended.
    pub fn group_test(&mut self, group: GroupId, op: GroupOpId) -> Option<GroupEnd> {
        let Some(open) = self.groups.get(group.0) else {
            return Some(GroupEnd::Closed);
        };
        let Some(found) = open.memory.ops.get(&op.0) else {
            return Some(GroupEnd::Closed);
        };
        let end = found.end?;
        open.memory.ops.remove(&op.0);
        Some(end)
    }

    /// Counters of a group.
    pub fn group_stats(&self, group: GroupId) -> Option<&GroupStats> {
        let open = self.groups.list.get(group.0 as usize)?.as_ref()?;
        Some(open.group.stats())
    }

    /// Counters of a rail.
    pub fn rail_counters(&self, rail: usize) -> Option<&RailCounters> {
        self.rails.list.get(rail).map(|rail| &rail.counters)
    }

    /// True if all operations have ended, and all members have all sent chunks.
    pub fn group_is_idle(&mut self, group: GroupId) -> bool {
        let held = self.groups.get(group.0).map(|open| open.group.held());
        held.is_none_or(|held| held.operations == 0 && held.chunks == 0)
    }
}
