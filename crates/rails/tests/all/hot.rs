//! The source of nearly all packets gets its own receiving socket; no packet is lost or late
//! because of it.

use crate::common;

use common::{open, port_of, Namespace, SendTo};
use marline_rails::{
    Armed, Links, RailEvent, RailRx, RailTx, SendOutcome, UdpConfig, UdpRx, UdpTx,
};
use marline_wire::RailAddr;
use std::time::Instant;

/// More datagrams of one source than that requires.
const ENOUGH: u32 = 300;

/// A receiver and `senders` senders. `cmsg`: the receiver always learns the source.
fn rails(address: &str, cmsg: bool, senders: usize) -> (UdpRx, RailAddr, i32, Vec<UdpTx>) {
    let config = UdpConfig {
        cmsg,
        ..UdpConfig::default()
    };
    let (back, rx) = open(address, &config);
    let (to, main_fd) = (back.local_addr(), rx.sockets()[0]);
    let from = || open(address, &UdpConfig::default()).0;
    (rx, to, main_fd, (0..senders).map(|_| from()).collect())
}

fn send(tx: &mut UdpTx, to: &RailAddr, number: u32) {
    let outcome = tx.send_to(to, &number.to_le_bytes(), 4, 0);
    assert_eq!(outcome, SendOutcome::Sent);
}

/// The received numbers, from either socket.
fn take(rx: &mut UdpRx, rest: bool) -> Vec<u32> {
    let mut got = Vec::new();
    let mut sink = |r: marline_rails::Received<'_>| {
        let segment = if r.segment == 0 { 4 } else { r.segment };
        let numbers = r.bytes.chunks(segment);
        got.extend(numbers.map(|c| u32::from_le_bytes(c.try_into().unwrap())));
    };
    match rest {
        true => rx.recv_rest(&mut sink),
        false => rx.recv(&mut sink),
    };
    got
}

/// Sends and receives one datagram at a time; returns the number found only by `recv_rest`.
fn exchange(tx: &mut UdpTx, to: &RailAddr, rx: &mut UdpRx, count: u32) -> u32 {
    let mut late = 0;
    for number in 0..count {
        send(tx, to, number);
        let (start, mut got) = (Instant::now(), Vec::new());
        while got.is_empty() {
            assert!(start.elapsed().as_secs() < 30, "{number} does not come");
            got = take(rx, false);
            if got.is_empty() {
                got = take(rx, true);
                late += u32::from(!got.is_empty());
            }
        }
        assert_eq!(got, [number]);
    }
    late
}

/// Returns whether `poll` would return at once.
fn is_ready(fd: i32) -> bool {
    let mut wait = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&mut wait, 1, 0) == 1 }
}

/// Returns whether the receiver's second socket gets the next datagram.
fn comes_hot(tx: &mut UdpTx, to: &RailAddr, rx: &mut UdpRx, main_fd: i32) -> bool {
    send(tx, to, 7);
    let mut fds = [main_fd, rx.sockets()[1]].map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: two valid pollfds.
    let ready = unsafe { libc::poll(fds.as_mut_ptr(), 2, 30_000) };
    assert_eq!(ready, 1, "one of them");
    let got = [take(rx, false), take(rx, true)].concat();
    assert_eq!(got, [7]);
    fds[1].revents != 0
}

#[test]
fn the_only_source_gets_its_own_socket() {
    let _own = Namespace::enter_new();
    for (address, cmsg) in [("127.0.0.1", true), ("127.0.0.1", false), ("::1", false)] {
        let (mut rx, to, main_fd, mut tx) = rails(address, cmsg, 1);
        assert!(!comes_hot(&mut tx[0], &to, &mut rx, main_fd));
        let late = exchange(&mut tx[0], &to, &mut rx, ENOUGH);
        assert_eq!(late, 0, "all came where it was expected");
        assert!(comes_hot(&mut tx[0], &to, &mut rx, main_fd));
    }
}

