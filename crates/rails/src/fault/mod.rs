//! Fault injection: a wrapper around any rail, for the simulator and, by `FI_MARLINE_FAULTS`, in
//! production. Without delays and rates, which need a clock, the same seed and traffic give the
//! same faults.

mod script;

pub use script::{FaultScript, Faults};

use crate::interfaces::InterfaceChoice;
use crate::{
    Armed, BufId, Caps, Connected, DirectWrite, GroupError, GroupLink, Groups, LinkId, Links,
    Piece, Rail, RailEvent, RailRx, RailTx, Read, Received, RemoteRead, RemoteWrite, RemoteWrites,
    SendOutcome, Staging, TxBuffers, Write,
};
use marline_wire::RailAddr;
use std::collections::VecDeque;
use std::sync::Arc;

/// Returns nanoseconds from an arbitrary start. An indirect call, used only on rails with faults.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Most datagrams that overtake a reordered one.
const OVERTAKE_MAX: u64 = 8;
/// A reordered datagram that no other datagram overtakes leaves after this time.
const REORDER_HOLD_NS: u64 = 1_000_000;
/// Most bits flipped in one corrupted datagram.
const FLIPS_MAX: u64 = 4;
/// Burst size of a rate limit in bytes: two super-packets.
const BURST_BYTES: u64 = 128_000;
/// Most datagrams held back; beyond this number the oldest leave early.
const HELD_MAX: usize = 65_536;

/// SplitMix64: one multiplication chain per number; any seed is suitable.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns `true` with probability `p`. Draws no number if `p` is 0, so that a fault absent
    /// from the script does not change the others.
    fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && ((self.next() >> 11) as f64) < p * (1u64 << 53) as f64
    }

    /// A number below `n`, which must not be 0. The bias is below n / 2^64.
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// The destination of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// To the peer's rail of a link, by one of its flows.
    Link(LinkId, u8),
    /// To a multicast group.
    Group(GroupLink),
}

impl Way {
    fn send<T: RailTx>(self, inner: &mut T, bytes: &[u8], segment: usize) -> SendOutcome {
        match self {
            Way::Link(link, flow) => inner.send(link, bytes, segment, flow),
            Way::Group(group) => inner.send_group(group, bytes, segment),
        }
    }
}

/// A rail with faults.
pub struct Faulty<R: Rail> {
    inner: R,
    tx: Direction<Way>,
    rx: Direction<Source>,
}

/// The source of a received packet: its link and address.
type Source = (Option<LinkId>, RailAddr);

/// Sending half of a [`Faulty`] rail.
pub struct FaultyTx<T> {
    inner: T,
    faults: Direction<Way>,
}

/// Receiving half of a [`Faulty`] rail.
pub struct FaultyRx<T> {
    inner: T,
    faults: Direction<Source>,
}

impl<R: Rail> Faulty<R> {
    /// Wraps a rail; times in the script count from this call.
    pub fn new(inner: R, script: &FaultScript, clock: Clock) -> Faulty<R> {
        let tx = Direction::new(&script.tx, script.seed, &clock);
        let rx = Direction::new(&script.rx, !script.seed, &clock);
        Faulty { inner, tx, rx }
    }
}

impl<R: Rail> Rail for Faulty<R> {
    type Tx = FaultyTx<R::Tx>;
    type Rx = FaultyRx<R::Rx>;

    fn split(self) -> (Self::Tx, Self::Rx) {
        let (tx, rx) = self.inner.split();
        (
            FaultyTx {
                inner: tx,
                faults: self.tx,
            },
            FaultyRx {
                inner: rx,
                faults: self.rx,
            },
        )
    }
}

/// A datagram held back; `W` is its destination or source.
struct Held<W> {
    due_ns: u64,
    /// The datagram also leaves when this many datagrams were seen.
    after: u64,
    way: W,
    bytes: Vec<u8>,
}

/// The fate of one datagram.
enum Fate {
    Pass,
    Lost,
    Twice,
    Changed(Vec<u8>),
    Held { due_ns: u64, after: u64 },
}

/// The faults of one direction, sending or receiving, and their state.
struct Direction<W> {
    faults: Faults,
    none: bool,
    random: Random,
    clock: Clock,
    start_ns: u64,
    seen: u64,
    held: VecDeque<Held<W>>,
    /// Token bucket in bytes; negative if the last batch exceeded it.
    tokens: i64,
    refilled_ns: u64,
}

