//! Loss detector of a path (RFC 9002, section 6.1): which packet was acknowledged last, when a
//! packet that later ones overtook is lost, and which losses a later ack contradicts.

use crate::state::given_up::{GivenUp, Lost};
use crate::state::native::Native;
use alloc::boxed::Box;
use marline_wire::{Ack, MasksView, ACK_MASKS_MAX};

/// First packet threshold (RFC 9002): more than a super-packet, which can be overtaken as a whole
/// when a sender moves to another core.
const REORDER_START: u64 = 64;
/// Packet threshold of ordered paths: the arrival of the next packet proves a loss.
const REORDER_NONE: u64 = 1;
/// Bound of the reordering threshold, which grows when packets declared lost are acknowledged.
const REORDER_MAX: u64 = 512;
/// Later packets that must be acknowledged before the time threshold declares a packet lost.
const OVERTAKEN_MIN: u64 = 3;

/// The loss detector of a path.
#[derive(Debug)]
pub struct LossDetector {
    /// Packet threshold.
    reorder: u64,
    /// Packets that were declared lost lately.
    given_up: GivenUp,
    largest_acked: u64,
    acked_any: bool,
    /// Send time of the newest acknowledged packet.
    newest_acked_sent_ns: u64,
    /// Native packets, of which no copy is retained; `None` if the rail is not native.
    native: Option<Box<Native>>,
}

/// Losses that an ack contradicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spurious {
    /// Packets with data among the spurious losses.
    pub(crate) packets: u64,
    /// The longest of all, in bytes.
    pub(crate) longest: usize,
    /// No loss of late was real.
    pub(crate) all: bool,
}

impl LossDetector {
    /// `unordered`: the path may reorder packets. `native`: no copies are retained.
    pub(crate) fn new(unordered: bool, native: bool) -> LossDetector {
        LossDetector {
            reorder: match unordered {
                true => REORDER_START,
                false => REORDER_NONE,
            },
            given_up: GivenUp::default(),
            largest_acked: 0,
            acked_any: false,
            newest_acked_sent_ns: 0,
            native: native.then(Default::default),
        }
    }

