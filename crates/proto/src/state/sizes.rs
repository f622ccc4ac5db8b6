//! How large packets may be on a path: what is known, and what is asked next.

/// UDP payload that every IPv6 path takes (1,280-byte minimum MTU less 48 bytes of headers);
/// used until a padded probe proved more.
pub const DATAGRAM_BASE: usize = 1_232;
/// UDP payload that every IPv4 path takes: the minimum of 576 bytes less headers. Below that
/// nothing of ours fits.
pub const DATAGRAM_FLOOR: usize = 548;
/// The packet sizes of a path, as far as known.
#[derive(Debug)]
pub struct Sizes {
    /// There is nothing to find out.
    pub(crate) fixed: bool,
    /// The largest datagram that both rails take.
    pub(crate) ceiling: usize,
    /// The size that is asked for; 0: none is.
    pub(crate) asked: usize,
    pub(crate) tries: u8,
    /// A short packet follows each probe, which counts as lost only if that one arrived.
    pub(crate) witnessed: bool,
    /// The number of the probe that is out.
    pub(crate) probe: Option<u64>,
    /// Losses, and the shortest of them, since a packet arrived that was as long.
    pub(crate) doubts: u8,
    pub(crate) doubted: usize,
    pub(crate) doubted_ns: u64,
    /// When it is asked for more, and the pause after that.
    pub(crate) raise_at: u64,
    pub(crate) raise_every: u64,
    /// The size before it shrank; 0 once that was reported.
    pub(crate) shrank_from: usize,
    /// Since when nothing passes that could hold data.
    pub(crate) choked_since: Option<u64>,
}

impl Sizes {
    pub fn new(ceiling: usize) -> Sizes {
        Sizes {
            fixed: false,
            ceiling,
            asked: if ceiling > DATAGRAM_BASE { ceiling } else { 0 },
            tries: 0,
            witnessed: false,
            probe: None,
            doubts: 0,
            doubted: 0,
            doubted_ns: 0,
            raise_at: u64::MAX,
            raise_every: RAISE_NS,
            shrank_from: 0,
            choked_since: None,
        }
    }

    /// Those of a path that takes packets up to `ceiling` bytes for certain: nothing is asked.
    pub(crate) fn fixed(ceiling: usize) -> Sizes {
        Sizes {
            asked: 0,
            fixed: true,
            ..Sizes::new(ceiling)
        }
    }

    /// The size of the next probe; 0: there is none.
    pub fn asked(&self) -> usize {
        self.asked
    }

    /// The packet of this number is the probe.
    pub fn left(&mut self, number: u64) {
        self.probe = Some(number);
    }

    /// Returns whether the packet of this number is the probe that is out.
    pub fn is_probe(&self, number: u64) -> bool {
        self.probe == Some(number)
    }

    /// Returns whether a witness is to follow the probe that is out: it leaves alone.
    pub fn wants_witness(&self) -> bool {
        self.witnessed && self.probe.is_some()
    }

    /// Returns whether an ack may change anything here: mostly not.
    #[inline]
    pub(crate) fn waits(&self, now: u64) -> bool {
        self.probe.is_some() || self.shrank_from > 0 || now >= self.raise_at
    }

    pub(crate) fn ask(&mut self, size: usize, witnessed: bool) {
        self.asked = size;
        self.tries = 0;
        self.witnessed = witnessed;
        self.probe = None;
    }
}

/// When a path that carries less than its rails is asked for more: after a second, then half as
/// often each time. Each time costs three probes of each size at most.
pub(crate) const RAISE_NS: u64 = 1_000_000_000;
