"""Fragments acknowledged one by one: "Network fault tolerance in Open MPI"."""

import statistics

from .rows import Row, Section, contenders, missing, relative, size_name, value
from .spread import number, spread

TITLE = "Fragments: Shipman, Graham, Bosilca 2007"
NOTE = ("Bandwidth beside peers; of 4 MiB over raw, and by bytes of a fragment over whole packets. *Lost*: 256 KiB "
        "messages over two rails of 1 Gbit/s, rate before and after one is silent, and the gap. *Loss*: 1 % of packets, "
        "over none: time of 8 B, goodput of 4 MiB.")
FRAGMENTS = (448, 896, 1792, 4032, 8512)
# Milliseconds around the fault that count as before it and after failover.
BEFORE, AFTER = (-250, -20), (200, 900)
BIN_MS = 5


def bandwidth(records):
    """Bandwidth beside TCP, and what reliability with sums leaves of it."""
    curves = records.newest("run", test="curve-bandwidth", contender="marline")
    for size in (4096, 65536, 1 << 20, 4 << 20):
        yield value(f"bw-{size_name(size).lower()}", size_name(size), "4 F4" if size == 1 << 20 else "", curves,
                    "GB/s", False, ours=dict(contender="marline", test="curve-bandwidth", bytes=str(size)),
                    others=contenders("curve-bandwidth", size))
    forms = records.newest("run", test="bw4m", contender="marline raw")
    for cores in ("near", "far"):
        yield relative(f"dr-{cores}", "4M/raw", ">0.7 F4", forms, False, cores=cores,
                       ours=dict(contender="marline", test="bw4m"), base=dict(contender="marline raw", test="bw4m"))


def fragments(records):
    """Bandwidth by fragment over that of whole packets."""
    record = records.newest("smax")
    for size in FRAGMENTS:
        theirs = "less F5" if size == 4032 else ""
        yield relative(f"smax-{size}", f"fragments {size}", theirs, record, False,
                       ours=dict(fragment_bytes=str(size), test="bw4m"), base=dict(fragment_bytes="0", test="bw4m"),
                       column="gb_per_s")


def failover(records):
    """A stream over two rails of which one is lost for a second: its rate before and after, and how
    long nothing came."""
    record = records.newest("flow", kinds="udp-udp")
    for kinds in ("udp-udp", "udp-tcp"):
        name = f"lost {kinds}"
        rows = record.rows(kinds=kinds, fault="silent") if record else []
        rates = sorted((number(row["ms"]), number(row["mbit_per_s"])) for row in rows)
        if not rates:
            yield missing(f"flow-{kinds}", name, "F7")
            continue
        before, after = (statistics.fmean(rate for ms, rate in rates if low <= ms < high)
                         for low, high in (BEFORE, AFTER))
        yield Row(f"flow-{kinds}", name, "F7", f"{before:.0f}/{after:.0f}/{gap_ms(rates)}",
                  "Mbit/s;ms", record=record)


def unlike(records):
    """Rails of 400 and 100 Mbit/s together."""
    record = records.newest("unlike", mbit_per_s="400+100")
    for rails in ("udp:rail0,udp:rail1", "udp:rail0,tcp:rail1", "tcp:rail0,udp:rail1"):
        kinds = "-".join(rail.split(":")[0] for rail in rails.split(","))
        yield value(f"unlike-{kinds}", f"400+100 {kinds}", "", record, "Mbit/s", False,
                    ours=dict(rails=rails, test="bw4m"))


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
    for test, name, less in (("latency", "loss 8B", True), ("bw4m", "loss 4M", False)):
        for contender in ("marline", "intel psm3"):
            who, mark = ("", "") if contender == "marline" else (" psm3", "-psm3")
            yield relative(f"loss-{test}{mark}", name + who, "", record, less,
                           ours=dict(contender=contender, test=test, fault="drop=1%"),
                           base=dict(contender=contender, test=test, fault="drop=0.000001"))


def section(records):
    rows = [*bandwidth(records), *fragments(records), *failover(records), *unlike(records), *loss(records),
            missing("npb", "NPB", "1 F6", "needs a cluster"),
            missing("myrinet", "InfiniBand", "F4-F7", "needs adapters")]
    return Section(TITLE, rows, (NOTE,))
