//! `fid_cq`: the completion queue. Reading a queue makes progress for the whole domain.

use crate::abi::*;
use crate::addresses::ADDRESS_LEN;
use crate::base::boundary::{guard, Errno};
use crate::base::log::trace;
use crate::base::object::{self, absent, Object};
use crate::objects::domain::{self, DomainShared};
use crate::queues::wait;
use crate::yields;
use marline_engine::{Bell, Completion, CqId};
use std::ffi::{c_char, c_int, c_void};
use std::mem::{size_of, MaybeUninit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Completions per read of the engine. MPICH asks for 8; a larger batch makes empty polls slower.
const BATCH: usize = 8;

/// Interval at which a sleeping reader checks for `fi_cq_signal`.
const SIGNAL_CHECK_MS: i32 = 10;

/// The format of a queue's entries. Every format is a prefix of the tagged one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Context,
    Msg,
    Data,
    Tagged,
}

#[repr(C)]
pub(crate) struct Cq {
    fid: fid_cq,
    shared: Arc<DomainShared>,
    pub id: CqId,
    format: Format,
    signalled: AtomicBool,
    /// The unknown source's address of the last error that was read.
    err_data: Mutex<[u8; ADDRESS_LEN]>,
    /// Signalled when an entry arrives, for applications that sleep on a descriptor.
    bell: Option<Arc<Bell>>,
    /// Every bound endpoint and every poll set with this queue holds a clone: closing a queue in
    /// use is refused.
    pub users: Arc<()>,
}

// SAFETY: `#[repr(C)]`, and fid_cq begins with a fid.
unsafe impl Object for Cq {
    type Fid = fid_cq;
    const CLASS: usize = FI_CLASS_CQ;
    const FID_OPS: &'static fi_ops = &fi_ops {
        control,
        ..object::only_close::<Cq>()
    };

    fn in_use(&self) -> bool {
        Arc::strong_count(&self.users) > 1
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        self.shared.engine.cq_close(self.id);
    }
}

static OPS: fi_ops_cq = fi_ops_cq {
    size: size_of::<fi_ops_cq>(),
    read,
    readfrom,
    readerr,
    sread,
    sreadfrom,
    signal,
    strerror,
    export_xpu: absent,
};

/// `fi_cq_open`. The requested size is ignored: completions live in their operations' slots.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    out: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    let make = |shared: &Arc<DomainShared>| {
        // SAFETY: checked for null; these fields exist in every version.
        let (format, wait_obj, wait_cond) =
            unsafe { ((*attr).format, (*attr).wait_obj, (*attr).wait_cond) };
        let format = match format {
            FI_CQ_FORMAT_UNSPEC | FI_CQ_FORMAT_CONTEXT => Format::Context,
            FI_CQ_FORMAT_MSG => Format::Msg,
            FI_CQ_FORMAT_DATA => Format::Data,
            FI_CQ_FORMAT_TAGGED => Format::Tagged,
            _ => return Err(Errno::NOSYS),
        };
        let bell = wait::bell_in(shared, wait_obj)?;
        // Waiting for several entries is unsupported. (Without a wait object the condition is
        // moot.)
        if wait_cond != FI_CQ_COND_NONE && wait_obj != FI_WAIT_NONE {
            return Err(Errno::NOSYS);
        }
        let id = shared.engine.cq_open();
        if let Some(bell) = &bell {
            shared.engine.cq_bell(id, bell.clone());
        }
        trace!("cq open {format:?} -> {id:?}");
        let fid = object::header::<Cq>(context);
        Ok(Cq {
            fid: fid_cq { fid, ops: &OPS },
            shared: shared.clone(),
            id,
            format,
            signalled: AtomicBool::new(false),
            err_data: Mutex::new([0; ADDRESS_LEN]),
            bell,
            users: Arc::new(()),
        })
    };
    // SAFETY: the domain is ours.
    unsafe { domain::open_in(domain, attr, out, make) }
}

impl Cq {
    /// True if an entry or an error can be read; otherwise arms the bell for the next one.
    pub(crate) fn is_ready(&self) -> bool {
        let news = guard(&self.shared.health, || {
            self.bell.iter().for_each(|bell| bell.arm());
            Ok(c_int::from(!self.shared.engine.cq_is_empty(self.id)))
        });
        news != 0
    }

    /// Hands progress to the progress thread before the application sleeps on a descriptor.
    pub(crate) fn leave(&self) {
        if self.bell.is_some() {
            self.shared.engine.leave();
        }
    }

