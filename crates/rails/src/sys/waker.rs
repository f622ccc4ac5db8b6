//! Sockets by which the processes of a host wake each other, found by a name that they share.

use super::Errno;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A socket that becomes readable when its process is called.
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
    /// The waker of a slot among those of a name.
    pub(crate) fn open(name: u64, slot: u32) -> Result<Waker, Errno> {
        let address = name_of(name, slot).map_err(errno)?;
        let socket = UnixDatagram::bind_addr(&address).map_err(errno)?;
        socket.set_nonblocking(true).map_err(errno)?;
        Ok(Waker { socket, name })
    }

    /// Wakes the process of a slot, if it is there; one that was called already is awake.
    #[cold]
    pub(crate) fn call(&self, slot: u32) {
        let address = name_of(self.name, slot);
        let _ = address.and_then(|to| self.socket.send_to_addr(&[1], &to));
    }

    /// Was woken.
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

    /// Its descriptor.
    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
