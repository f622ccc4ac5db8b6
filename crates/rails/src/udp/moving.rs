//! Moves a UDP rail to another address: new sockets replace the old ones.
//!
//! A bound socket cannot be rebound, so new sockets take over the old descriptor numbers, and
//! threads that read or sleep on them need no change. Packets waiting in the old sockets are lost,
//! as are packets in flight to the old address.

use super::second_socket::nowhere;
use super::shared::{datagram_max, options, UdpConfig, FLOW_RCVBUF};
use super::tx::UdpTx;
use crate::addr::UdpAddr;
use crate::interfaces::InterfaceChoice;
use crate::ports::Ports;
use crate::sys::{Errno, Socket};
use marline_wire::RailAddr;

impl UdpTx {
    /// Moves to the address of `to`; returns the new address.
    pub(super) fn go_on_at(&mut self, to: &InterfaceChoice) -> Result<RailAddr, Errno> {
        let shared = self.shared.clone();
        let was = shared.socket.local_addr()?;
        if to.ip.is_ipv6() != shared.socket.is_v6() {
            return Err(libc::EAFNOSUPPORT);
        }
        let (new, was_here) = (self.interface.is_awaited(), self.interface.clone());
        let here = InterfaceChoice {
            name: to.name.clone(),
            ip: to.ip,
            prefix_len: to.prefix_len,
            scope_id: to.scope_id,
            mtu: if new { to.mtu } else { was_here.mtu },
            ..was_here
        };
        let sizes = shared.socket.buffer_sizes();
        let config = UdpConfig {
            ports: Ports::one(was.port),
            rcvbuf_bytes: sizes.receive / 2, // the kernel doubles it
            sndbuf_bytes: sizes.send / 2,
            dscp: shared.socket.dscp(),
            ..UdpConfig::default()
        };
        let opened = Socket::open(&options(&here, &config));
        let main = opened.map_err(|(_, errno)| errno)?;
        self.prepare(&main);
        if self.groups.iter().any(Option::is_some) {
            let _ = main.multicast_by(&here.name); // on failure groups lose this rail
        }
        let mut local = main.local_addr()?;
        local.prefix_len = here.prefix_len;
        if let Some(second) = &shared.second {
            if self.move_second(second, (&main, &local), &here).is_err() {
                // From here on all packets arrive on the main socket. The old address and port must
                // be released nevertheless, since the rail may come back to them.
                second.replace(Socket::unbound(&options(&here, &config)).map_err(|e| e.1)?)?;
            }
        }
        shared.socket.replace(main)?;
        shared.joined.change(|_| ()); // makes the receiving half rebuild its epoll set
        self.flows = Default::default();
        self.flows_tried = 0;
        self.links.drop_sockets();
        if new {
            self.caps.groups = true;
            self.caps.datagram_max = datagram_max(here.mtu, here.ip.is_ipv6());
            if !self.gso {
                self.caps.batch_bytes_max = self.caps.datagram_max;
            }
        }
        self.interface = here;
        let mut addr = local.rail();
        addr.datagram_max = self.caps.datagram_max as u16;
        Ok(addr)
    }

    /// Sets the same options as on the rail's first socket.
    fn prepare(&self, socket: &Socket) {
        if self.gro {
            let _ = socket.enable_gro(); // without it datagrams arrive one by one
        }
        let _ = socket.enable_drop_count();
    }

    /// Replaces the second receiving socket, which the receiving half reads, by a socket that is
    /// connected to the same source. If the old socket is no longer connected, the new one is
    /// parked.
    fn move_second(
        &self,
        second: &Socket,
        (main, local): (&Socket, &UdpAddr),
        here: &InterfaceChoice,
    ) -> Result<(), Errno> {
        let source = second.peer_addr().unwrap_or_else(|_| nowhere(local));
        let config = UdpConfig {
            ports: Ports::one(local.port),
            rcvbuf_bytes: (second.buffer_sizes().receive / 2).max(FLOW_RCVBUF),
            sndbuf_bytes: 0,
            dscp: main.dscp(),
            ..UdpConfig::default()
        };
        let socket = Socket::open_beside(main, &options(here, &config))?;
        self.prepare(&socket);
        socket.connect(&source, here.scope_id)?;
        second.replace(socket)
    }
}
