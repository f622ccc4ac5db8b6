//! Rails over the loopback interface: all data arrives bit for bit.

use crate::common;

use common::{open, port_of, receive, Random, SendTo};
use marline_rails::{
    choose_interfaces, choose_rails, open_rail, Clock, FaultScript, Links, Ports, Rail, RailEvent,
    RailRx, RailTx, RailsConfig, SendOutcome, UdpAddr, UdpConfig, UdpRail, UdpRx, UdpTx,
};
use marline_wire::RailAddr;

/// Sends random batches and compares the received data.
fn bit_for_bit(address: &str, config: &UdpConfig, seed: u64) {
    let (mut tx, mut tx_back) = open(address, config);
    let (peer, mut rx) = open(address, config);
    let mut random = Random(seed);
    for round in 0..200 {
        let segment = random.up_to(if round % 4 == 0 { 60_000 } else { 2_000 });
        let most = (segment * 64).min(64_000);
        let len = random.up_to(most);
        let bytes = random.bytes(len);
        assert_eq!(
            tx.send_to(&peer.local_addr(), &bytes, segment, 0),
            SendOutcome::Sent
        );
        let expected: Vec<_> = bytes.chunks(segment).map(<[u8]>::to_vec).collect();
        assert!(
            receive(&mut rx, expected.len()) == expected,
            "segment {segment} of {len}"
        );
    }
    assert_eq!(tx.poll_event(), None);
    assert_eq!(tx_back.recv(&mut |_| panic!("nothing was sent here")), 0);
}

#[test]
fn arrives_bit_for_bit_with_offloads() {
    bit_for_bit("127.0.0.1", &UdpConfig::default(), 1);
}

#[test]
fn arrives_bit_for_bit_without_gso() {
    bit_for_bit(
        "127.0.0.1",
        &UdpConfig {
            gso: false,
            ..UdpConfig::default()
        },
        2,
    );
}

#[test]
fn arrives_bit_for_bit_without_gro() {
    bit_for_bit(
        "127.0.0.1",
        &UdpConfig {
            gro: false,
            ..UdpConfig::default()
        },
        3,
    );
}

#[test]
fn arrives_bit_for_bit_without_any_offload() {
    let config = UdpConfig {
        gso: false,
        gro: false,
        ..UdpConfig::default()
    };
    bit_for_bit("127.0.0.1", &config, 4);
}

#[test]
fn arrives_bit_for_bit_over_ipv6() {
    bit_for_bit("::1", &UdpConfig::default(), 5);
}

/// Without ancillary data the same data arrives, only not divided.
#[test]
fn arrives_bit_for_bit_without_control_messages() {
    for gro in [true, false] {
        let config = UdpConfig {
            cmsg: false,
            gro,
            ..UdpConfig::default()
        };
        let (mut tx, _tx_back) = open("127.0.0.1", &config);
        let (peer, mut rx) = open("127.0.0.1", &config);
        let (mut random, mut uncut) = (Random(6), 0);
        for _ in 0..500 {
            let segment = random.up_to(2_000);
            let len = random.up_to(segment * 8);
            let bytes = random.bytes(len);
            assert_eq!(
                tx.send_to(&peer.local_addr(), &bytes, segment, 0),
                SendOutcome::Sent
            );
            let mut got = Vec::new();
            while got.len() < len {
                rx.recv(&mut |r| {
                    let cut = if gro { segment } else { r.bytes.len() };
                    assert!([0, cut.min(r.bytes.len())].contains(&r.segment));
                    uncut += usize::from(r.segment == 0);
                    got.extend_from_slice(r.bytes);
                });
            }
            assert!(got == bytes);
        }
        assert_eq!(uncut > 0, gro, "{uncut}");
    }
}

#[test]
fn drops_are_counted_without_control_messages() {
    let (mut a, _a_rx) = open("127.0.0.1", &UdpConfig::default());
    let small = UdpConfig {
        rcvbuf_bytes: 16 << 10,
        cmsg: false,
        ..UdpConfig::default()
    };
    let (mut b, mut b_rx) = open("127.0.0.1", &small);
    let (mut sent, mut got) = (0, 0);
    let mut send = |count| {
        for _ in 0..count {
            let outcome = a.send_to(&b.local_addr(), &[1; 1000], 1000, 0);
            assert_eq!(outcome, SendOutcome::Sent);
            sent += 1;
        }
        while b_rx.recv(&mut |r| got += r.bytes.len() / 1000) > 0 {}
    };
    send(100);
    (0..70).for_each(|_| send(1)); // ping-pong from here on: each datagram is received alone
    let drops = RailEvent::ReceiverDrops(sent - got as u64);
    assert_eq!(b.poll_event(), Some(drops));
}

