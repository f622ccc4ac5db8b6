//! What a kernel does with the bytes it sums, chosen at compile time.

/// One of [`Sum`], [`Cached`] and [`Streaming`].
pub(crate) trait Store {
    /// Bytes are stored at the destination.
    const STORE: bool;
    /// They are stored past the caches, from whole blocks at an aligned destination.
    const STREAM: bool = false;
}

/// Only sums.
pub(crate) struct Sum;
/// Copies with plain stores.
pub(crate) struct Cached;
/// Copies with non-temporal stores and prefetches the source.
pub(crate) struct Streaming;

impl Store for Sum {
    const STORE: bool = false;
}

impl Store for Cached {
    const STORE: bool = true;
}

impl Store for Streaming {
    const STORE: bool = true;
    const STREAM: bool = true;
}
