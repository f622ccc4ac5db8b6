//! Network namespaces and helpers for tests. Each test runs in its own thread, which may be in its
//! own network namespace that ends with the test.

#![allow(dead_code)]

use marline_rails::{
    choose_interfaces, InterfaceChange, InterfaceWatch, Rail, RailFault, RailRx, RailTx, Received,
    SendOutcome, UdpAddr, UdpConfig, UdpRail, UdpRx, UdpTx,
};
use marline_wire::RailAddr;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Instant;

/// Sending by address, connecting first.
pub trait SendTo {
    fn send_to(&mut self, to: &RailAddr, bytes: &[u8], segment: usize, flow: u8) -> SendOutcome;
}

impl<T: RailTx> SendTo for T {
    fn send_to(&mut self, to: &RailAddr, bytes: &[u8], segment: usize, flow: u8) -> SendOutcome {
        let link = self.connect(to).link;
        self.send(link, bytes, segment, flow)
    }
}

/// A network namespace.
pub struct Namespace(File);

impl Namespace {
    /// Makes a namespace and moves the calling thread into it.
    pub fn enter_new() -> Namespace {
        // SAFETY: unshare takes no pointers; it concerns the calling thread only.
        let rc = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert!(
            rc == 0,
            "cannot make a network namespace ({}): run the tests as root or by `unshare -rn`",
            std::io::Error::last_os_error()
        );
        let namespace = Namespace(File::open("/proc/thread-self/ns/net").unwrap());
        ip("link set lo up");
        namespace
    }

    /// Moves the calling thread into the namespace.
    pub fn enter(&self) {
        // SAFETY: setns takes no pointers; it concerns the calling thread only.
        let rc = unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) };
        assert!(rc == 0, "{}", std::io::Error::last_os_error());
    }

    /// Runs `ip` in the namespace.
    pub fn ip(&self, arguments: &str) {
        self.enter();
        ip(arguments);
    }

    /// A path that identifies the namespace to other processes.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// Runs `ip` in the calling thread's namespace.
pub fn ip(arguments: &str) {
    tool("ip", arguments, "iproute2");
}

/// Runs a command with arguments separated by spaces.
pub fn tool(name: &str, arguments: &str, package: &str) {
    let output = Command::new(name)
        .args(arguments.split_whitespace())
        .output()
        .unwrap_or_else(|e| panic!("{name}: {e}; install it: apt-get install {package}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {arguments}: {text}");
}

/// Joins two namespaces by a veth pair called `name` on both sides, with addresses
/// `10.net.0.1/24`, `10.net.0.2/24` and `fd00:net::1/64`, `fd00:net::2/64`.
pub fn join(a: &Namespace, b: &Namespace, name: &str, net: u8) {
    a.ip(&format!(
        "link add {name} type veth peer name {name} netns {}",
        b.path()
    ));
    for (side, host) in [(a, 1), (b, 2)] {
        side.ip(&format!("link set {name} addrgenmode none"));
        side.ip(&format!("addr add 10.{net}.0.{host}/24 dev {name}"));
        side.ip(&format!("addr add fd00:{net}::{host}/64 dev {name} nodad"));
        side.ip(&format!("link set {name} up"));
    }
    for side in [a, b] {
        side.enter();
        wait_for_carrier(name);
    }
}

/// Waits for carrier: the kernel notices a veth's carrier late, and IPv6 routes follow it.
pub fn wait_for_carrier(name: &str) {
    let choice = choose_interfaces(&[name.to_owned()]).unwrap();
    let mut watch = InterfaceWatch::open(&choice).unwrap();
    while !watch.is_up(0) {
        wait_readable(watch.fd());
        while watch.poll().is_some() {}
    }
}

/// Opens a rail in the calling thread's namespace.
pub fn open(name: &str, config: &UdpConfig) -> (UdpTx, UdpRx) {
    let choice = choose_interfaces(&[name.to_owned()]).unwrap();
    UdpRail::open(&choice[0], config).unwrap().split()
}

/// Opens a rail at a port that was released. (A child process that another test has just forked
/// holds the socket until it executes another program.)
pub fn open_again(name: &str, config: &UdpConfig) -> (UdpTx, UdpRx) {
    let choice = choose_interfaces(&[name.to_owned()]).unwrap();
    let start = Instant::now();
    loop {
        match UdpRail::open(&choice[0], config) {
            Ok(rail) => return rail.split(),
            Err(why) => assert!(start.elapsed().as_secs() < 30, "{why}"),
        }
        std::thread::yield_now();
    }
}

/// Opens a rail with default settings.
pub fn open_default(name: &str) -> (UdpTx, UdpRx) {
    open(name, &UdpConfig::default())
}

/// Receives until `count` datagrams arrived; a lost one fails the test instead of hanging it.
pub fn receive(rx: &mut UdpRx, count: usize) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    let start = Instant::now();
    while got.len() < count {
        assert!(
            start.elapsed().as_secs() < 30,
            "{} of {count} datagrams came",
            got.len()
        );
        let mut sink = |r: Received<'_>| got.extend(r.bytes.chunks(r.segment).map(<[u8]>::to_vec));
        if rx.recv(&mut sink) == 0 {
            rx.recv_rest(&mut sink);
        }
    }
    got
}

/// A small generator with repeatable results.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        self.0 >> 20
    }
    pub fn up_to(&mut self, most: usize) -> usize {
        1 + (self.next() as usize) % most
    }
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Sleeps until the descriptor is readable; the kernel reports link changes within a second.
pub fn wait_readable(fd: i32) {
    let mut wait = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid pollfd.
    let rc = unsafe { libc::poll(&mut wait, 1, 30_000) };
    assert!(rc == 1, "nothing happened in half a minute");
}

/// IP address and port of a rail.
pub fn end_of(addr: &RailAddr) -> (IpAddr, u16) {
    let addr = UdpAddr::of(addr).unwrap();
    (addr.ip, addr.port)
}

/// Port of a rail.
pub fn port_of(addr: &RailAddr) -> u16 {
    end_of(addr).1
}

/// Waits for the next event of rail 0.
pub fn next_state(watch: &mut InterfaceWatch) -> RailFault {
    loop {
        match watch.poll() {
            Some((0, InterfaceChange::State(state))) => return state,
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        wait_readable(watch.fd());
    }
}
