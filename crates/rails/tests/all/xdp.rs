//! Rails past the kernel's stack over veth pairs: what they exchange with each other and with UDP
//! rails, what they leave to the kernel, and what refuses them. A process without privilege shows
//! that the refusal says so.

use crate::common;

use common::{ip, join, wait_for_carrier, wait_readable, Namespace, Random, SendTo};
use marline_rails::{
    choose_interfaces, AnyRail, AnyRx, AnyTx, Rail, RailEvent, RailFault, RailRx, RailTx, Received,
    SendOutcome, UdpAddr, UdpConfig, UdpRail, XdpRail, XdpService, XdpServiceConfig,
};
use std::net::UdpSocket;
use std::path::Path;
use std::time::Instant;

const NET: &str = "10.1.0.0/24";

/// Two joined namespaces with the thread in the first; `None` if the process may not load programs.
fn two_hosts() -> Option<(Namespace, Namespace)> {
    let (a, b) = (Namespace::enter_new(), Namespace::enter_new());
    join(&a, &b, "rail0", 1);
    a.enter();
    match open_xdp() {
        Ok(_) => Some((a, b)),
        Err(why) => {
            assert!(why.contains("lacks a privilege (CAP_BPF"), "{why}");
            // SAFETY: geteuid takes no pointers.
            let user = unsafe { libc::geteuid() };
            assert_ne!(user, 0, "{why}: run the tests as root");
            None
        }
    }
}

fn open_xdp() -> Result<AnyRail, String> {
    open_by(Path::new(""))
}

/// Opens a rail with a service at a path.
fn open_by(service: &Path) -> Result<AnyRail, String> {
    let choice = choose_interfaces(&[NET.to_owned()]).unwrap();
    let rail = XdpRail::open(&choice[0], &UdpConfig::default(), service)?;
    Ok(AnyRail::Xdp(Box::new(rail)))
}

fn open(kind: &str) -> (AnyTx, AnyRx) {
    let choice = choose_interfaces(&[NET.to_owned()]).unwrap();
    let rail = match kind {
        "xdp" => open_xdp().unwrap(),
        _ => {
            let rail = UdpRail::open(&choice[0], &UdpConfig::default()).unwrap();
            AnyRail::Udp(Box::new(rail))
        }
    };
    rail.split()
}

fn receive(rx: &mut AnyRx, count: usize) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    let start = Instant::now();
    while got.len() < count {
        let waited = start.elapsed().as_secs();
        assert!(waited < 30, "{} of {count} datagrams came", got.len());
        let mut sink = |r: Received<'_>| got.extend(r.bytes.chunks(r.segment).map(<[u8]>::to_vec));
        if rx.recv(&mut sink) == 0 {
            rx.recv_rest(&mut sink);
        }
    }
    got
}

/// Datagrams that UDP sockets of the thread's namespace received and sent.
fn kernel_counts() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut udp = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let names: Vec<&str> = udp.next().unwrap().split(' ').collect();
    let values: Vec<&str> = udp.next().unwrap().split(' ').collect();
    let of = |name| {
        let at = names.iter().position(|n| *n == name).unwrap();
        values[at].parse().unwrap()
    };
    (of("InDatagrams"), of("OutDatagrams"))
}

/// Sends one packet after the other until one has arrived, so that the kernel of `from` knows the
/// Ethernet address of the destination.
fn meet(from: (&Namespace, &mut AnyTx), to: (&Namespace, &mut AnyTx, &mut AnyRx)) {
    to.0.enter();
    let address = to.1.local_addr();
    for _ in 0..2 {
        from.0.enter();
        from.1.send_to(&address, b"first", 100, 0);
        to.0.enter();
        assert_eq!(receive(to.2, 1), [b"first"]);
    }
}

#[test]
fn batches_cross_bit_for_bit_between_rails_of_both_kinds() {
    let Some((a, b)) = two_hosts() else { return };
    for (kind, peer_kind) in [("xdp", "xdp"), ("xdp", "udp"), ("udp", "xdp")] {
        a.enter();
        let mut tx = open(kind).0;
        b.enter();
        let (mut peer, mut rx) = open(peer_kind);
        meet((&a, &mut tx), (&b, &mut peer, &mut rx));
        let here = |space: &Namespace| {
            space.enter();
            kernel_counts()
        };
        let before = (here(&a).1, here(&b).0);
        let most = tx.caps().datagram_max;
        assert_eq!(most, 1_472);
        let (mut random, mut packets) = (Random(7), 0);
        for round in 0..200 {
            let segment = random.up_to(most);
            let len = random.up_to(segment * 64).min(64_000);
            let bytes = random.bytes(if round % 2 == 0 { segment } else { len });
            a.enter();
            let sent = tx.send_to(&peer.local_addr(), &bytes, segment, 0);
            assert_eq!(sent, SendOutcome::Sent);
            let expected: Vec<_> = bytes.chunks(segment).map(<[u8]>::to_vec).collect();
            packets += expected.len() as u64;
            b.enter();
            assert!(
                receive(&mut rx, expected.len()) == expected,
                "{kind} to {peer_kind}"
            );
        }
        let after = (here(&a).1, here(&b).0);
        let by_kernel = (after.0 - before.0, after.1 - before.1);
        assert_eq!(by_kernel.0 > 0, kind == "udp", "{kind}");
        let received = if peer_kind == "udp" { packets } else { 0 };
        assert_eq!(by_kernel.1, received, "{peer_kind}");
    }
}

