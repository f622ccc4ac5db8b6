"""A reader that polls its window and stores there after the last word of a put appeared: the whole
put is visible then, and no byte of it returns later, on rails of every kind, with and without
faults."""

import lab as labs
import pytest
from test_shm import start

PUTS = 300
ON = {
    "FI_MARLINE_RMA": "on",
    "MPIR_CVAR_CH4_OFI_ENABLE_RMA": 1,
}
RAILS = {"udp": "udp:rail0,udp:rail1", "tcp": "tcp:rail0,tcp:rail1"}


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's rails")


def program(mpi, bytes, skew=0, *more):
    return [mpi.program("polled"), "--puts", PUTS, "--bytes", bytes, "--skew", skew, *more]


def assert_kept(result, bytes):
    wanted = f"polled puts={PUTS} bytes={bytes} early=0 comebacks=0"
    assert result.ok and result.find(f"^{wanted}$"), result.tail()


@pytest.mark.parametrize("fault", [None, "drop=2%", "corrupt=1%"])
@pytest.mark.parametrize("bytes", [65536, 1 << 20])
@pytest.mark.parametrize("rails", RAILS)
def test_what_a_reader_stores_stays(lab, mpich, rails, bytes, fault):
    if fault:
        lab.fault(0, fault)
        lab.fault(1, fault)
    env = {**ON, "FI_MARLINE_RAILS": RAILS[rails]}
    # (A put that does not begin at a word ends within one.)
    result = lab.run(mpich, program(mpich, bytes, 3 if fault else 0), env=env, n=2, timeout=120)
    assert_kept(result, bytes)
    carried = labs.total(result.rails(), "packets_out")
    assert carried > PUTS, result.tail()
    if fault:
        assert lab.hits(fault.partition("=")[0]) > 0, lab.status()


@pytest.mark.parametrize("fault", ["drop=2%", "corrupt=1%", "down"])
@pytest.mark.parametrize("rails", [*RAILS, "both"])
@pytest.mark.parametrize("flag", ["put", "add"])
def test_a_flag_follows_its_data(lab, mpich, flag, rails, fault, tmp_path):
    """A short put and the flag behind it, a put or an atomic, are done in the order in which they were posted."""
    env = {**ON, "MPIR_CVAR_CH4_OFI_ENABLE_ATOMICS": 1, "FI_MARLINE_RAILS": RAILS.get(rails, "rail0,rail1"), "FI_MARLINE_STATS_DIR": tmp_path}
    if fault != "down":
        lab.fault(0, fault)
        lab.fault(1, fault)
    bytes = 4072
    job = lab.start(mpich, program(mpich, bytes, 0, "--flag", flag), env=env, n=2)
    while fault == "down" and job.running():
        lab.fault(0, "down")
        lab.clear()
    assert_kept(job.wait(120), bytes)
    counted = labs.counters(tmp_path)
    assert counted["rpcs"] >= 2 * PUTS, f"flags went as messages: {counted}"
    assert counted["downs"] > 0 if fault == "down" else lab.hits(fault.partition("=")[0]) > 0


@pytest.mark.parametrize("bytes", [8, 65536, 1 << 20])
@pytest.mark.parametrize("one_copy", ["on", "off"])
def test_inside_a_host(mpich, one_copy, bytes):
    result = start(mpich, program(mpich, bytes), RAILS="lo,shm", ONE_COPY=one_copy, RMA="on").wait(120)
    assert_kept(result, bytes)
    assert result.rails()["shm"]["packets_out"] > PUTS, result.tail()


# The second rail is that of shared memory.
SHM_FAULTS = {"killed": "rail=1;tx:kill_after=2000", "damaged": "rail=1;rx:corrupt=0.01"}


@pytest.mark.parametrize("fault", SHM_FAULTS)
def test_inside_a_host_where_shared_memory_fails(mpich, fault):
    bytes = 1 << 20
    result = start(mpich, program(mpich, bytes), RAILS="lo,shm", RMA="on", FAULTS=SHM_FAULTS[fault]).wait(120)
    assert_kept(result, bytes)
    rails = result.rails()
    column = {"killed": "failovers", "damaged": "corrupt"}[fault]
    assert rails["shm"][column] > 0, result.tail()


@pytest.mark.parametrize("name", ["openmpi", "intel"])
def test_under_other_mpis(lab, name):
    """One rail loses packets, the other damages them."""
    lab.fault(0, "drop=2%")
    lab.fault(1, "corrupt=1%")
    mpi = labs.MPIS[name]
    result = lab.run(mpi, program(mpi, 1 << 20), env={"FI_MARLINE_RMA": "on"}, n=2, timeout=120)
    assert_kept(result, 1 << 20)
    assert lab.hits("drop") > 0 and lab.hits("corrupt") > 0, lab.status()


def test_a_rail_goes_down_and_returns(lab, mpich, tmp_path):
    env = {**ON, "FI_MARLINE_STATS_DIR": tmp_path}
    job = lab.start(mpich, program(mpich, 1 << 20), env=env, n=2, provider="marline")
    while job.running():
        lab.fault(0, "down")
        lab.clear()
    assert_kept(job.wait(120), 1 << 20)
    assert labs.counters(tmp_path)["downs"] > 0
