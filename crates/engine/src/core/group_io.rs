//! Groups: opening, received packets, sending.
//!
//! After each call of a group's protocol its packets leave and its events are taken, packets first,
//! as an operation may end with the packet that reads its memory last.

use crate::api::{EpId, GroupEnd, GroupError, GroupId, GroupOpId, GroupSpec, LogLevel};
use crate::core::Core;
use crate::platform::system::System;
use crate::state::group_copies::EARLY_MAX;
use crate::state::group_table::{GroupMemory, Member, OpenGroup, SLEEP_WINDOW_BYTES};
use crate::state::member_descriptor::{
    identity, leaders, networks, unlike, MemberDescriptor, MEMBER_DESCRIPTOR_LEN,
};
use crate::state::pairing::show_address;
use crate::stats::RailCounters;
use marline_checksum::crc32c;
use marline_proto::group::{Group, GroupConfig, GroupStats, Scheme, PIGGYBACK_LEN};
use marline_proto::PeerId;
use marline_rails::{group_addr, GroupLink, Groups as _, Links, RailTx};
use marline_wire::{
    GroupHead, GroupPacket, ParseError, RailAddr, RailKind, CHUNK_HEAD_LEN, GROUP_HEAD_LEN,
};

/// Interval at which an operation that waits for members checks whether they are dead: well below
/// the peer timeout.
const LOOK_NS: u64 = 100_000_000;
/// Most bytes in flight of a root: enough that the root keeps sending while a receiver waits for
/// its turn on a shared processor.
const WINDOW_BYTES_MAX: usize = 2 << 20;
/// Broadcasts up to this length in bytes are copied as they leave, so that the next broadcast can
/// begin before all members have acknowledged. The copies take as many bytes as are in flight.
const COPY_MAX: u64 = 1 << 20;
/// Bytes in flight may fill one part in this many of a receive buffer: the kernel adds to each
/// packet, and several members may broadcast one after another.
const WINDOW_PART: usize = 4;
/// Chunks are a multiple of this many bytes, so that their places keep their alignment.
const CHUNK_ALIGN: usize = 64;

impl<S: System> Core<S> {
    /// The member descriptor of an endpoint, which others need to make a group with it.
    pub fn member_descriptor(&self, ep: EpId) -> Option<[u8; MEMBER_DESCRIPTOR_LEN]> {
        let node = self.dir.node(ep)?;
        let rails = self.rails.iter().enumerate().filter_map(|(index, rail)| {
            let mut addr = rail.tx.local_addr();
            addr.index = index as u8;
            let longest = rail.tx.caps().for_groups()?.datagram_max;
            let most = if self.cfg.mtu == 0 {
                longest
            } else {
                self.cfg.mtu
            };
            addr.datagram_max = longest.min(most).min(u16::MAX as usize) as u16;
            Some(addr)
        });
        let rails: Vec<RailAddr> = rails.collect();
        let buffer = |addr: &RailAddr| {
            let caps = self.rails[addr.index as usize].tx.caps();
            let bytes = caps.for_groups().map_or(0, |of| of.receive_buffer_bytes);
            bytes.min(u32::MAX as usize) as u32
        };
        let descriptor = MemberDescriptor {
            address: node.address(),
            epoch: node.epoch(),
            receive_buffer: rails.iter().map(buffer).min().unwrap_or(0),
            scheme: self.groups.scheme_name.clone(),
            rails,
        };
        Some(descriptor.encode())
    }

