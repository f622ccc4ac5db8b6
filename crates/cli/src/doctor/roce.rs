//! Findings on RoCE: identities (GIDs) of the ports, and the marks and pauses of lossless Ethernet
//! as far as sysfs shows them.

use super::finding::Finding;
use marline_codes::Code;
use std::fs;
use std::path::Path;

/// Findings on the devices below `/sys/class/infiniband`.
pub fn findings(class: &Path) -> Vec<Finding> {
    let mut all = Vec::new();
    for device in names(class) {
        let ports = class.join(&device).join("ports");
        for number in names(&ports) {
            let port = ports.join(&number);
            if text(&port.join("link_layer")) == "Ethernet" {
                all.extend(of_port(&format!("{device}:{number}"), &port));
            }
        }
    }
    all
}

fn of_port(name: &str, port: &Path) -> Vec<Finding> {
    let kinds: Vec<String> = names(&port.join("gid_attrs/types"))
        .iter()
        .map(|at| text(&port.join("gid_attrs/types").join(at)))
        .filter(|kind| !kind.is_empty())
        .collect();
    let interface = names(&port.join("gid_attrs/ndevs"))
        .iter()
        .map(|at| text(&port.join("gid_attrs/ndevs").join(at)))
        .find(|name| !name.is_empty());
    let gids = match kinds.iter().any(|kind| kind.contains("v2")) {
        true => Finding::good(format!("{name} has GIDs of RoCE version 2")),
        false if kinds.is_empty() => Finding::warning(Code::Roce, format!("{name} has no GID"))
            .because("a rail on it does not start")
            .mend("ip addr add ADDRESS dev INTERFACE"),
        false => Finding::warning(Code::Roce, format!("{name} has no GID of RoCE version 2"))
            .because("packets of version 1 pass no router")
            .mend("ip addr add ADDRESS dev INTERFACE"),
    };
    let interface = interface.unwrap_or_else(|| "INTERFACE".to_owned());
    vec![gids, marks(name, port, &interface)]
}

/// Congestion marks (ECN) and pauses (PFC). Their settings belong to drivers: a part is in sysfs,
/// the rest needs the driver's tools.
fn marks(name: &str, port: &Path, interface: &str) -> Finding {
    let ecn = port.join(format!("../../device/net/{interface}/ecn/roce_np/enable"));
    let on = names(&ecn);
    let on: Vec<&String> = on.iter().filter(|at| text(&ecn.join(at)) == "1").collect();
    let tools = format!("dcb pfc show dev {interface}; mlnx_qos -i {interface}    # as root");
    match (on.is_empty(), ecn.exists()) {
        (_, false) => Finding::good(format!("PFC, ECN and DSCP of {name} cannot be read here"))
            .because("sysfs does not show them; without PFC RoCE loses packets under load")
            .mend(tools),
        (true, _) => Finding::warning(
            Code::Roce,
            format!("{name} answers congestion marks (ECN) on no priority"),
        )
        .because("RoCE slows down by loss alone")
        .mend(format!(
            "echo 1 > /sys/class/net/{interface}/ecn/roce_np/enable/3"
        )),
        _ => {
            let priorities: Vec<&str> = on.iter().map(|at| at.as_str()).collect();
            let what = format!("{name} answers ECN on priority {}", priorities.join(", "));
            Finding::good(what)
                .because("PFC and DSCP cannot be read without root")
                .mend(tools)
        }
    }
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
mod tests {
    use super::super::finding::text as shown;
    use super::*;

    /// A port in the form of sysfs.
    fn device(tag: &str, layer: &str, kind: Option<&str>, ecn: Option<&str>) -> String {
        let root = std::env::temp_dir().join(format!("marline-roce-{tag}-{}", std::process::id()));
        let device = root.join("mlx5_0");
        let write = |at: &str, text: &str| {
            let file = device.join(at);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write("ports/1/link_layer", layer);
        write("ports/1/gid_attrs/ndevs/0", "eth0\n");
        if let Some(kind) = kind {
            write("ports/1/gid_attrs/types/0", kind);
        }
        if let Some(ecn) = ecn {
            write("device/net/eth0/ecn/roce_np/enable/3", ecn);
        }
        let said = shown(&findings(&root));
        fs::remove_dir_all(&root).unwrap();
        said
    }

    #[test]
    fn ports_without_an_identity_are_named() {
        let said = device("none", "Ethernet\n", None, None);
        assert!(
            said.contains("warning: mlx5_0:1 has no GID: a rail"),
            "{said}"
        );
        let said = device("one", "Ethernet\n", Some("IB/RoCE v1\n"), None);
        assert!(said.contains("no GID of RoCE version 2"), "{said}");
    }

    #[test]
    fn unreadable_settings_are_admitted() {
        let said = device("v2", "Ethernet\n", Some("RoCE v2\n"), None);
        assert!(
            said.contains("good: mlx5_0:1 has GIDs of RoCE version 2"),
            "{said}"
        );
        assert!(
            said.contains("PFC, ECN and DSCP of mlx5_0:1 cannot be read here"),
            "{said}"
        );
        assert!(said.contains("dcb pfc show dev eth0"), "{said}");
    }

    #[test]
    fn congestion_marks_are_read() {
        let said = device("ecn", "Ethernet\n", Some("RoCE v2\n"), Some("1\n"));
        assert!(said.contains("answers ECN on priority 3"), "{said}");
        let said = device("off", "Ethernet\n", Some("RoCE v2\n"), Some("0\n"));
        assert!(said.contains("on no priority"), "{said}");
    }

    #[test]
    fn infiniband_has_no_such_settings() {
        assert_eq!(device("ib", "InfiniBand\n", None, None), "");
        assert!(findings(Path::new("/nowhere")).is_empty());
    }
}
