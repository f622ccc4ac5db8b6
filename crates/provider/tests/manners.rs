//! Side effects in a host process: resources left behind, signals and the progress thread, forked
//! children. One test, as it counts resources of the whole process.

#[path = "../src/abi/mod.rs"]
mod abi;

mod common;

use abi::ep::*;
use abi::*;
use common::Library;
use std::fs;
use std::mem::zeroed;
use std::ptr::{null, null_mut};

const API: u32 = fi_version_of(1, 20);
/// Rounds of loading, opening, closing and unloading.
const ROUNDS: usize = 100;
const EAGAIN: isize = -(libc::EAGAIN as isize);

/// An enabled endpoint with its domain, queue and address vector.
struct Opened {
    fabric: *mut fid_fabric,
    domain: *mut fid_domain,
    cq: *mut fid_cq,
    av: *mut fid_av,
    ep: *mut fid_ep,
    library: Library,
}

impl Opened {
    fn new() -> Opened {
        let library = Library::open();
        let info = library.getinfo(API, null()).unwrap();
        let fabric = library.fabric(API);
        let (mut domain, mut ep) = (null_mut(), null_mut());
        let (mut cq, mut av) = (null_mut(), null_mut());
        // SAFETY: objects of the provider, used as the libfabric headers say.
        unsafe {
            assert_eq!(
                ((*(*fabric).ops).domain)(fabric, info, &mut domain, null_mut()),
                0
            );
            let ops = &*(*domain).ops;
            let mut cq_attr: fi_cq_attr = zeroed();
            cq_attr.format = FI_CQ_FORMAT_TAGGED;
            let mut av_attr: fi_av_attr = zeroed();
            assert_eq!((ops.cq_open)(domain, &mut cq_attr, &mut cq, null_mut()), 0);
            assert_eq!((ops.av_open)(domain, &mut av_attr, &mut av, null_mut()), 0);
            assert_eq!((ops.endpoint)(domain, info, &mut ep, null_mut()), 0);
            common::free_info(info);
            let fid: *mut fid = ep.cast();
            let ops = &*(*fid).ops;
            assert_eq!((ops.bind)(fid, av.cast(), 0), 0);
            assert_eq!((ops.bind)(fid, cq.cast(), FI_SEND | FI_RECV), 0);
            assert_eq!((ops.control)(fid, FI_ENABLE, null_mut()), 0);
        }
        Opened {
            fabric,
            domain,
            cq,
            av,
            ep,
            library,
        }
    }

    fn poll(&self) -> isize {
        // SAFETY: an entry of the queue's format.
        unsafe {
            let mut entry: fi_cq_tagged_entry = zeroed();
            let mut source = 0;
            let to = (&raw mut entry).cast();
            ((*(*self.cq).ops).readfrom)(self.cq, to, 1, &mut source)
        }
    }

    /// Closes everything in libfabric's order, and unloads the library.
    fn close(self) {
        // SAFETY: objects of the provider, each closed once, users first.
        unsafe {
            for fid in [self.ep.cast(), self.cq.cast(), self.av.cast()] {
                assert_eq!(common::close(fid), 0);
            }
            assert_eq!(common::close(self.domain.cast()), 0);
            assert_eq!(common::close(self.fabric.cast()), 0);
        }
        drop(self.library);
    }
}

fn entries(dir: &str) -> usize {
    fs::read_dir(dir).unwrap().count()
}

/// Threads and descriptors of this process.
fn held() -> (usize, usize) {
    (entries("/proc/self/task"), entries("/proc/self/fd"))
}

/// The signal mask of the progress thread.
fn blocked_by_thread() -> u64 {
    let status = loop {
        let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
        let mut all = threads.map(|t| fs::read_to_string(t.path().join("status")).unwrap());
        // Asleep: its initialisation is over.
        let there = |s: &String| s.starts_with("Name:\tmarline\n") && s.contains("State:\tS");
        if let Some(status) = all.find(there) {
            break status;
        }
        std::thread::yield_now();
    };
    let mask = status.lines().find_map(|l| l.strip_prefix("SigBlk:\t"));
    u64::from_str_radix(mask.unwrap(), 16).unwrap()
}

/// A child opens and closes its own domain, with its own thread.
fn opens_its_own() {
    let before = held().0;
    let own = Opened::new();
    assert_eq!(held().0, before + 1, "a thread");
    assert_eq!(own.poll(), EAGAIN);
    own.close();
    assert_eq!(held().0, before);
}

/// Forks a child that polls its parent's queue with and without timeout, closes everything, and
/// opens a domain of its own. Returns its exit status: 0 if each poll of the parent's queue failed
/// and everything else succeeded.
fn in_a_child(opened: &Opened) -> i32 {
    // SAFETY: the child calls only the library and exits without running anything else.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            // Ends a child that hangs by a signal.
            libc::alarm(20);
            let polled = opened.poll();
            let mut entry: fi_cq_tagged_entry = zeroed();
            let to = (&raw mut entry).cast();
            let slept = ((*(*opened.cq).ops).sread)(opened.cq, to, 1, null(), -1);
            let fine = |rc: isize| rc < 0 && rc != EAGAIN;
            let fids: [*mut fid; 5] = [
                opened.ep.cast(),
                opened.cq.cast(),
                opened.av.cast(),
                opened.domain.cast(),
                opened.fabric.cast(),
            ];
            let closed = fids.into_iter().all(|fid| common::close(fid) == 0);
            let opened = std::panic::catch_unwind(opens_its_own).is_ok();
            libc::_exit(!(fine(polled) && fine(slept) && closed && opened) as i32);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status
    }
}

#[test]
fn leaves_nothing_behind_takes_no_signals_and_survives_forks() {
    Opened::new().close();
    let before = held();
    for _ in 0..ROUNDS {
        Opened::new().close();
    }
    assert_eq!(held(), before, "threads and descriptors");

    let opened = Opened::new();
    assert_eq!(held().0, before.0 + 1, "one thread while a domain is open");
    for signal in [
        libc::SIGINT,
        libc::SIGTERM,
        libc::SIGUSR1,
        libc::SIGALRM,
        libc::SIGCHLD,
    ] {
        let bit = 1 << (signal - 1);
        assert!(
            blocked_by_thread() & bit != 0,
            "signal {signal} not blocked"
        );
    }
    for signal in [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGSYS,
    ] {
        let bit = 1 << (signal - 1);
        assert!(
            blocked_by_thread() & bit == 0,
            "signal {signal} of the thread's own doing is blocked"
        );
    }
    for _ in 0..20 {
        assert_eq!(in_a_child(&opened), 0, "a child gets an error, and no hang");
    }
    assert_eq!(opened.poll(), EAGAIN, "the parent goes on");
    opened.close();
    assert_eq!(held(), before);
}
