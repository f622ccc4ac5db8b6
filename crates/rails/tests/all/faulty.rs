//! Faulty rails over an in-memory rail: each fault matches the script, and the same seed repeats
//! the same faults.

use crate::mirror;

use marline_rails::{FaultScript, FaultyRx, FaultyTx, LinkId, RailRx, RailTx, SendOutcome};
use mirror::Mirror;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

/// A faulty mirror and its clock.
struct Bench {
    tx: FaultyTx<Mirror>,
    rx: FaultyRx<Mirror>,
    now_ns: Arc<AtomicU64>,
}

fn bench(script: &str) -> Bench {
    let script = FaultScript::parse(script).unwrap();
    let (tx, rx, now_ns) = mirror::faulty(&script, 1_000);
    Bench { tx, rx, now_ns }
}

impl Bench {
    /// Sends datagrams of 10 bytes, numbered from `first`, in one batch.
    fn send(&mut self, first: u32, count: u32) -> SendOutcome {
        let bytes: Vec<u8> = (first..first + count).flat_map(datagram).collect();
        self.tx.send(LinkId(0), &bytes, 10, 0)
    }

    /// All datagrams that have arrived.
    fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut got = Vec::new();
        while self
            .rx
            .recv(&mut |r| got.extend(r.bytes.chunks(r.segment).map(<[u8]>::to_vec)))
            > 0
        {}
        got
    }
}

fn datagram(number: u32) -> [u8; 10] {
    let mut bytes = [0x5a; 10];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Sends 10,000 datagrams in batches of 20 and returns those that arrive.
fn flood(script: &str) -> Vec<Vec<u8>> {
    let mut bench = bench(script);
    let mut got = Vec::new();
    for first in (0..10_000).step_by(20) {
        assert_eq!(bench.send(first, 20), SendOutcome::Sent);
        got.extend(bench.receive());
    }
    bench.now_ns.fetch_add(1_000_000_000, Relaxed);
    assert_eq!(bench.tx.poll_event(), None); // releases held datagrams
    got.extend(bench.receive());
    got
}

#[test]
fn without_faults_everything_passes_untouched() {
    let expected: Vec<_> = (0..10_000).map(|n| datagram(n).to_vec()).collect();
    assert!(flood("seed=3") == expected);
}

#[test]
fn the_same_seed_gives_the_same_faults_and_another_gives_others() {
    let all = "drop=0.1,corrupt=0.1,truncate=0.1,duplicate=0.1,reorder=0.1;seed=";
    assert!(flood(&format!("{all}5")) == flood(&format!("{all}5")));
    assert!(flood(&format!("{all}5")) != flood(&format!("{all}6")));
}

#[test]
fn drops_are_as_many_as_asked_for() {
    for direction in ["tx", "rx"] {
        let got = flood(&format!("{direction}:drop=0.1")).len();
        assert!((8_800..9_200).contains(&got), "{got}"); // 4 standard deviations are 120
    }
    assert_eq!(flood("drop=1").len(), 0);
}

#[test]
fn duplicates_come_twice_and_nothing_else_changes() {
    let mut got = flood("tx:duplicate=0.1");
    assert!((10_800..11_200).contains(&got.len()), "{}", got.len());
    got.dedup();
    assert_eq!(got.len(), 10_000);
}

#[test]
fn corrupted_ones_differ_in_a_few_bits_of_the_same_length() {
    for direction in ["tx", "rx"] {
        let got = flood(&format!("{direction}:corrupt=0.1"));
        let bits = |n: usize| -> u32 {
            got[n]
                .iter()
                .zip(datagram(n as u32))
                .map(|(a, b)| (a ^ b).count_ones())
                .sum()
        };
        assert!(got.iter().all(|d| d.len() == 10) && got.len() == 10_000);
        assert!((0..10_000).all(|n| bits(n) <= 4));
        let bad = (0..10_000).filter(|n| bits(*n) > 0).count();
        assert!((800..1_200).contains(&bad), "{bad}");
    }
    assert!(flood("corrupt=1").iter().all(|d| d.len() == 10));
}

#[test]
fn truncated_ones_are_the_beginning_of_what_was_sent() {
    let got = flood("rx:truncate=0.5");
    assert_eq!(got.len(), 10_000);
    let begins = |(n, d): (usize, &Vec<u8>)| !d.is_empty() && datagram(n as u32).starts_with(d);
    assert!(got.iter().enumerate().all(begins));
    assert!(got.iter().filter(|d| d.len() < 10).count() > 3_000);
}

#[test]
fn reordered_ones_all_arrive_a_little_later() {
    for direction in ["tx", "rx"] {
        let mut got = flood(&format!("{direction}:reorder=0.1"));
        assert!(!got.is_sorted_by_key(|d| u32::from_le_bytes([d[0], d[1], d[2], d[3]])));
        got.sort_by_key(|d| u32::from_le_bytes([d[0], d[1], d[2], d[3]]));
        assert!(got == flood(""));
    }
}

#[test]
fn delayed_ones_arrive_when_their_time_has_come() {
    for direction in ["tx", "rx"] {
        let mut bench = bench(&format!("{direction}:delay_us=10-20"));
        bench.send(0, 3);
        assert_eq!(bench.receive().len(), 0);
        bench.now_ns.fetch_add(9_999, Relaxed);
        assert_eq!(bench.tx.poll_event(), None);
        assert_eq!(bench.receive().len(), 0);
        bench.now_ns.fetch_add(10_001, Relaxed);
        assert_eq!(bench.tx.poll_event(), None);
        assert_eq!(bench.receive().len(), 3);
    }
}

#[test]
fn a_rate_limit_makes_the_sender_busy_and_the_receiver_lose() {
    let mut bench = bench("tx:rate_mbit=8"); // 1 byte per microsecond, 128,000 at once
    let mut sent = 0;
    while bench.send(0, 100) == SendOutcome::Sent {
        sent += 1;
    }
    assert_eq!(sent, 128);
    bench.now_ns.fetch_add(1_000_000, Relaxed);
    assert_eq!(bench.send(0, 100), SendOutcome::Sent);
    assert_eq!(bench.send(0, 100), SendOutcome::Busy);
    assert_eq!(
        flood("rx:rate_mbit=8").len(),
        10_000,
        "100,000 bytes are within the burst"
    );
}

#[test]
fn a_kill_by_count_or_time_ends_and_revives() {
    assert_eq!(flood("tx:kill_after=123").len(), 123);
    let mut bench = bench("kill_at_ms=2;revive_at_ms=4");
    for (add_ns, arrives) in [(0, 20), (2_000_000, 0), (1_000_000, 0), (1_000_000, 20)] {
        bench.now_ns.fetch_add(add_ns, Relaxed);
        bench.send(0, 20);
        assert_eq!(bench.receive().len(), arrives);
    }
}
