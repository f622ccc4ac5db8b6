//! A campaign: many seeds over many runs, with a log of what each run added. The log says which
//! seeds come next.

use crate::network::net::NetStats;
use crate::{Profile, Report};
use std::fs::{read_to_string, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// First seed of a campaign: above those that tests run.
const FIRST_SEED: u64 = 1_000_000_000;
/// First line of a log.
const HEAD: &str = "unix_s,commit,profile,first,end,failures,cpu_s,simulated_s,packets,faults";

/// A run of a campaign, or the sum of several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// Seeds that were run.
    pub seeds: u64,
    /// Seeds that failed.
    pub failures: u64,
    /// Seconds of processor time.
    pub cpu_s: f64,
    /// Seconds of virtual time.
    pub simulated_s: f64,
    /// Packets sent.
    pub packets: u64,
    /// Faults injected.
    pub faults: u64,
}

impl Entry {
    /// The entry of a report, which took `cpu_s` seconds of processor time.
    pub fn of(report: &Report, cpu_s: f64) -> Entry {
        Entry {
            seeds: report.seeds,
            failures: report.failures.len() as u64,
            cpu_s,
            simulated_s: report.simulated_ns as f64 / 1e9,
            packets: report.net.packets,
            faults: faults_of(&report.net) + report.troubles.values().sum::<u64>(),
        }
    }

    fn add(&mut self, other: &Entry) {
        self.seeds += other.seeds;
        self.failures += other.failures;
        self.cpu_s += other.cpu_s;
        self.simulated_s += other.simulated_s;
        self.packets += other.packets;
        self.faults += other.faults;
    }

    /// Time, speed and faults, for people.
    pub fn text(&self) -> String {
        let (cpu_h, simulated_h) = (self.cpu_s / 3_600.0, self.simulated_s / 3_600.0);
        format!(
            "{simulated_h:.3} simulated hours in {cpu_h:.3} CPU-hours ({:.1} times as fast), {:.0} \
             faults per simulated hour",
            simulated_h / cpu_h.max(1e-9),
            self.faults as f64 / simulated_h.max(1e-9)
        )
    }
}

/// Faults of packets and writes.
fn faults_of(net: &NetStats) -> u64 {
    let packets = net.dropped + net.duplicated + net.reordered + net.damaged + net.forged;
    let writes = net.shuffled + net.writes_lost + net.writes_hurt + net.reads_lost;
    packets + writes + net.strange + net.cut + net.refused + net.forgotten + net.broken + net.stuck
}

/// Processor time of this process in seconds, as the kernel counts it (100 ticks a second).
pub fn cpu_seconds() -> f64 {
    let text = read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name in brackets, fields 14 and 15 of all are the 12th and 13th.
    let fields = text.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks.filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// The log of a campaign.
pub struct CampaignLog<'a> {
    path: &'a Path,
    /// Rows: profile, seeds, numbers.
    rows: Vec<(String, Range<u64>, Entry)>,
}

impl<'a> CampaignLog<'a> {
    /// Reads the log at a path, where there may be none.
    pub fn read(path: &'a Path) -> Result<CampaignLog<'a>, String> {
        let bad = |why: &str| format!("--log {}: {why}", path.display());
        let text = match read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(bad(&e.to_string())),
        };
        let lines = text
            .lines()
            .filter(|line| *line != HEAD && !line.is_empty());
        let rows: Option<Vec<_>> = lines.map(row_of).collect();
        let rows = rows.ok_or_else(|| bad("not a log of a campaign"))?;
        Ok(CampaignLog { path, rows })
    }

    /// The next `count` seeds of a profile.
    pub fn next(&self, profile: Profile, count: u64) -> Range<u64> {
        let mine = self.rows.iter().filter(|row| row.0 == profile.name());
        let first = mine.map(|row| row.1.end).max().unwrap_or(FIRST_SEED);
        first..first.saturating_add(count)
    }

    /// Appends a run of these seeds.
    pub fn append(
        &mut self,
        (profile, commit): (Profile, &str),
        seeds: Range<u64>,
        entry: Entry,
    ) -> Result<(), String> {
        let bad = |e: std::io::Error| format!("--log {}: {e}", self.path.display());
        let open = OpenOptions::new().create(true).append(true).open(self.path);
        let mut file = open.map_err(bad)?;
        if file.metadata().map_err(bad)?.len() == 0 {
            writeln!(file, "{HEAD}").map_err(bad)?;
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        writeln!(
            file,
            "{},{commit},{},{},{},{},{:.2},{:.3},{},{}",
            now.as_secs(),
            profile.name(),
            seeds.start,
            seeds.end,
            entry.failures,
            entry.cpu_s,
            entry.simulated_s,
            entry.packets,
            entry.faults
        )
        .map_err(bad)?;
        self.rows.push((profile.name().to_owned(), seeds, entry));
        Ok(())
    }

    /// The sum of all runs.
    pub fn sum(&self) -> Entry {
        let mut sum = Entry::default();
        self.rows.iter().for_each(|row| sum.add(&row.2));
        sum
    }
}

/// A row of a log.
fn row_of(line: &str) -> Option<(String, Range<u64>, Entry)> {
    let fields: Vec<&str> = line.split(',').collect();
    let [_, _, profile, first, end, failures, cpu, simulated, packets, faults] = fields[..] else {
        return None;
    };
    let seeds = first.parse().ok()?..end.parse().ok()?;
    let entry = Entry {
        seeds: seeds.end - seeds.start,
        failures: failures.parse().ok()?,
        cpu_s: cpu.parse().ok()?,
        simulated_s: simulated.parse().ok()?,
        packets: packets.parse().ok()?,
        faults: faults.parse().ok()?,
    };
    Some((profile.to_owned(), seeds, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(seeds: u64) -> Entry {
        Entry {
            seeds,
            failures: 0,
            cpu_s: 1.5,
            simulated_s: 7_200.0,
            packets: 10,
            faults: 200,
        }
    }

    #[test]
    fn a_campaign_goes_on_where_its_log_ends() {
        let name = format!("marline-campaign-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut log = CampaignLog::read(&path).unwrap();
        let first = log.next(Profile::Swarm, 10);
        assert_eq!(first, FIRST_SEED..FIRST_SEED + 10);
        log.append((Profile::Swarm, "abc"), first.clone(), entry(10))
            .unwrap();
        log.append((Profile::Loss, "abc"), 5..9, entry(4)).unwrap();
        let again = CampaignLog::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(again.next(Profile::Swarm, 5), first.end..first.end + 5);
        assert_eq!(again.next(Profile::Loss, 5), 9..14);
        assert_eq!(again.next(Profile::Rails, 5).start, FIRST_SEED);
        assert_eq!((again.sum(), again.sum().seeds), (log.sum(), 14));
        let text = again.sum().text();
        assert!(
            text.starts_with("4.000 simulated hours in 0.001 CPU-hours"),
            "{text}"
        );
        assert!(text.ends_with("100 faults per simulated hour"), "{text}");
    }

    #[test]
    fn a_file_that_is_no_log_is_refused() {
        let name = format!("marline-no-campaign-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "1,2,3\n").unwrap();
        assert!(CampaignLog::read(&path).is_err());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn this_process_has_used_time() {
        let before = cpu_seconds();
        while cpu_seconds() < before + 0.02 {
            std::hint::black_box((0..10_000).sum::<u64>());
        }
    }
}
