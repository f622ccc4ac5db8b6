//! `marline demo`: a job of the MPI of this machine on two hosts with two links, made by `marline
//! lab`, in three acts: over the MPI's own TCP and over Marline while packets are dropped and
//! damaged and links are cut, and both on a healthy network. Its ranks are this command
//! (`marline-demo-rank`), so that no compiler is needed.

mod job;
mod library;
mod outcome;
mod screen;

use crate::lab::made::Made;
use crate::lab::Shape;
use crate::outcome::{OrCode, Outcome as Ended};
use crate::run::mpi::{self, Kind, Mpi};
use job::{Event, Job, Over, Runner};
use marline_codes::{Code, Coded};
use marline_demo_rank::{run, Plan};
use outcome::{together, Outcome, Verdict};
use screen::{Style, Tell};
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `demo`.
#[derive(clap::Args)]
pub struct DemoArgs {
    /// mpiexec, by name or path, or the MPI's directory.
    #[arg(long, default_value = "mpiexec")]
    mpi: String,
    /// Seconds of a run; all of them take some twelve times as long.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..=600))]
    seconds: u64,
    /// Directory with libmarline-fi.so.
    #[arg(long)]
    provider_dir: Option<PathBuf>,
}

/// Arguments of the hidden `demo-rank`.
#[derive(clap::Args)]
pub struct RankArgs {
    /// The MPI's library.
    library: PathBuf,
    /// Length of the exchange.
    milliseconds: u64,
}

/// Time between a rank's reports.
const REPORT_EVERY: Duration = Duration::from_millis(250);
/// Shares of packets.
const DROP: &str = "drop=1%";
const CORRUPT: &str = "corrupt=0.2%";
const PACKET_FAULTS: &str = "drops 1%, corrupts 0.2%";
const HOSTS: usize = 2;
const RAILS: usize = 2;
const MTU: u32 = 1_500;

/// The status after Ctrl-C, as of shells.
const INTERRUPTED: u8 = 130;

/// The last lines of the demonstration.
const NEXT: &str = "\
Next
   marline run -- mpiexec -n 4 ./app     your own program, unchanged
   marline lab up                        a cluster like this one, yours to break
   marline lab fault --help              how
   marline doctor                        whether this machine has what Marline needs";

/// Runs one rank.
pub fn rank_main(args: &RankArgs) -> crate::outcome::Uncoded {
    run(&Plan {
        library: args.library.clone(),
        duration: Duration::from_millis(args.milliseconds),
        report_every: REPORT_EVERY,
    })?;
    Ok(0)
}

/// Runs the demonstration.
pub fn main(args: &DemoArgs) -> Ended {
    let mpi = mpi::detect(&args.mpi).coded(Code::MpiUnusable)?;
    let library = library::of(&mpi).coded(Code::MpiUnusable)?;
    let tell = Tell::new();
    tell.bold(
        "Two hosts, two links (rail0, rail1), out of network namespaces; one program that checks \
         every byte it receives.",
    );
    tell.paragraph(&mpi.describe(), 0);
    let shape = Shape {
        hosts: HOSTS,
        rails: RAILS,
        mtu: MTU,
        ipv6: false,
        direct: false,
    };
    let lab = Made::new(&format!("demo{}", std::process::id()), shape).or_code(Code::Lab)?;
    let job = Job {
        mpi: args.mpi.clone(),
        library,
        intel: mpi.kind == Kind::Intel,
        provider_dir: args.provider_dir.clone(),
    };
    let runner = Runner::new(&lab, &tell, job).coded(Code::Lab)?;
    let seconds = Duration::from_secs(args.seconds);
    let story = Story {
        name: name(&mpi),
        runner,
        tell: &tell,
        seconds,
    };
    match story.tell() {
        Err(_) if story.runner.is_interrupted() => Ok(INTERRUPTED),
        ended => ended.coded(Code::Lab),
    }
}

/// The name of an MPI.
fn name(mpi: &Mpi) -> &'static str {
    match mpi.kind {
        Kind::Mpich => "MPICH",
        Kind::Intel => "Intel MPI",
        Kind::OpenMpi5 | Kind::OpenMpi4 => "Open MPI",
    }
}

/// The acts.
struct Story<'a> {
    name: &'static str,
    runner: Runner<'a>,
    tell: &'a Tell,
    seconds: Duration,
}

