//! `fid_eq`: an event queue. It carries only the application's own events: no control operation of
//! this provider is asynchronous.

use crate::abi::*;
use crate::base::boundary::{guard_free, Errno};
use crate::base::log::trace;
use crate::base::object::{self, Object};
use crate::objects::fabric::{self, FabricShared};
use crate::queues::events::Events;
use crate::queues::wait;
use marline_engine::Bell;
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::mem::size_of;
use std::sync::Arc;
use std::time::Duration;

/// Longest event that `fi_eq_write` accepts, in bytes; events are small structs.
const EVENT_LEN_MAX: usize = 4096;

#[repr(C)]
pub(crate) struct Eq {
    fid: fid_eq,
    bell: Option<Arc<Bell>>,
    events: Events<(u32, Vec<u8>)>,
    _fabric: Arc<FabricShared>,
}

// SAFETY: `#[repr(C)]`, and fid_eq begins with a fid.
unsafe impl Object for Eq {
    type Fid = fid_eq;
    const CLASS: usize = FI_CLASS_EQ;
    const FID_OPS: &'static fi_ops = &fi_ops {
        control,
        ..object::only_close::<Eq>()
    };
}

static OPS: fi_ops_eq = fi_ops_eq {
    size: size_of::<fi_ops_eq>(),
    read,
    readerr,
    write,
    sread,
    strerror,
};

/// `fi_eq_open`.
pub(crate) unsafe extern "C" fn open(
    parent: *mut fid_fabric,
    attr: *mut fi_eq_attr,
    out: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    guard_free(|| {
        if attr.is_null() || out.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: the fabric is ours, the others were checked.
        unsafe {
            let bell = wait::bell((*attr).wait_obj)?;
            trace!("eq open");
            let fid = object::header::<Eq>(context);
            let eq = Eq {
                fid: fid_eq { fid, ops: &OPS },
                bell,
                events: Events::new(),
                _fabric: fabric::of(parent).0,
            };
            object::give(eq, out);
        }
        Ok(0)
    })
}

impl Eq {
    /// True if an event is there; otherwise arms the bell for the next event.
    pub(crate) fn is_ready(&self) -> bool {
        self.bell.iter().for_each(|bell| bell.arm());
        let look = |events: &mut VecDeque<(u32, Vec<u8>)>| (!events.is_empty()).then_some(());
        self.events.wait(Duration::ZERO, look).is_some()
    }
}

unsafe extern "C" fn control(eq: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: ours, with libfabric's argument.
    unsafe { wait::control(object::of::<Eq>(eq.cast()).bell.as_deref(), command, arg) }
}

/// Removes the first event, or with FI_PEEK copies it.
///
/// # Safety
/// `event` is valid and `buf` has `len` bytes.
unsafe fn take(
    events: &mut VecDeque<(u32, Vec<u8>)>,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    flags: u64,
) -> Result<isize, Errno> {
    let (kind, body) = events.front().ok_or(Errno::AGAIN)?;
    if body.len() > len {
        return Err(Errno::TOOSMALL);
    }
    let written = body.len();
    // SAFETY: it fits, by the caller's promise.
    unsafe {
        *event = *kind;
        std::ptr::copy_nonoverlapping(body.as_ptr(), buf.cast(), written);
    }
    if flags & FI_PEEK == 0 {
        events.pop_front();
    }
    Ok(written as isize)
}

/// Like [`take`], waiting up to `timeout` for an event.
///
/// # Safety
/// The conditions of [`take`] hold.
unsafe fn take_within(
    eq: &Eq,
    timeout: Duration,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    flags: u64,
) -> Result<isize, Errno> {
    let found = eq.events.wait(timeout, |events| {
        // SAFETY: the caller's promise.
        match unsafe { take(events, event, buf, len, flags) } {
            Err(Errno::AGAIN) => None,
            other => Some(other),
        }
    });
    found.unwrap_or(Err(Errno::AGAIN))
}

unsafe extern "C" fn read(
    eq: *mut fid_eq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    flags: u64,
) -> isize {
    // SAFETY: ours, with the application's buffers.
    guard_free(|| unsafe {
        take_within(object::of::<Eq>(eq), Duration::ZERO, event, buf, len, flags)
    })
}

unsafe extern "C" fn sread(
    eq: *mut fid_eq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    // A negative timeout means no limit: wait for a century, which cannot overflow.
    let ms = u64::try_from(timeout).unwrap_or(100 * 365 * 86_400_000);
    let timeout = Duration::from_millis(ms);
    // SAFETY: ours, with the application's buffers.
    guard_free(|| unsafe { take_within(object::of::<Eq>(eq), timeout, event, buf, len, flags) })
}

/// `fi_eq_readerr`: always empty, as no operation of the provider ends on an event queue.
unsafe extern "C" fn readerr(_: *mut fid_eq, _: *mut c_void, _: u64) -> isize {
    -(libc::EAGAIN as isize)
}

unsafe extern "C" fn write(
    eq: *mut fid_eq,
    event: u32,
    buf: *const c_void,
    len: usize,
    _flags: u64,
) -> isize {
    guard_free(|| {
        if len > EVENT_LEN_MAX || (buf.is_null() && len > 0) {
            return Err(Errno::INVAL);
        }
        // SAFETY: ours, and the application's buffer has `len` bytes.
        unsafe {
            let mut body = vec![0u8; len];
            std::ptr::copy_nonoverlapping(buf.cast(), body.as_mut_ptr(), len);
            let eq = object::of::<Eq>(eq);
            eq.events.write((event, body));
            eq.bell.iter().for_each(|bell| bell.ring());
        }
        Ok(len as isize)
    })
}

unsafe extern "C" fn strerror(
    _: *mut fid_eq,
    prov_errno: c_int,
    _: *const c_void,
    _: *mut c_char,
    _: usize,
) -> *const c_char {
    Errno(prov_errno).text().as_ptr()
}
