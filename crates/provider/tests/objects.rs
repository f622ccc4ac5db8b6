//! The object tables at work: two endpoints of one domain talk to each other through the loaded
//! library, called as libfabric's inline functions call it.

#[path = "../src/sys.rs"]
mod sys;
#[path = "../src/sys_ep.rs"]
mod sys_ep;

mod common;

use common::Library;
use std::ffi::{c_int, c_void};
use std::mem::{size_of, zeroed};
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};
use sys::*;
use sys_ep::*;

/// Far beyond anything that works; only a hang reaches it.
const HANG: Duration = Duration::from_secs(30);
const API: u32 = fi_version_of(1, 20);

/// One domain with two endpoints on one queue; address 0 is the first, 1 the second.
struct Pair {
    fabric: *mut fid_fabric,
    domain: *mut fid_domain,
    cq: *mut fid_cq,
    av: *mut fid_av,
    counter: *mut fid_cntr,
    ep: [*mut fid_ep; 2],
    _library: Library,
}

/// A completion with its source.
type Entry = (fi_cq_tagged_entry, fi_addr_t);

impl Pair {
    fn open() -> Pair {
        let library = Library::open();
        let info = library.getinfo(API, null()).unwrap();
        let fabric = library.fabric(API);
        // SAFETY: objects of the provider, used as the libfabric headers say.
        unsafe {
            (*(*info).tx_attr).op_flags = FI_COMPLETION;
            (*(*info).rx_attr).op_flags = FI_COMPLETION;
            let mut p = Pair {
                fabric,
                domain: null_mut(),
                cq: null_mut(),
                av: null_mut(),
                counter: null_mut(),
                ep: [null_mut(); 2],
                _library: library,
            };
            let rc = ((*(*fabric).ops).domain)(fabric, info, &mut p.domain, null_mut());
            assert_eq!(rc, 0, "fi_domain");
            let ops = &*(*p.domain).ops;
            let mut cq_attr: fi_cq_attr = zeroed();
            cq_attr.format = FI_CQ_FORMAT_TAGGED;
            assert_eq!(
                (ops.cq_open)(p.domain, &mut cq_attr, &mut p.cq, null_mut()),
                0
            );
            let mut av_attr: fi_av_attr = zeroed();
            assert_eq!(
                (ops.av_open)(p.domain, &mut av_attr, &mut p.av, null_mut()),
                0
            );
            assert_eq!(av_attr.type_, FI_AV_TABLE);
            let mut cntr_attr: fi_cntr_attr = zeroed();
            cntr_attr.wait_obj = FI_WAIT_UNSPEC;
            assert_eq!(
                (ops.cntr_open)(p.domain, &mut cntr_attr, &mut p.counter, null_mut()),
                0
            );
            for i in 0..2 {
                assert_eq!((ops.endpoint)(p.domain, info, &mut p.ep[i], null_mut()), 0);
                p.bind_and_enable(p.ep[i].cast());
            }
            common::free_info(info);
            p.exchange_names();
            p
        }
    }

    unsafe fn bind_and_enable(&self, ep: *mut fid) {
        // SAFETY: objects of the provider.
        unsafe {
            let ops = &*(*ep).ops;
            let flags = FI_SEND | FI_RECV | FI_SELECTIVE_COMPLETION;
            assert_eq!((ops.control)(ep, FI_ENABLE, null_mut()), -267, "FI_ENOAV");
            assert_eq!((ops.bind)(ep, self.av.cast(), 0), 0);
            assert_eq!((ops.control)(ep, FI_ENABLE, null_mut()), -263, "FI_ENOCQ");
            assert_eq!((ops.bind)(ep, self.cq.cast(), flags), 0);
            assert_eq!((ops.bind)(ep, self.counter.cast(), FI_READ | FI_WRITE), 0);
            assert_eq!((ops.control)(ep, FI_ENABLE, null_mut()), 0);
        }
    }

    /// As Open MPI: length first, then all names in one insertion.
    unsafe fn exchange_names(&self) {
        let mut names = [0u8; 128];
        let mut addresses = [9 as fi_addr_t; 2];
        // SAFETY: objects of the provider and buffers of the sizes named.
        unsafe {
            for (i, ep) in self.ep.into_iter().enumerate() {
                let getname = (*(*ep).cm).getname;
                let mut len = 0;
                assert_eq!(
                    getname(ep.cast(), null_mut(), &mut len),
                    -257,
                    "FI_ETOOSMALL"
                );
                assert_eq!(len, 64);
                let room = names[i * 64..].as_mut_ptr().cast();
                assert_eq!(getname(ep.cast(), room, &mut len), 0);
            }
            let av = &*(*self.av).ops;
            let all = names.as_ptr().cast();
            let n = (av.insert)(self.av, all, 2, addresses.as_mut_ptr(), 0, null_mut());
            assert_eq!((n, addresses), (2, [0, 1]));
            let (mut back, mut len) = ([0u8; 64], 64);
            assert_eq!(
                (av.lookup)(self.av, 1, back.as_mut_ptr().cast(), &mut len),
                0
            );
            assert_eq!((&back[..], len), (&names[64..], 64));
        }
    }

