//! Sleep on descriptors as applications do by libfabric's inline functions, `fi_trywait` and then
//! `poll`; and poll sets. Timeouts are reached only by hangs.

use crate::abi;

use crate::common;

use abi::*;
use common::pair::{Pair, API, HANG};
use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::ptr::null_mut;

const AGAIN: c_int = -libc::EAGAIN;

fn sleepers() -> Pair {
    Pair::waiting(API, FI_AV_TABLE, [FI_WAIT_FD, FI_WAIT_FD])
}

/// `fi_trywait`.
fn trywait(p: &Pair, fids: &[*mut fid]) -> c_int {
    let mut fids = fids.to_vec();
    // SAFETY: open handles.
    unsafe { ((*(*p.fabric).ops).trywait)(p.fabric, fids.as_mut_ptr(), fids.len() as c_int) }
}

/// The result of `fi_control` and the int that the command returns.
fn ask(fid: *mut fid, command: c_int) -> (c_int, c_int) {
    let mut given: c_int = -1;
    // SAFETY: an open handle; both commands give an int.
    let rc = unsafe { ((*(*fid).ops).control)(fid, command, (&raw mut given).cast()) };
    (rc, given)
}

/// The descriptor of an object.
fn descriptor(fid: *mut fid) -> c_int {
    assert_eq!(ask(fid, FI_GETWAITOBJ), (0, FI_WAIT_FD));
    let (rc, fd) = ask(fid, FI_GETWAIT);
    assert!(rc == 0 && fd >= 0);
    fd
}

/// Waits up to `ms` until a descriptor is readable.
fn rings(fd: c_int, ms: u128) -> bool {
    let mut polled = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry.
    unsafe { libc::poll(&mut polled, 1, ms as c_int) == 1 }
}

#[test]
fn a_queue_wakes_its_reader_whom_the_thread_serves() {
    let p = sleepers();
    let (cq, fd) = (p.cq.cast(), descriptor(p.cq.cast()));
    for round in 0..20u64 {
        let mut buf = [0u8; 8];
        assert_eq!(trywait(&p, &[cq]), 0);
        assert!(!rings(fd, 0), "nothing came");
        p.trecv(&mut buf, round, 0, 1);
        assert_eq!(trywait(&p, &[cq]), 0, "a receive alone is no news");
        p.tinject(b"injected", round);
        // The application makes no calls meanwhile.
        assert!(rings(fd, HANG.as_millis()), "it slept over a message");
        assert_eq!(trywait(&p, &[cq]), AGAIN, "it is not read yet");
        assert_eq!(p.entry().0.op_context as usize, 1);
        assert_eq!(&buf, b"injected");
    }
    // SAFETY: an open queue.
    unsafe {
        assert_eq!(trywait(&p, &[cq]), 0);
        assert_eq!(((*(*p.cq).ops).signal)(p.cq), 0);
    }
    assert!(rings(fd, 0), "fi_cq_signal");
    p.close();
}

#[test]
fn a_counter_wakes_its_reader() {
    let p = sleepers();
    let (counter, fd) = (p.counter.cast(), descriptor(p.counter.cast()));
    // SAFETY: an open counter.
    unsafe {
        let ops = &*(*p.counter).ops;
        for (change, value) in [(ops.add, 1), (ops.set, 7), (ops.adderr, 1)] {
            assert_eq!(trywait(&p, &[p.cq.cast(), counter]), 0);
            assert!(!rings(fd, 0));
            change(p.counter, value);
            assert!(rings(fd, 0));
            assert_eq!(trywait(&p, &[p.cq.cast(), counter]), AGAIN);
            (ops.read)(p.counter);
        }
        assert_eq!(trywait(&p, &[counter]), 0);
    }
    p.close();
}

