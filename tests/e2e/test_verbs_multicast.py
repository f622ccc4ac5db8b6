"""MPI_Bcast by multicast on verbs rails, in a guest with soft-RoCE devices at both ends of two
wires (scripts/guest --far).

A busy machine may miss a communicator's probes, which then uses point to point; the tests therefore
count the multicast packets of all communicators in several jobs.
"""

import re
import shlex

import lab as labs
import pytest
from guest import JOB_S, in_guest
from test_verbs import MPICH, OPENMPI, assert_dropped, disturbed, only_marline  # noqa: F401

pytestmark = pytest.mark.guest

# Packets sent to groups and received from them, since the guest's start.
COUNTS = (
    "awk '/^IpExt/ { if (n++) for (i = 2; i <= NF; i++) v[k[i]] = $i; else split($0, k) } "
    'END { print "COUNTS", v["OutMcastPkts"], v["InMcastPkts"] }\' /proc/net/netstat'
)
# Packets to groups only: all are lost on the wires.
FILTERED = """
for d in va0 vb0 va1 vb1; do
    tc qdisc replace dev $d root handle 1: prio bands 3 || exit 1
    tc qdisc add dev $d parent 1:3 handle 30: netem loss 100% || exit 1
    tc filter add dev $d parent 1: protocol ip u32 match ip dst 239.0.0.0/8 flowid 1:3 || exit 1
done
"""
SPOKEN = "the network does not carry multicast between 3 ranks"


def broadcasts(kind, mpi, *args):
    """A script's line: three ranks, one of them at the near ends of the wires."""
    ranks = []
    for count, end in ((1, "rxe"), (2, "far")):
        rails = f"{kind}:{end}0,{kind}:{end}1"
        env = ["-env", "FI_MARLINE_RAILS", rails] if mpi is MPICH else ["-x", f"FI_MARLINE_RAILS={rails}"]
        ranks.append(["-n", count, *env, mpi.program("bcast"), *args])
    marline = [labs.MARLINE, "run", "--no-shm", "--require", "--multicast", "--"]
    words = [*marline, f"{mpi.mpiexec}/bin/mpiexec", *ranks[0], ":", *ranks[1]]
    line = shlex.join(str(word) for word in words)
    more = "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe"
    return f"{COUNTS}; {more} timeout {JOB_S} {line} || exit 1; {COUNTS}"


def counts(said):
    """Packets sent to groups and received from them, in each job."""
    found = [(int(out), int(came)) for out, came in re.findall(r"^COUNTS (\d+) (\d+)", said, re.M)]
    pairs = zip(found[::2], found[1::2])
    return [(b[0] - a[0], b[1] - a[1]) for a, b in pairs]


def assert_right(said, jobs):
    assert len(re.findall(r"^bcast ok ", said, re.M)) == jobs == len(counts(said)), said


def test_broadcasts_leave_once():
    """Each kind of rail. A packet arrives by the wire, and at its own device, whose other pairs are
    members, too."""
    kinds = ("ud", "rc", "uc")
    size = ("--count", 25, "--max-size", 50_000)
    said = in_guest(
        *(broadcasts(kind, mpi, *size) for kind, mpi in zip(kinds, (OPENMPI, MPICH, MPICH))),
        options=["--far"],
    )
    assert_right(said, len(kinds))
    left, came = (sum(one) for one in zip(*counts(said)))
    assert left > 200 and came > left, said


def test_a_network_that_loses_multicast():
    """Some packets are lost and repaired; then all packets to groups, and the job uses point to
    point."""
    size = ("--count", 15, "--max-size", 30_000)
    lossy = disturbed("loss 1%", broadcasts("ud", MPICH, *size))
    none = [FILTERED, broadcasts("rc", MPICH, *size)]
    said = in_guest(*lossy, *none, options=["--far"])
    assert_right(said, 2)
    assert_dropped(said)
    before, after = said.split("dropped", 1)
    assert SPOKEN in after, said
