//! Labs with namespaces, cables and faults of this machine's kernel.
//!
//! Run as root, or as another user if user namespaces are allowed; need `ip`, `nft`, `tc`.

use crate::support;

use std::io::{BufRead, BufReader, Lines};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use support::{as_a_user, fail, marline, outcome, processes_of, succeed, Dir};

/// A timeout far above every wait, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits for a condition.
fn wait_until(what: &str, mut is_there: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_there() {
        assert!(begun.elapsed() < LIMIT, "{what} within {LIMIT:?}");
        std::thread::yield_now();
    }
}

/// A lab named after its test.
struct Lab {
    dir: Dir,
    name: &'static str,
}

impl Lab {
    fn up(name: &'static str, args: &[&str]) -> Lab {
        let lab = Lab {
            dir: Dir::new(name),
            name,
        };
        succeed(lab.marline("up").args(args));
        lab
    }

    fn marline(&self, subcommand: &str) -> Command {
        let mut command = marline(&self.dir.0);
        command.args(["lab", subcommand, "--name", self.name]);
        command
    }

    fn exec(&self, host: &str, words: &[&str]) -> Command {
        let mut command = self.marline("exec");
        command.arg(host).arg("--").args(words);
        command
    }

    fn fault(&self, words: &str) {
        succeed(self.marline("fault").args(words.split(' ')));
    }

    /// The number of packets hit by the fault whose line starts with `fault {prefix}`.
    fn hits(&self, prefix: &str) -> u64 {
        let said = succeed(self.marline("status").arg("--counters"));
        let start = format!("fault {prefix}");
        let line = said.lines().find(|l| l.trim().starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("no {start} in {said}"));
        line.rsplit(' ')
            .nth(1)
            .and_then(|n| n.parse().ok())
            .unwrap_or_else(|| panic!("{line}"))
    }

    fn state_dir(&self) -> PathBuf {
        self.dir.0.join("labs").join(self.name)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = outcome(&mut self.marline("down"));
    }
}

/// Named network namespaces, mounts and devices of the machine that could come from a lab.
fn traces() -> String {
    let netns = succeed(Command::new("ip").args(["netns", "list"]));
    let links = succeed(Command::new("ip").args(["-o", "link"]));
    let links: Vec<&str> = links
        .lines()
        .filter(|l| l.contains(" h0") || l.contains(" br0"))
        .collect();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mounts: Vec<&str> = mounts.lines().filter(|l| l.contains("marline")).collect();
    format!("{netns}{links:?}{mounts:?}")
}

#[test]
fn a_lab_leaves_no_trace() {
    let before = traces();
    let lab = Lab::up("trace", &["--hosts", "3", "--rails", "2"]);
    assert_eq!(
        succeed(&mut lab.exec("h2", &["hostname"])).trim(),
        "trace-h2"
    );
    assert_eq!(
        succeed(&mut lab.exec("ctl", &["hostname"])).trim(),
        "trace-ctl"
    );
    for address in ["10.100.0.1", "10.101.0.2", "trace-h1", "h0"] {
        succeed(&mut lab.exec("h2", &["ping", "-c1", address]));
    }
    let said = succeed(&mut lab.marline("status"));
    assert!(
        said.contains("10.101.0.3/16") && said.contains("no faults"),
        "{said}"
    );
    assert_eq!(processes_of(&lab.state_dir()).len(), 4);
    assert!(fail(&mut lab.marline("up")).contains("is up already"));
    assert_eq!(traces(), before);
    // A running program does not keep the lab from ending.
    let mut inside = lab.exec("h0", &["sleep", "1000"]).spawn().unwrap();
    succeed(&mut lab.marline("down"));
    assert!(!inside.wait().unwrap().success());
    assert_eq!(processes_of(&lab.state_dir()), [0; 0]);
    assert_eq!(traces(), before);
    assert!(fail(&mut lab.marline("status")).contains("marline lab up"));
    let of_no_lab = fail(lab.marline("fault").args(["0", "down"]));
    assert!(of_no_lab.contains("marline lab up"), "{of_no_lab}");
    succeed(&mut lab.marline("down"));
    let left = std::fs::read_dir(lab.dir.0.join("labs")).unwrap();
    assert_eq!(left.count(), 0, "a lock, or a directory");
}

