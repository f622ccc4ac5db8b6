"""Fixtures: labs, the MPIs, and the provider under test.

Piecewise: `pytest tests/e2e -k mpich`, `-k faults`, `-k "drop and intel"`; `--provider tcp` runs
the same tests over the MPIs' own TCP: what a test expects of the world rather than of Marline.
`--cover` runs each value of each parameter, not all combinations.
"""

import itertools
import os
import shutil

import pytest

import cover
import lab as labs


def pytest_addoption(parser):
    parser.addoption("--provider", default="marline", choices=["marline", "tcp"])
    parser.addoption("--cover", action="store_true", help="each value of each parameter, not all "
                     "combinations")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if config.getoption("--cover"):
        items[:], left = cover.split(items)
        config.hook.pytest_deselected(items=left)
    # Workers get parts of this order and take the ends of others' parts: one guest runs most scripts.
    items.sort(key=lambda item: not item.get_closest_marker("guest"))


def pytest_sessionstart(session):
    """Reports missing prerequisites as errors, with the command that installs them, rather than as
    skips."""
    need = {
        "the marline command": (labs.MARLINE, "make build"),
        "the test programs": (labs.PROGRAMS / "mpich" / "stress", "make programs"),
        "the stock MPIs": (labs.MPI_DIR / "impi-rt" / "bin" / "mpiexec", "make deps"),
    }
    if session.config.getoption("--provider") == "marline":
        need["the provider library"] = (labs.PROVIDER_DIR / "libmarline-fi.so", "make build")
    for what, (path, command) in need.items():
        if not path.exists():
            pytest.exit(f"{what} is missing ({path}): run `{command}`", returncode=4)
    for tool in ("nft", "ip", "tc"):
        if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            pytest.exit(f"`{tool}` is missing: run `make deps`", returncode=4)


@pytest.fixture(scope="session")
def provider(request):
    return request.config.getoption("--provider")


_numbers = itertools.count()


def _make(**how):
    # The name contains the process number, so that two test runs can share a machine.
    return labs.Lab(f"t{os.getpid()}-{next(_numbers)}", **how)


@pytest.fixture(scope="session")
def _shared_lab():
    with _make() as lab:
        yield lab


@pytest.fixture
def lab(_shared_lab):
    """Two hosts, two rails, no faults."""
    _shared_lab.meet()
    yield _shared_lab
    _shared_lab.end_jobs()
    _shared_lab.clear()


@pytest.fixture(scope="session")
def _wire_lab():
    with _make(options=["--no-offload"]) as lab:
        yield lab


@pytest.fixture
def wire_lab(_wire_lab):
    """As `lab`, without segmentation offload: faults hit single packets, as on a wire."""
    _wire_lab.meet()
    yield _wire_lab
    _wire_lab.end_jobs()
    _wire_lab.clear()


@pytest.fixture(params=["mpich", "openmpi", "intel"])
def mpi(request):
    return labs.MPIS[request.param]


@pytest.fixture
def mpich():
    return labs.MPIS["mpich"]


@pytest.fixture
def openmpi():
    return labs.MPIS["openmpi"]


@pytest.fixture
def openmpi4():
    return labs.MPIS["openmpi4"]


# Open MPI's own matching (pml/ob1), which its TCP uses, writes past the buffer of a truncated
# receive in 4.1.4 and 5.0.11.
ALL_BUT_TRUNCATE = "ring,alltoall,collective,wildcard,probe,cancel,ssend,window,storm,random"


@pytest.fixture
def stress(provider):
    """Builds the command line of the verifying stress program."""
    def command(mpi, *args):
        avoid = provider == "tcp" and mpi.name.startswith("openmpi")
        return [mpi.program("stress"), *(["--phases", ALL_BUT_TRUNCATE] if avoid else []), *args]

    return command
