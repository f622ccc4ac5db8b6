"""Verbs rails, in a guest with two soft-RoCE devices (scripts/guest): short jobs of the verifying
stress test, IMB and mpi4py in every test run, some with packet loss or a failing device; more of
these programs, longer messages and more faults in `make soak`.

Each test runs one script in a guest, with fresh devices.
"""

import re
import shlex
import subprocess

import lab as labs
import pytest
from guest import JOB_S, LONG_JOB_S, in_guest

pytestmark = pytest.mark.guest

MPICH, OPENMPI = labs.MPIS["mpich"], labs.MPIS["openmpi"]
KINDS = ("ud", "rc", "uc")
# Rails over two devices: each kind, reliable and native.
SIX = [(f"{kind}:rxe0,{kind}:rxe1", native) for kind in KINDS for native in (False, True)]
IMB = ("PingPong", "Sendrecv", "Exchange")
# The longest message is a rendezvous.
SIZES = "printf '%d\\n' 0 8 65536 >/run/sizes"
SOME_SIZES = ("-iter", 2, "-msglen", "/run/sizes")
# Tests between both ranks, without those that send most messages over all datatypes.
SOME_OF_MPI4PY = (
    "-i", r"test_p2p_(buf|obj)\.py", "-k", "World.",
    "-x", "testPersistent", "-x", "testSendRecv", "-x", "testISendrecv",
)  # fmt: skip


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's rails")


def line(rails, mpi, words, native=False, ranks=2, limit=JOB_S, **env):
    """A script's line that runs a program over some rails between two ranks. `native`: without
    software reliability."""
    marline = [labs.MARLINE, "run", "--no-shm", "--require", "--", f"{mpi.mpiexec}/bin/mpiexec"]
    words = shlex.join(str(word) for word in [*marline, "-n", ranks, *words])
    env |= {"FI_MARLINE_RAILS": rails} | ({"FI_MARLINE_TEST": f"native={rails.split(':')[0]}"} if native else {})
    env = " ".join(f"{name}={value}" for name, value in env.items())
    return f"{env} timeout {limit} {words} || exit 1"


def job(rails, mpi, program, *args, **how):
    """The same for one of the test programs."""
    return f"echo RAILS {rails}; " + line(rails, mpi, [mpi.program(program), *args], **how)


def imb(rails, *args, native=False):
    """The same for IMB's benchmarks between two ranks of MPICH, whose ABI its binaries need."""
    words = [labs.MPI_DIR / "impi-rt" / "bin" / "IMB-MPI1", *args, *IMB]
    return line(rails, MPICH, words, native, LD_LIBRARY_PATH=MPICH.library.parent)


def mpi4py(rails, mpi, *args, **how):
    """The same for mpi4py's tests. (Compiled Python files are kept for the next job. Without a
    search for editable installs, which imports much at each start.)"""
    source = max(p for p in (labs.MPI_DIR / "src").glob("mpi4py-*") if p.is_dir())
    env = {"MPI4PY_LIBMPI": mpi.library, "LD_LIBRARY_PATH": mpi.library.parent, "PYTHONDONTWRITEBYTECODE": ""}
    python = [labs.MPI_DIR / "tools" / "bin" / "python", source / "test" / "main.py", "--no-numpy", "--no-builddir"]
    # Through `env`, as Open MPI's launcher only passes on variables that it is told to.
    words = ["env", *(f"{name}={value}" for name, value in env.items()), *python, *args]
    return line(rails, mpi, words, **how)


def far_job(kind, program, *args, wires=(0, 1)):
    """The same with MPICH, whose ranks use the devices at the two ends of the wires."""
    words = [MPICH.program(program), *args]
    ranks = [
        ["-n", "1", "-env", "FI_MARLINE_RAILS", ",".join(f"{kind}:{one}{at}" for at in wires), *words]
        for one in ("rxe", "far")
    ]
    marline = [labs.MARLINE, "run", "--no-shm", "--require", "--", f"{MPICH.mpiexec}/bin/mpiexec"]
    line = shlex.join(str(word) for word in [*marline, *ranks[0], ":", *ranks[1]])
    return f"echo RAILS {kind}; timeout {JOB_S} {line} || exit 1"


