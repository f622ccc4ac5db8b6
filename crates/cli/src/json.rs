//! Writes JSON by hand: the few shapes are documented in docs/statistics.md.

use marline_engine::stats::dead::DeadPeer;
use marline_engine::stats::former::former;
use marline_engine::stats::outages::{End, Outage};
use marline_engine::stats::summary::{RailSummary, Summary};
use marline_engine::stats::Counters;
use std::fmt::Display;

/// A quoted and escaped string.
pub fn string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// An object under construction.
#[derive(Default)]
pub struct Object(Vec<String>);

impl Object {
    /// Adds a number or other JSON text.
    pub fn set(mut self, name: &str, value: impl Display) -> Object {
        self.0.push(format!("{}:{value}", string(name)));
        self
    }

    /// Adds a string.
    pub fn text(self, name: &str, value: &str) -> Object {
        self.set(name, string(value))
    }

    /// Adds an optional value.
    pub fn option(self, name: &str, value: Option<impl Display>) -> Object {
        match value {
            Some(value) => self.set(name, value),
            None => self.set(name, "null"),
        }
    }

    /// The object's JSON.
    pub fn end(self) -> String {
        format!("{{{}}}", self.0.join(","))
    }
}

/// A JSON array.
pub fn array(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    format!("[{}]", items.join(","))
}

/// A group of counters as an object.
pub fn counters<C: Counters>(group: &C) -> String {
    let words = group.words();
    let rows = C::ROWS.iter().zip(words.as_ref());
    let object = rows.fold(Object::default(), |o, (row, value)| {
        match former(row.name) {
            Some(before) => o.set(row.name, value).set(before, value),
            None => o.set(row.name, value),
        }
    });
    object.end()
}

/// The verdict as one word.
pub fn verdict(s: &Summary) -> &'static str {
    match s {
        _ if s.processes == 0 => "unused",
        _ if !s.dead.is_empty() => "peer-dead",
        _ if s.is_unprotected() => "unprotected",
        _ if s.troubles() > 0 => "repaired",
        _ => "clean",
    }
}

/// The summary of many processes.
pub fn summary(s: &Summary) -> Object {
    let of = &s.unprotected;
    let unprotected = Object::default()
        .set("reliability", of.reliability)
        .set("checksums", of.sums)
        .set("some_checksums", of.some_sums)
        .set("faults", of.faults);
    Object::default()
        .text("verdict", verdict(s))
        .set("processes", s.processes)
        .set("processes_unused", s.idle)
        .set("seconds", format!("{:.3}", s.elapsed_ns as f64 / 1e9))
        .set("dead_peers", array(s.dead.iter().map(dead)))
        .set("unprotected", unprotected.end())
        .set("outages", array(s.outages.iter().map(outage)))
        .set("rails", array(s.rails.iter().map(rail)))
        .set("process", counters(&s.process))
        .set("peers", counters(&s.peers))
}

fn dead(dead: &DeadPeer) -> String {
    Object::default()
        .text("endpoint", &format!("{:016x}", dead.endpoint))
        .text("address", &dead.address)
        .option("rank", dead.rank)
        .option("host", dead.host.as_deref().map(string))
        .set("named_by", dead.named_by)
        .set("gone", dead.gone)
        .text("reason", dead.reason.name())
        .end()
}

fn outage(outage: &Outage) -> String {
    let end = |end: &End| {
        let object = Object::default().text("host", &end.host);
        object.text("rail", &end.rail).end()
    };
    Object::default()
        .text("text", &outage.line())
        .set("ends", array(outage.ends.iter().map(end)))
        .set("certain", outage.certain)
        .set("corrupt", outage.corrupt)
        .set("from_unix_ns", outage.from_unix_ns)
        .option("to_unix_ns", outage.to_unix_ns)
        .set("packets_moved", outage.moved)
        .set("gap_ns", outage.gap_ns)
        .end()
}

/// Retransmissions without need, of which the row of a rail has a total.
const SPURIOUS: &str = "resent_spurious";

fn rail(rail: &RailSummary) -> String {
    Object::default()
        .text("name", &rail.name)
        .set("rails", rail.rails)
        .set("up", rail.up)
        .set("lost", rail.lost())
        .set("resent", rail.resent())
        .set(SPURIOUS, rail.resent_spurious())
        .set(former(SPURIOUS).unwrap_or(SPURIOUS), rail.resent_spurious())
        .set("corrupt", rail.corrupt())
        .set("failovers", rail.paths.downs)
        .set("rail", counters(&rail.counters))
        .set("paths", counters(&rail.paths))
        .end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        assert_eq!(string("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
    }

    #[test]
    fn a_summary_is_an_object_with_every_counter() {
        let mut s = Summary::default();
        s.rails.push(RailSummary::default());
        s.dead.push(DeadPeer::default());
        let text = summary(&s).end();
        assert!(
            text.starts_with(r#"{"verdict":"unused","processes":0,"#),
            "{text}"
        );
        for part in [
            r#""spurious":0"#,
            r#""rank":null"#,
            r#""peers_dead":0"#,
            r#""rails":[{"#,
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
