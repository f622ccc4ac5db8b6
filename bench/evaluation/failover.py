"""Fault tolerance in NewMadeleine: its overhead, detection, failover, checksums on idle cores."""

from .records import where
from .rows import Row, Section, missing, relative, value
from .spread import number, spread

TITLE = "Fault tolerance: NewMadeleine"
RAW, RELIABLE, SUMMED = "marline raw", "marline reliable", "marline"
KINDS = ("udp-udp", "udp-tcp", "tcp-udp", "shm-udp")
FAULTS = {"silent": "silent", "one-way": "one-way", "loss": "30%-loss", "down": "down", "reset": "reset",
          "address": "address"}
NOTE = ("*Reliability*, *sums*: what they add to 8 B, and leave of 4 MiB. *Alone*, *workers*: 4 MiB with sums over "
        "without, by the rank, by other cores. *udp-udp silent*: longest round trip as the first rail fails and the "
        "second stands by; ≤: the worst.")


def overhead(records):
    """The cost of reliability and sums, by class of core distance."""
    record = records.newest("run", contender=RAW, test="latency")
    def of(contender, test):
        return dict(contender=contender, test=test)

    for cores in ("near", "far"):
        for name, upper, lower, theirs in (("reliability", RELIABLE, RAW, "+500/+1,300 F5"),
                                           ("sums", SUMMED, RELIABLE, "+100/+100 F5")):
            yield relative(f"{name}-ns-{cores}", f"8B {name}", theirs, record, True, ours=of(upper, "latency"),
                           base=of(lower, "latency"), cores=cores, difference="ns", scale=1000)
        for name, upper, lower, theirs in (("reliability", RELIABLE, RAW, "1/0.8 F6"),
                                           ("sums", SUMMED, RELIABLE, "1/0.8 F6")):
            yield relative(f"{name}-bw-{cores}", f"4M {name}", theirs, record, False, ours=of(upper, "bw4m"),
                           base=of(lower, "bw4m"), cores=cores)


def parallel(records):
    """Sums by other cores that are idle or busy, over none."""
    for others in ("idle", "busy"):
        record = records.newest("sums", others=others)
        for form in ("alone", "workers"):
            where_ = dict(others=others, rail="tcp:lo", checksum="fnv1a")
            yield relative(f"parallel-{others}-{form}", f"{form}, {others}",
                           "0.8 F7" if form == "workers" else "", record, False,
                           ours={"form": form, **where_}, base={"form": "none", **where_}, column="gb_per_s")


def detection(records):
    """Acknowledgements of a process that computes, and stalls of a ping-pong at a fault."""
    record = records.newest("progress", what="receiver computes: send, ms")
    yield value("ack-computing", "computing, ack", "<30 §4", record, "ms", True,
                ours=dict(what="receiver computes: send, ms"), column="ack_wait_max_ms")
    gap = records.newest("gap", kinds="udp-udp")
    for kinds in KINDS:
        for fault, name in FAULTS.items():
            yield from stall(gap, kinds, fault, name)


def stall(gap, kinds, fault, name):
    """The longest round trip around a fault: the median of faults, and the worst of them."""
    found = [number(row["stall_ms"]) for row in gap.rows(kinds=kinds, fault=fault)] if gap else []
    anchor, title = f"stall-{kinds}-{fault}", f"{kinds} {name}"
    if found:
        yield Row(anchor, title, "", spread(found), f"ms,≤{max(found):.1f}", True, record=gap)
    elif kinds == "udp-udp" and fault != "reset":
        yield missing(anchor, title)


def false_alarms(records):
    """Failovers of a healthy network beside processes that compute."""
    record = records.newest("crowd", busy="2")
    if not record:
        return [missing("false-failovers", "false failovers/jobs")]
    rows = where(record.all_rows, busy="2")
    count = sum(number(row["failovers"]) for row in rows)
    text = f"{count:.0f}/{len(rows)}"
    return [Row("false-failovers", "false failovers/jobs", "", text, record=record)]


def section(records):
    rows = [*overhead(records), *parallel(records), *detection(records), *false_alarms(records),
            missing("nas-newmadeleine", "NAS", "F8", "needs a cluster"),
            missing("sums-table", "algorithms", "F4", "above")]
    return Section(TITLE, rows, (NOTE,))
