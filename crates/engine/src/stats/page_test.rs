//! Writing and reading of statistics pages.

use super::*;
use crate::stats::events::{Event, Kind};
use crate::stats::process::is_zombie;
use crate::stats::reader::{list_pages, parse_page, read_owner, read_page};
use crate::stats::report::report;
use crate::stats::rows::{PathRow, PathState, PeerState, RailRow};
use crate::stats::stale::remove_stale;
use crate::stats::summary::Summary;
use crate::stats::{Counters, PathCounters};
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

fn path_row(rail: u32, peer_rail: u32, value: u64) -> PathRow {
    PathRow {
        rail,
        peer_rail,
        state: PathState::Suspect,
        counters: all(value),
    }
}

fn idle(rail: u32) -> PathRow {
    PathRow {
        rail,
        ..PathRow::default()
    }
}

fn peer_row(endpoint: u64, value: u64, paths: &[PathRow]) -> PeerRow {
    PeerRow {
        endpoint,
        address: "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:65535".into(),
        state: PeerState::Alive,
        checksum: endpoint.checked_sub(1).map(|n| (16 * n) as u8),
        counters: all(value),
        paths: paths.to_vec(),
    }
}

fn fill(w: &mut PageWriter<'_>, value: u64, peers: u64) {
    w.page.endpoints = vec![77, 78];
    w.page.process = all(value);
    w.page.rails.push(RailRow {
        name: "eth0".into(),
        address: "10.0.0.1:4000".into(),
        up: true,
        standby: false,
        packet_bytes_max: value,
        counters: all(value),
    });
    let paths = [path_row(0, 1, value), path_row(1, 1, value)];
    (0..peers).for_each(|n| w.peer(peer_row(n, value, &paths)));
}

/// Writes `word` into the file of a page.
fn set(page: &Page, at: usize, word: u64) {
    let file = OpenOptions::new().write(true).open(page.path()).unwrap();
    file.write_all_at(&word.to_ne_bytes(), at as u64 * 8)
        .unwrap();
}

#[test]
fn what_is_written_is_read() {
    let dir = Dir::new("read");
    let mut page = dir.open();
    let mut written = JobPage::default();
    page.publish(|w| {
        fill(w, 5, 3);
        w.page.disabled.faults = true;
        w.without_rows(4, &peer_row(0, 6, &[path_row(2, 2, 6)]));
        written = w.page.clone();
    });
    let read = read_page(page.path()).unwrap();
    assert_eq!((read.rank, read.endpoints.len()), (Some(0), 2));
    assert_eq!((read.pid, &read.host), (std::process::id(), &host_name()));
    assert!(read.opened_unix_ns <= read.published_unix_ns && !read.closed && !read.torn);
    assert_eq!(read.path_totals(0).lost, 15);
    assert_eq!(read.peer_totals().messages_sent, 15 + 6);
    let beside = JobPage {
        pid: read.pid,
        pid_start: read.pid_start,
        pid_space: read.pid_space,
        host: read.host.clone(),
        published_unix_ns: read.published_unix_ns,
        history: read.history.clone(),
        ..written
    };
    assert_eq!(read, beside);
    // The rows of peers that left are gone.
    page.publish(|w| fill(w, 5, 1));
    let read = read_page(page.path()).unwrap();
    assert_eq!((read.peers.len(), read.peers_beyond), (1, 0));
}

#[test]
fn lists_end_where_their_room_does() {
    let dir = Dir::new("lists");
    let settings = vec![Given("FI_MARLINE_TEST=gso=off".into()); SETTINGS_MAX + 1];
    let mut page = Page::open(&PageInfo {
        dir: dir.0.to_str().unwrap(),
        settings: &settings,
        ..PageInfo::default()
    })
    .unwrap();
    page.publish(|w| {
        w.page.endpoints = (0..100).collect();
        w.page.rails = vec![RailRow::default(); RAILS_MAX + 1];
        let paths = (0..=RAILS_MAX as u32).map(|rail| path_row(rail, 0, 1));
        w.page.others.paths = paths.collect();
    });
    let read = read_page(page.path()).unwrap();
    let others = read.others.paths.len();
    assert_eq!(
        (read.endpoints.len(), read.rails.len(), others),
        (ENDPOINTS_MAX, RAILS_MAX, RAILS_MAX)
    );
    assert_eq!(read.settings, settings[..SETTINGS_MAX]);
    let without_history = JobPage {
        history: History::default(),
        ..read.clone()
    };
    assert_eq!(words::count(&without_history), ROOM_WORDS - BODY_AT);
    assert_eq!(read.history.rails.len(), RAILS_MAX);
}

#[test]
fn a_page_of_another_version_says_which_one_reads_it() {
    let dir = Dir::new("versions");
    let page = dir.open();
    for (version, age) in [(VERSION - 1, "an older"), (VERSION + 1, "a newer")] {
        set(&page, at::VERSION, version);
        let said = read_page(page.path()).unwrap_err();
        let wanted = format!("is of {age} version of Marline: its own `marline stats`");
        assert!(said.contains(&wanted), "{said}");
    }
}

