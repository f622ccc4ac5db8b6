//! Open multicast groups of an engine: protocol state, rails, and the memory of operations.

use crate::api::{EpId, GroupEnd};
use crate::state::group_batch::Batches;
use crate::state::group_copies::{EarlyBytes, KeptChunks};
use crate::state::group_seal::{nonce_of, GroupSealer};
use marline_auth::HeadKey;
use marline_checksum::{copy_and_sum, crc32c, sum, Algorithm, Seed, SumKey};
use marline_proto::group::{
    Backlog, Chunk, Content, Frame, Group, GroupEvent, GroupOwner, Heard, Load, Packet, Place,
    Rebuild, RoundRobin, Scheme, Tally, To,
};
use marline_proto::PeerId;
use marline_rails::{GroupLink, LinkId};
use marline_wire::{
    GroupHead, GroupPacket, GroupWriter, CHUNK_HEAD_LEN, GROUP_HEAD_LEN, GROUP_SEAL_LEN, TAG_LEN,
};
use std::collections::BTreeMap;

/// Bytes of a root's window above which a member may sleep for a millisecond without stalling it:
/// the root sends this much in that time at 4 Gbit/s.
pub(crate) const SLEEP_WINDOW_BYTES: u64 = 512 << 10;

/// Time for which a member's datagrams stay in doubt after a check of its paths found a reason.
const DOUBT_NS: u64 = 1_000_000_000;

/// The rails and addresses by which one member is reached.
pub(crate) struct Member {
    pub(crate) peer: PeerId,
    /// Rails and links to the member.
    pub(crate) links: Vec<(usize, LinkId)>,
    /// Connections to the member, of the endpoint's node, while its datagrams are in doubt: a
    /// filter may drop datagrams and pass connections.
    pub(crate) connections: Vec<(usize, LinkId)>,
    /// Time until which the member's datagrams are in doubt.
    pub(crate) doubted_until: u64,
    /// A datagram of the member was heard since the last check of its paths.
    pub(crate) heard: bool,
    /// Rails on which the node's packets to the member are not acknowledged, as bits.
    pub(crate) unacked: u32,
    /// The rail by which the member was heard last.
    pub(crate) heard_by: usize,
    /// Networks on which the member's multicast was heard, as bits.
    pub(crate) networks: u8,
    /// True if the endpoint's node watches whether the member is alive.
    pub(crate) watched: bool,
}

impl Member {
    /// Notes which rails the node's packets pass, and its connections.
    pub(crate) fn note_paths(
        &mut self,
        now: u64,
        paths: impl Iterator<Item = (usize, u32, bool)>,
        is_connection: impl Fn(usize) -> bool,
    ) {
        self.connections.clear();
        let heard = std::mem::take(&mut self.heard);
        let (mut works_on, mut all) = (0u32, 0u32);
        for (rail, link, works) in paths {
            all |= 1 << (rail & 31);
            works_on |= (works as u32) << (rail & 31);
            if works && is_connection(rail) {
                self.connections.push((rail, LinkId(link)));
            }
        }
        self.unacked = all & !works_on;
        if !heard || self.unacked != 0 {
            self.doubted_until = now + DOUBT_NS;
        }
        if now >= self.doubted_until {
            self.connections.clear();
        }
    }
}

/// An open group.
pub(crate) struct OpenGroup {
    pub(crate) ep: EpId,
    pub(crate) group: Group,
    /// Head of our packets.
    pub(crate) head: GroupHead,
    /// Tags of packets, in a job with a key.
    pub(crate) sealer: Option<GroupSealer>,
    /// Rail and group link of each network.
    pub(crate) networks: Vec<(usize, GroupLink)>,
    pub(crate) members: Vec<Member>,
    /// Members whose multicast has to be heard before the group is used.
    pub(crate) leaders: Vec<usize>,
    pub(crate) memory: GroupMemory,
    /// Number of unicast sends so far, for round robin.
    pub(crate) turn: usize,
    /// Time of the next check for dead members.
    pub(crate) look_at: u64,
    /// Length of a probe in bytes, which shows that packets with full chunks pass.
    pub(crate) probe_len: usize,
    /// Set when the caller has closed the group: its number among all closed groups. The group
    /// continues for other members.
    pub(crate) closed: Option<u64>,
}

