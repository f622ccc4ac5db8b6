//! Functions for Marline's collectives library (`crates/collectives`) in the same process: access
//! to the multicast groups of the engine that the MPI opened.
//!
//! Functions return 0 or more, or a negative libfabric error number.

use crate::base::boundary::{guard_free, Errno};
use crate::objects::domain::{lock_open, DomainShared};
use marline_engine::{
    EpId, GroupEnd, GroupError, GroupId, GroupOpId, GroupSpec, MEMBER_DESCRIPTOR_LEN,
};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A group to open (see `GroupSpec`).
#[repr(C)]
pub struct GroupV1 {
    /// Random id.
    pub id: u64,
    /// Random token.
    pub token: u32,
    /// The local member's index.
    pub me: u32,
    /// Number of member descriptors at `descriptors`.
    pub members: u32,
    /// Zero.
    pub reserved: u32,
    /// The member descriptors, adjacent.
    pub descriptors: *const u8,
}

/// The function table. Functions may only be added at its end; any other change needs a new table.
#[repr(C)]
pub struct CollectivesV1 {
    /// Bytes of this table.
    pub size: u32,
    /// Bytes of a member descriptor.
    pub descriptor_len: u32,
    /// Writes the member descriptor of the process's endpoint.
    pub descriptor: unsafe extern "C" fn(descriptor: *mut u8) -> isize,
    /// Opens a group and returns its number.
    pub open: unsafe extern "C" fn(group: *const GroupV1) -> isize,
    /// Sends probes to the other members.
    pub probe: extern "C" fn(group: isize) -> isize,
    /// The networks on which all hosts were heard, as a bit mask.
    pub heard: extern "C" fn(group: isize) -> isize,
    /// Starts the group on these networks.
    pub start: extern "C" fn(group: isize, networks: u8) -> isize,
    /// Posts the next broadcast and returns its number.
    pub post: unsafe extern "C" fn(group: isize, root: u32, base: *mut c_void, len: usize) -> isize,
    /// State of a broadcast: 0 while incomplete; [`ENDED_WELL`] or a constant after it; or
    /// [`ENDED_DEAD`] plus the index of the dead member.
    pub test: extern "C" fn(group: isize, op: isize) -> isize,
    /// 1 if no broadcast is in progress.
    pub is_idle: extern "C" fn(group: isize) -> isize,
    /// Makes progress.
    pub progress: extern "C" fn() -> isize,
    /// Ends a group.
    pub close: extern "C" fn(group: isize) -> isize,
    /// Sleeps up to a millisecond, so that packets arrive together; returns 1. Returns 0 without a
    /// sleep if other processes would wait for this one.
    pub sleep_briefly: extern "C" fn() -> isize,
    /// Makes progress with one poll, without yielding the processor.
    pub look: extern "C" fn() -> isize,
    /// Yields the processor: 1 if another process ran.
    pub yield_cpu: extern "C" fn() -> isize,
    /// Bytes that roots may have in flight if receive buffers are small; otherwise 0.
    pub narrow: extern "C" fn(group: isize) -> isize,
}

/// The broadcast completed.
pub const ENDED_WELL: isize = 1;
/// Not done, because the network does not carry multicast.
pub const ENDED_NOT_CARRIED: isize = 2;
/// Root and receiver disagree about the length.
pub const ENDED_MISMATCH: isize = 3;
/// The group is closed.
pub const ENDED_CLOSED: isize = 4;
/// A member is dead.
pub const ENDED_DEAD: isize = 16;

/// See [`CollectivesV1`].
pub(crate) static COLLECTIVES: CollectivesV1 = CollectivesV1 {
    size: size_of::<CollectivesV1>() as u32,
    descriptor_len: MEMBER_DESCRIPTOR_LEN as u32,
    descriptor,
    open,
    probe,
    heard,
    start,
    post,
    test,
    is_idle,
    progress,
    close,
    sleep_briefly,
    look,
    yield_cpu,
    narrow,
};

/// The domain whose engine has the groups. The groups do not keep the domain open.
static USED: Mutex<Weak<DomainShared>> = Mutex::new(Weak::new());

fn used() -> Result<Arc<DomainShared>, Errno> {
    let used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    used.upgrade().ok_or(Errno::NODEV)
}

/// The domain in use, as long as it is open; otherwise the first domain with an endpoint.
fn find() -> Result<(Arc<DomainShared>, EpId), Errno> {
    let of = |shared: &Arc<DomainShared>| Some((shared.clone(), shared.engine.first_ep()?));
    if let Some(found) = used().ok().as_ref().and_then(of) {
        return Ok(found);
    }
    let found = lock_open().iter().find_map(of).ok_or(Errno::NODEV)?;
    *USED.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&found.0);
    Ok(found)
}

fn with_group(
    group: isize,
    call: impl FnOnce(&DomainShared, GroupId) -> Result<isize, GroupError>,
) -> isize {
    guard_free(|| {
        let group = GroupId(u32::try_from(group).map_err(|_| Errno::INVAL)?);
        Ok(call(&*used()?, group)?)
    })
}

impl From<GroupError> for Errno {
    fn from(e: GroupError) -> Errno {
        match e {
            GroupError::Invalid => Errno::INVAL,
            GroupError::NoNetwork => Errno::NODEV,
            GroupError::Unusable => Errno::OTHER,
        }
    }
}

