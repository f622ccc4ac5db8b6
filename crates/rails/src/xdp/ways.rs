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

/// Most queues of an interface for which a process opens sockets, each with memory of its own.
/// Packets on other queues take the kernel's way to the same port.
const QUEUES_MAX: usize = 16;

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

/// Open AF_XDP sockets that get the rail's datagrams, each on another queue.
pub(super) struct Opened {
    pub(super) rx: Vec<RxQueue>,
    pub(super) tx: TxQueue,
    /// Of the sockets that only receive.
    pub(super) others: Vec<TxQueue>,
    pub(super) way: Way,
    /// Sizes of the memory of each.
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
        let (driver, all) = (device::driver(interface), device::queues(interface));
        let queues = match self.rx.len() {
            own if own == all => all.to_string(),
            own => format!("{own} of {all}"),
        };
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

    /// Opens sockets on all queues that are free.
    fn open_own(&self) -> Result<Opened, String> {
        let failed = |(step, errno): (&str, Errno)| errors::explain(self.interface, step, errno);
        let queues = device::queues(&self.interface.name).clamp(1, QUEUES_MAX) as u32;
        let assemble = |map| program::assemble(self.ip, map);
        let steering = Steering::attach(self.index, queues, assemble).map_err(failed)?;
        let mut limits = self.limits.of_each(queues);
        let (mut rx, mut tx) = (Vec::new(), Vec::new());
        let mut refusal = ("bind", libc::EBUSY);
        for queue in 0..queues {
            match self.open_queue(queue, &limits, &steering) {
                Ok(opened) => {
                    rx.push(opened.0);
                    tx.push(opened.1);
                    // The limit on locked memory holds for all together.
                    limits = opened.2;
                }
                Err(why) => refusal = why,
            }
        }
        if tx.is_empty() {
            return Err(failed(refusal));
        }
        let others = tx.split_off(1);
        Ok(Opened {
            rx,
            tx: tx.remove(0),
            others,
            limits,
            in_driver: steering.is_in_driver(),
            way: Way::Own(steering),
        })
    }

    /// Opens a socket on a queue, to which datagrams to the rail's port are redirected.
    fn open_queue(
        &self,
        queue: u32,
        limits: &Limits,
        steering: &Steering,
    ) -> Result<(RxQueue, TxQueue, Limits), (&'static str, Errno)> {
        let socket = open_socket().map_err(|errno| ("socket", errno))?;
        let opened = open_queues(socket, (self.index, queue), limits)?;
        let redirected = steering.redirect(queue, self.port, opened.0.socket().as_fd());
        redirected.map_err(|errno| ("map", errno))?;
        Ok(opened)
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
            rx: vec![rx],
            tx,
            others: Vec::new(),
            limits,
            in_driver,
            way: Way::Lent(lease),
        })
    }
}
