//! Questions in progress: endpoints that know peers only by host and port ask for addresses, and
//! kernels ask for neighbours' link addresses.

use crate::base::rng::Rng;
use crate::machine::connections::Way;
use std::collections::BTreeMap;
use std::ops::Range;

/// Ports of the sockets that ask: few, so that a late answer may reach another question's socket.
pub(crate) const PORTS: Range<u16> = 4_000..4_002;

/// A question.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    /// The host to which the question goes.
    pub host: usize,
    /// The endpoint at the place when the question began.
    pub whom: u32,
    /// The port at each rail to which the question goes.
    pub ports: Vec<Option<u16>>,
    /// The number repeated in the answer.
    pub number: u64,
    /// The port of the asking socket.
    pub port: u16,
    /// Number of transmissions.
    pub sent: usize,
    /// Time of the first transmission.
    pub since: u64,
    /// True if faults were already over.
    pub calm: bool,
    /// The event that repeats the question.
    pub timer: u64,
}

/// All questions.
pub(crate) struct Asks {
    /// By asking endpoint: one question at a time.
    pub open: BTreeMap<u32, Asking>,
    /// Random numbers for the numbers, ports and damage of questions.
    pub rng: Rng,
}

impl Asks {
    /// No questions.
    pub(crate) fn new(seed: u64) -> Asks {
        Asks {
            open: BTreeMap::new(),
            rng: Rng::new(seed, 44),
        }
    }
}

/// A due event of neighbour discovery.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Neighbour {
    /// A kernel repeats its request.
    Asks(Way),
    /// A rail of a host announces its address.
    Tells(usize, usize),
}
