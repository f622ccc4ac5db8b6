//! The network of groups: carries one packet to many receivers, and loses, duplicates or delays it
//! for each separately.

use super::setup::{GroupSetup, GroupTrouble};
use crate::base::rng::Rng;
use crate::network::net::NetStats;
use marline_checksum::{crc32c, sum, Algorithm};
use marline_wire::{GroupPacket, GROUP_HEAD_LEN, GROUP_SEAL_LEN};

/// Bytes of a frame on the wire in addition to the datagram.
const WIRE_BYTES: u64 = 46;
/// Time after which a process knows that one of its rails is down, and uses another for unicast.
const KNOWN_NS: u64 = 2_000_000;
/// Time after which a process knows that its datagrams to another are lost, and uses a connection.
const FILTER_KNOWN_NS: u64 = 300_000_000;
/// Bytes that wait for a rail above which a process builds no more packets: the kernel's queue.
const ROOM_BYTES: u64 = 4 << 20;
/// Longest time after which a stranger sends a recorded packet: many round trips, and several
/// broadcasts.
const REPLAY_NS: u64 = 50_000_000;
/// Numbers by which the packets of strangers are later than those that they have seen: none of them
/// has arrived yet.
const LATER: u64 = 64;

/// The damage of one copy of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Harm {
    /// No damage.
    None,
    /// A bit flips, chosen by this number.
    Flip(u64),
    /// The packet claims another source, chosen by this number.
    Forge(u64),
    /// The packet has another payload, a later number, and no right tag.
    Keyless(u64),
}

/// Rails and their faults.
#[derive(Debug)]
pub(super) struct GroupNet {
    networks: usize,
    /// Time at which everything sent so far has left, by process and rail.
    free_at: Vec<u64>,
    /// Faults that last at present, each with its beginning.
    troubles: Vec<(GroupTrouble, u64)>,
    pub(super) rng: Rng,
    /// Random numbers of strangers.
    strangers: Rng,
    pub(super) stats: NetStats,
}

impl GroupNet {
    pub(super) fn new(setup: &GroupSetup) -> GroupNet {
        GroupNet {
            networks: setup.networks,
            // One entry more than rails: connections do not share a queue with rails.
            free_at: vec![0; setup.procs * (setup.networks + 1)],
            troubles: Vec::new(),
            rng: Rng::new(setup.seed, 41),
            strangers: Rng::new(setup.seed, 47),
            stats: NetStats::default(),
        }
    }

    pub(super) fn begins(&mut self, what: GroupTrouble, now: u64) {
        self.troubles.push((what, now));
    }

    pub(super) fn ends(&mut self, what: GroupTrouble) {
        let at = self.troubles.iter().position(|(other, _)| *other == what);
        at.map(|at| self.troubles.swap_remove(at));
    }

    /// Time since when a rail of a process carries nothing.
    fn down_since(&self, proc: usize, network: usize) -> Option<u64> {
        let down = self.troubles.iter().filter(|(what, _)| match *what {
            GroupTrouble::RailDown { network: of, who } => {
                of == network && who.is_none_or(|who| who == proc)
            }
            _ => false,
        });
        down.map(|&(_, since)| since).min()
    }

    /// Returns whether multicast on a rail does not reach a process.
    fn is_mute(&self, to: usize, on: usize) -> bool {
        self.troubles.iter().any(|(what, _)| match *what {
            GroupTrouble::Mute { network, who } => {
                network.is_none_or(|network| network == on) && who.is_none_or(|who| who == to)
            }
            _ => false,
        })
    }

    /// Time since when datagrams from one process to another are filtered.
    fn filtered_since(&self, sends: usize, receives: usize) -> Option<u64> {
        let filtered = self.troubles.iter().filter(|(what, _)| match *what {
            GroupTrouble::Filtered { who, to, from } => {
                to && who == receives || from && who == sends
            }
            _ => false,
        });
        filtered.map(|&(_, since)| since).min()
    }

