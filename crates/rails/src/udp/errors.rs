//! Errors of a UDP rail's sockets: outcomes of sends, and events from error queues.

use super::destinations::FLOWS_MAX;
use super::shared::{datagram_max, is_rail_fault, options, UdpConfig};
use super::tx::UdpTx;
use crate::sys::{self, Errno, Socket};
use crate::{LinkId, RailEvent, RailFault, SendOutcome};
use std::sync::atomic::Ordering::Relaxed;

/// Most entries read from one error queue at a time, so that a flood does not block the caller.
const ERRORS_PER_DRAIN_MAX: usize = 64;
/// Smallest path MTU in bytes of IP packet that is accepted; IPv4 guarantees 576, but Linux itself
/// accepts no less than 552.
const PATH_MTU_MIN: usize = 552;
/// Most pending events; further ones are dropped, since they are hints.
const EVENTS_MAX: usize = 256;

impl UdpTx {
    /// Converts the errno of a send to its outcome.
    pub(super) fn failure(&mut self, link: LinkId, segment: usize, errno: Errno) -> SendOutcome {
        match errno {
            libc::EMSGSIZE => {
                let options = options(&self.interface, &UdpConfig::default());
                // Less than the size that just failed, even if the kernel reports a longer MTU.
                let to = self.links.get(link).map(|link| link.to);
                let mtu = to.and_then(|to| sys::path_mtu(&options, &to).ok());
                let v6 = to.is_some_and(|to| to.ip.is_ipv6());
                let fits = datagram_max(mtu.unwrap_or(0).max(PATH_MTU_MIN), v6);
                SendOutcome::TooBig(fits.min(segment.saturating_sub(8)).max(1))
            }
            errno if is_rail_fault(errno) => match self.interface.state() {
                // The rail works: only this peer has no route.
                RailFault::Up => SendOutcome::Sent,
                RailFault::Down(_) => {
                    self.faulty = true;
                    self.links.drop_sockets();
                    SendOutcome::Fault(RailFault::Down(errno))
                }
            },
            // The errors belong to packets to other peers: the caller may try again.
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
        let second = shared.second.as_deref();
        for socket in [&shared.socket].into_iter().chain(second) {
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

    /// Reads the error queues of sockets whose data is never read: of all flows, and of one
    /// connected socket per call, as there may be many.
    #[cold]
    pub(super) fn drain_unread(&mut self) {
        if self.flows_tried != 0 {
            self.drain_flows();
        }
        if let Some(at) = self.links.next_open() {
            self.drain_link(at);
        }
    }

    /// Converts the entries of an error queue to events; returns whether the queue is empty.
    fn drain_socket(&mut self, socket: &Socket) -> bool {
        for _ in 0..ERRORS_PER_DRAIN_MAX {
            let Some(report) = socket.take_error() else {
                return true;
            };
            let Some(to) = report.to else { continue };
            match report.errno {
                // Local errors are also the outcome of a send.
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
                // Unreachable hosts and networks: acks and probes are better evidence.
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
