//! Findings on the ways between hosts: no packets pass, packets or long ones are lost, TCP or
//! multicast does not pass.

use super::facts::{Cluster, Path};
use super::finding::Finding;
use super::messages::Tcp;
use super::places::{groups, Group};
use super::subnets;
use crate::report::End;
use marline_codes::Code;
use std::collections::BTreeSet;

/// Loss in percent from which something is broken: several packets of those sent, which a receiver
/// under load may lose by chance.
const LOSS: f64 = 1.0;

/// The reason why a way does not carry, as far as other packets show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    /// Other ports are open.
    Ports,
    /// TCP passes.
    Udp,
    /// Nothing is known to pass.
    All,
}

/// Findings on all ways.
pub fn findings(cluster: &Cluster) -> Vec<Finding> {
    let apart: BTreeSet<_> = subnets::apart(cluster).into_keys().collect();
    let is_known = |path: &&Path| !apart.contains(&path.from) && !apart.contains(&path.to);
    let paths: Vec<&Path> = cluster.paths.iter().filter(is_known).collect();
    let mut all = Vec::new();
    for block in [Block::Ports, Block::Udp, Block::All] {
        let is = |path: &Path| !path.carries() && block_of(cluster, path) == block;
        all.extend(each(cluster, &paths, is, |group| {
            blocked(cluster, block, group)
        }));
    }
    let lossy = |path: &Path| path.loss_percent().is_some_and(|loss| loss >= LOSS);
    all.extend(each(cluster, &paths, lossy, loss));
    let short = |path: &Path| path.measure.is_some() && path.size_arrived < path.size_wanted;
    all.extend(each(cluster, &paths, short, sizes));
    let tcp = |path: &Path| path.carries() && !matches!(path.contact.tcp, Tcp::Open | Tcp::Untried);
    all.extend(each(cluster, &paths, tcp, without_tcp));
    let group = |path: &Path| path.carries() && path.group_arrived == Some(0);
    all.extend(each(cluster, &paths, group, without_multicast));
    all.extend(summary(cluster));
    all
}

