"""Open MPI 5 with its own matching, pml/ob1 over btl/ofi: by the user's request, and with ULFM
(`mpiexec --with-ft ulfm`), where a rank is killed and the others shrink the communicator and
continue."""

import pytest

import lab as labs
from conftest import ALL_BUT_TRUNCATE

RANKS = 4


def survive(lab, openmpi, provider, options=(), env=None, ask=("--with-ft", "ulfm")):
    """The job's result; all ranks but one continue."""
    program = [*ask, openmpi.program("ulfm"), 30]
    if provider != "marline":
        program[:0] = ["--mca", "coll", "^han"]
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
def test_ranks_go_on_on_a_rail_that_loses_or_damages(lab, openmpi, provider, fault):
    if provider != "marline":
        pytest.skip("TCP takes what is damaged for data")
    lab.fault(0, fault)
    survive(lab, openmpi, provider)
    assert lab.hits(fault.partition("=")[0]) > 0, lab.status()


@pytest.mark.parametrize("way", ["parameter", "file"])
def test_other_ways_to_ask_for_it(lab, openmpi, provider, tmp_path, way):
    """By Open MPI's parameter; the launcher is told to spare the others."""
    ask, env = ["--runtime-options", "recoverable,notifyerrors"], {}
    if way == "parameter":
        ask += ["--mca", "mpi_ft_enable", 1]
    else:
        env["HOME"] = tmp_path
        (tmp_path / ".openmpi").mkdir()
        (tmp_path / ".openmpi" / "mca-params.conf").write_text("mpi_ft_enable = true\n")
    survive(lab, openmpi, provider, env=env, ask=ask)


OB1 = {"argument": (["--mca", "pml", "ob1"], {}), "environment": ([], {"OMPI_MCA_pml": "ob1"})}


@pytest.mark.parametrize("how", OB1)
@pytest.mark.parametrize("fault", [None, "drop=2%"])
def test_messages_that_open_mpi_matches(lab, openmpi, provider, tmp_path, how, fault):
    words, env = OB1[how]
    if fault:
        lab.fault(0, fault)
    how_long = ["--seed", 5, "--iterations", 3, "--max-size", 1 << 20, "--phases", ALL_BUT_TRUNCATE]
    program = [*words, openmpi.program("stress"), *how_long]
    env = {**env, "FI_MARLINE_STATS_DIR": tmp_path}
    result = lab.run(openmpi, program, provider=provider, env=env, timeout=90)
    assert result.ok and result.find(r"^stress ok "), result.tail()
    assert not fault or lab.hits("drop") > 0, lab.status()
    if provider == "marline":
        sent = int(result.find(r"^stress ok .*\bbytes=(\d+)")[1])
        counted = labs.counters(tmp_path)
        assert counted["bytes_sent"] >= sent, f"{counted}\n{result.tail()}"


def test_windows_beside_messages_that_open_mpi_matches(lab, openmpi, provider, tmp_path):
    """osc/rdma over the same btl/ofi."""
    words = ["--mca", "pml", "ob1", "--mca", "osc", "rdma"]
    program = [*words, openmpi.program("rma"), "--seed", 6]
    env = {"FI_MARLINE_STATS_DIR": tmp_path}
    result = lab.run(openmpi, program, provider=provider, env=env, n=RANKS, timeout=90)
    assert result.ok and result.find("^rma ok"), result.tail()
    if provider == "marline":
        counted = labs.counters(tmp_path)
        assert counted["calls"] > 0 and counted["reads"] > 0, f"it went another way: {counted}"


@pytest.mark.parametrize("mode", ["returns", "handler", "any", "freed"])
@pytest.mark.parametrize("options", [(), ("--multicast",)], ids=["default", "multicast"])
def test_ranks_end_in_order_after_one_was_killed(lab, openmpi, provider, mode, options):
    """No preloaded library calls a collective in which a lost rank would cause the program an
    error. (With a host per rank Open MPI's own MPI_Finalize waits forever, over TCP, too.)"""
    if options and provider != "marline":
        pytest.skip("it is an option of Marline's")
    program = ["--with-ft", "ulfm", openmpi.program("ulfm_ends"), mode]
    result = lab.run(openmpi, program, n=RANKS, provider=provider, options=list(options), timeout=90)
    assert result.ok and result.find(f"^ulfm_ends ok {mode}$"), result.tail()
