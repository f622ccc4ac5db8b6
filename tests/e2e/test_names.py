"""The names exported by the preloaded libraries, each of which interposes all other definitions."""

import subprocess
from pathlib import Path

import pytest

import lab as labs

pytestmark = pytest.mark.any_mpi

COLLECTIVES, MESSAGES = "libmarline-collectives.so", "libmarline-mpi.so"
# Names that are not MPI's: libc's, and those that the provider calls.
OWN = {COLLECTIVES: set(), MESSAGES: {"sched_yield", "marline_poll"}}
# From libmpi_mpifh.so of Open MPI 5, which its wheel lacks.
ELSEWHERE = {"ompi_bcast_init_f"}
FUNCTIONS = {"allgather", "allreduce", "barrier", "bcast", "ibcast", "bcast_init", "start", "startall", "request_free",
             "comm_free", "comm_disconnect", "finalize"}


def exported(library):
    words = ["nm", "-D", "--defined-only", "-j", library]
    names = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return {name.partition("@")[0] for name in names}


def ours(library):
    return exported(labs.PROVIDER_DIR.resolve() / library)


def served():
    """All names that the MPIs' own libraries export, with their Fortran bindings."""
    libraries = [mpi.library for mpi in labs.MPIS.values()]
    libraries.append(labs.MPIS["intel"].library.parent / "libmpifort.so.12")
    libraries.append(labs.MPIS["mpich"].library.parent / "libmpi_abi.so.1")
    libraries.append(Path("/usr/lib/x86_64-linux-gnu/libmpi_mpifh.so.40"))
    return set.union(*map(exported, libraries))


def test_the_collectives_library_exports_these_names():
    fortran = {f"mpi_{f}{end}" for f in FUNCTIONS for end in ("_", "__")}
    fortran |= {f"MPI_{f.upper()}" for f in FUNCTIONS} | {f"ompi_{f}_f" for f in FUNCTIONS}
    c = {"MPI_Allgather", "MPI_Allreduce", "MPI_Bcast", "MPI_Ibcast", "MPI_Bcast_init"}
    c |= {f"{name}_c" for name in c}
    c |= {"MPI_Barrier", "MPI_Start", "MPI_Startall", "MPI_Request_free", "MPI_Comm_free", "MPI_Comm_disconnect", "MPI_Finalize"}
    assert ours(COLLECTIVES) == fortran | c


@pytest.mark.parametrize("library", [COLLECTIVES, MESSAGES])
def test_an_mpi_exports_each_name_as_well(library):
    assert ours(library) - served() - OWN[library] - ELSEWHERE == set()


@pytest.mark.parametrize("library", [COLLECTIVES, MESSAGES])
def test_other_software_defines_none_of_them(library):
    lines = (Path(__file__).parent / "mpi_names.txt").read_text().splitlines()
    theirs = {line.split()[1] for line in lines if not line.startswith("#")}
    assert "mpi_allreduce" in theirs
    assert ours(library) & theirs == set()


@pytest.mark.parametrize("mpi", ["mpich", "openmpi", "intel"])
def test_functions_of_a_program_with_fortrans_names_stay_its_own(lab, provider, mpi):
    """As those of Rmpi.so, which R loads."""
    mpi = labs.MPIS[mpi]
    options = ["--multicast"] if provider == "marline" else []
    result = lab.run(mpi, [mpi.program("rmpi")], provider=provider, options=options, timeout=60)
    assert result.ok and result.find("^rmpi ok ranks=2$"), result.tail()
