//! `marline-sim`: runs seeds; prints what the faults were and, for a failure, how to replay it.
#![forbid(unsafe_code)]

use marline_sim::{run_seeds, run_setup, scale, shrink, Profile, Setup, Work};
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "usage: marline-sim --seeds A..B [--profile swarm|calm|loss|rails|peers] \
[--hosts N] [--rails R] [--trace] [--stop FAILURES] [--scale ENDPOINTS]";

struct Args {
    from: u64,
    to: u64,
    profile: Profile,
    hosts: usize,
    rails: usize,
    trace: bool,
    stop: usize,
    scale: usize,
}

fn parse() -> Option<Args> {
    let mut args = Args {
        from: 0,
        to: 1_000,
        profile: Profile::Swarm,
        hosts: 0,
        rails: 0,
        trace: false,
        stop: 1,
        scale: 0,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--trace" {
            args.trace = true;
            continue;
        }
        let value = words.next()?;
        match word.as_str() {
            "--seeds" => match value.split_once("..") {
                Some((a, b)) => (args.from, args.to) = (a.parse().ok()?, b.parse().ok()?),
                None => {
                    args.from = value.parse().ok()?;
                    args.to = args.from + 1;
                }
            },
            "--profile" => args.profile = Profile::parse(&value)?,
            "--hosts" => args.hosts = value.parse().ok()?,
            "--rails" => args.rails = value.parse().ok()?,
            "--scale" => args.scale = value.parse().ok()?,
            "--stop" => args.stop = value.parse().ok()?,
            _ => return None,
        }
    }
    Some(args)
}

/// Resident bytes of this process (0 where the system does not say).
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|p| p.parse::<u64>().ok());
    pages.unwrap_or(0) * 4_096
}

/// Seconds that this thread was on a processor; where the system does not say, since `start`.
fn busy_seconds(start: Instant) -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
    ns.map_or(start.elapsed().as_secs_f64(), |ns| ns as f64 / 1e9)
}

/// The scaling table from `least` to `most` endpoints.
fn scaling(least: usize, most: usize) -> ExitCode {
    println!(
        "work,hosts,messages,packets,virtual_us,peers,bytes_per_idle_peer,resident_mb,seconds"
    );
    for work in [Work::Tree, Work::AllToAll] {
        for hosts in [16, 64, 256, 512, 1_024]
            .into_iter()
            .filter(|n| (least..=most).contains(n))
        {
            let start = Instant::now();
            let row = scale(hosts, work);
            if let Some(text) = &row.failure {
                println!("{}", text.lines().next().unwrap_or_default());
                return ExitCode::FAILURE;
            }
            println!(
                "{work:?},{hosts},{},{},{:.0},{},{},{},{:.1}",
                row.messages,
                row.packets,
                row.virtual_ns as f64 / 1_000.0,
                row.peers,
                row.peer_bytes / row.peers.max(1),
                resident_bytes() >> 20,
                start.elapsed().as_secs_f64()
            );
        }
    }
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let Some(args) = parse() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if args.scale > 0 {
        return scaling(args.hosts, args.scale);
    }
    let start = Instant::now();
    let report = run_seeds(
        args.from..args.to,
        args.profile,
        args.hosts,
        args.rails,
        args.stop,
    );
    let seconds = busy_seconds(start);
    for (seed, text) in &report.failures {
        if args.trace {
            let setup = Setup::draw(*seed, args.profile, args.hosts, args.rails);
            let again = run_setup(&shrink(&setup), true);
            println!("{}", again.failure.unwrap_or_default());
        } else {
            println!("{}", text.lines().next().unwrap_or_default());
        }
        println!(
            "replay: marline-sim --seeds {seed} --profile {} --hosts {} --rails {} --trace",
            args.profile.name(),
            args.hosts,
            args.rails
        );
    }
    let net = &report.net;
    println!(
        "{} seeds, {} failures, {} messages, {} packets, {:.1} s of processor, {:.0} packets/s, hash {:016x}\n{net:?}",
        report.seeds,
        report.failures.len(),
        report.messages,
        net.packets,
        seconds,
        net.packets as f64 / seconds,
        report.hash
    );
    if report.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
