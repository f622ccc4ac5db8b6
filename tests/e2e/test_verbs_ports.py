"""Ports of verbs devices, in a guest with two soft-RoCE devices (scripts/guest): packets have the
marks of settings, the address of one device vanishes and returns, and one of two ports of a device
goes down.

Soft-RoCE has one port per device; a library in place of libibverbs (two_ports.c) presents both
devices as two ports of one.
"""

import re
import shlex
import subprocess

import lab as labs
import pytest
from guest import JOB_S, in_guest
from test_verbs import MPICH, assert_carried, assert_moved, job, only_marline  # noqa: F401

pytestmark = pytest.mark.guest

VERBS = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1"
EVENTS = f"{labs.MARLINE} events $FI_MARLINE_STATS_DIR"
PAGES = "export FI_MARLINE_STATS_DIR=$(mktemp -d)"
SIZE = ("--continue", 1, "--until", "/tmp/enough", "--max-size", 65536, "--report", 0.5)


def disturbed(work, *steps):
    """A job with disturbances: each step is a command and the output of `marline events` expected
    then; the job makes progress after each step and ends after the last. Returns its output."""
    lines = [
        "rm -f /tmp/enough; said=$(mktemp)",
        f"({work}) >$said 2>&1 & work=$!",
        "reports() { grep -c '^stress t=' $said; }",
        "lives() { kill -0 $work 2>/dev/null; }",
        "gets_on() { n=$(reports); while lives && [ $(reports) -lt $((n + 2)) ]; do sleep 0.2; done; }",
        f"says() {{ while lives && ! {EVENTS} | grep -qE \"$1\"; do sleep 0.2; done; }}",
        "gets_on",
    ]
    for command, event in steps:
        lines.append(f"{command}; says '{event}'; gets_on")
    shown = f"{EVENTS}; {labs.MARLINE} stats --raw $FI_MARLINE_STATS_DIR"
    return [*lines, f"touch /tmp/enough; wait $work; ended=$?; cat $said; {shown}", "[ $ended = 0 ] || exit 1"]


def assert_told_in_turn(said, *events):
    """`marline events` lists these events in this order."""
    at = 0
    for event in events:
        found = re.compile(event).search(said, at)
        assert found, (event, said)
        at = found.end()


# A second address of va0, and with it of rxe0, and the place of its GID in the device's table. Counts
# RoCE's packets that leave an interface from an address: with traffic class 104 and P_Key 0xffff, which
# is all that soft-RoCE has, in class 1:1, all others in class 1:3.
MARKED = r"""
ip addr add 10.77.0.11/24 dev va0
ip route add 10.77.0.11 dev vb0 table 110
ip rule add pref 100 iif lo from 10.77.0.11 to 10.77.0.2 lookup 100
ip rule add pref 100 iif lo from 10.77.0.2 to 10.77.0.11 lookup 110
at=$(grep -l 0a4d:000b /sys/class/infiniband/rxe0/ports/1/gids/* | head -1)
at=${at##*/}
count() {
    local roce="match ip protocol 17 0xff match ip dport 4791 0xffff"
    tc qdisc replace dev $1 root handle 1: prio priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
    tc filter add dev $1 parent 1: protocol ip prio 1 u32 $roce match ip src $2 \
        match ip tos 104 0xff match u16 0xffff 0xffff at 30 flowid 1:1
    tc filter add dev $1 parent 1: protocol ip prio 2 u32 $roce flowid 1:3
}
"""
MARKS = "FI_MARLINE_VERBS_TRAFFIC_CLASS=104 FI_MARLINE_VERBS_SERVICE_LEVEL=3 FI_MARLINE_VERBS_PKEY=0xffff"


