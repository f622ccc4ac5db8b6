//! The libfabric door of Marline: an external provider, `libmarline-fi.so`, loaded by any
//! libfabric from 1.17 on into programs that know nothing of it.
//!
//! It translates libfabric's objects and calls to `marline_engine`'s API and does nothing else: no
//! protocol, no sockets, no threads. libfabric's core calls [`fi_prov_ini`] once and then the
//! functions of the tables in here; nobody links against this crate.
//!
//! Rules of the house: every C entry goes through `boundary`, which keeps panics in and turns
//! errors into libfabric's numbers; nothing of libfabric is linked (`host.rs` looks it up);
//! structs of the ABI are in `sys.rs` only.

mod about;
mod addresses;
mod atomic;
mod av;
mod av_names;
mod av_open;
mod boundary;
mod caller_memory;
mod cntr;
mod collectives;
mod cq;
mod domain;
mod domain_open;
mod ends;
mod ep;
mod ep_ctl;
mod ep_open;
mod eq;
mod events;
mod fabric;
mod fabric_open;
mod flags;
mod host;
mod info;
mod info_build;
mod log;
mod mpich;
mod mr;
mod msg;
mod nic;
mod object;
mod poll;
mod resolve;
mod rma;
mod settings;
mod sync;
mod sys;
mod sys_base;
mod sys_ep;
mod sys_nic;
mod sys_sizes;
mod tagged;
mod wait;
mod wish;
mod yields;

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::Once;

/// libfabric keeps this for the life of the process and writes its own state into `context`.
struct ProviderCell(UnsafeCell<sys::fi_provider>);

// SAFETY: after `fi_prov_ini` only libfabric's core touches it, under its own lock.
unsafe impl Sync for ProviderCell {}

static PROVIDER: ProviderCell = ProviderCell(UnsafeCell::new(sys::fi_provider {
    version: about::VERSION,
    // libfabric skips providers declared older than what the application asks for and knows no
    // upper bound, so this is higher than any libfabric there is.
    fi_version: sys::fi_version_of(3, 0),
    context: [ptr::null_mut(); 4],
    name: about::NAME.as_ptr(),
    getinfo: info::getinfo,
    fabric: fabric_open::open,
    cleanup: fabric_open::cleanup,
}));

/// The entry that libfabric calls after `dlopen`. It registers the settings and returns the
/// provider.
#[no_mangle]
pub extern "C" fn fi_prov_ini() -> *mut c_void {
    static ONCE: Once = Once::new();
    about::set_provider(PROVIDER.0.get());
    // A panic in here must not unwind into C; without settings or a fork handler we still work.
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

/// The private interface for Marline's other libraries in the same process (found with `dlsym`).
#[repr(C)]
pub struct MarlineApiV1 {
    /// 1; a change that is not an addition gets a new symbol.
    pub version: u32,
    /// Bytes of this table.
    pub size: u32,
    /// Functions of the library of collectives ([`CollectivesV1`]).
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
