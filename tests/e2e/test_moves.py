"""Rails whose interfaces change their addresses during a run, as by DHCP, and get the old ones
back."""

import contextlib
import os
import re
import subprocess
import sys
import time

import pytest

import lab as labs
from lab import events
from test_tcp import udp_filtered

pytestmark = pytest.mark.any_mpi


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about rails that follow")


# Host, last byte of its address, and last byte of the replacement.
MOVES = [("h1", 2, 77), ("h1", 77, 78), ("h0", 1, 79), ("h1", 78, 2), ("h0", 79, 1)]


def address(lab, last):
    """An address of the second rail's network."""
    return f"fd00:2::{last:x}" if "--ipv6" in lab.options else f"10.101.0.{last}"


def ip(lab, host, *words):
    done = lab.exec(host, "ip", *words, "dev", "rail1")
    assert not done.returncode, done.stderr


def give(lab, host, last, dad=False):
    """`dad`: only after the kernel's duplicate address detection (IPv6)."""
    rest = ["/64", *([] if dad else ["nodad"])] if "--ipv6" in lab.options else ["/16"]
    ip(lab, host, "addr", "add", address(lab, last) + rest[0], *rest[1:])


def take(lab, host, last):
    length = 64 if "--ipv6" in lab.options else 16
    ip(lab, host, "addr", "del", f"{address(lab, last)}/{length}")


def sent(lab, host):
    path = "/sys/class/net/rail1/statistics/tx_packets"
    return int(lab.exec(host, "cat", path).stdout)


def carries(lab, job):
    """Waits until both ends send on the second rail."""
    limit = time.monotonic() + 30
    for host, before in [(host, sent(lab, host)) for host in ("h0", "h1")]:
        while sent(lab, host) < before + 50:
            assert job.running() and time.monotonic() < limit, job.output()


def begin(lab, program, mpi, rails, folder, **env):
    """A job that runs until the file `enough` exists."""
    env |= {"FI_MARLINE_STATS_DIR": folder / "stats", "FI_MARLINE_RAILS": rails}
    (folder / "stats").mkdir()
    words = ["--continue", 0, "--until", folder / "enough", "--max-size", 1 << 20, "--report", 0.3]
    return lab.start(mpi, program(mpi, *words), env=env)


def follows(lab, program, mpi, rails, folder):
    """A job whose second rail moves repeatedly on both hosts."""
    job = begin(lab, program, mpi, rails, folder)
    assert job.wait_for("^stress t=", 30), job.output()
    try:
        for host, old, new in MOVES:
            take(lab, host, old)
            give(lab, host, new)
            carries(lab, job)
        (folder / "enough").touch()
        result = job.wait(90)
    finally:
        for host, last in (("h0", 1), ("h1", 2)):  # the lab is shared with other tests
            ip(lab, host, "addr", "flush", "scope", "global")
            give(lab, host, last)
    assert result.ok and result.find(r"^stress ok "), result.tail()
    assert not result.find("is dead"), result.tail()
    told = events(folder / "stats")
    assert told.count("goes on at") >= len(MOVES), told
    for _, old, new in MOVES if "--ipv6" not in lab.options else ():  # too long for an event
        assert f"goes on at {address(lab, new)}; it was at {address(lab, old)}" in told, told


@pytest.mark.parametrize("kind", ["udp", "tcp"])
def test_a_rail_follows_its_address(lab, stress, mpi, kind, tmp_path):
    follows(lab, stress, mpi, f"udp:rail0,{kind}:rail1", tmp_path)


def test_tcp_rails_follow_their_addresses(lab, stress, mpich, tmp_path):
    follows(lab, stress, mpich, "tcp:rail0,tcp:rail1", tmp_path)


def test_tcp_behind_udp_follows_its_address(lab, stress, mpich, tmp_path):
    """Without UDP the standby rail carries the job, and moves."""
    with udp_filtered(lab):
        follows(lab, stress, mpich, "rail0,rail1", tmp_path)


@pytest.mark.parametrize("kind", ["udp", "tcp"])
def test_a_rail_of_ipv6_follows_its_address(stress, mpich, kind, tmp_path):
    with labs.Lab(f"t{os.getpid()}-moves", options=["--ipv6"]) as lab:
        follows(lab, stress, mpich, f"udp:rail0,{kind}:rail1", tmp_path)


# Holds ports at an address that may not be there yet, until its standard input ends.
HOLDS = """
import socket, sys
kind, ip, *ports = sys.argv[1:]
held = []
for port in ports:
    held.append(socket.socket(socket.AF_INET, getattr(socket, kind)))
    held[-1].setsockopt(socket.IPPROTO_IP, 15, 1)  # IP_FREEBIND
    held[-1].bind((ip, int(port)))
    if kind == "SOCK_STREAM":
        held[-1].listen()
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def held(lab, host, kind, last):
    """Another program holds the ports of the host's second rail at another address."""
    listed = lab.exec(host, "ss", "-Hnul" if kind == "udp" else "-Hntl", "src", address(lab, 2)).stdout
    ports = sorted(set(re.findall(re.escape(address(lab, 2)) + r":(\d+) ", listed)))
    assert ports, f"the rail has no port\n{listed}"
    words = [labs.MARLINE, "lab", "exec", "--name", lab.name, host, "--", sys.executable, "-c", HOLDS]
    words += ["SOCK_DGRAM" if kind == "udp" else "SOCK_STREAM", address(lab, last), *ports]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout.readline() == "held\n"
        yield


