"""Connections and flows that became black holes, on all rails at once, while new ones pass: a firewall or an
address translator that restarts forgets them, and a switch drops segments that have become too long for it."""

import re
import time

import pytest

from test_faults import assert_right, bites, goes_on, under_way


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's rails")


# Other sockets than those that were forgotten carry what the job goes on with.
MIXED = ["tcp:rail0,tcp:rail1", "udp:rail0,udp:rail1", "udp:rail0,tcp:rail1"]


def at_once(lab, *words):
    """Makes a fault on both rails that begins in the same moment; which, in UNIX time."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        orders = [lab.fault(rail, *words, "for=600s") for rail in (0, 1)]
        begins = {int(re.search(r"^from (\d+) ", said)[1]) for said in orders}
        if len(begins) == 1:
            return begins.pop()
    raise AssertionError(lab.status())


def forgets(lab, job):
    """All that passes the rails is forgotten at once, and packets were lost by that on both. (It is ordered
    again where a connection was made in between, which is none of those that are forgotten.)"""
    before = [lab.hits(f"rail{rail} forget") for rail in (0, 1)]
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        begins = at_once(lab, "forget")
        while time.time() < begins + 2:
            if all(lab.hits(f"rail{rail} forget") > before[rail] for rail in (0, 1)):
                return
            assert job.running(), lab.status() + job.output()
    raise AssertionError(lab.status() + job.output())


@pytest.mark.parametrize("rails", MIXED)
def test_a_firewall_forgets_what_passes_it(lab, stress, mpi, rails):
    """Twice: the second time what was new after the first."""
    with under_way(lab, stress, mpi, "marline", env={"FI_MARLINE_RAILS": rails}) as job:
        for _ in range(2):
            forgets(lab, job)
            assert goes_on(job), job.output()
    assert_right(job.result)
    assert not job.result.find("is dead"), job.result.tail()


def test_two_connections_whose_segments_have_become_too_long(wire_lab, stress, mpi):
    """A shorter MTU on the switches of both rails, of which nobody is told: other connections with shorter
    segments."""
    env = {"FI_MARLINE_RAILS": "tcp:rail0,tcp:rail1"}
    with under_way(wire_lab, stress, mpi, "marline", env=env) as job:
        for rail in (0, 1):
            wire_lab.fault(rail, "mtu=1200")
        bites(wire_lab, job, "mtu")
        assert goes_on(job), job.output()
    assert_right(job.result)
    assert not job.result.find("is dead"), job.result.tail()
