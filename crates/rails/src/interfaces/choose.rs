//! Chooses the interfaces for rails.

use super::pattern::{glob, parse_subnet};
use crate::addr::in_subnet;
use crate::sys::{self, Interface, InterfaceAddr};
use marline_wire::RAILS_MAX;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An interface and one of its addresses, to which a rail binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceChoice {
    /// Interface name, such as `eth0`.
    pub name: String,
    /// Address to bind to.
    pub ip: IpAddr,
    /// Prefix length of the address's subnet.
    pub prefix_len: u8,
    /// Scope of a link-local IPv6 address; otherwise 0.
    pub scope_id: u32,
    /// Largest IP packet of the interface in bytes.
    pub mtu: usize,
    /// Nominal rate in bytes/s, 0 when unknown.
    pub bytes_per_s: u64,
    /// True for the loopback interface.
    pub loopback: bool,
}

impl InterfaceChoice {
    /// The placeholder of a rail without an interface.
    pub(crate) fn none(name: &str) -> InterfaceChoice {
        InterfaceChoice {
            name: name.to_owned(),
            ip: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            prefix_len: 0,
            scope_id: 0,
            mtu: 0,
            bytes_per_s: 0,
            loopback: true,
        }
    }

    /// The interface, or, if it is missing or has no address of the version yet, a placeholder on
    /// which a rail waits for it. Link-local addresses do not count: they appear before addresses
    /// from DHCP and routers.
    fn now_or_later(all: &[Interface], name: &str, version: IpVersion) -> InterfaceChoice {
        let here = all.iter().find(|i| i.name == name);
        if let Some(now) = here.and_then(|i| choose_best(i, |a| version.is_of(&a.ip))) {
            return now;
        }
        InterfaceChoice {
            ip: version.unspecified(),
            mtu: here
                .map(|i| i.mtu)
                .filter(|&mtu| mtu > 0)
                .unwrap_or(USUAL_MTU),
            loopback: false,
            ..InterfaceChoice::none(name)
        }
    }

    /// Returns whether a rail waits for this interface. Until the rail moves to the interface's
    /// address it listens on a loopback address, where no packets arrive.
    pub fn is_awaited(&self) -> bool {
        self.is_some() && self.ip.is_unspecified()
    }

    /// The address to which the rail's socket binds.
    pub(crate) fn bind_ip(&self) -> IpAddr {
        match (self.is_awaited(), self.ip) {
            (false, ip) => ip,
            (true, IpAddr::V4(_)) => Ipv4Addr::LOCALHOST.into(),
            (true, IpAddr::V6(_)) => Ipv6Addr::LOCALHOST.into(),
        }
    }

    /// Returns whether the rail has an interface.
    pub(super) fn is_some(&self) -> bool {
        self.mtu > 0
    }
}

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IpVersion {
    /// 4.
    V4,
    /// 6.
    V6,
}

impl IpVersion {
    /// The version of an address.
    pub(crate) fn of(ip: &IpAddr) -> IpVersion {
        match ip {
            IpAddr::V4(_) => IpVersion::V4,
            IpAddr::V6(_) => IpVersion::V6,
        }
    }

    /// Returns whether an address is of this version and not link-local.
    fn is_of(self, ip: &IpAddr) -> bool {
        match (self, ip) {
            (IpVersion::V4, IpAddr::V4(ip)) => !ip.is_link_local(),
            (IpVersion::V6, IpAddr::V6(ip)) => !ip.is_unicast_link_local(),
            _ => false,
        }
    }

    fn unspecified(self) -> IpAddr {
        match self {
            IpVersion::V4 => Ipv4Addr::UNSPECIFIED.into(),
            IpVersion::V6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }
}

impl fmt::Display for InterfaceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.ip)
    }
}

