//! Devices with several ports, and asynchronous events: on a fake libibverbs, since
//! emulated devices have only one port and do not report all events.

mod fake_verbs;

use fake_verbs::FakeVerbs;
use marline_rails::{
    choose_rails, open_rail, pairing::same_network, show_addr, AnyRail, AnyRx, AnyTx, DownReason,
    LinkId, Links, Marks, Partition, Rail, RailChoice, RailEvent, RailFault, RailRx, RailTx,
    RailsConfig, SendOutcome, VerbsConfig,
};
use std::sync::Arc;

/// Event numbers in verbs.
const CQ_ERR: u32 = 0;
const DEVICE_FATAL: u32 = 8;
const PORT_ACTIVE: u32 = 9;
const PORT_ERR: u32 = 10;
const LID_CHANGE: u32 = 11;
const PKEY_CHANGE: u32 = 12;
const SRQ_ERR: u32 = 14;
const GID_CHANGE: u32 = 18;
/// Events of a queue pair in error, with their names.
const PAIR_ERRORS: [(u32, &str); 4] = [
    (1, "QP_FATAL"),
    (2, "QP_REQ_ERR"),
    (3, "QP_ACCESS_ERR"),
    (16, "QP_LAST_WQE_REACHED"),
];
/// Events of a queue pair or port without consequences.
const IDLE: [(u32, &str); 9] = [
    (4, "COMM_EST"),
    (5, "SQ_DRAINED"),
    (6, "PATH_MIG"),
    (7, "PATH_MIG_ERR"),
    (13, "SM_CHANGE"),
    (15, "SRQ_LIMIT_REACHED"),
    (17, "CLIENT_REREGISTER"),
    (19, "WQ_FATAL"),
    (99, "an event that is not known"),
];

/// InfiniBand ports.
const IB_1: &str = "mlx5_0 1 4 1 17 ffff 0 fe800000000000000002c90300000001";
const IB_2: &str = "mlx5_0 2 4 1 18 ffff 0 fe800000000000000002c90300000002";
const IB_2_DOWN: &str = "mlx5_0 2 1 1 18 ffff 0 fe800000000000000002c90300000002";
/// A port that was never up.
const IB_2_NEW: &str = "mlx5_0 2 1 1 0 ffff 0 fe800000000000000002c90300000002";
/// A device that cannot be opened.
const SHUT: &str = "mlx5_1 1 0 1 0 ffff 0 00000000000000000000000000000000";
/// A RoCE port, with its GID at another index, and without a GID.
const ROCE: &str = "mlx5_2 1 4 2 0 ffff 1 00000000000000000000ffff0a4d0001";
const ROCE_ELSEWHERE: &str = "mlx5_2 1 4 2 0 ffff 3 00000000000000000000ffff0a4d0001";
const ROCE_NO_GID: &str = "mlx5_2 1 4 2 0 ffff 1 00000000000000000000000000000000";

fn chosen(name: &str) -> Result<Vec<RailChoice>, String> {
    choose_rails(&[name.to_owned()])
}

/// Names of the rails that a name denotes.
fn names(name: &str) -> Vec<String> {
    let rails = chosen(name).unwrap();
    rails.iter().map(RailChoice::name).collect()
}

/// Opens the rail of this name.
fn opened(name: &str, marks: Marks) -> Result<AnyRail, String> {
    let clock: marline_rails::Clock = Arc::new(|| 0);
    let verbs = VerbsConfig {
        marks,
        ..VerbsConfig::default()
    };
    let config = RailsConfig {
        verbs,
        ..RailsConfig::default()
    };
    open_rail(0, &chosen(name).unwrap()[0], &config, &clock)
}

/// A rail and its events.
struct End {
    tx: AnyTx,
    rx: AnyRx,
    events: Vec<RailEvent>,
    packets: Vec<Vec<u8>>,
}

impl End {
    fn open(name: &str) -> End {
        End::marked(name, Marks::default())
    }

    fn marked(name: &str, marks: Marks) -> End {
        let (tx, rx) = opened(name, marks).unwrap().split();
        End {
            tx,
            rx,
            events: Vec::new(),
            packets: Vec::new(),
        }
    }

