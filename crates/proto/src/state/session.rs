//! Session with a peer: results of HELLO, the session's end, and signs of life.

use crate::base::config::Config;
use crate::base::evidence::Evidence;
use crate::state::address_validation::AddressValidation;
use crate::state::descheduled::Verdicts;
use alloc::vec::Vec;
use marline_wire::{
    Frame, FrameView, Hello, Packet, RailAddr, FIRST_ALGORITHM, SLOT_UNKNOWN, VERSION,
};

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// The peer was silent, or acknowledged nothing.
    Silent,
    /// The peer's host refuses packets or connections, with the evidence that this gives.
    Refused(Evidence),
    /// Data was lost that cannot be retransmitted.
    Lost,
}

/// The agreement with a peer, and whether it still holds.
#[derive(Debug)]
pub struct Session {
    pub remote_slot: u32,
    /// Known after the peer's HELLO.
    pub epoch: Option<u32>,
    pub algorithm: u8,
    /// Version of packets in both directions.
    pub version: u8,
    /// Algorithms that the peer can verify, bit n for number n; known after its HELLO.
    pub algorithms: u32,
    /// The peer takes remote writes as eager messages; known after its HELLO.
    pub eager_puts: bool,
    pub hello_acked: bool,
    /// The peer has challenged this endpoint, and has not acknowledged the response: it may forget
    /// this endpoint, and needs HELLO then.
    pub challenged: bool,
    /// The peer has challenged this endpoint, and may do so at each of its addresses.
    pub validates: bool,
    /// How the validation of a new address of the peer begins.
    pub new_address: AddressValidation,
    /// The newest revision of its rails that the peer announced.
    pub revision: u32,
    /// All rails that the peer last announced, retained while rails may be added on either side.
    pub rails: Vec<RailAddr>,
    /// Data that cannot be retransmitted was lost: the connection ends the next time that timers
    /// are served.
    pub lost: bool,
    pub dead: bool,
    /// The peer's settings differ from ours: it counts as dead. `refusals_due`: packets still to be
    /// sent that report the refusal to it.
    pub refused: bool,
    pub refusals_due: u16,
    pub closed: bool,
    /// The peer is this endpoint itself (loopback): nothing is sent.
    pub own: bool,
    /// Epoch of this endpoint for this peer (see `Local::epoch_for`).
    pub own_epoch: u32,
}

impl Default for Session {
    fn default() -> Session {
        Session {
            remote_slot: SLOT_UNKNOWN,
            epoch: None,
            algorithm: FIRST_ALGORITHM,
            version: VERSION,
            algorithms: 0,
            eager_puts: false,
            hello_acked: false,
            challenged: false,
            validates: false,
            new_address: AddressValidation::default(),
            revision: 0,
            rails: Vec::new(),
            lost: false,
            dead: false,
            refused: false,
            refusals_due: 0,
            closed: false,
            own: false,
            own_epoch: 0,
        }
    }
}

impl Session {
    /// Notes what the first HELLO says of its sender.
    pub(crate) fn note_first_hello(&mut self, hello: &Hello<'_>) {
        self.epoch = Some(hello.epoch);
        self.remote_slot = hello.slot;
        self.eager_puts = hello.eager_puts;
    }

    /// The rail of the peer with this index, if retained here.
    pub fn rail(&self, index: usize) -> Option<RailAddr> {
        let mut rails = self.rails.iter();
        rails.find(|rail| rail.index as usize == index).copied()
    }

    /// Handles the HELLO of a refused peer that has not noticed its refusal. True if another
    /// refusal is due.
    pub(crate) fn refuse_again(&mut self, packet: &Packet<'_>) -> bool {
        let asks = |(frame, _): (FrameView<'_>, _)| match frame {
            Frame::Hello(hello) => !hello.fields().refused,
            _ => false,
        };
        let due = packet.frames().any(asks);
        if due {
            self.refusals_due = self.refusals_due.max(1);
        }
        due
    }

    /// True if the peer knows this endpoint, so that packets need no HELLO.
    #[inline]
    pub fn needs_no_hello(&self) -> bool {
        self.hello_acked && !self.challenged
    }

    /// True if the peer is dead or has said BYE.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.dead || self.closed
    }
}

