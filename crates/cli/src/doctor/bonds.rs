//! Findings on bonds, from the kernel's page of each.

use super::finding::Finding;
use marline_codes::Code;
use marline_rails::InterfaceChoice;

/// Findings on the bonds among these interfaces.
pub fn findings(interfaces: &[InterfaceChoice]) -> Vec<Finding> {
    let page = |name: &str| std::fs::read_to_string(format!("/proc/net/bonding/{name}")).ok();
    let bonds = interfaces
        .iter()
        .filter_map(|i| Some((&i.name, page(&i.name)?)));
    bonds
        .flat_map(|(name, page)| of_page(name, &page))
        .collect()
}

/// Findings on one bond.
fn of_page(name: &str, page: &str) -> Vec<Finding> {
    let value = |line: &'_ str, key: &str| line.strip_prefix(key).map(|v| v.trim().to_owned());
    let mode = page.lines().find_map(|line| value(line, "Bonding Mode:"));
    let mode = mode.unwrap_or_else(|| "unknown".to_owned());
    let (mut ports, mut down) = (Vec::new(), Vec::new());
    for line in page.lines() {
        if let Some(port) = value(line, "Slave Interface:") {
            ports.push(port);
        } else if value(line, "MII Status:").is_some_and(|state| state != "up") {
            down.extend(ports.last().cloned());
        }
    }
    let what = format!("{name} is a bond of {} ({mode})", ports.join(", "));
    let mut all = vec![Finding::good(what)
        .because("a path is one flow and uses one port; ports with addresses are rails each")];
    for port in down {
        let finding =
            Finding::warning(Code::RailDown, format!("{port}, a port of {name}, is down"));
        all.push(finding.mend(format!("ethtool {port}")));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::finding::text;
    use super::*;

    #[test]
    fn a_dead_port_of_a_bond_is_named() {
        let page = "Ethernet Channel Bonding Driver: v6.1\n\nBonding Mode: IEEE 802.3ad\n\
                    MII Status: up\n\nSlave Interface: eth0\nMII Status: up\n\n\
                    Slave Interface: eth1\nMII Status: down\n";
        let said = text(&of_page("bond0", page));
        assert!(
            said.contains("bond0 is a bond of eth0, eth1 (IEEE 802.3ad)"),
            "{said}"
        );
        assert!(
            said.contains(
                "warning: eth1, a port of bond0, is down [MARLINE-E203]\n    ethtool eth1"
            ),
            "{said}"
        );
        assert!(!said.contains("eth0, a port"), "{said}");
    }
}
