//! `marline doctor`: what this host lacks, or several hosts and the networks between them.
//!
//! On one host [`local`] finds and [`inventory`] lists. For several, [`launch`] starts an
//! [`agent`] on each, [`coordinate`] leads them through the steps, and [`hosts`] and [`paths`] make
//! findings of the facts.

mod agent;
mod bonds;
mod connect;
mod coordinate;
mod dcb;
mod endpoint;
mod facts;
mod finding;
mod hostlist;
mod hosts;
mod inventory;
mod launch;
mod limits;
mod local;
mod measure;
mod messages;
mod packet;
mod paths;
mod places;
mod roce;
mod schedule;
mod session;
mod show;
mod subnets;

use finding::{arrange, exit_status};
use marline_engine::settings::Settings;
pub use show::Examined;

/// The end of `marline doctor --help`.
pub const AFTER_HELP: &str = "\
Exit status: 0 good, 1 warnings, 2 broken, 125 the examination was not possible.

Examples:
  marline doctor                                this host
  marline doctor --hosts n[1-8]                 by ssh
  marline doctor --slurm                        the hosts of an allocation
  marline doctor --hosts h0,h1 --launch 'marline lab exec {host} --'";

/// Arguments of `doctor`.
#[derive(clap::Args)]
pub struct DoctorArgs {
    /// Print the rules that let a job through the firewalls of its hosts instead (nft, firewalld),
    /// for the ports in FI_MARLINE_PORTS.
    #[arg(long)]
    firewall: bool,
    /// Examine these hosts and the networks between them: `a,b`, `n[1-8]`, or a file of such lines.
    #[arg(long, value_name = "LIST", group = "where")]
    hosts: Option<String>,
    /// Examine the hosts of this Slurm job.
    #[arg(long, group = "where")]
    slurm: bool,
    /// Start the command on a host by these words instead of `ssh {host}`.
    #[arg(long, value_name = "COMMAND", requires = "where")]
    launch: Option<String>,
    /// The command on the other hosts; default: the path of this one.
    #[arg(long, value_name = "PATH", requires = "where")]
    marline: Option<String>,
    /// As one JSON object.
    #[arg(long)]
    json: bool,
    /// Answer the requests of a coordinator.
    #[arg(long, hide = true)]
    agent: bool,
}

/// Prints what was found. The exit status is that of the heaviest finding.
pub fn main(args: &DoctorArgs) -> crate::outcome::Uncoded {
    if args.agent {
        return agent::main();
    }
    if args.firewall {
        let rules = inventory::firewall(Settings::from_env()?.ports.0)?;
        crate::tool::print(&rules)?;
        return Ok(0);
    }
    if args.slurm || args.hosts.is_some() {
        return several(args);
    }
    let named = local::named_rails();
    let findings = arrange(local::findings(&named));
    let text = match args.json {
        true => show::local_json(&findings)?,
        false => {
            let inventory = inventory::text(&named);
            format!("{inventory}{}", finding::text(&findings))
        }
    };
    crate::tool::print(&text)?;
    Ok(exit_status(&findings))
}

fn several(args: &DoctorArgs) -> crate::outcome::Uncoded {
    let names = match &args.hosts {
        Some(list) => hostlist::hosts(list)?,
        None => launch::slurm_hosts()?,
    };
    let by = launch::By::of(args.launch.as_deref(), args.slurm, args.marline.as_deref())?;
    let how = coordinate::How {
        rails: std::env::var(local::RAILS)
            .ok()
            .filter(|r| !r.trim().is_empty()),
        ports: Settings::from_env()?.ports.0,
    };
    let cluster = coordinate::examine(&names, &by, &how);
    let mut findings = hosts::findings(&cluster);
    findings.extend(subnets::findings(&cluster));
    findings.extend(paths::findings(&cluster));
    let findings = arrange(findings);
    let text = match args.json {
        true => show::json(&cluster, &findings)?,
        false => show::text(&cluster, &findings),
    };
    crate::tool::print(&text)?;
    Ok(exit_status(&findings))
}
