"""Every MPI over a healthy network: the verifying programs, IMB-MPI1, mpi4py's own tests."""

import os
import re
import subprocess

import pytest

import lab as labs

# IMB's binaries need the MPICH ABI, which Open MPI lacks, and Intel builds them without data
# checks: they only show that every benchmark ends. stress and mpi4py's tests check data.
IMB = labs.MPI_DIR / "impi-rt" / "bin" / "IMB-MPI1"
IMB_TESTS = {
    "p2p": "PingPong PingPing Sendrecv Exchange Uniband Biband".split(),
    "collective": "Allreduce Reduce Allgatherv Scatter Gather Alltoallv Bcast Barrier".split(),
}
LAST_IMB_WORDS = "All processes entering MPI_Finalize"
MPI4PY = labs.MPI_DIR / "src"


def assert_stress_ok(result):
    assert result.ok and result.find(r"^stress ok "), result.tail()


def test_stress_all_sizes(lab, stress, mpi, provider):
    result = lab.run(mpi, stress(mpi), provider=provider, timeout=90)
    assert_stress_ok(result)


@pytest.mark.parametrize("seed", [2, 3])
def test_stress_seeds(lab, stress, mpi, provider, seed):
    program = stress(mpi, "--max-size", 300000, "--iterations", 1000, "--seconds", 5, "--seed", seed)
    assert_stress_ok(lab.run(mpi, program, provider=provider))


def test_stress_within_and_between_hosts(lab, stress, mpi, provider):
    """Four ranks on two hosts without the MPI's shared memory: several peers each."""
    program = stress(mpi, "--max-size", 100000, "--iterations", 2, "--window", 500)
    assert_stress_ok(lab.run(mpi, program, n=4, provider=provider, options=["--no-shm"]))


@pytest.mark.parametrize("direct", ["on", "off"])
def test_long_messages_are_written_directly(lab, stress, mpi, provider, tmp_path, direct):
    """The same bytes whether the kernel places them or not; on these cables all fragments
    arrive."""
    if provider != "marline":
        return
    env = {"FI_MARLINE_TEST": f"direct={direct}", "FI_MARLINE_STATS_DIR": tmp_path}
    assert_stress_ok(lab.run(mpi, stress(mpi, "--seed", 5), env=env, timeout=90))
    counted = labs.counters(tmp_path)
    assert (counted["written"] > 100) == (direct == "on"), counted
    assert counted["written_wrong"] == 0, counted


def test_ranks_that_differ_in_direct_writes(lab, stress, mpich, provider, tmp_path):
    """Each rank sends as its peer can receive."""
    if provider != "marline":
        return
    script = tmp_path / "differ"
    script.write_text("#!/bin/sh\n[ $PMI_RANK = 0 ] && export FI_MARLINE_TEST=direct=off\nexec \"$@\"\n")
    script.chmod(0o755)
    env = {"FI_MARLINE_STATS_DIR": tmp_path / "stats"}
    (tmp_path / "stats").mkdir()
    assert_stress_ok(lab.run(mpich, [script, *stress(mpich, "--seed", 6)], env=env, timeout=90))
    assert labs.counters(tmp_path / "stats")["written"] == 0


def test_stress_openmpi4(lab, stress, openmpi4, provider):
    program = stress(openmpi4, "--max-size", 4 << 20)
    assert_stress_ok(lab.run(openmpi4, program, provider=provider))


def test_marline_run(stress, mpi, provider):
    """As typed by a user, on this machine only: a real mpiexec with its own options."""
    if provider != "marline":
        return
    program = stress(mpi, "--phases", "ring", "--iterations", 2, "--max-size", 100000)
    command = [labs.MARLINE, "run", "-v", "--no-shm", "--provider-dir", labs.PROVIDER_DIR, "--"]
    command += [f"{mpi.mpiexec}/bin/mpiexec", "-n", 2, *program]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": 1, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": 1}
    env = labs.clean_env({**mpi.env, **root, "FI_MARLINE_RAILS": "lo"})
    result = labs.Running([str(word) for word in command], env).wait(60)
    assert_stress_ok(result)
    assert result.find("^marline: set FI_PROVIDER=marline$"), result.tail()
    assert result.find("^marline: .*/bin/mpiexec .*-n 2 .*/stress"), result.tail()
    assert result.find("^Marline: 2 processes"), result.tail()
    assert result.rails()["lo"]["packets_out"] > 0, result.tail()


