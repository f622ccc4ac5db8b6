//! Decides which attributes to grant for an application's `fi_info` hints, on plain values.

use crate::abi::*;
use crate::addresses::{Form, ADDRESS_LEN};
use std::ffi::c_int;

/// The number of Marline's wire protocol: "ML", above the numbers that libfabric assigns. The top
/// bit, the mark of provider-specific numbers (FI_PROV_SPECIFIC), is clear: callers store the
/// protocol in an `int` and treat negative numbers as protocols unknown to their libfabric.
pub(crate) const PROTOCOL: u32 = 0x4d4c_0000;
const _: () = assert!(PROTOCOL >> 31 == 0);
pub(crate) const PROTOCOL_VERSION: u32 = 1;

/// iovec entries per message by default. MPIs request 4 and use 3; libfabric's own tools assume the
/// 4 or 5 of other providers and split their test sizes accordingly.
pub(crate) const IOV_LIMIT: usize = 4;
/// iovec entries accepted, and granted on request. Intel MPI assumes the local limit of a remote
/// write to equal the limit for the peer's memory.
pub(crate) const IOV_TAKEN: usize = RMA_IOV_LIMIT;
/// Segments of remote memory per read or write.
pub(crate) const RMA_IOV_LIMIT: usize = marline_engine::REMOTE_PIECES_MAX;
/// Segments per registered region.
pub(crate) const MR_IOV_LIMIT: usize = 8;
/// Advertised number of objects of each kind; no table has this size.
pub(crate) const OBJECTS: usize = 1 << 15;
/// Far above any message. With a small value MPICH switches to fi_read rendezvous and hangs.
pub(crate) const MESSAGE_LEN_MAX: usize = 1 << 46;
/// With 8, MPICH would store sizes in the upper half of the CQ data.
pub(crate) const CQ_DATA_SIZE: usize = 4;
/// Advertised queue size. The engine itself answers EAGAIN when full.
const QUEUE_SIZE: usize = 1024;
const QUEUE_SIZE_MAX: usize = 1 << 16;

const PRIMARY: u64 = FI_MSG | FI_TAGGED;
const DIRECTIONS: u64 = FI_SEND | FI_RECV;
/// Capabilities for remote memory, if the settings enable them.
const REMOTE: u64 = FI_RMA | FI_ATOMIC;
const REMOTE_DIRECTIONS: u64 = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
const REMOTE_CAPS: u64 = REMOTE | REMOTE_DIRECTIONS | FI_RMA_EVENT | FI_FENCE;
const SECONDARY: u64 = FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE | COMM;
const COMM: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;
const MESSAGE_CAPS: u64 = PRIMARY | DIRECTIONS | SECONDARY;

/// All capabilities offered, with or without remote memory.
pub(crate) const fn caps_of(remote: bool) -> u64 {
    match remote {
        true => MESSAGE_CAPS | REMOTE_CAPS,
        false => MESSAGE_CAPS,
    }
}

/// Granted only on request: with FI_SOURCE_ERR, messages of unknown sources become errors.
const ON_DEMAND: u64 = FI_SOURCE_ERR;

/// Capabilities that a domain reports, unlike an endpoint's: which peers it reaches.
pub(crate) const DOMAIN_CAPS: u64 = COMM;
const TX_CAPS: u64 = PRIMARY | REMOTE | FI_SEND | FI_READ | FI_WRITE | FI_FENCE;
const RX_CAPS: u64 = PRIMARY
    | REMOTE
    | FI_RECV
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_RMA_EVENT
    | FI_MULTI_RECV
    | FI_DIRECTED_RECV
    | FI_SOURCE
    | FI_SOURCE_ERR;

const TX_OP_FLAGS: u64 = FI_COMPLETION
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_MATCH_COMPLETE;
const RX_OP_FLAGS: u64 = FI_COMPLETION | FI_MULTI_RECV;

/// Order per peer of sends and of atomics, which are both in-order messages. No order is promised
/// to reads nor to writes: long writes are transferred independently.
const ORDERS: u64 = FI_ORDER_SAS | FI_ORDER_ATOMIC_ALL;

/// Hints for one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Side {
    pub caps: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub size: usize,
    pub iov_limit: usize,
    /// Transmit only; `rma_iov_limit`, too.
    pub inject_size: usize,
    pub rma_iov_limit: usize,
    /// Receive only.
    pub buffered: usize,
}