    /// Says if lengths of datagrams matter.
    pub(super) fn measures(&self) -> bool {
        let mtu = |(what, _): &(GroupTrouble, u64)| matches!(what, GroupTrouble::Mtu { .. });
        self.troubles.iter().any(mtu)
    }

    /// True if a datagram is longer than the path between two processes allows.
    fn is_too_long(&self, from: usize, to: usize, len: usize) -> bool {
        self.troubles.iter().any(|(what, _)| match *what {
            GroupTrouble::Mtu { who, most } => (who == from || who == to) && len > most,
            _ => false,
        })
    }

    /// The rail by which a process sends to another: a rail that it does not know to be down, or
    /// else a connection.
    pub(super) fn route(&self, now: u64, from: usize, to: usize) -> usize {
        let filtered = self.filtered_since(from, to);
        if filtered.is_some_and(|at| now >= at + FILTER_KNOWN_NS) {
            return self.networks;
        }
        let down = |network: usize| {
            let since = [from, to].map(|proc| self.down_since(proc, network));
            since.into_iter().flatten().any(|at| now >= at + KNOWN_NS)
        };
        (0..self.networks)
            .find(|&network| !down(network))
            .unwrap_or(0)
    }

    /// When all rails of a process have room for another packet.
    pub(super) fn room_at(&self, setup: &GroupSetup, proc: usize) -> u64 {
        let rails = self.networks + 1;
        let free_at = &self.free_at[proc * rails..][..rails];
        let last = free_at.iter().max().copied().unwrap_or(0);
        last.saturating_sub(ROOM_BYTES * 1_000_000_000 / setup.rate)
    }

    /// Returns whether more packets wait for a rail than it has room for, and one more: then the
    /// sender ignored a full rail.
    pub(super) fn overfull(&self, now: u64, setup: &GroupSetup, sent: u64) -> bool {
        sent.saturating_sub(now) > 2 * ROOM_BYTES * 1_000_000_000 / setup.rate
    }

    /// Queues a packet; returns when it is on the wire.
    pub(super) fn leave(
        &mut self,
        now: u64,
        setup: &GroupSetup,
        at: (usize, usize),
        len: usize,
    ) -> u64 {
        self.stats.packets += 1;
        let takes_ns = (len as u64 + WIRE_BYTES) * 1_000_000_000 / setup.rate;
        let free = &mut self.free_at[at.0 * (self.networks + 1) + at.1];
        *free = (*free).max(now) + takes_ns;
        *free
    }

    /// Copies of a packet that reach a process, each with its time of arrival.
    pub(super) fn arrive(
        &mut self,
        setup: &GroupSetup,
        (from, to, network): (usize, usize, usize),
        (sent, multicast): (u64, bool),
        len: usize,
    ) -> Vec<(u64, Harm)> {
        let packet_faults = setup.packet_faults;
        if network == self.networks {
            return vec![(sent + setup.latency_ns, Harm::None)];
        }
        if self.is_too_long(from, to, len) {
            self.stats.too_big += 1;
            return Vec::new();
        }
        let down = [from, to]
            .iter()
            .any(|&p| self.down_since(p, network).is_some());
        let filtered = self.filtered_since(from, to).is_some();
        if down || filtered || multicast && self.is_mute(to, network) {
            self.stats.cut += 1;
            return Vec::new();
        }
        let more = setup.hard_of_hearing.filter(|&(who, _)| who == to);
        if self
            .rng
            .ppm(packet_faults.drop + more.map_or(0, |(_, ppm)| ppm))
        {
            self.stats.dropped += 1;
            return Vec::new();
        }
        let twice = self.rng.ppm(packet_faults.duplicate);
        self.stats.duplicated += twice as u64;
        let mut copies = Vec::new();
        for _ in 0..1 + twice as u32 {
            let mut at = sent + setup.latency_ns;
            if self.rng.ppm(packet_faults.reorder) {
                self.stats.reordered += 1;
                at += self.rng.below(packet_faults.reorder_ns);
            }
            let harm = match self.rng.ppm(packet_faults.corrupt) {
                true => Harm::Flip(self.rng.next()),
                false => Harm::None,
            };
            self.stats.damaged += (harm != Harm::None) as u64;
            copies.push((at, harm));
        }
        if self.rng.ppm(packet_faults.forge) {
            self.stats.forged += 1;
            let forged = Harm::Forge(self.rng.next());
            copies.push((sent + setup.latency_ns, forged));
        }
        if self.strangers.ppm(packet_faults.strangers) {
            self.stats.strange += 1;
            copies.push(self.of_stranger(sent, setup.latency_ns));
        }
        copies
    }

