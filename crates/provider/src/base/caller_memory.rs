//! Reads memory at addresses that a caller passed and that may be invalid. The kernel reads it and
//! reports an error, where an ordinary load would end the process.

use std::io;

/// The minimum page size: the bytes of one aligned piece are all readable or none.
const PIECE: usize = 4_096;

/// Copies `len` bytes; `None` if some are not readable.
pub(crate) fn read(from: *const u8, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut at = 0;
    while at < len {
        let next = from.wrapping_add(at);
        let piece = (PIECE - next as usize % PIECE).min(len - at);
        read_piece(next, &mut bytes[at..at + piece])?;
        at += piece;
    }
    Some(bytes)
}

/// Copies the text at `from` up to its zero. `None` if it is not readable or has no zero within
/// `room` bytes.
pub(crate) fn text(from: *const u8, room: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while bytes.len() < room {
        let next = from.wrapping_add(bytes.len());
        let piece = (PIECE - next as usize % PIECE).min(room - bytes.len());
        let more = read(next, piece)?;
        if let Some(end) = more.iter().position(|byte| *byte == 0) {
            bytes.extend_from_slice(&more[..end]);
            return Some(bytes);
        }
        bytes.extend_from_slice(&more);
    }
    None
}

/// Reads within one page. If a system call filter forbids the kernel's read, refuses addresses in
/// the first page and trusts all others.
fn read_piece(from: *const u8, to: &mut [u8]) -> Option<()> {
    let iovec = |base: *mut u8| libc::iovec {
        iov_base: base.cast(),
        iov_len: to.len(),
    };
    let (local, remote) = (iovec(to.as_ptr().cast_mut()), iovec(from.cast_mut()));
    // SAFETY: `local` is `to`, which nothing else uses; the kernel checks each byte of `remote`.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    if read == to.len() as isize {
        return Some(());
    }
    let error = io::Error::last_os_error().raw_os_error();
    let refused = read < 0 && matches!(error, Some(libc::EPERM | libc::ENOSYS));
    if !refused || (from as usize) < PIECE {
        return None;
    }
    // SAFETY: libfabric's functions that take such pointers require callers to pass valid ones.
    unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two pages; the second is not readable.
    struct Pages(*mut u8);

    impl Pages {
        fn new() -> Pages {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let (both, prot) = (2 * PIECE, libc::PROT_READ | libc::PROT_WRITE);
            // SAFETY: fresh memory; protection of its second half.
            unsafe {
                let at = libc::mmap(std::ptr::null_mut(), both, prot, flags, -1, 0);
                assert_ne!(at, libc::MAP_FAILED);
                let at = at.cast::<u8>();
                assert_eq!(
                    libc::mprotect(at.add(PIECE).cast(), PIECE, libc::PROT_NONE),
                    0
                );
                Pages(at)
            }
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: mapped by `new`.
            unsafe { libc::munmap(self.0.cast(), 2 * PIECE) };
        }
    }

    #[test]
    fn unreadable_memory_is_none() {
        let pages = Pages::new();
        let end = pages.0.wrapping_add(PIECE);
        // SAFETY: the last bytes of the first page.
        unsafe { std::ptr::copy_nonoverlapping(c"at the end".as_ptr().cast(), end.sub(11), 11) };
        assert_eq!(text(end.wrapping_sub(11), 512).unwrap(), b"at the end");
        assert_eq!(read(end.wrapping_sub(4), 4).unwrap(), b"end\0");
        assert_eq!(read(end.wrapping_sub(4), 5), None);
        assert_eq!(text(end, 512), None);
        // SAFETY: the last byte of the first page.
        unsafe { *end.sub(1) = b'!' };
        assert_eq!(text(end.wrapping_sub(11), 512), None, "no zero");
        for nowhere in [0, 1, 0x7f31_0000_0000_0000, usize::MAX - 3] {
            assert_eq!(text(nowhere as *const u8, 512), None, "{nowhere:#x}");
        }
    }

    #[test]
    fn a_text_without_a_zero_is_none() {
        let long = [b'x'; 600];
        assert_eq!(text(long.as_ptr(), 512), None);
        assert_eq!(read(long.as_ptr(), 600).unwrap(), long);
    }
}
