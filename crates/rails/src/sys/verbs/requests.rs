//! Work requests: chains of sends, and receives with their memory.

use super::layout::{RecvRequest, SendRequest, Sge};
use super::memory::{Domain, Region};
use super::queue::{AddressHandle, QueuePair, ReceiveQueue};
use crate::sys::Errno;
use std::ptr::null_mut;
use std::sync::Arc;

const SIGNALLED: u32 = 1 << 1;
const INLINE: u32 = 1 << 3;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Send to the peer's next receive.
    Send,
    /// Send with an immediate.
    SendWith(u32),
    /// RDMA write into peer memory.
    Write {
        /// Remote address.
        address: u64,
        /// Remote key.
        rkey: u32,
        /// Consumes a receive of the peer, whose completion delivers the immediate after the whole
        /// write has landed.
        immediate: Option<u32>,
    },
    /// RDMA read from peer memory.
    Read {
        /// Remote address.
        address: u64,
        /// Remote key.
        rkey: u32,
    },
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The name reported in its completion (`wr_id`).
    pub(crate) name: u64,
    /// The request generates a completion also on success.
    pub(crate) signalled: bool,
    /// The bytes are copied at the time of the post.
    pub(crate) inline: bool,
    /// The first byte.
    pub(crate) address: u64,
    /// Bytes.
    pub(crate) len: usize,
    /// The key of the memory; ignored when inline.
    pub(crate) lkey: u32,
}

/// A chain of requests under construction.
pub(crate) struct Sends {
    requests: Box<[SendRequest]>,
    sges: Box<[Sge]>,
    len: usize,
}

// SAFETY: its pointers are set anew, to its own memory, before each use.
unsafe impl Send for Sends {}

impl Sends {
    /// Allocates a chain of at most `most` requests.
    pub(crate) fn new(most: usize) -> Sends {
        Sends {
            requests: vec![SendRequest::default(); most].into_boxed_slice(),
            sges: vec![Sge::default(); most].into_boxed_slice(),
            len: 0,
        }
    }

    /// A request that reads registered memory.
    #[inline]
    pub(crate) fn of_region(region: &Region, at: usize, len: usize) -> Request {
        Request {
            name: 0,
            signalled: false,
            inline: false,
            address: region.address(at),
            len,
            lkey: region.lkey(),
        }
    }

    /// Adds a request to the chain.
    #[inline]
    fn push(&mut self, request: &Request) -> &mut SendRequest {
        let at = self.len;
        self.len += 1;
        self.sges[at] = Sge {
            addr: request.address,
            length: request.len as u32,
            lkey: request.lkey,
        };
        let signalled = if request.signalled { SIGNALLED } else { 0 };
        let inline = if request.inline { INLINE } else { 0 };
        let row = &mut self.requests[at];
        row.wr_id = request.name;
        row.num_sge = (request.len > 0) as i32;
        row.opcode = 2;
        row.send_flags = signalled | inline;
        row
    }

    /// Adds a datagram.
    #[inline]
    pub(crate) fn datagram(
        &mut self,
        request: &Request,
        to: &AddressHandle,
        (number, qkey): (u32, u32),
    ) {
        let row = self.push(request);
        row.place = to.ah as u64;
        row.first = number;
        row.second = qkey;
    }

    /// Adds a request for a connection.
    #[inline]
    pub(crate) fn add(&mut self, request: &Request, operation: Operation) {
        let row = self.push(request);
        match operation {
            Operation::Send => {}
            Operation::SendWith(immediate) => {
                row.opcode = 3;
                row.imm_data = immediate.to_be();
            }
            Operation::Write {
                address,
                rkey,
                immediate,
            } => {
                row.opcode = immediate.is_some() as i32;
                row.imm_data = immediate.unwrap_or(0).to_be();
                row.place = address;
                row.first = rkey;
            }
            Operation::Read { address, rkey } => {
                row.opcode = 4;
                row.place = address;
                row.first = rkey;
            }
        }
    }

    /// Posts the chain by one call and starts a new chain. The error contains the number of
    /// requests posted before the failing one.
    ///
    /// The memory that requests read must stay in place, unchanged, until their completion or the
    /// reset of the queue pair.
    #[inline]
    pub(crate) fn post(&mut self, pair: &QueuePair) -> Result<(), (usize, Errno)> {
        let len = std::mem::take(&mut self.len);
        if len == 0 {
            return Ok(());
        }
        for at in 0..len {
            self.requests[at].sg_list = &mut self.sges[at];
            self.requests[at].next = null_mut();
            if at > 0 {
                let this: *mut SendRequest = &mut self.requests[at];
                self.requests[at - 1].next = this;
            }
        }
        let (first, mut bad) = (self.requests.as_mut_ptr(), null_mut());
        // SAFETY: the queue pair exists. The chain's pointers lead to its own rows, which outlive
        // the call; the caller keeps the memory they name.
        let code = unsafe { ((*(*pair.qp).context).ops.post_send)(pair.qp, first, &mut bad) };
        if code == 0 {
            return Ok(());
        }
        let base = first as usize;
        let posted = (bad as usize).saturating_sub(base) / size_of::<SendRequest>();
        Err((posted.min(len), code.abs()))
    }
}

