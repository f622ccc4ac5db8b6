"""`marline doctor --hosts`: a healthy lab gives 0, and each single misconfiguration is named with its
host and rail."""

import os
import re
import subprocess
from contextlib import contextmanager

import pytest

import lab as labs
from schemas import assert_conforms

RAILS = {"FI_MARLINE_RAILS": "rail0,rail1"}
PORTS = {"FI_MARLINE_PORTS": "20000-20019"}


@pytest.fixture(scope="module")
def three():
    """Three hosts with two rails, which all tests leave healthy."""
    with labs.Lab(f"doctor{os.getpid()}", hosts=3) as lab:
        lab.meet()
        yield lab


def doctor(lab, *options, hosts="h[0-2]", launch=None, env=None):
    """Examines hosts of the lab; returns the exit status, and the output with a line for a finding."""
    launch = launch or f"{labs.MARLINE} lab exec --name {lab.name} {{host}} --"
    words = [labs.MARLINE, "doctor", "--hosts", hosts, "--launch", launch, *options]
    done = subprocess.run(words, env=labs.clean_env({**RAILS, **(env or {})}), capture_output=True, text=True,
                          timeout=120)
    assert done.stderr == "", done.stderr
    return done.returncode, done.stdout if "--json" in options else re.sub(r"\n  (?! )", " ", done.stdout)


def on(lab, host, *commands):
    for command in commands:
        done = lab.exec(host, "sh", "-c", f"PATH=$PATH:/usr/sbin:/sbin; {command}")
        assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def filtered(lab, host, rule):
    """A host whose firewall drops what comes in by a rule."""
    chain = "add chain inet doctor in { type filter hook input priority 0; }"
    on(lab, host, "nft add table inet doctor", f"nft '{chain}'", f"nft add rule inet doctor in {rule} drop")
    try:
        yield
    finally:
        on(lab, host, "nft delete table inet doctor")


@contextmanager
def changed(lab, host, there, back):
    """A host after a command that another one takes back."""
    on(lab, host, there)
    try:
        yield
    finally:
        on(lab, host, back)


@contextmanager
def broken(lab, target, *fault):
    lab.fault(target, *fault)
    try:
        yield
    finally:
        lab.fault(target, "clear")
        lab.fault(target, "up")


def test_a_healthy_lab_is_good(three):
    code, said = doctor(three, env=PORTS)
    assert code == 0 and "good: all 12 ways between 3 hosts carry" in said, said
    code, said = doctor(three, "--json")
    found = assert_conforms("doctor", said)
    assert code == 0 and found["exit_status"] == 0, said
    assert [host["name"] for host in found["hosts"]] == ["h0", "h1", "h2"]
    assert len(found["paths"]) == 12
    for path in found["paths"]:
        assert path["carries"] and path["multicast"] and path["tcp"] == "open" and path["mtu"] == 1500, path
        assert path["rtt_min_us"] <= path["rtt_median_us"] and path["mbit_per_s"] > 0, path


def address(lab, old, new):
    """h2 with another address on rail1."""
    return changed(lab, "h2", f"ip addr del {old} dev rail1; ip addr add {new} dev rail1",
                   f"ip addr del {new} dev rail1; ip addr add {old} dev rail1")


# Each misconfiguration: how it is made, exit status, and the words that name it.
WRONG = {
    "mtu": (lambda lab: changed(lab, "h1", "ip link set rail0 mtu 1200", "ip link set rail0 mtu 1500"), 1,
            ["warning: h1:rail0 has an MTU of 1200", "on h1: ip link set rail0 mtu 1500"]),
    "link": (lambda lab: broken(lab, "h2:1", "down"), 2,
             ["broken: h2: rail1 is down", "ip link set rail1 up"]),
    "udp": (lambda lab: filtered(lab, "h1", "iifname rail0 meta l4proto udp"), 2,
            ["UDP does not pass to h1:rail0 from h0:rail0, h2:rail0: TCP does", "on h1: nft list ruleset"]),
    "all": (lambda lab: broken(lab, "h1:1", "blackhole"), 2,
            ["nothing passes between h1:rail1 and the other hosts", "on h1: ip -s link show rail1"]),
    "subnet": (lambda lab: address(lab, "10.101.0.3/16", "10.201.0.3/16"), 1,
               ["warning: h2:rail1 (10.201.0.3/16) is in another subnet: than h0:rail1 (10.101.0.1/16)",
                "UDP passes on the link, TCP does not"]),
    "duplicate": (lambda lab: address(lab, "10.101.0.3/16", "10.101.0.2/16"), 2,
                  ["broken: h1:rail1 and h2:rail1 have the same address 10.101.0.2"]),
    "multicast": (lambda lab: filtered(lab, "h2", "iifname rail1 ip daddr 239.0.0.0/8"), 1,
                  ["multicast does not pass to h2:rail1 from h0:rail1, h1:rail1"]),
    "loss": (lambda lab: broken(lab, "h0:1", "drop=5%"), 2,
             ["packets are lost between h0:rail1 and the other hosts", "% of 320"]),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_misconfiguration_is_named(three, wrong):
    make, status, words = WRONG[wrong]
    with make(three):
        code, said = doctor(three)
    assert code == status, said
    for word in words:
        assert word in said, said
    assert said.count("broken: ") + said.count("warning: ") == 1, said


def test_closed_ports_are_named(three):
    with filtered(three, "h2", "meta l4proto { tcp, udp } th dport 20000-20019"):
        code, said = doctor(three, env=PORTS)
    assert code == 2, said
    assert "the ports 20000-20019 are closed to h2 (rail0, rail1) from" in said, said
    assert "FI_MARLINE_PORTS=20000-20019 marline doctor --firewall" in said, said


def test_a_switch_with_a_smaller_mtu_is_named(three):
    three.fault("1", "offload=off")
    try:
        with broken(three, "1", "mtu=1300"):
            code, said = doctor(three)
    finally:
        three.fault("1", "offload=on")
    assert code == 1, said
    assert "packets of more than 1280 bytes vanish between the rails rail1 of all hosts" in said, said


def test_hosts_that_cannot_be_examined_are_named(three, tmp_path):
    """The others are examined all the same."""
    launch = tmp_path / "launch"
    real = f"{labs.MARLINE} lab exec --name {three.name}"
    launch.write_text(f"""#!/bin/sh
host=$1; shift
case $host in
away) echo 'ssh: connect to host away port 22: No route to host' >&2; exit 255;;
bare) exec sh -c /nowhere/marline;;
old) echo "error: unexpected argument '--agent' found" >&2; exit 125;;
h2) {real} h2 -- "$@" | sed -u 's/"version":"[^"]*"/"version":"0.0.9 (wire 4)"/' ;;
*) exec {real} "$host" -- "$@";;
esac
""")
    launch.chmod(0o755)
    words = {"hosts": "h[0-2],away,bare,old", "launch": f"{launch} {{host}}"}
    code, said = doctor(three, "--json", **words)
    examined = {host["name"]: host["version"] for host in assert_conforms("doctor", said)["hosts"]}
    assert examined["away"] is None and examined["h2"] == "0.0.9 (wire 4)", examined
    code, said = doctor(three, **words)
    assert code == 2, said
    for word in (
        f"broken: away: cannot be reached by {launch}: ssh: connect to host away",
        "broken: bare: marline is not installed at",
        "broken: old: marline there is of another version",
        "warning: h2: marline has version 0.0.9 (wire 4): most hosts have",
        "good: all 12 ways between 3 hosts carry",
    ):
        assert word in said, said
