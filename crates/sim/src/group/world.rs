//! The world of a group simulation: processes, packets in flight, time.

use super::inbox::{Inbox, Parcel};
use super::keyed::Keyed;
use super::member::{endpoint, Member};
use super::net::{hurt, misdirected, GroupNet};
use super::setup::{GroupSetup, GroupTrouble, Spec};
use super::truth;
use crate::base::rng::Rng;
use marline_checksum::crc32c;
use marline_proto::group::{
    Content, Frame, Group, GroupConfig, GroupMutation, Identity, Packet, RoundRobin, To,
    PIGGYBACK_LEN,
};
use marline_wire::{GroupHead, GroupPacket, CHUNK_HEAD_LEN};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// Interval of checks for dead members.
const LOOK_NS: u64 = 20_000_000;
/// Virtual time in which the work must end after the last temporary fault.
const WORK_NS: u64 = 60_000_000_000;
/// Events after which a run is called endless.
const EVENTS_MAX: u64 = 20_000_000;

enum Happening {
    Packet {
        to: usize,
        parcel: Parcel,
    },
    /// A process has time for packets that arrived.
    Turn(usize),
    Mark {
        to: usize,
        group: usize,
        from: u16,
        root: u16,
        value: u64,
    },
    Wake(usize),
    Fault(usize, bool),
    Look,
}

struct Process {
    alive: bool,
    /// By group; `None`: the process is no member, or has not started.
    members: Vec<Option<Member>>,
    wake_at: u64,
    inbox: Inbox,
    turns: RoundRobin,
    rng: Rng,
}

pub(super) struct GroupWorld<'a> {
    setup: &'a GroupSetup,
    processes: Vec<Process>,
    pub net: GroupNet,
    events: BTreeMap<(u64, u64), Happening>,
    count: u64,
    pub now: u64,
    /// Hash of all ends of operations and their times.
    pub hash: u64,
    /// When the last operation ended.
    pub worked_ns: u64,
    pub troubles: BTreeMap<&'static str, u64>,
    /// Packets that each process sent.
    pub sent: Vec<u64>,
    pub trace: Option<Vec<String>>,
}