impl<W: Copy> Direction<W> {
    fn new(faults: &Faults, seed: u64, clock: &Clock) -> Direction<W> {
        let start_ns = clock();
        Direction {
            faults: faults.clone(),
            none: faults.is_none(),
            random: Random(seed),
            clock: clock.clone(),
            start_ns,
            seen: 0,
            held: VecDeque::new(),
            tokens: BURST_BYTES as i64,
            refilled_ns: start_ns,
        }
    }

    /// Applies the faults to each datagram of a batch and gives the results to `emit` with their
    /// segment length; adjacent unaffected datagrams stay together.
    fn apply(&mut self, way: W, bytes: &[u8], segment: usize, emit: &mut dyn FnMut(&[u8], usize)) {
        let segment = segment.max(1);
        let now_ns = (self.clock)();
        let (mut run, mut at) = (0, 0);
        for part in bytes.chunks(segment) {
            let fate = self.fate(part, now_ns);
            let end = at + part.len();
            if !matches!(fate, Fate::Pass) {
                emit_run(&bytes[run..at], segment, emit);
                run = end;
            }
            at = end;
            match fate {
                Fate::Pass | Fate::Lost => {}
                Fate::Twice => (0..2).for_each(|_| emit(part, part.len())),
                Fate::Changed(copy) => emit(&copy, copy.len()),
                Fate::Held { due_ns, after } => {
                    self.held.push_back(Held {
                        due_ns,
                        after,
                        way,
                        bytes: part.to_vec(),
                    });
                }
            }
        }
        emit_run(&bytes[run..], segment, emit);
    }

    fn fate(&mut self, part: &[u8], now_ns: u64) -> Fate {
        self.seen += 1;
        let (faults, random) = (&self.faults, &mut self.random);
        if is_killed(faults, self.seen, now_ns.saturating_sub(self.start_ns)) {
            return Fate::Lost;
        }
        if random.chance(faults.drop) {
            return Fate::Lost;
        }
        if random.chance(faults.corrupt) {
            return Fate::Changed(flip_bits(part, random));
        }
        if random.chance(faults.truncate) {
            // Keep at least one byte: there are no empty datagrams.
            let keep = 1 + random.below(part.len() as u64) as usize;
            return Fate::Changed(part[..keep.min(part.len())].to_vec());
        }
        if random.chance(faults.duplicate) {
            return Fate::Twice;
        }
        if random.chance(faults.reorder) {
            let after = self.seen + 1 + random.below(OVERTAKE_MAX);
            return Fate::Held {
                due_ns: now_ns + REORDER_HOLD_NS,
                after,
            };
        }
        if faults.delay_ns.1 > 0 {
            let (least, most) = faults.delay_ns;
            let due_ns = now_ns + least + random.below(most - least + 1);
            return Fate::Held {
                due_ns,
                after: u64::MAX,
            };
        }
        Fate::Pass
    }

    /// Takes the first datagram that is due.
    fn release(&mut self) -> Option<Held<W>> {
        if self.held.is_empty() {
            return None;
        }
        let now_ns = (self.clock)();
        let seen = self.seen;
        let due = |h: &Held<W>| h.due_ns <= now_ns || h.after <= seen;
        let at = match self.held.len() > HELD_MAX {
            true => 0,
            false => self.held.iter().position(due)?,
        };
        self.held.remove(at)
    }

    /// Returns whether the rate limit allows sending.
    fn has_tokens(&mut self) -> bool {
        if self.faults.bytes_per_s == 0 {
            return true;
        }
        let now_ns = (self.clock)();
        let passed_ns = now_ns.saturating_sub(self.refilled_ns);
        let new = passed_ns as u128 * self.faults.bytes_per_s as u128 / 1_000_000_000;
        if new > 0 {
            self.refilled_ns = now_ns;
            let new = new.min(i64::MAX as u128 / 2) as i64;
            self.tokens = self.tokens.saturating_add(new).min(BURST_BYTES as i64);
        }
        self.tokens > 0
    }

    fn take_tokens(&mut self, bytes: usize) {
        if self.faults.bytes_per_s > 0 {
            self.tokens -= bytes as i64;
        }
    }
}

fn is_killed(faults: &Faults, seen: u64, age_ns: u64) -> bool {
    let dead = faults.kill_after.is_some_and(|n| seen > n)
        || faults.kill_at_ns.is_some_and(|at| age_ns >= at);
    dead && faults.revive_at_ns.is_none_or(|at| age_ns < at)
}

