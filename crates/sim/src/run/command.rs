//! `marline-sim`: runs seeds, prints statistics of the faults and, for a failure,
//! a command that replays it.

use crate::group::{group_scale, SCHEMES};
use crate::run::campaign::{cpu_seconds, CampaignLog, Entry};
use crate::run::watch::Watch;
use crate::scale::{print_parts, Sizes, PARTS};
use crate::{watch_seeds, Fault, Hunt, Profile, Report};
use clap::Args;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

/// The seeds to simulate, and how.
#[derive(Args, Clone, Debug)]
pub struct SimArgs {
    /// Seeds: `A..B` without B, or one seed.
    #[arg(long, value_name = "A..B", default_value = "0..1000", value_parser = seeds)]
    seeds: Range<u64>,
    /// Kinds of faults: swarm (any), calm (none), loss, rails, peers, verbs (of
    /// InfiniBand) or native (the same, some without software reliability); or group: broadcasts to
    /// groups by multicast, with all their faults.
    #[arg(long, default_value = "swarm", value_parser = profile)]
    profile: Profile,
    /// Hosts of every cluster; 0: each seed draws its own number.
    #[arg(long, default_value_t = 0, value_parser = hosts)]
    hosts: usize,
    /// Rails of every host, up to 8; 0: each seed draws its own number.
    #[arg(long, default_value_t = 0, value_parser = rails)]
    rails: usize,
    /// Faults from a file instead of from the seeds, one a line: FROM TO TARGET FAULT. Wants
    /// --hosts and --rails.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Shrink failing setups and show the last events of each endpoint.
    #[arg(long)]
    trace: bool,
    /// Stop after this number of failures (default: 1; with --failures, do not stop).
    #[arg(long, value_name = "FAILURES")]
    stop: Option<usize>,
    /// Append each failure to this file, with the line that replays it.
    #[arg(long, value_name = "FILE")]
    failures: Option<PathBuf>,
    /// Log of a campaign, as CSV: the run goes on with its next seeds and appends what it did.
    #[arg(long, value_name = "FILE", conflicts_with = "seeds", requires = "more")]
    log: Option<PathBuf>,
    /// With --log: number of further seeds.
    #[arg(long, value_name = "SEEDS", requires = "log")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    more: Option<u64>,
    /// With --log: the commit that the log names.
    #[arg(long, value_name = "TEXT", requires = "log", default_value = "unknown")]
    #[arg(value_parser = commit)]
    commit: String,
    /// Print the progress at this interval (0: never).
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    progress: u64,
    /// Least packets per seed: rounds of work and faults are added until they are sent.
    #[arg(long, value_name = "PACKETS", default_value_t = 0)]
    min_packets: u64,
    /// Threads; the report is the same for any number.
    #[arg(long, default_value_t = 1, value_parser = jobs)]
    jobs: usize,
    /// Instead of seeds: print as CSV how memory, packets, time and work grow from `--hosts` up to
    /// this number of endpoints; with the profile group, by scheme of multicast.
    #[arg(long, value_name = "ENDPOINTS", conflicts_with = "seeds")]
    scale: Option<usize>,
    /// With --scale: only what takes about a minute.
    #[arg(long, requires = "scale")]
    quick: bool,
    /// With --scale: only this part (alltoall, start, storm, standby, failover, incast, allreduce
    /// or broadcast).
    #[arg(long, requires = "scale", value_parser = part)]
    part: Option<String>,
}

/// Most rails per host, as in drawn clusters.
const RAILS_MAX: usize = 8;
/// Most hosts per cluster: each seed's cluster is in memory.
const HOSTS_MAX: usize = 4_096;

/// Most threads, above any machine's processors.
const JOBS_MAX: usize = 1_024;

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| "write A..B or one number");
    let (from, to) = match text.split_once("..") {
        Some((from, to)) => (number(from)?, number(to)?),
        None => {
            let only = number(text)?;
            (only, only.checked_add(1).ok_or("too large")?)
        }
    };
    if from >= to {
        return Err("no seeds: B must be greater than A".into());
    }
    Ok(from..to)
}

