//! `marline tune`: measures this machine and writes its profile, which engines read; shows what
//! was measured.

pub mod cost;
pub mod curves;
pub mod derive;
mod rail;
mod show;

use crate::outcome::Failure;
use crate::tool;
use marline_checksum::tuner::{Bench, Effort, Place, Point, Way, BLOCKS};
use marline_checksum::Algorithm;
use marline_codes::Code;
use marline_engine::profile::{default_path, LoadError, Machine, Profile};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Arguments of `tune`.
#[derive(clap::Args)]
pub struct TuneArgs {
    /// Profile to write (or, with --show, to read); the curves are written beside it, as CSV.
    /// Default: FI_MARLINE_PROFILE, else a file for this model of machine in the user's data
    /// directory, which every engine on such a machine then reads.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Only these algorithms, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    algorithms: Vec<String>,
    /// Few sizes and short samples: two seconds instead of about a minute.
    #[arg(long)]
    quick: bool,
    /// Interface or address of the rail to measure, or none.
    #[arg(long, value_name = "NAME", default_value = "lo")]
    rail: String,
    /// Measure the rail to a `marline tune --serve` on another host, instead of two rails of this
    /// process.
    #[arg(long, value_name = "ADDRESS:PORT")]
    to: Option<SocketAddr>,
    /// Measure nothing; answer the measurements of other hosts on --rail until ended.
    #[arg(long, conflicts_with_all = ["to", "show", "output"])]
    serve: bool,
    /// UDP port for --serve; 0: any free one.
    #[arg(long, default_value_t = 0, requires = "serve")]
    port: u16,
    /// Measure nothing; print what was measured before.
    #[arg(long)]
    show: bool,
    /// Draw the curves into this directory, as SVG.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

/// Measured sizes in bytes: those that [`derive`] needs, and shorter ones for information.
fn sizes(quick: bool) -> Vec<usize> {
    let (short, long): (&[usize], _) = match quick {
        true => (&[64], &derive::STREAMS[..2]),
        false => (&[1, 4, 16, 64, 256], &derive::STREAMS[..]),
    };
    [short, &derive::FRAGMENTS, long].concat()
}

/// The extent of a measurement.
struct Plan {
    algorithms: Vec<Algorithm>,
    sizes: Vec<usize>,
    effort: Effort,
    /// Bytes of the memory that measurements from memory traverse.
    memory: usize,
    rail: rail::Effort,
}

/// Measures and writes, or shows, or serves.
pub fn main(args: &TuneArgs) -> crate::outcome::Uncoded {
    if args.serve {
        rail::serve(&args.rail, args.port)?;
        return Ok(0);
    }
    if args.show {
        let (profile, path) = load(args.output.as_deref())?;
        let points = curves::load(&path)?;
        show::print(&profile, &points);
        show::draw(&profile, &points, args.svg.as_deref())?;
        return Ok(0);
    }
    let path = output(args.output.as_deref())?;
    let plan = plan(args)?;
    // Checked first: an error after a minute of measurements would lose them.
    if path.is_dir() {
        let at = path.display();
        let text = format!("--output {at}: it is a directory, and has to be a file");
        return Err(Failure::with(Code::Output, text));
    }
    for (option, folder) in [("--output", path.parent()), ("--svg", args.svg.as_deref())] {
        folder
            .map_or(Ok(()), check_folder)
            .map_err(|why| Failure::with(Code::Output, format!("{option}: {why}")))?;
    }
    let rail = match args.rail.as_str() {
        "none" => None,
        name => Some(rail::measure(name, args.to, &plan.rail)?),
    };
    let points = measure(&plan);
    let profile = derive::profile(&points, rail, &now());
    write(&path, &profile, &points)?;
    show::print(&profile, &points);
    show::draw(&profile, &points, args.svg.as_deref())?;
    println!("\nprofile: {}", path.display());
    println!("curves:  {}", curves::path_beside(&path).display());
    Ok(0)
}

/// The profile's file: the given file, or the file that engines look for.
fn output(given: Option<&Path>) -> Result<PathBuf, String> {
    let set = || {
        let value = std::env::var_os("FI_MARLINE_PROFILE")?;
        Some(PathBuf::from(value)).filter(|v| !v.as_os_str().is_empty() && v != Path::new("none"))
    };
    let given = given.map(Path::to_owned).or_else(set);
    let kept = || default_path(&Machine::here());
    given.or_else(kept).ok_or_else(|| {
        "no home directory, where profiles are kept: set HOME or FI_MARLINE_PROFILE".to_owned()
    })
}

/// Loads an existing profile; returns it with its file.
pub fn load(given: Option<&Path>) -> Result<(Profile, PathBuf), Failure> {
    let path = output(given)?;
    let at = path.display();
    let text = match Profile::load(&path) {
        Ok(profile) => return Ok((profile, path)),
        Err(LoadError::Missing) => format!(
            "there is no {at}: `marline tune` makes it, in a minute (with --quick in seconds)"
        ),
        Err(LoadError::Bad(why)) => format!("{at}: {why}"),
    };
    Err(Failure::with(Code::ProfileUnusable, text))
}

fn plan(args: &TuneArgs) -> Result<Plan, Failure> {
    let mut algorithms = Vec::new();
    for name in &args.algorithms {
        let algorithm = name.parse::<Algorithm>();
        let wrong = |error| Failure::with(Code::CommandLine, format!("{error}"));
        algorithms.push(algorithm.map_err(wrong)?);
    }
    if algorithms.is_empty() {
        algorithms = Algorithm::all().collect();
    }
    algorithms.retain(|a| *a != Algorithm::None);
    let (rounds, ms) = if args.quick { (50, 20) } else { (500, 200) };
    let rail = rail::Effort {
        rounds,
        stream: Duration::from_millis(ms),
    };
    let quick = Effort {
        rounds: 3,
        sample_ns: 2e4,
        call_ns_max: 2e6,
    };
    // A sample of 0.2 ms is shorter than the scheduler's slice, so most samples are undisturbed.
    let full = Effort {
        rounds: 7,
        sample_ns: 2e5,
        call_ns_max: 2e7,
    };
    Ok(Plan {
        algorithms,
        sizes: sizes(args.quick),
        effort: if args.quick { quick } else { full },
        memory: if args.quick { 32 << 20 } else { memory_bytes() },
        rail,
    })
}

/// Twice the size of the last-level cache, between 64 and 256 MiB.
fn memory_bytes() -> usize {
    let cache = |index| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = std::fs::read_to_string(path).ok()?;
        text.trim()
            .strip_suffix('K')?
            .parse::<usize>()
            .ok()
            .map(|kib| kib << 10)
    };
    let last = (0..8).filter_map(cache).max().unwrap_or(0);
    (2 * last).clamp(64 << 20, 256 << 20)
}

