//! `marline tune --show`: prints measurements as tables and draws the figures of paper 0.

use super::curves::Curves;
use crate::plot::{self, size, Chart, Line};
use marline_checksum::tuner::{Place, Point, Way, BLOCKS};
use marline_checksum::{Algorithm, Strength};
use marline_engine::profile::{AlgorithmFigures, Profile, RailFigures};
use std::path::Path;

/// Bytes of paper 0's figure 1, in cache.
const FIGURE_1: usize = 32 << 10;
/// Sizes in the table of methods.
const TABLE: [usize; 6] = [64, 1 << 10, 4 << 10, 32 << 10, 64 << 10, 1 << 20];

/// The measured algorithms, by number.
fn measured(points: &[Point]) -> Vec<Algorithm> {
    let has = |a: &Algorithm| points.iter().any(|p| p.algorithm == *a);
    Algorithm::all()
        .filter(|a| *a != Algorithm::None)
        .filter(has)
        .collect()
}

/// Prints the profile, then the measurements behind it.
pub fn print(profile: &Profile, points: &[Point]) {
    println!(
        "{} ({}), {}",
        profile.machine.cpu, profile.machine.kernels, profile.date
    );
    if let Some(rail) = &profile.rail {
        println!("rail {}", describe_rail(rail));
    }
    let p = &profile.pipeline;
    println!(
        "eager up to {} bytes; super-pipeline: first chunk {} bytes, growth {:.2}, last block {} \
         bytes",
        profile.eager_max_bytes, p.first_chunk_bytes, p.growth, p.last_block_bytes
    );
    println!(
        "\nGB/s at {} in cache (paper 0, figures 1 and 2), and by which way:",
        size(32768.0)
    );
    println!(
        "{:<13} {:>8} {:>9} {:>8} {:>8} {:>8}  1-64K",
        "", "sum", "separate", "fused", "blocked", "of copy"
    );
    for algorithm in measured(points) {
        let rate = |way| points.rate(algorithm, way, Place::Cache, FIGURE_1);
        let blocked = BLOCKS.into_iter().filter_map(|b| rate(Way::Blocked(b)));
        let blocked = blocked.reduce(f64::max);
        let best = [rate(Way::Fused), blocked]
            .into_iter()
            .flatten()
            .reduce(f64::max);
        let share = best.zip(rate(Way::Copy)).map(|(best, copy)| best / copy);
        let way = profile.figures(algorithm).map_or_else(String::new, says);
        println!(
            "{:<13} {:>8} {:>9} {:>8} {:>8} {:>8}  {way}",
            algorithm.name(),
            number(rate(Way::Sum)),
            number(rate(Way::Separate)),
            number(rate(Way::Fused)),
            number(blocked),
            number(share)
        );
    }
    for place in Place::ALL {
        print_ways(points, place);
    }
}

/// The rate and the method of an algorithm, in words.
fn says(figures: &AlgorithmFigures) -> String {
    let plan = figures.plan();
    let (block, bytes) = (size(plan.block_bytes as f64), |n: usize| size(n as f64));
    let loops = plan.blocked_from.map_or_else(
        || "fused".to_owned(),
        |from| format!("blocks of {block} from {}", bytes(from)),
    );
    let streams = plan.stream_from.map_or_else(
        || "no streams".to_owned(),
        |from| format!("streams from {}", bytes(from)),
    );
    format!("{:.1} GB/s, {loops}, {streams}", figures.gb_per_s)
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| format!("{v:.2}"))
}

