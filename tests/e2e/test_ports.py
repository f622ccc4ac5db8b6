"""FI_MARLINE_PORTS behind firewalls that pass only these ports."""

import contextlib
import os
import re

import pytest

import lab as labs

pytestmark = pytest.mark.any_mpi

RING = ("--phases", "ring", "--iterations", 2, "--max-size", 100000)
RANGE = "20000-20015"
# Traffic on the rails: to a port of the range, or back from a listening port in the range.
WALL = f"""table inet wall {{
  chain arrives {{
    type filter hook input priority 0;
    iifname != "rail*" accept
    ip daddr 239.0.0.0/8 udp dport {RANGE} counter accept comment "multicast"
    udp dport {RANGE} counter accept comment "udp"
    tcp dport {RANGE} counter accept comment "tcp"
    tcp sport {RANGE} accept
    meta l4proto {{ tcp, udp }} counter drop comment "stopped"
  }}
}}"""


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline")


@contextlib.contextmanager
def walls(lab):
    """A firewall on each host of a lab; returns the counters of its rules."""
    hosts = [f"h{n}" for n in range(lab.hosts)]

    def counted():
        packets = dict.fromkeys(("multicast", "udp", "tcp", "stopped"), 0)
        for host in hosts:
            rules = lab.exec(host, "nft", "list", "table", "inet", "wall").stdout
            for count, name in re.findall(r'counter packets (\d+) bytes .* comment "(\w+)"', rules):
                packets[name] += int(count)
        return packets

    for host in hosts:
        made = lab.exec(host, "nft", WALL)
        assert made.returncode == 0, made.stderr
    yield counted
    for host in hosts:
        lab.exec(host, "nft", "delete", "table", "inet", "wall")


@pytest.fixture
def wall(lab):
    with walls(lab) as counted:
        yield counted


def test_many_processes_of_a_host_behind_firewalls(lab, wall, stress, mpi):
    """Six ranks, three per host, by UDP: no packet goes to another port."""
    result = lab.run(mpi, stress(mpi, *RING), n=6, env={"FI_MARLINE_PORTS": RANGE}, options=["--no-shm"])
    assert result.ok and result.find("^stress ok"), result.tail()
    packets = wall()
    assert packets["udp"] > 0 and packets["stopped"] == 0, f"{packets}\n{result.tail()}"


def test_without_the_range_the_firewalls_stop_udp(lab, wall, stress, mpich):
    result = lab.run(mpich, stress(mpich, *RING), env={"FI_MARLINE_PEER_TIMEOUT_MS": 1000})
    assert not result.ok and wall()["stopped"] > 0, f"{wall()}\n{result.tail()}"


def test_connections_have_their_ports_in_the_range(lab, wall, stress, mpich):
    env = {"FI_MARLINE_PORTS": RANGE, "FI_MARLINE_RAILS": "tcp:rail0,tcp:rail1"}
    result = lab.run(mpich, stress(mpich, *RING), n=4, env=env, options=["--no-shm"])
    assert result.ok and result.find("^stress ok"), result.tail()
    packets = wall()
    assert packets["tcp"] > 0 and packets["stopped"] == 0, f"{packets}\n{result.tail()}"


def test_groups_have_ports_in_the_range(mpich):
    """Broadcasts by multicast on four hosts."""
    with labs.Lab(f"ports{os.getpid()}", hosts=4) as lab, walls(lab) as counted:
        program = [mpich.program("bcast")]
        result = lab.run(mpich, program, n=4, env={"FI_MARLINE_PORTS": RANGE}, options=["--multicast"])
        packets = counted()
    assert result.ok and result.find("^bcast ok "), result.tail()
    assert packets["multicast"] > 0 and packets["stopped"] == 0, f"{packets}\n{result.tail()}"


def test_a_range_that_is_too_small_is_named(lab, stress, mpich):
    """One port for two ranks per host."""
    env = {"FI_MARLINE_PORTS": "20000-20000"}
    result = lab.run(mpich, stress(mpich, *RING), n=4, env=env, options=["--no-shm"])
    assert not result.ok, result.tail()
    assert result.find("all ports of FI_MARLINE_PORTS=20000-20000 are taken"), result.tail()


# Marks of packets, by ports alone: of those to a port of the range, and of those of a connection back
# from one. docs/launchers.md has the same rules for sites.
LEAVES = f"""chain leaves {{
    type route hook output priority mangle;
    oifname "rail*" udp dport {RANGE} ip dscp set af41
    oifname "rail*" tcp dport {RANGE} ip dscp set af41
    oifname "rail*" tcp sport {RANGE} ip dscp set af41
  }}"""
ARRIVES = """chain arrives {
    type filter hook input priority 0;
    iifname "rail*" meta l4proto { tcp, udp } ip dscp af41 counter comment "marked"
    iifname "rail*" meta l4proto { tcp, udp } ip dscp != af41 counter comment "plain"
  }"""


def packets_of_classes(lab, chains, mpi, words, **how):
    """Runs a job on hosts with these chains; returns how many packets arrived with the class and without."""
    hosts = [f"h{n}" for n in range(lab.hosts)]
    for host in hosts:
        made = lab.exec(host, "nft", "table inet marks {\n" + "\n".join(chains) + "\n}")
        assert made.returncode == 0, made.stderr
    try:
        result = lab.run(mpi, words, **how)
        rules = "".join(lab.exec(host, "nft", "list", "table", "inet", "marks").stdout for host in hosts)
    finally:
        for host in hosts:
            lab.exec(host, "nft", "delete", "table", "inet", "marks")
    assert result.ok and result.find("^(stress|bcast) ok"), result.tail()
    packets = {"marked": 0, "plain": 0}
    for count, name in re.findall(r'counter packets (\d+) bytes .* comment "(\w+)"', rules):
        packets[name] += int(count)
    return packets


@pytest.mark.parametrize("rails", ["udp:rail0,udp:rail1", "tcp:rail0,tcp:rail1"])
def test_a_host_marks_the_packets_of_jobs_for_switches(lab, stress, mpich, rails):
    """Every packet on the wire carries the traffic class that the hosts' rules give to the range."""
    env = {"FI_MARLINE_PORTS": RANGE, "FI_MARLINE_RAILS": rails}
    packets = packets_of_classes(lab, [LEAVES, ARRIVES], mpich, stress(mpich, *RING), env=env)
    assert packets["marked"] > 0 and packets["plain"] == 0, packets


@pytest.mark.parametrize("rails", ["udp:rail0,udp:rail1", "tcp:rail0,tcp:rail1", "rail0,rail1"])
def test_packets_carry_the_class_of_the_setting(lab, stress, mpich, rails):
    env = {"FI_MARLINE_RAILS": rails, "FI_MARLINE_DSCP": 34}
    packets = packets_of_classes(lab, [ARRIVES], mpich, stress(mpich, *RING), env=env)
    assert packets["marked"] > 0 and packets["plain"] == 0, packets


def test_multicast_carries_the_class_of_the_setting(mpich):
    with labs.Lab(f"dscp{os.getpid()}", hosts=4) as lab:
        packets = packets_of_classes(lab, [ARRIVES], mpich, [mpich.program("bcast")], n=4,
                                     env={"FI_MARLINE_DSCP": 34}, options=["--multicast"])
    assert packets["marked"] > 0 and packets["plain"] == 0, packets
