//! `fid_mr`: memory that peers may read or write. Callers choose keys and address by offset, unless
//! an old application requested `FI_MR_BASIC`.

use crate::abi::*;
use crate::base::boundary::{guard, Errno};
use crate::base::log::trace;
use crate::base::object::{self, Object};
use crate::info::hints::MR_IOV_LIMIT;
use crate::objects::domain::{self, DomainShared};
use crate::queues::cntr;
use marline_engine::{IoVec, SubmitError};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

#[repr(C)]
struct Mr {
    fid: fid_mr,
    shared: Arc<DomainShared>,
    /// Shares of the bound counters, which keep the counters from being closed.
    users: Vec<Arc<()>>,
}

// SAFETY: `#[repr(C)]`, and fid_mr begins with a fid.
unsafe impl Object for Mr {
    type Fid = fid_mr;
    const CLASS: usize = FI_CLASS_MR;
    const FID_OPS: &'static fi_ops = &fi_ops {
        bind,
        control,
        ..object::only_close::<Mr>()
    };
}

impl Drop for Mr {
    fn drop(&mut self) {
        trace!("mr key {:#x} closes", self.fid.key);
        self.shared.engine.mr_close(self.fid.key);
    }
}

/// A region to register.
struct Region<'a> {
    iov: &'a [libc::iovec],
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    context: *mut c_void,
}

/// The pieces and their total length; refuses none and more than [`MR_IOV_LIMIT`].
fn pieces_of(iov: &[libc::iovec]) -> Result<([IoVec; MR_IOV_LIMIT], usize), Errno> {
    let none = IoVec {
        base: std::ptr::null_mut(),
        len: 0,
    };
    let (mut pieces, mut len) = ([none; MR_IOV_LIMIT], 0usize);
    if iov.is_empty() || iov.len() > MR_IOV_LIMIT {
        return Err(Errno::INVAL);
    }
    for (piece, from) in pieces.iter_mut().zip(iov) {
        *piece = IoVec {
            base: from.iov_base.cast(),
            len: from.iov_len,
        };
        len = len.checked_add(from.iov_len).ok_or(Errno::INVAL)?;
    }
    Ok((pieces, len))
}

fn register(
    shared: &Arc<DomainShared>,
    region: &Region<'_>,
    out: *mut *mut fid_mr,
) -> Result<c_int, Errno> {
    if out.is_null() {
        return Err(Errno::INVAL);
    }
    if region.flags & FI_MR_DMABUF != 0 {
        return Err(Errno::NOSYS);
    }
    // (A region with a counter is usable at once, like any other, without FI_ENABLE.)
    if region.flags & !(FI_MORE | FI_RMA_EVENT) != 0 {
        return Err(Errno::BADFLAGS);
    }
    if region.offset != 0 {
        return Err(Errno::INVAL); // reserved
    }
    let virt_addr = shared.mr_mode & (FI_MR_BASIC | FI_MR_VIRT_ADDR) != 0;
    let own_keys = shared.mr_mode & (FI_MR_BASIC | FI_MR_PROV_KEY) != 0;
    let key = match own_keys {
        true => shared.keys.next(),
        false => region.requested_key,
    };
    let (pieces, len) = pieces_of(region.iov)?;
    let pieces = &pieces[..region.iov.len()];
    let opened = marline_engine::Region {
        key,
        base: pieces[0].base,
        len,
        virt_addr,
        readable: region.access & FI_REMOTE_READ != 0,
        writable: region.access & FI_REMOTE_WRITE != 0,
    };
    let result = shared.engine.mr_open_pieces(&opened, pieces);
    trace!("mr {pieces:x?} key {key:#x} -> {result:?}");
    result.map_err(|e| match e {
        SubmitError::Invalid => Errno::NOKEY, // in use
        other => other.into(),
    })?;
    let mr = Mr {
        fid: fid_mr {
            fid: object::header::<Mr>(region.context),
            mem_desc: std::ptr::null_mut(),
            key,
        },
        shared: shared.clone(),
        users: Vec::new(),
    };
    // SAFETY: checked for null.
    unsafe { object::give(mr, out) };
    Ok(0)
}