#[test]
fn a_rail_with_faults_knows_the_length_of_each_datagram() {
    let choice = choose_rails(&["lo".to_owned()]).unwrap();
    let scripts = FaultScript::parse_all("rail=0;rx:drop=0.5").unwrap();
    let clock: Clock = std::sync::Arc::new(|| 0);
    let config = UdpConfig {
        cmsg: false,
        ..UdpConfig::default()
    };
    let config = RailsConfig {
        udp: config,
        faults: scripts,
        ..RailsConfig::default()
    };
    let rail = open_rail(0, &choice[0], &config, &clock).unwrap();
    let (mut tx, mut rx) = rail.split();
    let to = tx.local_addr();
    for _ in 0..50 {
        assert_eq!(tx.send_to(&to, &[7; 2000], 100, 0), SendOutcome::Sent);
        let mut got = 0;
        rx.recv(&mut |r| {
            assert_eq!((r.segment, r.bytes.len() % 100), (100, 0));
            got += r.bytes.len() / 100;
        });
        assert!(got < 20, "some were dropped");
    }
}

#[test]
fn source_address_is_where_the_answer_goes() {
    let (mut a, mut a_rx) = open("127.0.0.1", &UdpConfig::default());
    let (mut b, mut b_rx) = open("127.0.0.1", &UdpConfig::default());
    assert_eq!(a.send_to(&b.local_addr(), b"ping", 4, 0), SendOutcome::Sent);
    let mut from = None;
    while from.is_none() {
        b_rx.recv(&mut |r| from = Some(r.from));
    }
    assert_eq!(b.send_to(&from.unwrap(), b"pong", 4, 0), SendOutcome::Sent);
    assert_eq!(receive(&mut a_rx, 1), [b"pong"]);
}

/// The source port of a packet sent by a flow.
fn source_port_of(tx: &mut UdpTx, to: &RailAddr, rx: &mut UdpRx, flow: u8) -> u16 {
    assert_eq!(tx.send_to(to, b"where from?", 11, flow), SendOutcome::Sent);
    let mut from = None;
    while from.is_none() {
        rx.recv(&mut |r| from = Some(port_of(&r.from)));
    }
    from.unwrap()
}

#[test]
fn other_flows_leave_by_other_ports_and_refuse_data() {
    let (mut a, _a_rx) = open("127.0.0.1", &UdpConfig::default());
    let (mut b, mut b_rx) = open("127.0.0.1", &UdpConfig::default());
    let mut ports = Vec::new();
    for flow in 0..8 {
        assert_eq!(
            a.send_to(&b.local_addr(), &[flow], 1, flow),
            SendOutcome::Sent
        );
        while ports.len() == flow as usize {
            b_rx.recv(&mut |r| ports.push(port_of(&r.from)));
        }
    }
    assert_eq!(ports[0], port_of(&a.local_addr()));
    assert_eq!(ports[5], ports[0], "now and then it is the rail's again");
    let mut distinct = ports.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(
        distinct.len(),
        7,
        "a flow that is new has a port that is new"
    );
    let again = source_port_of(&mut a, &b.local_addr(), &mut b_rx, 1);
    assert_eq!(again, ports[6], "flows that are older have the newest port");
    let flow_addr = UdpAddr::new([127, 0, 0, 1].into(), ports[6]).rail();
    assert_eq!(
        b.send_to(&flow_addr, b"nobody reads this", 17, 0),
        SendOutcome::Sent
    );
}

#[test]
fn a_refusal_names_its_peer_and_spares_the_others() {
    for flow in [0, 1] {
        let (mut a, mut a_rx) = open("127.0.0.1", &UdpConfig::default());
        let (b, mut b_rx) = open("127.0.0.1", &UdpConfig::default());
        // No socket is bound to this loopback address.
        let gone = UdpAddr::new([127, 0, 0, 77].into(), port_of(&b.local_addr())).rail();
        assert_eq!(a.send_to(&gone, b"anyone?", 7, flow), SendOutcome::Sent);
        // The refusal is pending on the socket during a send to another destination.
        assert_eq!(
            a.send_to(&b.local_addr(), b"hello", 5, flow),
            SendOutcome::Sent
        );
        assert_eq!(receive(&mut b_rx, 1), [b"hello"]);
        let mut event = a.poll_event();
        while flow != 0 && event.is_none() {
            event = a.poll_event(); // this flow has a socket per destination
        }
        assert_eq!(event, Some(RailEvent::Refused(a.connect(&gone).link)));
        // The same, but the receiving half meets the error.
        assert_eq!(a.send_to(&gone, b"anyone?", 7, flow), SendOutcome::Sent);
        assert_eq!(a_rx.recv(&mut |_| panic!("nothing was sent here")), 0);
        let mut event = None;
        while event.is_none() {
            event = a.poll_event();
        }
        assert_eq!(event, Some(RailEvent::Refused(a.connect(&gone).link)));
    }
}