/// The groups of an engine by number.
#[derive(Default)]
pub(crate) struct Groups {
    pub(crate) list: Vec<Option<Box<OpenGroup>>>,
    /// Scheme of all groups; `None`: chosen by the number of members.
    pub(crate) scheme: Option<Scheme>,
    /// Name of the scheme, which has to be the same at all members of a group.
    pub(crate) scheme_name: String,
    /// Earliest deadline of all groups.
    pub(crate) due_at: Option<u64>,
    /// True if some packets wait for room on a rail.
    pub(crate) blocked: bool,
    /// Order in which groups send after they waited for room.
    pub(crate) turns: RoundRobin,
    /// Packets that are built but not sent.
    pub(crate) batches: Batches,
    pub(crate) backlog: Backlog,
    /// Number of groups closed so far.
    pub(crate) closed: u64,
}

impl Groups {
    /// Stores a group and returns its number.
    pub(crate) fn insert(&mut self, group: Box<OpenGroup>) -> u32 {
        let free = self.list.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            self.list.push(None);
            self.list.len() - 1
        });
        self.list[at] = Some(group);
        at as u32
    }

    /// The number of the group that a packet with this head is for.
    pub(crate) fn number_of(&self, head: &GroupHead) -> Option<usize> {
        let ours = |open: &Option<Box<OpenGroup>>| {
            open.as_ref().is_some_and(|open| open.group.is_for(head))
        };
        self.list.iter().position(ours)
    }

    /// The key of a group's packets.
    pub(crate) fn key_of(&self, number: usize) -> Option<HeadKey> {
        let open = self.list.get(number)?.as_ref()?;
        open.sealer.as_ref().map(GroupSealer::key)
    }

    /// The group with a number.
    pub(crate) fn get(&mut self, number: u32) -> Option<&mut OpenGroup> {
        self.list.get_mut(number as usize)?.as_deref_mut()
    }

    /// Length of each packet in a buffer of `len` bytes that begins with this packet. (A probe is
    /// longer than its head says.)
    pub(crate) fn segment_of(&self, packet: &GroupPacket<'_>, len: usize) -> usize {
        let probes = packet.frames().any(|frame| frame == Frame::Probe);
        let ours = |open: &&OpenGroup| open.group.is_for(&packet.head);
        let whole = match self.list.iter().flatten().map(Box::as_ref).find(ours) {
            _ if !probes => packet.wire_len(),
            Some(open) => open.probe_len,
            None => len,
        };
        whole.min(len)
    }

    /// Groups with an operation that has not ended.
    fn awaited(&self) -> impl Iterator<Item = &OpenGroup> {
        let waits = |open: &&OpenGroup| open.memory.ops.values().any(|op| op.end.is_none());
        self.list.iter().flatten().map(Box::as_ref).filter(waits)
    }

    /// True if any group has an open operation.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited().next().is_some()
    }

    /// Rails of groups with an open operation, as bits.
    pub(crate) fn awaited_rails(&self) -> u32 {
        let rails = self.awaited().flat_map(|open| &open.networks);
        rails.fold(0, |bits, (rail, _)| bits | 1 << rail)
    }

    /// True if the roots of all groups with open operations can continue while this member sleeps.
    pub(crate) fn may_sleep(&self) -> bool {
        self.awaited()
            .all(|open| open.group.window_bytes() >= SLEEP_WINDOW_BYTES)
    }

    /// Updates the earliest deadline of all groups.
    pub(crate) fn note_deadlines(&mut self) {
        let all = self.list.iter().flatten();
        self.due_at = all.filter_map(|open| open.deadline()).min();
    }
}

