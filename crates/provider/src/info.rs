//! `fi_getinfo`: `info_build.rs` reads the hints and writes the reply, `wanted.rs` decides.

use crate::boundary::{guard_free, Errno};
use crate::domain;
use crate::domain_open;
use crate::hints::{decide, Wanted};
use crate::info_addrs::{self, Asked, Ends};
use crate::info_build;
use crate::log::{self, trace};
use crate::settings;
use crate::sys::*;
use std::ffi::{c_char, c_int};

/// The entry point of libfabric.
pub(crate) unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
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
        // SAFETY: libfabric passes null or valid hints and C strings, and `out` was checked.
        unsafe {
            let domain = info_build::own_domain(hints, domain_open::ops());
            let opened = (!domain.is_null()).then(|| domain::of(domain));
            let wanted = Wanted {
                opened_mr_mode: opened.map(|shared| shared.mr_mode),
                ..info_build::read_hints(version, hints)
            };
            let grant = match decide(&wanted) {
                Ok(grant) => grant,
                Err(why) => return refuse(&format!("the hints ask for {why}")),
            };
            let Some(of_hints) = info_addrs::of_hints(hints) else {
                return refuse("the hints have an address that is not Marline's");
            };
            let ends = match flags & FI_PROV_ATTR_ONLY {
                0 => info_addrs::find(&Asked {
                    node: info_addrs::text(node),
                    service: info_addrs::text(service),
                    source: flags & FI_SOURCE != 0,
                    numeric: flags & FI_NUMERICHOST != 0,
                    ..of_hints
                }),
                _ => Ok(Ends::default()),
            };
            opened.inspect(|shared| shared.fabric.lend());
            match ends {
                Ok(ends) => *out = info_build::build(&grant, &ends, domain)?,
                Err(why) => return refuse(&why),
            }
        }
        Ok(0)
    })
}

fn refuse(why: &str) -> Result<c_int, Errno> {
    log::info(&format!("fi_getinfo: not offered: {why}"));
    Err(Errno::NODATA)
}
