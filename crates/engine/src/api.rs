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
    /// The remote memory key, address or length of a read or write was refused.
    BadRemoteMemory,
    /// The message is there and whole, but its sender is not in the address vector
    /// (`Engine::ep_tell_strangers`).
    UnknownSource,
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
    /// No such address; a closed endpoint has none (`-FI_EINVAL`).
    BadAddress,
    /// Arguments cannot be, or the endpoint is not enabled, or is being closed (`-FI_EINVAL`).
    Invalid,
    /// Inject longer than `INJECT_MAX` (`-FI_EMSGSIZE`).
    TooLong,
    /// Nothing with that context is posted (`-FI_ENOENT`), for cancel.
    NotFound,
    /// There are no random numbers to make an endpoint's identity of (`-FI_EIO`).
    NoIdentity,
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
    /// Send: complete only when a receive of the peer has taken the message.
    pub match_complete: bool,
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

impl OpFlags {
    /// An operation that tells of its end, and nothing else. (`Default` is no constant.)
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

    /// A send is complete only when the peer has said something of it.
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

/// Memory that peers may read or write.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Its name for peers, the caller's.
    pub key: u64,
    /// First byte.
    pub base: *mut u8,
    /// Bytes.
    pub len: usize,
    /// Peers name addresses in it; else offsets from its first byte.
    pub virt_addr: bool,
    /// Peers may read it.
    pub readable: bool,
    /// Peers may write into it.
    pub writable: bool,
}

impl Region {
    /// Peers may read it or write into it.
    pub fn is_open(&self) -> bool {
        self.readable || self.writable
    }
}

/// A remote read or write.
#[derive(Clone, Copy, Debug)]
pub struct RemoteReq<'a> {
    /// Whose memory.
    pub dest: FiAddr,
    /// Where to, or from.
    pub iov: &'a [IoVec],
    /// Remote address (as an offset for zero-based regions), length and key.
    pub remote: &'a [(u64, usize, u64)],
    /// A write: data for the peer's queue of receives, told when the bytes are there.
    pub data: Option<u64>,
    /// Caller's context.
    pub context: usize,
    /// Options.
    pub flags: OpFlags,
}

/// The kinds of atomic operations, by what they do beside changing the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicKind {
    /// Nothing.
    Plain,
    /// It brings the old values.
    Fetch,
    /// It brings the old values, and changes those that compare as asked.
    Compare,
}

/// An atomic operation on the memory of a peer. Types and operations have libfabric's numbers.
#[derive(Clone, Copy, Debug)]
pub struct AtomicReq<'a> {
    /// Whose memory.
    pub dest: FiAddr,
    /// The kind.
    pub kind: AtomicKind,
    /// Type of the elements.
    pub datatype: u8,
    /// Operation.
    pub op: u8,
    /// Operands (of no use to a read).
    pub operands: &'a [IoVec],
    /// Values to compare with.
    pub compare: &'a [IoVec],
    /// Where old values go.
    pub result: &'a [IoVec],
    /// Remote addresses (as offsets for zero-based regions), elements and keys.
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

/// Pieces of a peer's memory that one operation may name.
pub const REMOTE_PIECES_MAX: usize = 8;

/// Sends longer than this may borrow their caller's memory: of what is as short the copy costs no
/// more than the second look at that memory.
pub const BORROW_ABOVE: usize = 16_384;

use marline_proto::group::End;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Ends of operations that a counter of an endpoint counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Messages that were delivered, or cannot be.
    Sends,
    /// Messages that were received.
    Receives,
    /// Remote reads, and atomics that fetch.
    Reads,
    /// Remote writes, and other atomics.
    Writes,
    /// Reads of registered memory by peers.
    RemoteReads,
    /// Their writes into it.
    RemoteWrites,
}

impl Counted {
    /// Each of them.
    pub const ALL: [Counted; 6] = [
        Counted::Sends,
        Counted::Receives,
        Counted::Reads,
        Counted::Writes,
        Counted::RemoteReads,
        Counted::RemoteWrites,
    ];
}

/// A counter that the engine bumps when operations end.
#[derive(Default, Debug)]
pub struct Counter {
    /// Successful operations.
    pub done: AtomicU64,
    /// Failed operations.
    pub errors: AtomicU64,
    /// Is told when either changes.
    pub notice: OnceLock<Notice>,
}

/// A function that is called when something has changed.
pub struct Notice(pub Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Notice")
    }
}

impl Counter {
    /// Counts an operation that ended.
    pub fn count(&self, ok: bool) {
        let count = if ok { &self.done } else { &self.errors };
        count.fetch_add(1, Ordering::Release);
        self.changed();
    }

    /// Either value has changed.
    pub fn changed(&self) {
        if let Some(Notice(tell)) = self.notice.get() {
            tell();
        }
    }
}

/// Severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /** Was asked for, and is to be read as it stands: lines of their own on standard error. */
    Report,
    /** Must be seen. */
    Warn,
    /** For people who ask. */
    Info,
    /** For developers. */
    Debug,
}

/// Where log lines go (the provider passes them to `fi_log`).
#[derive(Clone)]
pub struct LogSink(pub Arc<LogFn>);

/// A function that takes log lines.
pub type LogFn = dyn Fn(LogLevel, &str) + Send + Sync;

/// A group of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId(pub u32);
/// A broadcast of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupOpId(pub u32);

/// A group to open. All its members give the same but for `me`.
#[derive(Clone, Copy, Debug)]
pub struct GroupSpec<'a> {
    /// Random id.
    pub id: u64,
    /// Random token.
    pub token: u32,
    /// This member, from 0.
    pub me: u16,
    /// The members' cards, of [`GROUP_CARD_LEN`](crate::GROUP_CARD_LEN) bytes each.
    pub cards: &'a [&'a [u8]],
}

/// The reason why a call on a group was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupError {
    /// Arguments cannot be, or there is no such group.
    Invalid,
    /// No network that carries groups joins all members, or a group could not be joined.
    NoNetwork,
    /// Forked child, or poisoned engine.
    Unusable,
}

/// How a broadcast ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupEnd {
    /// As it should.
    Well,
    /// This member, the root or one that has to acknowledge, is dead.
    Dead(u16),
    /// Root and receiver disagree about the broadcast's root or length.
    Mismatch,
    /// It was not done, here and at all other members: the network does not carry multicast.
    NotCarried,
    /// The group was closed, or the engine can do nothing any more.
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