#[test]
fn a_killed_up_is_cleaned_by_the_next() {
    let lab = Lab {
        dir: Dir::new("killed"),
        name: "killed",
    };
    let mut up = lab
        .marline("up")
        .args(["--hosts", "40"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the lab's state", || lab.state_dir().join("state").exists());
    up.kill().unwrap();
    up.wait().unwrap();
    // Building forty hosts takes longer than the time until the kill: the lab is incomplete.
    fail(&mut lab.exec("h39", &["true"]));
    succeed(lab.marline("up").args(["--hosts", "1", "--rails", "1"]));
    assert_eq!(processes_of(&lab.state_dir()).len(), 2);
    succeed(&mut lab.marline("down"));
    assert_eq!(processes_of(&lab.state_dir()), [0; 0]);
}

#[test]
fn a_lab_whose_holder_died_is_named_broken_and_replaced() {
    let lab = Lab::up("broken", &["--hosts", "2", "--rails", "1"]);
    let holder = processes_of(&lab.state_dir())[0];
    succeed(Command::new("kill").args(["-9", &holder.to_string()]));
    // Gone, or a zombie whose parent may never reap it.
    let stat = || std::fs::read_to_string(format!("/proc/{holder}/stat"));
    wait_until("the holder's end", || {
        stat().is_err() || stat().is_ok_and(|line| line.contains(") Z"))
    });
    assert!(fail(&mut lab.marline("status")).contains("marline lab down --name broken"));
    succeed(lab.marline("up").args(["--rails", "1"]));
    succeed(&mut lab.exec("h0", &["ping", "-c1", "10.100.0.2"]));
}

#[test]
fn labs_of_two_names_are_separate() {
    let (one, two) = (
        Lab::up("one", &["--hosts", "1"]),
        Lab::up("two", &["--hosts", "2"]),
    );
    succeed(&mut two.exec("h0", &["ping", "-c1", "10.100.0.2"]));
    fail(&mut one.exec("h0", &["ping", "-c1", "-W1", "10.100.0.2"]));
    succeed(&mut one.marline("down"));
    succeed(&mut two.exec("h0", &["ping", "-c1", "10.100.0.2"]));
}

#[test]
fn nonsense_is_refused_and_changes_nothing() {
    let lab = Lab::up("refuse", &["--hosts", "1", "--rails", "1"]);
    for words in ["1 down", "h1:0 down", "0 explode", "0 down in", "0 drop=2"] {
        fail(lab.marline("fault").args(words.split(' ')));
    }
    assert!(succeed(&mut lab.marline("status")).contains("no faults"));
    let before = std::fs::read_dir(&lab.dir.0).unwrap().count();
    for words in [&["up"][..], &["down"], &["fault", "0", "down"]] {
        fail(
            marline(&lab.dir.0)
                .arg("lab")
                .args(words)
                .args(["--name", "../x"]),
        );
    }
    assert_eq!(std::fs::read_dir(&lab.dir.0).unwrap().count(), before);
    let said = fail(marline(&lab.dir.0).args(["lab", "up", "--name", "x", "--rails", "9"]));
    assert!(said.contains("1..=8"), "{said}");
    let said = succeed(marline(&lab.dir.0).args(["lab", "down", "--name", "never"]));
    assert!(said.contains("there was no lab `never`"), "{said}");
    fail(marline(&lab.dir.0).args(["lab", "up", "--name", "x", "--hosts", "0"]));
}

/// Environment variable that makes this test program a receiver or sender inside a lab.
const ROLE: &str = "MARLINE_TEST_ROLE";
/// Port of the receiver on all addresses.
const PORT: u16 = 5000;
/// Few enough to fit the smallest default receive buffer (212,992 B) under any scheduling: a
/// datagram of up to 1,400 B takes 2,304 B there.
const DATAGRAMS: u64 = 80;

#[test]
#[ignore = "a part that other tests start inside a lab"]
fn role() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["receive"] => receive(),
        ["send", to, size] => send(to, size.parse().unwrap()),
        _ => panic!("{role}"),
    }
}

