//! Findings on ways of a cluster in which one thing is wrong.

use super::super::facts::healthy;
use super::super::finding::{arrange, exit_status, text};
use super::*;

/// The status, and the findings on three hosts after a change of each way: sender, receiver, way.
fn said(change: impl Fn(&str, &str, &mut Path)) -> (u8, String) {
    let mut cluster = healthy(3, 2);
    cluster.ports = Some((20_000, 20_099));
    let names: Vec<_> = cluster
        .paths
        .iter()
        .map(|path| (cluster.end(path.from).name(), cluster.end(path.to).name()))
        .collect();
    for (path, (from, to)) in cluster.paths.iter_mut().zip(&names) {
        change(from, to, path);
    }
    let findings = arrange(findings(&cluster));
    (exit_status(&findings), text(&findings).replace("\n  ", " "))
}

fn silence(path: &mut Path) {
    path.contacts_arrived = 0;
    path.contact.answered = false;
    path.measure = None;
}

#[test]
fn healthy_ways_are_good() {
    let (status, said) = said(|_, _, _| {});
    assert_eq!(
        (status, &*said),
        (0, "good: all 12 ways between 3 hosts carry\n")
    );
}

#[test]
fn a_dead_rail_is_named() {
    let (status, said) = said(|from, to, path| {
        if [from, to].contains(&"h2:rail1") {
            silence(path);
            path.contact.tcp = Tcp::Silent;
        }
    });
    assert_eq!(status, 2);
    assert!(
        said.contains("nothing passes between h2:rail1 and the other hosts: neither"),
        "{said}"
    );
    assert!(said.contains("on h2: ip -s link show rail1"), "{said}");
    assert_eq!(
        said.lines().filter(|l| !l.starts_with(' ')).count(),
        1,
        "{said}"
    );
}

#[test]
fn a_filter_of_udp_differs_from_a_dead_rail() {
    let (status, said) = said(|_, to, path| {
        if to == "h1:rail0" {
            silence(path);
        }
    });
    assert_eq!(status, 2);
    assert!(
        said.contains("UDP does not pass to h1:rail0 from h0:rail0, h2:rail0: TCP does"),
        "{said}"
    );
    assert!(said.contains("on h1: nft list ruleset"), "{said}");
}

#[test]
fn closed_ports_differ_from_a_filter_of_udp() {
    let (status, said) = said(|_, to, path| {
        path.any_port_arrived = Some(2);
        if to.starts_with("h1") {
            silence(path);
            path.contact.tcp = Tcp::Silent;
        }
    });
    assert_eq!(status, 2);
    assert!(
        said.contains("the ports 20000-20099 are closed to h1 (rail0, rail1)"),
        "{said}"
    );
    assert!(said.contains("marline doctor --firewall"), "{said}");
}

#[test]
fn loss_is_named_beyond_chance() {
    let lossy = |arrived: u32| {
        said(move |from, to, path| {
            if [from, to].contains(&"h0:rail1") {
                path.loss_arrived = arrived;
            }
        })
    };
    let (status, said) = lossy(304);
    assert_eq!(status, 2);
    assert!(
        said.contains("packets are lost between h0:rail1 and the other hosts"),
        "{said}"
    );
    assert!(said.contains("up to 5.0 % of 320"), "{said}");
    assert_eq!(lossy(319).0, 0);
}

#[test]
fn long_packets_that_vanish_are_named() {
    let (status, said) = said(|from, to, path| {
        if [from, to].contains(&"h1:rail1") {
            path.size_arrived = 1_400;
        }
    });
    assert_eq!(status, 1);
    assert!(
        said.contains("packets of more than 1400 bytes vanish between h1:rail1 and"),
        "{said}"
    );
}

#[test]
fn missing_tcp_and_multicast_are_warnings() {
    let (status, said) = said(|_, to, path| {
        if to == "h1:rail0" {
            path.contact.tcp = Tcp::Refused;
        }
        if to == "h2:rail1" {
            path.group_arrived = Some(0);
        }
    });
    assert_eq!(status, 1);
    assert!(
        said.contains("TCP does not pass to h1:rail0 from"),
        "{said}"
    );
    assert!(said.contains("a firewall refuses"), "{said}");
    assert!(
        said.contains("multicast does not pass to h2:rail1 from"),
        "{said}"
    );
}

#[test]
fn hosts_without_a_common_network_are_broken() {
    let mut cluster = healthy(2, 1);
    cluster.paths.clear();
    assert_eq!(exit_status(&findings(&cluster)), 2);
}
