"""Rails past the kernel's stack (AF_XDP) between lab hosts: the same jobs as over UDP rails, with
hosts of either kind, loss, a link that goes down and comes back, a UDP rail beside them for long
messages; what is left of the program afterwards, and what refuses it."""

import os
import re
import time
from collections import Counter

import pytest

import lab as labs
from test_faults import assert_counted, assert_right, goes_on, under_way

LIMIT_S = 60
XDP = {"FI_MARLINE_RAILS": "xdp:rail0,tcp:rail1"}
BESIDE = {"FI_MARLINE_RAILS": "xdp:rail0,udp:rail0", "FI_MARLINE_PROFILE": "none"}
SHORT = ("--phases", "ring", "--iterations", 2, "--max-size", 1 << 16)


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's rails")


def may_attach():
    """The kernel loads programs for root alone, not for root of a user namespace."""
    return os.geteuid() == 0


def programs(lab, host="h0"):
    """The programs at the interfaces of a host."""
    return re.findall(r"prog/xdp|xdpgeneric", lab.exec(host, "ip", "link", "show").stdout)


def assert_leaves_none(lab):
    """The kernel detaches a program some time after its process has ended."""
    limit = time.monotonic() + LIMIT_S
    while left := programs(lab, "h0") + programs(lab, "h1"):
        assert time.monotonic() < limit, left


def assert_is_there(result, name="xdp:rail0"):
    """The rail is there if the process may have it; otherwise the reason is said, and UDP is used."""
    if may_attach():
        assert name in result.rails(), result.tail()
        assert result.rails()[name]["packets_out"], result.tail()
    else:
        assert result.find("there is no rail xdp:rail0: .*CAP_BPF"), result.tail()
        assert "rail0" in result.rails(), result.tail()


def carried(folder):
    """Packets and bytes that left on the paths of each rail, by the rail's name."""
    packets, octets = Counter(), Counter()
    for rail, counts in re.findall(r"^    (\S+?),? (?:to its|its paths) .*?:(.*)$", labs.raw(folder), re.MULTILINE):
        counts = dict(re.findall(r" (\w+)=(\d+)", counts))
        packets[rail] += int(counts.get("packets_sent", 0))
        octets[rail] += int(counts.get("bytes_sent", 0))
    return packets, octets


def test_a_job_is_right_and_leaves_no_program(lab, stress, mpich):
    result = lab.run(mpich, stress(mpich, "--seed", 57), env=XDP)
    assert_right(result)
    assert_is_there(result)
    assert_leaves_none(lab)


def test_a_job_over_ipv6(stress, mpich):
    with labs.Lab(f"t{os.getpid()}-x6", options=["--ipv6"]) as lab:
        result = lab.run(mpich, stress(mpich, "--seed", 60), env=XDP)
        assert_right(result)
        assert_is_there(result)
        assert_leaves_none(lab)


def test_only_one_process_of_a_host_has_the_rail_and_the_others_have_udp(lab, stress, mpich):
    result = lab.run(mpich, stress(mpich, "--seed", 58), n=4, env={"FI_MARLINE_RAILS": "xdp:rail0"})
    assert_right(result)
    assert_is_there(result)
    if may_attach():
        assert result.find("there is no rail xdp:rail0: rail0 has an XDP program already"), result.tail()
        assert result.rails()["rail0"]["packets_out"], result.tail()


def test_loss_is_repaired(wire_lab, stress, mpich):
    wire_lab.fault(0, "drop=1%")
    env = {"FI_MARLINE_RAILS": "xdp:rail0"}
    result = wire_lab.run(mpich, stress(mpich, "--seed", 59), env=env)
    assert_right(result)
    assert wire_lab.hits("drop") > 10
    assert_is_there(result)
    assert_counted(result, "resent", "retransmissions")


def test_a_link_goes_down_and_comes_back(lab, stress, mpich):
    with under_way(lab, stress, mpich, "marline", env=XDP) as job:
        lab.fault("h1:0", "down")
        assert goes_on(job), job.output()
        lab.fault("h1:0", "up")
        assert goes_on(job), job.output()
    assert_right(job.result)
    assert_is_there(job.result)
    assert_counted(job.result, "failovers", "failovers")


def test_a_killed_process_leaves_no_program(lab, stress, mpich):
    with under_way(lab, stress, mpich, "marline", env=XDP) as job:
        if may_attach():
            assert programs(lab), lab.exec("h0", "ip", "link", "show").stdout
        job.kill()
    assert_leaves_none(lab)


@pytest.mark.skipif(not may_attach(), reason="programs need privileges")
def test_short_messages_bypass_the_kernel_and_long_ones_take_the_udp_rail(lab, stress, mpich, tmp_path):
    def counts(name, program):
        folder = tmp_path / name
        folder.mkdir()
        result = lab.run(mpich, program, env={**BESIDE, "FI_MARLINE_STATS_DIR": folder})
        assert result.ok, result.tail()
        return carried(folder)

    short = stress(mpich, "--phases", "ring", "--iterations", 40, "--max-size", 1_000)
    packets, _ = counts("short", short)
    # (The other rail has first contact, probes, and a part of what is sent twice on a busy machine.)
    assert packets["xdp:rail0"] > 1_000 and packets["xdp:rail0"] > 2 * packets["rail0"], packets
    long = [mpich.program("pingpong"), "--samples", 1, "--seconds", 0.2, "--tests", "bw4m"]
    _, octets = counts("long", long)
    assert octets["rail0"] > 10 * octets["xdp:rail0"], octets


def test_a_udp_rail_beside_one_that_cannot_be_had_carries_all(lab, stress, mpich):
    result = lab.run(mpich, stress(mpich, "--seed", 62, *SHORT), n=4, env=BESIDE)
    assert_right(result)
    assert result.find("there is no rail xdp:rail0: .*; the UDP rail beside it carries all"), result.tail()
    assert not result.find("it is a UDP rail"), result.tail()
    assert result.rails()["rail0"]["packets_out"], result.tail()
