//! The counters of a job as text of at most 80 columns: a verdict, a line per rail, and notes on
//! single rails.

use super::dead::DeadPeer;
use super::outages::{by_place, Outage};
use super::summary::{RailSummary, Summary};
use super::text::{format_bytes, format_count, plural, wrap};
use marline_codes::{Code, Message};

fn seconds(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds < 9999.0 {
        true => format!("{seconds:.1} s"),
        false => format!("{seconds:.0} s"),
    }
}

/// The line about the traffic.
fn carried(s: &Summary) -> String {
    let who = match s.rank {
        Some(rank) => format!("rank {rank}"),
        None => plural(s.processes as u64, "process", "processes"),
    };
    let outcome = match s.problems() {
        _ if !s.dead.is_empty() => "",
        0 => "; nothing was lost",
        _ if s.unprotected.reliability > 0 => "; losses not repaired",
        _ => "; losses repaired",
    };
    let rails = s.rails.iter().filter(|rail| !rail.is_unused()).count();
    format!(
        "Marline: {who} sent {} over {} in {}{outcome}\n",
        format_bytes(s.peers.bytes_sent),
        plural(rails as u64, "rail", "rails"),
        seconds(s.elapsed_ns),
    )
}

/// Lines of a text with its code.
fn marked(code: Code, text: &str) -> String {
    wrap(&code.mark(text))
}

fn dead(dead: &[DeadPeer]) -> String {
    let [first, others @ ..] = dead else {
        return String::new();
    };
    let what = match first.is_refused() {
        true => "PEER REFUSED",
        false => "PEER DEAD",
    };
    let more = match others.len() {
        0 => String::new(),
        n => format!("; then {} more", plural(n as u64, "process", "processes")),
    };
    let (name, why) = (first.name(), first.why());
    let text = format!(
        "Marline: {what}: {name}: {why}{more}; operations with {} failed",
        if others.is_empty() { "it" } else { "them" }
    );
    marked(first.reason.code_of_peer(), &text)
}

fn unprotected(s: &Summary) -> String {
    let of = &s.unprotected;
    let all = s.processes;
    let mut out = String::new();
    if of.reliability > 0 {
        let text = format!(
            "Marline: UNPROTECTED: FI_MARLINE_RELIABILITY=off in {} of {all} processes: what was \
             lost was not sent again",
            of.reliability
        );
        out += &marked(Code::Unprotected, &text);
    }
    if of.sums > 0 {
        let text = format!(
            "Marline: UNPROTECTED: FI_MARLINE_CHECKSUM=none in {} of {all} processes: damage was \
             not looked for",
            of.sums
        );
        out += &marked(Code::Unprotected, &text);
    }
    out
}

/// The verdict: problems first, then the traffic.
fn verdict(s: &Summary) -> String {
    if s.processes == 0 {
        let text = "Marline: NOT USED: no process on this host sent anything over it";
        return marked(Code::NotUsed, text);
    }
    dead(&s.dead) + &unprotected(s) + &carried(s)
}

/// Most outages that are listed: as many as a screen shows beside the rest.
const OUTAGES_MAX: usize = 8;

/// Lines for outages, or for their places if there are many, up to a limit.
fn outages(s: &Summary) -> String {
    let line = |outage: &Outage| marked(outage.code(), &format!("Marline: {}", outage.line()));
    let (shown, what) = match s.outages.len() {
        ..=OUTAGES_MAX => (s.outages.clone(), ("more outage", "more outages")),
        _ => (by_place(&s.outages), ("more rail", "more rails")),
    };
    let mut text: String = shown.iter().take(OUTAGES_MAX).map(line).collect();
    let more = shown.len().saturating_sub(OUTAGES_MAX);
    if more > 0 {
        let more = plural(more as u64, what.0, what.1);
        text += &wrap(&format!("Marline: and {more}; `marline events` shows all"));
    }
    text
}

/// The columns of the table of rails with their widths.
const RAIL_COLUMNS: [(&str, usize); 8] = [
    ("out", 7),
    ("in", 7),
    ("packets", 7),
    ("lost", 5),
    ("resent", 6),
    ("spurious", 8),
    ("corrupt", 7),
    ("failovers", 9),
];

fn cells(rail: &RailSummary) -> [String; 8] {
    let c = &rail.counters;
    [
        format_bytes(c.wire_bytes_sent),
        format_bytes(c.wire_bytes_received),
        format_count(c.wire_packets_sent),
        format_count(rail.lost()),
        format_count(rail.resent()),
        format_count(rail.resent_spurious()),
        format_count(rail.corrupt()),
        format_count(rail.paths.downs),
    ]
}

