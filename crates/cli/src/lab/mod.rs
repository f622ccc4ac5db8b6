//! `marline lab`: hosts in network namespaces, one switch per rail, a separate control network, and
//! faults made by the kernel.
//!
//! A lab is a tree of holder processes. The first holds the network and mount namespaces of the
//! switches (bridges) and of the launcher; each other one is a host with its own network, host name
//! and mounts. The machine's own namespaces stay untouched, so labs cannot collide with each other
//! or with other software, and killing the processes removes everything.

mod apply;
pub mod enter;
mod fault;
mod forget;
pub mod holder;
pub mod made;
mod names;
mod net;
mod place;
mod run;
mod state;
mod target;

use crate::outcome::{Failure, OrCode};
use clap::{Args, Subcommand};
use enter::Place;
use fault::{Action, Active, Effect};
use marline_codes::Code;
use names::{control_address, rail_address, Name};
use place::Lock;
use state::Lab;
pub use state::Shape;

/// Commands of `marline lab`.
#[derive(Subcommand)]
pub enum LabCommand {
    /// Make a lab.
    Up(UpArgs),
    /// Show hosts, rails, addresses and faults.
    Status(StatusArgs),
    /// Run a command on one host.
    Exec(ExecArgs),
    /// Run an MPI program across the hosts.
    Run(run::LabRunArgs),
    /// Break or mend a rail.
    Fault(FaultArgs),
    /// End a lab and everything that runs in it.
    Down(DownArgs),
}

/// Most rails, as documented in `docs/user-guide.md`; more virtual cables would show nothing new.
const RAILS_MAX: i64 = 8;

/// Arguments of `lab up`.
#[derive(Args)]
pub struct UpArgs {
    #[command(flatten)]
    lab: Name,
    /// Number of hosts.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1000))]
    hosts: u16,
    /// Number of rails, each a network of its own; at most 8, as many as Marline uses.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=RAILS_MAX))]
    rails: u16,
    /// MTU of the rails in bytes.
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(576..=65535))]
    mtu: u32,
    /// Give the rails IPv6 addresses instead of IPv4 ones.
    #[arg(long)]
    ipv6: bool,
    /// Turn segmentation offload off on the rails: every packet of the wire meets faults alone.
    #[arg(long)]
    no_offload: bool,
    /// Join two hosts by one cable per rail, without a switch: 1 to 2 us less a packet, for
    /// measurements; faults are made at the switch, so there are none.
    #[arg(long, conflicts_with = "no_offload")]
    direct: bool,
}

/// Arguments of `lab status`.
#[derive(Args)]
pub struct StatusArgs {
    #[command(flatten)]
    lab: Name,
    /// Also show how many packets each fault hit.
    #[arg(long)]
    counters: bool,
}