/// Receive buffers in slots of one length; each slot is posted or owned by the program.
pub(crate) struct Receives {
    region: Region,
    slot_len: usize,
    posted: Box<[bool]>,
    /// Slots to be posted.
    ours: Vec<u32>,
    requests: Box<[RecvRequest]>,
    sges: Box<[Sge]>,
}

// SAFETY: its pointers are set anew, to its own memory, before each use.
unsafe impl Send for Receives {}

/// Maximum of receives posted by one call.
const CHAIN_MAX: usize = 64;

impl Receives {
    /// Allocates `slots` slots, none of them posted.
    pub(crate) fn new(
        domain: &Arc<Domain>,
        slots: usize,
        slot_len: usize,
    ) -> Result<Receives, Errno> {
        let request = RecvRequest {
            wr_id: 0,
            next: null_mut(),
            sg_list: null_mut(),
            num_sge: 1,
        };
        Ok(Receives {
            region: Region::new(domain, slots * slot_len)?,
            slot_len,
            posted: vec![false; slots].into_boxed_slice(),
            ours: (0..slots as u32).rev().collect(),
            requests: vec![request; CHAIN_MAX].into_boxed_slice(),
            sges: vec![Sge::default(); CHAIN_MAX].into_boxed_slice(),
        })
    }

    /// Number of unposted slots that hold no unread bytes.
    #[inline]
    pub(crate) fn idle(&self) -> usize {
        self.ours.len()
    }

    /// Takes a completed slot: its first `len` bytes, until it is given back. `None` if the slot
    /// was not posted or is shorter.
    #[inline]
    pub(crate) fn take(&mut self, slot: u32, len: usize) -> Option<&[u8]> {
        let at = slot as usize;
        let posted = self.posted.get_mut(at)?;
        if !std::mem::take(posted) {
            return None;
        }
        if len > self.slot_len {
            self.ours.push(at as u32);
            return None;
        }
        Some(self.region.bytes(at * self.slot_len, len))
    }

    /// Returns a taken slot for reposting.
    #[inline]
    pub(crate) fn give_back(&mut self, slot: u32) {
        debug_assert!(!self.posted[slot as usize]);
        self.ours.push(slot);
    }

    /// Takes back all slots after their queue was reset or failed.
    pub(crate) fn take_all(&mut self) {
        for (at, posted) in self.posted.iter_mut().enumerate() {
            if std::mem::take(posted) {
                self.ours.push(at as u32);
            }
        }
    }

    /// Posts all free slots to a queue pair or shared receive queue. A receive's name is `name`
    /// plus its slot number.
    pub(crate) fn post(&mut self, to: PostTo<'_>, name: u64) -> Result<(), Errno> {
        while !self.ours.is_empty() {
            self.post_chain(to, name)?;
        }
        Ok(())
    }

    fn post_chain(&mut self, to: PostTo<'_>, name: u64) -> Result<(), Errno> {
        let len = self.ours.len().min(CHAIN_MAX);
        let from = self.ours.len() - len;
        for at in 0..len {
            let slot = self.ours[from + at] as usize;
            self.sges[at] = Sge {
                addr: self.region.address(slot * self.slot_len),
                length: self.slot_len as u32,
                lkey: self.region.lkey(),
            };
            self.requests[at].wr_id = name | slot as u64;
            self.requests[at].sg_list = &mut self.sges[at];
            self.requests[at].next = null_mut();
            if at > 0 {
                let this: *mut RecvRequest = &mut self.requests[at];
                self.requests[at - 1].next = this;
            }
        }
        let (first, mut bad) = (self.requests.as_mut_ptr(), null_mut());
        // SAFETY: the queue exists. The chain's pointers lead to our rows, which outlive the call,
        // and the slots lie in registered memory that is not read while they are posted.
        let code = unsafe {
            match to {
                PostTo::Pair(pair) => {
                    ((*(*pair.qp).context).ops.post_recv)(pair.qp, first, &mut bad)
                }
                PostTo::Shared(queue) => {
                    ((*(*queue.srq).context).ops.post_srq_recv)(queue.srq, first, &mut bad)
                }
            }
        };
        let base = first as usize;
        let posted = match code {
            0 => len,
            _ => ((bad as usize).saturating_sub(base) / size_of::<RecvRequest>()).min(len),
        };
        // The head of the chain was posted: remove these slots from the list.
        for slot in self.ours.drain(from..from + posted) {
            self.posted[slot as usize] = true;
        }
        match code {
            0 => Ok(()),
            code => Err(code.abs()),
        }
    }
}

/// The queue to which receives are posted.
#[derive(Clone, Copy)]
pub(crate) enum PostTo<'a> {
    /// The receive queue of one queue pair.
    Pair(&'a QueuePair),
    /// A shared receive queue.
    Shared(&'a ReceiveQueue),
}
