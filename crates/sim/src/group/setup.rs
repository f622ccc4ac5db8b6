//! Setups of a group simulation, drawn from a seed.

use crate::base::rng::Rng;
use marline_proto::group::{GroupMutation, Scheme};

const MS: u64 = 1_000_000;
/// Bytes of the packet with a piece of a chunk: the least that any path takes, so that pieces pass
/// where chunks do not.
pub const PIECE_PACKET_MAX: usize = 548;

/// Faults of packets, each in parts per million.
#[derive(Clone, Copy, Debug, Default)]
pub struct GroupPacketFaults {
    /// The packet is lost on the way to one receiver.
    pub drop: u32,
    /// Delivered twice.
    pub duplicate: u32,
    /// Held back by up to `reorder_ns`.
    pub reorder: u32,
    /// See `reorder`.
    pub reorder_ns: u64,
    /// Damaged in the head, or in the payload.
    pub corrupt: u32,
    /// A forgery follows the packet: the same with another group, token, epoch or sender.
    pub forge: u32,
    /// In a job with a key: a stranger without it sends the packet again, or another one with the
    /// packet's head and number.
    pub strangers: u32,
}

/// A fault that lasts for a while, or for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupTrouble {
    /// A rail of one process, or of all, carries nothing.
    RailDown {
        /// Which of the rails.
        network: usize,
        /// The process; `None`: all processes.
        who: Option<usize>,
    },
    /// Multicast is lost and unicast is not: on one rail or all, to one process or all.
    Mute {
        /// The rail; `None`: all rails.
        network: Option<usize>,
        /// The process that receives no multicast; `None`: all processes.
        who: Option<usize>,
    },
    /// Datagrams above a length to or from a process are lost without an error, multicast or not.
    Mtu {
        /// The process.
        who: usize,
        /// The longest datagram that passes, in bytes.
        most: usize,
    },
    /// Datagrams to or from a process are lost on all rails. Its connections carry what the sender
    /// knows to have no other way.
    Filtered {
        /// The process.
        who: usize,
        /// Datagrams to the process are lost.
        to: bool,
        /// Datagrams from the process are lost.
        from: bool,
    },
    /// A process dies.
    Kill {
        /// Which.
        who: usize,
    },
}

/// A fault and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupFault {
    /// Virtual time of its beginning, in ns.
    pub from_ns: u64,
    /// Virtual time of the end in ns; `u64::MAX`: permanent.
    pub to_ns: u64,
    /// The trouble.
    pub what: GroupTrouble,
}

/// A group and its broadcasts.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The group's members, as process numbers.
    pub members: Vec<usize>,
    /// The scheme of the group.
    pub scheme: Scheme,
    /// Root (as a member) and length of each broadcast.
    pub script: Vec<(u16, u64)>,
    /// Most broadcasts that a member has posted and not seen end.
    pub depth: usize,
    /// Longest pause of members before each post, in ns.
    pub pause_ns: u64,
}

/// A cluster, its work and its faults.
#[derive(Clone, Debug)]
pub struct GroupSetup {
    /// The seed.
    pub seed: u64,
    /// Processes.
    pub procs: usize,
    /// Groups, each with members among the processes.
    pub groups: Vec<Spec>,
    /// Bytes of a chunk.
    pub chunk: u32,
    /// Rails of each process.
    pub networks: usize,
    /// Chunks that leave on one rail before the next rail's turn.
    pub chunks_per_turn: u32,
    /// Settings of each group; see [`marline_proto::group::GroupConfig`].
    pub copy_max: u64,
    /// See `copy_max`.
    pub early_max: u64,
    /// See `copy_max`.
    pub keep_max: u64,
    /// See `copy_max`; the assumed round trip may differ from the real one.
    pub round_trip_ns: u64,
    /// Chunks leave at the rate of the rail.
    pub paced: bool,
    /// Time on the way, in ns.
    pub latency_ns: u64,
    /// Bytes per second of a rail.
    pub rate: u64,
    /// Time that a process takes for a packet, in ns.
    pub packet_ns: u64,
    /// Most waiting packets of one flow and length that a process takes at once.
    pub batch: usize,
    /// Shortest time in ns for which packets wait, as for a descheduled process or for a kernel
    /// that joins them.
    pub gather_ns: u64,
    /// Time in ns: a packet is lost if receiving it would take longer.
    pub queue_ns: u64,
    /// Packets have tags by a key, as in a job with a key.
    pub keyed: bool,
    /// Faults of packets.
    pub packet_faults: GroupPacketFaults,
    /// A process that loses more packets, and how many.
    pub hard_of_hearing: Option<(usize, u32)>,
    /// Troubles.
    pub faults: Vec<GroupFault>,
    /// A process that starts posting at this time. With `born` it does not exist before.
    pub late: Option<(usize, u64)>,
    /// See `late`.
    pub born: bool,
    /// Time in which a death is found out.
    pub detect_ns: u64,
    /// A deliberate mistake of all members.
    #[cfg(feature = "mutation")]
    pub mutation: Option<GroupMutation>,
}

