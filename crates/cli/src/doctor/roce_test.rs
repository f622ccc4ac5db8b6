//! Findings on made-up ports.

use super::super::dcb::testing::{pfc, program};
use super::super::finding::{exit_status, text as shown};
use super::*;

/// Most common classes: DSCP 26 on priority 3.
const APPS: &str = r#"{"dscp_prio":[[26,3],[48,6]]}"#;

/// The path of a file, and its text.
type File = (String, &'static str);

/// A port in the form of sysfs.
struct Port {
    root: PathBuf,
    layer: &'static str,
    kind: Option<&'static str>,
}

impl Port {
    fn new(tag: &str) -> Port {
        Port {
            root: std::env::temp_dir().join(format!("marline-roce-{tag}-{}", std::process::id())),
            layer: "Ethernet",
            kind: Some("RoCE v2"),
        }
    }

    /// Its findings with these further files, and these answers of `dcb`.
    fn findings(&self, files: &[File], dcb: Option<[&str; 2]>) -> Vec<Finding> {
        let own = [
            ("class/mlx5_0/ports/1/link_layer", self.layer),
            ("class/mlx5_0/ports/1/gid_attrs/ndevs/0", "eth0.7"),
            ("class/mlx5_0/device/net/eth0/address", "02:00:00:00:00:01"),
        ];
        let kind = self
            .kind
            .map(|kind| ("class/mlx5_0/ports/1/gid_attrs/types/0", kind));
        let own = own.into_iter().chain(kind);
        let own = own.map(|(at, text)| (at.to_owned(), text));
        for (at, text) in own.chain(files.iter().cloned()) {
            let file = self.root.join(at);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{text}\n")).unwrap();
        }
        let places = Places {
            class: self.root.join("class"),
            net: self.root.join("net"),
            cm: self.root.join("cm"),
            dcb: Box::new(program(dcb)),
        };
        let found = places.findings();
        fs::remove_dir_all(&self.root).unwrap();
        found
    }

    fn says(&self, files: &[File], dcb: Option<[&str; 2]>) -> (u8, String) {
        let found = self.findings(files, dcb);
        (exit_status(&found), shown(&found).replace("\n  ", " "))
    }
}

/// Congestion marks on a priority.
fn ecn(at: u8, on: &'static str) -> Vec<File> {
    let file = |side| (format!("net/eth0/ecn/{side}/enable/{at}"), on);
    ["roce_np", "roce_rp"].map(file).into()
}

/// The traffic class of all packets.
fn class(text: &'static str) -> File {
    ("class/mlx5_0/tc/1/traffic_class".to_owned(), text)
}

const TCLASS: &str = "Global tclass=106";

#[test]
fn ports_without_an_identity_are_named() {
    let port = Port {
        kind: None,
        ..Port::new("none")
    };
    let (status, said) = port.says(&[], None);
    assert!(
        status == 1 && said.contains("warning: mlx5_0:1 has no GID: a rail"),
        "{said}"
    );
    let port = Port {
        kind: Some("IB/RoCE v1"),
        ..Port::new("one")
    };
    let (_, said) = port.says(&[], None);
    assert!(said.contains("no GID of RoCE version 2"), "{said}");
}

#[test]
fn settings_that_a_driver_lacks_are_stated() {
    let (status, said) = Port::new("v2").says(&[], None);
    assert_eq!(status, 0, "{said}");
    for words in [
        "good: mlx5_0:1 has GIDs of RoCE version 2",
        "good: mlx5_0:1 has neither PFC nor priorities: the driver of eth0 supports no DCB",
        "good: ECN of mlx5_0:1 cannot be read: the driver of eth0 shows no settings",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let (status, said) = Port::new("odd").says(&[], Some(["?", "{}"]));
    assert_eq!(status, 0, "{said}");
    assert!(
        said.contains("good: PFC of mlx5_0:1 cannot be read: dcb pfc: "),
        "{said}"
    );
}

#[test]
fn a_port_with_all_settings_is_good() {
    let mut all = ecn(3, "1");
    all.push(class(TCLASS));
    let (status, said) = Port::new("all").says(&all, Some([&pfc(&[3]), APPS]));
    assert_eq!(status, 0, "{said}");
    for words in [
        "good: packets of mlx5_0:1 leave with DSCP 26 on priority 3, which eth0 pauses (PFC)",
        "good: mlx5_0:1 answers ECN on priority 3",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn packets_on_a_priority_without_pauses_are_named() {
    let known = Some([&*pfc(&[3]), APPS]);
    let leave = "warning: packets of mlx5_0:1 leave with DSCP 0 on priority 0, and eth0 pauses 3 \
                 alone (PFC): mlx5_0:1 loses packets under load";
    let (status, said) = Port::new("other").says(&[class("")], known);
    assert!(status == 1 && said.contains(leave), "{said}");
    let echo = "echo 106 > /sys/class/infiniband/mlx5_0/tc/1/traffic_class    # DSCP 26";
    assert!(said.contains(echo), "{said}");
    // A driver without that setting.
    let (_, said) = Port::new("fixed").says(&[], known);
    assert!(
        said.contains("dcb app add dev eth0 dscp-prio 0:3"),
        "{said}"
    );
    let (_, said) = Port::new("off").says(&[], Some([&pfc(&[]), "{}"]));
    assert!(
        said.contains("warning: eth0 pauses no priority (PFC)"),
        "{said}"
    );
    assert!(
        said.contains("dcb pfc set dev eth0 prio-pfc 0:on"),
        "{said}"
    );
    // Congestion marks make up for it.
    let (status, said) = Port::new("marks").says(&ecn(0, "1"), Some([&pfc(&[]), "{}"]));
    assert!(
        status == 0 && said.contains("congestion marks (ECN) slow them down"),
        "{said}"
    );
}

#[test]
fn congestion_marks_are_read() {
    let (status, said) = Port::new("ecn").says(&ecn(3, "1"), None);
    assert!(
        status == 0 && said.contains("answers ECN on priority 3"),
        "{said}"
    );
    let (status, said) = Port::new("no-ecn").says(&ecn(3, "0"), None);
    assert_eq!(status, 1, "{said}");
    for words in [
        "answers congestion marks (ECN) on no priority",
        "slows down by congestion marks (ECN) on no priority",
        "echo 1 > /sys/class/net/eth0/ecn/roce_rp/enable/0",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let mut elsewhere = ecn(5, "1");
    elsewhere.push(class(TCLASS));
    let (status, said) = Port::new("else").says(&elsewhere, Some([&pfc(&[3]), APPS]));
    assert_eq!(status, 1, "{said}");
    let words = "answers congestion marks (ECN) not on priority 3 of its packets";
    assert!(
        said.contains(words) && said.contains("ecn/roce_np/enable/3"),
        "{said}"
    );
}

#[test]
fn a_class_for_connections_of_rdma_cm_alone_is_named() {
    let cm = ("cm/mlx5_0/ports/1/default_roce_tos".to_owned(), "106");
    let (status, said) = Port::new("cm").says(&[cm.clone(), class("")], None);
    let words = "warning: mlx5_0:1 gives DSCP 26 to connections of RDMA CM, and 0 to Marline's";
    assert!(status == 1 && said.contains(words), "{said}");
    let echo = "echo 106 > /sys/class/infiniband/mlx5_0/tc/1/traffic_class";
    assert!(said.contains(echo), "{said}");
    let (status, said) = Port::new("both").says(&[cm, class(TCLASS)], None);
    assert!(status == 0, "{said}");
}

#[test]
fn infiniband_has_no_such_settings() {
    let port = Port {
        layer: "InfiniBand",
        kind: None,
        ..Port::new("ib")
    };
    assert_eq!(port.findings(&[], None), []);
}
