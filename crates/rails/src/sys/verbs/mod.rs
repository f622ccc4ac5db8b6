//! Verbs: libibverbs loaded at run time, with its objects as Rust values. Each object holds
//! references to the objects it was made from, so that they are freed in the right order.

mod device;
mod layout;
mod library;
mod memory;
mod queue;
mod requests;

pub(crate) use device::{device_names, VerbsDevice, VerbsEvent};
pub(crate) use layout::{Completion, PortAttr};
pub(crate) use memory::{Domain, KeyedMemory, Region};
pub(crate) use queue::{
    AddressHandle, CompletionChannel, CompletionQueue, Path, QueuePair, QueueSizes, QueueType,
    ReceiveQueue, ToPeer,
};
pub(crate) use requests::{Operation, PostTo, Receives, Request, Sends};

use super::{check, Errno};

/// Makes a descriptor of the library non-blocking.
fn unblocking(fd: i32) -> Result<(), Errno> {
    // SAFETY: fcntl with these commands takes no pointers.
    let flags = check(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    // SAFETY: see above.
    check(unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) }).map(|_| ())
}