/// Counts datagrams, and those with wrong bytes, until a datagram of one byte arrives over the
/// control network.
fn receive() {
    let socket = UdpSocket::bind(("::", PORT)).or_else(|_| UdpSocket::bind(("0.0.0.0", PORT)));
    let socket = socket.unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    println!("role: ready");
    let mut buffer = [0; 65536];
    let (mut count, mut wrong_datagrams, mut wrong_bytes) = (0, 0, 0);
    loop {
        match socket.recv(&mut buffer) {
            // The last datagram arrived; delayed ones get some more time.
            Ok(1) => socket
                .set_read_timeout(Some(Duration::from_millis(300)))
                .unwrap(),
            Ok(len) => {
                let wrong = buffer[..len].iter().filter(|&&b| b != FILL).count();
                count += 1;
                wrong_datagrams += u64::from(wrong > 0);
                wrong_bytes += wrong;
            }
            Err(_) => break,
        }
    }
    println!("role: {count} {wrong_datagrams} {wrong_bytes}");
}

/// The byte that fills datagrams.
const FILL: u8 = 0x55;

fn send(to: &str, size: usize) {
    let any = if to.starts_with('[') {
        "[::]:0"
    } else {
        "0.0.0.0:0"
    };
    let socket = UdpSocket::bind(any).unwrap();
    let payload = vec![FILL; size];
    let count = if size == 1 { 1 } else { DATAGRAMS };
    for _ in 0..count {
        // Sending over an unplugged cable may fail, which is irrelevant here.
        let _ = socket.send_to(&payload, to);
    }
}

fn start_role(lab: &Lab, host: &str, role: &str) -> Command {
    let own = std::env::current_exe().unwrap();
    let words = [
        own.to_str().unwrap(),
        "--exact",
        "lab::role",
        "--ignored",
        "--nocapture",
    ];
    let mut command = lab.exec(host, &words);
    command.env(ROLE, role);
    command
}

/// A receiver on h1.
struct Receiver(Child, Lines<BufReader<ChildStdout>>);

impl Receiver {
    fn start(lab: &Lab) -> Receiver {
        let mut command = start_role(lab, "h1", "receive");
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut receiver = Receiver(child, lines);
        assert_eq!(receiver.line(), "ready");
        receiver
    }

    fn line(&mut self) -> String {
        let line = self.1.by_ref().map(Result::unwrap).find_map(|l| {
            // libtest prints the test's name without a newline first.
            l.split_once("role: ").map(|(_, rest)| rest.to_owned())
        });
        line.expect("the receiver says more")
    }

    /// Datagrams, datagrams with wrong bytes, wrong bytes.
    fn finish(mut self, lab: &Lab) -> [u64; 3] {
        succeed(&mut start_role(
            lab,
            "h0",
            &format!("send 10.99.0.2:{PORT} 1"),
        ));
        let line = self.line();
        self.0.wait().unwrap();
        let numbers: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
        numbers.try_into().unwrap()
    }
}

/// Sends datagrams of `size` bytes from h0 to `to` on h1; returns the received counts.
fn exchange(lab: &Lab, to: &str, size: usize) -> [u64; 3] {
    let receiver = Receiver::start(lab);
    succeed(&mut start_role(
        lab,
        "h0",
        &format!("send {to}:{PORT} {size}"),
    ));
    receiver.finish(lab)
}

#[test]
fn dropped_and_delivered_make_all() {
    let lab = Lab::up("drop", &[]);
    assert_eq!(exchange(&lab, "10.100.0.2", 64), [DATAGRAMS, 0, 0]);
    lab.fault("0 drop=30%");
    let [arrived, ..] = exchange(&lab, "10.100.0.2", 64);
    let dropped = lab.hits("h1:rail0 drop=30% in");
    assert!(dropped > 0);
    assert_eq!(arrived + dropped, DATAGRAMS);
    // The other rail works, and this one after `clear`.
    assert_eq!(exchange(&lab, "10.101.0.2", 64), [DATAGRAMS, 0, 0]);
    lab.fault("0 clear");
    assert_eq!(exchange(&lab, "10.100.0.2", 64), [DATAGRAMS, 0, 0]);
    assert!(succeed(&mut lab.marline("status")).contains("no faults"));
}