    /// Reads up to `count` entries. Never returns `Ok(0)`: MPICH and Open MPI abort on 0.
    ///
    /// # Safety
    /// `buf` has room for `count` entries, `sources` too unless null.
    unsafe fn take(
        &self,
        buf: *mut c_void,
        count: usize,
        sources: *mut fi_addr_t,
    ) -> Result<isize, Errno> {
        let mut taken = 0;
        loop {
            let want = (count - taken).min(BATCH);
            let mut room = [const { MaybeUninit::<Completion>::uninit() }; BATCH];
            for slot in &mut room[..want] {
                slot.write(Completion::empty());
            }
            // SAFETY: the first `want` slots were just written.
            let batch = unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast(), want) };
            let n = match self.shared.engine.cq_read(self.id, batch) {
                Ok(n) => n,
                Err(()) if taken > 0 => break,
                Err(()) if self.shared.engine.is_unusable() => return Err(Errno::OTHER),
                Err(()) => return Err(Errno::AVAIL),
            };
            // SAFETY: `taken + n` entries fit, by the caller's promise.
            unsafe { self.put(&batch[..n], buf, sources, taken) };
            taken += n;
            if n < want || taken == count {
                break;
            }
        }
        if taken == 0 {
            return Err(Errno::AGAIN);
        }
        Ok(taken as isize)
    }

    /// Writes entries in the queue's format, beginning at index `at`.
    ///
    /// # Safety
    /// The conditions of [`Cq::take`] hold.
    unsafe fn put(
        &self,
        batch: &[Completion],
        buf: *mut c_void,
        sources: *mut fi_addr_t,
        at: usize,
    ) {
        for (i, done) in batch.iter().enumerate() {
            trace!("cq entry {done:?}");
            let entry = fi_cq_tagged_entry {
                op_context: done.context as *mut c_void,
                flags: done.flags,
                len: done.len,
                buf: done.buf.cast(),
                data: done.data,
                tag: done.tag,
            };
            let at = at + i;
            // SAFETY: the caller's promise; the shorter formats are prefixes of the tagged entry.
            unsafe {
                match self.format {
                    Format::Tagged => *buf.cast::<fi_cq_tagged_entry>().add(at) = entry,
                    Format::Data => put_prefix::<5>(&entry, buf, at),
                    Format::Msg => put_prefix::<3>(&entry, buf, at),
                    Format::Context => put_prefix::<1>(&entry, buf, at),
                }
                if !sources.is_null() {
                    *sources.add(at) = done.source;
                }
            }
        }
    }

    /// Writes the address of an unknown source, if any, into the application's buffer or, without a
    /// buffer, into the queue's own, which stays valid until the next error is read.
    ///
    /// # Safety
    /// `out` is the application's, in the layout of its API version.
    unsafe fn put_err_data(&self, stranger: Option<[u8; ADDRESS_LEN]>, out: *mut fi_cq_err_entry) {
        let mut ours = self.err_data.lock().unwrap_or_else(PoisonError::into_inner);
        let sized = self.shared.api_version >= fi_version_of(1, 5);
        // SAFETY: the caller's promise; a buffer of the application has the size that it says.
        unsafe {
            let room = if sized { (*out).err_data_size } else { 0 };
            let stranger = stranger.map(|blob| self.shared.form.bytes(&blob));
            let whole = stranger.as_ref().map_or(0, Vec::len);
            let len = if room == 0 { whole } else { whole.min(room) };
            if let Some(address) = stranger {
                if room == 0 {
                    (*out).err_data = ours.as_mut_ptr().cast();
                }
                std::ptr::copy_nonoverlapping(address.as_ptr(), (*out).err_data.cast(), len);
            } else if !sized {
                (*out).err_data = std::ptr::null_mut();
            }
            if sized {
                (*out).err_data_size = len;
            }
        }
    }

    /// Like [`Cq::take`], sleeping up to `timeout_ms` (negative: for ever) for the first entry.
    ///
    /// # Safety
    /// The conditions of [`Cq::take`] hold.
    unsafe fn take_or_sleep(
        &self,
        buf: *mut c_void,
        count: usize,
        sources: *mut fi_addr_t,
        timeout_ms: c_int,
    ) -> Result<isize, Errno> {
        let deadline = u64::try_from(timeout_ms)
            .ok()
            .map(|ms| Instant::now() + Duration::from_millis(ms));
        loop {
            // SAFETY: the caller's promise.
            match unsafe { self.take(buf, count, sources) } {
                Err(Errno::AGAIN) => {}
                other => return other,
            }
            if self.signalled.swap(false, Ordering::AcqRel) {
                return Err(Errno::AGAIN);
            }
            let left_ms = deadline.map_or(SIGNAL_CHECK_MS, |at| {
                let left = at.saturating_duration_since(Instant::now());
                left.as_millis().min(SIGNAL_CHECK_MS as u128) as i32
            });
            if left_ms == 0 {
                return Err(Errno::AGAIN);
            }
            self.shared.engine.cq_wait(self.id, left_ms);
        }
    }
}

