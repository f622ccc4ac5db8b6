"""Communication goes on while a process computes and never calls MPI. Times are measured by the
programs, and asserted against the computation that they must not wait for; the promise itself,
30 ms, is for a quiet machine (bench/progress)."""

import pytest

# The computing phase: without independent progress the times below are at least as long.
COMPUTING_S = 2
# Long before it ends. (317 ms were seen while half of the machine's time went to others.)
LIMIT_MS = COMPUTING_S * 1000 / 2


@pytest.mark.parametrize("size", [8, 100_000, 4 << 20])
@pytest.mark.parametrize("who", ["receiver", "sender"])
def test_one_side_computes(lab, mpi, provider, who, size):
    result = lab.run(mpi, [mpi.program("compute"), who, size, COMPUTING_S], provider=provider)
    told = result.find(rf"^compute {who}: \w+_ms=([\d.]+)")
    assert result.ok and told, result.tail()
    assert float(told[1]) < LIMIT_MS, result.tail()


def test_contrast_tcp_waits_for_the_computing_receiver(lab, mpich):
    program = [mpich.program("compute"), "receiver", 4 << 20, COMPUTING_S]
    result = lab.run(mpich, program, provider="tcp")
    told = result.find(r"^compute receiver: send_ms=([\d.]+)")
    assert result.ok and told and float(told[1]) > LIMIT_MS, result.tail()


def test_sender_repairs_loss_while_it_computes(wire_lab, mpi, provider):
    for rail in (0, 1):
        wire_lab.fault(rail, "drop=5%")
    program = [mpi.program("compute"), "sender", 1 << 20, COMPUTING_S]
    result = wire_lab.run(mpi, program, provider=provider)
    told = result.find(r"^compute sender: arrival_ms=([\d.]+)")
    assert result.ok and told, result.tail()
    assert wire_lab.hits("drop") > 0
    assert float(told[1]) < LIMIT_MS, result.tail()


def test_second_isend_is_not_stranded(lab, mpi, provider):
    result = lab.run(mpi, [mpi.program("second_isend"), 30, 100], provider=provider)
    told = result.find(r"^second_isend: median_us=([\d.]+)")
    assert result.ok and told, result.tail()
    # Stranded until the computation ends would be 100 ms; the goal of 200 us is for a quiet
    # machine. (Beside busy processes 8 ms were measured: two slices of the scheduler.)
    assert float(told[1]) < 50_000, result.tail()


def test_memory_of_a_ping_pong(lab, mpich):
    """Log, windows and tables of each of two ranks, as the counters tell at the end."""
    program = [mpich.program("pingpong"), "--samples", 2, "--tests", "latency"]
    result = lab.run(mpich, program, options=["-v"])
    told = result.find(r"^ *maximum reliability memory +([\d.]+) (k?)B")
    assert result.ok and told, result.tail()
    assert float(told[1]) * (1000 if told[2] else 1) < 256 * 1024, result.tail()