#[test]
fn an_event_queue_wakes_its_reader() {
    let p = Pair::open();
    // SAFETY: objects of the provider, used as the libfabric headers say.
    unsafe {
        let mut attr: fi_eq_attr = zeroed();
        attr.wait_obj = FI_WAIT_FD;
        let mut eq = null_mut();
        let open = (*(*p.fabric).ops).eq_open;
        assert_eq!(open(p.fabric, &mut attr, &mut eq, null_mut()), 0);
        let (ops, fd) = (&*(*eq).ops, descriptor(eq.cast()));
        assert_eq!(trywait(&p, &[eq.cast()]), 0);
        assert!(!rings(fd, 0));
        assert_eq!((ops.write)(eq, 3, b"body".as_ptr().cast(), 4, 0), 4);
        assert!(rings(fd, 0));
        assert_eq!(trywait(&p, &[eq.cast()]), AGAIN);
        let (mut event, mut body) = (0, [0u8; 4]);
        let n = (ops.read)(eq, &mut event, body.as_mut_ptr().cast(), 4, 0);
        assert_eq!((n, event, &body), (4, 3, b"body"));
        assert_eq!(trywait(&p, &[eq.cast()]), 0);
        assert_eq!(common::close(eq.cast()), 0);
    }
    p.close();
}

#[test]
fn objects_that_are_polled_have_no_descriptor() {
    let p = Pair::open();
    let nodata = (-libc::ENODATA, -1);
    assert_eq!(ask(p.cq.cast(), FI_GETWAIT), nodata);
    assert_eq!(ask(p.counter.cast(), FI_GETWAIT), nodata);
    assert_eq!(trywait(&p, &[p.cq.cast(), p.counter.cast()]), 0);
    assert_eq!(trywait(&p, &[p.domain.cast()]), -libc::EINVAL);
    p.close();
}

#[test]
fn a_poll_set_returns_the_members_with_news() {
    let p = Pair::open();
    // SAFETY: objects of the provider, used as the libfabric headers say.
    unsafe {
        let (mut set, mut attr) = (null_mut(), fi_poll_attr { flags: 0 });
        let open = (*(*p.domain).ops).poll_open;
        assert_eq!(open(p.domain, &mut attr, &mut set), 0);
        (*p.cq).fid.context = 11 as *mut c_void;
        (*p.counter).fid.context = 22 as *mut c_void;
        let ops = &*(*set).ops;
        let ask = || {
            let mut found = [null_mut(); 2];
            let n = (ops.poll)(set, found.as_mut_ptr(), 2);
            found[..n as usize].iter().map(|c| *c as usize).collect()
        };
        let none: Vec<usize> = ask();
        assert!(none.is_empty());
        assert_eq!((ops.poll_add)(set, p.cq.cast(), 0), 0);
        assert_eq!((ops.poll_add)(set, p.counter.cast(), 0), 0);
        assert_eq!((ops.poll_add)(set, p.domain.cast(), 0), -libc::EINVAL);
        assert_eq!(ask(), none);
        let mut buf = [0u8; 8];
        p.trecv(&mut buf, 5, 0, 1);
        p.tinject(b"injected", 5);
        let start = std::time::Instant::now();
        while ask() != [11] {
            assert!(start.elapsed() < HANG); // `fi_poll` makes progress
        }
        ((*(*p.counter).ops).add)(p.counter, 1);
        assert_eq!(ask(), [11, 22]);
        assert_eq!(common::close(p.cq.cast()), -libc::EBUSY);
        assert_eq!(common::close(p.counter.cast()), -libc::EBUSY);
        assert_eq!((ops.poll_del)(set, p.cq.cast(), 0), 0);
        assert_eq!((ops.poll_del)(set, p.cq.cast(), 0), -libc::EINVAL);
        assert_eq!(ask(), [22]);
        assert_eq!(p.entry().0.op_context as usize, 1);
        // A queue with no other user: it cannot be closed while in the set, then it can.
        let (mut attr, mut lone): (fi_cq_attr, _) = (zeroed(), null_mut());
        let cq_open = (*(*p.domain).ops).cq_open;
        assert_eq!(cq_open(p.domain, &mut attr, &mut lone, null_mut()), 0);
        assert_eq!((ops.poll_add)(set, lone.cast(), 0), 0);
        assert_eq!(common::close(lone.cast()), -libc::EBUSY);
        assert_eq!((ops.poll_del)(set, lone.cast(), 0), 0);
        assert_eq!(common::close(lone.cast()), 0);
        assert_eq!(common::close(set.cast()), 0);
    }
    p.close(); // includes the counter: the set is closed
}
