//! Continues a seed with too few packets: further rounds of work and faults for the same processes,
//! with replacements for dead ones, until enough packets are sent.

use crate::base::rng::Rng;
use crate::setup::choices::{PacketFaults, Setup};
use crate::world::state::{Next, World};

/// Rounds after which a seed counts as too short. Each round sends something, and the next one is
/// scaled by the packets still missing.
const ROUNDS_MAX: u32 = 200;

impl World {
    /// Starts another round if packets are missing. Returns whether it did.
    pub(crate) fn another_round(&mut self) -> Result<bool, String> {
        let (packets, wanted) = (self.net.stats.packets, self.setup.packets_min);
        let Some(times) = self.rounds.next(packets, wanted) else {
            return Ok(false);
        };
        if self.rounds.count > ROUNDS_MAX {
            return Err(format!(
                "only {packets} packets in {ROUNDS_MAX} rounds of work"
            ));
        }
        *self.troubles.entry("another round").or_default() += 1;
        self.renew();
        let next = self.setup.again(self.rounds.count, times, self.now);
        let first = self.setup.faults.len();
        if self.setup.may_die {
            // Peers silent until the end of this round are declared dead shortly after.
            self.rounds.deaths_until = self.now + self.setup.node.peer_timeout_ns;
        }
        self.setup.may_die = next.may_die || self.setup.strands();
        self.setup.faults.extend(&next.faults);
        self.push_faults(first, next.faults_end_ns);
        self.net.packet_faults = next.packet_faults;
        self.calm = false;
        let mut rng = Rng::new(next.seed, 8);
        for e in 0..self.eps.len() as u32 {
            if !self.eps[e as usize].alive {
                continue;
            }
            // Receives for any message, which the end of a round posts, would take messages of the
            // next.
            self.cancel_all(e);
            let at = self.now + 1 + rng.below(self.setup.pause_ns + 1);
            let app = &mut self.eps[e as usize].app;
            app.again(&next);
            app.next_at = at;
            self.wake(e, at);
        }
        Ok(true)
    }

    /// Replaces processes that are dead or consider a live one dead, since they would never
    /// communicate again.
    fn renew(&mut self) {
        for host in 0..self.setup.hosts {
            let Some(e) = self.on_host[host] else {
                continue;
            };
            let ep = &self.eps[e as usize];
            let all_acked_bye = |&other: &u32| self.eps[other as usize].alive;
            if ep.alive && ep.torn_down.iter().any(all_acked_bye) {
                self.die(e);
            }
            if !self.eps[e as usize].alive {
                *self.troubles.entry("renewed").or_default() += 1;
                self.start(host, true);
            }
        }
    }

    /// Schedules the faults from `first` on.
    pub(crate) fn push_faults(&mut self, first: usize, end_ns: u64) {
        for i in first..self.setup.faults.len() {
            let fault = self.setup.faults[i];
            self.push(fault.from_ns, Next::Fault(i as u32, true));
            self.push(fault.to_ns, Next::Fault(i as u32, false));
        }
        self.push(end_ns + 1, Next::FaultsEnd);
    }
}

impl Setup {
    /// Draws the work and faults of a later round, `times` as long as the first, starting at `now`.
    /// The cluster stays the same.
    fn again(&self, round: u32, times: u64, now: u64) -> Setup {
        let seed = Rng::new(self.seed, 1_000 + round as u64).next();
        let mut next = self.redraw(seed, times);
        if self.calm_rounds >> (round - 1).min(63) & 1 == 1 {
            next.packet_faults = PacketFaults::default();
            next.faults.clear();
        }
        for fault in &mut next.faults {
            fault.from_ns += now;
            fault.to_ns += now;
        }
        next.faults_end_ns += now;
        next
    }
}
