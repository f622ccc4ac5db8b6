//! Findings on addresses: two rails of a host in one subnet, addresses that two hosts have, subnets
//! and MTUs that differ from those of the other hosts.

use super::facts::{Cluster, Host, Path, RailId};
use super::finding::{Finding, Severity};
use super::messages::{HostRail, Tcp};
use marline_codes::Code;
use marline_rails::InterfaceChoice;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Interfaces that container and virtual-machine software makes with the same address on each host.
const BRIDGES: [&str; 7] = ["docker", "virbr", "cni", "podman", "br-", "lxcbr", "lxdbr"];

/// The first bits of an address.
fn network(ip: &IpAddr, bits: u8) -> u128 {
    let (value, width) = match ip {
        IpAddr::V4(ip) => (u128::from(ip.to_bits()), 32),
        IpAddr::V6(ip) => (ip.to_bits(), 128),
    };
    let unused = width - u32::from(bits).min(width);
    value.checked_shr(unused).unwrap_or(0)
}

fn in_one(a: (&IpAddr, u8), b: (&IpAddr, u8)) -> bool {
    let bits = a.1.min(b.1);
    a.0.is_ipv4() == b.0.is_ipv4() && network(a.0, bits) == network(b.0, bits)
}

/// Returns whether two rails are in one subnet.
pub fn same(a: &HostRail, b: &HostRail) -> bool {
    in_one((&a.ip, a.prefix_len), (&b.ip, b.prefix_len))
}

/// The larger of the kernel's values of an IPv4 setting, for all interfaces and for one: that one
/// is in force.
pub fn kernel(interface: &str, setting: &str) -> Option<u32> {
    let of = |interface: &str| {
        let path = format!("/proc/sys/net/ipv4/conf/{interface}/{setting}");
        std::fs::read_to_string(path)
            .ok()?
            .trim()
            .parse::<u32>()
            .ok()
    };
    of("all").max(of(interface))
}

