//! For how long a rail has been up without a break. With its carrier a host forgets its neighbours'
//! addresses, and where a question for one is lost its kernel asks again after a second: a rail
//! that comes and goes more often than that carries nothing, whoever lives at its other end.

/// The times of one rail.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uptime {
    /// It is up since then; 0: since the start.
    since: u64,
    down: bool,
    /// When it was up for long enough to ask, the last time before `since`.
    steady: (u64, u64),
}

impl Uptime {
    /// It goes down, or comes back. `asks_ns`: whoever is up for so long can ask.
    pub fn set(&mut self, now: u64, down: bool, asks_ns: u64) {
        match down {
            true if now.saturating_sub(self.since) >= asks_ns => self.steady = (self.since, now),
            true => {}
            false => self.since = now,
        }
        self.down = down;
    }

    /// Returns whether it is down.
    #[inline]
    pub fn is_down(&self) -> bool {
        self.down
    }

    /// Returns whether it came back after that time, be it only for a while.
    pub fn came_back(&self, from: u64) -> bool {
        self.since > from
    }

    /// Returns whether it was up for so long, after that time.
    pub fn was_up(&self, asks_ns: u64, from: u64, now: u64) -> bool {
        let lasted = |(since, until): (u64, u64)| until.saturating_sub(since.max(from)) >= asks_ns;
        (!self.down && lasted((self.since, now))) || lasted(self.steady)
    }
}
