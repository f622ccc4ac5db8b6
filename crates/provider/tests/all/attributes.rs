//! Acceptable hints, the contents of replies, and attributes that are refused on opening rather
//! than in use. The library is loaded, and called as libfabric's core calls it.

use crate::abi;

use crate::common;

use abi::*;
use common::pair::{Pair, API};
use common::Library;
use std::ffi::{c_int, c_void};
use std::mem::{size_of, zeroed};
use std::ptr::{null, null_mut};

const ENODATA: c_int = -libc::ENODATA;
const ENOSYS: c_int = -libc::ENOSYS;
const COMM: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;

/// Empty hints with all attribute structs.
struct Hints {
    info: fi_info,
    tx: Box<fi_tx_attr>,
    rx: Box<fi_rx_attr>,
    ep: Box<fi_ep_attr>,
    domain: Box<fi_domain_attr>,
}

impl Hints {
    fn new() -> Hints {
        // SAFETY: all zero is what `fi_allocinfo` gives.
        unsafe {
            Hints {
                info: zeroed(),
                tx: Box::new(zeroed()),
                rx: Box::new(zeroed()),
                ep: Box::new(zeroed()),
                domain: Box::new(zeroed()),
            }
        }
    }

    /// The hints' fi_info; valid as long as the hints.
    fn info(&mut self) -> *mut fi_info {
        self.info.tx_attr = &mut *self.tx;
        self.info.rx_attr = &mut *self.rx;
        self.info.ep_attr = &mut *self.ep;
        self.info.domain_attr = &mut *self.domain;
        &mut self.info
    }
}

/// The result of `fi_getinfo` for hints changed by `ask`.
fn asked(library: &Library, ask: impl FnOnce(&mut Hints)) -> c_int {
    let mut hints = Hints::new();
    ask(&mut hints);
    match library.getinfo(API, hints.info()) {
        Ok(info) => {
            // SAFETY: just made.
            unsafe { common::free_info(info) };
            0
        }
        Err(e) => e,
    }
}

type Ask = fn(&mut Hints);

#[test]
fn hints_beyond_a_limit_are_refused() {
    let library = Library::open();
    assert_eq!(asked(&library, |_| ()), 0);
    let too_much: [(&str, Ask); 20] = [
        ("max_ep_tx_ctx", |h| h.domain.max_ep_tx_ctx = 2),
        ("max_ep_rx_ctx", |h| h.domain.max_ep_rx_ctx = 2),
        ("max_ep_stx_ctx", |h| h.domain.max_ep_stx_ctx = 1),
        ("max_ep_srx_ctx", |h| h.domain.max_ep_srx_ctx = 1),
        ("mr_iov_limit", |h| h.domain.mr_iov_limit = 9),
        ("rma_iov_limit", |h| h.tx.rma_iov_limit = 9),
        ("ep_cnt", |h| h.domain.ep_cnt = 1 << 20),
        ("cq_cnt", |h| h.domain.cq_cnt = 1 << 20),
        ("tx_ctx_cnt", |h| h.domain.tx_ctx_cnt = 1 << 20),
        ("rx_ctx_cnt", |h| h.domain.rx_ctx_cnt = 1 << 20),
        ("cntr_cnt", |h| h.domain.cntr_cnt = 1 << 20),
        ("mr_cnt", |h| h.domain.mr_cnt = 1 << 20),
        ("max_err_data", |h| h.domain.max_err_data = 1),
        ("domain caps", |h| h.domain.caps = FI_TAGGED),
        ("protocol_version", |h| h.ep.protocol_version = 99),
        ("total_buffered_recv", |h| h.rx.total_buffered_recv = 1),
        ("iov_limit", |h| h.rx.iov_limit = 1 << 20),
        ("size", |h| h.tx.size = 1 << 20),
        ("src_addr", |h| h.info.src_addr = 8 as *mut c_void),
        ("dest_addr", |h| h.info.dest_addr = 8 as *mut c_void),
    ];
    for (what, ask) in too_much {
        assert_eq!(asked(&library, ask), ENODATA, "{what}");
    }
}