#[test]
fn a_sleeper_wakes_by_a_frame() {
    let Some((a, b)) = two_hosts() else { return };
    let mut tx = open("xdp").0;
    b.enter();
    let (mut peer, mut rx) = open("xdp");
    meet((&a, &mut tx), (&b, &mut peer, &mut rx));
    for _ in 0..5 {
        rx.arm();
        tx.send_to(&peer.local_addr(), b"wake up", 100, 0);
        wait_readable(rx.fd().unwrap());
        assert_eq!(receive(&mut rx, 1), [b"wake up"]);
    }
}

#[test]
fn the_kernel_gets_all_else() {
    let Some((a, b)) = two_hosts() else { return };
    b.enter();
    let (peer, mut rx) = open("xdp");
    let other = UdpSocket::bind("10.1.0.2:0").unwrap();
    a.enter();
    let stranger = UdpSocket::bind("10.1.0.1:0").unwrap();
    let mut buffer = [0; 100];
    stranger
        .send_to(b"not the rail's", other.local_addr().unwrap())
        .unwrap();
    assert_eq!(other.recv(&mut buffer).unwrap(), 14);
    // From other ports than a rail's too.
    let UdpAddr { ip, port, .. } = UdpAddr::of(&peer.local_addr()).unwrap();
    stranger.send_to(b"the rail's", (ip, port)).unwrap();
    assert_eq!(receive(&mut rx, 1), [b"the rail's"]);
}

#[test]
fn a_second_program_is_refused_and_the_end_of_the_first_makes_room() {
    let Some((a, _b)) = two_hosts() else { return };
    a.enter();
    let first = open_xdp().unwrap();
    let why = open_xdp().err().unwrap();
    assert!(why.contains("rail0 has an XDP program already"), "{why}");
    drop(first);
    for _ in 0..10 {
        open_xdp().unwrap();
    }
    ip("link set rail0 mtu 9000");
    let why = open_xdp().err().unwrap();
    assert!(
        why.contains("its MTU is 9000, the largest possible is 3820"),
        "{why}"
    );
    let shown = std::process::Command::new("ip")
        .args(["link", "show", "rail0"])
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(!shown.contains("xdp"), "{shown}");
}

#[test]
fn an_interface_that_was_down_carries_frames_again() {
    let Some((a, b)) = two_hosts() else { return };
    let mut tx = open("xdp").0;
    b.enter();
    let (mut peer, mut rx) = open("xdp");
    meet((&a, &mut tx), (&b, &mut peer, &mut rx));
    let to = peer.local_addr();
    a.ip("link set rail0 down");
    let sent = tx.send_to(&to, b"lost or late", 100, 0);
    assert!(
        matches!(sent, SendOutcome::Fault(RailFault::Down(_))),
        "{sent:?}"
    );
    a.ip("link set rail0 up");
    wait_for_carrier("rail0");
    while tx.send_to(&to, b"again", 100, 0) != SendOutcome::Sent {}
    let mut up = false;
    while let Some(event) = tx.poll_event() {
        up |= event == RailEvent::Fault(RailFault::Up);
    }
    assert!(up, "the rail says that it works again");
    let before = kernel_counts().1;
    let start = Instant::now();
    let mut got = 0;
    // The neighbour may have to be found anew.
    while got < 20 || kernel_counts().1 > before + 100 {
        assert!(start.elapsed().as_secs() < 30);
        tx.send_to(&to, b"again", 100, 0);
        b.enter();
        let mut sink = |_: Received<'_>| got += 1;
        let _ = rx.recv(&mut sink) + rx.recv_rest(&mut sink);
        a.enter();
    }
}

/// Starts a service in the thread's namespace; it ends with the test's process.
fn serve(socket: &Path) {
    let config = XdpServiceConfig {
        interfaces: vec!["rail0".to_owned()],
        groups: vec![],
        socket: socket.to_owned(),
        sockets_max: 16,
        ports: (1, u16::MAX),
    };
    let (ready, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // (A new thread is in the namespace of the thread that made it.)
        let mut service = XdpService::open(&config, Box::new(|_| {})).unwrap();
        ready.send(()).unwrap();
        service.run()
    });
    wait.recv().unwrap();
}

#[test]
fn a_service_lends_a_queue_to_one_after_the_other() {
    let Some((a, _b)) = two_hosts() else { return };
    a.enter();
    let socket = std::env::temp_dir().join(format!("marline-lends-{}", std::process::id()));
    serve(&socket);
    let first = open_by(&socket).unwrap();
    let why = open_by(&socket).err().unwrap();
    assert!(
        why.contains("refuses user 0: another process has the queue of rail0"),
        "{why}"
    );
    assert!(why.contains("has an XDP program already (marline"), "{why}");
    drop(first);
    let start = Instant::now();
    // The service notices the end of a rail some time later.
    let reopen = || {
        while let Err(why) = open_by(&socket) {
            assert!(start.elapsed().as_secs() < 30, "{why}");
        }
    };
    reopen();
    ip("addr del 10.1.0.1/24 dev rail0");
    ip("addr add 10.1.0.9/24 dev rail0");
    reopen();
    std::fs::remove_file(&socket).unwrap();
}