/// A heading, and a line per rail.
fn rails(s: &Summary) -> String {
    let used = s.rails.iter().filter(|rail| !rail.is_unused());
    let mut lines: Vec<_> = used.map(|rail| (&*rail.name, cells(rail))).collect();
    if lines.is_empty() {
        return String::new();
    }
    lines.insert(0, ("rail", RAIL_COLUMNS.map(|(name, _)| name.to_owned())));
    let widths = lines.iter().map(|(name, _)| name.chars().count());
    let width = widths.max().unwrap_or(0);
    let mut text = String::new();
    for (name, cells) in lines {
        text += &format!("{name:<width$}");
        for (cell, (_, width)) in cells.iter().zip(RAIL_COLUMNS) {
            text += &format!(" {cell:>width$}");
        }
        text.push('\n');
    }
    text
}

/// Names a rail that damages packets: a working link damages next to none.
fn corrupts(rail: &RailSummary) -> Option<Message> {
    let (bad, good) = (rail.corrupt(), rail.paths.packets_received);
    let percent = 100.0 * bad as f64 / good.saturating_add(bad).max(1) as f64;
    let left = match rail.paths.corrupt_downs {
        0 => String::new(),
        n => format!("; {n} failovers were for that"),
    };
    let text = format!(
        "{} corrupts: {bad} packets arrived damaged ({percent:.3}%){left}. Check its cards, cables \
         and switch ports.",
        rail.name
    );
    (bad > 0).then(|| Code::Corrupt.message(text))
}

/// Notes on a rail besides its numbers.
fn notes_of(rail: &RailSummary) -> Vec<String> {
    let (name, c, p) = (&rail.name, &rail.counters, &rail.paths);
    let mut notes = Vec::new();
    if p.downs > 0 {
        let (downs, ups) = (p.downs, p.ups);
        notes.push(format!(
            "{name}: {ups} of {downs} failovers were taken back"
        ));
    }
    if p.reroutes > 0 {
        notes.push(format!(
            "{name}: another source port was tried {}, as a path was silent",
            plural(p.reroutes, "time", "times")
        ));
    }
    if c.evicted > 0 {
        notes.push(format!(
            "{name}: {} closed for others, {} made again",
            plural(c.evicted, "connection was", "connections were"),
            c.reconnected
        ));
    }
    if rail.up < rail.rails && !rail.is_unused() {
        let down = rail.rails - rail.up;
        let text = format!("{name} is down on {down} of {}", rail.rails);
        notes.push(Code::RailDown.mark(&text));
    }
    if c.receiver_drops > 0 {
        let text = format!(
            "{name}: {} packets were dropped by the receive buffer here: processes fetched them \
             late (a larger buffer helps: sysctl net.core.rmem_max)",
            c.receiver_drops
        );
        notes.push(Code::KernelLimit.mark(&text));
    }
    notes.extend(corrupts(rail).map(|said| said.to_string()));
    if p.shrinks > 0 {
        let text = format!(
            "{name} lost its large packets {} without a word, and went on with smaller ones. Check \
             the MTU of its switches.",
            plural(p.shrinks, "time", "times")
        );
        notes.push(Code::PathShrank.mark(&text));
    }
    notes
}

/// All notes besides the numbers.
fn notes(s: &Summary) -> String {
    let mut notes: Vec<String> = s.rails.iter().flat_map(notes_of).collect();
    let (of, all) = (&s.unprotected, s.processes);
    if of.some_sums > 0 && of.sums == 0 {
        let text = format!(
            "Some payloads travelled without a checksum, as FI_MARLINE_CHECKSUM_* of {} of {all} \
             processes say",
            of.some_sums
        );
        notes.push(Code::Unprotected.mark(&text));
    }
    if of.faults > 0 {
        let text = format!(
            "FI_MARLINE_FAULTS broke packets on purpose in {} of {all} processes",
            of.faults
        );
        notes.push(Code::Unprotected.mark(&text));
    }
    notes.iter().map(|note| wrap(note)).collect()
}

/// The text at the end of a run.
pub fn report(s: &Summary) -> String {
    if s.processes == 0 {
        return verdict(s);
    }
    verdict(s) + &outages(s) + &rails(s) + &notes(s)
}

#[cfg(test)]
#[path = "report_test.rs"]
mod test;
