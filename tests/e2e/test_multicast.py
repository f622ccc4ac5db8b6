"""MPI_Bcast by multicast (crates/collectives), on four hosts with two rails each."""

import re
import time

import pytest

import lab as labs

HOSTS = 4
# Administratively scoped addresses of IPv4, of which groups have theirs.
GROUPS = "239.0.0.0/8"


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
    """A rule of every host for what leaves it to groups, with a count of the packets."""

    def __init__(self, lab, verdict="", name="groups"):
        self.lab, self.name, self.hosts = lab, name, [f"h{n}" for n in range(HOSTS)]
        self.rules = (
            f"table inet {name} {{ chain out {{ type filter hook output priority 0; "
            f"ip daddr {GROUPS} counter {verdict}; "
            f'oifname "rail*" ip daddr != {GROUPS} meta l4proto udp counter; }}; }}'
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
        """Packets and bytes to groups, and by UDP to single hosts."""
        table = self.lab.exec(host, "nft", "list", "table", "inet", self.name).stdout
        found = re.findall(r"counter packets (\d+) bytes (\d+)", table)
        return [(int(packets), int(size)) for packets, size in found]


def test_broadcasts_of_all_kinds_arrive(four, mpi):
    with Filter(four) as filtered:
        assert_right(run(four, mpi, "--count", 150))
        (multicast, _), _ = filtered.counts("h0")
    assert multicast > 1000, multicast


def test_a_late_rank_keeps_nobody_waiting_for_ever(four, mpich):
    assert_right(run(four, mpich, "--count", 200, "--late", 100))


@pytest.mark.parametrize("size", [8, 100_000])
def test_a_broadcast_leaves_its_root_once_however_many_hosts_there_are(four, mpich, size):
    count, sent = 400, {}
    for n in (3, HOSTS):
        with Filter(four) as filtered:
            assert_right(run(four, mpich, "--plain", "--count", count, "--max-size", size, n=n))
            sent[n] = filtered.counts("h0")
    chunks = count * -(-size // 1280)
    for (multicast, _), (_, direct) in sent.values():
        # Little more: what asks the last members, and what finds out if multicast is carried.
        assert chunks <= multicast < 1.2 * chunks + 100, sent
        assert direct < 0.2 * count * size + 200_000, sent


@pytest.mark.parametrize("fault", ["drop=1%", "corrupt=0.5%"])
def test_broadcasts_arrive_though_packets_are_lost_or_damaged(four, mpi, fault):
    for rail in (0, 1):
        four.fault(rail, fault)
    result = run(four, mpi, "--count", 100)
    assert_right(result)
    assert four.hits() > 10, four.status()


def test_broadcasts_go_another_way_where_multicast_is_filtered(four, mpi):
    with Filter(four, "drop") as filtered:
        result = run(four, mpi, "--count", 50)
        (dropped, _), _ = filtered.counts("h0")
    assert_right(result)
    assert dropped > 0 and result.find("the network does not carry multicast"), result.tail()


def start(lab, mpi, *args):
    program = [mpi.program("bcast"), "--seconds", 5, *args]
    return lab.start(mpi, program, n=HOSTS, options=["--multicast"])


def wait_until_multicast(filtered, job, more=2000):
    """Until the first host has sent many packets to groups."""
    end = time.monotonic() + 60
    while filtered.counts("h0")[0][0] < more:
        assert job.running() and time.monotonic() < end, job.output()
        time.sleep(0.05)


def test_broadcasts_go_another_way_from_the_middle_on(four, mpich):
    """What has begun arrives, and later ones leave the group, at all ranks alike."""
    with Filter(four) as filtered:
        job = start(four, mpich, "--max-size", 50_000)
        wait_until_multicast(filtered, job)
        with Filter(four, "drop", "gone") as gone:
            result = job.wait(90)
            (dropped, _), _ = gone.counts("h0")
    assert_right(result)
    assert dropped > 0, result.tail()
    assert result.find("does not carry multicast .* any more"), result.tail()


@pytest.mark.parametrize("fault", ["down", "blackhole"])
def test_a_rail_that_is_cut_in_the_middle(four, mpich, fault):
    with Filter(four) as filtered:
        job = start(four, mpich)
        wait_until_multicast(filtered, job)
        four.fault("h1:1", fault)
        result = job.wait(90)
    assert_right(result)


def test_without_the_option_nothing_is_multicast(four, mpich):
    with Filter(four) as filtered:
        assert_right(run(four, mpich, "--count", 20, options=["--multicast", "--no-multicast"]))
        assert filtered.counts("h0")[0] == (0, 0)


def test_nothing_else_is_in_the_way():
    """Each name that a preloaded library exports takes the place of everybody's."""
    library = labs.PROVIDER_DIR.resolve() / "libmarline-collectives.so"
    names = labs.subprocess.run(["nm", "-D", "--defined-only", "-j", library],
                                capture_output=True, text=True, check=True).stdout.split()
    assert set(names) == {"MPI_Bcast", "MPI_Comm_free", "MPI_Comm_disconnect", "MPI_Finalize"}
