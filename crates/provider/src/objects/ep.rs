//! `fid_ep`: the endpoint object and the short way from a data call to the engine.
//!
//! The path of a data call: a cast finds the endpoint, whose options are precomputed
//! ([`Ep::tx_plain`], [`Ep::rx_plain`]); the request is built on the stack and passed to the
//! engine, without allocation or copy of iovecs (libfabric's and the engine's layouts are equal,
//! asserted in `abi/sizes.rs`).

use crate::abi::ep::*;
use crate::abi::*;
use crate::base::boundary::{guard, Errno};
use crate::base::log::trace;
use crate::base::object::{self, Object};
use crate::info::hints::IOV_TAKEN;
use crate::objects::av;
use crate::objects::domain::DomainShared;
use crate::ops::flags::Binding;
use crate::ops::requests::{Access, Incoming, Outgoing};
use crate::queues::{cntr, cq};
use marline_engine::{Counted, Engine, EpId, IoVec, OpFlags, RemoteReq, SubmitError};
use std::ffi::{c_int, c_void};
use std::fmt::Debug;
use std::sync::Arc;

#[repr(C)]
pub(crate) struct Ep {
    fid: fid_ep,
    /// A handle per endpoint saves data calls one indirection.
    engine: Engine,
    pub id: EpId,
    /// Options of calls without flags, precomputed.
    pub tx_plain: OpFlags,
    pub rx_plain: OpFlags,
    /// All ones unless FI_DIRECTED_RECV was granted. Combined with a source by or, all ones mean
    /// "from any source": MPICH passes sources even without the grant.
    undirected: u64,
    pub tx: Binding,
    pub rx: Binding,
    /// 0 if unset.
    pub min_multi_recv: usize,
    has_av: bool,
    has_tx_cq: bool,
    has_rx_cq: bool,
    /// Flags of the events that bound counters count.
    counted: u64,
    enabled: bool,
    caps: u64,
    shared: Arc<DomainShared>,
    /// Keeps the bound objects from being closed.
    users: Vec<Arc<()>>,
}

// SAFETY: `#[repr(C)]`, and fid_ep begins with a fid.
unsafe impl Object for Ep {
    type Fid = fid_ep;
    const CLASS: usize = FI_CLASS_EP;
    const FID_OPS: &'static fi_ops = &fi_ops {
        bind,
        control,
        ..object::only_close::<Ep>()
    };
}

/// Closes the endpoint after its sends are acknowledged. Returns no error, since Open MPI would
/// report one to its user.
impl Drop for Ep {
    fn drop(&mut self) {
        trace!("{:?} close", self.id);
        self.engine.ep_close(self.id);
    }
}

/// A new endpoint without bindings; `op_flags` are the defaults of transmit and receive.
pub(crate) fn new(
    fid: fid_ep,
    shared: &Arc<DomainShared>,
    id: EpId,
    caps: u64,
    op_flags: [u64; 2],
) -> Ep {
    let mut ep = Ep {
        fid,
        engine: shared.engine.clone(),
        id,
        tx_plain: OpFlags::default(),
        rx_plain: OpFlags::default(),
        undirected: if caps & FI_DIRECTED_RECV != 0 {
            0
        } else {
            FI_ADDR_UNSPEC
        },
        tx: Binding {
            op_flags: op_flags[0],
            selective: false,
        },
        rx: Binding {
            op_flags: op_flags[1],
            selective: false,
        },
        min_multi_recv: 0,
        has_av: false,
        has_tx_cq: false,
        has_rx_cq: false,
        counted: 0,
        enabled: false,
        caps,
        shared: shared.clone(),
        users: Vec::new(),
    };
    ep.refresh_plain();
    ep
}

/// The endpoint behind its handle.
///
/// # Safety
/// `fid` was made by [`open`].
#[inline]
pub(crate) unsafe fn ep_of<'a>(fid: *mut fid_ep) -> &'a Ep {
    // SAFETY: the caller's promise.
    unsafe { object::of::<Ep>(fid) }
}

/// Like [`ep_of`], for control calls: libfabric forbids any concurrent call on the endpoint.
///
/// # Safety
/// The conditions of [`ep_of`] hold, and no other call on the endpoint runs.
pub(crate) unsafe fn ep_of_mut<'a>(fid: *mut fid) -> &'a mut Ep {
    // SAFETY: the caller's promise.
    unsafe { &mut *fid.cast::<Ep>() }
}

