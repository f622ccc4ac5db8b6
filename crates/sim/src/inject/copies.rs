//! Failure injection: delivers damaged copies of every packet that two real nodes exchange, before
//! the good one, and counts by which check each copy was noticed, or that it was missed.
//!
//! Packet layouts, sums and protocol are the real ones: heads are sealed with CRC-32C and payloads
//! with the algorithm under test; [`Packet::parse`] and [`Node::handle_packet`] process the copies.
//! A copy counts as missed if wrong bytes pass their sum, or if a head that no sender wrote passes
//! its CRC.

use crate::base::rng::Rng;
use crate::inject::damage::{theory, How, Kind, Place, Theory, PAGE_BYTES};
use marline_checksum::{crc32c, sum, Algorithm};
use marline_engine::ByKind;
use marline_proto::{
    sum_seed, Config, Delivery, Event, Landing, Memory, Node, Payload, PeerId, RailSpec, RecvSpec,
    SendSpec, Source, Spans, Transmit,
};
use marline_rails::UdpAddr;
use marline_wire::{Frame, FrameView, Packet, HEADER_LEN, PACKET_MAX};

/// Payload of a full packet in an Ethernet frame of 1500 bytes.
pub const FULL_BYTES: usize = 1_344;
/// Damaged copies per good packet at most.
const COPIES: u64 = 8;
/// Bytes of the string from which messages are taken: a power of two, longer than any message.
const POOL_BYTES: usize = 1 << 20;
/// Messages in flight at once.
const UNDER_WAY: u32 = 4;
/// Message lengths: small, a few packets, longest eager, rendezvous.
const LENGTHS: [u64; 8] = [0, 8, 200, 1_344, 5_000, 20_000, 65_536, 300_000];
/// Message lengths for damage to full packets only, which short messages do not have.
const LONG: [u64; 2] = [65_536, 300_000];

/// The contents of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuff {
    /// Uniform noise, as theory assumes.
    Noise,
    /// Small 32-bit integers, as in many messages.
    Integers,
}

impl Stuff {
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Stuff::Noise => "noise",
            Stuff::Integers => "integers",
        }
    }

    fn pool(self, rng: &mut Rng) -> Vec<u8> {
        let words = (0..(POOL_BYTES + PACKET_MAX) / 4).map(|_| match self {
            Stuff::Noise => rng.next() as u32,
            Stuff::Integers => rng.below(1_000) as u32,
        });
        words.flat_map(u32::to_le_bytes).collect()
    }
}

/// Outcomes of the damaged copies of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Damaged copies delivered.
    pub tried: u64,
    /// Rejected by the head's CRC, length or fields.
    pub by_head: u64,
    /// Rejected by a payload's sum.
    pub by_payload: u64,
    /// Taken for an earlier packet and dropped.
    pub as_duplicate: u64,
    /// Accepted with correct data (damage in padding or in bytes already received).
    pub harmless: u64,
    /// Wrong payload with a matching sum.
    pub missed_payload: u64,
    /// A head that no sender wrote, with a matching CRC.
    pub missed_head: u64,
}

impl Tally {
    /// Number of copies that passed all checks.
    pub fn missed(&self) -> u64 {
        self.missed_payload + self.missed_head
    }
}

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Checksum algorithm of payloads.
    pub algorithm: Algorithm,
    /// Contents of messages.
    pub stuff: Stuff,
    /// Kind of damage.
    pub kind: Kind,
    /// Damaged copies to deliver.
    pub packets: u64,
    /// Seed of contents and damage.
    pub seed: u64,
}

impl Plan {
    /// The theory for this experiment; unknown for contents other than noise.
    pub fn theory(&self) -> Theory {
        let known = self.stuff == Stuff::Noise && self.kind.place == Place::Payload;
        match known {
            true => theory(self.algorithm, self.kind.how, FULL_BYTES),
            false => Theory::Unknown,
        }
    }

