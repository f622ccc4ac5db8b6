//! libibverbs, loaded at first use.

use super::layout::*;
use libc::{c_char, c_int, c_uint, c_void};
use std::ffi::CStr;
use std::sync::OnceLock;

/// The library's file name; its version is that of the layout.
const NAME: &CStr = c"libibverbs.so.1";

/// Declares the table of functions and the code that fills it.
macro_rules! functions {
    ($($name:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// The functions of the library.
        pub(super) struct Library {
            $(pub(super) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        impl Library {
            /// Looks all functions up in the library behind `handle`.
            ///
            /// # Safety
            /// `handle` is of libibverbs, which is never unloaded.
            unsafe fn look_up(handle: *mut c_void) -> Result<Library, String> {
                Ok(Library {
                    $($name: {
                        let name = concat!("ibv_", stringify!($name), "\0");
                        // SAFETY: the name ends with a zero byte.
                        let symbol = unsafe { libc::dlsym(handle, name.as_ptr().cast()) };
                        if symbol.is_null() {
                            return Err(format!("libibverbs has no ibv_{}", stringify!($name)));
                        }
                        // SAFETY: the function of this name has this type in every library of
                        // version 1.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($arg),*) $(-> $ret)?,
                            >(symbol)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    get_device_list: fn(*mut c_int) -> *mut *mut Device;
    free_device_list: fn(*mut *mut Device);
    get_device_name: fn(*mut Device) -> *const c_char;
    open_device: fn(*mut Device) -> *mut Context;
    close_device: fn(*mut Context) -> c_int;
    query_device: fn(*mut Context, *mut DeviceAttr) -> c_int;
    query_port: fn(*mut Context, u8, *mut PortAttr) -> c_int;
    query_gid: fn(*mut Context, u8, c_int, *mut [u64; 2]) -> c_int;
    query_pkey: fn(*mut Context, u8, c_int, *mut u16) -> c_int;
    get_async_event: fn(*mut Context, *mut AsyncEvent) -> c_int;
    ack_async_event: fn(*mut AsyncEvent);
    alloc_pd: fn(*mut Context) -> *mut Pd;
    dealloc_pd: fn(*mut Pd) -> c_int;
    reg_mr_iova: fn(*mut Pd, *mut c_void, usize, u64, c_int) -> *mut Mr;
    dereg_mr: fn(*mut Mr) -> c_int;
    create_comp_channel: fn(*mut Context) -> *mut Channel;
    destroy_comp_channel: fn(*mut Channel) -> c_int;
    create_cq: fn(*mut Context, c_int, *mut c_void, *mut Channel, c_int) -> *mut Cq;
    destroy_cq: fn(*mut Cq) -> c_int;
    get_cq_event: fn(*mut Channel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    ack_cq_events: fn(*mut Cq, c_uint);
    create_srq: fn(*mut Pd, *mut SrqInitAttr) -> *mut Srq;
    destroy_srq: fn(*mut Srq) -> c_int;
    create_qp: fn(*mut Pd, *mut QpInitAttr) -> *mut Qp;
    modify_qp: fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
    destroy_qp: fn(*mut Qp) -> c_int;
    create_ah: fn(*mut Pd, *mut AhAttr) -> *mut Ah;
    destroy_ah: fn(*mut Ah) -> c_int;
    attach_mcast: fn(*mut Qp, *const [u64; 2], u16) -> c_int;
    detach_mcast: fn(*mut Qp, *const [u64; 2], u16) -> c_int;
}

/// The library; the error says why it cannot be used.
pub(super) fn library() -> Result<&'static Library, &'static str> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    LIBRARY.get_or_init(load).as_ref().map_err(String::as_str)
}

fn load() -> Result<Library, String> {
    // SAFETY: the name ends with a zero byte; the library's initialisers are harmless.
    let handle = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        // SAFETY: after a failed dlopen the result is a string or null.
        let text = unsafe { libc::dlerror() };
        return Err(match text.is_null() {
            true => "libibverbs.so.1 does not load".to_owned(),
            // SAFETY: not null, and no later call on this thread has replaced it.
            false => unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned(),
        });
    }
    // SAFETY: the handle is never closed.
    unsafe { Library::look_up(handle) }
}
