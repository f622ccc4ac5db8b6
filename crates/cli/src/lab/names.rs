//! Names and addresses of a lab, of its hosts on each network, and of the switches' ports.

use super::state::Lab;
use clap::Args;

/// Hosts per third octet of an address, so that no address ends in 0 or 255.
const HOSTS_PER_OCTET: usize = 250;

/// The argument that names a lab.
#[derive(Args)]
pub struct Name {
    /// Name of the lab; labs of different names live side by side.
    #[arg(long, default_value = "ml", env = "MARLINE_LAB")]
    pub name: String,
}

/// A host's address on the control network.
pub fn control_address(host: usize) -> String {
    format!("10.99.{}", low_octets(host))
}

/// A host's address on a rail, with its prefix length.
pub fn rail_address(lab: &Lab, host: usize, rail: usize) -> String {
    match lab.shape.ipv6 {
        true => format!("fd00:{:x}::{:x}/64", rail + 1, host + 1),
        false => format!("10.{}.{}/16", 100 + rail, low_octets(host)),
    }
}

/// The switch's end of the cable to a host's rail.
pub fn port_name(host: usize, rail: usize) -> String {
    format!("h{host}r{rail}")
}

fn low_octets(host: usize) -> String {
    format!("{}.{}", host / HOSTS_PER_OCTET, host % HOSTS_PER_OCTET + 1)
}
