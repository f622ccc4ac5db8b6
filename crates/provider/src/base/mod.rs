//! The ground of every call: the boundary to C, object handles, and the libfabric and process that
//! loaded the provider.

pub(crate) mod about;
pub(crate) mod boundary;
pub(crate) mod caller_memory;
pub(crate) mod host;
pub(crate) mod log;
pub(crate) mod object;
pub(crate) mod settings;
