//! Ends in `fi_getinfo`: node and service, the local side (`FI_SOURCE`), peers, and domains of one
//! rail.

use crate::abi;

use crate::common;

use abi::*;
use common::pair::API;
use common::Library;
use std::ffi::{c_int, CStr, CString};
use std::mem::zeroed;
use std::net::UdpSocket;
use std::ptr::{null, null_mut};

const ENODATA: c_int = -libc::ENODATA;

/// The checked part of a reply, as text.
#[derive(Debug, PartialEq)]
struct Reply {
    src: String,
    dest: String,
    domain: String,
}

/// Hints for text addresses, which show most details.
fn text_hints() -> fi_info {
    // SAFETY: all zero is what `fi_allocinfo` gives.
    let mut hints: fi_info = unsafe { zeroed() };
    hints.addr_format = FI_ADDR_STR;
    hints
}

fn read(info: *mut fi_info) -> Reply {
    // SAFETY: a complete reply.
    unsafe {
        let text = |at: *mut std::ffi::c_void, len| match at.is_null() {
            true => String::new(),
            false => {
                let text = CStr::from_ptr(at.cast());
                assert_eq!(text.to_bytes_with_nul().len(), len);
                text.to_str().unwrap().to_owned()
            }
        };
        let i = &*info;
        let domain = CStr::from_ptr((*i.domain_attr).name);
        Reply {
            src: text(i.src_addr, i.src_addrlen),
            dest: text(i.dest_addr, i.dest_addrlen),
            domain: domain.to_str().unwrap().to_owned(),
        }
    }
}

fn asked(names: [Option<&CStr>; 2], flags: u64) -> Result<Reply, c_int> {
    let library = Library::open();
    let info = library.resolve(API, names, flags, &text_hints())?;
    let reply = read(info);
    // SAFETY: just made.
    unsafe { common::free_info(info) };
    Ok(reply)
}

/// The IP address of a default rail.
fn own_ip() -> String {
    let plain = asked([None, None], 0).unwrap();
    assert_eq!((&*plain.dest, &*plain.domain), ("", "marline"));
    let place = plain.src.strip_prefix("fi_marline://").unwrap();
    let (ip, port) = place.rsplit_once(':').unwrap();
    assert_eq!(port, "0", "any");
    ip.to_owned()
}

#[test]
fn a_peer_s_node_and_service_are_resolved() {
    let flags = FI_NUMERICHOST;
    let v4 = asked([Some(c"192.0.2.7"), Some(c"7471")], flags).unwrap();
    assert_eq!(v4.dest, "fi_marline://192.0.2.7:7471");
    assert_eq!(v4.src, asked([None, None], 0).unwrap().src);
    let v6 = asked([Some(c"2001:db8::7"), Some(c"7471")], flags).unwrap();
    assert_eq!(v6.dest, "fi_marline://[2001:db8::7]:7471");
    let name = asked([Some(c"localhost"), Some(c"7471")], 0).unwrap();
    assert!(name.dest.ends_with(":7471"), "{name:?}");
}

#[test]
fn the_own_side_has_the_port_that_was_named_or_one_rail() {
    let ip = own_ip();
    let all = asked([None, Some(c"7471")], FI_SOURCE).unwrap();
    let own = format!("fi_marline://{ip}:7471");
    assert_eq!((&*all.src, &*all.domain), (&*own, "marline"));
    let node = CString::new(ip.trim_matches(['[', ']'])).unwrap();
    let one = asked([Some(&node), Some(c"7471")], FI_SOURCE | FI_NUMERICHOST).unwrap();
    assert_eq!((&*one.src, &*one.dest), (&*own, ""));
    assert_ne!(one.domain, "marline", "a rail's name");
}

#[test]
fn unresolvable_names_are_refused() {
    for (names, flags) in [
        ([Some(c"no.such.host.invalid"), Some(c"7471")], 0),
        ([Some(c"localhost"), Some(c"7471")], FI_NUMERICHOST),
        (
            [Some(c"192.0.2.7"), Some(c"no such service")],
            FI_NUMERICHOST,
        ),
        ([Some(c"192.0.2.7"), Some(c"0")], FI_NUMERICHOST),
        ([Some(c"192.0.2.7"), None], FI_NUMERICHOST),
        ([None, Some(c"7471")], 0),
        ([Some(c"192.0.2.7"), Some(c"7471")], FI_SOURCE), // no address of this host
    ] {
        assert_eq!(asked(names, flags), Err(ENODATA), "{names:?}");
    }
}