impl GroupSetup {
    /// A setup without faults: `members` in one group that does the broadcasts of `script`.
    pub fn calm(members: usize, scheme: Scheme, script: Vec<(u16, u64)>) -> GroupSetup {
        GroupSetup {
            seed: 1,
            procs: members,
            groups: vec![Spec {
                members: (0..members).collect(),
                scheme,
                script,
                depth: 1,
                pause_ns: 0,
            }],
            chunk: 1_344,
            networks: 1,
            chunks_per_turn: 1,
            copy_max: 65_536,
            early_max: 4 << 20,
            keep_max: 4 << 20,
            round_trip_ns: 20_000,
            paced: false,
            latency_ns: 5_000,
            rate: 1_250_000_000,
            packet_ns: 500,
            batch: 1,
            gather_ns: 0,
            queue_ns: 10 * MS,
            keyed: false,
            packet_faults: GroupPacketFaults::default(),
            hard_of_hearing: None,
            faults: Vec::new(),
            late: None,
            born: false,
            detect_ns: 200 * MS,
            #[cfg(feature = "mutation")]
            mutation: None,
        }
    }

    /// The setup of a seed. `members`: size of its first group; 0: drawn.
    pub fn draw(seed: u64, members: usize) -> GroupSetup {
        let mut rng = Rng::new(seed, 40);
        let procs = match rng.below(100) {
            _ if members > 0 => members as u64,
            0 => rng.range(200, 1_024),
            1..=4 => rng.range(41, 199),
            5..=29 => rng.range(9, 40),
            _ => rng.range(2, 8),
        } as usize;
        let networks = rng.pick(&[1, 1, 2, 2, 3]);
        let mut setup = GroupSetup::calm(procs, Scheme::NACK, Vec::new());
        setup.seed = seed;
        setup.networks = networks;
        setup.chunks_per_turn = [1, 1, 8, 45][(seed % 4) as usize];
        setup.chunk = rng.pick(&[200, 1_344, 1_344, 8_000, 32_000]);
        setup.copy_max = rng.pick(&[0, 3_000, 65_536]);
        let chunk = setup.chunk as u64;
        setup.early_max = rng.pick(&[chunk, 8 * chunk, 100_000, 4 << 20]);
        setup.keep_max = rng.pick(&[0, 3 * chunk, 4 << 20]);
        setup.round_trip_ns = rng.pick(&[5_000, 20_000, 50_000, 1_000_000]);
        setup.paced = rng.one_in(2);
        setup.latency_ns = rng.pick(&[2_000, 10_000, 100_000]);
        setup.rate = rng.pick(&[125_000_000, 1_250_000_000, 12_500_000_000]);
        setup.packet_ns = rng.pick(&[200, 1_000, 3_000]);
        setup.queue_ns = rng.pick(&[100_000, MS, 20 * MS]);
        setup.detect_ns = rng.range(100, 400) * MS;
        let mut batches = Rng::new(seed, 42);
        setup.batch = batches.pick(&[1, 8, 64]);
        setup.gather_ns = batches.pick(&[0, 5_000, 50_000]);
        setup.draw_packet_faults(&mut rng);
        let count = if rng.one_in(4) { 2 } else { 1 };
        let lasting = setup.faults(&mut rng);
        setup.groups = (0..count)
            .map(|n| spec(&mut rng, &setup, n > 0, lasting))
            .collect();
        if procs <= 8 && !lasting && batches.one_in(6) {
            setup.flood(&mut batches);
        }
        setup.datagrams_lost(&mut Rng::new(seed, 44));
        setup.keyed = Rng::new(seed, 45).one_in(2);
        setup.strangers(&mut Rng::new(seed, 46));
        setup
    }

