"""Each rank in a container: with its own processes, IPC and /dev/shm, without capabilities and
process_vm_readv, and with a read-only root."""

import os
import shlex
import struct

import pytest

import lab as labs

pytestmark = pytest.mark.packages
RING = ("--phases", "ring", "--iterations", 2, "--max-size", 300000)
# System call numbers of process_vm_readv and process_vm_writev.
REFUSED = {"x86_64": (310, 311), "aarch64": (270, 271)}[os.uname().machine]
LOAD_NUMBER, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, EPERM = 0x7FFF0000, 0x00050001


def seccomp():
    """A seccomp(2) filter that forbids these two calls."""
    lines = [(LOAD_NUMBER, 0, 0, 0), (JUMP_IF_EQUAL, 2, 0, REFUSED[0]), (JUMP_IF_EQUAL, 1, 0, REFUSED[1]),
             (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, EPERM)]
    return b"".join(struct.pack("<HBBI", *line) for line in lines)


@pytest.fixture
def contained(tmp_path):
    """The command prefix that runs a program in a container with one more visible directory."""
    (tmp_path / "filter").write_bytes(seccomp())
    (tmp_path / "seen").mkdir()

    def words(program, tmp=("--tmpfs", "/tmp")):
        options = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/dev/shm", *tmp,
                   "--bind", tmp_path / "seen", tmp_path / "seen", "--unshare-pid", "--unshare-ipc",
                   "--cap-drop", "ALL", "--seccomp", "9"]
        line = shlex.join(map(str, ["bwrap", *options, *program]))
        script = tmp_path / "contained"
        script.write_text(f"#!/bin/sh\nexec {line} 9<{tmp_path}/filter\n")
        script.chmod(0o755)
        return [script]

    words.seen = tmp_path / "seen"
    return words


# Ranks of Intel MPI on one host need a common /dev/shm over any provider, and ranks of Open MPI
# their launcher's files in /tmp.
@pytest.mark.parametrize("name, ranks, tmp", [
    ("mpich", 4, ("--tmpfs", "/tmp")),
    ("openmpi", 4, ("--bind", "/tmp", "/tmp")),
    ("intel", 2, ("--tmpfs", "/tmp")),
])
@pytest.mark.parametrize("shm", ["off", "on"])
def test_the_summary_by_a_directory_that_containers_see(lab, contained, stress, name, ranks, tmp, shm):
    """Ranks of a host communicate by the network, or by shared memory with two copies; all bytes
    are right, and so is the verdict."""
    mpi = labs.MPIS[name]
    env = {"FI_MARLINE_STATS_DIR": contained.seen, "FI_MARLINE_SHM": shm}
    program = contained(stress(mpi, *RING), tmp)
    result = lab.run(mpi, program, n=ranks, env=env, options=["--no-shm", "--require"])
    assert result.ok and result.find("^stress ok"), result.tail()
    assert result.find(f"^\0?Marline: {ranks} processes sent"), result.tail()
    if shm == "on" and ranks == 4:
        assert result.rails()["shm"]["packets_out"] > 0, result.tail()


def test_rank_0_prints_a_summary(lab, contained, stress, mpich):
    result = lab.run(mpich, contained(stress(mpich, *RING)), env={"FI_MARLINE_SUMMARY": "on"})
    assert result.ok and result.find("^Marline: rank 0 sent "), result.tail()


def test_a_summary_that_lacks_its_statistics_says_why(lab, contained, stress, mpich):
    result = lab.run(mpich, contained(stress(mpich, *RING)))
    assert result.ok and result.find("^stress ok"), result.tail()
    words = " ".join(result.out.split())
    assert "NOT USED" in words and "in containers with a /dev/shm of their own" in words, result.tail()
