//! The machine of an engine: clock, sockets, connections, and a log of its actions.

pub(crate) mod buffers;
pub(crate) mod connections;
pub(crate) mod halves;
pub(crate) mod host;
pub(crate) mod log;
pub(crate) mod out;
pub(crate) mod place;
pub(crate) mod port;
pub(crate) mod reading;
pub(crate) mod source_ports;
pub(crate) mod sources;
pub(crate) mod stages;
pub(crate) mod system;
