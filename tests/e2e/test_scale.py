"""How simulated quantities grow; and jobs of many ranks on many hosts: they start, all-to-all and reductions are right, and a rank's
memory does not run away, beside the same MPI over its own TCP."""

import math
import os
import re
import subprocess
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

import lab as labs
import pytest

ENDPOINTS = (16, 64, 256, 1_024, 4_096)

# Ranks, and hosts for them.
SMALL = [(64, 16)]
LARGE = [(128, 32), (256, 64)]
LIMIT_S = 900  # of what hangs: each processor has up to 128 ranks
# Most memory of a rank, in MiB, that Marline may need beyond the MPI's own TCP.
MORE_MIB = 24


@pytest.fixture(scope="module")
def reader():
    """bench/scale, as a module."""
    loader = SourceFileLoader("scale", str(labs.ROOT / "bench" / "scale"))
    module = module_from_spec(spec_from_loader("scale", loader))
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("name, curve", [
    ("constant", lambda n: 1_700 * (1 + 0.02 * math.sin(n))),
    ("constant", lambda n: 0),
    ("log N", lambda n: 3 + 5 * math.log2(n)),
    ("N", lambda n: 40 + 0.4 * n),
    ("N log N", lambda n: 0.1 * n * math.log2(n)),
    ("N^2", lambda n: 5 + 0.001 * n * n),
])  # fmt: skip
def test_growth_is_named(reader, name, curve):
    assert reader.growth([(n, curve(n)) for n in ENDPOINTS])[0] == name


def test_a_quantity_that_grows_too_fast_is_told(reader):
    points = [(n, 100.0 * n) for n in ENDPOINTS]
    assert reader.report({("start", "address", "bytes per peer"): points}) == [("start", "address")]
    assert reader.report({("start", "memory", "bytes per rank"): points}) == []


def test_the_simulator_measures_growth(tmp_path):
    """Every part, with few endpoints."""
    table, picture = tmp_path / "scale.csv", tmp_path / "scale.svg"
    words = [labs.MARLINE, "sim", "--hosts", "16", "--scale", "256", "--quick"]
    with open(table, "w") as file:
        subprocess.run(words, stdout=file, check=True, timeout=180)
    words = [labs.ROOT / "bench" / "scale", table, "--draw", picture]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    text = table.read_text()
    for part in ("alltoall", "start", "storm", "standby", "failover", "incast", "allreduce", "broadcast"):
        assert re.search(f"^{part} ", said, re.M) and f"\n{part},256," in text, said
    assert "nothing simplified" in text and "<svg" in picture.read_text()


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
