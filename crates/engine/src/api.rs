//! Types of the engine's Rust API.

/// Index into an address vector (`fi_addr_t`).
pub type FiAddr = u64;
/// Any source in receives, unknown source in completions (`FI_ADDR_UNSPEC`).
pub const ADDR_UNSPEC: FiAddr = u64::MAX;

/// A piece of user memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)] // same layout as struct iovec
pub struct IoVec {
    /// First byte.
    pub base: *mut u8,
    /// Bytes.
    pub len: usize,
}

/// Completion flag bits with libfabric's values, so that API layers pass them through unchanged.
pub mod flag {
    /// `FI_MSG`.
    pub const MSG: u64 = 1 << 1;
    /// `FI_RMA`.
    pub const RMA: u64 = 1 << 2;
    /// `FI_TAGGED`.
    pub const TAGGED: u64 = 1 << 3;
    /// `FI_ATOMIC`.
    pub const ATOMIC: u64 = 1 << 4;
    /// `FI_READ`.
    pub const READ: u64 = 1 << 8;
    /// `FI_WRITE`.
    pub const WRITE: u64 = 1 << 9;
    /// `FI_RECV`.
    pub const RECV: u64 = 1 << 10;
    /// `FI_SEND`.
    pub const SEND: u64 = 1 << 11;
    /// `FI_REMOTE_READ`.
    pub const REMOTE_READ: u64 = 1 << 12;
    /// `FI_REMOTE_WRITE`.
    pub const REMOTE_WRITE: u64 = 1 << 13;
    /// `FI_MULTI_RECV`.
    pub const MULTI_RECV: u64 = 1 << 16;
    /// `FI_REMOTE_CQ_DATA`.
    pub const REMOTE_CQ_DATA: u64 = 1 << 17;
}

/// The reason why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpError {
    /// The message was longer than the buffer (`olen` = bytes cut off).
    Truncated,
    /// Cancelled by the caller.
    Cancelled,
    /// The peek found nothing.
    NoMessage,
    /// The peer is dead or unreachable.
    PeerDead,
    /// The remote memory key, address or length of a read or write was refused.
    BadRemoteMemory,
    /// The whole message arrived, but its sender is not in the address vector (see
    /// `Engine::ep_set_source_err`).
    UnknownSource,
    /// The endpoint was closed or the engine is poisoned.
    Closed,
}

/// A finished operation. Field order follows `fi_cq_tagged_entry`.
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
    /// The source; [`ADDR_UNSPEC`] if it is not in the address vector.
    pub source: FiAddr,
    /// Set for an error entry.
    pub error: Option<OpError>,
    /// Bytes cut off by truncation.
    pub olen: usize,
}

// SAFETY: the engine only carries these pointers and never dereferences them.
unsafe impl Send for Completion {}

/// The reason why a call was refused immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// Resources are exhausted; progress the CQ and call again (`-FI_EAGAIN`).
    Again,
    /// The peer is known to be dead (`-FI_EHOSTUNREACH`).
    PeerDead,
    /// No such address, for example of a closed endpoint (`-FI_EINVAL`).
    BadAddress,
    /// Impossible arguments, or the endpoint is not enabled or is closing (`-FI_EINVAL`).
    Invalid,
    /// Inject longer than [`INJECT_MAX`] (`-FI_EMSGSIZE`).
    TooLong,
    /// Cancel found no operation with that context (`-FI_ENOENT`).
    NotFound,
    /// The system has no random numbers for an endpoint's identity (`-FI_EIO`).
    NoIdentity,
    /// Forked child, closed endpoint or poisoned engine (`-FI_EOTHER`).
    Unusable,
}

/// Options of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpFlags {
    /// Write a completion entry.
    pub completion: bool,
    /// Send: complete only when the peer has accepted the whole message.
    pub delivery_complete: bool,
    /// Send: complete only when a receive of the peer has matched the message.
    pub match_complete: bool,
    /// Send: the buffer may be reused when the call returns; implies no completion.
    pub inject: bool,
    /// Receive: one buffer for many messages.
    pub multi_recv: bool,
    /// Receive: peek only, without consuming the message.
    pub peek: bool,
    /// Receive: with `peek`, keep the message for a later claim with the same context; without
    /// `peek`, receive the message that a peek with this context claimed.
    pub claim: bool,
    /// Receive: drop the message (with `peek` or `claim`).
    pub discard: bool,
}

impl OpFlags {
    /// Completion entry and no other option. (`Default::default` is not `const`.)
    pub const COMPLETION: OpFlags = OpFlags {
        completion: true,
        delivery_complete: false,
        match_complete: false,
        inject: false,
        multi_recv: false,
        peek: false,
        claim: false,
        discard: false,
    };

    /// True if a send completes only after a reply from the peer.
    #[inline]
    pub(crate) fn wants_word(self) -> bool {
        self.delivery_complete | self.match_complete
    }
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

/// A receive, peek, claim or discard request.
#[derive(Clone, Copy, Debug)]
pub struct RecvReq<'a> {
    /// Only from this source; [`ADDR_UNSPEC`]: from any.
    pub source: FiAddr,
    /// Destination buffers.
    pub iov: &'a [IoVec],
    /// `Some((tag, ignore))` for tagged, `None` for untagged messages.
    pub tag: Option<(u64, u64)>,
    /// Caller's context.
    pub context: usize,
    /// Options.
    pub flags: OpFlags,
}

/// Memory that peers may read or write.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// The key by which peers name the region; the caller chooses it.
    pub key: u64,
    /// First byte.
    pub base: *mut u8,
    /// Bytes.
    pub len: usize,
    /// Remote addresses are virtual addresses; otherwise offsets from the first byte.
    pub virt_addr: bool,
    /// Peers may read the region.
    pub readable: bool,
    /// Peers may write into the region.
    pub writable: bool,
}