/// State of BYE: how many are still to be sent, how many were sent, and whether the peer received
/// one.
#[derive(Debug, Default)]
pub struct ByeState {
    pub due: u16,
    pub said: u16,
    pub heard: bool,
}

/// Signs of life of a peer, times in nanoseconds.
#[derive(Debug, Default)]
pub struct Liveness {
    /// When the connection was opened.
    pub opened_ns: u64,
    pub heard_ns: u64,
    /// Since when the peer owes an answer.
    pub owed_since: Option<u64>,
    /// Since when nothing was acknowledged although packets wait for acks.
    pub unanswered_since: Option<u64>,
    /// Since when nothing was delivered, if delivery is in doubt; else 0. (`gap_reported`: the end
    /// of the gap must be reported.)
    pub gap_from: u64,
    /// Since when the peer owed an answer when all rails to it last went down; 0: never.
    waits_since_ns: u64,
    /// Since when all rails to the peer are down; 0: some rail is up.
    pub cut_since_ns: u64,
    pub gap_reported: bool,
    /// Extensions of the timeout, `more_time`, granted for the answer owed since this time.
    pub more_time_since_ns: u64,
    pub more_time: u8,
    pub pinged_ns: u64,
    /// When the peer was last heard in packets that were read on arrival; when it was heard after a
    /// silence, and the length of that silence.
    pub prompt_ns: u64,
    pub silence_ended_ns: u64,
    pub silent_ns: u64,
    pub(crate) verdicts: Verdicts,
}

/// Multiple of the silence timeout after which an outage of all local rails counts as the peer's
/// silence, so that a permanently failed device ends the job eventually.
const CUT_TIMEOUTS: u64 = 10;

impl Liveness {
    /// Extensions of the timeout granted for the answer owed since `since`.
    pub fn given(&self, since: u64) -> u8 {
        match self.more_time_since_ns == since {
            true => self.more_time,
            false => 0,
        }
    }

    /// How long the peer had been silent at `at_ns` while it owed an answer; 0 if it was heard
    /// later than `at_ns`.
    pub fn silent_until(&self, at_ns: u64) -> u64 {
        let since = self.owed_since.unwrap_or(u64::MAX);
        at_ns.saturating_sub(since)
    }

    /// Time for which, at `at_ns`, nothing was acknowledged or the peer was silent, whichever is
    /// longer.
    pub fn unread_until(&self, at_ns: u64) -> u64 {
        let unanswered = self.unanswered_since.unwrap_or(u64::MAX);
        self.silent_until(at_ns)
            .max(at_ns.saturating_sub(unanswered))
    }

    /// Since when the peer owes an answer, including time in which all rails to it were down.
    pub fn waits_since(&self) -> Option<u64> {
        let earlier = Some(self.waits_since_ns).filter(|&at| at > 0 && at >= self.heard_ns);
        self.owed_since
            .map(|owed| earlier.map_or(owed, |at| at.min(owed)))
    }

    /// When to judge whether the peer is dead.
    pub fn judged_at(&self, cfg: &Config) -> Option<u64> {
        let since = self.owed_since?;
        let timeout_ns = cfg.silence_ns();
        let at = since + timeout_ns + cfg.timeout_extension_ns() * u64::from(self.given(since));
        match self.cut_since_ns {
            0 => Some(at),
            cut => Some(at.max(cut + CUT_TIMEOUTS * timeout_ns)),
        }
    }

    /// Notes whether all rails to the peer are down; that time does not count as the peer's
    /// silence.
    pub fn note_cut(&mut self, now: u64, cut: bool) {
        let since = self.cut_since_ns;
        self.cut_since_ns = match (cut, since) {
            (true, 0) => now.max(1),
            (true, since) => since,
            (false, _) => 0,
        };
        if cut || since == 0 {
            return;
        }
        self.waits_since_ns = self.waits_since().unwrap_or(0);
        let clocks = [&mut self.owed_since, &mut self.unanswered_since];
        for begun in clocks.into_iter().flatten() {
            *begun += now.saturating_sub(since.max(*begun));
        }
    }
}