def wired_job(kind, program, *args):
    """The same with MPICH between two guests (`scripts/guest --wired`)."""
    mpiexec = [f"{MPICH.mpiexec}/bin/mpiexec", "-launcher", "ssh", "-launcher-exec", "/run/agent"]
    words = [*mpiexec, "-iface", "wire0", "-hosts", "guest0,guest1", "-n", 2, MPICH.program(program)]
    marline = [labs.MARLINE, "run", "--no-shm", "--require", "--"]
    line = shlex.join(str(word) for word in [*marline, *words, *args])
    return f"echo RAILS {kind}; FI_MARLINE_RAILS={kind} timeout {JOB_S} {line} || exit 1"


def assert_carried(said, *rails, least=100):
    """Every job ended right, and each of these rails carried more than `least` packets in one
    job."""
    jobs = said.split("RAILS ")[1:]
    assert jobs and all(re.search(r"^stress ok ", one, re.M) for one in jobs), said
    rows = [labs.parse_rails(one) for one in jobs]
    for rail in rails:
        sent = [row[rail]["packets_out"] for row in rows if rail in row]
        assert sent and max(sent) > least, said


def assert_moved(said, rail):
    """The rail was given up, and its frames in flight left on another."""
    row = re.search(rf"^{re.escape(rail)} .* (\d+)$", said, re.M)
    assert row and int(row[1]) > 0, said
    assert re.search(rf"{re.escape(rail)} on \S+ down .* packets? moved", said), said


def assert_benchmarked(said, runs):
    """IMB completed this many times, with each of its benchmarks."""
    for name in IMB:
        assert said.count(f"# Benchmarking {name}") == runs, said
    assert said.count("All processes entering MPI_Finalize") == runs, said


def assert_tested(said, runs, least):
    """mpi4py's tests ran in this many jobs, at least `least` tests per rank. (A failing test ends
    the script. Both ranks may write into one line.)"""
    ran = [int(n) for n in re.findall(r"Ran (\d+) tests? in ", said)]
    assert len(ran) == 2 * runs and min(ran) >= least, said


def disturbed(how, *jobs):
    """Runs jobs while the wires disturb packets; reports the number of dropped packets."""
    return [
        "for d in va0 vb0 va1 vb1; do",
        f"    tc qdisc replace dev $d root netem {how} || exit 1",
        "done",
        *jobs,
        "tc -s qdisc show | grep -A1 netem",
        "for d in va0 vb0 va1 vb1; do tc qdisc del dev $d root; done",
    ]


# Drops the packets of one queue pair of a type (RC, UC, UD) of rxe0, as a network does that loses
# one of several ways; of datagram pairs, those that sent most come first. RoCE's source port is
# derived from the numbers of both pairs, for datagrams from a hash of one
# (drivers/infiniband/sw/rxe).
LOSE_PAIR = r"""
lose_pair() {
    local pair=($(rdma resource show qp link rxe0/1 type $1 | sort -s -t' ' -k10,10nr | sed -n ${2}p))
    local own=${pair[3]} far=${pair[5]} # link rxe0/1 lqpn OWN rqpn FAR type RC ...
    local hash=$(((own * 0x61c88647 & 0xffffffff) >> 18)) label=$((own * far))
    label=$(((label ^ label >> 20) & 0xfffff))
    [ $1 = UD ] || hash=$(((label & 0x3fff) ^ label >> 14))
    echo "LOST ${pair[*]} port $((0xc000 | hash))"
    tc qdisc del dev va0 root 2>/dev/null # with its filters
    tc qdisc add dev va0 root handle 1: prio
    tc qdisc add dev va0 parent 1:3 handle 3: netem loss 100%
    tc filter add dev va0 parent 1: protocol ip u32 match ip protocol 17 0xff \
        match ip sport $((0xc000 | hash)) 0xffff flowid 1:3
    before=$(reports)
}
reports() { grep -c '^stress t=' /tmp/said; }
loses() { tc -s qdisc show dev va0 | grep -A1 netem | grep -q 'dropped [1-9]'; }
# A silent start may have left the first pair of datagrams for another one.
lose_next() {
    [ $1 = UD ] && [ $(reports) -gt $((before + 2)) ] && ! loses || return
    at=$((at % 4 + 1))
    lose_pair UD $at
}
"""


