//! Poll gaps of this node, and silences of descheduled peers.

/// Poll gap above which round-trip samples are discarded, and after which all sockets are read
/// before any peer counts as late.
pub(crate) const POLL_GAP_NS: u64 = 1_000_000;
/// Time in which a full receive buffer is read, while more packets arrive: 8 MB take 5 ms.
pub(crate) const CATCH_UP_MAX_NS: u64 = 10_000_000;
/// A silence is forgotten after one to two of these periods.
pub(crate) const FORGET_NS: u64 = 1_000_000_000;
/// Weight of a needed retransmission, relative to a spurious one. If a link loses acks as often as
/// data, half of all retransmissions are spurious; if it loses nothing, all are.
pub(crate) const NEEDED_WEIGHT: i8 = 4;
/// Bound of the balance of verdicts.
pub(crate) const BALANCE_MAX: i8 = 8;
/// Balance of spurious over needed retransmissions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verdicts(pub(crate) i8);

impl Verdicts {
    pub(crate) fn add(&mut self, resent_spurious: bool) {
        let balance = match resent_spurious {
            true => self.0 + 1,
            false => self.0 - NEEDED_WEIGHT,
        };
        self.0 = balance.clamp(-BALANCE_MAX, BALANCE_MAX);
    }
}

/// The last poll gap of this node, and the silences of its peers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Descheduled {
    pub(crate) last_poll_ns: u64,
    /// Polls come from the progress thread, not from the application.
    pub(crate) by_thread: bool,
    /// The last poll gap.
    pub(crate) gap_start_ns: u64,
    pub(crate) gap_end_ns: u64,
    /// Packets that arrived in the gap may still be unread: no peer counts as late.
    pub(crate) gap_unread: bool,
    /// Longest silence of a peer in this period and in the one before.
    pub(crate) silence_max_ns: [u64; 2],
    pub(crate) since_ns: u64,
    /// Balance over all peers, used for a peer that has none of its own.
    pub(crate) verdicts: Verdicts,
}

impl Descheduled {
    /// Notes a poll by the owner, in its progress thread or in the application.
    #[inline]
    pub(crate) fn note_poll(&mut self, now: u64, by_thread: bool) {
        let last_ns = core::mem::replace(&mut self.last_poll_ns, now);
        self.by_thread = by_thread;
        if last_ns != 0 && now.saturating_sub(last_ns) > POLL_GAP_NS {
            (self.gap_start_ns, self.gap_end_ns) = (last_ns, now);
            self.gap_unread = true;
        }
    }

    /// Notes that all packets that had arrived were read.
    #[inline]
    pub(crate) fn caught_up(&mut self) {
        self.gap_unread = false;
    }

    /// True while packets that arrived in a poll gap are still being read; no peer counts as late
    /// meanwhile.
    #[inline]
    pub(crate) fn is_catching_up(&self, now: u64) -> bool {
        self.gap_unread && now < self.gap_end_ns + CATCH_UP_MAX_NS
    }

    pub(crate) fn learn(&mut self, now: u64, silent_ns: u64) {
        self.age(now);
        self.silence_max_ns[0] = self.silence_max_ns[0].max(silent_ns);
    }

    /// Drops old silences.
    pub(crate) fn age(&mut self, now: u64) {
        let times = now.saturating_sub(self.since_ns) / FORGET_NS;
        if times > 0 {
            let before = if times == 1 {
                self.silence_max_ns[0]
            } else {
                0
            };
            self.silence_max_ns = [0, before];
            self.since_ns = now;
        }
    }

    /// Corrects the departure time of a packet to the end of a poll gap: the process may have been
    /// descheduled between reading the clock and the system call.
    pub(crate) fn left_ns(&self, at_ns: u64) -> u64 {
        match (self.gap_start_ns..self.gap_end_ns).contains(&at_ns) {
            true => self.gap_end_ns,
            false => at_ns,
        }
    }
}
