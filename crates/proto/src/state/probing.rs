//! Probes of a path: when a probe is due, whether the next packet must carry one, and how many
//! probes remained unanswered.

/// First interval between two probes of a path.
const EVERY_NS: u64 = 1_000_000;

/// The probes of a path.
#[derive(Debug)]
pub struct Probing {
    /// When to probe next (paths that are down or unproven), and the interval after that.
    at_ns: u64,
    every_ns: u64,
    /// A probe is to leave at the next transmit.
    requested: bool,
    /// Probes received since one of our packets was acknowledged.
    received: u8,
    /// Packets sent in a row without a request for an ack.
    quiet: u8,
    /// Probes since the peer was last heard; `unanswered_since_ns`: when that was.
    unanswered: u8,
    unanswered_since_ns: u64,
}

impl Default for Probing {
    fn default() -> Probing {
        Probing {
            at_ns: 0,
            every_ns: EVERY_NS,
            requested: false,
            received: 0,
            quiet: 0,
            unanswered: 0,
            unanswered_since_ns: 0,
        }
    }
}

impl Probing {
    /// A probe is to leave at the next transmit.
    #[inline]
    pub(crate) fn request(&mut self) {
        self.requested = true;
    }

    /// A probe is to leave at the next transmit, if `due`.
    #[inline]
    pub(crate) fn request_if(&mut self, due: bool) {
        self.requested |= due;
    }

    /// Sets or withdraws the request for a probe.
    pub(crate) fn set_requested(&mut self, due: bool) {
        self.requested = due;
    }

    /// True if a probe is to leave at the next transmit.
    #[inline]
    pub(crate) fn is_requested(&self) -> bool {
        self.requested
    }

    /// Notes a probe that left. `heard_ns`: when the peer was last heard; a new value restarts the
    /// count of unanswered probes.
    #[inline]
    pub(crate) fn on_sent(&mut self, heard_ns: u64) {
        let unanswered = self.unanswered(heard_ns);
        (self.unanswered_since_ns, self.unanswered) = (heard_ns, unanswered.saturating_add(1));
        self.requested = false;
    }

    /// Probes since the peer was heard at `heard_ns`, for the last time.
    #[inline]
    pub(crate) fn unanswered(&self, heard_ns: u64) -> u8 {
        match self.unanswered_since_ns == heard_ns {
            true => self.unanswered,
            false => 0,
        }
    }

    /// When a probe is due by the timer.
    #[inline]
    pub(crate) fn due_ns(&self) -> u64 {
        self.at_ns
    }

    /// Sets the time of the next probe.
    pub(crate) fn set_due(&mut self, at_ns: u64) {
        self.at_ns = at_ns;
    }

    /// The timer expired: the next probe is due after the interval, which then doubles, up to
    /// `most_ns`.
    pub(crate) fn on_timer(&mut self, now: u64, most_ns: u64) {
        self.at_ns = now + self.every_ns;
        self.every_ns = (self.every_ns * 2).min(most_ns);
    }

    /// Sets the interval; the next probe is due after it.
    pub(crate) fn restart(&mut self, now: u64, every_ns: u64) {
        (self.at_ns, self.every_ns) = (now + every_ns, every_ns);
    }

    /// The interval of the timer.
    pub(crate) fn every_ns(&self) -> u64 {
        self.every_ns
    }

    /// The path is up: the next outage begins with short intervals.
    pub(crate) fn on_up(&mut self) {
        self.every_ns = EVERY_NS;
    }

    /// Counts a probe by the peer. Returns the number of its probes since an ack arrived.
    pub(crate) fn on_received(&mut self) -> u8 {
        self.received = self.received.saturating_add(1);
        self.received
    }

    /// Answers the peer's probes with one of our own.
    pub(crate) fn ask_back(&mut self) {
        self.received = 0;
        self.requested = true;
    }

    /// True if the peer repeats its probes, so that it may not hear our answers.
    #[inline]
    pub(crate) fn is_asked_again(&self) -> bool {
        self.received > 1
    }

    /// Handles an ack of the newest packet: the peer is heard, and hears us.
    #[inline]
    pub(crate) fn on_ack(&mut self) {
        self.received = 0;
    }

    /// Counts packets in a row that request no ack.
    #[inline]
    pub(crate) fn on_packet_sent(&mut self, eliciting: bool) {
        self.quiet = match eliciting {
            true => 0,
            false => self.quiet.saturating_add(1),
        };
    }

    /// Notes a run of packets. Packets of a run that is not `reliable` request no ack and do not
    /// count.
    #[inline]
    pub(crate) fn on_run_sent(&mut self, reliable: bool) {
        if reliable {
            self.quiet = 0;
        }
    }

    /// Packets sent in a row without a request for an ack.
    #[inline]
    pub(crate) fn quiet(&self) -> u8 {
        self.quiet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const MS: u64 = 1_000_000;

    #[test]
    fn intervals_double_up_to_their_bound() {
        let mut probing = Probing::default();
        let mut due = Vec::new();
        for _ in 0..5 {
            probing.on_timer(0, 5 * MS);
            due.push(probing.due_ns() / MS);
        }
        assert_eq!(due, [1, 2, 4, 5, 5]);
        probing.on_up();
        probing.on_timer(10 * MS, 5 * MS);
        assert_eq!(probing.due_ns(), 11 * MS);
        probing.restart(20 * MS, 3 * MS);
        assert_eq!((probing.due_ns(), probing.every_ns()), (23 * MS, 3 * MS));
    }

    #[test]
    fn a_request_lasts_until_the_probe_left() {
        let mut probing = Probing::default();
        probing.request_if(false);
        assert!(!probing.is_requested());
        probing.request();
        probing.request_if(false);
        assert!(probing.is_requested());
        probing.on_sent(5);
        assert!(!probing.is_requested());
    }

    #[test]
    fn unanswered_probes_count_from_the_last_packet_heard() {
        let mut probing = Probing::default();
        probing.on_sent(5);
        probing.on_sent(5);
        assert_eq!((probing.unanswered(5), probing.unanswered(6)), (2, 0));
        probing.on_sent(6);
        assert_eq!(probing.unanswered(6), 1);
        (0..300).for_each(|_| probing.on_sent(6));
        assert_eq!(probing.unanswered(6), u8::MAX);
    }

    #[test]
    fn repeated_probes_by_the_peer_are_answered_with_one() {
        let mut probing = Probing::default();
        assert_eq!(probing.on_received(), 1);
        assert!(!probing.is_asked_again());
        assert_eq!(probing.on_received(), 2);
        assert!(probing.is_asked_again());
        probing.ask_back();
        assert!(probing.is_requested() && !probing.is_asked_again());
        probing.on_received();
        probing.on_ack();
        assert_eq!(probing.on_received(), 1);
    }

    #[test]
    fn a_packet_that_requests_an_ack_ends_the_quiet() {
        let mut probing = Probing::default();
        (0..300).for_each(|_| probing.on_packet_sent(false));
        assert_eq!(probing.quiet(), u8::MAX);
        probing.on_packet_sent(true);
        assert_eq!(probing.quiet(), 0);
    }
}
