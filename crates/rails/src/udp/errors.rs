//! Errors of a UDP rail's sockets: what they mean for a send, and what waits in the error queues.

use super::links::FLOWS_MAX;
use super::shared::{datagram_max, is_rail_fault, options, UdpConfig};
use super::tx::UdpTx;
use crate::sys::{self, Errno, Socket};
use crate::{LinkId, RailEvent, RailFault, SendOutcome};
use std::sync::atomic::Ordering::Relaxed;

/// Most entries read from one error queue in one go, so that a flood cannot hold the caller.
const ERRORS_PER_DRAIN_MAX: usize = 64;
/// Smallest path MTU in bytes of IP packet that is believed; IPv4 promises 576, but Linux
/// itself refuses to learn less than 552.
const PATH_MTU_MIN: usize = 552;
/// Most events kept while nobody polls; further ones are dropped, being hints.
const EVENTS_MAX: usize = 256;

impl UdpTx {
    /// Turns the errno of a send into its outcome.
    pub(super) fn failure(&mut self, link: LinkId, segment: usize, errno: Errno) -> SendOutcome {
        match errno {
            libc::EMSGSIZE => {
                let options = options(&self.interface, &UdpConfig::default());
                // Never the size that just failed, whatever the kernel now says.
                let to = self.links.get(link).map(|link| link.to);
                let mtu = to.and_then(|to| sys::path_mtu(&options, &to).ok());
                let v6 = to.is_some_and(|to| to.ip.is_ipv6());
                let fits = datagram_max(mtu.unwrap_or(0).max(PATH_MTU_MIN), v6);
                SendOutcome::TooBig(fits.min(segment.saturating_sub(8)).max(1))
            }
            errno if is_rail_fault(errno) => match self.interface.state() {
                // The rail is well: only this peer has no route from here.
                RailFault::Up => SendOutcome::Sent,
                RailFault::Down(_) => {
                    self.faulty = true;
                    self.links.drop_sockets();
                    SendOutcome::Fault(RailFault::Down(errno))
                }
            },
            // Refused again and again on behalf of other peers: the caller may try again.
            _ => SendOutcome::Busy,
        }
    }

    #[cold]
    pub(super) fn drain(&mut self, flow: u8) {
        self.drain_main();
        if flow != 0 {
            self.drain_flows();
        }
    }

    pub(super) fn drain_main(&mut self) {
        let shared = self.shared.clone();
        let hot = shared.hot.as_deref();
        for socket in [&shared.socket].into_iter().chain(hot) {
            if !self.drain_socket(socket) {
                shared.errors_wait.store(true, Relaxed);
            }
        }
    }

    fn drain_flows(&mut self) {
        for at in 0..FLOWS_MAX {
            if let Some(socket) = self.flows[at].take() {
                self.drain_socket(&socket);
                self.flows[at] = Some(socket);
            }
        }
    }

    /// Reads the errors of one connected socket.
    pub(super) fn drain_link(&mut self, at: usize) {
        if let Some(socket) = self.links.take(at) {
            self.drain_socket(&socket);
            self.links.put_back(at, socket);
        }
    }

    /// Looks into the error queues of sockets that nobody reads: all flows, and the connected
    /// ones by turns, as there may be many.
    #[cold]
    pub(super) fn drain_unread(&mut self) {
        if self.flows_tried != 0 {
            self.drain_flows();
        }
        if let Some(at) = self.links.next_open() {
            self.drain_link(at);
        }
    }

    /// Turns what waits in an error queue into events; whether the queue is empty now.
    fn drain_socket(&mut self, socket: &Socket) -> bool {
        for _ in 0..ERRORS_PER_DRAIN_MAX {
            let Some(report) = socket.take_error() else {
                return true;
            };
            let Some(to) = report.to else { continue };
            match report.errno {
                // Local ones are the outcome of a send, which the sender learns anyway.
                libc::EMSGSIZE if !report.local => {
                    let mtu = report.mtu.max(PATH_MTU_MIN);
                    let fits = datagram_max(mtu, to.ip.is_ipv6());
                    for link in self.links.to_host(to.ip) {
                        self.push(RailEvent::TooBig(link, fits));
                    }
                }
                libc::ECONNREFUSED if report.is_by_destination() => {
                    if let Some(link) = self.links.find(&to) {
                        self.push(RailEvent::Refused(link));
                    }
                }
                libc::ECONNREFUSED => {
                    if let Some(by) = report.from {
                        self.push(RailEvent::Barred(by));
                    }
                }
                // Hosts and networks that are not reached: hints that acks and probes give better.
                _ => {}
            }
        }
        false
    }

    pub(super) fn push(&mut self, event: RailEvent) {
        if self.events.len() < EVENTS_MAX && self.events.back() != Some(&event) {
            self.events.push_back(event);
        }
    }
}
