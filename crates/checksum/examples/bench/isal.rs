//! Intel's ISA-L, loaded at run time if installed (Debian: `libisal2`).

use std::ffi::{c_int, c_uint, CStr};

/// Its `crc64_ecma_refl`: initial register, bytes, length.
type Crc64 = unsafe extern "C" fn(u64, *const u8, u64) -> u64;
/// Its `crc32_iscsi`: bytes, length, initial register.
type Crc32 = unsafe extern "C" fn(*const u8, c_int, c_uint) -> c_uint;

/// The functions to compare with. ISA-L 2.30 has no CRC-64/NVME; its kernel for the ECMA polynomial
/// differs only in constants.
pub(crate) struct Isal {
    pub(crate) crc64_ecma: Crc64,
    pub(crate) crc32_iscsi: Crc32,
}

/// ISA-L, or `None` if it is not installed.
pub(crate) fn load() -> Option<Isal> {
    // SAFETY: the names and types are those of ISA-L's crc64.h and crc.h; it stays loaded.
    unsafe {
        let lib = libc::dlopen(c"libisal.so.2".as_ptr(), libc::RTLD_NOW);
        if lib.is_null() {
            return None;
        }
        let find = |name: &CStr| Some(libc::dlsym(lib, name.as_ptr())).filter(|p| !p.is_null());
        Some(Isal {
            crc64_ecma: std::mem::transmute::<*mut libc::c_void, Crc64>(find(c"crc64_ecma_refl")?),
            crc32_iscsi: std::mem::transmute::<*mut libc::c_void, Crc32>(find(c"crc32_iscsi")?),
        })
    }
}