/// The interfaces to use; without names, every usable interface. A name is an interface, a pattern
/// such as `eth*`, an IP address or a subnet such as `10.1.0.0/16`; the order of names is the order
/// of rails. An interface after `later:` may be missing or have no address yet. A pattern, a subnet
/// or nothing after `later:` (all usable interfaces) stands for the interfaces that exist plus two
/// that may appear. Errors are texts for users.
pub fn choose_interfaces(names: &[String]) -> Result<Vec<InterfaceChoice>, String> {
    choose_by(names, IpVersion::V4)
}

/// Like `choose_interfaces`, with the IP version for interfaces after `later:`.
pub(crate) fn choose_by(
    names: &[String],
    later: IpVersion,
) -> Result<Vec<InterfaceChoice>, String> {
    let all = sys::interfaces()
        .map_err(|e| format!("cannot list the network interfaces: {}", sys::errno_text(e)))?;
    let mut chosen = choose_among(&all, names, later)?;
    for choice in &mut chosen {
        choice.bytes_per_s = sys::link_bytes_per_s(&choice.name);
    }
    Ok(chosen)
}

/// The interfaces that are used only if named, each with the reason, for people.
pub fn unused_interfaces() -> Vec<String> {
    let all = sys::interfaces().unwrap_or_default();
    let used = choose_usable(&all).unwrap_or_default();
    let unused = |i: &&Interface| !i.loopback && used.iter().all(|u| u.name != i.name);
    let why = |i: &Interface| match (i.up, i.running, i.addrs.is_empty()) {
        (false, ..) => "down (ip link set up)".to_owned(),
        (_, false, _) => "no carrier (cable, switch port, other end)".to_owned(),
        (.., true) => "no address (DHCP, ip addr add)".to_owned(),
        _ => format!("the first {UNNAMED_MAX} are used, unless others are named"),
    };
    let text = |i: &Interface| format!("{}: {}", i.name, why(i));
    all.iter().filter(unused).map(text).collect()
}

/// Returns whether a name denotes a single interface that may appear later; false for patterns,
/// which also stand for existing interfaces.
pub(crate) fn is_later(name: &str) -> bool {
    let later = name.strip_prefix(LATER);
    later.is_some_and(|later| matches!(Wanted::parse(later), Ok(Wanted::Named)))
}

fn choose_among(
    all: &[Interface],
    names: &[String],
    later: IpVersion,
) -> Result<Vec<InterfaceChoice>, String> {
    let names: Vec<&str> = names
        .iter()
        .map(|n| n.trim())
        .filter(|n| !n.is_empty())
        .collect();
    if names.is_empty() {
        return choose_usable(all);
    }
    let mut chosen: Vec<InterfaceChoice> = Vec::new();
    for name in names {
        for choice in choose_named(all, name, later)? {
            let same = |c: &InterfaceChoice| (&c.name, c.ip) == (&choice.name, choice.ip);
            if !chosen.iter().any(same) {
                chosen.push(choice);
            }
        }
    }
    if chosen.len() > RAILS_MAX {
        let count = chosen.len();
        return Err(format!(
            "{count} rails were named, {RAILS_MAX} are the most; name fewer"
        ));
    }
    Ok(chosen)
}

/// Number of rails that wait for interfaces of a pattern or subnet, in addition to rails of
/// interfaces that exist.
const LATER_RAILS: usize = 2;

/// The interface named after `later:`, or those of several that exist and [`LATER_RAILS`]
/// placeholders.
fn choose_later(
    all: &[Interface],
    later: &str,
    version: IpVersion,
) -> Result<Vec<InterfaceChoice>, String> {
    let (mut chosen, version) = match Wanted::parse(later)? {
        Wanted::Named => return Ok(vec![InterfaceChoice::now_or_later(all, later, version)]),
        Wanted::Usable => (choose_usable(all)?, version),
        Wanted::Pattern(pattern) => {
            let fit = all
                .iter()
                .filter(|i| glob(pattern.as_bytes(), i.name.as_bytes()));
            (
                fit.filter_map(|i| choose_best(i, |_| true)).collect(),
                version,
            )
        }
        Wanted::Subnet(ip, bits) => {
            let inside = |a: &InterfaceAddr| in_subnet(&a.ip, &ip, bits);
            let fit = all.iter().filter_map(|i| choose_best(i, inside));
            (fit.collect(), IpVersion::of(&ip))
        }
    };
    chosen.extend((1..=LATER_RAILS).map(|n| InterfaceChoice {
        ip: version.unspecified(),
        mtu: USUAL_MTU,
        loopback: false,
        ..InterfaceChoice::none(&format!("{LATER}{later}#{n}"))
    }));
    Ok(chosen)
}

