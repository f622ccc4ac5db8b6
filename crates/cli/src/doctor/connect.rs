//! Connections by TCP from a given address, with a deadline and the reason of a failure.

use super::messages::Tcp;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{bind, connect, socket_with, sockopt, AddressFamily, SocketFlags, SocketType};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Connects from an address of this host.
pub fn connect_from(from: IpAddr, to: SocketAddr, longest: Duration) -> Result<TcpStream, Tcp> {
    start(from, to)
        .and_then(|socket| finish(&socket, longest).map(|()| socket))
        .map_err(reason)
        .and_then(|socket| {
            let stream = TcpStream::from(socket);
            let made = stream.set_nonblocking(false);
            made.map_err(|_| Tcp::Silent).map(|()| stream)
        })
}

/// The socket of a connection that is under way.
fn start(from: IpAddr, to: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    let mut own = SocketAddr::new(from, 0);
    if let (SocketAddr::V6(own), SocketAddr::V6(to)) = (&mut own, to) {
        own.set_scope_id(to.scope_id());
    }
    bind(&socket, &own)?;
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(e) => Err(e),
    }
}

/// Waits for the end of a connection's start.
fn finish(socket: &OwnedFd, longest: Duration) -> Result<(), Errno> {
    let limit = Timespec {
        tv_sec: longest.as_secs() as i64,
        tv_nsec: i64::from(longest.subsec_nanos()),
    };
    let mut fds = [PollFd::new(socket, PollFlags::OUT)];
    match poll(&mut fds, Some(&limit))? {
        0 => Err(Errno::TIMEDOUT),
        _ => sockopt::socket_error(socket)?,
    }
}

fn reason(errno: Errno) -> Tcp {
    match errno {
        Errno::CONNREFUSED | Errno::CONNRESET => Tcp::Refused,
        Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::NETDOWN => Tcp::Unreachable,
        _ => Tcp::Silent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_refusal_differs_from_a_connection() {
        let own: IpAddr = [127, 0, 0, 1].into();
        let listener = TcpListener::bind((own, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let long = Duration::from_secs(30);
        assert!(connect_from(own, to, long).is_ok());
        drop(listener);
        assert_eq!(connect_from(own, to, long).err(), Some(Tcp::Refused));
    }
}