/// Regression: the second socket did not join datagrams (GRO), which cost two thirds of the
/// bandwidth.
#[test]
fn super_packets_arrive_whole_on_the_second_socket() {
    let _own = Namespace::enter_new();
    let (mut rx, to, main_fd, mut tx) = rails("127.0.0.1", true, 1);
    exchange(&mut tx[0], &to, &mut rx, ENOUGH);
    assert!(comes_hot(&mut tx[0], &to, &mut rx, main_fd));
    assert_eq!(
        tx[0].send_to(&to, &[1; 40_000], 1_000, 0),
        SendOutcome::Sent
    );
    let mut whole = 0;
    let start = Instant::now();
    while whole == 0 {
        assert!(start.elapsed().as_secs() < 30, "nothing comes");
        rx.recv(&mut |r| whole = r.bytes.len());
    }
    assert_eq!(whole, 40_000);
}

#[test]
fn other_sources_are_received_and_park_the_second_socket() {
    let _own = Namespace::enter_new();
    let (mut rx, to, main_fd, mut tx) = rails("127.0.0.1", false, 2);
    let [one, other] = &mut tx[..] else { panic!() };
    exchange(one, &to, &mut rx, ENOUGH);
    assert!(comes_hot(one, &to, &mut rx, main_fd));
    // Occasional datagrams of another source are received without changing anything.
    for _ in 0..20 {
        assert!(!comes_hot(other, &to, &mut rx, main_fd));
        exchange(one, &to, &mut rx, 10);
    }
    assert!(comes_hot(one, &to, &mut rx, main_fd));
    // Frequent datagrams of another source: both then use the main socket.
    let late = exchange(other, &to, &mut rx, 30);
    assert!((1..30).contains(&late), "{late}");
    assert!(!comes_hot(one, &to, &mut rx, main_fd));
    assert!(!comes_hot(other, &to, &mut rx, main_fd));
    // The second socket then serves the other source.
    exchange(other, &to, &mut rx, 2 * ENOUGH);
    assert!(comes_hot(other, &to, &mut rx, main_fd));
    assert!(!comes_hot(one, &to, &mut rx, main_fd));
}

/// Datagrams wait in one socket while the next arrive on the other.
#[test]
fn order_is_kept_when_the_source_connects_and_disconnects() {
    let _own = Namespace::enter_new();
    let (mut rx, to, main_fd, mut tx) = rails("127.0.0.1", false, 2);
    let [one, other] = &mut tx[..] else { panic!() };
    (0..ENOUGH).for_each(|number| send(one, &to, number));
    let mut got = take(&mut rx, false);
    let mut sent = ENOUGH;
    while (got.len() as u32) < sent {
        let more = take(&mut rx, false);
        if sent < 2 * ENOUGH {
            send(one, &to, sent);
            sent += 1;
        }
        got.extend(more);
    }
    assert_eq!(got, (0..2 * ENOUGH).collect::<Vec<_>>());
    assert!(comes_hot(one, &to, &mut rx, main_fd));
    // Another source ends the connection while datagrams of the first wait.
    (0..50).for_each(|number| send(one, &to, number));
    (1000..1050).for_each(|number| send(other, &to, number));
    while !take(&mut rx, true).is_empty() {}
    (50..100).for_each(|number| send(one, &to, number));
    let mut got: Vec<u32> = Vec::new();
    let start = Instant::now();
    while got.len() < 100 {
        assert!(start.elapsed().as_secs() < 30, "{} of 100 came", got.len());
        got.extend(take(&mut rx, false).iter().filter(|n| **n < 1000).copied());
    }
    assert_eq!(got, (0..100).collect::<Vec<_>>());
    assert!(!comes_hot(one, &to, &mut rx, main_fd));
}

