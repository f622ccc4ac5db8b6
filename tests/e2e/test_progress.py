"""Communication continues while a process computes without calling MPI: it computes until the other
rank tells it, outside MPI, that the communication is done. The actual promise, 30 ms, holds on a
quiet machine (bench/progress)."""

import pytest

pytestmark = pytest.mark.any_mpi

# Without independent progress the rank computes this long, and is not told.
COMPUTING_S = 20


def computing(lab, mpi, folder, who, size, **how):
    """One side computes; returns whether it was told meanwhile, and the job's result."""
    program = [mpi.program("compute"), who, size, how.pop("seconds", COMPUTING_S), folder / "told"]
    result = lab.run(mpi, program, **how)
    # (The launcher may merge lines of two ranks.)
    assert result.ok and result.find(rf"compute {who}: \w+_ms="), result.tail()
    return bool(result.find("compute: told")), result


@pytest.mark.parametrize("size", [8, 100_000, 4 << 20])
@pytest.mark.parametrize("who", ["receiver", "sender"])
def test_one_side_computes(lab, mpi, provider, tmp_path, who, size):
    told, result = computing(lab, mpi, tmp_path, who, size, provider=provider)
    assert told, result.tail()


def test_contrast_tcp_waits_for_the_computing_receiver(lab, mpich, tmp_path):
    told, result = computing(lab, mpich, tmp_path, "receiver", 4 << 20, seconds=2, provider="tcp")
    assert not told, result.tail()


def test_a_computing_sender_retransmits(wire_lab, mpi, provider, tmp_path):
    for rail in (0, 1):
        wire_lab.fault(rail, "drop=5%")
    told, result = computing(wire_lab, mpi, tmp_path, "sender", 1 << 20, provider=provider)
    assert wire_lab.hits("drop") > 0
    assert told, result.tail()


def test_second_isend_is_not_stranded(lab, mpi, provider):
    computing_ms = 300
    result = lab.run(mpi, [mpi.program("second_isend"), 9, computing_ms], provider=provider)
    told = result.find(r"^second_isend: median_us=([\d.]+)")
    assert result.ok and told, result.tail()
    # A stranded send would wait until the computation ends; the goal of 200 us is for a quiet
    # machine. (A busy machine adds time slices of the scheduler.)
    assert float(told[1]) < 1000 * computing_ms / 2, result.tail()


def test_memory_of_a_ping_pong(lab, mpich):
    """Memory of each rank's log, windows and tables, from the final counters."""
    program = [mpich.program("pingpong"), "--samples", 2, "--tests", "latency"]
    result = lab.run(mpich, program, options=["-v"])
    told = result.find(r"^ *maximum reliability memory +([\d.]+) (k?)B")
    assert result.ok and told, result.tail()
    assert float(told[1]) * (1000 if told[2] else 1) < 256 * 1024, result.tail()
