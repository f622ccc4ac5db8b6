"""Fragments acknowledged one by one: "Network fault tolerance in Open MPI"."""

import statistics

import svg

from .rows import Row, Section, contenders, missing, relative, value
from .spread import number, spread

TITLE = "Fragments: Shipman, Graham, Bosilca 2007"
FRAGMENTS = (448, 896, 1792, 4032, 8512)
# Milliseconds around the fault that count as before it and after failover.
BEFORE, AFTER = (-250, -20), (200, 900)
BIN_MS = 5


def bandwidth(records):
    """Bandwidth beside TCP, and what reliability with sums leaves of it."""
    curves = records.newest("run", test="curve-bandwidth", contender="marline")
    for size in (4096, 65536, 1 << 20, 4 << 20):
        text = svg.size_text(size)
        yield value(f"bw-{text.replace(' ', '').lower()}", text, "4 of TCP, fig. 4" if size == 1 << 20 else "", curves,
                    "GB/s", False, ours=dict(contender="marline", test="curve-bandwidth", bytes=str(size)),
                    rivals=contenders("curve-bandwidth", size))
    forms = records.newest("run", test="bw4m", contender="marline raw")
    for cores in ("near", "far"):
        yield relative(f"dr-{cores}", "4 MiB over raw", ">0.7, abstract", forms, False, cores=cores,
                       ours=dict(contender="marline", test="bw4m"), base=dict(contender="marline raw", test="bw4m"))


def fragments(records):
    """Bandwidth by fragment over that of whole packets."""
    record = records.newest("smax")
    for size in FRAGMENTS:
        theirs = "best at 16 KiB, fig. 5" if size == 4032 else ""
        yield relative(f"smax-{size}", f"{size} B fragments", theirs, record, False,
                       ours=dict(fragment_bytes=str(size), test="bw4m"), base=dict(fragment_bytes="0", test="bw4m"),
                       column="gb_per_s")


def failover(records):
    """A stream over two rails of which one is lost for a second: its rate before and after, and how
    long nothing came."""
    record = records.newest("flow", kinds="udp-udp")
    for kinds in ("udp-udp", "udp-tcp"):
        name = kinds.replace("-", ", ")
        rows = record.rows(kinds=kinds, fault="silent") if record else []
        rates = sorted((number(row["ms"]), number(row["mbit_per_s"])) for row in rows)
        if not rates:
            yield missing(f"flow-{kinds}", f"rail lost, {name}", "fig. 7")
            continue
        before, after = (statistics.fmean(rate for ms, rate in rates if low <= ms < high) for low, high in (BEFORE, AFTER))
        yield Row(f"flow-{kinds}", f"rail lost, {name}", "fig. 7", f"{before:.0f}, {after:.0f}, gap {gap_ms(rates)} ms",
                  "Mbit/s", record=record)


def gap_ms(rates):
    """The longest time around the fault in which nothing was received, in ms."""
    longest = silent = 0
    for ms, rate in rates:
        silent = 0 if rate else silent + BIN_MS
        longest = max(longest, silent if -20 <= ms <= 900 else 0)
    return longest


def loss(records):
    """Time and goodput with 1 % of packets lost, over those without."""
    record = records.newest("loss", contender="marline")
    for test, name, less in (("latency", "1 % loss, 8 B time", True), ("bw4m", "1 % loss, 4 MiB goodput", False)):
        for contender in ("marline", "intel psm3"):
            who, mark = ("", "") if contender == "marline" else (", psm3", "-psm3")
            yield relative(f"loss-{test}{mark}", name + who, "", record, less,
                           ours=dict(contender=contender, test=test, fault="drop=1%"),
                           base=dict(contender=contender, test=test, fault="drop=0.000001"))


def section(records):
    rows = [*bandwidth(records), *fragments(records), *failover(records), *loss(records),
            missing("npb", "NPB, 16 to 256 processors", "1, fig. 6", "needs a cluster; two ranks [above](#nas-is)"),
            missing("myrinet", "InfiniBand, Myrinet", "figs. 4, 5, 7", "needs adapters")]
    return Section(TITLE, rows)
