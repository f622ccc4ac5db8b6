//! Addresses of 48 bytes, for callers without room for 64 (`FI_MARLINE_ADDRESS_BYTES`).

#[path = "../src/abi/mod.rs"]
mod abi;

mod common;

use abi::*;
use common::pair::Pair;
use std::ptr::null_mut;

/// As LCI does: six words per address, all inserted at once. One test, as the setting is read from
/// the process's environment.
#[test]
fn addresses_of_48_bytes_name_their_endpoints() {
    std::env::set_var("FI_MARLINE_ADDRESS_BYTES", "48");
    let caps = FI_MSG | FI_TAGGED | FI_SOURCE | FI_SOURCE_ERR;
    let p = Pair::strangers(|hints| hints.caps = caps);
    let mut names = [[0_u64; 6]; 2];
    for (ep, name) in p.ep.iter().zip(&mut names) {
        let mut len = 0;
        // SAFETY: a null buffer, then a buffer of the reported size.
        unsafe {
            let getname = (*(**ep).cm).getname;
            assert_eq!(getname(ep.cast(), null_mut(), &mut len), -257, "too small");
            assert_eq!(len, 48);
            assert_eq!(getname(ep.cast(), name.as_mut_ptr().cast(), &mut len), 0);
        }
        assert_eq!(len, 48);
    }
    let mut found = [7; 2];
    // SAFETY: two addresses of 48 bytes, and buffers of the sizes named.
    unsafe {
        let ops = &*(*p.av).ops;
        let from = names.as_ptr().cast();
        let n = (ops.insert)(p.av, from, 2, found.as_mut_ptr(), 0, null_mut());
        assert_eq!((n, found), (2, [0, 1]));
        let (mut same, mut len) = ([0_u64; 6], 48);
        let rc = (ops.lookup)(p.av, 1, same.as_mut_ptr().cast(), &mut len);
        assert_eq!((rc, len, same), (0, 48, names[1]));
        let (mut shown, mut len) = ([0; 256], 256);
        (ops.straddr)(p.av, same.as_ptr().cast(), shown.as_mut_ptr(), &mut len);
        let text = std::ffi::CStr::from_ptr(shown.as_ptr()).to_str().unwrap();
        assert!(
            text.starts_with("fi_marline://") && !text.contains('?'),
            "{text}"
        );
    }
    let mut buf = [0_u8; 8];
    p.trecv(&mut buf, 1, 0, 1);
    p.tinject(b"who is i", 1);
    assert_eq!(p.entry().1, 0);
    // The address of an unknown source has 48 bytes, too.
    let mut gone = 0;
    // SAFETY: one address.
    assert_eq!(unsafe { ((*(*p.av).ops).remove)(p.av, &mut gone, 1, 0) }, 0);
    p.trecv(&mut buf, 2, 0, 2);
    p.tinject(b"who is i", 2);
    assert_eq!(p.error_into(&mut [0; 64]).err_data_size, 48);
    p.close();
}