@pytest.mark.parametrize("rails, kind", [("udp:rail0,udp:rail1", "udp"), ("tcp:rail0,tcp:rail1", "tcp"),
                                         ("rail0,rail1", "udp"), ("rail0,rail1", "tcp")])
def test_a_rail_that_cannot_use_an_address_goes_on_at_the_next(lab, stress, mpich, rails, kind, tmp_path):
    """Two addresses are there when the rail's own is deleted; a port is taken at the first. A rail and the
    TCP rail that stands by for it stay together."""
    job = begin(lab, stress, mpich, rails, tmp_path, FI_LOG_LEVEL="warn")
    assert job.wait_for("^stress t=", 30), job.output()
    promotes = "net.ipv4.conf.rail1.promote_secondaries"
    try:
        assert not lab.exec("h1", "sysctl", "-w", f"{promotes}=1").returncode
        with held(lab, "h1", kind, 77):
            give(lab, "h1", 77)
            give(lab, "h1", 78)
            take(lab, "h1", 2)
            carries(lab, job)
            (tmp_path / "enough").touch()
            result = job.wait(90)
    finally:
        ip(lab, "h1", "addr", "flush", "scope", "global")
        give(lab, "h1", 2)
        lab.exec("h1", "sysctl", "-w", f"{promotes}=0")
    assert result.ok and result.find(r"^stress ok "), result.tail()
    assert result.find(f"cannot go on at {re.escape(address(lab, 77))}: "), result.tail()
    rows = labs.raw(tmp_path / "stats")
    at = re.findall(r"^  rail (?:tcp:)?rail1 (10\.101\.0\.[^1]\d*):", rows, re.MULTILINE)
    assert len(at) == (2 if rails == "rail0,rail1" else 1) and set(at) == {address(lab, 78)}, rows
    told = events(tmp_path / "stats")
    assert f"rail1 goes on at {address(lab, 78)}; it was at " in told, told
    assert labs.counters(tmp_path / "stats")["downs"] > 0, told


def comes_later(lab, program, mpi, rails, folder):
    """A job whose second interfaces have no address at the start and get one during the run."""
    for host, last in (("h0", 1), ("h1", 2)):
        take(lab, host, last)
    try:
        job = begin(lab, program, mpi, rails, folder)
        assert job.wait_for("^stress t=", 30), job.output()
    finally:
        for host, last in (("h0", 1), ("h1", 2)):  # the lab is shared with other tests
            give(lab, host, last, dad=True)
    carries(lab, job)
    (folder / "enough").touch()
    result = job.wait(90)
    assert result.ok and result.find(r"^stress ok "), result.tail()
    assert not result.find("is dead"), result.tail()
    told = events(folder / "stats")
    for last in (1, 2):
        assert f"rail1 is there now, at {address(lab, last)}" in told, told
    return result


@pytest.mark.parametrize("kind", ["udp", "tcp"])
def test_a_rail_that_comes_later(lab, stress, mpi, kind, tmp_path):
    result = comes_later(lab, stress, mpi, f"udp:rail0,{kind}:later:rail1", tmp_path)
    name = "rail1" if kind == "udp" else "tcp:rail1"
    assert result.rails()[name]["packets_out"] > 100, result.tail()


def test_tcp_behind_a_rail_that_comes_later(lab, stress, mpich, tmp_path):
    """Without UDP the standby rail of the later rail carries."""
    with udp_filtered(lab):
        result = comes_later(lab, stress, mpich, "rail0,later:rail1", tmp_path)
    assert result.rails()["tcp:rail1"]["packets_out"] > 100, result.tail()


@pytest.mark.parametrize("kind", ["", "tcp:"])
def test_a_rail_of_ipv6_that_comes_later(stress, mpich, kind, tmp_path):
    """An IPv6 rail waits for a global address, not for the link-local one."""
    with labs.Lab(f"t{os.getpid()}-later", options=["--ipv6"]) as lab:
        result = comes_later(lab, stress, mpich, f"rail0,{kind}later:rail1", tmp_path)
    assert result.rails()[f"{kind}rail1"]["packets_out"] > 100, result.tail()


@pytest.mark.parametrize("rails", ["later:", "later:rail*", "udp:rail0,later:10.101.0.0/16"])
def test_any_interface_that_comes(lab, stress, mpich, rails, tmp_path):
    """The second interface is not named in the settings."""
    result = comes_later(lab, stress, mpich, rails, tmp_path)
    assert result.rails()["rail1"]["packets_out"] > 100, result.tail()
    assert not result.find("^(tcp:)?later:"), result.tail()


def test_any_interface_that_comes_under_open_mpi(lab, stress, openmpi, tmp_path):
    result = comes_later(lab, stress, openmpi, "later:rail*", tmp_path)
    assert result.rails()["rail1"]["packets_out"] > 100, result.tail()


def test_an_interface_that_does_not_come(lab, stress, mpich):
    """A missing interface causes only a message, and no outage."""
    env = {"FI_MARLINE_RAILS": "rail0,later:rail9"}
    result = lab.run(mpich, stress(mpich, "--iterations", 1), env=env)
    assert result.ok and result.find(r"^stress ok "), result.tail()
    assert result.out.count("rail rail9 is waited for: there is no such interface") == 2
    assert not result.find("^(tcp:)?rail9") and "rail9 on " not in result.out, result.tail()
