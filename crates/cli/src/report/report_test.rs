//! Reports on made-up statistics pages.

use super::data::Report;
use super::*;
use crate::stats::jobs::group;
use marline_engine::stats::events::{Event, Kind, Reason};
use marline_engine::stats::given::Given;
use marline_engine::stats::history::{History, RailHistory};
use marline_engine::stats::rows::{JobPage, PathRow, PathState, PeerRow, PeerState, RailRow};

const START: u64 = 1_764_166_226_000_000_000;
const SECOND: u64 = 1_000_000_000;

/// The events of a path on rail 0 to a rank that was given up for two seconds.
fn failure(other: u32) -> [Event; 2] {
    let event = |kind, second: u64| Event {
        unix_ns: START + second * SECOND,
        kind,
        reason: Reason::Unanswered,
        rail: 0,
        peer_rail: 0,
        peer: u64::from(other) + 1,
        moved: 7,
        ..Event::default()
    };
    [event(Kind::PathDown, 2), event(Kind::PathUp, 4)]
}

/// The page of a rank on a host of its own with two rails, in touch with `ranks` in all. `bad`
/// ranks have a path that was given up, on rail 0.
fn page(rank: u32, ranks: u32, bad: impl Fn(u32, u32) -> bool) -> (PathBuf, JobPage) {
    let rail = |n: u32| {
        let mut row = RailRow {
            name: format!("rail{n}"),
            address: format!("10.10{n}.0.{}:7", rank + 1),
            up: true,
            ..RailRow::default()
        };
        row.counters.wire_packets_sent = 123_456;
        row.counters.wire_bytes_sent = 1_000_000;
        row
    };
    let path = |n: u32, peer: u32| {
        let mut path = PathRow {
            rail: n,
            peer_rail: n,
            state: PathState::Up,
            ..PathRow::default()
        };
        path.counters.packets_sent = 100;
        path.counters.downs = u64::from(n == 0 && bad(rank, peer));
        path
    };
    let peer = |peer: u32| {
        let mut row = PeerRow {
            endpoint: u64::from(peer) + 1,
            address: format!("10.100.0.{}:7", peer + 1),
            state: PeerState::Alive,
            paths: vec![path(0, peer), path(1, peer)],
            ..PeerRow::default()
        };
        row.counters.bytes_sent = 1_000 * u64::from(rank + 1);
        row.counters.messages_sent = 10;
        row
    };
    let others = (0..ranks).filter(|&other| other != rank);
    let events = others.clone().filter(|&other| bad(rank, other));
    let mut page = JobPage {
        pid: 1_000 + rank,
        rank: Some(rank),
        host: format!("h{rank}"),
        endpoints: vec![u64::from(rank) + 1],
        opened_unix_ns: START,
        published_unix_ns: START + 10 * SECOND,
        closed: true,
        rails: vec![rail(0), rail(1)],
        peers: others.map(peer).collect(),
        library: "0.1.0".to_owned(),
        wire_oldest: 7,
        wire_newest: 7,
        settings: vec![Given("FI_MARLINE_CHECKSUM=crc32c".to_owned())],
        history: History {
            interval_ns: 10 * SECOND / 128 + 1,
            rails: vec![
                RailHistory {
                    sent: vec![1_000_000 / 128; 128],
                    received: vec![4_000; 128],
                };
                2
            ],
        },
        ..JobPage::default()
    };
    page.events.list = events.flat_map(failure).collect();
    (PathBuf::from(format!("/d/marline-{rank}.page")), page)
}

/// A job of four hosts in which all paths to rail 0 of host 3 were given up.
fn one_bad_rail() -> Report {
    let bad = |a: u32, b: u32| a == 3 || b == 3;
    let pages = (0..4).map(|rank| page(rank, 4, bad)).collect();
    report(&group(pages))
}

#[test]
fn the_cut_cable_is_clear_from_the_report() {
    let report = one_bad_rail();
    let [job] = &report.jobs[..] else {
        panic!("one job")
    };
    let text = text::text(&report);
    assert!(
        text.contains("! all 3 paths given up share h3:rail0 [MARLINE-E303]\n"),
        "{text}"
    );
    assert!(text.contains("! rail0 on h3 was down from "), "{text}");
    let look_at = job.look_at();
    assert!(
        look_at.len() == 1 && look_at[0].starts_with("h3:rail0: its cable"),
        "{look_at:?}"
    );
    assert_eq!(job.facts.outages.len(), 1);
    assert_eq!(job.facts.outages[0].packets_moved, 6 * 7);
}

#[test]
fn the_host_that_others_lost_is_found() {
    let quiet = |rank| page(rank, 3, |_, _| false);
    let silent = |by: u32, peer: u32| {
        let (path, mut page) = quiet(by);
        page.events.list.push(Event {
            unix_ns: START + SECOND,
            kind: Kind::PeerDead,
            reason: Reason::Silent,
            peer: u64::from(peer) + 1,
            ..Event::default()
        });
        (path, page)
    };
    let cut_off = |pages| report(&group(pages)).jobs[0].facts.cut_off.clone();
    let one = vec![silent(0, 1), silent(1, 2), quiet(2)];
    assert_eq!(cut_off(one), Some("h1".to_owned()));
    assert_eq!(cut_off(vec![silent(0, 1), silent(1, 0), quiet(2)]), None);
    assert_eq!(cut_off(vec![quiet(0), quiet(1), quiet(2)]), None);
}

