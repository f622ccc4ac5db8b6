"""The verifying stress test while the kernel breaks the network. Each test checks the user-visible
result (right bytes, an end) and, by the lab's counters, that the fault occurred."""

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

import lab as labs
from lab import events, total
from test_kernels import kernel

pytestmark = pytest.mark.any_mpi

REPORT = "^stress t="
PEER_DEATH_S = 5  # for jobs that can act on it; other timeouts are longer


def long(stress, mpi, seconds, *args):
    return stress(mpi, "--continue", seconds, "--max-size", 1 << 20, "--window", 500, *args)


def assert_right(result):
    assert result.ok and result.find(r"^stress ok "), result.tail()


def assert_counted(result, column, what):
    """The provider noticed the fault and reports it in its summary per rail."""
    count = total(result.rails(), column)
    assert count, f"the summary counts no {what} (column `{column}`)\n{result.tail()}"


def longest_ms(result):
    return float(result.find(r"longest_ms=([\d.]+)")[1])


@pytest.mark.parametrize("percent", [1, 5])
def test_drop_on_both_rails(wire_lab, stress, mpi, provider, percent):
    for rail in (0, 1):
        wire_lab.fault(rail, f"drop={percent}%")
    result = wire_lab.run(mpi, long(stress, mpi, 5), provider=provider, timeout=90)
    assert_right(result)
    assert wire_lab.hits("drop") > 10
    assert_counted(result, "resent", "retransmissions")


def test_a_fault_ordered_for_seconds_begins_and_ends_by_itself(lab):
    """A user's ping: answered before, not during, and again after the fault, without another
    command."""

    def answered():
        return not lab.exec("h0", "ping", "-c1", "-W1", "10.100.0.2").returncode

    def ordered():
        """Orders the fault and returns its beginning and end, with a ping answered before. Repeats
        the order if the machine was too slow to install it in time or to ping before it began."""
        while time.monotonic() < limit:
            try:
                said = re.search(r"^from (\d+) until (\d+) ", lab.fault(0, "blackhole", "for=2s"))
            except RuntimeError as late:
                assert "try again" in str(late)
                continue
            begins, ends = map(int, said.groups())
            before = answered() and not lab.hits("blackhole")
            if time.time() < begins:
                return begins, ends, before
            lab.clear()

    limit = time.monotonic() + 60
    begins, ends, before = ordered()
    assert before
    while not lab.hits("blackhole") and time.monotonic() < limit:
        answered()
    assert begins <= time.time()
    while not answered() and time.monotonic() < limit:
        pass
    assert ends <= time.time() and time.monotonic() < limit


def test_messages_to_oneself_need_no_rail(lab, stress, mpi, provider):
    """All datagrams are lost: a rank that only sends to itself is unaffected."""
    program = stress(mpi, "--iterations", 2, "--max-size", 2 << 20)
    env = {"FI_MARLINE_FAULTS": "drop=1"}
    assert_right(lab.run(mpi, program, n=1, provider=provider, env=env))


def test_corruption_is_repaired(wire_lab, stress, mpi, provider):
    for rail in (0, 1):
        wire_lab.fault(rail, "corrupt=0.001")
    result = wire_lab.run(mpi, long(stress, mpi, 6), provider=provider, timeout=90)
    assert_right(result)
    assert wire_lab.hits("corrupt") > 0
    assert_counted(result, "corrupt", "corrupt packets")


@pytest.mark.parametrize("fault, counter", [("corrupt=3%", "written_wrong"), ("drop=1%", None)])
def test_direct_writes_under_faults(lab, stress, mpi, provider, tmp_path, fault, counter):
    """Whole super-packets, including their heads, are damaged or lost: packets resend their data,
    and no peer is reported as another version."""
    for rail in (0, 1):
        lab.fault(rail, fault)
    env = {"FI_MARLINE_STATS_DIR": tmp_path}
    program = long(stress, mpi, 4)
    result = lab.run(mpi, program, provider=provider, env=env, timeout=90)
    assert_right(result)
    assert lab.hits(fault.partition("=")[0]) > 0
    assert not result.find("another version of the protocol"), result.tail()
    if provider == "marline":
        counted = labs.counters(tmp_path)
        assert counted["wrong_version"] == 0, counted
        assert counted["written"] > 0, counted
        assert counter is None or counted[counter] > 0, counted


