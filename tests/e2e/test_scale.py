"""How simulated quantities grow with the endpoints, that the reader of the table names it, and jobs of
many ranks on many hosts."""

import math
import os
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

import lab as labs
import pytest

sys.path.insert(0, str(labs.ROOT / "bench"))

ENDPOINTS = (16, 64, 256, 1_024, 4_096)

RANKS = 64
# Most memory of a rank, in KiB, whose pages the ranks share in part.
PSS_MAX_KIB = 16_384


def bench(name):
    """A program of bench, as a module."""
    loader = SourceFileLoader(name, str(labs.ROOT / "bench" / name))
    module = module_from_spec(spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reader():
    return bench("scale")


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
    # `make test` builds it for its own tests.
    simulator = labs.TARGET / "debug" / "marline-sim"
    assert simulator.exists(), f"{simulator} is missing: run `cargo build -p marline-sim`"
    words = [simulator, "--hosts", "16", "--scale", "256", "--quick"]
    with open(table, "w") as file:
        subprocess.run(words, stdout=file, check=True, timeout=180)
    words = [labs.ROOT / "bench" / "scale", table, "--draw", picture]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    text = table.read_text()
    for part in ("alltoall", "start", "storm", "standby", "failover", "incast", "allreduce", "broadcast"):
        assert re.search(f"^{part} ", said, re.M) and f"\n{part},256," in text, said
    assert "nothing simplified" in text and "<svg" in picture.read_text()


@pytest.mark.alone
@pytest.mark.parametrize("mpi", [
    "mpich", *(pytest.param(mpi, marks=pytest.mark.soak) for mpi in ("openmpi", "intel")),
], indirect=True)
def test_many_ranks(mpi):
    """All start, an all-to-all and reductions are right, and a rank's memory is bounded."""
    ranks_bench = bench("ranks")
    with labs.Lab(f"t{os.getpid()}-many", hosts=ranks_bench.HOSTS, rails=1) as lab:
        found = ranks_bench.measure(lab, mpi, RANKS, "marline")
    assert found["pss_kib"] < PSS_MAX_KIB, found
