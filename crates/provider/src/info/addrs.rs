//! The local and remote ends of an `fi_info`, from the arguments of `fi_getinfo`, and the rails of
//! a domain.

use crate::abi::*;
use crate::addresses::resolve;
use crate::addresses::{Form, ADDRESS_LEN};
use crate::base::{about, log, settings};
use marline_codes::Code;
use marline_engine::names;
use marline_engine::settings::Settings;
use marline_engine::{rails_here, RailHere};
use std::ffi::{c_char, c_void, CStr};
use std::net::{IpAddr, SocketAddr};

type Blob = [u8; ADDRESS_LEN];

/// The arguments of `fi_getinfo` that name local and remote ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Query<'a> {
    pub node: Option<&'a CStr>,
    pub service: Option<&'a CStr>,
    /// FI_SOURCE: node and service name the local side.
    pub source: bool,
    /// FI_NUMERICHOST.
    pub numeric: bool,
    /// The addresses and the domain's name from the hints.
    pub src: Option<Blob>,
    pub dest: Option<Blob>,
    pub domain: Option<&'a str>,
}

/// The ends of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    pub src: Option<Blob>,
    pub dest: Option<Blob>,
    /// The domain's name: Marline's, or the name of its only rail.
    pub domain: String,
    /// The rail whose NIC the reply describes: the rail of `src`, or the first rail with a NIC.
    pub nic_rail: Option<RailHere>,
}

/// # Safety
/// `text` is null or a C string that lives as long as the answer.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: checked for null.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// The ends and the domain's name from hints. `None` if an address does not belong to Marline.
///
/// # Safety
///
/// `hints` is null or valid, and lives as long as the answer.
pub(crate) unsafe fn of_hints<'a>(hints: *const fi_info) -> Option<Query<'a>> {
    // SAFETY: null or valid all the way down.
    unsafe {
        let Some(hints) = hints.as_ref() else {
            return Some(Query::default());
        };
        let form = Form::of(hints.addr_format).unwrap_or_default();
        let own = |at: *const c_void, len| match at.is_null() {
            true => Some(None),
            false => form.own(at, len).map(Some),
        };
        let name = match hints.domain_attr.is_null() {
            true => None,
            false => text((*hints.domain_attr).name),
        };
        let name = name.filter(|n| !n.to_bytes().eq_ignore_ascii_case(about::NAME.to_bytes()));
        Some(Query {
            src: own(hints.src_addr, hints.src_addrlen)?,
            dest: own(hints.dest_addr, hints.dest_addrlen)?,
            domain: match name {
                Some(name) => Some(name.to_str().ok()?),
                None => None,
            },
            ..Query::default()
        })
    }
}

/// The settings of a domain with this name.
fn settings_of(domain: Option<&str>) -> Result<Settings, String> {
    let mut settings = settings::lookup()?;
    if let Some(name) = domain {
        settings.replace_rails(vec![name.to_owned()]);
    }
    Ok(settings)
}

/// Answers an `fi_getinfo`. Errors are texts for people.
pub(crate) fn find(query: &Query<'_>) -> Result<Ends, String> {
    let mut ends = Ends {
        src: query.src,
        dest: query.dest,
        domain: query.domain.unwrap_or(&own_name()).to_owned(),
        nic_rail: None,
    };
    let named = query.node.is_some() || query.service.is_some();
    let settings = match settings_of(query.domain) {
        // A query without ends only logs bad settings: it opens no domain.
        Err(_) if !named && query.domain.is_none() => return Ok(ends),
        settings => settings?,
    };
    // (Opening a domain without rails fails with the reason.)
    let rails = match query.domain {
        Some(_) => rails_here(&settings)?,
        None => rails_here(&settings).unwrap_or_default(),
    };
    if named && query.source {
        own_side(query, &settings, &rails, &mut ends)?;
    } else if named {
        ends.dest = Some(peer(query, settings.port)?);
    }
    let src = ends.src.and_then(|blob| names::places_of(&blob));
    let src = src.and_then(|places| places.first().map(SocketAddr::ip));
    let of_src = rails.iter().find(|rail| src.is_some() && rail.ip == src);
    let first = || rails.iter().find(|rail| rail.mtu > 0);
    ends.nic_rail = of_src.or_else(first).cloned();
    if ends.src.is_none() {
        let ip = rails.iter().find_map(|rail| rail.ip);
        ends.src = ip.map(|ip| names::place_blob(&[SocketAddr::new(ip, settings.port)]));
    }
    Ok(ends)
}

