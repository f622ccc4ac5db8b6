//! One writer, any number of readers, and no lock: the number of a page is odd while it is being
//! written, and a reader that saw the same even number before and after has seen one writing.
//! `tests/loom.rs` tries all orders of this file's steps.

use crate::platform::sync::{fence, AtomicU64, Ordering};

/// Says that writing begins; what follows may be seen only after that.
pub(super) fn begin(sequence: &AtomicU64) {
    // A writer that died while at it left it odd.
    let odd = sequence.load(Ordering::Relaxed) | 1;
    sequence.store(odd, Ordering::Relaxed);
    fence(Ordering::Release); // before any of the words that follow
}

/// Says that what was written fits together.
pub(super) fn end(sequence: &AtomicU64) {
    let even = sequence.load(Ordering::Relaxed).wrapping_add(1);
    sequence.store(even, Ordering::Release);
}

/// Reads with `read` until `sequence` is even and the same before and after, at most `tries`
/// times; then once more, and `true`: what was read may not fit together.
pub(super) fn consistent<T, E>(
    tries: u32,
    mut sequence: impl FnMut() -> Result<u64, E>,
    mut read: impl FnMut() -> Result<T, E>,
) -> Result<(T, bool), E> {
    for _ in 0..tries {
        let before = sequence()?;
        let found = read()?;
        if before % 2 == 0 && sequence()? == before {
            return Ok((found, false));
        }
        std::thread::yield_now();
    }
    Ok((read()?, true))
}