fn flip_bits(part: &[u8], random: &mut Random) -> Vec<u8> {
    let mut copy = part.to_vec();
    let first = random.below(8 * part.len() as u64);
    copy[first as usize / 8] ^= 1 << (first % 8);
    for _ in 0..random.below(FLIPS_MAX) {
        let bit = random.below(8 * part.len() as u64);
        if bit != first {
            copy[bit as usize / 8] ^= 1 << (bit % 8);
        }
    }
    copy
}

fn emit_run(run: &[u8], segment: usize, emit: &mut dyn FnMut(&[u8], usize)) {
    if !run.is_empty() {
        emit(run, segment.min(run.len()));
    }
}

impl<T: RailTx> FaultyTx<T> {
    fn release_due(&mut self) {
        while let Some(held) = self.faults.release() {
            // A busy rail drops the datagram, which the peer sees as another loss.
            (held.way).send(&mut self.inner, &held.bytes, held.bytes.len());
        }
    }

    fn send_faulty(&mut self, way: Way, bytes: &[u8], segment: usize) -> SendOutcome {
        if !self.faults.has_tokens() {
            return SendOutcome::Busy;
        }
        self.faults.take_tokens(bytes.len());
        let mut outcome = None;
        let inner = &mut self.inner;
        self.faults.apply(way, bytes, segment, &mut |run, segment| {
            let sent = way.send(inner, run, segment);
            // The first outcome counts: after a part has left, a later failure is a loss.
            outcome.get_or_insert(sent);
        });
        self.release_due();
        outcome.unwrap_or(SendOutcome::Sent)
    }
}

impl<T: RailTx> Links for FaultyTx<T> {
    fn connect(&mut self, to: &RailAddr) -> Connected {
        self.inner.connect(to)
    }

    fn works(&mut self, link: LinkId) {
        self.inner.works(link);
    }

    fn silent(&mut self, link: LinkId) {
        self.inner.silent(link);
    }

    fn reroute(&mut self, link: LinkId) -> bool {
        self.inner.reroute(link)
    }

    fn close(&mut self, link: LinkId) {
        let other = |way: Way| !matches!(way, Way::Link(of, _) if of == link);
        self.faults.held.retain(|held| other(held.way));
        self.inner.close(link);
    }
}

impl<T: RailTx> TxBuffers for FaultyTx<T> {
    fn lend(&mut self) -> Option<BufId> {
        self.inner.lend()
    }

    fn buffer(&mut self, id: BufId) -> &mut [u8] {
        self.inner.buffer(id)
    }

    fn give_back(&mut self, id: BufId) {
        self.inner.give_back(id);
    }

    fn send_buffer(
        &mut self,
        link: LinkId,
        buffer: BufId,
        len: usize,
        segment: usize,
        flow: u8,
    ) -> SendOutcome {
        if self.faults.none {
            return self.inner.send_buffer(link, buffer, len, segment, flow);
        }
        let bytes = self.inner.buffer(buffer)[..len].to_vec();
        let outcome = self.send_faulty(Way::Link(link, flow), &bytes, segment);
        if outcome != SendOutcome::Busy {
            self.inner.give_back(buffer);
        }
        outcome
    }

    fn drain(&mut self) {
        self.inner.drain();
    }

    fn given(&self) -> u64 {
        self.inner.given()
    }

    fn take_done(&mut self) -> u64 {
        self.inner.take_done()
    }
}

// Most of these calls never come, because faults apply to packets and the capabilities announce no
// writes; but registered memory must be deregistered by the same rail.
impl<T: RailTx> RemoteWrite for FaultyTx<T> {
    fn register(&mut self, base: *mut u8, len: usize) -> Option<u64> {
        self.inner.register(base, len)
    }

    fn deregister(&mut self, key: u64) {
        self.inner.deregister(key);
    }

    fn write(&mut self, link: LinkId, write: &Write<'_>, packet: &[u8]) -> SendOutcome {
        self.inner.write(link, write, packet)
    }
}

impl<T: RailTx> RemoteRead for FaultyTx<T> {
    fn advertise(&mut self, base: *const u8, len: usize) -> Option<u64> {
        self.inner.advertise(base, len)
    }

    fn open(&mut self, pieces: &[Piece]) -> Option<u64> {
        self.inner.open(pieces)
    }

