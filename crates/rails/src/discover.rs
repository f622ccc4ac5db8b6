//! Decides which rails a process has: the kinds, their names in settings, and how they are opened.
//!
//! A name is `KIND:WHAT`, `KIND` for all usable rails of a kind, or `WHAT` alone for the default
//! kind; each kind defines its own WHAT. Each kind is a row of [`KINDS`].

use crate::any::AnyRail;
use crate::fault::{Clock, FaultScript, Faulty};
use crate::interfaces::{choose_by, choose_interfaces, is_later, InterfaceChoice, IpVersion};
use crate::shm::{ShmConfig, ShmRail};
use crate::tcp::{TcpConfig, TcpRail};
use crate::udp::{UdpConfig, UdpRail};
use crate::verbs::{self, VerbsConfig, VerbsRail};
use crate::xdp::XdpRail;
use crate::RailFault;
use marline_wire::RAILS_MAX;
use std::net::IpAddr;
use std::path::PathBuf;

/// A kind of rail.
struct Kind {
    /// The kind's name in settings.
    name: &'static str,
    /// The rails that the names denote; without names, all usable rails. A rail whose interface has
    /// no address yet waits for one of this IP version.
    choose: fn(&[String], IpVersion) -> Result<Vec<InterfaceChoice>, String>,
    /// Several rails may use one interface.
    paths: bool,
    /// Opens a rail of this kind.
    open: fn(&RailChoice, &RailsConfig) -> Result<AnyRail, String>,
}

/// All kinds; the first is the default.
const KINDS: &[Kind] = &[
    Kind {
        name: "udp",
        choose: choose_by,
        paths: false,
        open: open_udp,
    },
    Kind {
        name: "tcp",
        choose: choose_by,
        paths: false,
        open: open_tcp,
    },
    Kind {
        name: "shm",
        choose: choose_shm,
        paths: false,
        open: open_shm,
    },
    Kind {
        name: "ud",
        choose: choose_verbs,
        paths: true,
        open: open_verbs,
    },
    Kind {
        name: "rc",
        choose: choose_verbs,
        paths: true,
        open: open_verbs,
    },
    Kind {
        name: "uc",
        choose: choose_verbs,
        paths: true,
        open: open_verbs,
    },
    Kind {
        name: "xdp",
        choose: choose_by,
        paths: false,
        open: open_xdp,
    },
];

/// A rail to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailChoice {
    /// Index in [`KINDS`].
    kind: usize,
    /// The name gave no kind, so the rail is of the default kind.
    implied: bool,
    /// The rail is the standby of the rail before it.
    pub standby: bool,
    /// Index among the rails on one port; 0 for a single rail.
    at: usize,
    /// The interface that the rail uses.
    pub interface: InterfaceChoice,
}

impl RailChoice {
    /// The rail's name in messages and statistics: the interface's name, prefixed by the kind
    /// unless it is the default kind. The second rail on a port gets the suffix `/2`, and so on.
    pub fn name(&self) -> String {
        let name = match self.kind {
            0 => self.interface.name.clone(),
            kind if KINDS[kind].name == self.interface.name => self.interface.name.clone(),
            kind => format!("{}:{}", KINDS[kind].name, self.interface.name),
        };
        match self.at {
            0 => name,
            at => format!("{name}/{}", at + 1),
        }
    }

    /// The rail that is used if this one cannot be opened: for a rail past the stack a UDP rail on
    /// the same interface.
    pub fn instead(&self) -> Option<RailChoice> {
        (self.kind == XDP).then(|| RailChoice {
            kind: 0,
            ..self.clone()
        })
    }

    /// Returns whether both are rails of one kind at one address of an interface.
    pub fn is_same(&self, other: &RailChoice) -> bool {
        self.is_of(other.kind, &other.interface)
    }

    fn is_of(&self, kind: usize, interface: &InterfaceChoice) -> bool {
        let (own, other) = (&self.interface, interface);
        (self.kind, &own.name, own.ip) == (kind, &other.name, other.ip)
    }

