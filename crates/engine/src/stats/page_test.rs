//! Writing and reading of statistics pages.

use super::*;
use crate::stats::events::{Event, Kind};
use crate::stats::peer_rows::PeerRows;
use crate::stats::reader::{list_pages, read_owner, read_page, JobPage};
use crate::stats::stale::remove_stale;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;

/// Directory of a test, removed at its end.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("marline-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Dir(dir)
    }
    fn open(&self) -> Page {
        let info = PageInfo {
            dir: self.0.to_str().unwrap(),
            rank: Some(0),
            ..PageInfo::default()
        };
        Page::open(&info).unwrap()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A group whose counters all have `value`.
fn all<C: Counters>(value: u64) -> C {
    C::from_words(&vec![value; C::ROWS.len()])
}

fn path_row(rail: u32, value: u64) -> PathRow {
    PathRow {
        rail,
        peer_rail: 1,
        state: PathState::Suspect,
        counters: all(value),
    }
}

fn fill(w: &mut PageWriter<'_>, value: u64, peers: usize) {
    w.endpoints(&[77, 78], 2);
    w.process(&all(value));
    let rail = RailInfo {
        name: "eth0",
        address: "10.0.0.1:4000",
        up: true,
        standby: false,
    };
    w.rail(0, &rail, &all(value));
    for n in 0..peers {
        let info = PeerInfo {
            endpoint: n as u64,
            address: "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:65535",
            state: PeerState::Alive,
            checksum: n.checked_sub(1).map(|n| (16 * n) as u8),
        };
        let paths = [path_row(0, value), path_row(1, value)];
        assert!(w.peer(&info, &all(value), &paths));
    }
    w.end_peers(0, &PeerCounters::default(), &[]);
}

#[test]
fn what_is_written_is_read() {
    let dir = Dir::new("read");
    let mut page = dir.open();
    page.publish(|w| fill(w, 5, 3));
    let read = read_page(page.path()).unwrap();
    assert_eq!(read.pid, std::process::id());
    assert_eq!(
        (&read.endpoints[..], read.endpoints_beyond),
        (&[77, 78][..], 0)
    );
    assert_eq!((read.rank, &read.host), (Some(0), &host_name()));
    assert!(read.opened_unix_ns <= read.published_unix_ns && !read.closed && !read.torn);
    assert_eq!(read.process, all(5));
    assert_eq!(read.rails.len(), 1);
    let rail = &read.rails[0];
    assert_eq!(
        (rail.name.as_str(), rail.address.as_str()),
        ("eth0", "10.0.0.1:4000")
    );
    assert!(rail.up && rail.counters == all(5));
    assert_eq!(read.peers.len(), 3);
    let sums: Vec<_> = read.peers.iter().map(|p| (p.state, p.checksum)).collect();
    let alive = |checksum| (PeerState::Alive, checksum);
    assert_eq!(sums, [None, Some(0), Some(16)].map(alive));
    let peer = &read.peers[2];
    assert_eq!((peer.endpoint, peer.state), (2, PeerState::Alive));
    assert_eq!(
        peer.address,
        "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:65535"
    );
    assert_eq!(peer.paths[1].rail, 1);
    assert_eq!(peer.paths[1].peer_rail, 1);
    assert_eq!(peer.paths[1].state, PathState::Suspect);
    assert_eq!(read.path_totals(0).lost, 15);
    assert_eq!(read.peer_totals().messages_sent, 15);
}

#[test]
fn of_many_endpoints_the_first_are_named_and_the_others_counted() {
    let dir = Dir::new("endpoints");
    let mut page = dir.open();
    let all: Vec<u64> = (1..=100).collect();
    page.publish(|w| w.endpoints(&all, 100));
    let read = read_page(page.path()).unwrap();
    assert_eq!(read.endpoints, all[..ENDPOINTS_MAX]);
    assert_eq!(read.endpoints_beyond, 100 - ENDPOINTS_MAX as u64);
}

#[test]
fn a_page_of_another_version_says_which_one_reads_it() {
    let dir = Dir::new("versions");
    let page = dir.open();
    let set = |word: u64| {
        let file = OpenOptions::new().write(true).open(page.path()).unwrap();
        file.write_all_at(&word.to_ne_bytes(), at::VERSION as u64 * 8)
            .unwrap();
        read_page(page.path()).unwrap_err()
    };
    for (version, age) in [(VERSION - 1, "an older"), (VERSION + 1, "a newer")] {
        let said = set(version);
        let wanted = format!("is of {age} version of Marline: its own `marline stats`");
        assert!(said.contains(&wanted), "{said}");
    }
}

#[test]
fn rows_beyond_the_table_are_refused_and_shown_together() {
    let dir = Dir::new("beyond");
    let mut page = dir.open();
    page.publish(|w| {
        fill(w, 1, PEERS_MAX);
        let info = PeerInfo::default();
        assert!(!w.peer(&info, &all(1), &[]));
        w.end_peers(9, &all(2), &[path_row(0, 2); RAILS_MAX + 1]);
        w.rail(RAILS_MAX, &RailInfo::default(), &all(1));
    });
    let read = read_page(page.path()).unwrap();
    assert_eq!(
        (read.peers.len(), read.peers_beyond, read.rails.len()),
        (PEERS_MAX, 9, 1)
    );
    assert_eq!(read.peer_totals().messages_sent, PEERS_MAX as u64 + 2);
    assert_eq!(read.others.paths.len(), RAILS_MAX);
}

#[test]
fn peers_beyond_the_table_are_added_up() {
    let dir = Dir::new("added");
    let mut page = dir.open();
    let peers = PEERS_MAX + 76;
    page.publish(|w| {
        let mut rows = PeerRows::default();
        for _ in 0..peers {
            let paths = [path_row(0, 3), path_row(1, 4)];
            rows.peer(w, &PeerInfo::default(), &all(2), &paths);
        }
        assert_eq!(rows.end(w), peers as u64);
    });
    let read = read_page(page.path()).unwrap();
    assert_eq!((read.peers.len(), read.peers_beyond), (PEERS_MAX, 76));
    assert_eq!(read.others.counters.messages_sent, 2 * 76);
    assert_eq!(read.peer_totals().messages_sent, 2 * peers as u64);
    assert_eq!(read.path_totals(0).lost, 3 * peers as u64);
    assert_eq!(read.path_totals(1).lost, 4 * peers as u64);
}

/// Sixteen rails to sixteen rails of one subnet are 256 paths, each of which has a row while the
/// page has room.
#[test]
fn every_path_has_a_row_while_there_is_room() {
    let dir = Dir::new("paths");
    let mut page = dir.open();
    let mut paths = Vec::new();
    for (rail, peer_rail) in (0..16).flat_map(|a| (0..16).map(move |b| (a, b))) {
        let row = path_row(rail, u64::from(rail) + 1);
        paths.push(PathRow { peer_rail, ..row });
    }
    const PEERS: usize = PEER_PATHS_MAX / 256 + 6;
    page.publish(|w| {
        let mut rows = PeerRows::default();
        for _ in 0..PEERS {
            rows.peer(w, &PeerInfo::default(), &all(2), &paths);
        }
        assert_eq!(rows.end(w), PEERS as u64);
    });
    let read = read_page(page.path()).unwrap();
    let (first, last) = (&read.peers[0].paths, &read.peers[PEERS - 1].paths);
    assert_eq!((first.len(), last.len()), (256, 16));
    assert_eq!((first[17].rail, first[17].peer_rail), (1, 1));
    assert_eq!(last[3].peer_rail, PathRow::SEVERAL);
    let whole = read.peers.iter().filter(|p| p.paths.len() == 256).count();
    assert_eq!(read.peers_summed, (PEERS - whole) as u64);
    for rail in 0..16 {
        let lost = (PEERS * 16) as u64 * (rail as u64 + 1);
        assert_eq!(read.path_totals(rail).lost, lost);
    }
}

#[test]
fn a_path_that_is_not_used_has_no_row() {
    let dir = Dir::new("idle");
    let mut page = dir.open();
    let idle = |rail| PathRow {
        rail,
        ..PathRow::default()
    };
    page.publish(|w| {
        let mut rows = PeerRows::default();
        let paths = [idle(0), idle(1), path_row(2, 3)];
        rows.peer(w, &PeerInfo::default(), &all(2), &paths);
        rows.peer(w, &PeerInfo::default(), &all(2), &[idle(0), idle(1)]);
        rows.end(w);
    });
    let read = read_page(page.path()).unwrap();
    let rails = |n: usize| {
        read.peers[n]
            .paths
            .iter()
            .map(|p| p.rail)
            .collect::<Vec<_>>()
    };
    assert_eq!((rails(0), rails(1)), (vec![0, 2], vec![0]));
}

/// The row of a peer that left is gone; its counters are part of a sum.
#[test]
fn peers_that_left_have_no_row_any_more() {
    let dir = Dir::new("left");
    let mut page = dir.open();
    page.publish(|w| fill(w, 5, 3));
    page.publish(|w| fill(w, 5, 1));
    let read = read_page(page.path()).unwrap();
    assert_eq!(read.peers.len(), 1);
    assert_eq!(read.peer_totals().messages_sent, 5);
}

#[test]
fn all_rails_have_a_row() {
    let dir = Dir::new("rails");
    let mut page = dir.open();
    page.publish(|w| (0..RAILS_MAX).for_each(|n| w.rail(n, &RailInfo::default(), &all(1))));
    assert_eq!(read_page(page.path()).unwrap().rails.len(), RAILS_MAX);
}

#[test]
fn events_are_read_at_once_and_the_oldest_go() {
    let dir = Dir::new("events");
    let page = dir.open();
    let recorder = page.recorder();
    let event = |kind, peer| Event {
        kind,
        moved: 1,
        peer,
        ..Event::default()
    };
    recorder.record(event(Kind::PathDown, 9));
    let read = read_page(page.path()).unwrap().events;
    assert_eq!((read.list.len(), read.missing), (1, 0));
    assert_eq!((read.list[0].moved, read.list[0].peer), (1, 9));
    assert!(read.list[0].unix_ns >= read_page(page.path()).unwrap().opened_unix_ns);
    // Suspicions, which may be many, displace no other events.
    let many = 2 * SUSPECTS_MAX as u64 + 3;
    (0..many).for_each(|n| recorder.record(event(Kind::PathSuspect, n)));
    let read = read_page(page.path()).unwrap().events;
    assert_eq!(read.list.len(), 1 + SUSPECTS_MAX);
    assert_eq!(read.missing, many - SUSPECTS_MAX as u64);
    assert_eq!(read.list.last().unwrap().peer, many - 1);
    assert_eq!(read.list[0].kind, Kind::PathDown);
    // Suspicions of one path are one event.
    (0..many).for_each(|_| recorder.record(event(Kind::PathSuspect, many - 2)));
    let again = read_page(page.path()).unwrap().events;
    assert_eq!(
        (again.list.len(), again.missing),
        (1 + SUSPECTS_MAX, read.missing)
    );
    let doubts = again.list.iter().find(|e| e.peer == many - 2).unwrap();
    assert_eq!(u64::from(doubts.times), 1 + many);
}

#[test]
fn a_page_grows_with_its_peers_only() {
    let dir = Dir::new("grow");
    let mut page = dir.open();
    let bytes = |page: &Page| std::fs::metadata(page.path()).unwrap().len();
    page.publish(|w| fill(w, 1, 2));
    assert!(bytes(&page) <= 48 * 1024);
    page.publish(|w| fill(w, 1, 100));
    assert!(bytes(&page) <= 112 * 1024);
}

#[test]
fn a_kept_page_stays_and_says_closed() {
    let dir = Dir::new("keep");
    let page = dir.open();
    let path = page.path().to_owned();
    drop(page);
    assert_eq!(list_pages(&dir.0), std::slice::from_ref(&path));
    assert!(read_page(&path).unwrap().closed);
}

#[test]
fn a_page_in_the_default_directory_is_removed() {
    let page = Page::open(&PageInfo::default()).unwrap();
    let path = page.path().to_owned();
    assert!(path.exists() && !page.is_kept());
    drop(page);
    assert!(!path.exists());
}

#[test]
fn a_directory_that_is_not_there_is_an_error_that_names_it() {
    let info = PageInfo {
        dir: "/nonexistent/pages",
        ..PageInfo::default()
    };
    assert!(Page::open(&info)
        .unwrap_err()
        .contains("/nonexistent/pages"));
    assert!(list_pages(Path::new("/nonexistent/pages")).is_empty());
}

#[test]
fn only_pages_of_ended_processes_are_removed() {
    let dir = Dir::new("stale");
    let set = |path: &Path, at: usize, word: u64| {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&word.to_ne_bytes(), at as u64 * 8)
            .unwrap();
    };
    let [alive, ended, reused, elsewhere, garbage, older, newer] = [(); 7].map(|()| dir.open());
    let path = |page: &Page| page.path().to_owned();
    set(&path(&ended), at::PID, u64::from(u32::MAX)); // no process has this PID
    set(&path(&reused), at::PID_START, 1); // the kernel started earlier
    set(&path(&elsewhere), at::PID_SPACE, 1);
    set(&path(&elsewhere), at::PID, u64::from(u32::MAX));
    set(&path(&garbage), at::MAGIC, 1);
    for (page, version) in [(&older, VERSION - 1), (&newer, VERSION + 1)] {
        set(&path(page), at::PID, u64::from(u32::MAX));
        set(&path(page), at::VERSION, version);
    }
    let host = host_name();
    remove_stale(&dir.0, "marline-other-", &host);
    assert_eq!(
        list_pages(&dir.0).len(),
        7,
        "names of others are not touched"
    );
    remove_stale(&dir.0, &format!("marline-{host}-"), &host);
    let mut left = [&alive, &elsewhere, &garbage, &newer].map(path);
    left.sort();
    assert_eq!(list_pages(&dir.0), left);
    assert_eq!(read_owner(alive.path()).unwrap().pid, std::process::id());
}

