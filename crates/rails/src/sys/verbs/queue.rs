//! Queues: of completions, of receives, and the pairs that packets go through.

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

/// Which attributes a change names.
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

/// Peers may write.
const REMOTE_WRITE: u32 = 2;
/// Peers may read.
const REMOTE_READ: u32 = 4;

/// Completions of several queues, by one descriptor.
pub(crate) struct CompletionChannel {
    device: Arc<VerbsDevice>,
    channel: *mut Channel,
}

// SAFETY: the library's functions may be called by any thread at any time.
unsafe impl Send for CompletionChannel {}
// SAFETY: see above.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    /// A new one of a device.
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

    /// Readable when a queue that was armed has a completion, until [`Self::clear`].
    pub(crate) fn fd(&self) -> i32 {
        // SAFETY: the channel is there until this is dropped.
        unsafe { (*self.channel).fd }
    }

    /// Takes all that the descriptor told of.
    pub(crate) fn clear(&self) {
        let (mut cq, mut name) = (null_mut(), null_mut());
        let library = self.device.library;
        // SAFETY: the channel is there, and its descriptor does not wait.
        while unsafe { (library.get_cq_event)(self.channel, &mut cq, &mut name) } == 0 {
            // SAFETY: a queue that an event speaks of is not destroyed before it is acknowledged.
            unsafe { (library.ack_cq_events)(cq, 1) };
        }
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: made once; its queues hold it, and are gone.
        unsafe { (self.device.library.destroy_comp_channel)(self.channel) };
    }
}

/// A queue of completions.
pub(crate) struct CompletionQueue {
    channel: Arc<CompletionChannel>,
    cq: *mut Cq,
}

// SAFETY: the library's functions may be called by any thread at any time.
unsafe impl Send for CompletionQueue {}
// SAFETY: see above.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// A queue with room for `depth` completions.
    pub(crate) fn new(
        channel: &Arc<CompletionChannel>,
        depth: u32,
    ) -> Result<Arc<CompletionQueue>, Errno> {
        let device = &channel.device;
        let depth = depth.min(device.completions_max) as c_int;
        // SAFETY: context and channel are there.
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

    /// Takes completions; how many. `Err`: the queue is broken.
    #[inline]
    pub(crate) fn poll(&self, completions: &mut [Completion]) -> Result<usize, Errno> {
        let (room, into) = (completions.len() as c_int, completions.as_mut_ptr());
        // SAFETY: the queue is there, and there is room for so many.
        let count = unsafe { ((*(*self.cq).context).ops.poll_cq)(self.cq, room, into) };
        let count = usize::try_from(count).map_err(|_| libc::EIO)?;
        Ok(count.min(completions.len()))
    }

    /// Has the channel's descriptor tell of the next completion.
    pub(crate) fn arm(&self) {
        // SAFETY: the queue is there.
        unsafe { ((*(*self.cq).context).ops.req_notify_cq)(self.cq, 0) };
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: made once; its queue pairs hold it, and are gone. Its events are acknowledged as
        // soon as they are got.
        unsafe { (self.channel.device.library.destroy_cq)(self.cq) };
    }
}

/// Receives that the queue pairs of many peers share.
pub(crate) struct ReceiveQueue {
    domain: Arc<Domain>,
    pub(super) srq: *mut Srq,
}

// SAFETY: the library's functions may be called by any thread at any time.
unsafe impl Send for ReceiveQueue {}
// SAFETY: see above.
unsafe impl Sync for ReceiveQueue {}

impl ReceiveQueue {
    /// A queue with room for `depth` receives.
    pub(crate) fn new(domain: &Arc<Domain>, depth: u32) -> Result<Arc<ReceiveQueue>, Errno> {
        let mut attr = SrqInitAttr {
            srq_context: null_mut(),
            max_wr: depth,
            max_sge: 1,
            srq_limit: 0,
        };
        // SAFETY: the domain is there, and the attributes outlive the call.
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
        // SAFETY: made once; its queue pairs hold it, and are gone.
        unsafe { (self.domain.device.library.destroy_srq)(self.srq) };
    }
}

/// How a queue pair transports.
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
    /// Sends that may be posted.
    pub(crate) sends: u32,
    /// Receives that may be posted, where it has a queue of its own.
    pub(crate) receives: u32,
    /// Bytes of a send that the request itself may hold.
    pub(crate) inline: u32,
}

/// Where packets go, and by which port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// Our port.
    pub(crate) port: u8,
    /// Our GID's place in the port's table.
    pub(crate) gid_index: u8,
    /// Their GID; `None`: by LID alone.
    pub(crate) gid: Option<[u8; 16]>,
    /// Their LID; 0 over Ethernet.
    pub(crate) lid: u16,
    /// Routers that may pass packets on, and one more.
    pub(crate) hops: u8,
    /// Tells routers which flow it is, as far as they look; 0: the device says it, if anyone.
    pub(crate) flow: u32,
}

