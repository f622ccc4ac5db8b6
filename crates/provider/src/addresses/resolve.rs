//! Resolution of host and service names by the system's resolver.

use std::ffi::{c_int, CStr, CString};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr::{null, null_mut};

/// The resolver's answer, freed on drop.
struct Answer(*mut libc::addrinfo);

impl Drop for Answer {
    fn drop(&mut self) {
        // SAFETY: it came from a getaddrinfo that succeeded, and is freed once.
        unsafe { libc::freeaddrinfo(self.0) }
    }
}

/// The addresses of a host with the service's port (0 without a service), in the resolver's order.
/// `numeric`: `node` is an IP address and no resolver is asked. Errors are texts for people.
pub(crate) fn addresses(
    node: &CStr,
    service: Option<&CStr>,
    numeric: bool,
) -> Result<Vec<SocketAddr>, String> {
    let flags = match numeric {
        true => libc::AI_NUMERICHOST,
        false => 0,
    };
    ask(Some(node), service, flags)
}

/// The port of a service: a number or a name from /etc/services.
pub(crate) fn port(service: &CStr) -> Result<u16, String> {
    let found = ask(None, Some(service), libc::AI_PASSIVE)?;
    Ok(found.first().map_or(0, SocketAddr::port))
}

fn ask(
    node: Option<&CStr>,
    service: Option<&CStr>,
    flags: c_int,
) -> Result<Vec<SocketAddr>, String> {
    // SAFETY: all zero is no wish at all.
    let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
    (hints.ai_socktype, hints.ai_flags) = (libc::SOCK_DGRAM, flags);
    let mut first = null_mut();
    // SAFETY: null or C strings, and valid places for wish and answer.
    let rc = unsafe {
        let (node, service) = (node.map_or(null(), CStr::as_ptr), of(service));
        libc::getaddrinfo(node, service, &hints, &mut first)
    };
    if rc != 0 {
        // SAFETY: a static text.
        let why = unsafe { CStr::from_ptr(libc::gai_strerror(rc)) };
        let [node, service] = [node, service].map(|n| n.unwrap_or(c"").to_string_lossy());
        return Err(format!("{node}:{service}: {}", why.to_string_lossy()));
    }
    let answer = Answer(first);
    let mut found = Vec::new();
    let mut entry = answer.0;
    while !entry.is_null() {
        // SAFETY: the resolver made a chain of valid entries that ends with null.
        let item = unsafe { &*entry };
        // SAFETY: a socket address of the family that the entry names.
        found.extend(unsafe { socket_addr(item) });
        entry = item.ai_next;
    }
    Ok(found)
}

fn of(service: Option<&CStr>) -> *const std::ffi::c_char {
    service.map_or(null(), CStr::as_ptr)
}

/// # Safety
/// `item` is an entry of the resolver's.
unsafe fn socket_addr(item: &libc::addrinfo) -> Option<SocketAddr> {
    match item.ai_family {
        libc::AF_INET => {
            // SAFETY: the address family names this type.
            let at = unsafe { &*item.ai_addr.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(at.sin_addr.s_addr));
            Some(SocketAddr::new(ip.into(), u16::from_be(at.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: the address family names this type.
            let at = unsafe { &*item.ai_addr.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(at.sin6_addr.s6_addr);
            Some(SocketAddr::new(ip.into(), u16::from_be(at.sin6_port)))
        }
        _ => None,
    }
}

/// The host `step` places after `node`: increments the number at the end of a name, keeping its
/// number of digits, or an IPv4 address. `None` if there is no number or no room for it.
pub(crate) fn nth_node(node: &str, step: usize) -> Option<CString> {
    let next = match node.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => {
            let step = u32::try_from(step).ok()?;
            Ipv4Addr::from(u32::from(ip).checked_add(step)?).to_string()
        }
        Ok(IpAddr::V6(_)) => (step == 0).then(|| node.to_owned())?,
        Err(_) => {
            let stem = node.trim_end_matches(|c: char| c.is_ascii_digit());
            let digits = &node[stem.len()..];
            match digits.parse::<u64>() {
                Ok(number) => {
                    let number = number.checked_add(step as u64)?;
                    format!("{stem}{number:0width$}", width = digits.len())
                }
                Err(_) => (step == 0).then(|| node.to_owned())?,
            }
        }
    };
    CString::new(next).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numeric_addresses_need_no_resolver() {
        let v4 = addresses(c"127.0.0.1", Some(c"7471"), true).unwrap();
        assert_eq!(v4, ["127.0.0.1:7471".parse().unwrap()]);
        let v6 = addresses(c"::1", None, true).unwrap();
        assert_eq!(v6, ["[::1]:0".parse().unwrap()]);
        assert_eq!(port(c"7471"), Ok(7_471));
        for (node, service) in [(c"localhost", c"1"), (c"1.2.3.4.5", c"1"), (c"::1", c"x y")] {
            let why = addresses(node, Some(service), true).unwrap_err();
            assert!(why.contains(node.to_str().unwrap()), "{why}");
        }
        assert!(port(c"no such service").is_err());
    }

    #[test]
    fn hosts_in_a_row() {
        let nth = |node, step| nth_node(node, step).map(|n| n.into_string().unwrap());
        for (node, step, found) in [
            ("node7", 0, Some("node7")),
            ("node7", 5, Some("node12")),
            ("node007", 5, Some("node012")),
            ("node", 0, Some("node")),
            ("node", 1, None),
            ("10.1.0.254", 3, Some("10.1.1.1")),
            ("255.255.255.255", 1, None),
            ("::1", 0, Some("::1")),
            ("::1", 1, None),
            ("n18446744073709551615", 1, None),
        ] {
            assert_eq!(nth(node, step).as_deref(), found, "{node} + {step}");
        }
    }
}
