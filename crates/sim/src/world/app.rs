//! The state of each endpoint's application.

use crate::base::rng::Rng;
use crate::setup::choices::{Setup, Work};
use crate::setup::sample::turn_ns;

/// The state of an application.
#[derive(Clone, Debug)]
pub struct App {
    /// The application's random numbers.
    pub rng: Rng,
    /// The pattern of the application's messages.
    pub work: Work,
    /// Operations or rounds left.
    pub left: u32,
    /// Current round.
    pub round: u32,
    /// Open operations of the round.
    pub pending: u32,
    /// World time of the next step.
    pub next_at: u64,
    /// True if the application posts nothing more.
    pub done: bool,
    /// Interval of checks for remaining messages, when done.
    pub(crate) pause_ns: u64,
}

impl App {
    /// The application of an endpoint.
    pub fn new(setup: &Setup, mut rng: Rng, index: u32, random: bool, now: u64) -> App {
        let work = if random { Work::Random } else { setup.work };
        let drawn = rng.below(setup.pause_ns + 1) + index as u64;
        let next_at = now
            + match work {
                Work::Sampled => turn_ns(setup, index, 0),
                _ => drawn,
            };
        App {
            rng,
            work,
            left: work.units(setup),
            round: 0,
            pending: 0,
            next_at,
            done: false,
            pause_ns: 0,
        }
    }

    /// Starts more work.
    pub fn again(&mut self, setup: &Setup) {
        self.left = self.work.units(setup);
        self.done = false;
        self.pause_ns = 0;
    }
}

impl Work {
    /// Operations or rounds of one host: some rounds consist of many operations.
    fn units(self, setup: &Setup) -> u32 {
        let costly = match self {
            Work::Random => 1,
            Work::AllToAll => 8 * setup.hosts as u32,
            Work::Incast => 20,
            Work::Tree | Work::Collective | Work::Sampled | Work::Allreduce => 1,
            Work::Storm => 200,
            _ => 4,
        };
        // Messages received in one round of a cycle are sent in the next.
        let cycle = match self {
            Work::Tree => 2,
            Work::Collective => 6,
            Work::Allreduce => 4,
            _ => 1,
        };
        (setup.ops / costly).max(1).next_multiple_of(cycle)
    }
}

/// A send that found no room in the log and will be posted again.
#[derive(Clone, Copy, Debug)]
pub struct LateSend {
    pub(crate) dst: u32,
    pub(crate) tag: Option<u64>,
    pub(crate) data: Option<u64>,
    pub(crate) len: u64,
    pub(crate) in_round: bool,
}
