//! Opening of multicast groups: member descriptors, networks, links and the group's measures.

use crate::api::{EpId, GroupError, GroupId, GroupSpec, LogLevel};
use crate::core::group_io::LOOK_NS;
use crate::core::Core;
use crate::memory::tags::sum_key;
use crate::platform::system::System;
use crate::state::group_copies::EARLY_MAX;
use crate::state::group_seal::GroupSealer;
use crate::state::group_table::{GroupMemory, Member, OpenGroup};
use crate::state::member_descriptor::{
    identity, leaders, networks, unlike, MemberDescriptor, MEMBER_DESCRIPTOR_LEN,
};
use crate::state::pairing::show_address;
use marline_codes::Code;
use marline_proto::group::{Group, GroupConfig, Identity, Scheme, PIGGYBACK_LEN};
use marline_proto::PeerId;
use marline_rails::{group_addr, GroupLink, Groups as _, Links, RailTx};
use marline_wire::{GroupHead, RailAddr, CHUNK_HEAD_LEN, GROUP_HEAD_LEN, GROUP_TAG_BYTES};

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
        Some(descriptor.encode(self.admission.descriptors().as_ref()))
    }

    /// Opens a group of the endpoints with these member descriptors.
    pub fn group_open(
        &mut self,
        now: u64,
        ep: EpId,
        spec: &GroupSpec<'_>,
    ) -> Result<GroupId, GroupError> {
        self.check_descriptors(spec.descriptors)?;
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
        let who = identity(spec.id, spec.token, &descriptors);
        let key = self.admission.group_key(who.id, who.token, &who.members);
        let sums = key.as_ref().map(|key| sum_key(key.payloads()));
        let sealer = key.map(GroupSealer::new);
        let tag = sealer.as_ref().map_or(0, |_| GROUP_TAG_BYTES);
        let heads = GROUP_HEAD_LEN + CHUNK_HEAD_LEN + PIGGYBACK_LEN + tag;
        let chunk = chunk_len(&descriptors, &networks, heads).ok_or(GroupError::NoNetwork)?;
        let joined = self.join_networks(spec, &descriptors, &networks)?;
        let members = self.ways_to(ep, spec.me as usize, &descriptors, &networks);
        let config = GroupConfig {
            me: spec.me,
            chunk: chunk as u32,
            networks: networks.len() as u8,
            chunks_per_turn: self.batch_of(&joined, chunk + heads),
            scheme: self
                .groups
                .scheme
                .unwrap_or_else(|| usual(&descriptors, chunk)),
            seed: own.address.id ^ spec.id,
            copy_max: COPY_MAX,
            early_max: EARLY_MAX as u64,
            ..GroupConfig::default()
        };
        let head = head_of(spec.me, &who, self.cfg.proto.algorithm);
        let mut leaders = leaders(&descriptors);
        leaders.retain(|&leader| !descriptors[leader].is_beside(own));
        let open = OpenGroup {
            ep,
            group: Group::new(config, who),
            head,
            sealer,
            networks: joined,
            members,
            leaders,
            memory: GroupMemory::new(chunk, sums.unwrap_or_default()),
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
        self.warn(Code::SettingsDiffer, &text);
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
}

/// The head of a member's packets.
fn head_of(me: u16, who: &Identity, algorithm: u8) -> GroupHead {
    let (src_id, src_epoch) = who.members[me as usize];
    GroupHead {
        algorithm,
        group: who.id,
        token: who.token,
        member: me,
        src_id,
        src_epoch,
        network: 0,
        flags: 0,
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
