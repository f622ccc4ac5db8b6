//! `fi_getinfo`: `build.rs` reads the hints and writes the reply, `hints.rs` decides.

pub(crate) mod addrs;
pub(crate) mod build;
pub(crate) mod hints;
pub(crate) mod mpich;
mod nic;

use crate::abi::*;
use crate::base::boundary::{guard_free, Errno};
use crate::base::log::{self, trace};
use crate::base::settings;
use crate::info::addrs::{Ends, Query};
use crate::info::hints::{decide, Wanted};
use crate::objects::{domain, domain_open};
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
        let runs = crate::base::host::version();
        trace!(
            "getinfo version {version:#x} library {runs:#x} hints {}",
            !hints.is_null()
        );
        if out.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: libfabric passes null or valid hints and C strings, and `out` was checked.
        unsafe {
            let domain = build::own_domain(hints, domain_open::ops());
            let opened = (!domain.is_null()).then(|| domain::of(domain));
            let wanted = Wanted {
                opened_mr_mode: opened.map(|shared| shared.mr_mode),
                ..build::read_hints(version, hints)
            };
            let grant = match decide(&wanted) {
                Ok(grant) => grant,
                Err(why) => return refuse(&format!("the hints ask for {why}")),
            };
            let Some(of_hints) = addrs::of_hints(hints) else {
                return refuse("the hints have an address that is not Marline's");
            };
            let ends = match flags & FI_PROV_ATTR_ONLY {
                0 => addrs::find(&Query {
                    node: addrs::text(node),
                    service: addrs::text(service),
                    source: flags & FI_SOURCE != 0,
                    numeric: flags & FI_NUMERICHOST != 0,
                    ..of_hints
                }),
                _ => Ok(Ends::default()),
            };
            opened.inspect(|shared| shared.fabric.lend());
            match ends {
                Ok(ends) => *out = build::build(&grant, &ends, domain)?,
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
