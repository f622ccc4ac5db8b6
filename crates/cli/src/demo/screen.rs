//! The text of the demonstration: paragraphs, a live line per rail, and the table at the end.

use super::outcome::Verdict;
use crate::lab::made::Made;
use std::cell::Cell;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Columns of text, and of a full bar.
const WIDTH: usize = 79;
const BAR: usize = 24;
/// Columns of a cell of the table.
const CELL: usize = 24;
/// MB/s of a full bar, unless a rate exceeds it.
const SCALE_MB: f64 = 100.0;

/// The style of a text on a terminal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Without emphasis.
    Plain,
    /// A heading.
    Bold,
    /// A detail.
    Dim,
    /// A good result.
    Good,
    /// A bad result.
    Bad,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Bold => "\x1b[1m",
            Style::Dim => "\x1b[2m",
            Style::Good => "\x1b[32m",
            Style::Bad => "\x1b[31m",
        }
    }
}

impl Verdict {
    /// The verdict for people.
    pub fn words(self) -> (&'static str, Style) {
        match self {
            Verdict::Right => ("RIGHT", Style::Good),
            Verdict::Wrong => ("WRONG BYTES", Style::Bad),
            Verdict::Stuck => ("STUCK", Style::Bad),
            Verdict::Dead => ("DEAD", Style::Bad),
        }
    }
}

/// The lines of a text that is wrapped at a number of columns.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        let used = lines[last].chars().count();
        match used {
            0 => lines[last] += word,
            _ if used + 1 + word.chars().count() > columns => lines.push(word.to_owned()),
            _ => lines[last] += &format!(" {word}"),
        }
    }
    lines
}

/// Standard output.
pub struct Tell {
    terminal: bool,
    scale_mb: Cell<f64>,
}

impl Tell {
    /// Colours and live lines are for terminals alone.
    pub fn new() -> Tell {
        Tell {
            terminal: std::io::stdout().is_terminal(),
            scale_mb: Cell::new(SCALE_MB),
        }
    }

    /// Time between two pictures of the rails.
    pub fn refresh(&self) -> Duration {
        Duration::from_millis(if self.terminal { 500 } else { 2_000 })
    }

    fn styled(&self, text: &str, style: Style) -> String {
        match self.terminal && style != Style::Plain {
            true => format!("{}{text}\x1b[0m", style.code()),
            false => text.to_owned(),
        }
    }

    /// Prints a line.
    pub fn line(&self, text: &str) {
        println!("{text}");
    }

    /// Prints a line in a style.
    pub fn coloured(&self, text: &str, style: Style) {
        println!("{}", self.styled(text, style));
    }

    /// Prints a wrapped paragraph with an indentation.
    pub fn paragraph(&self, text: &str, indent: usize) {
        self.wrapped(text, indent, Style::Plain);
    }

    /// Prints a wrapped heading.
    pub fn bold(&self, text: &str) {
        self.wrapped(text, 0, Style::Bold);
    }

    fn wrapped(&self, text: &str, indent: usize, style: Style) {
        for line in wrapped(text, WIDTH - indent) {
            self.coloured(&format!("{:indent$}{line}", ""), style);
        }
    }

    /// Prints the heading of an act.
    pub fn act(&self, text: &str) {
        self.line("");
        self.bold(text);
    }

    /// Prints the beginning of a scene.
    pub fn scene(&self, text: &str) {
        self.line("");
        for (number, line) in wrapped(text, WIDTH - 3).iter().enumerate() {
            let start = if number == 0 { " * " } else { "   " };
            self.line(&format!("{start}{line}"));
        }
    }

    /// Prints a result.
    pub fn verdict(&self, verdict: Verdict, text: &str) {
        let (word, style) = verdict.words();
        self.coloured(&format!("   => {word}"), style);
        self.paragraph(text, 3);
    }

    /// Prints the heads of the table.
    pub fn heads(&self, heads: &[String; 2]) {
        let [one, other] = heads;
        let text = format!("{:<27}{one:<CELL$}{other}", "Scoreboard");
        self.coloured(&text, Style::Bold);
    }

    /// Prints a row of the table; details are for verdicts that are right.
    pub fn row(&self, name: &str, one: (Verdict, &str), other: (Verdict, &str)) {
        let cell = |(verdict, detail): (Verdict, &str)| {
            let (word, style) = verdict.words();
            let text = match verdict == Verdict::Right && !detail.is_empty() {
                true => format!("{word}, {detail}"),
                false => word.to_owned(),
            };
            self.styled(&format!("{text:<CELL$}"), style)
        };
        let line = format!("   {name:<24}{}{}", cell(one), cell(other));
        println!("{}", line.trim_end());
    }
}

/// A live line per rail, from the counters of the first host's interfaces.
pub struct Rails<'a> {
    tell: &'a Tell,
    lab: &'a Made,
    last: Vec<u64>,
    at: Instant,
    drawn: bool,
}

impl<'a> Rails<'a> {
    /// Begins to count.
    pub fn new(tell: &'a Tell, lab: &'a Made) -> Rails<'a> {
        Rails {
            tell,
            lab,
            last: lab.bytes(),
            at: Instant::now(),
            drawn: false,
        }
    }

    /// Draws the rates since the last call, the rails' states, and a note.
    pub fn draw(&mut self, states: &[String], note: &str) {
        let (now, bytes) = (Instant::now(), self.lab.bytes());
        let seconds = (now - self.at).as_secs_f64().max(1e-3);
        let rates = bytes.iter().zip(&self.last);
        let rates = rates.map(|(new, old)| new.saturating_sub(*old) as f64 / seconds / 1e6);
        let mut text = String::new();
        let clear = if self.tell.terminal { "\x1b[K" } else { "" };
        for (rail, (rate, state)) in rates.zip(states).enumerate() {
            let scale = self.tell.scale_mb.get().max(rate);
            self.tell.scale_mb.set(scale);
            let bar = "█".repeat((BAR as f64 * rate / scale).round() as usize);
            let style = match state.starts_with("CUT") {
                true => Style::Bad,
                false => Style::Plain,
            };
            let line = format!("   rail{rail} {bar:<BAR$} {rate:6.0} MB/s  {state}");
            let _ = writeln!(text, "{}{clear}", self.tell.styled(line.trim_end(), style));
        }
        let note = self.tell.styled(&format!("   {note}"), Style::Dim);
        let _ = writeln!(text, "{note}{clear}");
        if self.drawn && self.tell.terminal {
            print!("\x1b[{}A", states.len() + 1);
        }
        print!("{text}");
        (self.last, self.at, self.drawn) = (bytes, now, true);
    }
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn lines_have_at_most_their_columns() {
        assert_eq!(wrapped("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrapped("unbreakable", 3), ["unbreakable"]);
    }
}
