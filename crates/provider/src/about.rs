//! The name and version of the provider, and where its object is for libfabric's helpers.

use crate::sys;
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The provider's name as NUL-terminated text; also the name of its fabric and its domain.
pub(crate) const NAME: &CStr = c"marline";

/// The version of the provider, as libfabric counts them.
pub(crate) const VERSION: u32 = sys::fi_version_of(0, 1);

/// Null until libfabric has asked for the provider.
static PROVIDER: AtomicPtr<sys::fi_provider> = AtomicPtr::new(null_mut());

/// The provider's object, which every caller of libfabric's helpers has to pass; null before
/// [`set_provider`].
pub(crate) fn provider() -> *mut sys::fi_provider {
    PROVIDER.load(Ordering::Relaxed)
}

/// Says where the provider's object is. It stays there for the life of the process.
pub(crate) fn set_provider(provider: *mut sys::fi_provider) {
    PROVIDER.store(provider, Ordering::Relaxed);
}
