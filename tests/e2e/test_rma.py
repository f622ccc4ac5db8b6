"""One-sided operations through libfabric's remote memory and atomics (FI_RMA, FI_ATOMIC): a
verifying program, with and without packets that are lost, damaged or cut off."""

import pytest

import lab as labs
from test_mpi import mpi4py

# Marline offers them, and the MPI uses them.
ON = {
    "FI_MARLINE_RMA": "on",
    "MPIR_CVAR_CH4_OFI_ENABLE_RMA": 1,
}
OK = r"^rma ok operations=(\d+)$"
MPICHS = ["mpich", "intel"]
IMB_TESTS = """Unidir_put Bidir_put Unidir_get Bidir_get Put_local Put_all_local One_put_all All_put_all
One_get_all All_get_all Exchange_put Exchange_get Accumulate Get_accumulate Fetch_and_op
Compare_and_swap Truly_passive_put""".split()


def run(lab, mpi, provider, *words, **how):
    how.setdefault("env", ON)
    result = lab.run(mpi, [mpi.program("rma"), *words], provider=provider, **how)
    assert result.ok and result.find(OK), result.tail()
    return result


@pytest.mark.parametrize("seed", [1, 2])
def test_operations_of_every_kind(lab, mpi, provider, tmp_path, seed):
    if mpi.name in MPICHS:
        env = {**ON, "FI_MARLINE_STATS_DIR": tmp_path}
        run(lab, mpi, provider, "--seed", seed, env=env, n=4)
        if provider == "marline":
            counted = labs.counters(tmp_path)
            assert counted["rpcs"] > 0 and counted["reads"] > 0, "it went over messages"
    else:
        result = run(lab, mpi, provider, "--seed", seed, env={"FI_MARLINE_STATS_DIR": tmp_path}, n=4)
        if provider == "marline":
            counted = labs.counters(tmp_path)
            assert counted["rpcs"] > 0 and counted["reads"] > 0, "it went by btl/tcp"
            assert "left no statistics" not in result.out, result.tail()
            assert "mtl_ofi_component.c" not in result.out, f"an object stays open\n{result.tail()}"


@pytest.mark.parametrize("name", MPICHS)
def test_one_sided_operations_are_used_by_default(lab, name, tmp_path):
    """This many long gets at once fail in MPICH if they use messages."""
    env, mpi = {"FI_MARLINE_STATS_DIR": tmp_path}, labs.MPIS[name]
    run(lab, mpi, "marline", "--gets", 64, env=env, n=2)
    run(lab, mpi, "marline", "--seed", 5, env=env, n=2)
    counted = labs.counters(tmp_path)
    assert counted["rpcs"] > 0 and counted["reads"] >= 40 * 64, "it went over messages"


@pytest.mark.parametrize("name", MPICHS)
def test_short_operations_travel_together(lab, name, tmp_path):
    """A write for each element of a strided target, then puts and accumulates of single
    elements."""
    mpi, elements = labs.MPIS[name], 3000
    env = {**ON, "MPIR_CVAR_CH4_OFI_ENABLE_ATOMICS": 1, "FI_MARLINE_STATS_DIR": tmp_path}
    program = [mpi.program("strided"), "--elements", elements]
    result = lab.run(mpi, program, env=env, n=2, timeout=90)
    assert result.ok and result.find(r"^strided ok"), result.tail()
    counted = labs.counters(tmp_path)
    assert counted["rpcs"] >= 2 * 2 * elements, f"it went over messages: {counted}"
    assert counted["packets_sent"] <= counted["rpcs"] / 4, counted


@pytest.mark.parametrize("fault", [None, "drop=2%"])
@pytest.mark.parametrize("name, way", [("mpich", 1), ("mpich", 2), ("intel", 0), ("intel", 1)])
def test_very_many_short_operations_share_calls(lab, name, way, fault, tmp_path):
    """Bytes and messages of each: a write of 4 bytes costs little more than what it writes."""
    mpi, elements = labs.MPIS[name], 250_000
    env = {**ON, "MPIR_CVAR_CH4_OFI_ENABLE_ATOMICS": int(name == "mpich"), "FI_MARLINE_STATS_DIR": tmp_path}
    if fault:
        lab.fault(0, fault)
    program = [mpi.program("strided"), "--way", way, "--elements", elements]
    result = lab.run(mpi, program, env=env, n=2, timeout=180)
    assert result.ok and result.find(r"^strided ok"), result.tail()
    counted = labs.counters(tmp_path)
    assert counted["rpcs"] >= 2 * elements, f"it went over messages: {counted}"
    assert counted["aggregated"] >= counted["rpcs"] * 0.9, counted
    # Payload, distance and length take six bytes, and 500 share what a message costs.
    assert counted["wire_bytes_sent"] <= 10 * counted["rpcs"], counted
    if fault:
        assert lab.hits("drop") > 0, lab.status()


