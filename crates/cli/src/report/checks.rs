//! Findings on the configuration of a job.

use super::data::{Facts, Finding, Rail};
use super::words::list;
use marline_codes::Code;
use std::collections::{BTreeMap, BTreeSet};

/// All findings on the configuration.
pub fn checks(f: &Facts) -> Vec<Finding> {
    let found = [one_rail(f), unlike_versions(f), unlike_settings(f)];
    found
        .into_iter()
        .flatten()
        .chain(unlike_packets(f))
        .collect()
}

/// True for a rail to other hosts that carried packets.
fn carried(rail: &&Rail) -> bool {
    rail.end.rail != "shm" && rail.packets_sent > 0
}

/// Hosts that reach the others by one rail only.
fn one_rail(f: &Facts) -> Option<Finding> {
    let mut rails: BTreeMap<&String, usize> = BTreeMap::new();
    for rail in f.rails.iter().filter(carried) {
        *rails.entry(&rail.end.host).or_default() += 1;
    }
    let single = rails.iter().filter(|(_, count)| **count == 1);
    let names: Vec<String> = single.map(|(host, _)| (*host).clone()).collect();
    let text = format!(
        "one rail only: nothing takes over when it fails: {}",
        list(names.clone())
    );
    let several = f.hosts.len() > 1 && !names.is_empty();
    several.then(|| {
        Finding::warning(
            Code::OneRail,
            text,
            "`marline doctor` on these hosts, and FI_MARLINE_RAILS",
        )
    })
}

/// Rails of one name that take packets of different sizes.
fn unlike_packets(f: &Facts) -> Vec<Finding> {
    let mut sizes: BTreeMap<&String, BTreeMap<u64, Vec<String>>> = BTreeMap::new();
    for rail in f.rails.iter().filter(carried) {
        let of_rail = sizes.entry(&rail.end.rail).or_default();
        let hosts = of_rail.entry(rail.packet_bytes_max).or_default();
        hosts.push(rail.end.host.clone());
    }
    sizes.retain(|_, by_size| by_size.len() > 1);
    let finding = |(rail, by_size): (&String, BTreeMap<u64, Vec<String>>)| {
        let parts = by_size.into_iter();
        let parts = parts.map(|(bytes, hosts)| format!("{bytes} bytes on {}", list(hosts)));
        let parts: Vec<String> = parts.collect();
        let text = format!("{rail} takes packets of {}", parts.join(" and of "));
        Finding::warning(
            Code::PathShrank,
            text,
            &format!("the MTU of {rail} on these hosts"),
        )
    };
    sizes.into_iter().map(finding).collect()
}

fn unlike_versions(f: &Facts) -> Option<Finding> {
    let parts = f.versions.iter().map(|version| {
        let (text, processes) = (&version.text, version.processes);
        format!("{text} in {processes} of {} processes", f.processes)
    });
    let text = format!("several versions: {}", list(parts.collect()));
    let look_at = "`marline --version` on all hosts";
    let finding = Finding::warning(Code::VersionsDiffer, text, look_at);
    (f.versions.len() > 1).then_some(finding)
}

/// Settings that only some processes have.
fn unlike_settings(f: &Facts) -> Option<Finding> {
    let some = f.settings.iter().filter(|one| one.processes < f.processes);
    let name = |text: &str| text.split('=').next().unwrap_or(text).to_owned();
    let names: BTreeSet<String> = some.map(|given| name(&given.text)).collect();
    let text = format!(
        "settings are not the same in all processes: {}",
        list(names.iter().cloned().collect())
    );
    (!names.is_empty()).then(|| Finding::note(text))
}

#[cfg(test)]
mod tests {
    use super::super::data::End;
    use super::super::given::Given;
    use super::*;

    fn rail(host: &str, rail: &str, packet_bytes_max: u64) -> Rail {
        Rail {
            end: End {
                host: host.to_owned(),
                rail: rail.to_owned(),
            },
            packets_sent: 1,
            packet_bytes_max,
            ..Rail::default()
        }
    }

    fn given(text: &str, processes: usize) -> Given {
        Given {
            text: text.to_owned(),
            processes,
        }
    }

    fn job() -> Facts {
        Facts {
            processes: 2,
            hosts: vec!["a".into(), "b".into()],
            rails: ["a", "b"]
                .iter()
                .flat_map(|host| ["rail0", "rail1", "shm"].map(|name| rail(host, name, 1_472)))
                .collect(),
            versions: vec![given("0.1.0 (wire 9)", 2)],
            settings: vec![given("FI_MARLINE_CHECKSUM=none", 2)],
            ..Facts::default()
        }
    }

    fn texts(f: &Facts) -> Vec<String> {
        checks(f).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn what_is_alike_is_no_finding() {
        assert_eq!(texts(&job()), [""; 0]);
        let mut alone = job();
        alone.hosts.pop();
        alone.rails.truncate(1);
        assert_eq!(texts(&alone), [""; 0], "one host");
    }

    #[test]
    fn hosts_with_one_rail_are_named() {
        let mut f = job();
        f.rails.retain(|rail| rail.end.name() != "b:rail1");
        assert_eq!(
            texts(&f),
            ["one rail only: nothing takes over when it fails: b"]
        );
    }

    #[test]
    fn what_differs_is_named() {
        let mut f = job();
        f.rails[0].packet_bytes_max = 8_972;
        f.versions.push(given("0.2.0 (wire 10)", 1));
        f.settings[0].processes = 1;
        assert_eq!(
            texts(&f),
            [
                "several versions: 0.1.0 (wire 9) in 2 of 2 processes, 0.2.0 (wire 10) in 1 of 2 \
                 processes",
                "settings are not the same in all processes: FI_MARLINE_CHECKSUM",
                "rail0 takes packets of 1472 bytes on b and of 8972 bytes on a",
            ]
        );
    }
}
