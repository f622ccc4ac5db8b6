//! The rail past the kernel's network stack (AF_XDP): a UDP rail of which most packets take
//! another way.
//!
//! A program at the interface gives the datagrams to this rail's port to an AF_XDP socket, and
//! frames are sent by the same socket. On the wire both are a UDP rail's datagrams, so either end
//! may be one. The UDP rail below holds the port, and carries what has no other way: packets to
//! destinations whose Ethernet address the kernel does not know yet, or on other routes (flows),
//! multicast, datagrams that arrive on other queues of the card, and ICMP errors.

mod device;
mod errors;
pub(crate) mod frames;
mod lending;
mod neighbours;
mod occupant;
pub(crate) mod program;
mod rx;
mod sender;
mod tx;
mod ways;

pub use lending::{XdpService, XdpServiceConfig};
pub use rx::XdpRx;
pub use tx::XdpTx;

use crate::addr::UdpAddr;
use crate::interfaces::InterfaceChoice;
use crate::sys::xdp::Limits;
use crate::sys::{self, xdp::hardware_address};
use crate::udp::{UdpConfig, UdpRail};
use crate::{Rail, RailTx};
use sender::Sender;
use std::net::IpAddr;
use std::path::Path;
use ways::Site;

/// Small frames, each in half a page, and longer ones, each in a page. The memory of both is equal:
/// as much as a UDP rail's receive buffer, and a quarter of that to send.
const SIZES: [Limits; 2] = [
    Limits {
        frame_len: 2_048,
        receive: 4_096,
        send: 1_024,
    },
    Limits {
        frame_len: 4_096,
        receive: 2_048,
        send: 512,
    },
];

/// Bytes of a frame beyond the IP packet.
const ETHERNET_LEN: usize = 14;

/// A rail past the kernel's stack on one interface.
pub struct XdpRail {
    tx: XdpTx,
    rx: XdpRx,
    facts: String,
}

impl XdpRail {
    /// Opens a rail on `interface`; the error says why it cannot be.
    /// `service` is the path of the socket of `marline xdpd`, empty for none.
    pub fn open(
        interface: &InterfaceChoice,
        config: &UdpConfig,
        service: &Path,
    ) -> Result<XdpRail, String> {
        let (ip, limits) = suitable(interface)?;
        let index = sys::interface_index(&interface.name)
            .map_err(|errno| format!("{interface}: {}", sys::errno_text(errno)))?;
        let mac = hardware_address(&interface.name)
            .ok_or_else(|| format!("{interface} is no Ethernet interface"))?;
        let config = UdpConfig {
            // Frames arrive one by one, so neither joined datagrams nor direct writes exist, and
            // all packets leave from the rail's port.
            gro: false,
            direct: false,
            connect: false,
            ..config.clone()
        };
        let (udp_tx, mut udp_rx) = UdpRail::open(interface, &config)?.split();
        let port = UdpAddr::port_of(&udp_tx.local_addr()).unwrap_or(0);
        let site = Site {
            interface,
            index,
            ip,
            port,
            limits,
        };
        let udp = udp_tx.share_socket();
        let udp = udp.map_err(|errno| format!("{interface}: {}", sys::errno_text(errno)))?;
        let opened = site.open(udp, service)?;
        let mut sockets = opened.rx.iter().map(|queue| queue.socket().fd());
        if !sockets.all(|socket| udp_rx.sleep_on(socket)) {
            return Err(format!("{interface}: no descriptor is left to sleep on"));
        }
        let from = ((mac, ip, port), config.dscp);
        let facts = opened.facts(&interface.name);
        let queues = (opened.tx, opened.others);
        let sender = Sender::new(queues, opened.way, from, index);
        let sender = sender.map_err(|errno| errors::explain(interface, "routes", errno))?;
        Ok(XdpRail {
            tx: XdpTx::new(udp_tx, sender, &opened.limits),
            rx: XdpRx::new(udp_rx, opened.rx, config.cmsg),
            facts,
        })
    }

    /// How the interface and this process have the rail, for people.
    pub(crate) fn facts(&self) -> &str {
        &self.facts
    }
}

impl Rail for XdpRail {
    type Tx = XdpTx;
    type Rx = XdpRx;
    fn split(self) -> (XdpTx, XdpRx) {
        (self.tx, self.rx)
    }
}

fn is_link_local(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// Checks what the interface must be; returns its address and the sizes for its frames.
fn suitable(interface: &InterfaceChoice) -> Result<(IpAddr, Limits), String> {
    if interface.is_awaited() {
        return Err(format!("{interface} has no address yet"));
    }
    // A frame does not tell the interface that belongs to such an address.
    if is_link_local(&interface.ip) {
        return Err(format!("{interface} has a link-local address only"));
    }
    if interface.loopback {
        return Err(format!("{interface} is the loopback interface"));
    }
    let frame = interface.mtu + ETHERNET_LEN;
    let sizes = SIZES.into_iter().find(|sizes| frame <= sizes.frame_max());
    let most = SIZES[SIZES.len() - 1].frame_max() - ETHERNET_LEN;
    let sizes = sizes.ok_or_else(|| {
        format!(
            "{interface}: its MTU is {}, the largest possible is {most}",
            interface.mtu
        )
    })?;
    Ok((interface.ip, sizes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_must_be_ethernet_of_a_moderate_mtu() {
        let at = |ip: &str, mtu| InterfaceChoice {
            ip: ip.parse().unwrap(),
            mtu,
            loopback: false,
            ..InterfaceChoice::none("eth0")
        };
        let lens = |mtu| suitable(&at("10.0.0.1", mtu)).map(|found| found.1.frame_len);
        assert_eq!((lens(1_500), lens(1_772)), (Ok(2_048), Ok(2_048)));
        assert_eq!((lens(1_773), lens(3_820)), (Ok(4_096), Ok(4_096)));
        let said = lens(9_000).unwrap_err();
        assert!(
            said.contains("MTU is 9000") && said.contains("3820"),
            "{said}"
        );
        assert!(suitable(&at("fd00::1", 1_500)).is_ok());
        assert!(suitable(&at("fe80::1", 1_500)).is_err());
        assert!(suitable(&at("0.0.0.0", 1_500)).is_err());
        let lo = InterfaceChoice {
            loopback: true,
            ..at("127.0.0.1", 1_500)
        };
        assert!(suitable(&lo).is_err());
    }
}