    /// Returns whether the rail waits for an interface or for an address of the interface.
    pub fn is_awaited(&self) -> bool {
        is_over_ip(self.kind) && self.interface.is_awaited()
    }

    /// The reason, for people, why the rail cannot carry packets at present with these settings.
    pub fn complaint(&self, config: &RailsConfig) -> Option<String> {
        let why = match (self.kind, self.interface.state()) {
            (0 | TCP | XDP, RailFault::Down(errno)) => match errno {
                libc::ENODEV => "there is no such interface",
                libc::ENETDOWN => "its interface is down, or has no carrier",
                libc::EADDRNOTAVAIL => "its interface has no address of the version that is wanted",
                _ => "its interface reports an error",
            },
            (0 | TCP | SHM, _) => return None,
            (XDP, _) => return XdpRail::open(&self.interface, &config.udp, &config.xdpd).err(),
            _ => return verbs::complaint(&self.interface.name, config.verbs.marks),
        };
        Some(why.to_owned())
    }
}

impl RailChoice {
    /// How this process would have a rail past the stack, for people; `None` for other rails and
    /// where it cannot have one.
    pub fn facts(&self, config: &RailsConfig) -> Option<String> {
        let is_past = self.kind == XDP && !self.interface.is_awaited();
        let open = || XdpRail::open(&self.interface, &config.udp, &config.xdpd).ok();
        is_past.then(open)?.map(|rail| rail.facts().to_owned())
    }
}

/// Settings of all kinds.
#[derive(Clone, Debug, Default)]
pub struct RailsConfig {
    /// UDP.
    pub udp: UdpConfig,
    /// TCP.
    pub tcp: TcpConfig,
    /// Shared memory.
    pub shm: ShmConfig,
    /// InfiniBand and RoCE.
    pub verbs: VerbsConfig,
    /// Path of the socket of `marline xdpd`, which rails past the stack may ask; empty: none is
    /// asked.
    pub xdpd: PathBuf,
    /// Faults to inject, by rail.
    pub faults: Vec<FaultScript>,
}

/// The rails that the names denote, in their order; without names, all usable rails of the default
/// kind. A kind without a usable rail is an error only if no other rail was found. Errors are texts
/// for users.
pub fn choose_rails(names: &[String]) -> Result<Vec<RailChoice>, String> {
    let names = names.iter().map(|name| name.trim());
    let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    let mut chosen: Vec<RailChoice> = Vec::new();
    if names.is_empty() {
        let interfaces = choose_interfaces(&[])?;
        chosen.extend(interfaces.into_iter().map(|i| choice(0, true, i)));
    }
    let (mut missing, version) = (None, version_of(&names));
    for &name in &names {
        let (kind, what) = kind_of(name);
        let implied = what == Some(name);
        let what: Vec<_> = what.map(str::to_owned).into_iter().collect();
        let found = match (KINDS[kind].choose)(&what, version) {
            // The name asks for all rails of a kind, and there are none: other names may suffice.
            Err(why) if what.is_empty() => {
                missing.get_or_insert(why);
                continue;
            }
            found => found.map_err(|why| explained(name, why))?,
        };
        for interface in found {
            if !chosen.iter().any(|one| one.is_of(kind, &interface)) {
                chosen.push(choice(kind, implied, interface));
            }
        }
    }
    match chosen.len() {
        0 if missing.is_some() => Err(missing.unwrap_or_default()),
        1.. if chosen.iter().all(RailChoice::is_awaited) => Err(format!(
            "no rail is there yet, and a job needs one to begin with: {}",
            names.join(",")
        )),
        count if count > RAILS_MAX => Err(too_many(count)),
        _ => Ok(chosen),
    }
}

fn too_many(count: usize) -> String {
    format!("{count} rails were named, {RAILS_MAX} are the most; name fewer")
}

