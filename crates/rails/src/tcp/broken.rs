//! Why a connection ended.

use crate::rail::KeyMismatch;
use crate::sys::Errno;

/// The reason why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Break {
    /// The other end has closed it.
    Closed,
    /// The kernel reported an error.
    Failed(Errno),
    /// The received bytes are not a valid frame, or not valid at this point.
    Garbled,
    /// A frame without the right tag.
    Forged(KeyMismatch),
    /// The other end refused us.
    Refused(KeyMismatch),
    /// The other end speaks this other version of the framing.
    Foreign(u8),
    /// The other end did not prove itself in time.
    Late,
    /// The destination of a write is gone. Its notification must not arrive without the bytes, so
    /// the connection ends.
    NoPlace,
}