def test_threads_that_put_and_flush_in_turn(lab, mpich, provider):
    """The target waits in a barrier meanwhile, and serves all of them."""
    program = [mpich.program("strided"), "--threads", 4, "--elements", 300]
    result = lab.run(mpich, program, provider=provider, n=2, timeout=90)
    assert result.ok and result.find(r"^strided ok"), result.tail()


def test_windows_that_ranks_share_go_over_messages(lab, mpi, provider):
    """Intel MPI lacks their keys, over any provider."""
    program = [mpi.program("strided"), "--shared"]
    result = lab.run(mpi, program, provider=provider, n=4, options=["--no-shm"], timeout=90)
    assert result.ok and result.find(r"^strided ok"), result.tail()


@pytest.mark.parametrize("fault", ["drop=2%", "corrupt=1%"])
def test_on_a_rail_that_loses_or_damages(lab, mpi, provider, fault):
    """Counters that all ranks increment, compare-and-swap locks, and every byte are exact."""
    lab.fault(0, fault)
    run(lab, mpi, provider, "--seed", 3, "--rounds", 20, n=4, timeout=90)
    assert lab.hits(fault.partition("=")[0]) > 0, lab.status()


def test_windows_of_every_kind(lab, mpi, provider, tmp_path):
    """Dynamic, shared and empty windows; thresholds, scattered elements; one rail loses packets,
    the other damages them."""
    lab.fault(0, "drop=2%")
    lab.fault(1, "corrupt=1%")
    program = [mpi.program("windows"), "--rounds", 6, "--seed", 3]
    env = {"FI_MARLINE_STATS_DIR": tmp_path}
    result = lab.run(mpi, program, provider=provider, env=env, n=4, timeout=90)
    assert result.ok and result.find(r"^windows ok operations="), result.tail()
    assert lab.hits("drop") > 0 and lab.hits("corrupt") > 0, lab.status()
    if provider == "marline":
        counted = labs.counters(tmp_path)
        assert counted["rpcs"] > 0 and counted["reads"] > 0, f"it went another way: {counted}"


# Transport of accumulates on long doubles: MPICH 5 always uses messages; Open MPI's osc/rdma uses
# get and put under locks by atomics; Intel MPI uses the network if its atomics are enabled.
WIDE = {
    "mpich": ({}, []),
    "openmpi": ({}, ["rpcs", "reads"]),
    "intel": ({}, []),
    "intel-atomics": ({"MPIR_CVAR_CH4_OFI_ENABLE_ATOMICS": 1}, ["rpcs"]),
}


@pytest.mark.parametrize("fault", [None, "drop=2%"])
@pytest.mark.parametrize("name", WIDE)
def test_long_doubles_real_and_complex(lab, name, provider, tmp_path, fault):
    """Sums, maxima and tickets are exact, to the last of their 64 bits."""
    env, counted_by = WIDE[name]
    mpi = labs.MPIS[name.partition("-")[0]]
    if fault:
        lab.fault(0, fault)
    env = {**env, "FI_MARLINE_STATS_DIR": tmp_path}
    program = [mpi.program("wide"), "--seed", 3]
    result = lab.run(mpi, program, provider=provider, env=env, n=4, timeout=90)
    assert result.ok and result.find(r"^wide ok operations=640$"), result.tail()
    assert not fault or lab.hits("drop") > 0, lab.status()
    if provider == "marline":
        counted = labs.counters(tmp_path)
        used = [counter for counter in ("rpcs", "reads") if counted[counter]]
        assert used == counted_by, f"{used}\n{result.tail()}"


def flap(lab, job):
    """A rail goes down and returns until the job ends; returns the job's result."""
    while job.running():
        lab.fault(0, "down")
        lab.clear()
    return job.wait(300)


def test_a_rail_goes_down_and_returns(lab, mpi, provider, tmp_path):
    program = [mpi.program("rma"), "--seed", 4, "--rounds", 20]
    result = flap(lab, lab.start(mpi, program, env={"FI_MARLINE_STATS_DIR": tmp_path}, n=4, provider=provider))
    assert result.ok and result.find(OK), result.tail()
    assert provider != "marline" or labs.counters(tmp_path)["downs"] > 0, result.tail()


