//! A simulated network that loses, duplicates and reorders packets, for the tests in this folder.

mod arrives;
mod ends;
mod schemes;

use super::*;
use marline_wire::GroupHead;
use std::collections::BTreeMap as Map;
use std::vec;
use std::vec::Vec;

const CHUNK: u32 = 1_000;
const ROUND_TRIP_NS: u64 = 50_000;

fn byte(broadcast: u64, offset: u64) -> u8 {
    (broadcast.wrapping_mul(31) ^ offset.wrapping_mul(7)) as u8
}

/// A member with its memory.
struct Member {
    group: Group,
    /// Broadcast and received bytes of each operation.
    posted: Map<u32, (u64, Vec<u8>)>,
    early: Map<u64, Vec<u8>>,
    /// Chunks retained as a co-root.
    kept: Map<(u16, u64), (Chunk, Vec<u8>)>,
    ended: Map<u32, End>,
    next_handle: u32,
    /// Broadcasts from here on are done another way.
    left_from: u64,
}

/// Faults of the network.
#[derive(Clone, Copy, Debug)]
struct Faults {
    /// Packets lost per 1,000, and the additional loss of the last member.
    lost: u64,
    lost_by_last: u64,
    doubled: u64,
    /// Largest additional delay, so that packets overtake each other.
    jitter_ns: u64,
}

const CALM: Faults = Faults {
    lost: 0,
    lost_by_last: 0,
    doubled: 0,
    jitter_ns: 0,
};

/// A packet in flight: source, destination, packet, and the bytes of its chunk.
type Flying = (Heard, u16, Packet, Vec<u8>);

struct World {
    members: Vec<Member>,
    now: u64,
    /// Packets in flight by arrival time.
    flying: Map<(u64, u64), Flying>,
    count: u64,
    draw: delay::Draw,
    faults: Faults,
    /// The broadcasts in order: root and bytes.
    script: Vec<(u16, u64)>,
    /// Number of the next multicast chunks that are lost.
    count_unwanted: u64,
    /// Bit mask of rails without multicast, and members that receive none.
    mute: u8,
    unreachable: Vec<u16>,
    /// Packets that each member has sent.
    sent: Vec<u64>,
    dead: Vec<u16>,
}

impl World {
    fn new(members: u16, scheme: Scheme, faults: Faults, seed: u64) -> World {
        let cfg = GroupConfig {
            chunk: CHUNK,
            early_max: 200_000,
            round_trip_ns: ROUND_TRIP_NS,
            copy_max: 2_500,
            scheme,
            ..GroupConfig::default()
        };
        World::with(members, cfg, faults, seed)
    }

    fn with(members: u16, cfg: GroupConfig, faults: Faults, seed: u64) -> World {
        let who = Identity {
            id: seed,
            token: 7,
            members: (0..members).map(|m| (m as u64 + 100, 1)).collect(),
        };
        let config = |me| GroupConfig {
            me,
            seed: seed ^ (me as u64) << 32,
            ..cfg
        };
        let member = |me| Member {
            group: Group::new(config(me), who.clone()),
            posted: Map::new(),
            early: Map::new(),
            kept: Map::new(),
            ended: Map::new(),
            next_handle: 0,
            left_from: u64::MAX,
        };
        World {
            members: (0..members).map(member).collect(),
            now: 1,
            flying: Map::new(),
            count: 0,
            draw: delay::Draw::new(seed, 2),
            faults,
            script: Vec::new(),
            count_unwanted: 0,
            mute: 0,
            unreachable: Vec::new(),
            sent: vec![0; members as usize],
            dead: Vec::new(),
        }
    }

    fn chance(&mut self, of_1000: u64) -> bool {
        self.draw.next() % 1_000 < of_1000
    }

    /// Member `me` posts its next broadcast.
    fn post(&mut self, me: u16) {
        let member = &mut self.members[me as usize];
        let handle = member.next_handle;
        let (root, len) = self.script[handle as usize];
        member.next_handle += 1;
        let memory = match root == me {
            true => (0..len).map(|o| byte(handle as u64, o)).collect(),
            false => vec![0; len as usize],
        };
        member.posted.insert(handle, (handle as u64, memory));
        member.group.post(self.now, root, handle, len);
        self.pump(me);
    }

    /// Sends a member's packets and handles its events.
    fn pump(&mut self, me: u16) {
        loop {
            while let Some(packet) = self.members[me as usize].group.poll_transmit(self.now) {
                self.send(me, packet);
            }
            let member = &mut self.members[me as usize];
            let Some(event) = member.group.poll_event() else {
                return;
            };
            match event {
                GroupEvent::Done { handle, end } => {
                    assert_eq!(member.ended.insert(handle, end), None, "ends once");
                    let (root, _) = self.script[handle as usize];
                    if root == me {
                        // The root's memory is free again, and the user may change it.
                        let memory = &mut member.posted.get_mut(&handle).unwrap().1;
                        memory.iter_mut().for_each(|byte| *byte = !*byte);
                    }
                }
                GroupEvent::Adopt { broadcast, handle } => {
                    let early = member.early.remove(&broadcast).unwrap();
                    member.posted.get_mut(&handle).unwrap().1 = early;
                }
                GroupEvent::Drop { broadcast } => drop(member.early.remove(&broadcast)),
                GroupEvent::Forget { root, next } => {
                    member
                        .kept
                        .retain(|&(r, number), _| r != root || number >= next);
                }
                GroupEvent::NotCarried { from } => member.left_from = member.left_from.min(from),
            }
        }
    }

