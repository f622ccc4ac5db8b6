//! Addresses as text (`FI_ADDR_STR`).

use crate::abi;

use crate::common;

use abi::*;
use common::pair::Pair;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::ptr::{null, null_mut};

const TOO_SMALL: c_int = -257;

fn with_text() -> Pair {
    Pair::strangers(|hints| hints.addr_format = FI_ADDR_STR)
}

/// The answer of `fi_getname`.
fn name(p: &Pair, ep: usize) -> CString {
    let mut text = [0x7eu8; 256];
    let (mut none, mut len, mut short) = (0, text.len(), 20);
    // SAFETY: buffers of the sizes named.
    unsafe {
        let getname = (*(*p.ep[ep]).cm).getname;
        let fid = p.ep[ep].cast();
        assert_eq!(getname(fid, null_mut(), &mut none), TOO_SMALL);
        assert_eq!(
            getname(fid, text.as_mut_ptr().cast(), &mut short),
            TOO_SMALL
        );
        assert_eq!(text[18..21], [text[18], 0, 0x7e], "cut off with its zero");
        assert_eq!(getname(fid, text.as_mut_ptr().cast(), &mut len), 0);
    }
    assert_eq!((none, short), (len, len), "the whole length each time");
    let text = CStr::from_bytes_with_nul(&text[..len]).unwrap();
    text.to_owned()
}

/// Inserts texts in one call: returns the number inserted, the indices, and the errors.
fn insert(p: &Pair, texts: &[Option<&CStr>]) -> (c_int, Vec<fi_addr_t>, Vec<c_int>) {
    let pointers: Vec<*const c_char> = texts
        .iter()
        .map(|text| text.map_or(null(), CStr::as_ptr))
        .collect();
    let (mut found, mut errors) = (vec![7; texts.len()], vec![7; texts.len()]);
    // SAFETY: arrays of that length.
    let n = unsafe {
        ((*(*p.av).ops).insert)(
            p.av,
            pointers.as_ptr().cast(),
            texts.len(),
            found.as_mut_ptr(),
            FI_SYNC_ERR,
            errors.as_mut_ptr().cast(),
        )
    };
    (n, found, errors)
}

/// Inserts `count` addresses from `at`; returns as [`insert`].
fn insert_at(p: &Pair, at: *const c_void, count: usize) -> (c_int, Vec<fi_addr_t>, Vec<c_int>) {
    let (mut found, mut errors) = (vec![7; count], vec![7; count]);
    let (to, told) = (found.as_mut_ptr(), errors.as_mut_ptr().cast());
    // SAFETY: room for all answers; the provider checks the memory at `at`.
    let n = unsafe { ((*(*p.av).ops).insert)(p.av, at, count, to, FI_SYNC_ERR, told) };
    (n, found, errors)
}

/// As Mercury does: passes the buffer with the name, not a pointer to it.
#[test]
fn a_text_itself_is_as_good_as_a_pointer_to_it() {
    let p = with_text();
    let mut buffer = [0x7e_u8; 128];
    let mut len = buffer.len();
    // SAFETY: a buffer of this size.
    unsafe {
        let getname = (*(*p.ep[1]).cm).getname;
        assert_eq!(
            getname(p.ep[1].cast(), buffer.as_mut_ptr().cast(), &mut len),
            0
        );
    }
    assert!(len < buffer.len());
    assert_eq!(
        insert_at(&p, buffer.as_ptr().cast(), 1),
        (1, vec![0], vec![0])
    );
    talk(&p, 0);
    // Several adjacent texts, as libfabric's shm accepts them; the second is not an address.
    let names = [name(&p, 0), c"fi_marline://no".to_owned(), name(&p, 1)];
    let row: Vec<u8> = names
        .iter()
        .flat_map(|n| n.as_bytes_with_nul().to_vec())
        .collect();
    let (none, bad) = (FI_ADDR_UNSPEC, libc::EINVAL);
    let all = (2, vec![1, none, 2], vec![0, bad, 0]);
    assert_eq!(insert_at(&p, row.as_ptr().cast(), 3), all);
    talk(&p, 2);
    p.close();
}

