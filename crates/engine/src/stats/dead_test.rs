//! Handmade pages of processes that declared others dead.

use super::*;
use crate::stats::events::Events;

/// The page of a rank with two endpoints on its own host.
fn page(rank: u32) -> JobPage {
    JobPage {
        pid: 100 + rank,
        rank: Some(rank),
        host: format!("h{rank}"),
        endpoints: vec![u64::from(rank) + 10, u64::from(rank) + 20],
        ..JobPage::default()
    }
}

/// Adds a declaration that an endpoint is dead.
fn gives_up(mut page: JobPage, endpoint: u64, ms: u64, reason: Reason) -> JobPage {
    page.peers.push(PeerRow {
        endpoint,
        address: format!("10.0.0.{}:7", endpoint % 10),
        state: PeerState::Dead,
        ..PeerRow::default()
    });
    let mut list = std::mem::take(&mut page.events.list);
    list.push(Event {
        unix_ns: ms * 1_000_000,
        kind: Kind::PeerDead,
        reason,
        peer: endpoint,
        ..Event::default()
    });
    page.events = Events { list, missing: 0 };
    page
}

/// Rank 0 is stopped; the other ranks declare it dead, exit with an error, and are gone for each
/// other. The order of the pages does not matter.
#[test]
fn the_root_cause_comes_before_its_victims() {
    let pages = [
        gives_up(
            gives_up(page(1), 13, 5_100, Reason::Gone),
            10,
            5_030,
            Reason::Silent,
        ),
        gives_up(page(3), 10, 5_000, Reason::Silent),
        gives_up(page(2), 10, 5_020, Reason::Silent),
        page(0),
    ];
    let dead = dead_peers(&pages);
    let named: Vec<_> = dead.iter().map(|d| (d.rank, d.named_by, d.why())).collect();
    let silent = "it answered on no rail";
    let want = [(Some(0), 3, silent), (Some(3), 1, "its process is gone")];
    assert_eq!(named, want);
    assert!(dead[1].follows && !dead[0].follows);
}

/// A host's clock may be late: a process that declared another dead before its own end is a victim.
#[test]
fn a_victim_is_known_by_its_own_page() {
    let pages = [
        gives_up(page(1), 10, 5_000, Reason::Gone),
        gives_up(page(2), 11, 5_010, Reason::Gone),
        gives_up(page(3), 10, 5_020, Reason::Gone),
    ];
    let ranks: Vec<_> = dead_peers(&pages).iter().map(|d| d.endpoint).collect();
    assert_eq!(ranks, [10, 11]);
}

#[test]
fn endpoints_of_one_process_are_one() {
    let both = gives_up(
        gives_up(page(1), 10, 5_000, Reason::Silent),
        20,
        4_000,
        Reason::Silent,
    );
    let dead = dead_peers(&[both.clone(), page(0)]);
    assert_eq!((dead.len(), dead[0].named_by, dead[0].endpoint), (1, 1, 20));
    // Without its page the address identifies the process.
    assert_eq!(dead_peers(&[both]).len(), 1);
}

#[test]
fn different_settings_are_named_with_both_sides() {
    let mut one = gives_up(page(1), 10, 1, Reason::Settings);
    one.events.list[0].detail = (1, 0);
    let dead = dead_peers(&[one, page(0)]);
    assert!(dead[0].is_refused());
    let why = dead[0].why();
    let want = "FI_MARLINE_RELIABILITY=on at rank 1 on h1 and off there";
    assert!(why.starts_with(want), "{why}");

    let mut one = gives_up(page(1), 10, 1, Reason::NoCommonRail);
    let mut named = |detail| {
        one.events.list[0].detail = detail;
        dead_peers(std::slice::from_ref(&one))[0].why().to_owned()
    };
    let kind = |kind: RailKind| 1 << kind as u32;
    let (udp, tcp) = (
        kind(RailKind::Udp4),
        kind(RailKind::Tcp4) | kind(RailKind::Shm),
    );
    assert_eq!(
        named((udp, tcp)),
        "no common kind of rail: UDP over IPv4 at rank 1 on h1 and TCP over IPv4, shared memory \
         there (FI_MARLINE_RAILS)"
    );
    assert!(named((udp, udp)).starts_with("no way between rails: UDP over IPv4 at"));
}