/// `fi_mr_reg`.
pub(crate) unsafe extern "C" fn reg(
    domain: *mut fid,
    buf: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    out: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    let iov = libc::iovec {
        iov_base: buf.cast_mut(),
        iov_len: len,
    };
    // SAFETY: as libfabric calls it, with one entry on the stack.
    unsafe {
        regv(
            domain,
            &iov,
            1,
            access,
            offset,
            requested_key,
            flags,
            out,
            context,
        )
    }
}

/// `fi_mr_regv`.
pub(crate) unsafe extern "C" fn regv(
    domain: *mut fid,
    iov: *const libc::iovec,
    count: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    out: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    if count == 0 || count > MR_IOV_LIMIT || iov.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: the domain is ours, and `iov` has `count` entries.
    let (shared, iov) = unsafe {
        let iov = std::slice::from_raw_parts(iov, count);
        (domain::of(domain.cast()), iov)
    };
    guard(&shared.health, || {
        register(
            shared,
            &Region {
                iov,
                access,
                offset,
                requested_key,
                flags,
                context,
            },
            out,
        )
    })
}

/// `fi_mr_regattr`.
pub(crate) unsafe extern "C" fn regattr(
    domain: *mut fid,
    attr: *const fi_mr_attr,
    flags: u64,
    out: *mut *mut fid_mr,
) -> c_int {
    if attr.is_null() {
        return -libc::EINVAL;
    }
    if flags & FI_MR_DMABUF != 0 {
        return -libc::ENOSYS; // no iovec
    }
    // SAFETY: the domain is ours; `attr` is not null, and fields that later versions added are read
    // only if the caller's version has them.
    unsafe {
        let (api, a) = (domain::of(domain.cast()).api_version, attr);
        if api >= fi_version_of(1, 5) && (*a).auth_key_size != 0 {
            return -libc::ENOSYS;
        }
        if api >= fi_version_of(1, 9) && (*a).iface != FI_HMEM_SYSTEM {
            return -libc::ENOSYS; // memory of a device
        }
        let a = &*attr.cast::<fi_mr_attr_basic>();
        let (iov, count, key) = (a.mr_iov, a.iov_count, a.requested_key);
        regv(
            domain, iov, count, a.access, a.offset, key, flags, out, a.context,
        )
    }
}

/// `fi_mr_bind`: binds a counter of remote accesses to the region.
unsafe extern "C" fn bind(mr: *mut fid, object: *mut fid, flags: u64) -> c_int {
    // SAFETY: ours, and control calls run alone.
    let mr = unsafe { &mut *mr.cast::<Mr>() };
    let shared = mr.shared.clone();
    guard(&shared.health, || {
        // SAFETY: checked for null; an object of our domain, whose class says which.
        if object.is_null() || unsafe { (*object).fclass } != FI_CLASS_CNTR {
            return Err(Errno::INVAL);
        }
        if flags == 0 || flags & !(FI_REMOTE_READ | FI_REMOTE_WRITE) != 0 {
            return Err(Errno::BADFLAGS);
        }
        // SAFETY: the class says so.
        let counter = unsafe { &*object.cast::<cntr::Cntr>() };
        let counts = [FI_REMOTE_READ, FI_REMOTE_WRITE].map(|flag| flags & flag != 0);
        (shared.engine).mr_bind_counter(mr.fid.key, counts, &counter.counter)?;
        mr.users.push(counter.users.clone());
        Ok(0)
    })
}

/// FI_ENABLE: a region is usable since its registration.
unsafe extern "C" fn control(_: *mut fid, command: c_int, _: *mut c_void) -> c_int {
    if command == FI_ENABLE {
        0
    } else {
        -libc::ENOSYS
    }
}