    /// Opens a group of the endpoints with these member descriptors.
    pub fn group_open(
        &mut self,
        now: u64,
        ep: EpId,
        spec: &GroupSpec<'_>,
    ) -> Result<GroupId, GroupError> {
        let descriptors: Option<Vec<MemberDescriptor>> = spec
            .descriptors
            .iter()
            .map(|c| MemberDescriptor::decode(c))
            .collect();
        let descriptors = descriptors.ok_or(GroupError::Invalid)?;
        let node = self.dir.node(ep).ok_or(GroupError::Invalid)?;
        let own = descriptors
            .get(spec.me as usize)
            .ok_or(GroupError::Invalid)?;
        if descriptors.len() > u16::MAX as usize || own.address.id != node.id() {
            return Err(GroupError::Invalid);
        }
        if let Some(unlike) = unlike(&descriptors) {
            return Err(self.refuse_schemes(&descriptors, unlike));
        }
        let networks = networks(&descriptors);
        let heads = GROUP_HEAD_LEN + CHUNK_HEAD_LEN + PIGGYBACK_LEN;
        let chunk = chunk_len(&descriptors, &networks, heads).ok_or(GroupError::NoNetwork)?;
        let joined = self.join_networks(spec, &descriptors, &networks)?;
        let members = self.ways_to(ep, spec.me as usize, &descriptors, &networks);
        let who = identity(spec.id, spec.token, &descriptors);
        let config = GroupConfig {
            me: spec.me,
            chunk: chunk as u32,
            networks: networks.len() as u8,
            lane_run: self.batch_of(&joined, chunk + heads),
            scheme: self
                .groups
                .scheme
                .unwrap_or_else(|| usual(&descriptors, chunk)),
            seed: own.address.id ^ spec.id,
            copy_max: COPY_MAX,
            early_max: EARLY_MAX as u64,
            ..GroupConfig::default()
        };
        let (src_id, src_epoch) = who.members[spec.me as usize];
        let head = GroupHead {
            algorithm: self.cfg.proto.algorithm,
            group: who.id,
            token: who.token,
            member: spec.me,
            src_id,
            src_epoch,
            network: 0,
            flags: 0,
        };
        let mut leaders = leaders(&descriptors);
        leaders.retain(|&leader| !descriptors[leader].is_beside(own));
        let open = OpenGroup {
            ep,
            group: Group::new(config, who),
            head,
            networks: joined,
            members,
            leaders,
            memory: GroupMemory::new(chunk),
            turn: 0,
            look_at: now + LOOK_NS,
            probe_len: chunk + heads,
            closed: None,
        };
        Ok(GroupId(self.groups.insert(Box::new(open))))
    }

    /// Refuses a group whose members have different schemes: they would wait forever for each
    /// other's acknowledgements. All members see the difference in the descriptors, so none makes
    /// the group.
    fn refuse_schemes(&self, descriptors: &[MemberDescriptor], unlike: [usize; 2]) -> GroupError {
        let [a, b] = unlike.map(|member| {
            let MemberDescriptor {
                address, scheme, ..
            } = &descriptors[member];
            format!("{scheme} at member {member} ({})", show_address(address))
        });
        let text = format!(
            "no multicast: FI_MARLINE_TEST=multicast_scheme={a}, but {b}: set it the same on all \
             hosts"
        );
        self.say(LogLevel::Warn, &text);
        GroupError::NoNetwork
    }

    /// Number of packets of this length that each of these rails sends by one call.
    fn batch_of(&self, joined: &[(usize, GroupLink)], len: usize) -> u32 {
        let batch = |(rail, _): &(usize, GroupLink)| {
            let caps = self.rails.list[*rail].tx.caps();
            caps.batch_segments_max.min(caps.batch_bytes_max / len)
        };
        joined.iter().map(batch).min().unwrap_or(1) as u32
    }

