//! `fid_cntr`: counters of messages and remote operations, bound per endpoint.

use crate::abi::*;
use crate::base::boundary::{guard, Errno};
use crate::base::log::trace;
use crate::base::object::{self, absent, Object};
use crate::objects::domain::{self, DomainShared};
use crate::queues::wait;
use marline_engine::{Bell, Counter, Notice};
use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[repr(C)]
pub(crate) struct Cntr {
    fid: fid_cntr,
    shared: Arc<DomainShared>,
    /// Shared with the engine by every endpoint bound to this counter.
    pub counter: Arc<Counter>,
    /// Signalled when the counter changes, for applications that sleep on a descriptor.
    bell: Option<Arc<Bell>>,
    /// The sum of values that the application last read.
    seen: AtomicU64,
    /// Errors reported to the application.
    reported: AtomicU64,
    /// Every poll set and region with this counter holds a clone: closing a counter in use is
    /// refused.
    pub users: Arc<()>,
}

// SAFETY: `#[repr(C)]`, and fid_cntr begins with a fid.
unsafe impl Object for Cntr {
    type Fid = fid_cntr;
    const CLASS: usize = FI_CLASS_CNTR;
    const FID_OPS: &'static fi_ops = &fi_ops {
        control,
        ..object::only_close::<Cntr>()
    };

    fn in_use(&self) -> bool {
        Arc::strong_count(&self.users) > 1
    }
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

/// `fi_cntr_open`. `fi_cntr_wait` polls (Intel MPI opens FI_WAIT_UNSPEC) unless the wait object is
/// a descriptor.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_cntr_attr,
    out: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    let make = |shared: &Arc<DomainShared>| {
        // SAFETY: checked for null.
        let (events, wait_obj) = unsafe { ((*attr).events, (*attr).wait_obj) };
        if events != FI_CNTR_EVENTS_COMP {
            return Err(Errno::NOSYS);
        }
        let (bell, counter) = (
            wait::bell_in(shared, wait_obj)?,
            Arc::new(Counter::default()),
        );
        if let Some(bell) = bell.clone() {
            let notice = Notice(Box::new(move || bell.ring()));
            counter.notice.get_or_init(|| notice);
        }
        trace!("cntr open");
        let fid = object::header::<Cntr>(context);
        Ok(Cntr {
            fid: fid_cntr { fid, ops: &OPS },
            shared: shared.clone(),
            counter,
            bell,
            seen: AtomicU64::new(0),
            reported: AtomicU64::new(0),
            users: Arc::new(()),
        })
    };
    // SAFETY: the domain is ours.
    unsafe { domain::open_in(domain, attr, out, make) }
}

impl Cntr {
    fn sum(&self) -> u64 {
        let (done, errors) = (&self.counter.done, &self.counter.errors);
        let errors = errors.load(Ordering::Acquire);
        done.load(Ordering::Acquire).wrapping_add(errors)
    }

    /// True if the counter changed since the application last read it; otherwise arms the bell.
    pub(crate) fn is_ready(&self) -> bool {
        let news = guard(&self.shared.health, || {
            self.bell.iter().for_each(|bell| bell.arm());
            self.shared.engine.progress();
            let seen = self.sum() == self.seen.load(Ordering::Relaxed);
            Ok(c_int::from(!seen || self.shared.engine.is_unusable()))
        });
        news != 0
    }

    /// Hands progress to the progress thread before the application sleeps on a descriptor.
    pub(crate) fn leave(&self) {
        if self.bell.is_some() {
            self.shared.engine.leave();
        }
    }
}

unsafe extern "C" fn control(cntr: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: ours, with libfabric's argument.
    unsafe {
        wait::control(
            object::of::<Cntr>(cntr.cast()).bell.as_deref(),
            command,
            arg,
        )
    }
}

unsafe extern "C" fn read(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: ours.
    let cntr = unsafe { object::of::<Cntr>(cntr) };
    guard(&cntr.shared.health, || {
        // A changed counter is returned without polling the rails.
        if cntr.sum() == cntr.seen.load(Ordering::Relaxed) {
            cntr.shared.engine.progress();
        }
        cntr.seen.store(cntr.sum(), Ordering::Relaxed);
        Ok(cntr.counter.done.load(Ordering::Acquire))
    })
}

unsafe extern "C" fn readerr(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: ours.
    let cntr = unsafe { object::of::<Cntr>(cntr) };
    let errors = cntr.counter.errors.load(Ordering::Acquire);
    cntr.reported.store(errors, Ordering::Relaxed);
    errors
}

unsafe extern "C" fn add(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: ours.
    let counter = unsafe { &object::of::<Cntr>(cntr).counter };
    counter.done.fetch_add(value, Ordering::AcqRel);
    counter.changed();
    0
}

unsafe extern "C" fn set(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: ours.
    let counter = unsafe { &object::of::<Cntr>(cntr).counter };
    counter.done.store(value, Ordering::Release);
    counter.changed();
    0
}

unsafe extern "C" fn adderr(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: ours.
    let counter = unsafe { &object::of::<Cntr>(cntr).counter };
    counter.errors.fetch_add(value, Ordering::AcqRel);
    counter.changed();
    0
}

unsafe extern "C" fn seterr(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: ours.
    let cntr = unsafe { object::of::<Cntr>(cntr) };
    cntr.counter.errors.store(value, Ordering::Release);
    cntr.reported.fetch_min(value, Ordering::Relaxed);
    cntr.counter.changed();
    0
}

/// `fi_cntr_wait`: returns at the threshold, at an unreported error, or after `timeout` ms.
unsafe extern "C" fn wait(cntr: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int {
    // SAFETY: ours.
    let cntr = unsafe { object::of::<Cntr>(cntr) };
    guard(&cntr.shared.health, || {
        let counter = &cntr.counter;
        let deadline = u64::try_from(timeout)
            .ok()
            .map(|ms| Instant::now() + Duration::from_millis(ms));
        let mut polled = false;
        loop {
            if counter.done.load(Ordering::Acquire) >= threshold {
                cntr.seen.store(cntr.sum(), Ordering::Relaxed);
                return Ok(0);
            }
            // Errors from before this call count, too: a failed operation never reaches the
            // threshold.
            let errors = counter.errors.load(Ordering::Acquire);
            if errors > cntr.reported.swap(errors, Ordering::Relaxed) {
                return Err(Errno::AVAIL);
            }
            if cntr.shared.engine.is_unusable() {
                return Err(Errno::OTHER); // the counter will not advance any more
            }
            if polled && deadline.is_some_and(|at| Instant::now() >= at) {
                return Err(Errno::TIMEDOUT);
            }
            cntr.shared.engine.progress();
            polled = true;
        }
    })
}