/// The interfaces for which a rail may wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A single interface.
    Named,
    /// Any usable interface.
    Usable,
    /// An interface whose name matches.
    Pattern(String),
    /// An interface with an address in a subnet.
    Subnet(IpAddr, u8),
}

impl Wanted {
    /// Parses the text after `later:`.
    fn parse(later: &str) -> Result<Wanted, String> {
        Ok(match (later, parse_subnet(later)?) {
            ("", _) => Wanted::Usable,
            (_, Some((ip, bits))) => Wanted::Subnet(ip, bits),
            (pattern, None) if pattern.contains(['*', '?']) => Wanted::Pattern(pattern.to_owned()),
            (name, None) if name.contains(':') => {
                return Err(format!("{LATER}{name}: this is no name of an interface"))
            }
            (_, None) => Wanted::Named,
        })
    }

    /// Parses the name of the placeholder of a rail that waits for one of several interfaces.
    pub(super) fn of_name(name: &str) -> Option<Wanted> {
        let (later, _) = name.strip_prefix(LATER)?.rsplit_once('#')?;
        Wanted::parse(later).ok()
    }

    /// The interface with its best address of the version of `ip`, if it is usable and one of those
    /// awaited.
    pub(super) fn take(&self, interface: &Interface, ip: &IpAddr) -> Option<InterfaceChoice> {
        let usable = interface.up && interface.running && interface.mtu > 0 && !interface.loopback;
        let version = IpVersion::of(ip);
        let fits = |a: &InterfaceAddr| match self {
            Wanted::Named => false,
            Wanted::Usable => true,
            Wanted::Pattern(pattern) => glob(pattern.as_bytes(), interface.name.as_bytes()),
            Wanted::Subnet(ip, bits) => in_subnet(&a.ip, ip, *bits),
        };
        let best = choose_best(interface, |a| version.is_of(&a.ip) && fits(a));
        best.filter(|_| usable)
    }
}

/// The prefix of names of interfaces that may appear later.
const LATER: &str = "later:";
/// The MTU assumed for an interface that does not exist yet.
const USUAL_MTU: usize = 1_500;

/// Most interfaces used without being named. Each adds a socket to every poll, and container hosts
/// have dozens of interfaces that lead nowhere.
const UNNAMED_MAX: usize = 8;

/// Every interface that is up and has carrier and an address; loopback only if there is no other.
fn choose_usable(all: &[Interface]) -> Result<Vec<InterfaceChoice>, String> {
    let usable = |loopback: bool| {
        let fit = move |i: &&Interface| i.up && i.running && i.mtu > 0 && i.loopback == loopback;
        let choices = all
            .iter()
            .filter(fit)
            .filter_map(|i| choose_best(i, |_| true));
        choices.take(UNNAMED_MAX).collect::<Vec<_>>()
    };
    let mut chosen = usable(false);
    if chosen.is_empty() {
        chosen = usable(true);
    }
    if chosen.is_empty() {
        return Err(format!(
            "no usable network interface; there is {}",
            list(all)
        ));
    }
    Ok(chosen)
}