/// Arguments of `lab exec`.
#[derive(Args)]
pub struct ExecArgs {
    #[command(flatten)]
    lab: Name,
    /// `h0`, `h1`, …; `ctl` is the launcher's place, with the switches.
    host: String,
    /// The command.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Arguments of `lab fault`.
#[derive(Args)]
#[command(after_help = fault::HELP)]
pub struct FaultArgs {
    #[command(flatten)]
    lab: Name,
    /// Show the faults in force and how many packets each hit.
    #[arg(long)]
    show: bool,
    /// RAIL or HOST:RAIL.
    #[arg(required_unless_present = "show")]
    target: Option<String>,
    /// FAULT [in|out] [port=LO-HI] [for=SECONDS].
    #[arg(required_unless_present = "show")]
    fault: Vec<String>,
}

/// Arguments of `lab down`.
#[derive(Args)]
pub struct DownArgs {
    #[command(flatten)]
    lab: Name,
    /// Every lab of this user.
    #[arg(long)]
    all: bool,
}

/// Runs one of the commands.
pub fn main(command: LabCommand) -> crate::outcome::Outcome {
    let outcome = match command {
        LabCommand::Up(args) => up(&args),
        LabCommand::Status(args) => status(&args),
        LabCommand::Exec(args) => exec(&args),
        LabCommand::Run(args) => return run::main(&args),
        LabCommand::Fault(args) => change_fault(&args),
        LabCommand::Down(args) => down(&args),
    };
    outcome.or_code(Code::Lab)
}

fn up(args: &UpArgs) -> crate::outcome::Uncoded {
    let name = &args.lab.name;
    let shape = Shape {
        hosts: args.hosts.into(),
        rails: args.rails.into(),
        mtu: args.mtu,
        ipv6: args.ipv6,
        direct: args.direct,
    };
    if shape.direct && shape.hosts != 2 {
        let hosts = shape.hosts;
        let text = format!("--direct joins two hosts by cables; {hosts} need a switch");
        return Err(Failure::with(Code::CommandLine, text));
    }
    make(name, shape, !args.no_offload)?;
    let (hosts, rails) = (args.hosts, args.rails);
    println!(
        "lab `{name}` is up: {hosts} host(s), {rails} rail(s), MTU {}",
        args.mtu
    );
    Ok(0)
}

/// Makes a lab.
fn make(name: &str, shape: Shape, offload: bool) -> Result<Lab, Failure> {
    state::check_name(name)?;
    let _lock = Lock::take(name)?;
    let dir = place::base_dir()?.join(name);
    let old = place::look(&dir)?;
    if old.is_some_and(|old| old.is_running()) {
        let text = format!("lab `{name}` is up already: `marline lab down --name {name}` first");
        return Err(text.into());
    }
    // Removes remains of a crash or an interrupted `up`.
    net::end_all(&dir)?;
    place::clear(&dir)?;
    let mut lab = Lab::new(&dir, name, shape);
    net::build(&mut lab, offload)?;
    Ok(lab)
}

fn down(args: &DownArgs) -> crate::outcome::Uncoded {
    let names = if args.all {
        place::names()?
    } else {
        vec![args.lab.name.clone()]
    };
    for name in names {
        match remove(&name)? {
            true => println!("lab `{name}` is down"),
            false => println!("there was no lab `{name}`"),
        }
    }
    Ok(0)
}

/// Ends a lab; returns whether anything of it was there.
fn remove(name: &str) -> Result<bool, Failure> {
    state::check_name(name)?;
    let _lock = Lock::take(name)?;
    let dir = place::base_dir()?.join(name);
    let there = place::look(&dir)?.is_some();
    // Processes may outlive a directory removed by hand.
    let ended = net::end_all(&dir)?;
    if there {
        place::clear(&dir)?;
    }
    Ok(there || ended > 0)
}

fn status(args: &StatusArgs) -> crate::outcome::Uncoded {
    let lab = place::running(&args.lab.name)?;
    let Shape {
        hosts, rails, mtu, ..
    } = lab.shape;
    let how = if lab.shape.direct {
        ", without a switch"
    } else {
        ""
    };
    println!(
        "lab `{}`: {hosts} host(s), {rails} rail(s), MTU {mtu}{how}",
        lab.name
    );
    for host in 0..hosts {
        println!("  h{host}  host name {}", lab.host_name(host));
        println!("      ctl    {}", control_address(host));
        for (rail, name) in lab.rail_names().iter().enumerate() {
            println!("      {name:<6} {}", rail_address(&lab, host, rail));
        }
    }
    for rail in &lab.no_offload {
        println!("  rail{rail}  segmentation offload off");
    }
    print_faults(&lab, args.counters)?;
    Ok(0)
}

fn print_faults(lab: &Lab, with_counters: bool) -> Result<(), Failure> {
    if lab.faults.is_empty() {
        println!("  no faults");
    } else if with_counters {
        for (text, packets) in apply::counters(lab)? {
            match packets {
                Some(packets) => println!("  fault {text}: {packets} packets"),
                None => println!("  fault {text} (not counted)"),
            }
        }
    } else {
        for fault in &lab.faults {
            println!("  fault {}", fault.describe());
        }
    }
    Ok(())
}

fn exec(args: &ExecArgs) -> crate::outcome::Uncoded {
    use std::os::unix::process::CommandExt;
    let lab = place::running(&args.lab.name)?;
    let place = match args.host.as_str() {
        net::CONTROL => Place::Switch,
        host => Place::Host(lab.find_host(host)?),
    };
    let mut command = enter::enter(&lab, place)?;
    command.args(&args.command);
    let error = command.exec();
    Err(crate::tool::no_tool(&command, &error))
}

fn change_fault(args: &FaultArgs) -> crate::outcome::Uncoded {
    let name = &args.lab.name;
    if let Some(target) = &args.target {
        order(name, target, &args.fault)?;
    }
    if args.show {
        print_faults(&place::running(name)?, true)?;
    }
    Ok(0)
}

/// Breaks or mends a rail by the words of a command line.
fn order(name: &str, target: &str, words: &[String]) -> Result<(), Failure> {
    state::check_name(name)?;
    let _lock = Lock::take(name)?;
    let mut lab = place::running(name)?;
    if lab.shape.direct {
        let text = format!(
            "lab `{name}` has no switch, where faults are made: `marline lab up` without --direct"
        );
        return Err(text.into());
    }
    let wrong = |text| Failure::with(Code::CommandLine, text);
    let target = target::parse_target(&lab, target).map_err(wrong)?;
    let order = fault::parse_order(words).map_err(wrong)?;
    order_fault(&mut lab, target, &order)
}

/// A span of `seconds` that begins at the second full second from now, at least one second ahead,
/// so that the kernel's rules are in place by then.
fn coming(seconds: u64) -> (u64, u64) {
    let from = unix_s() + 2;
    (from, from + seconds)
}

fn unix_s() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |t| t.as_secs())
}

