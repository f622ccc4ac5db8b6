//! Completion queues, shared receive queues, queue pairs and address handles.

use super::device::{result, VerbsDevice};
use super::layout::{
    Ah, AhAttr, Channel, Completion, Cq, Qp, QpAttr, QpCap, QpInitAttr, Srq, SrqInitAttr,
};
use super::memory::Domain;
use crate::sys::{errno, Errno};
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;

/// States of a queue pair.
const RESET: c_int = 0;
const INIT: c_int = 1;
const READY_TO_RECEIVE: c_int = 2;
const READY: c_int = 3;

/// Attributes that a call of `ibv_modify_qp` sets.
const STATE: c_int = 1;
const ACCESS: c_int = 1 << 3;
const PKEY: c_int = 1 << 4;
const PORT: c_int = 1 << 5;
const QKEY: c_int = 1 << 6;
const AV: c_int = 1 << 7;
const PATH_MTU: c_int = 1 << 8;
const TIMEOUT: c_int = 1 << 9;
const RETRIES: c_int = 1 << 10;
const RNR_RETRIES: c_int = 1 << 11;
const RECV_PSN: c_int = 1 << 12;
const READS: c_int = 1 << 13;
const MIN_RNR_TIMER: c_int = 1 << 15;
const SEND_PSN: c_int = 1 << 16;
const READS_FOR_PEER: c_int = 1 << 17;
const PEER: c_int = 1 << 20;

/// Peers may write (`IBV_ACCESS_REMOTE_WRITE`).
const REMOTE_WRITE: u32 = 2;
/// Peers may read (`IBV_ACCESS_REMOTE_READ`).
const REMOTE_READ: u32 = 4;

/// A completion channel: one descriptor for several completion queues.
pub(crate) struct CompletionChannel {
    device: Arc<VerbsDevice>,
    channel: *mut Channel,
}

// SAFETY: the library's functions may be called by any thread at any time.
unsafe impl Send for CompletionChannel {}
// SAFETY: see above.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    /// Makes a channel of a device.
    pub(crate) fn new(device: &Arc<VerbsDevice>) -> Result<Arc<CompletionChannel>, Errno> {
        // SAFETY: the context is open.
        let channel = unsafe { (device.library.create_comp_channel)(device.context) };
        if channel.is_null() {
            return Err(errno());
        }
        let channel = CompletionChannel {
            device: device.clone(),
            channel,
        };
        super::unblocking(channel.fd())?;
        Ok(Arc::new(channel))
    }

    /// A descriptor that is readable after an armed queue got a completion, until [`Self::clear`].
    pub(crate) fn fd(&self) -> i32 {
        // SAFETY: the channel exists until this is dropped.
        unsafe { (*self.channel).fd }
    }

    /// Consumes all events of the channel.
    pub(crate) fn clear(&self) {
        let (mut cq, mut name) = (null_mut(), null_mut());
        let library = self.device.library;
        // SAFETY: the channel exists, and its descriptor is non-blocking.
        while unsafe { (library.get_cq_event)(self.channel, &mut cq, &mut name) } == 0 {
            // SAFETY: a queue with an unacknowledged event is not destroyed.
            unsafe { (library.ack_cq_events)(cq, 1) };
        }
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: created once; its queues hold a reference and are gone.
        unsafe { (self.device.library.destroy_comp_channel)(self.channel) };
    }
}

/// A completion queue.
pub(crate) struct CompletionQueue {
    channel: Arc<CompletionChannel>,
    cq: *mut Cq,
}

