//! How a receiver learns which of its rings have something in them, and how it is woken.
//!
//! Each rail has one page that all of its peers can write to. Its state says what the receiver
//! wants to be told: nothing while it looks at its few rings by itself; with many rings, by a bit
//! per ring, which one to look at; and when it sleeps, to be woken.
//!
//! A producer publishes, and then reads the state; a receiver changes its state, and then looks at
//! its rings. A fence stands between the two on both sides, so that at least one of them sees what
//! the other has done.

use crate::sync::{fence, AtomicU32, AtomicU64, Ordering};

/// Rings that a receiver can have: words of bits, of which one more word says which to look at.
pub(crate) const RINGS_MAX: u32 = 64 * 64;
/// The receiver wants bits.
const BITS: u32 = 1;
/// The receiver sleeps, or is about to.
const ARMED: u32 = 2;

/// The page.
pub(crate) trait Page {
    /// The receiver's wishes.
    fn state(&self) -> &AtomicU32;
    /// Words of bits with a bit in them, a bit each.
    fn summary(&self) -> &AtomicU64;
    /// A word of bits; the index is reduced to those that there are.
    fn bits(&self, index: u32) -> &AtomicU64;
}

/// Tells a receiver that something was published in the ring of this index; `true`: it sleeps, and
/// the caller is the one to wake it.
#[inline]
pub(crate) fn tell(page: &impl Page, ring: u32) -> bool {
    fence(Ordering::SeqCst);
    match page.state().load(Ordering::Relaxed) {
        0 => false,
        state => tell_more(page, state, ring),
    }
}

fn tell_more(page: &impl Page, state: u32, ring: u32) -> bool {
    if state & BITS != 0 {
        let index = ring / 64 % 64;
        page.bits(index)
            .fetch_or(1 << (ring % 64), Ordering::Release);
        page.summary().fetch_or(1 << index, Ordering::Release);
    }
    state & ARMED != 0 && page.state().fetch_and(!ARMED, Ordering::Relaxed) & ARMED != 0
}

/// The receiver wants bits, or not. All rings have to be looked at afterwards.
pub(crate) fn want_bits(page: &impl Page, want: bool) {
    match want {
        true => page.state().fetch_or(BITS, Ordering::Relaxed),
        false => page.state().fetch_and(!BITS, Ordering::Relaxed),
    };
    fence(Ordering::SeqCst);
}

/// The receiver wants to be woken. All rings have to be looked at before it sleeps, as bits may be
/// late.
pub(crate) fn arm(page: &impl Page) {
    page.state().fetch_or(ARMED, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// The receiver is awake.
pub(crate) fn disarm(page: &impl Page) {
    page.state().fetch_and(!ARMED, Ordering::Relaxed);
}

/// Calls `look` with each ring that has a bit, and takes the bits away.
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