/// A finding for each place of the ways for which `is` holds.
fn each(
    cluster: &Cluster,
    paths: &[&Path],
    is: impl Fn(&Path) -> bool,
    finding: impl Fn(&Group<'_>) -> Finding,
) -> Vec<Finding> {
    let (bad, good): (Vec<&Path>, Vec<&Path>) = paths.iter().partition(|path| is(path));
    let groups = groups(cluster, bad, &good);
    groups.iter().map(finding).collect()
}

fn block_of(cluster: &Cluster, path: &Path) -> Block {
    let back = |other: &&Path| (other.from, other.to) == (path.to, path.from);
    let back = cluster.paths.iter().find(back);
    let tcp = |path: &Path| path.contact.tcp == Tcp::Open;
    match path.any_port_arrived {
        Some(1..) => Block::Ports,
        _ if tcp(path) || back.is_some_and(tcp) => Block::Udp,
        _ => Block::All,
    }
}

fn blocked(cluster: &Cluster, block: Block, group: &Group<'_>) -> Finding {
    let place = &group.place;
    let (least, most) = cluster.ports.unwrap_or_default();
    let one_way = match group.one_way {
        true => "; packets pass in the other direction",
        false => "",
    };
    let filter = at_each(group, |_| "nft list ruleset".to_owned());
    match block {
        Block::Ports => Finding::broken(
            Code::Blocked,
            format!("the ports {least}-{most} are closed {place}"),
        )
        .because(format!(
            "packets to other ports arrive: a firewall{one_way}"
        ))
        .mend(format!(
            "{}    # rules: FI_MARLINE_PORTS={least}-{most} marline doctor --firewall",
            filter.trim_end()
        )),
        Block::Udp => Finding::broken(Code::Blocked, format!("UDP does not pass {place}"))
            .because(format!("TCP does: a firewall{one_way}"))
            .mend(filter),
        Block::All => {
            let reason = match group.one_way {
                true => "a firewall, or a cable or switch that carries one direction only",
                false => "neither UDP nor TCP: cable, switch port, VLAN, or a firewall",
            };
            let look = |end: &End| {
                let rail = &end.rail;
                format!("ip -s link show {rail}; ip neigh show dev {rail}; nft list ruleset")
            };
            Finding::broken(Code::Blocked, format!("nothing passes {place}"))
                .because(format!("{reason}{one_way}"))
                .mend(at_each(group, look))
        }
    }
}

/// A line for each host to look at, with a command for its first rail among them.
fn at_each(group: &Group<'_>, command: impl Fn(&End) -> String) -> String {
    let mut hosts: BTreeSet<&str> = BTreeSet::new();
    let first = group.look_at.iter().filter(|end| hosts.insert(&end.host));
    first
        .map(|end| format!("on {}: {}\n", end.host, command(end)))
        .collect()
}

fn loss(group: &Group<'_>) -> Finding {
    let losses = group.paths.iter().filter_map(|path| path.loss_percent());
    let most = losses.fold(0.0, f64::max);
    let sent = group.paths[0].measure.as_ref().map_or(0, |m| m.sent);
    Finding::broken(Code::Loss, format!("packets are lost {}", group.place))
        .because(format!(
            "up to {most:.1} % of {sent}: cable, NIC or switch port"
        ))
        .mend(at_each(group, |end| {
            format!("ip -s link show {0}; ethtool -S {0}", end.rail)
        }))
}

fn sizes(group: &Group<'_>) -> Finding {
    let least = group.paths.iter().min_by_key(|path| path.size_arrived);
    let (arrived, wanted) = least.map_or((0, 0), |p| (p.size_arrived, p.size_wanted));
    let what = format!(
        "packets of more than {arrived} bytes vanish {}",
        group.place
    );
    Finding::warning(Code::PathShrank, what)
        .because(format!(
            "the interfaces take {wanted} bytes, a switch or router between them fewer"
        ))
        .mend(format!(
            "raise the MTU of the switch to {wanted}, or: ip link set {} mtu {arrived}",
            group.look_at.first().map_or("RAIL", |end| &end.rail)
        ))
}

fn without_tcp(group: &Group<'_>) -> Finding {
    let refused = group
        .paths
        .iter()
        .any(|path| path.contact.tcp == Tcp::Refused);
    let how = match refused {
        true => "a firewall refuses connections",
        false => "connections get no answer: a firewall",
    };
    Finding::warning(Code::Blocked, format!("TCP does not pass {}", group.place))
        .because(format!(
            "{how}; TCP rails stand by for networks that lose UDP"
        ))
        .mend(at_each(group, |_| "nft list ruleset".to_owned()))
}

fn without_multicast(group: &Group<'_>) -> Finding {
    Finding::warning(
        Code::NoMulticast,
        format!("multicast does not pass {}", group.place),
    )
    .because("broadcasts go from process to process instead")
    .mend(format!(
        "a switch with IGMP snooping needs a querier\n{}",
        at_each(group, |end| format!(
            "ip maddr show {}; nft list ruleset",
            end.rail
        ))
    ))
}

/// A sentence where all is well.
fn summary(cluster: &Cluster) -> Option<Finding> {
    let examined = cluster.hosts.iter().filter(|host| host.opened.is_ok());
    let (hosts, ways) = (examined.count(), cluster.paths.len());
    if hosts > 1 && ways == 0 {
        let finding = Finding::broken(Code::NoCommonRail, "no rail of a host meets one of another");
        return Some(finding.because("no subnets are shared, and no rails are at the same place"));
    }
    let all = cluster.paths.iter().all(Path::carries);
    (ways > 0 && all).then(|| Finding::good(format!("all {ways} ways between {hosts} hosts carry")))
}

#[cfg(test)]
#[path = "paths_test.rs"]
mod tests;
