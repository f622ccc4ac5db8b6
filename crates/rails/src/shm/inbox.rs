//! The inbox: how a receiver learns which of its rings hold frames, and how it is woken.
//!
//! Each rail has one page to which all of its peers can write. The page's state contains the
//! receiver's requests: none while it polls its few rings; a notification bit per ring if there are
//! many; a wake-up while it sleeps.
//!
//! A producer publishes a frame and then reads the state; a receiver changes its state and then
//! polls its rings. A fence separates the two steps on both sides, so that at least one side sees
//! the other's change.

use crate::sync::{fence, AtomicU32, AtomicU64, Ordering};

/// Maximum of rings per receiver: 64 words of bits, and a summary word with a bit for each.
pub(crate) const RINGS_MAX: u32 = 64 * 64;
/// The receiver requests notification bits.
const BITS: u32 = 1;
/// The receiver sleeps or is about to.
const ARMED: u32 = 2;

/// The shared page.
pub(crate) trait Page {
    /// The receiver's requests.
    fn state(&self) -> &AtomicU32;
    /// The summary: a bit for each word of notification bits that is not 0.
    fn summary(&self) -> &AtomicU64;
    /// A word of bits; the index is reduced to the valid range.
    fn bits(&self, index: u32) -> &AtomicU64;
}

/// Notifies a receiver of a frame in the ring with this index. Returns `true` if the receiver
/// sleeps and the caller must wake it.
#[inline]
pub(crate) fn notify(page: &impl Page, ring: u32) -> bool {
    fence(Ordering::SeqCst);
    match page.state().load(Ordering::Relaxed) {
        0 => false,
        state => notify_listener(page, state, ring),
    }
}

fn notify_listener(page: &impl Page, state: u32, ring: u32) -> bool {
    if state & BITS != 0 {
        let index = ring / 64 % 64;
        page.bits(index)
            .fetch_or(1 << (ring % 64), Ordering::Release);
        page.summary().fetch_or(1 << index, Ordering::Release);
    }
    state & ARMED != 0 && page.state().fetch_and(!ARMED, Ordering::Relaxed) & ARMED != 0
}

/// Requests or cancels notification bits. The receiver must poll all rings afterwards.
pub(crate) fn want_bits(page: &impl Page, want: bool) {
    match want {
        true => page.state().fetch_or(BITS, Ordering::Relaxed),
        false => page.state().fetch_and(!BITS, Ordering::Relaxed),
    };
    fence(Ordering::SeqCst);
}

/// Requests a wake-up. The receiver must poll all rings before it sleeps, since bits may be late.
pub(crate) fn arm(page: &impl Page) {
    page.state().fetch_or(ARMED, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Cancels the request of a wake-up.
pub(crate) fn disarm(page: &impl Page) {
    page.state().fetch_and(!ARMED, Ordering::Relaxed);
}

/// Calls `look` with each ring whose bit is set, and clears the bits.
#[inline]
pub(crate) fn take_bits(page: &impl Page, mut look: impl FnMut(u32)) {
    if page.summary().load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut words = page.summary().swap(0, Ordering::AcqRel);
    while words != 0 {
        let index = words.trailing_zeros();
        words &= words - 1;
        let mut bits = page.bits(index).swap(0, Ordering::AcqRel);
        while bits != 0 {
            look(64 * index + bits.trailing_zeros());
            bits &= bits - 1;
        }
    }
}
