"""Jobs of many ranks on many hosts: they start, all-to-all and reductions are right, and a rank's
memory does not run away, beside the same MPI over its own TCP."""

import os
import re

import lab as labs
import pytest

# Ranks, and hosts for them.
SMALL = [(64, 16)]
LARGE = [(128, 32), (256, 64)]
LIMIT_S = 900  # of what hangs: each processor has up to 128 ranks
# Most memory of a rank, in MiB, that Marline may need beyond the MPI's own TCP.
MORE_MIB = 24


@pytest.fixture(params=[*SMALL, *(pytest.param(size, marks=pytest.mark.soak) for size in LARGE)],
                ids=lambda size: f"{size[0]}-ranks", scope="module")
def many(request):
    ranks, hosts = request.param
    with labs.Lab(f"t{os.getpid()}-many", hosts=hosts, rails=1) as lab:
        yield lab, ranks


def job(lab, mpi, ranks, provider):
    env = {"FI_MARLINE_RAILS": "udp:rail0"} if provider == "marline" else {}
    more = "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe"
    env |= dict([more.split("=")])
    result = lab.run(mpi, [mpi.program("many")], n=ranks, provider=provider, env=env, timeout=LIMIT_S)
    assert result.ok, result.tail()
    said = result.find(r"^many ok ranks=(\d+) start_s=(\S+) alltoall_s=(\S+) allreduce_s=(\S+) pss_kib=(\d+)")
    assert said and int(said[1]) == ranks, result.tail()
    return dict(zip(("start_s", "alltoall_s", "allreduce_s", "pss_kib"), map(float, said.groups()[1:])))


@pytest.mark.alone
@pytest.mark.soak
@pytest.mark.parametrize("mpi", ["mpich", "openmpi"], indirect=True)
def test_many_ranks(many, mpi, provider, record_property):
    """What each took is in the report of the run, for comparison: times of a shared machine are no
    test."""
    lab, ranks = many
    found = {provider: job(lab, mpi, ranks, provider)}
    if provider == "marline":
        found["tcp"] = job(lab, mpi, ranks, "tcp")
        more = (found["marline"]["pss_kib"] - found["tcp"]["pss_kib"]) / 1024
        assert more < MORE_MIB, found
    for name, numbers in found.items():
        record_property(name, numbers)
        print(f"{mpi.name}, {ranks} ranks, {name}: {numbers}")
    assert not re.search("is dead", str(found))
