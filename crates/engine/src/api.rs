//! Types of the engine's Rust API.

/// Index into an address vector (`fi_addr_t`).
pub type FiAddr = u64;
/// "From anyone" / "unknown source".
pub const ADDR_UNSPEC: FiAddr = u64::MAX;

/// One piece of user memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)] // same layout as struct iovec
pub struct IoVec {
    /// First byte.
    pub base: *mut u8,
    /// Bytes.
    pub len: usize,
}

/// Completion flag bits; the values are libfabric's, so that a door can pass them through.
pub mod flag {
    /// `FI_MSG`.
    pub const MSG: u64 = 1 << 1;
    /// `FI_RMA`.
    pub const RMA: u64 = 1 << 2;
    /// `FI_TAGGED`.
    pub const TAGGED: u64 = 1 << 3;
    /// `FI_READ`.
    pub const READ: u64 = 1 << 8;
    /// `FI_RECV`.
    pub const RECV: u64 = 1 << 10;
    /// `FI_SEND`.
    pub const SEND: u64 = 1 << 11;
    /// `FI_MULTI_RECV`.
    pub const MULTI_RECV: u64 = 1 << 16;
    /// `FI_REMOTE_CQ_DATA`.
    pub const REMOTE_CQ_DATA: u64 = 1 << 17;
}

/// How an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpError {
    /// The message was longer than the buffer (`olen` = bytes cut off).
    Truncated,
    /// Cancelled by the caller.
    Cancelled,
    /// Peek found nothing.
    NoMessage,
    /// The peer is dead or unreachable.
    PeerDead,
    /// The remote memory key, address or length of a read was refused.
    BadRemoteMemory,
    /// The endpoint was closed or the engine is poisoned.
    Closed,
}

/// A finished operation. Order of fields follows `fi_cq_tagged_entry`.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// The caller's context pointer, as an integer.
    pub context: usize,
    /// [`flag`] bits.
    pub flags: u64,
    /// Bytes received.
    pub len: usize,
    /// Payload address of a multi-receive entry, else the buffer (or null).
    pub buf: *mut u8,
    /// Remote CQ data.
    pub data: u64,
    /// Tag.
    pub tag: u64,
    /// Source, [`ADDR_UNSPEC`] when not in the address vector.
    pub source: FiAddr,
    /// Set for an error entry.
    pub error: Option<OpError>,
    /// Bytes cut off by truncation.
    pub olen: usize,
}

// SAFETY: pointers here are only carried, never followed, by the engine.
unsafe impl Send for Completion {}

/// Why a call was refused at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// No resources now; progress the CQ and call again (`-FI_EAGAIN`).
    Again,
    /// The peer is known to be dead (`-FI_EHOSTUNREACH`).
    PeerDead,
    /// No such address (`-FI_EINVAL`).
    BadAddress,
    /// Arguments cannot be (`-FI_EINVAL`).
    Invalid,
    /// Inject longer than `INJECT_MAX` (`-FI_EMSGSIZE`).
    TooLong,
    /// Nothing with that context is posted (`-FI_ENOENT`), for cancel.
    NotFound,
    /// Forked child, closed endpoint or poisoned engine (`-FI_EOTHER`).
    Unusable,
}

/// Options of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpFlags {
    /// A completion entry is wanted.
    pub completion: bool,
    /// Send: complete only when the peer has accepted the whole message.
    pub delivery_complete: bool,
    /// Send: the buffer may be reused when the call returns (and no completion).
    pub inject: bool,
    /// Receive: one buffer for many messages.
    pub multi_recv: bool,
    /// Receive: look only.
    pub peek: bool,
    /// Receive: with `peek`, keep the message for the later claim with the same context;
    /// without, receive the message claimed by a peek with that context.
    pub claim: bool,
    /// Receive: drop the message (with `peek` or `claim`).
    pub discard: bool,
}

/// A send.
#[derive(Clone, Copy, Debug)]
pub struct SendReq<'a> {
    /// Destination in the endpoint's address vector.
    pub dest: FiAddr,
    /// Payload.
    pub iov: &'a [IoVec],
    /// Tag, or `None` for an untagged message.
    pub tag: Option<u64>,
    /// Remote CQ data.
    pub data: Option<u64>,
    /// Caller's context.
    pub context: usize,
    /// Options.
    pub flags: OpFlags,
}

/// A receive, peek, claim or discard.
#[derive(Clone, Copy, Debug)]
pub struct RecvReq<'a> {
    /// Only from this source, or [`ADDR_UNSPEC`].
    pub source: FiAddr,
    /// Where to.
    pub iov: &'a [IoVec],
    /// `Some((tag, ignore))` for tagged, `None` for untagged messages.
    pub tag: Option<(u64, u64)>,
    /// Caller's context.
    pub context: usize,
    /// Options.
    pub flags: OpFlags,
}

/// A remote read.
#[derive(Clone, Copy, Debug)]
pub struct ReadReq<'a> {
    /// Whose memory.
    pub dest: FiAddr,
    /// Where to.
    pub iov: &'a [IoVec],
    /// Remote address (as an offset for zero-based regions), length and key.
    pub remote: &'a [(u64, usize, u64)],
    /// Caller's context.
    pub context: usize,
    /// Options.
    pub flags: OpFlags,
}