unsafe extern "C" fn descriptor(descriptor: *mut u8) -> isize {
    guard_free(|| {
        let (shared, ep) = find()?;
        let bytes = shared.engine.member_descriptor(ep).ok_or(Errno::NODEV)?;
        // SAFETY: the caller has room for a member descriptor there.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), descriptor, bytes.len()) };
        Ok(0)
    })
}

unsafe extern "C" fn open(group: *const GroupV1) -> isize {
    guard_free(|| {
        let (shared, ep) = find()?;
        // SAFETY: the caller's struct, with `members` descriptors.
        let (group, descriptors) = unsafe {
            let group = group.as_ref().ok_or(Errno::INVAL)?;
            let len = group.members as usize * MEMBER_DESCRIPTOR_LEN;
            (group, std::slice::from_raw_parts(group.descriptors, len))
        };
        let descriptors: Vec<&[u8]> = descriptors.chunks(MEMBER_DESCRIPTOR_LEN).collect();
        let spec = GroupSpec {
            id: group.id,
            token: group.token,
            me: u16::try_from(group.me).map_err(|_| Errno::INVAL)?,
            descriptors: &descriptors,
        };
        Ok(shared.engine.group_open(ep, &spec)?.0 as isize)
    })
}

extern "C" fn probe(group: isize) -> isize {
    with_group(group, |shared, group| {
        shared.engine.group_probe(group)?;
        shared.engine.progress();
        Ok(0)
    })
}

extern "C" fn heard(group: isize) -> isize {
    with_group(group, |shared, group| {
        Ok(shared.engine.group_heard(group)? as isize)
    })
}

extern "C" fn start(group: isize, networks: u8) -> isize {
    with_group(group, |shared, group| {
        shared.engine.group_start(group, networks).map(|()| 0)
    })
}

unsafe extern "C" fn post(group: isize, root: u32, base: *mut c_void, len: usize) -> isize {
    with_group(group, |shared, group| {
        let root = u16::try_from(root).map_err(|_| GroupError::Invalid)?;
        let op = shared.engine.group_post(group, root, base.cast(), len)?;
        Ok(op.0 as isize)
    })
}

extern "C" fn test(group: isize, op: isize) -> isize {
    with_group(group, |shared, group| {
        let op = GroupOpId(u32::try_from(op).map_err(|_| GroupError::Invalid)?);
        Ok(match shared.engine.group_test(group, op) {
            None => 0,
            Some(GroupEnd::Well) => ENDED_WELL,
            Some(GroupEnd::NotCarried) => ENDED_NOT_CARRIED,
            Some(GroupEnd::Mismatch) => ENDED_MISMATCH,
            Some(GroupEnd::Closed) => ENDED_CLOSED,
            Some(GroupEnd::Dead(member)) => ENDED_DEAD + member as isize,
        })
    })
}

extern "C" fn is_idle(group: isize) -> isize {
    with_group(group, |shared, group| {
        Ok(shared.engine.group_is_idle(group) as isize)
    })
}

extern "C" fn progress() -> isize {
    guard_free(|| {
        used()?.engine.progress();
        Ok(0)
    })
}

extern "C" fn sleep_briefly() -> isize {
    guard_free(|| Ok(used()?.engine.sleep_briefly() as isize))
}

extern "C" fn look() -> isize {
    guard_free(|| {
        used()?.engine.look();
        Ok(0)
    })
}

extern "C" fn yield_cpu() -> isize {
    guard_free(|| Ok(used()?.engine.yield_cpu() as isize))
}

extern "C" fn narrow(group: isize) -> isize {
    with_group(group, |shared, group| {
        let bytes = shared.engine.group_narrow_window(group)?;
        Ok(bytes.map_or(0, |bytes| bytes as isize))
    })
}

extern "C" fn close(group: isize) -> isize {
    with_group(group, |shared, group| {
        shared.engine.group_close(group);
        Ok(0)
    })
}

/// The same types, as the collectives library defines them.
#[cfg(test)]
#[allow(dead_code, clippy::duplicate_mod)]
#[path = "../../collectives/src/provider.rs"]
mod other_side;

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// Asserts that both definitions of a type have the same layout, field by field.
    macro_rules! assert_alike {
        ($ours:ty, $theirs:ty, $($field:ident),*) => {
            assert_eq!(size_of::<$ours>(), size_of::<$theirs>());
            $(
                let name = stringify!($field);
                assert_eq!(offset_of!($ours, $field), offset_of!($theirs, $field), "{name}");
            )*
        };
    }

    #[test]
    fn the_library_of_collectives_reads_what_is_written_here() {
        assert_alike!(
            GroupV1,
            other_side::GroupV1,
            id,
            token,
            me,
            members,
            reserved,
            descriptors
        );
        assert_alike!(
            CollectivesV1,
            other_side::Provider,
            size,
            descriptor_len,
            descriptor,
            open,
            probe,
            heard,
            start,
            post,
            test,
            is_idle,
            progress,
            close,
            sleep_briefly,
            look,
            yield_cpu,
            narrow
        );
        type Api = other_side::ApiV1;
        assert_alike!(crate::MarlineApiV1, Api, version, size, collectives);
        let ends = [ENDED_WELL, ENDED_NOT_CARRIED, ENDED_MISMATCH, ENDED_DEAD];
        let theirs = [
            other_side::ENDED_WELL,
            other_side::ENDED_NOT_CARRIED,
            other_side::ENDED_MISMATCH,
            other_side::ENDED_DEAD,
        ];
        assert_eq!(ends, theirs);
    }
}