/// Any user may put files named like pages into /dev/shm: opening one of these would block for
/// ever, another links to a file elsewhere.
#[test]
fn files_of_other_users_beside_pages_block_no_reader() {
    let dir = Dir::new("planted");
    let page = dir.open();
    let host = host_name();
    let planted = |n: u32| dir.0.join(format!("marline-{host}-{n}-0.page"));
    let made = std::process::Command::new("mkfifo")
        .arg(planted(1))
        .status();
    assert!(made.unwrap().success());
    std::os::unix::fs::symlink(page.path(), planted(2)).unwrap();
    std::os::unix::fs::symlink("/dev/null", planted(3)).unwrap();
    std::fs::create_dir(planted(4)).unwrap();
    std::fs::copy(page.path(), dir.0.join("marline-\x1b[2J-1-0.page")).unwrap();
    remove_stale(&dir.0, &format!("marline-{host}-"), &host);
    assert_eq!(list_pages(&dir.0), [page.path()]);
    for (n, why) in [
        (1, "not a regular file"),
        (2, "a symbolic link"),
        (3, "a symbolic link"),
        (4, "not a regular file"),
    ] {
        let error = read_page(&planted(n)).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

/// A concurrent reader sees all counters of one update, never a mixture.
#[test]
fn pages_are_read_whole_while_they_are_written() {
    let dir = Dir::new("whole");
    let mut page = dir.open();
    page.publish(|w| fill(w, 0, 4));
    let path = page.path().to_owned();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in 1..2000 {
                page.publish(|w| fill(w, value, 4));
                std::thread::yield_now();
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            let read = read_page(&path).unwrap();
            if read.torn {
                continue; // reports itself that it may be mixed
            }
            let value = read.process.polls;
            assert_eq!(read.process, all(value));
            assert_eq!(read.rails[0].counters, all(value));
            assert!(read
                .peers
                .iter()
                .all(|peer| peer.paths[1].counters == all(value)));
        }
    });
    assert_eq!(read_page(&path).unwrap().process, all(1999));
}

