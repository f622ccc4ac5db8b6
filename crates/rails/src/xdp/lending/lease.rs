//! The rail's half: a socket and a port, lent by the service.

use super::messages::{Answer, Request, LEN_MAX};
use crate::sys::{errno_text, own_uid, Errno, SeqPacket};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest wait for an answer: the service attaches its program first if an interface has changed.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Most polls of a lease between attempts to reach a service. Their number doubles with each vain
/// attempt, which is a system call or two.
const PAUSE_MAX: u32 = 256;

/// A socket that the service lent, not bound yet.
pub(crate) struct Loan {
    /// To the service, for the lease.
    pub(crate) connection: SeqPacket,
    /// The AF_XDP socket.
    pub(crate) socket: OwnedFd,
    /// Queue for which it is.
    pub(crate) queue: u32,
    /// The driver runs the service's program.
    pub(crate) in_driver: bool,
}

impl Loan {
    /// Asks the service at a path for a socket on the interface with this index. The error is a
    /// reason for people.
    pub(crate) fn ask(service: &Path, interface: u32) -> Result<Loan, String> {
        let connection = SeqPacket::connect_to(service).map_err(|errno| {
            let (path, why) = (service.display(), errno_text(errno));
            format!("marline xdpd is not there ({path}: {why})")
        })?;
        // (A refusal waits already if the service has ended the connection.)
        let _ = connection.send(&Request::Socket { interface }.bytes(), &[]);
        let (answer, mut beside) = await_answer(&connection)?;
        match (answer, beside.pop()) {
            (Answer::Lent { queue, in_driver }, Some(socket)) => Ok(Loan {
                connection,
                socket,
                queue,
                in_driver,
            }),
            (Answer::Refused(why), _) => Err(refusal(&why)),
            _ => Err("marline xdpd sent another answer than a socket".to_owned()),
        }
    }
}

/// The datagrams to a port, as long as the service lends them.
pub(crate) struct Lease {
    service: PathBuf,
    request: Request,
    /// The AF_XDP socket and the UDP socket of the port, for a next service.
    sockets: [OwnedFd; 2],
    state: State,
    /// Polls until the next attempt, and the number after that.
    left: u32,
    pause: u32,
}

enum State {
    Held(SeqPacket),
    /// A service was asked and has not answered yet.
    Asked(SeqPacket),
    /// The kernel receives the datagrams.
    Lost,
}

impl Lease {
    /// Asks for the datagrams to `ip` and `port`, on the connection to the service at a path. The
    /// sockets are the AF_XDP socket, which is bound to the queue, and the port's UDP socket. The
    /// error is a reason for people.
    pub(crate) fn take(
        service: &Path,
        connection: SeqPacket,
        (interface, queue): (u32, u32),
        (ip, port): (IpAddr, u16),
        sockets: [OwnedFd; 2],
    ) -> Result<Lease, String> {
        let request = Request::Redirect {
            interface,
            queue,
            ip,
            port,
        };
        let mut lease = Lease {
            service: service.to_owned(),
            request,
            sockets,
            state: State::Lost,
            left: 0,
            pause: 1,
        };
        lease.request_on(&connection).map_err(errno_text)?;
        match await_answer(&connection)?.0 {
            Answer::Redirected => lease.state = State::Held(connection),
            Answer::Refused(why) => return Err(refusal(&why)),
            Answer::Lent { .. } => return Err("marline xdpd sent a socket unasked".to_owned()),
        }
        Ok(lease)
    }

    fn request_on(&self, connection: &SeqPacket) -> Result<(), Errno> {
        let [socket, udp] = &self.sockets;
        connection.send(&self.request.bytes(), &[socket.as_fd(), udp.as_fd()])
    }

    /// Looks whether the service has ended, and asks the next one.
    #[cold]
    pub(crate) fn poll(&mut self) {
        let state = std::mem::replace(&mut self.state, State::Lost);
        self.state = match state {
            State::Lost if self.left > 0 => {
                self.left -= 1;
                State::Lost
            }
            State::Lost => {
                (self.left, self.pause) = (self.pause, (2 * self.pause).min(PAUSE_MAX));
                self.ask_again().map_or(State::Lost, State::Asked)
            }
            State::Held(connection) => match receive(&connection) {
                Ok(None) => State::Held(connection),
                _ => {
                    (self.left, self.pause) = (0, 1);
                    State::Lost
                }
            },
            State::Asked(connection) => match receive(&connection) {
                Ok(None) => State::Asked(connection),
                Ok(Some((Answer::Redirected, _))) => State::Held(connection),
                _ => State::Lost,
            },
        };
    }

    fn ask_again(&self) -> Option<SeqPacket> {
        let connection = SeqPacket::connect_to(&self.service).ok()?;
        self.request_on(&connection).ok()?;
        Some(connection)
    }
}

fn refusal(why: &str) -> String {
    format!("marline xdpd refuses user {}: {why}", own_uid())
}

/// Receives an answer, with descriptors, if one waits; the error is a reason for people.
fn receive(connection: &SeqPacket) -> Result<Option<(Answer, Vec<OwnedFd>)>, String> {
    let mut bytes = [0; LEN_MAX];
    let received = match connection.recv(&mut bytes) {
        // The service ended the connection before it read the request; its refusal is behind.
        Err(libc::ECONNRESET) => connection.recv(&mut bytes),
        received => received,
    };
    match received {
        Err(libc::EAGAIN | libc::EINTR) => Ok(None),
        Err(errno) => Err(errno_text(errno)),
        Ok(message) if message.len == 0 => Err("marline xdpd has ended the connection".to_owned()),
        Ok(message) => {
            let answer = Answer::parse(&bytes[..message.len])?;
            Ok(Some((answer, message.fds)))
        }
    }
}

fn await_answer(connection: &SeqPacket) -> Result<(Answer, Vec<OwnedFd>), String> {
    connection.wait(ANSWER_LIMIT);
    receive(connection)?.ok_or_else(|| "marline xdpd does not answer".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_read_also_if_the_request_was_not() {
        let name = format!("marline-lease-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let listener = SeqPacket::listen_at(&path).unwrap();
        let connection = SeqPacket::connect_to(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let request = Request::Socket { interface: 1 };
        connection.send(&request.bytes(), &[]).unwrap();
        let service = listener.accept().unwrap();
        let no = Answer::Refused("no".to_owned());
        service.send(&no.bytes(), &[]).unwrap();
        drop(service);
        let (answer, _) = receive(&connection).unwrap().unwrap();
        assert_eq!(answer, no);
        assert!(receive(&connection).unwrap_err().contains("has ended"));
    }
}
