//! The choices of a user of `marline top`: order of rows, filter, chosen row, and the keys that
//! change them.

use super::data::{EventRow, Path, Rail, Snapshot};
use super::sample::WORST_MAX;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::cmp::Ordering;

/// A column by which rows are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Column {
    /// State, the worst first.
    #[default]
    State,
    /// Job, host and name.
    Name,
    /// Bytes sent per second, the most first, as in all columns below.
    Out,
    /// Bytes received per second.
    In,
    /// Share of packets lost.
    Loss,
    /// Packets lost.
    Lost,
    /// Packets sent again.
    Resent,
    /// Packets damaged.
    Corrupt,
    /// Round trip.
    Rtt,
}

impl Column {
    /// All columns in the order of the key that changes them, and of the table.
    pub const ALL: [Column; 9] = [
        Column::Name,
        Column::State,
        Column::Out,
        Column::In,
        Column::Loss,
        Column::Lost,
        Column::Resent,
        Column::Corrupt,
        Column::Rtt,
    ];

    /// The next column.
    fn next(self) -> Column {
        let at = Column::ALL.iter().position(|&column| column == self);
        Column::ALL[at.map_or(0, |at| (at + 1) % Column::ALL.len())]
    }

    fn compare(self, a: &Rail, b: &Rail) -> Ordering {
        match self {
            Column::Name => Ordering::Equal,
            Column::State => a.state.cmp(&b.state),
            Column::Out => b.bytes_sent_per_s.total_cmp(&a.bytes_sent_per_s),
            Column::In => b.bytes_received_per_s.total_cmp(&a.bytes_received_per_s),
            Column::Loss => b.loss.unwrap_or(0.0).total_cmp(&a.loss.unwrap_or(0.0)),
            Column::Lost => b.lost.cmp(&a.lost),
            Column::Resent => b.resent.cmp(&a.resent),
            Column::Corrupt => b.corrupt.cmp(&a.corrupt),
            Column::Rtt => b.rtt_ns.cmp(&a.rtt_ns),
        }
    }
}

/// The effect of a key beyond a change of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// None.
    Continue,
    /// The command ends.
    Quit,
}

/// The choices of the user.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The column by which rows are sorted.
    pub column: Column,
    /// True for the opposite order.
    pub reverse: bool,
    /// Text that rows and events contain.
    pub filter: String,
    /// True while the filter is typed.
    pub typing: bool,
    /// True if no new snapshots are wanted.
    pub frozen: bool,
    /// The chosen row.
    pub chosen: Option<usize>,
}

/// Rows that a key for a page moves: a screenful of a small terminal.
const PAGE: usize = 10;

impl View {
    /// Takes a key.
    pub fn key(&mut self, key: KeyEvent) -> Effect {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && matches!(key.code, KeyCode::Char('c')) {
            return Effect::Quit;
        }
        match self.typing {
            true => self.type_key(key.code),
            false => return self.command(key.code),
        }
        Effect::Continue
    }

    fn type_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(c) => self.filter.push(c),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.typing = false;
            }
            _ => {}
        }
        self.chosen = None;
    }

    fn command(&mut self, code: KeyCode) -> Effect {
        let row = self.chosen;
        match code {
            KeyCode::Char('q') => return Effect::Quit,
            KeyCode::Char('s') => self.column = self.column.next(),
            KeyCode::Char('r') => self.reverse = !self.reverse,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('f' | ' ') => self.frozen = !self.frozen,
            KeyCode::Esc => (self.chosen, self.filter) = (None, String::new()),
            KeyCode::Down => self.chosen = Some(row.map_or(0, |row| row + 1)),
            KeyCode::Up => self.chosen = row.map(|row| row.saturating_sub(1)),
            KeyCode::PageDown => self.chosen = Some(row.map_or(0, |row| row + PAGE)),
            KeyCode::PageUp => self.chosen = row.map(|row| row.saturating_sub(PAGE)),
            KeyCode::Home => self.chosen = Some(0),
            _ => {}
        }
        Effect::Continue
    }

    /// Keeps the chosen row within `rows` rows.
    pub fn limit(&mut self, rows: usize) {
        let last = rows.checked_sub(1);
        self.chosen = self.chosen.and_then(|row| Some(row.min(last?)));
    }

    fn wants(&self, text: &str) -> bool {
        text.to_lowercase().contains(&self.filter.to_lowercase())
    }

    /// The rails to show, in order.
    pub fn rails<'a>(&self, snapshot: &'a Snapshot) -> Vec<&'a Rail> {
        let rails = snapshot.rails.iter();
        let mut rails: Vec<&Rail> = rails
            .filter(|rail| self.wants(&format!("{} {}", rail.name(), rail.state.name())))
            .collect();
        // Stable: rows that compare equal stay in order of job, host and name.
        rails.sort_by(|a, b| self.column.compare(a, b));
        if self.reverse {
            rails.reverse();
        }
        rails
    }

    /// The worst paths of the chosen rail, or of all rails that are shown.
    pub fn worst<'a>(&self, rails: &[&'a Rail]) -> Vec<(&'a Rail, &'a Path)> {
        let chosen = self.chosen.and_then(|row| rails.get(row));
        let of = chosen.map_or(rails, std::slice::from_ref);
        let paths = of
            .iter()
            .flat_map(|rail| rail.worst.iter().map(|path| (*rail, path)));
        let mut paths: Vec<(&Rail, &Path)> = paths.collect();
        paths.sort_by(|(_, a), (_, b)| a.order(b));
        paths.truncate(WORST_MAX);
        paths
    }

    /// The events to show.
    pub fn events<'a>(&self, snapshot: &'a Snapshot) -> Vec<&'a EventRow> {
        let events = snapshot.events.iter();
        events.filter(|event| self.wants(&event.text)).collect()
    }
}

#[cfg(test)]
#[path = "view_test.rs"]
mod tests;
