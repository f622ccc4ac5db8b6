//! Raw pages: every object with its nonzero counters.

use marline_checksum::Algorithm;
use marline_engine::stats::rows::{JobPage, PathRow, PeerRow};
use marline_engine::stats::waits::Waits;
use marline_engine::stats::Counters;
use std::fmt::Write;
use std::path::Path;
use std::time::SystemTime;

/// A line for each object, with its counters.
pub fn show(path: &Path, page: &JobPage) -> String {
    let mut out = format!(
        "{}: host {}, process {}",
        path.display(),
        page.host,
        page.pid
    );
    if let Some(rank) = page.rank {
        let _ = write!(out, ", rank {rank}");
    }
    out += &known_as(page);
    let _ = write!(out, ", {:.1} s", page.elapsed_ns() as f64 / 1e9);
    out += &match page.closed {
        true => ", closed\n".to_owned(),
        false if page.is_left_behind() => ", its process ended without closing it\n".to_owned(),
        false => format!(", written {:.1} s ago\n", age_s(page.published_unix_ns)),
    };
    if page.torn {
        out += "  (its process ended while writing: numbers may not fit together)\n";
    }
    let _ = writeln!(out, "  process:{}", counters(&page.process));
    for (kind, waits) in page.waits.named() {
        let _ = writeln!(out, "  waits {kind}:{}", classes(waits));
    }
    for rail in &page.rails {
        let state = if rail.up { "up" } else { "down" };
        let (name, address) = (&rail.name, &rail.address);
        let _ = writeln!(
            out,
            "  rail {name} {address} {state}:{}",
            counters(&rail.counters)
        );
    }
    for peer in &page.peers {
        let (address, state) = (&peer.address, peer.state.name());
        let _ = write!(out, "  peer {:016x} {address} {state}", peer.endpoint);
        if let Some(name) = checksum(peer) {
            let _ = write!(out, ", sums by {name}");
        }
        show_peer(&mut out, peer, page);
    }
    if page.peers_beyond > 0 {
        let _ = write!(out, "  {} more peers together", page.peers_beyond);
        show_peer(&mut out, &page.others, page);
    }
    out
}

/// The endpoint numbers by which peers name the process.
fn known_as(page: &JobPage) -> String {
    let number = |number: &u64| format!("{number:016x}");
    let mut numbers: Vec<String> = page.endpoints.iter().map(number).collect();
    if page.endpoints_beyond > 0 {
        numbers.push(format!("{} more", page.endpoints_beyond));
    }
    match numbers.is_empty() {
        true => String::new(),
        false => format!(", peer {} to others", numbers.join(" and ")),
    }
}

/// The name of the payload checksum used with a peer; its number if it has no name.
fn checksum(peer: &PeerRow) -> Option<String> {
    let number = peer.checksum?;
    let known = Algorithm::from_u8(number);
    Some(known.map_or(format!("number {number}"), |a| a.name().to_owned()))
}

fn show_peer(out: &mut String, peer: &PeerRow, page: &JobPage) {
    let _ = writeln!(out, ":{}", counters(&peer.counters));
    for path in &peer.paths {
        let _ = writeln!(
            out,
            "    {}:{}",
            describe(path, page),
            counters(&path.counters)
        );
    }
}

fn describe(path: &PathRow, page: &JobPage) -> String {
    let name = page.rails.get(path.rail as usize).map_or("?", |r| &r.name);
    let state = path.state.name();
    match path.peer_rail {
        PathRow::SEVERAL => format!("{name}, its paths together, {state}"),
        theirs => format!("{name} to its rail {theirs}, {state}"),
    }
}

/// ` name=value` for each nonzero counter.
fn counters<C: Counters>(group: &C) -> String {
    let counted = group.values().filter(|&(_, value)| value != 0);
    counted
        .map(|(row, value)| format!(" {}={value}", row.name))
        .collect()
}

/// ` to_4096_ns=count` for each class of waits that has any.
fn classes(waits: &Waits) -> String {
    let counted = waits.0.iter().enumerate().filter(|(_, &count)| count > 0);
    let class = |(class, count): (usize, &u64)| match Waits::bound_ns(class) {
        Some(ns) => format!(" to_{ns}_ns={count}"),
        None => format!(" longer={count}"),
    };
    counted.map(class).collect()
}

fn age_s(unix_ns: u64) -> f64 {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    (now.as_nanos() as f64 - unix_ns as f64).max(0.0) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use marline_engine::stats::page::{Page, PageInfo};
    use marline_engine::stats::reader;
    use marline_engine::stats::rows::{PathState, PeerState, RailRow};

    #[test]
    fn every_object_has_a_line_with_its_counters() {
        let name = format!("marline-test-{}-pages", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let info = PageInfo {
            dir: dir.to_str().unwrap(),
            rank: Some(3),
            ..PageInfo::default()
        };
        let mut page = Page::open(&info).unwrap();
        page.publish(|w| {
            let mut rail = RailRow {
                name: "eth1".into(),
                address: "10.0.0.1:7".into(),
                up: true,
                ..RailRow::default()
            };
            rail.counters.wrong_version = 5;
            w.page.rails.push(rail);
            w.page.waits.rendezvous.count(5_000);
            w.page.endpoints = vec![0xcd, 0xce];
            let mut path = PathRow {
                peer_rail: 1,
                state: PathState::Down,
                ..PathRow::default()
            };
            path.counters.lost = 9;
            w.peer(PeerRow {
                endpoint: 0xab,
                address: "10.0.0.2:7".into(),
                state: PeerState::Dead,
                checksum: Some(Algorithm::Crc64Nh as u8),
                paths: vec![path],
                ..PeerRow::default()
            });
        });
        let shown = |page: &Page| show(page.path(), &reader::read_page(page.path()).unwrap());
        let text = shown(&page);
        for line in [
            "  waits rendezvous: to_8192_ns=1\n",
            "  rail eth1 10.0.0.1:7 up: wrong_version=5\n",
            "  peer 00000000000000ab 10.0.0.2:7 dead, sums by crc64-nh:\n",
            "    eth1 to its rail 1, down: lost=9\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(
            text.contains("rank 3, peer 00000000000000cd and 00000000000000ce to others")
                && text.contains("written"),
            "{text}"
        );
        let path = page.path().to_owned();
        drop(page);
        let text = show(&path, &reader::read_page(&path).unwrap());
        assert!(text.contains(", closed\n"), "{text}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