fn own_name() -> String {
    about::NAME.to_string_lossy().into_owned()
}

/// The local address for a node and service: the port on all rails, or on the rail with the node's
/// address.
fn own_side(
    query: &Query<'_>,
    settings: &Settings,
    rails: &[RailHere],
    ends: &mut Ends,
) -> Result<(), String> {
    let port = query.service.map_or(Ok(settings.port), resolve::port)?;
    let first = rails.iter().find_map(|rail| rail.ip);
    let mut ip = first.ok_or("no rail here has an IP address")?;
    if let Some(node) = query.node {
        let at = resolve::addresses(node, None, query.numeric)?;
        let here = at.iter().find_map(|at| {
            let mut rails = rails.iter();
            rails.find(|rail| rail.ip == Some(at.ip()))
        });
        match here {
            Some(rail) => {
                ip = rail.ip.unwrap_or(ip);
                ends.domain = rail.name.clone();
            }
            // The host's own name, which many systems map to loopback, selects all rails.
            None if at.iter().all(|at| is_own_name(at.ip())) => {}
            None => {
                let node = node.to_string_lossy();
                return Err(format!("{node} is the address of no rail here"));
            }
        }
    }
    ends.src = Some(names::place_blob(&[SocketAddr::new(ip, port)]));
    Ok(())
}

/// True for an address such as 127.0.1.1, which no interface has.
fn is_own_name(ip: IpAddr) -> bool {
    ip.is_loopback()
}

/// The address of a peer's possible places.
fn peer(query: &Query<'_>, port: u16) -> Result<Blob, String> {
    let node = query.node.ok_or("a service of no node")?;
    let mut at = resolve::addresses(node, query.service, query.numeric)?;
    for place in at.iter_mut().filter(|place| place.port() == 0) {
        place.set_port(port);
    }
    at.retain(|place| place.port() != 0);
    if at.is_empty() {
        let node = node.to_string_lossy();
        return Err(format!("{node} without a port: name a service, too"));
    }
    Ok(names::place_blob(&at))
}

/// The settings for the domain that an `fi_info` describes. Errors are texts for people.
///
/// # Safety
/// `info` is valid.
pub(crate) unsafe fn settings_for(info: *const fi_info) -> Result<Settings, String> {
    // SAFETY: the caller's promise.
    let query = unsafe { of_hints(info) }.ok_or("src_addr is no address of Marline")?;
    let mut settings = settings_of(query.domain)?;
    let place = query.src.and_then(|blob| names::places_of(&blob));
    let Some(place) = place.and_then(|places| places.first().copied()) else {
        return Ok(settings);
    };
    if place.port() != 0 {
        settings.port = place.port();
    }
    // Among the named rail's addresses, the one in `src`.
    if let Some(name) = query.domain {
        let rails = rails_here(&settings)?;
        if rails.iter().any(|rail| rail.ip == Some(place.ip())) {
            return Ok(settings);
        }
        let kind = name.split_once(':').map_or("", |(kind, _)| kind);
        let separator = if kind.is_empty() { "" } else { ":" };
        settings.rails = vec![format!("{kind}{separator}{}", place.ip())];
        let other = rails_here(&settings)?;
        if !other.iter().any(|o| rails.iter().any(|r| r.name == o.name)) {
            let text = "src_addr is the address of another rail than the domain's name";
            log::warn(Code::BadAddress, text);
            return Err(format!("{} is no address of {name}", place.ip()));
        }
    }
    Ok(settings)
}
