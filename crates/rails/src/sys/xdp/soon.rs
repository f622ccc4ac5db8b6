//! Calls that find an interface or a queue taken by what was closed a moment ago.

use crate::sys::Errno;
use std::time::Duration;

/// Further attempts, and the pause between them: together longer than the kernel's worker takes,
/// shorter than a user notices.
const TRIES_MAX: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);

/// Repeats a call for a short time while it fails with `EBUSY`: the kernel detaches the program of
/// a closed link, and frees the queue of a closed socket, a moment later.
pub(super) fn soon<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 0..TRIES_MAX {
        match call() {
            Err(libc::EBUSY) => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
    call()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_repeated_while_what_it_needs_is_taken() {
        let mut busy = 3;
        let result = soon(|| {
            busy -= 1;
            if busy > 0 {
                Err(libc::EBUSY)
            } else {
                Ok(7)
            }
        });
        assert_eq!((result, busy), (Ok(7), 0));
        assert_eq!(soon(|| Err::<(), _>(libc::EPERM)), Err(libc::EPERM));
        assert_eq!(soon(|| Err::<(), _>(libc::EBUSY)), Err(libc::EBUSY));
    }
}