/// Reachability of a peer over any path.
#[derive(Debug, Default)]
pub struct Reachability {
    /// Since when no path has been known to carry packets, in units of [`LOST_UNIT_NS`]; 0: the
    /// peer is reachable.
    lost: u32,
    /// Some path must repeat the acks of other paths (`Path::echo`).
    pub echoes: bool,
    /// When the peer was last answered on all paths after it lost reachability; `asked_at`: the
    /// path of its probe.
    pub answered_ns: u64,
    pub asked_at: u16,
}

/// Unit of the time since which reachability is lost.
const LOST_UNIT_NS: u64 = 1 << 20;

impl Reachability {
    /// True if no path was known to carry packets at the last check.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.lost != 0
    }

    /// Notes that no path is known to carry packets.
    pub fn lose(&mut self, now: u64) {
        self.lost = ((now / LOST_UNIT_NS) as u32).max(1);
    }

    /// Notes that a path carries packets.
    pub fn regain(&mut self) {
        self.lost = 0;
    }

    /// For how long reachability has been lost, in ns.
    pub fn lost_for_ns(&self, now: u64) -> u64 {
        let units = ((now / LOST_UNIT_NS) as u32).wrapping_sub(self.lost);
        u64::from(units) * LOST_UNIT_NS
    }
}

/// Refusals by the peer's host, since the peer was heard, on paths that have worked.
#[derive(Debug, Default)]
pub struct Refusals {
    count: u32,
    /// Time of the first and of the last refusal.
    since_ns: u64,
    last_ns: u64,
    /// Packets were refused; connections were refused.
    pub packets: bool,
    pub connections: bool,
    /// Departure times of packets that reached other processes at an address that refuses this
    /// peer: of the first since the refusals began, and of the last; 0: none.
    reached_ns: (u64, u64),
}

/// Refusals further apart than this do not count as lasting: two short refusals by a firewall, with
/// a silent network in between, are not one long refusal. (Linux sends one ICMP message a second to
/// a host, which may have many processes.)
const APART_NS: u64 = 3_000_000_000;
/// Time for which one process must be refused after another process at its address was reached, and
/// in the second half of which the other process must be reached again. A firewall that is switched
/// on or off meanwhile would refuse, or pass, packets to both.
const ONE_PROCESS_NS: u64 = 400_000_000;

impl Refusals {
    /// Resets the count, as the peer was heard.
    #[inline]
    pub fn forget(&mut self) {
        self.count = 0;
    }

    /// Counts a refusal; returns true if it is the first.
    pub fn note(&mut self, now: u64) -> bool {
        let first = self.count == 0 || now.saturating_sub(self.last_ns) > APART_NS;
        if first {
            (self.count, self.since_ns) = (0, now);
            (self.packets, self.connections) = (false, false);
            self.reached_ns = (0, 0);
        }
        (self.count, self.last_ns) = (self.count + 1, now);
        first
    }

    /// Returns whether one of these refusals came after the first of `others`.
    pub fn came_since(&self, others: &Refusals) -> bool {
        others.count > 0 && self.last_ns >= others.since_ns
    }

    /// Notes that a packet sent at `sent_ns` has reached another process at an address that refuses
    /// this peer.
    pub fn note_reached(&mut self, sent_ns: u64) {
        if self.count == 0 || sent_ns <= self.since_ns {
            return; // the host did not refuse yet
        }
        let (first, last) = self.reached_ns;
        self.reached_ns = match first {
            0 => (sent_ns, sent_ns),
            _ => (first, last.max(sent_ns)),
        };
    }

    /// Returns whether the host refuses this process and no other, as far as others were probed.
    pub fn are_of_one_process(&self, now: u64) -> bool {
        let (first, last) = self.reached_ns;
        let lasts = first > 0 && now.saturating_sub(first) >= ONE_PROCESS_NS;
        lasts && last - first >= ONE_PROCESS_NS / 2
    }

    /// Time in ns from the first refusal to now.
    pub fn lasted_ns(&self, now: u64) -> u64 {
        now.saturating_sub(self.since_ns)
    }

    /// True if at least `least` refusals came, over at least `time_ns`.
    pub fn last(&self, now: u64, least: u32, time_ns: u64) -> bool {
        self.count >= least && now - self.since_ns >= time_ns
    }
}