fn commit(text: &str) -> Result<String, String> {
    let plain = !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    plain
        .then(|| text.to_owned())
        .ok_or("letters and digits only".into())
}

fn part(text: &str) -> Result<String, String> {
    let known = PARTS.iter().any(|part| part.name == text);
    known.then(|| text.to_owned()).ok_or_else(|| {
        let names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
        format!("there are {}", names.join(", "))
    })
}

fn profile(text: &str) -> Result<Profile, String> {
    Profile::parse(text)
        .ok_or("there are swarm, calm, loss, rails, peers, verbs, native, outages and group".into())
}

fn hosts(text: &str) -> Result<usize, String> {
    let known = |&n: &usize| n != 1 && n <= HOSTS_MAX;
    let number = text.parse().ok().filter(known);
    number.ok_or(format!("a whole number from 2 to {HOSTS_MAX}, or 0"))
}

fn rails(text: &str) -> Result<usize, String> {
    let known = |&n: &usize| n <= RAILS_MAX;
    let number = text.parse().ok().filter(known);
    number.ok_or(format!("a whole number up to {RAILS_MAX}"))
}

fn jobs(text: &str) -> Result<usize, String> {
    let known = |n: &usize| (1..=JOBS_MAX).contains(n);
    let number = text.parse().ok().filter(known);
    number.ok_or(format!("a whole number from 1 to {JOBS_MAX}"))
}

/// Runs the command; returns whether all invariants held. An error says what cannot be simulated.
pub fn run(args: &SimArgs) -> Result<bool, String> {
    match args.scale {
        Some(most) if args.profile == Profile::Group => Ok(group_scaling(args.hosts, most)),
        Some(most) => {
            let sizes = Sizes {
                least: args.hosts,
                most,
                quick: args.quick,
            };
            Ok(print_parts(args.part.as_deref(), sizes))
        }
        None => run_range(args),
    }
}

/// The faults of the script, if any.
fn script(args: &SimArgs) -> Result<Option<Vec<Fault>>, String> {
    let Some(path) = &args.script else {
        return Ok(None);
    };
    if args.hosts == 0 || args.rails == 0 {
        return Err("a script wants --hosts and --rails: it names them".into());
    }
    let bad = |why: String| format!("--script {}: {why}", path.display());
    let text = std::fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
    let faults = crate::setup::script::parse(&text, args.hosts, args.rails);
    Ok(Some(faults.map_err(bad)?))
}

fn run_range(args: &SimArgs) -> Result<bool, String> {
    let SimArgs { hosts, rails, .. } = *args;
    let stop = if args.failures.is_some() {
        usize::MAX
    } else {
        1
    };
    let hunt = Hunt {
        profile: args.profile,
        hosts,
        rails,
        script: script(args)?,
        packets_min: args.min_packets,
        stop: args.stop.unwrap_or(stop),
        jobs: args.jobs,
    };
    let how = (args.trace, Duration::from_secs(args.progress));
    let mut log = args.log.as_deref().map(CampaignLog::read).transpose()?;
    let more = log.as_ref().zip(args.more);
    let seeds = more.map_or(args.seeds.clone(), |(log, more)| {
        log.next(args.profile, more)
    });
    let mut watch = Watch::new(&hunt, seeds.end, how, args.failures.as_deref())?;
    let cpu_s = cpu_seconds();
    let report = watch_seeds(seeds.clone(), &hunt, |r, next| watch.look(r, next));
    summary(seeds.start, &report, watch.seconds());
    let entry = Entry::of(&report, cpu_seconds() - cpu_s);
    println!("{}", entry.text());
    if let Some(log) = &mut log {
        let done = seeds.start..seeds.start + report.seeds;
        log.append((args.profile, &args.commit), done, entry)?;
        let sum = log.sum();
        println!(
            "campaign: {} seeds, {} failures, {}",
            sum.seeds,
            sum.failures,
            sum.text()
        );
    }
    Ok(report.failures.is_empty())
}

