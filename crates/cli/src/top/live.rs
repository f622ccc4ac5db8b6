//! The terminal of `marline top`: frames, keys, and the terminal as it was at the end.

use super::data::Snapshot;
use super::frame::frame;
use super::sample::Sampler;
use super::screen::Screen;
use super::view::{Effect, View};
use crate::outcome::Uncoded;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::text::Text;
use ratatui::widgets::Paragraph;
use ratatui::{DefaultTerminal, Frame};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{stdin, stdout, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Shows frames until the user or a signal ends the command.
pub fn main(sampler: &mut Sampler, interval: Duration) -> Uncoded {
    if !stdin().is_terminal() || !stdout().is_terminal() {
        return Err("top needs a terminal; without one, --once prints one frame".into());
    }
    // A killed command leaves the terminal as it was, too.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let kept = signal_hook::flag::register(signal, Arc::clone(&stop));
        kept.map_err(|e| format!("signal {signal}: {e}"))?;
    }
    let mut terminal = ratatui::try_init().map_err(|e| format!("terminal: {e}"))?;
    let shown = Live::new(sampler, interval).run(&mut terminal, &stop);
    ratatui::restore();
    shown.map_err(|e| format!("terminal: {e}"))?;
    Ok(0)
}

/// Longest wait for a key, after which signals are looked at.
const WAIT_MAX: Duration = Duration::from_millis(200);

struct Live<'a> {
    sampler: &'a mut Sampler,
    interval: Duration,
    view: View,
    snapshot: Snapshot,
    /// The reason for an empty snapshot.
    note: String,
    next: Instant,
}

impl<'a> Live<'a> {
    fn new(sampler: &'a mut Sampler, interval: Duration) -> Live<'a> {
        Live {
            sampler,
            interval,
            view: View::default(),
            snapshot: Snapshot::default(),
            note: String::new(),
            next: Instant::now(),
        }
    }

    fn run(&mut self, terminal: &mut DefaultTerminal, stop: &AtomicBool) -> std::io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            self.sample();
            terminal.draw(|frame| self.draw(frame))?;
            if self.wait()? == Effect::Quit {
                break;
            }
        }
        Ok(())
    }

    /// Takes a new snapshot if it is time.
    fn sample(&mut self) {
        let now = Instant::now();
        if self.view.frozen || now < self.next {
            return;
        }
        self.next = now + self.interval;
        (self.snapshot, self.note) = match self.sampler.take() {
            Ok(snapshot) if snapshot.jobs.is_empty() => (
                snapshot,
                "no process is in touch with another over Marline".to_owned(),
            ),
            Ok(snapshot) => (snapshot, String::new()),
            // A job may start later.
            Err(why) => {
                let unix_ns = marline_engine::wall_clock::unix_ns();
                (
                    Snapshot {
                        unix_ns,
                        ..Snapshot::default()
                    },
                    why,
                )
            }
        };
    }

    fn draw(&mut self, to: &mut Frame<'_>) {
        let rows = self.view.rails(&self.snapshot).len();
        self.view.limit(rows);
        let screen = Screen {
            snapshot: &self.snapshot,
            view: &self.view,
            note: &self.note,
        };
        let area = to.area();
        let lines = frame(&screen, area.width.into(), Some(area.height.into()));
        to.render_widget(Paragraph::new(Text::from(lines)), area);
    }

    /// Waits for a key, for the time of the next snapshot, or for a change of the terminal's size.
    fn wait(&mut self) -> std::io::Result<Effect> {
        let left = self.next.saturating_duration_since(Instant::now());
        let wait = if self.view.frozen {
            WAIT_MAX
        } else {
            left.min(WAIT_MAX)
        };
        if !event::poll(wait)? {
            return Ok(Effect::Continue);
        }
        match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => Ok(self.view.key(key)),
            _ => Ok(Effect::Continue),
        }
    }
}
