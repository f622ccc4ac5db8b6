//! Elects one process per host and job to report for all: the process that binds a socket name. The
//! kernel releases the name however the process ends.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::parent_id;

/// The exclusive right to report about a subject, until it is dropped.
pub(crate) struct HostLeader {
    _name: UnixDatagram,
}

impl HostLeader {
    /// Takes the right to report about `what`, unless another process has it that the same launcher
    /// started on this host.
    pub(crate) fn take(what: &str) -> Option<HostLeader> {
        let name = format!("marline-speaks-{}-{what}", parent_id());
        let address = SocketAddr::from_abstract_name(name).ok()?;
        let _name = UnixDatagram::bind_addr(&address).ok()?;
        Some(HostLeader { _name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_to_report_ends_when_dropped() {
        let what = format!("test-{}", std::process::id());
        let first = HostLeader::take(&what).expect("nobody else has it");
        assert!(HostLeader::take(&what).is_none());
        drop(first);
        assert!(HostLeader::take(&what).is_some());
    }
}