/// Every peer and path has a row while there is room; the totals include all. Sixteen rails to
/// sixteen rails of one subnet are 256 paths.
#[test]
fn peers_and_paths_without_room_are_summed() {
    let two = vec![path_row(0, 1, 1), path_row(1, 1, 2)];
    let many = (0..256).map(|n| path_row(n / 16, n % 16, u64::from(n / 16) + 1));
    let full = PEER_PATHS_MAX / 256;
    for (paths, peers, rows) in [
        (two, PEERS_MAX + 76, PEERS_MAX),
        (many.collect(), full + 6, full + 6),
    ] {
        let dir = Dir::new("room");
        let mut page = dir.open();
        page.publish(|w| {
            (0..peers).for_each(|_| w.peer(peer_row(1, 2, &paths)));
            assert_eq!(w.peers(), peers as u64);
        });
        let read = read_page(page.path()).unwrap();
        assert_eq!(
            (read.peers.len(), read.peers_beyond),
            (rows, (peers - rows) as u64)
        );
        assert_eq!(read.peers[0].paths, paths);
        let whole = read.peers.iter().filter(|p| p.paths.len() == paths.len());
        assert_eq!(read.peers_summed, (rows - whole.count()) as u64);
        assert_eq!(read.peer_totals().messages_sent, 2 * peers as u64);
        for (rail, row) in read.peers[rows - 1].paths.iter().enumerate() {
            let of_rail = paths.iter().filter(|path| path.rail == row.rail);
            let lost: u64 = of_rail.map(|path| path.counters.lost).sum();
            assert_eq!(read.path_totals(rail).lost, lost * peers as u64);
            let several = read.peers_summed > 0;
            assert_eq!(row.peer_rail == PathRow::SEVERAL, several);
        }
    }
}

#[test]
fn a_path_that_is_not_used_has_no_row() {
    let dir = Dir::new("idle");
    let mut page = dir.open();
    page.publish(|w| {
        w.peer(peer_row(0, 2, &[idle(0), idle(1), path_row(2, 1, 3)]));
        w.peer(peer_row(1, 2, &[idle(0), idle(1)]));
    });
    let read = read_page(page.path()).unwrap();
    let rails = |peer: &PeerRow| peer.paths.iter().map(|p| p.rail).collect::<Vec<_>>();
    let rails: Vec<_> = read.peers.iter().map(rails).collect();
    assert_eq!(rails, [vec![0, 2], vec![0]]);
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
    let read = || read_page(page.path()).unwrap();
    let (one, opened) = (read().events, read().opened_unix_ns);
    assert_eq!((one.list.len(), one.missing), (1, 0));
    assert_eq!((one.list[0].moved, one.list[0].peer), (1, 9));
    assert!(one.list[0].unix_ns >= opened);
    // Suspicions, which may be many, displace no other events.
    let many = 2 * SUSPECTS_MAX as u64 + 3;
    (0..many).for_each(|n| recorder.record(event(Kind::PathSuspect, n)));
    let full = read().events;
    let lost = many - SUSPECTS_MAX as u64;
    assert_eq!((full.list.len(), full.missing), (1 + SUSPECTS_MAX, lost));
    assert_eq!(full.list.last().unwrap().peer, many - 1);
    assert_eq!(full.list[0].kind, Kind::PathDown);
    // Suspicions of one path are one event.
    (0..many).for_each(|_| recorder.record(event(Kind::PathSuspect, many - 2)));
    let again = read().events;
    assert_eq!((again.list.len(), again.missing), (1 + SUSPECTS_MAX, lost));
    let doubts = again.list.iter().find(|e| e.peer == many - 2).unwrap();
    assert_eq!(u64::from(doubts.times), 1 + many);
}

#[test]
fn a_page_grows_with_its_peers_only() {
    let dir = Dir::new("grow");
    let mut page = dir.open();
    for (peers, kib_max) in [(2, 48), (100, 112)] {
        page.publish(|w| fill(w, 1, peers));
        assert!(std::fs::metadata(page.path()).unwrap().len() <= kib_max * 1024);
    }
}

#[test]
fn a_page_stays_in_its_own_directory_only() {
    let dir = Dir::new("keep");
    let page = dir.open();
    let path = page.path().to_owned();
    drop(page);
    assert_eq!(list_pages(&dir.0), std::slice::from_ref(&path));
    assert!(read_page(&path).unwrap().closed);

    let page = Page::open(&PageInfo::default()).unwrap();
    let path = page.path().to_owned();
    assert!(path.exists() && !page.is_kept());
    drop(page);
    assert!(!path.exists());
}

