//! Counts of corrupted packets of a path, and the isolation of a path that corrupts.

use marline_wire::{Frame, HeadWriter};

/// Corrupted packets in the window before a path is judged. A path with a tenth of the limit shows
/// this many by chance about once in 10^8 packets.
const DAMAGED_MIN: u32 = 8;
/// Packets after which older packets count half.
const WINDOW_PACKETS: u64 = 4_096;
/// Probes that must arrive in a row before a path is reinstated, at first and at most. A path that
/// corrupts one packet in a hundred passes 256 probes once in 13 times.
const CLEAN_MIN: u32 = 16;
const CLEAN_MAX: u32 = 256;
/// Bytes of a probe of an isolated path: a jumbo frame.
const ISOLATION_PROBE_BYTES: usize = 8_960;
/// Relapses are forgotten after this time without CORRUPT.
const FORGET_NS: u64 = 10_000_000_000;
/// Corrupted packets among the packets that arrive on a path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Damage {
    /// Good packets of the path when the window began.
    from: u64,
    bad: u32,
}

impl Damage {
    /// Counts a corrupted packet after `received` good ones in total. If there are more than
    /// `limit_ppm`, returns the window's corrupted packets and all its packets.
    pub(crate) fn on_bad(&mut self, received: u64, limit_ppm: u32) -> Option<(u32, u64)> {
        self.bad += 1;
        let of = received.saturating_sub(self.from) + self.bad as u64;
        if self.bad >= DAMAGED_MIN && self.bad as u64 * 1_000_000 > of * limit_ppm as u64 {
            let found = (self.bad, of);
            *self = Damage {
                from: received,
                bad: 0,
            };
            return Some(found);
        }
        if of > WINDOW_PACKETS {
            self.bad /= 2;
            self.from = received.saturating_sub(of / 2);
        }
        None
    }
}

/// Isolation of a path that corrupts packets, and the probes until it is reinstated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Isolation {
    needed: u32,
    clean: u32,
    since_ns: u64,
    /// When the last probe was requested.
    asked_ns: u64,
}

impl Isolation {
    pub(crate) fn begin(&mut self, now: u64) {
        let old = now.saturating_sub(self.since_ns) > FORGET_NS;
        self.needed = match self.needed {
            0 => CLEAN_MIN,
            _ if old => CLEAN_MIN,
            n => (2 * n).min(CLEAN_MAX),
        };
        self.clean = 0;
        self.since_ns = now;
    }

    /// Counts a probe that arrived; returns true if it was the last that was needed.
    pub(crate) fn passed(&mut self) -> bool {
        self.clean += 1;
        self.clean >= self.needed
    }

    pub(crate) fn end(&mut self, now: u64) {
        self.since_ns = now;
    }

    /// Pads a probe of an isolated path with zeros, all of them covered by the head's CRC.
    pub(crate) fn fill(&self, writer: &mut HeadWriter<'_>) {
        let room = writer.room().min(ISOLATION_PROBE_BYTES).saturating_sub(8);
        let head = (room / 8 * 8) as u16;
        writer.push(&Frame::Pad { len: 0, head });
    }

    /// When the last probe was requested.
    pub(crate) fn asked_ns(&self) -> u64 {
        self.asked_ns
    }

    /// Notes a request for a probe. `lost`: the probe before was not answered.
    pub(crate) fn on_probe(&mut self, now: u64, lost: bool) {
        if lost {
            self.clean = 0;
        }
        self.asked_ns = now;
    }
}
