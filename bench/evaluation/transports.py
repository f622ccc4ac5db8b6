"""Reliability in software and in hardware: "Can software reliability outperform hardware reliability on
high performance interconnects?"."""

import svg

from .records import where
from .rows import Row, Section, missing, relative, size_name
from .spread import curve, number, short, spread

TITLE = "RC, UC, UD: Koop, Kumar, Panda 2008"
NOTE = ("rc/rc-native/uc/uc-native/ud/ud-native, two ranks, soft-RoCE in an emulated guest: compare columns. *eam*, "
        "*chain*: LAMMPS; of the paper's runs the length is unknown.")
COMBINATIONS = ("rc", "rc-native", "uc", "uc-native", "ud", "ud-native")
# Table 3, by combination: of runs whose length the paper does not say.
TABLE_3 = {
    ("eam", "messages/s"): "333", ("eam", "flow acks"): "0.12/0.51/0.11/0.53/0/0",
    ("eam", "acks of the run"): "9,310/-/8,993/-/10,443/-", ("eam", "reliability kB"): "40/-/40/-/70/-",
    ("eam", "queue"): "7.67/-/7.84/-/7.61/-",
    ("chain", "messages/s"): "372", ("chain", "flow acks"): "11.3/37.4/11.4/37.3/0/21.2",
    ("chain", "acks of the run"): "1,817/-/1,815/-/1,983/-", ("chain", "reliability kB"): "80/-/80/-/70/-",
    ("chain", "queue"): "16.8/-/16.7/-/8.82/-",
}
CURVES = (("latency", "8", "us", "equal F4a"), ("latency", "65536", "us", ""),
          ("bandwidth", "8192", "MB/s", "less F4b"), ("bandwidth", "65536", "MB/s", "ud-less F4b"))


def cells(rows):
    """The medians of all combinations, or "" if none was measured."""
    found = {c: spread([number(row["value"]) for row in where(rows, combination=c)]) for c in COMBINATIONS}
    if not any(found.values()):
        return ""
    return "/".join(short(found[c].median) if found[c] else "-" for c in COMBINATIONS)


def matrix(anchor, name, theirs, record, unit, **wanted):
    """A row with the figures of all combinations."""
    text = cells(record.rows(**wanted)) if record else ""
    if not text:
        return missing(anchor, name, theirs)
    return Row(anchor, name, theirs, text, unit, cores="emulated", record=record)


def curves(records):
    record = records.newest("verbs", part="curves")
    for test, size, unit, theirs in CURVES:
        yield matrix(f"verbs-{test}-{size}", f"{test} {size_name(int(size))}", theirs, record, unit,
                     part="curves", what=test, bytes=size)


def rates(records):
    """Messages of 8 B a second, and of the length and pattern of jac2000's."""
    for part, what, name, theirs in (("rate", "rate", "rate 8B", "uc>rc F4c"),
                                     ("jac", "rate", "jac2000, rate", "uc>rc F5a")):
        record = records.newest("verbs", part=part, what=what)
        yield matrix(f"verbs-{part}", name, theirs, record, "messages/s", part=part, what=what)
    record = records.newest("verbs", part="jac", what="acks alone")
    yield matrix("verbs-jac-acks", "jac2000, acks alone", "56,299/-/57,981/-/57,428/- T2", record, "per message",
                 part="jac", what="acks alone")


def table_3(records):
    for (part, what), theirs in TABLE_3.items():
        record = records.newest("verbs", part=part, what=what)
        anchor = f"verbs-{part}-{what}".replace("/", "-").replace(" ", "-").lower()
        yield matrix(anchor, f"{part}, {what}", f"{theirs} T3", record, "", part=part, what=what)


def against_native(records):
    """Reliable in software over native: bandwidth of 64 KiB."""
    record = records.newest("verbs", part="curves")
    for kind in ("rc", "uc", "ud"):
        name = dict(part="curves", what="bandwidth", bytes="65536")
        yield relative(f"verbs-{kind}-reliable", f"64K {kind}/native", "", record, False,
                       ours={"combination": kind, **name}, base={"combination": f"{kind}-native", **name})


def picture(records):
    record = records.newest("verbs", part="curves")
    if not record:
        return {}
    panels = []
    for what, unit in (("latency", "us"), ("bandwidth", "MB/s")):
        lines = []
        for combination in COMBINATIONS:
            rows = record.rows(part="curves", what=what, combination=combination)
            lines.append(svg.Line(combination, curve(rows, "bytes"), dashed="native" in combination))
        panels.append(svg.Panel(f"{what}, soft-RoCE in an emulated guest (medians)", unit, lines))
    return {"results-transports.svg": svg.picture(panels)}


def section(records):
    rows = [*curves(records), *against_native(records), *rates(records), *table_3(records),
            missing("namd", "NAMD", "F5 T2", "not free; its load above"),
            missing("rhodo", "rhodo", "F6 T3", "data not in Debian"),
            missing("verbs-512", "512 cores", "F5 F6", "needs adapters")]
    return Section(TITLE, rows, (NOTE,), pictures=picture(records))
