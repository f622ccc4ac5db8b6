"""A peer killed with SIGKILL: every operation ends, and the log names the dead peer.

MPICH's and Intel's launchers kill the survivors, so that these tests only show that nothing hangs.
Open MPI can let survivors live; there the program gets the error.
"""

import contextlib
import os
import signal

import lab as labs
import pytest
from test_multicast import survivors
from test_tcp import udp_filtered

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


# The evidence: the process ended, or its host refused packets for some time. (Connections of a
# process with unread data end by a reset, like a firewall's.)
KNOWN = "(?:its process is gone|its host refuses (?:packets|connections))"


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
