//! The ways in which a process gets a rail past the stack: by its own privileges, or from the
//! service that lends them.

use super::lending::{Lease, Loan};
use super::{device, errors, program};
use crate::interfaces::InterfaceChoice;
use crate::sys::xdp::{open_queues, open_socket, Limits, RxQueue, Steering, TxQueue};
use crate::sys::Errno;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The queue of the interface whose packets are redirected by a program of this process. Packets on
/// other queues take the kernel's way to the same port.
const QUEUE: u32 = 0;

/// The program, or the loan, that redirects the rail's datagrams until it is dropped.
#[expect(dead_code, reason = "a program is detached when dropped")]
pub(super) enum Way {
    /// A program of this process.
    Own(Steering),
    /// The service's program.
    Lent(Lease),
}

impl Way {
    /// Does what has to be done now and then.
    #[cold]
    pub(super) fn poll(&mut self) {
        if let Way::Lent(lease) = self {
            lease.poll();
        }
    }
}

/// An open AF_XDP socket that gets the rail's datagrams.
pub(super) struct Opened {
    pub(super) rx: RxQueue,
    pub(super) tx: TxQueue,
    pub(super) way: Way,
    /// Sizes of its memory.
    pub(super) limits: Limits,
    /// The driver runs the program.
    pub(super) in_driver: bool,
}

impl Opened {
    /// Driver, place of the program, queues, and the way, for people.
    pub(super) fn facts(&self, interface: &str) -> String {
        let place = match self.in_driver {
            true => "the driver",
            false => "the stack",
        };
        let way = match self.way {
            Way::Own(_) => "own privileges",
            Way::Lent(_) => "marline xdpd",
        };
        let (driver, queues) = (device::driver(interface), device::queues(interface));
        format!("driver {driver}, program in {place}, queues: {queues}, by {way}")
    }
}

/// Where a rail is to be opened.
pub(super) struct Site<'a> {
    pub(super) interface: &'a InterfaceChoice,
    /// Index of the interface.
    pub(super) index: u32,
    pub(super) ip: IpAddr,
    /// Port of the rail's UDP socket.
    pub(super) port: u16,
    pub(super) limits: Limits,
}

impl Site<'_> {
    /// Opens a socket: from the service at a path if there is one, else by this process's
    /// privileges. `udp` is the rail's UDP socket. The error says why neither is possible.
    pub(super) fn open(&self, udp: OwnedFd, service: &Path) -> Result<Opened, String> {
        if service.as_os_str().is_empty() {
            return self.open_own();
        }
        self.borrow(udp, service)
            .or_else(|refusal| self.open_own().map_err(|why| format!("{why}; {refusal}")))
    }

    fn open_own(&self) -> Result<Opened, String> {
        let failed = |(step, errno): (&str, Errno)| errors::explain(self.interface, step, errno);
        let assemble = |map| program::assemble(self.ip, map);
        let steering = Steering::attach(self.index, 1, assemble).map_err(failed)?;
        let socket = open_socket().map_err(|errno| failed(("socket", errno)))?;
        let place = (self.index, QUEUE);
        let (rx, tx, limits) = open_queues(socket, place, &self.limits).map_err(failed)?;
        let redirected = steering.redirect(QUEUE, self.port, rx.socket().as_fd());
        redirected.map_err(|errno| failed(("map", errno)))?;
        Ok(Opened {
            rx,
            tx,
            limits,
            in_driver: steering.is_in_driver(),
            way: Way::Own(steering),
        })
    }

    fn borrow(&self, udp: OwnedFd, service: &Path) -> Result<Opened, String> {
        let Loan {
            connection,
            socket,
            queue,
            in_driver,
        } = Loan::ask(service, self.index)?;
        let place = (self.index, queue);
        let failed = |(step, errno): (&str, Errno)| errors::explain(self.interface, step, errno);
        let (rx, tx, limits) = open_queues(socket, place, &self.limits).map_err(failed)?;
        let own = rx.socket().as_fd().try_clone_to_owned();
        let own = own.map_err(|error| error.to_string())?;
        let to = (self.ip, self.port);
        let lease = Lease::take(service, connection, place, to, [own, udp])?;
        Ok(Opened {
            rx,
            tx,
            limits,
            in_driver,
            way: Way::Lent(lease),
        })
    }
}