def lost_pair(kind, pair, enough="[ $(reports) -gt $((before + 10)) ]"):
    """A job over one wire on which, from its middle on, one queue pair of one end loses everything,
    until `enough`: the job must make progress."""
    size = ("--continue", 1, "--until", "/tmp/enough", "--max-size", 65536, "--report", 0.5)
    size += ("--phases", "ring,alltoall,wildcard")
    going = "kill -0 $work 2>/dev/null"
    return [
        LOSE_PAIR,
        "rm -f /tmp/enough /tmp/said; touch /tmp/said",
        f"({far_job(kind, 'stress', *size, wires=(0,))}) >/tmp/said 2>&1 & work=$!",
        f"until [ $(reports) -gt 0 ] || ! {going}; do sleep 0.2; done",
        f"at=1; lose_pair {pair} $at",
        f"until {enough} || ! {going}; do sleep 0.2; lose_next {pair}; done",
        "tc -s qdisc show dev va0 | grep -A1 netem; touch /tmp/enough",
        "wait $work; ended=$?; tc qdisc del dev va0 root; cat /tmp/said; [ $ended = 0 ] || exit $ended",
    ]


def assert_dropped(said):
    """The wires dropped packets."""
    dropped = [int(n) for n in re.findall(r"\(dropped (\d+),", said)]
    assert len(dropped) >= 4 and sum(dropped) > 0, said


@pytest.mark.parametrize("mpi", [MPICH, OPENMPI], ids=lambda mpi: mpi.name)
def test_kinds_carry_jobs(mpi):
    """The verifying stress test and others over two rails of each kind: with MPICH and software
    reliability, also IMB's benchmarks of short and long messages (which need its ABI) and, over
    unreliable connections, lost, duplicated and reordered packets; with Open MPI without software
    reliability, also some of mpi4py's point-to-point tests. Programs start slowly in a guest: all
    others are in `test_imb_and_mpi4py`."""
    size = ("--iterations", 1, "--max-size", 65536)
    some = [(rails, native) for rails, native in SIX if native == (mpi is OPENMPI)]
    lines = [job(rails, mpi, "stress", *size, native=native) for rails, native in some]
    if mpi is OPENMPI:
        lines.append(mpi4py("rc:rxe0,rc:rxe1", mpi, *SOME_OF_MPI4PY, native=True))
    else:
        lines += [SIZES, imb("rc:rxe0,rc:rxe1", *SOME_SIZES)]
        how = "delay 1ms reorder 97% loss 0.5% duplicate 0.3%"
        lines += disturbed(how, far_job("uc", "stress", *size))
    said = in_guest(*lines, options=["--far"] if mpi is MPICH else [])
    assert_carried(said, *(f"{kind}:rxe{at}" for kind in KINDS for at in (0, 1)))
    if mpi is OPENMPI:
        assert_tested(said, 1, 30)
    else:
        assert_carried(said, "uc:far0", "uc:far1")
        assert_benchmarked(said, 1)
        assert_dropped(said)


def test_jobs_without_a_key_and_with_two():
    """Jobs without a key and jobs that encrypt carry the same. (All others have the key that `marline
    run` makes.) Ranks with different keys refuse each other by name."""
    size = ("--iterations", 1, "--max-size", 65536)
    levels = ("off", "encrypt", "encrypt")
    lines = [job(f"{kind}:rxe0", MPICH, "stress", *size, FI_MARLINE_AUTH=level) for level, kind in zip(levels, KINDS)]
    ranks = [["-n", 1, "-env", "FI_MARLINE_KEY", 32 * digits, MPICH.program("stress"), *size] for digits in ("1f", "a5")]
    words = [labs.MARLINE, "run", "--no-shm", "--", f"{MPICH.mpiexec}/bin/mpiexec", *ranks[0], ":", *ranks[1]]
    differ = shlex.join(str(word) for word in words)
    lines.append(f"FI_MARLINE_RAILS=rc:rxe0 FI_LOG_LEVEL=warn timeout {JOB_S} {differ} && exit 1")
    said = in_guest(*lines, "true")
    alike, refused, _ = said.partition("is refused: its key")
    assert refused, said
    assert alike.count("RAILS ") == len(KINDS), said
    assert_carried(alike, *(f"{kind}:rxe0" for kind in KINDS))


