//! Endpoints that report completions by counters, without a completion queue or with one bound by
//! FI_SELECTIVE_COMPLETION: two processes over UDP with packet loss, and one of them killed.

use crate::abi;

use crate::common;

use abi::ep::*;
use abi::*;
use common::pair::{API, HANG};
use common::{close, free_info, Library};
use marline_engine::stats::reader::{list_pages, read_page};
use std::ffi::{c_int, c_void};
use std::io::{BufRead, BufReader, Lines, Write};
use std::mem::zeroed;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::ptr::null_mut;

/// Environment variable with the role of a child process of this test program.
const ROLE: &str = "MARLINE_TEST_ROLE";
const KEY: u64 = 7;
/// Bytes of messages, writes and reads: no packet, one packet, several packets, rendezvous.
const LENGTHS: [usize; 5] = [0, 8, 5_000, 70_000, 300_000];
const ROUNDS: usize = 60;
const AVAIL: c_int = -259;

/// An endpoint and its counters, with the events that each counts.
struct Side {
    fabric: *mut fid_fabric,
    domain: *mut fid_domain,
    av: *mut fid_av,
    cq: *mut fid_cq,
    ep: *mut fid_ep,
    mr: *mut fid_mr,
    counters: [*mut fid_cntr; 6],
    /// Counters of the region: remote reads, remote writes.
    of_region: [*mut fid_cntr; 2],
    memory: Vec<u8>,
    _library: Library,
}

const OF: [u64; 6] = [
    FI_SEND,
    FI_RECV,
    FI_READ,
    FI_WRITE,
    FI_REMOTE_READ,
    FI_REMOTE_WRITE,
];
const SENDS: usize = 0;
const RECEIVES: usize = 1;
const READS: usize = 2;
const WRITES: usize = 3;
const THEIR_READS: usize = 4;
const THEIR_WRITES: usize = 5;

impl Side {
    fn open(with_queue: bool) -> Side {
        let library = Library::open();
        // SAFETY: all zero is what `fi_allocinfo` gives; the rest as libfabric's headers say.
        unsafe {
            let info = library.getinfo(API, &zeroed()).unwrap();
            let fabric = library.fabric(API);
            let mut s = Side {
                fabric,
                domain: null_mut(),
                av: null_mut(),
                cq: null_mut(),
                ep: null_mut(),
                mr: null_mut(),
                counters: [null_mut(); 6],
                of_region: [null_mut(); 2],
                memory: vec![0; 1 << 20],
                _library: library,
            };
            let rc = ((*(*fabric).ops).domain)(fabric, info, &mut s.domain, null_mut());
            assert_eq!(rc, 0);
            let ops = &*(*s.domain).ops;
            assert_eq!(
                (ops.av_open)(s.domain, &mut zeroed(), &mut s.av, null_mut()),
                0
            );
            assert_eq!((ops.endpoint)(s.domain, info, &mut s.ep, null_mut()), 0);
            free_info(info);
            let of_ep = &*(*s.ep).fid.ops;
            let ep = s.ep.cast();
            assert_eq!((of_ep.bind)(ep, s.av.cast(), 0), 0);
            assert_eq!((of_ep.control)(ep, FI_ENABLE, null_mut()), -263, "FI_ENOCQ");
            for (counter, flag) in s.counters.iter_mut().zip(OF) {
                let mut attr: fi_cntr_attr = zeroed();
                assert_eq!((ops.cntr_open)(s.domain, &mut attr, counter, null_mut()), 0);
                assert_eq!((of_ep.bind)(ep, (*counter).cast(), flag), 0);
            }
            if with_queue {
                let mut attr: fi_cq_attr = zeroed();
                attr.format = FI_CQ_FORMAT_TAGGED;
                assert_eq!((ops.cq_open)(s.domain, &mut attr, &mut s.cq, null_mut()), 0);
                let flags = FI_SEND | FI_RECV | FI_SELECTIVE_COMPLETION;
                assert_eq!((of_ep.bind)(ep, s.cq.cast(), flags), 0);
            }
            assert_eq!((of_ep.control)(ep, FI_ENABLE, null_mut()), 0);
            let (base, len) = (s.memory.as_mut_ptr().cast(), s.memory.len());
            let reg = (*(*s.domain).mr).reg;
            let may = FI_REMOTE_READ | FI_REMOTE_WRITE;
            let rc = reg(
                s.domain.cast(),
                base,
                len,
                may,
                0,
                KEY,
                0,
                &mut s.mr,
                null_mut(),
            );
            assert_eq!(rc, 0);
            s.bind_region();
            s
        }
    }