/// The second socket also receives ICMP errors about packets to its source. Unread, they would end
/// every sleep at once and fill the buffer.
#[test]
fn a_refusal_on_the_second_socket_is_reported_and_consumed() {
    let _own = Namespace::enter_new();
    for address in ["127.0.0.1", "::1"] {
        let unconnected = UdpConfig {
            connect: false,
            ..UdpConfig::default()
        };
        let (mut one, one_rx) = open(address, &unconnected);
        let (mut tx, mut rx) = open(address, &UdpConfig::default());
        let (to, gone, main_fd) = (tx.local_addr(), one.local_addr(), rx.sockets()[0]);
        exchange(&mut one, &to, &mut rx, ENOUGH);
        assert!(comes_hot(&mut one, &to, &mut rx, main_fd));
        drop((one, one_rx));
        // The kernel limits the rate of refusals; if one is not sent, another is provoked.
        let (start, mut event) = (Instant::now(), None);
        while event.is_none() {
            assert!(start.elapsed().as_secs() < 30, "the refusal is not told");
            send(&mut tx, &gone, 1);
            take(&mut rx, false);
            event = (0..1_000).find_map(|_| tx.poll_event());
        }
        assert_eq!(event, Some(RailEvent::Refused(tx.connect(&gone).link)));
        for _ in 0..1_000 {
            take(&mut rx, false);
            tx.poll_event();
        }
        assert!(!is_ready(rx.sockets()[1]), "something is left there");
    }
}

/// One descriptor reports both sockets from `arm` until some dozens of datagrams have arrived after
/// the sleep; another sleep before that finds it unchanged.
#[test]
fn the_descriptor_reports_both_sockets_during_a_sleep() {
    let _own = Namespace::enter_new();
    let (mut rx, to, main_fd, mut tx) = rails("127.0.0.1", false, 2);
    let [one, other] = &mut tx[..] else { panic!() };
    exchange(one, &to, &mut rx, ENOUGH);
    assert!(comes_hot(one, &to, &mut rx, main_fd));
    let fd = rx.fd().unwrap();
    for who in [one, other] {
        assert_eq!(rx.arm(), Armed::Sleep);
        assert!(!is_ready(fd), "nothing waits");
        send(who, &to, 1);
        assert!(is_ready(fd));
        let got = [take(&mut rx, false), take(&mut rx, true)].concat();
        assert_eq!((got, is_ready(fd)), (vec![1], false));
        send(who, &to, 2);
        assert!(is_ready(fd), "the sockets were not taken out yet");
        let got = [take(&mut rx, false), take(&mut rx, true)].concat();
        assert_eq!((got, rx.arm()), (vec![2], Armed::Sleep));
        assert!(!is_ready(fd), "nothing waits");
        let mut got = Vec::new();
        for number in 0..200 {
            send(who, &to, number);
            got.extend([take(&mut rx, false), take(&mut rx, true)].concat());
        }
        assert_eq!(got, (0..200).collect::<Vec<_>>());
        send(who, &to, 3);
        assert!(!is_ready(fd), "nobody sleeps");
        rx.arm();
        assert!(is_ready(fd), "what waits already is told");
        let got = [take(&mut rx, false), take(&mut rx, true)].concat();
        assert_eq!(got, [3]);
    }
}

#[test]
fn no_other_socket_can_share_the_port() {
    let _own = Namespace::enter_new();
    let (mut rx, to, _, mut tx) = rails("127.0.0.1", false, 1);
    // SAFETY: as documented in socket(2), setsockopt(2) and bind(2); all pointees outlive the
    // calls.
    let bound = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        let (on, len) = (1_i32, size_of::<i32>() as libc::socklen_t);
        let on = (&raw const on).cast();
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, on, len);
        let mut name: libc::sockaddr_in = std::mem::zeroed();
        name.sin_family = libc::AF_INET as u16;
        name.sin_port = port_of(&to).to_be();
        name.sin_addr.s_addr = u32::from(std::net::Ipv4Addr::LOCALHOST).to_be();
        let len = size_of_val(&name) as libc::socklen_t;
        libc::bind(fd, (&raw const name).cast(), len)
    };
    assert_eq!(bound, -1);
    exchange(&mut tx[0], &to, &mut rx, 1);
}
