"""Successive faults: the rail that takes over fails as well, and the first one comes back."""

import contextlib
import json
import os
import re

import pytest

import lab as labs
from lab import events
from test_faults import PEER_DEATH_S, REPORT, assert_right, bites, lasts, longest_ms, under_way
from test_tcp import udp_filtered

pytestmark = pytest.mark.any_mpi


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("the MPIs' own TCP has one rail")


@contextlib.contextmanager
def stressed(lab, stress, mpi, folder, rails=None):
    """Starts a job for faults in its middle; afterwards the job continues and its results are
    right."""
    env = {"FI_MARLINE_STATS_DIR": folder / "stats", **({"FI_MARLINE_RAILS": rails} if rails else {})}
    (folder / "stats").mkdir()
    with under_way(lab, stress, mpi, "marline", env=env) as job:
        yield job
        lab.clear()
    assert_right(job.result)
    assert not job.result.find("is dead"), job.result.tail()


def told(folder):
    """The kinds of a job's events, with the rail of each."""
    jobs = json.loads(events(folder / "stats", "--json"))["jobs"]
    return {(event["kind"], event["rail"]) for event in jobs[0]["events"]}


@pytest.mark.parametrize("first", ["filtered first", "at once"])
def test_tcp_shares_the_dead_switch_of_udp(lab, stress, mpich, tmp_path, first):
    """UDP's traffic moves to TCP on the same interface, whose switch is down, too: a third rail
    carries it."""
    rails = "udp:rail0,tcp:rail0,udp:rail1"
    with stressed(lab, stress, mpich, tmp_path, rails) as job:
        filtered = udp_filtered(lab, "rail0") if first != "at once" else contextlib.nullcontext()
        with filtered:
            if first != "at once":
                assert job.wait_for("rail rail0 to .* is lost", 30), job.output()
            lab.fault(0, "blackhole")
            assert job.wait_for("rail tcp:rail0 to .* is lost", 30), job.output()
            assert job.wait_for("rail rail0 to .* is lost", 30), job.output()
            lasts(job, 0.5)
            assert lab.hits("blackhole") > 0
    found = job.result.rails()
    assert all(found[rail]["failovers"] for rail in ("rail0", "tcp:rail0")), job.result.tail()
    assert found["rail1"]["packets_out"] > 100, job.result.tail()


def test_a_standby_rail_shares_the_dead_switch(lab, stress, mpi, tmp_path):
    """One switch goes down; then the other rail passes no UDP. One of the standby TCP rails is on
    the dead switch. Then the last rail goes down, and only the first switch comes back."""
    with stressed(lab, stress, mpi, tmp_path) as job:
        lab.fault(1, "blackhole")
        assert job.wait_for("rail rail1 to .* is lost", 30), job.output()
        with udp_filtered(lab, "rail0"):
            assert job.wait_for("takes over: no other carries", 30), job.output()
            lasts(job, 0.5)
            lab.fault(0, "blackhole")
            bites(lab, job, "rail0 blackhole")
            lasts(job, 0.5)
            assert lab.hits("rail1 blackhole") > 0, lab.status()
            lab.fault(1, "clear")
            assert job.wait_for("rail rail1 to .* is back", 30), job.output()
            lasts(job, 0.5)
    found = job.result.rails()
    assert all(found[rail]["failovers"] for rail in ("rail0", "rail1")), job.result.tail()
    assert found["tcp:rail0"]["packets_out"] > 100, job.result.tail()
    assert {("standby-carries", "tcp:rail0"), ("path-up", "rail1")} <= told(tmp_path), told(tmp_path)


def test_one_switch_of_both_rails_goes_and_comes_back(stress, mpi, tmp_path):
    """No rail is left while the hosts' links stay up: the job waits, and no peer is declared
    dead."""
    outage_s = 1.5
    with labs.Lab(f"t{os.getpid()}-switch") as lab:
        def switch(*words):
            done = lab.exec("ctl", "ip", "link", "set", "dev", *words)
            assert not done.returncode, done.stderr

        for port in ("h0r1", "h1r1"):
            switch(port, "master", "br0")
        with stressed(lab, stress, mpi, tmp_path) as job:
            switch("br0", "down")
            lasts(job, outage_s)
            switch("br0", "up")
    # The job did stop. (A descheduled rank may continue for a while with received data.)
    assert 1e3 * outage_s / 2 < longest_ms(job.result) < 1e3 * PEER_DEATH_S, job.result.tail()
    assert {("path-suspect", "rail0"), ("path-suspect", "rail1")} <= told(tmp_path), told(tmp_path)


def resident_kib(job):
    """The resident memory of each rank of a job in KiB, by process."""
    memory = {}
    for pid in job.descendants(r"/stress\b"):
        try:
            with open(f"/proc/{pid}/status") as status:
                found = re.search(r"^VmRSS:\s+(\d+)", status.read(), re.MULTILINE)
        except OSError:
            continue
        if found:
            memory[pid] = int(found[1])
    return memory


@pytest.mark.soak
def test_a_thousand_flaps_of_an_all_to_all(lab, stress, mpich, tmp_path):
    """Rails fail in turn and come back a thousand times during an all-to-all of eight ranks: data
    is right, no peer is declared dead, and memory does not grow."""
    flaps, bitten, memory, enough = 1_000, 0, [], tmp_path / "enough"
    program = stress(mpich, "--continue", 0, "--until", enough, "--phases", "alltoall",
                     "--max-size", 65_536, "--report", 5)
    job = lab.start(mpich, program, n=8, options=["--no-shm"],
                    env={"FI_MARLINE_STATS_DIR": tmp_path})
    try:
        assert job.wait_for(REPORT, 60), job.output()
        for number in range(flaps):
            rail, kind = str(number % 2), ("down", "blackhole")[number // 2 % 2]
            lab.fault(rail, kind)
            lasts(job, 0.05)
            bitten += kind == "blackhole" and lab.hits(kind) > 0
            lab.fault(rail, "up" if kind == "down" else "clear")
            lasts(job, 0.1)
            if number in (flaps // 4, flaps - 1):
                memory.append(resident_kib(job))
        enough.touch()
        result = job.wait(120)
    finally:
        if job.running():
            job.kill()
    assert_right(result)
    assert not result.find("is dead"), result.tail()
    early, late = memory
    assert len(early) >= 8 and early.keys() == late.keys()
    grown = {pid: late[pid] - early[pid] for pid in early}
    assert max(grown.values()) < 8 << 10, grown
    # The failure of a link is reported to its host, so that a path is left each time; silence is
    # not.
    downs = flaps // 2
    assert labs.total(result.rails(), "failovers") >= downs, result.tail()
    assert bitten > 0.9 * (flaps - downs), bitten
    print(f"{flaps} flaps in {result.seconds:.0f} s, {bitten} silences with lost packets, "
          f"{labs.total(result.rails(), 'failovers')} failovers, grown by {max(grown.values())} KiB")
