"""Broadcasts by multicast: "Fast and scalable MPI-level broadcast using InfiniBand's hardware multicast
support"."""

import svg

from .rows import Row, Section, missing, value
from .spread import number, spread

TITLE = "Broadcast: Liu, Mamidala, Panda 2004"
SCHEMES = ("original", "basic", "window", "co-root2", "aggregate10")
# (test, bytes, what it is, unit, less is better, the slides' figure, of which scheme).
MEASURES = (
    ("latency", 4, "4 B", "us", True, "1/1.58 of original, slide 26", "window"),
    ("latency", 65536, "64 KiB", "us", True, "worse >32 KB, slide 27", "window"),
    ("stream", 65536, "64 KiB in series", "GB/s", False, "2.12 of original, slide 28", "aggregate10"),
    ("skew10", 65536, "64 KiB, late receivers", "us", True, "better, slide 29", "window"),
)


def schemes(records, hosts="8"):
    """Each scheme beside the MPI's own TCP."""
    record = records.newest("bcast", way="multicast-window", hosts=hosts)
    for test, size, name, unit, less, theirs, of in MEASURES:
        for scheme in SCHEMES:
            where = dict(test=test, bytes=str(size), hosts=hosts)
            yield value(f"{test}-{size}-{scheme}", f"{name}, {scheme}", theirs if scheme == of else "", record,
                        unit, less, ours={"way": f"multicast-{scheme}", **where},
                        rivals={"TCP": {"way": "tcp", **where}})


def sixteen(records):
    """What users get, beside point to point and TCP on 16 hosts."""
    record = records.newest("bcast", hosts="16", way="multicast")
    for test, size, name, unit, less, _, _ in MEASURES:
        where = dict(test=test, bytes=str(size), hosts="16")
        yield value(f"{test}-{size}-16", f"{name}, 16 hosts", "", record, unit, less,
                    ours={"way": "multicast", **where}, rivals={"TCP": {"way": "tcp", **where}})


def thousand(records):
    """The engine on 1,024 simulated hosts, where the paper has a model."""
    record = records.newest("sim-group-scale", members="1024", scheme="window")
    def at(scheme):
        rows = record.rows(scheme=scheme, members="1024", bytes="4", lost_ppm="0") if record else []
        return [number(row["latency_us"]) for row in rows]

    window, original = at("window"), at("original")
    if not window or not original:
        yield missing("bcast-1024", "1,024 hosts, 4 B, window", "<20, slide 30")
        return
    yield Row("bcast-1024", "1,024 hosts, 4 B, window", "<20, slide 30", spread(window), "us", True,
              "original", spread([window[0] / original[0]]), "simulated", record)
    yield Row("bcast-1024-times", "original over window", "4.86, slide 30",
              spread([original[0] / window[0]]), "", False, cores="simulated", record=record)


def picture(records):
    """Latency by members for each scheme, simulated."""
    record = records.newest("sim-group-scale", scheme="window")
    if not record:
        return {}
    lines = []
    for scheme in (*SCHEMES, "nack"):
        rows = record.rows(scheme=scheme, bytes="4", lost_ppm="0")
        points = {int(row["members"]): number(row["latency_us"]) for row in rows}
        if points:
            lines.append(svg.Line(scheme, sorted(points.items())))
    panel = svg.Panel("4 B until the last of n simulated hosts has it", "us", lines, unit="hosts")
    return {"results-broadcast.svg": svg.picture([panel])}


def section(records):
    rows = [*schemes(records), *sixteen(records), *thousand(records),
            missing("bcast-adapter", "adapter's multicast", "slides 26-29", "needs an adapter")]
    return Section(TITLE, rows, pictures=picture(records))