    fn tagged(&self) -> &fi_ops_tagged {
        // SAFETY: tables are static.
        unsafe { &*(*self.ep[0]).tagged }
    }

    fn msg(&self) -> &fi_ops_msg {
        // SAFETY: tables are static.
        unsafe { &*(*self.ep[0]).msg }
    }

    /// Reads at most one entry.
    fn poll(&self) -> Result<Entry, isize> {
        // SAFETY: an entry of the queue's format.
        unsafe {
            let mut entry: fi_cq_tagged_entry = zeroed();
            let mut source = 0;
            let to = (&raw mut entry).cast();
            match ((*(*self.cq).ops).readfrom)(self.cq, to, 1, &mut source) {
                1 => Ok((entry, source)),
                0 => panic!("fi_cq_read must never return 0"),
                error => Err(error),
            }
        }
    }

    /// Waits for one entry.
    fn entry(&self) -> Entry {
        let start = Instant::now();
        loop {
            match self.poll() {
                Ok(entry) => return entry,
                Err(e) if e == -(libc::EAGAIN as isize) => {}
                Err(e) => panic!("cq_read {e}"),
            }
            assert!(start.elapsed() < HANG, "no completion");
        }
    }

    /// Waits for one error entry.
    fn error(&self) -> fi_cq_err_entry {
        let start = Instant::now();
        while self.poll().err() != Some(-259) {
            assert!(start.elapsed() < HANG, "no error entry");
        }
        // SAFETY: an entry in the layout of API version 1.20.
        unsafe {
            let mut entry: fi_cq_err_entry = zeroed();
            let readerr = (*(*self.cq).ops).readerr;
            assert_eq!(readerr(self.cq, &mut entry, 0), 1);
            assert_eq!(readerr(self.cq, &mut entry, 0), -(libc::EAGAIN as isize));
            entry
        }
    }

    fn trecv(&self, buf: &mut [u8], tag: u64, ignore: u64, context: usize) {
        let (ep, source) = (self.ep[1], FI_ADDR_UNSPEC);
        let (to, len, context) = (buf.as_mut_ptr().cast(), buf.len(), context as *mut c_void);
        // SAFETY: the caller keeps the buffer until the entry is there.
        let rc =
            unsafe { (self.tagged().recv)(ep, to, len, null_mut(), source, tag, ignore, context) };
        assert_eq!(rc, 0);
    }

    fn tinject(&self, body: &[u8], tag: u64) {
        let (from, len) = (body.as_ptr().cast(), body.len());
        // SAFETY: the buffer may go when the call returns.
        let rc = unsafe { (self.tagged().inject)(self.ep[0], from, len, 1, tag) };
        assert_eq!(rc, 0);
    }

    fn trecvmsg(&self, buf: &mut [u8], tag: u64, context: usize, flags: u64) -> isize {
        let iov = libc::iovec {
            iov_base: buf.as_mut_ptr().cast(),
            iov_len: buf.len(),
        };
        let msg = fi_msg_tagged {
            // Peeks of Open MPI and MPICH pass no iovec at all.
            msg_iov: if buf.is_empty() { null() } else { &iov },
            desc: null_mut(),
            iov_count: usize::from(!buf.is_empty()),
            addr: FI_ADDR_UNSPEC,
            tag,
            ignore: 0,
            context: context as *mut c_void,
            data: 0,
        };
        // SAFETY: as for `trecv`.
        unsafe { (self.tagged().recvmsg)(self.ep[1], &msg, flags) }
    }

    fn close(self) {
        // SAFETY: objects of the provider, each closed once.
        unsafe {
            assert_eq!(
                common::close(self.cq.cast()),
                -libc::EBUSY,
                "an endpoint uses it"
            );
            for ep in self.ep {
                assert_eq!(common::close(ep.cast()), 0);
            }
            // Open MPI's order.
            assert_eq!(common::close(self.av.cast()), 0);
            assert_eq!(common::close(self.cq.cast()), 0);
            assert_eq!(
                common::close(self.domain.cast()),
                -libc::EBUSY,
                "the counter is open"
            );
            assert_eq!(common::close(self.counter.cast()), 0);
            assert_eq!(common::close(self.domain.cast()), 0);
            assert_eq!(common::close(self.fabric.cast()), 0);
        }
    }
}