// SAFETY: the library's functions may be called by any thread at any time.
unsafe impl Send for CompletionQueue {}
// SAFETY: see above.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// Makes a queue with room for `depth` completions, at most the device's maximum.
    pub(crate) fn new(
        channel: &Arc<CompletionChannel>,
        depth: u32,
    ) -> Result<Arc<CompletionQueue>, Errno> {
        let device = &channel.device;
        let depth = depth.min(device.completions_max) as c_int;
        // SAFETY: context and channel exist.
        let cq = unsafe {
            (device.library.create_cq)(device.context, depth, null_mut(), channel.channel, 0)
        };
        match cq.is_null() {
            true => Err(errno()),
            false => Ok(Arc::new(CompletionQueue {
                channel: channel.clone(),
                cq,
            })),
        }
    }

    /// Polls completions; returns their number. `Err`: the queue is broken.
    #[inline]
    pub(crate) fn poll(&self, completions: &mut [Completion]) -> Result<usize, Errno> {
        let (room, into) = (completions.len() as c_int, completions.as_mut_ptr());
        // SAFETY: the queue exists, and `completions` has room for this many.
        let count = unsafe { ((*(*self.cq).context).ops.poll_cq)(self.cq, room, into) };
        let count = usize::try_from(count).map_err(|_| libc::EIO)?;
        Ok(count.min(completions.len()))
    }

    /// Arms the channel's descriptor for the next completion.
    pub(crate) fn arm(&self) {
        // SAFETY: the queue exists.
        unsafe { ((*(*self.cq).context).ops.req_notify_cq)(self.cq, 0) };
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: created once; its queue pairs hold a reference and are gone. Its events are
        // acknowledged as soon as they are read.
        unsafe { (self.channel.device.library.destroy_cq)(self.cq) };
    }
}

/// A shared receive queue.
pub(crate) struct ReceiveQueue {
    domain: Arc<Domain>,
    pub(super) srq: *mut Srq,
}

// SAFETY: the library's functions may be called by any thread at any time.
unsafe impl Send for ReceiveQueue {}
// SAFETY: see above.
unsafe impl Sync for ReceiveQueue {}

impl ReceiveQueue {
    /// Makes a queue with room for `depth` receives.
    pub(crate) fn new(domain: &Arc<Domain>, depth: u32) -> Result<Arc<ReceiveQueue>, Errno> {
        let mut attr = SrqInitAttr {
            srq_context: null_mut(),
            max_wr: depth,
            max_sge: 1,
            srq_limit: 0,
        };
        // SAFETY: the domain exists, and the attributes outlive the call.
        let srq = unsafe { (domain.device.library.create_srq)(domain.pd, &mut attr) };
        match srq.is_null() {
            true => Err(errno()),
            false => Ok(Arc::new(ReceiveQueue {
                domain: domain.clone(),
                srq,
            })),
        }
    }
}

impl Drop for ReceiveQueue {
    fn drop(&mut self) {
        // SAFETY: created once; its queue pairs hold a reference and are gone.
        unsafe { (self.domain.device.library.destroy_srq)(self.srq) };
    }
}

/// The transport of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagrams.
    Ud,
}

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueSizes {
    /// Depth of the send queue.
    pub(crate) sends: u32,
    /// Depth of the receive queue, unless it is shared.
    pub(crate) receives: u32,
    /// Bytes of an inline send.
    pub(crate) inline: u32,
}

/// The destination of packets, and the local port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// Our port.
    pub(crate) port: u8,
    /// The index of our GID in the port's table.
    pub(crate) gid_index: u8,
    /// The destination's GID; `None`: addressed by LID alone.
    pub(crate) gid: Option<[u8; 16]>,
    /// The destination's LID; 0 over Ethernet.
    pub(crate) lid: u16,
    /// Hop limit.
    pub(crate) hops: u8,
    /// Flow label, for ECMP; 0: the device may choose one.
    pub(crate) flow: u32,
    /// Traffic class: TOS of RoCE version 2.
    pub(crate) traffic_class: u8,
    /// Service level.
    pub(crate) service_level: u8,
}

/// The halves of a GID, as in the header's union.
fn halves(gid: &[u8; 16]) -> [u64; 2] {
    let half = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| gid[at + i]));
    [half(0), half(8)]
}

impl Path {
    fn attr(&self) -> AhAttr {
        let mut attr = AhAttr {
            dlid: self.lid,
            sl: self.service_level,
            port_num: self.port,
            ..AhAttr::default()
        };
        if let Some(gid) = &self.gid {
            attr.dgid = halves(gid);
            attr.sgid_index = self.gid_index;
            attr.hop_limit = self.hops;
            attr.flow_label = self.flow;
            attr.traffic_class = self.traffic_class;
            attr.is_global = 1;
        }
        attr
    }
}