    /// Draws strangers in two thirds of the jobs with a key. Without one, strangers can do harm.
    fn strangers(&mut self, rng: &mut Rng) {
        if self.keyed {
            self.packet_faults.strangers = rng.pick(&[0, 1_000, 50_000]);
        }
    }

    /// Returns whether this mistake is made.
    #[cfg(feature = "mutation")]
    pub(super) fn errs(&self, mutation: GroupMutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Returns false: this build has no mutations.
    #[cfg(not(feature = "mutation"))]
    pub(super) fn errs(&self, _: GroupMutation) -> bool {
        false
    }

    /// Draws faults that lose one process's datagrams, for a while or for good.
    fn datagrams_lost(&mut self, rng: &mut Rng) {
        if self.procs > 24 || !rng.one_in(4) {
            return;
        }
        let from_ns = rng.below(50 * MS);
        let who = rng.below(self.procs as u64) as usize;
        let what = match rng.below(3) {
            0 => {
                let (to, from) = rng.pick(&[(true, false), (false, true), (true, true)]);
                GroupTrouble::Filtered { who, to, from }
            }
            _ => {
                let most = rng.pick(&[PIECE_PACKET_MAX, 600, 972, 1_300]);
                GroupTrouble::Mtu { who, most }
            }
        };
        let to_ns = match rng.one_in(2) {
            true => u64::MAX,
            false => from_ns + rng.range(1, 200) * MS,
        };
        self.faults.push(GroupFault {
            from_ns,
            to_ns,
            what,
        });
    }

    /// Short broadcasts, more than fit in a window, with many damaged packets: some begin in the
    /// middle of a batch.
    fn flood(&mut self, rng: &mut Rng) {
        let chunk = self.chunk as u64;
        for spec in &mut self.groups {
            let members = spec.members.len() as u64;
            let roots = if rng.one_in(2) { 1 } else { members };
            let count = rng.range(200, 600);
            let len = rng.range(1, chunk); // only packets of one length are joined
            let script = (0..count).map(|_| (rng.below(roots) as u16, len));
            spec.script = script.collect();
            spec.depth = rng.range(65, 100) as usize;
            spec.pause_ns = rng.pick(&[0, 0, MS / 4]);
        }
        self.packet_faults.corrupt = rng.pick(&[30_000, 200_000]);
        (self.batch, self.gather_ns) = (64, rng.pick(&[0, 50_000, 200_000]));
    }

    fn draw_packet_faults(&mut self, rng: &mut Rng) {
        let mut some = |choices: &[u32]| if rng.one_in(2) { rng.pick(choices) } else { 0 };
        self.packet_faults = GroupPacketFaults {
            drop: some(&[1_000, 10_000, 50_000, 200_000]),
            duplicate: some(&[10_000, 100_000]),
            reorder: some(&[10_000, 200_000]),
            reorder_ns: [100_000, 5 * MS][some(&[1]) as usize],
            corrupt: some(&[1_000, 30_000]),
            forge: some(&[1_000, 50_000]),
            strangers: 0,
        };
        if rng.one_in(4) {
            self.hard_of_hearing = Some((rng.below(self.procs as u64) as usize, 200_000));
        }
        if rng.one_in(6) {
            let at = rng.pick(&[50 * MS, 2_000 * MS]);
            self.late = Some((rng.below(self.procs as u64) as usize, at));
            self.born = rng.one_in(2);
        }
    }

    /// Draws faults. Returns `true` if one of them is permanent, and so takes many broadcasts to be
    /// found.
    fn faults(&mut self, rng: &mut Rng) -> bool {
        let (procs, networks) = (self.procs as u64, self.networks as u64);
        let mut lasting = false;
        for _ in 0..rng.pick(&[0, 0, 1, 1, 2, 3]) {
            let from_ns = rng.below(50 * MS);
            let mut to_ns = from_ns + rng.range(1, 60) * MS;
            let one = |rng: &mut Rng| Some(rng.below(procs) as usize).filter(|_| rng.one_in(2));
            let what = match rng.below(5) {
                0 | 1 => GroupTrouble::RailDown {
                    network: rng.below(networks) as usize,
                    who: one(rng),
                },
                2 | 3 => {
                    let network = Some(rng.below(networks) as usize).filter(|_| rng.one_in(2));
                    if rng.one_in(2) && self.procs <= 24 {
                        to_ns = u64::MAX;
                        lasting |= network.is_none();
                    }
                    GroupTrouble::Mute {
                        network,
                        who: one(rng),
                    }
                }
                _ => {
                    to_ns = u64::MAX;
                    GroupTrouble::Kill {
                        who: rng.below(procs) as usize,
                    }
                }
            };
            self.faults.push(GroupFault {
                from_ns,
                to_ns,
                what,
            });
        }
        lasting
    }

    /// Time after which no multicast arrives, to the end of the run.
    pub fn muted_from(&self) -> Option<u64> {
        let all = GroupTrouble::Mute {
            network: None,
            who: None,
        };
        let muted = self.faults.iter();
        let muted = muted.filter(|f| f.what == all && f.to_ns == u64::MAX);
        muted.map(|f| f.from_ns).min()
    }

    /// Returns whether a process has not started yet.
    pub fn is_unstarted(&self, proc: usize, now_ns: u64) -> bool {
        let late = self.late.filter(|_| self.born);
        late.is_some_and(|(who, at_ns)| who == proc && now_ns < at_ns)
    }

    /// When a process dies.
    pub fn death_of(&self, proc: usize) -> Option<u64> {
        let kill = GroupTrouble::Kill { who: proc };
        let deaths = self.faults.iter().filter(|f| f.what == kill);
        deaths.map(|f| f.from_ns).min()
    }
}

fn scheme(rng: &mut Rng, members: usize) -> Scheme {
    let co_roots = rng.below(members.min(6) as u64) as u16;
    let mut scheme = match rng.below(10) {
        0 => Scheme::ORIGINAL,
        1 => Scheme::BASIC,
        2 => Scheme::WINDOW,
        3 => Scheme {
            co_roots,
            ..Scheme::CO_ROOT
        },
        4 => Scheme::AGGREGATE,
        5 | 6 => Scheme {
            co_roots,
            ..Scheme::NACK
        },
        _ => Scheme::usual(members),
    };
    if !scheme.alone {
        scheme.parity = rng.pick(&[0, 0, 2, 8]);
    }
    scheme.marks = rng.one_in(4);
    scheme.repair_all_from = rng.pick(&[1, 2, 3, 4]);
    if scheme.window > 1 {
        scheme.window = rng.pick(&[4, 16, 64, 64, 200]);
    }
    scheme
}

fn spec(rng: &mut Rng, setup: &GroupSetup, part: bool, lasting: bool) -> Spec {
    let mut members: Vec<usize> = (0..setup.procs).collect();
    // In another group members have other numbers, and some processes are not members.
    for at in (1..members.len()).rev() {
        members.swap(at, rng.below(at as u64 + 1) as usize);
    }
    if part {
        members.truncate(rng.range(2, setup.procs as u64) as usize);
    }
    let chunk = setup.chunk as u64;
    let count = match (lasting, setup.procs) {
        (true, _) => rng.range(150, 300),
        (_, 0..=40) => rng.range(1, 40),
        (_, 41..=200) => rng.range(1, 6),
        _ => rng.range(1, 2),
    };
    let longest = match (lasting, setup.procs) {
        (true, _) => 2 * chunk,
        (_, 0..=40) => 80 * chunk,
        _ => 10 * chunk,
    };
    let fixed = rng.one_in(3);
    let script = (0..count).map(|_| {
        let root = match fixed {
            true => 0,
            false => rng.below(members.len() as u64) as u16,
        };
        let len = match rng.below(8) {
            0 => 0,
            1..=3 => rng.range(1, 200),
            4..=6 => rng.range(1, 3 * chunk),
            _ => rng.range(1, longest),
        };
        (root, len.min(longest))
    });
    let script = script.collect();
    let depth = match rng.below(4) {
        0 => rng.range(2, 100) as usize,
        _ => 1,
    };
    Spec {
        scheme: scheme(rng, members.len()),
        members,
        script,
        depth,
        pause_ns: match lasting {
            true => rng.range(MS, 4 * MS),
            false => rng.pick(&[0, 10_000, MS]),
        },
    }
}
