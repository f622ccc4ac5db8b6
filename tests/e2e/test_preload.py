"""The library that `marline run` preloads into the ranks of MPICH and Open MPI (crates/mpi-shim)."""

import re
import subprocess

import pytest

import lab as labs

# Counts yields and passes them on; or swallows them, as if no other process wanted the processor.
COUNTER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
static unsigned long yields;
int sched_yield(void)
{
    __atomic_fetch_add(&yields, 1, __ATOMIC_RELAXED);
    return ALONE ? 0 : ((int (*)(void))dlsym(RTLD_NEXT, "sched_yield"))();
}
__attribute__((destructor)) static void tell(void)
{
    if (yields)
        fprintf(stderr, "yields " NAME " %lu\n", yields);
}
"""


@pytest.fixture(scope="module")
def counters(tmp_path_factory):
    """Counters of yields requested by MPICH, of those that reach the kernel, and of those that
    would."""
    folder = tmp_path_factory.mktemp("count")
    (folder / "count.c").write_text(COUNTER)
    libraries = []
    for name, alone in (("wanted", 0), ("done", 0), ("done", 1)):
        libraries.append(folder / f"{name}{alone}.so")
        words = ["cc", "-shared", "-fPIC", f'-DNAME="{name}"', f"-DALONE={alone}", "-o", libraries[-1]]
        subprocess.run([*words, folder / "count.c"], check=True)
    return libraries


def yields(lab, mpi, program, preloaded, options=(), env=None):
    """The numbers of yields requested and executed in a job, and its output."""
    env = {"LD_PRELOAD": ":".join(map(str, preloaded)), **(env or {})}
    result = lab.run(mpi, program, env=env, options=options)
    assert result.ok, result.tail()
    count = [sum(map(int, re.findall(rf"yields {name} (\d+)$", result.out, re.M)))
             for name in ("wanted", "done")]
    return *count, result


def test_mpich_is_spared_the_yields_after_messages(lab, mpich, counters):
    wanted, done, _ = counters
    program = [mpich.program("pingpong"), "--tests", "latency", "--samples", 1, "--seconds", 1]
    before, after, _ = yields(lab, mpich, program, [wanted, done], ["--no-preload"])
    assert before == after > 0, "without the library all happen"
    # If the user preloads Marline's library, the user decides its place in the list.
    before, after, result = yields(lab, mpich, program, [wanted, library(), done])
    half_us = float(result.find(r"^pingpong,latency,8,([\d.]+),")[1])
    received = 1e6 / half_us  # by both ranks, per second
    assert before - after > 0.8 * received, f"{before - after} spared, {received:.0f} received"


def test_mpich_is_spared_yields_while_a_long_message_comes(lab, mpich, counters):
    """No yield reaches another process here, so that yields are suppressed as well: about one per
    write, and hardly any if suppression failed."""
    wanted, _, alone = counters
    program = [mpich.program("pingpong"), "--tests", "bw4m", "--samples", 1, "--seconds", 1]
    before, after, result = yields(lab, mpich, program, [wanted, library(), alone])
    writes = float(result.find(r"^pingpong,bw4m,4194304,([\d.]+),")[1]) * 1e9 / 63e3
    assert before - after > 0.2 * writes, f"{before - after} spared in {writes:.0f} writes"


def test_threads_yield_to_each_other(lab, mpich, counters):
    """With MPI_THREAD_MULTIPLE a yield passes MPI's lock to another thread."""
    wanted, done, _ = counters
    program = [mpich.program("threads"), 2, 50]
    before, after, _ = yields(lab, mpich, program, [wanted, library(), done])
    assert before == after > 0


IDLE = "OMPI_MCA_mpi_yield_when_idle"


def test_threads_of_open_mpi_yield_and_single_ones_do_not(lab, openmpi, counters):
    """It waits in loops that only yield on request. Without other threads, only the engine
    yields."""
    wanted, done, _ = counters
    preloaded = [wanted, library(), done]
    program = [openmpi.program("pingpong"), "--tests", "latency", "--samples", 1, "--seconds", 1]
    before, after, _ = yields(lab, openmpi, program, preloaded, env={IDLE: 1})
    assert after < before / 2, f"{after} of {before} yields happened"
    threads = [openmpi.program("threads"), 2, 50]
    before, after, _ = yields(lab, openmpi, threads, preloaded, env={IDLE: 1})
    assert before == after > 0


def library():
    return labs.PROVIDER_DIR.resolve() / "libmarline-mpi.so"


def test_nothing_else_is_in_the_way():
    """Each name that a preloaded library exports interposes all other definitions."""
    words = ["nm", "-D", "--defined-only", "-j", library()]
    names = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    received = {f"{p}MPI_{name}" for p in ("", "P") for name in ("Mrecv", "Imrecv")}
    begun = {f"{p}MPI_Init{more}" for p in ("", "P") for more in ("", "_thread")}
    started = {f"{p}MPI_Start{more}" for p in ("", "P") for more in ("", "all")}
    assert set(names) == {"sched_yield", "marline_poll"} | received | begun | started


def test_preloads_are_printed(mpi):
    """Before the user's preloads; the library for long broadcasts after them; nothing if not
    wanted."""
    def said(mpi, *options, **more):
        words = [labs.MARLINE, "env", "--mpi", mpi.mpiexec, "--provider-dir", labs.PROVIDER_DIR]
        env = labs.clean_env({"LD_PRELOAD": "/u/mine.so", **more})
        done = subprocess.run([*words, *options], capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stderr
        return dict(re.findall(rf"^(LD_PRELOAD|{IDLE})=(.*)$", done.stdout, re.M))

    own = "/u/mine.so" if mpi.name == "intel" else f"{library()}:/u/mine.so"
    idle = {IDLE: "1"} if mpi.name == "openmpi" else {}
    preload = {"LD_PRELOAD": f"{own}:{library().with_name('libmarline-collectives.so')}"}
    assert said(mpi) == {**preload, **idle}
    without = {} if mpi.name == "intel" else {"LD_PRELOAD": own}
    assert said(mpi, "--no-multicast") == {**without, **idle}
    assert said(mpi, "--no-preload") == {}
    if mpi.name == "openmpi":
        assert said(mpi, **{IDLE: "0"}) == preload, "the user has decided"
