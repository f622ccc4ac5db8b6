//! Findings on RoCE: identities (GIDs) of the ports, and the priorities, pauses (PFC) and
//! congestion marks (ECN) of their packets.

use super::dcb::{self, Dcb, Priorities};
use super::finding::Finding;
use marline_codes::Code;
use std::fs;
use std::path::{Path, PathBuf};

/// The low bits of a traffic class for packets that may be marked (ECT).
const MARKABLE: u8 = 2;

/// Asks `dcb` with arguments; the error says why there is no answer.
type Ask = dyn Fn(&[&str]) -> Result<String, String>;

/// The places of settings.
pub struct Places {
    /// Folder of the devices.
    class: PathBuf,
    /// Folder of the interfaces.
    net: PathBuf,
    /// Folder of the settings for connections of RDMA CM.
    cm: PathBuf,
    /// Runs `dcb` (see [`dcb::ask`]).
    dcb: Box<Ask>,
}

impl Places {
    /// Those of this host.
    pub fn here() -> Places {
        Places {
            class: "/sys/class/infiniband".into(),
            net: "/sys/class/net".into(),
            cm: "/sys/kernel/config/rdma_cm".into(),
            dcb: Box::new(dcb::run),
        }
    }

    /// Findings on all devices.
    pub fn findings(&self) -> Vec<Finding> {
        let mut all = Vec::new();
        for device in names(&self.class) {
            let ports = self.class.join(&device).join("ports");
            for number in names(&ports) {
                let port = ports.join(&number);
                if text(&port.join("link_layer")) != "Ethernet" {
                    continue;
                }
                all.push(gids(&format!("{device}:{number}"), &port));
                let settings = self.settings(&device, &number, &port);
                all.extend(settings.findings());
            }
        }
        all
    }

    fn settings(&self, device: &str, number: &str, port: &Path) -> Settings {
        let interface = self.interface(device, port);
        let ecn = |side: &str| -> Option<Vec<u8>> {
            let dir = self.net.join(&interface).join("ecn").join(side);
            let enable = dir.join("enable");
            let on = |at: &String| text(&enable.join(at)) == "1";
            let priorities = names(&enable).into_iter().filter(on);
            enable
                .exists()
                .then(|| priorities.filter_map(|at| at.parse().ok()).collect())
        };
        let class = format!("tc/{number}/traffic_class");
        let class_file = self.class.join(device).join(&class);
        let cm = format!("{device}/ports/{number}/default_roce_tos");
        Settings {
            name: format!("{device}:{number}"),
            class: number_in(&text(&class_file)).unwrap_or(0),
            class_file: class_file
                .exists()
                .then(|| format!("/sys/class/infiniband/{device}/{class}")),
            cm_class: number_in(&text(&self.cm.join(cm))),
            marks: ecn("roce_np"),
            slows: ecn("roce_rp"),
            dcb: dcb::ask(&self.dcb, &interface),
            interface,
        }
    }

    /// The interface of a port: a GID's, or the device's own if that is a VLAN or a bond.
    fn interface(&self, device: &str, port: &Path) -> String {
        let ndevs = port.join("gid_attrs/ndevs");
        let of_gids = names(&ndevs).into_iter().map(|at| text(&ndevs.join(at)));
        let of_gids: Vec<String> = of_gids.filter(|name| !name.is_empty()).collect();
        let own = names(&self.class.join(device).join("device/net"));
        let both = of_gids.iter().find(|name| own.contains(name));
        let one = both.or(own.first()).or(of_gids.first());
        one.cloned().unwrap_or_else(|| "INTERFACE".to_owned())
    }
}

fn gids(name: &str, port: &Path) -> Finding {
    let types = port.join("gid_attrs/types");
    let kinds = names(&types).into_iter().map(|at| text(&types.join(at)));
    let kinds: Vec<String> = kinds.filter(|kind| !kind.is_empty()).collect();
    match kinds.iter().any(|kind| kind.contains("v2")) {
        true => Finding::good(format!("{name} has GIDs of RoCE version 2")),
        false if kinds.is_empty() => Finding::warning(Code::Roce, format!("{name} has no GID"))
            .because("a rail on it does not start")
            .mend("ip addr add ADDRESS dev INTERFACE"),
        false => Finding::warning(Code::Roce, format!("{name} has no GID of RoCE version 2"))
            .because("packets of version 1 pass no router")
            .mend("ip addr add ADDRESS dev INTERFACE"),
    }
}

/// The settings of a port.
struct Settings {
    /// Device and port.
    name: String,
    interface: String,
    /// Traffic class of Marline's packets: the driver's for all, or 0.
    class: u8,
    /// The file of that class, if the driver has one.
    class_file: Option<String>,
    /// Traffic class of connections of RDMA CM.
    cm_class: Option<u8>,
    /// Priorities whose congestion marks the port answers, if the driver shows them.
    marks: Option<Vec<u8>>,
    /// Priorities on which the port slows down by such answers.
    slows: Option<Vec<u8>>,
    dcb: Dcb,
}

impl Settings {
    fn findings(&self) -> Vec<Finding> {
        let mut all = vec![self.priorities()];
        all.extend(self.marks());
        all.extend(self.other_class());
        all
    }

    fn dscp(&self) -> u8 {
        self.class >> 2
    }

