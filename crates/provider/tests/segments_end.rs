//! Reads and writes of several segments that end early: fences, closed regions and endpoints, dead
//! peers. Each operation ends once, and no memory is accessed after its release.

#[path = "../src/abi/mod.rs"]
mod abi;

mod common;

use abi::ep::fi_rma_iov;
use abi::*;
use common::pair::{Pair, HANG};
use common::target::{bytes, Target, KEYS};
use std::ffi::c_int;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::ptr::null_mut;
use std::time::Instant;

/// Set in the environment of a child process that acts as a peer.
const PEER: &str = "MARLINE_TEST_PEER";
const AGAIN: isize = -(libc::EAGAIN as isize);
/// The queue has an error entry (FI_EAVAIL).
const AVAIL: isize = -259;
/// Number of polls in which remaining operations would show.
const LATER: u32 = 300;
/// A byte that `bytes` does not contain.
const OTHER: u8 = 255;

/// Region, offset and length of each segment: one packet, and many.
const PIECES: [(usize, u64, usize); 4] = [
    (0, 0, 100),
    (1, 0, 90_000),
    (0, 1_000, 60_000),
    (1, 100_000, 5),
];

/// The segments and their total length.
fn pieces() -> (Vec<fi_rma_iov>, usize) {
    let piece = |(region, addr, len)| {
        let key = KEYS[region];
        fi_rma_iov { addr, len, key }
    };
    let len = PIECES.iter().map(|(_, _, len)| len).sum();
    (PIECES.into_iter().map(piece).collect(), len)
}

/// The bytes of the segments in order.
fn there(t: &Target) -> Vec<u8> {
    let of = |(region, addr, len): (usize, u64, usize)| &t.memory[region][addr as usize..][..len];
    PIECES.into_iter().flat_map(of).copied().collect()
}

/// The first error of the queue; others may follow.
fn error(p: &Pair) -> c_int {
    // SAFETY: an entry in the layout of API version 1.20.
    unsafe {
        let mut entry: fi_cq_err_entry = std::mem::zeroed();
        assert_eq!(((*(*p.cq).ops).readerr)(p.cq, &mut entry, 0), 1);
        entry.err
    }
}

/// The result of the next completion, if there is one.
fn end(p: &Pair) -> Option<Result<(), c_int>> {
    match p.poll() {
        Ok(_) => Some(Ok(())),
        Err(AVAIL) => Some(Err(error(p))),
        Err(e) => {
            assert_eq!(e, AGAIN);
            None
        }
    }
}

/// Waits for the result of the next completion.
fn ends(p: &Pair) -> Result<(), c_int> {
    let start = Instant::now();
    loop {
        if let Some(end) = end(p) {
            return end;
        }
        assert!(start.elapsed() < HANG, "it does not end");
    }
}

/// Checks that nothing else completes.
fn nothing_else(p: &Pair) {
    for _ in 0..LATER {
        assert_eq!(end(p), None, "one entry for each operation");
    }
}

/// Starts a read or write of all segments and returns its local memory.
fn begin(t: &Target, reads: bool, to: fi_addr_t) -> Vec<u8> {
    let (pieces, len) = pieces();
    let mut local = if reads { vec![0; len] } else { bytes(len) };
    let flags = (FI_COMPLETION, 0);
    assert_eq!(t.remote(reads, (&mut local, to), &pieces, flags), 0);
    local
}

/// Closes the remaining objects of a pair.
fn close_rest(t: Target, ep: usize) {
    let regions = t.regions.iter().map(|mr| mr.cast());
    let rest = [
        t.p.av.cast(),
        t.p.cq.cast(),
        t.p.counter.cast(),
        t.p.domain.cast(),
        t.p.fabric.cast(),
    ];
    for fid in regions.chain([t.p.ep[ep].cast()]).chain(rest) {
        // SAFETY: objects of the provider, each closed once.
        assert_eq!(unsafe { common::close(fid) }, 0);
    }
}

#[test]
fn a_fence_waits_for_all_pieces() {
    let mut t = Target::open();
    let ((pieces, len), mut waited) = (pieces(), 0);
    for round in 0..20u8 {
        let reads = round % 2 == 1;
        t.memory.iter_mut().for_each(|memory| memory.fill(round));
        let mut local = vec![if reads { OTHER } else { round + 100 }; len];
        assert_eq!(t.remote(reads, (&mut local, 1), &pieces, (0, 0)), 0);
        let (addr, len, key) = (150_000, 8, KEYS[0]);
        let (mark, start) = (&mut [OTHER; 8], Instant::now());
        loop {
            let behind = [fi_rma_iov { addr, len, key }];
            match t.remote(false, (mark, 1), &behind, (FI_FENCE, 0)) {
                0 => break,
                error => assert_eq!(error, AGAIN),
            }
            waited += 1;
            assert_eq!(end(&t.p), None);
            assert!(start.elapsed() < HANG, "the fence does not open");
        }
        assert!(there(&t) == local, "round {round}");
        t.counted(u64::from(round) * 2 + 2, 0);
    }
    assert_ne!(waited, 0, "it never waited");
    t.close();
}