impl<'a> GroupWorld<'a> {
    pub fn new(setup: &'a GroupSetup, tracing: bool) -> GroupWorld<'a> {
        let process = |proc: usize| Process {
            alive: true,
            members: setup.groups.iter().map(|_| None).collect(),
            wake_at: u64::MAX,
            inbox: Inbox::default(),
            turns: RoundRobin::default(),
            rng: Rng::new(setup.seed, 1_000 + proc as u64),
        };
        let mut world = GroupWorld {
            setup,
            processes: (0..setup.procs).map(process).collect(),
            net: GroupNet::new(setup),
            events: BTreeMap::new(),
            count: 0,
            now: 0,
            hash: setup.seed,
            worked_ns: 0,
            troubles: BTreeMap::new(),
            sent: vec![0; setup.procs],
            trace: tracing.then(Vec::new),
        };
        for (group, spec) in setup.groups.iter().enumerate() {
            let list: Vec<(u64, u32)> = spec.members.iter().map(|&p| endpoint(p)).collect();
            let list: Arc<[(u64, u32)]> = list.into();
            for (me, &proc) in spec.members.iter().enumerate() {
                let late = setup.late.filter(|&(who, _)| who == proc);
                let member = world.member(group, me as u16, &list, late.map_or(0, |l| l.1));
                world.processes[proc].members[group] = Some(member);
            }
        }
        (0..setup.procs).for_each(|proc| world.wake(proc, 1));
        for (n, fault) in setup.faults.iter().enumerate() {
            world.plan(fault.from_ns, Happening::Fault(n, true));
            if fault.to_ns < u64::MAX {
                world.plan(fault.to_ns, Happening::Fault(n, false));
            }
        }
        if (0..setup.procs).any(|proc| setup.death_of(proc).is_some()) {
            world.plan(LOOK_NS, Happening::Look);
        }
        world
    }

    fn member(&self, group: usize, me: u16, list: &Arc<[(u64, u32)]>, ready_at: u64) -> Member {
        let (setup, spec) = (self.setup, &self.setup.groups[group]);
        let who = Identity {
            id: (group as u64 + 1) * 1_000_003,
            token: group as u32 + 9,
            members: list.clone(),
        };
        let wire_ns = (setup.chunk as u64 + 200) * 1_000_000_000 / setup.rate;
        let cfg = GroupConfig {
            me,
            chunk: setup.chunk,
            copy_max: setup.copy_max,
            early_max: setup.early_max,
            keep_max: setup.keep_max,
            networks: setup.networks as u8,
            chunks_per_turn: setup.chunks_per_turn,
            round_trip_ns: setup.round_trip_ns,
            chunk_ns: if setup.paced { wire_ns } else { 0 },
            scheme: spec.scheme,
            seed: setup.seed ^ (me as u64) << 32 ^ group as u64,
            #[cfg(feature = "mutation")]
            mutation: setup.mutation,
        };
        let (src_id, src_epoch) = list[me as usize];
        let head = GroupHead {
            algorithm: 1,
            group: who.id,
            token: who.token,
            member: me,
            src_id,
            src_epoch,
            network: 0,
            flags: 0,
        };
        let believes_all = setup.errs(GroupMutation::IgnoreTag);
        let keyed = setup
            .keyed
            .then(|| Keyed::new(&head, &who.members, believes_all));
        Member {
            keyed,
            ..Member::new(Group::new(cfg, who), head, setup.chunk, ready_at)
        }
    }

    fn plan(&mut self, at: u64, what: Happening) {
        self.count += 1;
        self.events.insert((at.max(self.now), self.count), what);
    }

    fn wake(&mut self, proc: usize, at: u64) {
        if at < self.processes[proc].wake_at {
            self.processes[proc].wake_at = at;
            self.plan(at, Happening::Wake(proc));
        }
    }

    /// Plays until all is over.
    pub fn play(&mut self) -> Result<(), String> {
        let lasting = self
            .setup
            .faults
            .iter()
            .map(|f| f.to_ns)
            .filter(|&t| t < u64::MAX);
        let faults_end = lasting.max().unwrap_or(0);
        let end = faults_end + self.setup.late.map_or(0, |l| l.1) + WORK_NS;
        let mut events = 0;
        while let Some(((at, _), what)) = self.events.pop_first() {
            self.now = at;
            if at > end {
                return self.judge().and(Err("stuck: it does not end".into()));
            }
            events += 1;
            if events > EVENTS_MAX {
                return Err("endless".into());
            }
            self.happen(what)?;
            if events % 64 == 0 && self.is_over() {
                break;
            }
        }
        self.judge()
    }

    fn is_over(&self) -> bool {
        let mut living = self.processes.iter().filter(|p| p.alive);
        living.all(|p| {
            let members = p.members.iter().enumerate();
            let mut members = members.filter_map(|(g, m)| m.as_ref().map(|m| (g, m)));
            members.all(|(group, member)| {
                let all = self.setup.groups[group].script.len();
                member.memory.operations.len() == all && truth::is_over(member)
            })
        })
    }

    fn judge(&self) -> Result<(), String> {
        for (group, spec) in self.setup.groups.iter().enumerate() {
            let living = spec.members.iter().filter(|&&p| self.processes[p].alive);
            let members = living.filter_map(|&p| self.processes[p].members[group].as_ref());
            let members: Vec<&Member> = members.collect();
            for member in &members {
                let (me, posted) = (member.me, member.memory.operations.len());
                if posted < spec.script.len() || !truth::is_over(member) {
                    return Err(format!(
                        "stuck: group {group}, member {me}, {posted} of {} posted, {} open, {:?}, \
                         {:?} awaited, {:?} buffered",
                        spec.script.len(),
                        member.memory.open,
                        member.group.held(),
                        member.group.awaited(),
                        member.memory.buffered(),
                    ));
                }
            }
            truth::verdict(self.setup, spec, &members)
                .map_err(|e| format!("group {group}: {e}"))?;
        }
        Ok(())
    }

    fn happen(&mut self, what: Happening) -> Result<(), String> {
        match what {
            Happening::Packet { to, parcel } => self.queue(to, parcel),
            Happening::Turn(to) => self.turn(to),
            Happening::Mark {
                to,
                group,
                from,
                root,
                value,
            } => {
                let now = self.now;
                let alive = self.processes[to].alive;
                if let Some(member) = self.processes[to].members[group].as_mut().filter(|_| alive) {
                    member.group.handle_mark(now, from, root, value);
                }
                self.pump(to)
            }
            Happening::Wake(proc) => {
                if self.processes[proc].wake_at != self.now {
                    return Ok(());
                }
                self.processes[proc].wake_at = u64::MAX;
                self.processes[proc].inbox.look();
                self.pump(proc)
            }
            Happening::Fault(n, begins) => {
                self.fault(n, begins);
                Ok(())
            }
            Happening::Look => self.look(),
        }
    }

    fn fault(&mut self, n: usize, begins: bool) {
        let what = self.setup.faults[n].what;
        if !begins {
            return self.net.ends(what);
        }
        let name = match what {
            GroupTrouble::RailDown { .. } => "rail down",
            GroupTrouble::Mute { .. } => "multicast lost",
            GroupTrouble::Mtu { .. } => "path MTU shrunk",
            GroupTrouble::Filtered { .. } => "datagrams filtered",
            GroupTrouble::Kill { who } => {
                self.processes[who].alive = false;
                "killed"
            }
        };
        self.net.begins(what, self.now);
        *self.troubles.entry(name).or_default() += 1;
    }

    /// Tells members of the deaths of members for which they wait.
    fn look(&mut self) -> Result<(), String> {
        let setup = self.setup;
        for proc in 0..setup.procs {
            if !self.processes[proc].alive {
                continue;
            }
            let now = self.now;
            for (group, spec) in setup.groups.iter().enumerate() {
                let Some(member) = &mut self.processes[proc].members[group] else {
                    continue;
                };
                for awaited in member.group.awaited() {
                    let death = setup.death_of(spec.members[awaited as usize]);
                    if death.is_some_and(|at| now >= at + setup.detect_ns) {
                        member.group.on_dead(now, awaited);
                    }
                }
            }
            self.pump(proc)?;
        }
        if !self.is_over() {
            self.plan(self.now + LOOK_NS, Happening::Look);
        }
        Ok(())
    }

    /// Queues a packet until its process has time for it; or drops it if there is no room.
    fn queue(&mut self, to: usize, parcel: Parcel) -> Result<(), String> {
        let (now, setup) = (self.now, self.setup);
        let unstarted = setup.is_unstarted(to, now);
        let process = &mut self.processes[to];
        if !process.alive || unstarted {
            self.net.stats.nobody += 1;
            return Ok(());
        }
        let first = process.inbox.next_at().is_none();
        if !process.inbox.push(now, setup, parcel) {
            self.net.stats.overflowed += 1;
            return Ok(());
        }
        match process.inbox.next_at().filter(|_| first) {
            Some(at) if at == now => return self.turn(to),
            Some(at) => self.plan(at, Happening::Turn(to)),
            None => {}
        }
        Ok(())
    }

    /// Makes a process take a batch of the packets that arrived.
    fn turn(&mut self, to: usize) -> Result<(), String> {
        let process = &mut self.processes[to];
        if !process.alive {
            return Ok(());
        }
        let batch = process.inbox.batch(self.setup.batch);
        if let Some(at) = process.inbox.next_at() {
            self.plan(at, Happening::Turn(to));
        }
        let mut rest = &batch[..];
        while !rest.is_empty() {
            let taken = self.receive(to, rest)?;
            rest = &rest[taken.max(1)..];
        }
        Ok(())
    }

    /// Takes a packet and the packets of its group that follow, then does all due work, as an
    /// engine does. Returns the number of packets taken.
    fn receive(&mut self, to: usize, batch: &[Parcel]) -> Result<usize, String> {
        let (now, process) = (self.now, &mut self.processes[to]);
        let bytes = batch
            .iter()
            .map(|parcel| match hurt(&parcel.bytes, parcel.harm) {
                Some(hurt) => Cow::Owned(hurt),
                None => Cow::Borrowed(parcel.bytes.as_slice()),
            });
        let bytes: Vec<Cow<'_, [u8]>> = bytes.collect();
        let same = |bytes| GroupPacket::parse(bytes, crc32c).ok();
        let mut packets = bytes.iter().map(|b| &**b).map_while(same).peekable();
        let mut members = process.members.iter_mut().flatten();
        let ours = |m: &&mut Member| packets.peek().is_some_and(|p| m.group.is_for(&p.head));
        let member = members.find(ours);
        let taken = member.map(|member| member.take_batch(now, packets));
        let taken = taken.transpose()?.unwrap_or(0);
        self.pump(to)?;
        Ok(taken)
    }

    /// Does all due work of a process.
    fn pump(&mut self, proc: usize) -> Result<(), String> {
        if !self.processes[proc].alive {
            return Ok(());
        }
        let (now, process) = (self.now, &mut self.processes[proc]);
        // Due work waits until the packets that have arrived are read.
        let due = process.members.iter().flatten().any(|m| m.is_due(now));
        let waits = due && process.inbox.backlog.must_read_first();
        let read_at = process.inbox.next_at().filter(|_| waits).unwrap_or(0);
        let mut next = u64::MAX;
        let order = self.processes[proc].turns.order(self.setup.groups.len());
        for group in order {
            let Some(mut member) = self.processes[proc].members[group].take() else {
                continue;
            };
            let had_room = self.net.room_at(self.setup, proc) <= now;
            let pumped = self.pump_member(proc, group, &mut member, !waits);
            if had_room && self.net.room_at(self.setup, proc) > now {
                self.processes[proc].turns.took_last_room(group);
            }
            let deadline = self.due_at(proc, &member);
            let spec = &self.setup.groups[group];
            let posts = member.memory.operations.len() < spec.script.len()
                && member.memory.open < spec.depth;
            next = next
                .min(deadline)
                .min(if posts { member.ready_at } else { u64::MAX });
            let me = member.me;
            let bounded = truth::bounds(self.setup, spec, &member);
            self.processes[proc].members[group] = Some(member);
            let failed = |e: String| format!("process {proc}, member {me}: {e}");
            pumped.and(bounded).map_err(failed)?;
        }
        if next < u64::MAX {
            // The clock must advance: otherwise due work that cannot be done now would be retried
            // without end.
            self.wake(proc, next.max(now + 1).max(read_at));
        }
        Ok(())
    }

    /// Time of a member's next work. Due work waits while a rail has no room.
    fn due_at(&self, proc: usize, member: &Member) -> u64 {
        let deadline = member.group.next_deadline().unwrap_or(u64::MAX);
        let room_at = self.net.room_at(self.setup, proc);
        match room_at > self.now && deadline <= self.now {
            true => room_at,
            false if room_at > self.now => deadline.min(room_at),
            false => deadline,
        }
    }

    fn pump_member(
        &mut self,
        proc: usize,
        group: usize,
        member: &mut Member,
        may_time: bool,
    ) -> Result<(), String> {
        let (now, spec) = (self.now, &self.setup.groups[group]);
        if self.setup.is_unstarted(proc, now) {
            return Ok(());
        }
        if may_time && member.is_due(now) {
            member.group.handle_timeouts(now);
        }
        loop {
            while self.net.room_at(self.setup, proc) <= now {
                let Some(packet) = member.group.poll_transmit(now) else {
                    break;
                };
                self.send(proc, group, member, &packet)?;
            }
            let mut idle = !member.group.take_events(&mut member.memory);
            for event in std::mem::take(&mut member.memory.events) {
                self.note(proc, group, &format!("{event:?}"));
            }
            member.memory.end_operations(now)?;
            idle = idle && !self.post(proc, member, spec);
            if idle {
                self.close(member, spec);
                return Ok(());
            }
        }
    }

    /// Closes the group at a member that has posted all operations, as soon as none is in progress
    /// here, even if others still miss chunks.
    fn close(&self, member: &mut Member, spec: &Spec) {
        let all = member.memory.operations.len() == spec.script.len();
        if all && truth::is_over(member) && member.group.may_retire() {
            member.group.retire();
        }
    }

    /// Posts the program's next broadcast, if its time has come.
    fn post(&mut self, proc: usize, member: &mut Member, spec: &Spec) -> bool {
        let next = member.memory.operations.len();
        let ready = member.memory.open < spec.depth && member.ready_at <= self.now;
        let Some(&step) = spec.script.get(next).filter(|_| ready) else {
            return false;
        };
        let pause = self.processes[proc].rng.below(spec.pause_ns + 1);
        member.ready_at = self.now + pause;
        member.post(self.now, step);
        true
    }

    fn note(&mut self, proc: usize, group: usize, text: &str) {
        self.worked_ns = if text.starts_with("Done") {
            self.now
        } else {
            self.worked_ns
        };
        let hashed = text
            .bytes()
            .fold(self.now, |h, b| h.rotate_left(7) ^ b as u64);
        let mixed = (proc as u64 + 1) * 31 + group as u64;
        self.hash = (self.hash.rotate_left(5) ^ hashed ^ mixed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>12} p{proc} g{group} {text}", self.now));
        }
    }