/// Halves of a GID, as the header's union of it has them.
fn halves(gid: &[u8; 16]) -> [u64; 2] {
    let half = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| gid[at + i]));
    [half(0), half(8)]
}

impl Path {
    fn attr(&self) -> AhAttr {
        let mut attr = AhAttr {
            dlid: self.lid,
            port_num: self.port,
            ..AhAttr::default()
        };
        if let Some(gid) = &self.gid {
            attr.dgid = halves(gid);
            attr.sgid_index = self.gid_index;
            attr.hop_limit = self.hops;
            attr.flow_label = self.flow;
            attr.is_global = 1;
        }
        attr
    }
}

/// Where datagrams go.
pub(crate) struct AddressHandle {
    domain: Arc<Domain>,
    pub(super) ah: *mut Ah,
}

// SAFETY: the library's functions may be called by any thread at any time.
unsafe impl Send for AddressHandle {}

impl AddressHandle {
    /// A handle for a path. Over Ethernet the kernel may have to ask for the address of a card, and
    /// this waits for the answer.
    pub(crate) fn new(domain: &Arc<Domain>, path: &Path) -> Result<AddressHandle, Errno> {
        let mut attr = path.attr();
        // SAFETY: the domain is there, and the attributes outlive the call.
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
        // SAFETY: made once. What was posted by it has been read.
        unsafe { (self.domain.device.library.destroy_ah)(self.ah) };
    }
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToPeer {
    /// Where it is.
    pub(crate) path: Path,
    /// Its queue pair.
    pub(crate) number: u32,
    /// The number of the first packet that it sends.
    pub(crate) receive_psn: u32,
    /// The number of the first packet that we send.
    pub(crate) send_psn: u32,
    /// Largest packet on the way, as [`super::PortAttr::active_mtu`] says it.
    pub(crate) mtu: i32,
}

/// A queue pair.
pub(crate) struct QueuePair {
    domain: Arc<Domain>,
    pub(super) qp: *mut Qp,
    kind: QueueType,
    /// Bytes of a send that the request itself may hold.
    pub(crate) inline_max: usize,
    // What it was made with, which has to outlive it.
    _queues: [Arc<CompletionQueue>; 2],
    _shared: Option<Arc<ReceiveQueue>>,
}

// SAFETY: the library's functions may be called by any thread at any time.
unsafe impl Send for QueuePair {}
// SAFETY: see above.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// A new pair, which does nothing yet. `queues` are those of its sends and of its receives.
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
            // SAFETY: domain and queues are there, and the attributes outlive the call.
            let qp = unsafe { (device.library.create_qp)(domain.pd, &mut attr) };
            match (qp.is_null(), inline) {
                (false, _) => break qp,
                (true, 0) => return Err(errno()),
                // Some devices refuse more than they have instead of giving less.
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

    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the pair is there until this is dropped.
        unsafe { (*self.qp).qp_num }
    }

    /// Takes receives from now on.
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

    /// Of datagrams: sends and receives from now on.
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

    /// Of connections: receives from the peer from now on.
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

    /// Of connections: sends to the peer from now on. `timeout` (4.096 us times two to its power),
    /// `retries` after it and `rnr_retries` for want of receives are of reliable ones alone.
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

    /// Gives up all that is posted, without completions: when this returns nothing of it is read or
    /// written any more.
    pub(crate) fn reset(&self) -> Result<(), Errno> {
        let attr = QpAttr {
            qp_state: RESET,
            ..QpAttr::default()
        };
        self.change(attr, STATE)
    }

    /// Of datagrams: receives what is sent to the group of a GID, too. A pair leaves its groups
    /// before it goes.
    pub(crate) fn attach(&self, gid: &[u8; 16]) -> Result<(), Errno> {
        let gid = halves(gid);
        // SAFETY: the pair is there, and the GID outlives the call. Over Ethernet there is no LID.
        result(unsafe { (self.domain.device.library.attach_mcast)(self.qp, &gid, 0) })
    }

    /// Receives it no more.
    pub(crate) fn detach(&self, gid: &[u8; 16]) -> Result<(), Errno> {
        let gid = halves(gid);
        // SAFETY: see `attach`.
        result(unsafe { (self.domain.device.library.detach_mcast)(self.qp, &gid, 0) })
    }

    fn change(&self, mut attr: QpAttr, which: c_int) -> Result<(), Errno> {
        // SAFETY: the pair is there, and the attributes outlive the call.
        result(unsafe { (self.domain.device.library.modify_qp)(self.qp, &mut attr, which) })
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: made once; its memory is known to the device by registrations, which outlive what
        // the device does with them.
        unsafe { (self.domain.device.library.destroy_qp)(self.qp) };
    }
}
