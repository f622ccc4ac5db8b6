//! Findings on each of several hosts: not to be examined, of another version, with a wrong clock,
//! and what each finds on itself.

use super::facts::{Cluster, Host};
use super::finding::Finding;
use super::messages::Opened;
use marline_codes::Code;
use std::collections::BTreeMap;

/// Difference of clocks in nanoseconds from which times of events on several hosts mislead.
const CLOCKS: u64 = 100_000_000;

/// Findings on the hosts.
pub fn findings(cluster: &Cluster) -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::new();
    for host in &cluster.hosts {
        match &host.opened {
            Err(finding) => all.push(finding.clone()),
            Ok(opened) => all.extend(opened.findings.iter().cloned().map(|f| f.on(&host.name))),
        }
        all.extend(clock(host));
    }
    all.extend(differ(cluster, "version", |opened| &opened.version));
    if let Some(partners) = cluster.partners {
        let (hosts, what) = (cluster.hosts.len() - 1, "other hosts");
        all.push(Finding::good(format!(
            "each host was examined with {partners} of {hosts} {what}"
        )));
    }
    all
}

fn clock(host: &Host) -> Option<Finding> {
    let (difference, error) = host.clock?;
    let certain = difference.unsigned_abs().saturating_sub(error);
    if certain < CLOCKS {
        return None;
    }
    let what = format!(
        "the clock is {} ms {}",
        certain / 1_000_000,
        match difference > 0 {
            true => "ahead",
            false => "behind",
        }
    );
    let finding = Finding::warning(Code::Clock, what)
        .because("times of events on several hosts cannot be compared")
        .mend("timedatectl set-ntp true    # or chrony");
    Some(finding.on(&host.name))
}

/// Findings on hosts that differ from most in something.
fn differ(cluster: &Cluster, what: &str, of: impl Fn(&Opened) -> &String) -> Vec<Finding> {
    let mut hosts: BTreeMap<&String, Vec<&str>> = BTreeMap::new();
    for host in &cluster.hosts {
        if let Ok(opened) = &host.opened {
            hosts.entry(of(opened)).or_default().push(&host.name);
        }
    }
    // The first of equals is that of the first host.
    let first = hosts.values().map(|names| names.len()).max().unwrap_or(0);
    let usual = cluster.hosts.iter().find_map(|host| {
        let value = of(host.opened.as_ref().ok()?);
        (hosts[value].len() == first).then_some(value)
    });
    let Some(usual) = usual else {
        return Vec::new();
    };
    let others = hosts.iter().filter(|(value, _)| **value != usual);
    let finding = |(value, names): (&&String, &Vec<&str>)| {
        let finding = Finding::warning(Code::VersionsDiffer, format!("marline has {what} {value}"))
            .because(format!("most hosts have {usual}; jobs use what both can"))
            .mend("install the same version on all hosts");
        names.iter().fold(finding, |finding, name| finding.on(name))
    };
    others.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::facts::healthy;
    use super::super::finding::{arrange, text};
    use super::*;

    fn said(cluster: &Cluster) -> String {
        text(&arrange(findings(cluster))).replace("\n  ", " ")
    }

    #[test]
    fn the_host_of_another_version_is_named() {
        let mut cluster = healthy(3, 1);
        assert_eq!(said(&cluster), "");
        cluster.hosts[2].opened.as_mut().unwrap().version = "0.9".to_owned();
        let said = said(&cluster);
        assert!(
            said.starts_with("warning: h2: marline has version 0.9: most"),
            "{said}"
        );
        assert_eq!(said.matches("warning").count(), 1, "{said}");
    }

    #[test]
    fn a_clock_is_named_only_beyond_the_error() {
        let mut cluster = healthy(2, 1);
        cluster.hosts[1].clock = Some((-5_000_000_000, 1_000_000));
        assert!(said(&cluster).contains("h1: the clock is 4999 ms behind"));
        cluster.hosts[1].clock = Some((5_000_000_000, 4_950_000_000));
        assert_eq!(said(&cluster), "");
    }

    #[test]
    fn findings_of_a_host_get_its_name() {
        let mut cluster = healthy(2, 1);
        for host in 0..2 {
            let opened = cluster.hosts[host].opened.as_mut().unwrap();
            opened
                .findings
                .push(Finding::broken(Code::RailDown, "rail0 is down"));
        }
        assert!(said(&cluster).contains("h0, h1: rail0 is down"));
        cluster.hosts[0].opened = Err(Finding::broken(Code::DoctorFailed, "is away").on("h0"));
        assert!(said(&cluster).contains("broken: h0: is away"));
    }
}
