//! Frames of made-up statistics pages on a terminal of 80 columns and 24 lines.

use super::*;
use crate::stats::jobs::group;
use crate::stats::Found;
use crate::top::data::State;
use marline_engine::stats::events::{Event, Kind, Reason};
use marline_engine::stats::rows::{JobPage, PathRow, PathState, PeerRow, PeerState, RailRow};
use ratatui::backend::TestBackend;
use ratatui::widgets::Paragraph;
use ratatui::Terminal;

const START: u64 = 1_764_166_226_000_000_000;
const SECOND: u64 = 1_000_000_000;

/// The page of a rank on a host of its own, with two rails, in touch with `ranks` in all. Of
/// rank 1, the interface of rail 1 is down, and so are all paths of that rail to it.
fn page(rank: u32, ranks: u32) -> (PathBuf, JobPage) {
    let rail = |n: u32| {
        let mut row = RailRow {
            name: format!("rail{n}"),
            up: n == 0 || rank != 1,
            ..RailRow::default()
        };
        row.counters.wire_packets_sent = 1_000;
        row.counters.wire_bytes_sent = 2_000_000;
        row
    };
    let path = |n: u32, peer: u32| {
        let cut = n == 1 && (rank == 1 || peer == 1);
        let mut path = PathRow {
            rail: n,
            peer_rail: n,
            state: if cut { PathState::Down } else { PathState::Up },
            ..PathRow::default()
        };
        path.counters.packets_sent = 100;
        path.counters.lost = u64::from(cut) * 3;
        path.counters.rtt_ns = 123_456;
        path
    };
    let peer = |peer: u32| PeerRow {
        endpoint: u64::from(peer) + 1,
        state: PeerState::Alive,
        paths: vec![path(0, peer), path(1, peer)],
        ..PeerRow::default()
    };
    let others = (0..ranks).filter(|&other| other != rank);
    let mut page = JobPage {
        pid: 1_000 + rank,
        rank: Some(rank),
        host: format!("h{rank}"),
        endpoints: vec![u64::from(rank) + 1],
        opened_unix_ns: START,
        published_unix_ns: START + 10 * SECOND,
        rails: vec![rail(0), rail(1)],
        peers: others.map(peer).collect(),
        ..JobPage::default()
    };
    page.events.list = match rank {
        1 => vec![Event {
            unix_ns: START + SECOND,
            kind: Kind::RailDown,
            reason: Reason::System,
            rail: 1,
            detail: (100, 0),
            ..Event::default()
        }],
        _ => Vec::new(),
    };
    (format!("marline-{rank}.page").into(), page)
}

fn snapshot(pages: Vec<(PathBuf, JobPage)>) -> Snapshot {
    let found = Found {
        jobs: group(pages),
        unread: Vec::new(),
    };
    Sampler::new(&[], None).snapshot(&found)
}

fn job(ranks: u32) -> Snapshot {
    snapshot((0..ranks).map(|rank| page(rank, ranks)).collect())
}

/// The lines of a terminal of 80 columns and 24 lines.
fn terminal(snapshot: &Snapshot, view: &View) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let note = "";
    let screen = Screen {
        snapshot,
        view,
        note,
    };
    let lines = frame::frame(&screen, 80, Some(24));
    assert_eq!(lines.len(), 24);
    let draw = |to: &mut ratatui::Frame<'_>| to.render_widget(Paragraph::new(lines), to.area());
    terminal.draw(draw).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y| {
        let cells = (0..80).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    (0..24).map(row).collect()
}

/// The states of rails by name.
fn states(snapshot: &Snapshot) -> Vec<(String, State)> {
    let rails = snapshot.rails.iter();
    rails.map(|rail| (rail.name(), rail.state)).collect()
}

#[test]
fn a_cut_rail_is_first_on_a_small_terminal() {
    let lines = terminal(&job(3), &View::default());
    assert!(lines[0].starts_with("marline top ") && lines[0].ends_with(", sorted by state"));
    let job = "job 1000: 3 processes on 3 hosts, 0 B/s, 0 messages/s, repaired";
    assert_eq!(lines[1], job);
    let words = |n: usize| lines[n].split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        words(2),
        "RAIL STATE OUT/s IN/s LOSS LOST RESENT CORRUPT RTT"
    );
    assert_eq!(
        words(3),
        "h1:rail1 link down 200 kB 0 B 3.00% 6 0 0 123.5 us"
    );
    assert_eq!(
        words(4),
        "h0:rail1 part down 200 kB 0 B 1.50% 3 0 0 123.5 us"
    );
    assert_eq!(words(6), "h0:rail0 up 200 kB 0 B 0% 0 0 0 123.5 us");
    assert_eq!(lines[9], "WORST PATHS");
    let worst = "rank 1 on h1 rail1 to rank 0 on h0 rail1: down, 123.5 us, 3 lost";
    assert_eq!(lines[10], worst);
    assert_eq!(lines[13], "EVENTS");
    let event = " rank 1 on h1: rail rail1 is down: Network is down (os error 100)";
    assert!(lines[14].ends_with(event), "{lines:#?}");
    assert!(lines[23].starts_with("q quit  s sort "));
}