/// The destination of datagrams.
pub(crate) struct AddressHandle {
    domain: Arc<Domain>,
    pub(super) ah: *mut Ah,
}

// SAFETY: the library's functions may be called by any thread at any time.
unsafe impl Send for AddressHandle {}

impl AddressHandle {
    /// Makes a handle for a path. Over Ethernet the kernel may have to resolve a MAC address, which
    /// blocks.
    pub(crate) fn new(domain: &Arc<Domain>, path: &Path) -> Result<AddressHandle, Errno> {
        let mut attr = path.attr();
        // SAFETY: the domain exists, and the attributes outlive the call.
        let ah = unsafe { (domain.device.library.create_ah)(domain.pd, &mut attr) };
        match ah.is_null() {
            true => Err(errno()),
            false => Ok(AddressHandle {
                domain: domain.clone(),
                ah,
            }),
        }
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: created once; all requests that used it have completed.
        unsafe { (self.domain.device.library.destroy_ah)(self.ah) };
    }
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToPeer {
    /// The path to the other end.
    pub(crate) path: Path,
    /// The queue pair number of the other end.
    pub(crate) number: u32,
    /// The PSN of the first packet that the other end sends.
    pub(crate) receive_psn: u32,
    /// The PSN of the first packet that this end sends.
    pub(crate) send_psn: u32,
    /// Path MTU, encoded as [`super::PortAttr::active_mtu`].
    pub(crate) mtu: i32,
}

/// A queue pair.
pub(crate) struct QueuePair {
    domain: Arc<Domain>,
    pub(super) qp: *mut Qp,
    kind: QueueType,
    /// Bytes of an inline send.
    pub(crate) inline_max: usize,
    // The objects with which the queue pair was made, and which must outlive it.
    _queues: [Arc<CompletionQueue>; 2],
    _shared: Option<Arc<ReceiveQueue>>,
}

// SAFETY: the library's functions may be called by any thread at any time.
unsafe impl Send for QueuePair {}
// SAFETY: see above.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// Makes a queue pair in the reset state. `queues` are the completion queues of sends and of
    /// receives.
    pub(crate) fn new(
        domain: &Arc<Domain>,
        kind: QueueType,
        queues: [&Arc<CompletionQueue>; 2],
        shared: Option<&Arc<ReceiveQueue>>,
        sizes: QueueSizes,
    ) -> Result<QueuePair, Errno> {
        let [send, receive] = queues;
        let device = &domain.device;
        let most = device.queue_max;
        let mut inline = sizes.inline;
        let qp = loop {
            let mut attr = QpInitAttr {
                qp_context: null_mut(),
                send_cq: send.cq,
                recv_cq: receive.cq,
                srq: shared.map_or(null_mut(), |shared| shared.srq),
                cap: QpCap {
                    max_send_wr: sizes.sends.min(most),
                    max_recv_wr: if shared.is_some() {
                        0
                    } else {
                        sizes.receives.min(most)
                    },
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: inline,
                },
                qp_type: match kind {
                    QueueType::Rc => 2,
                    QueueType::Uc => 3,
                    QueueType::Ud => 4,
                },
                sq_sig_all: 0,
            };
            // SAFETY: domain and queues exist, and the attributes outlive the call.
            let qp = unsafe { (device.library.create_qp)(domain.pd, &mut attr) };
            match (qp.is_null(), inline) {
                (false, _) => break qp,
                (true, 0) => return Err(errno()),
                // Some devices refuse an inline size that is too large, instead of reducing it.
                (true, _) => inline /= 2,
            }
        };
        Ok(QueuePair {
            domain: domain.clone(),
            qp,
            kind,
            inline_max: inline as usize,
            _queues: [send.clone(), receive.clone()],
            _shared: shared.cloned(),
        })
    }

