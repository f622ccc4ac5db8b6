//! `fi_av_insertsvc` and `fi_av_insertsym`: insert peers by host and port, whose address a round
//! trip resolves.

use crate::abi::*;
use crate::addresses::resolve;
use crate::addresses::{self, ADDRESS_LEN};
use crate::base::boundary::{guard, Errno};
use crate::base::{log, object};
use crate::info::addrs;
use crate::objects::av::Av;
use marline_codes::Code;
use std::ffi::{c_char, c_int, c_void, CStr};

/// `fi_av_insertsvc`.
pub(crate) unsafe extern "C" fn insertsvc(
    av: *mut fid_av,
    node: *const c_char,
    service: *const c_char,
    out: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as libfabric calls it, with one host and one port.
    unsafe { insertsym(av, node, 1, service, 1, out, flags, context) }
}

/// `fi_av_insertsym`: consecutive hosts (see [`resolve::nth_node`]), each with consecutive ports.
pub(crate) unsafe extern "C" fn insertsym(
    av: *mut fid_av,
    node: *const c_char,
    nodes: usize,
    service: *const c_char,
    services: usize,
    out: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: ours, and null or C strings.
    let (av, node, service) = unsafe {
        let av = object::of::<Av>(av);
        (av, addrs::text(node), addrs::text(service))
    };
    guard(&av.shared.health, || {
        let (node, service) = node.zip(service).ok_or(Errno::INVAL)?;
        let count = nodes.checked_mul(services).ok_or(Errno::INVAL)?;
        let numeric = flags & FI_NUMERICHOST != 0;
        let blob = |i: usize| {
            let place = place(node, i / services, service, i % services, numeric);
            place.map_err(|why| {
                log::warn(Code::BadAddress, &format!("address vector: {why}"));
                Errno::ADDRNOTAVAIL
            })
        };
        // SAFETY: arrays of as many entries as there are pairs.
        unsafe { av.add(count, out, flags, context, blob) }
    })
}

/// The blob for host and port number `host` and `port` of the series. Errors are texts for people.
fn place(
    node: &CStr,
    host: usize,
    service: &CStr,
    at: usize,
    numeric: bool,
) -> Result<[u8; ADDRESS_LEN], String> {
    let name = node.to_str().map_err(|_| "a host that is no text")?;
    let host = resolve::nth_node(name, host).ok_or_else(|| format!("{name} + {host}: no host"))?;
    let first = resolve::port(service)?;
    let port =
        u16::try_from(first as usize + at).map_err(|_| format!("{first} + {at}: no port"))?;
    addresses::place_of(&host, port, numeric)
}
