//! What a kernel does with the bytes it sums, chosen at compile time.

/// One of [`Sum`], [`Cached`], [`Claimed`] and [`Streaming`].
pub(crate) trait Store {
    /// Bytes are stored at the destination.
    const STORE: bool;
    /// They are stored past the caches, from whole blocks at an aligned destination.
    const STREAM: bool = false;
    /// Lines of the destination are asked for, to be written, well before they are.
    const CLAIM: bool = false;
}

/// Only sums.
pub(crate) struct Sum;
/// Copies with plain stores.
pub(crate) struct Cached;
/// Copies with plain stores, more than L1 holds.
pub(crate) struct Claimed;
/// Copies with non-temporal stores and prefetches the source.
pub(crate) struct Streaming;

impl Store for Sum {
    const STORE: bool = false;
}

impl Store for Cached {
    const STORE: bool = true;
}

impl Store for Claimed {
    const STORE: bool = true;
    const CLAIM: bool = true;
}

impl Store for Streaming {
    const STORE: bool = true;
    const STREAM: bool = true;
}