#[test]
fn more_rails_than_lines_leave_room_for_events() {
    let snapshot = job(16);
    let mut view = View::default();
    let lines = terminal(&snapshot, &view);
    assert!(lines[3].starts_with("h1:rail1 ") && lines[23].starts_with("q quit"));
    assert!(
        lines
            .iter()
            .any(|line| line.contains("is down: Network is down")),
        "{lines:#?}"
    );
    // The chosen row stays in sight.
    view.column = view::Column::Name;
    view.chosen = Some(31);
    let lines = terminal(&snapshot, &view);
    let last = lines.iter().filter(|line| line.starts_with("h9:rail1"));
    assert_eq!(last.count(), 1, "{lines:#?}");
}

#[test]
fn text_without_a_terminal_has_all_rails_in_80_columns() {
    let snapshot = job(16);
    let text = once(&snapshot);
    for rail in &snapshot.rails {
        let start = format!("{} ", rail.name());
        assert!(text.lines().any(|line| line.starts_with(&start)), "{text}");
    }
    assert!(!text.contains("q quit"), "{text}");
    let rails = text.lines().take_while(|line| *line != "WORST PATHS");
    assert!(
        rails.into_iter().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert!(once(&Snapshot::default()).contains("no process is in touch"));
}

#[test]
fn states_tell_interface_and_paths_apart() {
    let two = states(&job(2));
    let of = |name: &str| two.iter().find(|(rail, _)| rail == name).unwrap().1;
    assert_eq!(
        (of("h1:rail1"), of("h0:rail1")),
        (State::LinkDown, State::Down)
    );
    assert_eq!((of("h0:rail0"), of("h1:rail0")), (State::Up, State::Up));
    // A rail on standby has no paths in use, and may wait for its interface.
    let with = |change: &dyn Fn(&mut RailRow)| {
        let mut pages = vec![page(0, 2), page(1, 2)];
        for (_, page) in &mut pages {
            change(&mut page.rails[1]);
            page.peers[0].paths.truncate(1);
        }
        states(&snapshot(pages)).last().unwrap().1
    };
    let standby = with(&|rail| (rail.up, rail.standby) = (true, true));
    let waiting = with(&|rail| {
        (rail.up, rail.standby) = (false, true);
        rail.counters.wire_packets_sent = 0;
    });
    assert_eq!((standby, waiting), (State::Standby, State::Waiting));
}

#[test]
fn the_paths_to_a_dead_peer_are_not_those_of_a_bad_rail() {
    let mut pages = vec![page(0, 2), page(1, 2)];
    pages.remove(1);
    pages[0].1.peers[0].state = PeerState::Dead;
    let rails = states(&snapshot(pages));
    assert!(
        rails.iter().all(|(_, state)| *state == State::Up),
        "{rails:?}"
    );
}

#[test]
fn ended_jobs_give_way_to_running_ones() {
    let mut ended = vec![page(0, 2), page(1, 2)];
    ended.iter_mut().for_each(|(_, page)| page.closed = true);
    let alone = snapshot(ended.clone());
    assert!(alone.jobs[0].ended, "{alone:?}");
    assert!(alone.rails.iter().all(|rail| rail.state == State::Ended));
    let mut other = vec![page(0, 2), page(1, 2)];
    for (n, (_, page)) in other.iter_mut().enumerate() {
        page.pid += 1_000;
        page.endpoints = vec![n as u64 + 101];
        page.peers[0].endpoint += 100;
    }
    let running = snapshot(ended.into_iter().chain(other).collect());
    let jobs: Vec<u32> = running.jobs.iter().map(|job| job.job).collect();
    assert_eq!(jobs, [2_000]);
}

#[test]
fn json_has_the_members_that_the_manual_names() {
    let value = serde_json::to_value(job(2)).unwrap();
    let rail = &value["rails"][3];
    assert_eq!(
        (&rail["host"], &rail["rail"]),
        (&"h1".into(), &"rail1".into())
    );
    assert_eq!(
        (&rail["state"], &rail["up"]),
        (&"link_down".into(), &0.into())
    );
    assert_eq!(
        (&rail["paths"], &rail["paths_down"]),
        (&1.into(), &1.into())
    );
    assert_eq!(rail["bytes_sent_per_s"], 200_000.0);
    assert_eq!(rail["worst"][0]["to"], "rank 0 on h0");
    assert_eq!(value["events"][0]["job"], 1_000);
}

#[test]
fn intervals_have_bounds() {
    assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
    for bad in ["0", "-1", "nan", "x", "1e9"] {
        assert!(interval(bad).is_err(), "{bad}");
    }
}
