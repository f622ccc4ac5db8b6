//! The boundary between C and Rust: every C entry passes through [`guard`], and error numbers are
//! made only here.

use crate::base::log;
use marline_codes::Code;
use marline_engine::fork::Generation;
use marline_engine::{OpError, SubmitError};
use std::ffi::{c_char, c_int, CStr};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};

/// A libfabric error number, positive as in `rdma/fi_errno.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub c_int);

impl Errno {
    pub const NOENT: Errno = Errno(libc::ENOENT);
    pub const IO: Errno = Errno(libc::EIO);
    pub const AGAIN: Errno = Errno(libc::EAGAIN);
    pub const BUSY: Errno = Errno(libc::EBUSY);
    pub const NODEV: Errno = Errno(libc::ENODEV);
    pub const INVAL: Errno = Errno(libc::EINVAL);
    pub const NOSYS: Errno = Errno(libc::ENOSYS);
    pub const NOMSG: Errno = Errno(libc::ENOMSG);
    pub const OPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);
    pub const NODATA: Errno = Errno(libc::ENODATA);
    pub const NOMEM: Errno = Errno(libc::ENOMEM);
    pub const MSGSIZE: Errno = Errno(libc::EMSGSIZE);
    pub const NOPROTOOPT: Errno = Errno(libc::ENOPROTOOPT);
    pub const ACCES: Errno = Errno(libc::EACCES);
    pub const ADDRNOTAVAIL: Errno = Errno(libc::EADDRNOTAVAIL);
    pub const CONNREFUSED: Errno = Errno(libc::ECONNREFUSED);
    pub const HOSTUNREACH: Errno = Errno(libc::EHOSTUNREACH);
    pub const CONNABORTED: Errno = Errno(libc::ECONNABORTED);
    pub const TIMEDOUT: Errno = Errno(libc::ETIMEDOUT);
    pub const CANCELED: Errno = Errno(libc::ECANCELED);
    // libfabric's additional numbers start at 256.
    pub const OTHER: Errno = Errno(256);
    pub const TOOSMALL: Errno = Errno(257);
    pub const AVAIL: Errno = Errno(259);
    pub const BADFLAGS: Errno = Errno(260);
    pub const NOCQ: Errno = Errno(263);
    pub const TRUNC: Errno = Errno(265);
    pub const NOKEY: Errno = Errno(266);
    pub const NOAV: Errno = Errno(267);

    /// Text for people, for `fi_cq_strerror`.
    pub fn text(self) -> &'static CStr {
        match self {
            Errno::TRUNC => c"message longer than the receive buffer [MARLINE-E513]",
            Errno::CANCELED => c"cancelled",
            Errno::NOMSG => c"no such message",
            Errno::HOSTUNREACH => c"peer dead or unreachable [MARLINE-E301]",
            Errno::ADDRNOTAVAIL => {
                c"sender not in the address vector; its address is with the error [MARLINE-E211]"
            }
            Errno::ACCES => c"remote memory key, address or length refused [MARLINE-E311]",
            Errno::CONNABORTED => c"endpoint closed or unusable [MARLINE-E310]",
            _ => c"unknown error",
        }
    }
}

impl From<SubmitError> for Errno {
    fn from(e: SubmitError) -> Errno {
        match e {
            SubmitError::Again => Errno::AGAIN,
            SubmitError::PeerDead => Errno::HOSTUNREACH,
            SubmitError::BadAddress | SubmitError::Invalid => Errno::INVAL,
            SubmitError::TooLong => Errno::MSGSIZE,
            SubmitError::NotFound => Errno::NOENT,
            SubmitError::NoIdentity => Errno::IO,
            SubmitError::Unusable => Errno::OTHER,
        }
    }
}

impl From<OpError> for Errno {
    fn from(e: OpError) -> Errno {
        match e {
            OpError::Truncated => Errno::TRUNC,
            OpError::Cancelled => Errno::CANCELED,
            OpError::NoMessage => Errno::NOMSG,
            OpError::PeerDead => Errno::HOSTUNREACH,
            OpError::BadRemoteMemory => Errno::ACCES,
            OpError::UnknownSource => Errno::ADDRNOTAVAIL,
            // Never ECANCELED for a failure: MPICH would report success. Open MPI accepts
            // CONNABORTED, too.
            OpError::Closed => Errno::CONNABORTED,
        }
    }
}

/// A return type of C entries.
pub(crate) trait Answer {
    /// The value for an error.
    fn failed(e: Errno) -> Self;
}

impl Answer for c_int {
    fn failed(e: Errno) -> c_int {
        -e.0
    }
}

impl Answer for isize {
    fn failed(e: Errno) -> isize {
        -(e.0 as isize)
    }
}

impl Answer for u64 {
    fn failed(_: Errno) -> u64 {
        0
    }
}

