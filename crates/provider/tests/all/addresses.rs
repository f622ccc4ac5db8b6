//! Address vectors: indices of inserted and removed addresses.

use crate::abi;

use crate::common;

use abi::*;
use common::pair::{Pair, API};
use std::ffi::c_int;
use std::ptr::null_mut;

/// The blob of an index.
fn blob(p: &Pair, addr: fi_addr_t) -> [u8; 64] {
    let (mut blob, mut len) = ([0u8; 64], 64);
    // SAFETY: an address has 64 bytes.
    let rc = unsafe { ((*(*p.av).ops).lookup)(p.av, addr, blob.as_mut_ptr().cast(), &mut len) };
    assert_eq!(rc, 0);
    blob
}

fn insert(p: &Pair, blob: &[u8; 64]) -> fi_addr_t {
    let mut addr = 0;
    let from = blob.as_ptr().cast();
    // SAFETY: one address of 64 bytes.
    let n = unsafe { ((*(*p.av).ops).insert)(p.av, from, 1, &mut addr, 0, null_mut()) };
    assert_eq!(n, 1);
    addr
}

fn remove(p: &Pair, addr: fi_addr_t) -> c_int {
    let mut addr = addr;
    // SAFETY: one address.
    unsafe { ((*(*p.av).ops).remove)(p.av, &mut addr, 1, 0) }
}

/// The second endpoint receives a message from the first; returns the reported source.
fn source(p: &Pair, tag: u64) -> fi_addr_t {
    let mut buf = [0u8; 8];
    p.trecv(&mut buf, tag, 0, 1);
    p.tinject(b"who is i", tag);
    let (entry, source) = p.entry();
    assert_eq!(entry.tag, tag);
    source
}

#[test]
fn a_source_has_an_index_that_is_there() {
    for av_type in [FI_AV_TABLE, FI_AV_MAP] {
        let p = Pair::with(API, av_type);
        let name = blob(&p, 0);
        assert_eq!(source(&p, 1), 0);
        let second = insert(&p, &name);
        assert_eq!(source(&p, 2), 0, "the first of two");
        assert_eq!(remove(&p, 0), 0);
        assert_eq!(source(&p, 3), second);
        assert_eq!(remove(&p, second), 0);
        assert_eq!(source(&p, 4), FI_ADDR_UNSPEC, "no index names it");
        let third = insert(&p, &name);
        assert_eq!(source(&p, 5), third);
        p.close();
    }
}

/// Completion entries whose source is removed before they are read.
#[test]
fn a_late_entry_does_not_name_another_source() {
    let p = Pair::open();
    let (name, second) = (blob(&p, 0), blob(&p, 1));
    // Not index 0, which is never reused.
    assert_eq!(remove(&p, 0), 0);
    let addr = insert(&p, &name);
    let (mut one, mut two) = ([0u8; 8], [0u8; 8]);
    p.trecv(&mut one, 1, 0, 11);
    p.trecv(&mut two, 2, 0, 22);
    p.tinject(b"it waits", 1);
    p.tinject(b"till now", 2);
    assert_eq!(p.entry().0.op_context as usize, 11);
    loop {
        // SAFETY: progress without reading the queue.
        unsafe { ((*(*p.counter).ops).read)(p.counter) };
        if two == *b"till now" {
            break;
        }
    }
    assert_eq!(remove(&p, addr), 0);
    assert_eq!(insert(&p, &second), addr, "the slot is used again");
    let (entry, source) = p.entry();
    assert_eq!((entry.op_context as usize, source), (22, FI_ADDR_UNSPEC));
    p.close();
}

#[test]
fn an_address_vector_does_not_grow() {
    for av_type in [FI_AV_TABLE, FI_AV_MAP] {
        let p = Pair::with(API, av_type);
        let name = blob(&p, 1);
        let mut old = insert(&p, &name);
        for _ in 0..5_000 {
            assert_eq!(remove(&p, old), 0);
            assert_eq!(remove(&p, old), -libc::EINVAL, "it is gone");
            let new = insert(&p, &name);
            assert!(new as u32 <= 3, "index {new:#x}");
            assert_ne!(new, 0, "MPICH takes 0 for none");
            if av_type == FI_AV_MAP {
                // A stale address is refused although its slot is in use again.
                let body = b"late".as_ptr().cast();
                // SAFETY: the buffer is free when the call returns.
                let rc = unsafe { (p.tagged().inject)(p.ep[0], body, 4, old, 1) };
                assert_eq!(rc, -(libc::EINVAL as isize));
            }
            old = new;
        }
        p.close();
    }
}

/// Removes index 0, so that the first endpoint is an unknown source; returns its name.
fn remove_first(p: &Pair) -> [u8; 64] {
    let name = blob(p, 0);
    assert_eq!(remove(p, 0), 0);
    name
}

/// FI_SOURCE_ERR: the message is received, and its error entry holds the sender's address.
#[test]
fn a_stranger_s_address_comes_with_its_message() {
    let p = Pair::offering(FI_MSG | FI_TAGGED | FI_SOURCE | FI_SOURCE_ERR);
    assert_eq!(source(&p, 1), 0, "whom one knows makes no error");
    let name = remove_first(&p);
    for (tag, room) in [(2, 0), (3, 64), (4, 10)] {
        let mut buf = [0u8; 8];
        p.trecv(&mut buf, tag, 0, 7);
        p.tinject(b"who is i", tag);
        let mut own = [0xeeu8; 64];
        let told = p.error_into(&mut own[..room]);
        assert_eq!(told.err, libc::EADDRNOTAVAIL);
        assert_eq!((told.op_context as usize, told.tag, told.len), (7, tag, 8));
        assert_eq!(&buf, b"who is i");
        assert_eq!(told.err_data_size, if room == 0 { 64 } else { room });
        // SAFETY: the data stays valid until the next error is read.
        let data =
            unsafe { std::slice::from_raw_parts(told.err_data.cast::<u8>(), told.err_data_size) };
        assert_eq!(data[..8], name[..8], "the sender's identity");
        if room != 10 {
            let known = insert(&p, data.try_into().unwrap());
            assert_eq!(source(&p, 10 + tag), known);
            assert_eq!(remove(&p, known), 0);
        }
        assert!(own[room..].iter().all(|b| *b == 0xee));
    }
    p.close();
}

/// A truncated message is reported as truncated, whatever its source.
#[test]
fn an_error_without_a_stranger_has_no_data() {
    let p = Pair::offering(FI_MSG | FI_TAGGED | FI_SOURCE | FI_SOURCE_ERR);
    remove_first(&p);
    let (mut short, mut long) = ([0u8; 4], [0u8; 8]);
    p.trecv(&mut short, 1, 0, 1);
    p.trecv(&mut long, 2, 0, 2);
    p.tinject(b"too long", 1);
    let cut = p.error();
    assert_eq!((cut.op_context as usize, cut.err), (1, 265));
    assert_eq!(cut.err_data_size, 0);
    p.tinject(b"it fits.", 2);
    let told = p.error();
    assert_eq!((told.op_context as usize, told.err_data_size), (2, 64));
    p.close();
}

#[test]
fn strangers_make_errors_only_where_that_is_asked_for() {
    let p = Pair::open();
    remove_first(&p);
    assert_eq!(source(&p, 1), FI_ADDR_UNSPEC);
    p.close();
}
