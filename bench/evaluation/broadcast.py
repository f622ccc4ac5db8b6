"""Broadcasts by multicast: "Fast and scalable MPI-level broadcast using InfiniBand's hardware multicast
support"."""

import svg

from .rows import Row, Section, missing, value
from .spread import curve, number, spread

TITLE = "Broadcast: Liu, Mamidala, Panda 2004"
SCHEMES = ("original", "basic", "window", "co-root2", "aggregate10")
# (test, bytes, what it is, unit, less is better, the slides' figure, of which scheme).
MEASURES = (
    ("latency", 4, "4B", "us", True, "1/1.58 S26", "window"),
    ("latency", 65536, "64K", "us", True, ">1 S27", "window"),
    ("stream", 65536, "64K-stream", "GB/s", False, "2.12 S28", "aggregate10"),
    ("skew10", 65536, "64K-late", "us", True, "<1 S29", "window"),
)
MORE = (
    ("latency", 1 << 20, "1M", "us", True, "", ""), ("stream", 1 << 20, "1M-stream", "GB/s", False, "", ""),
    ("skew10", 1 << 20, "1M-late", "us", True, "", ""),
)
HOSTS = ("4", "8", "16")
NOTE = ("Until the last of 8 hosts has it; *stream*: in series; *late*: in the call, receivers up to 10 ms late. The "
        "paper's are over its point to point.")


def schemes(records, hosts="8"):
    """Each scheme beside the MPI's own TCP."""
    record = records.newest("bcast", way="multicast-window", hosts=hosts)
    for test, size, name, unit, less, theirs, of in MEASURES:
        for scheme in SCHEMES:
            where = dict(test=test, bytes=str(size), hosts=hosts)
            yield value(f"{test}-{size}-{scheme}", f"{name} {scheme}", theirs if scheme == of else "", record,
                        unit, less, ours={"way": f"multicast-{scheme}", **where},
                        others={"TCP": {"way": "tcp", **where}})


def users(records):
    """Broadcasts as users get them, beside point to point and TCP."""
    for hosts in HOSTS:
        record = records.newest("bcast", hosts=hosts, way="multicast")
        for test, size, name, unit, less, _, _ in (*MEASURES, *MORE):
            where = dict(test=test, bytes=str(size), hosts=hosts)
            yield value(f"{test}-{size}-{hosts}", f"{name}-{hosts}-hosts", "", record, unit, less,
                        ours={"way": "multicast", **where},
                        others={"TCP": {"way": "tcp", **where}, "point-to-point": {"way": "marline", **where}})


def thousand(records):
    """The engine on 1,024 simulated hosts, where the paper has a model."""
    record = records.newest("sim-group-scale", members="1024", scheme="window")
    def at(scheme):
        rows = record.rows(scheme=scheme, members="1024", bytes="4", lost_ppm="0") if record else []
        return [number(row["latency_us"]) for row in rows]

    window, original = at("window"), at("original")
    if not window or not original:
        yield missing("bcast-1024", "4B 1,024 hosts", "<20 S30")
        return
    yield Row("bcast-1024", "4B 1,024 hosts", "<20 S30", spread(window), "us", True,
              "original", spread([window[0] / original[0]]), "simulated", record)
    yield Row("bcast-1024-times", "original/window", "4.86 S30",
              spread([original[0] / window[0]]), "", False, cores="simulated", record=record)


def picture(records):
    """Latency, and time of each of many, by members for each scheme, simulated."""
    record = records.newest("sim-group-scale", scheme="window")
    if not record:
        return {}
    panels = []
    for column, title in (("latency_us", "4 B until the last of n simulated hosts has it"),
                          ("each_us", "Each of many, one after another")):
        lines = [svg.Line(scheme, points) for scheme in (*SCHEMES, "nack")
                 if (points := curve(record.rows(scheme=scheme, bytes="4", lost_ppm="0"), "members", column))]
        panels.append(svg.Panel(title, "us", lines, unit="hosts"))
    return {"results-broadcast.svg": svg.picture(panels)}


def section(records):
    rows = [*schemes(records), *users(records), *thousand(records),
            missing("bcast-adapter", "InfiniBand", "S26-S29", "needs an adapter")]
    return Section(TITLE, rows, (NOTE,), pictures=picture(records))