/// The values of the hints; zero or false: not requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// API version of the application; Intel MPI's first call passes 0.
    pub version: u32,
    pub caps: u64,
    pub addr_format: u32,
    pub tx: Side,
    pub rx: Side,
    pub ep_type: c_int,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: usize,
    pub ctx_cnt: usize,
    /// Requested contexts per endpoint, and contexts that share one.
    pub max_ctx_cnt: usize,
    pub max_shared_cnt: usize,
    /// The largest requested number of objects of any kind.
    pub objects: usize,
    pub mr_iov_limit: usize,
    pub max_err_data: usize,
    pub auth_key: bool,
    pub domain_caps: u64,
    pub threading: c_int,
    pub control_progress: c_int,
    pub data_progress: c_int,
    pub av_type: c_int,
    pub mr_mode: c_int,
    pub mr_key_size: usize,
    pub cq_data_size: usize,
    /// True if the hints name a fabric other than Marline's.
    pub foreign_name: bool,
    /// The longest message that an inject may copy, in bytes.
    pub inject_max: usize,
    /// True if remote memory is enabled.
    pub remote: bool,
    /// The `mr_mode` of an already open domain that the hints carry.
    pub opened_mr_mode: Option<c_int>,
}

/// The attributes of the reply that depend on the hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub caps: u64,
    pub addr_format: u32,
    pub tx: Side,
    pub rx: Side,
    pub threading: c_int,
    pub control_progress: c_int,
    pub data_progress: c_int,
    pub av_type: c_int,
    pub mr_mode: c_int,
}

/// Grants the hints, or returns the reason for a refusal.
pub(crate) fn decide(wanted: &Wanted) -> Result<Grant, &'static str> {
    check_endpoint(wanted)?;
    check_domain(wanted)?;
    check_limits(wanted)?;
    let caps = grant_caps(wanted.caps, caps_of(wanted.remote))?;
    Ok(Grant {
        caps,
        addr_format: wanted.addr_format,
        tx: grant_side(&wanted.tx, caps & TX_CAPS, TX_OP_FLAGS, wanted.inject_max)?,
        rx: grant_side(&wanted.rx, caps & RX_CAPS, RX_OP_FLAGS, 0)?,
        // MPICH fails ("Provider name does not match") unless its own `threading` is returned.
        threading: or_default(wanted.threading, FI_THREAD_SAFE),
        control_progress: grant_progress(wanted.control_progress),
        data_progress: grant_progress(wanted.data_progress),
        av_type: or_default(wanted.av_type, FI_AV_TABLE),
        mr_mode: grant_mr_mode(wanted)?,
    })
}

fn or_default(wished: c_int, default: c_int) -> c_int {
    if wished == 0 {
        default
    } else {
        wished
    }
}

fn check_endpoint(wanted: &Wanted) -> Result<(), &'static str> {
    if wanted.ep_type != FI_EP_UNSPEC && wanted.ep_type != FI_EP_RDM {
        return Err("an endpoint type other than FI_EP_RDM");
    }
    match Form::of(wanted.addr_format) {
        None => return Err("a particular address format other than FI_ADDR_STR"),
        Some(Form::Text) if wanted.caps & FI_SOURCE_ERR != 0 => {
            return Err("addresses of unknown sources as text");
        }
        Some(_) => {}
    }
    if wanted.protocol != 0 && wanted.protocol != PROTOCOL {
        return Err("another protocol");
    }
    if wanted.protocol_version > PROTOCOL_VERSION {
        return Err("a later version of the protocol");
    }
    if wanted.max_msg_size > MESSAGE_LEN_MAX {
        return Err("longer messages");
    }
    if wanted.ctx_cnt > 1 {
        return Err("scalable or shared contexts");
    }
    if wanted.auth_key {
        return Err("authorization keys");
    }
    Ok(())
}

fn check_domain(wanted: &Wanted) -> Result<(), &'static str> {
    if wanted.foreign_name {
        return Err("another fabric");
    }
    if wanted.domain_caps & !DOMAIN_CAPS != 0 {
        return Err("domain capabilities that we lack");
    }
    if wanted.threading > FI_THREAD_ENDPOINT {
        return Err("an unknown threading model");
    }
    if wanted.av_type > FI_AV_TABLE {
        return Err("an unknown address vector type");
    }
    if wanted.mr_key_size > 8 || wanted.cq_data_size > CQ_DATA_SIZE {
        return Err("larger memory keys or CQ data");
    }
    Ok(())
}

fn check_limits(wanted: &Wanted) -> Result<(), &'static str> {
    if wanted.max_ctx_cnt > 1 || wanted.max_shared_cnt > 0 {
        return Err("endpoints with several or shared contexts");
    }
    if wanted.objects > OBJECTS {
        return Err("more endpoints, queues, counters or memory regions");
    }
    if wanted.mr_iov_limit > MR_IOV_LIMIT || wanted.tx.rma_iov_limit > RMA_IOV_LIMIT {
        return Err("memory regions or remote operations of several pieces");
    }
    if wanted.max_err_data > err_data_max(wanted.caps) {
        return Err("data with errors");
    }
    if wanted.rx.buffered > 0 {
        return Err("a size of the buffer for unexpected messages");
    }
    Ok(())
}

