//! Memory of a rail's own that peers write into, to be copied from there: it was opened to the
//! device before, so that no memory of the program has to be.

use crate::remote_write::RemoteWrite;

/// Writes of peers into memory of the rail's own.
pub trait Staging: RemoteWrite {
    /// Lets peers write into `len` bytes of the rail's own, until [`RemoteWrite::deregister`]: the
    /// key that they name; `None`: not so many, not now, or not by this kind. What lies there is
    /// from before. A write that comes late may land there after the key has ended, and so among
    /// what is staged next: only a sum shows it.
    fn stage(&mut self, len: usize) -> Option<u64>;

    /// Shows bytes of such memory as they lie there now; `false`: it is none, or not so long.
    fn unstage(&self, key: u64, offset: u64, len: usize, to: &mut dyn FnMut(&[u8])) -> bool;
}

/// `no_staging!(Tx)`: a rail that has no such memory.
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
