//! The fault `forget`: a middlebox forgets the connections and ports that a host has at the time of
//! the order. A repeated order adds those that the host has by then. nft sets hold them.

use super::enter::{run_in, Place};
use super::fault::Active;
use super::state::Lab;
use crate::outcome::Failure;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The state of a listening TCP socket in the kernel's tables.
const LISTENS: &str = "0A";

/// A host's sockets: local and remote port of TCP connections, local ports of UDP.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sockets {
    tcp: BTreeSet<(u16, u16)>,
    udp: BTreeSet<u16>,
}

impl Sockets {
    /// Adds the entries of a kernel table such as `/proc/net/tcp`.
    fn take(&mut self, table: &str, tcp: bool) {
        let port = |text: &str| u16::from_str_radix(text.rsplit_once(':')?.1, 16).ok();
        for line in table.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, local, remote, state, ..] = words[..] else {
                continue;
            };
            match (port(local), port(remote)) {
                (Some(local), Some(remote)) if tcp && state != LISTENS => {
                    self.tcp.insert((local, remote));
                }
                (Some(local), _) if !tcp => {
                    self.udp.insert(local);
                }
                _ => {}
            }
        }
    }
}

/// The names of a fault's sets for TCP and UDP.
fn sets(id: &str) -> [String; 2] {
    ["tcp", "udp"].map(|kind| format!("{id}_{kind}"))
}

/// Adds the two sets of a fault unless they exist.
pub fn add_sets(script: &mut String, id: &str) {
    let types = ["inet_service . inet_service", "inet_service"];
    for (set, of) in sets(id).iter().zip(types) {
        let _ = writeln!(script, "add set netdev marline {set} {{ type {of}; }}");
    }
}

/// Deletes the two sets of a fault.
pub fn delete_sets(script: &mut String, id: &str) {
    for set in sets(id) {
        let _ = writeln!(script, "delete set netdev marline {set}");
    }
}

/// Matches packets of the sets' connections and ports.
pub fn matches(id: &str) -> [String; 2] {
    let [tcp, udp] = sets(id);
    [
        format!("meta l4proto tcp th sport . th dport @{tcp} "),
        format!("meta l4proto udp th sport @{udp} "),
    ]
}

/// Adds the host's current connections and ports to the sets.
pub fn elements(lab: &Lab, fault: &Active, script: &mut String) -> Result<(), Failure> {
    let mut sockets = Sockets::default();
    for (table, tcp) in [
        ("tcp", true),
        ("tcp6", true),
        ("udp", false),
        ("udp6", false),
    ] {
        let file = format!("/proc/net/{table}");
        let listed = run_in(lab, Place::Host(fault.host), &["cat", &file], "")?;
        sockets.take(&listed, tcp);
    }
    let [tcp, udp] = sets(&fault.id());
    let pairs = sockets
        .tcp
        .iter()
        .map(|(from, to)| format!("{from} . {to}"));
    let ports = sockets.udp.iter().map(u16::to_string);
    for (set, all) in [(tcp, pairs.collect::<Vec<_>>()), (udp, ports.collect())] {
        if !all.is_empty() {
            let all = all.join(", ");
            let _ = writeln!(script, "add element netdev marline {set} {{ {all} }}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_read_from_the_kernels_tables() {
        let tcp = "  sl  local_address rem_address   st tx_queue\n\
                   \x20  0: 00000000:07E8 00000000:0000 0A 00000000:00000000\n\
                   \x20  1: 0100640A:8471 0200640A:DF4A 01 00000000:00000000\n";
        let udp = "  sl  local_address rem_address   st tx_queue\n\
                   \x20  9: 0100640A:0100 00000000:0000 07 00000000:00000000\n";
        let mut sockets = Sockets::default();
        sockets.take(tcp, true);
        sockets.take(udp, false);
        sockets.take("", true);
        let expected = Sockets {
            tcp: [(0x8471, 0xdf4a)].into(),
            udp: [0x100].into(),
        };
        assert_eq!(sockets, expected);
    }
}