def test_direct_writes_that_come_apart(lab, stress, mpich, provider, tmp_path):
    """From the middle of a job on the network cuts super-packets: their writes are lost, the
    fragments belong to no packet, and the rest of the job uses packets."""
    if provider != "marline":
        return

    def cut():
        for rail in (0, 1):
            lab.fault(rail, "offload=off")

    env = {"FI_MARLINE_STATS_DIR": tmp_path}
    try:
        result = run_with_fault(lab, stress, mpich, provider, 6, cut, env=env)
    finally:
        for rail in (0, 1):
            lab.fault(rail, "offload=on")
    assert_right(result)
    assert not result.find("another version of the protocol"), result.tail()
    counted = labs.counters(tmp_path)
    assert counted["written"] > 0 and counted["torn"] > 0, counted
    assert counted["written_lost"] > 0 and counted["written_wrong"] == 0, counted


def test_a_corrupting_rail_is_left_named_and_taken_back(wire_lab, stress, mpich, provider):
    """The rail that small messages prefer damages one packet in twenty, and recovers later."""
    wire_lab.fault(0, "corrupt=0.05")

    def clear():
        time.sleep(2)  # the job's time on the remaining rail, not a wait
        clear.hits = wire_lab.hits("corrupt")
        wire_lab.clear()

    result = run_with_fault(wire_lab, stress, mpich, provider, 7, clear)
    assert_right(result)
    assert clear.hits > 0
    named = result.find(r"^rail0 corrupts: [^;]*;\s+(\d+)\s+failovers\s+were")
    assert named and int(named[1]) > 0, result.tail()
    assert not result.find(r"^rail1 corrupts: "), result.tail()
    back = result.find(r"^rail0: (\d+) of \d+ failovers were taken back")
    assert back and int(back[1]) > 0, result.tail()


def test_traffic_moves_away_from_a_corrupting_rail(wire_lab, stress, mpich, provider):
    wire_lab.fault(0, "corrupt=0.05")
    result = wire_lab.run(mpich, long(stress, mpich, 3), provider=provider, timeout=60)
    assert_right(result)
    assert wire_lab.hits("corrupt") > 0
    rails = result.rails()
    assert 2 * rails["rail0"]["packets_out"] < rails["rail1"]["packets_out"], result.tail()


def test_switches_of_checksums(wire_lab, stress, mpich, provider):
    """Small fragments, no sums for small or for large messages, another sum on one rail."""
    env = {
        "FI_MARLINE_TEST": "fragment_max_bytes=896,checksum_rails=rail1=crc32c",
        "FI_MARLINE_CHECKSUM_MIN_BYTES": 512,
        "FI_MARLINE_CHECKSUM_MAX_BYTES": "256K",
    }
    result = wire_lab.run(mpich, long(stress, mpich, 1), provider=provider, env=env, timeout=60)
    assert_right(result)


def test_contrast_without_checksums_corrupt_bytes_arrive(wire_lab, stress, mpich, provider):
    """A rail with sums disabled delivers damaged data."""
    wire_lab.fault(0, "corrupt=0.02")
    env = {"FI_MARLINE_TEST": "checksum_rails=rail0=none", "FI_MARLINE_RAILS": "rail0"}
    program = long(stress, mpich, 8)
    result = wire_lab.run(mpich, program, provider=provider, env=env, timeout=60)
    assert wire_lab.hits("corrupt") > 0
    assert not result.ok, result.tail()


def test_contrast_tcp_delivers_corrupt_bytes(wire_lab, stress, mpich):
    """The tests above are able to fail: over TCP the same program gets wrong bytes, or crashes."""
    wire_lab.fault(0, "corrupt=0.005")
    result = wire_lab.run(mpich, long(stress, mpich, 10), provider="tcp", timeout=60)
    assert wire_lab.hits("corrupt") > 0
    assert not result.ok, result.tail()


@contextlib.contextmanager
def under_way(lab, stress, mpi, provider, seconds=0, **how):
    """A stress run with changes of the network in its middle. It ends after the given seconds, and
    not before it has made progress for some reports afterwards (on any machine) or failed:
    `job.result`."""
    how.setdefault("timeout", seconds + 60)
    timeout = how.pop("timeout")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # for jobs of other users
        enough = Path(folder) / "enough"
        program = long(stress, mpi, seconds, "--report", 0.3, "--until", enough)
        job = lab.start(mpi, program, provider=provider, **how)
        try:
            assert job.wait_for(REPORT, 30), job.output()
            yield job
            goes_on(job, timeout)
            enough.touch()
            job.result = job.wait(timeout)
        finally:
            if job.running():
                job.kill()