    /// Binds counters to the region.
    fn bind_region(&mut self) {
        let flags = [FI_REMOTE_READ, FI_REMOTE_WRITE];
        for (counter, flag) in self.of_region.iter_mut().zip(flags) {
            // SAFETY: objects of the provider.
            unsafe {
                let open = (*(*self.domain).ops).cntr_open;
                let rc = open(self.domain, &mut zeroed(), counter, null_mut());
                assert_eq!(rc, 0);
                let bind = (*(*self.mr).fid.ops).bind;
                assert_eq!(bind(self.mr.cast(), (*counter).cast(), flag), 0);
            }
        }
    }

    /// Prints this side's address for the test, and inserts the peer's address from its answer.
    fn meet(&self) {
        let (mut name, mut len, mut peer) = ([0u8; 64], 64, 9);
        // SAFETY: buffers of the sizes named.
        unsafe {
            let getname = (*(*self.ep).cm).getname;
            assert_eq!(
                getname(self.ep.cast(), name.as_mut_ptr().cast(), &mut len),
                0
            );
            let hex: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
            say(&format!("name {hex}"));
            let theirs = hear();
            let digits = |at: usize| u8::from_str_radix(&theirs[2 * at..2 * at + 2], 16).unwrap();
            let theirs: Vec<u8> = (0..64).map(digits).collect();
            let insert = (*(*self.av).ops).insert;
            let all = theirs.as_ptr().cast();
            assert_eq!(insert(self.av, all, 1, &mut peer, 0, null_mut()), 1);
        }
        assert_eq!(peer, 0);
    }

    fn wait(&self, counter: usize, count: usize) -> c_int {
        let counter = self.counters[counter];
        // SAFETY: open.
        unsafe { ((*(*counter).ops).wait)(counter, count as u64, HANG.as_millis() as c_int) }
    }

    fn value(&self, counter: usize) -> u64 {
        let counter = self.counters[counter];
        // SAFETY: open.
        unsafe { ((*(*counter).ops).read)(counter) }
    }

    fn errors(&self, counter: usize) -> u64 {
        let counter = self.counters[counter];
        // SAFETY: open.
        unsafe { ((*(*counter).ops).readerr)(counter) }
    }

    /// Retries a call while it answers EAGAIN.
    fn post(&self, mut call: impl FnMut() -> isize) {
        loop {
            match call() {
                0 => return,
                rc => assert_eq!(rc, -(libc::EAGAIN as isize)),
            }
            self.value(SENDS);
        }
    }

    fn send(&self, bytes: &[u8]) {
        let (from, len) = (bytes.as_ptr().cast(), bytes.len());
        // SAFETY: the caller keeps the bytes until the send is counted.
        self.post(|| unsafe {
            ((*(*self.ep).msg).send)(self.ep, from, len, null_mut(), 0, null_mut())
        });
    }

    fn receive(&self, bytes: &mut [u8]) {
        let (to, len) = (bytes.as_mut_ptr().cast(), bytes.len());
        // SAFETY: the caller keeps the bytes until the receive is counted.
        self.post(|| unsafe {
            ((*(*self.ep).msg).recv)(self.ep, to, len, null_mut(), 0, null_mut())
        });
    }

    fn write(&self, bytes: &[u8]) {
        let (from, len, none) = (bytes.as_ptr().cast(), bytes.len(), null_mut::<c_void>());
        // SAFETY: the caller keeps the bytes until the write is counted.
        self.post(|| unsafe {
            ((*(*self.ep).rma).write)(self.ep, from, len, none, 0, 0, KEY, none)
        });
    }