/// Measures every curve, printing a line per algorithm to standard error.
fn measure(plan: &Plan) -> Vec<Point> {
    let mut bench = Bench::new(plan.memory, plan.effort);
    let mut ways = vec![Way::Copy, Way::Sum, Way::Separate, Way::Fused];
    ways.extend(BLOCKS.map(Way::Blocked));
    ways.push(Way::Streaming);
    let staged: Vec<Way> = [Way::Copy, Way::Fused]
        .into_iter()
        .chain(BLOCKS.map(Way::Blocked))
        .collect();
    let mut points = Vec::new();
    for place in [Place::Cache, Place::Memory] {
        let copies = [Way::Copy, Way::StreamingCopy];
        points.extend(bench.curve(Algorithm::None, place, &plan.sizes, &copies));
    }
    for (n, algorithm) in plan.algorithms.iter().enumerate() {
        let all = plan.algorithms.len();
        crate::tool::note(&format!("measuring {algorithm} ({} of {all})", n + 1));
        for place in [Place::Cache, Place::Memory] {
            points.extend(bench.curve(*algorithm, place, &plan.sizes, &ways));
        }
        points.extend(bench.curve(*algorithm, Place::Staging, &plan.sizes, &staged));
    }
    points
}

/// Writes both files, each atomically.
fn write(path: &Path, profile: &Profile, points: &[Point]) -> Result<(), Failure> {
    let failed = |at: &Path, e: std::io::Error| {
        Failure::with(Code::Output, format!("{}: {e}", at.display()))
    };
    let csv = curves::write(points, &profile.date, &profile.machine.cpu)?;
    for (at, text) in [
        (curves::path_beside(path), csv),
        (path.to_owned(), profile.to_text()?),
    ] {
        let new = at.with_extension(format!("new{}", std::process::id()));
        tool::write_new(&new, text.as_bytes()).map_err(|e| failed(&new, e))?;
        std::fs::rename(&new, &at).map_err(|e| failed(&at, e))?;
    }
    Ok(())
}

/// Makes the folder if missing; an error if no file can be written in it.
fn check_folder(folder: &Path) -> Result<(), String> {
    let here = Path::new(".");
    let folder = Some(folder)
        .filter(|f| !f.as_os_str().is_empty())
        .unwrap_or(here);
    let probe = folder.join(format!(".marline-{}", std::process::id()));
    let made = std::fs::create_dir_all(folder).and_then(|()| tool::write_new(&probe, &[0; 4096]));
    let _ = std::fs::remove_file(&probe);
    made.map_err(|e| format!("{}: {e}", folder.display()))
}

/// The current date and time in UTC.
fn now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    utc(since.map_or(0, |d| d.as_secs()))
}

/// The Gregorian date and time for seconds since 1970.
fn utc(seconds: u64) -> String {
    let (mut days, minutes) = (seconds / 86_400, seconds / 60 % 1440);
    let leap = |y: u64| y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
    let mut year = 1970;
    while days >= 365 + leap(year) as u64 {
        days -= 365 + leap(year) as u64;
        year += 1;
    }
    let february = 28 + leap(year) as u64;
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute) = (minutes / 60, minutes % 60);
    format!(
        "{year}-{month:02}-{:02} {hour:02}:{minute:02} UTC",
        days + 1
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_rise_and_contain_the_required_ones() {
        for quick in [false, true] {
            let sizes = sizes(quick);
            assert!(sizes.windows(2).all(|w| w[0] < w[1]), "{sizes:?}");
            assert!(sizes.contains(&derive::CHUNK) && sizes.contains(&derive::SHORT));
        }
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_826_980), "2000-02-29 12:23 UTC");
        assert_eq!(utc(1_767_225_599), "2025-12-31 23:59 UTC");
    }
}
