//! `fid_cntr`: counters. They count remote reads and writes only, since MPICH asserts that no more
//! is done than it issued as RMA.

use crate::boundary::{guard, Errno};
use crate::domain::{self, DomainShared};
use crate::log::trace;
use crate::object::{self, absent, Object};
use crate::sys::*;
use marline_engine::Counter;
use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[repr(C)]
pub(crate) struct Cntr {
    fid: fid_cntr,
    shared: Arc<DomainShared>,
    /// Also held by the engine for every endpoint that counts here.
    pub counter: Arc<Counter>,
}

// SAFETY: `#[repr(C)]`, and fid_cntr begins with a fid.
unsafe impl Object for Cntr {
    type Fid = fid_cntr;
    const CLASS: usize = FI_CLASS_CNTR;
}

static OPS: fi_ops_cntr = fi_ops_cntr {
    size: size_of::<fi_ops_cntr>(),
    read,
    readerr,
    add,
    set,
    wait,
    adderr,
    seterr,
    export_xpu: absent,
};

/// `fi_cntr_open`. Waiting polls (Intel MPI opens FI_WAIT_UNSPEC); there is no descriptor.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_cntr_attr,
    out: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    let make = |shared: &Arc<DomainShared>| {
        // SAFETY: checked for null.
        let (events, wait_obj) = unsafe { ((*attr).events, (*attr).wait_obj) };
        let waits = [FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_YIELD].contains(&wait_obj);
        if events != FI_CNTR_EVENTS_COMP || !waits {
            return Err(Errno::NOSYS);
        }
        trace!("cntr open");
        let fid = object::header::<Cntr>(context);
        Ok(Cntr {
            fid: fid_cntr { fid, ops: &OPS },
            shared: shared.clone(),
            counter: Arc::new(Counter::default()),
        })
    };
    // SAFETY: the domain is ours.
    unsafe { domain::open_in(domain, attr, out, make) }
}

unsafe extern "C" fn read(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: ours.
    let cntr = unsafe { object::of::<Cntr>(cntr) };
    guard(&cntr.shared.health, || {
        cntr.shared.engine.progress();
        Ok(cntr.counter.done.load(Ordering::Acquire))
    })
}

unsafe extern "C" fn readerr(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: ours.
    unsafe { object::of::<Cntr>(cntr) }
        .counter
        .errors
        .load(Ordering::Acquire)
}

unsafe extern "C" fn add(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: ours.
    unsafe { object::of::<Cntr>(cntr) }
        .counter
        .done
        .fetch_add(value, Ordering::AcqRel);
    0
}

unsafe extern "C" fn set(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: ours.
    unsafe { object::of::<Cntr>(cntr) }
        .counter
        .done
        .store(value, Ordering::Release);
    0
}

unsafe extern "C" fn adderr(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: ours.
    unsafe { object::of::<Cntr>(cntr) }
        .counter
        .errors
        .fetch_add(value, Ordering::AcqRel);
    0
}

unsafe extern "C" fn seterr(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: ours.
    unsafe { object::of::<Cntr>(cntr) }
        .counter
        .errors
        .store(value, Ordering::Release);
    0
}

/// `fi_cntr_wait`: until the threshold, a new error, or the time is over.
unsafe extern "C" fn wait(cntr: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int {
    // SAFETY: ours.
    let cntr = unsafe { object::of::<Cntr>(cntr) };
    guard(&cntr.shared.health, || {
        let counter = &cntr.counter;
        let errors = counter.errors.load(Ordering::Acquire);
        let deadline = u64::try_from(timeout)
            .ok()
            .map(|ms| Instant::now() + Duration::from_millis(ms));
        loop {
            cntr.shared.engine.progress();
            if counter.done.load(Ordering::Acquire) >= threshold {
                return Ok(0);
            }
            if counter.errors.load(Ordering::Acquire) != errors {
                return Err(Errno::AVAIL);
            }
            if cntr.shared.engine.is_unusable() {
                return Err(Errno::OTHER); // it will not be counted any more
            }
            if deadline.is_some_and(|at| Instant::now() >= at) {
                return Err(Errno::TIMEDOUT);
            }
        }
    })
}
