//! Reads `fi_info` hints and builds the `fi_info` of the reply.

use crate::abi::*;
use crate::addresses::{Form, ADDRESS_LEN};
use crate::base::boundary::Errno;
use crate::base::{about, settings};
use crate::info::addrs::Ends;
use crate::info::hints::{
    err_data_max, Grant, Side, Wanted, CQ_DATA_SIZE, DOMAIN_CAPS, MESSAGE_LEN_MAX, MR_IOV_LIMIT,
    OBJECTS, PROTOCOL, PROTOCOL_VERSION,
};
use crate::info::{mpich, nic};
use std::ffi::{c_char, c_void, CStr, CString};

/// Reads hints. Only fields present in every libfabric version are read: the running library
/// allocates the structs, which may end after those fields.
///
/// # Safety
/// `hints` is null or valid.
pub(crate) unsafe fn read_hints(version: u32, hints: *const fi_info) -> Wanted {
    let mut wanted = Wanted {
        version,
        inject_max: mpich::inject_max(),
        remote: settings::offers_remote(),
        ..Wanted::default()
    };
    // SAFETY: null or valid, here and for the attribute structs below.
    let Some(hints) = (unsafe { hints.as_ref() }) else {
        return wanted;
    };
    wanted.caps = hints.caps;
    wanted.addr_format = hints.addr_format;
    // SAFETY: as above.
    unsafe {
        if let Some(tx) = hints.tx_attr.as_ref() {
            wanted.tx = Side {
                caps: tx.caps,
                op_flags: tx.op_flags,
                msg_order: tx.msg_order,
                comp_order: tx.comp_order,
                size: tx.size,
                iov_limit: tx.iov_limit,
                inject_size: tx.inject_size,
                rma_iov_limit: tx.rma_iov_limit,
                buffered: 0,
            };
        }
        if let Some(rx) = hints.rx_attr.as_ref() {
            wanted.rx = Side {
                caps: rx.caps,
                op_flags: rx.op_flags,
                msg_order: rx.msg_order,
                comp_order: rx.comp_order,
                size: rx.size,
                iov_limit: rx.iov_limit,
                inject_size: 0,
                rma_iov_limit: 0,
                buffered: rx.total_buffered_recv,
            };
        }
        read_ep(&mut wanted, hints.ep_attr);
        read_domain(&mut wanted, hints.domain_attr);
        if let Some(fabric) = hints.fabric_attr.as_ref() {
            wanted.foreign_name |= foreign(fabric.name);
        }
    }
    wanted
}

/// # Safety
/// `attr` is null or valid up to the fields of libfabric 1.17.
unsafe fn read_ep(wanted: &mut Wanted, attr: *const fi_ep_attr) {
    if attr.is_null() {
        return;
    }
    // SAFETY: field by field, as the struct may be shorter than ours.
    unsafe {
        wanted.ep_type = (*attr).type_;
        wanted.protocol = (*attr).protocol;
        wanted.protocol_version = (*attr).protocol_version;
        wanted.max_msg_size = (*attr).max_msg_size;
        wanted.ctx_cnt = (*attr).tx_ctx_cnt.max((*attr).rx_ctx_cnt);
        wanted.auth_key = (*attr).auth_key_size != 0;
    }
}

/// # Safety
/// `attr` is null or valid up to the fields of libfabric 1.17.
unsafe fn read_domain(wanted: &mut Wanted, attr: *const fi_domain_attr) {
    if attr.is_null() {
        return;
    }
    // SAFETY: as in `read_ep`.
    unsafe {
        wanted.domain_caps = (*attr).caps;
        wanted.threading = (*attr).threading;
        wanted.control_progress = (*attr).control_progress;
        wanted.data_progress = (*attr).data_progress;
        wanted.av_type = (*attr).av_type;
        wanted.mr_mode = (*attr).mr_mode;
        wanted.mr_key_size = (*attr).mr_key_size;
        wanted.cq_data_size = (*attr).cq_data_size;
        wanted.max_ctx_cnt = (*attr).max_ep_tx_ctx.max((*attr).max_ep_rx_ctx);
        wanted.max_shared_cnt = (*attr).max_ep_stx_ctx.max((*attr).max_ep_srx_ctx);
        let contexts = (*attr).tx_ctx_cnt.max((*attr).rx_ctx_cnt);
        let queues = (*attr).cq_cnt.max((*attr).cntr_cnt);
        let others = (*attr).ep_cnt.max((*attr).mr_cnt);
        wanted.objects = contexts.max(queues).max(others);
        wanted.mr_iov_limit = (*attr).mr_iov_limit;
        wanted.max_err_data = (*attr).max_err_data;
        wanted.auth_key |= (*attr).auth_key_size != 0;
    }
}

