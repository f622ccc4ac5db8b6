//! The NIC of a reply's first rail.

use crate::abi;

use crate::common;

use abi::nic::*;
use abi::*;
use common::pair::API;
use common::Library;
use std::ffi::{c_char, CStr};
use std::mem::zeroed;
use std::ptr::null_mut;

#[test]
fn a_nic_is_described_copied_and_shown() {
    let library = Library::open();
    // SAFETY: hints with a domain's name; a complete reply; each NIC is closed once.
    unsafe {
        let mut domain: fi_domain_attr = zeroed();
        domain.name = c"lo".as_ptr().cast_mut();
        let mut hints: fi_info = zeroed();
        hints.domain_attr = &mut domain;
        let info = library.getinfo(API, &hints).unwrap();
        let nic: *mut fid_nic = (*info).nic.cast();
        assert_eq!((*nic).fid.fclass, FI_CLASS_NIC);
        let ops = &*(*nic).fid.ops;
        let mut copy: *mut fid_nic = null_mut();
        let control = ops.control;
        assert_eq!(control(nic.cast(), FI_DUP, (&raw mut copy).cast()), 0);
        assert_eq!(control(nic.cast(), FI_ENABLE, null_mut()), -libc::ENOSYS);
        common::free_info(info);
        let (device, link) = (&*(*copy).device_attr, &*(*copy).link_attr);
        assert_eq!(CStr::from_ptr(device.name), c"lo");
        assert!(device.driver.is_null(), "loopback has none");
        assert_eq!((*(*copy).bus_attr).bus_type, FI_BUS_UNKNOWN);
        assert_eq!(CStr::from_ptr(link.address), c"127.0.0.1");
        assert!(link.mtu >= 1_500, "{}", link.mtu);
        let shown = |room: usize| {
            let mut text = vec![0x7e as c_char; 600];
            text[..3].copy_from_slice(&[b'a' as c_char, b'\n' as c_char, 0]);
            assert_eq!((ops.tostr)(copy.cast(), text.as_mut_ptr(), room), 0);
            assert!(text[room..].iter().all(|c| *c == 0x7e), "{room} bytes");
            let text = CStr::from_ptr(text.as_ptr());
            text.to_str().unwrap().to_owned()
        };
        let whole = shown(599);
        assert!(whole.starts_with("a\n    nic:\n"), "{whole}");
        assert!(whole.contains("name: lo\n") && whole.contains("address: 127.0.0.1\n"));
        assert_eq!(shown(20), whole[..19]);
        assert_eq!(shown(3), "a\n");
        assert_eq!(common::close(copy.cast()), 0);
    }
}
