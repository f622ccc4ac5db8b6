//! The text of a summary: its contents and its width.

use super::*;
use crate::stats::disabled::Disabled;
use crate::stats::rows::{JobPage, PeerState};
use crate::stats::test_page::page;
use crate::stats::text::COLUMNS;

fn of(page: &JobPage) -> String {
    report(&Summary::of(&[page.clone(), page.clone()]))
}

fn first(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[test]
fn numbers_are_short() {
    let text = [0, 999, 1000, 65_536, 99_949, 99_950, 999_499, 999_500].map(format_bytes);
    let want = [
        "0 B", "999 B", "1.0 kB", "65.5 kB", "99.9 kB", "100 kB", "999 kB", "1.0 MB",
    ];
    assert_eq!(text, want);
    assert_eq!(format_bytes(u64::MAX), "18.4 EB");
    let text = [0, 99_999, 100_000, 25_361_000, u64::MAX].map(format_count);
    assert_eq!(text, ["0", "99999", "100K", "25.4M", "18.4E"]);
}

#[test]
fn a_verdict_comes_first() {
    let mut page = page();
    let want = "Marline: 2 processes sent 2.0 MB over 2 rails in 2.0 s; nothing was lost";
    assert_eq!(first(&of(&page)), want);
    page.peers[0].paths[1].counters.lost = 3;
    let text = of(&page);
    assert!(first(&text).ends_with("; losses repaired"), "{text}");
    assert_eq!(
        first(&report(&Summary::default())),
        "Marline: NOT USED: no process on this host \
        sent anything over it [MARLINE-E501]"
    );
}

#[test]
fn spurious_retransmissions_are_no_losses() {
    let mut page = page();
    let path = &mut page.peers[0].paths[0].counters;
    (path.lost, path.spurious) = (7, 7);
    (path.resent_loss, path.resent_pto) = (7, 25_000);
    let text = of(&page);
    assert!(first(&text).ends_with("nothing was lost"), "{text}");
    let line = text.lines().find(|line| line.starts_with("rail0")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    // Columns: lost, resent, spurious.
    assert_eq!(words[6..9], ["0", "0", "50014"], "{line}");
}

#[test]
fn a_dead_peer_is_the_verdict() {
    let mut page = page();
    page.peers[0].state = PeerState::Dead;
    page.peers[0].endpoint = 0xab;
    let text = of(&page);
    assert!(first(&text).starts_with("Marline: PEER DEAD: peer 00000000000000ab (10.0.0.2:4000)"));
    assert!(text.contains("\nMarline: 2 processes sent"), "{text}");
    assert!(text.contains("it answered on no"), "{text}");
}

#[test]
fn disabled_protection_is_reported() {
    let mut page = page();
    page.disabled.reliability = true;
    let text = of(&page);
    assert!(
        first(&text).contains("UNPROTECTED: FI_MARLINE_RELIABILITY=off in 2 of 2"),
        "{text}"
    );
    page.disabled = Disabled::default();
    page.peers[0].checksum = Some(0);
    let text = of(&page);
    assert!(
        first(&text).contains("UNPROTECTED: FI_MARLINE_CHECKSUM=none in 2 of 2"),
        "{text}"
    );
    page.peers[0].checksum = Some(1);
    page.disabled.some_sums = true;
    page.disabled.faults = true;
    let text = of(&page);
    assert!(first(&text).starts_with("Marline: 2 processes"), "{text}");
    assert!(
        text.contains("FI_MARLINE_CHECKSUM_*") && text.contains("FI_MARLINE_FAULTS"),
        "{text}"
    );
}

#[test]
fn rails_in_trouble_are_named() {
    let mut page = page();
    assert!(notes(&Summary::of(&[page.clone()])).is_empty());
    page.rails[1].up = false;
    page.rails[1].counters.corrupt_heads = 1;
    page.rails[1].counters.receiver_drops = 17;
    let path = &mut page.peers[0].paths[1].counters;
    path.corrupt_payloads = 3;
    path.packets_received = 396;
    (path.downs, path.ups, path.corrupt_downs) = (5, 4, 2);
    (path.shrinks, path.reroutes) = (1, 3);
    (
        page.rails[0].counters.evicted,
        page.rails[0].counters.reconnected,
    ) = (2, 1);
    let text = of(&page).replace("\n  ", " ");
    for part in [
        "rail0: 4 connections were closed for others, 2 made again\n",
        "rail1: 8 of 10 failovers were taken back\n",
        "rail1: another source port was tried 6 times, as a path was silent\n",
        "rail1 is down on 2 of 2 [MARLINE-E203]\n",
        "rail1: 34 packets were dropped by the receive buffer",
        "rail1 corrupts: 8 packets arrived damaged (1.000%); 4 failovers were for that. Check",
        "rail1 lost its large packets 2 times without a word",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("rail0 corrupts"), "{text}");
}

/// The widest values; an interface's name has at most 15 bytes.
#[test]
fn no_line_is_longer_than_a_terminal_is_wide() {
    let mut page = page();
    page.rank = Some(1_000_000);
    page.published_unix_ns = 604_800_000_000_000;
    page.disabled = Disabled {
        reliability: true,
        some_sums: true,
        faults: true,
    };
    page.rails[1].name = "enp129s0f0v1234".into();
    page.rails[1].up = false;
    let rail = &mut page.rails[1].counters;
    (rail.wire_bytes_sent, rail.wire_bytes_received) = (u64::MAX / 4, 123_456_789);
    (rail.wire_packets_sent, rail.receiver_drops) = (u64::MAX / 4, 1 << 40);
    let peer = &mut page.peers[0];
    peer.state = PeerState::Dead;
    peer.checksum = Some(0);
    peer.address = "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:65535".into();
    peer.counters.bytes_sent = 999_400_000_000_000;
    let path = &mut peer.paths[1].counters;
    (path.lost, path.downs, path.corrupt_downs) = (1 << 40, 1 << 30, 1 << 20);
    (path.corrupt_payloads, path.packets_received) = (1 << 40, 1 << 50);
    for pages in [vec![page.clone()], vec![page; 100]] {
        let s = Summary::of(&pages);
        let text = report(&s);
        for line in text.lines() {
            assert!(
                line.chars().count() <= COLUMNS,
                "{} columns: {line}",
                line.len()
            );
        }
        let table: Vec<&str> = text.lines().filter(|l| l.starts_with("rail")).collect();
        assert_eq!(
            table[0].len(),
            table[1].len(),
            "columns are in line: {text}"
        );
    }
}