def test_damaged_and_overtaken_packets():
    """Disturbs packets on the wires between two devices, with software reliability: datagrams may
    be lost, damaged (and dropped by the devices) or reordered; a reliable connection survives only
    loss and damage, tried twice, as the device waits at different places each time.
    (Unreliable connections: `test_kinds_carry_jobs`.)"""
    size = ("--iterations", 1, "--max-size", 32768)
    ud, rc = "delay 1ms reorder 95% loss 0.3% corrupt 0.3%", "loss 0.3% corrupt 0.3%"
    lines = disturbed(ud, far_job("ud", "stress", *size))
    lines += disturbed(rc, *2 * [far_job("rc", "stress", *size)])
    said = in_guest(*lines, options=["--far"])
    assert_carried(said, "ud:rxe0", "ud:far1", "rc:rxe0", "rc:far1")
    assert_dropped(said)


def test_packets_cross_wires_between_guests():
    """Each kind over two wires between two guests, so that no packet stays within one kernel. (With
    software reliability, as wires are late on a loaded machine, which breaks connections; except
    those of native rails, whose timeouts are longer.)"""
    size = ("--iterations", 1, "--max-size", 32768)
    lines = [wired_job(kind, "stress", *size) for kind in ("ud", "uc")]
    lines.append(f"export FI_MARLINE_TEST=native=rc; {wired_job('rc', 'stress', *size)}")
    said = in_guest(*lines, options=["--wired", "--cpus", "1", "--memory", "2G"])
    assert said.count("RAILS ") == len(lines), said
    rails = (f"{kind}:rxe{at}" for kind in ("ud", "rc", "uc") for at in (0, 1))
    assert_carried(said, *rails, least=20)


def test_links_begin_with_datagrams():
    """Connections are for peers with much traffic; others are served by datagrams."""
    size = ("--iterations", 1, "--max-size", 65536)
    lines = [job(f"{kind}:rxe0", MPICH, "stress", *size) for kind in ("rc", "uc")]
    pages = "export FI_MARLINE_STATS_DIR=$(mktemp -d)"
    shown = f"{labs.MARLINE} stats --raw $FI_MARLINE_STATS_DIR"
    said = in_guest("export FI_MARLINE_TEST=verbs_datagrams=100", pages, *lines, shown)
    assert_carried(said, "rc:rxe0", "uc:rxe0")
    # A link that came up with datagrams and then got a connection: at both ends, in both jobs.
    reconnected = re.findall(r"reconnected[ :=]+(\d+)", said)
    assert len(reconnected) >= 4 and all(int(n) > 0 for n in reconnected), said


def test_another_queue_pair_carries_on():
    """A way through the network fails that belongs to one queue pair. Datagrams leave by another
    pair of their rail; frames in flight on a connection, by the other rail of the port."""
    moved = "{ grep -q 'packets moved' /tmp/said || [ $(reports) -gt $((before + 100)) ]; }"
    two = ["export FI_MARLINE_VERBS_PATHS=2", *lost_pair("rc", "RC", moved)]
    said = in_guest(*lost_pair("ud", "UD"), *two, options=["--far"])
    assert_carried(said, "ud:rxe0", "rc:rxe0", "rc:rxe0/2", "rc:far0/2")
    assert re.search(r"^ud:rxe0: another source port was tried", said, re.M), said
    assert re.search(r"rail rc:rxe0(/2)? to .* is lost: .*; [1-9]\d* packets moved \[MARLINE-E303\]$", said, re.M), said
    dropped = [int(n) for n in re.findall(r"\(dropped (\d+),", said)]
    assert len(dropped) == 2 and all(dropped), said


@pytest.mark.soak
def test_long_messages_are_staged():
    """Writes leave from registered buffers in growing chunks and land in such buffers, neither from
    nor in user memory."""
    size = ("--iterations", 1, "--max-size", 1 << 20)
    pages = "export FI_MARLINE_TEST=verbs_staged=on FI_MARLINE_STATS_DIR=$(mktemp -d)"
    shown = f"{labs.MARLINE} stats --raw $FI_MARLINE_STATS_DIR"
    said = in_guest(pages, *(job(kind, MPICH, "stress", *size) for kind in ("rc", "uc")), shown)
    assert_carried(said, "rc:rxe0", "uc:rxe0")
    staged = [int(n) for n in re.findall(r"staged[ :=]+(\d+)", said)]
    assert len(staged) >= 8 and all(n > 0 for n in staged), said


