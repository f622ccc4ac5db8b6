//! Super-packets by reference: the kernel takes the pages they were built in instead of copying
//! them, half of what a sender's core does for a large message.

use crate::sys::lend::{kernel_takes_pages, Pipe};
use crate::sys::{Errno, Socket};

/// Pages of one packet: the kernel takes so many into one packet, and a pipe holds so many.
const PAGES_MAX: usize = 16;
const PAGE: usize = 4096;
/// Failures of other kinds than a full queue after which pages are not tried again.
const FAILURES_MAX: u32 = 4;

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
    /// `None`: they cannot be lent; nothing was sent.
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
        match result {
            Ok(()) => self.failures = 0,
            Err(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => self.pipe = None,
            Err(_) => {
                self.pipe = None;
                self.failures += 1;
                self.able = self.failures < FAILURES_MAX;
                return None; // by the ordinary way, whose error says more
            }
        }
        Some(result)
    }
}