    /// The bytes that a packet carries.
    fn payload(&mut self, from: u16, packet: &Packet) -> Vec<u8> {
        let member = &mut self.members[from as usize];
        let of = |memory: &[u8], chunk: &Chunk| {
            let (offset, len) = (chunk.offset as usize, chunk.len as usize);
            memory[offset..offset + len].to_vec()
        };
        match packet.content {
            Some(Content::Own {
                handle,
                chunk,
                keep,
            }) => {
                let bytes = of(&member.posted[&handle].1, &chunk);
                if keep {
                    let kept = (chunk, bytes.clone());
                    member.kept.insert((chunk.root, chunk.number), kept);
                }
                bytes
            }
            Some(Content::Retained(chunk)) => {
                let kept = &member.kept[&(chunk.root, chunk.number)].1;
                kept[chunk.within() as usize..][..chunk.len as usize].to_vec()
            }
            Some(Content::Parity { handle, chunk }) => {
                let mut sum = vec![0; chunk.len as usize];
                for n in 0..chunk.parity as u64 {
                    let offset = chunk.offset + n * chunk.len as u64;
                    let len = (chunk.total - offset).min(chunk.len as u64) as u32;
                    let part = Chunk {
                        offset,
                        len,
                        ..chunk
                    };
                    let part = of(&member.posted[&handle].1, &part);
                    sum.iter_mut()
                        .zip(part)
                        .for_each(|(sum, byte)| *sum ^= byte);
                }
                sum
            }
            Some(Content::Mark { .. }) | None => Vec::new(),
        }
    }

    fn send(&mut self, from: u16, packet: Packet) {
        self.sent[from as usize] += 1;
        let bytes = self.payload(from, &packet);
        let frames: usize = packet.frames.iter().map(Frame::wire_len).sum();
        let room = self.members[from as usize].group.cfg.chunk as usize + PIGGYBACK_LEN;
        assert!(frames + bytes.len() <= room, "{packet:?}");
        let network = match packet.to {
            To::All { network } => Some(network),
            To::Member(_) => None,
        };
        if network.is_some() && !bytes.is_empty() && self.count_unwanted > 0 {
            self.count_unwanted -= 1;
            return;
        }
        let heard = Heard { from, network };
        for to in 0..self.members.len() as u16 {
            let reached = match packet.to {
                To::All { network } => {
                    self.mute >> network & 1 == 0 && !self.unreachable.contains(&to)
                }
                To::Member(member) => member == to,
            };
            if to == from || !reached {
                continue;
            }
            let last = to as usize + 1 == self.members.len();
            let lost = self.faults.lost + if last { self.faults.lost_by_last } else { 0 };
            let times = 1 + self.chance(self.faults.doubled) as u64;
            for _ in 0..times {
                if self.chance(lost) || self.dead.contains(&to) {
                    continue;
                }
                let jitter = self.draw.next() % (self.faults.jitter_ns + 1);
                let at = self.now + ROUND_TRIP_NS / 2 + jitter;
                self.count += 1;
                let packet = (heard, to, packet.clone(), bytes.clone());
                self.flying.insert((at, self.count), packet);
            }
        }
    }

    fn deliver(&mut self, heard: Heard, to: u16, packet: &Packet, bytes: &[u8]) {
        let now = self.now;
        let group = &mut self.members[to as usize].group;
        let head = GroupHead {
            algorithm: 0,
            group: group.who.id,
            token: group.who.token,
            member: heard.from,
            src_id: heard.from as u64 + 100,
            src_epoch: 1,
            network: heard.network.unwrap_or(0),
            flags: heard.network.is_some() as u8 * GroupHead::FLAG_MULTICAST,
        };
        let Some(heard) = group.admit(&head) else {
            return;
        };
        for frame in &packet.frames {
            group.handle_frame(now, heard, frame);
        }
        match packet.content {
            Some(Content::Own { chunk, .. } | Content::Retained(chunk)) => {
                let place = group.place(now, heard, &chunk);
                self.take(heard, to, place, &chunk, bytes);
            }
            Some(Content::Parity { chunk, .. }) => {
                if let Some(rebuild) = group.place_parity(now, heard, &chunk) {
                    self.rebuild(heard, to, &rebuild, bytes.to_vec());
                }
            }
            Some(Content::Mark { root, value }) => group.handle_mark(now, heard.from, root, value),
            None => {}
        }
    }

