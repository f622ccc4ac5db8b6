//! A seqlock: one writer, any number of readers. The sequence number is odd during an update; a
//! reader that saw the same even number before and after has read a consistent state.
//! `tests/loom.rs` checks all interleavings of this file.

use crate::platform::sync::{fence, AtomicU64, Ordering};

/// Begins an update, before any of its writes is visible.
pub(super) fn begin(sequence: &AtomicU64) {
    // A writer that died during an update left the number odd.
    let odd = sequence.load(Ordering::Relaxed) | 1;
    sequence.store(odd, Ordering::Relaxed);
    fence(Ordering::Release); // orders the store before the update's writes
}

/// Ends an update.
pub(super) fn end(sequence: &AtomicU64) {
    let even = sequence.load(Ordering::Relaxed).wrapping_add(1);
    sequence.store(even, Ordering::Release);
}

/// Calls `read` until `sequence` is even and equal before and after, at most `tries` times; then
/// once more, and returns `true`: the result may be inconsistent.
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