impl Story<'_> {
    /// Tells the story; returns the exit status.
    fn tell(&self) -> Result<u8, String> {
        let [wrong, stuck] = self.over_tcp()?;
        let ours = self.over_marline()?;
        let healthy = self.healthy()?;
        self.score(&healthy, [&wrong, &stuck], &ours);
        self.tell.line(NEXT);
        if let Some(load) = busy() {
            let said = format!("This machine is busy (load {load:.0}): its rates say little.");
            self.tell.paragraph(&said, 3);
        }
        let good = [&ours, &healthy[0], &healthy[1]];
        if good.iter().all(|outcome| outcome.verdict == Verdict::Right) {
            return Ok(0);
        }
        self.tell.line("");
        self.tell
            .coloured("The story did not end as it should.", Style::Bad);
        Ok(1)
    }

    fn over_tcp(&self) -> Result<[Outcome; 2], String> {
        self.tell.act(&format!("Act 1. {} over TCP", self.name));
        self.tell.scene(
            "The network drops 1% of all packets and corrupts 0.2% in a way that TCP's checksum \
             does not see.",
        );
        self.packet_faults()?;
        let wrong = self.runner.run(Over::Tcp, self.seconds, true, Vec::new())?;
        self.tell
            .scene("The network is healthy, and its link is cut, for good.");
        self.clear()?;
        let cut = vec![Event::new(self.seconds / 4, 0, "down", "CUT")];
        let stuck = self.runner.run(Over::Tcp, self.seconds, false, cut)?;
        Ok([wrong, stuck])
    }

    fn over_marline(&self) -> Result<Outcome, String> {
        self.tell.act(&format!("Act 2. {} over Marline", self.name));
        self.tell.scene(
            "Both at once: the network drops 1%, corrupts 0.2%; rail0 is cut and comes back, then \
             rail1.",
        );
        self.clear()?;
        self.packet_faults()?;
        let half = self.seconds / 2;
        let back = format!("back; {PACKET_FAULTS}");
        let events = vec![
            Event::new(half / 2, 0, "down", "CUT"),
            Event::new(3 * half / 2, 0, "up", &back),
            Event::new(2 * half, 1, "blackhole", "CUT (silently)"),
            Event::new(3 * half, 1, "clear", "back, and healthy"),
        ];
        self.runner
            .run(Over::Marline, 2 * self.seconds, true, events)
    }

    fn healthy(&self) -> Result<[Outcome; 2], String> {
        self.tell
            .act("Act 3. Both on a healthy network, as a machine has it: offload on");
        self.clear()?;
        for rail in 0..RAILS {
            self.runner.order(rail, "offload=on", "")?;
        }
        let (mut tcp, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            for (over, name, runs) in [
                (Over::Tcp, "TCP (one link)", &mut tcp),
                (Over::Marline, "Marline (both links)", &mut ours),
            ] {
                self.tell.scene(&format!("{} over {name}.", self.name));
                runs.push(self.runner.run(over, self.seconds / 2, false, Vec::new())?);
            }
        }
        Ok([together(tcp), together(ours)])
    }

    fn packet_faults(&self) -> Result<(), String> {
        for rail in 0..RAILS {
            self.runner.order(rail, DROP, PACKET_FAULTS)?;
            self.runner.order(rail, CORRUPT, PACKET_FAULTS)?;
        }
        Ok(())
    }

    fn clear(&self) -> Result<(), String> {
        (0..RAILS).try_for_each(|rail| self.runner.order(rail, "clear", ""))
    }

    fn score(&self, [tcp, ours]: &[Outcome; 2], lost: [&Outcome; 2], both: &Outcome) {
        let [wrong, stuck] = lost;
        let heads = [
            format!("{} over TCP", self.name),
            format!("{} over Marline", self.name),
        ];
        let resent = format!("{} resent", both.resent);
        let failovers = format!("{} failovers", both.failovers);
        self.tell.line("");
        self.tell.heads(&heads);
        for (name, (tcp, said), (ours, also)) in [
            ("healthy network", (tcp, tcp.rate()), (ours, ours.rate())),
            ("drops and corrupts", (wrong, String::new()), (both, resent)),
            ("a link is cut", (stuck, String::new()), (both, failovers)),
        ] {
            self.tell
                .row(name, (tcp.verdict, &said), (ours.verdict, &also));
        }
        self.tell.line("");
    }
}

/// The load of the last minute, where it exceeds half of the processors without this demonstration,
/// whose ranks take two.
fn busy() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let load: f64 = text.split(' ').next()?.parse().ok()?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    (load > HOSTS as f64 + processors / 2.0).then_some(load)
}