    fn read(&mut self, link: LinkId, read: &Read) -> SendOutcome {
        self.inner.read(link, read)
    }
}

impl<T: RailTx> Staging for FaultyTx<T> {
    fn stage(&mut self, len: usize) -> Option<u64> {
        self.inner.stage(len)
    }

    fn unstage(&self, key: u64, offset: u64, len: usize, to: &mut dyn FnMut(&[u8])) -> bool {
        self.inner.unstage(key, offset, len, to)
    }
}

impl<T: RailTx> DirectWrite for FaultyTx<T> {
    fn write_direct(
        &mut self,
        link: LinkId,
        write: &Write<'_>,
        packet: &[u8],
        segment: usize,
        flow: u8,
    ) -> SendOutcome {
        self.inner.write_direct(link, write, packet, segment, flow)
    }

    fn seal(&mut self, key: u64, offset: u64, len: u64) {
        self.inner.seal(key, offset, len);
    }

    fn damaged(&mut self) {
        self.inner.damaged();
    }

    fn landed(&self, key: u64, offset: u64, len: u64) -> bool {
        self.inner.landed(key, offset, len)
    }
}

impl<T: RailTx> Groups for FaultyTx<T> {
    fn join(&mut self, group: &RailAddr) -> Result<GroupLink, GroupError> {
        self.inner.join(group)
    }

    fn leave(&mut self, group: GroupLink) {
        (self.faults.held).retain(|held| held.way != Way::Group(group));
        self.inner.leave(group);
    }

    fn send_group(&mut self, group: GroupLink, bytes: &[u8], segment: usize) -> SendOutcome {
        match self.faults.none {
            true => self.inner.send_group(group, bytes, segment),
            false => self.send_faulty(Way::Group(group), bytes, segment),
        }
    }
}

impl<T: RailTx> RailTx for FaultyTx<T> {
    fn caps(&self) -> Caps {
        Caps {
            // Faults apply to packets.
            remote_write: RemoteWrites::None,
            ordered: self.faults.none && self.inner.caps().ordered,
            lossless: self.faults.none && self.inner.caps().lossless,
            ..self.inner.caps()
        }
    }

    fn move_to(&mut self, interface: &InterfaceChoice) -> Option<RailAddr> {
        self.inner.move_to(interface)
    }

    fn renamed(&mut self, interface: &str) {
        self.inner.renamed(interface);
    }

    fn local_addr(&self) -> RailAddr {
        self.inner.local_addr()
    }

    fn send(&mut self, link: LinkId, bytes: &[u8], segment: usize, flow: u8) -> SendOutcome {
        match self.faults.none {
            true => self.inner.send(link, bytes, segment, flow),
            false => self.send_faulty(Way::Link(link, flow), bytes, segment),
        }
    }

    fn poll_event(&mut self) -> Option<RailEvent> {
        self.release_due();
        self.inner.poll_event()
    }
}

impl<T: RailRx> RailRx for FaultyRx<T> {
    fn recv(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        self.recv_either(false, sink)
    }

    fn recv_rest(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        self.recv_either(true, sink)
    }

    fn fd(&self) -> Option<i32> {
        self.inner.fd()
    }

    fn arm(&mut self) -> Armed {
        self.inner.arm()
    }
}

impl<T: RailRx> FaultyRx<T> {
    fn recv_either(&mut self, rest: bool, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let recv = if rest { T::recv_rest } else { T::recv };
        if self.faults.none {
            return recv(&mut self.inner, sink);
        }
        let faults = &mut self.faults;
        let mut emitted = 0;
        let found = recv(&mut self.inner, &mut |received| {
            if !faults.has_tokens() {
                return;
            }
            faults.take_tokens(received.bytes.len());
            let (link, from) = (received.link, received.from);
            faults.apply(
                (link, from),
                received.bytes,
                received.segment,
                &mut |bytes, segment| {
                    emitted += bytes.len().div_ceil(segment);
                    sink(Received {
                        link,
                        from,
                        bytes,
                        segment,
                        beside: 0,
                        missing: 0,
                    });
                },
            );
        });
        while let Some(held) = faults.release() {
            emitted += 1;
            let segment = held.bytes.len();
            sink(Received {
                link: held.way.0,
                from: held.way.1,
                bytes: &held.bytes,
                segment,
                beside: 0,
                missing: 0,
            });
        }
        // Dropped datagrams count too: there were datagrams, and more may wait.
        found.max(emitted)
    }
}
