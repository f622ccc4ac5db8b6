//! Findings on bonds, from the kernel's page of each.

use super::finding::Finding;
use marline_codes::Code;
use marline_rails::InterfaceChoice;
use std::collections::BTreeMap;

/// The partner's address in a page while no LACP packet has come.
const NO_PARTNER: &str = "00:00:00:00:00:00";

/// A port in a bond's page.
#[derive(Default)]
struct Port {
    name: String,
    up: bool,
    /// Number of its aggregator (802.3ad).
    aggregator: Option<String>,
}

/// A bond's page.
struct Page {
    mode: String,
    ports: Vec<Port>,
    /// The active aggregator and its partner's address; only root sees them.
    active: Option<String>,
    partner: Option<String>,
}

/// Findings on the bonds among these interfaces.
pub fn findings(interfaces: &[InterfaceChoice]) -> Vec<Finding> {
    let page = |name: &str| std::fs::read_to_string(format!("/proc/net/bonding/{name}")).ok();
    let bonds = interfaces
        .iter()
        .filter_map(|i| Some((&i.name, page(&i.name)?)));
    bonds
        .flat_map(|(name, page)| Page::read(&page).findings(name))
        .collect()
}

impl Page {
    fn read(text: &str) -> Page {
        let mut page = Page {
            mode: "unknown".to_owned(),
            ports: Vec::new(),
            active: None,
            partner: None,
        };
        for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
            page.enter(key.trim(), value.trim().to_owned());
        }
        page
    }

    fn enter(&mut self, key: &str, value: String) {
        match (key, self.ports.last_mut()) {
            ("Bonding Mode", _) => self.mode = value,
            ("Slave Interface", _) => self.ports.push(Port {
                name: value,
                ..Port::default()
            }),
            ("MII Status", Some(port)) => port.up = value == "up",
            ("Aggregator ID", Some(port)) => port.aggregator = Some(value),
            ("Aggregator ID", None) => self.active = Some(value),
            ("Partner Mac Address", _) => self.partner = Some(value),
            _ => {}
        }
    }

    fn findings(&self, name: &str) -> Vec<Finding> {
        let what = format!("{name} is a bond of {} ({})", list(&self.ports), self.mode);
        let mut all = vec![Finding::good(what)
            .because("a path is one flow and uses one port; ports with addresses are rails each")];
        for Port { name: port, .. } in self.ports.iter().filter(|port| !port.up) {
            let what = format!("{port}, a port of {name}, is down");
            let finding = Finding::warning(Code::RailDown, what);
            all.push(finding.mend(format!("ethtool {port}")));
        }
        all.extend(self.apart(name));
        all
    }

    /// A finding on ports with several LACP partners, or none: one aggregator alone carries.
    fn apart(&self, name: &str) -> Option<Finding> {
        let mut aggregators: BTreeMap<&str, Vec<&Port>> = BTreeMap::new();
        for port in self.ports.iter().filter(|port| port.up) {
            let aggregator = port.aggregator.as_deref()?;
            aggregators.entry(aggregator).or_default().push(port);
        }
        let idle = |ports: &Vec<&Port>| list(ports.iter().copied());
        let what = match self.active.as_deref() {
            _ if aggregators.len() < 2 => return None,
            Some(active) => {
                let others = aggregators.iter().filter(|(at, _)| **at != active);
                let others: Vec<String> = others.map(|(_, ports)| idle(ports)).collect();
                format!("{name} carries nothing over {}", others.join(", "))
            }
            None => {
                let all: Vec<String> = aggregators.values().map(idle).collect();
                format!("{name} carries over one of {} alone", all.join(" and "))
            }
        };
        let reason = match self.partner.as_deref() == Some(NO_PARTNER) {
            true => "no LACP comes from the switch",
            false => "the ports have several LACP partners",
        };
        let mend = "on the switch: one LAG with LACP for all ports of the bond";
        let look = format!("{mend}\ncat /proc/net/bonding/{name}    # as root: partners");
        Some(
            Finding::warning(Code::RailDown, what)
                .because(reason)
                .mend(look),
        )
    }
}

/// The names of ports.
fn list<'a>(ports: impl IntoIterator<Item = &'a Port>) -> String {
    let names: Vec<&str> = ports.into_iter().map(|port| &*port.name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::finding::text;
    use super::*;

    fn said(page: &str) -> String {
        text(&Page::read(page).findings("bond0")).replace("\n  ", " ")
    }

    #[test]
    fn a_dead_port_of_a_bond_is_named() {
        let page = "Ethernet Channel Bonding Driver: v6.1\n\nBonding Mode: IEEE 802.3ad\n\
                    MII Status: up\n\nSlave Interface: eth0\nMII Status: up\n\n\
                    Slave Interface: eth1\nMII Status: down\n";
        let said = said(page);
        assert!(
            said.contains("bond0 is a bond of eth0, eth1 (IEEE 802.3ad)"),
            "{said}"
        );
        assert!(
            said.contains("warning: eth1, a port of bond0, is down [MARLINE-E203]   ethtool eth1"),
            "{said}"
        );
        assert!(!said.contains("eth0, a port"), "{said}");
    }

    /// A page of two ports with these aggregators, and what root sees in addition.
    fn page(root: &str, second: &str) -> String {
        let port = |name, at| {
            format!("Slave Interface: {name}\nMII Status: up\nAggregator ID: {at}\nspeed: 1\n\n")
        };
        let mode = "Bonding Mode: IEEE 802.3ad Dynamic link aggregation\nMII Status: up\n";
        format!(
            "{mode}{root}\n{}{}",
            port("eth0", "1"),
            port("eth1", second)
        )
    }

    fn active(partner: &str) -> String {
        format!(
            "Active Aggregator Info:\n\tAggregator ID: 1\n\tNumber of ports: 1\n\t\
             Partner Mac Address: {partner}\n"
        )
    }

    #[test]
    fn ports_of_several_partners_are_named() {
        let known = said(&page(&active("02:00:00:00:00:07"), "2"));
        assert!(
            known.contains("warning: bond0 carries nothing over eth1: the ports have several"),
            "{known}"
        );
        let silent = said(&page(&active(NO_PARTNER), "2"));
        assert!(
            silent.contains("carries nothing over eth1: no LACP comes"),
            "{silent}"
        );
        let user = said(&page("", "2"));
        assert!(
            user.contains("carries over one of eth0 and eth1 alone"),
            "{user}"
        );
        let healthy = said(&page(&active("02:00:00:00:00:07"), "1"));
        assert!(!healthy.contains("warning"), "{healthy}");
    }
}