impl OpenGroup {
    /// Time of the next call to the protocol or check for dead members.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let look = self.memory.ops.iter().any(|(_, op)| op.end.is_none());
        let look = look.then_some(self.look_at);
        self.group.next_deadline().into_iter().chain(look).min()
    }

    /// Processes packets received together on a rail; the first of them names this group.
    pub(crate) fn take_batch<'a>(
        &mut self,
        now: u64,
        rail: usize,
        packets: impl Iterator<Item = GroupPacket<'a>>,
    ) -> Tally {
        let tally = self.group.take_batch(now, packets, &mut self.memory);
        if let Some(Heard { from, network }) = tally.heard {
            // Datagrams that the kernel joined (GRO) have one source.
            self.heard(from, network, rail);
        }
        tally
    }

    /// Notes a packet of a member on a rail.
    fn heard(&mut self, member: u16, network: Option<u8>, rail: usize) {
        if let Some(member) = self.members.get_mut(member as usize) {
            member.heard_by = rail;
            member.heard |= !member.connections.iter().any(|(of, _)| *of == rail);
            member.networks |= network.map_or(0, |network| 1 << (network & 7));
        }
    }

    /// Networks on which the multicast of all leaders was heard, as bits.
    pub(crate) fn heard_networks(&self) -> u8 {
        let all = (1u32 << self.networks.len()) as u8;
        let all = if self.networks.len() == 8 {
            u8::MAX
        } else {
            all.wrapping_sub(1)
        };
        let leaders = self.leaders.iter().filter_map(|&at| self.members.get(at));
        leaders.fold(all, |networks, leader| networks & leader.networks)
    }

    /// Computes a packet's lengths. `None`: its payload is longer than a packet's.
    pub(crate) fn measure(&self, packet: &Packet) -> Option<PacketLens> {
        let frames: usize = packet.frames.iter().map(Frame::wire_len).sum();
        let load = packet.content.as_ref().map(chunk_of);
        let (seal, tag) = match self.sealer {
            Some(_) => (GROUP_SEAL_LEN, TAG_LEN),
            None => (0, 0),
        };
        let head = GROUP_HEAD_LEN + seal + frames + load.map_or(0, |_| CHUNK_HEAD_LEN);
        let payload = load.map_or(Some(0), |chunk| Some(chunk?.len as usize))?;
        let probes = packet.frames.contains(&Frame::Probe);
        let whole = (head + payload + tag).max(if probes { self.probe_len } else { 0 });
        Some(PacketLens {
            head,
            payload,
            whole,
        })
    }

    /// Encodes a packet into `out`, which has its length. `None`: its memory is gone.
    pub(crate) fn encode(
        &mut self,
        packet: &Packet,
        lens: &PacketLens,
        out: &mut [u8],
    ) -> Option<()> {
        let mut head = self.head;
        if let To::All { network } = packet.to {
            (head.network, head.flags) = (network, GroupHead::FLAG_MULTICAST);
        }
        let (head_bytes, rest) = out.split_at_mut_checked(lens.head)?;
        let chunk = match &packet.content {
            Some(content) => {
                let chunk = chunk_of(content)?;
                let to = rest.get_mut(..lens.payload)?;
                Some((chunk, self.memory.load(content, &head, to)?))
            }
            None => None,
        };
        let seal = self.sealer.as_mut().map(|sealer| sealer.seal(packet.to));
        let mut writer = GroupWriter::with_seal(head_bytes, seal);
        packet
            .frames
            .iter()
            .all(|frame| writer.push(frame))
            .then_some(())?;
        let written = writer.finish(&head, chunk.as_ref().map(|(c, sum)| (c, *sum)))?;
        debug_assert_eq!(written, lens.head);
        out[lens.head + lens.payload..].fill(0); // the padding of a probe
        let (head, rest) = out.split_at_mut(lens.head);
        let crc = crc32c(&head[4..]);
        head[..4].copy_from_slice(&crc.to_le_bytes());
        if let Some((sealer, seal)) = self.sealer.as_ref().zip(seal) {
            let (payload, rest) = rest.split_at_mut(lens.payload);
            let tag = rest.get_mut(..TAG_LEN)?;
            tag.copy_from_slice(&sealer.tag(head));
            if let Some(cipher) = sealer.cipher() {
                cipher.apply(nonce_of(self.head.src_id, &seal), payload);
            }
        }
        Some(())
    }
}

/// Lengths of a packet, in bytes.
pub(crate) struct PacketLens {
    head: usize,
    payload: usize,
    /// Length of the packet, which for a probe exceeds its head.
    pub(crate) whole: usize,
}