#[test]
fn text_has_tables_of_rails_and_pairs_within_80_columns() {
    let text = text::text(&one_bad_rail());
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let line = text.lines().find(|line| line.starts_with("h0:rail1 "));
    let cells: Vec<&str> = line.unwrap().split_whitespace().collect();
    assert_eq!(cells[1..6], ["1.0", "MB", "0", "B", "123K"]);
    assert!(text.contains("Pairs by traffic\n"), "{text}");
    let first = text
        .split("Pairs by traffic\n")
        .nth(1)
        .unwrap()
        .lines()
        .nth(1);
    assert!(first.unwrap().starts_with("rank 3 on h3"), "{first:?}");
}

#[test]
fn json_has_the_documented_members() {
    let value = serde_json::to_value(one_bad_rail()).unwrap();
    let job = &value["jobs"][0];
    assert_eq!(job["processes"], 4);
    assert_eq!(job["rails"][6]["host"], "h3");
    assert_eq!(job["rails"][6]["failovers"], 3);
    assert_eq!(job["given_up"]["paths"], 3);
    assert_eq!(job["given_up"]["common"]["place"]["rail"]["rail"], "rail0");
    assert_eq!(job["findings"][0]["severity"], "fault");
    assert_eq!(job["sizes"][0]["up_to_bytes"], 64);
    assert_eq!(job["outages"][0]["ends"][0]["host"], "h3");
    assert_eq!(job["versions"][0]["text"], "0.1.0 (wire 7)");
    assert_eq!(job["settings"][0]["processes"], 4);
    assert_eq!(job["between_hosts"]["bytes"][3][0], 4_000);
    assert_eq!(job["talkers"][0]["bytes"], 12_000);
    let sent = job["bandwidth"]["rails"][0]["sent"].as_array().unwrap();
    let sent: u64 = sent.iter().map(|bytes| bytes.as_u64().unwrap()).sum();
    assert_eq!(sent, 1_000_000 / 128 * 128);
    let means = job["averages"].as_array().unwrap();
    let messages = means.iter().find(|mean| mean["unit"] == "messages/s");
    assert_eq!(messages.unwrap()["mean"], 3.0);
}

#[test]
fn text_has_curves_a_map_and_settings() {
    let text = text::text(&one_bad_rail());
    for part in [
        &format!("h0:rail0 |{}| 100 kB/s\n", "█".repeat(25)),
        "h3 @@@.\n",
        "0.1.0 (wire 7) in 4 processes\n",
        "FI_MARLINE_CHECKSUM=crc32c in 4 processes\n",
        &format!("{:<40} {:>12}\n", "messages sent per second", "3.00"),
        "rank 3 on h3       30 12.0 kB\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_page_has_exact_numbers_and_no_addresses_of_files() {
    let page = html::page(&one_bad_rail());
    assert!(
        page.contains("<data value=\"123456\" title=\"123456\">123K</data>"),
        "{page}"
    );
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("src="));
    assert_eq!(page.matches("<rect class=\"down\"").count(), 1, "{page}");
    assert_eq!(page.matches("<rect class=\"up\"").count(), 8, "{page}");
}

#[test]
fn paths_to_a_dead_process_are_no_bad_paths() {
    let mut pages: Vec<_> = (0..3).map(|rank| page(rank, 3, |a, _| a == 0)).collect();
    let to_second = |row: &&mut PeerRow| row.endpoint == 2;
    pages[0].1.peers.iter_mut().find(to_second).unwrap().state = PeerState::Dead;
    pages[0].1.events.list.push(Event {
        kind: Kind::PeerDead,
        peer: 3,
        ..Event::default()
    });
    let report = report(&group(pages));
    assert_eq!(report.jobs[0].facts.given_up.paths, 0);
    assert_eq!(report.jobs[0].facts.dead_peers.len(), 2);
}

#[test]
fn names_are_escaped() {
    let mut pages: Vec<_> = (0..2).map(|rank| page(rank, 2, |_, _| true)).collect();
    pages[0].1.host = "<script>&".to_owned();
    let page = html::page(&report(&group(pages)));
    assert!(!page.contains("<script"), "{page}");
    assert!(page.contains("&lt;script&gt;&amp;:rail0"), "{page}");
}

#[test]
fn a_report_of_many_ranks_and_events_stays_small() {
    let mut pages: Vec<_> = (0..64).map(|rank| page(rank, 64, |_, _| false)).collect();
    for (rank, (_, page)) in pages.iter_mut().enumerate() {
        page.events.list = (0..16)
            .map(|n: u64| Event {
                unix_ns: START + n * SECOND / 2,
                kind: if n % 2 == 0 {
                    Kind::PathDown
                } else {
                    Kind::PathUp
                },
                rail: 0,
                peer_rail: 0,
                peer: (rank as u64 + 1) % 64 + 1,
                ..Event::default()
            })
            .collect();
    }
    let report = report(&group(pages));
    let page = html::page(&report);
    assert!(report.jobs[0].facts.events >= 1_000);
    assert!(page.len() < 2_000_000, "{}", page.len());
    assert_eq!(report.jobs[0].facts.pairs.len(), 20);
    assert!(page.contains("20 of 4032"));
    assert_eq!(page.matches("<rect x=").count(), 64 * 63);
    assert_eq!(page.matches("<polyline").count(), 32);
    assert!(page.contains("96 more rails, with less traffic"));
}

#[test]
fn without_a_job_the_report_says_so() {
    let report = report(&[]);
    assert!(text::text(&report).starts_with("no process was in touch"));
    assert!(html::page(&report).contains("No process was in touch"));
}
