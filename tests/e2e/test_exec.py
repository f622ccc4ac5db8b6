"""`marline exec -- PROGRAM`, started once per rank by a launcher without knowledge of Marline."""

import pytest

import lab as labs

RING = ("--phases", "ring", "--iterations", 2, "--max-size", 100000)
EXEC = [labs.MARLINE, "exec", "--provider-dir", labs.PROVIDER_DIR, "--"]
RAILS = {"FI_MARLINE_RAILS": "rail0,rail1"}


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline")


def carried(result):
    """Rank 0 prints once at its end the bytes sent on the rails."""
    assert result.ok, result.tail()
    assert result.out.count("Marline: rank 0 sent ") == 1, result.tail()
    rails = result.rails()
    assert rails["rail0"]["packets_out"] > 0 and rails["rail1"]["packets_out"] > 0, result.tail()


def test_ranks_of_any_launcher(lab, stress, mpi):
    """On two hosts; of Marline's variables the launcher only has the names of the rails."""
    result = lab.run(mpi, [*EXEC, *stress(mpi, *RING)], provider="none", env=RAILS)
    assert result.find("^stress ok"), result.tail()
    carried(result)


def test_ranks_of_open_mpi_4(lab, stress, openmpi4):
    result = lab.run(openmpi4, [*EXEC, *stress(openmpi4, *RING)], provider="none", env=RAILS)
    assert result.find("^stress ok"), result.tail()
    carried(result)


def test_a_script_by_the_mark_of_its_launcher(lab, stress, mpi, tmp_path):
    """The shell that runs the script is not linked with an MPI."""
    script = tmp_path / "job"
    script.write_text('#!/bin/sh\nexec "$@"\n')
    script.chmod(0o755)
    words = [*EXEC, script, "sh", "-c", " ".join(map(str, stress(mpi, *RING)))]
    result = lab.run(mpi, words, provider="none", env=RAILS)
    assert result.find("^stress ok"), result.tail()
    carried(result)


HELLO = """
from mpi4py import MPI
world = MPI.COMM_WORLD
data = bytearray(100000)
world.Sendrecv(bytes([world.rank]) * 100000, 1 - world.rank, recvbuf=data, source=1 - world.rank)
assert data == bytes([1 - world.rank]) * 100000
"""


@pytest.mark.parametrize("name", ["mpich", "openmpi"])
def test_python(lab, name):
    """The interpreter is not linked with an MPI; mpi4py loads one."""
    mpi = labs.MPIS[name]
    python = labs.MPI_DIR / "tools" / "bin" / "python"
    words = ["env", f"MPI4PY_LIBMPI={mpi.library}", *EXEC, python, "-c", HELLO]
    result = lab.run(mpi, words, provider="none", env=RAILS)
    carried(result)


def test_within_marline_run(lab, stress, mpi):
    """No variable is set twice, and only the summary of the whole run is printed."""
    result = lab.run(mpi, [*EXEC, *stress(mpi, *RING)])
    assert result.ok and result.find("^stress ok"), result.tail()
    assert result.find("^\0?Marline: 2 processes sent"), result.tail()
    assert result.out.count("Marline: ") == 1, result.tail()


# Lists of hosts as PBS, LSF and Grid Engine give them to a job, and how MPICH's mpiexec reads them.
BATCH = {
    "pbs": ("PBS_NODEFILE", "{0}\n{1}\n"),
    "lsf": ("LSB_MCPU_HOSTS", "{0} 1 {1} 1"),
    "sge": ("PE_HOSTFILE", "{0} 1 all.q UNDEFINED\n{1} 1 all.q UNDEFINED\n"),
}


@pytest.mark.parametrize("system", sorted(BATCH))
def test_hosts_from_a_batch_system(lab, stress, mpich, tmp_path, system):
    """In the environment of a job of these systems (which themselves are not there) the launcher
    takes the hosts from it."""
    variable, text = BATCH[system]
    hosts = text.format(f"{lab.name}-h0", f"{lab.name}-h1")
    if variable.endswith("FILE"):
        (tmp_path / "hosts").write_text(hosts)
        hosts = str(tmp_path / "hosts")
    agent = lab.agent()
    words = ["env", f"{variable}={hosts}", f"{mpich.mpiexec}/bin/mpiexec", "-rmk", system, "-launcher", "ssh",
             "-launcher-exec", agent, "-iface", "ctl", "-n", "2", *EXEC, *stress(mpich, *RING)]
    command = [labs.MARLINE, "lab", "exec", "--name", lab.name, "ctl", "--", *map(str, words)]
    result = labs.Running(command, labs.clean_env(RAILS)).wait(180)
    assert result.find("^stress ok"), result.tail()
    carried(result)