#[test]
fn truncated_and_random_pages_are_refused_or_read_without_harm() {
    let dir = Dir::new("garbage");
    let mut page = dir.open();
    page.publish(|w| fill(w, u64::MAX, 2));
    let good = std::fs::read(page.path()).unwrap();
    let path = dir.0.join("marline-x-1-0.page");
    let check = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let read = read_page(&path);
        if let Ok(read) = &read {
            let _ = super::super::report::report(&super::super::summary::Summary::of(
                std::slice::from_ref(read),
            ));
        }
        read
    };
    for len in (0..PEERS_AT * 8).step_by(61) {
        let read = check(&good[..len]);
        let error = read.map(drop).unwrap_err();
        let why = match len < HEADER_WORDS * 8 {
            true => "is not a statistics page",
            false => "is cut off or damaged",
        };
        assert!(error.contains(why), "{len}: {error}");
    }
    let rows = PEERS_AT + 2 * peer_words(2);
    assert!(check(&good[..rows * 8 - 1]).is_err() && check(&good[..rows * 8]).is_ok());
    let mut state = 1u64; // xorshift: any fixed seed will do
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..200 {
        let mut bad = good.clone();
        for _ in 0..20 {
            let at = random() as usize % bad.len().min(8192);
            bad[at] = random() as u8;
        }
        let _ = check(&bad);
        // A valid identity with random contents otherwise.
        for at in (at::SEQUENCE * 8..at::GROUPS * 8).chain(HEADER_WORDS * 8..bad.len()) {
            bad[at] = random() as u8;
        }
        bad[..at::SEQUENCE * 8].copy_from_slice(&good[..at::SEQUENCE * 8]);
        let groups = at::GROUPS * 8..HEADER_WORDS * 8;
        bad[groups.clone()].copy_from_slice(&good[groups]);
        let _ = check(&bad);
    }
    assert!(read_page(&dir.0).is_err(), "a directory is not a page");
}

#[test]
fn states_are_decoded_and_invalid_words_become_the_first() {
    for state in [
        PathState::Unknown,
        PathState::Up,
        PathState::Down,
        PathState::Probation,
    ] {
        assert_eq!(PathState::from_word(state as u64), state);
    }
    assert_eq!(PathState::from_word(99), PathState::Unknown);
    assert_eq!(
        PeerState::from_word(PeerState::Dead as u64),
        PeerState::Dead
    );
}

#[test]
fn the_page_of_a_zombie_is_left_behind() {
    let dir = Dir::new("zombie");
    let mut page = dir.open();
    page.publish(|w| fill(w, 5, 0));
    let read = read_page(page.path()).unwrap();
    assert!(!read.is_left_behind());
    let mut child = std::process::Command::new("true").spawn().unwrap();
    while !is_zombie(child.id()) {
        std::thread::yield_now();
    }
    let pid_start = pid_start(child.id()).unwrap();
    let dead = JobPage {
        pid: child.id(),
        pid_start,
        ..read
    };
    assert!(dead.is_left_behind());
    child.wait().unwrap();
    assert!(dead.is_left_behind());
}
