//! The provider's name and version, and the pointer to its object for libfabric's helpers.

use crate::abi;
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The provider's name; also the name of its fabric and domain.
pub(crate) const NAME: &CStr = c"marline";

/// The provider's version in libfabric's format.
pub(crate) const VERSION: u32 = abi::fi_version_of(0, 1);

/// Null until libfabric loaded the provider.
static PROVIDER: AtomicPtr<abi::fi_provider> = AtomicPtr::new(null_mut());

/// The provider's object, an argument of libfabric's helpers; null before [`set_provider`].
pub(crate) fn provider() -> *mut abi::fi_provider {
    PROVIDER.load(Ordering::Relaxed)
}

/// Sets the address of the provider's object, which is valid for the life of the process.
pub(crate) fn set_provider(provider: *mut abi::fi_provider) {
    PROVIDER.store(provider, Ordering::Relaxed);
}