impl Answer for *const c_char {
    fn failed(_: Errno) -> *const c_char {
        c"marline: unusable".as_ptr()
    }
}

/// Turns a result into the value that C gets.
#[inline]
pub(crate) fn answer<T: Answer>(r: Result<T, Errno>) -> T {
    match r {
        Ok(v) => v,
        Err(e) => T::failed(e),
    }
}

/// Records whether a domain and its objects are usable. They are unusable after a panic, and in a
/// forked child, where a thread that does not exist there may hold a lock.
#[derive(Debug)]
pub(crate) struct Health(AtomicBool, Generation);

impl Default for Health {
    fn default() -> Health {
        Health(AtomicBool::new(false), Generation::current())
    }
}

impl Health {
    #[inline]
    fn poisoned(&self) -> bool {
        self.0.load(Ordering::Relaxed) || self.is_forked()
    }

    /// True if this process is a forked child of the one that opened the domain.
    pub(crate) fn is_forked(&self) -> bool {
        self.1.is_forked()
    }
}

/// Runs the body of an object's C entry. After a panic, that call and all later calls on the same
/// domain return `-FI_EOTHER`; in a forked child all calls do.
#[inline]
pub(crate) fn guard<T: Answer>(health: &Health, body: impl FnOnce() -> Result<T, Errno>) -> T {
    if health.poisoned() {
        return T::failed(Errno::OTHER);
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(r) => answer(r),
        Err(payload) => {
            health.0.store(true, Ordering::Relaxed);
            // The panic hook has logged it. A payload whose drop panics again is leaked.
            if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                std::mem::forget(again);
            }
            T::failed(Errno::OTHER)
        }
    }
}

/// Like [`guard`], for entries without a domain and for closing, which must work after a panic.
pub(crate) fn guard_free<T: Answer>(body: impl FnOnce() -> Result<T, Errno>) -> T {
    guard(&Health::default(), body)
}

/// Sends panic messages to libfabric's log instead of stderr. The library links its own std, so the
/// hook sees only the library's panics.
pub(crate) fn install_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        let text = format!("internal error, this domain is unusable from now on: {info}");
        log::warn(Code::Internal, &text);
    }));
}

extern "C" fn forked_child() {
    marline_engine::fork::mark_forked();
}

/// Makes every engine call in a forked child fail: threads that do not exist there may hold the
/// locks, and the sockets are shared with the parent.
pub(crate) fn install_fork_handler() {
    // SAFETY: the handler is async-signal-safe and, with `-z nodelete`, never unmapped.
    let rc = unsafe { libc::pthread_atfork(None, None, Some(forked_child)) };
    if rc != 0 {
        let text = "pthread_atfork failed: a forked child must not use libfabric";
        log::warn(Code::Internal, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_poisons_the_domain_and_never_leaves() {
        let health = Health::default();
        let ok: c_int = guard(&health, || Ok(0));
        assert_eq!(ok, 0);
        let caught: isize = guard(&health, || panic!("on purpose"));
        assert_eq!(caught, -256);
        let later: c_int = guard(&health, || Ok(0));
        assert_eq!(later, -256);
    }

    #[test]
    fn a_payload_that_panics_when_dropped_does_not_leave_either() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                std::panic::panic_any(());
            }
        }
        let caught: isize = guard_free(|| std::panic::panic_any(Bomb));
        assert_eq!(caught, -256);
    }

    #[test]
    fn texts_of_errors_have_their_codes() {
        for (error, code) in [
            (Errno::TRUNC, Code::Truncated),
            (Errno::HOSTUNREACH, Code::PeerDead),
            (Errno::ADDRNOTAVAIL, Code::BadAddress),
            (Errno::ACCES, Code::RemoteRefused),
            (Errno::CONNABORTED, Code::Undelivered),
        ] {
            let text = error.text().to_str().unwrap();
            assert!(text.ends_with(&format!(" [{code}]")), "{text}");
        }
    }

    #[test]
    fn errors_have_the_numbers_that_mpis_expect() {
        assert_eq!(Errno::from(SubmitError::Again).0, libc::EAGAIN);
        assert_eq!(Errno::from(SubmitError::PeerDead).0, libc::EHOSTUNREACH);
        assert_eq!(Errno::from(SubmitError::NotFound).0, libc::ENOENT);
        assert_eq!(Errno::from(OpError::Truncated).0, 265);
        assert_eq!(Errno::from(OpError::NoMessage).0, libc::ENOMSG);
        let failures = [OpError::PeerDead, OpError::BadRemoteMemory, OpError::Closed];
        for failure in failures {
            assert_ne!(
                Errno::from(failure).0,
                libc::ECANCELED,
                "MPICH reads it as success"
            );
        }
    }
}