/// Bytes that are neither valid texts nor valid pointers: refused, without a crash.
#[test]
fn invalid_pointers_are_refused() {
    let p = with_text();
    let (none, bad) = (FI_ADDR_UNSPEC, libc::EINVAL);
    let refused = (0, vec![none], vec![bad]);
    let foreign = c"fi_sockaddr_in://127.0.0.1:4000";
    assert_eq!(insert_at(&p, foreign.as_ptr().cast(), 1), refused);
    let numbers = [1_usize, 4_096, usize::MAX, 0x7f31_0000_0000_0000, 0];
    for number in &numbers {
        let at: *const usize = number;
        assert_eq!(insert_at(&p, at.cast(), 1), refused, "{number:#x}");
        let nowhere = *number as *const c_void;
        if !nowhere.is_null() {
            assert_eq!(insert_at(&p, nowhere, 1), refused, "{number:#x}");
        }
    }
    p.close();
}

/// Sends from the first endpoint to `to`, the second.
fn talk(p: &Pair, to: fi_addr_t) {
    let mut buf = [0u8; 5];
    p.trecv(&mut buf, 1, 0, 1);
    // SAFETY: the buffer is free when the call returns.
    let rc = unsafe { (p.tagged().inject)(p.ep[0], b"hello".as_ptr().cast(), 5, to, 1) };
    assert_eq!(rc, 0);
    p.entry();
    assert_eq!(&buf, b"hello");
}

#[test]
fn endpoints_that_have_texts_of_each_other_talk() {
    let p = with_text();
    let names = [name(&p, 0), name(&p, 1)];
    let as_str = |at: usize| names[at].to_str().unwrap();
    assert!(as_str(0).starts_with("fi_marline://"), "{names:?}");
    let both = [Some(&*names[0]), Some(&*names[1])];
    assert_eq!(insert(&p, &both), (2, vec![0, 1], vec![0, 0]));
    talk(&p, 1);
    let (mut text, mut len) = ([0u8; 256], 256);
    let (mut shown, mut shown_len) = ([0 as c_char; 256], 256);
    // SAFETY: buffers of these sizes, and the text just looked up.
    unsafe {
        let ops = &*(*p.av).ops;
        let to = text.as_mut_ptr().cast();
        assert_eq!((ops.lookup)(p.av, 1, to, &mut len), 0);
        let at = (ops.straddr)(p.av, to, shown.as_mut_ptr(), &mut shown_len);
        assert_eq!(CStr::from_ptr(at), &*names[1]);
    }
    assert_eq!(&text[..len], names[1].as_bytes_with_nul());
    assert_eq!(shown_len, len);
    p.close();
}

/// `fi_av_straddr` of a blob gives the same text.
#[test]
fn a_blob_is_shown_as_its_text() {
    let p = Pair::open();
    let (mut blob, mut len) = ([0u8; 64], 64);
    let (mut shown, mut shown_len) = ([0x7e as c_char; 256], 256);
    // SAFETY: buffers of these sizes.
    unsafe {
        let ops = &*(*p.av).ops;
        let to: *mut c_void = blob.as_mut_ptr().cast();
        assert_eq!((ops.lookup)(p.av, 1, to, &mut len), 0);
        (ops.straddr)(p.av, to, shown.as_mut_ptr(), &mut shown_len);
        let text = CStr::from_ptr(shown.as_ptr()).to_owned();
        assert_eq!(text.as_bytes_with_nul().len(), shown_len);
        assert!(text.to_str().unwrap().starts_with("fi_marline://"));
        let nobody = [0u8; 64];
        (ops.straddr)(
            p.av,
            nobody.as_ptr().cast(),
            shown.as_mut_ptr(),
            &mut shown_len,
        );
        assert!(CStr::from_ptr(shown.as_ptr())
            .to_bytes()
            .starts_with(b"fi_marline://?00"));
    }
    p.close();
}

/// The host and port in an endpoint's text address.
fn place(p: &Pair, ep: usize) -> (String, String) {
    let name = name(p, ep).into_string().unwrap();
    let rest = name.strip_prefix("fi_marline://").unwrap();
    let (host, port) = rest.split_once('/').unwrap().0.rsplit_once(':').unwrap();
    (host.to_owned(), port.to_owned())
}

/// Inserts consecutive hosts and ports; returns as [`insert`].
fn insert_row(
    p: &Pair,
    (host, hosts): (&str, usize),
    (port, ports): (&str, usize),
    flags: u64,
) -> (c_int, Vec<fi_addr_t>, Vec<c_int>) {
    let names = [host.trim_matches(['[', ']']), port].map(|n| CString::new(n).unwrap());
    let count = hosts * ports;
    let (mut found, mut errors) = (vec![7; count], vec![7; count]);
    // SAFETY: arrays of that length.
    let n = unsafe {
        ((*(*p.av).ops).insertsym)(
            p.av,
            names[0].as_ptr(),
            hosts,
            names[1].as_ptr(),
            ports,
            found.as_mut_ptr(),
            FI_SYNC_ERR | flags,
            errors.as_mut_ptr().cast(),
        )
    };
    (n, found, errors)
}

