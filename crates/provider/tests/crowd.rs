//! Many endpoints of one process, each with its domain, of which each speaks to all others:
//! `MARLINE_CROWD` of them (64; `make soak`: 1,024). Every message arrives once, and memory is
//! bounded.

#[path = "../src/abi/mod.rs"]
mod abi;

mod common;

use abi::*;
use common::pair::{API, HANG};
use common::{close, free_info, Library};
use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::ptr::null_mut;
use std::time::Instant;

/// Bytes of an address.
const NAME: usize = 64;
/// Most bytes of memory of a peer that was spoken to over one rail.
const PEER_MAX: usize = 4_096;
/// Most bytes of memory of an endpoint with its domain, without its peers.
const ENDPOINT_MAX: usize = 8 << 20;

/// An endpoint with its domain, queue and address vector.
struct Member {
    domain: *mut fid_domain,
    cq: *mut fid_cq,
    av: *mut fid_av,
    ep: *mut fid_ep,
    /// What each other one sent, by its number.
    came: Vec<u64>,
    left: usize,
}

impl Member {
    fn open(fabric: *mut fid_fabric, info: *mut fi_info) -> Member {
        let (mut domain, mut cq, mut av, mut ep) = (null_mut(), null_mut(), null_mut(), null_mut());
        // SAFETY: objects of the provider, used as the libfabric headers say.
        unsafe {
            let rc = ((*(*fabric).ops).domain)(fabric, info, &mut domain, null_mut());
            assert_eq!(rc, 0, "fi_domain");
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
            domain,
            cq,
            av,
            ep,
            came: Vec::new(),
            left: 0,
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

    /// Posts a receive from each other one.
    fn post(&mut self, own: usize, count: usize) {
        (self.came, self.left) = (vec![u64::MAX; count], count - 1);
        let base = self.came.as_mut_ptr();
        for from in (0..count).filter(|&n| n != own) {
            // SAFETY: the word of this sender, which stays where it is until all have come.
            let rc = unsafe {
                let (to, context) = (base.add(from).cast(), (from + 1) as *mut c_void);
                let recv = (*(*self.ep).tagged).recv;
                recv(
                    self.ep,
                    to,
                    8,
                    null_mut(),
                    from as u64,
                    from as u64,
                    0,
                    context,
                )
            };
            assert_eq!(rc, 0);
        }
    }

    /// Sends to another one; `false`: there is no room now.
    fn send(&self, own: usize, to: usize) -> bool {
        let word = word(own, to).to_ne_bytes();
        // SAFETY: the buffer is free when the call returns.
        let rc = unsafe {
            let inject = (*(*self.ep).tagged).inject;
            inject(self.ep, word.as_ptr().cast(), 8, to as u64, own as u64)
        };
        assert!(rc == 0 || rc == -(libc::EAGAIN as isize), "inject: {rc}");
        rc == 0
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
            for fid in [
                self.ep.cast(),
                self.av.cast(),
                self.cq.cast(),
                self.domain.cast(),
            ] {
                let rc: c_int = close(fid);
                assert_eq!(rc, 0);
            }
        }
    }
}

/// What one sends to another.
fn word(from: usize, to: usize) -> u64 {
    (from as u64) << 32 | to as u64
}

/// Memory of this process in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages = text.split(' ').nth(1).unwrap();
    pages.parse::<usize>().unwrap() * 4_096
}

/// Room for so many sockets.
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

/// Each sends to the next ones first, as MPIs do.
fn speak(members: &mut [Member]) {
    let count = members.len();
    let mut sent = vec![0; count];
    let (mut last, mut left) = (Instant::now(), usize::MAX);
    loop {
        for own in 0..count {
            while sent[own] < count - 1 {
                if !members[own].send(own, (own + 1 + sent[own]) % count) {
                    break;
                }
                sent[own] += 1;
                // In turn, and not all to one after another.
                if sent[own] % 8 == 0 {
                    break;
                }
            }
            members[own].poll();
        }
        let now = members.iter().map(|m| m.left).sum::<usize>();
        if now == 0 && sent.iter().all(|&n| n == count - 1) {
            return;
        }
        if now < left {
            (last, left) = (Instant::now(), now);
        }
        assert!(last.elapsed() < HANG, "{now} messages do not come");
    }
}

/// One test, as settings are read from the process's environment.
#[test]
fn each_of_many_endpoints_speaks_to_all_others() {
    let count: usize = match std::env::var("MARLINE_CROWD") {
        Ok(text) => text.parse().expect("MARLINE_CROWD: a number"),
        Err(_) => 64,
    };
    std::env::set_var("FI_MARLINE_RAILS", "udp:lo");
    open_files(8 * count as u64 + 64);
    let library = Library::open();
    // SAFETY: all zero is what `fi_allocinfo` gives.
    let hints: fi_info = unsafe { zeroed() };
    let info = library.getinfo(API, &hints).unwrap();
    let fabric = library.fabric(API);
    let (start, empty) = (Instant::now(), resident());
    let mut members: Vec<Member> = (0..count).map(|_| Member::open(fabric, info)).collect();
    let opened = resident();
    let names: Vec<u8> = members.iter().flat_map(Member::name).collect();
    members.iter().for_each(|m| m.insert(&names, count));
    for (own, member) in members.iter_mut().enumerate() {
        member.post(own, count);
    }
    speak(&mut members);
    let spoken = resident();
    for (own, member) in members.iter().enumerate() {
        for from in (0..count).filter(|&n| n != own) {
            assert_eq!(member.came[from], word(from, own), "{from} to {own}");
        }
    }
    let endpoint = (opened - empty) / count;
    let peer = (spoken - opened) / (count * (count - 1));
    println!(
        "{count} endpoints: {:.1} s, {endpoint} bytes each, {peer} bytes a peer",
        start.elapsed().as_secs_f64()
    );
    assert!(endpoint <= ENDPOINT_MAX, "{endpoint} bytes an endpoint");
    // With few peers the buffers of each endpoint are most of it.
    if count >= 512 {
        assert!(peer <= PEER_MAX, "{peer} bytes a peer");
    }
    members.into_iter().for_each(Member::close);
    // SAFETY: closed once.
    unsafe {
        assert_eq!(close(fabric.cast()), 0);
        free_info(info);
    }
}
