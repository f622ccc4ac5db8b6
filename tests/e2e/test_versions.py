"""Versions of the protocol in one job: neighbours talk; without a common version both are named
and the job ends.

Tests with the library of another revision are marked `old`. `scripts/old-provider` builds that library,
and `MARLINE_OLD_PROVIDER_DIR` names its directory; without it they fail. If it speaks the same version as
the library under test, the latter pretends to speak the next one as well."""

import os
import shlex
from pathlib import Path

import lab as labs
import pytest
from test_faults import assert_right

# The library's own version, of which tests pretend neighbours. crates/wire/src/version.rs
VERSION = 4
OLD = os.environ.get("MARLINE_OLD_PROVIDER_DIR")


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's protocol")


def by_rank(program, first, second):
    """The program, after `first` in even ranks and `second` in odd ones."""
    words = " ".join(shlex.quote(str(word)) for word in program)
    choice = f"if [ $((PMI_RANK % 2)) = 0 ]; then {first}; else {second}; fi"
    return ["sh", "-c", f"{choice}; exec {words}"]


def pretend(newest, oldest=0):
    return f"export FI_MARLINE_TEST=wire_version={newest},wire_oldest={oldest}"


@pytest.mark.parametrize("rails", ["rail0,rail1", "tcp:rail0", "shm"])
@pytest.mark.parametrize("key", ["on", "off"])
def test_neighbouring_versions_carry_a_job(lab, stress, mpich, rails, key, tmp_path):
    lab.fault(0, "drop=1%")
    program = stress(mpich, "--iterations", 1, "--max-size", 1 << 20)
    env = {"FI_MARLINE_AUTH": key, "FI_MARLINE_RAILS": rails, "FI_MARLINE_STATS_DIR": tmp_path}
    options = ["--no-shm"] + (["--ppn", "4"] if rails == "shm" else [])
    script = by_rank(program, ":", pretend(VERSION + 1, VERSION))
    result = lab.run(mpich, script, n=4, env=env, options=options, timeout=180)
    assert_right(result)
    counted = labs.counters(tmp_path)
    assert counted["wrong_version"] == 0 and counted["forged"] == 0


@pytest.mark.parametrize("rails", ["rail0", "tcp:rail0", "shm"])
def test_a_version_that_others_do_not_speak_ends_a_job(lab, stress, mpich, rails):
    """A side names both versions, and the job ends, long before a peer timeout."""
    script = by_rank(stress(mpich, "--iterations", 1), pretend(VERSION + 5), ":")
    options = ["--no-shm"] + (["--ppn", "2"] if rails == "shm" else [])
    env = {"FI_MARLINE_RAILS": rails, "FI_MARLINE_PEER_TIMEOUT_MS": 120_000}
    result = lab.run(mpich, script, n=2, env=env, options=options, timeout=60)
    assert not result.timed_out and result.code != 0, result.tail()
    both = [f"version {a} of the protocol is spoken there, version {b} here"
            for a, b in [(VERSION, VERSION + 5), (VERSION + 5, VERSION)]]
    # The first side that refuses ends the job, perhaps before the other has said so.
    assert any(result.find(text) for text in both), result.tail()


def library(folder):
    """Sets the library of a rank, for a shell."""
    return f"export FI_PROVIDER_PATH={shlex.quote(str(folder.absolute()))}"


def assert_loaded(logs, folder, times):
    """So many processes have loaded the library of a folder, as the dynamic linker logs."""
    line = f"calling init: {folder.absolute() / 'libmarline-fi.so'}"
    loaded = [line in log.read_text() for log in logs.iterdir()]
    assert sum(loaded) == times, (folder, loaded)


@pytest.fixture
def old_library():
    assert OLD, "MARLINE_OLD_PROVIDER_DIR is not set: run scripts/old-provider"
    assert (Path(OLD) / "libmarline-fi.so").exists(), f"{OLD}: run scripts/old-provider"
    return Path(OLD)


def newer_than(old_library):
    """Makes the library under test speak a version that the old one does not."""
    spoken = int((old_library / "wire-version").read_text())
    assert spoken in (VERSION - 1, VERSION), "the old library is no neighbour"
    return pretend(VERSION + 1, VERSION) if spoken == VERSION else ":"


@pytest.mark.old
@pytest.mark.parametrize("old_is", ["even", "odd"])
@pytest.mark.parametrize("rails", ["rail0,rail1", "tcp:rail0", "shm"])
@pytest.mark.parametrize("key", ["on", "off"])
def test_an_older_library_in_one_job(lab, stress, mpich, old_library, old_is, rails, key, tmp_path):
    lab.fault(0, "drop=1%")
    old, new = library(old_library), newer_than(old_library)
    first, second = (old, new) if old_is == "even" else (new, old)
    stats, logs = tmp_path / "stats", tmp_path / "loaded"
    stats.mkdir(), logs.mkdir()
    script = by_rank(stress(mpich, "--iterations", 1, "--max-size", 1 << 20), first, second)
    env = {"FI_MARLINE_AUTH": key, "FI_MARLINE_RAILS": rails, "FI_MARLINE_STATS_DIR": stats,
           "LD_DEBUG": "files", "LD_DEBUG_OUTPUT": logs / "by"}
    options = ["--no-shm"] + (["--ppn", "4"] if rails == "shm" else [])
    result = lab.run(mpich, script, n=4, env=env, options=options, timeout=180)
    assert_right(result)
    assert_loaded(logs, old_library, 2)
    assert_loaded(logs, labs.PROVIDER_DIR, 2)
    counted = labs.counters(stats)
    assert counted["wrong_version"] == 0 and counted["forged"] == 0
    assert rails == "shm" or lab.hits("drop"), lab.status()
