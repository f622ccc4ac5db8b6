//! Findings on this host alone.

use super::finding::Finding;
use super::limits::Limits;
use super::{bonds, roce, subnets};
use crate::run::provider;
use marline_codes::Code;
use marline_engine::settings::Settings;
use marline_rails::{choose_rails, InterfaceChoice, RailChoice, RailsConfig, UdpConfig};

/// The setting that names rails.
pub const RAILS: &str = "FI_MARLINE_RAILS";

/// The setting's value; empty if it is not set.
pub fn named_rails() -> String {
    std::env::var(RAILS).unwrap_or_default()
}

/// The settings of rails that a job would have here.
pub fn config() -> RailsConfig {
    // (Starting a job reports a malformed setting.)
    let settings = Settings::from_env().unwrap_or_default();
    let udp = UdpConfig {
        ports: settings.rail_ports(),
        ..UdpConfig::default()
    };
    RailsConfig {
        udp,
        xdpd: settings.xdpd.into(),
        ..RailsConfig::default()
    }
}

fn choices(named: &str) -> Result<Vec<RailChoice>, String> {
    let names: Vec<String> = named.split(',').map(str::to_owned).collect();
    choose_rails(&names)
}

/// The interfaces of rails over IP that lead to other hosts, each once, with the reason why one
/// cannot carry at present.
pub fn rails(named: &str) -> Result<Vec<(InterfaceChoice, Option<String>)>, String> {
    let mut found: Vec<(InterfaceChoice, Option<String>)> = Vec::new();
    for choice in choices(named)? {
        let one = &choice.interface;
        let known = |(i, _): &(InterfaceChoice, _)| (&i.name, i.ip) == (&one.name, one.ip);
        let usable = !one.ip.is_unspecified() && !one.loopback;
        if usable && !found.iter().any(known) {
            // A rail past the stack has a UDP rail in its place.
            let why = choice
                .instead()
                .unwrap_or(choice.clone())
                .complaint(&config());
            found.push((one.clone(), why));
        }
    }
    Ok(found)
}

/// Findings on this host with this value of the setting.
pub fn findings(named: &str) -> Vec<Finding> {
    let mut all = Vec::new();
    match choices(named) {
        Ok(rails) => all.extend(rails.iter().filter_map(state)),
        Err(why) => {
            let set = match named.trim() {
                "" => String::new(),
                named => format!(" of {RAILS}={named}"),
            };
            all.push(Finding::broken(Code::NoRail, format!("there is no rail{set}")).because(why));
        }
    }
    let interfaces = rails(named).unwrap_or_default();
    let interfaces: Vec<InterfaceChoice> = interfaces.into_iter().map(|(i, _)| i).collect();
    all.extend(subnets::on_one_host(&interfaces, &subnets::kernel));
    all.extend(bonds::findings(&interfaces));
    all.extend(Limits::read().findings());
    all.extend(roce::Places::here().findings());
    all.extend(library());
    all
}

/// A finding on a rail that cannot carry at present.
fn state(choice: &RailChoice) -> Option<Finding> {
    let (name, why) = (choice.name(), choice.complaint(&config())?);
    let port = &choice.interface.name;
    if choice.is_awaited() {
        return Some(Finding::good(format!("{name} is waited for")).because(why));
    }
    if choice.instead().is_some() {
        let finding = Finding::warning(Code::RailInstead, format!("{name} would be a UDP rail"));
        return Some(finding.because(why));
    }
    let mend = match choice.interface.ip.is_unspecified() {
        true => String::new(), // a verbs port, whose reason has the step
        false => {
            format!("ip link set {port} up    # then its cable and switch port: ethtool {port}")
        }
    };
    let finding = Finding::broken(Code::RailDown, format!("{name} is down")).because(why);
    Some(finding.mend(mend))
}

/// A finding on a provider library of another version than this command.
fn library() -> Option<Finding> {
    let dir = provider::find_dir(None).ok()?;
    let file = dir.join("libmarline-fi.so");
    let bytes = std::fs::read(&file).ok()?;
    let version = marline_version::TEXT;
    let same = memchr::memmem::find(&bytes, version.as_bytes()).is_some();
    let what = format!("{} is of another version", file.display());
    let finding =
        Finding::warning(Code::VersionsDiffer, what).because(format!("this command is {version}"));
    (!same).then(|| finding.mend("install both from one package"))
}

#[cfg(test)]
mod tests {
    use super::super::finding::{exit_status, text};
    use super::*;

    #[test]
    fn rails_that_are_not_there_are_broken() {
        let all = findings("not-here");
        let said = text(&all);
        assert!(
            said.contains("no rail of FI_MARLINE_RAILS=not-here"),
            "{said}"
        );
        assert_eq!(exit_status(&all), 2);
    }

    #[test]
    fn the_loopback_interface_leads_to_no_other_host() {
        assert_eq!(rails("lo,tcp:lo"), Ok(Vec::new()));
        assert!(rails("not-here").is_err());
    }
}