def test_packets_have_the_marks_of_settings():
    """Seen on the wire: traffic class, P_Key and, as the source address, the GID. (A service level is in
    no packet of RoCE; crates/rails/tests/verbs_ports.rs sees it given to the device.)"""
    lines = [MARKED, "count va0 10.77.0.11", "count vb0 10.77.0.2"]
    stress = [MPICH.program("stress"), "--iterations", 1, "--max-size", 65536]
    for kind in ("ud", "rc", "uc"):
        ranks = [["-n", 1, "-env", "FI_MARLINE_RAILS", f"{kind}:rxe0", "-env", "FI_MARLINE_VERBS_GID_INDEX", "GID", *stress],
                 ["-n", 1, "-env", "FI_MARLINE_RAILS", f"{kind}:far0", *stress]]
        words = [labs.MARLINE, "run", "--no-shm", "--require", "--", f"{MPICH.mpiexec}/bin/mpiexec", *ranks[0], ":", *ranks[1]]
        line = shlex.join(str(word) for word in words).replace("GID_INDEX GID", "GID_INDEX $at")
        lines.append(f"echo RAILS {kind}; {MARKS} timeout {JOB_S} {line} || exit 1")
    lines += ["for d in va0 vb0; do tc -s class show dev $d; done", "for d in va0 vb0; do tc qdisc del dev $d root; done"]
    said = in_guest(*lines, options=["--far"])
    assert_carried(said, "ud:rxe0", "rc:rxe0", "uc:far0")
    seen = re.findall(r"class prio 1:(\d).*\n Sent \d+ bytes (\d+) pkt", said)
    assert [name for name, _ in seen] == ["1", "2", "3"] * 2, said
    for marked, _, others in (seen[:3], seen[3:]):
        assert int(marked[1]) > 300 and int(others[1]) == 0, said


@pytest.mark.parametrize("kind", ["rc", *(pytest.param(k, marks=pytest.mark.soak) for k in ("uc", "ud"))])
def test_an_address_goes_and_comes(kind):
    """The address below a device vanishes, and with it the rail's GID. The job continues on another
    rail, and on this one when the address is back, at any index of the device's table."""
    rail = f"{kind}:rxe0"
    said = in_guest(
        PAGES,
        *disturbed(
            job(f"{rail},lo", MPICH, "stress", *SIZE),
            ("ip addr del 10.77.0.1/24 dev va0", f"rail {rail} is down"),
            ("ip addr add 10.77.0.1/24 dev va0", f"path {rail} .* is up again"),
        ),
    )
    assert_carried(said, rail, "lo")
    assert_moved(said, rail)
    lost = f"rail {rail} is down: Cannot assign requested address"
    assert_told_in_turn(said, lost, f"rail {rail} is up again", f"path {rail} .* is up again")
    # Reported by both processes, both the loss and the return.
    told = [int(n) for n in re.findall(r"\basync_events=(\d+)", said)]
    assert len(told) == 2 and min(told) >= 2, said


@pytest.mark.soak
def test_two_ports_of_one_device(tmp_path):
    """Both ports are rails with their own names; only the failing port's rail goes down."""
    # The real library is named by its path, as this one has its name.
    build = ["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    real, both = tmp_path / "libreal.so", tmp_path / "libibverbs.so.1"
    for command in (
        [*build, f"-Wl,-soname,{VERBS}", "-o", real, "-x", "c", "/dev/null"],
        [*build, f'-DLIBRARY="{VERBS}"', "-o", both, labs.ROOT / "tests/e2e/two_ports.c",
         "-Wl,--no-as-needed", real],
    ):  # fmt: skip
        subprocess.run(command, check=True)
    rails = ("rc:two0:1", "rc:two0:2")
    work = disturbed(
        job("rc,ud:two0:2", MPICH, "stress", *SIZE),
        (f"ip link set va1 down; {labs.MARLINE} doctor || [ $? -le 2 ]", f"rail {rails[1]} is down"),
        ("ip link set va1 up", f"path {rails[1]} .* is up again"),
    )
    said = in_guest(
        f"export LD_LIBRARY_PATH={tmp_path}",
        f"FI_MARLINE_RAILS=rc,ud:two0:2 {labs.MARLINE} doctor || [ $? -le 2 ]",
        PAGES,
        *work,
    )
    assert_carried(said, *rails, "ud:two0:2")
    assert re.search(r"^  rc:two0:1\n  rc:two0:2\n  ud:two0:2$", said, re.M), said
    for state in ("two0:1: RoCE, up, 10.77.0.1,", "two0:2: RoCE, up, 10.77.1.1,", "two0:2: RoCE, down,"):
        assert f"\n  {state}" in said, (state, said)
    for rail in (rails[1], "ud:two0:2"):
        assert_told_in_turn(said, f"rail {rail} is down", f"rail {rail} is up again")
    assert_moved(said, rails[1])
    assert f"rail {rails[0]} is down" not in said and "1: RoCE, down" not in said, said
