//! Call sequences and flags of libraries other than MPI: Sandia's OpenSHMEM, Mercury and NCCL's
//! plugin (aws-ofi-nccl), as far as no other test covers them.

use crate::abi;

use crate::common;

use abi::ep::*;
use abi::*;
use common::pair::{API, HANG};
use common::target::{bytes, remote};
use common::{close, free_info, Library};
use std::ffi::{c_int, c_void};
use std::mem::{size_of, zeroed};
use std::process::Command;
use std::ptr::null_mut;
use std::time::Instant;

const FI_THREAD_DOMAIN: c_int = 3;
const FI_THREAD_COMPLETION: c_int = 4;
const FI_MR_LOCAL: c_int = 1 << 2;
const FI_MR_ENDPOINT: c_int = 1 << 9;
const BY_ADDRESS: c_int = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
const FI_CONTEXT: u64 = 1 << 59;
const FI_CONTEXT2: u64 = 1 << 52;
const FI_ASYNC_IOV: u64 = 1 << 57;
const UINT64: c_int = 7;
const SUM: c_int = 2;
const CSWAP: c_int = 12;
const AGAIN: isize = -(libc::EAGAIN as isize);

/// True if this process offers remote memory; otherwise runs the test in a child process that does.
fn offers_remote(test: &str) -> bool {
    let name = "FI_MARLINE_RMA";
    if std::env::var(name).is_ok_and(|value| value == "on") {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command.args(["--exact", &format!("callers::{test}"), "--nocapture"]);
    assert!(command.env(name, "on").status().unwrap().success());
    false
}

/// A domain opened with a library's hints.
struct Opened {
    info: *mut fi_info,
    fabric: *mut fid_fabric,
    domain: *mut fid_domain,
    av: *mut fid_av,
    _library: Library,
}

type Attributes = (fi_info, fi_tx_attr, fi_rx_attr, fi_domain_attr);

impl Opened {
    fn new(api: u32, ask: impl FnOnce(&mut Attributes)) -> Opened {
        let library = Library::open();
        // SAFETY: all zero is what `fi_allocinfo` gives; the rest as libfabric's headers say.
        unsafe {
            let mut all: Attributes = zeroed();
            ask(&mut all);
            let (hints, tx, rx, domain) = &mut all;
            (hints.tx_attr, hints.rx_attr, hints.domain_attr) = (tx, rx, domain);
            let info = library.getinfo(api, hints).unwrap();
            let fabric = library.fabric(api);
            let (mut domain, mut av) = (null_mut(), null_mut());
            let rc = ((*(*fabric).ops).domain)(fabric, info, &mut domain, null_mut());
            assert_eq!(rc, 0);
            let rc = ((*(*domain).ops).av_open)(domain, &mut zeroed(), &mut av, null_mut());
            assert_eq!(rc, 0);
            Opened {
                info,
                fabric,
                domain,
                av,
                _library: library,
            }
        }
    }

    fn cq(&self, attr: &mut fi_cq_attr) -> *mut fid_cq {
        let mut cq = null_mut();
        // SAFETY: objects of the provider.
        let rc = unsafe { ((*(*self.domain).ops).cq_open)(self.domain, attr, &mut cq, null_mut()) };
        assert_eq!(rc, 0);
        cq
    }

    fn counter(&self) -> *mut fid_cntr {
        let mut counter = null_mut();
        // SAFETY: objects of the provider.
        unsafe {
            let mut attr: fi_cntr_attr = zeroed();
            attr.wait_obj = FI_WAIT_UNSPEC;
            let open = (*(*self.domain).ops).cntr_open;
            assert_eq!(open(self.domain, &mut attr, &mut counter, null_mut()), 0);
        }
        counter
    }

    /// An enabled endpoint with these objects bound.
    fn endpoint(&self, bound: &[(*mut fid, u64)]) -> *mut fid_ep {
        let mut ep = null_mut();
        // SAFETY: objects of the provider.
        unsafe {
            let open = (*(*self.domain).ops).endpoint;
            assert_eq!(open(self.domain, self.info, &mut ep, null_mut()), 0);
            let ops = &*(*ep).fid.ops;
            for &(object, flags) in bound.iter().chain(&[(self.av.cast(), 0)]) {
                assert_eq!((ops.bind)(ep.cast(), object, flags), 0, "{flags:#x}");
            }
            assert_eq!((ops.control)(ep.cast(), FI_ENABLE, null_mut()), 0);
        }
        ep
    }

    /// Inserts the address of an endpoint.
    fn insert(&self, ep: *mut fid_ep) -> fi_addr_t {
        let (mut name, mut len, mut addr) = ([0u8; 64], 64, 9);
        // SAFETY: buffers of the sizes named.
        unsafe {
            let getname = (*(*ep).cm).getname;
            assert_eq!(getname(ep.cast(), name.as_mut_ptr().cast(), &mut len), 0);
            let insert = (*(*self.av).ops).insert;
            let from = name.as_ptr().cast();
            assert_eq!(insert(self.av, from, 1, &mut addr, 0, null_mut()), 1);
        }
        addr
    }

    /// Registers memory, addressed by virtual address.
    fn register(&self, memory: &mut [u8], access: u64) -> *mut fid_mr {
        let iov = libc::iovec {
            iov_base: memory.as_mut_ptr().cast(),
            iov_len: memory.len(),
        };
        let mut mr = null_mut();
        // SAFETY: memory that lives longer than the region.
        unsafe {
            let regv = (*(*self.domain).mr).regv;
            let domain = self.domain.cast();
            let rc = regv(domain, &iov, 1, access, 0, 1, 0, &mut mr, null_mut());
            assert_eq!(rc, 0);
        }
        mr
    }

    fn close(self, objects: &[*mut fid]) {
        let last = [self.av.cast(), self.domain.cast(), self.fabric.cast()];
        for fid in objects.iter().chain(&last) {
            // SAFETY: objects of the provider, each closed once.
            assert_eq!(unsafe { close(*fid) }, 0);
        }
        // SAFETY: not used afterwards.
        unsafe { free_info(self.info) };
    }
}

fn wait(counter: *mut fid_cntr, count: u64) {
    // SAFETY: an object of the provider.
    unsafe {
        let ops = &*(*counter).ops;
        assert_eq!((ops.wait)(counter, count, HANG.as_millis() as c_int), 0);
        assert_eq!((ops.read)(counter), count);
    }
}

/// Retries a call while it answers EAGAIN, reading the queue meanwhile as both libraries do.
fn post(cq: *mut fid_cq, mut call: impl FnMut() -> isize) {
    let start = Instant::now();
    loop {
        match call() {
            0 => return,
            rc => assert_eq!(rc, AGAIN),
        }
        // SAFETY: an entry of the shortest format has one word.
        unsafe {
            let mut entry = [0usize; 5];
            let rc = ((*(*cq).ops).read)(cq, entry.as_mut_ptr().cast(), 1);
            assert_eq!(rc, AGAIN, "nobody asked for an entry");
        }
        assert!(start.elapsed() < HANG);
    }
}

/// Sandia's OpenSHMEM: one endpoint with a heap whose region has a counter; another that puts, gets
/// and adds, with counters and FI_DELIVERY_COMPLETE.
#[test]
fn openshmem_puts_signals_and_gets() {
    if !offers_remote("openshmem_puts_signals_and_gets") {
        return;
    }
    let o = Opened::new(fi_version_of(1, 5), |(hints, tx, _, domain)| {
        hints.caps = FI_RMA | FI_ATOMIC | FI_RMA_EVENT | FI_FENCE;
        (tx.op_flags, tx.inject_size) = (FI_DELIVERY_COMPLETE, 16);
        (domain.mr_mode, domain.mr_key_size) = (BY_ADDRESS, 1);
        (domain.threading, domain.data_progress) = (FI_THREAD_DOMAIN, FI_PROGRESS_AUTO);
    });
    // SAFETY: the info that was just made, and objects of the provider.
    unsafe {
        let i = &mut *o.info;
        let domain = &mut *i.domain_attr;
        assert_eq!((domain.mr_mode, domain.max_ep_stx_ctx), (BY_ADDRESS, 0));
        domain.mr_key_size = 1;
        (*i.ep_attr).tx_ctx_cnt = 0;
        i.caps = FI_RMA | FI_ATOMIC | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_RMA_EVENT;
        (*i.tx_attr).op_flags = 0;
        (*i.tx_attr).caps = FI_RMA | FI_ATOMIC;
        (*i.rx_attr).caps = i.caps;
        let (target_cq, all) = (
            o.cq(&mut zeroed()),
            FI_SELECTIVE_COMPLETION | FI_TRANSMIT | FI_RECV,
        );
        let target = o.endpoint(&[(target_cq.cast(), all)]);
        let mut heap = vec![0u8; 300_000];
        let mr = o.register(&mut heap, FI_REMOTE_READ | FI_REMOTE_WRITE);
        let arrived = o.counter();
        let bind = (*(*mr).fid.ops).bind;
        assert_eq!(bind(mr.cast(), arrived.cast(), FI_REMOTE_WRITE), 0);

        i.caps = FI_RMA | FI_WRITE | FI_READ | FI_ATOMIC | FI_RECV;
        (*i.tx_attr).op_flags = FI_DELIVERY_COMPLETE;
        (*i.tx_attr).caps = i.caps;
        (*i.rx_attr).caps = FI_RECV;
        let mut attr: fi_cq_attr = zeroed();
        attr.format = FI_CQ_FORMAT_CONTEXT;
        let (cq, puts, gets) = (o.cq(&mut attr), o.counter(), o.counter());
        let ep = o.endpoint(&[
            (puts.cast(), FI_WRITE),
            (gets.cast(), FI_READ),
            (cq.cast(), all),
        ]);
        let to = o.insert(target);
        openshmem_calls((ep, cq), to, mr, &mut heap);
        wait(puts, 4);
        wait(gets, 3);
        wait(arrived, 6);
        o.close(&[
            ep.cast(),
            target.cast(),
            mr.cast(),
            cq.cast(),
            target_cq.cast(),
            puts.cast(),
            gets.cast(),
            arrived.cast(),
        ]);
    }
}

/// Reads a context from a queue of FI_CQ_FORMAT_CONTEXT.
fn context_of(cq: *mut fid_cq) -> Result<usize, isize> {
    let mut entry = 0usize;
    // SAFETY: an entry of this format has one word.
    match unsafe { ((*(*cq).ops).read)(cq, (&raw mut entry).cast(), 1) } {
        1 => Ok(entry),
        rc => Err(rc),
    }
}

/// Four puts, the last an atomic that signals after the others, and three fetching operations.
unsafe fn openshmem_calls(
    (ep, cq): (*mut fid_ep, *mut fid_cq),
    to: fi_addr_t,
    mr: *mut fid_mr,
    heap: &mut [u8],
) {
    let (base, none) = (heap.as_ptr() as u64, null_mut::<c_void>());
    let out = bytes(100_000);
    let mut back = vec![0u8; 100_000];
    // SAFETY: objects of the provider, and memory that lives until all has ended.
    unsafe {
        let (key, rma) = ((*mr).key, &*(*ep).rma);
        let (from, len) = (out.as_ptr().cast(), out.len());
        post(cq, || (rma.inject)(ep, from, 16, to, base, key));
        post(cq, || {
            (rma.write)(ep, from, len, none, to, base + 100, key, none)
        });
        let iov = libc::iovec {
            iov_base: out.as_ptr().cast_mut().cast(),
            iov_len: 1_000,
        };
        let (addr, len) = (base + 200_000, 1_000);
        let there = fi_rma_iov { addr, len, key };
        let msg = fi_msg_rma {
            msg_iov: &iov,
            desc: null_mut(),
            iov_count: 1,
            addr: to,
            rma_iov: &there,
            rma_iov_count: 1,
            context: 33 as *mut c_void,
            data: 0,
        };
        let flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
        post(cq, || (rma.writemsg)(ep, &msg, flags));
        let start = Instant::now();
        while context_of(cq) != Ok(33) {
            assert!(start.elapsed() < HANG, "the bounce buffer is not free");
        }
        openshmem_atomics((ep, cq), to, (base + 250_000, key));
        assert_eq!(heap[250_000], 9, "of two sums, and then swapped");
        let (into, len) = (back.as_mut_ptr().cast(), back.len());
        post(cq, || {
            (rma.read)(ep, into, len, none, to, base + 100, key, none)
        });
        // (The compiler must not assume that `back` is unchanged.)
        while std::hint::black_box(&mut back) != &out {
            assert_eq!(context_of(cq), Err(AGAIN));
            assert!(start.elapsed() < HANG);
        }
        assert_eq!(heap[..16], out[..16]);
        assert_eq!(heap[200_000..201_000], out[..1_000]);
    }
}

unsafe fn openshmem_atomics(
    (ep, cq): (*mut fid_ep, *mut fid_cq),
    to: fi_addr_t,
    (addr, key): (u64, u64),
) {
    let (mut word, mut with, mut old) = (9u64, 18u64, [0u64; 2]);
    let ioc = |word: &mut u64| fi_ioc {
        addr: (&raw mut *word).cast(),
        count: 1,
    };
    let (place, operand) = (
        fi_rma_ioc {
            addr,
            count: 1,
            key,
        },
        ioc(&mut word),
    );
    let mut msg = fi_msg_atomic {
        msg_iov: &operand,
        desc: null_mut(),
        iov_count: 1,
        addr: to,
        rma_iov: &place,
        rma_iov_count: 1,
        datatype: UINT64,
        op: SUM,
        context: null_mut(),
        data: 0,
    };
    let (first, second) = old.split_at_mut(1);
    let (mut first, mut second) = (ioc(&mut first[0]), ioc(&mut second[0]));
    let (compare, none) = (ioc(&mut with), null_mut());
    // SAFETY: objects of the provider, and memory that lives until all has ended.
    unsafe {
        let ops = &*(*ep).atomic;
        let signal = FI_DELIVERY_COMPLETE | FI_INJECT | FI_FENCE;
        post(cq, || (ops.writemsg)(ep, &msg, signal));
        post(cq, || {
            (ops.readwritemsg)(ep, &msg, &mut first, none, 1, FI_INJECT)
        });
        msg.op = CSWAP;
        let swap = ops.compwritemsg;
        post(cq, || {
            swap(ep, &msg, &compare, none, 1, &mut second, none, 1, FI_INJECT)
        });
        let start = Instant::now();
        while (&raw const old).read_volatile() != [9, 18] {
            assert_eq!(context_of(cq), Err(AGAIN));
            assert!(start.elapsed() < HANG);
        }
    }
}

/// Mercury (`na_ofi`): sleeps on a queue's descriptor, sends unexpected messages by `fi_senddata`,
/// moves bulk memory by `fi_writemsg` and `fi_readmsg` in segments of both sides.
#[test]
fn mercury_sends_and_moves_bulk_memory() {
    if !offers_remote("mercury_sends_and_moves_bulk_memory") {
        return;
    }
    let o = Opened::new(API, |(hints, tx, _, domain)| {
        hints.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV | FI_SOURCE | FI_MULTI_RECV;
        hints.mode = FI_ASYNC_IOV | FI_CONTEXT;
        tx.op_flags = FI_INJECT_COMPLETE;
        domain.mr_mode = BY_ADDRESS | FI_MR_LOCAL | FI_MR_ENDPOINT;
        (domain.resource_mgmt, domain.threading) = (FI_RM_ENABLED, FI_THREAD_SAFE);
    });
    // SAFETY: objects of the provider, and memory that lives until all has ended.
    unsafe {
        assert_eq!((*(*o.info).domain_attr).mr_mode, BY_ADDRESS);
        let mut attr: fi_cq_attr = zeroed();
        (attr.wait_obj, attr.format, attr.size) = (FI_WAIT_FD, FI_CQ_FORMAT_TAGGED, 8_192);
        let cq = o.cq(&mut attr);
        let ep = o.endpoint(&[(cq.cast(), FI_TRANSMIT | FI_RECV)]);
        let to = o.insert(ep);
        let mut fd: c_int = -1;
        let control = (*(*cq).fid.ops).control;
        assert_eq!(control(cq.cast(), FI_GETWAIT, (&raw mut fd).cast()), 0);
        assert!(fd >= 0);
        let (mut min, mut len) = (0usize, size_of::<usize>());
        let ops = &*(*ep).ops;
        let to_min = (&raw mut min).cast();
        let rc = (ops.getopt)(
            ep.cast(),
            FI_OPT_ENDPOINT,
            FI_OPT_MIN_MULTI_RECV,
            to_min,
            &mut len,
        );
        assert_eq!(rc, 0);
        min = 4_096;
        let from_min = (&raw const min).cast();
        let rc = (ops.setopt)(
            ep.cast(),
            FI_OPT_ENDPOINT,
            FI_OPT_MIN_MULTI_RECV,
            from_min,
            len,
        );
        assert_eq!(rc, 0);
        mercury_messages(ep, cq, to);
        mercury_bulk(&o, ep, cq, to);
        o.close(&[ep.cast(), cq.cast()]);
    }
}

fn entry(cq: *mut fid_cq) -> fi_cq_tagged_entry {
    let start = Instant::now();
    loop {
        // SAFETY: an entry of the queue's format.
        unsafe {
            let mut entry: fi_cq_tagged_entry = zeroed();
            let mut source = 0;
            let to = (&raw mut entry).cast();
            match ((*(*cq).ops).readfrom)(cq, to, 1, &mut source) {
                1 => return entry,
                rc => assert_eq!(rc, AGAIN),
            }
        }
        assert!(start.elapsed() < HANG);
    }
}

unsafe fn mercury_messages(ep: *mut fid_ep, cq: *mut fid_cq, to: fi_addr_t) {
    let (mut room, out) = (vec![0u8; 16_384], bytes(1_000));
    // SAFETY: objects of the provider, and memory that lives until all has ended.
    unsafe {
        let iov = libc::iovec {
            iov_base: room.as_mut_ptr().cast(),
            iov_len: room.len(),
        };
        let msg = fi_msg {
            msg_iov: &iov,
            desc: null_mut(),
            iov_count: 1,
            addr: FI_ADDR_UNSPEC,
            context: 5 as *mut c_void,
            data: 0,
        };
        let ops = &*(*ep).msg;
        assert_eq!((ops.recvmsg)(ep, &msg, FI_MULTI_RECV), 0);
        let (from, none) = (out.as_ptr().cast(), null_mut());
        let rc = (ops.senddata)(ep, from, out.len(), none, 77, to, 6 as *mut c_void);
        assert_eq!(rc, 0);
        let entries = [entry(cq), entry(cq)];
        let got = entries.iter().find(|entry| entry.flags & FI_RECV != 0);
        let got = got.expect("the message");
        assert_eq!((got.data, got.len), (77, out.len()));
        assert_eq!(room[..1_000], out);
        assert_eq!(((*(*cq).ops).signal)(cq), 0);
        let cancel = (*(*ep).ops).cancel;
        assert_eq!(cancel(ep.cast(), 5 as *mut c_void), 0);
        let mut failed: fi_cq_err_entry = zeroed();
        let start = Instant::now();
        while ((*(*cq).ops).readerr)(cq, &mut failed, 0) != 1 {
            let mut other: fi_cq_tagged_entry = zeroed();
            let rc = ((*(*cq).ops).read)(cq, (&raw mut other).cast(), 1);
            assert!(rc == AGAIN || rc == -259);
            assert!(start.elapsed() < HANG);
        }
        assert_eq!(failed.err, libc::ECANCELED);
    }
}

unsafe fn mercury_bulk(o: &Opened, ep: *mut fid_ep, cq: *mut fid_cq, to: fi_addr_t) {
    let mut there = vec![0u8; 200_000];
    let mr = o.register(&mut there, FI_REMOTE_READ | FI_REMOTE_WRITE);
    let (mut out, mut back) = (bytes(90_000), vec![0u8; 90_000]);
    // SAFETY: objects of the provider, and memory that lives until all has ended.
    unsafe {
        let (base, key) = (there.as_ptr() as u64, (*mr).key);
        let piece = |at: u64, len| fi_rma_iov {
            addr: base + at,
            len,
            key,
        };
        let pieces = [piece(0, 10_000), piece(100_000, 80_000)];
        for (reads, local) in [(false, &mut out), (true, &mut back)] {
            let flags = match reads {
                true => FI_COMPLETION,
                false => FI_COMPLETION | FI_DELIVERY_COMPLETE,
            };
            let local = (&mut local[..], 33_000, to);
            assert_eq!(remote(ep, reads, local, &pieces, (8, flags, 0)), 0);
            assert_eq!(entry(cq).op_context as usize, 8);
        }
        assert!(back == out);
        assert_eq!(close(mr.cast()), 0);
    }
}

/// NCCL's plugin without FI_HMEM: attributes, and sizes by `fi_getopt`.
#[test]
fn the_plugin_of_nccl_finds_its_sizes() {
    if !offers_remote("the_plugin_of_nccl_finds_its_sizes") {
        return;
    }
    let o = Opened::new(API, |(hints, tx, rx, domain)| {
        hints.caps = FI_MSG | FI_RMA | FI_LOCAL_COMM | FI_REMOTE_COMM;
        hints.mode = FI_CONTEXT | FI_CONTEXT2;
        (tx.msg_order, rx.msg_order) = (FI_ORDER_SAS, FI_ORDER_SAS);
        domain.mr_mode = BY_ADDRESS | FI_MR_LOCAL | FI_MR_ENDPOINT;
        (domain.mr_key_size, domain.cq_data_size) = (2, 4);
        domain.threading = FI_THREAD_COMPLETION;
    });
    // SAFETY: objects of the provider.
    unsafe {
        let mut attr: fi_cq_attr = zeroed();
        attr.format = FI_CQ_FORMAT_DATA;
        let cq = o.cq(&mut attr);
        let ep = o.endpoint(&[(cq.cast(), FI_TRANSMIT | FI_RECV)]);
        let inject = (*(*o.info).tx_attr).inject_size;
        let longest = (*(*o.info).ep_attr).max_msg_size;
        let getopt = (*(*ep).ops).getopt;
        for (option, expected) in [
            (FI_OPT_MAX_MSG_SIZE, longest),
            (FI_OPT_MAX_TAGGED_SIZE, longest),
            (FI_OPT_MAX_RMA_SIZE, longest),
            (FI_OPT_MAX_ATOMIC_SIZE, 64 << 10),
            (FI_OPT_INJECT_MSG_SIZE, inject),
            (FI_OPT_INJECT_TAGGED_SIZE, inject),
            (FI_OPT_INJECT_RMA_SIZE, inject),
            (FI_OPT_INJECT_ATOMIC_SIZE, inject),
        ] {
            let (mut value, mut len) = (0usize, size_of::<usize>());
            let to = (&raw mut value).cast();
            let rc = getopt(ep.cast(), FI_OPT_ENDPOINT, option, to, &mut len);
            assert_eq!((rc, value, len), (0, expected, 8), "{option}");
        }
        // The plugin permits CUDA calls, which mean nothing here, and expects success.
        let (permitted, cuda_api) = ([0u8; 1], 10);
        let setopt = (*(*ep).ops).setopt;
        let rc = setopt(
            ep.cast(),
            FI_OPT_ENDPOINT,
            cuda_api,
            permitted.as_ptr().cast(),
            1,
        );
        assert_eq!(rc, -libc::ENOPROTOOPT);
        o.close(&[ep.cast(), cq.cast()]);
    }
}
