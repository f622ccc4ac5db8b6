//! Tests of a UDP rail's links and their sockets.

use super::*;

fn options() -> SocketOptions<'static> {
    SocketOptions {
        ip: [127, 0, 0, 1].into(),
        port: 0,
        scope_id: 0,
        interface: "lo",
        receive_bytes: 0,
        send_bytes: 0,
        dscp: 0,
    }
}

fn link(links: &mut UdpLinks, n: u16) -> LinkId {
    let to = UdpAddr::new([127, 0, 0, 1].into(), 40_000 + n);
    links.connect(to, Some(SockName::new(&to.ip, to.port, 0)))
}

/// Sends once, as a rail counts it; returns whether a connected socket was used.
fn send(links: &mut UdpLinks, link: LinkId) -> bool {
    if links.socket_of(link, 0).is_some() {
        return true;
    }
    if links.count(link, 0) {
        links.open_socket(link, 0, &options());
    }
    false
}

#[test]
fn a_destination_earns_its_socket_and_keeps_it() {
    let mut links = UdpLinks::new(true);
    let to = link(&mut links, 0);
    for _ in 0..SENDS_MIN {
        assert!(!send(&mut links, to));
    }
    assert!(send(&mut links, to));
    let at = links.socket_of(to, 0).unwrap();
    let socket: Socket = links.take(at).unwrap();
    assert!(links.socket(at).is_none() && links.next_open().is_none());
    links.put_back(at, socket);
    assert!(links.socket(at).is_some());
    assert_eq!(links.next_open(), Some(at));
    links.drop_sockets();
    assert_eq!((links.socket_of(to, 0), links.open), (None, 0));
}

#[test]
fn a_link_that_ends_closes_its_sockets() {
    let mut links = UdpLinks::new(true);
    let to = link(&mut links, 0);
    assert_eq!(link(&mut links, 0), to, "the same address, the same link");
    for flow in [0, 3] {
        links.open_socket(to, flow, &options());
    }
    assert_eq!(links.open, 2);
    assert!(!links.close(to) && links.open == 2, "one user is left");
    assert!(links.close(to));
    assert_eq!((links.open, links.socket_of(to, 0)), (0, None));
}

#[test]
fn many_destinations_share_a_bounded_number_of_sockets() {
    let mut links = UdpLinks::new(true);
    let all: Vec<_> = (0..210).map(|n| link(&mut links, n)).collect();
    let (first, late) = all.split_at(200);
    let rounds = |links: &mut UdpLinks, of: &[LinkId], n| {
        (0..n).for_each(|_| of.iter().for_each(|&to| _ = send(links, to)));
    };
    rounds(&mut links, first, 1000);
    assert_eq!(links.open, SOCKETS_MAX);
    let who = |links: &mut UdpLinks| {
        let mut have = first.to_vec();
        have.retain(|&to| links.socket_of(to, 0).is_some());
        have
    };
    let before = who(&mut links);
    rounds(&mut links, first, 1000);
    assert_eq!(who(&mut links), before, "those in steady use stay");
    rounds(&mut links, late, 10_000);
    assert!(late.iter().all(|&to| links.socket_of(to, 0).is_some()));
    assert!(links.open <= SOCKETS_MAX);
}

/// Numbers of flows are counted for a link's number, which may have been another link's before.
#[test]
fn a_link_may_begin_with_any_flow() {
    let mut newest = Newest::default();
    let flows = [200, 205, 200, 203, 205, 250];
    assert_eq!(
        flows.map(|flow| newest.note(flow)),
        [true, true, false, true, false, true]
    );
}