fn looked_up(p: &Pair, addr: fi_addr_t) -> CString {
    let (mut text, mut len) = ([0u8; 256], 256);
    // SAFETY: a buffer of this size.
    let rc = unsafe { ((*(*p.av).ops).lookup)(p.av, addr, text.as_mut_ptr().cast(), &mut len) };
    assert_eq!(rc, 0);
    CString::from_vec_with_nul(text[..len].to_vec()).unwrap()
}

/// A port of another endpoint, whose first endpoint answers.
#[test]
fn an_address_of_host_and_port_is_resolved() {
    let (p, server) = (with_text(), with_text());
    let (host, port) = place(&server, 0);
    let text = CString::new(format!("fi_marline://{host}:{port}")).unwrap();
    assert_eq!(insert(&p, &[Some(&text)]), (1, vec![0], vec![0]));
    assert_eq!(looked_up(&p, 0), name(&server, 0));
    let found = insert_row(&p, (&host, 1), (&port, 1), FI_NUMERICHOST);
    assert_eq!(found, (1, vec![1], vec![0]));
    assert_eq!(looked_up(&p, 1), name(&server, 0));
    // A port of the endpoint's own process: the progress thread answers.
    let (host, port) = place(&p, 0);
    let [node, service] = [&host, &port].map(|n| CString::new(n.trim_matches(['[', ']'])).unwrap());
    let mut found = 7;
    // SAFETY: C strings, and room for an index.
    let n = unsafe {
        let insertsvc = (*(*p.av).ops).insertsvc;
        let (node, service) = (node.as_ptr(), service.as_ptr());
        insertsvc(p.av, node, service, &mut found, 0, null_mut())
    };
    assert_eq!((n, found), (1, 2));
    assert_eq!(looked_up(&p, 2), name(&p, 0));
    server.close();
    p.close();
}

#[test]
fn unused_hosts_and_ports_are_refused_one_by_one() {
    let p = with_text();
    let (host, port) = place(&p, 0);
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let nobody = free.local_addr().unwrap().port().to_string();
    drop(free);
    let (none, no) = (FI_ADDR_UNSPEC, libc::EADDRNOTAVAIL);
    for (host, port, flags, error) in [
        ("no.such.host.invalid", &*port, 0, no),
        ("localhost", &port, FI_NUMERICHOST, no),
        (&host, "0", 0, no),
        (&host, "no such service", 0, no),
        ("127.0.0.1", &nobody, 0, libc::ECONNREFUSED),
    ] {
        let refused = insert_row(&p, (host, 1), (port, 1), flags);
        assert_eq!(refused, (0, vec![none], vec![error]), "{host}:{port}");
    }
    let row = insert_row(&p, (&host, 1), ("65535", 3), FI_NUMERICHOST);
    assert_eq!(row.2[1..], [no, no], "there is no port 65536");
    // SAFETY: null arguments are refused before any access.
    let n = unsafe {
        let insertsvc = (*(*p.av).ops).insertsvc;
        insertsvc(p.av, null(), null(), null_mut(), 0, null_mut())
    };
    assert_eq!(n, -libc::EINVAL);
    p.close();
}

#[test]
fn texts_that_are_no_addresses_are_refused_one_by_one() {
    let p = with_text();
    let good = name(&p, 1);
    let mut cut = good.to_str().unwrap().to_owned();
    cut.pop();
    let cut = CString::new(cut).unwrap();
    let texts = [
        Some(c"fi_sockaddr_in://127.0.0.1:4000"),
        Some(&*cut),
        Some(&*good),
        Some(c"fi_marline://127.0.0.1:0"),
        None,
        Some(c"fi_marline://\xff:1"),
    ];
    let (n, found, errors) = insert(&p, &texts);
    let (no, bad) = (FI_ADDR_UNSPEC, libc::EINVAL);
    assert_eq!((n, found), (1, vec![no, no, 0, no, no, no]));
    assert_eq!(errors, [bad, bad, 0, bad, bad, bad]);
    talk(&p, 0);
    p.close();
}