def goes_on(job, timeout=60):
    """Returns whether the job makes progress for some reports."""
    reports = len(re.findall(REPORT, job.output(), re.MULTILINE))
    return job.wait_for(REPORT, timeout, times=reports + 3)


def lasts(job, seconds):
    """The duration of an outage, not a wait."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert job.running(), job.output()
        time.sleep(0.05)


def bites(lab, job, fault):
    """Waits until the fault has dropped packets."""
    end = time.monotonic() + 30
    while not lab.hits(fault):
        assert job.running() and time.monotonic() < end, lab.status() + job.output()


def run_with_fault(lab, stress, mpi, provider, seconds, change, **how):
    """The result of such a run, during which `change` is called."""
    with under_way(lab, stress, mpi, provider, seconds, **how) as job:
        change()
    return job.result


ONE_RAIL = {
    "down": [("h1:1", "down")],
    "ifdown": [("h1:1", "ifdown")],
    "blackhole": [("1", "blackhole")],
    "blackhole-in": [("h1:1", "blackhole", "in")],
    "blackhole-out": [("h1:1", "blackhole", "out")],
}


# Each fault under one MPI, and under each a link that is down and one that carries nothing.
@pytest.mark.parametrize("mpi, fault", [
    *(("openmpi", fault) for fault in ONE_RAIL),
    *((mpi, fault) for mpi in ("mpich", "intel") for fault in ("down", "blackhole")),
], indirect=["mpi"])
def test_one_of_two_rails(lab, stress, mpi, provider, fault):
    def change():
        for target, *words in ONE_RAIL[fault]:
            lab.fault(target, *words)

    result = run_with_fault(lab, stress, mpi, provider, 4, change)
    assert_right(result)
    if "blackhole" in fault:
        assert lab.hits("blackhole") > 0
    assert_counted(result, "failovers", "failovers")


# Rail 0 carries only from host 1 to host 0, rail 1 only the other way.
OPPOSITE = [("h0:0", "blackhole", "out"), ("h0:1", "blackhole", "in")]


def opposite(lab):
    for target, *words in OPPOSITE:
        lab.fault(target, *words)


def assert_both_bit(lab):
    """Packets were lost on each of the two rails."""
    for rail in ("h0:rail0 blackhole out", "h0:rail1 blackhole in"):
        assert lab.hits(rail) > 0


NEIGHBOURS = "net.ipv4.neigh.{}."


@pytest.fixture
def forgetful_lab(lab):
    """Hosts repeat neighbour requests after a second, on the rail of the address, where the answer
    may be lost."""
    forgets = {"base_reachable_time_ms": 500, "delay_first_probe_time": 1, "retrans_time_ms": 300}
    places = list(itertools.product(("h0", "h1"), ("rail0", "rail1"), forgets))

    def exchange(host, rail, key, value):
        name = NEIGHBOURS.format(rail) + key
        before = lab.exec(host, "sysctl", "-n", name).stdout.strip()
        assert not lab.exec(host, "sysctl", "-qw", f"{name}={value}").returncode
        return before

    before = [exchange(host, rail, key, forgets[key]) for host, rail, key in places]
    yield lab
    for place, value in zip(places, before):
        exchange(*place, value)


def test_each_rail_carries_one_direction_and_hosts_forget(forgetful_lab, stress, mpi, provider):
    """Longer than hosts remember their neighbours' link addresses."""
    cut = lambda: opposite(forgetful_lab)
    result = run_with_fault(forgetful_lab, stress, mpi, provider, 9, cut)
    assert_right(result)
    assert_both_bit(forgetful_lab)
    assert not result.find("is dead"), result.tail()


def test_each_rail_carries_one_direction(lab, stress, mpi, provider):
    """Data and its acks use different rails."""
    result = run_with_fault(lab, stress, mpi, provider, 4, lambda: opposite(lab))
    assert_right(result)
    assert_both_bit(lab)
    assert not result.find("is dead"), result.tail()
    assert_counted(result, "failovers", "failovers")


