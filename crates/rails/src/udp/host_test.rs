//! A process dies while it holds the lock of a ring shared by the processes of its host.

use super::{group_addr, host_ring, UdpConfig, UdpRail, UdpRx, UdpTx};
use crate::{choose_interfaces, Groups, Rail, RailRx, RailTx};
use std::time::Instant;

fn open() -> (UdpTx, UdpRx) {
    let choice = choose_interfaces(&["127.0.0.0/8".to_owned()]).unwrap();
    let config = UdpConfig {
        share_groups: true,
        ..UdpConfig::default()
    };
    let rail = UdpRail::open(&choice[0], &config).unwrap();
    rail.split()
}

#[test]
fn a_dead_lock_holder_is_replaced() {
    let mut rails: Vec<_> = (0..4).map(|_| open()).collect();
    let id = u64::from(std::process::id()) << 20;
    let join = |(tx, _): &mut (UdpTx, UdpRx)| {
        let group = group_addr(tx.local_addr().kind, id).unwrap();
        tx.join(&group).unwrap()
    };
    let links: Vec<_> = rails.iter_mut().map(join).collect();
    let member = |(tx, _): &(UdpTx, UdpRx)| tx.groups[0].as_ref().unwrap().joining.member.clone();
    let begun = Instant::now();
    while !rails.iter().all(|rail| member(rail).is_some()) {
        assert!(begun.elapsed().as_secs() < 30, "they do not meet");
        for (tx, rx) in &mut rails {
            tx.poll_event();
            rx.recv_rest(&mut |_| ());
        }
    }
    let (dying, mut rest) = (rails.pop().unwrap(), rails);
    let dead = member(&dying).unwrap();
    host_ring::try_lock(&dead.ring, dead.ring.slot).unwrap();
    rest[0].0.send_group(links[0], b"not yet", 7);
    // The reader has the datagram; it cannot enter the ring yet.
    let mut got = Vec::new();
    while got.is_empty() {
        assert!(begun.elapsed().as_secs() < 60, "nobody reads");
        rest[1].1.recv_rest(&mut |r| got.push(r.bytes.to_vec()));
    }
    for _ in 0..1_000 {
        let count = rest[1].1.recv_rest(&mut |_| ()) + rest[2].1.recv_rest(&mut |_| ());
        assert_eq!(count, 0, "it waits for a process that lives");
    }
    drop((dead, dying));
    while got.len() < 2 {
        assert!(begun.elapsed().as_secs() < 60, "nobody takes over");
        rest[1].1.recv_rest(&mut |_| ());
        rest[2].1.recv_rest(&mut |r| got.push(r.bytes.to_vec()));
    }
    assert_eq!(got, [b"not yet", b"not yet"]);
}
