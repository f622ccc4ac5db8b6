//! Time for which a rail has been up without a break. Loss of carrier clears a host's neighbour
//! table (ARP), and the kernel repeats a lost ARP request after a second. A rail that flaps faster
//! carries nothing, whatever the peer does.

/// Up times of one rail.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uptime {
    /// Time since when the rail is up; 0: since the start.
    since: u64,
    down: bool,
    /// The last period before `since` that was long enough for ARP.
    steady: (u64, u64),
}

impl Uptime {
    /// Notes that the rail goes down or comes back. `neighbour_resolution_ns`: time up that is long
    /// enough for ARP.
    pub fn set(&mut self, now: u64, down: bool, neighbour_resolution_ns: u64) {
        match down {
            true if now.saturating_sub(self.since) >= neighbour_resolution_ns => {
                self.steady = (self.since, now)
            }
            true => {}
            false => self.since = now,
        }
        self.down = down;
    }

    /// True if the rail is down.
    #[inline]
    pub fn is_down(&self) -> bool {
        self.down
    }

    /// True if the rail came back after time `from`, even if only briefly.
    pub fn came_back(&self, from: u64) -> bool {
        self.since > from
    }

    /// True if the rail was up for `neighbour_resolution_ns` after `from`.
    pub fn was_up(&self, neighbour_resolution_ns: u64, from: u64, now: u64) -> bool {
        let lasted = |(since, until): (u64, u64)| {
            until.saturating_sub(since.max(from)) >= neighbour_resolution_ns
        };
        (!self.down && lasted((self.since, now))) || lasted(self.steady)
    }
}