    fn memory(&mut self, me: u16, place: Place, chunk: &Chunk) -> Option<&mut Vec<u8>> {
        let member = &mut self.members[me as usize];
        match place {
            Place::Posted { handle, .. } => {
                assert!(!member.ended.contains_key(&handle), "written after its end");
                Some(&mut member.posted.get_mut(&handle).unwrap().1)
            }
            Place::Early { .. } => {
                let new = || vec![0; chunk.total as usize];
                Some(member.early.entry(chunk.broadcast).or_insert_with(new))
            }
            _ => None,
        }
    }

    /// Stores a chunk.
    fn take(&mut self, heard: Heard, me: u16, place: Place, chunk: &Chunk, bytes: &[u8]) {
        let Some(memory) = self.memory(me, place, chunk) else {
            return;
        };
        let offset = chunk.offset as usize;
        memory[offset..offset + bytes.len()].copy_from_slice(bytes);
        let keep = matches!(
            place,
            Place::Posted { keep: true, .. } | Place::Early { keep: true }
        );
        let (now, member) = (self.now, &mut self.members[me as usize]);
        if keep {
            let kept = (*chunk, bytes.to_vec());
            member.kept.insert((chunk.root, chunk.number), kept);
        }
        member.group.commit(now, heard, chunk, true);
    }

    /// Rebuilds a chunk from a parity and the other chunks.
    fn rebuild(&mut self, heard: Heard, me: u16, rebuild: &Rebuild, mut bytes: Vec<u8>) {
        let Rebuild { place, chunk, span } = *rebuild;
        let Some(memory) = self.memory(me, place, &chunk) else {
            return;
        };
        let around = memory[span.0 as usize..span.1 as usize].chunks(CHUNK as usize);
        let mine = (chunk.offset - span.0) as usize / CHUNK as usize;
        for (_, other) in around.enumerate().filter(|(n, _)| *n != mine) {
            bytes
                .iter_mut()
                .zip(other)
                .for_each(|(byte, other)| *byte ^= other);
        }
        bytes.truncate(chunk.len as usize);
        self.take(heard, me, place, &chunk, &bytes);
    }

    /// Advances to the next arrival or timer; `false`: none until `until`.
    fn step(&mut self, until: u64) -> bool {
        let arrival = self.flying.keys().next().map(|&(at, _)| at);
        let alive = |&(me, _): &(usize, &Member)| !self.dead.contains(&(me as u16));
        let members = self.members.iter().enumerate().filter(alive);
        let timer = members.filter_map(|(_, m)| m.group.next_deadline()).min();
        let Some(at) = arrival
            .into_iter()
            .chain(timer)
            .min()
            .filter(|&at| at <= until)
        else {
            self.now = self.now.max(until.min(u64::MAX / 2));
            return false;
        };
        self.now = self.now.max(at);
        if arrival == Some(at) {
            if let Some((_, (heard, to, packet, bytes))) = self.flying.pop_first() {
                if !self.dead.contains(&to) {
                    self.deliver(heard, to, &packet, &bytes);
                    self.pump(to);
                }
            }
            return true;
        }
        for me in 0..self.members.len() as u16 {
            let group = &mut self.members[me as usize].group;
            if !self.dead.contains(&me) && group.next_deadline().is_some_and(|d| d <= at) {
                group.handle_timeouts(at);
                self.pump(me);
            }
        }
        true
    }

    /// Runs until nothing is left to do, for at most ten seconds.
    fn settle(&mut self) {
        let end = self.now + 10_000_000_000;
        while self.step(end) {}
        assert!(self.flying.is_empty(), "it goes on and on");
    }

    /// Asserts that all members have all bytes and that nothing is retained.
    fn check(&self) {
        for (me, member) in self.members.iter().enumerate() {
            if self.dead.contains(&(me as u16)) {
                continue;
            }
            for (handle, (broadcast, memory)) in &member.posted {
                let end = member.ended.get(handle);
                assert_eq!(end, Some(&End::Well), "member {me} operation {handle}");
                let own = self.script[*handle as usize].0 as usize == me;
                let right = memory
                    .iter()
                    .enumerate()
                    .all(|(o, &b)| own || b == byte(*broadcast, o as u64));
                assert!(right, "member {me} broadcast {broadcast}");
            }
            self.check_returned(me as u16);
        }
    }

    /// Asserts that nothing is retained.
    fn check_returned(&self, me: u16) {
        let member = &self.members[me as usize];
        let kept = (member.early.len(), member.kept.len());
        assert_eq!(kept, (0, 0), "member {me}");
        assert_eq!(member.group.awaited(), Vec::<u16>::new(), "member {me}");
        let held = member.group.held();
        assert_eq!(held, GroupHeld::default(), "member {me}");
    }

    /// All live members post the whole script.
    fn post_all(&mut self) {
        for me in (0..self.members.len() as u16)
            .filter(|me| !self.dead.contains(me))
            .collect::<Vec<_>>()
        {
            while (self.members[me as usize].next_handle as usize) < self.script.len() {
                self.post(me);
            }
        }
    }

    /// Runs for this time.
    fn run_for(&mut self, ns: u64) {
        let until = self.now + ns;
        while self.step(until) {}
    }

    fn total(&self, count: impl Fn(&GroupStats) -> u64) -> u64 {
        self.members.iter().map(|m| count(m.group.stats())).sum()
    }
}
