//! `fi_trywait`, which precedes sleeping on wait descriptors, and poll sets.

use crate::abi::*;
use crate::base::boundary::{guard, guard_free, Errno};
use crate::base::log::trace;
use crate::base::object::{self, Object};
use crate::objects::domain::{self, DomainShared};
use crate::queues::cntr::Cntr;
use crate::queues::cq::Cq;
use crate::queues::eq::Eq;
use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::sync::{Arc, Mutex, PoisonError};

/// True if a queue or counter has news; otherwise arms its bell for the next event.
///
/// # Safety
///
/// The handle is open, and ours.
unsafe fn is_ready(fid: *mut fid) -> Result<bool, Errno> {
    // SAFETY: the class says what it is.
    unsafe {
        match (*fid).fclass {
            FI_CLASS_CQ => Ok(object::of::<Cq>(fid.cast()).is_ready()),
            FI_CLASS_CNTR => Ok(object::of::<Cntr>(fid.cast()).is_ready()),
            FI_CLASS_EQ => Ok(object::of::<Eq>(fid.cast()).is_ready()),
            _ => Err(Errno::INVAL),
        }
    }
}

/// Hands progress to the progress thread before the application sleeps on this object.
///
/// # Safety
/// The conditions of [`is_ready`] hold.
unsafe fn leave(fid: *mut fid) {
    // SAFETY: the class says what it is.
    unsafe {
        match (*fid).fclass {
            FI_CLASS_CQ => object::of::<Cq>(fid.cast()).leave(),
            FI_CLASS_CNTR => object::of::<Cntr>(fid.cast()).leave(),
            _ => {}
        }
    }
}

/// `fi_trywait`: 0 if the application may sleep on the descriptors, whose next event raises them;
/// `-FI_EAGAIN` if an object already has news.
pub(crate) unsafe extern "C" fn trywait(
    _: *mut fid_fabric,
    fids: *mut *mut fid,
    count: c_int,
) -> c_int {
    guard_free(|| {
        let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
        if fids.is_null() && count > 0 {
            return Err(Errno::INVAL);
        }
        for i in 0..count {
            // SAFETY: the application passes `count` handles.
            if unsafe { is_ready(*fids.add(i))? } {
                return Err(Errno::AGAIN);
            }
        }
        for i in 0..count {
            // SAFETY: as above.
            unsafe { leave(*fids.add(i)) };
        }
        Ok(0)
    })
}

/// A poll set: queues and counters that one call checks.
#[repr(C)]
struct Poll {
    fid: fid_poll,
    shared: Arc<DomainShared>,
    members: Mutex<Vec<Member>>,
}

/// A member of a poll set; the set's share keeps the object from being closed.
struct Member {
    /// The handle, as an address.
    fid: usize,
    _used: Arc<()>,
}

/// The use count of a queue or counter; `None` for objects that a poll set cannot contain.
///
/// # Safety
/// The conditions of [`is_ready`] hold.
unsafe fn users(fid: *mut fid) -> Option<Arc<()>> {
    // SAFETY: the class says what it is.
    unsafe {
        match (*fid).fclass {
            FI_CLASS_CQ => Some(object::of::<Cq>(fid.cast()).users.clone()),
            FI_CLASS_CNTR => Some(object::of::<Cntr>(fid.cast()).users.clone()),
            _ => None,
        }
    }
}

// SAFETY: `#[repr(C)]`, and fid_poll begins with a fid.
unsafe impl Object for Poll {
    type Fid = fid_poll;
    const CLASS: usize = FI_CLASS_POLL;
}

static OPS: fi_ops_poll = fi_ops_poll {
    size: size_of::<fi_ops_poll>(),
    poll,
    poll_add,
    poll_del,
};

/// `fi_poll_open`.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_poll_attr,
    out: *mut *mut fid_poll,
) -> c_int {
    let make = |shared: &Arc<DomainShared>| {
        // SAFETY: checked for null.
        if unsafe { (*attr).flags } != 0 {
            return Err(Errno::BADFLAGS);
        }
        trace!("poll set open");
        let fid = object::header::<Poll>(std::ptr::null_mut());
        Ok(Poll {
            fid: fid_poll { fid, ops: &OPS },
            shared: shared.clone(),
            members: Mutex::default(),
        })
    };
    // SAFETY: the domain is ours.
    unsafe { domain::open_in(domain, attr, out, make) }
}

/// `fi_poll`: the contexts of members with something to read, up to `count`.
unsafe extern "C" fn poll(set: *mut fid_poll, contexts: *mut *mut c_void, count: c_int) -> c_int {
    // SAFETY: ours.
    let set = unsafe { object::of::<Poll>(set) };
    guard(&set.shared.health, || {
        let members = set.members.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = 0;
        for member in members.iter() {
            let fid = member.fid as *mut fid;
            // SAFETY: members are open until they are taken out, and the application has room for
            // `count` contexts.
            unsafe {
                if found < count && is_ready(fid)? {
                    *contexts.add(found as usize) = (*fid).context;
                    found += 1;
                }
            }
        }
        Ok(found)
    })
}

unsafe extern "C" fn poll_add(set: *mut fid_poll, member: *mut fid, flags: u64) -> c_int {
    // SAFETY: ours.
    let set = unsafe { object::of::<Poll>(set) };
    guard_free(|| {
        // SAFETY: an open handle.
        let used = unsafe { users(member) }.filter(|_| flags == 0);
        let used = used.ok_or(Errno::INVAL)?;
        let mut members = set.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.push(Member {
            fid: member as usize,
            _used: used,
        });
        Ok(0)
    })
}

unsafe extern "C" fn poll_del(set: *mut fid_poll, member: *mut fid, flags: u64) -> c_int {
    // SAFETY: ours.
    let set = unsafe { object::of::<Poll>(set) };
    guard_free(|| {
        let mut members = set.members.lock().unwrap_or_else(PoisonError::into_inner);
        let at = members.iter().position(|m| m.fid == member as usize);
        let at = at.filter(|_| flags == 0).ok_or(Errno::INVAL)?;
        members.remove(at);
        Ok(0)
    })
}
