//! `marline doctor` on verbs devices of a mock libibverbs.

use crate::support;

use std::path::Path;
use std::process::Command;
use support::{fail, marline, succeed, Dir};

/// Compiles the mock under the library's name.
fn fake_verbs(tag: &str) -> Dir {
    let dir = Dir::new(tag);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rails/tests/fake_verbs/verbs.c");
    let library = dir.0.join("libibverbs.so.1");
    let mut compile = Command::new("cc");
    compile
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source]);
    assert!(compile.status().unwrap().success(), "{compile:?}");
    dir
}

/// The doctor's report on verbs, with these ports and rail names.
fn doctor(dir: &Dir, ports: &[&str], rails: &str) -> String {
    std::fs::write(dir.0.join("ports"), ports.join("\n")).unwrap();
    run(dir, rails)
}

fn run(dir: &Dir, rails: &str) -> String {
    run_with(dir, rails, "1")
}

/// The same with this number of rails per port.
fn run_with(dir: &Dir, rails: &str, paths: &str) -> String {
    let output = marline(&dir.0)
        .arg("doctor")
        .env("LD_LIBRARY_PATH", &dir.0)
        .env("STAND_IN", &dir.0)
        .env("FI_MARLINE_RAILS", rails)
        .env("FI_MARLINE_VERBS_PATHS", paths)
        .output()
        .unwrap();
    // The machine of the test may have warnings of its own.
    assert!(matches!(output.status.code(), Some(0..=2)), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    said[said.find("InfiniBand and RoCE").unwrap()..].to_owned()
}

#[test]
fn reasons_against_each_port_are_reported() {
    let dir = fake_verbs("doctor-ports");
    let said = doctor(
        &dir,
        &[
            "mlx5_0 1 4 1 17 ffff 0 fe800000000000000002c90300000001",
            "mlx5_0 2 1 1 18 ffff 0 fe800000000000000002c90300000002",
            "mlx5_1 1 0 1 0 ffff 0 00000000000000000000000000000000",
            "mlx5_2 1 4 2 0 ffff 1 00000000000000000000000000000000",
            "mlx5_2 2 4 2 0 ffff 1 00000000000000000000ffff0a4d0001",
            "mlx5_3 1 2 1 0 ffff 0 fe800000000000000002c90300000003",
            "mlx5_4 1 1 1 0 ffff 0 fe800000000000000002c90300000004",
        ],
        "rc,ud:mlx5_0:2,ud:mlx5_3,ud:mlx5_4:1",
    );
    let twice = run_with(&dir, "rc", "2");
    let rails = "means\n  rc:mlx5_0:1\n  rc:mlx5_0:1/2\n  rc:mlx5_2:2\n  rc:mlx5_2:2/2\n";
    assert!(twice.contains(rails), "{twice}");
    for line in [
        "  mlx5_0:1: InfiniBand, up, LID 17, GID 0, MTU 4096, 100000 Mbit/s, ",
        "  mlx5_0:2: InfiniBand, down, LID 18, ",
        "  verbs device mlx5_1 does not open: Permission denied (os error 13): may you read and \
         write /dev/infiniband/uverbs*?\n",
        "  mlx5_2:1: RoCE, up, the port has no GID: give its interface an address, ",
        "  mlx5_2:2: RoCE, up, 10.77.0.1, GID 1, ",
        "  mlx5_3: InfiniBand, not up yet, the port has no LID yet: does a subnet manager run?, ",
        "  mlx5_4: InfiniBand, down, the port is down, and has no LID yet, ",
        "means\n  rc:mlx5_0:1\n  rc:mlx5_2:2\n  ud:mlx5_0:2: its port is down\n  ud:mlx5_3: the \
         port has no LID yet: does a subnet manager run?\n  ud:mlx5_4: the port is down, and has \
         no LID yet\n",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
}

#[test]
fn reasons_for_a_missing_device_are_reported() {
    let dir = fake_verbs("doctor-none");
    let said = run(&dir, "rc");
    assert!(
        said.contains("\n  none: the kernel has no verbs (module ib_uverbs)\n"),
        "{said}"
    );
    assert!(
        said.contains("can be used: verbs cannot be used: the kernel has no"),
        "{said}"
    );
    let said = doctor(&dir, &[], "rc:mlx5_0");
    assert!(
        said.contains("\n  none: there is no verbs device"),
        "{said}"
    );
    assert!(
        said.contains("mlx5_0: there is no such port of a verbs device"),
        "{said}"
    );
    std::fs::write(dir.0.join("libibverbs.so.1"), "").unwrap();
    let said = run(&dir, "");
    assert!(
        said.contains("\n  none: ") && said.contains("libibverbs.so.1: file too"),
        "{said}"
    );
}

#[test]
fn rules_for_firewalls_name_the_range() {
    let dir = Dir::new("firewall");
    let doctor = |ports: &str| {
        let mut command = marline(&dir.0);
        command
            .args(["doctor", "--firewall"])
            .env("FI_MARLINE_PORTS", ports);
        command
    };
    let said = succeed(&mut doctor("20000-20099"));
    assert!(said.contains("udp dport 20000-20099 accept"), "{said}");
    assert!(said.contains("tcp dport 20000-20099 accept"), "{said}");
    assert!(said.contains("--add-port=20000-20099/udp"), "{said}");
    let said = fail(&mut doctor(""));
    assert!(said.contains("FI_MARLINE_PORTS=LO-HI"), "{said}");
    let said = fail(&mut doctor("20099-20000"));
    assert!(said.contains("allowed is LO-HI"), "{said}");
}
