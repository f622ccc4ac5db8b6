//! `marline model`: the cost of checksums by the papers' models, with the papers' constants and
//! this machine's, beside measurements.

use super::measured::Series;
use super::{broadcast, constants, measured};
use crate::plot::{self, size, Chart, Line};
use crate::tune::cost::{
    eager, loss_percent, naive, overhead_percent, rendezvous, Network, Pipeline, Work,
};
use crate::tune::derive::powers_of_two;
use crate::tune::{curves, derive};
use curves::Curves;
use marline_checksum::tuner::{Place, Point, Way};
use marline_checksum::Algorithm;
use marline_engine::checksum_choice::ChecksumChoice;
use marline_engine::profile::Profile;
use std::path::PathBuf;

/// Arguments of `model`.
#[derive(clap::Args)]
pub struct ModelArgs {
    /// Profile whose constants are used, with its curves beside it; default: this machine's.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Checksum to compute with: a class or a name, as for FI_MARLINE_CHECKSUM.
    #[arg(long, value_name = "NAME", default_value = "strong")]
    checksum: String,
    /// Only the papers' constants.
    #[arg(long, conflicts_with_all = ["profile", "measured"])]
    papers: bool,
    /// CSV of measured messages (columns bytes, value, unit; contender and test name them).
    #[arg(long, value_name = "FILE")]
    measured: Option<PathBuf>,
    /// Draws the curves there.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// The constants of the models.
#[derive(Clone, Copy, Debug)]
struct Constants {
    network: Network,
    /// Sum alone, in bytes per second.
    sum: f64,
    /// The work of both ends for a short message: copy only, copy and separate sum, one pass.
    copy: Work,
    separate: Work,
    fused: Work,
    /// The same work, for chunks of a long message.
    chunk_copy: Work,
    chunk_fused: Work,
}

/// The papers' constants. Their only rate of copy and sum is for data in cache. A copy from memory
/// is slower: the stated overhead of one gap at 1 MB implies 4.3 GB/s.
const PAPERS: Constants = Constants {
    network: constants::JACK,
    sum: constants::SUM,
    copy: constants::PAPER_2_COPY,
    separate: constants::PAPER_2,
    fused: constants::FUSED,
    chunk_copy: Work::Copy(constants::COPY),
    chunk_fused: Work::Fused(4.3e9),
};

/// Sizes of messages in the tables, 64 B to 64 MiB.
const SIZES: [usize; 12] = powers_of_two([6, 10, 12, 13, 14, 15, 16, 18, 20, 22, 24, 26]);

/// The constants and measurements of this machine.
struct Here {
    /// Name of the processor and the checksum.
    of: String,
    /// The profile's file.
    path: PathBuf,
    constants: Constants,
    eager_max: usize,
    series: Vec<Series>,
}

/// Prints the tables.
pub fn main(args: &ModelArgs) -> crate::outcome::Uncoded {
    // Checks all inputs before printing anything.
    let here = match args.papers {
        true => None,
        false => Some(here(args)?),
    };
    println!("The papers' constants (cluster jack, InfiniBand QDR):");
    print(&PAPERS);
    println!("\nBroadcast by multicast, constants of its paper's testbed (InfiniBand, PCI-X):");
    broadcast::print(&broadcast::PAPER);
    let Some(here) = here else {
        draw(args, "The papers' constants", &PAPERS, &[])?;
        return Ok(0);
    };
    let (of, constants) = (&here.of, &here.constants);
    println!(
        "\nThis machine's constants ({of}; {}):",
        here.path.display()
    );
    print(constants);
    let cluster = broadcast::Cluster::of(&constants.network, constants.copy.rate());
    broadcast::print(&cluster);
    for series in &here.series {
        println!("\nMeasured: {}", series.name);
        compare(constants, here.eager_max, series);
    }
    draw(args, of, constants, &here.series)?;
    Ok(0)
}

/// Reads the inputs that the arguments name.
fn here(args: &ModelArgs) -> Result<Here, String> {
    let choice = ChecksumChoice::parse(&args.checksum).ok_or_else(|| {
        let names = ChecksumChoice::names();
        format!("no checksum {:?}; there are: {names}", args.checksum)
    })?;
    let without = "`marline model --papers` does without this machine's constants";
    let loaded = crate::tune::load(args.profile.as_deref());
    let (profile, path) = loaded.map_err(|why| format!("{}; {without}", why.text()))?;
    let algorithm = choice.resolve(Some(&profile));
    let constants = of_machine(&profile, &curves::load(&path)?, algorithm)?;
    let series = match &args.measured {
        None => Vec::new(),
        Some(path) => {
            let at = path.display();
            let text = std::fs::read_to_string(path).map_err(|e| format!("{at}: {e}"))?;
            measured::read(&text).map_err(|e| format!("{at}: {e}"))?
        }
    };
    Ok(Here {
        of: format!("{}, {algorithm}", profile.machine.cpu),
        path,
        constants,
        eager_max: profile.eager_max_bytes,
        series,
    })
}

/// The constants from a profile and its curves: short messages at 32 KiB in cache (the papers'
/// block size), long ones by chunks from user memory to a staging buffer.
fn of_machine(
    profile: &Profile,
    points: &[Point],
    algorithm: Algorithm,
) -> Result<Constants, String> {
    let rate = |way, place, bytes| {
        let rate = points.rate(algorithm, way, place, bytes);
        rate.map(|r| r * 1e9).ok_or_else(|| {
            format!(
                "{algorithm} ({}) is not in the curves: run `marline tune`",
                way.name().0
            )
        })
    };
    let copy = rate(Way::Copy, Place::Cache, derive::SHORT)?;
    let sum = rate(Way::Sum, Place::Cache, derive::SHORT)?;
    let chunks = derive::chunk_rate(points, algorithm);
    let chunks = chunks.ok_or("the curves have no chunks: run `marline tune`")?;
    Ok(Constants {
        network: derive::network(profile.rail.as_ref()),
        sum,
        copy: Work::Copy(copy),
        separate: Work::CopyThenSum(copy, sum),
        fused: Work::Fused(rate(Way::Fused, Place::Cache, derive::SHORT)?),
        chunk_copy: Work::Copy(rate(Way::Copy, Place::Staging, derive::CHUNK)?),
        chunk_fused: Work::Fused(chunks * 1e9),
    })
}

/// A method of sending, by its time in seconds.
type Time = fn(&Constants, f64) -> f64;

fn chunked(c: &Constants, work: &Work, len: f64) -> f64 {
    Pipeline::fit(&c.network, work).time(&c.network, work, len)
}

const WAYS: [(&str, Time); 7] = [
    ("network", |c, len| c.network.time(len)),
    ("naive", |c, len| naive(&c.network, c.sum, len)),
    ("eager copy", |c, len| eager(&c.network, &c.copy, len)),
    ("+sum", |c, len| eager(&c.network, &c.separate, len)),
    ("fused", |c, len| eager(&c.network, &c.fused, len)),
    ("chunks copy", |c, len| chunked(c, &c.chunk_copy, len)),
    ("fused", |c, len| chunked(c, &c.chunk_fused, len)),
];

fn print(c: &Constants) {
    let gb = |work: &Work| work.rate() / 1e9;
    let n = &c.network;
    println!(
        "  network: latency {:.2} us, {:.2} GB/s, gap {:.0} ns; sum {:.2} GB/s",
        n.latency * 1e6,
        n.rate / 1e9,
        n.gap * 1e9,
        c.sum / 1e9
    );
    println!(
        "  at each end: copy {:.2}, copy then sum {:.2}, fused {:.2} GB/s; chunks: copy {:.2}, \
         fused {:.2} GB/s",
        gb(&c.copy),
        gb(&c.separate),
        gb(&c.fused),
        gb(&c.chunk_copy),
        gb(&c.chunk_fused)
    );
    let p = Pipeline::fit(n, &c.chunk_fused);
    println!(
        "  super-pipeline: first chunk {}, growth {:.2}, last block {}",
        size(p.first),
        p.growth,
        size(p.last_block)
    );
    println!(
        "  time in us; then in percent: bandwidth that is lost against the network alone (naive,"
    );
    println!("  fused), time that sums add to the same without them (+sum, chunks)");
    print!("{:>8}", "bytes");
    WAYS.iter().for_each(|(name, _)| print!(" {name:>12}"));
    println!(
        " {:>8} {:>8} {:>8} {:>8}",
        "naive", "+sum", "fused", "chunks"
    );
    for bytes in SIZES {
        let t: Vec<f64> = WAYS.iter().map(|(_, time)| time(c, bytes as f64)).collect();
        print!("{:>8}", size(bytes as f64));
        t.iter().for_each(|t| print!(" {:>12.2}", t * 1e6));
        let costs = [
            loss_percent(t[1], t[0]),
            overhead_percent(t[3], t[2]),
            loss_percent(t[4], t[0]),
            overhead_percent(t[6], t[5]),
        ];
        costs.iter().for_each(|cost| print!(" {cost:>7.1}%"));
        println!();
    }
}

/// The model's time for an engine: eager up to the threshold, then chunks.
fn predicted(c: &Constants, eager_max: usize, bytes: usize) -> f64 {
    let len = bytes as f64;
    if bytes <= eager_max {
        return eager(&c.network, &c.fused, len);
    }
    let pipeline = Pipeline::fit(&c.network, &c.chunk_fused);
    rendezvous(&c.network, &c.chunk_fused, &pipeline, len)
}

fn compare(c: &Constants, eager_max: usize, series: &Series) {
    println!(
        "{:>8} {:>12} {:>12} {:>9}",
        "bytes", "measured us", "model us", "ratio"
    );
    for (bytes, us) in &series.points {
        let model = predicted(c, eager_max, *bytes) * 1e6;
        println!(
            "{:>8} {us:>12.2} {model:>12.2} {:>9.2}",
            size(*bytes as f64),
            us / model
        );
    }
}

fn draw(args: &ModelArgs, of: &str, c: &Constants, series: &[Series]) -> Result<(), String> {
    let Some(path) = &args.svg else {
        return Ok(());
    };
    let sizes = || (0..=26).map(|n| f64::from(1u32 << n));
    // Bandwidth as in the papers: bytes over time.
    let computed = |label: &str, time: &dyn Fn(f64) -> f64| Line {
        label: label.to_owned(),
        points: sizes().map(|len| (len, len / time(len) / 1e9)).collect(),
        measured: false,
    };
    let mut lines = vec![
        computed("network alone", &|len| c.network.time(len)),
        computed("naive sums", &|len| naive(&c.network, c.sum, len)),
        computed("eager, copy then sum", &|len| {
            eager(&c.network, &c.separate, len)
        }),
        computed("eager, fused", &|len| eager(&c.network, &c.fused, len)),
        computed("super-pipeline, fused", &|len| {
            chunked(c, &c.chunk_fused, len)
        }),
    ];
    lines.extend(series.iter().map(|series| {
        Line {
            label: format!("measured: {}", series.name),
            points: series
                .points
                .iter()
                .map(|(b, us)| (*b as f64, *b as f64 / us / 1e3))
                .collect(),
            measured: true,
        }
    }));
    let chart = Chart {
        title: &format!("Cost models: {of}"),
        values: "GB/s",
        log: true,
        lines,
    };
    plot::write(path, &chart)?;
    println!("\ndrawn: {}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_table_has_the_papers_numbers() {
        let at = |way: usize, bytes: f64| (WAYS[way].1)(&PAPERS, bytes);
        let loss = loss_percent(at(1, 1e12), at(0, 1e12));
        assert!((loss - 50.0).abs() < 0.5, "{loss}");
        let added = |bytes| overhead_percent(at(3, bytes), at(2, bytes));
        assert_eq!(
            (added(4096.0).round(), added(32_768.0).round()),
            (7.0, 10.0)
        );
        let chunks = overhead_percent(at(6, 1_048_576.0), at(5, 1_048_576.0));
        assert!(chunks > 0.0 && chunks < 1.0, "{chunks}");
    }

    #[test]
    fn a_prediction_follows_the_threshold() {
        let c = &PAPERS;
        assert_eq!(
            predicted(c, 4096, 4096),
            eager(&c.network, &c.fused, 4096.0)
        );
        assert!(predicted(c, 4096, 4097) > c.network.time(4097.0) + 2.0 * c.network.latency);
    }
}