#[test]
fn corruption_changes_one_byte_that_no_checksum_sees() {
    let lab = Lab::up("corrupt", &[]);
    lab.fault("h0:1 corrupt=30% out");
    for size in [2, 40, 90, 300, 900, 1400] {
        lab.fault("h0:1 clear");
        lab.fault("h0:1 corrupt=30% out");
        let [arrived, wrong_datagrams, wrong_bytes] = exchange(&lab, "10.101.0.2", size);
        assert_eq!(arrived, DATAGRAMS, "{size}");
        assert!(wrong_datagrams > 0, "{size}");
        assert_eq!(wrong_datagrams, wrong_bytes, "{size}");
        assert_eq!(
            lab.hits("h0:rail1 corrupt=30% out"),
            wrong_datagrams,
            "{size}"
        );
    }
}

#[test]
fn a_blackhole_keeps_to_its_direction_and_ports() {
    let lab = Lab::up("hole", &[]);
    lab.fault("h0:0 blackhole in");
    assert_eq!(
        exchange(&lab, "10.100.0.2", 64)[0],
        0,
        "ARP cannot come back"
    );
    lab.fault("h0:0 clear");
    succeed(&mut lab.exec("h0", &["ping", "-c1", "10.100.0.2"]));
    lab.fault("h0:0 blackhole in");
    assert_eq!(exchange(&lab, "10.100.0.2", 64)[0], DATAGRAMS);
    lab.fault("h0:0 clear");
    lab.fault("h0:0 blackhole out port=4999-5000");
    assert_eq!(exchange(&lab, "10.100.0.2", 64)[0], 0);
    assert_eq!(lab.hits("h0:rail0 blackhole out port=4999-5000"), DATAGRAMS);
    succeed(&mut lab.exec("h0", &["ping", "-c1", "10.100.0.2"]));
    lab.fault("h0:0 clear out");
    assert_eq!(exchange(&lab, "10.100.0.2", 64)[0], DATAGRAMS);
}

#[test]
fn a_cable_is_unplugged_and_replugged() {
    let lab = Lab::up("cable", &[]);
    let carrier = |host| succeed(&mut lab.exec(host, &["cat", "/sys/class/net/rail0/carrier"]));
    lab.fault("h0:0 down");
    assert_eq!((carrier("h0").trim(), carrier("h1").trim()), ("0", "1"));
    let shown = succeed(lab.marline("fault").arg("--show"));
    assert!(shown.contains("down (not counted)"), "{shown}");
    assert_eq!(exchange(&lab, "10.100.0.2", 64)[0], 0);
    lab.fault("0 up");
    assert_eq!(carrier("h0").trim(), "1");
    succeed(&mut lab.exec("h0", &["ping", "-c1", "-w5", "10.100.0.2"]));
    lab.fault("0 ifdown");
    fail(&mut lab.exec("h0", &["ping", "-c1", "10.100.0.2"]));
    lab.fault("0 up");
    succeed(&mut lab.exec("h0", &["ping", "-c1", "-w5", "10.100.0.2"]));
}

#[test]
fn a_rate_delays_excess_packets() {
    let lab = Lab::up("rate", &["--mtu", "9000"]);
    lab.fault("h0:0 rate=20mbit out");
    // 640 kB in one burst against a bucket of 128 kB: the shaper must have delayed packets.
    exchange(&lab, "10.100.0.2", 8000);
    assert!(lab.hits("h0:rail0 rate=20mbit out") > 0);
    let shown = succeed(&mut lab.exec("h0", &["tc", "-s", "qdisc", "show", "dev", "rail0"]));
    assert!(
        shown.contains("rate 20Mbit") && !shown.contains("overlimits 0"),
        "{shown}"
    );
    lab.fault("0 clear");
    // The shaper may have delayed and dropped an ARP request.
    succeed(&mut lab.exec("h0", &["ping", "-c1", "-w5", "10.100.0.2"]));
    assert_eq!(exchange(&lab, "10.100.0.2", 64)[0], DATAGRAMS);
}

#[test]
fn a_delay_works_or_names_the_missing_kernel_module() {
    let lab = Lab::up("slow", &[]);
    lab.fault("0 drop=1%");
    let (status, said) = outcome(lab.marline("fault").args(["0", "delay=1ms"]));
    let listed = succeed(&mut lab.marline("status"));
    if status == Some(0) {
        assert!(listed.contains("h0:rail0 delay=1000us out"), "{listed}");
    } else {
        assert!(said.contains("no netem"), "{said}");
        assert!(
            !listed.contains("delay") && listed.contains("drop=1%"),
            "{listed}"
        );
    }
    succeed(&mut lab.exec("h0", &["ping", "-c1", "10.101.0.2"]));
}