fn chunk_of(content: &Content) -> Option<Chunk> {
    match *content {
        Content::Own { chunk, .. } | Content::Retained(chunk) => Some(chunk),
        Content::Parity { chunk, .. } => Some(chunk),
        Content::Mark { .. } => None, // no scheme that an engine uses has marks
    }
}

/// A broadcast that the caller posted.
pub(crate) struct GroupOp {
    base: *mut u8,
    len: usize,
    pub(crate) end: Option<GroupEnd>,
}

/// The memory of a group.
#[derive(Default)]
pub(crate) struct GroupMemory {
    /// Operations by handle.
    pub(crate) ops: BTreeMap<u32, GroupOp>,
    next: u32,
    /// Operations to end, with results.
    ending: Vec<(u32, GroupEnd)>,
    early: EarlyBytes,
    kept: KeptChunks,
    /// Bytes of a chunk.
    chunk: usize,
    /// Key of the payloads' sums, for a keyed algorithm.
    key: SumKey,
}

// SAFETY: the pointers are user memory that callers lend from any thread until an operation ends;
// it is used under the engine's lock.
unsafe impl Send for GroupMemory {}

impl GroupMemory {
    /// Memory of a group with chunks of `chunk` bytes and this key of sums.
    pub(crate) fn new(chunk: usize, key: SumKey) -> GroupMemory {
        GroupMemory {
            chunk,
            key,
            kept: KeptChunks::new(chunk),
            ..GroupMemory::default()
        }
    }

    /// Adds an operation on memory that the caller lends until the operation ends.
    pub(crate) fn insert(&mut self, base: *mut u8, len: usize) -> u32 {
        let handle = self.next;
        self.next = self.next.wrapping_add(1);
        let end = None;
        self.ops.insert(handle, GroupOp { base, len, end });
        handle
    }

    /// Bytes `offset .. offset + len` of an operation that has not ended.
    fn lent(&self, handle: u32, offset: u64, len: usize) -> Option<*mut u8> {
        let op = self.ops.get(&handle).filter(|op| op.end.is_none())?;
        let at = usize::try_from(offset).ok()?;
        let inside = at.checked_add(len)? <= op.len;
        inside.then(|| op.base.wrapping_add(at))
    }

    /// Copies a packet's payload into place and returns its sum. Keeps a copy if retransmissions
    /// may need it.
    fn load(&mut self, content: &Content, head: &GroupHead, to: &mut [u8]) -> Option<u64> {
        let algorithm = Algorithm::from_u8(head.algorithm).unwrap_or(Algorithm::None);
        let key = self.key;
        let seed = |chunk: &Chunk| Seed::keyed(chunk.seed(head.group), key);
        match *content {
            Content::Own {
                handle,
                chunk,
                keep,
            } => {
                let from = self.lent(handle, chunk.offset, to.len())?;
                // SAFETY: `lent` has checked that all bytes are memory of an operation that has not
                // ended; a packet's bytes lie elsewhere.
                let sum = unsafe {
                    copy_and_sum(algorithm, seed(&chunk), to.as_mut_ptr(), from, to.len())
                };
                if keep {
                    self.kept.insert((chunk.root, chunk.number), to);
                }
                Some(sum)
            }
            Content::Retained(chunk) => {
                let at = chunk.within() as usize;
                let kept = self
                    .kept
                    .get((chunk.root, chunk.number), at + to.len())?
                    .get(at..)?;
                to.copy_from_slice(kept);
                Some(sum(algorithm, seed(&chunk), to))
            }
            Content::Parity { handle, chunk } => {
                to.fill(0);
                for n in 0..chunk.parity as u64 {
                    let offset = chunk.offset + n * chunk.len as u64;
                    let len = chunk.total.saturating_sub(offset).min(chunk.len as u64) as usize;
                    let from = self.lent(handle, offset, len)?;
                    // SAFETY: as above.
                    let part = unsafe { std::slice::from_raw_parts(from, len) };
                    to.iter_mut().zip(part).for_each(|(to, byte)| *to ^= byte);
                }
                Some(sum(algorithm, seed(&chunk), to))
            }
            Content::Mark { .. } => None,
        }
    }

