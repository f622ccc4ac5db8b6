//! Staging memory: registered memory of the rail, into which peers write and from which the data is
//! copied, so that no application memory need be registered.

use crate::remote_write::RemoteWrite;

/// Writes of peers into the rail's own memory.
pub trait Staging: RemoteWrite {
    /// Lets peers write into `len` bytes of staging memory until [`RemoteWrite::deregister`].
    /// Returns the key that they use; `None` if the length, the present state or the kind does not
    /// allow it. The memory has stale contents. A late write may land after its key has ended,
    /// among data staged later: only a sum reveals that.
    fn stage(&mut self, len: usize) -> Option<u64>;

    /// Passes bytes of staging memory to `to` as they are; `false` if the key is unknown or the
    /// range exceeds its memory.
    fn unstage(&self, key: u64, offset: u64, len: usize, to: &mut dyn FnMut(&[u8])) -> bool;
}

/// `no_staging!(Tx)`: implements [`Staging`](crate::Staging) for a rail without staging memory.
#[macro_export]
macro_rules! no_staging {
    ($tx:ty) => {
        impl $crate::Staging for $tx {
            fn stage(&mut self, _len: usize) -> Option<u64> {
                None
            }
            fn unstage(
                &self,
                _key: u64,
                _offset: u64,
                _len: usize,
                _to: &mut dyn FnMut(&[u8]),
            ) -> bool {
                false
            }
        }
    };
}
