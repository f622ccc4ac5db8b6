//! What many processes' pages say together, and its text for the end of `marline run`.

use super::reader::JobPage;
use super::{Counters, PathCounters, PeerCounters, ProcessCounters, RailCounters};

/// One rail of a job: all rails of that name, on all hosts.
#[derive(Clone, Debug, Default)]
pub struct RailSummary {
    /// Interface.
    pub name: String,
    /// Rails put together.
    pub rails: usize,
    /// Those of them that are up.
    pub up: usize,
    /// Their own counters.
    pub counters: RailCounters,
    /// The counters of their paths.
    pub paths: PathCounters,
}

impl RailSummary {
    /// Packets received with a bad head or payload: as good as lost, and sent again.
    pub fn corrupt(&self) -> u64 {
        self.counters
            .corrupt_heads
            .saturating_add(self.paths.corrupt_payloads)
    }
}

/// A job.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Pages (engines; one per process for an MPI job).
    pub processes: usize,
    /// Rails by name, in order of first mention.
    pub rails: Vec<RailSummary>,
    /// Counters of all processes together.
    pub process: ProcessCounters,
    /// Counters of all peers of all processes together.
    pub peers: PeerCounters,
    /// Longest run of a process.
    pub elapsed_ns: u64,
    /// Per process, averages.
    pub mean: Means,
}

/// Averages over processes, as the literature on reliability in software gives them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Means {
    /// Messages sent per second.
    pub messages_per_s: f64,
    /// Payload bytes sent per second.
    pub bytes_per_s: f64,
    /// Peers contacted.
    pub peers: f64,
    /// Grants and credits sent.
    pub flow_acks: f64,
    /// Packets sent only for their acks.
    pub acks: f64,
    /// Acks that rode on other packets.
    pub acks_piggybacked: f64,
    /// Most memory for reliability (log, windows, tables), in bytes.
    pub reliability_bytes_max: f64,
    /// Most packets waiting for their ack.
    pub queue_max: f64,
    /// Most memory held by unexpected messages, in bytes.
    pub unexpected_bytes_max: f64,
    /// Retransmissions.
    pub resent: f64,
    /// Longest time from a packet's arrival to its ack, in nanoseconds.
    pub ack_delay_max_ns: f64,
}

impl Summary {
    /// Puts pages together. Engines that never had a peer (programs open some to look around)
    /// count for nothing.
    pub fn of(pages: &[JobPage]) -> Summary {
        let mut summary = Summary::default();
        for page in pages {
            let idle = page.peers.is_empty() && page.peers_beyond == 0;
            if !idle {
                summary.add(page);
            }
        }
        summary.mean.divide(summary.processes);
        summary
    }

    fn add(&mut self, page: &JobPage) {
        let peers = page.peer_totals();
        self.processes += 1;
        self.process.merge(&page.process);
        self.peers.merge(&peers);
        self.elapsed_ns = self.elapsed_ns.max(page.elapsed_ns());
        let mut resent = 0;
        for (n, rail) in page.rails.iter().enumerate() {
            let paths = page.path_totals(n);
            resent = paths.resent().saturating_add(resent);
            let sum = self.rail(&rail.name);
            sum.rails += 1;
            sum.up += usize::from(rail.up);
            sum.counters.merge(&rail.counters);
            sum.paths.merge(&paths);
        }
        self.mean.add(page, &peers, resent);
    }

    fn rail(&mut self, name: &str) -> &mut RailSummary {
        let known = self.rails.iter().position(|rail| rail.name == name);
        let n = known.unwrap_or_else(|| {
            self.rails.push(RailSummary {
                name: name.to_owned(),
                ..RailSummary::default()
            });
            self.rails.len() - 1
        });
        &mut self.rails[n]
    }
}

impl Means {
    fn add(&mut self, page: &JobPage, peers: &PeerCounters, resent: u64) {
        let seconds = (page.elapsed_ns() as f64 / 1e9).max(1e-9);
        let contacted = page.peers.len() as f64 + page.peers_beyond as f64;
        self.messages_per_s += peers.messages_sent as f64 / seconds;
        self.bytes_per_s += peers.bytes_sent as f64 / seconds;
        self.peers += contacted;
        self.flow_acks += peers.flow_acks_sent as f64;
        self.acks += peers.acks_sent as f64;
        self.acks_piggybacked += peers.acks_piggybacked as f64;
        self.reliability_bytes_max += page.process.reliability_bytes_max as f64;
        self.queue_max += page.process.unacked_packets_max as f64;
        self.unexpected_bytes_max += page.process.unexpected_bytes_max as f64;
        self.resent += resent as f64;
        self.ack_delay_max_ns += page.process.ack_delay_max_ns as f64;
    }

