//! Loads the built library as libfabric does, into a process without libfabric: exports, provider
//! record, `fi_getinfo`, and functions that need no engine.

#[path = "../src/abi/mod.rs"]
mod abi;

mod common;

use abi::*;
use common::Library;
use std::ffi::{c_int, c_void, CStr};
use std::process::Command;
use std::ptr::{null, null_mut};

#[test]
fn exports_are_exactly_the_two_of_the_interface() {
    let out = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(common::path())
        .output()
        .expect("nm is missing: apt-get install binutils");
    let text = String::from_utf8_lossy(&out.stdout);
    let mut names: Vec<_> = text
        .lines()
        .filter_map(|l| l.split_whitespace().last())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["fi_prov_ini", "marline_api_v1"]);
}

#[test]
fn the_library_needs_libc_only_and_stays_mapped() {
    let out = Command::new("readelf")
        .arg("-d")
        .arg(common::path())
        .output()
        .expect("readelf is missing: apt-get install binutils");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("NODELETE"), "{text}");
    assert!(!text.contains("STATIC_TLS"), "{text}");
    let foreign: Vec<_> = text
        .lines()
        .filter(|l| l.contains("(NEEDED)"))
        .filter(|l| {
            !["libc.so", "libgcc_s.so", "ld-linux"]
                .iter()
                .any(|ok| l.contains(ok))
        })
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

#[test]
fn the_provider_record_is_stable_and_declared_new() {
    let library = Library::open();
    let provider = library.provider();
    assert_eq!(provider as *const _, Library::open().provider() as *const _);
    // SAFETY: a provider record lives as long as the process.
    let provider = unsafe { &*provider };
    // SAFETY: a C string, as libfabric reads it.
    assert_eq!(unsafe { CStr::from_ptr(provider.name) }, c"marline");
    assert!(provider.fi_version >= fi_version_of(3, 0));
}

#[test]
fn null_hints_get_one_complete_answer() {
    let library = Library::open();
    // Intel MPI asks with version 0, MPICH with its own version.
    for version in [0, fi_version_of(1, 5), fi_version_of(2, 5)] {
        let info = library.getinfo(version, null()).unwrap();
        // SAFETY: fresh from the provider; freed below.
        unsafe {
            assert!((*info).next.is_null(), "exactly one fi_info");
            assert_eq!((*info).mode, 0);
            assert!(!(*info).nic.is_null());
            assert_ne!((*info).caps & FI_DIRECTED_RECV, 0);
            let some = FI_RMA | FI_ATOMIC | FI_HMEM;
            assert_eq!((*info).caps & some, FI_RMA | FI_ATOMIC);
            let (ep, domain) = (&*(*info).ep_attr, &*(*info).domain_attr);
            let fabric = &*(*info).fabric_attr;
            assert_eq!(ep.type_, FI_EP_RDM);
            assert_ne!(ep.mem_tag_format >> 63, 0, "Open MPI counts leading zeros");
            assert!(ep.max_msg_size > 1 << 40);
            assert!(domain.cq_data_size >= 4);
            assert_eq!((domain.max_ep_tx_ctx, domain.max_ep_rx_ctx), (1, 1));
            assert!(!domain.name.is_null() && !fabric.name.is_null());
            assert!(fabric.prov_name.is_null(), "libfabric's core fills it in");
            let sides = ((*(*info).tx_attr).iov_limit, (*(*info).rx_attr).iov_limit);
            assert_eq!(sides, (4, 4));
            assert!((*(*info).ep_attr).protocol as c_int > 0);
            common::free_info(info);
        }
    }
}