def test_threads(lab, mpi, provider):
    result = lab.run(mpi, [mpi.program("threads"), 4, 200], provider=provider)
    assert result.ok and result.find("^threads ok"), result.tail()


@pytest.mark.parametrize("name", ["mpich", "intel", "openmpi", "openmpi4"])
def test_messages_that_a_probe_matched(lab, name, provider):
    """Received into noncontiguous data. Open MPI's pml/cm does not support that over any provider;
    the library preloaded by `marline run` does."""
    if provider != "marline":
        return
    mpi = labs.MPIS[name]
    result = lab.run(mpi, [mpi.program("matched")])
    assert result.ok and result.find("^matched ok"), result.tail()


@pytest.mark.parametrize("name", ["mpich", "intel", "openmpi", "openmpi4"])
def test_persistent_sends_of_blocks_of_arrays(lab, name, provider):
    """Open MPI 4.1's pml/cm sends the bytes before such data over any provider; the preloaded
    library sends the right ones."""
    if provider != "marline":
        return
    mpi = labs.MPIS[name]
    result = lab.run(mpi, [mpi.program("persistent")])
    assert result.ok and result.find("^persistent ok"), result.tail()


@pytest.mark.parametrize("door", ["mpifh", "mpi", "f08"])
def test_fortran_messages_that_a_probe_matched(lab, openmpi4, provider, door):
    if provider != "marline":
        return
    result = lab.run(openmpi4, [openmpi4.program(f"matched_{door}")])
    assert result.ok and result.find("^matched ok"), result.tail()


@pytest.mark.parametrize("group", IMB_TESTS)
@pytest.mark.parametrize("name", ["mpich", "intel"])
def test_imb(lab, name, group, provider):
    mpi = labs.MPIS[name]
    env = {"LD_LIBRARY_PATH": str(mpi.library.parent)}
    program = [IMB, "-iter", 20, "-time", 0.1, "-msglog", "0:22", "-npmin", 2, *IMB_TESTS[group]]
    result = lab.run(mpi, program, provider=provider, env=env, timeout=120)
    assert result.ok and LAST_IMB_WORDS in result.out, result.tail()
    for test in IMB_TESTS[group]:
        assert f"# Benchmarking {test}" in result.out, f"{test} did not run\n{result.tail()}"


def excluded(name):
    """Lines `MPI|all PATTERN  # reason` of mpi4py_excluded.txt as arguments for the test runner."""
    words = []
    for line in (labs.ROOT / "tests/e2e/mpi4py_excluded.txt").read_text().splitlines():
        rule, _, reason = line.partition("#")
        if not rule.strip():
            continue
        who, pattern = rule.split()
        assert reason.strip(), f"no reason given for {pattern}"
        if who in ("all", name):
            words += ["-x", pattern]
    return words


def mpi4py(lab, mpi, *words, **how):
    """Runs the mpi4py tests that `words` select; returns their number."""
    source = max(p for p in MPI4PY.glob("mpi4py-*") if p.is_dir())
    python = labs.MPI_DIR / "tools" / "bin" / "python"
    # Through `env`, as Open MPI's launcher only passes on variables that it is told to.
    program = ["env", f"MPI4PY_LIBMPI={mpi.library}", f"LD_LIBRARY_PATH={mpi.library.parent}",
               python, source / "test" / "main.py", "--no-numpy", *words, *excluded(mpi.name)]
    result = lab.run(mpi, program, **how)
    ran = result.find(r"^Ran (\d+) tests?")
    assert result.ok and ran and result.find(r"^OK"), result.tail(60)
    return int(ran[1])


@pytest.mark.parametrize("mpi", ["intel", *(pytest.param(name, marks=pytest.mark.soak) for name in ("mpich", "openmpi"))], indirect=True)
def test_mpi4py(lab, mpi, provider):
    # It takes minutes on a busy machine (docs/design/lab.md). An empty selection would pass as
    # well.
    assert mpi4py(lab, mpi, provider=provider, timeout=900) > 1000


@pytest.mark.soak
def test_stress_soak(lab, stress, mpi, provider):
    program = stress(mpi, "--continue", 300, "--max-size", 8 << 20)
    assert_stress_ok(lab.run(mpi, program, provider=provider, timeout=400))