    /// Joins the group on the own rail of each network.
    fn join_networks(
        &mut self,
        spec: &GroupSpec<'_>,
        descriptors: &[MemberDescriptor],
        networks: &[Vec<usize>],
    ) -> Result<Vec<(usize, GroupLink)>, GroupError> {
        let mut joined: Vec<(usize, GroupLink)> = Vec::new();
        for network in networks {
            let me = spec.me as usize;
            let own = &descriptors[me].rails[network[me]];
            let rail = own.index as usize;
            let state = self.rails.list.get_mut(rail).ok_or(GroupError::Invalid)?;
            let addr = group_addr(own.kind, spec.id).ok_or(GroupError::NoNetwork)?;
            match state.tx.join(&addr) {
                Ok(link) => joined.push((rail, link)),
                Err(why) => {
                    let name = &state.name;
                    let text = format!("rail {name}: a group cannot be joined: {why:?}");
                    self.say(LogLevel::Info, &text);
                    for (rail, link) in joined {
                        self.rails.list[rail].tx.leave(link);
                    }
                    return Err(GroupError::NoNetwork);
                }
            }
        }
        Ok(joined)
    }

    /// The links to each other member.
    fn ways_to(
        &mut self,
        ep: EpId,
        me: usize,
        descriptors: &[MemberDescriptor],
        networks: &[Vec<usize>],
    ) -> Vec<Member> {
        let mut members = Vec::new();
        for (member, descriptor) in descriptors.iter().enumerate() {
            let mut links = Vec::new();
            for network in networks.iter().filter(|_| member != me) {
                let rail = descriptors[me].rails[network[me]].index as usize;
                if let Some(state) = self.rails.list.get_mut(rail) {
                    links.push((
                        rail,
                        state.tx.connect(&descriptor.rails[network[member]]).link,
                    ));
                }
            }
            let endpoint = self.dir.ep(ep).filter(|_| member != me);
            let peer = endpoint.map(|e| e.node.peer(&descriptor.address));
            members.push(Member {
                peer: peer.unwrap_or(PeerId(u32::MAX)),
                heard_by: links.first().map_or(0, |(rail, _)| *rail),
                links,
                connections: Vec::new(),
                doubted_until: 0,
                heard: true,
                unacked: 0,
                networks: 0,
                watched: false,
            });
        }
        members
    }

    /// Runs `rpc` on a group's protocol, then sends its packets and takes its events.
    pub(super) fn with_group<R>(
        &mut self,
        now: u64,
        number: u32,
        rpc: impl FnOnce(&mut OpenGroup) -> R,
    ) -> Option<R> {
        let slot = self.groups.list.get_mut(number as usize)?;
        let mut open = slot.take()?;
        let result = rpc(&mut open);
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
        let ours = |open: &Option<Box<OpenGroup>>| {
            open.as_ref()
                .is_some_and(|open| open.group.is_for(&packet.head))
        };
        let Some(number) = self.groups.list.iter().position(ours) else {
            counters.unknown += 1;
            return 0;
        };
        self.groups.backlog.came();
        let same = |next| GroupPacket::parse(next, crc32c).ok();
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

/// The scheme of a group, with a window of chunks of `chunk` bytes that fits all members' receive
/// buffers.
fn usual(descriptors: &[MemberDescriptor], chunk: usize) -> Scheme {
    let scheme = Scheme::usual(descriptors.len());
    let buffers = descriptors
        .iter()
        .map(|descriptor| descriptor.receive_buffer as usize);
    let bytes = buffers.min().unwrap_or(0) / WINDOW_PART;
    let window = (bytes.min(WINDOW_BYTES_MAX) / chunk) as u32;
    Scheme {
        window: window.max(scheme.window),
        ..scheme
    }
}

/// Longest chunk in bytes that all networks carry with these heads; `None` if no packet has room
/// for a chunk.
fn chunk_len(
    descriptors: &[MemberDescriptor],
    networks: &[Vec<usize>],
    heads: usize,
) -> Option<usize> {
    let longest =
        |(member, at): (usize, &usize)| descriptors[member].rails[*at].datagram_max as usize;
    let all = networks
        .iter()
        .flat_map(|network| network.iter().enumerate());
    let datagram = all.map(longest).min()?;
    let chunk = datagram.saturating_sub(heads) / CHUNK_ALIGN * CHUNK_ALIGN;
    (chunk > 0).then_some(chunk)
}