fn summary(first: u64, report: &Report, seconds: f64) {
    let net = &report.net;
    println!(
        "{} seeds, {} failures, {} messages, {} packets, {seconds:.1} s, {:.0} packets/s, \
         hash {:016x}",
        report.seeds,
        report.failures.len(),
        report.messages,
        net.packets,
        net.packets as f64 / seconds,
        report.hash
    );
    let mut packets = report.packets.clone();
    let most = packets.iter().enumerate().max_by_key(|(_, &n)| n);
    let (at, most) = most.map_or((0, 0), |(at, &n)| (at as u64, n));
    packets.sort_unstable();
    let (least, median) = (packets.first(), packets.get(packets.len() / 2));
    println!(
        "packets of a seed: least {}, median {}, mean {}, most {most} (seed {})",
        least.unwrap_or(&0),
        median.unwrap_or(&0),
        net.packets / report.seeds.max(1),
        first + at
    );
    println!("{net:?}");
    println!("{:?}", report.troubles);
}

/// Loss rates of the table for groups, in parts per million.
const LOSSES: [u32; 2] = [0, 1_000];

/// Prints the table for groups from `least` to `most` members: broadcasts of 4 bytes and 64 KiB by
/// each scheme, without losses and with a loss rate of 1/1000.
fn group_scaling(least: usize, most: usize) -> bool {
    println!(
        "scheme,members,bytes,lost_ppm,latency_us,each_us,root_packets,busiest_hears,nacks,\
         root_bytes_per_member,member_bytes"
    );
    let sizes = [16, 64, 256, 1_024, 4_096].into_iter();
    let sizes: Vec<usize> = sizes.filter(|n| (least..=most).contains(n)).collect();
    for (name, bytes, lost) in rows() {
        // The largest groups only once: the default scheme, short broadcasts, no losses.
        let once = name == "usual" && bytes == 4 && lost == 0;
        for &members in sizes.iter().filter(|&&n| n <= 1_024 || once) {
            let row = group_scale(name, members, bytes, lost);
            if let Some(text) = &row.failure {
                println!("{name}, {members} members: {text}");
                return false;
            }
            println!(
                "{name},{members},{bytes},{lost},{:.1},{:.1},{:.2},{:.2},{:.3},{},{}",
                row.latency_ns as f64 / 1_000.0,
                row.each_ns as f64 / 1_000.0,
                row.root_packets,
                row.busiest,
                row.nacks,
                row.root_bytes,
                row.member_bytes
            );
        }
    }
    true
}

/// The rows of the table: scheme, bytes, loss rate.
fn rows() -> impl Iterator<Item = (&'static str, u64, u32)> {
    let all = [4, 65_536].into_iter().flat_map(|bytes| {
        let rows = SCHEMES
            .iter()
            .flat_map(|(name, _)| LOSSES.map(|lost| (*name, lost)));
        rows.map(move |(name, lost)| (name, bytes, lost))
    });
    // With the original scheme, a long broadcast takes the time of a short one times the number of
    // members.
    all.filter(|(name, bytes, _)| *name != "original" || *bytes == 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_read_or_refused_with_the_reason() {
        assert_eq!(seeds("3..7"), Ok(3..7));
        assert_eq!(seeds("3"), Ok(3..4));
        for wrong in [
            "7..3",
            "3..3",
            "",
            "..",
            "a..b",
            "-1",
            &u64::MAX.to_string(),
        ] {
            assert!(seeds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn clusters_of_impossible_sizes_are_refused() {
        assert_eq!((hosts("0"), hosts("2"), rails("8")), (Ok(0), Ok(2), Ok(8)));
        for wrong in ["1", "-1", "4097", "many"] {
            assert!(hosts(wrong).is_err(), "{wrong}");
        }
        assert!(rails("9").is_err() && profile("storm").is_err());
    }
}