# Intel MPI uses the network for increments only if its atomics are enabled.
COUNTS = {"mpich": {}, "openmpi": {}, "intel": {}, "intel-atomics": {"MPIR_CVAR_CH4_OFI_ENABLE_ATOMICS": 1}}


@pytest.mark.parametrize("name", COUNTS)
def test_a_counter_is_exact_after_failovers(lab, name, provider, tmp_path):
    """Each value is returned once, to one of four ranks, and the last equals their number."""
    mpi = labs.MPIS[name.partition("-")[0]]
    env = {**COUNTS[name], "FI_MARLINE_STATS_DIR": tmp_path}
    program = [mpi.program("rma"), "--increments", 500]
    result = flap(lab, lab.start(mpi, program, env=env, n=4, provider=provider))
    assert result.ok and result.find(OK), result.tail()
    if provider == "marline":
        counted = labs.counters(tmp_path)
        assert counted["downs"] > 0, result.tail()
        assert (counted["rpcs"] >= 4 * 500) == (name != "intel"), counted


def test_a_job_begins_beside_a_rail_that_is_down(lab, mpich, provider, tmp_path):
    """libfabric drops rails that it considers NICs without a link."""
    lab.fault(0, "down")
    if provider == "marline":
        run(lab, mpich, provider, "--seed", 4, "--rounds", 3, env={**ON, "FI_MARLINE_STATS_DIR": tmp_path})
        assert labs.counters(tmp_path)["rpcs"] > 0


def test_memory_of_a_rank_that_computes(lab, mpich, provider, tmp_path):
    """The progress thread serves it: rank 0 computes until the others have put, got, counted and
    noted so."""
    if provider == "marline":
        env = {**ON, "FI_MARLINE_STATS_DIR": tmp_path}
        run(lab, mpich, provider, "--compute", 30_000, env=env)
        assert labs.counters(tmp_path)["thread_takeovers"] >= 1000, "the thread had to do it"


@pytest.mark.parametrize("name", MPICHS)
def test_imb_rma(lab, name, provider, tmp_path):
    """Every benchmark of IMB-RMA ends on a lossy rail; it is built without data checks."""
    lab.fault(0, "drop=2%")
    mpi, lengths = labs.MPIS[name], tmp_path / "lengths"
    lengths.write_text("0\n8\n5000\n200000\n")
    program = [labs.MPI_DIR / "impi-rt" / "bin" / "IMB-RMA", "-iter", 10, "-time", 0.05, "-msglen", lengths]
    env = {"LD_LIBRARY_PATH": str(mpi.library.parent)}
    result = lab.run(mpi, program, provider=provider, env=env, timeout=200)
    assert result.ok and "All processes entering MPI_Finalize" in result.out, result.tail()
    for test in IMB_TESTS:
        assert f"# Benchmarking {test}" in result.out, f"{test} did not run\n{result.tail()}"
    assert lab.hits("drop") > 0, lab.status()


def test_mpi4py_on_a_rail_that_loses(lab, mpi, provider):
    """Some of its tests of windows; test_soak_mpi4py runs all."""
    lab.fault(0, "drop=2%")
    tests = ["testCompareAndSwap", "testStartComplete", "testFlush"]
    chosen = [word for test in tests for word in ("-k", f"TestRMAWorld.{test}")]
    assert mpi4py(lab, mpi, "-i", "test_rma", *chosen, provider=provider, timeout=120) >= len(tests)
    assert lab.hits("drop") > 0, lab.status()


@pytest.mark.soak
def test_soak_mpi4py(lab, mpi, provider):
    lab.fault(0, "drop=2%")
    assert mpi4py(lab, mpi, "-i", "test_rma", "-i", "test_win", provider=provider, timeout=600) > 100
    assert lab.hits("drop") > 0, lab.status()


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["drop=5%", "corrupt=2%", "flap"])
@pytest.mark.parametrize("seed", range(10, 15))
@pytest.mark.parametrize("program", ["rma", "windows"])
def test_soak(lab, mpi, provider, program, fault, seed):
    if fault != "flap":
        lab.fault(0, fault)
    words = [mpi.program(program), "--seed", seed, "--rounds", 400 if program == "rma" else 60]
    job = lab.start(mpi, words, provider=provider, n=4)
    result = flap(lab, job) if fault == "flap" else job.wait(300)
    assert result.ok and result.find(rf"^{program} ok "), result.tail()
