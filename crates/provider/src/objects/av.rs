//! `fid_av`: the address vector.

use crate::abi::*;
use crate::addresses::{self, ADDRESS_LEN};
use crate::base::boundary::{guard, guard_free, Errno};
use crate::base::log::trace;
use crate::base::object::{self, Object};
use crate::objects::domain::DomainShared;
use marline_engine::AvId;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

#[repr(C)]
pub(crate) struct Av {
    pub fid: fid_av,
    pub shared: Arc<DomainShared>,
    pub id: AvId,
    /// Every bound endpoint holds a clone: closing a vector in use is refused.
    pub users: Arc<()>,
}

// SAFETY: `#[repr(C)]`, and fid_av begins with a fid.
unsafe impl Object for Av {
    type Fid = fid_av;
    const CLASS: usize = FI_CLASS_AV;

    fn in_use(&self) -> bool {
        Arc::strong_count(&self.users) > 1
    }
}

impl Drop for Av {
    fn drop(&mut self) {
        self.shared.engine.av_close(self.id);
    }
}

/// `fi_av_insert`: synchronous; returns the number of addresses inserted.
pub(crate) unsafe extern "C" fn insert(
    av: *mut fid_av,
    addresses: *const c_void,
    count: usize,
    out: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: ours.
    let av = unsafe { object::of::<Av>(av) };
    guard(&av.shared.health, || {
        if count > 0 && addresses.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: libfabric passes `count` addresses of the domain's form, and arrays of `count`
        // entries where they are not null.
        unsafe {
            av.add(count, out, flags, context, |i| {
                av.shared.form.read(addresses, i)
            })
        }
    })
}

impl Av {
    /// Inserts `count` addresses, obtained from `blob` by index; returns the number inserted.
    ///
    /// # Safety
    /// `out` is null or has `count` entries, and so has `context` with FI_SYNC_ERR.
    pub(crate) unsafe fn add(
        &self,
        count: usize,
        out: *mut fi_addr_t,
        flags: u64,
        context: *mut c_void,
        blob: impl Fn(usize) -> Result<[u8; ADDRESS_LEN], Errno>,
    ) -> Result<c_int, Errno> {
        if flags & !(FI_MORE | FI_SYNC_ERR | FI_NUMERICHOST) != 0 {
            return Err(Errno::BADFLAGS);
        }
        let errors: *mut c_int = if flags & FI_SYNC_ERR != 0 {
            context.cast()
        } else {
            std::ptr::null_mut()
        };
        let engine = &self.shared.engine;
        let insert = |blob: [u8; ADDRESS_LEN]| Ok(engine.av_insert(self.id, &blob)?);
        let mut inserted = 0;
        for i in 0..count {
            let result: Result<_, Errno> = blob(i).and_then(addresses::whole).and_then(insert);
            trace!("av insert -> {result:?}");
            inserted += c_int::from(result.is_ok());
            // SAFETY: the caller's promise.
            unsafe {
                if !out.is_null() {
                    *out.add(i) = result.unwrap_or(FI_ADDR_UNSPEC);
                }
                if !errors.is_null() {
                    *errors.add(i) = result.err().map_or(0, |e| e.0);
                }
            }
        }
        Ok(inserted)
    }
}

pub(crate) unsafe extern "C" fn remove(
    av: *mut fid_av,
    addresses: *mut fi_addr_t,
    count: usize,
    _flags: u64,
) -> c_int {
    // SAFETY: ours.
    let av = unsafe { object::of::<Av>(av) };
    guard(&av.shared.health, || {
        if count > 0 && addresses.is_null() {
            return Err(Errno::INVAL);
        }
        for i in 0..count {
            // SAFETY: an array of `count` entries.
            let address = unsafe { *addresses.add(i) };
            av.shared.engine.av_remove(av.id, address)?;
        }
        Ok(0)
    })
}

/// `fi_av_lookup`: the address, truncated to the buffer, and its full length.
pub(crate) unsafe extern "C" fn lookup(
    av: *mut fid_av,
    address: fi_addr_t,
    out: *mut c_void,
    out_len: *mut usize,
) -> c_int {
    // SAFETY: ours.
    let av = unsafe { object::of::<Av>(av) };
    guard(&av.shared.health, || {
        if out_len.is_null() {
            return Err(Errno::INVAL);
        }
        let (blob, _) = av
            .shared
            .engine
            .av_lookup(av.id, address)
            .ok_or(Errno::INVAL)?;
        // SAFETY: `out` has `*out_len` bytes.
        unsafe { av.shared.form.write(&blob, out, out_len) };
        Ok(0)
    })
}

/// `fi_av_straddr`: the address as text, truncated to the buffer.
pub(crate) unsafe extern "C" fn straddr(
    av: *mut fid_av,
    address: *const c_void,
    buf: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    guard_free(|| {
        if address.is_null() || len.is_null() {
            return Ok(c"".as_ptr());
        }
        // SAFETY: ours, an address of its form, and a buffer of `*len` bytes.
        unsafe {
            let text = object::of::<Av>(av).shared.form.text(address);
            addresses::copy_text(&text, buf.cast(), len);
        }
        Ok(buf.cast_const())
    })
}
