//! Decides when the sends of a burst leave: the first few immediately, later ones coalesced.
//!
//! Coalesced sends must not wait while the application computes. An alarm of the progress thread
//! ensures that, but setting it is expensive where timer interrupts are virtualised
//! (docs/design/eager.md). So the alarm is set only until the application has proved that it polls
//! soon after its bursts. If such an application then computes, its coalesced sends leave at the
//! thread's next tick, and the alarm is set again from then on.

/// Messages coalesced before a flush: enough for four packets (docs/design/eager.md).
const MESSAGES_MAX: usize = 128;
/// Bytes of such messages: half a super-packet justifies a system call of its own.
const BYTES_MAX: usize = 32 << 10;
/// Most bytes that count for a message of which only a request leaves: eight requests are worth a
/// packet (docs/design/eager.md).
const REQUEST_BYTES: usize = 4 << 10;
/// Least bytes that count for a request that is not a message. These requests are not counted by
/// number, so this limits them to as many as messages.
const ASKED_BYTES: usize = BYTES_MAX / MESSAGES_MAX;
/// Requests of a burst that leave immediately: the exchange of a short burst then overlaps with
/// computation, and an alarm would cost as much as sending them.
const REQUESTS_AT_ONCE: u32 = 8;
/// Promised bound on the delay of coalesced sends: a poll within this time of the first one needs
/// no alarm.
const SOON_NS: u64 = 200_000;
/// Number of consecutive bursts that were polled soon before the alarm is omitted.
const TRUST: u32 = 16;

/// State of the current burst and the application's polling habits.
#[derive(Debug, Default)]
pub(crate) struct Coalescer {
    /// Number of sends since the application last polled.
    burst: u32,
    /// Bytes posted since the last flush.
    bytes: usize,
    /// Time of the first coalesced send.
    since_ns: Option<u64>,
    /// Time of the first coalesced send that a later send of this burst flushed.
    taken_ns: Option<u64>,
    /// Number of consecutive bursts that were polled soon.
    trust: u32,
}

impl Coalescer {
    /// Counts a send of `len` bytes, with `waiting` queued messages to its peer. `true`: flush now.
    pub(crate) fn posted(&mut self, len: usize, waiting: usize, at_once: u32) -> bool {
        self.burst += 1;
        self.bytes += len;
        let full = waiting >= MESSAGES_MAX || self.bytes >= BYTES_MAX;
        if full {
            self.taken_ns = self.since_ns.or(self.taken_ns);
        }
        self.burst <= at_once || full
    }

    /// True if at least `sends` sends of the burst precede the next one.
    pub(crate) fn follows(&self, sends: u32) -> bool {
        self.burst >= sends
    }

    /// Like [`Coalescer::posted`], for a message of which only a request leaves.
    pub(crate) fn requested(&mut self, len: usize, waiting: usize, at_once: u32) -> bool {
        self.posted(
            len.min(REQUEST_BYTES),
            waiting,
            at_once.max(REQUESTS_AT_ONCE),
        )
    }

    /// Like [`Coalescer::posted`], for a request that is not a message: a read, or a remote write
    /// that waits for a grant.
    pub(crate) fn asked(&mut self, len: usize, waiting: usize, at_once: u32) -> bool {
        self.posted(len.clamp(ASKED_BYTES, REQUEST_BYTES), waiting, at_once)
    }

    /// Notes that a send was coalesced. `true`: set the alarm.
    pub(crate) fn left(&mut self, now: impl FnOnce() -> u64) -> bool {
        if self.since_ns.is_some() {
            return false;
        }
        self.since_ns = Some(now());
        self.trust < TRUST
    }

    /// Notes a poll of the application or another call that flushes.
    pub(crate) fn polled(&mut self, now: u64) {
        self.burst = 0;
        let taken = self.taken_ns.take();
        if let Some(since) = self.since_ns.or(taken) {
            let soon = now.saturating_sub(since) <= SOON_NS;
            self.trust = if soon {
                self.trust.saturating_add(1)
            } else {
                0
            };
        }
    }

    /// Notes that entries were read without a poll: the burst has ended.
    pub(crate) fn ended(&mut self) {
        self.burst = 0;
    }

    /// Notes that all coalesced sends have left.
    pub(crate) fn flushed(&mut self) {
        self.since_ns = None;
        self.bytes = 0;
    }

    /// True if the thread must flush: its alarm rang (`rung`), or sends have waited for a tick.
    /// Both end the trust in the application.
    pub(crate) fn stranded(&mut self, now: u64, tick_ns: u64, rung: bool) -> bool {
        let stranded = self
            .since_ns
            .is_some_and(|since| rung || now.saturating_sub(since) >= tick_ns / 2);
        if stranded {
            self.trust = 0;
        }
        stranded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends three messages in a burst, polled after `gap_ns`; returns whether the alarm was set.
    fn burst(c: &mut Coalescer, at: u64, gap_ns: u64) -> bool {
        assert!(c.posted(8, 1, 2) && c.posted(8, 1, 2));
        c.flushed();
        assert!(!c.posted(8, 1, 2));
        let alarm = c.left(|| at);
        assert!(!c.left(|| at), "one alarm a burst");
        c.polled(at + gap_ns);
        c.flushed();
        alarm
    }

    #[test]
    fn the_alarm_is_omitted_for_a_trusted_application_and_set_again_when_it_computes() {
        let mut c = Coalescer::default();
        for i in 0..TRUST as u64 {
            assert!(burst(&mut c, i * 1_000_000, 50_000));
        }
        assert!(!burst(&mut c, 100_000_000, 50_000));
        assert!(!burst(&mut c, 200_000_000, 3_000_000), "computes once");
        assert!(burst(&mut c, 300_000_000, 50_000));
    }

    #[test]
    fn bursts_flushed_by_their_last_send_earn_trust() {
        let mut c = Coalescer::default();
        let mut burst = |at: u64, gap_ns: u64| {
            assert!(!c.posted(BYTES_MAX / 2, 1, 0));
            let alarm = c.left(|| at);
            assert!(c.posted(BYTES_MAX / 2, 2, 0));
            c.flushed();
            c.polled(at + gap_ns);
            alarm
        };
        assert!((0..TRUST as u64).all(|i| burst(i * 1_000_000, 50_000)));
        assert!(!burst(100_000_000, 50_000));
        assert!(!burst(200_000_000, 3_000_000), "computes once");
        assert!(burst(300_000_000, 50_000));
    }

    #[test]
    fn coalesced_sends_are_due_at_the_alarm_or_after_half_a_tick() {
        let mut c = Coalescer::default();
        assert!(!c.stranded(0, 10_000_000, true));
        c.left(|| 1_000);
        assert!(!c.stranded(4_000_000, 10_000_000, false));
        assert!(c.stranded(4_000_000, 10_000_000, true));
        assert!(c.stranded(6_000_000, 10_000_000, false));
        c.flushed();
        assert!(!c.stranded(20_000_000, 10_000_000, true));
    }

    #[test]
    fn many_messages_or_many_bytes_leave_at_once() {
        let mut c = Coalescer::default();
        assert!(!c.posted(8, 3, 0));
        assert!(c.posted(8, MESSAGES_MAX, 0));
        assert!(c.posted(BYTES_MAX, 3, 0));
        c.flushed();
        (0..5).for_each(|_| assert!(c.requested(BYTES_MAX, 3, 0)));
        c.flushed();
        let left: Vec<bool> = (0..8).map(|_| c.requested(BYTES_MAX, 3, 0)).collect();
        assert_eq!(left, [[false; 7].as_slice(), &[true]].concat());
    }
}
