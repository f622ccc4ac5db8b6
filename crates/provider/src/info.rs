//! `fi_getinfo`: `info_build.rs` reads the hints into a wish and writes the grant out, `wish.rs`
//! decides.

use crate::boundary::{guard_free, Errno};
use crate::domain_open;
use crate::info_build;
use crate::log::{self, trace};
use crate::settings;
use crate::sys::*;
use crate::wish::decide;
use std::ffi::{c_char, c_int};

/// libfabric's entry.
pub(crate) unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    _service: *const c_char,
    _flags: u64,
    hints: *const fi_info,
    out: *mut *mut fi_info,
) -> c_int {
    guard_free(|| {
        log::refresh();
        settings::warn_once();
        let runs = crate::host::version();
        trace!(
            "getinfo version {version:#x} library {runs:#x} hints {}",
            !hints.is_null()
        );
        if out.is_null() {
            return Err(Errno::INVAL);
        }
        // Addresses are opaque names, exchanged by the application; a host name resolves to none.
        // (With FI_SOURCE it would be this host's, and choose a rail; the settings do that.)
        if !node.is_null() {
            return refuse("a node name to resolve");
        }
        // SAFETY: libfabric passes null or valid hints, and `out` was checked.
        unsafe {
            let wish = info_build::read_hints(version, hints);
            match decide(&wish) {
                Ok(grant) => {
                    *out = info_build::build(
                        &grant,
                        info_build::own_domain(hints, domain_open::ops()),
                    )?
                }
                Err(why) => return refuse(why),
            }
        }
        Ok(0)
    })
}

fn refuse(why: &str) -> Result<c_int, Errno> {
    log::info(&format!("fi_getinfo: not offered, the hints ask for {why}"));
    Err(Errno::NODATA)
}
