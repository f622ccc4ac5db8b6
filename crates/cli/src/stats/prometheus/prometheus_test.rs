//! Tests of the metrics as a whole.

use super::limits::RAILS_MAX;
use super::*;
use crate::stats::jobs;
use marline_engine::stats::process::host_name;
use marline_engine::stats::rows::{PathRow, PathState, PeerRow, PeerState, RailRow};
use std::collections::BTreeSet;

/// A running process with two rails and many peers.
fn page(host: &str, pid: u32, peers: u64) -> (PathBuf, JobPage) {
    let rail = |name: &str| RailRow {
        name: name.into(),
        up: true,
        ..RailRow::default()
    };
    let path = |rail| PathRow {
        rail,
        state: PathState::Up,
        ..PathRow::default()
    };
    let peer = |endpoint| {
        let mut row = PeerRow {
            endpoint,
            state: PeerState::Alive,
            checksum: Some(1),
            paths: vec![path(0), path(1)],
            ..PeerRow::default()
        };
        row.counters.bytes_sent = 10;
        row.paths[1].counters.lost = 1;
        row.paths[1].counters.rtt_ns = endpoint;
        row
    };
    let page = JobPage {
        pid,
        host: host.into(),
        rails: vec![rail("eth0"), rail("eth1")],
        peers: (1..=peers).map(peer).collect(),
        ..JobPage::default()
    };
    (format!("/gone/{host}-{pid}").into(), page)
}

fn text_of(pages: Vec<(PathBuf, JobPage)>) -> String {
    metrics(&jobs::group(pages), 0)
}

fn samples(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

#[test]
fn processes_and_peers_add_no_series() {
    let many = text_of((1..=64).map(|pid| page("n1", pid, 1_024)).collect());
    let one = text_of(vec![page("n1", 1, 1)]);
    let names = |text: &str| {
        let names = samples(text).map(|line| line.rsplit_once(' ').unwrap().0.to_owned());
        names.collect::<BTreeSet<_>>()
    };
    assert_eq!(names(&many), names(&one));
    // A node with two rails has as many; a cluster of 200 has 200 times that, whatever runs on it.
    let series = samples(&many).count();
    assert!((100..300).contains(&series), "{series}");
    for line in [
        "marline_processes{host=\"n1\"} 64",
        "marline_peers_sent_bytes_total{host=\"n1\"} 655360",
        "marline_paths_lost_total{host=\"n1\",rail=\"eth0\"} 0",
        "marline_paths_lost_total{host=\"n1\",rail=\"eth1\"} 65536",
        "marline_paths_rtt_seconds{host=\"n1\",rail=\"eth1\"} 0.000001024",
        "marline_rail_state{host=\"n1\",rail=\"eth0\",state=\"up\"} 1",
        "marline_rail_state{host=\"n1\",rail=\"eth0\",state=\"part_down\"} 0",
        "marline_unprotected_processes{host=\"n1\",reason=\"no_checksums\"} 0",
        "marline_pages_unread 0",
    ] {
        assert!(samples(&many).any(|found| found == line), "{line}: {many}");
    }
}

#[test]
fn labels_are_ours_alone() {
    let text = text_of(vec![page("n1", 1, 1), page("n2", 2, 1)]);
    let mut labels = BTreeSet::new();
    for line in samples(&text) {
        let Some((_, rest)) = line.split_once('{') else {
            continue;
        };
        let names = rest.split("=\"").map(|part| part.rsplit(['{', ',']).next());
        let parts: Vec<&str> = names.flatten().collect();
        labels.extend(parts[..parts.len() - 1].iter().copied());
    }
    let wanted = ["host", "kind", "le", "rail", "reason", "state"];
    assert!(labels.iter().copied().eq(wanted), "{labels:?}");
}

#[test]
fn an_idle_host_has_no_processes() {
    let text = text_of(Vec::new());
    let own = host_name();
    let line = format!("marline_processes{{host=\"{own}\"}} 0");
    assert!(samples(&text).any(|found| found == line), "{text}");
    assert!(!text.contains("rail="), "{text}");
}

#[test]
fn pages_beyond_the_limits_are_counted() {
    let mut pages: Vec<_> = (1..=3).map(|pid| page("n1", pid, 1)).collect();
    for (n, (_, page)) in pages.iter_mut().enumerate() {
        let invented = (0..32).map(|rail| RailRow {
            name: format!("r{n}-{rail}"),
            ..RailRow::default()
        });
        page.rails = invented.collect();
    }
    let text = text_of(pages);
    assert!(text.contains("marline_pages_unread 1\n"), "{text}");
    let metric = "marline_rail_send_calls_total{";
    let rails = samples(&text).filter(|line| line.starts_with(metric));
    assert_eq!(rails.count(), RAILS_MAX);
}

/// Each file of `packaging/prometheus` names metrics that exist.
#[test]
fn dashboard_and_rules_use_metrics_that_exist() {
    let text = text_of(vec![page("n1", 1, 1)]);
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let exist: BTreeSet<&str> = types.filter_map(|line| line.split(' ').next()).collect();
    let dashboard = include_str!("../../../../../packaging/prometheus/marline-dashboard.json");
    let rules = include_str!("../../../../../packaging/prometheus/marline-rules.yml");
    for (file, used_min) in [(dashboard, 15), (rules, 8)] {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = file.split(|c| !is_of_name(c));
        let used = words.filter(|word| word.starts_with("marline_"));
        let used: BTreeSet<&str> = used.map(|word| word.trim_end_matches("_bucket")).collect();
        assert!(used.len() >= used_min, "{used:?}");
        let absent: Vec<_> = used.difference(&exist).collect();
        assert!(absent.is_empty(), "{absent:?}");
    }
}