#[test]
fn packets_dropped_for_want_of_buffer_are_counted() {
    let (mut a, _a_rx) = open("127.0.0.1", &UdpConfig::default());
    let small = UdpConfig {
        rcvbuf_bytes: 16 << 10,
        ..UdpConfig::default()
    };
    let (mut b, mut b_rx) = open("127.0.0.1", &small);
    assert!(b.caps().receive_buffer_bytes < 64 << 10);
    for _ in 0..100 {
        assert_eq!(
            a.send_to(&b.local_addr(), &[1; 1000], 1000, 0),
            SendOutcome::Sent
        );
    }
    let mut got = 0;
    while b_rx.recv(&mut |r| got += r.bytes.len() / 1000) > 0 {}
    // The count arrives with the first packet queued after the drops.
    assert_eq!(
        a.send_to(&b.local_addr(), &[1; 1000], 1000, 0),
        SendOutcome::Sent
    );
    while b_rx.recv(&mut |r| got += r.bytes.len() / 1000) > 0 {}
    assert_eq!(
        b.poll_event(),
        Some(RailEvent::ReceiverDrops(101 - got as u64))
    );
}

#[test]
fn a_batch_above_the_limits_is_cut_into_several() {
    let (mut a, _a_rx) = open("127.0.0.1", &UdpConfig::default());
    let (b, mut b_rx) = open("127.0.0.1", &UdpConfig::default());
    let bytes = Random(9).bytes(100_000);
    assert_eq!(
        a.send_to(&b.local_addr(), &bytes, 1000, 0),
        SendOutcome::Sent
    );
    assert_eq!(receive(&mut b_rx, 100).concat(), bytes);
}

#[test]
fn a_taken_port_is_a_clear_error() {
    let (a, _a_rx) = open("127.0.0.1", &UdpConfig::default());
    let config = UdpConfig {
        ports: Ports::one(port_of(&a.local_addr())),
        ..UdpConfig::default()
    };
    let choice = choose_interfaces(&["lo".to_owned()]).unwrap();
    let error = UdpRail::open(&choice[0], &config).err().unwrap();
    assert!(error.contains("lo (127.0.0.1): bind failed"), "{error}");
    assert!(
        error.contains("FI_MARLINE_PORT") && error.contains("unset it"),
        "{error}"
    );
}

#[test]
fn rails_share_a_range_and_one_too_many_is_refused_by_name() {
    let (first, _first_rx) = open("127.0.0.1", &UdpConfig::default());
    // A port in use, and its neighbour; other processes' use of the neighbour does not matter.
    let least = port_of(&first.local_addr()).min(65_533);
    let (mut open_rails, mut ports) = (Vec::new(), Vec::new());
    let choice = choose_interfaces(&["lo".to_owned()]).unwrap();
    let error = loop {
        let config = UdpConfig {
            ports: Ports::range(least, least + 2, 7),
            ..UdpConfig::default()
        };
        match UdpRail::open(&choice[0], &config) {
            Ok(rail) => {
                let (tx, rx) = rail.split();
                ports.push(port_of(&tx.local_addr()));
                open_rails.push((tx, rx));
            }
            Err(error) => break error,
        }
    };
    assert!(
        ports.iter().all(|port| (least..=least + 2).contains(port)),
        "{ports:?}"
    );
    assert!(ports.len() <= 3, "{ports:?}");
    let range = format!("FI_MARLINE_PORTS={least}-{}", least + 2);
    assert!(error.contains(&range), "{error}");
}

#[test]
fn a_script_makes_only_its_own_rail_faulty() {
    let choice = choose_rails(&["lo".to_owned()]).unwrap();
    let config = RailsConfig {
        shm: Default::default(),
        faults: FaultScript::parse_all("rail=1;tx:drop=1").unwrap(),
        ..RailsConfig::default()
    };
    let clock: Clock = std::sync::Arc::new(|| 0);
    let open = |index| {
        open_rail(index, &choice[0], &config, &clock)
            .unwrap()
            .split()
    };
    let ((mut well, mut rx), (mut faulty, _)) = (open(0), open(1));
    let to = well.local_addr();
    assert_eq!(faulty.send_to(&to, b"lost", 4, 0), SendOutcome::Sent);
    assert_eq!(well.send_to(&to, b"well", 4, 0), SendOutcome::Sent);
    let mut got = Vec::new();
    while rx.recv(&mut |r| got.push(r.bytes.to_vec())) > 0 {}
    assert_eq!(got, [b"well"]);
}
