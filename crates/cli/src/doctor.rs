//! `marline doctor`: which rails this machine has, and why others are not there.

use marline_rails::{choose_interfaces, choose_rails, unused_interfaces, verbs_ports, RailChoice};

/// Prints the report; the exit status is 0, as missing adapters are no fault.
pub fn main() -> Result<u8, String> {
    let named = std::env::var(RAILS).unwrap_or_default();
    print!("{}{}", report(), meaning(&named));
    Ok(0)
}

/// The setting that names rails.
const RAILS: &str = "FI_MARLINE_RAILS";

/// The rails that the setting means here and now; nothing where it is empty.
fn meaning(named: &str) -> String {
    if named.trim().is_empty() {
        return String::new();
    }
    let mut text = format!("{RAILS}={named} means\n");
    let names: Vec<String> = named.split(',').map(str::to_owned).collect();
    match choose_rails(&names) {
        Ok(rails) => rails
            .iter()
            .for_each(|rail| text += &format!("  {}\n", state(rail))),
        Err(why) => text += &format!("  nothing that can be used: {why}\n"),
    }
    text
}

/// A rail, and whether it would carry now.
fn state(rail: &RailChoice) -> String {
    let (name, interface) = (rail.name(), &rail.interface);
    match (rail.is_awaited(), rail.complaint()) {
        (true, _) if name.contains("later:") => format!("{name}: waits for what may come"),
        (true, Some(why)) => format!("{name}: is waited for: {why}"),
        (false, Some(why)) => format!("{name}: {why}"),
        _ if interface.ip.is_unspecified() => name,
        _ => format!("{name} ({}), MTU {}", interface.ip, interface.mtu),
    }
}

fn report() -> String {
    let mut text = "UDP and TCP, by FI_MARLINE_RAILS=NAME or tcp:NAME\n".to_owned();
    match choose_interfaces(&[]) {
        Ok(interfaces) => {
            for one in interfaces {
                let (mtu, bits) = (one.mtu, one.bytes_per_s / 125_000);
                text += &format!("  {one}, MTU {mtu}{}\n", rate(bits));
            }
        }
        Err(why) => text += &format!("  none: {why}\n"),
    }
    for one in unused_interfaces() {
        text += &format!("  not used: {one}\n");
    }
    text += "InfiniBand and RoCE, by FI_MARLINE_RAILS=ud:NAME, rc:NAME or uc:NAME\n";
    match verbs_ports() {
        Ok(ports) => ports.iter().for_each(|port| text += &format!("  {port}\n")),
        Err(why) => text += &format!("  none: {why}\n"),
    }
    text
}

fn rate(mbit: u64) -> String {
    match mbit {
        0 => String::new(),
        mbit => format!(", {mbit} Mbit/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reports_whatever_the_machine_has() {
        let report = report();
        assert!(report.starts_with("UDP and TCP"), "{report}");
        assert!(report.contains("\nInfiniBand and RoCE"), "{report}");
    }

    #[test]
    fn it_says_what_the_setting_means_here() {
        assert_eq!(meaning(" "), "");
        let shown = meaning("lo,later:not-here,tcp:later:not*,shm");
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[1].starts_with("  lo (127.0.0.1), MTU "), "{shown}");
        assert_eq!(
            lines[2..],
            [
                "  not-here: is waited for: there is no such interface",
                "  tcp:later:not*#1: waits for what may come",
                "  tcp:later:not*#2: waits for what may come",
                "  shm",
            ]
        );
        assert!(meaning("not-here").contains("nothing that can be used: no interface"));
    }
}
