//! Absences: what a node knows of stretches in which it, or a peer, was off its processor.

/// A stretch without polling after which round-trip samples are not trusted (design rule 5), and
/// what waits in the sockets is read before anybody counts as late.
pub(crate) const POLL_GAP_NS: u64 = 1_000_000;
/// A full receive buffer is read within this, whatever goes on coming meanwhile: one of 8 MB takes
/// 5 ms.
pub(crate) const BEHIND_MAX_NS: u64 = 10_000_000;
/// Silences are forgotten after one to two such times.
pub(crate) const FORGET_NS: u64 = 1_000_000_000;
/// A needed repair outweighs so many needless ones: on a link that loses acks as often as data half
/// of all repairs prove needless, on one that loses nothing all do.
pub(crate) const NEEDED_WEIGHT: i8 = 4;
/// Bound of the balance of verdicts.
pub(crate) const BALANCE_MAX: i8 = 8;
/// Needless repairs over needed ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verdicts(pub(crate) i8);

impl Verdicts {
    pub(crate) fn add(&mut self, needless: bool) {
        let balance = match needless {
            true => self.0 + 1,
            false => self.0 - NEEDED_WEIGHT,
        };
        self.0 = balance.clamp(-BALANCE_MAX, BALANCE_MAX);
    }
}

/// The absences that a node knows of: its own last one, and those of its peers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Absences {
    pub(crate) last_poll_ns: u64,
    /// The progress thread is at work, not the application.
    pub(crate) by_thread: bool,
    /// The last stretch in which nobody polled here.
    pub(crate) gap_start_ns: u64,
    pub(crate) gap_end_ns: u64,
    /// Packets that came meanwhile are not all read yet: nobody can be called late.
    pub(crate) behind: bool,
    /// Longest silence of a peer in this time and in the one before.
    pub(crate) worst_ns: [u64; 2],
    pub(crate) since_ns: u64,
    /// The verdicts on all peers, for those of which there is none yet.
    pub(crate) verdicts: Verdicts,
}

impl Absences {
    /// The owner polls, by its progress thread or not.
    #[inline]
    pub(crate) fn note_poll(&mut self, now: u64, by_thread: bool) {
        let last_ns = core::mem::replace(&mut self.last_poll_ns, now);
        self.by_thread = by_thread;
        if last_ns != 0 && now.saturating_sub(last_ns) > POLL_GAP_NS {
            (self.gap_start_ns, self.gap_end_ns) = (last_ns, now);
            self.behind = true;
        }
    }

    /// All that had come was read.
    #[inline]
    pub(crate) fn caught_up(&mut self) {
        self.behind = false;
    }

    /// Returns whether packets that came while nobody polled are still being read: nobody is late
    /// before that.
    #[inline]
    pub(crate) fn is_behind(&self, now: u64) -> bool {
        self.behind && now < self.gap_end_ns + BEHIND_MAX_NS
    }

    pub(crate) fn learn(&mut self, now: u64, silent_ns: u64) {
        self.age(now);
        self.worst_ns[0] = self.worst_ns[0].max(silent_ns);
    }

    /// Forgets what was long ago.
    pub(crate) fn age(&mut self, now: u64) {
        let times = now.saturating_sub(self.since_ns) / FORGET_NS;
        if times > 0 {
            let before = if times == 1 { self.worst_ns[0] } else { 0 };
            self.worst_ns = [0, before];
            self.since_ns = now;
        }
    }

    /// Corrects the time at which a packet left. It may have left when the gap ended: we may have
    /// been taken off the processor between the look at the clock and the call of the kernel.
    pub(crate) fn left_ns(&self, at_ns: u64) -> u64 {
        match (self.gap_start_ns..self.gap_end_ns).contains(&at_ns) {
            true => self.gap_end_ns,
            false => at_ns,
        }
    }
}