/// A completion queue of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CqId(pub u32);
/// An address vector of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AvId(pub u32);
/// An endpoint of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EpId(pub u32);

/// Largest inject and eager message in bytes (design rule 1).
pub const INJECT_MAX: usize = 65_536;

use std::sync::atomic::AtomicU64;
use std::sync::Arc;

/// A counter that the engine bumps when reads complete.
#[derive(Default, Debug)]
pub struct Counter {
    /// Successful operations.
    pub done: AtomicU64,
    /// Failed operations.
    pub errors: AtomicU64,
}

/// One Marline engine: the rails, the protocol and the lock of one libfabric domain. Clones are
/// handles to the same engine.
#[derive(Clone)]
pub struct Engine {}

#[allow(unused_variables, missing_docs)]
impl Engine {
    /// Opens the rails and starts (or joins) the process's progress thread. Errors are texts for
    /// people: what, which rail, what to do.
    pub fn open(settings: crate::settings::Settings, log: crate::LogSink) -> Result<Engine, String> {
        todo!()
    }
    /// Stops using the engine; the last one joins the thread. Endpoints must be closed before.
    pub fn close(&self) { todo!() }

    pub fn cq_open(&self) -> CqId { todo!() }
    pub fn cq_close(&self, cq: CqId) { todo!() }
    /// The progress call. Makes progress on the whole engine, then moves finished operations out.
    /// Stops before an error entry: `Ok(n)` with n entries written (0: nothing there), or
    /// `Err(())` when the first entry is an error (fetch it with `cq_take_error`).
    #[allow(clippy::result_unit_err)]
    pub fn cq_read(&self, cq: CqId, out: &mut [Completion]) -> Result<usize, ()> { todo!() }
    pub fn cq_take_error(&self, cq: CqId) -> Option<Completion> { todo!() }
    /// Sleeps until the CQ has an entry or the time is over (`fi_cq_sread`).
    pub fn cq_wait(&self, cq: CqId, timeout_ms: i32) { todo!() }

    pub fn av_open(&self) -> AvId { todo!() }
    pub fn av_close(&self, av: AvId) { todo!() }
    /// Adds an address; the first gets 0. Duplicates get a new index for the same peer.
    pub fn av_insert(&self, av: AvId, blob: &[u8]) -> Result<FiAddr, SubmitError> { todo!() }
    pub fn av_remove(&self, av: AvId, addr: FiAddr) -> Result<(), SubmitError> { todo!() }
    /// The blob and its length.
    pub fn av_lookup(&self, av: AvId, addr: FiAddr) -> Option<([u8; 64], usize)> { todo!() }

    /// A new endpoint with its own identity, not yet enabled.
    pub fn ep_open(&self) -> Result<EpId, SubmitError> { todo!() }
    /// Its address blob and length; valid from `ep_open` on.
    pub fn ep_name(&self, ep: EpId) -> Option<([u8; 64], usize)> { todo!() }
    pub fn ep_bind_av(&self, ep: EpId, av: AvId) { todo!() }
    pub fn ep_bind_tx_cq(&self, ep: EpId, cq: CqId) { todo!() }
    pub fn ep_bind_rx_cq(&self, ep: EpId, cq: CqId) { todo!() }
    pub fn ep_bind_read_counter(&self, ep: EpId, counter: Arc<Counter>) { todo!() }
    pub fn ep_enable(&self, ep: EpId) -> Result<(), SubmitError> { todo!() }
    /// Free space below which a multi-receive buffer is released (`FI_OPT_MIN_MULTI_RECV`).
    pub fn ep_set_min_multi_recv(&self, ep: EpId, bytes: usize) { todo!() }
    /// Drains own sends (at most 2 s), says BYE, drops posted receives without completions.
    pub fn ep_close(&self, ep: EpId) { todo!() }

    pub fn send(&self, ep: EpId, req: &SendReq<'_>) -> Result<(), SubmitError> { todo!() }
    /// Receive, peek, claim, discard. A peek's outcome (also a miss) is a completion.
    pub fn recv(&self, ep: EpId, req: &RecvReq<'_>) -> Result<(), SubmitError> { todo!() }
    pub fn read(&self, ep: EpId, req: &ReadReq<'_>) -> Result<(), SubmitError> { todo!() }
    /// Cancels the first posted receive with this context; its entry is `OpError::Cancelled`.
    pub fn cancel(&self, ep: EpId, context: usize) -> Result<(), SubmitError> { todo!() }

    /// Registers memory for remote reads. `key`: the caller's. Addresses in reads are offsets
    /// from `base` (zero-based) unless `virt_addr`.
    pub fn mr_open(&self, base: *mut u8, len: usize, key: u64, virt_addr: bool)
        -> Result<(), SubmitError> { todo!() }
    pub fn mr_close(&self, key: u64) { todo!() }
    /// Progress without reading a queue (counter waits).
    pub fn progress(&self) { todo!() }
}

/// Severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel { /** Must be seen. */ Warn, /** For people who ask. */ Info, /** For developers. */ Debug }

/// Where log lines go (the provider passes them to `fi_log`).
#[derive(Clone)]
pub struct LogSink(pub Arc<dyn Fn(LogLevel, &str) + Send + Sync>);

/// Marks this process as a forked child: every engine call fails from now on
/// (called by the provider's `pthread_atfork` child handler; async-signal-safe).
pub fn mark_forked() {}
