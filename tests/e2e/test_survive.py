"""Open MPI 5 with ULFM (`mpiexec --with-ft ulfm`): a rank is killed, the others shrink the communicator
and go on, over Marline."""

import pytest

import lab as labs

RANKS = 4


def survive(lab, openmpi, provider, options=(), env=None):
    """The job's result; all ranks but one go on."""
    program = ["--with-ft", "ulfm", openmpi.program("ulfm"), 30]
    if provider != "marline":
        program[2:2] = ["--mca", "coll", "^han"]
    result = lab.run(openmpi, program, n=RANKS, provider=provider, options=options, env=env)
    assert result.ok and result.find(rf"^ulfm ok ranks={RANKS - 1} rounds=30$"), result.tail()
    assert result.find(rf"^ulfm: lost 1 of {RANKS} "), result.tail()
    return result


@pytest.mark.parametrize("options", [(), ("--no-shm",)], ids=["shm", "no-shm"])
def test_ranks_go_on_without_one_that_was_killed(lab, openmpi, provider, tmp_path, options):
    env = {"FI_MARLINE_STATS_DIR": tmp_path}
    result = survive(lab, openmpi, provider, options if provider == "marline" else (), env)
    if provider == "marline":
        packets = labs.total(result.rails(), "packets_out")
        assert packets > 1000, f"it went another way\n{result.tail()}"


@pytest.mark.parametrize("fault", ["drop=2%", "corrupt=1%"])
def test_so_they_do_on_a_rail_that_loses_or_damages(lab, openmpi, provider, fault):
    if provider != "marline":
        pytest.skip("TCP takes what is damaged for data")
    lab.fault(0, fault)
    survive(lab, openmpi, provider)
    assert lab.hits(fault.partition("=")[0]) > 0, lab.status()