    fn divide(&mut self, processes: usize) {
        let by = processes.max(1) as f64;
        for sum in [
            &mut self.messages_per_s,
            &mut self.bytes_per_s,
            &mut self.peers,
            &mut self.flow_acks,
            &mut self.acks,
            &mut self.acks_piggybacked,
            &mut self.reliability_bytes_max,
            &mut self.queue_max,
            &mut self.unexpected_bytes_max,
            &mut self.resent,
            &mut self.ack_delay_max_ns,
        ] {
            *sum /= by;
        }
    }
}

/// Bytes for people: three or four digits and a unit.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1e3;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1e3;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// The heading of the lines that [`format_rail`] gives.
pub const RAIL_HEADING: &str = "rail                    out         in  packets out   \
     packets in     lost   resent  corrupt  failovers";

/// One line for a rail.
pub fn format_rail(rail: &RailSummary) -> String {
    let (c, p) = (&rail.counters, &rail.paths);
    let mut line = format!(
        "{:<16} {:>10} {:>10} {:>12} {:>12} {:>8} {:>8} {:>8} {:>10}",
        rail.name,
        format_bytes(c.wire_bytes_sent),
        format_bytes(c.wire_bytes_received),
        c.wire_packets_sent,
        c.wire_packets_received,
        p.lost,
        p.resent(),
        rail.corrupt(),
        p.downs,
    );
    if p.downs > 0 {
        line += &format!(" ({} taken back)", p.ups);
    }
    if c.receiver_drops > 0 {
        line += &format!(
            ", {} dropped by the receive buffer (sysctl net.core.rmem_max)",
            c.receiver_drops
        );
    }
    if rail.up < rail.rails {
        line += &format!(", down on {} of {}", rail.rails - rail.up, rail.rails);
    }
    line
}

/// Names a rail that corrupts: a working link damages next to nothing.
fn format_corrupt(rail: &RailSummary) -> Option<String> {
    let (bad, good) = (rail.corrupt(), rail.paths.packets_received);
    if bad == 0 {
        return None;
    }
    let percent = 100.0 * bad as f64 / good.saturating_add(bad) as f64;
    let left = match rail.paths.corrupt_downs {
        0 => String::new(),
        n => format!("; its paths were left {n} times for that"),
    };
    Some(format!(
        "{} corrupts: {bad} packets arrived damaged ({percent:.3}%) and were sent again{left}. \
         Check its cards, cables and switch ports.\n",
        rail.name
    ))
}

/// Names a rail whose large packets vanish: a switch on the way has another MTU.
fn format_shrunk(rail: &RailSummary) -> Option<String> {
    let times = rail.paths.shrinks;
    (times > 0).then(|| {
        format!(
            "{} lost its large packets {times} times, without a word, and went on with smaller \
             ones. Check the MTU of its switches.\n",
            rail.name
        )
    })
}

/// The text at the end of a run: a line per rail, and the averages per process.
pub fn format_summary(summary: &Summary) -> String {
    if summary.processes == 0 {
        return "Marline: no process of this job sent anything over a rail.\n".to_owned();
    }
    let (s, m) = (summary, &summary.mean);
    let seconds = s.elapsed_ns as f64 / 1e9;
    let mut out = format!(
        "Marline: {} processes, {seconds:.1} s\n{RAIL_HEADING}\n",
        s.processes
    );
    for rail in &s.rails {
        out += &format_rail(rail);
        out.push('\n');
    }
    out.extend(s.rails.iter().filter_map(format_corrupt));
    out.extend(s.rails.iter().filter_map(format_shrunk));
    let bytes = |mean: f64| format_bytes(mean as u64);
    let rows = [
        (
            "messages sent per second",
            format!("{:.2}", m.messages_per_s),
        ),
        ("volume sent per second", bytes(m.bytes_per_s)),
        ("communicating peers", format!("{:.1}", m.peers)),
        (
            "flow-control acks (grants, credits)",
            format!("{:.2}", m.flow_acks),
        ),
        ("reliability acks in own packets", format!("{:.2}", m.acks)),
        (
            "reliability acks piggybacked",
            format!("{:.2}", m.acks_piggybacked),
        ),
        ("retransmitted packets", format!("{:.2}", m.resent)),
        ("maximum reliability memory", bytes(m.reliability_bytes_max)),
        (
            "maximum queue length (unacked packets)",
            format!("{:.2}", m.queue_max),
        ),
        (
            "maximum unexpected-message memory",
            bytes(m.unexpected_bytes_max),
        ),
        (
            "longest ack delay",
            format!("{:.3} ms", m.ack_delay_max_ns / 1e6),
        ),
        (
            "longest wait for an ack, of any",
            format!("{:.3} ms", s.process.ack_wait_max_ns as f64 / 1e6),
        ),
    ];
    out += "average per process\n";
    for (name, value) in rows {
        out += &format!("  {name:<40} {value:>12}\n");
    }
    out += &format_sizes(&s.process);
    out
}