#[test]
fn hints_are_echoed_or_refused() {
    let library = Library::open();
    let hints = library.getinfo(0, null()).unwrap();
    let ask = |change: &dyn Fn(&mut fi_info)| {
        // SAFETY: `hints` is ours and valid; the change ends with the rebuilt copy.
        unsafe {
            let copy = library.getinfo(0, null()).unwrap();
            change(&mut *copy);
            let answer = library.getinfo(fi_version_of(1, 18), copy);
            common::free_info(copy);
            answer
        }
    };
    // SAFETY: attributes of a fresh fi_info are valid.
    let threading = ask(&|i| unsafe { (*i.domain_attr).threading = 3 }).unwrap();
    // SAFETY: as above.
    unsafe {
        assert_eq!((*(*threading).domain_attr).threading, 3);
        common::free_info(threading);
    }
    // libfabric's utility providers probe for FI_EP_MSG and FI_EP_DGRAM.
    for ep_type in [1, 2] {
        // SAFETY: as above.
        let refused = ask(&|i| unsafe { (*i.ep_attr).type_ = ep_type });
        assert_eq!(refused.unwrap_err(), -libc::ENODATA);
    }
    assert_eq!(ask(&|i| i.caps |= FI_HMEM).unwrap_err(), -libc::ENODATA);
    let remote = ask(&|i| i.caps |= FI_RMA).unwrap();
    // SAFETY: made by getinfo.
    unsafe {
        common::free_info(remote);
        common::free_info(hints);
    }
}

#[test]
fn a_host_name_cannot_be_resolved() {
    let library = Library::open();
    let mut info = null_mut();
    // SAFETY: a provider's function with valid arguments.
    let rc = unsafe {
        let getinfo = (*library.provider()).getinfo;
        getinfo(
            fi_version_of(1, 5),
            c"host".as_ptr(),
            null(),
            0,
            null(),
            &mut info,
        )
    };
    assert_eq!(rc, -libc::ENODATA);
}

#[test]
fn fabric_and_event_queue_live_and_die_in_order() {
    let library = Library::open();
    let fabric = library.fabric(fi_version_of(2, 5));
    let mut attr = fi_eq_attr {
        size: 0,
        flags: 0,
        wait_obj: FI_WAIT_NONE,
        signaling_vector: 0,
        wait_set: null_mut(),
    };
    let mut eq: *mut fid_eq = null_mut();
    // SAFETY: objects of the provider, used as the libfabric headers say.
    unsafe {
        assert_eq!(
            ((*(*fabric).ops).eq_open)(fabric, &mut attr, &mut eq, null_mut()),
            0
        );
        assert_eq!(common::close(fabric.cast()), -libc::EBUSY);
        let (mut event, mut word) = (0u32, 0u64);
        let ops = &*(*eq).ops;
        let to: *mut c_void = (&raw mut word).cast();
        assert_eq!(
            (ops.read)(eq, &mut event, to, 8, 0),
            -(libc::EAGAIN as isize)
        );
        assert_eq!((ops.write)(eq, 7, (&LETTER as *const u64).cast(), 8, 0), 8);
        assert_eq!(
            (ops.sread)(eq, &mut event, to, 4, -1, 0),
            -257,
            "too small a buffer"
        );
        assert_eq!((ops.sread)(eq, &mut event, to, 8, -1, 0), 8);
        assert_eq!((event, word), (7, LETTER));
        assert_eq!(common::close(eq.cast()), 0);
        assert_eq!(common::close(fabric.cast()), 0);
    }
}

static LETTER: u64 = 0x1234_5678_9abc_def0;

#[test]
fn absent_slots_answer_enosys() {
    let library = Library::open();
    let fabric = library.fabric(0);
    // SAFETY: a slot with the signature of fi_wait_open; it reads no argument.
    unsafe {
        let slot: unsafe extern "C" fn(*mut fid_fabric, *mut c_void, *mut c_void) -> c_int =
            std::mem::transmute((*(*fabric).ops).wait_open as *const c_void);
        assert_eq!(slot(fabric, null_mut(), null_mut()), -libc::ENOSYS);
        assert_eq!(common::close(fabric.cast()), 0);
    }
}

#[test]
fn another_fabric_is_not_ours() {
    let library = Library::open();
    let name = c"other".as_ptr().cast_mut();
    let mut attr = fi_fabric_attr {
        fabric: null_mut(),
        name,
        prov_name: null_mut(),
        prov_version: 0,
        api_version: 0,
    };
    let mut fabric = null_mut();
    // SAFETY: a provider's function with valid arguments.
    let rc = unsafe { ((*library.provider()).fabric)(&mut attr, &mut fabric, null_mut()) };
    assert_eq!(rc, -libc::ENODATA);
}
