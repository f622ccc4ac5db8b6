//! Marline's libfabric API: the external provider `libmarline-fi.so`, which libfabric 1.17 or later
//! loads into unmodified programs.
//!
//! The provider only translates libfabric's objects and calls to the API of `marline_engine`: it
//! has no protocol, sockets or threads. libfabric's core calls [`fi_prov_ini`] once, then the
//! functions in the tables here; no program links against this crate.
//!
//! Rules: every C entry passes through `boundary`, which contains panics and turns errors into
//! libfabric's numbers; nothing of libfabric is linked (`base/host.rs` looks symbols up); structs
//! of the ABI are in `abi` only.

mod abi;
mod addresses;
mod base;
mod collectives;
mod info;
mod objects;
mod ops;
mod queues;
mod yields;

use base::{about, boundary, settings};
use objects::fabric_open;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::Once;

/// Lives as long as the process; libfabric writes its own state into `context`.
struct ProviderCell(UnsafeCell<abi::fi_provider>);

// SAFETY: after `fi_prov_ini` only libfabric's core touches it, under its own lock.
unsafe impl Sync for ProviderCell {}

static PROVIDER: ProviderCell = ProviderCell(UnsafeCell::new(abi::fi_provider {
    version: about::VERSION,
    // Higher than any libfabric version: libfabric skips providers that declare a version older
    // than the application requests, and checks no upper bound.
    fi_version: abi::fi_version_of(3, 0),
    context: [ptr::null_mut(); 4],
    name: about::NAME.as_ptr(),
    getinfo: info::getinfo,
    fabric: fabric_open::open,
    cleanup: fabric_open::cleanup,
}));

/// The entry point that libfabric calls after `dlopen`. Registers the settings and returns the
/// provider.
#[no_mangle]
pub extern "C" fn fi_prov_ini() -> *mut c_void {
    static ONCE: Once = Once::new();
    about::set_provider(PROVIDER.0.get());
    // A panic must not unwind into C. The provider works without settings or fork handler, too.
    let _ = std::panic::catch_unwind(|| {
        ONCE.call_once(|| {
            boundary::install_panic_hook();
            settings::define_all();
            boundary::install_fork_handler();
        });
    });
    PROVIDER.0.get().cast()
}

pub use collectives::{CollectivesV1, GroupV1};

/// The interface for Marline's other libraries in the same process, found with `dlsym`.
#[repr(C)]
pub struct MarlineApiV1 {
    /// Always 1: incompatible changes get a new symbol.
    pub version: u32,
    /// Bytes of this table.
    pub size: u32,
    /// Functions for the collectives library ([`CollectivesV1`]).
    pub collectives: AtomicPtr<c_void>,
}

/// See [`MarlineApiV1`].
#[no_mangle]
#[allow(non_upper_case_globals)] // the name is the interface
pub static marline_api_v1: MarlineApiV1 = MarlineApiV1 {
    version: 1,
    size: std::mem::size_of::<MarlineApiV1>() as u32,
    collectives: AtomicPtr::new((&raw const collectives::COLLECTIVES).cast_mut().cast()),
};
