"""The summary of a job names the rank that died first, counts processes, prints words for addresses,
takes no reordering for lost packets, and counts what was fetched as sent."""

import os
import re
import signal
from pathlib import Path

import pytest

import lab as labs
from test_use import verdict

pytestmark = pytest.mark.any_mpi

LIMIT_S = 120
RANKS = 4


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about what Marline tells")


def ranks(job, mpi):
    """The processes of a job by rank."""
    found = {}
    for pid in job.descendants(f"^{mpi.program('stress')} "):
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        values = dict(word.split(b"=", 1) for word in words if b"=" in word)
        found[int(values.get(b"OMPI_COMM_WORLD_RANK") or values[b"PMI_RANK"])] = pid
    return found


def one_goes(lab, stress, mpi, how, env):
    """Two hosts of two ranks, of which rank 0 gets a signal. What the job ends with, as one line."""
    program = stress(mpi, "--continue", 600, "--max-size", 1 << 16, "--report", 0.3)
    job = lab.start(mpi, program, n=RANKS, env=env, options=["--no-shm"])
    try:
        assert job.wait_for("^stress t=", 60), job.output()
        there = ranks(job, mpi)
        assert sorted(there) == list(range(RANKS)), there
        os.kill(there[0], how)
        result = job.wait(LIMIT_S)
    finally:
        if job.running():
            job.kill()
    assert not result.timed_out and result.code != 0, result.tail()
    return result, " ".join(result.out.split())


def counts_processes(result, told, folder):
    """As many processes are told to be dead as others declared, whatever number of endpoints, addresses and
    declarations each has; and none left no statistics, as each has a page."""
    assert len(list(folder.glob("*.page"))) == RANKS, result.tail()
    dead = set(re.findall(r": (rank \d+) on \S+ is dead: ", labs.events(folder)))
    more = re.search(r"; then (\d+) process(?:es)? more", told)
    assert (int(more[1]) if more else 0) == len(dead) - 1, f"{dead}\n{result.tail()}"
    assert "left no statistics" not in told, result.tail()


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"], indirect=True)
def test_the_rank_that_is_silent_first_is_the_headline(lab, stress, mpi, tmp_path):
    """A stopped rank is given up by all others, which end then, and are gone for each other."""
    env = {"FI_MARLINE_PEER_TIMEOUT_MS": 2000, "FI_MARLINE_STATS_DIR": tmp_path}
    result, told = one_goes(lab, stress, mpi, signal.SIGSTOP, env)
    assert re.search(r"Marline: PEER DEAD: rank 0 \([0-9.:]+\): (it answered on no rail|it was heard)", told), \
        result.tail()
    counts_processes(result, told, tmp_path)


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"], indirect=True)
def test_shared_memory_beside_the_network_is_told_in_words(lab, stress, mpi, tmp_path):
    env = {"FI_MARLINE_PEER_TIMEOUT_MS": 2000, "FI_MARLINE_RAILS": "shm,rail0,rail1",
           "FI_MARLINE_STATS_DIR": tmp_path}
    result, told = one_goes(lab, stress, mpi, signal.SIGSTOP, env)
    named = re.search(r"Marline: PEER DEAD: rank 0 \(([^)]*)\): ", told)
    assert named and re.fullmatch(r"[0-9.]+:\d+|shm \S+( \S+)*|[a-z ]+ \S+", named[1]), result.tail()
    assert "Shm [" not in result.out and "[0" not in told, result.tail()
    assert "shm" in result.rails(), result.tail()
    counts_processes(result, told, tmp_path)


def test_reordering_is_not_told_as_lost_large_packets(lab, stress, mpich, tmp_path):
    env = {"FI_MARLINE_FAULTS": "tx:reorder=0.5", "FI_MARLINE_RAILS": "udp:rail0,udp:rail1",
           "FI_MARLINE_STATS_DIR": tmp_path}
    result = lab.run(mpich, stress(mpich, "--iterations", 3, "--max-size", 1 << 20), env=env, timeout=LIMIT_S)
    assert result.ok and result.find("^stress ok"), result.tail()
    assert labs.total(result.rails(), "resent_spurious") > 0, result.tail()
    assert not result.find("lost its large packets"), result.tail()
    assert labs.counters(tmp_path)["shrinks"] == 0


def in_bytes(text):
    number, unit = re.fullmatch(r"([\d.]+) ([kMGT]?)B", text).groups()
    return float(number) * 1000 ** " kMGT".index(unit or " ")


def test_what_others_fetch_counts_as_sent(lab, mpich):
    """Puts, gets, and sums of a window: about as much is sent in messages as leaves by the rails."""
    program = [mpich.program("onesided"), "--samples", 1, "--seconds", 0.1]
    result = lab.run(mpich, program, timeout=LIMIT_S)
    assert result.ok, result.tail()
    sent = in_bytes(re.search(r"processes sent ([\d.]+ [kMGT]?B) over", verdict(result))[1])
    rails = [in_bytes(out) for out in re.findall(r"^\S*rail\d +([\d.]+ [kMGT]?B) ", result.out, re.MULTILINE)]
    assert rails and sent > 0.8 * sum(rails), result.tail()
