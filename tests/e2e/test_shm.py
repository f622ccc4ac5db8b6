"""Ranks of one host by shared memory: alone, beside the network, without single-copy reads, with a
failing rail, and with a killed rank; and the counted cost of a message."""

import dataclasses
import json
import os
import re
import signal
import subprocess

import lab as labs
import pytest

pytestmark = pytest.mark.any_mpi

# More ranks than processors, as root.
LAUNCHER = {f"{who}_ALLOW_RUN_AS_ROOT{word}": 1
            for who in ("OMPI", "PRTE") for word in ("", "_CONFIRM")}
LAUNCHER["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
SHORT = ("--iterations", 2, "--max-size", 1 << 20)


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's rails")


def start(mpi, program, ranks=2, **settings):
    """`marline run` on this machine only."""
    command = [labs.MARLINE, "run", "-v", "--no-shm", "--provider-dir", labs.PROVIDER_DIR, "--"]
    command += [f"{mpi.mpiexec}/bin/mpiexec", "-n", ranks, *program]
    env = {f"FI_MARLINE_{name}": value for name, value in settings.items()}
    env = labs.clean_env({**mpi.env, **LAUNCHER, **env})
    return labs.Running([str(word) for word in command], env)


def run(mpi, program, ranks=2, **settings):
    result = start(mpi, program, ranks, **settings).wait(120)
    assert result.ok and result.find("^stress ok"), result.tail()
    return result


@pytest.mark.parametrize("one_copy", ["on", "off"])
def test_shared_memory_carries_a_job(stress, mpi, one_copy):
    """The network is used for first contact only."""
    result = run(mpi, stress(mpi, *SHORT), 4, RAILS="lo,shm", ONE_COPY=one_copy)
    rails = result.rails()
    assert rails["shm"]["packets_out"] > 5 * rails["lo"]["packets_out"] > 0, result.tail()


def test_shared_memory_alone(stress, mpi):
    result = run(mpi, stress(mpi, *SHORT), 2, RAILS="shm")
    assert result.rails().keys() == {"shm"}, result.tail()


def test_the_option_adds_shared_memory_to_all_interfaces(stress, mpich):
    result = run(mpich, stress(mpich, *SHORT), 2, SHM="on")
    rails = result.rails()
    assert len(rails) > 1 and rails["shm"]["packets_out"] > 0, result.tail()


def test_each_host_has_its_own(lab, stress, mpi):
    """Two hosts of two ranks: shared memory within each, the network between them."""
    program = stress(mpi, *SHORT)
    env = {"FI_MARLINE_SHM": "on"}
    result = lab.run(mpi, program, n=4, provider="marline", env=env, options=["--no-shm"],
                     timeout=120)
    assert result.ok and result.find("^stress ok"), result.tail()
    rails = result.rails()
    network = sum(rail["packets_out"] for name, rail in rails.items() if name != "shm")
    assert network > 1000 and rails["shm"]["packets_out"] > 1000, result.tail()


def test_the_network_takes_over(stress, mpi):
    """The shared-memory rail falls silent after its 300th packet, of the thousands that a rank
    sends."""
    result = run(mpi, stress(mpi, "--iterations", 4, "--max-size", 1 << 20), 2, RAILS="lo,shm",
                 FAULTS="rail=1;tx:kill_after=300")
    rails = result.rails()
    assert rails["lo"]["packets_out"] > 100 and rails["shm"]["failovers"] > 0, result.tail()


@pytest.mark.alone
def test_a_killed_rank_leaves_nothing(stress, mpi, tmp_path):
    program = stress(mpi, "--continue", 60, "--max-size", 1 << 20, "--report", 0.3)
    before = set(os.listdir("/dev/shm"))
    job = start(mpi, program, 2, RAILS="lo,shm", STATS_DIR=tmp_path)
    assert job.wait_for("^stress t=", 30), job.output()
    ranks = job.descendants(f"^{mpi.program('stress')} ")
    assert len(ranks) == 2, ranks
    for rank in ranks:
        maps = labs.Path(f"/proc/{rank}/maps").read_text()
        assert "/memfd:marline (deleted)" in maps, "the rail is in use"
    os.kill(max(ranks), signal.SIGKILL)
    result = job.wait(60)
    assert not result.timed_out and result.code != 0, result.tail()
    assert not labs.wait_gone(ranks, 60)
    # Statistics directories of other jobs are excluded: this job's is elsewhere.
    left = set(os.listdir("/dev/shm")) - before
    assert not [name for name in left if re.search("marline(?!-stats-)", name)], left


@pytest.mark.parametrize("rails", ["shm", "lo,shm"])
def test_a_killed_rank_is_told_by_evidence(openmpi, rails):
    """No process listens under the name of the killed process's rail, nor at its ports."""
    env = {"PEER_TIMEOUT_MS": 120_000, "RAILS": rails}
    told = {"FI_LOG_LEVEL": "warn", "PRTE_MCA_state_base_recoverable": "1",
            "PRTE_MCA_state_base_continuous": "1"}
    openmpi = dataclasses.replace(openmpi, env={**openmpi.env, **told})
    result = start(openmpi, [openmpi.program("deadpeer"), "recv"], **env).wait(60)
    assert result.find(r"^deadpeer: error after"), result.tail()
    assert result.find(r"peer \w+ .*is dead: its process is gone"), result.tail()


@dataclasses.dataclass
class Counts:
    """Counters of both ranks of a job: messages of the test's length, payload bytes, bytes written
    past packets, packets, their bytes, and reads of the peer's memory."""

    messages: int
    payload: int
    written: int
    packets: int
    packet_bytes: int
    reads: int


def counted(mpi, folder, program, length, rail="shm", **settings):
    library = folder / "count_calls.so"
    source = labs.ROOT / "tests" / "e2e" / "count_calls.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    mpi = dataclasses.replace(mpi, env={**mpi.env, "LD_PRELOAD": library})
    program = [mpi.program("pingpong"), "--samples", 1, "--seconds", 0.5, *program]
    result = start(mpi, program, 2, RAILS=rail, STATS_DIR=folder, **settings).wait(60)
    assert result.ok and result.find("^pingpong,"), result.tail()
    kept = subprocess.run([labs.MARLINE, "stats", "--json", folder], capture_output=True, text=True,
                          check=True)
    [job] = json.loads(kept.stdout)["jobs"]
    sent = job["rails"][0]["rail"]
    payload, written = job["peers"]["bytes_sent"], job["process"]["written"]
    reads = sum(map(int, re.findall(r"^pulls (\d+)$", result.out, re.MULTILINE)))
    return Counts(payload // length, payload, written, sent["wire_packets_sent"],
                  sent["wire_bytes_received"], reads)


@pytest.mark.parametrize("rail", ["shm", "tcp:lo"])
@pytest.mark.parametrize("checksum", ["strong", "none"])
def test_a_burst_is_written(mpi, tmp_path, checksum, rail):
    """Of 64 successive messages the first few go in packets, the others from memory to memory."""
    counts = counted(mpi, tmp_path, ["--tests", "bw64k"], 65_536, rail, CHECKSUM=checksum)
    assert counts.messages > 64, counts
    assert counts.written > 0.7 * counts.messages, counts
    assert counts.packet_bytes < 0.3 * counts.payload, counts


def test_without_sums_a_message_takes_no_more(mpich, tmp_path):
    """As many writes as with sums. The number of packets that report them depends on timing: at
    most three each."""
    for length in (65_536, 262_144, 4 << 20):
        forms = []
        for checksum in ("strong", "none"):
            folder = tmp_path / f"{checksum}{length}"
            folder.mkdir()
            counts = counted(mpich, folder, ["--sweep", length], length, CHECKSUM=checksum)
            assert counts.packets < 6 * counts.messages + 3 * counts.written, (length, counts)
            forms.append(counts)
        with_sums, without = forms
        each = lambda counts: counts.written / counts.messages
        assert each(without) <= 1.2 * each(with_sums) + 0.5, (length, forms)
        if length > 65_536:
            assert without.packet_bytes < 0.02 * without.payload, (length, without)
    # Pieces of one message that are available together are read together.
    assert without.reads < 0.75 * without.written, without
