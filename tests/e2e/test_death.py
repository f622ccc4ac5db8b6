"""A peer killed with SIGKILL: every operation ends, and the log names the dead peer.

MPICH's and Intel's launchers kill the survivors, so that these tests only show that nothing hangs.
Open MPI can let survivors live; there the program gets the error.
"""

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import lab as labs
import pytest
from test_multicast import survivors
from test_tcp import udp_filtered

pytestmark = pytest.mark.any_mpi

# Seconds that a job would run without a death, and the limit for waits for a death.
FOREVER_S, LIMIT_S = 3600, 60


def test_killed_peer_ends_the_job(lab, stress, mpi, provider):
    program = stress(mpi, "--continue", FOREVER_S, "--max-size", 1 << 20, "--report", 0.3)
    job = lab.start(mpi, program, provider=provider)
    assert job.wait_for("^stress t=", 30), job.output()
    ranks = job.descendants(f"^{mpi.program('stress')} ")
    assert len(ranks) == 2, ranks
    os.kill(max(ranks), signal.SIGKILL)
    result = job.wait(LIMIT_S)
    assert not result.timed_out, result.tail()
    assert result.code != 0
    # The launcher may return before its last signal is delivered.
    left = labs.wait_gone(ranks, LIMIT_S)
    assert not left, f"still running: {left}"


@pytest.mark.parametrize("source", ["recv", "any"])
def test_survivor_gets_the_error(lab, openmpi, provider, source):
    """Open MPI with recoverable run-time options: a receive from the dead peer ends with an MPI
    error, and the log names the peer. The same holds for a receive from MPI_ANY_SOURCE by a rank
    without other operations (which by default would wait forever)."""
    env = {"PRTE_MCA_state_base_recoverable": "1", "PRTE_MCA_state_base_continuous": "1",
           "FI_LOG_LEVEL": "warn"}
    if provider == "marline":
        env["FI_MARLINE_PEER_TIMEOUT_MS"] = 2000
    result = lab.run(openmpi, [openmpi.program("deadpeer"), source], provider=provider, env=env)
    assert not result.timed_out, result.tail()
    assert result.find("^deadpeer: error after"), result.tail()
    assert result.find(r"(?i)peer.*(dead|lost|unreachable|silent)"), result.tail()


# A timeout that no test reaches: only evidence reports a death.
PATIENT = {"FI_MARLINE_PEER_TIMEOUT_MS": 120_000, "FI_LOG_LEVEL": "warn"}


# What is known: the process ended; or its host refuses what is sent, and that lasted. (Connections
# of a process that had not read all that was sent end by a reset, as a firewall's do.)
KNOWN = "(?:its process is gone|its host refuses (?:packets|connections|what is sent to this process alone))"


def told_by_evidence(lab, mpi, source, env):
    """The survivor of a killed rank gets an error that names the dead rank and the evidence."""
    words, outlives = survivors(mpi)
    program = [*words, mpi.program("deadpeer"), source]
    result = lab.run(mpi, program, env={**PATIENT, **outlives, **env})
    assert result.find(r"^deadpeer: error after"), result.tail()
    assert result.find(rf"peer \w+ at .* is dead: {KNOWN}"), result.tail()


@pytest.mark.parametrize("rails", ["udp:rail0", "tcp:rail0", "tcp:rail0,tcp:rail1",
                                   "udp:rail0,tcp:rail0", "udp:rail0,tcp:rail1"])
def test_a_killed_rank_is_told_by_evidence(lab, openmpi, provider, rails):
    """The host of a killed process refuses packets on rails of each kind, and on all of them if
    there are several."""
    if provider != "marline":
        pytest.skip("it is about Marline's rails")
    told_by_evidence(lab, openmpi, "recv", {"FI_MARLINE_RAILS": rails})


@pytest.mark.parametrize("carries", ["udp", "tcp"])
def test_with_default_rails_a_killed_rank_is_reported_by_evidence(lab, mpich, provider, carries):
    """TCP stands by for UDP and is probed as well, or carried the job, as UDP was filtered."""
    if provider != "marline":
        pytest.skip("it is about Marline's rails")
    filtered = udp_filtered(lab) if carries == "tcp" else contextlib.nullcontext()
    with filtered:
        told_by_evidence(lab, mpich, "send", {})


def unread(pid, kind):
    """Bytes that wait in each of the sockets by which a process speaks to other hosts."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(entry))
    waiting = []
    for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]:
        words = line.split()
        local, remote, state = words[1], words[2], words[3]
        # By bytes in the host's order: 10.100.0.0/16 and those after it; TCP's state 1 is a connection.
        rail = local[6:8] == "0A" and int(local[4:6], 16) >= 100
        there = kind == "udp" or state == "01" and remote[:8] != local[:8]
        if rail and there and f"socket:[{words[9]}]" in inodes:
            waiting.append(int(words[4].split(":")[1], 16))
    return waiting


def stops_unread(pid, kind):
    """Stops a process until another host has sent it something; `False`: none does now, as they wait for
    others, and it goes on."""
    os.kill(pid, signal.SIGSTOP)
    for _ in range(40):
        if any(unread(pid, kind)):
            return True
        time.sleep(0.05)
    os.kill(pid, signal.SIGCONT)
    time.sleep(0.1)
    return False


# Alone: on a loaded machine a sibling may not answer while its host refuses, and the death is told
# after 4 s, by other words.
@pytest.mark.alone
@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_a_killed_rank_beside_one_that_lives_is_told_by_its_sibling(lab, stress, openmpi, provider, kind):
    """Two ranks a host. One is stopped until a socket of it holds what it has not read, and killed: its
    host resets connections then, as a firewall does, and refuses packets of one kind. That the other rank
    of that host is reached at the same address shows that no firewall refuses them: else refusals of one
    kind count only when they have lasted. (Open MPI's launcher leaves the other rank alone.)"""
    if provider != "marline":
        pytest.skip("it is about Marline's rails")
    words, outlives = survivors(openmpi)
    env = {**PATIENT, **outlives, "FI_MARLINE_RAILS": f"{kind}:rail0"}
    program = [*words, *stress(openmpi, "--continue", FOREVER_S, "--max-size", 1 << 16, "--report", 0.3)]
    job = lab.start(openmpi, program, n=4, env=env)
    assert job.wait_for("^stress t=", 60), job.output()
    there = lab.exec("h1", "readlink", "/proc/self/ns/net").stdout.strip()
    ranks = job.descendants(f"^{openmpi.program('stress')} ")
    victims = [pid for pid in ranks if os.readlink(f"/proc/{pid}/ns/net") == there]
    assert len(ranks) == 4 and len(victims) == 2, (ranks, victims)
    limit = time.monotonic() + LIMIT_S
    while not stops_unread(victims[0], kind):
        assert time.monotonic() < limit and job.running(), job.output()
    os.kill(victims[0], signal.SIGKILL)
    # (A connection on which all was read ends in order, which tells its peer at once.)
    quickly = {"tcp": "(?:its process is gone|its host refuses what is sent to this process alone)",
               "udp": "its host refuses what is sent to this process alone"}[kind]
    assert job.wait_for(r"peer \w+ at 10\.10\d\.0\.2:\d+ is dead: ", LIMIT_S), job.output()
    assert re.search(r"peer \w+ at \S+ is dead: " + quickly, job.output()), job.output()
    job.kill()
