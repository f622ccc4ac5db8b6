//! `marline xdpd`: lends rails past the kernel's stack to processes without the privilege.

use crate::tool;
use marline_codes::{Code, Coded};
use marline_rails::{XdpService, XdpServiceConfig};
use std::path::PathBuf;

/// Text after the options.
pub const AFTER_HELP: &str = "\
It attaches its program to each interface, and needs CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW for \
that. Root and members of the groups get sockets by which they can send any packet.

  marline xdpd --interface eth0 --group hpc";

/// Arguments of `xdpd`.
#[derive(clap::Args)]
pub struct XdpdArgs {
    /// Interface whose rails are lent; may be repeated.
    #[arg(long, value_name = "NAME", required = true)]
    interface: Vec<String>,
    /// Group (name or number) whose members may use the service, beside root and the user of the
    /// service; may be repeated.
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
    /// Path of the service's socket; jobs with another one need FI_MARLINE_XDPD.
    #[arg(long, value_name = "PATH", default_value = "/run/marline/xdpd.sock")]
    socket: PathBuf,
    /// Most rails of one user at a time.
    #[arg(long, value_name = "N", default_value_t = 16)]
    max_sockets: usize,
    /// Ports that may be lent; jobs then need the same FI_MARLINE_PORTS.
    #[arg(long, value_name = "LO-HI", default_value = "1024-65535", value_parser = ports)]
    ports: (u16, u16),
}

/// Serves until the process is ended.
pub fn main(args: &XdpdArgs) -> crate::outcome::Outcome {
    let config = XdpServiceConfig {
        interfaces: args.interface.clone(),
        groups: args.group.clone(),
        socket: args.socket.clone(),
        sockets_max: args.max_sockets,
        ports: args.ports,
    };
    let log = |line: &str| tool::note(&format!("xdpd: {line}"));
    let service = XdpService::open(&config, Box::new(log));
    service.coded(Code::CannotStart)?.run()
}

/// Two ports, the lower first.
fn ports(text: &str) -> Result<(u16, u16), String> {
    let ends = text.split_once('-');
    let ends = ends.and_then(|(least, most)| Some((least.parse().ok()?, most.parse().ok()?)));
    ends.filter(|(least, most)| 0 < *least && least <= most)
        .ok_or_else(|| "two ports from 1 to 65535, the lower first".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_two_numbers() {
        assert_eq!(ports("20000-20100"), Ok((20_000, 20_100)));
        assert_eq!(ports("7-7"), Ok((7, 7)));
        for bad in ["", "7", "8-7", "0-7", "7-70000", "a-b", "1-2-3"] {
            assert!(ports(bad).is_err(), "{bad}");
        }
    }
}
