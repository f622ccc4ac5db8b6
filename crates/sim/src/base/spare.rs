//! Packet buffers, shared by all runs on a thread: the buffer taken next was used most recently and
//! is in the processor's cache.

use std::cell::RefCell;

/// Buffers kept per thread: more than a small cluster has in flight.
const SPARE_MAX: usize = 1_024;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer.
pub fn take() -> Vec<u8> {
    SPARE.with_borrow_mut(|spare| spare.pop().unwrap_or_default())
}

/// A buffer with a copy of these bytes.
pub fn copy(bytes: &[u8]) -> Vec<u8> {
    let mut copy = take();
    copy.extend_from_slice(bytes);
    copy
}

/// Returns a buffer to the pool.
pub fn give(mut bytes: Vec<u8>) {
    SPARE.with_borrow_mut(|spare| {
        if bytes.capacity() > 0 && spare.len() < SPARE_MAX {
            bytes.clear();
            spare.push(bytes);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_returned_buffer_is_reused_first_and_empty() {
        give(copy(&[1; 100]));
        let last = copy(&[2; 50]);
        let at = last.as_ptr();
        assert_eq!(last, [2; 50]);
        give(last);
        give(Vec::new());
        let next = take();
        assert_eq!((next.as_ptr(), next.len()), (at, 0));
    }
}