impl Region {
    /// True if peers may read the region or write into it.
    pub fn is_open(&self) -> bool {
        self.readable || self.writable
    }
}

/// A remote read or write.
#[derive(Clone, Copy, Debug)]
pub struct RemoteReq<'a> {
    /// Owner of the memory.
    pub dest: FiAddr,
    /// Local buffers: source of a write, destination of a read.
    pub iov: &'a [IoVec],
    /// Remote address (as an offset for zero-based regions), length and key.
    pub remote: &'a [(u64, usize, u64)],
    /// Write: remote CQ data, reported to the peer when the bytes have arrived.
    pub data: Option<u64>,
    /// Caller's context.
    pub context: usize,
    /// Options.
    pub flags: OpFlags,
}

/// Kinds of atomic operations by the values that they return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicKind {
    /// Returns no values.
    Plain,
    /// Returns the old values.
    Fetch,
    /// Returns the old values, and changes only those elements whose comparison holds.
    Compare,
}

/// An atomic operation on a peer's memory. Datatypes and operations have libfabric's numbers.
#[derive(Clone, Copy, Debug)]
pub struct AtomicReq<'a> {
    /// Owner of the memory.
    pub dest: FiAddr,
    /// The kind.
    pub kind: AtomicKind,
    /// Datatype of the elements.
    pub datatype: u8,
    /// Operation.
    pub op: u8,
    /// Operands; unused by reads.
    pub operands: &'a [IoVec],
    /// Comparison values.
    pub compare: &'a [IoVec],
    /// Destination of old values.
    pub result: &'a [IoVec],
    /// Remote addresses (offsets for zero-based regions), element counts and keys.
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

/// Largest inject and eager message in bytes. MPICH asks for delivery-complete above the inject
/// size.
pub const INJECT_MAX: usize = 65_536;

/// Most remote pieces of one operation.
pub const REMOTE_PIECES_MAX: usize = 8;

/// Sends longer than this may borrow the caller's memory. For shorter sends, copying the message
/// costs no more than reading its memory a second time would.
pub const BORROW_ABOVE: usize = 16_384;

use marline_codes::Code;
use marline_proto::group::End;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The kinds of completions that an endpoint's counters count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Sends that were delivered or failed.
    Sends,
    /// Received messages.
    Receives,
    /// Remote reads and fetching atomics.
    Reads,
    /// Remote writes and atomics that do not fetch.
    Writes,
    /// Peers' reads of registered memory.
    RemoteReads,
    /// Peers' writes into registered memory.
    RemoteWrites,
}

impl Counted {
    /// All kinds.
    pub const ALL: [Counted; 6] = [
        Counted::Sends,
        Counted::Receives,
        Counted::Reads,
        Counted::Writes,
        Counted::RemoteReads,
        Counted::RemoteWrites,
    ];
}

/// A counter that the engine increments when operations end.
#[derive(Default, Debug)]
pub struct Counter {
    /// Successful operations.
    pub done: AtomicU64,
    /// Failed operations.
    pub errors: AtomicU64,
    /// Callback for changes of either value.
    pub notice: OnceLock<Notice>,
}

/// A callback that runs after a change.
pub struct Notice(pub Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Notice")
    }
}

impl Counter {
    /// Counts a finished operation.
    pub fn count(&self, ok: bool) {
        let count = if ok { &self.done } else { &self.errors };
        count.fetch_add(1, Ordering::Release);
        self.changed();
    }

    /// Runs the callback after a change of either value.
    pub fn changed(&self) {
        if let Some(Notice(notify)) = self.notice.get() {
            notify();
        }
    }
}

/// Severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /** Was asked for, and is to be read as it stands: lines of their own on standard error. */
    Report,
    /** Must be seen, with the code behind the text. */
    Warn(Code),
    /** For people who ask. */
    Info,
    /** For developers. */
    Debug,
}

/// Destination of log lines; the provider passes them to `fi_log`.
#[derive(Clone)]
pub struct LogSink(pub Arc<LogFn>);

/// A function that takes log lines.
pub type LogFn = dyn Fn(LogLevel, &str) + Send + Sync;

/// A group of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId(pub u32);
/// A broadcast in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupOpId(pub u32);

/// Parameters of a new group. All members give the same values except `me`.
#[derive(Clone, Copy, Debug)]
pub struct GroupSpec<'a> {
    /// Random id.
    pub id: u64,
    /// Random token.
    pub token: u32,
    /// Index of this member, from 0.
    pub me: u16,
    /// Member descriptors of [`MEMBER_DESCRIPTOR_LEN`](crate::GROUP_CARD_LEN) bytes each.
    pub descriptors: &'a [&'a [u8]],
}

/// The reason why a call on a group was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupError {
    /// Impossible arguments, or no such group.
    Invalid,
    /// No network with multicast connects all members, or joining the group failed.
    NoNetwork,
    /// Forked child or poisoned engine.
    Unusable,
}

/// The result of a broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupEnd {
    /// Success.
    Well,
    /// This member is dead: the root, or a member that has to acknowledge.
    Dead(u16),
    /// Root and receiver disagree about the root or the length.
    Mismatch,
    /// The network does not carry multicast; no member has done the broadcast.
    NotCarried,
    /// The group was closed or the engine is poisoned.
    Closed,
}

impl From<End> for GroupEnd {
    fn from(end: End) -> GroupEnd {
        match end {
            End::Well => GroupEnd::Well,
            End::Dead(member) => GroupEnd::Dead(member),
            End::Mismatch => GroupEnd::Mismatch,
            End::NotCarried => GroupEnd::NotCarried,
        }
    }
}