/// # Safety
/// `name` is null or a C string.
unsafe fn foreign(name: *const c_char) -> bool {
    // SAFETY: checked for null.
    !name.is_null()
        && !unsafe { CStr::from_ptr(name) }
            .to_bytes()
            .eq_ignore_ascii_case(about::NAME.to_bytes())
}

/// The open domain in the hints (Open MPI 5), if it is one of ours; returned unchanged.
///
/// # Safety
/// `hints` is null or valid.
pub(crate) unsafe fn own_domain(
    hints: *const fi_info,
    ours: *const fi_ops_domain,
) -> *mut fid_domain {
    let none = std::ptr::null_mut();
    // SAFETY: null or valid all the way down.
    unsafe {
        let Some(hints) = hints.as_ref() else {
            return none;
        };
        if hints.domain_attr.is_null() {
            return none;
        }
        let domain = (*hints.domain_attr).domain;
        if domain.is_null() || (*domain).ops != ours {
            return none;
        }
        domain
    }
}

/// Zeroed memory that libfabric frees with `free()`.
fn zeroed<T>() -> Result<*mut T, Errno> {
    // SAFETY: calloc may be called with any size.
    let memory: *mut T = unsafe { libc::calloc(1, std::mem::size_of::<T>()) }.cast();
    if memory.is_null() {
        return Err(Errno::NOMEM);
    }
    Ok(memory)
}

fn own_name() -> Result<*mut c_char, Errno> {
    copied(about::NAME)
}

fn copied(name: &CStr) -> Result<*mut c_char, Errno> {
    // SAFETY: a C string.
    let copy = unsafe { libc::strdup(name.as_ptr()) };
    if copy.is_null() {
        return Err(Errno::NOMEM);
    }
    Ok(copy)
}

/// Builds the reply. Running out of memory leaks the parts already built; the job cannot go on
/// anyway.
pub(crate) fn build(
    grant: &Grant,
    ends: &Ends,
    domain: *mut fid_domain,
) -> Result<*mut fi_info, Errno> {
    let info: *mut fi_info = zeroed()?;
    let (tx, rx, ep) = (tx_attr(&grant.tx)?, rx_attr(&grant.rx)?, ep_attr(grant)?);
    let (domain_attr, fabric_attr) = (domain_attr(grant, ends, domain)?, fabric_attr()?);
    // SAFETY: fresh, zeroed memory of the right type. Mode stays zero.
    unsafe {
        (*info).caps = grant.caps;
        (*info).addr_format = grant.addr_format;
        ((*info).src_addr, (*info).src_addrlen) = address(grant, ends.src.as_ref())?;
        ((*info).dest_addr, (*info).dest_addrlen) = address(grant, ends.dest.as_ref())?;
        (*info).nic = nic::of_rail(ends.nic_rail.as_ref());
        (*info).tx_attr = tx;
        (*info).rx_attr = rx;
        (*info).ep_attr = ep;
        (*info).domain_attr = domain_attr;
        (*info).fabric_attr = fabric_attr;
    }
    Ok(info)
}

/// A copy of an address in allocated memory, and its length in bytes.
fn address(grant: &Grant, blob: Option<&[u8; ADDRESS_LEN]>) -> Result<(*mut c_void, usize), Errno> {
    let Some(blob) = blob else {
        return Ok((std::ptr::null_mut(), 0));
    };
    let bytes = Form::of(grant.addr_format).unwrap_or_default().bytes(blob);
    // SAFETY: malloc may be called with any size.
    let memory = unsafe { libc::malloc(bytes.len()) };
    if memory.is_null() {
        return Err(Errno::NOMEM);
    }
    // SAFETY: fresh memory of this size.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.cast(), bytes.len()) };
    Ok((memory, bytes.len()))
}