/// The interfaces that one name denotes.
fn choose_named(
    all: &[Interface],
    name: &str,
    version: IpVersion,
) -> Result<Vec<InterfaceChoice>, String> {
    if let Some(later) = name.strip_prefix(LATER) {
        return choose_later(all, later, version);
    }
    let chosen: Vec<InterfaceChoice> = match parse_subnet(name)? {
        Some((ip, bits)) => {
            let inside = |a: &InterfaceAddr| in_subnet(&a.ip, &ip, bits);
            all.iter().filter_map(|i| choose_best(i, inside)).collect()
        }
        None => {
            let fit = |i: &&Interface| glob(name.as_bytes(), i.name.as_bytes());
            let named: Vec<_> = all.iter().filter(fit).collect();
            if let ([only], false) = (&named[..], name.contains(['*', '?'])) {
                if only.addrs.is_empty() {
                    return Err(format!(
                        "interface {name} has no IP address; give it one or leave it out"
                    ));
                }
            }
            named
                .into_iter()
                .filter_map(|i| choose_best(i, |_| true))
                .collect()
        }
    };
    if chosen.is_empty() {
        return Err(format!(
            "no interface or address here matches {name}; there is {}",
            list(all)
        ));
    }
    Ok(chosen)
}

/// The interface with its best matching address: IPv4, then global IPv6, then link-local ones.
pub(super) fn choose_best(
    interface: &Interface,
    fit: impl Fn(&InterfaceAddr) -> bool,
) -> Option<InterfaceChoice> {
    let rank = |a: &&InterfaceAddr| match a.ip {
        IpAddr::V4(ip) if !ip.is_link_local() => 0,
        IpAddr::V6(ip) if !ip.is_unicast_link_local() => 1,
        IpAddr::V4(_) => 2,
        IpAddr::V6(_) => 3,
    };
    let addr = interface.addrs.iter().filter(|a| fit(a)).min_by_key(rank)?;
    Some(InterfaceChoice {
        name: interface.name.clone(),
        ip: addr.ip,
        prefix_len: addr.prefix_len,
        scope_id: addr.scope_id,
        mtu: interface.mtu,
        bytes_per_s: 0,
        loopback: interface.loopback,
    })
}

