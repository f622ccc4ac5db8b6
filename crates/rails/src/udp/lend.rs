//! Super-packets by reference: the kernel takes the pages they were built in instead of copying
//! them, which was 43 % of the time of a sender of 4 MiB messages.

use crate::sys::lend::{kernel_takes_pages, Pipe};
use crate::sys::{Errno, Socket};

/// Pages of one packet: the kernel takes so many into one packet, and a pipe holds so many.
const PAGES_MAX: usize = 16;
const PAGE: usize = 4096;
/// Failures that speak of inability, without a success between them, after which pages are not
/// tried again. (A path's MTU that shrinks is one for each destination.)
const FAILURES_MAX: u32 = 64;

/// What lending needs, opened when first used.
pub(super) struct Lender {
    able: bool,
    pipe: Option<Pipe>,
    failures: u32,
}

impl Lender {
    /// `wanted`: as far as the kernel can.
    pub(super) fn new(wanted: bool) -> Lender {
        Lender {
            able: wanted && kernel_takes_pages(),
            pipe: None,
            failures: 0,
        }
    }

    /// Whether pages may be lent at all.
    pub(super) fn is_able(&self) -> bool {
        self.able
    }

    /// Sends `bytes` by a connected socket that cuts them; `cut` is into how long pieces it does.
    /// `None`: they cannot be lent, and nothing was tried. After an error some may have been sent.
    pub(super) fn send(
        &mut self,
        socket: &Socket,
        cut: &mut u16,
        bytes: &[u8],
        segment: u16,
    ) -> Option<Result<(), Errno>> {
        let on_page = bytes.as_ptr().addr() % PAGE == 0;
        if !self.able || !on_page || bytes.len() > PAGES_MAX * PAGE {
            return None;
        }
        if *cut != segment {
            socket.cut_into(segment).ok()?;
            *cut = segment;
        }
        if self.pipe.is_none() {
            self.pipe = Pipe::open().ok();
        }
        let result = self.pipe.as_ref()?.send(socket, bytes);
        let Err(errno) = result else {
            self.failures = 0;
            return Some(result);
        };
        self.pipe = None; // what was not sent is still in it
        if matches!(
            errno,
            libc::EINVAL | libc::EIO | libc::ENOSPC | libc::ENOSYS | libc::EOPNOTSUPP | libc::EPERM
        ) {
            self.failures += 1;
            self.able = self.failures < FAILURES_MAX;
        }
        Some(result)
    }
}