#[test]
fn ipv6_rails() {
    let lab = Lab::up("six", &["--ipv6"]);
    assert_eq!(exchange(&lab, "[fd00:1::2]", 900), [DATAGRAMS, 0, 0]);
    lab.fault("0 corrupt=50%");
    let [arrived, wrong_datagrams, wrong_bytes] = exchange(&lab, "[fd00:1::2]", 900);
    assert_eq!((arrived, wrong_datagrams), (DATAGRAMS, wrong_bytes));
    assert_eq!(lab.hits("h1:rail0 corrupt=50% in"), wrong_datagrams);
    lab.fault("0 clear");
    lab.fault("0 ifdown");
    lab.fault("0 up");
    succeed(&mut lab.exec("h0", &["ping", "-c1", "-w5", "fd00:1::2"]));
}

#[test]
fn offload_can_be_turned_off_and_on() {
    let lab = Lab::up("offload", &["--no-offload", "--mtu", "9000"]);
    let is_on = |rail: &str| {
        let features = succeed(&mut lab.exec("h0", &["ethtool", "-k", rail]));
        let on = |feature: &&&str| features.contains(&format!("{feature}: on"));
        let all = [
            "tcp-segmentation-offload",
            "generic-segmentation-offload",
            "tx-udp-segmentation",
        ];
        all.iter().filter(on).count()
    };
    assert_eq!((is_on("rail0"), is_on("rail1")), (0, 0));
    assert!(
        succeed(&mut lab.exec("h0", &["ip", "link", "show", "dev", "rail0"])).contains("mtu 9000")
    );
    lab.fault("0 offload=on");
    assert_eq!((is_on("rail0"), is_on("rail1")), (3, 0));
    assert!(succeed(&mut lab.marline("status")).contains("rail1  segmentation offload off"));
}

#[test]
fn a_lab_without_root_works_or_names_the_missing_right() {
    let dir = Dir::new("rootless");
    let exe = dir.0.join("marline");
    std::fs::copy(env!("CARGO_BIN_EXE_marline"), &exe).unwrap();
    succeed(Command::new("chmod").args(["777", dir.0.to_str().unwrap()]));
    let user = |words: &[&str]| {
        let mut command = as_a_user(&exe);
        command
            .current_dir("/")
            .env("MARLINE_LAB_DIR", dir.0.join("labs"))
            .arg("lab")
            .args(words);
        outcome(&mut command)
    };
    let (status, said) = user(&["up", "--name", "user"]);
    if status != Some(0) {
        assert!(said.contains("unprivileged_userns_clone"), "{said}");
        return;
    }
    for words in [
        &["fault", "--name", "user", "0", "drop=1%"][..],
        &["fault", "--name", "user", "1", "rate=1gbit"],
        &[
            "exec",
            "--name",
            "user",
            "h0",
            "--",
            "ping",
            "-c1",
            "-w5",
            "10.101.0.2",
        ],
        &["down", "--name", "user"],
    ] {
        let (status, said) = user(words);
        assert_eq!(status, Some(0), "{words:?}: {said}");
    }
}

#[test]
fn mpich_and_intel_mpi_start_on_the_hosts() {
    let lab = Lab::up("launch", &[]);
    let root = std::env::var_os("MARLINE_MPI_DIR").map(PathBuf::from);
    let root = root.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.mpi"));
    let run = |mpi: &str, script: &str| {
        let mut command = lab.marline("run");
        command
            .arg("--mpi")
            .arg(root.join(mpi))
            .args(["--provider", "tcp", "-n", "4", "--"]);
        outcome(command.args(["sh", "-c", script]))
    };
    for mpi in ["mpich", "impi-rt"] {
        let (status, said) = run(mpi, "hostname");
        assert_eq!(status, Some(0), "{mpi} (`make deps` installs it): {said}");
        for host in ["launch-h0", "launch-h1"] {
            assert_eq!(
                said.lines().filter(|l| *l == host).count(),
                2,
                "{mpi}: {said}"
            );
        }
    }
    assert_eq!(run("mpich", "exit 3").0, Some(3));
}
