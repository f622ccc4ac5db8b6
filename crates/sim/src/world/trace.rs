//! Recent actions of an endpoint, for failure reports.

use marline_proto::Event;
use std::fmt;

/// An action or event for the failure report.
#[derive(Clone, Debug)]
pub enum Trace {
    /// A packet sent: destination, path code, number, bytes, frames.
    Sent(u32, u16, u64, usize, String),
    /// A packet received: source, path code, number, result.
    Came(u32, u16, u64, String),
    /// The node reported an event.
    Said(Event),
    /// The application acted, or got a report.
    Did(String),
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trace::Sent(to, path, number, len, what) => {
                write!(f, "-> {to} path {path:04x} #{number} {len} B: {what}")
            }
            Trace::Came(from, path, number, what) => {
                write!(f, "<- {from} path {path:04x} #{number}: {what}")
            }
            Trace::Said(event) => write!(f, "   {event:?}"),
            Trace::Did(what) => write!(f, "   {what}"),
        }
    }
}