    /// Bytes of heap in use.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.given_up.heap_bytes()
    }

    /// Frees the records of old losses.
    pub(crate) fn shrink(&mut self) {
        self.given_up = GivenUp::default();
    }

    /// Notes the ack of packet `number`, which left at `sent_ns`. Returns true if no later packet
    /// was acknowledged before.
    #[inline]
    pub(crate) fn on_acked(&mut self, number: u64, sent_ns: u64) -> bool {
        let newest = number >= self.largest_acked;
        if newest {
            self.largest_acked = number;
            self.newest_acked_sent_ns = sent_ns;
        }
        self.acked_any = true;
        newest
    }

    /// Notes an ack that names only packets forgotten long ago. Returns true if this is the first
    /// ack of the path.
    pub(crate) fn on_old_ack(&mut self, named: impl FnOnce() -> bool) -> bool {
        let first = !self.acked_any && named();
        self.acked_any |= first;
        first
    }

    /// True if any packet was acknowledged.
    #[inline]
    pub(crate) fn has_acks(&self) -> bool {
        self.acked_any
    }

    /// The largest acknowledged number; 0 if there is none.
    #[inline]
    pub(crate) fn largest_acked(&self) -> u64 {
        self.largest_acked
    }

    /// Send time of the newest acknowledged packet; 0 if there is none.
    #[inline]
    pub(crate) fn newest_acked_sent_ns(&self) -> u64 {
        self.newest_acked_sent_ns
    }

    /// True if a packet sent after `number` was acknowledged.
    pub(crate) fn is_overtaken(&self, number: u64) -> bool {
        self.acked_any && self.largest_acked > number
    }

    /// True if the packet is lost by the packet threshold or the time threshold. `old`: the time
    /// threshold has passed. `outlived`: one acknowledged later packet is then enough.
    #[inline]
    pub(crate) fn is_lost(&self, number: u64, old: bool, outlived: impl FnOnce() -> bool) -> bool {
        let behind = self.largest_acked - number;
        behind >= self.reorder || (old && (behind >= OVERTAKEN_MIN || outlived()))
    }

    /// Retains a lost packet, whose ack may still come.
    pub(crate) fn on_lost(&mut self, lost: Lost) {
        self.given_up.push(lost);
    }

    /// Takes back losses that an ack contradicts, and raises the packet threshold, since reordering
    /// was larger than assumed.
    #[inline]
    pub(crate) fn has_losses(&self) -> bool {
        !self.given_up.is_empty()
    }

    /// Takes back losses that an ack contradicts. Reordering was larger than thought: the threshold
    /// grows.
    #[cold]
    pub(crate) fn take_back(&mut self, ack: &Ack<MasksView<'_>>) -> Spurious {
        let mut masks = [0; ACK_MASKS_MAX];
        masks
            .iter_mut()
            .zip(ack.masks.iter())
            .for_each(|(to, mask)| *to = mask);
        let named = |number: u64| {
            let at = number.checked_sub(ack.base).unwrap_or(u64::MAX);
            let mask = masks.get((at / 64) as usize).copied().unwrap_or(0);
            mask >> (at % 64) & 1 == 1
        };
        // No later ack names packets as old as these.
        let oldest = ack.base.saturating_sub(64 * ACK_MASKS_MAX as u64);
        self.take_back_named(oldest, named)
    }

    fn take_back_named(&mut self, oldest: u64, named: impl Fn(u64) -> bool) -> Spurious {
        let before = self.given_up.len();
        self.given_up.retain(|lost| lost.number >= oldest);
        let (mut packets, mut probes, mut longest) = (0, 0, 0);
        self.given_up.retain(|lost| {
            let arrived = named(lost.number);
            if arrived {
                packets += usize::from(!lost.probe);
                probes += usize::from(lost.probe);
                longest = longest.max(lost.bytes);
            }
            !arrived
        });
        for _ in 0..packets.min(REORDER_MAX.ilog2() as usize) {
            self.reorder = (2 * self.reorder).min(REORDER_MAX);
        }
        Spurious {
            packets: packets as u64,
            longest: longest as usize,
            all: packets + probes == before,
        }
    }

    /// The packets without a retained copy, if the rail is native.
    #[inline]
    pub(crate) fn native(&self) -> Option<&Native> {
        self.native.as_deref()
    }

    /// The state of `native`, for changing it.
    #[inline]
    pub(crate) fn native_mut(&mut self) -> Option<&mut Native> {
        self.native.as_deref_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(number: u64, bytes: u32, probe: bool) -> Lost {
        Lost {
            number,
            bytes,
            probe,
        }
    }

    #[test]
    fn an_older_ack_does_not_change_the_newest() {
        let mut loss = LossDetector::new(true, false);
        assert!(!loss.has_acks());
        assert!(loss.on_acked(0, 100));
        assert!(loss.on_acked(9, 900));
        assert!(!loss.on_acked(5, 500));
        assert_eq!(
            (loss.largest_acked(), loss.newest_acked_sent_ns()),
            (9, 900)
        );
        assert!(loss.is_overtaken(8) && !loss.is_overtaken(9));
    }

    #[test]
    fn only_the_first_ack_of_old_packets_counts() {
        let mut loss = LossDetector::new(true, false);
        assert!(!loss.on_old_ack(|| false) && !loss.has_acks());
        assert!(loss.on_old_ack(|| true) && loss.has_acks());
        assert!(!loss.on_old_ack(|| true));
    }

    #[test]
    fn packets_and_time_decide_a_loss() {
        let mut loss = LossDetector::new(true, false);
        loss.on_acked(100, 1);
        assert!(!loss.is_lost(37, false, || true) && loss.is_lost(36, false, || false));
        assert!(loss.is_lost(97, true, || false) && !loss.is_lost(98, true, || false));
        assert!(loss.is_lost(98, true, || true));
        let mut ordered = LossDetector::new(false, false);
        ordered.on_acked(100, 1);
        assert!(ordered.is_lost(99, false, || false) && !ordered.is_lost(100, false, || false));
    }

    #[test]
    fn a_contradicted_loss_raises_the_threshold() {
        let mut loss = LossDetector::new(true, false);
        assert!(!loss.has_losses());
        loss.on_lost(lost(3, 1_000, false));
        loss.on_lost(lost(4, 8_000, true));
        loss.on_lost(lost(5, 2_000, false));
        let some = loss.take_back_named(0, |number| number < 5);
        let expected = Spurious {
            packets: 1,
            longest: 8_000,
            all: false,
        };
        assert_eq!((some, loss.reorder), (expected, 2 * REORDER_START));
        assert!(loss.take_back_named(0, |_| true).all && !loss.has_losses());
        for number in 0..20 {
            loss.on_lost(lost(number, 1, false));
        }
        assert_eq!(loss.take_back_named(0, |_| true).packets, 20);
        assert_eq!(loss.reorder, REORDER_MAX);
    }

    #[test]
    fn losses_too_old_for_an_ack_count_as_real() {
        let mut loss = LossDetector::new(true, false);
        loss.on_lost(lost(3, 1_000, false));
        loss.on_lost(lost(2_000, 1_000, false));
        let spurious = loss.take_back_named(1_000, |_| true);
        assert_eq!((spurious.packets, spurious.all), (1, false));
        loss.on_lost(lost(2_001, 1, false));
        loss.shrink();
        assert!(!loss.has_losses());
    }
}