/// Opens a domain and an endpoint from a reply, and returns the endpoint's name.
fn name_of(library: &Library, info: *mut fi_info) -> Result<String, c_int> {
    let fabric = library.fabric(API);
    let (mut domain, mut ep, none) = (null_mut(), null_mut(), null_mut());
    // SAFETY: objects of the provider, closed in order.
    unsafe {
        let rc = ((*(*fabric).ops).domain)(fabric, info, &mut domain, none);
        if rc != 0 {
            assert_eq!(common::close(fabric.cast()), 0);
            return Err(rc);
        }
        let rc = ((*(*domain).ops).endpoint)(domain, info, &mut ep, none);
        assert_eq!(rc, 0);
        let (mut text, mut len) = ([0u8; 256], 256);
        let getname = (*(*ep).cm).getname;
        assert_eq!(getname(ep.cast(), text.as_mut_ptr().cast(), &mut len), 0);
        for fid in [ep.cast::<fid>(), domain.cast(), fabric.cast()] {
            assert_eq!(common::close(fid), 0);
        }
        Ok(String::from_utf8(text[..len - 1].to_vec()).unwrap())
    }
}

#[test]
fn a_domain_has_the_side_that_was_named() {
    let library = Library::open();
    let ip = own_ip();
    // A port that was free a moment ago.
    let socket = UdpSocket::bind((ip.trim_matches(['[', ']']), 0)).unwrap();
    let port = socket.local_addr().unwrap().port();
    let service = CString::new(port.to_string()).unwrap();
    let info = library
        .resolve(API, [None, Some(&service)], FI_SOURCE, &text_hints())
        .unwrap();
    assert_eq!(name_of(&library, info), Err(-libc::ENODEV), "it is taken");
    drop(socket);
    let name = name_of(&library, info).unwrap();
    let place = format!("fi_marline://{ip}:{port}/");
    assert!(name.starts_with(&place), "{name}, {place}");
    // SAFETY: a reply of the provider.
    unsafe { common::free_info(info) };
}

#[test]
fn a_domain_of_one_rail_is_asked_for_by_its_name() {
    let library = Library::open();
    let ask = |name: &CStr| {
        let mut hints = text_hints();
        // SAFETY: all zero is no wish.
        let mut domain: fi_domain_attr = unsafe { zeroed() };
        domain.name = name.as_ptr().cast_mut();
        hints.domain_attr = &mut domain;
        library.getinfo(API, &hints)
    };
    assert_eq!(ask(c"no-such-rail").err(), Some(ENODATA));
    let info = ask(c"lo").unwrap();
    assert_eq!(read(info).domain, "lo");
    assert!(read(info).src.contains("127.0.0.1"), "{:?}", read(info));
    let name = name_of(&library, info).unwrap();
    assert!(name.starts_with("fi_marline://127.0.0.1:"), "{name}");
    // The reply as hints gives the same reply, and so does the rail's name.
    let again = library.getinfo(API, info).unwrap();
    assert_eq!(read(again), read(info));
    // SAFETY: replies of the provider.
    unsafe {
        common::free_info(again);
        common::free_info(info);
    }
}

/// A blob address, and another provider's address in hints.
#[test]
fn foreign_addresses_in_hints_are_refused() {
    let library = Library::open();
    let plain = library.getinfo(API, null()).unwrap();
    // SAFETY: a reply, and hints with some of its fields.
    unsafe {
        assert_eq!((*plain).src_addrlen, 64);
        let mut hints: fi_info = zeroed();
        for (len, found) in [(64, true), (16, false), (0, false)] {
            (hints.src_addr, hints.src_addrlen) = ((*plain).src_addr, len);
            let reply = library.getinfo(API, &hints);
            assert_eq!(reply.is_ok(), found, "{len} bytes");
            if let Ok(info) = reply {
                common::free_info(info);
            }
        }
        let mut text = *b"fi_sockaddr_in://127.0.0.1:1\0";
        let mut hints = text_hints();
        (hints.dest_addr, hints.dest_addrlen) = (text.as_mut_ptr().cast(), text.len());
        assert_eq!(library.getinfo(API, &hints).err(), Some(ENODATA));
        common::free_info(plain);
    }
}
