//! The outcome of a send, and the state of a rail.

/// The outcome of one `send`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// All packets were accepted; they may still be lost on the way.
    Sent,
    /// No room: nothing was sent; try again later.
    Busy,
    /// A packet exceeds the PMTU; the new largest datagram in bytes. Nothing was sent.
    TooBig(usize),
    /// The local rail cannot send: link down, interface gone.
    Fault(RailFault),
}

/// State of the rail itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailFault {
    /// Interface down or gone, with the errno.
    Down(i32),
    /// The interface works again.
    Up,
}