    /// A packet of a stranger that has seen a packet leave: the same packet, later, or one that may
    /// arrive first.
    fn of_stranger(&mut self, sent: u64, latency_ns: u64) -> (u64, Harm) {
        let rng = &mut self.strangers;
        match rng.one_in(2) {
            true => (sent + latency_ns + rng.below(REPLAY_NS), Harm::None),
            false => (sent + rng.below(2 * latency_ns), Harm::Keyless(rng.next())),
        }
    }
}

/// Destination and damage of a copy. Where packets have tags, some forged copies of packets to one
/// process are true copies that go to another.
pub(super) fn misdirected(
    setup: &GroupSetup,
    (to, multicast): (usize, bool),
    harm: Harm,
) -> (usize, Harm) {
    match harm {
        Harm::Forge(how) if setup.keyed && !multicast && how % 4 == 0 => {
            let other = (how >> 8) as usize % setup.procs.max(2);
            ((to + other) % setup.procs, Harm::None)
        }
        _ => (to, harm),
    }
}

/// The damaged bytes; `None` if the packet arrives undamaged.
pub(super) fn hurt(bytes: &[u8], harm: Harm) -> Option<Vec<u8>> {
    let mut copy = bytes.to_vec();
    match harm {
        Harm::None => return None,
        Harm::Flip(which) => {
            let bit = which as usize % (8 * bytes.len());
            copy[bit / 8] ^= 1 << (bit % 8);
        }
        Harm::Forge(how) => {
            // Group id, token, member, sender, epoch; and the payload is another.
            let at = [8, 16, 20, 24, 32][how as usize % 5];
            copy[at] ^= 1 + (how >> 8) as u8 % 255;
            replace_payload(&mut copy);
        }
        Harm::Keyless(how) => {
            let seal = &mut copy[GROUP_HEAD_LEN..][..GROUP_SEAL_LEN];
            // (Number and destination are one word, the number in its lower 48 bits.)
            let word = u64::from_le_bytes(seal.try_into().expect("a word"));
            seal.copy_from_slice(&(word + 1 + how % LATER).to_le_bytes());
            replace_payload(&mut copy);
        }
    }
    Some(copy)
}

/// Inverts payload and tag of a packet, and makes the checksums right.
fn replace_payload(copy: &mut [u8]) {
    let head_len = u16::from_le_bytes([copy[6], copy[7]]) as usize;
    copy[head_len..].iter_mut().for_each(|byte| *byte = !*byte);
    reseal_chunk(copy, head_len);
    let crc = crc32c(&copy[4..head_len]);
    copy[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Makes the sum of a chunk match its payload: an attacker can compute sums, too.
fn reseal_chunk(copy: &mut [u8], head_len: usize) {
    let crc = u32::from_le_bytes([copy[0], copy[1], copy[2], copy[3]]);
    let Ok(packet) = GroupPacket::parse(copy, |_| crc) else {
        return;
    };
    let Some((chunk, _, payload)) = packet.chunk() else {
        return;
    };
    let forged = sum(Algorithm::Crc64Nvme, chunk.seed(packet.head.group), payload);
    copy[head_len - 8..head_len].copy_from_slice(&forged.to_le_bytes());
}
