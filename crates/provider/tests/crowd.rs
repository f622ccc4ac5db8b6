//! Many endpoints of one process, four to a domain, of which each knows all and speaks to some:
//! `MARLINE_CROWD` of them (64; `make soak`: 1,024). Every message arrives once, and memory is
//! bounded.

#[path = "../src/abi/mod.rs"]
mod abi;

mod common;

use abi::ep::fid_ep;
use abi::*;
use common::pair::{API, HANG};
use common::{close, free_info, Library};
use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::ptr::null_mut;
use std::time::Instant;

/// Bytes of an address.
const NAME: usize = 64;
/// Endpoints of a domain.
const SHARE: usize = 4;
/// Endpoints to which each speaks.
const PEERS: usize = 16;
/// Messages to each of them.
const ROUNDS: usize = 8;
/// Open files of a domain with its endpoints, at most.
const FILES: u64 = 64;
/// Most bytes of memory of an endpoint with its share of a domain, without its peers.
const ENDPOINT_MAX: usize = 1 << 20;
/// Most bytes of memory of an address.
const ADDRESS_MAX: usize = 512;
/// Most bytes of memory of an endpoint for each peer that it heard or spoke to, with its share of
/// the endpoint's buffers.
const PEER_MAX: usize = 16 << 10;

/// An endpoint with its queue and address vector.
struct Member {
    cq: *mut fid_cq,
    av: *mut fid_av,
    ep: *mut fid_ep,
    /// Words from each of the ones before this, round by round.
    came: Vec<u64>,
    left: usize,
    sent: usize,
}

impl Member {
    fn open(domain: *mut fid_domain, info: *mut fi_info) -> Member {
        let (mut cq, mut av, mut ep) = (null_mut(), null_mut(), null_mut());
        // SAFETY: objects of the provider, used as the libfabric headers say.
        unsafe {
            let ops = &*(*domain).ops;
            let mut cq_attr: fi_cq_attr = zeroed();
            cq_attr.format = FI_CQ_FORMAT_TAGGED;
            let rc = (ops.cq_open)(domain, &mut cq_attr, &mut cq, null_mut());
            assert_eq!(rc, 0, "fi_cq_open");
            let mut av_attr: fi_av_attr = zeroed();
            av_attr.type_ = FI_AV_TABLE;
            let rc = (ops.av_open)(domain, &mut av_attr, &mut av, null_mut());
            assert_eq!(rc, 0, "fi_av_open");
            assert_eq!((ops.endpoint)(domain, info, &mut ep, null_mut()), 0);
            let fid: *mut fid = ep.cast();
            let ops = &*(*fid).ops;
            assert_eq!((ops.bind)(fid, av.cast(), 0), 0);
            assert_eq!((ops.bind)(fid, cq.cast(), FI_SEND | FI_RECV), 0);
            assert_eq!((ops.control)(fid, FI_ENABLE, null_mut()), 0);
        }
        Member {
            cq,
            av,
            ep,
            came: vec![u64::MAX; PEERS * ROUNDS],
            left: PEERS * ROUNDS,
            sent: 0,
        }
    }

    fn name(&self) -> [u8; NAME] {
        let (mut name, mut len) = ([0; NAME], NAME);
        // SAFETY: a buffer of this size.
        let rc = unsafe {
            let getname = (*(*self.ep).cm).getname;
            getname(self.ep.cast(), name.as_mut_ptr().cast(), &mut len)
        };
        assert_eq!((rc, len), (0, NAME));
        name
    }

    fn insert(&self, names: &[u8], count: usize) {
        let mut addresses = vec![0; count];
        // SAFETY: so many addresses, and room for as many indices.
        let n = unsafe {
            let insert = (*(*self.av).ops).insert;
            let from = names.as_ptr().cast();
            insert(self.av, from, count, addresses.as_mut_ptr(), 0, null_mut())
        };
        assert_eq!(n as usize, count);
    }

    /// Posts a receive for each message.
    fn post(&mut self, own: usize, count: usize) {
        let base = self.came.as_mut_ptr();
        for at in 0..PEERS * ROUNDS {
            let (from, round) = (before(own, at, count), (at / PEERS) as u64);
            // SAFETY: the word of this message, which stays where it is until all have come.
            let rc = unsafe {
                let (to, context) = (base.add(at).cast(), (at + 1) as *mut c_void);
                let recv = (*(*self.ep).tagged).recv;
                recv(self.ep, to, 8, null_mut(), from as u64, round, 0, context)
            };
            assert_eq!(rc, 0);
        }
    }

    /// Sends messages while there is room, but few: all take turns.
    fn send(&mut self, own: usize, count: usize) {
        let end = PEERS * ROUNDS;
        for at in self.sent..end.min(self.sent + PEERS) {
            let (to, round) = (after(own, at, count), (at / PEERS) as u64);
            let word = word(own, to, round).to_ne_bytes();
            // SAFETY: the buffer is free when the call returns.
            let rc = unsafe {
                let inject = (*(*self.ep).tagged).inject;
                inject(self.ep, word.as_ptr().cast(), 8, to as u64, round)
            };
            if rc == -(libc::EAGAIN as isize) {
                return;
            }
            assert_eq!(rc, 0, "inject");
            self.sent += 1;
        }
    }

