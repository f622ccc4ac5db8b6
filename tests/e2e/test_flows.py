"""Existing connections and flows become black holes on all rails at once, while new ones pass: a
restarted firewall or address translator forgets them, or a switch drops segments that are now too
long."""

import re
import time

import pytest

from test_faults import assert_right, bites, goes_on, under_way

pytestmark = pytest.mark.any_mpi


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's rails")


# Sockets other than the forgotten ones carry the rest of the job.
MIXED = ["tcp:rail0,tcp:rail1", "udp:rail0,udp:rail1", "udp:rail0,tcp:rail1"]


def at_once(lab, *words):
    """Makes a fault on both rails that begins at the same time, and returns that UNIX time."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        orders = [lab.fault(rail, *words, "for=600s") for rail in (0, 1)]
        begins = {int(re.search(r"^from (\d+) ", said)[1]) for said in orders}
        if len(begins) == 1:
            return begins.pop()
    raise AssertionError(lab.status())


def forgets(lab, job):
    """Everything on the rails is forgotten at once, and both rails lost packets by it. (Repeated if
    a connection was made meanwhile, which is not among the forgotten ones.)"""
    before = [lab.hits(f"rail{rail} forget") for rail in (0, 1)]
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        begins = at_once(lab, "forget")
        while time.time() < begins + 2:
            if all(lab.hits(f"rail{rail} forget") > before[rail] for rail in (0, 1)):
                return
            assert job.running(), lab.status() + job.output()
    raise AssertionError(lab.status() + job.output())


# All rails under one MPI, and rails of both kinds under each.
@pytest.mark.parametrize("mpi, rails", [("mpich", MIXED[-1]), ("intel", MIXED[-1]), *(("openmpi", rails) for rails in MIXED)],
                         indirect=["mpi"])
def test_a_firewall_forgets_connections_and_flows(lab, stress, mpi, rails):
    """Twice: the second time the new flows of the first."""
    with under_way(lab, stress, mpi, "marline", env={"FI_MARLINE_RAILS": rails}) as job:
        for _ in range(2):
            forgets(lab, job)
            assert goes_on(job), job.output()
    assert_right(job.result)
    assert not job.result.find("is dead"), job.result.tail()


def test_segments_that_become_too_long_on_both_rails(wire_lab, stress, mpi):
    """The MTU of the switches of both rails falls silently: new connections use shorter
    segments."""
    env = {"FI_MARLINE_RAILS": "tcp:rail0,tcp:rail1"}
    with under_way(wire_lab, stress, mpi, "marline", env=env) as job:
        for rail in (0, 1):
            wire_lab.fault(rail, "mtu=1200")
        bites(wire_lab, job, "mtu")
        assert goes_on(job), job.output()
    assert_right(job.result)
    assert not job.result.find("is dead"), job.result.tail()
