"""Fault tolerance in NewMadeleine: its overhead, detection, failover, checksums on idle cores."""

from .records import where
from .rows import Row, Section, missing, relative, value
from .spread import number, spread

TITLE = "Fault tolerance: NewMadeleine"
RAW, RELIABLE, SUMMED = "marline raw", "marline reliable", "marline"
FAULTS = {"silent": "silent rail", "down": "link down", "loss": "30 % loss", "reset": "reset"}


def overhead(records):
    """What reliability and sums add, by class of core distance."""
    record = records.newest("run", contender=RAW, test="latency")
    def of(contender, test):
        return dict(contender=contender, test=test)

    for cores in ("near", "far"):
        for name, upper, lower, theirs in (("reliability", RELIABLE, RAW, "+500 (Open MPI +1,300), fig. 5"),
                                           ("sums", SUMMED, RELIABLE, "+100 (Open MPI +100), fig. 5")):
            yield relative(f"{name}-ns-{cores}", f"8 B, {name}", theirs, record, True, ours=of(upper, "latency"),
                           base=of(lower, "latency"), cores=cores, difference="ns", scale=1000)
        for name, upper, lower, theirs in (("reliability", RELIABLE, RAW, "1 (Open MPI 0.8), fig. 6"),
                                           ("sums", SUMMED, RELIABLE, "1 (Open MPI 0.8), fig. 6")):
            yield relative(f"{name}-bw-{cores}", f"4 MiB, {name}", theirs, record, False, ours=of(upper, "bw4m"),
                           base=of(lower, "bw4m"), cores=cores)


def parallel(records):
    """Sums by other cores that are idle or busy, over none."""
    for others in ("idle", "busy"):
        record = records.newest("sums", others=others)
        for form in ("alone", "workers"):
            where_ = dict(others=others, rail="tcp:lo", checksum="fnv1a")
            yield relative(f"parallel-{others}-{form}", f"4 MiB, {form}, {others}",
                           "0.8, fig. 7" if form == "workers" else "", record, False,
                           ours={"form": form, **where_}, base={"form": "none", **where_}, column="gb_per_s")


def detection(records):
    """Acknowledgements of a process that computes, and stalls of a ping-pong at a fault."""
    record = records.newest("progress", what="receiver computes: send, ms")
    yield value("ack-computing", "ack while computing", "<30, § 4", record, "ms", True,
                ours=dict(what="receiver computes: send, ms"))
    gap = records.newest("gap", kinds="udp-udp")
    for fault, name in FAULTS.items():
        kinds = "tcp-udp" if fault == "reset" else "udp-udp"
        found = [number(row["stall_ms"]) for row in gap.rows(kinds=kinds, fault=fault)] if gap else []
        stall = spread(found)
        yield (Row(f"stall-{fault}", f"stall, {name}", "", stall, "ms", True, record=gap)
               if stall else missing(f"stall-{fault}", f"stall, {name}"))


def false_alarms(records):
    """Failovers of a healthy network beside processes that compute."""
    record = records.newest("crowd", busy="2")
    if not record:
        return [missing("false-failovers", "false failovers, busy")]
    rows = where(record.all_rows, busy="2")
    count = sum(number(row["failovers"]) for row in rows)
    text = f"{count:.0f} in {len(rows)} jobs"
    return [Row("false-failovers", "false failovers, busy", "", text, record=record)]


def section(records):
    rows = [*overhead(records), *parallel(records), *detection(records), *false_alarms(records),
            missing("nas-newmadeleine", "NAS B, 16 processes", "fig. 8", "needs a cluster; two ranks [above](#nas-is)"),
            missing("sums-table", "algorithms", "fig. 4", "[above](#sum-sum32)")]
    return Section(TITLE, rows)
