//! A frame of `marline top` as lines: title, jobs, rails, worst paths, events, keys.

use super::data::{EventRow, JobRow, Path, Rail, State};
use super::screen::Screen;
use super::text::{add_code, fold, percent, place, round_trip};
use super::view::{Column, View};
use marline_engine::stats::text::{format_bytes, format_count, plural};
use marline_engine::wall_clock::LocalTime;
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};

/// Most jobs with a line of their own; the rails of all have rows.
const JOBS_MAX: usize = 3;
/// Lines of events that a small terminal keeps beside the rails.
const EVENTS_MIN: usize = 4;
/// Events of a frame without a limit of lines.
const EVENTS_ONCE: usize = 20;

/// Width of a frame without a terminal.
pub const COLUMNS: usize = 80;

/// Titles of the columns of rails behind the name, with their widths.
const RAIL_COLUMNS: [(&str, usize); 8] = [
    ("STATE", 9),
    ("OUT/s", 7),
    ("IN/s", 7),
    ("LOSS", 6),
    ("LOST", 5),
    ("RESENT", 6),
    ("CORRUPT", 7),
    ("RTT", 8),
];

/// Width of these columns, with a space before each.
fn rail_columns() -> usize {
    RAIL_COLUMNS.iter().map(|(_, width)| width + 1).sum()
}

/// A frame of `width` columns and at most `lines` lines; of as many as it takes without a limit.
pub fn frame(screen: &Screen<'_>, width: usize, lines: Option<usize>) -> Vec<Line<'static>> {
    let rails = screen.view.rails(screen.snapshot);
    let mut head = title(screen, width);
    head.extend(jobs(screen, width));
    let paths = paths(&screen.view.worst(&rails), width);
    let events = events(&screen.view.events(screen.snapshot), width, lines);
    let room = lines.map_or(Room::all(rails.len(), events.len()), |lines| {
        // The titles of rails and events, and the keys.
        let rest = lines.saturating_sub(head.len() + paths.len() + 3);
        Room::within(rest, rails.len(), events.len())
    });
    let mut all = head;
    all.extend(rail_rows(screen, &rails, width, room.rails));
    all.extend(paths);
    all.push(heading("EVENTS", width));
    all.extend_from_slice(&events[events.len() - room.events..]);
    if let Some(lines) = lines {
        all.truncate(lines.saturating_sub(1));
        all.resize(lines.saturating_sub(1), Line::default());
        all.push(keys(screen.view));
    }
    all
}

/// Lines for rails and for events.
struct Room {
    rails: usize,
    events: usize,
}

impl Room {
    fn all(rails: usize, events: usize) -> Room {
        Room { rails, events }
    }

    /// Shares `lines` lines: the rails get what they need, but some events are always there.
    fn within(lines: usize, rails: usize, events: usize) -> Room {
        let kept = events.min(EVENTS_MIN).min(lines);
        let rails = rails.min(lines - kept);
        Room {
            rails,
            events: events.min(lines - rails),
        }
    }
}

fn heading(text: &str, width: usize) -> Line<'static> {
    Line::from(format!("{text:<width$}")).style(Modifier::REVERSED)
}

fn title(screen: &Screen<'_>, width: usize) -> Vec<Line<'static>> {
    let view = screen.view;
    let mut text = format!(
        "marline top {}, sorted by {}{}",
        LocalTime::of(screen.snapshot.unix_ns).clock(),
        column(view.column),
        if view.reverse { " reversed" } else { "" },
    );
    if view.frozen {
        text += ", FROZEN";
    }
    if !view.filter.is_empty() {
        text += &format!(", with {:?}", view.filter);
    }
    let mut lines = vec![Line::from(text).bold()];
    let unread = &screen.snapshot.unread;
    if let Some(first) = unread.first() {
        let pages = plural(unread.len() as u64, "page is", "pages are");
        lines.push(Line::from(format!("{pages} left out: {first}")).fg(Color::Yellow));
    }
    lines.extend(fold(screen.note, width).into_iter().map(Line::from));
    lines
}

fn column(column: Column) -> &'static str {
    match column {
        Column::Name => "name",
        Column::State => "state",
        Column::Out => "out",
        Column::In => "in",
        Column::Loss => "loss",
        Column::Lost => "lost",
        Column::Resent => "resent",
        Column::Corrupt => "corrupt",
        Column::Rtt => "round trip",
    }
}