    /// Runs the experiment. An error is a message that never arrived: a violated invariant.
    pub fn run(&self) -> Result<Tally, String> {
        let mut injection = Injection::new(self);
        // Each turn delivers a few packets, most in several copies.
        for _ in 0..1_000 + 4 * self.packets {
            if injection.tally.tried >= self.packets {
                return injection.finish();
            }
            injection.turn(true);
        }
        Err(format!("{self:?} came to a stop"))
    }
}

/// Compares landed bytes with the bytes that were sent.
struct Lander<'a> {
    pool: &'a [u8],
    claims: Vec<(u64, u32, u64)>,
    wrong: u64,
}

/// Offset of a message in the pool: a multiple of 64 bits, so that integers stay intact.
fn base_of(handle: u32) -> usize {
    (handle as usize * 8_191 * 8) % POOL_BYTES
}

fn content(pool: &[u8], handle: u32, offset: u64, len: usize) -> &[u8] {
    let at = (base_of(handle) + offset as usize) % POOL_BYTES;
    &pool[at..at + len]
}

impl Memory for Lander<'_> {
    fn land(&mut self, _landing: &Landing, payload: &Payload<'_>) -> bool {
        let algorithm = Algorithm::from_u8(payload.algorithm);
        let right = algorithm.is_some_and(|a| sum(a, payload.seed, payload.bytes) == payload.sum);
        if right {
            let want = self.claims.iter().find(|c| c.0 == payload.seed);
            let same = want.is_some_and(|&(_, handle, offset)| {
                content(self.pool, handle, offset, payload.bytes.len()) == payload.bytes
            });
            self.wrong += !same as u64;
        }
        right
    }
}

/// The claims of a packet's fragments: seed of the sum, message, offset. Messages are numbered in
/// order of posting, so that a number is a handle.
fn claims(packet: &Packet<'_>) -> Vec<(u64, u32, u64)> {
    let claim = |(frame, payload): (FrameView<'_>, &[u8])| {
        let (number, offset) = match frame {
            Frame::Eager(eager) => (eager.head.number, 0),
            Frame::Data(data) => (data.number, data.offset),
            _ => return None,
        };
        let seed = sum_seed(packet.header.src_id, number, false, offset, payload.len());
        Some((seed, number, offset))
    };
    packet.frames().filter_map(claim).collect()
}

/// Two nodes and the packets between them.
struct Injection {
    plan: Plan,
    rng: Rng,
    pool: Vec<u8>,
    nodes: [Node; 2],
    peers: [PeerId; 2],
    now: u64,
    posted: u32,
    done: [u32; 2],
    out: Vec<u8>,
    spans: Spans,
    bad: Vec<u8>,
    /// The previous packet in each direction: the contents of a stale buffer.
    last: [Vec<u8>; 2],
    tally: Tally,
}

fn node(plan: &Plan, which: u64) -> Node {
    let cfg = Config {
        algorithm: plan.algorithm as u8,
        algorithms: Algorithm::BY_TRUST_UNKEYED,
        seeing_order: Algorithm::SEEING_ORDER,
        ..Config::default()
    };
    // Stale pages need packets of several pages.
    let datagram_max = if plan.kind.how == How::Page {
        8_972
    } else {
        1_472
    };
    let addr = UdpAddr {
        ip: [10, 0, 0, which as u8].into(),
        port: 5_000,
        prefix_len: 24,
    };
    let mut addr = addr.rail();
    addr.datagram_max = datagram_max as u16;
    let rails = vec![RailSpec {
        addr,
        datagram_max,
        receive_budget: 1 << 20,
        connected: false,
        delivery: Delivery::DATAGRAMS,
        ordered_writes: false,
        direct_datagrams: 0,
        standby: false,
        bulk_rail: None,
    }];
    Node::new(
        cfg,
        (0x1234_0000 + which, 7 * which as u32, 1),
        rails,
        &ByKind,
    )
}