/// A setting of the kernel, its good values, and one of them.
type Setting = (&'static str, fn(u32) -> bool, u32);

/// Settings that two interfaces in one subnet need.
const NEEDED: [Setting; 3] = [
    ("arp_ignore", |value| value >= 1, 1),
    ("arp_announce", |value| value == 2, 2),
    ("rp_filter", |value| value != 1, 2),
];

/// Findings on two interfaces of this host in one subnet. `kernel` reads a setting of an interface.
pub fn on_one_host(
    interfaces: &[InterfaceChoice],
    kernel: &dyn Fn(&str, &str) -> Option<u32>,
) -> Vec<Finding> {
    let mut all = Vec::new();
    for (at, a) in interfaces.iter().enumerate() {
        for b in &interfaces[at + 1..] {
            let one = in_one((&a.ip, a.prefix_len), (&b.ip, b.prefix_len));
            if a.name == b.name || !one || !a.ip.is_ipv4() {
                continue;
            }
            let wrong = |(setting, fits, _): &&Setting| {
                let values = [&a.name, &b.name].map(|name| kernel(name, setting));
                values.into_iter().flatten().any(|value| !fits(value))
            };
            let wrong: Vec<_> = NEEDED.iter().filter(wrong).collect();
            let names: Vec<&str> = wrong.iter().map(|(name, ..)| *name).collect();
            let set = wrong
                .iter()
                .map(|(name, _, value)| format!("sysctl -w net.ipv4.conf.all.{name}={value}\n"));
            if !wrong.is_empty() {
                let what = format!("{} and {} are in one subnet", a.name, b.name);
                let why = "packets for one may arrive at the other, or be dropped";
                let finding = Finding::warning(Code::Subnets, what)
                    .because(format!("with the present {} {why}", names.join(", ")));
                all.push(finding.mend(set.collect::<String>()));
            }
        }
    }
    all
}

/// Rails whose address another host has as well, but for bridges of containers.
fn duplicates(cluster: &Cluster) -> Vec<(IpAddr, Vec<RailId>)> {
    let mut owners: BTreeMap<IpAddr, Vec<RailId>> = BTreeMap::new();
    for (id, rail) in cluster.rails() {
        owners.entry(rail.ip).or_default().push(id);
    }
    let several = |ids: &[RailId]| ids.iter().any(|id| id.host != ids[0].host);
    owners.retain(|_, ids| several(ids));
    owners.into_iter().collect()
}

/// Rails whose address is not theirs alone.
pub fn twice(cluster: &Cluster) -> BTreeSet<RailId> {
    let all = duplicates(cluster).into_iter();
    all.flat_map(|(_, ids)| ids).collect()
}

/// Findings on the addresses and MTUs of several hosts.
pub fn findings(cluster: &Cluster) -> Vec<Finding> {
    let mut all = Vec::new();
    for (ip, ids) in duplicates(cluster) {
        let bridge = |id: &RailId| {
            let name = cluster.end(*id).rail;
            BRIDGES.iter().any(|start| name.starts_with(start))
        };
        if !ids.iter().all(bridge) {
            let names: Vec<String> = ids.iter().map(|id| cluster.end(*id).name()).collect();
            let what = format!("{} have the same address {ip}", names.join(" and "));
            let last = ids.last().map(|id| cluster.end(*id));
            let (host, rail) = last.map_or_else(Default::default, |end| (end.host, end.rail));
            all.push(
                Finding::broken(Code::Subnets, what)
                    .because("packets for one arrive at the other, or at both by turns")
                    .mend(format!(
                        "on {host}: ip addr del {ip} dev {rail}; ip addr add ADDRESS dev {rail}"
                    )),
            );
        }
    }
    all.extend(apart(cluster).into_values());
    all.extend(mtus(cluster));
    all.extend(counts(cluster));
    all
}

/// Rails in a subnet of their own, though the other hosts share one, that no route reaches.
pub fn apart(cluster: &Cluster) -> BTreeMap<RailId, Finding> {
    let twice = twice(cluster);
    let shares = |id: RailId, rail: &HostRail| {
        let mut others = cluster.rails().filter(|(other, _)| other.host != id.host);
        others.any(|(_, other)| same(rail, other))
    };
    let any = |id: RailId, is: &dyn Fn(&Path) -> bool| {
        let mut paths = cluster.paths.iter();
        paths.any(|path| (path.from == id || path.to == id) && is(path))
    };
    let routed = |id| any(id, &|path| path.contact.tcp == Tcp::Open);
    let peers = |id: RailId| {
        let others = cluster.rails().filter(|(other, _)| other.host != id.host);
        let peers = others.filter(|(other, _)| other.rail == id.rail);
        peers.collect::<Vec<_>>()
    };
    let mut all = BTreeMap::new();
    for (id, rail) in cluster.rails() {
        let peers = peers(id);
        let usual = peers.iter().any(|&(other, r)| shares(other, r)) || peers.len() == 1;
        if twice.contains(&id) || rail.udp.is_none() && rail.down.is_some() {
            continue;
        }
        if !usual || shares(id, rail) || routed(id) {
            continue;
        }
        let Some((other, there)) = peers.first() else {
            continue;
        };
        let name = cluster.end(id).name();
        let what = format!(
            "{name} ({}/{}) is in another subnet",
            rail.ip, rail.prefix_len
        );
        let whose = format!(
            "{} ({}/{})",
            cluster.end(*other).name(),
            there.ip,
            there.prefix_len
        );
        // A UDP rail leaves by its interface without a route, as if all hosts were on its link.
        let (severity, passes) = match any(id, &Path::carries) {
            true => (Severity::Warning, ": UDP passes on the link, TCP does not"),
            false => (Severity::Broken, ""),
        };
        let reason = format!("than {whose}, and no route leads from one to the other{passes}");
        let mend = format!(
            "on {}: ip addr add ADDRESS/{} dev {}",
            cluster.end(id).host,
            there.prefix_len,
            rail.name
        );
        let finding = Finding::new(severity, Some(Code::Subnets), what).because(reason);
        all.insert(id, finding.mend(mend));
    }
    all
}

/// Rails with an MTU that most others of their subnet do not have.
fn mtus(cluster: &Cluster) -> Vec<Finding> {
    let mut all = Vec::new();
    for (id, rail) in cluster.rails() {
        let near = cluster.rails().filter(|(_, other)| same(rail, other));
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        near.for_each(|(_, other)| *counts.entry(other.mtu).or_default() += 1);
        // Of two that differ, the longer one is taken for the wanted one.
        let usual = counts.iter().max_by_key(|&(mtu, count)| (count, mtu));
        if let Some((&usual, _)) = usual.filter(|&(&usual, _)| usual != rail.mtu) {
            let end = cluster.end(id);
            let what = format!("{} has an MTU of {}", end.name(), rail.mtu);
            all.push(
                Finding::warning(Code::PathShrank, what)
                    .because(format!(
                        "most rails of its subnet have {usual}; longer packets are lost, and all \
                         packets are made shorter"
                    ))
                    .mend(format!(
                        "on {}: ip link set {} mtu {usual}",
                        end.host, rail.name
                    )),
            );
        }
    }
    all
}

/// Hosts with fewer rails than others.
fn counts(cluster: &Cluster) -> Vec<Finding> {
    let examined = || cluster.hosts.iter().filter(|host| host.opened.is_ok());
    let most = examined().map(|host| host.rails().len()).max().unwrap_or(0);
    let fewer = examined().filter(|host| host.rails().len() < most);
    let finding = |host: &Host| {
        let names: Vec<&str> = host.rails().iter().map(|rail| &*rail.name).collect();
        let what = match &names[..] {
            [] => Finding::broken(Code::NoRail, "has no rail to other hosts"),
            names => Finding::warning(
                Code::OneRail,
                format!("has only the rails {}", names.join(", ")),
            ),
        };
        what.because(format!("other hosts have {most}"))
            .mend("marline doctor    # there: why an interface is not used")
            .on(&host.name)
    };
    fewer.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::facts::healthy;
    use super::super::finding::{exit_status, text};
    use super::*;

    fn said(cluster: &Cluster) -> String {
        text(&findings(cluster)).replace("\n  ", " ")
    }

    fn change(cluster: &mut Cluster, host: usize, rail: usize, by: impl Fn(&mut HostRail)) {
        by(&mut cluster.hosts[host].opened.as_mut().unwrap().rails[rail]);
    }

    #[test]
    fn healthy_hosts_give_no_finding() {
        assert_eq!(said(&healthy(3, 2)), "");
        assert_eq!(said(&healthy(2, 1)), "");
    }

    #[test]
    fn an_address_of_two_hosts_is_named() {
        let mut cluster = healthy(3, 2);
        change(&mut cluster, 2, 1, |rail| {
            rail.ip = "10.101.0.2".parse().unwrap()
        });
        let said = said(&cluster);
        assert!(
            said.contains("broken: h1:rail1 and h2:rail1 have the same address 10.101.0.2"),
            "{said}"
        );
        let twice = twice(&cluster);
        assert!(twice.contains(&RailId { host: 1, rail: 1 }) && twice.len() == 2);
    }

    #[test]
    fn bridges_of_containers_may_have_one_address() {
        let mut cluster = healthy(3, 2);
        for host in 0..3 {
            change(&mut cluster, host, 1, |rail| {
                rail.ip = "172.17.0.1".parse().unwrap();
                rail.name = "docker0".to_owned();
            });
        }
        assert_eq!(said(&cluster), "");
        assert_eq!(twice(&cluster).len(), 3);
    }

    #[test]
    fn a_rail_in_another_subnet_is_named_unless_a_route_leads_there() {
        let mut cluster = healthy(3, 2);
        change(&mut cluster, 2, 1, |rail| {
            rail.ip = "10.201.0.3".parse().unwrap()
        });
        assert_eq!(said(&cluster), "", "routed");
        let end = RailId { host: 2, rail: 1 };
        for path in &mut cluster.paths {
            if [path.from, path.to].contains(&end) {
                path.contact.tcp = Tcp::Unreachable;
            }
        }
        let on_link = said(&cluster);
        assert!(on_link.starts_with("warning: h2:rail1"), "{on_link}");
        for path in &mut cluster.paths {
            if [path.from, path.to].contains(&end) {
                path.contacts_arrived = 0;
            }
        }
        let said = said(&cluster);
        assert!(
            said.contains("broken: h2:rail1 (10.201.0.3/16) is in another subnet: than h0:rail1"),
            "{said}"
        );
    }

    #[test]
    fn a_different_mtu_is_named() {
        let mut cluster = healthy(3, 2);
        change(&mut cluster, 1, 0, |rail| rail.mtu = 1_200);
        let said = said(&cluster);
        assert!(
            said.starts_with("warning: h1:rail0 has an MTU of 1200"),
            "{said}"
        );
        assert!(said.contains("on h1: ip link set rail0 mtu 1500"), "{said}");
        assert_eq!(said.matches("warning").count(), 1, "{said}");
    }

    #[test]
    fn a_host_with_fewer_rails_is_named() {
        let mut cluster = healthy(3, 2);
        cluster.hosts[1].opened.as_mut().unwrap().rails.pop();
        let said = said(&cluster);
        assert!(
            said.contains("warning: h1: has only the rails rail0: other hosts have 2"),
            "{said}"
        );
        cluster.hosts[1].opened.as_mut().unwrap().rails.clear();
        assert_eq!(exit_status(&findings(&cluster)), 2);
    }

    #[test]
    fn two_interfaces_in_one_subnet_need_settings() {
        let lo = marline_rails::choose_interfaces(&["lo".to_owned()]).unwrap();
        let interface = |name: &str, ip: &str| InterfaceChoice {
            name: name.to_owned(),
            ip: ip.parse().unwrap(),
            prefix_len: 16,
            ..lo[0].clone()
        };
        let both = [interface("a", "10.1.0.1"), interface("b", "10.1.1.1")];
        let usual = |_: &str, _: &str| Some(0);
        let said = text(&on_one_host(&both, &usual)).replace("\n  ", " ");
        assert!(
            said.contains("warning: a and b are in one subnet"),
            "{said}"
        );
        assert!(
            said.contains("conf.all.arp_ignore=1") && said.contains("arp_announce=2"),
            "{said}"
        );
        assert!(!said.contains("rp_filter"), "{said}");
        let strict = |_: &str, setting: &str| Some(if setting == "rp_filter" { 1 } else { 2 });
        let said = text(&on_one_host(&both, &strict));
        assert!(
            said.contains("rp_filter=2") && !said.contains("arp_ignore=1"),
            "{said}"
        );
        let apart = [interface("a", "10.1.0.1"), interface("b", "10.2.0.1")];
        assert_eq!(on_one_host(&apart, &usual), []);
    }
}