/// Applications open a reply by passing it as hints.
#[test]
fn the_reply_may_be_asked_for() {
    let library = Library::open();
    let info = library.getinfo(API, null()).unwrap();
    // SAFETY: both were just made; memory of a reply comes from malloc.
    unsafe {
        let again = library.getinfo(API, info).expect("what was just offered");
        common::free_info(again);
        common::free_info(info);
    }
}

#[test]
fn reachability_is_a_capability_of_the_domain() {
    let library = Library::open();
    for caps in [0, FI_TAGGED | FI_MSG, FI_TAGGED | COMM] {
        let mut hints = Hints::new();
        hints.info.caps = caps;
        let info = library.getinfo(API, hints.info()).unwrap();
        // SAFETY: a reply has all of them.
        unsafe {
            let (tx, rx) = (&*(*info).tx_attr, &*(*info).rx_attr);
            assert_eq!((tx.caps & COMM, rx.caps & COMM), (0, 0));
            assert_eq!((*info).caps & COMM, COMM);
            assert_eq!((*(*info).domain_attr).caps, COMM);
            common::free_info(info);
        }
    }
}

#[test]
fn unusable_objects_are_not_opened() {
    let p = Pair::open();
    let none = null_mut();
    // SAFETY: objects of the provider, used as the libfabric headers say.
    unsafe {
        let ops = &*(*p.domain).ops;
        let (mut cntr, mut cq, mut av) = (null_mut(), null_mut(), null_mut());
        for wait_obj in [FI_WAIT_SET, FI_WAIT_MUTEX_COND, FI_WAIT_POLLFD] {
            let mut attr: fi_cntr_attr = zeroed();
            attr.wait_obj = wait_obj;
            let rc = (ops.cntr_open)(p.domain, &mut attr, &mut cntr, none);
            assert_eq!(rc, ENOSYS, "a counter with wait object {wait_obj}");
            let mut attr: fi_cq_attr = zeroed();
            attr.wait_obj = wait_obj;
            let rc = (ops.cq_open)(p.domain, &mut attr, &mut cq, none);
            assert_eq!(rc, ENOSYS, "a queue with wait object {wait_obj}");
        }
        let mut attr: fi_cq_attr = zeroed();
        (attr.wait_obj, attr.wait_cond) = (FI_WAIT_UNSPEC, 1);
        let rc = (ops.cq_open)(p.domain, &mut attr, &mut cq, none);
        assert_eq!(rc, ENOSYS, "waiting for a number of entries");
        for (flags, type_, error) in [
            (FI_AV_USER_ID, FI_AV_TABLE, ENOSYS),
            (FI_EVENT, FI_AV_TABLE, ENOSYS),
            (1 << 62, FI_AV_TABLE, -260),
            (0, 7, -libc::EINVAL),
        ] {
            let mut attr: fi_av_attr = zeroed();
            (attr.flags, attr.type_) = (flags, type_);
            let rc = (ops.av_open)(p.domain, &mut attr, &mut av, none);
            assert_eq!(rc, error, "flags {flags:#x}, type {type_}");
        }
        // Events that are not counted cannot be bound to a counter.
        let ep: *mut fid = p.ep[0].cast();
        for flags in [FI_MULTI_RECV, FI_RECV | FI_EVENT] {
            let rc = ((*(*ep).ops).bind)(ep, p.counter.cast(), flags);
            assert_eq!(rc, ENOSYS, "counting {flags:#x}");
        }
    }
    p.close();
}