#[test]
fn a_directory_that_is_not_there_is_an_error_that_names_it() {
    let dir = "/nonexistent/pages";
    let info = PageInfo {
        dir,
        ..PageInfo::default()
    };
    assert!(Page::open(&info).unwrap_err().contains(dir));
    assert!(list_pages(Path::new(dir)).is_empty());
}

#[test]
fn only_pages_of_ended_processes_are_removed() {
    let dir = Dir::new("stale");
    let pages = [(); 7].map(|()| dir.open());
    let [alive, ended, reused, elsewhere, garbage, older, newer] = &pages;
    for page in [ended, elsewhere, older, newer] {
        set(page, at::PID, u64::from(u32::MAX)); // no process has this PID
    }
    set(reused, at::PID_START, 1); // the kernel started earlier
    set(elsewhere, at::PID_SPACE, 1);
    set(garbage, at::MAGIC, 1);
    set(older, at::VERSION, VERSION - 1);
    set(newer, at::VERSION, VERSION + 1);
    let host = host_name();
    remove_stale(&dir.0, "marline-other-", &host);
    let left = list_pages(&dir.0).len();
    assert_eq!(left, 7, "names of others are not touched");
    remove_stale(&dir.0, &format!("marline-{host}-"), &host);
    let mut left = [alive, elsewhere, garbage, newer].map(Page::path);
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
    let (link, other) = ("a symbolic link", "not a regular file");
    for (n, why) in [(1, other), (2, link), (3, link), (4, other)] {
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
            let of_paths: PathCounters = all(value);
            let same = |peer: &PeerRow| peer.paths[1].counters == of_paths;
            assert!(read.peers.iter().all(same));
        }
    });
    assert_eq!(read_page(&path).unwrap().process, all(1999));
}

#[test]
fn truncated_and_random_pages_are_refused_or_read_without_harm() {
    let dir = Dir::new("garbage");
    let mut page = dir.open();
    page.publish(|w| fill(w, u64::MAX, 2));
    let body_words = words::count(&read_page(page.path()).unwrap());
    let good = std::fs::read(page.path()).unwrap();
    let path = dir.0.join("marline-x-1-0.page");
    let check = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let read = read_page(&path);
        if let Ok(read) = &read {
            let _ = report(&Summary::of(std::slice::from_ref(read)));
        }
        read
    };
    let end = (BODY_AT + body_words) * 8;
    assert!(check(&good[..end]).is_ok());
    for len in (0..end).step_by(61).chain([end - 1]) {
        let error = check(&good[..len]).map(drop).unwrap_err();
        let why = match len < HEADER_WORDS * 8 {
            true => "is not a statistics page",
            false => "is cut off or damaged",
        };
        assert!(error.contains(why), "{len}: {error}");
    }
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

/// Each state is read as itself, and a number that no state has is damage, never another state.
#[test]
fn an_invalid_state_is_damage() {
    let dir = Dir::new("states");
    let mut page = dir.open();
    let mut written = |of_peer, of_path| {
        let path = PathRow {
            state: of_path,
            ..path_row(0, 0, 1)
        };
        let row = PeerRow {
            state: of_peer,
            ..peer_row(1, 1, &[path])
        };
        page.publish(|w| w.peer(row));
        std::fs::read(page.path()).unwrap()
    };
    let states = |bytes: &[u8]| {
        let peer = &parse_page(Path::new("page"), bytes)?.peers[0];
        Ok::<_, String>((peer.state, peer.paths[0].state))
    };
    let base = written(PeerState::Alive, PathState::Up);
    let body = BODY_AT * 8;
    for (of_peer, of_path) in [
        (PeerState::Dead, PathState::Up),
        (PeerState::Alive, PathState::Probation),
    ] {
        let other = written(of_peer, of_path);
        assert_eq!(states(&other), Ok((of_peer, of_path)));
        let differs = |&at: &usize| base[at..at + 8] != other[at..at + 8];
        let at = (body..base.len()).step_by(8).find(differs).unwrap();
        for word in [5, 255, 256, 1 << 32, u64::MAX] {
            let mut bad = base.clone();
            bad[at..at + 8].copy_from_slice(&u64::to_ne_bytes(word));
            let error = states(&bad).unwrap_err();
            assert!(error.contains("is cut off or damaged"), "{error}");
        }
    }
    for &state in PathState::ALL {
        let read = states(&written(PeerState::Closed, state));
        assert_eq!(read, Ok((PeerState::Closed, state)));
    }
}

#[test]
fn the_page_of_a_zombie_is_left_behind() {
    let dir = Dir::new("zombie");
    let read = read_page(dir.open().path()).unwrap();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    while !is_zombie(child.id()) {
        std::thread::yield_now();
    }
    let dead = JobPage {
        pid: child.id(),
        pid_start: pid_start(child.id()).unwrap(),
        ..read.clone()
    };
    assert!(!read.is_left_behind() && dead.is_left_behind());
    child.wait().unwrap();
    assert!(dead.is_left_behind());
}
