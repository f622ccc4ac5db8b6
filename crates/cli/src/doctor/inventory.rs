//! The rails of this machine, and reasons why others are missing.

use super::limits;
use super::local::{config, RAILS};
use marline_engine::settings::Settings;
use marline_rails::{
    choose_interfaces, choose_rails, receive_buffer, unused_interfaces, verbs_ports, with_paths,
    RailChoice,
};

/// All of this host's rails, and what the setting `named` means.
pub fn text(named: &str) -> String {
    format!("{}{}", report(), meaning(named))
}

/// Firewall rules for the ports of a job, as commands.
pub fn firewall(ports: Option<(u16, u16)>) -> Result<String, String> {
    let Some((least, most)) = ports else {
        return Err(
            "set FI_MARLINE_PORTS=LO-HI, for all hosts of the job: without it the ports are any, \
             and a firewall cannot tell them from others"
                .to_owned(),
        );
    };
    Ok(format!(
        "# nft: in the table and chain that drops what comes in\n\
         nft insert rule inet filter input udp dport {least}-{most} accept\n\
         nft insert rule inet filter input tcp dport {least}-{most} accept\n\
         # firewalld\n\
         firewall-cmd --permanent --add-port={least}-{most}/udp --add-port={least}-{most}/tcp\n\
         firewall-cmd --reload\n"
    ))
}

/// The rails that the setting selects at present; empty if the setting is empty.
fn meaning(named: &str) -> String {
    if named.trim().is_empty() {
        return String::new();
    }
    let mut text = format!("{RAILS}={named} means\n");
    let names: Vec<String> = named.split(',').map(str::to_owned).collect();
    // (Starting a job reports a malformed setting.)
    let paths = Settings::from_env().map_or(1, |settings| settings.verbs_paths);
    match choose_rails(&names).and_then(|rails| with_paths(rails, paths)) {
        Ok(rails) => rails
            .iter()
            .for_each(|rail| text += &format!("  {}\n", state(rail))),
        Err(why) => text += &format!("  nothing that can be used: {why}\n"),
    }
    text
}

/// A rail, and whether it would carry messages at present.
fn state(rail: &RailChoice) -> String {
    let (name, interface) = (rail.name(), &rail.interface);
    match (rail.is_awaited(), rail.complaint(&config())) {
        (true, _) if name.contains("later:") => format!("{name}: waits for what may come"),
        (true, Some(why)) => format!("{name}: is waited for: {why}"),
        (false, Some(why)) if name.starts_with("xdp:") => format!("{name}: {why}; it would be UDP"),
        (false, Some(why)) => format!("{name}: {why}"),
        _ if interface.ip.is_unspecified() => name,
        _ => {
            let facts = rail
                .facts(&config())
                .map_or(String::new(), |facts| format!(", {facts}"));
            format!("{name} ({}), MTU {}{facts}", interface.ip, interface.mtu)
        }
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
    text += &buffers(receive_buffer(limits::BUFFER));
    text += "InfiniBand and RoCE, by FI_MARLINE_RAILS=ud:NAME, rc:NAME or uc:NAME\n";
    match verbs_ports() {
        Ok(ports) => {
            ports.iter().for_each(|port| text += &format!("  {port}\n"));
            let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
            text += &locked(&limits);
        }
        Err(why) => text += &format!("  none: {why}\n"),
    }
    text
}

/// The receive buffer of a UDP rail as granted by the kernel.
fn buffers(given: Option<usize>) -> String {
    // The kernel reports twice the requested size.
    match given.map(|bytes| bytes / 2) {
        Some(bytes) if bytes >= limits::BUFFER => "  receive buffers: 8 MiB\n".into(),
        Some(bytes) => format!("  receive buffers: {} KiB instead of 8 MiB\n", bytes >> 10),
        None => String::new(),
    }
}

/// The limit on locked memory from the kernel's table of process limits.
fn locked(limits: &str) -> String {
    match limits::soft(limits, limits::LOCKED_ROW) {
        None => String::new(),
        Some(Err(word)) => format!("  locked memory: {word}\n"),
        Some(Ok(bytes)) => {
            let kib = bytes >> 10;
            format!("  locked memory: {kib} KiB for each process (but root's)\n")
        }
    }
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
    fn a_report_is_possible_on_any_machine() {
        let report = report();
        assert!(report.starts_with("UDP and TCP"), "{report}");
        assert!(report.contains("\nInfiniBand and RoCE"), "{report}");
    }

    #[test]
    fn limits_are_listed() {
        let row =
            |soft| format!("Limit Soft Hard Units\nMax locked memory  {soft}  unlimited  bytes\n");
        assert_eq!(locked(&row("unlimited")), "  locked memory: unlimited\n");
        assert!(locked(&row("65536")).contains(": 64 KiB for each"));
        assert_eq!(locked("nothing of the kind\n"), "");
        let own = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
        assert!(own.is_empty() || !locked(&own).is_empty(), "{own}");
        assert_eq!(buffers(Some(16 << 20)), "  receive buffers: 8 MiB\n");
        assert!(buffers(Some(425_984)).contains(": 208 KiB instead"));
        assert!(report().contains("\n  receive buffers: "), "{}", report());
    }

    #[test]
    fn the_rails_setting_is_explained() {
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
        assert_eq!(
            meaning("xdp:lo").lines().last(),
            Some("  xdp:lo: lo (127.0.0.1) is the loopback interface; it would be UDP")
        );
        assert!(meaning("not-here").contains("nothing that can be used: no interface"));
    }
}
