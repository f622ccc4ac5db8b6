//! Endpoint calls that move no data: options, cancel, name.

use crate::abi::ep::*;
use crate::abi::*;
use crate::base::boundary::{guard, Errno};
use crate::base::log::trace;
use crate::base::object::absent;
use crate::info::hints::MESSAGE_LEN_MAX;
use crate::objects::ep::{ep_of, ep_of_mut};
use marline_engine::{atomic_max, AtomicKind};
use std::ffi::{c_int, c_void};
use std::mem::size_of;

pub(crate) static CM: fi_ops_cm = fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname: absent,
    getname,
    getpeer: absent,
    connect: absent,
    listen: absent,
    accept: absent,
    reject: absent,
    shutdown: absent,
    join: absent,
};

/// `fi_cancel`: returns 0, followed by an entry with FI_ECANCELED; or `-FI_ENOENT`.
pub(crate) unsafe extern "C" fn cancel(ep: *mut fid, context: *mut c_void) -> isize {
    // SAFETY: ours.
    let ep = unsafe { ep_of(ep.cast()) };
    guard(&ep.shared().health, || {
        let result = ep.engine().cancel(ep.id, context as usize);
        trace!("{:?} cancel {context:p} -> {result:?}", ep.id);
        result.map(|()| 0).map_err(Errno::from)
    })
}

/// `fi_getopt`: sizes in bytes.
pub(crate) unsafe extern "C" fn getopt(
    ep: *mut fid,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: ours.
    let ep = unsafe { ep_of(ep.cast()) };
    guard(&ep.shared().health, || {
        trace!("{:?} getopt {option}", ep.id);
        if level != FI_OPT_ENDPOINT || value.is_null() || len.is_null() {
            return Err(Errno::NOPROTOOPT);
        }
        let answer: usize = match option {
            FI_OPT_MIN_MULTI_RECV => ep.min_multi_recv,
            FI_OPT_CM_DATA_SIZE => 0,
            FI_OPT_MAX_MSG_SIZE | FI_OPT_MAX_TAGGED_SIZE | FI_OPT_MAX_RMA_SIZE => MESSAGE_LEN_MAX,
            FI_OPT_MAX_ATOMIC_SIZE => atomic_max(AtomicKind::Plain, 1),
            FI_OPT_INJECT_MSG_SIZE
            | FI_OPT_INJECT_TAGGED_SIZE
            | FI_OPT_INJECT_RMA_SIZE
            | FI_OPT_INJECT_ATOMIC_SIZE => crate::info::mpich::inject_max(),
            _ => return Err(Errno::NOPROTOOPT),
        };
        // SAFETY: checked for null; the length is checked before the value is written.
        unsafe {
            if *len < size_of::<usize>() {
                return Err(Errno::TOOSMALL);
            }
            value.cast::<usize>().write_unaligned(answer);
            *len = size_of::<usize>();
        }
        Ok(0)
    })
}

/// `fi_setopt`: the free space below which a multi-receive buffer is released, in bytes.
pub(crate) unsafe extern "C" fn setopt(
    ep: *mut fid,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: ours, and control calls run alone.
    let ep = unsafe { ep_of_mut(ep) };
    if level != FI_OPT_ENDPOINT || option != FI_OPT_MIN_MULTI_RECV {
        return -libc::ENOPROTOOPT;
    }
    if value.is_null() || len != size_of::<usize>() {
        return -libc::EINVAL;
    }
    // SAFETY: a size_t, checked.
    ep.min_multi_recv = unsafe { value.cast::<usize>().read_unaligned() };
    guard(&ep.shared().health, || {
        trace!("{:?} min_multi_recv {}", ep.id, ep.min_multi_recv);
        ep.engine().ep_set_min_multi_recv(ep.id, ep.min_multi_recv);
        Ok(0)
    })
}

/// `fi_getname`: writes the truncated name and its full length, and answers `-FI_ETOOSMALL` if the
/// buffer was too short (Open MPI 5 first calls without a buffer).
unsafe extern "C" fn getname(ep: *mut fid, out: *mut c_void, out_len: *mut usize) -> c_int {
    // SAFETY: ours.
    let ep = unsafe { ep_of(ep.cast()) };
    guard(&ep.shared().health, || {
        if out_len.is_null() {
            return Err(Errno::INVAL);
        }
        let (name, len) = ep.engine().ep_name(ep.id).ok_or(Errno::OTHER)?;
        trace!("{:?} getname, a blob of {len} bytes", ep.id);
        // SAFETY: `out` has `*out_len` bytes.
        if unsafe { ep.shared().form.write(&name, out, out_len) } {
            Ok(0)
        } else {
            Err(Errno::TOOSMALL)
        }
    })
}