impl Injection {
    fn new(plan: &Plan) -> Injection {
        let mut rng = Rng::new(plan.seed, 9);
        let pool = plan.stuff.pool(&mut rng);
        let mut nodes = [node(plan, 1), node(plan, 2)];
        let addresses = [nodes[0].address(), nodes[1].address()];
        let peers = [nodes[0].peer(&addresses[1]), nodes[1].peer(&addresses[0])];
        Injection {
            plan: *plan,
            rng,
            pool,
            nodes,
            peers,
            now: 1_000_000,
            posted: 0,
            done: [0; 2],
            out: vec![0; PACKET_MAX],
            spans: Spans::new(),
            bad: Vec::new(),
            last: [Vec::new(), Vec::new()],
            tally: Tally::default(),
        }
    }

    /// Posts another message from 0 to 1, after its receive.
    fn post(&mut self) {
        let full = self.plan.kind.place == Place::Payload;
        let len = match full {
            true => self.rng.pick(&LONG),
            false => self.rng.pick(&LENGTHS),
        };
        let handle = self.posted;
        self.posted += 1;
        let recv = RecvSpec {
            handle,
            source: Source::Peer(self.peers[1]),
            tag: Some((handle as u64, 0)),
            capacity: len,
            multi_min: None,
        };
        self.nodes[1].post_recv(&recv, self.now);
        let send = SendSpec {
            handle,
            peer: self.peers[0],
            tag: Some(handle as u64),
            data: None,
            len,
            urgent_ack: true,
        };
        self.nodes[0].post_send(&send);
    }

    /// Advances time; both nodes send.
    fn turn(&mut self, damage: bool) {
        while damage && self.posted - self.done[0].min(self.done[1]) < UNDER_WAY {
            self.post();
        }
        self.now += 2_000;
        for side in 0..2 {
            self.nodes[side].on_poll(self.now, false);
            self.nodes[side].caught_up();
            self.nodes[side].handle_timeouts(self.now);
            self.send_all(side, damage);
            for side in 0..2 {
                while let Some(event) = self.nodes[side].poll_event() {
                    match event {
                        Event::SendDone { ok: true, .. } => self.done[0] += 1,
                        Event::RecvDone { .. } => self.done[1] += 1,
                        _ => {}
                    }
                }
            }
        }
    }

    fn send_all(&mut self, side: usize, damage: bool) {
        let mut spans = std::mem::take(&mut self.spans);
        let mut out = std::mem::take(&mut self.out);
        while let Some(t) = self.nodes[side].poll_transmit(self.now, &mut out, &mut spans, None) {
            self.fill(&t, &spans, &mut out);
            let good = &out[..t.len];
            if damage {
                self.deliver_damaged(side, t.head_len, good);
            }
            self.deliver(1 - side, good);
            self.last[side].clear();
            self.last[side].extend_from_slice(good);
        }
        (self.spans, self.out) = (spans, out);
    }