    /// The queue pair number.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the queue pair exists until this is dropped.
        unsafe { (*self.qp).qp_num }
    }

    /// Moves to the `INIT` state: receives may be posted.
    pub(crate) fn begin(&self, port: u8, pkey_index: u16, qkey: u32) -> Result<(), Errno> {
        let attr = QpAttr {
            qp_state: INIT,
            port_num: port,
            pkey_index,
            qkey,
            qp_access_flags: match self.kind {
                QueueType::Rc => REMOTE_WRITE | REMOTE_READ,
                QueueType::Uc | QueueType::Ud => REMOTE_WRITE,
            },
            ..QpAttr::default()
        };
        let last = match self.kind {
            QueueType::Ud => QKEY,
            QueueType::Rc | QueueType::Uc => ACCESS,
        };
        self.change(attr, STATE | PKEY | PORT | last)
    }

    /// Moves a queue pair of datagrams to the state in which it sends and receives.
    pub(crate) fn ready(&self) -> Result<(), Errno> {
        let receiving = QpAttr {
            qp_state: READY_TO_RECEIVE,
            ..QpAttr::default()
        };
        self.change(receiving, STATE)?;
        let sending = QpAttr {
            qp_state: READY,
            ..QpAttr::default()
        };
        self.change(sending, STATE | SEND_PSN)
    }

    /// For connections: moves to the state that receives from the peer.
    pub(crate) fn receive_from(&self, peer: &ToPeer, rnr_timer: u8) -> Result<(), Errno> {
        let attr = QpAttr {
            qp_state: READY_TO_RECEIVE,
            path_mtu: peer.mtu,
            rq_psn: peer.receive_psn,
            dest_qp_num: peer.number,
            ah_attr: peer.path.attr(),
            min_rnr_timer: rnr_timer,
            max_dest_rd_atomic: self.domain.device.reads.0,
            ..QpAttr::default()
        };
        let reliable = match self.kind {
            QueueType::Rc => READS_FOR_PEER | MIN_RNR_TIMER,
            QueueType::Uc | QueueType::Ud => 0,
        };
        self.change(attr, STATE | AV | PATH_MTU | PEER | RECV_PSN | reliable)
    }

    /// For connections: moves to the state that also sends to the peer. `timeout` (4.096 us times
    /// two to this power), `retries` and `rnr_retries` apply only to reliable connections.
    pub(crate) fn send_to(
        &self,
        peer: &ToPeer,
        timeout: u8,
        retries: u8,
        rnr_retries: u8,
    ) -> Result<(), Errno> {
        let attr = QpAttr {
            qp_state: READY,
            sq_psn: peer.send_psn,
            timeout,
            retry_cnt: retries,
            rnr_retry: rnr_retries,
            max_rd_atomic: self.domain.device.reads.1,
            ..QpAttr::default()
        };
        let reliable = match self.kind {
            QueueType::Rc => TIMEOUT | RETRIES | RNR_RETRIES | READS,
            QueueType::Uc | QueueType::Ud => 0,
        };
        self.change(attr, STATE | SEND_PSN | reliable)
    }

    /// Drops all posted requests without completions: after the return none of their memory is read
    /// or written.
    pub(crate) fn reset(&self) -> Result<(), Errno> {
        let attr = QpAttr {
            qp_state: RESET,
            ..QpAttr::default()
        };
        self.change(attr, STATE)
    }

    /// For datagrams: also receives datagrams to the multicast group of a GID. Detach the queue
    /// pair before it is destroyed.
    pub(crate) fn attach(&self, gid: &[u8; 16]) -> Result<(), Errno> {
        let gid = halves(gid);
        // SAFETY: the queue pair exists, and the GID outlives the call. Over Ethernet there is no
        // LID.
        result(unsafe { (self.domain.device.library.attach_mcast)(self.qp, &gid, 0) })
    }

    /// Leaves a multicast group.
    pub(crate) fn detach(&self, gid: &[u8; 16]) -> Result<(), Errno> {
        let gid = halves(gid);
        // SAFETY: see `attach`.
        result(unsafe { (self.domain.device.library.detach_mcast)(self.qp, &gid, 0) })
    }

    fn change(&self, mut attr: QpAttr, which: c_int) -> Result<(), Errno> {
        // SAFETY: the queue pair exists, and the attributes outlive the call.
        result(unsafe { (self.domain.device.library.modify_qp)(self.qp, &mut attr, which) })
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: created once; its memory is known to the device by registrations, which outlive
        // the device's accesses.
        unsafe { (self.domain.device.library.destroy_qp)(self.qp) };
    }
}
