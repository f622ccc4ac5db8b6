//! Applications whose two sides know all messages: source, destination and length in each round.

use crate::app::turns::draw_size;
use crate::base::rng::Rng;
use crate::setup::choices::{Setup, Work};
use crate::setup::sample::SAMPLED;
use crate::world::state::World;

/// Messages per host and round of a storm.
const STORM: u32 = 2_000;
/// Longest message of a storm in bytes.
const STORM_BYTES_MAX: u64 = 500;

/// Length of the message from `src` to `dst` in `round`, known to both sides.
fn agreed(setup: &Setup, src: u32, dst: u32, round: u32) -> u64 {
    let mut rng = Rng::new(
        setup.seed,
        (src as u64) << 40 | (dst as u64) << 20 | round as u64,
    );
    draw_size(&mut rng, setup.size_max)
}

/// Distance of `e` from its parent in a binomial tree over `n` hosts. The children are at the
/// smaller powers of two.
fn lowest_bit(e: u32, n: u32) -> u32 {
    match e {
        0 => n.next_power_of_two(),
        _ => e & e.wrapping_neg(),
    }
}

impl World {
    /// A round of a structured application.
    pub(crate) fn round(&mut self, e: u32) {
        let round = self.eps[e as usize].app.round;
        let n = self.setup.hosts as u32;
        match self.eps[e as usize].app.work {
            Work::PingPong => {
                let other = e ^ 1;
                if other >= n {
                    return;
                }
                if (round + e) % 2 == 0 {
                    self.send_agreed(e, other, round);
                } else {
                    self.recv_agreed(e, other, round);
                }
            }
            Work::Halo => {
                for other in [(e + 1) % n, (e + n - 1) % n] {
                    self.recv_agreed(e, other, round);
                    self.send_agreed(e, other, round);
                }
            }
            Work::AllToAll => {
                for other in (0..n).filter(|&o| o != e) {
                    self.recv_agreed(e, other, round);
                }
                for i in 1..n {
                    self.send_agreed(e, (e + i) % n, round);
                }
            }
            Work::Incast => self.incast(e, round, n),
            Work::Tree => self.tree(e, round, n),
            Work::Collective => self.collective(e, round, n),
            Work::Storm => self.storm(e, round, n),
            Work::Sampled => self.sampled(e, round, n),
            Work::Gather => self.gather(e, round, n),
            Work::Allreduce => self.allreduce(e, round, n),
            Work::Fence => {
                for other in [(e + 1) % n, (e + n - 1) % n] {
                    let len = agreed(&self.setup, e, other, round);
                    self.post_put(e, other, len, false, true);
                }
            }
            Work::Random => {}
        }
    }

    fn incast(&mut self, e: u32, round: u32, n: u32) {
        let burst = 20;
        if e != 0 {
            for i in 0..burst {
                self.send_agreed(e, 0, round * burst + i);
            }
            return;
        }
        for i in 0..burst {
            for other in 1..n {
                self.recv_agreed(0, other, round * burst + i);
            }
        }
    }

    /// The messages of an all-to-all to and from the first hosts.
    fn sampled(&mut self, e: u32, round: u32, n: u32) {
        let sampled = e < SAMPLED;
        let fit = |other: &u32| *other < n && *other != e && (sampled || *other < SAMPLED);
        // In the order in which the others come to this one.
        for other in (1..n).map(|i| (e + n - i) % n).filter(fit) {
            self.recv_agreed(e, other, round);
        }
        for other in (1..n).map(|i| (e + i) % n).filter(fit) {
            self.send_agreed(e, other, round);
        }
    }

    fn gather(&mut self, e: u32, round: u32, n: u32) {
        let (tag, len) = (round as u64, self.setup.size_max);
        if e != 0 {
            return self.post_send(e, 0, Some(tag), None, len, true);
        }
        for other in 1..n {
            self.post_recv(0, Some(other), Some((tag, 0)), len, None, true);
        }
    }

    /// Two rounds up the tree, two down.
    fn allreduce(&mut self, e: u32, round: u32, n: u32) {
        match round % 4 {
            1 | 2 => self.up_tree(e, (round, round.next_multiple_of(2)), n),
            _ => self.tree(e, round, n),
        }
    }

    /// In odd rounds messages come from the children; in even rounds one goes to the parent.
    /// `sent`: the round in which the children send.
    fn up_tree(&mut self, e: u32, (round, sent): (u32, u32), n: u32) {
        let lowest = lowest_bit(e, n);
        if round == sent {
            if e != 0 {
                self.send_agreed(e, e - lowest, round);
            }
            return;
        }
        let steps = (0..31).map(|k| 1 << k).take_while(|&s| s < lowest);
        for child in steps.map(|s| e + s).filter(|&child| child < n) {
            self.recv_agreed(e, child, sent);
        }
    }

    /// In odd rounds messages come from the parent; in even rounds they go to the children.
    fn tree(&mut self, e: u32, round: u32, n: u32) {
        let lowest = lowest_bit(e, n);
        if round % 2 == 1 {
            if e != 0 {
                self.recv_agreed(e, e - lowest, round);
            }
            return;
        }
        let mut step = lowest / 2;
        while step > 0 {
            if e + step < n {
                let len = agreed(&self.setup, e, e + step, round - 1);
                self.post_send(e, e + step, Some(round as u64 - 1), None, len, true);
            }
            step /= 2;
        }
    }

    fn send_agreed(&mut self, e: u32, dst: u32, round: u32) {
        let len = agreed(&self.setup, e, dst, round);
        self.post_send(e, dst, Some(round as u64), None, len, true);
    }

    fn recv_agreed(&mut self, e: u32, src: u32, round: u32) {
        let capacity = agreed(&self.setup, src, e, round);
        self.post_recv(e, Some(src), Some((round as u64, 0)), capacity, None, true);
    }

    /// Cycles through patterns of collectives: a broadcast (as a tree, two rounds), its reverse
    /// (two), a barrier by dissemination, a step around the ring.
    fn collective(&mut self, e: u32, round: u32, n: u32) {
        let steps = || (0..31).map(|k| 1 << k);
        match round % 6 {
            1 | 2 => self.tree(e, round, n),
            3 => self.up_tree(e, (round, round + 1), n),
            4 => self.up_tree(e, (round, round), n),
            5 => {
                for step in steps().take_while(|&s| s < n) {
                    self.recv_agreed(e, (e + n - step) % n, round);
                    self.send_agreed(e, (e + step) % n, round);
                }
            }
            0 => {
                self.recv_agreed(e, (e + n - 1) % n, round);
                self.send_agreed(e, (e + 1) % n, round);
            }
            _ => {}
        }
    }

    fn storm(&mut self, e: u32, round: u32, n: u32) {
        let (from, to) = ((e + n - 1) % n, (e + 1) % n);
        let numbers = round * STORM..(round + 1) * STORM;
        let len = |world: &World, src, dst, i| agreed(&world.setup, src, dst, i) % STORM_BYTES_MAX;
        let late = round % 2 == 1;
        for sends in [late, !late] {
            for i in numbers.clone() {
                if sends {
                    let len = len(self, e, to, i);
                    self.post_send(e, to, Some(i as u64), None, len, true);
                } else {
                    let capacity = len(self, from, e, i);
                    self.post_recv(e, Some(from), Some((i as u64, 0)), capacity, None, true);
                }
            }
        }
    }
}