    /// Reads the queue until it is empty.
    fn poll(&mut self) {
        loop {
            // SAFETY: entries of the queue's format.
            let n = unsafe {
                let mut entries: [fi_cq_tagged_entry; 16] = zeroed();
                let to = entries.as_mut_ptr().cast();
                ((*(*self.cq).ops).read)(self.cq, to, 16)
            };
            if n == -(libc::EAGAIN as isize) {
                return;
            }
            assert!(n > 0, "cq_read: {n}");
            self.left -= n as usize;
        }
    }

    fn close(self) {
        // SAFETY: objects of the provider, each closed once.
        unsafe {
            for fid in [self.ep.cast(), self.av.cast(), self.cq.cast()] {
                let rc: c_int = close(fid);
                assert_eq!(rc, 0);
            }
        }
    }
}

/// The receiver of message number `at`.
fn after(own: usize, at: usize, count: usize) -> usize {
    (own + 1 + at % PEERS) % count
}

/// The sender of message number `at`.
fn before(own: usize, at: usize, count: usize) -> usize {
    (own + count - 1 - at % PEERS) % count
}

/// The word from one to another in a round.
fn word(from: usize, to: usize, round: u64) -> u64 {
    (from as u64) << 40 | (to as u64) << 20 | round
}

/// Memory of this process in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages = text.split(' ').nth(1).unwrap();
    pages.parse::<usize>().unwrap() * 4_096
}

/// Allows so many open files.
fn open_files(count: u64) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: valid pointers to one limit.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        assert!(limit.rlim_max >= count, "ulimit -n {count}");
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
}

fn open_domain(fabric: *mut fid_fabric, info: *mut fi_info) -> *mut fid_domain {
    let mut domain = null_mut();
    // SAFETY: objects of the provider.
    let rc = unsafe { ((*(*fabric).ops).domain)(fabric, info, &mut domain, null_mut()) };
    assert_eq!(rc, 0, "fi_domain");
    domain
}

/// All send and poll in turn, until every message has come.
fn speak(members: &mut [Member]) {
    let count = members.len();
    let (mut last, mut left) = (Instant::now(), usize::MAX);
    while left > 0 {
        for (own, member) in members.iter_mut().enumerate() {
            member.send(own, count);
            member.poll();
        }
        let now = members.iter().map(|m| m.left).sum::<usize>();
        if now < left {
            (last, left) = (Instant::now(), now);
        }
        assert!(last.elapsed() < HANG, "{now} messages do not come");
    }
}

/// Every message is the one that its sender sent.
fn check(members: &[Member]) {
    let count = members.len();
    for (own, member) in members.iter().enumerate() {
        for (at, &came) in member.came.iter().enumerate() {
            let (from, round) = (before(own, at, count), (at / PEERS) as u64);
            assert_eq!(came, word(from, own, round), "{from} to {own}");
        }
    }
}

/// One test, as settings are read from the process's environment.
#[test]
fn each_of_many_endpoints_speaks_to_some() {
    let count: usize = match std::env::var("MARLINE_CROWD") {
        Ok(text) => text.parse().expect("MARLINE_CROWD: a number"),
        Err(_) => 64,
    };
    std::env::set_var("FI_MARLINE_RAILS", "udp:lo");
    let domains = count.div_ceil(SHARE);
    open_files(FILES * domains as u64 + 64);
    let library = Library::open();
    // SAFETY: all zero is what `fi_allocinfo` gives.
    let hints: fi_info = unsafe { zeroed() };
    let info = library.getinfo(API, &hints).unwrap();
    let fabric = library.fabric(API);
    let (start, empty) = (Instant::now(), resident());
    let domains: Vec<_> = (0..domains).map(|_| open_domain(fabric, info)).collect();
    let open = |n: usize| Member::open(domains[n / SHARE], info);
    let mut members: Vec<Member> = (0..count).map(open).collect();
    let opened = resident();
    let names: Vec<u8> = members.iter().flat_map(Member::name).collect();
    members.iter().for_each(|m| m.insert(&names, count));
    let inserted = resident();
    for (own, member) in members.iter_mut().enumerate() {
        member.post(own, count);
    }
    speak(&mut members);
    let spoken = resident();
    check(&members);
    let endpoint = (opened - empty) / count;
    let address = (inserted - opened) / (count * count);
    // Each was spoken to by as many as it spoke to.
    let peer = (spoken - inserted) / (count * 2 * PEERS);
    println!(
        "{count} endpoints: {:.1} s; bytes: {endpoint} each, {address} an address, {peer} a peer",
        start.elapsed().as_secs_f64()
    );
    assert!(endpoint <= ENDPOINT_MAX, "{endpoint} bytes an endpoint");
    assert!(address <= ADDRESS_MAX, "{address} bytes an address");
    assert!(peer <= PEER_MAX, "{peer} bytes a peer");
    members.into_iter().for_each(Member::close);
    // SAFETY: closed once.
    unsafe {
        for domain in domains {
            assert_eq!(close(domain.cast()), 0);
        }
        assert_eq!(close(fabric.cast()), 0);
        free_info(info);
    }
}
