//! `fid_av`: the address vector.

use crate::addresses::{self, Form, ADDRESS_LEN};
use crate::boundary::{guard, guard_free, Errno};
use crate::domain::{self, DomainShared};
use crate::log::{self, trace};
use crate::object::{self, absent, Object};
use crate::sys::*;
use marline_engine::AvId;
use std::ffi::{c_char, c_int, c_void, CStr};
use std::mem::size_of;
use std::sync::Arc;

#[repr(C)]
pub(crate) struct Av {
    fid: fid_av,
    shared: Arc<DomainShared>,
    pub id: AvId,
    /// Cloned by every endpoint bound to it, so that closing it too early is refused.
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

static OPS: fi_ops_av = fi_ops_av {
    size: size_of::<fi_ops_av>(),
    insert,
    insertsvc: no_names,
    insertsym: no_names,
    remove,
    lookup,
    straddr,
    av_set: absent,
    insert_auth_key: absent,
    lookup_auth_key: absent,
    set_user_id: absent,
    lookup2: absent,
};

/// `fi_av_insertsvc` and `fi_av_insertsym`: a node and a service name no endpoint.
unsafe extern "C" fn no_names() -> isize {
    guard_free(|| {
        log::warn(
            "addresses of Marline are not made of a node and a service: exchange what fi_getname \
             gives, and insert that with fi_av_insert",
        );
        Err(Errno::NOSYS)
    })
}

/// `fi_av_open`.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_av_attr,
    out: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    let make = |shared: &Arc<DomainShared>| {
        // SAFETY: checked for null.
        unsafe {
            if !(*attr).name.is_null() {
                return Err(Errno::NOSYS); // shared between processes
            }
            if (*attr).flags & (FI_EVENT | FI_AV_USER_ID) != 0 {
                return Err(Errno::NOSYS); // asynchronous insertion, the application's own numbers
            }
            // FI_READ belongs to a name; FI_SYMMETRIC is a hint.
            if (*attr).flags & !(FI_READ | FI_SYMMETRIC) != 0 {
                return Err(Errno::BADFLAGS);
            }
            match (*attr).type_ {
                FI_AV_UNSPEC => (*attr).type_ = FI_AV_TABLE,
                FI_AV_MAP | FI_AV_TABLE => {}
                _ => return Err(Errno::INVAL),
            }
        }
        // SAFETY: checked for null.
        let id = match unsafe { (*attr).type_ } {
            FI_AV_MAP => shared.engine.av_open_map(),
            _ => shared.engine.av_open(),
        };
        trace!("av open -> {id:?}");
        let fid = object::header::<Av>(context);
        Ok(Av {
            fid: fid_av { fid, ops: &OPS },
            shared: shared.clone(),
            id,
            users: Arc::new(()),
        })
    };
    // SAFETY: the domain is ours.
    unsafe { domain::open_in(domain, attr, out, make) }
}

/// `fi_av_insert`: at once, and returns how many went in.
unsafe extern "C" fn insert(
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
        if flags & !(FI_MORE | FI_SYNC_ERR) != 0 {
            return Err(Errno::BADFLAGS);
        }
        if count > 0 && addresses.is_null() {
            return Err(Errno::INVAL);
        }
        let errors: *mut c_int = if flags & FI_SYNC_ERR != 0 {
            context.cast()
        } else {
            std::ptr::null_mut()
        };
        let mut inserted = 0;
        for i in 0..count {
            // SAFETY: libfabric passes `count` addresses of the domain's form, and arrays of
            // `count` entries where they are not null.
            unsafe {
                let blob = av.shared.form.read(addresses, i);
                let engine = &av.shared.engine;
                let insert = |blob: [u8; ADDRESS_LEN]| Ok(engine.av_insert(av.id, &blob)?);
                let result: Result<_, Errno> = blob.and_then(insert);
                trace!("av insert -> {result:?}");
                inserted += c_int::from(result.is_ok());
                if !out.is_null() {
                    *out.add(i) = result.unwrap_or(FI_ADDR_UNSPEC);
                }
                if !errors.is_null() {
                    *errors.add(i) = result.err().map_or(0, |e| e.0);
                }
            }
        }
        Ok(inserted)
    })
}

unsafe extern "C" fn remove(
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

/// `fi_av_lookup`: as much as fits, and the whole length.
unsafe extern "C" fn lookup(
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

/// `fi_av_straddr`: the address as text, cut to the room there is.
unsafe extern "C" fn straddr(
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
            let text = match object::of::<Av>(av).shared.form {
                Form::Opaque => addresses::text_of(&*address.cast::<[u8; ADDRESS_LEN]>()),
                Form::Text => CStr::from_ptr(address.cast()).to_string_lossy().into(),
            };
            addresses::copy_text(&text, buf.cast(), len);
        }
        Ok(buf.cast_const())
    })
}