#[test]
fn memory_of_a_device_is_not_registered() {
    let p = Pair::open();
    let mut memory = [0u8; 64];
    let iov = libc::iovec {
        iov_base: memory.as_mut_ptr().cast(),
        iov_len: 64,
    };
    // SAFETY: the memory lives to the end.
    unsafe {
        let mut attr: fi_mr_attr = zeroed();
        attr.basic.mr_iov = &iov;
        attr.basic.iov_count = 1;
        attr.basic.access = FI_REMOTE_READ;
        let ops = &*(*p.domain).mr;
        let register = |attr: &fi_mr_attr, flags| {
            let mut mr: *mut fid_mr = null_mut();
            let rc = (ops.regattr)(p.domain.cast(), attr, flags, &mut mr);
            if rc == 0 {
                assert_eq!(common::close(mr.cast()), 0);
            }
            rc
        };
        assert_eq!(register(&attr, 0), 0);
        attr.iface = 1; // FI_HMEM_CUDA
        assert_eq!(register(&attr, 0), ENOSYS, "a GPU's memory");
        attr.iface = 0;
        assert_eq!(register(&attr, FI_MR_DMABUF), ENOSYS, "a DMA buffer");
        assert_eq!(register(&attr, 1 << 62), -260, "an unknown flag");
        attr.basic.offset = 8;
        assert_eq!(
            register(&attr, 0),
            -libc::EINVAL,
            "an offset, which is reserved"
        );
    }
    p.close();
}

#[test]
fn an_endpoint_beyond_the_offer_is_refused() {
    let p = Pair::open();
    let open = |ask: fn(&mut Hints)| {
        let mut hints = Hints::new();
        ask(&mut hints);
        let mut ep = null_mut();
        // SAFETY: objects of the provider.
        unsafe {
            let rc = ((*(*p.domain).ops).endpoint)(p.domain, hints.info(), &mut ep, null_mut());
            if rc == 0 {
                assert_eq!(common::close(ep.cast()), 0);
            }
            rc
        }
    };
    assert_eq!(open(|_| ()), 0);
    assert_eq!(open(|h| h.ep.type_ = 1), -libc::EINVAL, "FI_EP_MSG");
    assert_eq!(open(|h| h.info.caps = FI_HMEM), -libc::EINVAL);
    assert_eq!(open(|h| h.tx.op_flags = FI_FENCE), -libc::EINVAL);
    assert_eq!(open(|h| h.ep.rx_ctx_cnt = FI_SHARED_CONTEXT), -libc::EINVAL);
    p.close();
}

/// `fi_cq_readerr` writes exactly the fields of the caller's version of the entry.
#[test]
fn an_error_entry_is_as_long_as_its_reader_knows() {
    let whole = size_of::<fi_cq_err_entry>();
    for (api, len) in [
        (fi_version_of(1, 4), whole - 16),
        (fi_version_of(1, 5), whole - 8),
        (fi_version_of(1, 19), whole - 8),
        (API, whole),
    ] {
        let p = Pair::with(api, FI_AV_MAP);
        assert_eq!(p.trecvmsg(&mut [], 3, 31, FI_PEEK | FI_COMPLETION), 0);
        let mut room = [0xa5_u8; size_of::<fi_cq_err_entry>() + 8];
        let entry = room.as_mut_ptr().cast();
        while p.poll().err() != Some(-259) {}
        // SAFETY: there is room for the longest entry.
        let rc = unsafe { ((*(*p.cq).ops).readerr)(p.cq, entry, 0) };
        assert_eq!(rc, 1);
        assert_eq!(room[0], 31, "the context");
        let beyond = room[len..].iter().filter(|b| **b != 0xa5).count();
        assert_eq!(
            beyond, 0,
            "bytes written beyond {len}, API version {api:#x}"
        );
        p.close();
    }
}

/// Four iovec entries by default, up to eight on request.
#[test]
fn iov_limits_up_to_eight_are_granted() {
    let library = Library::open();
    for (wished, granted) in [(0, Some(4)), (4, Some(4)), (8, Some(8)), (9, None)] {
        let mut hints = Hints::new();
        hints.tx.iov_limit = wished;
        let info = library.getinfo(API, hints.info());
        // SAFETY: a reply has all of them.
        let found = info.map(|info| unsafe {
            let limit = (*(*info).tx_attr).iov_limit;
            common::free_info(info);
            limit
        });
        assert_eq!(found.ok(), granted);
    }
}