    /// Fills payloads, sums, and the head's CRC.
    fn fill(&self, t: &Transmit, spans: &Spans, out: &mut [u8]) {
        let algorithm = Algorithm::from_u8(t.algorithm).unwrap_or_default();
        for span in spans {
            let bytes = content(&self.pool, span.handle, span.offset, span.len as usize);
            out[span.payload_at as usize..][..bytes.len()].copy_from_slice(bytes);
            let algorithm = if span.summed {
                algorithm
            } else {
                Algorithm::None
            };
            let value = sum(algorithm, span.seed, bytes);
            out[span.sum_at as usize..][..8].copy_from_slice(&value.to_le_bytes());
        }
        let crc = crc32c(&out[4..t.head_len]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Delivers a packet. Returns the wrong payloads that passed, and the node's result if the
    /// packet was parsed.
    fn deliver(
        &mut self,
        to: usize,
        bytes: &[u8],
    ) -> Option<(u64, Result<PeerId, marline_proto::DropReason>)> {
        let packet = Packet::parse(bytes, crc32c).ok()?;
        let mut lander = Lander {
            pool: &self.pool,
            claims: claims(&packet),
            wrong: 0,
        };
        let result = self.nodes[to].handle_packet(self.now, &packet, bytes.len(), &mut lander);
        Some((lander.wrong, result))
    }

    fn deliver_damaged(&mut self, side: usize, head_len: usize, good: &[u8]) {
        let Some(range) = place(self.plan.kind.place, head_len, good) else {
            return;
        };
        let left = self.plan.packets.saturating_sub(self.tally.tried);
        for _ in 0..left.min(COPIES) {
            let mut bad = std::mem::take(&mut self.bad);
            bad.clear();
            bad.extend_from_slice(good);
            self.damage(side, head_len, &mut bad, range.clone());
            let accepted = if bad == good {
                false
            } else {
                self.judge(side, head_len, good, &bad)
            };
            self.bad = bad;
            if accepted {
                return;
            }
        }
    }

    fn damage(
        &mut self,
        side: usize,
        head_len: usize,
        bad: &mut [u8],
        range: std::ops::Range<usize>,
    ) {
        let last = &self.last[side];
        match self.plan.kind.how {
            How::Page => {
                let pages = bad.len().div_ceil(PAGE_BYTES) as u64;
                let from = self.rng.below(pages) as usize * PAGE_BYTES;
                let to = (from + PAGE_BYTES).min(bad.len()).min(last.len());
                if from < to {
                    bad[from..to].copy_from_slice(&last[from..to]);
                }
            }
            How::Buffer => {
                let n = bad.len().min(last.len());
                if head_len < n {
                    bad[head_len..n].copy_from_slice(&last[head_len..n]);
                }
            }
            how => how.apply(&mut bad[range], &mut self.rng),
        }
    }

    /// Delivers a damaged copy and counts its outcome; returns whether the packet was accepted.
    fn judge(&mut self, side: usize, head_len: usize, good: &[u8], bad: &[u8]) -> bool {
        self.tally.tried += 1;
        // A stale first page contains the whole valid head of the previous packet.
        let forged = self.plan.kind.how != How::Page && bad[..head_len] != good[..head_len];
        if forged {
            match Packet::parse(bad, crc32c) {
                Ok(_) => self.tally.missed_head += 1,
                Err(_) => {
                    self.tally.by_head += 1;
                    self.nodes[1 - side].on_bad_head(bad);
                }
            }
            return false;
        }
        let Some((wrong, result)) = self.deliver(1 - side, bad) else {
            self.tally.by_head += 1;
            return false;
        };
        let count = match result {
            _ if wrong > 0 => &mut self.tally.missed_payload,
            Err(marline_proto::DropReason::CorruptPayload) => &mut self.tally.by_payload,
            Err(_) => &mut self.tally.as_duplicate,
            Ok(_) => &mut self.tally.harmless,
        };
        *count += 1;
        wrong > 0 || result.is_ok()
    }

    /// Runs without further damage until all posted messages have ended.
    fn finish(mut self) -> Result<Tally, String> {
        for _ in 0..200_000 {
            if self.done == [self.posted; 2] {
                return Ok(self.tally);
            }
            self.turn(false);
            // The PTO is the longest time to wait for.
            self.now += 50_000;
        }
        let (plan, done) = (&self.plan, self.done);
        Err(format!(
            "{plan:?}: {done:?} of {} messages ended",
            self.posted
        ))
    }
}

/// The bytes of a packet that a kind of damage applies to; `None` if the packet has none.
fn place(what: Place, head_len: usize, good: &[u8]) -> Option<std::ops::Range<usize>> {
    let packet = Packet::parse(good, crc32c).ok()?;
    if what == Place::Header {
        return Some(0..HEADER_LEN);
    }
    if what == Place::Anywhere {
        return Some(0..good.len());
    }
    let mut at = HEADER_LEN;
    for (frame, payload) in packet.frames() {
        let (from, to) = (at, at + frame.fields().head_len());
        at = to;
        let summed = matches!(frame, Frame::Eager(_) | Frame::Data(_));
        match (what, frame) {
            (Place::Payload, _) if summed && payload.len() >= FULL_BYTES => {
                return Some(head_len..head_len + payload.len());
            }
            (Place::Sum, _) if summed => return Some(to - 8..to),
            (Place::Ack, Frame::Ack(_)) | (Place::Grant, Frame::Grant(_)) => {
                return Some(from..to);
            }
            _ => {}
        }
    }
    None
}
