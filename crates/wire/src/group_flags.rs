//! Flags of a group's acknowledgements.

/// Flags of an acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckFlags {
    /// Multicast does not reach the member, or a member whose acknowledgements it aggregates.
    pub unreachable: bool,
    /// The member, or one whose acknowledgements it aggregates, lost many packets recently: the
    /// root should reduce its rate.
    pub lossy: bool,
}

impl AckFlags {
    /// Encodes as the two lowest bits.
    pub fn bits(self) -> u8 {
        self.unreachable as u8 | (self.lossy as u8) << 1
    }

    /// Decodes from the two lowest bits.
    pub fn of(bits: u8) -> AckFlags {
        AckFlags {
            unreachable: bits & 1 != 0,
            lossy: bits & 2 != 0,
        }
    }
}