/// Writes the first `WORDS` fields of an entry as entry number `at` of a shorter format.
///
/// # Safety
/// `buf` has room for it.
unsafe fn put_prefix<const WORDS: usize>(entry: &fi_cq_tagged_entry, buf: *mut c_void, at: usize) {
    let from: *const [usize; WORDS] = (&raw const *entry).cast();
    // SAFETY: every field of the entry is one word; the room is the caller's promise.
    unsafe { *buf.cast::<[usize; WORDS]>().add(at) = *from };
}

unsafe extern "C" fn read(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: ours; the application's buffer has `count` entries.
    unsafe { readfrom(cq, buf, count, std::ptr::null_mut()) }
}

unsafe extern "C" fn readfrom(
    cq: *mut fid_cq,
    buf: *mut c_void,
    count: usize,
    sources: *mut fi_addr_t,
) -> isize {
    // SAFETY: ours.
    let cq = unsafe { object::of::<Cq>(cq) };
    guard(&cq.shared.health, || {
        // The engine's own yields are not suppressed.
        yields::poll_begins();
        // SAFETY: the application's buffers have `count` entries.
        let taken = unsafe { cq.take(buf, count, sources) };
        // The application has work, or is about to get some.
        yields::poll_ends(taken.is_ok() || cq.shared.engine.expects_more());
        taken
    })
}

unsafe extern "C" fn sread(
    cq: *mut fid_cq,
    buf: *mut c_void,
    count: usize,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: as `read`.
    unsafe { sreadfrom(cq, buf, count, std::ptr::null_mut(), cond, timeout) }
}

unsafe extern "C" fn sreadfrom(
    cq: *mut fid_cq,
    buf: *mut c_void,
    count: usize,
    sources: *mut fi_addr_t,
    _cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: ours.
    let cq = unsafe { object::of::<Cq>(cq) };
    // SAFETY: the application's buffers have `count` entries.
    guard(&cq.shared.health, || unsafe {
        cq.take_or_sleep(buf, count, sources, timeout)
    })
}

/// `fi_cq_readerr`: returns 1 and the entry, or `-FI_EAGAIN`.
unsafe extern "C" fn readerr(cq: *mut fid_cq, out: *mut fi_cq_err_entry, _flags: u64) -> isize {
    // SAFETY: ours.
    let cq = unsafe { object::of::<Cq>(cq) };
    guard(&cq.shared.health, || {
        if out.is_null() {
            return Err(Errno::INVAL);
        }
        let failed = cq.shared.engine.cq_take_error_from(cq.id);
        let (failed, stranger) = failed.ok_or(Errno::AGAIN)?;
        trace!("cq error {failed:?}");
        let errno = failed.error.map_or(Errno::OTHER, Errno::from);
        // SAFETY: the application's struct, in the layout of its API version; the last fields are
        // written only if that version has them.
        unsafe {
            (*out).op_context = failed.context as *mut c_void;
            (*out).flags = failed.flags;
            (*out).len = failed.len;
            (*out).buf = failed.buf.cast();
            (*out).data = failed.data;
            (*out).tag = failed.tag;
            (*out).olen = failed.olen;
            (*out).err = errno.0;
            (*out).prov_errno = errno.0;
            cq.put_err_data(stranger, out);
            if cq.shared.api_version >= fi_version_of(1, 20) {
                (*out).src_addr = failed.source;
            }
        }
        Ok(1)
    })
}

unsafe extern "C" fn signal(cq: *mut fid_cq) -> c_int {
    // SAFETY: ours.
    let cq = unsafe { object::of::<Cq>(cq) };
    cq.signalled.store(true, Ordering::Release);
    cq.bell.iter().for_each(|bell| bell.ring());
    0
}

unsafe extern "C" fn control(cq: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: ours, with libfabric's argument.
    unsafe { wait::control(object::of::<Cq>(cq.cast()).bell.as_deref(), command, arg) }
}

unsafe extern "C" fn strerror(
    _cq: *mut fid_cq,
    prov_errno: c_int,
    _err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    let text = Errno(prov_errno).text();
    if !buf.is_null() && len > 0 {
        // SAFETY: the application's buffer has `len` bytes.
        unsafe {
            libc::strncpy(buf, text.as_ptr(), len - 1);
            *buf.add(len - 1) = 0;
        }
    }
    text.as_ptr()
}