/// Makes `paths` rails on each port of a verbs device: each has its own queue pairs, which routers
/// distinguish (ECMP).
pub fn with_paths(choices: Vec<RailChoice>, paths: usize) -> Result<Vec<RailChoice>, String> {
    let of_port = |choice: RailChoice| {
        let count = match KINDS[choice.kind].paths {
            true => paths,
            false => 1,
        };
        (0..count).map(move |at| RailChoice {
            at,
            ..choice.clone()
        })
    };
    let all: Vec<RailChoice> = choices.into_iter().flat_map(of_port).collect();
    match all.len() {
        count if count > RAILS_MAX => Err(too_many(count)),
        _ => Ok(all),
    }
}

/// The IP version of awaited addresses: that of the other rails.
fn version_of(names: &[&str]) -> IpVersion {
    let later = |name: &&&str| kind_of(name).1.is_some_and(is_later);
    if !names.iter().any(|name| later(&name)) {
        return IpVersion::V4; // no awaited rail
    }
    let mut others = Vec::new();
    for name in names.iter().filter(|name| !later(name)) {
        let (kind, what) = kind_of(name);
        let what: Vec<_> = what.map(str::to_owned).into_iter().collect();
        if is_over_ip(kind) {
            // An error is reported when this name is processed.
            let found = choose_interfaces(&what).unwrap_or_default();
            others.extend(found.into_iter().filter(|one| !one.is_awaited()));
        }
    }
    let v6 = |c: &InterfaceChoice| IpVersion::of(&c.ip) == IpVersion::V6;
    match !others.is_empty() && others.iter().all(v6) {
        true => IpVersion::V6,
        false => IpVersion::V4,
    }
}

fn choice(kind: usize, implied: bool, interface: InterfaceChoice) -> RailChoice {
    RailChoice {
        kind,
        implied,
        standby: false,
        at: 0,
        interface,
    }
}

/// Indices in [`KINDS`].
const TCP: usize = 1;
const SHM: usize = 2;
const XDP: usize = 6;

/// Returns whether rails of a kind are on an interface with an IP address.
fn is_over_ip(kind: usize) -> bool {
    matches!(kind, 0 | TCP | XDP)
}

/// Adds a TCP rail behind each UDP rail that was named without a kind, unless a TCP rail was named
/// there. The TCP rail is a standby rail, or with `equal` a full rail. Nothing is added beyond the
/// maximum number of rails.
pub fn with_tcp_standby(choices: Vec<RailChoice>, equal: bool) -> Vec<RailChoice> {
    let named = |interface| choices.iter().any(|one| one.is_of(TCP, interface));
    let mut all = Vec::new();
    for one in &choices {
        all.push(one.clone());
        if one.kind == 0 && one.implied && !named(&one.interface) {
            all.push(RailChoice {
                standby: !equal,
                ..choice(TCP, true, one.interface.clone())
            });
        }
    }
    match all.len() > RAILS_MAX {
        true => choices,
        false => all,
    }
}

/// Splits a name into its kind and the rest. (An IPv6 address has colons too, but does not begin
/// with a kind.)
fn kind_of(name: &str) -> (usize, Option<&str>) {
    let (kind, what) = match name.split_once(':') {
        Some((kind, what)) => (kind, Some(what)),
        None => (name, None),
    };
    let named = KINDS.iter().position(|k| k.name == kind);
    named.map_or((0, Some(name)), |at| (at, what))
}

/// The error text for a name that denotes no rail; lists the kinds if the name begins with an
/// unknown kind.
fn explained(name: &str, why: String) -> String {
    let is_address = name
        .split('/')
        .next()
        .is_some_and(|ip| ip.parse::<IpAddr>().is_ok());
    let kind = name.split_once(':').map_or("", |(kind, _)| kind);
    // Labels of addresses (eth0:1) have colons too.
    let is_word = !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_alphabetic());
    match kind {
        _ if is_address || !is_word || kind == "later" => why,
        kind if KINDS.iter().all(|known| known.name != kind) => {
            let known: Vec<&str> = KINDS.iter().map(|known| known.name).collect();
            format!(
                "{name}: there is no kind of rails {kind}; there are {}, and later: before an \
                 interface that may come; {why}",
                known.join(", ")
            )
        }
        _ => why,
    }
}

