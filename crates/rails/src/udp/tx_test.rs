//! Tests of the sending half that need private state.

use super::*;
use crate::udp::{UdpRail, UdpRx};
use crate::{choose_interfaces, Rail, RailRx};

fn open() -> (UdpTx, UdpRx) {
    let choice = choose_interfaces(&["127.0.0.1".to_owned()]).unwrap();
    UdpRail::open(&choice[0], &UdpConfig::default())
        .unwrap()
        .split()
}

fn arrives(tx: &mut UdpTx, bytes: &[u8], segment: usize) {
    let (peer, mut rx) = open();
    let link = tx.connect(&peer.local_addr()).link;
    assert_eq!(tx.send(link, bytes, segment, 0), SendOutcome::Sent);
    let mut got = Vec::new();
    while rx.recv(&mut |r| got.extend_from_slice(r.bytes)) > 0 {}
    assert!(got == bytes);
}

#[test]
fn too_many_segments_are_halved_until_the_kernel_takes_them() {
    let (mut tx, _rx) = open();
    tx.segments_max = 512; // more than any kernel accepts
    let bytes: Vec<u8> = (0..30_000u32).map(|i| (i / 100) as u8).collect();
    arrives(&mut tx, &bytes, 100);
    assert!(
        (64..=256).contains(&tx.caps.batch_segments_max),
        "{:?}",
        tx.caps
    );
    assert!(tx.gso);
}

#[test]
fn without_gso_a_batch_still_leaves() {
    let (mut tx, _rx) = open();
    tx.disable_gso();
    assert_eq!(tx.caps().batch_segments_max, 1);
    assert_eq!(tx.caps().batch_bytes_max, tx.caps().datagram_max);
    let bytes: Vec<u8> = (0..30_000u32).map(|i| (i / 100) as u8).collect();
    arrives(&mut tx, &bytes, 999);
}