@pytest.mark.parametrize("name", ["ft", "sort"])
def test_kernels_where_each_rail_carries_one_direction(lab, mpi, provider, name):
    """From the first packet on, between hosts that know each other's link addresses."""
    opposite(lab)
    result = lab.run(mpi, kernel(mpi, name), provider=provider, timeout=90)
    assert result.ok and result.find(rf"^kernel {name} verified yes "), result.tail()
    assert_both_bit(lab)


def test_no_rail_carries_one_direction(lab, stress, mpi, provider):
    """Nothing passes from host 0 to host 1: the job soon ends with an error."""
    def change():
        for rail in (0, 1):
            lab.fault(f"h0:{rail}", "blackhole", "out")

    how = {"env": {"FI_MARLINE_PEER_TIMEOUT_MS": 2000}, "timeout": 60}
    result = run_with_fault(lab, stress, mpi, provider, 60, change, **how)
    assert not result.ok and not result.timed_out, result.tail()
    assert lab.hits("blackhole") > 0


def shrinks(folder):
    return labs.counters(folder)["shrinks"]


@pytest.mark.parametrize("rails", ["rail0,rail1", "rail0"])
def test_large_packets_vanish_on_a_rail(wire_lab, stress, mpi, provider, tmp_path, rails):
    """A switch's MTU falls below the hosts': on one rail of two, or on all."""
    env = {"FI_MARLINE_RAILS": rails, "FI_MARLINE_STATS_DIR": tmp_path}
    change = lambda: wire_lab.fault(0, "mtu=1200")  # noqa: E731
    result = run_with_fault(wire_lab, stress, mpi, provider, 5, change, env=env)
    assert_right(result)
    assert wire_lab.hits("mtu") > 0
    assert not result.find("is dead"), result.tail()
    # Unreported losses, and no more than necessary to detect the black hole.
    assert longest_ms(result) < 1e3 * PEER_DEATH_S, result.tail()
    if provider == "marline":
        assert shrinks(tmp_path) > 0
        assert result.find(r"^rail0 lost its large packets \d+ times"), result.tail()


@pytest.mark.parametrize("rails", ["rail0,rail1", "rail0"])
def test_large_packets_vanish_over_ipv6(stress, mpich, provider, tmp_path, rails):
    env = {"FI_MARLINE_RAILS": rails, "FI_MARLINE_STATS_DIR": tmp_path}
    with labs.Lab(f"t{os.getpid()}-mtu6", options=["--ipv6", "--no-offload"]) as lab:
        change = lambda: lab.fault(0, "mtu=1300")  # noqa: E731
        result = run_with_fault(lab, stress, mpich, provider, 5, change, env=env)
        assert lab.hits("mtu") > 0
    assert_right(result)
    assert not result.find("is dead"), result.tail()
    assert longest_ms(result) < 1e3 * PEER_DEATH_S, result.tail()
    if provider == "marline":
        assert shrinks(tmp_path) > 0


@pytest.mark.parametrize("rails", ["tcp:rail0,tcp:rail1", "tcp:rail0"])
def test_large_packets_vanish_on_a_tcp_rail(wire_lab, stress, mpich, provider, tmp_path, rails):
    """The kernel does not probe for that (net.ipv4.tcp_mtu_probing): it retransmits forever."""
    if provider != "marline":
        pytest.skip("the MPI's own TCP hangs")
    change = lambda: wire_lab.fault(0, "mtu=1200")  # noqa: E731
    env = {"FI_MARLINE_RAILS": rails, "FI_MARLINE_STATS_DIR": tmp_path}
    result = run_with_fault(wire_lab, stress, mpich, provider, 8, change, env=env)
    assert_right(result)
    assert wire_lab.hits("mtu") > 0
    shrank = [event for event in json.loads(events(tmp_path, "--json"))["jobs"][0]["events"]
              if event["kind"] == "path-shrank"]
    assert any(event["reason"] == "unanswered" and 0 < event["to"] < event["from"]
               and event["rail"] == "tcp:rail0" for event in shrank), shrank
    assert not result.find("is dead"), result.tail()
    assert longest_ms(result) < 1e3 * PEER_DEATH_S, result.tail()


