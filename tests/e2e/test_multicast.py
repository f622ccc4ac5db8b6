"""Broadcasts and other calls by multicast (crates/collectives), on four hosts with two rails each."""

import re
import time

import pytest

import lab as labs

pytestmark = pytest.mark.any_mpi(2)

HOSTS = 4
# Administratively scoped addresses of IPv4, of which groups have theirs.
GROUPS = "239.0.0.0/8"

PYTHON = """
from mpi4py import MPI
comm = MPI.COMM_WORLD.Dup()
for n in range(200):
    root = n % comm.size
    bytes = bytearray([(n + root) % 251] * (n * 97 + 1) if comm.rank == root else n * 97 + 1)
    comm.Bcast(bytes, root)
    assert set(bytes) == {(n + root) % 251}, n
    assert comm.bcast([n] if comm.rank == root else None, root) == [n]
    assert comm.allreduce(n + comm.rank) == 4 * n + 6
comm.Free()
if MPI.COMM_WORLD.rank == 0:
    print("python ok")
"""


@pytest.fixture(scope="module")
def four(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's groups")
    with labs.Lab(f"m{labs.os.getpid()}", hosts=HOSTS, options=["--no-offload"]) as lab:
        yield lab


@pytest.fixture(autouse=True)
def no_faults(four):
    yield
    four.clear()


@pytest.fixture(params=["mpich", "openmpi", "intel"])
def mpi(request):
    return labs.MPIS[request.param]


def run(lab, mpi, *args, n=HOSTS, options=("--multicast",), **how):
    how.setdefault("timeout", 120)
    return lab.run(mpi, [mpi.program("bcast"), *args], n=n, options=list(options), **how)


def assert_right(result):
    assert result.ok and result.find(r"^bcast ok "), result.tail()


class Filter:
    """A rule of every host for what leaves it to groups, with counts of what leaves, before it is
    cut into packets, and of the packets that arrive."""

    def __init__(self, lab, verdict="", name="groups", rail="rail*", hosts=HOSTS):
        self.lab, self.name, self.hosts = lab, name, [f"h{n}" for n in range(hosts)]
        self.rules = (
            f"table inet {name} {{ chain out {{ type filter hook output priority 0; "
            f'oifname "{rail}" ip daddr {GROUPS} counter {verdict}; '
            f'oifname "rail*" ip daddr != {GROUPS} meta l4proto udp counter; }}; '
            f"chain in {{ type filter hook prerouting priority 0; "
            f'iifname "rail*" ip daddr {GROUPS} counter; }}; }}'
        )

    def __enter__(self):
        for host in self.hosts:
            made = self.lab.exec(host, "nft", self.rules)
            assert made.returncode == 0, made.stderr
        return self

    def __exit__(self, *_):
        for host in self.hosts:
            self.lab.exec(host, "nft", "delete", "table", "inet", self.name)

    def counts(self, host):
        """Sends and bytes to groups, and by UDP to single hosts; packets from groups."""
        table = self.lab.exec(host, "nft", "list", "table", "inet", self.name).stdout
        found = re.findall(r"counter packets (\d+) bytes (\d+)", table)
        return [(int(packets), int(size)) for packets, size in found]


def test_broadcasts_of_all_kinds_arrive(four, mpi):
    with Filter(four) as filtered:
        assert_right(run(four, mpi, "--count", 150))
        (multicast, _), _, _ = filtered.counts("h0")
    assert multicast > 100, multicast


def test_broadcasts_that_nobody_waits_for_at_once(four, mpi):
    with Filter(four) as filtered:
        assert_right(run(four, mpi, "--ibcast", "--count", 200, "--max-size", 100_000))
        (sent, _), _, _ = filtered.counts("h1")
    assert sent > 100, sent


def started_again(lab, mpi, *args):
    return lab.run(mpi, [mpi.program("bcast_init"), *args], n=HOSTS, options=["--multicast"], timeout=120)


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_broadcasts_that_are_started_again(four, mpi, threads):
    """Several threads start theirs at once, and want more groups than a process has: the others are
    the MPI's own."""
    # Intel MPI has nobody called when it makes progress: its own way, at all ranks.
    own = mpi is labs.MPIS["intel"]
    gentle = ["--gentle"] if own or threads > 1 else []
    count = 3 if threads > 1 else 10
    with Filter(four) as filtered:
        assert_right(started_again(four, mpi, "--count", count, "--threads", threads, *gentle))
        (sent, _), _, _ = filtered.counts("h1")
    assert sent > 100 or own, sent


def test_broadcasts_that_are_started_again_where_multicast_is_filtered(four, mpi):
    with Filter(four, "drop"):
        assert_right(started_again(four, mpi, "--count", 10, "--gentle"))


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"], indirect=True)
def test_broadcasts_that_are_started_again_go_another_way(four, mpi, tmp_path):
    """What was started arrives, where multicast is filtered from the middle on."""
    program = [mpi.program("bcast_init"), "--gentle", "--count", 60, "--max-size", 20_000]
    assert_right(filtered_from_the_middle_on(four, mpi, program, tmp_path, 600))


def test_other_doors_and_threads_are_not_in_the_way(four, mpi):
    result = four.run(mpi, [mpi.program("doors"), 5], n=HOSTS, options=["--multicast"], timeout=120)
    assert result.ok and result.find("^doors ok"), result.tail()


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"], indirect=True)
def test_python_broadcasts_by_multicast(four, mpi):
    python = labs.MPI_DIR / "tools" / "bin" / "python"
    program = ["env", f"MPI4PY_LIBMPI={mpi.library}", f"LD_LIBRARY_PATH={mpi.library.parent}",
               python, "-c", PYTHON]
    with Filter(four) as filtered:
        result = four.run(mpi, program, n=HOSTS, options=["--multicast"], timeout=60)
        (sent, _), _, _ = filtered.counts("h1")
    assert result.ok and result.find("^python ok"), result.tail()
    assert sent >= 50, sent


# A communicator after another, each used once.
EVER_NEW = """
import os, sys
from mpi4py import MPI
world, n = MPI.COMM_WORLD, 0
while not world.bcast(os.path.exists(sys.argv[1])):
    comm = world.Dup()
    bytes = bytearray([n % 251] * 30_000 if comm.rank == n % 4 else 30_000)
    comm.Bcast(bytes, n % 4)
    assert set(bytes) == {n % 251}, n
    comm.Free()
    n += 1
if world.rank == 0:
    print(f"python ok n={n}")
"""


def test_new_communicators_use_a_rail_that_came_later(four, mpich, tmp_path):
    def addresses(change):
        for n in range(HOSTS):
            done = four.exec(f"h{n}", "ip", "addr", change, f"10.101.0.{n + 1}/16", "dev", "rail1")
            assert done.returncode == 0, done.stderr

    python = labs.MPI_DIR / "tools" / "bin" / "python"
    program = ["env", f"MPI4PY_LIBMPI={mpich.library}", f"LD_LIBRARY_PATH={mpich.library.parent}",
               python, "-c", EVER_NEW, tmp_path / "enough"]
    addresses("del")
    try:
        with Filter(four) as filtered, Filter(four, "", "later", "rail1") as later:
            job = four.start(mpich, program, n=HOSTS, options=["--multicast"],
                             env={"FI_MARLINE_RAILS": "rail0,later:rail1"})
            wait_until_multicast(filtered, job)
            assert later.counts("h0")[0][0] == 0, job.output()
            addresses("add")
            wait_until_multicast(later, job, 20)
            (tmp_path / "enough").touch()
            result = job.wait(60)
    finally:
        addresses("replace")
    assert result.ok and result.find("^python ok"), result.tail()


def alike(lab, mpi, *args, n=HOSTS, options=("--multicast",), **how):
    how.setdefault("timeout", 120)
    return lab.run(mpi, [mpi.program("alike"), *args], n=n, options=list(options), **how)


def assert_alike(result):
    assert result.ok and result.find(r"^alike ok "), result.tail()


def test_imb_broadcasts_by_multicast(four):
    """Its binaries are Intel's, without checks: those of bytes are `bcast`'s."""
    imb = labs.MPI_DIR / "impi-rt" / "bin" / "IMB-MPI1"
    words = [imb, "-iter", 50, "-time", 0.2, "-msglog", "0:20", "-npmin", HOSTS, "Bcast"]
    with Filter(four) as filtered:
        result = four.run(labs.MPIS["intel"], words, n=HOSTS, options=["--multicast"], timeout=120)
        assert result.ok and "All processes entering MPI_Finalize" in result.out, result.tail()
        sent = [filtered.counts(host)[0][1] for host in filtered.hosts]
    assert sum(sent) > 1 << 18, sent  # roots take turns; in bounded time, few of the longest messages


def test_sums_of_all_kinds_are_the_same_at_all_ranks(four, mpi):
    assert_alike(alike(four, mpi, "--count", 100))


CALLS = ["allreduce", "barrier", "allgather"]


# Each call under each MPI, and each choice for each call.
@pytest.mark.parametrize("mpi, call, chosen", [
    *((mpi, call, "") for mpi in ("mpich", "intel") for call in CALLS),
    *(("openmpi", call, chosen) for chosen in ("", "bcast", "unasked", None) for call in CALLS),
], indirect=["mpi"])
def test_calls_are_multicast_where_a_communicator_has_many(four, mpi, call, chosen):
    """And only if they are asked for, and under MPIs whose own way is slower."""
    options = {"unasked": [], None: ["--no-multicast"]}.get(chosen, [f"--multicast={chosen or call}"])
    with Filter(four) as filtered:
        assert_alike(alike(four, mpi, "--fresh", call, "--count", 1500, options=options))
        (sent, _), _, _ = filtered.counts("h1")
    gains = call == "allreduce" or mpi is not labs.MPIS["mpich"]
    assert sent >= 500 if chosen == "" and gains else sent < 50, sent


def test_sums_on_hosts_with_several_ranks(four, mpi):
    """There they go by the MPI, which has memory for it."""
    with Filter(four) as filtered:
        assert_alike(alike(four, mpi, "--fresh", "allreduce", "--count", 1200, n=2 * HOSTS))
        (sent, _), _, _ = filtered.counts("h1")
    assert sent < 200, sent


@pytest.mark.parametrize("fault", ["drop=1%", "corrupt=0.5%"])
def test_sums_are_right_though_packets_are_lost_or_damaged(four, mpi, fault):
    for rail in (0, 1):
        four.fault(rail, fault)
    assert_alike(alike(four, mpi, "--count", 60))
    assert four.hits() > 10, four.status()


def test_a_late_rank_is_waited_for_by_sums(four, mpich):
    assert_alike(alike(four, mpich, "--count", 100, "--late", 100))


@pytest.mark.parametrize("when", ["before", "amid"])
def test_sums_go_another_way_where_multicast_is_filtered(four, mpi, when, tmp_path):
    if when == "before":
        with Filter(four, "drop"):
            return assert_alike(alike(four, mpi, "--count", 30))
    program = [mpi.program("alike"), "--seconds", 5, "--max-size", 20_000]
    assert_alike(filtered_from_the_middle_on(four, mpi, program, tmp_path, 60))


SOAK = [pytest.param(name, "", 400, marks=pytest.mark.soak) for name in ("mpich", "openmpi", "intel")]


@pytest.mark.parametrize("mpi, some, least", [("openmpi", "World.", 100), *SOAK], indirect=["mpi"])
def test_collectives_of_mpi4py(four, mpi, some, least):
    """Its own tests of them (or of those on MPI_COMM_WORLD), of which some call what an MPI before
    4.0 does not have."""
    source = max(p for p in (labs.MPI_DIR / "src").glob("mpi4py-*") if p.is_dir())
    python = labs.MPI_DIR / "tools" / "bin" / "python"
    # Its MPI_Reduce_scatter fails and hangs over Intel MPI's own TCP, too.
    program = ["env", f"MPI4PY_LIBMPI={mpi.library}", f"LD_LIBRARY_PATH={mpi.library.parent}", python,
               source / "test" / "main.py", "--no-numpy", "-i", "test_cco", "-x", "testReduceScatter"]
    program += ["-k", some] if some else []
    result = four.run(mpi, program, n=HOSTS, options=["--multicast"], timeout=1200)
    ran = result.find(r"^Ran (\d+) tests")
    assert result.ok and ran and int(ran[1]) > least and result.find("^OK"), result.tail()


@pytest.mark.parametrize("door", ["mpifh", "mpi", "f08", "intel"])
def test_fortran_broadcasts_by_multicast(four, door):
    """Open MPI's Fortran functions do not call the C function, Intel MPI's do."""
    mpi = labs.MPIS["intel" if door == "intel" else "openmpi4"]
    program = "fortran" if door == "intel" else f"fortran_{door}"
    with Filter(four) as filtered:
        result = four.run(mpi, [mpi.program(program)], n=HOSTS, options=["--multicast"], timeout=60)
        (sent, _), _, _ = filtered.counts("h1")
    assert result.ok and result.find("^fortran ok"), result.tail()
    assert sent >= 100, sent


@pytest.mark.parametrize("door", ["mpifh", "mpi", "f08", "doors", "doors again"])
def test_fortran_broadcasts_that_are_waited_for_later(four, door):
    """Open MPI 4.1's own functions; and names and arguments as of Open MPI 5's, which has persistent
    broadcasts as well."""
    mpi = labs.MPIS["openmpi" if "doors" in door else "openmpi4"]
    program, *args = f"requests_{door}".split()
    with Filter(four) as filtered:
        result = four.run(mpi, [mpi.program(program), *args], n=HOSTS, options=["--multicast"], timeout=60)
        (sent, _), _, _ = filtered.counts("h1")
    assert result.ok and result.find("^requests ok"), result.tail()
    assert sent >= 100, sent


def test_the_binary_interface_of_mpi_5(four, mpich):
    program = labs.PROGRAMS / "abi" / "bcast"
    with Filter(four) as filtered:
        result = four.run(mpich, [program, "--count", 50], n=HOSTS, options=["--multicast"])
        (sent, _), _, _ = filtered.counts("h1")
    assert_right(result)
    assert sent > 50, sent


def test_a_late_rank_keeps_nobody_waiting_for_ever(four, mpich):
    assert_right(run(four, mpich, "--count", 200, "--late", 100))


# Bytes of a chunk in a packet with a tag, at an MTU of 1,500.
CHUNK = 1280


@pytest.mark.parametrize("size", [8, 100_000])
def test_a_broadcast_leaves_its_root_once_however_many_hosts_there_are(four, mpich, size, tmp_path):
    """A packet for each chunk, and one system call for many of them."""
    count, sent = 400, {}
    for n in (3, HOSTS):
        stats = tmp_path / str(n)
        stats.mkdir()
        with Filter(four) as filtered:
            result = run(four, mpich, "--plain", "--count", count, "--max-size", size, n=n,
                         env={"FI_MARLINE_STATS_DIR": stats})
            assert_right(result)
            (calls, _), (_, direct) = filtered.counts("h0")[:2]
            sent[n] = filtered.counts("h1")[2][0], calls, direct
        told, chunks = labs.counters(stats), count * -(-size // CHUNK)
        assert labs.total(result.rails(), "packets_out") >= chunks, result.tail()
        assert told["wire_packets_received"] >= (n - 1) * chunks, told
    for packets, calls, direct in sent.values():
        # Once, whatever the number of hosts, and little more: what asks the last members, and what
        # finds out if multicast is carried.
        assert chunks <= packets < 1.02 * chunks + 100, sent
        assert calls < chunks / (16 if size > 10_000 else 1) + 100, sent
        assert direct < 0.2 * count * size + 200_000, sent


@pytest.mark.parametrize("share", ["on", "off"])
def test_one_rank_of_a_host_reads_for_the_others(four, mpich, share, tmp_path):
    """Whichever looks first: what it reads is in a ring that they share."""
    result = run(four, mpich, "--plain", "--count", 400, "--max-size", 3000, n=2 * HOSTS,
                 env={"FI_MARLINE_STATS_DIR": tmp_path, "FI_MARLINE_TEST": f"multicast_share={share}"})
    assert_right(result)
    told = labs.counters(tmp_path)
    if share == "off":
        assert told["host_reads"] == told["host_takes"] == 0, told
    else:
        # Each chunk is read once on each host; all but the root's neighbour find what others read.
        assert told["host_takes"] > told["host_reads"] / 2 > 200, told


def test_all_kinds_of_broadcasts_with_several_ranks_on_each_host(four, mpi):
    shared = {"FI_MARLINE_TEST": "multicast_share=on"}
    assert_right(run(four, mpi, "--count", 80, n=2 * HOSTS, env=shared))


@pytest.mark.parametrize("fault", ["drop=1%", "corrupt=0.5%"])
def test_broadcasts_arrive_though_packets_are_lost_or_damaged(four, mpi, fault):
    for rail in (0, 1):
        four.fault(rail, fault)
    result = run(four, mpi, "--count", 100)
    assert_right(result)
    assert four.hits() > 10, four.status()


def assert_right_for_many(lab, mpi, n, hosts):
    for rail in (0, 1):
        lab.fault(rail, "drop=1%")
    with Filter(lab, hosts=hosts) as filtered:
        assert_right(run(lab, mpi, "--count", 25, "--max-size", 100_000, n=n, timeout=180))
        (sent, _), _, _ = filtered.counts("h1")
    assert sent > 20 and lab.hits() > 10, (sent, lab.status())


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"], indirect=True)
@pytest.mark.parametrize("n", [12, 16])
def test_many_ranks_of_few_hosts_though_packets_are_lost(four, mpi, n):
    assert_right_for_many(four, mpi, n, HOSTS)


@pytest.fixture(params=[12, 16])
def many(request):
    with labs.Lab(f"n{labs.os.getpid()}", hosts=request.param, options=["--no-offload"]) as lab:
        yield lab, request.param


@pytest.mark.alone
@pytest.mark.parametrize("mpi", ["mpich", "openmpi"], indirect=True)
def test_many_hosts_though_packets_are_lost(many, mpi):
    lab, hosts = many
    assert_right_for_many(lab, mpi, hosts, hosts)


def seen_by_tool(lab, mpi, program, *, options, preload=()):
    """Broadcasts and ends of communicators that a tool of the user's sees at rank 0, and what the
    second host multicasts."""
    env = {"LD_PRELOAD": ":".join(map(str, preload))} if preload else {}
    words = [mpi.program(program), "--count", 40, "--max-size", 20_000]
    with Filter(lab) as filtered:
        result = lab.run(mpi, words, n=HOSTS, env=env, options=list(options), timeout=120)
        (sent, _), _, _ = filtered.counts("h1")
    assert_right(result)
    told = re.findall(r"^tool rank=0 broadcasts=(\d+) freed=(\d+)$", result.out, re.MULTILINE)
    assert len(told) == 1, result.tail()
    return *map(int, told[0]), sent


def test_a_tool_that_is_linked_into_the_program_sees_its_calls(four, mpi):
    """It comes first, and hands on to the MPI: its broadcasts go point to point."""
    all_of_them = seen_by_tool(four, mpi, "bcast_tool", options=["--no-multicast"])
    assert all_of_them == (200, 4, 0), all_of_them
    assert seen_by_tool(four, mpi, "bcast_tool", options=["--multicast"]) == all_of_them


def test_a_tool_without_broadcasts_is_not_in_the_way(four, mpi):
    """It ends communicators and the job past the library: all have all that was broadcast."""
    for rail in (0, 1):
        four.fault(rail, "drop=1%")
    broadcasts, freed, sent = seen_by_tool(four, mpi, "bcast_ends", options=["--multicast"])
    assert (broadcasts, freed) == (0, 4) and sent > 50, sent


def test_a_preloaded_tool_sees_the_calls_that_go_to_the_mpi(four, mpi):
    """It comes behind the library, unless the user has put that behind it."""
    tool = mpi.program("tool.so")
    all_of_them = seen_by_tool(four, mpi, "bcast", options=["--no-multicast"], preload=[tool])
    assert all_of_them == (200, 4, 0), all_of_them
    broadcasts, freed, sent = seen_by_tool(four, mpi, "bcast", options=["--multicast"], preload=[tool])
    assert 0 < broadcasts < all_of_them[0] and freed == 4 and sent > 50, (broadcasts, freed, sent)
    assert seen_by_tool(four, mpi, "bcast", options=[], preload=[tool]) == all_of_them
    ours = labs.PROVIDER_DIR.resolve() / "libmarline-collectives.so"
    first = seen_by_tool(four, mpi, "bcast", options=["--multicast"], preload=[tool, ours])
    assert first == all_of_them


def test_broadcasts_go_another_way_where_multicast_is_filtered(four, mpi):
    with Filter(four, "drop") as filtered:
        result = run(four, mpi, "--count", 50)
        (dropped, _), _, _ = filtered.counts("h0")
    assert_right(result)
    assert dropped > 0 and result.find("the network does not carry multicast"), result.tail()


def start(lab, mpi, *args):
    program = [mpi.program("bcast"), "--seconds", 5, *args]
    return lab.start(mpi, program, n=HOSTS, options=["--multicast"])


def filtered_from_the_middle_on(lab, mpi, program, folder, first, said=""):
    """The result of a job whose multicasts are dropped after the first so many, and which goes on until
    some were, and until this was said."""
    with Filter(lab) as filtered:
        job = lab.start(mpi, [*program, "--until", folder / "enough"], n=HOSTS, options=["--multicast"])
        wait_until_multicast(filtered, job, first)
        with Filter(lab, "drop", "gone") as gone:
            wait_until_multicast(gone, job, 1)
            assert job.wait_for(said, 60), job.output()
            (folder / "enough").touch()
            return job.wait(120)


def wait_until_multicast(filtered, job, more=300):
    """Until the first host has sent many packets to groups."""
    end = time.monotonic() + 60
    while filtered.counts("h0")[0][0] < more:
        assert job.running() and time.monotonic() < end, job.output()
        time.sleep(0.05)


class PathMtu:
    """The switch takes shorter packets to and from a host, by both of its rails."""

    def __init__(self, lab, host, size):
        self.lab, self.size, self.ports = lab, size, [f"{host}r{rail}" for rail in (0, 1)]

    def set(self, size):
        for port in self.ports:
            done = self.lab.exec("ctl", "ip", "link", "set", "dev", port, "mtu", size)
            assert not done.returncode, done.stderr

    def dropped(self):
        files = [f"/sys/class/net/{port}/statistics/{way}_dropped" for port in self.ports for way in ("rx", "tx")]
        return sum(map(int, self.lab.exec("ctl", "cat", *files).stdout.split()))

    def __enter__(self):
        self.before = self.dropped()
        self.set(self.size)
        return self

    def __exit__(self, *_):
        self.set(1500)


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"], indirect=True)
@pytest.mark.parametrize("name, options", [("bcast", ["--multicast"]), ("alike", ["--multicast"]), ("bcast", [])])
def test_calls_go_another_way_where_the_path_mtu_of_a_host_shrinks(four, mpi, name, options, tmp_path):
    """What has begun arrives in pieces, and the group is left; short multicasts still arrive. With and
    without the option: many broadcasts are multicast unasked."""
    program = [mpi.program(name), "--seconds", 1, "--max-size", 50_000, "--until", tmp_path / "enough"]
    with Filter(four) as filtered:
        job = four.start(mpi, program, n=HOSTS, options=options)
        wait_until_multicast(filtered, job)
        with PathMtu(four, "h1", 1000) as path:
            said = job.wait_for("does not carry multicast .* any more", 60)
            dropped = path.dropped() - path.before
            (tmp_path / "enough").touch()
            result = job.wait(120)
    assert result.ok and result.find(f"^{name} ok "), result.tail()
    assert said and dropped > 0, (dropped, result.tail())


class Datagrams:
    """A host drops UDP on both of its rails, what comes or what leaves, and no TCP."""

    def __init__(self, lab, host, hooks):
        self.lab, self.host = lab, host
        chains = {"to": "chain in { type filter hook prerouting priority 0; iifname",
                  "from": "chain out { type filter hook output priority 0; oifname"}
        self.rules = "".join(f'{chains[hook]} "rail*" meta l4proto udp counter drop; }}; ' for hook in hooks)

    def dropped(self):
        table = self.lab.exec(self.host, "nft", "list", "table", "inet", "datagrams").stdout
        return sum(map(int, re.findall(r"counter packets (\d+)", table)))

    def __enter__(self):
        made = self.lab.exec(self.host, "nft", f"table inet datagrams {{ {self.rules}}}")
        assert made.returncode == 0, made.stderr
        return self

    def __exit__(self, *_):
        self.lab.exec(self.host, "nft", "delete", "table", "inet", "datagrams")


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"], indirect=True)
@pytest.mark.parametrize("hooks", [["to"], ["from"], ["to", "from"]], ids="-".join)
def test_calls_go_another_way_where_the_datagrams_of_a_host_are_filtered(four, mpi, hooks, tmp_path):
    """What has begun arrives by connections, and the group is left."""
    program = [mpi.program("alike"), "--seconds", 1, "--max-size", 20_000, "--until", tmp_path / "enough"]
    with Filter(four) as filtered:
        job = four.start(mpi, program, n=HOSTS, options=["--multicast"])
        wait_until_multicast(filtered, job)
        with Datagrams(four, "h1", hooks) as datagrams:
            said = job.wait_for("does not carry multicast .* any more", 60)
            dropped = datagrams.dropped()
            (tmp_path / "enough").touch()
            result = job.wait(120)
    assert result.ok and result.find("^alike ok "), result.tail()
    assert said and dropped > 0, (dropped, result.tail())


@pytest.mark.parametrize("kind", ["bcast", "ibcast"])
def test_broadcasts_go_another_way_from_the_middle_on(four, mpich, kind, tmp_path):
    """What has begun arrives, and later ones leave the group, at all ranks alike."""
    program = [mpich.program("bcast"), "--seconds", 3, "--max-size", 50_000, *["--ibcast"] * (kind == "ibcast")]
    left = "does not carry multicast .* any more"
    assert_right(filtered_from_the_middle_on(four, mpich, program, tmp_path, 300, left))


@pytest.mark.parametrize("fault", ["down", "blackhole"])
def test_a_rail_that_is_cut_in_the_middle(four, mpich, fault, tmp_path):
    with Filter(four) as filtered:
        job = start(four, mpich, "--until", tmp_path / "enough")
        wait_until_multicast(filtered, job)
        four.fault("h1:1", fault)
        (tmp_path / "enough").touch()
        result = job.wait(90)
    assert_right(result)


def test_a_rail_that_loses_all_multicast_and_nothing_else(four, mpich, tmp_path):
    """From the middle on the other one carries what goes by multicast."""
    with Filter(four) as filtered:
        job = start(four, mpich, "--until", tmp_path / "enough")
        wait_until_multicast(filtered, job, 60)
        with Filter(four, "drop", "gone", rail="rail0") as gone, Filter(four, "", "kept", rail="rail1") as kept:
            wait_until_multicast(gone, job, 1)
            wait_until_multicast(kept, job)
            (tmp_path / "enough").touch()
            result = job.wait(90)
    assert_right(result)


@pytest.mark.parametrize("where", [["0", "1"], ["h2:0", "h2:1"]])
def test_many_packets_are_lost_on_all_or_one(four, mpich, where):
    for rail in where:
        four.fault(rail, "drop=5%" if len(rail) == 1 else "drop=20%")
    result = run(four, mpich, "--count", 60)
    assert_right(result)
    assert four.hits() > 50, four.status()


def grew(result):
    told = re.findall(r"^bcast grew rank=(\d+) kB=(\d+)", result.out, re.MULTILINE)
    assert len(told) == HOSTS, result.tail()
    return [int(kb) for _, kb in told]


def test_nobody_waits_for_a_rank_that_enters_later(four, mpi):
    """The last rank enters once it has heard that all others are through."""
    result = run(four, mpi, "--ahead", "--count", 20, "--max-size", 64 << 10)
    assert_right(result)
    assert max(grew(result)) < 32 << 10, result.tail()


def test_memory_is_bounded_while_a_rank_is_away(four, mpich):
    """Of 96 MiB that are broadcast while one rank is away."""
    result = run(four, mpich, "--behind", "--count", 96, "--max-size", 1 << 20)
    assert_right(result)
    assert max(grew(result)) < 48 << 10, result.tail()


def test_who_has_short_receive_buffers_is_told_once(four, mpi):
    """As short as Linux's default lets them be."""
    def told(**how):
        result = run(four, mpi, "--count", 20, **how)
        assert_right(result)
        return re.findall(r"long broadcasts by multicast are slow: (\d+) KiB .*net\.core\.rmem_max=\d+", result.out)

    assert told() == []
    assert told(env={"FI_MARLINE_RECEIVE_BUFFER_BYTES": "212992"}) == ["103"]


SCHEMES = ["original", "basic", "window", "co-root2", "aggregate10", "nack", "nack+parity8"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_brings_the_right_bytes(four, mpich, scheme):
    four.fault(0, "drop=0.5%")
    result = run(four, mpich, "--count", 15, env={"FI_MARLINE_TEST": f"multicast_scheme={scheme}"})
    assert_right(result)


def survivors(mpi):
    """Words before the program, and variables, by which a job outlives a killed rank."""
    if mpi.name == "openmpi":
        return [], {"PRTE_MCA_state_base_recoverable": "1", "PRTE_MCA_state_base_continuous": "1"}
    return ["-disable-auto-cleanup"], {}


def assert_ended(four, mpi, dying, scheme="usual", kind="bcast"):
    words, env = survivors(mpi)
    env |= {"FI_MARLINE_PEER_TIMEOUT_MS": 2000, "FI_MARLINE_TEST": f"multicast_scheme={scheme}"}
    program = [*words, mpi.program("deadpeer"), kind, dying]
    result = four.run(mpi, program, n=HOSTS, env=env, options=["--multicast"], timeout=120)
    assert not result.timed_out, result.tail()
    # (Whoever is told nothing gives up after a minute.)
    told = set(map(int, re.findall(r"deadpeer: rank (\d+): error after", result.out)))
    assert told == set(range(HOSTS)) - {dying}, result.tail()
    assert result.find(rf"its peer, rank {dying}, is dead"), result.tail()


@pytest.mark.parametrize("dying", [0, 2])
def test_a_killed_rank_ends_broadcasts_with_its_name(four, mpi, dying):
    """Where a member died, its root is the first to find out, and leaves."""
    assert_ended(four, mpi, dying)


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"], indirect=True)
@pytest.mark.parametrize("dying", [0, 2])
def test_a_killed_rank_ends_broadcasts_that_are_started_again(four, mpi, dying):
    assert_ended(four, mpi, dying, kind="bcast_init")


@pytest.mark.parametrize("dying", [0, 2])
def test_a_killed_rank_ends_sums_with_its_name(four, mpi, dying):
    assert_ended(four, mpi, dying, kind="allreduce")


@pytest.mark.parametrize("mpi", ["openmpi", "intel"], indirect=True)
@pytest.mark.parametrize("kind", ["barrier", "allgather"])
def test_a_killed_rank_ends_other_calls_with_its_name(four, mpi, kind):
    assert_ended(four, mpi, 2, kind=kind)


def test_a_killed_collector_ends_broadcasts_with_its_name(four, mpich):
    assert_ended(four, mpich, 2, "co-root4")


def unasked(four, mpi, count=150, size=20_000, verdict="", **how):
    """What left for groups, in bytes, of broadcasts of rank 0 without the option."""
    how.setdefault("options", [])
    with Filter(four, verdict) as filtered:
        result = run(four, mpi, "--plain", "--count", count, "--max-size", size, **how)
        assert_right(result)
        assert not result.find("multicast"), result.tail()
        return filtered.counts("h0")[0][1]


def test_long_broadcasts_are_multicast_where_a_communicator_has_many(four, mpi):
    """From the hundredth on, though nobody asked."""
    assert 51 * 20_000 < unasked(four, mpi) < 56 * 24_000


@pytest.mark.parametrize("few", [{"count": 99}, {"size": 16_000}, {"n": 3}, {"n": 2 * HOSTS}], ids=str)
def test_without_the_option_nothing_else_is_multicast(four, mpich, few):
    assert unasked(four, mpich, **few) == 0


def test_without_the_option_nothing_is_said_of_networks_that_carry_none(four, mpi):
    assert 0 < unasked(four, mpi, verdict="drop") < 300_000, "probes of two networks"


def test_without_the_option_nothing_is_multicast_where_receive_buffers_are_short(four, mpi):
    env = {"FI_MARLINE_RECEIVE_BUFFER_BYTES": "212992"}
    assert 0 < unasked(four, mpi, env=env) < 300_000, "probes of two networks"


@pytest.mark.parametrize("options", [["--no-multicast"], ["--multicast", "--no-multicast"], ["--no-preload"]], ids=str)
def test_nothing_is_multicast_where_it_is_switched_off(four, mpich, options):
    assert unasked(four, mpich, options=options) == 0