    /// The priority of Marline's packets, if known.
    fn priority(&self) -> Option<u8> {
        match &self.dcb {
            Dcb::Known(known) => Some(known.of(self.dscp())),
            Dcb::Unsupported | Dcb::Unknown(_) => None,
        }
    }

    fn priorities(&self) -> Finding {
        let (name, interface) = (&self.name, &self.interface);
        match &self.dcb {
            Dcb::Known(known) => self.pauses(known),
            Dcb::Unsupported => Finding::good(format!("{name} has neither PFC nor priorities"))
                .because(format!("the driver of {interface} supports no DCB")),
            Dcb::Unknown(why) => Finding::good(format!("PFC of {name} cannot be read"))
                .because(why)
                .mend(format!("dcb pfc show dev {interface}")),
        }
    }

    fn pauses(&self, known: &Priorities) -> Finding {
        let (name, interface, dscp) = (&self.name, &self.interface, self.dscp());
        let priority = known.of(dscp);
        let leave = format!("packets of {name} leave with DSCP {dscp} on priority {priority}");
        if known.paused.contains(&priority) {
            return Finding::good(format!("{leave}, which {interface} pauses (PFC)"));
        }
        let has = |on: &Option<Vec<u8>>| on.as_ref().is_some_and(|on| on.contains(&priority));
        if has(&self.marks) && has(&self.slows) {
            let what = format!("{leave}, which {interface} does not pause (PFC)");
            return Finding::good(what).because("congestion marks (ECN) slow them down");
        }
        let finding = match &known.paused[..] {
            [] => Finding::warning(Code::Roce, format!("{interface} pauses no priority (PFC)")),
            paused => {
                let paused = list(paused);
                let what = format!("{leave}, and {interface} pauses {paused} alone (PFC)");
                Finding::warning(Code::Roce, what)
            }
        };
        let reason = format!("{name} loses packets under load");
        finding.because(reason).mend(self.pause(known, priority))
    }

    /// The command that gives Marline's packets a priority that is paused.
    fn pause(&self, known: &Priorities, priority: u8) -> String {
        let interface = &self.interface;
        let paused = known.by_dscp.iter();
        let paused = paused
            .filter(|(_, at)| known.paused.contains(at))
            .map(|(&dscp, _)| dscp);
        match (&self.class_file, paused.min(), known.paused.first()) {
            (Some(file), Some(dscp), _) => {
                format!("echo {} > {file}    # DSCP {dscp}", dscp << 2 | MARKABLE)
            }
            (_, _, Some(to)) => {
                format!("dcb app add dev {interface} dscp-prio {}:{to}", self.dscp())
            }
            _ => format!(
                "dcb pfc set dev {interface} prio-pfc {priority}:on    # and on the switch port"
            ),
        }
    }

    /// Findings on congestion marks (ECN): on the priority of the packets, or on any if that is
    /// unknown.
    fn marks(&self) -> Vec<Finding> {
        let (name, interface) = (&self.name, &self.interface);
        let (Some(marks), Some(slows)) = (&self.marks, &self.slows) else {
            let what = format!("ECN of {name} cannot be read");
            let finding = Finding::good(what);
            return vec![finding.because(format!("the driver of {interface} shows no settings"))];
        };
        let on = |priorities: &[u8]| match self.priority() {
            Some(priority) => priorities.contains(&priority),
            None => !priorities.is_empty(),
        };
        let (at, place) = match self.priority() {
            Some(priority) => (
                priority,
                format!("not on priority {priority} of its packets"),
            ),
            None => (0, "on no priority".to_owned()),
        };
        let missing = |side: &str, does: &str| {
            let what = format!("{name} {does} congestion marks (ECN) {place}");
            let file = format!("/sys/class/net/{interface}/ecn/{side}/enable/{at}");
            Finding::warning(Code::Roce, what)
                .because("RoCE slows down by loss alone")
                .mend(format!("echo 1 > {file}"))
        };
        let answers = (!on(marks)).then(|| missing("roce_np", "answers"));
        let reacts = (!on(slows)).then(|| missing("roce_rp", "slows down by"));
        let mut all: Vec<Finding> = answers.into_iter().chain(reacts).collect();
        if all.is_empty() {
            let marks = list(marks);
            all.push(Finding::good(format!(
                "{name} answers ECN on priority {marks}"
            )));
        }
        all
    }

    /// A finding on a traffic class that reaches connections of RDMA CM alone.
    fn other_class(&self) -> Option<Finding> {
        let class = self.cm_class.filter(|class| class >> 2 != self.dscp())?;
        let (name, dscp) = (&self.name, self.dscp());
        let what = format!(
            "{name} gives DSCP {} to connections of RDMA CM, and {dscp} to Marline's",
            class >> 2
        );
        let finding =
            Finding::warning(Code::Roce, what).because("Marline connects without RDMA CM");
        Some(match &self.class_file {
            Some(file) => finding.mend(format!("echo {class} > {file}")),
            None => finding,
        })
    }
}

/// `0, 3`.
fn list(priorities: &[u8]) -> String {
    let numbers: Vec<String> = priorities.iter().map(u8::to_string).collect();
    numbers.join(", ")
}

/// The number at the end of a setting: `106`, or `Global tclass=106`.
fn number_in(text: &str) -> Option<u8> {
    text.rsplit('=').next()?.trim().parse().ok()
}

fn text(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

/// Sorted names in a directory; none if it is missing.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

#[cfg(test)]
#[path = "roce_test.rs"]
mod tests;