/// Copy and sum relative to the copy alone, by size.
fn print_ways(points: &[Point], place: Place) {
    println!("\ncopy and sum over memcpy, from {}:", place.name());
    print!("{:<13} {:<12}", "", "");
    TABLE
        .iter()
        .for_each(|bytes| print!(" {:>7}", size(*bytes as f64)));
    println!();
    // Weak algorithms appear only in the pictures.
    for algorithm in measured(points)
        .into_iter()
        .filter(|a| a.strength() > Strength::Weak)
    {
        let blocked = BLOCKS.map(Way::Blocked);
        let ways = [Way::Separate, Way::Fused]
            .into_iter()
            .chain(blocked)
            .chain([Way::Streaming]);
        for way in ways {
            let share = |bytes: &usize| {
                let copy = points.ns(algorithm, Way::Copy, place, *bytes)?;
                Some(copy / points.ns(algorithm, way, place, *bytes)?)
            };
            if TABLE.iter().all(|bytes| share(bytes).is_none()) {
                continue;
            }
            print!("{:<13} {:<12}", algorithm.name(), label(way));
            TABLE
                .iter()
                .for_each(|bytes| print!(" {:>7}", number(share(bytes))));
            println!();
        }
    }
}

fn label(way: Way) -> String {
    match way.name() {
        (name, 0) => name.to_owned(),
        (name, block) => format!("{name} {}", size(block as f64)),
    }
}

/// Draws figure 1 (sums), figures 2a (copy, then sum) and 2b (combined), in cache and from memory,
/// and the default algorithm's methods beside the copy.
pub fn draw(profile: &Profile, points: &[Point], folder: Option<&Path>) -> Result<(), String> {
    let Some(folder) = folder else {
        return Ok(());
    };
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let cpu = &profile.machine.cpu;
    for (file, title, way, place) in [
        ("figure1-sum", "Sum alone, in cache", Way::Sum, Place::Cache),
        (
            "figure2a-separate",
            "Copy, then sum, in cache",
            Way::Separate,
            Place::Cache,
        ),
        (
            "figure2b-fused",
            "Copy and sum in one loop, in cache",
            Way::Fused,
            Place::Cache,
        ),
        (
            "figure2a-separate-memory",
            "Copy, then sum, from memory",
            Way::Separate,
            Place::Memory,
        ),
        (
            "figure2b-fused-memory",
            "Copy and sum in one loop, from memory",
            Way::Fused,
            Place::Memory,
        ),
    ] {
        let mut lines = vec![line(points, Algorithm::None, Way::Copy, place, "memcpy")];
        let all = measured(points);
        lines.extend(all.iter().map(|a| line(points, *a, way, place, a.name())));
        save(folder, file, &format!("{title}: {cpu}"), lines)?;
    }
    let algorithm = marline_engine::checksum_choice::ChecksumChoice::Strong.resolve(Some(profile));
    for place in [Place::Cache, Place::Memory] {
        let blocked = BLOCKS.map(Way::Blocked);
        let ways = [Way::Copy, Way::Sum, Way::Separate, Way::Fused]
            .into_iter()
            .chain(blocked);
        let ways = ways.chain([Way::Streaming]);
        let lines = ways
            .map(|way| line(points, algorithm, way, place, &label(way)))
            .collect();
        let (file, title) = (format!("ways-{}", place.name()), algorithm.name());
        save(
            folder,
            &file,
            &format!("{title}, from {}: {cpu}", place.name()),
            lines,
        )?;
    }
    println!("\ndrawn in {}", folder.display());
    Ok(())
}

fn save(folder: &Path, file: &str, title: &str, lines: Vec<Line>) -> Result<(), String> {
    let lines = lines
        .into_iter()
        .filter(|line| !line.points.is_empty())
        .collect();
    let chart = Chart {
        title,
        values: "GB/s",
        log: true,
        lines,
    };
    plot::write(&folder.join(format!("{file}.svg")), &chart)
}

fn line(points: &[Point], algorithm: Algorithm, way: Way, place: Place, label: &str) -> Line {
    let curve = points.curve(algorithm, way, place);
    Line {
        label: label.to_owned(),
        points: curve
            .into_iter()
            .map(|(bytes, rate)| (bytes as f64, rate))
            .collect(),
        measured: true,
    }
}

/// A rail's figures as a line of text.
pub fn describe_rail(rail: &RailFigures) -> String {
    format!(
        "{}: latency {:.2} us, rate {:.2} GB/s, gap {:.0} ns",
        rail.what, rail.latency_us, rail.gb_per_s, rail.gap_ns
    )
}