/// Opens the rail number `index` with its configured faults. `clock` returns nanoseconds from an
/// arbitrary start; only fault injection calls it.
pub fn open_rail(
    index: u8,
    choice: &RailChoice,
    config: &RailsConfig,
    clock: &Clock,
) -> Result<AnyRail, String> {
    let script = config.faults.iter().find(|s| s.applies_to(index));
    let Some(script) = script else {
        return (KINDS[choice.kind].open)(choice, config);
    };
    let mut config = config.clone();
    // Faults apply to single datagrams, so their lengths must be known.
    config.udp.cmsg = true;
    let rail = (KINDS[choice.kind].open)(choice, &config)?;
    let faulty = Faulty::new(rail, &script.for_rail(index), clock.clone());
    Ok(AnyRail::Faulty(Box::new(faulty)))
}

fn open_udp(choice: &RailChoice, config: &RailsConfig) -> Result<AnyRail, String> {
    let rail = UdpRail::open(&choice.interface, &config.udp)?;
    Ok(AnyRail::Udp(Box::new(rail)))
}

fn open_xdp(choice: &RailChoice, config: &RailsConfig) -> Result<AnyRail, String> {
    let rail = XdpRail::open(&choice.interface, &config.udp, &config.xdpd)?;
    Ok(AnyRail::Xdp(Box::new(rail)))
}

fn open_tcp(choice: &RailChoice, config: &RailsConfig) -> Result<AnyRail, String> {
    let rail = TcpRail::open(&choice.interface, &config.tcp)?;
    Ok(AnyRail::Tcp(Box::new(rail)))
}

/// The only shm rail, without an interface.
fn choose_shm(names: &[String], _: IpVersion) -> Result<Vec<InterfaceChoice>, String> {
    match names {
        [] => Ok(vec![InterfaceChoice::none("shm")]),
        [name, ..] => Err(format!(
            "shm:{name}: the rail of shared memory is called shm"
        )),
    }
}

fn open_shm(_: &RailChoice, config: &RailsConfig) -> Result<AnyRail, String> {
    Ok(AnyRail::Shm(Box::new(ShmRail::open(&config.shm)?)))
}

fn choose_verbs(names: &[String], _: IpVersion) -> Result<Vec<InterfaceChoice>, String> {
    verbs::choose(names)
}

