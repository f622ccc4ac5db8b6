"""Payloads on the wire, in jobs with and without encryption."""

import contextlib
import os
import subprocess
import sys

import lab as labs
import pytest
from test_multicast import Filter

WATCHER = labs.ROOT / "tests" / "e2e" / "watch.py"
# What all messages of the program consist of.
PHRASE = "a phrase in full"


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's packets")


@pytest.fixture(scope="module")
def four():
    with labs.Lab(f"e{os.getpid()}", hosts=4) as lab:
        yield lab


@pytest.fixture(params=["mpich", "openmpi", "intel"])
def mpi(request):
    return labs.MPIS[request.param]


@contextlib.contextmanager
def watched(lab, rail):
    """Frames of a host's rail, and those of them with the phrase, in the list that it yields."""
    words = [labs.MARLINE, "lab", "exec", "--name", lab.name, "h1", "--", sys.executable, WATCHER,
             rail, PHRASE]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([str(word) for word in words], text=True, **pipes) as watcher:
        assert watcher.stdout.readline() == "ready\n"
        counts = []
        yield counts
        said, _ = watcher.communicate(timeout=60)
        counts.extend(int(count) for count in said.split())


@pytest.mark.parametrize("rail", ["rail0", "tcp:rail0"])
@pytest.mark.parametrize("level", ["payload", "encrypt"])
def test_payloads_are_seen_only_if_they_are_not_encrypted(four, mpi, rail, level):
    env = {"FI_MARLINE_AUTH": level, "FI_MARLINE_RAILS": rail}
    with watched(four, "rail0") as counts:
        result = four.run(mpi, [mpi.program("phrase")], n=4, env=env, options=["--no-shm"],
                           timeout=120)
    assert result.code == 0 and result.find("^phrase ok"), result.tail()
    frames, found = counts
    assert frames > 100 and (found > 0) == (level != "encrypt"), counts


@pytest.mark.parametrize("level", ["payload", "encrypt"])
def test_multicast_payloads_are_seen_only_if_they_are_not_encrypted(four, level):
    mpi = labs.MPIS["mpich"]
    env = {"FI_MARLINE_AUTH": level}
    with watched(four, "rail0") as counts, Filter(four) as filtered:
        result = four.run(mpi, [mpi.program("phrase")], n=4, env=env, options=["--multicast"],
                           timeout=120)
        (sent, _), _, _ = filtered.counts("h0")
    assert result.code == 0 and result.find("^phrase ok"), result.tail()
    frames, found = counts
    assert sent > 0 and frames > 100 and (found > 0) == (level != "encrypt"), (sent, counts)
