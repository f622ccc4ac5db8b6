//! A pair whose second endpoint has memory that the first reads and writes.

use super::pair::{Pair, HANG};
use crate::abi::ep::*;
use crate::abi::*;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

/// Keys of the regions.
pub const KEYS: [u64; 2] = [5, 6];

/// Two regions of the second endpoint's process.
pub struct Target {
    pub p: Pair,
    pub memory: [Vec<u8>; 2],
    pub regions: Vec<*mut fid_mr>,
}

impl Target {
    pub fn open() -> Target {
        let p = Pair::open();
        let mut memory = [vec![0u8; 200_000], vec![0u8; 200_000]];
        let regions = memory.iter_mut().zip(KEYS).map(|(memory, key)| {
            let (base, access) = (memory.as_mut_ptr().cast(), FI_REMOTE_READ | FI_REMOTE_WRITE);
            let (len, domain, mut mr) = (memory.len(), p.domain.cast(), null_mut());
            // SAFETY: the memory lives longer than the region.
            let rc = unsafe {
                let reg = (*(*p.domain).mr).reg;
                reg(domain, base, len, access, 0, key, 0, &mut mr, null_mut())
            };
            assert_eq!(rc, 0);
            mr
        });
        let regions = regions.collect();
        Target { p, memory, regions }
    }

    /// Reads into or writes from `local`, split into two local segments.
    pub fn remote(
        &self,
        reads: bool,
        (local, to): (&mut [u8], fi_addr_t),
        pieces: &[fi_rma_iov],
        (flags, data): (u64, u64),
    ) -> isize {
        let cut = local.len() / 3;
        // SAFETY: all memory lives until the operation has ended.
        unsafe {
            remote(
                self.p.ep[0],
                reads,
                (local, cut, to),
                pieces,
                (91, flags, data),
            )
        }
    }

    /// Checks the counted completions and errors.
    pub fn counted(&self, good: u64, bad: u64) {
        let ms = HANG.as_millis() as c_int;
        // SAFETY: an object of the provider.
        unsafe {
            let counter = &*(*self.p.counter).ops;
            if good > 0 && bad == 0 {
                assert_eq!((counter.wait)(self.p.counter, good, ms), 0);
            }
            assert_eq!((counter.read)(self.p.counter), good);
            assert_eq!((counter.readerr)(self.p.counter), bad);
        }
    }

    pub fn close(self) {
        for mr in self.regions {
            // SAFETY: closed once.
            assert_eq!(unsafe { super::close(mr.cast()) }, 0);
        }
        self.p.close();
    }
}

/// A pattern without zero bytes.
pub fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 % 251) as u8 + 1).collect()
}

/// Reads into or writes from `local`, split at `cut` into two local segments, with this context,
/// these flags and this data.
///
/// # Safety
///
/// The endpoint is open, and `local` lives until the operation has ended.
pub unsafe fn remote(
    ep: *mut fid_ep,
    reads: bool,
    (local, cut, to): (&mut [u8], usize, fi_addr_t),
    pieces: &[fi_rma_iov],
    (context, flags, data): (usize, u64, u64),
) -> isize {
    let (a, b) = local.split_at_mut(cut);
    let iov = [a, b].map(|part| libc::iovec {
        iov_base: part.as_mut_ptr().cast(),
        iov_len: part.len(),
    });
    let msg = fi_msg_rma {
        msg_iov: iov.as_ptr(),
        desc: null_mut(),
        iov_count: 2,
        addr: to,
        rma_iov: pieces.as_ptr(),
        rma_iov_count: pieces.len(),
        context: context as *mut c_void,
        data,
    };
    // SAFETY: the caller's promise; the provider copies the contents of `msg`.
    unsafe {
        let ops = &*(*ep).rma;
        let call = if reads { ops.readmsg } else { ops.writemsg };
        call(ep, &msg, flags)
    }
}
