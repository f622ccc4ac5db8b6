//! Packet sizes of a path: what is known, and what is probed next.

/// UDP payload that every IPv6 path takes (1,280-byte minimum MTU less 48 bytes of headers); used
/// until a padded probe proves more.
pub const DATAGRAM_BASE: usize = 1_232;
/// UDP payload that every IPv4 path takes: the minimum of 576 bytes less headers. Our packets need
/// at least that.
pub const DATAGRAM_FLOOR: usize = 548;
/// The packet sizes of a path, as far as known.
#[derive(Debug)]
pub struct Sizes {
    /// The size is known: no probes.
    pub(crate) fixed: bool,
    /// The largest datagram that both rails take.
    pub(crate) ceiling: usize,
    /// The size being probed; 0: none.
    pub(crate) asked: usize,
    pub(crate) tries: u8,
    /// A short reference packet follows each probe; the probe counts as lost only if that arrived.
    pub(crate) with_short_probe: bool,
    /// Packet number of the probe in flight.
    pub(crate) probe: Option<u64>,
    /// Losses, and the shortest lost packet, since a packet as long arrived.
    pub(crate) doubts: u8,
    pub(crate) doubted: usize,
    pub(crate) doubted_ns: u64,
    /// When to probe for a larger size, and the interval after that.
    pub(crate) raise_at: u64,
    pub(crate) raise_every: u64,
    /// The size before the path shrank; 0 once reported.
    pub(crate) size_before: usize,
    /// Since when no packet long enough for data passes.
    pub(crate) no_data_since: Option<u64>,
}

impl Sizes {
    pub fn new(ceiling: usize) -> Sizes {
        Sizes {
            fixed: false,
            ceiling,
            asked: if ceiling > DATAGRAM_BASE { ceiling } else { 0 },
            tries: 0,
            with_short_probe: false,
            probe: None,
            doubts: 0,
            doubted: 0,
            doubted_ns: 0,
            raise_at: u64::MAX,
            raise_every: RAISE_NS,
            size_before: 0,
            no_data_since: None,
        }
    }

    /// Sizes of a path that is known to take packets up to `ceiling` bytes: no probes.
    pub(crate) fn fixed(ceiling: usize) -> Sizes {
        Sizes {
            asked: 0,
            fixed: true,
            ..Sizes::new(ceiling)
        }
    }

    /// The size of the next probe; 0: none.
    pub fn asked(&self) -> usize {
        self.asked
    }

    /// Notes the packet number of the probe.
    pub fn left(&mut self, number: u64) {
        self.probe = Some(number);
    }

    /// True if this packet is the probe in flight.
    pub fn is_probe(&self, number: u64) -> bool {
        self.probe == Some(number)
    }

    /// True if a reference packet is to follow the probe in flight, alone in its packet.
    pub fn wants_short_probe(&self) -> bool {
        self.with_short_probe && self.probe.is_some()
    }

    /// True if an ack may change anything here: rarely.
    #[inline]
    pub(crate) fn waits(&self, now: u64) -> bool {
        self.probe.is_some() || self.size_before > 0 || now >= self.raise_at
    }

    pub(crate) fn ask(&mut self, size: usize, with_short_probe: bool) {
        self.asked = size;
        self.tries = 0;
        self.with_short_probe = with_short_probe;
        self.probe = None;
    }
}

/// When to probe for a larger size after a path shrank: after a second, then with doubled
/// intervals. Each time costs at most three probes per size.
pub(crate) const RAISE_NS: u64 = 1_000_000_000;