    fn send(
        &mut self,
        from: usize,
        group: usize,
        member: &mut Member,
        packet: &Packet,
    ) -> Result<(), String> {
        let (now, setup) = (self.now, self.setup);
        self.sent[from] += 1;
        if self.trace.is_some() {
            self.note(from, group, &format!("sends {packet:?}"));
        }
        let spec = &setup.groups[group];
        if let (Some(Content::Mark { root, value }), To::Member(to)) = (&packet.content, packet.to)
        {
            let mark = Happening::Mark {
                to: spec.members[to as usize],
                group,
                from: member.me,
                root: *root,
                value: *value,
            };
            self.plan(now + setup.latency_ns, mark);
            return Ok(());
        }
        let bytes = Rc::new(member.encode(packet)?);
        match packet.to {
            To::Member(to) => {
                let to = spec.members[to as usize];
                let network = self.net.route(now, from, to);
                let sent = self.leave((from, network), bytes.len())?;
                self.deliver((from, to, network), (sent, false), &bytes);
            }
            To::All { network } => {
                let network = network as usize;
                let sent = self.leave((from, network), bytes.len())?;
                for &to in spec.members.iter().filter(|&&to| to != from) {
                    self.deliver((from, to, network), (sent, true), &bytes);
                }
            }
        }
        Ok(())
    }