    fn read(&self, bytes: &mut [u8]) {
        let (to, len, none) = (bytes.as_mut_ptr().cast(), bytes.len(), null_mut::<c_void>());
        // SAFETY: the caller keeps the bytes until the read is counted.
        self.post(|| unsafe { ((*(*self.ep).rma).read)(self.ep, to, len, none, 0, 0, KEY, none) });
    }

    fn close(self) {
        // SAFETY: each closed once.
        unsafe {
            assert_eq!(close(self.ep.cast()), 0);
            assert_eq!(close(self.mr.cast()), 0);
            if !self.cq.is_null() {
                let mut entry: fi_cq_tagged_entry = zeroed();
                let read = (*(*self.cq).ops).read;
                let rc = read(self.cq, (&raw mut entry).cast(), 1);
                assert_eq!(rc, -(libc::EAGAIN as isize), "nobody asked for an entry");
                assert_eq!(close(self.cq.cast()), 0);
            }
            for counter in self.counters.into_iter().chain(self.of_region) {
                assert_eq!(close(counter.cast()), 0);
            }
            assert_eq!(close(self.av.cast()), 0);
            assert_eq!(close(self.domain.cast()), 0);
            assert_eq!(close(self.fabric.cast()), 0);
        }
    }
}

fn say(text: &str) {
    println!("\nrole: {text}");
}

fn hear() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// The bytes of a round, different for each side.
fn bytes(side: usize, round: usize) -> Vec<u8> {
    let len = LENGTHS[round % LENGTHS.len()];
    let byte = |at: usize| (at * 7 + round * 31 + side * 101) as u8;
    (0..len).map(byte).collect()
}

#[test]
#[ignore = "a part that other tests start"]
fn role() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    match role.split(' ').collect::<Vec<_>>()[..] {
        ["exchange", side, queue] => exchange(side.parse().unwrap(), queue == "selective"),
        ["lose", "0"] => lose(),
        ["lose", _] => be_lost(),
        _ => panic!("{role}"),
    }
}

/// Messages in both directions, then writes and reads of the peer's memory, all reported by
/// counters.
fn exchange(side: usize, with_queue: bool) {
    let s = Side::open(with_queue);
    s.meet();
    for round in 0..ROUNDS {
        let (out, expected) = (bytes(side, round), bytes(1 - side, round));
        let mut into = vec![0; expected.len()];
        s.receive(&mut into);
        s.send(&out);
        assert_eq!(s.wait(RECEIVES, round + 1), 0);
        assert!(into == expected, "message {round}");
        assert_eq!(s.wait(SENDS, round + 1), 0);
    }
    for round in 0..ROUNDS {
        let out = bytes(side, round);
        let mut back = vec![0; out.len()];
        s.write(&out);
        assert_eq!(s.wait(WRITES, round + 1), 0);
        s.read(&mut back);
        assert_eq!(s.wait(READS, round + 1), 0);
        assert!(back == out, "what was written in round {round}");
    }
    for of_peer in [THEIR_WRITES, THEIR_READS] {
        let counted = s.wait(of_peer, ROUNDS);
        assert_eq!(counted, 0, "{} of {ROUNDS}", s.value(of_peer));
    }
    // SAFETY: open.
    let of_region = s.of_region.map(|c| unsafe { ((*(*c).ops).read)(c) });
    assert_eq!(of_region, [ROUNDS as u64; 2], "once, whatever was lost");
    assert_eq!([0; 6], std::array::from_fn(|counter| s.errors(counter)));
    // A closed endpoint serves no peer.
    say("done");
    hear();
    s.close();
}

