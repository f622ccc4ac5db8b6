//! Super-packets whose pages the kernel takes instead of copying them.

mod common;

use common::{open, open_default, port_of, receive};
use marline_rails::{Lending, Pages, RailEvent, RailTx, SendOutcome, UdpConfig, UdpRx, UdpTx};
use marline_wire::RailAddr;

/// Whether this kernel can: Linux 6.5 and later.
fn kernel_can() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|n| n.parse().unwrap_or(0u32));
    (numbers.next().unwrap(), numbers.next().unwrap()) >= (6, 5)
}

/// A sender whose connected socket serves, and the receiver.
fn connected(net: &str, config: &UdpConfig) -> (UdpTx, RailAddr, UdpRx) {
    let (mut tx, _) = open(net, config);
    let (peer, mut rx) = open_default(net);
    let to = peer.local_addr();
    for _ in 0..12 {
        assert_eq!(tx.send(&to, b"hello", 5, 0), SendOutcome::Sent);
    }
    receive(&mut rx, 12);
    (tx, to, rx)
}

const V4: &str = "127.0.0.1";
const V6: &str = "::1";

fn filled(len: usize) -> Pages {
    let mut pages = Pages::new(len).unwrap();
    (pages.iter_mut().enumerate()).for_each(|(i, byte)| *byte = (i / 7) as u8);
    pages
}

#[test]
fn lent_pages_arrive_and_are_not_copied_before() {
    for net in [V4, V6] {
        let (mut tx, to, mut rx) = connected(net, &UdpConfig::default());
        assert_eq!(tx.lends(), kernel_can());
        let mut pages = filled(64_000);
        for len in [64_000, 40_100, 1_000] {
            let sent = tx.send_lent(&to, &pages, len, 1_000, 0);
            if !kernel_can() {
                assert_eq!(sent, Lending::No);
                continue;
            }
            assert_eq!(sent, Lending::Sent);
            // What no sender may do shows that the kernel reads these very bytes.
            pages[500] ^= 0xff;
            let got = receive(&mut rx, len.div_ceil(1_000));
            assert!(got.concat() == pages[..len], "{len} bytes");
        }
    }
}

/// The socket cuts by itself from then on; what is sent as one datagram stays one.
#[test]
fn other_sends_by_the_same_socket_are_as_before() {
    let (mut tx, to, mut rx) = connected(V4, &UdpConfig::default());
    let pages = filled(20_000);
    for segment in [1_000, 700, 1_000] {
        if tx.lends() {
            let sent = tx.send_lent(&to, &pages, 20_000, segment, 0);
            assert_eq!(sent, Lending::Sent);
            receive(&mut rx, 20_000usize.div_ceil(segment));
        }
        for (len, segment) in [(1_472, 1_472), (900, 900), (10, 10), (4_200, 1_400)] {
            assert_eq!(tx.send(&to, &pages[..len], segment, 0), SendOutcome::Sent);
            let got = receive(&mut rx, len.div_ceil(segment));
            assert_eq!(got[0].len(), segment);
            assert!(got.concat() == pages[..len]);
        }
    }
}

/// Each flow leaves by a port of its own, and each lends.
#[test]
fn flows_lend_too() {
    let (mut tx, to, mut rx) = connected(V4, &UdpConfig::default());
    let pages = filled(20_000);
    for _ in 0..12 {
        assert_eq!(tx.send(&to, b"hello", 5, 3), SendOutcome::Sent);
    }
    receive(&mut rx, 12);
    let sent = tx.send_lent(&to, &pages, 20_000, 1_000, 3);
    assert_eq!(sent == Lending::Sent, kernel_can());
    if sent == Lending::Sent {
        assert!(receive(&mut rx, 20).concat() == pages[..20_000]);
    }
}

#[test]
fn nothing_is_lent_where_that_is_not_wanted_or_not_possible() {
    let off = UdpConfig {
        lend: false,
        ..UdpConfig::default()
    };
    let pages = filled(20_000);
    let (mut tx, to, _rx) = connected(V4, &off);
    assert!(!tx.lends());
    assert_eq!(tx.send_lent(&to, &pages, 20_000, 1_000, 0), Lending::No);
    // Not by the socket that serves all: it has no peer to splice to.
    let (mut tx, _) = open_default(V4);
    assert_eq!(tx.send_lent(&to, &pages, 20_000, 1_000, 0), Lending::No);
}

/// A failure does not end lending, and what the kernel had to say is told.
#[test]
fn a_refusal_is_told_and_forgotten() {
    let (mut tx, to, rx) = connected(V4, &UdpConfig::default());
    if !tx.lends() {
        assert!(!kernel_can());
        return;
    }
    let pages = filled(20_000);
    drop(rx);
    let (mut failed, mut told) = (0, false);
    for _ in 0..200 {
        failed += (tx.send_lent(&to, &pages, 20_000, 1_000, 0) == Lending::Failed) as u32;
        while let Some(event) = tx.poll_event() {
            told |= matches!(event, RailEvent::Refused(addr) if port_of(&addr) == port_of(&to));
        }
    }
    assert!(failed > 50 && told, "{failed} failures, told: {told}");
    assert!(tx.lends());
}