    /// Destination of a chunk's bytes, if the chunk is to be stored.
    fn place(&mut self, place: Place, chunk: &Chunk) -> Option<*mut u8> {
        match place {
            Place::Posted { handle, .. } => self.lent(handle, chunk.offset, chunk.len as usize),
            Place::Early { .. } => {
                let total = usize::try_from(chunk.total).ok()?;
                let at = usize::try_from(chunk.offset).ok()?;
                let place = (chunk.broadcast, total);
                let span = self.early.room(place, at, chunk.len as usize)?;
                Some(span.as_mut_ptr())
            }
            _ => None,
        }
    }

    /// Ends the operations whose ends were reported as events: from here on no packet is built from
    /// their memory.
    pub(crate) fn end_operations(&mut self) {
        for (handle, end) in self.ending.drain(..) {
            if let Some(op) = self.ops.get_mut(&handle) {
                op.end = Some(end);
            }
        }
    }
}

impl GroupOwner for GroupMemory {
    fn sum(&self, algorithm: u8, seed: u64, bytes: &[u8]) -> Option<u64> {
        let seed = Seed::keyed(seed, self.key);
        Some(sum(Algorithm::from_u8(algorithm)?, seed, bytes))
    }

    fn land(&mut self, place: Place, chunk: &Chunk, load: &Load<'_>) -> Option<bool> {
        let algorithm = Algorithm::from_u8(load.algorithm)?;
        let bytes = load.payload.get(..chunk.len as usize)?;
        let to = self.place(place, chunk)?;
        let seed = Seed::keyed(load.seed, self.key);
        // SAFETY: `place` has checked that the bytes are memory that is lent for this operation or
        // our own; received bytes lie elsewhere.
        let found = unsafe { copy_and_sum(algorithm, seed, to, bytes.as_ptr(), bytes.len()) };
        let right = found == load.sum;
        if right && keeps(place) {
            self.kept.insert((chunk.root, chunk.number), bytes);
        }
        Some(right)
    }

    fn rebuild(&mut self, rebuild: &Rebuild, parity: &[u8]) -> Option<()> {
        let Rebuild { place, chunk, span } = *rebuild;
        let mut bytes = parity.to_vec();
        let whole = Chunk {
            offset: span.0,
            len: u32::try_from(span.1 - span.0).ok()?,
            ..chunk
        };
        let all = self.place(place, &whole)?;
        let mine = (chunk.offset - span.0) as usize / self.chunk.max(1);
        // SAFETY: `place` has checked that the bytes are lent for this operation or our own.
        let all = unsafe { std::slice::from_raw_parts_mut(all, whole.len as usize) };
        let parts = all.chunks(self.chunk.max(1)).enumerate();
        for (_, other) in parts.filter(|(n, _)| *n != mine) {
            bytes.iter_mut().zip(other).for_each(|(b, o)| *b ^= o);
        }
        let at = (chunk.offset - span.0) as usize;
        bytes.truncate(chunk.len as usize);
        all.get_mut(at..at + bytes.len())?.copy_from_slice(&bytes);
        if keeps(place) {
            self.kept.insert((chunk.root, chunk.number), &bytes);
        }
        Some(())
    }

    fn take_event(&mut self, event: GroupEvent) {
        match event {
            GroupEvent::Done { handle, end } => self.ending.push((handle, end.into())),
            GroupEvent::Adopt { broadcast, handle } => {
                let Some(early) = self.early.take(broadcast) else {
                    return;
                };
                for (at, part) in early.parts() {
                    if let Some(to) = self.lent(handle, at as u64, part.len()) {
                        // SAFETY: `lent` has checked the range.
                        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len()) };
                    }
                }
                self.early.give_back(early);
            }
            GroupEvent::Drop { broadcast } => {
                if let Some(early) = self.early.take(broadcast) {
                    self.early.give_back(early);
                }
            }
            GroupEvent::Forget { root, next } => self.kept.forget(root, next),
            GroupEvent::NotCarried { .. } => {}
        }
    }
}

/// True if a copy of the chunk is to be retained.
fn keeps(place: Place) -> bool {
    matches!(
        place,
        Place::Posted { keep: true, .. } | Place::Early { keep: true }
    )
}
