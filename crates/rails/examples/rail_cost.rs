//! Measures a rail's calls on this machine: `cargo run --release --example rail_cost ADDRESS`;
//! `plain` or `unconnected` after the address turns off ancillary data or connected sockets. One
//! thread sends to itself and receives, so that no scheduling is measured; each number is the
//! minimum of several rounds.

use marline_rails::{
    choose_interfaces, LinkId, Links, Rail, RailRx, RailTx, SendOutcome, UdpConfig, UdpRail, UdpRx,
    UdpTx,
};
use std::time::Instant;

const ROUNDS: usize = 100;

/// Least nanoseconds per call over the rounds.
fn least(mut round: impl FnMut() -> f64) -> f64 {
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// Packet and segment lengths of the streams.
const STREAMS: [(usize, usize); 5] = [
    (100, 100),
    (1400, 1400),
    (62_720, 980),
    (64_000, 1400),
    (64_000, 9000),
];

fn main() -> Result<(), String> {
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1".to_owned());
    let choice = choose_interfaces(&[address])?;
    let without: Vec<_> = std::env::args().skip(2).collect();
    let config = UdpConfig {
        cmsg: !without.contains(&"plain".to_owned()),
        connect: !without.contains(&"unconnected".to_owned()),
        ..UdpConfig::default()
    };
    let open = || UdpRail::open(&choice[0], &config).map(Rail::split);
    let ((mut tx, _), (peer, mut rx)) = (open()?, open()?);
    let to = tx.connect(&peer.local_addr()).link;
    println!("{}: {:?}", choice[0], peer.caps());
    // libc's calls are cheaper in a process with one thread, which an engine's process never is.
    std::thread::spawn(std::thread::park);
    for (len, segment) in STREAMS {
        let segment = segment.min(peer.caps().datagram_max);
        stream((&mut tx, to), &mut rx, len, segment);
    }
    singles((&mut tx, to), &mut rx);
    Ok(())
}

/// Measures calls with `len` bytes in segments, many before they are received.
fn stream((tx, to): (&mut UdpTx, LinkId), rx: &mut UdpRx, len: usize, segment: usize) {
    const CALLS: usize = 32; // fit the receive buffer
    let bytes = vec![7; len];
    let (mut send_ns, mut recv_ns) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..CALLS {
            assert_eq!(tx.send(to, &bytes, segment, 0), SendOutcome::Sent);
        }
        let sent = Instant::now();
        let mut got = 0;
        while got < CALLS * len {
            rx.recv(&mut |r| got += r.bytes.len());
        }
        send_ns = send_ns.min((sent - start).as_nanos() as f64 / CALLS as f64);
        recv_ns = recv_ns.min(sent.elapsed().as_nanos() as f64 / CALLS as f64);
    }
    let rate = len as f64 / (send_ns + recv_ns);
    println!("{len} B by {segment}: send {send_ns:.0} ns, receive {recv_ns:.0} ns, {rate:.2} GB/s");
}

/// Measures packets that are received before the next is sent, and empty polls.
fn singles((tx, to): (&mut UdpTx, LinkId), rx: &mut UdpRx) {
    let single = least(|| {
        let start = Instant::now();
        for _ in 0..1000 {
            tx.send(to, &[7; 100], 100, 0);
            while rx.recv(&mut |_| {}) == 0 {}
        }
        start.elapsed().as_nanos() as f64 / 1000.0
    });
    println!("100 B sent and received one by one: {single:.0} ns");
    let ping_pong = least(|| {
        let start = Instant::now();
        for _ in 0..1000 {
            tx.send(to, &[7; 100], 100, 0);
            while rx.recv(&mut |_| {}) == 0 {}
            assert_eq!(rx.recv(&mut |_| {}), 0);
        }
        start.elapsed().as_nanos() as f64 / 1000.0
    });
    println!("the same with one empty poll after each: {ping_pong:.0} ns");
    let empty = least(|| {
        let start = Instant::now();
        (0..1000).for_each(|_| assert_eq!(rx.recv(&mut |_| {}), 0));
        start.elapsed().as_nanos() as f64 / 1000.0
    });
    println!("empty poll: {empty:.0} ns");
}
