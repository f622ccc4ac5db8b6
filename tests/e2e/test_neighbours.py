"""Hosts whose kernels sent neighbour requests in vain while their links were down. A kernel repeats
a request after a second; here after a minute, so that only announcements by peers help in time."""

import re
import time

import pytest

from test_faults import assert_right, goes_on, under_way

RAILS = ("rail0", "rail1")


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's rails")


def retransmits(lab, host, after_ms):
    for rail in RAILS:
        words = ["ntable", "change", "name", "arp_cache", "dev", rail, "retrans", after_ms]
        assert not lab.exec(host, "ip", *words).returncode


@pytest.fixture
def slow_lab(lab):
    """The second host repeats requests once a minute; requests for unused addresses are counted
    there."""
    retransmits(lab, "h1", 60_000)
    rules = "table arp told { chain in { type filter hook input priority 0; arp daddr ip 192.0.2.0/24 counter; }; }"
    assert not lab.exec("h1", "nft", rules).returncode
    yield lab
    lab.exec("h1", "nft", "delete", "table", "arp", "told")
    retransmits(lab, "h1", 1_000)
    for rail in RAILS:  # requests waiting for their minute would block others
        lab.exec("h1", "ip", "neigh", "flush", "dev", rail, "nud", "all")


def neighbour(lab, number):
    """The state of the second host's neighbour entry for the first, on a rail."""
    shown = lab.exec("h1", "ip", "neigh", "show", f"10.{100 + number}.0.1", "dev", f"rail{number}").stdout
    return shown.split()[-1] if shown.strip() else "NONE"


def asks_in_vain(lab, number):
    """Waits until the entry awaits an answer although the link is down."""
    limit = time.monotonic() + 30
    while neighbour(lab, number) != "INCOMPLETE":
        assert time.monotonic() < limit, lab.status()
        lab.exec("h1", "ping", "-c1", "-W1", f"10.{100 + number}.0.1")


@pytest.mark.parametrize("rails", ["udp:rail0,udp:rail1", "tcp:rail0,tcp:rail1"])
def test_a_failed_neighbour_request_ends_by_announcements(slow_lab, stress, mpich, rails):
    lab = slow_lab
    with under_way(lab, stress, mpich, "marline", env={"FI_MARLINE_RAILS": rails}) as job:
        for number in (0, 1):
            lab.fault(f"h1:{number}", "down")
        for number in (0, 1):
            asks_in_vain(lab, number)
        for number in (0, 1):
            lab.fault(f"h1:{number}", "up")
        assert goes_on(job), job.output()
        states = [neighbour(lab, number) for number in (0, 1)]
    assert_right(job.result)
    assert not job.result.find("is dead"), job.result.tail()
    assert set(states) != {"INCOMPLETE"}, states
    told = re.search(r"counter packets (\d+)", lab.exec("h1", "nft", "list", "table", "arp", "told").stdout)
    assert told and int(told[1]) > 0, told
