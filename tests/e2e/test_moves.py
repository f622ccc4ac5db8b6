"""Rails whose interfaces change their addresses during a run, as by DHCP, and get the old ones
back."""

import os
import time

import pytest

import lab as labs
from lab import events
from test_tcp import udp_filtered


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


def begin(lab, program, mpi, rails, folder):
    """A job that runs until the file `enough` exists."""
    env = {"FI_MARLINE_STATS_DIR": folder / "stats", "FI_MARLINE_RAILS": rails}
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
