"""MPICH's other protocols, selected by its variables: each must deliver the same bytes. All but the
default perform a handshake first, then receive, read or write the data, whole or in pieces,
depending on its layout on both sides."""

import pytest

THRESHOLD = "MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD"
PROTOCOL = "MPIR_CVAR_CH4_OFI_RNDV_PROTOCOL"
CHUNK = "MPIR_CVAR_CH4_OFI_PIPELINE_CHUNK_SZ"

SETTINGS = {
    "threshold-0": {THRESHOLD: 0},
    "threshold-1000": {THRESHOLD: 1000},
    "threshold-16384": {THRESHOLD: 16384},
    "threshold-100000": {THRESHOLD: 100000},
    "old-name": {"MPICH_CH4_OFI_EAGER_THRESHOLD": 16384},
    "no-inject": {THRESHOLD: 16384, "MPIR_CVAR_CH4_OFI_ENABLE_INJECT": 0},
    "rma": {"MPIR_CVAR_CH4_OFI_ENABLE_RMA": 1, "MPIR_CVAR_CH4_OFI_ENABLE_ATOMICS": 1},
}
# With these MPICH 5.0.2 never ends a receive from MPI_ANY_SOURCE, over its own TCP either.
NAMED_ONLY = {
    "auto": {THRESHOLD: 16384, PROTOCOL: "auto"},
    "pipeline": {THRESHOLD: 16384, PROTOCOL: "pipeline"},
    "pipeline-small-chunks": {THRESHOLD: 1000, PROTOCOL: "pipeline", CHUNK: 16384},
    "read": {THRESHOLD: 16384, PROTOCOL: "read"},
    "write": {THRESHOLD: 16384, PROTOCOL: "write"},
}
OK = "^layouts ok messages=128$"


@pytest.mark.parametrize("chosen", SETTINGS)
def test_data_in_one_and_in_pieces(lab, mpich, provider, chosen):
    result = lab.run(mpich, [mpich.program("layouts")], env=SETTINGS[chosen], provider=provider)
    assert result.ok and result.find(OK), result.tail()


@pytest.mark.parametrize("chosen", NAMED_ONLY)
def test_between_named_ranks(lab, mpich, provider, chosen):
    program = [mpich.program("layouts"), "--named"]
    result = lab.run(mpich, program, env=NAMED_ONLY[chosen], provider=provider)
    assert result.ok and result.find(OK), result.tail()
    if provider == "marline":
        assert result.find("MPI_ANY_SOURCE"), "the warning\n" + result.tail()


@pytest.mark.parametrize("chosen", ["threshold-0", "threshold-16384"])
def test_stress(lab, stress, mpich, provider, chosen):
    program = stress(mpich, "--max-size", 1 << 20, "--seed", 3)
    result = lab.run(mpich, program, env=SETTINGS[chosen], provider=provider, timeout=90)
    assert result.ok and result.find("^stress ok"), result.tail()


@pytest.mark.parametrize("chosen", ["threshold-16384", "threshold-100000"])
def test_answers_to_synchronous_sends(lab, mpich, provider, chosen):
    """MPICH sends its answers in order of completions and takes that for the order of the messages
    (docs/design/libfabric.md)."""
    result = lab.run(mpich, [mpich.program("answers")], env=SETTINGS[chosen], provider=provider)
    assert result.ok and result.find("^answers ok"), result.tail()


@pytest.mark.parametrize("chosen", ["pipeline-small-chunks", "read", "write"])
def test_on_a_rail_that_loses(wire_lab, mpich, provider, chosen):
    """Messages and data that MPICH reports as matched, read or written really are, although packets
    were lost."""
    wire_lab.fault(0, "drop=2%")
    program = [mpich.program("layouts"), "--named"]
    result = wire_lab.run(mpich, program, env=NAMED_ONLY[chosen], provider=provider, timeout=120)
    assert result.ok and result.find(OK), result.tail()
    assert wire_lab.hits("drop") > 0, wire_lab.status()


def test_layouts_on_all(lab, mpi, provider):
    """The same program with the other MPIs' default protocols."""
    result = lab.run(mpi, [mpi.program("layouts")], provider=provider)
    assert result.ok and result.find(OK), result.tail()