fn format_sizes(p: &ProcessCounters) -> String {
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
    let mut out = String::from("messages by size");
    for (name, count) in classes {
        let percent = 100.0 * count as f64 / all.max(1.0);
        out += &format!("  {name} {percent:.1}%");
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::stats::page::PathRow;
    use crate::stats::reader::{PeerRow, RailRow};

    #[test]
    fn bytes_read_well() {
        let text = [0, 999, 1000, 65_536, 999_949, 999_950, u64::MAX].map(format_bytes);
        let want = [
            "0 B",
            "999 B",
            "1.0 kB",
            "65.5 kB",
            "999.9 kB",
            "1.0 MB",
            "18446.7 PB",
        ];
        assert_eq!(text, want);
    }

    /// A process with two rails and one peer that it reached over both.
    fn page(messages: u64) -> JobPage {
        let mut page = JobPage {
            opened_unix_ns: 1_000_000_000,
            published_unix_ns: 3_000_000_000,
            ..JobPage::default()
        };
        let mut peer = PeerRow::default();
        peer.counters.messages_sent = messages;
        peer.counters.flow_acks_sent = 4;
        for rail in 0..2 {
            let mut path = PathRow {
                rail,
                ..PathRow::default()
            };
            path.counters.lost = 3;
            path.counters.resent_loss = 2;
            path.counters.resent_failover = 1;
            path.counters.downs = u64::from(rail);
            peer.paths.push(path);
            page.rails.push(RailRow {
                name: format!("rail{rail}"),
                up: rail == 0,
                ..RailRow::default()
            });
        }
        page.peers.push(peer);
        page.process.reliability_bytes_max = 100 * messages;
        page
    }

    #[test]
    fn processes_are_put_together_by_rail() {
        let pages = [page(10), page(30), JobPage::default()];
        let summary = Summary::of(&pages);
        assert_eq!(summary.processes, 2, "a page without peers does not count");
        assert_eq!(summary.rails.len(), 2);
        assert_eq!(summary.rails[1].paths.lost, 6);
        assert_eq!(summary.rails[1].paths.resent(), 6);
        assert_eq!((summary.rails[0].up, summary.rails[1].up), (2, 0));
        assert_eq!(summary.mean.messages_per_s, 10.0);
        assert_eq!(summary.mean.reliability_bytes_max, 2000.0);
        assert_eq!(summary.mean.flow_acks, 4.0);
        assert_eq!(summary.process.reliability_bytes_max, 3000);
    }

    #[test]
    fn a_rail_that_corrupts_is_named() {
        let mut page = page(10);
        page.rails[1].counters.corrupt_heads = 1;
        let paths = &mut page.peers[0].paths;
        paths[1].counters.corrupt_payloads = 3;
        paths[1].counters.packets_received = 396;
        paths[1].counters.corrupt_downs = 2;
        let text = format_summary(&Summary::of(&[page]));
        let want = "rail1 corrupts: 4 packets arrived damaged (1.000%) and were sent again; \
                    its paths were left 2 times for that.";
        assert!(text.contains(want), "{text}");
        assert!(!text.contains("rail0 corrupts"), "{text}");
    }

    #[test]
    fn a_rail_whose_large_packets_vanish_is_named() {
        let mut page = page(10);
        page.peers[0].paths[1].counters.shrinks = 2;
        let text = format_summary(&Summary::of(&[page]));
        assert!(
            text.contains("rail1 lost its large packets 2 times"),
            "{text}"
        );
        assert!(!text.contains("rail0 lost"), "{text}");
    }

    #[test]
    fn the_text_names_rails_and_what_happened_to_them() {
        let text = format_summary(&Summary::of(&[page(10)]));
        let line = text.lines().find(|line| line.starts_with("rail1")).unwrap();
        assert!(line.ends_with("1 (0 taken back), down on 1 of 1"), "{line}");
        assert!(text.contains("maximum reliability memory"));
        assert!(!text.contains("corrupts"));
        let heading = RAIL_HEADING.len();
        let plain = text.lines().find(|line| line.starts_with("rail0")).unwrap();
        assert_eq!(plain.len(), heading, "columns are in line");
        assert!(format_summary(&Summary::default()).contains("no process"));
    }
}
