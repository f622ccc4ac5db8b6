"""The cost of checksums: "High performance checksum computation for fault-tolerant MPI over InfiniBand"."""

import svg

from .rows import Section, missing, relative, size_name, value
from .spread import curve

TITLE = "Checksums: Denis, Trahay, Ishikawa 2012"
# Figure 1, in numbers by figure 4 of the paper on fault tolerance (same cluster), in GB/s.
NOTE = ("*Sum*: 32 KiB in the cache. *Fused*: copy and sum in one pass over two. *Loss*, *added*: by the models. "
        "Sizes and kernels (`is` to `mg`, two ranks): bandwidth, or time, with sums over without.")
ALGORITHMS = {
    "sum32": ("plain", 24.1), "xor32": ("xor", 16.0), "adler32": ("Adler-32", 1.76),
    "fletcher64": ("Fletcher-64", 6.09), "jenkins": ("Jenkins", 3.49), "fnv1a": ("FNV-1a", 6.10),
    "knuth": ("Knuth", 4.46), "murmur2a": ("Murmur2a", 6.09), "superfast": ("SuperFast", 1.70),
    "crc32c": ("CRC32C", 8.13),
}
OURS = ("crc64-nh", "aes-lanes")
# Table 1: kernel -> (program here, with sums over without, the same of Open MPI).
NAS = {"is": ("sort", "1.00", "1.23"), "lu": ("wave", "1.002", "1.079"), "ft": ("ft", "0.998", "1.115"),
       "cg": ("cg", "0.995", "1.177"), "mg": ("mg", "1.014", "1.113")}
# Figure 4: bytes -> bandwidth with sums over without, as the text has it.
FIGURE_4 = {4096: "0.7 F4", 65536: "0.97 F4", 262144: "", 1 << 20: "", 4 << 20: "0.995 F4"}
MODELS = {
    "naive": ("naive loss", "50 §3"), "fused": ("4K loss", "34 §4.2"),
    "chunks": ("1M added", "<1 §4.3"),
}


def algorithms(records):
    """Sums of 32 KiB in the cache."""
    tune = records.newest("tune", way="sum", bytes="32768")
    for algorithm, (name, theirs) in ALGORITHMS.items():
        yield value(f"sum-{algorithm}", f"sum {name}", f"{theirs:.3g} F1", tune, "GB/s", False,
                    ours=dict(algorithm=algorithm, way="sum", place="cache", bytes="32768"),
                    column="gb_per_s")
    both = records.newest("copy-and-sum")
    for algorithm in OURS:
        yield value(f"sum-{algorithm}", f"sum {algorithm}", "", both, "GB/s", False,
                    ours=dict(algorithm=algorithm, way="sum", offset="0", bytes="32768"),
                    column="gb_per_s")


def one_pass(records):
    """Copy and sum in one pass over a copy and then a sum."""
    tune = records.newest("tune", way="fused")
    for algorithm, theirs in (("fletcher64", ">1 F2"), ("fnv1a", ">1 F2"), ("crc32c", "<1 F2")):
        where = dict(algorithm=algorithm, place="memory", bytes=str(1 << 20))
        yield relative(f"fused-{algorithm}", f"fused {ALGORITHMS[algorithm][0]}", theirs, tune,
                       False, ours={"way": "fused", **where}, base={"way": "separate", **where},
                       column="gb_per_s")


def models(records):
    """The models' statements by this machine's constants."""
    record = records.newest("model", set="machine")
    for what, (name, theirs) in MODELS.items():
        yield value(f"model-{what}", name, theirs, record, "%", True, ours=dict(set="machine", what=what))
    for what, name in (("measured-4K", "4K"), ("measured-1M", "1M")):
        yield value(f"model-{what.lower()}", f"{name}, measured/model", "", record, "", None,
                    ours=dict(set="machine", what=what))


def bandwidth(records):
    """Bandwidth with sums over without, by packets."""
    record = records.newest("checksums", algorithm="strong", bytes="8")
    yield relative("strong-8b", "8B strong", "", record, True, ours=dict(algorithm="strong", bytes="8"),
                   base=dict(algorithm="none", bytes="8"), column="us", difference="ns", scale=1000)
    for algorithm in ("strong", "fast", "crc64-nh"):
        sizes = [4096] if algorithm == "crc64-nh" else [65536, 1 << 18, 1 << 20, 4 << 20]
        for size in sizes:
            found = dict(algorithm=algorithm, bytes=str(size))
            record = records.newest("checksums", **found)
            yield relative(f"{algorithm}-{size_name(size).lower()}", f"{size_name(size)} {algorithm}",
                           FIGURE_4[size], record, False, ours=found,
                           base=dict(algorithm="none", bytes=str(size)), column="us", inverted=True)
    found = dict(algorithm="crc64-nh", bytes=str(1 << 20))
    yield relative("strong-10gbit", "1M at 10Gbit/s", "0.97 F5",
                   records.newest("checksums-10gbit", **found), False, ours=found,
                   base=dict(algorithm="none", bytes=str(1 << 20)), column="us", inverted=True)


def beside_open_mpi(records):
    """Open MPI of today has no sums; ours has them."""
    record = records.newest("run", test="curve-bandwidth", contender="marline openmpi")
    for size in (65536, 4 << 20):
        text = size_name(size)
        yield value(f"openmpi-{text.lower()}", f"{text} openmpi", "0.97/0.8 F5" if size > 65536 else "0.98/0.4 F6",
                    record, "GB/s", False,
                    ours=dict(contender="marline openmpi", test="curve-bandwidth", bytes=str(size)),
                    others={"openmpi": dict(contender="openmpi ob1 tcp", test="curve-bandwidth",
                                            bytes=str(size))})


def nas(records):
    """Kernels of the NAS classes, two ranks, with sums over without."""
    for kernel, (program, theirs, open_mpi) in NAS.items():
        record = records.newest("apps", program=program)
        yield relative(f"nas-{kernel}", kernel, f"{theirs}/{open_mpi} T1", record, True,
                       ours=dict(program=program, checksums="on"), base=dict(program=program, checksums="off"),
                       column="seconds")


def netpipe(records):
    """NetPIPE with sums over without, and the picture of both."""
    record = records.newest("netpipe")
    for size in (4096, 65536, 1 << 20):
        text = size_name(size)
        yield relative(f"netpipe-{text.lower()}", f"NetPIPE {text}", FIGURE_4[size], record,
                       False, ours=dict(contender="marline strong", bytes=str(size)),
                       base=dict(contender="marline none", bytes=str(size)), inverted=True)


def picture(records):
    """NetPIPE's bandwidth by size, with sums and without, and over TCP where it was measured."""
    record = records.newest("netpipe")
    if not record:
        return {}
    lines = []
    for name in sorted({row["contender"] for row in record.all_rows}):
        points = [(size, size / us / 1e3) for size, us in curve(record.rows(contender=name), "bytes")]
        lines.append(svg.Line(name, points, dashed="marline" not in name))
    panel = svg.Panel("NetPIPE, with checksums and without (medians)", "GB/s", lines)
    return {"results-netpipe.svg": svg.picture([panel])}


def section(records):
    rows = [*algorithms(records), *one_pass(records), *models(records), *bandwidth(records),
            *netpipe(records), *beside_open_mpi(records), *nas(records),
            missing("nas-16", "16 nodes", "T1", "needs a cluster"),
            missing("infiniband", "InfiniBand", "F4-F6", "needs an adapter")]
    return Section(TITLE, rows, (NOTE,), pictures=picture(records))
