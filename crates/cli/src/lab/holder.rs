//! The process that keeps the namespaces of one lab host alive. When it ends they end, and with
//! them every device, address and fault.

use std::io::Write;
use std::path::PathBuf;

/// Arguments of the hidden `lab-holder`.
#[derive(clap::Args)]
pub struct HolderArgs {
    /// Host name to take.
    #[arg(long)]
    hostname: String,
    /// File to show as `/etc/hosts`.
    #[arg(long)]
    hosts_file: Option<PathBuf>,
    /// Use IPv6 in this network namespace.
    #[arg(long)]
    ipv6: bool,
}

/// Sets up the new namespaces in which it was started, prints `ready`, and stays.
pub fn main(args: &HolderArgs) -> crate::outcome::Uncoded {
    // Ctrl-C and hang-up of the terminal must not end the lab.
    let _ = rustix::process::setsid();
    rustix::system::sethostname(args.hostname.as_bytes()).map_err(|e| format!("hostname: {e}"))?;
    if let Some(file) = &args.hosts_file {
        rustix::mount::mount_bind(file, "/etc/hosts").map_err(|e| format!("/etc/hosts: {e}"))?;
    }
    // Makes /sys/class/net show this host's devices. Containers may forbid the mount, on which no
    // program of the lab depends.
    let _ = rustix::mount::mount(
        "sysfs",
        "/sys",
        "sysfs",
        rustix::mount::MountFlags::empty(),
        None,
    );
    set_ipv6(args.ipv6);
    spare_frames();
    println!("ready");
    std::io::stdout().flush().map_err(|e| e.to_string())?;
    loop {
        std::thread::park();
    }
}

/// Keeps frames on bridges out of the host's packet filter. With br_netfilter loaded, as by Docker,
/// each frame would pass the host's tables, which costs a noticeable part of the latency.
fn spare_frames() {
    for table in ["iptables", "ip6tables", "arptables"] {
        // The file exists only with br_netfilter.
        let _ = std::fs::write(format!("/proc/sys/net/bridge/bridge-nf-call-{table}"), "0");
    }
}

/// Sets IPv6 of this namespace. If it is off, its background traffic does not disturb the packet
/// counters. If it is on, addresses work at once (no duplicate address detection) and survive `ip
/// link set down`.
fn set_ipv6(wanted: bool) {
    let settings: &[(&str, &str)] = match wanted {
        true => &[("accept_dad", "0"), ("keep_addr_on_down", "1")],
        false => &[("disable_ipv6", "1")],
    };
    for scope in ["all", "default"] {
        for (name, value) in settings {
            // The file exists only in kernels with IPv6.
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/{name}"), value);
        }
    }
}