#[test]
fn tagged_message_with_data_and_source() {
    let p = Pair::open();
    let (body, mut buf) = ([5u8; 100], [0u8; 200]);
    p.trecv(&mut buf, 0xff00, 0xff, 11);
    let (from, context) = (body.as_ptr().cast(), 22 as *mut c_void);
    // SAFETY: both buffers live until the entries are there.
    let rc =
        unsafe { (p.tagged().senddata)(p.ep[0], from, 100, null_mut(), 77, 1, 0xff42, context) };
    assert_eq!(rc, 0);
    let (a, b) = (p.entry(), p.entry());
    let (sent, received) = if a.0.op_context as usize == 22 {
        (a, b)
    } else {
        (b, a)
    };
    assert_eq!(sent.0.op_context as usize, 22);
    assert_eq!(sent.0.flags & (FI_SEND | FI_TAGGED), FI_SEND | FI_TAGGED);
    assert_eq!(received.0.op_context as usize, 11);
    assert_eq!(
        (received.0.len, received.0.data, received.0.tag),
        (100, 77, 0xff42)
    );
    let wanted = FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA;
    assert_eq!(received.0.flags & wanted, wanted);
    assert_eq!(received.1, 0, "source");
    assert_eq!(buf[..101], [&[5u8; 100][..], &[0]].concat());
    p.close();
}

#[test]
fn only_what_asks_for_it_completes() {
    let p = Pair::open();
    let (mut a, mut b) = ([0u8; 8], [0u8; 8]);
    p.trecv(&mut a, 1, 0, 1);
    p.trecv(&mut b, 1, 0, 2);
    p.tinject(b"injected", 1);
    let body = *b"no entry";
    let iov = libc::iovec {
        iov_base: body.as_ptr().cast_mut().cast(),
        iov_len: 8,
    };
    let msg = fi_msg_tagged {
        msg_iov: &iov,
        desc: null_mut(),
        iov_count: 1,
        addr: 1,
        tag: 1,
        ignore: 0,
        context: null_mut(),
        data: 0,
    };
    // SAFETY: eager, and the buffers live to the end.
    assert_eq!(unsafe { (p.tagged().sendmsg)(p.ep[0], &msg, 0) }, 0);
    // The receives complete in order, and nothing else does.
    assert_eq!(p.entry().0.op_context as usize, 1);
    assert_eq!(p.entry().0.op_context as usize, 2);
    assert_eq!((&a, &b), (b"injected", b"no entry"));
    assert_eq!(p.poll().unwrap_err(), -(libc::EAGAIN as isize));
    p.close();
}

#[test]
fn peek_claim_cancel_and_truncation() {
    let p = Pair::open();
    // A miss is an error entry, not a return code.
    assert_eq!(p.trecvmsg(&mut [], 3, 31, FI_PEEK | FI_COMPLETION), 0);
    let miss = p.error();
    assert_eq!((miss.err, miss.op_context as usize), (libc::ENOMSG, 31));
    // Peek until the message is there, claim it, then receive what was claimed.
    p.tinject(b"claim me", 3);
    let start = Instant::now();
    let found = loop {
        assert!(start.elapsed() < HANG);
        assert_eq!(
            p.trecvmsg(&mut [], 3, 32, FI_PEEK | FI_CLAIM | FI_COMPLETION),
            0
        );
        match p.poll() {
            Ok(found) => break found.0,
            Err(_) => assert_eq!(p.error().err, libc::ENOMSG),
        }
    };
    assert_eq!(
        (found.len, found.tag, found.op_context as usize),
        (8, 3, 32)
    );
    let mut buf = [0u8; 8];
    assert_eq!(p.trecvmsg(&mut buf, 0, 32, FI_CLAIM | FI_COMPLETION), 0);
    assert_eq!((p.entry().0.len, &buf), (8, b"claim me"));
    // Truncation reports everything about the message.
    let mut short = [0u8; 3];
    p.trecv(&mut short, 4, 0, 41);
    p.tinject(b"too long", 4);
    let cut = p.error();
    assert_eq!((cut.err, cut.len, cut.olen, cut.tag), (265, 3, 5, 4));
    assert_eq!((cut.op_context as usize, &short), (41, b"too"));
    // Cancel: an entry for a posted receive, ENOENT for anything else.
    p.trecv(&mut buf, 5, 0, 51);
    // SAFETY: contexts are only compared.
    unsafe {
        let cancel = (*(*p.ep[1]).ops).cancel;
        assert_eq!(cancel(p.ep[1].cast(), 51 as *mut c_void), 0);
        assert_eq!(
            cancel(p.ep[1].cast(), 52 as *mut c_void),
            -(libc::ENOENT as isize)
        );
    }
    let cancelled = p.error();
    assert_eq!(
        (cancelled.err, cancelled.op_context as usize),
        (libc::ECANCELED, 51)
    );
    p.close();
}

