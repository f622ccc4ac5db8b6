//! Sockets by which the processes of a host wake each other, found under a common name.

use super::Errno;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A socket that becomes readable when another process wakes this one.
pub(crate) struct Waker {
    socket: UnixDatagram,
    name: u64,
}

fn name_of(name: u64, slot: u32) -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("marline-{name:016x}-{slot}"))
}

fn errno(error: std::io::Error) -> Errno {
    error.raw_os_error().unwrap_or(libc::EIO)
}

impl Waker {
    /// Opens the waker of a slot under a name.
    pub(crate) fn open(name: u64, slot: u32) -> Result<Waker, Errno> {
        let address = name_of(name, slot).map_err(errno)?;
        let socket = UnixDatagram::bind_addr(&address).map_err(errno)?;
        socket.set_nonblocking(true).map_err(errno)?;
        Ok(Waker { socket, name })
    }

    /// Wakes the process of a slot, if it exists; an error means that a wake-up is pending or the
    /// process is gone.
    #[cold]
    pub(crate) fn call(&self, slot: u32) {
        let address = name_of(self.name, slot);
        let _ = address.and_then(|to| self.socket.send_to_addr(&[1], &to));
    }

    /// Consumes pending wake-ups.
    #[cold]
    pub(crate) fn drain(&self) {
        let mut byte = [0];
        loop {
            match self.socket.recv(&mut byte) {
                Ok(_) => {}
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    /// The descriptor.
    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