/// Bytes of error data: the address of an unknown source.
pub(crate) fn err_data_max(caps: u64) -> usize {
    match caps & FI_SOURCE_ERR {
        0 => 0,
        _ => ADDRESS_LEN,
    }
}

/// Without requested capabilities, grants all: MPICH and Intel MPI later request the capabilities
/// of the first reply.
fn grant_caps(wished: u64, offered: u64) -> Result<u64, &'static str> {
    if wished == 0 {
        return Ok(offered);
    }
    if wished & FI_SOURCE_ERR != 0 && wished & FI_SOURCE == 0 {
        return Err("unknown sources without known ones");
    }
    let lacking = wished & !(offered | ON_DEMAND);
    if lacking != 0 && lacking & !REMOTE_CAPS == 0 {
        return Err("remote memory or atomics, as FI_MARLINE_RMA=off says");
    }
    if lacking != 0 {
        // FI_HMEM above all: granted, Open MPI would hand us GPU pointers.
        return Err("capabilities that we lack");
    }
    let mut caps = wished | COMM;
    if caps & (PRIMARY | REMOTE) == 0 {
        caps |= PRIMARY;
    }
    if caps & PRIMARY != 0 && caps & DIRECTIONS == 0 {
        caps |= DIRECTIONS;
    }
    if caps & REMOTE != 0 && caps & REMOTE_DIRECTIONS == 0 {
        caps |= REMOTE_DIRECTIONS;
    }
    Ok(caps)
}

fn grant_side(
    wished: &Side,
    caps: u64,
    op_flags: u64,
    inject_max: usize,
) -> Result<Side, &'static str> {
    if wished.caps & !(caps_of(true) | ON_DEMAND) != 0 {
        return Err("transmit or receive capabilities that we lack");
    }
    if wished.op_flags & !op_flags != 0 {
        return Err("operation flags that we lack");
    }
    if wished.msg_order & !ORDERS != 0 || wished.comp_order != 0 {
        return Err("an order that we do not keep");
    }
    if wished.iov_limit > IOV_TAKEN || wished.size > QUEUE_SIZE_MAX {
        return Err("more iovec entries or operations in flight");
    }
    if wished.inject_size > inject_max {
        return Err("a larger inject size");
    }
    Ok(Side {
        caps: if wished.caps == 0 {
            caps
        } else {
            wished.caps & caps
        },
        op_flags: wished.op_flags,
        msg_order: wished.msg_order | FI_ORDER_SAS,
        comp_order: 0,
        size: wished.size.max(QUEUE_SIZE),
        iov_limit: wished.iov_limit.max(IOV_LIMIT),
        inject_size: inject_max,
        rma_iov_limit: RMA_IOV_LIMIT,
        buffered: 0,
    })
}

/// Also grants AUTO, since the progress thread serves peers between polls. Never grants
/// CONTROL_UNIFIED, which MPICH's bit test takes for AUTO.
fn grant_progress(wished: c_int) -> c_int {
    if wished == FI_PROGRESS_AUTO {
        FI_PROGRESS_AUTO
    } else {
        FI_PROGRESS_MANUAL
    }
}

/// The registration mode: offsets and keys of the caller (0), in the spelling of the application's
/// API version; or virtual addresses, allocated memory and provider keys, if the application
/// supports all three. An open domain keeps its mode: Open MPI's btl/ofi supports more modes than
/// mtl/ofi and shares its domain.
fn grant_mr_mode(wanted: &Wanted) -> Result<c_int, &'static str> {
    const BASIC: c_int = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    let before_1_5 = wanted.version != 0 && wanted.version < fi_version_of(1, 5);
    let granted = match wanted.mr_mode {
        mode if wanted.remote && mode & BASIC == BASIC => BASIC,
        FI_MR_BASIC => FI_MR_BASIC,
        FI_MR_SCALABLE => FI_MR_SCALABLE,
        _ if before_1_5 => FI_MR_SCALABLE,
        _ => 0,
    };
    let by_address = |mode: c_int| mode & (FI_MR_BASIC | FI_MR_VIRT_ADDR) != 0;
    match wanted.opened_mr_mode {
        Some(opened) if by_address(opened) && !by_address(granted) => {
            Err("offsets into memory, of a domain that takes addresses")
        }
        Some(opened) if by_address(opened) != by_address(granted) => Ok(opened),
        _ => Ok(granted),
    }
}

#[cfg(test)]
#[path = "hints_tests.rs"]
mod tests;
