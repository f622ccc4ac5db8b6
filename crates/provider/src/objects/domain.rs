//! `fid_domain`: one engine, and the state shared by a domain's objects.

use crate::abi::*;
use crate::addresses::Form;
use crate::base::boundary::{guard, Errno, Health};
use crate::base::object::{self, Object};
use crate::objects::fabric::FabricShared;
use marline_engine::fork::PerProcess;
use marline_engine::Engine;
use std::collections::hash_map::RandomState;
use std::convert::Infallible;
use std::ffi::c_int;
use std::hash::BuildHasher;
use std::mem::take;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The state shared by all objects of a domain.
pub(crate) struct DomainShared {
    pub engine: Engine,
    pub health: Health,
    /// Selects the layout of structs that applications pass.
    pub api_version: u32,
    pub mr_mode: c_int,
    /// The address format of applications.
    pub form: Form,
    /// Makes keys for applications that leave them to the provider (`FI_MR_PROV_KEY`,
    /// `FI_MR_BASIC`).
    pub keys: Keys,
    /// Keeps the fabric from being closed.
    pub fabric: Arc<FabricShared>,
}

/// Keys of memory that cannot be guessed: a hash of their number.
#[derive(Default)]
pub(crate) struct Keys {
    random: RandomState,
    made: AtomicU64,
}

impl Keys {
    /// A key that was not made before; never all ones, which is `FI_KEY_NOTAVAIL`.
    pub(crate) fn next(&self) -> u64 {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        self.random.hash_one(number).clamp(1, u64::MAX - 1)
    }
}

#[repr(C)]
pub(crate) struct Domain {
    pub fid: fid_domain,
    pub shared: Arc<DomainShared>,
}

// SAFETY: `#[repr(C)]`, and fid_domain begins with a fid.
unsafe impl Object for Domain {
    type Fid = fid_domain;
    const CLASS: usize = FI_CLASS_DOMAIN;
    const FID_OPS: &'static fi_ops = &fi_ops {
        bind,
        ..object::only_close::<Domain>()
    };

    fn in_use(&self) -> bool {
        Arc::strong_count(&self.shared) > OWN_HANDLES
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // A forked child must not take the lock, nor free memory that a thread was using.
        if self.shared.health.is_forked() {
            return;
        }
        lock_open().retain(|open| !Arc::ptr_eq(open, &self.shared));
        self.shared.engine.close();
    }
}

/// The open domains of this process.
type Open = Mutex<Vec<Arc<DomainShared>>>;

/// For `cleanup`. In a forked child the parent's domains remain and are not freed.
static OPEN: PerProcess<Open> = PerProcess::new();

/// Handles of a domain that do not belong to child objects: its own and the one in `OPEN`.
const OWN_HANDLES: usize = 2;

pub(crate) fn lock_open() -> MutexGuard<'static, Vec<Arc<DomainShared>>> {
    let Ok(open) = OPEN.get_or_make(|| Ok::<_, Infallible>(Open::default()));
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The shared state of a domain.
///
/// # Safety
/// `domain` was made by [`open`].
pub(crate) unsafe fn of<'a>(domain: *mut fid_domain) -> &'a Arc<DomainShared> {
    // SAFETY: the caller's promise.
    unsafe { &object::of::<Domain>(domain).shared }
}

/// Opens an object in a domain with `make`, after checking `attr` and `out` for null.
///
/// # Safety
/// `domain` was made by [`open`], and `out` may be written to unless it is null.
pub(crate) unsafe fn open_in<A, T: Object>(
    domain: *mut fid_domain,
    attr: *mut A,
    out: *mut *mut T::Fid,
    make: impl FnOnce(&Arc<DomainShared>) -> Result<T, Errno>,
) -> c_int {
    // SAFETY: the caller's promise.
    let shared = unsafe { of(domain) };
    guard(&shared.health, || {
        if attr.is_null() || out.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: checked for null.
        unsafe { object::give(make(shared)?, out) };
        Ok(0)
    })
}

/// `bind` of event queues and memory-registration objects has no effect.
unsafe extern "C" fn bind(_: *mut fid, _: *mut fid, _: u64) -> c_int {
    0
}

/// Stops every engine of this process before libfabric unloads the provider. Objects are left to
/// their owners; a forked child leaves its parent's engines alone.
pub(crate) fn close_all() {
    let ours = take(&mut *lock_open());
    for shared in ours {
        shared.engine.close();
    }
}

#[cfg(test)]
mod key_tests {
    use super::*;

    /// Regression: keys counted from 1, so that every process of the network knew them.
    #[test]
    fn keys_are_not_counted() {
        let (keys, others) = (Keys::default(), Keys::default());
        let [mine, theirs] = [&keys, &others].map(|keys| [(); 8].map(|()| keys.next()));
        assert!(mine.iter().all(|key| !theirs.contains(key)), "{mine:x?}");
        assert!(
            mine.windows(2).all(|two| two[0].abs_diff(two[1]) > 1 << 32),
            "{mine:x?}"
        );
    }
}
