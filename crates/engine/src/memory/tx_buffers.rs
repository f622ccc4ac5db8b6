//! Where packets are built.

use marline_wire::PACKET_MAX;

/// Bytes of a staging buffer: one super-packet (design rule 8).
const STAGING: usize = PACKET_MAX + 512;

/// The buffer.
pub(crate) struct TxBuffers {
    plain: Box<[u8]>,
}

impl TxBuffers {
    pub(crate) fn new() -> TxBuffers {
        TxBuffers {
            plain: vec![0; STAGING].into_boxed_slice(),
        }
    }

    /// The buffer in which packets are built now.
    #[inline]
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        &mut self.plain
    }
}