    /// Sends a packet; returns when it is on the wire. Waiting packets take memory.
    fn leave(&mut self, (from, network): (usize, usize), len: usize) -> Result<u64, String> {
        let sent = self.net.leave(self.now, self.setup, (from, network), len);
        match self.net.overfull(self.now, self.setup, sent) {
            true => Err(format!(
                "process {from} sends past what rail {network} takes"
            )),
            false => Ok(sent),
        }
    }

    fn deliver(&mut self, way: (usize, usize, usize), how: (u64, bool), bytes: &Rc<Vec<u8>>) {
        let len = self.datagram_len(bytes);
        for (at, harm) in self.net.arrive(self.setup, way, how, len) {
            let (to, harm) = misdirected(self.setup, (way.1, how.1), harm);
            let parcel = Parcel {
                flow: (way.0, way.2, how.1),
                bytes: bytes.clone(),
                harm,
            };
            self.plan(at, Happening::Packet { to, parcel });
        }
    }

    /// Bytes of a packet's datagram; a probe is as long as the longest packet.
    fn datagram_len(&self, bytes: &[u8]) -> usize {
        if !self.net.measures() {
            return bytes.len();
        }
        let packet = GroupPacket::parse(bytes, crc32c);
        let probes = packet.is_ok_and(|packet| packet.frames().any(|frame| frame == Frame::Probe));
        match probes {
            true => bytes.len() + self.setup.chunk as usize + CHUNK_HEAD_LEN + PIGGYBACK_LEN,
            false => bytes.len(),
        }
    }

    /// The members that live, by group.
    pub fn members(&self, group: usize) -> impl Iterator<Item = &Member> {
        let living = self.processes.iter().filter(|p| p.alive);
        living.filter_map(move |p| p.members[group].as_ref())
    }

    /// Groups that some member has left.
    pub fn left(&self) -> BTreeSet<usize> {
        let groups = 0..self.setup.groups.len();
        let left = groups.filter(|&g| self.members(g).any(|m| m.memory.left_from.is_some()));
        left.collect()
    }
}
