//! Averages over the processes of a job, in the terms of the literature on reliability in software.

use marline_engine::stats::rows::JobPage;
use marline_engine::stats::summary::Summary;
use marline_engine::stats::text::format_bytes;
use marline_engine::stats::ProcessCounters;
use schemars::JsonSchema;
use serde::Serialize;

/// A value: its name and unit, its number, and how its average is shown.
type Row = (&'static str, &'static str, f64, fn(f64) -> String);

macro_rules! rows {
    ($($name:literal, $unit:literal: $value:expr, $text:ident;)*) => {
        [$(($name, $unit, $value as f64, $text as fn(f64) -> String)),*]
    };
}

/// The average of a value over processes.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Mean {
    /// Name of the value.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The average.
    pub mean: f64,
    /// The average with its unit, for reading.
    pub text: String,
}

/// The values of a page.
fn rows(page: &JobPage) -> [Row; 11] {
    let (sum, own) = (page.peer_totals(), &page.process);
    let seconds = (page.elapsed_ns() as f64 / 1e9).max(1e-9);
    let rails = (0..page.rails.len()).map(|n| page.path_totals(n).resent());
    rows! {
        "messages sent per second", "messages/s": sum.messages_sent as f64 / seconds, hundredths;
        "volume sent per second", "bytes/s": sum.bytes_sent as f64 / seconds, bytes;
        "communicating peers", "peers": page.peers.len() as f64 + page.peers_beyond as f64, tenths;
        "flow-control acks (grants, credits)", "acks": sum.flow_acks_sent, hundredths;
        "reliability acks in own packets", "acks": sum.acks_sent, hundredths;
        "reliability acks piggybacked", "acks": sum.acks_piggybacked, hundredths;
        "retransmitted packets", "packets": rails.fold(0, u64::saturating_add), hundredths;
        "maximum reliability memory", "bytes": own.reliability_bytes_max, bytes;
        "maximum queue length (unacked packets)", "packets": own.unacked_packets_max, hundredths;
        "maximum unexpected-message memory", "bytes": own.unexpected_bytes_max, bytes;
        "longest ack delay", "ns": own.ack_delay_max_ns, milliseconds;
    }
}

fn tenths(mean: f64) -> String {
    format!("{mean:.1}")
}

fn hundredths(mean: f64) -> String {
    format!("{mean:.2}")
}

fn bytes(mean: f64) -> String {
    format_bytes(mean as u64)
}

fn milliseconds(ns: f64) -> String {
    format!("{:.3} ms", ns / 1e6)
}

/// Averages per process.
pub fn means<'a>(pages: impl Iterator<Item = &'a JobPage>, s: &Summary) -> Vec<Mean> {
    let mut sums = rows(&JobPage::default());
    for page in pages.filter(|page| page.is_used()) {
        let values = rows(page).into_iter();
        sums.iter_mut()
            .zip(values)
            .for_each(|(sum, (_, _, value, _))| sum.2 += value);
    }
    let processes = s.processes.max(1) as f64;
    let mean = |(name, unit, sum, text): Row| Mean {
        name,
        unit,
        mean: sum / processes,
        text: text(sum / processes),
    };
    sums.map(mean).into()
}

/// Averages per process, and the distribution of message sizes.
pub fn averages<'a>(pages: impl Iterator<Item = &'a JobPage>, s: &Summary) -> String {
    let of_acks = milliseconds(s.process.ack_wait_max_ns as f64);
    let of_messages = milliseconds(s.process.message_wait_max_ns as f64);
    let longest = [
        ("longest wait of a message, of any", &of_messages),
        ("longest wait for an ack, of any", &of_acks),
    ];
    let means = means(pages, s);
    let rows = means.iter().map(|mean| (mean.name, &mean.text));
    let mut out = String::from("average per process\n");
    for (name, value) in rows.chain(longest) {
        out += &format!("  {name:<40} {value:>12}\n");
    }
    out + &sizes(&s.process)
}

fn sizes(p: &ProcessCounters) -> String {
    let classes = [
        ("<=64B", p.sizes_to_64),
        ("<=1K", p.sizes_to_1k),
        ("<=8K", p.sizes_to_8k),
        ("<=64K", p.sizes_to_64k),
        ("<=1M", p.sizes_to_1m),
        ("<=16M", p.sizes_to_16m),
        (">16M", p.sizes_above),
    ];
    let all: f64 = classes.iter().map(|&(_, count)| count as f64).sum();
    let percent = |count: u64| 100.0 * count as f64 / all.max(1.0);
    let mut out = String::from("messages by size, %");
    for (name, count) in classes {
        out += &format!("  {name} {:.0}", percent(count));
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use marline_engine::stats::rows::{PathRow, PeerRow, RailRow};

    /// A process that ran for two seconds and sent over one rail.
    fn page(pid: u32, messages: u64) -> JobPage {
        let mut peer = PeerRow {
            paths: vec![PathRow::default()],
            ..PeerRow::default()
        };
        peer.counters.messages_sent = messages;
        peer.counters.flow_acks_sent = 4;
        peer.paths[0].counters.resent_loss = 3;
        let mut page = JobPage {
            pid,
            opened_unix_ns: 1_000_000_000,
            published_unix_ns: 3_000_000_000,
            rails: vec![RailRow::default()],
            peers: vec![peer],
            ..JobPage::default()
        };
        page.process.reliability_bytes_max = messages.saturating_mul(100);
        page.process.sizes_to_64 = messages;
        page
    }

    fn of(pages: &[JobPage]) -> String {
        averages(pages.iter(), &Summary::of(pages))
    }

    #[test]
    fn averages_are_of_processes_that_sent() {
        // Two pages of one process are of one process.
        let text = of(&[page(7, 10), page(8, 30), page(7, 10), JobPage::default()]);
        for (name, value) in [
            ("messages sent per second", "12.50"),
            ("communicating peers", "1.5"),
            ("flow-control acks (grants, credits)", "6.00"),
            ("retransmitted packets", "4.50"),
            ("maximum reliability memory", "2.5 kB"),
        ] {
            let line = format!("  {name:<40} {value:>12}\n");
            assert!(text.contains(&line), "{line}: {text}");
        }
        assert!(text.ends_with("%  <=64B 100  <=1K 0  <=8K 0  <=64K 0  <=1M 0  <=16M 0  >16M 0\n"));
    }

    #[test]
    fn no_line_is_longer_than_a_terminal_is_wide() {
        let mut widest = page(7, u64::MAX / 4);
        widest.process.sizes_above = u64::MAX / 4;
        for text in [of(&[widest.clone()]), of(&vec![widest; 100])] {
            assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        }
    }
}