def test_long_messages_are_read():
    """Receivers read long messages from their senders' memory over reliable connections. Workers
    compute sums at both ends, also on a rank that only receives such messages."""
    size = ("--iterations", 1, "--max-size", 1 << 20)
    reads = "export FI_MARLINE_VERBS_READS=on FI_MARLINE_CHECKSUM_WORKERS=2"
    pages = "export FI_MARLINE_STATS_DIR=$(mktemp -d)"
    shown = f"{labs.MARLINE} stats --raw $FI_MARLINE_STATS_DIR"
    jobs = [job("rc", OPENMPI, "stress", *size)]
    one_way = job("rc", MPICH, "curve", "--seconds", 1, f"bandwidth:{1 << 20}")
    said = in_guest(reads, pages, *jobs, shown, "echo ONE WAY", pages, one_way, shown)
    both_ways, one_way = said.split("ONE WAY")
    assert_carried(both_ways, "rc:rxe0")
    counted = lambda said, name: [int(n) for n in re.findall(rf"{name}[ :=]+(\d+)", said)]
    pulled = counted(both_ways, "pulled")
    assert len(pulled) >= 2 and all(n > 0 for n in pulled), said
    for part in (both_ways, one_way):
        summed = counted(part, "summed_by_workers")
        assert len(summed) >= 2 and all(n > 0 for n in summed), said


def test_memory_that_may_not_be_locked():
    """A rank whose locked-memory limit only suffices for its rails (`ulimit -l`) still sends long
    messages by writes, copied, receives them in packets, even those that would be read, and prints
    advice once; no link fails."""
    program = (MPICH.program("stress"), "--iterations", 1, "--max-size", 1 << 20)
    bound = ("setpriv", "--bounding-set", "-ipc_lock", *program, "--lock-no-more", 1)
    marline = [labs.MARLINE, "run", "--no-shm", "--require", "--", f"{MPICH.mpiexec}/bin/mpiexec"]
    words = [*marline, "-n", 1, *bound, ":", "-n", 1, *program]
    line = shlex.join(str(word) for word in words)
    pages = "ulimit -l unlimited; export FI_LOG_LEVEL=warn FI_MARLINE_STATS_DIR=$(mktemp -d)"
    ways = (("uc", "off"), ("rc", "on"))
    lines = [f"echo RAILS {kind}; FI_MARLINE_RAILS={kind}:rxe0 FI_MARLINE_VERBS_READS={reads} "
             f"timeout {JOB_S} {line} || exit 1" for kind, reads in ways]  # fmt: skip
    shown = f"{labs.MARLINE} stats --raw $FI_MARLINE_STATS_DIR"
    said = in_guest(pages, *lines, shown)
    assert_carried(said, "rc:rxe0", "uc:rxe0")
    # In each job one process was limited: it registered nothing, and its writes were copied. It
    # received in packets; nothing was read. (Only nonzero counters are shown.)
    counted = lambda name: [int(n) for n in re.findall(rf"\b{name}=(\d+)", said)]
    for name in ("unregistered", "written"):
        assert len(counted(name)) == len(ways), (name, said)
    # A link that failed for lack of memory would requeue a packet each time. (On a machine that
    # stalls for longer than a device's acknowledgement timeout, two seconds, a connection is
    # replaced.)
    moved, refused = sum(counted("resent_failover")), sum(counted("unregistered"))
    assert not counted("pulled") and moved < refused // 10, said
    assert said.count("raise the limit on locked memory") == len(ways), said


def test_memory_of_a_send_is_registered_once():
    """Although it leaves in many writes."""
    one_way = job("rc:rxe0", MPICH, "curve", "--seconds", 1, f"bandwidth:{1 << 20}")
    pages = "export FI_MARLINE_STATS_DIR=$(mktemp -d)"
    said = in_guest(pages, one_way, f"{labs.MARLINE} stats --raw $FI_MARLINE_STATS_DIR")
    counted = lambda page, name: sum(int(n) for n in re.findall(rf"\b{name}=(\d+)", page))
    (sender,) = (page for page in said.split(".page:") if counted(page, "written"))
    sends, writes = counted(sender, "rendezvous_sent"), counted(sender, "written")
    # (Some twice or not at all, if a busy machine broke a connection.)
    assert sends / 2 < counted(sender, "registered") < 2 * sends and writes >= 8 * sends, said