/// The counter events and the flags that bind them.
const COUNTED: [(u64, Counted); 6] = [
    (FI_SEND, Counted::Sends),
    (FI_RECV, Counted::Receives),
    (FI_READ, Counted::Reads),
    (FI_WRITE, Counted::Writes),
    (FI_REMOTE_READ, Counted::RemoteReads),
    (FI_REMOTE_WRITE, Counted::RemoteWrites),
];

/// Reinterprets `count` libfabric iovecs as the engine's.
///
/// # Safety
/// `iov` has `count` entries (it may be null if there are none).
#[inline]
unsafe fn pieces<'a>(iov: *const libc::iovec, count: usize) -> Result<&'a [IoVec], Errno> {
    if count == 0 {
        return Ok(&[]);
    }
    if count > IOV_TAKEN || iov.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller's promise, and one layout (asserted in sys_sizes.rs).
    Ok(unsafe { std::slice::from_raw_parts(iov.cast::<IoVec>(), count) })
}

impl Ep {
    /// A receive with the endpoint's options.
    #[inline]
    pub(crate) fn incoming(
        &self,
        source: fi_addr_t,
        tag: Option<(u64, u64)>,
        context: *mut c_void,
    ) -> Incoming {
        let flags = self.rx_plain;
        Incoming {
            source,
            tag,
            context,
            flags,
        }
    }

