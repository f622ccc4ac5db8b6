//! Traffic on made-up statistics pages.

use super::*;
use marline_engine::stats::history::{History, RailHistory};
use marline_engine::stats::rows::{PathRow, PeerRow, RailRow};

const SECOND: u64 = 1_000_000_000;

/// A process on a host of its own that ran for ten seconds, and sent to other hosts' processes.
fn page(host: u32, bytes_to: &[(u32, u64)]) -> JobPage {
    let peer = |&(peer, bytes): &(u32, u64)| {
        let mut row = PeerRow {
            endpoint: u64::from(peer) + 1,
            paths: vec![PathRow::default()],
            ..PeerRow::default()
        };
        row.counters.bytes_sent = bytes;
        row
    };
    JobPage {
        host: format!("h{host}"),
        rank: Some(host),
        endpoints: vec![u64::from(host) + 1],
        opened_unix_ns: SECOND,
        published_unix_ns: 11 * SECOND,
        peers: bytes_to.iter().map(peer).collect(),
        rails: vec![RailRow {
            name: "rail0".into(),
            ..RailRow::default()
        }],
        ..JobPage::default()
    }
}

fn all(pages: &[JobPage]) -> Vec<&JobPage> {
    pages.iter().collect()
}

#[test]
fn bytes_stay_the_same_in_other_intervals() {
    let mut pages = [page(0, &[(1, 1)]), page(1, &[(0, 1)])];
    pages[0].history = History {
        interval_ns: 4 * SECOND,
        rails: vec![RailHistory {
            sent: vec![400, 100, 7],
            received: vec![0, 0, 3],
        }],
    };
    let found = bandwidth(&all(&pages), SECOND, 11 * SECOND);
    assert_eq!(found.interval_ns, 200_000_000);
    let [curve] = &found.rails[..] else {
        panic!("one rail carried anything")
    };
    assert_eq!(
        (curve.end.name(), curve.sent.len()),
        ("h0:rail0".into(), 50)
    );
    assert_eq!(curve.sent[..20], [20; 20]);
    assert_eq!(curve.sent[20..40], [5; 20]);
    assert_eq!(
        curve.sent[40..].iter().sum::<u64>(),
        7,
        "the last is shorter"
    );
    assert_eq!(curve.received.iter().sum::<u64>(), 3);
}

#[test]
fn a_long_job_has_as_many_intervals_as_a_short_one() {
    let mut pages = [page(0, &[(1, 1)])];
    pages[0].history = History {
        interval_ns: u64::MAX / 2,
        rails: vec![RailHistory {
            sent: vec![u64::MAX; 9],
            received: Vec::new(),
        }],
    };
    pages[0].published_unix_ns = 86_400 * SECOND;
    let found = bandwidth(&all(&pages), SECOND, 86_400 * SECOND);
    assert_eq!(found.rails[0].sent.len(), 120);
    assert!(bandwidth(&all(&pages), 5, 5).rails[0].sent.len() == 1);
    pages[0].history.interval_ns = 0;
    pages[0].published_unix_ns = u64::MAX;
    assert_eq!(bandwidth(&all(&pages), 0, u64::MAX).rails.len(), 1);
    pages[0].opened_unix_ns = u64::MAX;
    assert_eq!(bandwidth(&all(&pages), 0, u64::MAX).rails.len(), 1);
}

#[test]
fn hosts_have_rows_in_order_of_their_numbers() {
    let pages = [page(10, &[(2, 5)]), page(2, &[(10, 7), (99, 1)])];
    let found = matrix(&all(&pages));
    assert_eq!(found.hosts, ["h2", "h10"]);
    assert_eq!(found.bytes, [[0, 7], [5, 0]]);
    assert_eq!(found.bytes_elsewhere, 1);
}

#[test]
fn many_hosts_share_rows() {
    let pages: Vec<JobPage> = (0..200).map(|n| page(n, &[((n + 1) % 200, 1)])).collect();
    let found = matrix(&all(&pages));
    assert_eq!((found.hosts.len(), &*found.hosts[0]), (50, "h0 to h3"));
    assert_eq!(found.bytes[0][..2], [3, 1]);
    assert_eq!(found.bytes.iter().flatten().sum::<u64>(), 200);
}

#[test]
fn those_who_sent_most_are_first() {
    let pages: Vec<JobPage> = (0..20).map(|n| page(n, &[(99, u64::from(n))])).collect();
    let found = talkers(&all(&pages));
    assert_eq!((found.len(), found[0].bytes), (10, 19));
    assert_eq!(found[0].process, "rank 19 on h19");
}