fn jobs(screen: &Screen<'_>, width: usize) -> Vec<Line<'static>> {
    let all = &screen.snapshot.jobs;
    let shown = all.iter().take(JOBS_MAX);
    let mut lines: Vec<Line> = shown.flat_map(|row| job(row, width)).collect();
    let more = all.len().saturating_sub(JOBS_MAX);
    if more > 0 {
        lines.push(Line::from(plural(more as u64, "more job", "more jobs")));
    }
    lines
}

fn job(row: &JobRow, width: usize) -> Vec<Line<'static>> {
    let text = format!(
        "job {}: {} on {}, {}/s, {} messages/s, {}{}",
        row.job,
        plural(row.processes as u64, "process", "processes"),
        plural(row.hosts as u64, "host", "hosts"),
        format_bytes(row.bytes_sent_per_s as u64),
        format_count(row.messages_sent_per_s as u64),
        row.verdict,
        if row.ended { ", ended" } else { "" },
    );
    let mut lines: Vec<Line> = fold(&text, width).into_iter().map(Line::from).collect();
    if let [first, others @ ..] = &row.dead_peers[..] {
        let more = match others.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!("PEER DEAD: {first}{more}");
        let dead = fold(&text, width).into_iter();
        lines.extend(dead.map(|text| Line::from(text).style(of_state(State::Down))));
    }
    lines
}

fn of_state(state: State) -> Style {
    match state {
        State::LinkDown | State::Down => Style::new().fg(Color::Red).bold(),
        State::PartDown | State::Waiting | State::Suspect => Style::new().fg(Color::Yellow),
        State::Probation | State::Up | State::Standby | State::Ended => Style::new(),
    }
}

fn rail_rows(
    screen: &Screen<'_>,
    rails: &[&Rail],
    width: usize,
    room: usize,
) -> Vec<Line<'static>> {
    let name_width = width.saturating_sub(rail_columns());
    let mut text = format!("{:<name_width$}", "RAIL");
    for (n, (name, width)) in RAIL_COLUMNS.iter().enumerate() {
        text += &match n {
            0 => format!(" {name:<width$}"),
            _ => format!(" {name:>width$}"),
        };
    }
    let mut lines = vec![heading(&text, width)];
    // The chosen row is in sight.
    let chosen = screen.view.chosen;
    let skipped = chosen.map_or(0, |row| (row + 1).saturating_sub(room.max(1)));
    let several = screen.snapshot.jobs.len() > 1;
    for (n, rail) in rails.iter().enumerate().skip(skipped).take(room) {
        let line = rail_row(rail, name_width, several);
        lines.push(match chosen == Some(n) {
            true => line.style(Modifier::REVERSED),
            false => line,
        });
    }
    lines
}

fn rail_row(rail: &Rail, name_width: usize, several: bool) -> Line<'static> {
    let job = match several {
        true => format!("{} ", rail.job),
        false => String::new(),
    };
    let room = name_width.saturating_sub(job.len());
    let name = format!("{job}{}", place(&rail.host, &rail.rail, room));
    let [(_, state_width), others @ ..] = &RAIL_COLUMNS;
    let cells = [
        format_bytes(rail.bytes_sent_per_s as u64),
        format_bytes(rail.bytes_received_per_s as u64),
        rail.loss.map_or_else(|| "-".to_owned(), percent),
        format_count(rail.lost),
        format_count(rail.resent),
        format_count(rail.corrupt),
        round_trip(rail.rtt_ns),
    ];
    let cells = cells.iter().zip(others);
    let cells: String = cells
        .map(|(cell, (_, width))| format!(" {cell:>width$}"))
        .collect();
    let state = format!(" {:<state_width$}", rail.state.name());
    Line::from(vec![
        Span::from(format!("{name:<name_width$}")),
        Span::from(state).style(of_state(rail.state)),
        Span::from(cells),
    ])
}

/// The worst paths with their title.
fn paths(worst: &[(&Rail, &Path)], width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![heading("WORST PATHS", width)];
    lines.extend(worst.iter().map(|(rail, path)| {
        let text = format!(
            "{} {} to {} {}: ",
            path.from, rail.rail, path.to, path.to_rail
        );
        let mut rest = format!(", {}", round_trip(path.rtt_ns));
        for (count, what) in [(path.lost, "lost"), (path.corrupt, "corrupt")] {
            if count > 0 {
                rest += &format!(", {} {what}", format_count(count));
            }
        }
        let state = Span::from(path.state.name()).style(of_state(path.state));
        Line::from(vec![Span::from(text), state, Span::from(rest)])
    }));
    lines
}

/// The lines of the newest events, as many as could be shown.
fn events(all: &[&EventRow], width: usize, lines: Option<usize>) -> Vec<Line<'static>> {
    let first = all.len().saturating_sub(lines.unwrap_or(EVENTS_ONCE));
    let text = |event: &EventRow| {
        let clock = LocalTime::of(event.unix_ns).clock();
        let millis = event.unix_ns / 1_000_000 % 1_000;
        format!("{clock}.{millis:03} {}", event.text)
    };
    let folded = all[first..].iter().flat_map(|event| {
        let mut lines = fold(&text(event), width);
        add_code(&mut lines, &event.code, width);
        lines
    });
    folded.map(Line::from).collect()
}

fn keys(view: &View) -> Line<'static> {
    if view.typing {
        return Line::from(format!("/{}_  Enter: keep, Esc: all rows", view.filter)).bold();
    }
    let keys = "q quit  s sort  r reverse  / filter  f freeze  up/down: a rail's paths  Esc all";
    Line::from(keys).dim()
}
