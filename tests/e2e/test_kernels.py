"""Kernels like the NAS benchmarks, which verify their own results."""

import pytest

# Small sizes: the tests check messages, not speed (bench/apps).
SIZES = {
    "sort": ["--size", 100000, "--iterations", 3],
    "cg": ["--size", 20000, "--iterations", 1],
    "ft": ["--size", 64, "--iterations", 1],
    "mg": ["--size", 32, "--iterations", 6],
    "wave": ["--size", 64, "--iterations", 2],
}


def kernel(mpi, name):
    return [mpi.program(f"kernel_{name}"), *SIZES[name]]


@pytest.mark.parametrize("name", SIZES)
def test_kernel(lab, mpi, provider, name):
    result = lab.run(mpi, kernel(mpi, name), provider=provider)
    assert result.ok and result.find(rf"^kernel {name} verified yes "), result.tail()


@pytest.fixture
def corrupting_lab(wire_lab):
    """Changes a byte of one packet in 20 on both rails, after all checks of the network."""
    for rail in ("0", "1"):
        wire_lab.fault(rail, "corrupt=5%")
    return wire_lab


@pytest.mark.parametrize("name", ["sort", "wave"])
def test_kernel_under_corruption(corrupting_lab, mpich, provider, name):
    result = corrupting_lab.run(mpich, kernel(mpich, name), provider=provider)
    hits = corrupting_lab.hits("corrupt")
    assert result.ok and result.find(rf"^kernel {name} verified yes "), result.tail()
    assert hits > 0, "no packet was changed: the test has shown nothing"


@pytest.mark.parametrize("setting", ["CHECKSUM=none", "CHECKSUM_SLICES_MS=50"])
def test_kernel_notices_wrong_bytes(corrupting_lab, mpich, provider, setting):
    """Without checksums, even if only for half of the time, the same faults reach the program,
    whose verification must notice them."""
    name, _, value = setting.partition("=")
    env = {f"FI_MARLINE_{name}": value}
    program = [*kernel(mpich, "wave"), "--iterations", 6]
    result = corrupting_lab.run(mpich, program, provider=provider, env=env)
    assert result.find("^kernel wave verified no ") and not result.ok, result.tail()


@pytest.mark.parametrize("name", SIZES)
def test_iterations_by_slices(lab, mpich, name):
    """The output that `bench/apps --within` reads: iterations within a slice of the clock. (On a
    busy machine an iteration takes seconds; in a slice of a minute there is at least one.)"""
    program = [*kernel(mpich, name), "--iterations", 10, "--slices", 60_000]
    result = lab.run(mpich, program)
    assert result.ok and result.find(rf"^kernel {name} verified yes "), result.tail()
    assert result.find(r"^slice \d+ [1-9]\d* \d+\.\d+$"), result.tail()