fn open_verbs(choice: &RailChoice, config: &RailsConfig) -> Result<AnyRail, String> {
    let (kind, port) = (KINDS[choice.kind].name, &choice.interface.name);
    let rail = VerbsRail::open(kind, port, choice.at, &config.verbs)?;
    Ok(AnyRail::Verbs(Box::new(rail)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unqualified_names_get_a_standby_tcp_rail() {
        let of = |names: &[&str], equal| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let all = with_tcp_standby(choose_rails(&names).unwrap(), equal);
            let shown = all.iter().map(|c| (c.name(), c.standby));
            shown.collect::<Vec<_>>()
        };
        let rail = |name: &str, standby| (name.to_owned(), standby);
        let (udp, behind) = (rail("lo", false), rail("tcp:lo", true));
        assert_eq!(of(&["lo"], false), [udp.clone(), behind]);
        assert_eq!(of(&["udp:lo"], false), std::slice::from_ref(&udp));
        let both = [udp.clone(), rail("tcp:lo", false)];
        assert_eq!(of(&["lo"], true), both);
        assert_eq!(
            of(&["lo", "tcp:lo"], false),
            both,
            "named, it does not stand by"
        );
        assert_eq!(of(&["tcp:lo"], false), [rail("tcp:lo", false)]);
        assert_eq!(
            of(&["lo", "later:not-here"], false)[2..],
            [rail("not-here", false), rail("tcp:not-here", true)]
        );
    }

    #[test]
    fn awaited_addresses_have_the_ip_version_of_other_rails() {
        let awaited = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let all = choose_rails(&names).unwrap();
            let last = all.last().unwrap().interface.clone();
            assert!(last.is_awaited());
            (last.ip.is_ipv6(), last.bind_ip().is_loopback())
        };
        assert_eq!(awaited(&["lo", "later:not-here"]), (false, true));
        assert_eq!(awaited(&["::1", "udp:later:not-here"]), (true, true));
        assert_eq!(awaited(&["::1", "lo", "later:not-here"]), (false, true));
        assert_eq!(awaited(&["shm", "tcp:later:not-here"]), (false, true));
    }

    #[test]
    fn a_port_of_verbs_may_have_several_rails() {
        let rc = KINDS.iter().position(|kind| kind.name == "rc").unwrap();
        let port = |name: &str| choice(rc, false, InterfaceChoice::none(name));
        let lo = choose_rails(&["lo".to_owned()]).unwrap();
        let named = [port("mlx5_0"), lo[0].clone(), port("mlx5_1:2")].to_vec();
        let names = |paths| {
            let all = with_paths(named.clone(), paths)?;
            Ok::<_, String>(all.iter().map(RailChoice::name).collect::<Vec<_>>())
        };
        assert_eq!(names(1).unwrap(), ["rc:mlx5_0", "lo", "rc:mlx5_1:2"]);
        let two = [
            "rc:mlx5_0",
            "rc:mlx5_0/2",
            "lo",
            "rc:mlx5_1:2",
            "rc:mlx5_1:2/2",
        ];
        assert_eq!(names(2).unwrap(), two);
        assert!(names(RAILS_MAX).unwrap_err().contains("name fewer"));
    }

    #[test]
    fn a_name_may_say_its_kind() {
        assert_eq!(kind_of("udp:eth0"), (0, Some("eth0")));
        assert_eq!(kind_of("eth0"), (0, Some("eth0")));
        assert_eq!(kind_of("fd00::1"), (0, Some("fd00::1")));
        assert_eq!(kind_of("udp:fd00::1"), (0, Some("fd00::1")));
        assert_eq!(kind_of("udp"), (0, None));
        assert_eq!(kind_of("tcp:eth*"), (1, Some("eth*")));
        assert_eq!(kind_of("shm"), (2, None));
        let lo = choose_rails(&["udp:127.0.0.1".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        assert_eq!(lo.len(), 1, "named twice, opened once");
        assert_eq!(lo[0].name(), "lo");
        let both = choose_rails(&["lo".to_owned(), "shm".to_owned()]).unwrap();
        let names: Vec<_> = both.iter().map(RailChoice::name).collect();
        assert_eq!(names, ["lo", "shm"]);
        assert!(choose_rails(&["shm:lo".to_owned()]).is_err());
    }

    #[test]
    fn an_unknown_kind_is_answered_with_the_known_kinds() {
        let error = |name: &str| choose_rails(&[name.to_owned()]).unwrap_err();
        for name in ["tpc:lo", "tpc:127.0.0.1", "tpc:later:eth1", "teleport:"] {
            let said = error(name);
            let kind = name.split_once(':').unwrap().0;
            let start = format!(
                "{name}: there is no kind of rails {kind}; there are udp, tcp, shm, ud, rc, uc, \
                 xdp, and later: before"
            );
            assert!(said.starts_with(&start), "{said}");
            assert!(said.contains("there is lo ("), "{said}");
        }
        for name in [
            "fd00::99",
            "fd00::99/64x",
            "abc::1",
            "eth77",
            "tcp:eth77",
            "later:a:b",
        ] {
            let said = error(name);
            assert!(!said.contains("no kind of rails"), "{said}");
        }
    }
}