    /// The number of its datagram queue pair.
    fn number(&self) -> u32 {
        let shown = show_addr(&self.tx.local_addr());
        shown.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// All events, after a query of the device, except the device's asynchronous events.
    fn news(&mut self) -> Vec<RailEvent> {
        self.rx.arm();
        self.rx
            .recv(&mut |received| self.packets.push(received.bytes.to_vec()));
        while let Some(event) = self.tx.poll_event() {
            self.events.push(event);
        }
        let told = |event: &RailEvent| matches!(event, RailEvent::Async(_));
        self.events
            .iter()
            .filter(|event| !told(event))
            .copied()
            .collect()
    }

    /// Names of the device's asynchronous events.
    fn told(&mut self) -> Vec<&'static str> {
        self.news();
        let told = |event: &RailEvent| match event {
            RailEvent::Async(what) => Some(*what),
            _ => None,
        };
        self.events.iter().filter_map(told).collect()
    }

    /// The reported fault; panics on any other event than that links are down.
    fn fault(&mut self) -> Option<RailFault> {
        let news = self.news();
        self.events.clear();
        let faults: Vec<_> = (news.iter())
            .filter_map(|event| match event {
                RailEvent::Fault(fault) => Some(*fault),
                RailEvent::LinkDown(..) => None,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(faults.len() < 2, "{faults:?}");
        faults.first().copied()
    }
}

/// A link from `a` to `b` that is up. (The fake takes no time, but a thread makes the handle.)
fn link(a: &mut End, b: &mut End) -> LinkId {
    a.events.clear();
    let connected = a.tx.connect(&b.tx.local_addr());
    while !connected.up && !a.events.contains(&RailEvent::LinkUp(connected.link)) {
        let down = |event: &RailEvent| matches!(event, RailEvent::LinkDown(..));
        assert!(!a.events.iter().any(down), "{:?}", a.events);
        a.news();
        b.news();
        std::thread::yield_now();
    }
    (a.events, b.events) = (Vec::new(), Vec::new());
    connected.link
}

/// Checks that packets sent on a link arrive.
fn carries(a: &mut End, link: LinkId, b: &mut End) {
    carries_by(0, a, link, b);
}

/// Like `carries`, by one of a rail's flows.
fn carries_by(flow: u8, a: &mut End, link: LinkId, b: &mut End) {
    for len in [1, 1000] {
        let bytes = vec![len as u8; len];
        assert_eq!(a.tx.send(link, &bytes, len, flow), SendOutcome::Sent);
        b.news();
        assert_eq!(b.packets.pop(), Some(bytes));
    }
}

#[test]
fn ports_are_rails_by_their_names() {
    let all = [IB_1, IB_2, SHUT, ROCE];
    let Some(fake_verbs) = FakeVerbs::enter("ports_are_rails_by_their_names", &all) else {
        return;
    };
    assert_eq!(names("rc"), ["rc:mlx5_0:1", "rc:mlx5_0:2", "rc:mlx5_2"]);
    assert_eq!(names("ud:mlx5_0"), ["ud:mlx5_0:1", "ud:mlx5_0:2"]);
    assert_eq!(names("uc:mlx5_0:2"), ["uc:mlx5_0:2"]);
    assert_eq!(names("rc:mlx5_2"), ["rc:mlx5_2"]);
    let error = |name: &str| chosen(name).unwrap_err();
    assert!(error("rc:mlx5_1").contains("mlx5_1 does not open: Permission denied"));
    assert!(error("rc:mlx5_1").contains("/dev/infiniband"));
    let no_such = "there is no such port of a verbs device (mlx5_0:1 up, mlx5_0:2 up, mlx5_2 up)";
    for name in ["mlx5_0:3", "mlx5_2:2", "mlx5", "mlx5_0:"] {
        assert_eq!(error(&format!("rc:{name}")), format!("{name}: {no_such}"));
    }

    // Without a port's name: the active ports with an address; with it, that port.
    for down in [IB_2_DOWN, IB_2_NEW] {
        fake_verbs.has(&[IB_1, down, ROCE_NO_GID]);
        assert_eq!(names("rc"), ["rc:mlx5_0:1"]);
        assert_eq!(names("rc:mlx5_0"), ["rc:mlx5_0:1"]);
        let named = chosen("rc:mlx5_0:2").unwrap();
        assert_eq!(named[0].name(), "rc:mlx5_0:2");
    }
    let complaint = |name: &str| chosen(name).unwrap()[0].complaint(&Default::default());
    assert_eq!(complaint("rc:mlx5_0:1"), None);
    assert!(complaint("rc:mlx5_0:2").unwrap().contains("no LID yet"));
    assert!(complaint("rc:mlx5_2").unwrap().contains("no GID"));
    fake_verbs.has(&[IB_2_DOWN, ROCE_NO_GID]);
    assert_eq!(complaint("rc:mlx5_0:2").unwrap(), "its port is down");
    for name in ["rc", "rc:mlx5_0"] {
        let said = error(name);
        assert!(said.contains("no port of"), "{said}");
        assert!(said.contains("mlx5_0:2 down"), "{said}");
    }
}

/// Traffic class, service level and partition of all queue pairs and paths are those of the
/// settings; a rail in another partition is not reached.
#[test]
fn packets_are_marked_as_settings_say() {
    let name = "packets_are_marked_as_settings_say";
    let Some(fake_verbs) = FakeVerbs::enter(name, &[IB_1, IB_2, ROCE]) else {
        return;
    };
    let marks = Marks {
        traffic_class: 104,
        service_level: 3,
        partition: Partition::Key(0x0005),
        gid_index: Some(1),
    };
    for (kind, port, path) in [
        // Within a subnet of InfiniBand packets have no class.
        ("ud", "mlx5_0:1", "path 0 3"),
        ("rc", "mlx5_0:1", "path 0 3"),
        ("uc", "mlx5_0:1", "path 0 3"),
        ("ud", "mlx5_2", "path 104 3"),
        ("rc", "mlx5_2", "path 104 3"),
        ("uc", "mlx5_2", "path 104 3"),
    ] {
        let mut ends = [(); 2].map(|()| End::marked(&format!("{kind}:{port}"), marks));
        let [a, b] = &mut ends;
        let to_b = link(a, b);
        for flow in [0, 1] {
            carries_by(flow, a, to_b, b);
        }
        assert_eq!(fake_verbs.marks(), [path, "pkey 1"], "{kind} {port}");
    }
    let (ours, other) = (End::marked("rc:mlx5_0:1", marks), End::open("rc:mlx5_0:2"));
    let (ours, other) = (ours.tx.local_addr(), other.tx.local_addr());
    assert!(!same_network(&ours, &other));
}

#[test]
fn a_missing_gid_or_partition_is_refused_by_name() {
    let name = "a_missing_gid_or_partition_is_refused_by_name";
    let Some(_fake_verbs) = FakeVerbs::enter(name, &[IB_1, ROCE]) else {
        return;
    };
    let error = |name: &str, marks: Marks| match opened(name, marks) {
        Ok(_) => panic!("{name} with {marks:?} is open"),
        Err(why) => why,
    };
    let gid = Marks {
        gid_index: Some(3),
        ..Marks::default()
    };
    let said = "no GID 3 (FI_MARLINE_VERBS_GID_INDEX; it has 1: 10.77.0.1)";
    assert!(error("rc:mlx5_2", gid).ends_with(said));
    let partition = |partition| Marks {
        partition,
        ..Marks::default()
    };
    for name in ["ud:mlx5_0", "ud:mlx5_2"] {
        let said = error(name, partition(Partition::Key(0x8006)));
        let has = "no P_Key 0x8006 (FI_MARLINE_VERBS_PKEY; it has 0: 0xffff, 1: 0x8005)";
        assert!(said.ends_with(has), "{said}");
        let said = error(name, partition(Partition::At(2)));
        assert!(said.contains("no P_Key at place 2 ("), "{said}");
    }
}

#[test]
fn a_port_falls_and_comes_alone() {
    let Some(fake_verbs) = FakeVerbs::enter("a_port_falls_and_comes_alone", &[IB_1, IB_2]) else {
        return;
    };
    for kind in ["ud", "uc", "rc"] {
        let mut ends = ["1", "1", "2", "2"].map(|at| End::open(&format!("{kind}:mlx5_0:{at}")));
        let [a, b, c, d] = &mut ends;
        let (first, second) = (link(a, b), link(c, d));
        fake_verbs.has(&[IB_1, IB_2_DOWN]);
        fake_verbs.tells(PORT_ERR, 2);
        assert_eq!(c.fault(), Some(RailFault::Down(libc::ENETDOWN)), "{kind}");
        assert_eq!(a.fault(), None, "{kind}");
        carries(a, first, b);
        // A rail opened on the same port is also down, and recovers with it.
        let mut late = End::open(&format!("{kind}:mlx5_0:2"));
        assert_eq!(
            late.fault(),
            Some(RailFault::Down(libc::ENETDOWN)),
            "{kind}"
        );
        fake_verbs.has(&[IB_1, IB_2]);
        fake_verbs.tells(PORT_ACTIVE, 2);
        assert_eq!(late.fault(), Some(RailFault::Up), "{kind}");
        assert_eq!(c.fault(), Some(RailFault::Up), "{kind}");
        assert_eq!(a.fault(), None, "{kind}");
        carries(a, first, b);
        carries(c, second, d);
        assert_eq!(a.told(), [] as [&str; 0], "cleared");
    }
}

#[test]
fn a_port_is_the_one_that_its_address_names() {
    let all = [IB_1, IB_2];
    let Some(fake_verbs) = FakeVerbs::enter("a_port_is_the_one_that_its_address_names", &all)
    else {
        return;
    };
    let (mut a, mut b) = (End::open("rc:mlx5_0:1"), End::open("rc:mlx5_0:2"));
    let gone = Some(RailFault::Down(libc::EADDRNOTAVAIL));
    for (event, other) in [
        (
            LID_CHANGE,
            "mlx5_0 2 4 1 19 ffff 0 fe800000000000000002c90300000002",
        ),
        (
            PKEY_CHANGE,
            "mlx5_0 2 4 1 18 8001 0 fe800000000000000002c90300000002",
        ),
        (
            GID_CHANGE,
            "mlx5_0 2 4 1 18 ffff 0 fec00000000000000002c90300000002",
        ),
    ] {
        fake_verbs.has(&[IB_1, other]);
        fake_verbs.tells(event, 2);
        assert_eq!(b.fault(), gone, "{other}");
        fake_verbs.has(&[IB_1, IB_2]);
        fake_verbs.tells(event, 2);
        assert_eq!(b.fault(), Some(RailFault::Up), "{other}");
        assert_eq!(a.fault(), None, "{other}");
    }
}

#[test]
fn a_gid_goes_and_comes_elsewhere_in_its_table() {
    let name = "a_gid_goes_and_comes_elsewhere_in_its_table";
    let Some(fake_verbs) = FakeVerbs::enter(name, &[ROCE]) else {
        return;
    };
    for kind in ["ud", "uc", "rc"] {
        fake_verbs.has(&[ROCE]);
        let mut ends = [(); 2].map(|()| End::open(&format!("{kind}:mlx5_2")));
        let [a, b] = &mut ends;
        let to_b = link(a, b);
        carries(a, to_b, b);
        fake_verbs.has(&[ROCE_NO_GID]);
        fake_verbs.tells(GID_CHANGE, 1);
        // A handle that names the table entry keeps the kernel from reusing the entry.
        let down =
            |event: &RailEvent| matches!(event, RailEvent::LinkDown(link, _) if *link == to_b);
        assert!(a.news().iter().any(down), "{kind}");
        assert_eq!(
            a.fault(),
            Some(RailFault::Down(libc::EADDRNOTAVAIL)),
            "{kind}"
        );
        a.tx.close(to_b);
        assert_eq!(
            b.fault(),
            Some(RailFault::Down(libc::EADDRNOTAVAIL)),
            "{kind}"
        );
        // Another GID is not ours.
        fake_verbs.has(&["mlx5_2 1 4 2 0 ffff 1 00000000000000000000ffff0a4d0009"]);
        fake_verbs.tells(GID_CHANGE, 1);
        assert_eq!(
            a.fault(),
            Some(RailFault::Down(libc::EADDRNOTAVAIL)),
            "{kind}"
        );
        fake_verbs.has(&[ROCE_ELSEWHERE]);
        fake_verbs.tells(GID_CHANGE, 1);
        assert_eq!(a.fault(), Some(RailFault::Up), "{kind}");
        b.news();
        let to_b = link(a, b);
        carries(a, to_b, b);
        // The GID was away too briefly to be noticed.
        fake_verbs.has(&[ROCE]);
        fake_verbs.tells(GID_CHANGE, 1);
        assert!(a.news().iter().any(down), "{kind}");
        assert_eq!(a.fault(), None, "{kind}");
        a.tx.close(to_b);
        b.news();
        let to_b = link(a, b);
        carries(a, to_b, b);
    }
}

#[test]
fn a_pair_in_error_ends_its_link_alone() {
    let name = "a_pair_in_error_ends_its_link_alone";
    let Some(fake_verbs) = FakeVerbs::enter(name, &[IB_1]) else {
        return;
    };
    for kind in ["uc", "rc"] {
        for (event, word) in PAIR_ERRORS {
            let mut ends = [(); 3].map(|()| End::open(&format!("{kind}:mlx5_0")));
            let [a, b, c] = &mut ends;
            let (to_b, to_c) = (link(a, b), link(a, c));
            // Queue pairs are numbered in the order of creation: first those for datagrams.
            fake_verbs.tells(event, a.number() + 3);
            let down = RailEvent::LinkDown(to_b, DownReason::Broken(libc::EIO));
            assert_eq!(a.news(), [down], "{kind} {word}");
            assert_eq!(a.told(), [word], "{kind}");
            a.tx.close(to_b);
            assert!(b.told().is_empty() && c.told().is_empty(), "{kind} {word}");
            carries(a, to_c, c);
            let to_b = link(a, b);
            carries(a, to_b, b);
        }
    }
}

#[test]
fn a_pair_of_datagrams_in_error_begins_anew() {
    let name = "a_pair_of_datagrams_in_error_begins_anew";
    let Some(fake_verbs) = FakeVerbs::enter(name, &[IB_1]) else {
        return;
    };
    for kind in ["ud", "rc"] {
        for (event, word) in PAIR_ERRORS {
            let mut ends = [(); 2].map(|()| End::open(&format!("{kind}:mlx5_0")));
            let [a, b] = &mut ends;
            let number = a.number();
            fake_verbs.tells(event, number);
            assert_eq!(
                (a.news(), a.told(), a.number()),
                (vec![], vec![word], number)
            );
            let to_b = link(a, b);
            carries(a, to_b, b);
        }
    }
}

#[test]
fn a_pair_of_another_flow_in_error_is_replaced() {
    let name = "a_pair_of_another_flow_in_error_is_replaced";
    let Some(fake_verbs) = FakeVerbs::enter(name, &[IB_1]) else {
        return;
    };
    for (event, word) in PAIR_ERRORS {
        let mut ends = [(); 2].map(|()| End::open("ud:mlx5_0"));
        let [a, b] = &mut ends;
        let to_b = link(a, b);
        carries_by(1, a, to_b, b);
        // Queue pairs are numbered in the order of creation: first those of the rails.
        fake_verbs.tells(event, b.number() + 1);
        assert_eq!((a.news(), a.told()), (vec![], vec![word]));
        carries_by(1, a, to_b, b);
        carries(a, to_b, b);
    }
}

#[test]
fn a_queue_or_device_in_error_ends_the_rail() {
    let name = "a_queue_or_device_in_error_ends_the_rail";
    let Some(fake_verbs) = FakeVerbs::enter(name, &[IB_1]) else {
        return;
    };
    for kind in ["ud", "uc", "rc"] {
        for event in [CQ_ERR, DEVICE_FATAL, SRQ_ERR] {
            if (kind, event) == ("ud", SRQ_ERR) {
                continue; // it has no such queue
            }
            let mut a = End::open(&format!("{kind}:mlx5_0"));
            fake_verbs.tells(event, 1);
            let lost = Some(RailFault::Down(libc::EIO));
            assert_eq!(a.fault(), lost, "{kind} {event}");
            fake_verbs.tells(PORT_ACTIVE, 1);
            for _ in 0..3 {
                assert_eq!(a.fault(), None, "{kind} {event}: for good, and told once");
            }
        }
    }
}

#[test]
fn other_events_are_told_and_change_nothing() {
    let name = "other_events_are_told_and_change_nothing";
    let Some(fake_verbs) = FakeVerbs::enter(name, &[IB_1]) else {
        return;
    };
    for kind in ["ud", "uc", "rc"] {
        let mut ends = [(); 2].map(|()| End::open(&format!("{kind}:mlx5_0")));
        let [a, b] = &mut ends;
        let to_b = link(a, b);
        for (event, word) in IDLE {
            // For the datagram queue pair, a connection, or a port.
            for which in [a.number(), a.number() + 2, 1] {
                fake_verbs.tells(event, which);
            }
            assert_eq!(a.news(), [], "{kind} {word}");
            let told = a.told();
            if (kind, word) == ("ud", "SRQ_LIMIT_REACHED") {
                assert_eq!(told, [] as [&str; 0], "it has no such queue");
                continue;
            }
            assert!(
                !told.is_empty() && told.iter().all(|told| *told == word),
                "{told:?}"
            );
            carries(a, to_b, b);
            a.events.clear();
        }
    }
}