def test_few_connections_serve_many_ranks():
    """Four ranks with at most two connections each at a time: connections are closed and
    re-established continuously without failing links; also without software reliability, where a
    packet lost with a connection would end the job."""
    size = ("--iterations", 1, "--max-size", 65536)
    few = "export FI_MARLINE_VERBS_CONNECTIONS=2"
    kinds = [("rc", True), ("uc", False)]
    lines = [job(f"{kind}:rxe0", MPICH, "stress", *size, native=n, ranks=4) for kind, n in kinds]
    said = in_guest(few, *lines)
    assert_carried(said, "rc:rxe0", "uc:rxe0")
    for one in said.split("RAILS ")[1:]:
        closed = re.search(r"^ *.c:rxe0:\s+(\d+)\s+connections\s+were\s+closed\s+for\s+others", one, re.M)
        fallen = re.search(r"^ *.c:rxe0:\s+\d+\s+of\s+(\d+)\s+failovers", one, re.M)
        assert closed and int(closed[1]) > 4, one
        # (A link may fail if a busy machine keeps a device from answering for half a second.)
        assert not fallen or int(fallen[1]) < int(closed[1]) / 10, one


@pytest.mark.soak
@pytest.mark.parametrize("mpi", [MPICH, OPENMPI], ids=lambda mpi: mpi.name)
@pytest.mark.parametrize("kind", ["ud", "rc", "uc"])
def test_each_kind_carries_long_messages(kind, mpi):
    """With and without software reliability."""
    size = ("--iterations", 1, "--max-size", 1 << 20)
    said = in_guest(
        *(job(kind, mpi, "stress", *size, native=native) for native in (False, True)),
    )
    assert_carried(said, f"{kind}:rxe0", f"{kind}:rxe1")


@pytest.mark.soak
@pytest.mark.parametrize("mpi", [MPICH, OPENMPI], ids=lambda mpi: mpi.name)
@pytest.mark.parametrize("native", [False, True], ids=["reliable", "native"])
@pytest.mark.parametrize("kind", KINDS)
def test_imb_and_mpi4py(kind, native, mpi):
    """All of mpi4py's point-to-point tests, and with MPICH IMB's benchmarks up to longer
    messages."""
    lines = [mpi4py(kind, mpi, "-i", "test_p2p", native=native, limit=LONG_JOB_S)]
    if mpi is MPICH:
        lines.append(imb(kind, "-iter", 5, "-msglog", "0:18", native=native))
    said = in_guest(*lines)
    assert_tested(said, 1, 100)
    if mpi is MPICH:
        assert_benchmarked(said, 1)


@pytest.mark.soak
@pytest.mark.parametrize("native", [False, True], ids=["reliable", "native"])
def test_many_short_messages_to_many_peers(native):
    """Four ranks exchange messages of 1 to 8 KiB at full rate, mostly in one direction."""
    kinds = ("rc", "uc", "ud")
    size = ("--messages", 1500)
    lines = [job(f"{kind}:rxe0", MPICH, "peers", *size, native=native, ranks=4) for kind in kinds]
    said = in_guest(*lines)
    assert len(re.findall(r"^peers ok ", said, re.M)) == len(kinds), said


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["ud", "rc", "uc"])
def test_packets_are_lost_below_verbs(kind):
    """Faults on the wires between two devices of the same host. (A reliable connection needs order
    and survives nothing else; the other kinds also get late packets, and damaged ones, which the
    devices drop.)"""
    hows = ["loss 0.3%", "loss 0.3% duplicate 0.3%", "loss 0.3% corrupt 0.1%"]
    if kind != "rc":
        hows.append("delay 1ms reorder 95%")
    if kind == "uc":
        hows += 3 * ["loss 1%"]  # long messages are writes; parts of them are lost
    size = ("--iterations", 1, "--max-size", 262144)
    lines = [line for how in hows for line in disturbed(how, far_job(kind, "stress", *size))]
    said = in_guest(*lines, options=["--far"])
    assert_carried(said, f"{kind}:rxe0", f"{kind}:far1")
    assert said.count("RAILS ") == len(hows), said
    assert_dropped(said)


# Shell functions of a script that runs beside a job: they wait for its output, its counters, or its
# end.
WATCH = f"""
export FI_MARLINE_STATS_DIR=$(mktemp -d)
pages() {{ {labs.MARLINE} stats --raw $FI_MARLINE_STATS_DIR; }}
reports() {{ grep -c '^stress t=' /run/said; }}
till() {{ until eval "$1"; do kill -0 $work || break; sleep 0.2; done; }}
onward() {{ goal=$(($(reports) + 2)); till '[ $(reports) -ge $goal ]'; }}
state() {{ till "[ \\$(pages | grep -c '^ *$1 to its rail .*, $2:') = 2 ]"; }}
"""