    /// A send (or read) with the endpoint's options.
    #[inline]
    pub(crate) fn outgoing(
        &self,
        dest: fi_addr_t,
        tag: Option<u64>,
        data: Option<u64>,
        context: *mut c_void,
    ) -> Outgoing {
        let flags = self.tx_plain;
        Outgoing {
            dest,
            tag,
            data,
            context,
            flags,
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn shared(&self) -> &DomainShared {
        &self.shared
    }

    /// Recomputes the options of calls without flags after a change.
    pub(crate) fn refresh_plain(&mut self) {
        self.tx_plain = self.tx.send(self.tx.op_flags);
        // (Remote reads and writes complete only when done, whatever level is requested.)
        self.tx_plain.delivery_complete &= !crate::base::settings::borrows();
        self.rx_plain = self.rx.recv(self.rx.op_flags);
    }

    /// Submits one contiguous buffer.
    #[inline]
    fn enter_one(
        &self,
        buf: *mut c_void,
        len: usize,
        submit: impl FnOnce(&[IoVec]) -> Result<isize, Errno>,
    ) -> isize {
        let base = buf.cast();
        let iov = [IoVec { base, len }];
        let iov = &iov[..usize::from(len != 0)];
        guard(&self.shared.health, || submit(iov))
    }

    /// Submits `count` iovecs.
    ///
    /// # Safety
    /// `iov` has `count` entries.
    #[inline]
    unsafe fn enter_pieces(
        &self,
        iov: *const libc::iovec,
        count: usize,
        submit: impl FnOnce(&[IoVec]) -> Result<isize, Errno>,
    ) -> isize {
        guard(&self.shared.health, || {
            // SAFETY: the caller's promise.
            submit(unsafe { pieces(iov, count) }?)
        })
    }

    #[inline(always)] // otherwise its parameters are copied to the stack for a call
    fn send(&self, iov: &[IoVec], out: Outgoing) -> Result<isize, Errno> {
        let req = out.request(iov);
        self.posted(&req, self.engine.send(self.id, &req))
    }

    #[inline(always)] // otherwise its parameters are copied to the stack for a call
    fn recv(&self, iov: &[IoVec], from: Incoming) -> Result<isize, Errno> {
        let req = from.request(iov, self.undirected);
        self.posted(&req, self.engine.recv(self.id, &req))
    }

    /// The result of a post as libfabric sees it.
    #[inline]
    fn posted(&self, req: &impl Debug, result: Result<(), SubmitError>) -> Result<isize, Errno> {
        trace!("{:?} {req:?} -> {result:?}", self.id);
        result.map(|()| 0).map_err(Errno::from)
    }

    /// Sends one contiguous buffer.
    #[inline]
    pub(crate) fn send_one(&self, buf: *const c_void, len: usize, out: Outgoing) -> isize {
        self.enter_one(buf.cast_mut(), len, |iov| self.send(iov, out))
    }

    /// Sends several pieces; `out` is an error if the options were refused.
    ///
    /// # Safety
    /// `iov` has `count` entries.
    #[inline]
    pub(crate) unsafe fn send_pieces(
        &self,
        iov: *const libc::iovec,
        count: usize,
        out: Result<Outgoing, Errno>,
    ) -> isize {
        // SAFETY: the caller's promise.
        unsafe { self.enter_pieces(iov, count, |iov| self.send(iov, out?)) }
    }

    /// Posts one contiguous receive buffer.
    #[inline]
    pub(crate) fn recv_one(&self, buf: *mut c_void, len: usize, from: Incoming) -> isize {
        self.enter_one(buf, len, |iov| self.recv(iov, from))
    }

    /// Posts several pieces; `from` is an error if the options were refused.
    ///
    /// # Safety
    /// `iov` has `count` entries.
    #[inline]
    pub(crate) unsafe fn recv_pieces(
        &self,
        iov: *const libc::iovec,
        count: usize,
        from: Result<Incoming, Errno>,
    ) -> isize {
        // SAFETY: the caller's promise.
        unsafe { self.enter_pieces(iov, count, |iov| self.recv(iov, from?)) }
    }

    /// The total length of the pieces in bytes.
    ///
    /// # Safety
    /// `iov` has `count` entries.
    pub(crate) unsafe fn length(
        &self,
        iov: *const libc::iovec,
        count: usize,
    ) -> Result<usize, Errno> {
        // SAFETY: the caller's promise.
        Ok(unsafe { pieces(iov, count) }?.iter().map(|p| p.len).sum())
    }

    /// A send, read or write with the options of its flags. An error if the flags are invalid;
    /// EAGAIN, so that the application retries, for FI_FENCE while earlier operations of this
    /// endpoint are incomplete or messages undelivered.
    #[inline]
    pub(crate) fn flagged(
        &self,
        out: Outgoing,
        options: Result<OpFlags, Errno>,
        flags: u64,
    ) -> Result<Outgoing, Errno> {
        let out = out.with(options?);
        match flags & FI_FENCE != 0 && self.engine.has_open(self.id) {
            true => Err(Errno::AGAIN),
            false => Ok(out),
        }
    }

    /// Reads or writes remote memory; `out` is an error if the options were refused.
    ///
    /// # Safety
    /// `iov` has `count` entries.
    pub(crate) unsafe fn remote_pieces(
        &self,
        access: Access,
        (iov, count): (*const libc::iovec, usize),
        remote: &[(u64, usize, u64)],
        out: Result<Outgoing, Errno>,
    ) -> isize {
        let submit = |iov: &[IoVec]| {
            let out = out?;
            let req = RemoteReq {
                dest: out.dest,
                iov,
                remote,
                data: out.data,
                context: out.context as usize,
                flags: out.flags,
            };
            let result = match access {
                Access::Read => self.engine.read(self.id, &req),
                Access::Write => self.engine.put(self.id, &req),
            };
            self.posted(&(access, &req), result)
        };
        // SAFETY: the caller's promise.
        unsafe { self.enter_pieces(iov, count, submit) }
    }

    /// Binds a completion queue to one or both directions.
    fn bind_cq(&mut self, queue: &cq::Cq, flags: u64) -> Result<(), Errno> {
        if flags & !(FI_SEND | FI_RECV | FI_SELECTIVE_COMPLETION) != 0 {
            return Err(Errno::BADFLAGS);
        }
        let selective = flags & FI_SELECTIVE_COMPLETION != 0;
        if flags & FI_SEND != 0 {
            self.engine.ep_bind_tx_cq(self.id, queue.id);
            (self.tx.selective, self.has_tx_cq) = (selective, true);
        }
        if flags & FI_RECV != 0 {
            self.engine.ep_bind_rx_cq(self.id, queue.id);
            (self.rx.selective, self.has_rx_cq) = (selective, true);
        }
        self.users.push(queue.users.clone());
        self.refresh_plain();
        Ok(())
    }

    fn bind_counter(&mut self, counter: &cntr::Cntr, flags: u64) -> Result<(), Errno> {
        let known = COUNTED.iter().fold(0, |all, (flag, _)| all | flag);
        if flags & !known != 0 {
            return Err(Errno::NOSYS);
        }
        for (_, counted) in COUNTED.iter().filter(|(flag, _)| flags & flag != 0) {
            let counter = counter.counter.clone();
            self.engine.ep_bind_counter(self.id, *counted, counter);
        }
        self.counted |= flags;
        Ok(())
    }

    /// Enables the endpoint, if every direction in use reports completions to a queue or a counter.
    fn enable(&mut self) -> Result<(), Errno> {
        if !self.has_av {
            return Err(Errno::NOAV);
        }
        let (sends, receives) = transmits_and_receives(self.caps);
        let reports_sends = self.has_tx_cq || self.counted & (FI_SEND | FI_READ | FI_WRITE) != 0;
        let there = FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;
        let reports_receives = self.has_rx_cq || self.counted & there != 0;
        if (sends && !reports_sends) || (receives && !reports_receives) {
            return Err(Errno::NOCQ);
        }
        if !self.enabled {
            self.engine.ep_enable(self.id)?;
            self.enabled = true;
        }
        Ok(())
    }

    /// FI_GETOPSFLAG and FI_SETOPSFLAG: the word holds the direction and the flags.
    fn ops_flags(&mut self, command: c_int, word: &mut u64) -> Result<(), Errno> {
        let direction = *word & (FI_TRANSMIT | FI_RECV);
        let side = match direction {
            FI_TRANSMIT => &mut self.tx,
            FI_RECV => &mut self.rx,
            _ => return Err(Errno::INVAL),
        };
        if command == FI_GETOPSFLAG {
            *word = side.op_flags;
            return Ok(());
        }
        side.op_flags = *word & !direction;
        self.refresh_plain();
        Ok(())
    }
}

/// `fi_ep_bind`.
unsafe extern "C" fn bind(ep: *mut fid, object: *mut fid, flags: u64) -> c_int {
    // SAFETY: ours, and control calls run alone.
    let ep = unsafe { ep_of_mut(ep) };
    let shared = ep.shared.clone();
    guard(&shared.health, || {
        if object.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: an object of our domain; its class says which.
        let class = unsafe { (*object).fclass };
        trace!("{:?} bind class {class} flags {flags:#x}", ep.id);
        match class {
            FI_CLASS_AV => {
                // SAFETY: the class says so.
                let vector = unsafe { &*object.cast::<av::Av>() };
                ep.engine.ep_bind_av(ep.id, vector.id);
                ep.users.push(vector.users.clone());
                ep.has_av = true;
            }
            // SAFETY: the class says so.
            FI_CLASS_CQ => ep.bind_cq(unsafe { &*object.cast::<cq::Cq>() }, flags)?,
            // SAFETY: the class says so.
            FI_CLASS_CNTR => ep.bind_counter(unsafe { &*object.cast::<cntr::Cntr>() }, flags)?,
            FI_CLASS_EQ => {} // the provider writes no events of its own
            _ => return Err(Errno::INVAL),
        }
        Ok(0)
    })
}

/// `fi_enable` and the default operation flags.
unsafe extern "C" fn control(ep: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: ours, and control calls run alone.
    let ep = unsafe { ep_of_mut(ep) };
    let shared = ep.shared.clone();
    guard(&shared.health, || {
        trace!("{:?} control {command}", ep.id);
        match command {
            FI_ENABLE => ep.enable()?,
            FI_GETOPSFLAG | FI_SETOPSFLAG if !arg.is_null() => {
                // SAFETY: these commands pass a u64.
                ep.ops_flags(command, unsafe { &mut *arg.cast::<u64>() })?;
            }
            FI_GETOPSFLAG | FI_SETOPSFLAG => return Err(Errno::INVAL),
            _ => return Err(Errno::NOSYS),
        }
        Ok(0)
    })
}

/// Returns whether an endpoint with these capabilities transmits, and whether it receives messages.
/// Both hold if no direction is named (fi_getinfo(3)). Remote access to an endpoint's memory needs
/// no queue.
fn transmits_and_receives(caps: u64) -> (bool, bool) {
    let one_sided = caps & (FI_RMA | FI_ATOMIC) != 0;
    let messages = caps & (FI_MSG | FI_TAGGED) != 0 || !one_sided;
    let both = |ways: u64| caps & ways == 0;
    let sends = both(FI_SEND | FI_RECV) || caps & FI_SEND != 0;
    let receives = both(FI_SEND | FI_RECV) || caps & FI_RECV != 0;
    let any = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    let works = both(any) || caps & (FI_READ | FI_WRITE) != 0;
    (
        messages && sends || one_sided && works,
        messages && receives,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_the_directions_that_their_capabilities_name() {
        for (caps, expected) in [
            (FI_MSG, (true, true)),
            (FI_TAGGED | FI_RECV, (false, true)),
            (FI_MSG | FI_RMA | FI_READ, (true, true)),
            (FI_MSG | FI_SEND | FI_RMA | FI_REMOTE_WRITE, (true, false)),
            (FI_RMA, (true, false)),
            (FI_RMA | FI_READ | FI_WRITE, (true, false)),
            (FI_ATOMIC | FI_REMOTE_READ | FI_REMOTE_WRITE, (false, false)),
            (0, (true, true)),
        ] {
            assert_eq!(transmits_and_receives(caps), expected, "{caps:#x}");
        }
    }
}