def test_the_mtu_of_a_switch_falls(lab, stress, mpi, provider):
    """As above by the switch itself, which passes super-packets of any length."""
    def mtu(size):
        for port in ("h0r0", "h1r0"):
            done = lab.exec("ctl", "ip", "link", "set", "dev", port, "mtu", size)
            assert not done.returncode, done.stderr

    def dropped():
        text = lab.exec("ctl", "cat", *(f"/sys/class/net/{p}/statistics/{d}_dropped"
                                        for p in ("h0r0", "h1r0") for d in ("rx", "tx"))).stdout
        return sum(map(int, text.split()))

    before = dropped()
    try:
        result = run_with_fault(lab, stress, mpi, provider, 5, lambda: mtu(1200))
        after = dropped()
    finally:
        mtu(1500)
    assert_right(result)
    assert not result.find("is dead"), result.tail()
    assert after > before


def test_first_rail_cut_and_restored(lab, stress, mpi, provider):
    """The rail of everybody's first address; after the cut it carries traffic again."""
    def change():
        lab.fault("0", "blackhole")
        time.sleep(1.5)
        lab.fault("0", "clear")

    result = run_with_fault(lab, stress, mpi, provider, 6, change)
    assert_right(result)
    assert_counted(result, "failovers", "failovers")


def test_contrast_tcp_stops_when_its_link_does(lab, stress, mpich):
    job = lab.start(mpich, long(stress, mpich, 60, "--report", 0.3), provider="tcp")
    assert job.wait_for("^stress t=", 30), job.output()
    lab.fault("0", "blackhole")
    result = job.wait(15)
    assert not result.ok, result.tail()


def flap(lab, seconds, period=1.0):
    """Rail 1 goes down and up, for `period` each."""
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        lab.fault("1", "down")
        time.sleep(period)
        lab.fault("1", "up")
        time.sleep(period)
        count += 1
    return count


@pytest.mark.parametrize("seconds", [8, pytest.param(30, marks=pytest.mark.soak)])
def test_flapping_rail(lab, stress, mpi, provider, seconds):
    count = []
    result = run_with_fault(lab, stress, mpi, provider, seconds + 2,
                            lambda: count.append(flap(lab, seconds)))
    assert_right(result)
    assert count[0] >= seconds // 2 - 1
    assert_counted(result, "failovers", "failovers")


TWO_MPIS = pytest.mark.parametrize("kind", ["mpich", "openmpi"])


@pytest.mark.parametrize("rail, kind", [(0, "mpich"), (1, "openmpi")])
def test_a_queue_that_hangs(lab, stress, provider, rail, kind):
    """One host's transmit queue of one rail hangs for longer than the timeout for silent peers: its
    data leaves by the other rail, and no peer is declared dead."""
    mpi = labs.MPIS[kind]

    def tc(action, *words):
        done = lab.exec("h0", "tc", "qdisc", action, "dev", f"rail{rail}", "root", *words)
        assert done.returncode == 0, done.stderr

    def change():
        tc("add", "tbf", "rate", "8bit", "burst", "1600", "limit", "20000")
        time.sleep(PEER_DEATH_S + 2)
        tc("del")

    result = run_with_fault(lab, stress, mpi, provider, PEER_DEATH_S + 5, change)
    assert_right(result)
    assert_counted(result, "failovers", "failovers")
    # A message that waited for the hung queue would take longer.
    assert longest_ms(result) < 1e3 * PEER_DEATH_S, result.tail()


@TWO_MPIS
def test_a_rail_that_refuses_while_a_rank_is_stopped(lab, stress, provider, kind):
    """A firewall answers for one rail as if no socket were there, while the process is stopped for
    less than the timeout. The peer lives."""
    mpi = labs.MPIS[kind]
    patient = {"FI_MARLINE_PEER_TIMEOUT_MS": 20_000}
    with under_way(lab, stress, mpi, provider, env=patient) as job:
        there = lab.exec("h1", "readlink", "/proc/self/ns/net").stdout.strip()
        ranks = job.descendants(f"^{mpi.program('stress')} ")
        [rank] = [r for r in ranks if os.readlink(f"/proc/{r}/ns/net") == there]
        rule = "iifname rail0 meta l4proto udp counter reject with icmp type port-unreachable"
        chain = "chain c { type filter hook input priority 0; " + rule + "; }"
        walled = lab.exec("h1", "nft", "table ip wall { " + chain + "; }")
        assert walled.returncode == 0, walled.stderr
        os.kill(rank, signal.SIGSTOP)
        time.sleep(PEER_DEATH_S - 1)  # the duration of the stop, not a wait
        os.kill(rank, signal.SIGCONT)
        refused = lab.exec("h1", "nft", "list", "table", "ip", "wall").stdout
        assert lab.exec("h1", "nft", "delete", "table", "ip", "wall").returncode == 0
    assert_right(job.result)
    assert re.search(r"counter packets [1-9]", refused), refused


