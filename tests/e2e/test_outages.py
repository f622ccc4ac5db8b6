"""Outages of all links, and firewalls that refuse everything temporarily: a live peer is never
declared dead, the awaited peer is named, and a death is reported as soon as without outages."""

import contextlib
import re

import pytest

import lab as labs
from test_faults import assert_right, lasts, under_way

pytestmark = pytest.mark.any_mpi

RAILS = (0, 1)
# (The launcher's and the ranks' final output comes after the outage.)
LIMIT_S = 120


def cut(lab, *words):
    for rail in RAILS:
        lab.fault(rail, *words)


def of_rails(rails):
    return {"FI_MARLINE_RAILS": rails} if rails else {}


# What is told of a long outage is the same under each MPI.
@pytest.mark.parametrize("mpi, seconds", [("mpich", 7), ("intel", 7), ("openmpi", 7), ("openmpi", 20)],
                         indirect=["mpi"])
def test_both_links_are_down_for_long_and_come_back(lab, stress, mpi, provider, seconds):
    """A switch that reboots. The MPI's own TCP goes on as well."""
    with under_way(lab, stress, mpi, provider, seconds + 4, timeout=LIMIT_S) as job:
        cut(lab, "down")
        lasts(job, seconds)
        cut(lab, "up")
    assert_right(job.result)
    if provider == "marline":
        told = job.result.find(r"^Marline: waiting (\d+) s for host 10\.\d+\.0\.\d+ \(1 process\)")
        assert bool(told) == (seconds > 12), job.result.tail()
        if told:
            assert job.result.find(r"waiting .*rail[01] is down\s+here since \d+ s"), job.result.tail()
            assert job.result.find(r"^Marline: host \S+ is waited for no more"), job.result.tail()


@pytest.mark.parametrize("rails", ["", "tcp:rail0,tcp:rail1", "udp:rail0,udp:rail1"])
def test_a_silent_outage_is_waited_for_and_reported(lab, stress, mpich, provider, tmp_path, rails):
    """No carrier change reveals it: all links carry nothing for 13 s."""
    if provider != "marline":
        pytest.skip("it is about what Marline tells")
    env = {"FI_MARLINE_STATS_DIR": tmp_path, **of_rails(rails)}
    with under_way(lab, stress, mpich, provider, 16, env=env, timeout=LIMIT_S) as job:
        cut(lab, "blackhole")
        assert job.wait_for("^Marline: waiting 1[0-9] s for host .*silent on all rails", 60), job.output()
        cut(lab, "clear")
    assert_right(job.result)
    # Each of the two hosts reports the other, once in ten seconds.
    lines = re.findall(r"^Marline: waiting 1\d s for host (\S+)", job.result.out, re.M)
    assert len(lines) == len(set(lines)) <= 2, job.result.tail()
    assert "waits for rank" in labs.events(tmp_path), labs.events(tmp_path)


def test_a_host_without_power_is_reported_after_the_set_timeout(lab, stress, mpich, provider):
    """Silence without lasting evidence: with the setting of jobs that can act on it."""
    if provider != "marline":
        pytest.skip("it is about Marline's setting")
    env = {"FI_MARLINE_PEER_TIMEOUT_MS": 5000, "FI_LOG_LEVEL": "warn"}
    program = stress(mpich, "--continue", 60, "--max-size", 100000, "--report", 0.3)
    job = lab.start(mpich, program, env=env)
    assert job.wait_for("^stress t=", 30), job.output()
    cut(lab, "blackhole")
    result = job.wait(LIMIT_S)
    assert not result.timed_out and result.code != 0, result.tail()
    # (The last answered packets and the last received ones may differ in time.)
    silent = result.find(r"is dead: (?:silent on every rail|it is heard, .* on any rail,) for (\d+) ms")
    assert silent and int(silent[1]) >= 4000, result.tail()


@contextlib.contextmanager
def refused(lab, kind, seconds=3600):
    """Firewalls refuse what comes by rails, and count that: resets of host 1 end both directions of
    a connection, and of datagrams each host refuses its own. The kernel ends that in time, however
    late a busy machine is."""
    how = {"tcp": "reject with tcp reset", "udp": "reject"}[kind]
    hosts = {"tcp": ["h1"], "udp": ["h0", "h1"]}[kind]
    table = f"table inet wall {{ set on {{ type inet_proto; flags timeout; " \
            f"elements = {{ {kind} timeout {seconds}s }}; }}; " \
            f'chain c {{ type filter hook input priority 0; iifname "rail*" ' \
            f"meta l4proto {kind} meta l4proto @on counter {how}; }}; }}"
    for host in hosts:
        made = lab.exec(host, "nft", table)
        assert made.returncode == 0, made.stderr
    try:
        yield
        for host in hosts:
            found = lab.exec(host, "nft", "list", "table", "inet", "wall").stdout
            assert re.search(r"counter packets [1-9]", found), found
    finally:
        for host in hosts:
            lab.exec(host, "nft", "delete", "table", "inet", "wall")


@pytest.mark.parametrize("rails,kind", [("tcp:rail0,tcp:rail1", "tcp"), ("udp:rail0,udp:rail1", "udp"),
                                        ("udp:rail0,tcp:rail1", "udp"), ("udp:rail0,tcp:rail1", "tcp"),
                                        ("", "udp")])
def test_a_firewall_refuses_everything_for_three_seconds(lab, stress, mpich, provider, rails, kind):
    """The end of a process looks the same, but lasts."""
    if provider != "marline":
        pytest.skip("it is about Marline's rails")
    env = {"FI_LOG_LEVEL": "warn", **of_rails(rails)}
    with under_way(lab, stress, mpich, provider, 6, env=env, timeout=LIMIT_S) as job:
        with refused(lab, kind, 3):
            lasts(job, 3)
    assert_right(job.result)
    assert not job.result.find("is dead"), job.result.tail()


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_a_firewall_refuses_all_ranks_of_a_host_for_three_seconds(lab, stress, mpich, provider, kind):
    """Where a host has several ranks, one that is refused alone is dead sooner."""
    if provider != "marline":
        pytest.skip("it is about Marline's rails")
    env = {"FI_LOG_LEVEL": "warn", **of_rails(f"{kind}:rail0,{kind}:rail1")}
    with under_way(lab, stress, mpich, provider, 6, n=4, env=env, timeout=LIMIT_S) as job:
        with refused(lab, kind, 3):
            lasts(job, 3)
    assert_right(job.result)
    assert not job.result.find("is dead"), job.result.tail()


def test_a_firewall_that_refuses_for_long_is_told_as_what_it_is(lab, stress, mpich, provider):
    """Seconds of refused packets are a death, and no more is said than is known."""
    if provider != "marline":
        pytest.skip("it is about Marline's rails")
    env = {"FI_MARLINE_RAILS": "udp:rail0,udp:rail1", "FI_LOG_LEVEL": "warn"}
    program = stress(mpich, "--continue", 60, "--max-size", 100000, "--report", 0.3)
    job = lab.start(mpich, program, env=env)
    assert job.wait_for("^stress t=", 30), job.output()
    with refused(lab, "udp"):
        result = job.wait(LIMIT_S)
    assert not result.timed_out and result.code != 0, result.tail()
    told = result.find(r"is dead: its host refuses packets, and nothing was heard for (\d+) ms")
    assert told and int(told[1]) >= 4_000, result.tail()