fn tx_attr(side: &Side) -> Result<*mut fi_tx_attr, Errno> {
    let attr: *mut fi_tx_attr = zeroed()?;
    // SAFETY: fresh memory.
    unsafe {
        (*attr).caps = side.caps;
        (*attr).op_flags = side.op_flags;
        (*attr).msg_order = side.msg_order;
        (*attr).inject_size = side.inject_size;
        (*attr).size = side.size;
        (*attr).iov_limit = side.iov_limit;
        (*attr).rma_iov_limit = side.rma_iov_limit;
    }
    Ok(attr)
}

fn rx_attr(side: &Side) -> Result<*mut fi_rx_attr, Errno> {
    let attr: *mut fi_rx_attr = zeroed()?;
    // SAFETY: fresh memory.
    unsafe {
        (*attr).caps = side.caps;
        (*attr).op_flags = side.op_flags;
        (*attr).msg_order = side.msg_order;
        (*attr).size = side.size;
        (*attr).iov_limit = side.iov_limit;
    }
    Ok(attr)
}

/// Bytes up to which an atomic operation is faster than the messages that MPICH uses instead
/// (docs/design/one-sided.md).
const ORDERED: usize = 8 << 10;

fn ep_attr(grant: &Grant) -> Result<*mut fi_ep_attr, Errno> {
    let attr: *mut fi_ep_attr = zeroed()?;
    // All atomics are ordered. For longer ordered operations MPICH uses messages.
    let ordered = match grant.tx.msg_order & FI_ORDER_ATOMIC_ALL {
        0 => 0,
        _ => ORDERED,
    };
    // SAFETY: fresh memory.
    unsafe {
        (*attr).type_ = FI_EP_RDM;
        (*attr).protocol = PROTOCOL;
        (*attr).protocol_version = PROTOCOL_VERSION;
        (*attr).max_msg_size = MESSAGE_LEN_MAX;
        (*attr).mem_tag_format = FI_TAG_GENERIC;
        (*attr).max_order_raw_size = ordered;
        (*attr).max_order_war_size = ordered;
        (*attr).max_order_waw_size = ordered;
        (*attr).tx_ctx_cnt = 1;
        (*attr).rx_ctx_cnt = 1;
    }
    Ok(attr)
}

fn domain_attr(
    grant: &Grant,
    ends: &Ends,
    domain: *mut fid_domain,
) -> Result<*mut fi_domain_attr, Errno> {
    let attr: *mut fi_domain_attr = zeroed()?;
    // SAFETY: fresh memory; large enough for every libfabric, so newer fields may be set.
    unsafe {
        (*attr).domain = domain;
        (*attr).name = match CString::new(&*ends.domain) {
            Ok(name) if !name.is_empty() => copied(&name)?,
            _ => own_name()?,
        };
        (*attr).threading = grant.threading;
        (*attr).control_progress = grant.control_progress;
        (*attr).data_progress = grant.data_progress;
        (*attr).resource_mgmt = FI_RM_ENABLED;
        (*attr).av_type = grant.av_type;
        (*attr).mr_mode = grant.mr_mode;
        (*attr).mr_key_size = 8;
        (*attr).cq_data_size = CQ_DATA_SIZE;
        (*attr).cq_cnt = OBJECTS;
        (*attr).ep_cnt = OBJECTS;
        (*attr).tx_ctx_cnt = OBJECTS;
        (*attr).rx_ctx_cnt = OBJECTS;
        // A single context per endpoint keeps scalable endpoints off in every MPI.
        (*attr).max_ep_tx_ctx = 1;
        (*attr).max_ep_rx_ctx = 1;
        (*attr).cntr_cnt = OBJECTS;
        (*attr).mr_iov_limit = MR_IOV_LIMIT;
        (*attr).caps = DOMAIN_CAPS;
        (*attr).max_err_data = err_data_max(grant.caps);
        (*attr).mr_cnt = OBJECTS;
        (*attr).max_cntr_value = u64::MAX;
        (*attr).max_err_cntr_value = u64::MAX;
    }
    Ok(attr)
}

fn fabric_attr() -> Result<*mut fi_fabric_attr, Errno> {
    let attr: *mut fi_fabric_attr = zeroed()?;
    // SAFETY: fresh memory. prov_name stays null: libfabric's core fills it in.
    unsafe {
        (*attr).name = own_name()?;
        (*attr).prov_version = about::VERSION;
    }
    Ok(attr)
}