#[test]
fn a_region_that_closes_ends_them_once() {
    for round in 0..60 {
        let (mut t, reads) = (Target::open(), round % 2 == 1);
        let [a, b] = &mut t.memory;
        a.fill(7);
        b.fill(8);
        let mut local = begin(&t, reads, 1);
        let mut ended = None;
        for _ in 0..round / 2 {
            ended = ended.or(end(&t.p));
        }
        // SAFETY: closed once.
        let closed = unsafe { common::close(t.regions.remove(1).cast()) };
        assert_eq!(closed, 0);
        let (then, wanted) = (
            t.memory[1].clone(),
            if reads { Vec::new() } else { local.clone() },
        );
        match ended.unwrap_or_else(|| ends(&t.p)) {
            Ok(()) if reads => assert!(there(&t) == local, "round {round}"),
            Ok(()) => assert!(there(&t) == wanted, "round {round}"),
            Err(error) => assert_eq!(error, libc::EACCES, "round {round}"),
        }
        let mut given = local.clone();
        if !reads {
            local.fill(OTHER);
            given.fill(OTHER);
        }
        nothing_else(&t.p);
        assert!(
            t.memory[1] == then,
            "round {round}: written after the close"
        );
        assert!(
            !t.memory[0].contains(&OTHER),
            "round {round}: sent after the end"
        );
        assert!(local == given, "round {round}: read after the end");
        t.close();
    }
}

#[test]
fn a_target_that_closes_ends_them_once() {
    for round in 0..12 {
        let (t, reads) = (Target::open(), round % 2 == 1);
        let local = begin(&t, reads, 1);
        let mut ended = None;
        for _ in 0..round / 2 {
            ended = ended.or(end(&t.p));
        }
        // SAFETY: closed once.
        assert_eq!(unsafe { common::close(t.p.ep[1].cast()) }, 0);
        let then = t.memory.clone();
        match ended.unwrap_or_else(|| ends(&t.p)) {
            Ok(()) => assert!(there(&t) == local, "round {round}"),
            Err(error) => assert_eq!(error, libc::EHOSTUNREACH, "round {round}"),
        }
        nothing_else(&t.p);
        assert!(t.memory == then, "round {round}: written after the close");
        close_rest(t, 0);
    }
}

#[test]
fn an_endpoint_that_closes_leaves_its_memory_alone() {
    for round in 0..12 {
        let (t, reads) = (Target::open(), round % 2 == 1);
        let local = begin(&t, reads, 1);
        let mut ended = 0;
        for _ in 0..round / 2 {
            ended += end(&t.p).is_some() as u32;
        }
        // SAFETY: closed once.
        assert_eq!(unsafe { common::close(t.p.ep[0].cast()) }, 0);
        let then = local.clone();
        for _ in 0..LATER {
            ended += end(&t.p).is_some() as u32;
        }
        assert!(ended <= 1, "round {round}: it ends twice");
        assert!(local == then, "round {round}: read after the close");
        close_rest(t, 1);
    }
}

/// The peer of `a_peer_that_dies_ends_them_once`: prints its name and polls until killed.
#[test]
fn peer() {
    if std::env::var_os(PEER).is_none() {
        return;
    }
    let t = Target::open();
    let (mut name, mut len) = ([0u8; 64], 64);
    // SAFETY: an endpoint of the provider, and a buffer of that size.
    unsafe {
        let getname = (*(*t.p.ep[1]).cm).getname;
        let rc = getname(t.p.ep[1].cast(), name.as_mut_ptr().cast(), &mut len);
        assert_eq!(rc, 0);
    }
    let hex: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("\nname {hex}");
    loop {
        assert_eq!(end(&t.p), None);
    }
}

/// A peer's process, killed on drop.
struct Peer(Child);

impl Peer {
    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts a peer and inserts its address.
fn start_peer(t: &Target) -> (Peer, fi_addr_t) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "peer", "--nocapture"]);
    command.env(PEER, "1").stdout(Stdio::piped());
    let mut child = Peer(command.spawn().unwrap());
    let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut names = lines.map_while(Result::ok);
    let hex = names.find_map(|line| Some(line.strip_prefix("name ")?.to_owned()));
    let hex = hex.expect("the peer's name");
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let name: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
    let mut addr = 9;
    // SAFETY: one address.
    let count = unsafe {
        let insert = (*(*t.p.av).ops).insert;
        insert(t.p.av, name.as_ptr().cast(), 1, &mut addr, 0, null_mut())
    };
    assert_eq!(count, 1);
    (child, addr)
}

/// Stops a child process; on return the process is stopped.
fn stop(pid: c_int) {
    let mut status = 0;
    // SAFETY: a child of this process, and a place for its status.
    let stopped = unsafe {
        assert_eq!(libc::kill(pid, libc::SIGSTOP), 0);
        libc::waitpid(pid, &mut status, libc::WUNTRACED)
    };
    assert!(stopped == pid && libc::WIFSTOPPED(status));
}

#[test]
fn a_peer_that_dies_ends_them_once() {
    // A peer that dies before its first packet is detected by its silence only.
    std::env::set_var("FI_MARLINE_PEER_TIMEOUT_MS", "5000");
    for (knows, stops) in [(false, true), (true, true), (true, false)] {
        let t = Target::open();
        let (mut peer, to) = start_peer(&t);
        if knows {
            let _local = begin(&t, false, to);
            assert_eq!(ends(&t.p), Ok(()));
        }
        if stops {
            stop(peer.0.id() as c_int);
        }
        let (out, back) = (begin(&t, false, to), begin(&t, true, to));
        for _ in 0..50 {
            assert!(!stops || end(&t.p).is_none(), "it does not run");
        }
        peer.end();
        let mut failed = 0;
        for _ in 0..2 {
            let end = ends(&t.p);
            assert!(!stops || end.is_err(), "it is done by nobody");
            failed += u64::from(end.is_err());
            assert_eq!(end.err().unwrap_or(libc::EHOSTUNREACH), libc::EHOSTUNREACH);
        }
        nothing_else(&t.p);
        t.counted(u64::from(knows) + 2 - failed, failed);
        drop((out, back));
        t.close();
    }
}
