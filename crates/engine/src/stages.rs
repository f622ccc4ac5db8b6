//! Where packets are built.

use crate::core::STAGING;

/// The buffer.
pub(crate) struct Stages {
    plain: Box<[u8]>,
}

impl Stages {
    pub(crate) fn new() -> Stages {
        Stages {
            plain: vec![0; STAGING].into_boxed_slice(),
        }
    }

    /// The buffer in which packets are built now.
    #[inline]
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        &mut self.plain
    }
}
