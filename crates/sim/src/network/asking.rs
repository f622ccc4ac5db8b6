//! Questions that are under way: of endpoints that know others by host and port, and of kernels for
//! the addresses of neighbours.

use crate::base::rng::Rng;
use crate::machine::connections::Way;
use std::collections::BTreeMap;
use std::ops::Range;

/// Ports of the sockets that ask. There are few, so that what comes late comes to another question.
pub(crate) const PORTS: Range<u16> = 4_000..4_002;

/// A question.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    /// The host that is asked.
    pub host: usize,
    /// The endpoint that ran there when it began.
    pub whom: u32,
    /// The port of each rail there that is asked.
    pub ports: Vec<Option<u16>>,
    /// Comes back in the answer.
    pub number: u64,
    /// The port of the socket that asks.
    pub port: u16,
    /// How often it was sent.
    pub sent: usize,
    /// When it began.
    pub since: u64,
    /// Faults were over then.
    pub calm: bool,
    /// The event with which it is sent again.
    pub timer: u64,
}

/// All questions.
pub(crate) struct Asks {
    /// By the endpoint that asks: one at a time.
    pub open: BTreeMap<u32, Asking>,
    /// For their numbers, ports and damage.
    pub rng: Rng,
}

impl Asks {
    /// None yet.
    pub(crate) fn new(seed: u64) -> Asks {
        Asks {
            open: BTreeMap::new(),
            rng: Rng::new(seed, 44),
        }
    }
}

/// Something that is due with the address of a neighbour's card.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Neighbour {
    /// A kernel asks for it.
    Asks(Way),
    /// A rail of a host tells its neighbours.
    Tells(usize, usize),
}
