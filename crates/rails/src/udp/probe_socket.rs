//! UDP sockets of `marline doctor`: bound and sent from as a rail's, so that they show what a rail
//! would meet.

use crate::addr::UdpAddr;
use crate::interfaces::InterfaceChoice;
use crate::sys::{errno_text, Errno, Socket, SocketOptions};
use crate::Ports;
use std::net::{SocketAddr, UdpSocket};

/// Receive buffer in bytes, for a burst of packets while the reader is descheduled.
const RECEIVE_BYTES: usize = 1 << 20;
/// The group of the doctor: the last one of [`crate::multicast`]'s range, so that rules for a job's
/// groups apply.
const GROUP: u32 = u32::MAX;

fn options(interface: &InterfaceChoice) -> SocketOptions<'_> {
    SocketOptions {
        ip: interface.bind_ip(),
        port: 0,
        scope_id: interface.scope_id,
        interface: &interface.name,
        receive_bytes: RECEIVE_BYTES,
        send_bytes: 0,
        dscp: 0,
    }
}

/// Opens a socket on an interface's address and the first free of `ports`. It sends packets of up
/// to the interface's MTU whatever path MTU the kernel knows, and never fragments. Packets to
/// groups leave by the same interface. Errors are texts for users.
pub fn probe_socket(interface: &InterfaceChoice, ports: Ports) -> Result<UdpSocket, String> {
    let opened = ports.first_free(|port| {
        let socket = Socket::open(&SocketOptions {
            port,
            ..options(interface)
        })?;
        socket.probe().map_err(|e| ("socket options", e))?;
        Ok(socket)
    });
    let socket = opened.map_err(|(step, errno)| {
        let (text, advice) = (errno_text(errno), ports.advice(errno));
        format!("{interface}: {step} failed: {text}{advice}")
    })?;
    // Without this option multicast may leave by another interface, and is reported as lost.
    let _ = socket.multicast_by(&interface.name);
    blocking(socket)
}

/// Opens a socket that receives packets to the doctor's group on an interface, except those of
/// `own`. Returns the group's address, too. `ports` are those of jobs. Errors are texts for users.
pub fn probe_group(
    interface: &InterfaceChoice,
    ports: Ports,
    own: SocketAddr,
) -> Result<(UdpSocket, SocketAddr), String> {
    let ip = crate::multicast::group_ip(interface.ip.is_ipv6(), GROUP);
    let port = ports.of_group(GROUP_PORT);
    let refused = |errno: Errno| format!("{interface}: multicast: {}", errno_text(errno));
    let (group, own) = (UdpAddr::new(ip, port), UdpAddr::new(own.ip(), own.port()));
    let socket = Socket::open_group(&options(interface), &group, &own).map_err(refused)?;
    Ok((blocking(socket)?, SocketAddr::new(ip, port)))
}

/// Port of the doctor's group where jobs may use any port.
const GROUP_PORT: u16 = 61_995;

/// Converts to a socket that waits for packets.
fn blocking(socket: Socket) -> Result<UdpSocket, String> {
    let socket = UdpSocket::from(socket.into_fd());
    let made = socket.set_nonblocking(false);
    made.map_err(|e| e.to_string()).map(|()| socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> InterfaceChoice {
        crate::choose_interfaces(&["lo".to_owned()])
            .unwrap()
            .remove(0)
    }

    #[test]
    fn a_probe_reaches_another_and_a_port_of_the_range_is_taken() {
        let one = probe_socket(&loopback(), Ports::ANY).unwrap();
        let two = probe_socket(&loopback(), Ports::ANY).unwrap();
        one.send_to(b"hello", two.local_addr().unwrap()).unwrap();
        let mut bytes = [0; 9];
        assert_eq!(
            two.recv_from(&mut bytes).unwrap(),
            (5, one.local_addr().unwrap())
        );
        let port = two.local_addr().unwrap().port();
        let taken = probe_socket(&loopback(), Ports::range(port, port, 0)).unwrap_err();
        assert!(taken.contains("all ports of FI_MARLINE_PORTS"), "{taken}");
    }

    #[test]
    fn the_group_is_one_that_jobs_may_have() {
        let own = SocketAddr::from(([127, 0, 0, 1], 9));
        let (_member, group) =
            probe_group(&loopback(), Ports::range(20_000, 20_009, 0), own).unwrap();
        assert!(group.ip().is_multicast());
        assert!((20_000..=20_009).contains(&group.port()), "{group}");
    }
}