@pytest.fixture
def bridged_lab():
    """Every host has an interface with the same address, as container software makes them."""
    with labs.Lab(f"b{os.getpid()}") as lab:
        for host in ("h0", "h1"):
            for words in ("link add docker0 type veth peer name inside0", "link set inside0 up",
                          "link set docker0 up", "addr add 172.17.0.1/16 dev docker0"):
                done = lab.exec(host, "ip", *words.split())
                assert done.returncode == 0, done.stderr
        yield lab


@TWO_MPIS
@pytest.mark.parametrize("rails", ["", "rail0,docker0", "docker0,rail0"])
def test_a_bridge_of_the_same_address_on_every_host(bridged_lab, stress, provider, kind, rails):
    """A packet to the peer's copy of that address returns to its own host, which refuses it."""
    mpi = labs.MPIS[kind]
    env = {"FI_MARLINE_RAILS": rails}  # none: every usable rail
    for ranks in (2, 4):
        # (Ranks of MPICH that share processors starve each other in its own shared memory.)
        result = bridged_lab.run(mpi, stress(mpi), provider=provider, n=ranks, env=env, timeout=90,
                                 options=["--no-shm"])
        assert_right(result)


def test_both_rails_gone_for_two_seconds(lab, stress, mpi, provider):
    outage_s = 2

    def change():
        threads = [threading.Thread(target=lab.fault, args=(r, "blackhole")) for r in (0, 1)]
        for thread in threads:
            thread.start()
            thread.join()  # the lab's own lock would serialise the commands anyway
        time.sleep(outage_s)
        assert lab.hits("blackhole") > 0
        lab.clear()

    result = run_with_fault(lab, stress, mpi, provider, 6, change)
    assert_right(result)
    # The job did stop, and continued well before peers would have been declared dead. (A
    # descheduled rank may continue for a while with received data.)
    assert 1e3 * outage_s / 2 < longest_ms(result) < 1e3 * PEER_DEATH_S, result.tail()


def test_everything_at_once(wire_lab, stress, mpi, provider):
    """Loss, corruption and a cut rail together."""
    for rail in (0, 1):
        wire_lab.fault(rail, "drop=1%")
        wire_lab.fault(rail, "corrupt=0.001")

    def change():
        wire_lab.fault("h0:0", "down")

    result = run_with_fault(wire_lab, stress, mpi, provider, 6, change)
    assert_right(result)
    assert wire_lab.hits("drop") > 0 and wire_lab.hits("corrupt") > 0
    assert_counted(result, "resent", "retransmissions")


def test_four_ranks_under_loss(wire_lab, stress, mpi, provider):
    for rail in (0, 1):
        wire_lab.fault(rail, "drop=1%")
    program = long(stress, mpi, 5)
    result = wire_lab.run(mpi, program, n=4, provider=provider, options=["--no-shm"], timeout=90)
    assert_right(result)
    assert wire_lab.hits("drop") > 10


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_random_weather(wire_lab, stress, mpi, provider, seed):
    """A minute of faults from a seeded script, always leaving one rail."""
    import random

    draw = random.Random(seed)

    def weather():
        for _ in range(20):
            rail = draw.randrange(2)
            words = draw.choice([["drop=3%"], ["corrupt=0.002"], ["blackhole"], ["blackhole", "in"],
                                 ["down"], ["rate=200mbit"]])
            wire_lab.fault(draw.choice([f"{rail}", f"h0:{rail}", f"h1:{rail}"]), *words)
            time.sleep(draw.uniform(0.2, 2.5))
            wire_lab.fault(f"{rail}", "clear")
            time.sleep(draw.uniform(0.1, 1))

    assert_right(run_with_fault(wire_lab, stress, mpi, provider, 60, weather))