def watched(rails, script, *args):
    """Lines that run the stress test over some rails until the script beside it has ended."""
    size = ("--continue", 0, "--until", "/run/enough", "--report", 0.1, *args)
    return [
        f"{WATCH}({job(','.join(rails), MPICH, 'stress', *size)}) >/run/said 2>&1 & work=$!",
        "onward", *script, "touch /run/enough", "wait $work; ended=$?; cat /run/said; exit $ended",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "kind, other",
    [
        pytest.param(kind, other, marks=() if (kind, other) == ("rc", "tcp:lo") else pytest.mark.soak)
        for kind in KINDS for other in ("lo", "tcp:lo")
    ],
)  # fmt: skip
def test_another_rail_carries_on_when_a_port_goes_down(kind, other):
    """The interface under a device goes down during long messages and comes back; they end by UDP
    or TCP. (Repeated if no frame happened to be in flight.)"""
    rail = f"{kind}:rxe0"
    script = (
        f"while ip link set va0 down; state {rail} down; onward; ip link set va0 up; state {rail} up; onward",
        "    kill -0 $work && ! pages | grep -q 'resent_failover='; do :; done",
    )
    said = in_guest(*watched([rail, other], script, "--phases", "ring", "--max-size", 4 << 20))
    assert_carried(said, rail, other, least=0)
    assert_moved(said, rail)


@pytest.mark.soak
def test_rc_then_ud_then_udp_then_tcp_and_back():
    """One rail after another fails during long messages, until only TCP is left: ports, then UDP,
    which the loopback drops. Then all come back, the best one first."""
    lose = "tc qdisc replace dev lo root handle 1: prio; tc qdisc add dev lo parent 1:3 handle 3: netem loss 100%"
    udp = "tc filter add dev lo parent 1: protocol ip u32 match ip protocol 17 0xff flowid 1:3"
    rails = ["rc:rxe0", "ud:rxe1", "lo", "tcp:lo"]
    script = (
        "ip link set va0 down; state rc:rxe0 down; onward; ip link set va1 down; state ud:rxe1 down; onward",
        f"{lose}; {udp}; state lo down; onward; tc -s qdisc show dev lo",
        "ip link set va0 up; state rc:rxe0 up; onward; ip link set va1 up; state ud:rxe1 up; onward",
        "tc qdisc del dev lo root; state lo up; onward",
    )
    said = in_guest(*watched(rails, script, "--max-size", 1 << 20))
    assert_carried(said, *rails)
    for rail in rails[:3]:
        assert_moved(said, rail)
    assert re.search(r"qdisc netem 3:.*\n.*dropped [1-9]", said), said


def test_rails_on_a_device():
    """The tests of the rails crate that need a device: packets, writes refused after their memory
    is closed, drains, a vanishing peer. And the doctor's report on devices."""
    # `make test` built it: with other features, all crates would be compiled once more.
    features = re.search(r"^MISTAKES := (.*)", (labs.ROOT / "Makefile").read_text(), re.M)[1].split()
    build = ["cargo", "test", "--locked", "--workspace", *features, "--test", "verbs", "--no-run"]
    built = subprocess.run(build, cwd=labs.ROOT, capture_output=True, text=True)
    program = re.search(r"Executable tests/verbs\.rs \((.+)\)", built.stderr)
    assert program, built.stderr[-4000:]
    said = in_guest(
        f"{labs.ROOT / program[1]} --ignored --color never --test-threads 1 || exit 1",
        f"{labs.MARLINE} doctor || [ $? -le 2 ]",
    )
    tests = labs.ROOT / "crates" / "rails" / "tests"
    sources = [(tests / name).read_text() for name in ("verbs.rs", "keyed/mod.rs", "limited/mod.rs")]
    count = sum(source.count("#[ignore") for source in sources)
    assert f"test result: ok. {count} passed" in said, said
    # Advice for an adapter's owner.
    for at in (0, 1):
        assert re.search(rf"^  rxe{at}: RoCE, up, .*GID \d+, MTU \d+, .*answered at once", said, re.M), said
    assert re.search(r"^  locked memory: ", said, re.M), said
