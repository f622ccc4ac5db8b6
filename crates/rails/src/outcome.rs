//! The outcome of a send, and the state of a rail.

/// The outcome of one `send`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// All packets were taken (and may still be lost on the way).
    Sent,
    /// No room now: nothing was sent; try again later.
    Busy,
    /// A packet exceeds the path's MTU; the new largest datagram in bytes, nothing was sent.
    TooBig(usize),
    /// The rail (not the peer) cannot send: link down, interface gone.
    Fault(RailFault),
}

/// State of the rail itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailFault {
    /// Interface down or gone, with the errno.
    Down(i32),
    /// It answers again.
    Up,
}
