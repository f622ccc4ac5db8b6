//! An interface of which the service lends: the program at it, and who has which queue.

use crate::interfaces::InterfaceChoice;
use crate::sys::xdp::Steering;
use crate::sys::{interface_index, interfaces};
use crate::xdp::{device, errors, is_link_local, program};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

/// Most queues for which sockets are lent; the map of sockets has 512 KiB for each.
const QUEUES_MAX: usize = 64;

/// An interface with the program.
pub(super) struct Lent {
    pub(super) name: String,
    /// Index of the interface, which a new interface of the same name does not have.
    pub(super) index: u32,
    /// Address for which datagrams are redirected.
    pub(super) ip: IpAddr,
    pub(super) steering: Steering,
    /// Connections that have the queues, by the connection's number; its length is the number of
    /// queues.
    pub(super) users: Vec<Option<u64>>,
}

impl Lent {
    /// Attaches the program; the error says why it cannot be.
    pub(super) fn attach(name: &str) -> Result<Lent, String> {
        let (index, ip) = place(name)?;
        let queues = device::queues(name).min(QUEUES_MAX);
        let assemble = |map| program::assemble(ip, map);
        let attached = Steering::attach(index, queues as u32, assemble);
        let interface = InterfaceChoice::none(name);
        let steering =
            attached.map_err(|(step, errno)| errors::explain(&interface, step, errno))?;
        Ok(Lent {
            name: name.to_owned(),
            index,
            ip,
            steering,
            users: vec![None; queues],
        })
    }

    /// Attaches the program anew if the interface is another one or has another address, unless
    /// sockets are in use.
    pub(super) fn refresh(&mut self) -> Result<(), String> {
        let (index, ip) = place(&self.name)?;
        if (index, ip) == (self.index, self.ip) {
            return Ok(());
        }
        if index == self.index && self.users.iter().any(Option::is_some) {
            return Err(format!(
                "{} has the address {ip} now, and sockets for {} are in use",
                self.name, self.ip
            ));
        }
        if index != self.index {
            *self = Lent::attach(&self.name)?;
            return Ok(());
        }
        let failed =
            |(step, errno)| errors::explain(&InterfaceChoice::none(&self.name), step, errno);
        let replaced = self.steering.replace(|map| program::assemble(ip, map));
        replaced.map_err(failed)?;
        self.ip = ip;
        Ok(())
    }

    /// The first free queue.
    pub(super) fn free_queue(&self) -> Result<u32, String> {
        let free = self.users.iter().position(Option::is_none);
        free.map(|queue| queue as u32)
            .ok_or_else(|| match self.users.len() {
                1 => format!("another process has the queue of {}", self.name),
                all => format!("other processes have all {all} queues of {}", self.name),
            })
    }

    /// Gives a queue to a connection, which may have it already; the error is a refusal.
    pub(super) fn take_queue(&mut self, queue: u32, connection: u64) -> Result<(), String> {
        let name = &self.name;
        match self.users.get_mut(queue as usize) {
            None => Err(format!("{name} has no queue {queue}")),
            Some(Some(user)) if *user != connection => {
                Err(format!("another process has queue {queue} of {name}"))
            }
            Some(user) => {
                *user = Some(connection);
                Ok(())
            }
        }
    }

    /// Redirects the datagrams to a port to a socket.
    pub(super) fn redirect(
        &self,
        queue: u32,
        port: u16,
        socket: BorrowedFd<'_>,
    ) -> Result<(), String> {
        let redirected = self.steering.redirect(queue, port, socket);
        redirected.map_err(|errno| {
            let name = InterfaceChoice::none(&self.name);
            errors::explain(&name, "redirection", errno)
        })
    }

    /// Takes back what a connection has.
    pub(super) fn take_back(&mut self, connection: u64, port: Option<u16>) {
        for (queue, user) in self.users.iter_mut().enumerate() {
            if *user == Some(connection) {
                *user = None;
                if let Some(port) = port {
                    self.steering.clear(queue as u32, port);
                }
            }
        }
    }
}

/// The index of an interface and its rails' address: the first of IPv4, or else of IPv6.
fn place(name: &str) -> Result<(u32, IpAddr), String> {
    let index = interface_index(name).map_err(|_| format!("there is no interface {name}"))?;
    let all = interfaces().unwrap_or_default();
    let here = all.iter().filter(|one| one.name == name);
    let ips: Vec<IpAddr> = here
        .flat_map(|one| &one.addrs)
        .map(|addr| addr.ip)
        .collect();
    let first = ips.iter().find(|ip| ip.is_ipv4());
    let ip = first.or_else(|| ips.iter().find(|ip| !is_link_local(ip)));
    let ip = ip.ok_or_else(|| format!("{name} has no address"))?;
    Ok((index, *ip))
}