#[test]
fn multi_receive_releases_its_buffer_once() {
    let p = Pair::open();
    let mut buf = [0u8; 64];
    let min: usize = 32;
    let iov = libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: 64,
    };
    let msg = fi_msg {
        msg_iov: &iov,
        desc: null_mut(),
        iov_count: 1,
        addr: FI_ADDR_UNSPEC,
        context: 61 as *mut c_void,
        data: 0,
    };
    // SAFETY: the buffers live to the end.
    unsafe {
        let setopt = (*(*p.ep[1]).ops).setopt;
        let (option, value) = (FI_OPT_MIN_MULTI_RECV, (&raw const min).cast());
        let fid = p.ep[1].cast();
        assert_eq!(
            setopt(fid, FI_OPT_ENDPOINT, option, value, size_of::<usize>()),
            0
        );
        assert_eq!(
            (p.msg().recvmsg)(p.ep[1], &msg, FI_MULTI_RECV | FI_COMPLETION),
            0
        );
        for body in [
            b"first message...",
            b"second message..",
            b"third: releases.",
        ] {
            assert_eq!((p.msg().inject)(p.ep[0], body.as_ptr().cast(), 16, 1), 0);
        }
    }
    for i in 0..3 {
        let (entry, _) = p.entry();
        assert_eq!((entry.op_context as usize, entry.len), (61, 16));
        assert_eq!(entry.flags & (FI_RECV | FI_MSG), FI_RECV | FI_MSG);
        assert_eq!(entry.flags & FI_MULTI_RECV != 0, i == 2, "entry {i}");
        assert_eq!(entry.buf as usize - buf.as_ptr() as usize, 16 * i);
    }
    assert_eq!(
        &buf[..48],
        b"first message...second message..third: releases."
    );
    p.close();
}

#[test]
fn remote_read_completes_and_counts() {
    let p = Pair::open();
    let (remote, mut local) = ([8u8; 5000], [0u8; 1000]);
    // SAFETY: all memory lives to the end.
    unsafe {
        let mut mr: *mut fid_mr = null_mut();
        let (base, key) = (remote.as_ptr().cast(), 1 << 63);
        let ops = &*(*p.domain).mr;
        let domain = p.domain.cast();
        let reg = |mr| {
            (ops.reg)(
                domain,
                base,
                5000,
                FI_REMOTE_READ,
                0,
                key,
                0,
                mr,
                null_mut(),
            )
        };
        assert_eq!(reg(&mut mr), 0);
        assert_eq!((*mr).key, key, "the caller's key");
        let mut again: *mut fid_mr = null_mut();
        assert_eq!(reg(&mut again), -266, "FI_ENOKEY");
        let iov = libc::iovec {
            iov_base: local.as_mut_ptr().cast(),
            iov_len: 1000,
        };
        let from = fi_rma_iov {
            addr: 4000,
            len: 1000,
            key,
        };
        let msg = fi_msg_rma {
            msg_iov: &iov,
            desc: null_mut(),
            iov_count: 1,
            addr: 1,
            rma_iov: &from,
            rma_iov_count: 1,
            context: 71 as *mut c_void,
            data: 0,
        };
        assert_eq!(((*(*p.ep[0]).rma).readmsg)(p.ep[0], &msg, FI_COMPLETION), 0);
        let (entry, _) = p.entry();
        assert_eq!(entry.op_context as usize, 71);
        assert_eq!(entry.flags & (FI_RMA | FI_READ), FI_RMA | FI_READ);
        assert_eq!(local, [8u8; 1000]);
        let counter = &*(*p.counter).ops;
        assert_eq!(
            ((counter.read)(p.counter), (counter.readerr)(p.counter)),
            (1, 0)
        );
        assert_eq!((counter.wait)(p.counter, 1, 0), 0);
        assert_eq!((counter.wait)(p.counter, 2, 0), -libc::ETIMEDOUT);
        assert_eq!(common::close(mr.cast()), 0);
    }
    p.close();
}

#[test]
fn default_operation_flags_can_be_changed() {
    let p = Pair::open();
    let ep: *mut fid = p.ep[0].cast();
    // SAFETY: these commands take a u64.
    unsafe {
        let control = (*(*ep).ops).control;
        let flags = |command: c_int, word: &mut u64| control(ep, command, (&raw mut *word).cast());
        let mut word = FI_TRANSMIT;
        assert_eq!(flags(FI_GETOPSFLAG, &mut word), 0);
        assert_eq!(word, FI_COMPLETION);
        let mut word = FI_TRANSMIT | FI_COMPLETION | FI_DELIVERY_COMPLETE;
        assert_eq!(flags(FI_SETOPSFLAG, &mut word), 0);
        let mut word = FI_TRANSMIT;
        assert_eq!(flags(FI_GETOPSFLAG, &mut word), 0);
        assert_eq!(word, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    }
    p.close();
}