/// Reports when an installed fault takes effect, if not at once.
fn in_time(span: fault::Span) -> Result<(), String> {
    let Some((from, until)) = span else {
        return Ok(());
    };
    if unix_s() >= from {
        return Err("the machine took more than a second to make the fault: try again".into());
    }
    println!("from {from} until {until} (seconds of UNIX time)");
    Ok(())
}

fn order_fault(lab: &mut Lab, target: target::Target, order: &fault::Order) -> Result<(), Failure> {
    let hit = |f: &Active| f.rail == target.rail && target.host.is_none_or(|h| h == f.host);
    let mut wanted = lab.faults.clone();
    let mut span = None;
    match order.action {
        Action::Up => {
            wanted.retain(|f| !hit(f) || !matches!(f.effect, Effect::Down | Effect::IfDown))
        }
        Action::Clear => wanted.retain(|f| !hit(f) || order.dir.is_some_and(|d| d != f.dir)),
        Action::Set(Effect::Mtu(_)) if !lab.no_offload.contains(&target.rail) => {
            let rail = target.rail;
            return Err(format!(
                "with segmentation offload the switch sees packets of up to 64 KB, whatever is on \
                 the wire: `marline lab fault {rail} offload=off` first"
            )
            .into());
        }
        Action::Set(effect) => {
            span = order.for_s.map(coming);
            for fault in target::expand(lab, target, effect, order, span) {
                wanted.retain(|f| f.id() != fault.id());
                wanted.push(fault);
            }
        }
        Action::Offload(_) if target.host.is_some() => {
            return Err("offload is set for a whole rail: give RAIL, not HOST:RAIL".into());
        }
        Action::Offload(on) => {
            apply::set_offload(lab, target.rail, on)?;
            lab.no_offload.retain(|&r| r != target.rail);
            if !on {
                lab.no_offload.push(target.rail);
            }
            return Ok(lab.save()?);
        }
    }
    let before = lab.faults.clone();
    let made = apply::change(lab, wanted).and_then(|()| Ok(in_time(span)?));
    made.map_err(|error| {
        // A partial change is undone: the previous faults are restored.
        match apply::change(lab, before) {
            Ok(()) => error,
            Err(also) => format!("{}; and undoing it: {}", error.text(), also.text()).into(),
        }
    })
}