/// Lists the existing interfaces for an error text.
fn list(all: &[Interface]) -> String {
    let one = |i: &Interface| {
        let state = match (i.up, i.running) {
            (false, _) => " down",
            (true, false) => " without carrier",
            _ => "",
        };
        let addrs: Vec<_> = i.addrs.iter().map(|a| a.ip.to_string()).collect();
        match addrs.is_empty() {
            true => format!("{}{state} without address", i.name),
            false => format!("{}{state} ({})", i.name, addrs.join(", ")),
        }
    };
    match all.is_empty() {
        true => "none at all".to_owned(),
        false => all.iter().map(one).collect::<Vec<_>>().join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, addrs: &[&str]) -> Interface {
        let addr = |text: &&str| {
            let (ip, bits) = text.split_once('/').unwrap();
            InterfaceAddr {
                ip: ip.parse().unwrap(),
                prefix_len: bits.parse().unwrap(),
                scope_id: 0,
            }
        };
        Interface {
            name: name.to_owned(),
            index: 0,
            up: true,
            running: true,
            loopback: name == "lo",
            mtu: 1500,
            addrs: addrs.iter().map(addr).collect(),
        }
    }

    fn chosen(all: &[Interface], names: &[&str]) -> Result<String, String> {
        let names: Vec<_> = names.iter().map(|n| n.to_string()).collect();
        let chosen = choose_among(all, &names, IpVersion::V4)?;
        Ok(chosen
            .iter()
            .map(|c| c.to_string())
            .collect::<Vec<_>>()
            .join(" "))
    }

    #[test]
    fn the_best_address_of_each_interface_is_taken() {
        let all = [
            interface("lo", &["127.0.0.1/8"]),
            interface(
                "a",
                &["fe80::1/64", "fd00::1/64", "169.254.0.1/16", "10.0.0.1/24"],
            ),
            interface("b", &["fe80::1/64", "169.254.0.1/16", "fd00::1/64"]),
            interface("c", &["fe80::1/64"]),
            interface("d", &[]),
        ];
        assert_eq!(
            chosen(&all, &[]).unwrap(),
            "a (10.0.0.1) b (fd00::1) c (fe80::1)"
        );
        assert_eq!(
            chosen(&all, &["c", "fd00::1"]).unwrap(),
            "c (fe80::1) a (fd00::1) b (fd00::1)"
        );
        assert_eq!(
            chosen(&all, &["?", "a"]).unwrap(),
            chosen(&all, &[]).unwrap()
        );
        assert!(chosen(&all, &["d"])
            .unwrap_err()
            .contains("d has no IP address"));
        assert!(chosen(&all, &["10.0.0.9/99"])
            .unwrap_err()
            .contains("up to 32"));
        assert!(chosen(&all, &["here/24"])
            .unwrap_err()
            .contains("here is not an IP address"));
        assert!(chosen(&all, &["10.0.0.2"])
            .unwrap_err()
            .contains("c (fe80::1); d without address"));
    }

    #[test]
    fn a_pattern_after_later_adds_placeholders() {
        let all = [
            interface("lo", &["127.0.0.1/8"]),
            interface("eth0", &["10.0.0.1/24"]),
            interface("ib0", &["10.1.0.1/24"]),
            interface("eth1", &[]),
        ];
        let two = |first: &str| format!("{first}later (0.0.0.0) later (0.0.0.0)");
        for (name, first) in [
            ("later:", "eth0 (10.0.0.1) ib0 (10.1.0.1) "),
            ("later:eth*", "eth0 (10.0.0.1) "),
            ("later:10.1.0.0/16", "ib0 (10.1.0.1) "),
            ("later:wlan?", ""),
        ] {
            let shown = chosen(&all, &[name]).unwrap();
            let shown = shown.replace(&format!("{name}#1"), "later");
            assert_eq!(shown.replace(&format!("{name}#2"), "later"), two(first));
        }
        assert_eq!(
            chosen(&all, &["later:fd00::/8"])
                .unwrap()
                .matches("(::)")
                .count(),
            2
        );
        assert!(chosen(&all, &["later:10.0.0.0/99"]).is_err());
        assert!(chosen(&all, &["later:a:b"]).is_err());
        let takes = |name: &str, at: usize, ip: &str| {
            let wanted = Wanted::of_name(name).unwrap();
            wanted.take(&all[at], &ip.parse().unwrap()).is_some()
        };
        assert!(takes("later:#1", 2, "0.0.0.0") && takes("later:eth*#2", 1, "0.0.0.0"));
        assert!(!takes("later:#1", 0, "0.0.0.0") && !takes("later:eth*#2", 3, "0.0.0.0"));
        assert!(!takes("later:eth*#1", 2, "0.0.0.0") && !takes("later:#1", 2, "::"));
        assert_eq!(Wanted::of_name("eth0"), None);
    }

    #[test]
    fn no_more_rails_than_a_hello_can_name() {
        let all: Vec<_> = (0..RAILS_MAX + 1)
            .map(|i| interface(&format!("e{i}"), &["10.0.0.1/8"]))
            .collect();
        assert_eq!(chosen(&all, &[]).unwrap().matches('e').count(), 8);
        assert!(chosen(&all, &["e*"])
            .unwrap_err()
            .contains("33 rails were named, 32 are the most"));
        assert_eq!(chosen(&all, &["e8"]).unwrap(), "e8 (10.0.0.1)");
        assert!(chosen(&[], &[]).unwrap_err().contains("none at all"));
    }

    #[test]
    fn subnets_hold_their_addresses_at_every_width() {
        let inside = |ip: &str, net: &str, bits| {
            in_subnet(&ip.parse().unwrap(), &net.parse().unwrap(), bits)
        };
        assert!(inside("10.1.2.3", "10.1.0.0", 16) && !inside("10.2.2.3", "10.1.0.0", 16));
        assert!(inside("1.2.3.4", "9.9.9.9", 0) && !inside("1.2.3.4", "::", 0));
        assert!(inside("1.2.3.4", "1.2.3.4", 32) && !inside("1.2.3.5", "1.2.3.4", 32));
        assert!(inside("fd00::1", "fd00::2", 64) && !inside("fd00::1", "fd00::2", 128));
        assert!(inside("fd00::1", "::", 0));
    }
}