/// The peer is stopped, operations of each kind are posted, and the peer is killed: each operation
/// ends in error.
fn lose() {
    let s = Side::open(false);
    s.meet();
    let mut into = [0; 8];
    s.receive(&mut into);
    s.send(&[1; 8]);
    assert_eq!((s.wait(SENDS, 1), s.wait(RECEIVES, 1)), (0, 0));
    say("connected");
    hear();
    let (out, mut back) = (vec![5; 300_000], vec![0; 300_000]);
    s.receive(&mut into);
    s.send(&out);
    s.read(&mut back);
    s.write(&out);
    say("posted");
    for (counter, good) in [(SENDS, 1), (RECEIVES, 1), (READS, 0), (WRITES, 0)] {
        assert_eq!(s.wait(counter, good + 1), AVAIL, "{counter}");
        assert_eq!(s.errors(counter), 1, "{counter}");
    }
    say("done");
    s.close();
}

fn be_lost() {
    let s = Side::open(false);
    s.meet();
    let mut into = [0; 8];
    s.receive(&mut into);
    s.send(&[2; 8]);
    assert_eq!((s.wait(SENDS, 1), s.wait(RECEIVES, 1)), (0, 0));
    say("connected");
    hear(); // until killed
}

/// A child process with a role.
struct Player {
    child: Child,
    to: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Player {
    fn start(role: &str, faults: &str, stats: &Path) -> Player {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "counted::role", "--ignored", "--nocapture"]);
        command.env(ROLE, role).env("FI_MARLINE_RAILS", "lo");
        command
            .env("FI_MARLINE_RMA", "on")
            .env("FI_MARLINE_FAULTS", faults);
        command.env("FI_MARLINE_STATS_DIR", stats);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let to = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Player { child, to, lines }
    }

    /// Reads the role's next line, which begins with this word, and returns its rest.
    fn says(&mut self, word: &str) -> String {
        let line = (&mut self.lines).map_while(Result::ok);
        let line = line.map(|line| line.strip_prefix("role: ").map(str::to_owned));
        let said = line
            .flatten()
            .next()
            .unwrap_or_else(|| panic!("it ended before {word}"));
        let rest = said.strip_prefix(word);
        rest.unwrap_or_else(|| panic!("{said}")).trim().to_owned()
    }

    fn tell(&mut self, text: &str) {
        writeln!(self.to, "{text}").unwrap();
    }

    fn signal(&self, signal: c_int) {
        // SAFETY: no pointers; the child has not been reaped.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }
}

/// Kills the child at the end of the test.
impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two children with each other's addresses.
fn players(roles: [&str; 2], faults: &str, stats: &Path) -> [Player; 2] {
    let mut players = roles.map(|role| Player::start(role, faults, stats));
    let [first, second] = &mut players;
    second.tell(&first.says("name"));
    first.tell(&second.says("name"));
    players
}

/// A temporary directory for a test.
fn directory(tag: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("marline-counted-{}-{tag}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn exchange_under_loss(told: &str) {
    let stats = directory(told);
    let roles = [0, 1].map(|side| format!("exchange {side} {told}"));
    let roles = [&roles[0][..], &roles[1][..]];
    let mut players = players(roles, "seed=3;tx:drop=0.05", &stats);
    players
        .iter_mut()
        .for_each(|player| _ = player.says("done"));
    players.iter_mut().for_each(|player| player.tell("close"));
    for player in &mut players {
        assert!(player.child.wait().unwrap().success());
    }
    let pages = list_pages(&stats).into_iter();
    let resent = pages.map(|page| read_page(&page).unwrap().path_totals(0).resent());
    assert!(resent.sum::<u64>() > 0, "nothing was lost");
    std::fs::remove_dir_all(&stats).unwrap();
}

#[test]
fn completions_are_reported_by_counters_alone() {
    exchange_under_loss("counters");
}

#[test]
fn completions_without_entries_are_counted() {
    exchange_under_loss("selective");
}

#[test]
fn operations_on_a_killed_peer_are_counted_as_errors() {
    let stats = directory("lost");
    let [mut survivor, mut victim] = players(["lose 0", "lose 1"], "", &stats);
    survivor.says("connected");
    victim.says("connected");
    victim.signal(libc::SIGSTOP);
    survivor.tell("post");
    survivor.says("posted");
    victim.signal(libc::SIGKILL);
    survivor.says("done");
    assert!(survivor.child.wait().unwrap().success());
    std::fs::remove_dir_all(&stats).unwrap();
}
