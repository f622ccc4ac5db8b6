"""The cost of each layer on each kind of rail: raw, reliable, with sums, with keys, with multicast."""

from .records import classes, where
from .rows import MISSING, Section, relative
from .spread import by_round, short, spread

TITLE = "Ablation"
KINDS = ("udp", "xdp", "tcp", "shm", "rc", "uc", "ud")
LEVELS = ("raw", "reliable", "sums", "authentication", "multicast")
TESTS = (("latency", "8"), ("rate", "8"), ("bw64k", "65536"), ("bw4m", "4194304"), ("bcast", "65536"))
VERBS_TESTS = ("latency", "rate", "bw64k")
KEYED = (("latency:8", "8B", True), ("rate:8", "8B-rate", False), ("bandwidth:65536", "64K", False),
         ("bandwidth:4194304", "4M", False))
NOTE = ("Latency (us) and rate (M/s) of 8 B, bandwidth of 64 KiB and 4 MiB (GB/s), broadcast of 64 KiB to 4 hosts "
        "(us), MPICH; median±deviation. Empty: not measured yet. Then levels of FI_MARLINE_AUTH over `off`.")
# Where bench/ablation has not measured a kind: record's kind, column of the form, level -> form.
ELSEWHERE = {
    "udp": ("run", "contender", {"raw": "marline raw", "reliable": "marline reliable", "sums": "marline"}, {}),
    "tcp": ("rails", "form", {"raw": "raw", "reliable": "sums off", "sums": "sums"}, {"rail": "tcp", "mpi": "mpich"}),
    "shm": ("rails", "form", {"raw": "raw", "reliable": "sums off", "sums": "sums"}, {"rail": "shm", "mpi": "mpich"}),
}
FORMS = {"raw": "-native", "reliable": "-nosums", "sums": "", "authentication": "-keys"}
VERBS = {"latency": ("latency", "8", 1), "bw64k": ("bandwidth", "65536", 1e-3), "rate": ("rate", "8", 1e-6)}


def source(records, kind, test, size):
    """The record, a function from a level to its rows, and the factor of their values."""
    own = records.newest("ablation", rail=kind, test=test)
    if own:
        return own, lambda level: own.rows(rail=kind, level=level, test=test, bytes=size), 1
    if kind in ("rc", "uc", "ud"):
        what, size, factor = VERBS.get(test, ("", "", 1))
        record = records.newest("verbs", what=what, combination=kind) if what else None
        return record, lambda level: record.rows(combination=kind + FORMS.get(level, "-"), what=what,
                                                 bytes=size), factor
    of, column, forms, more = ELSEWHERE.get(kind, ("", "", {}, {}))
    record = records.newest(of, test=test, **more, **{column: forms["sums"]}) if of else None
    return record, lambda level: record.rows(test=test, bytes=size, **more, **{column: forms.get(level, "-")}), 1


def row(records, kind, test, size):
    """Cells of one kind and test: a figure for each level, rounds, cores, record."""
    record, of_level, factor = source(records, kind, test, size)
    if not record:
        return None
    cores = classes(of_level("sums"))[0]
    found = []
    for level in LEVELS:
        rows = where(of_level(level), **{"class": cores}) if cores else of_level(level)
        found.append(spread([factor * value for value in by_round(rows).values()]))
    cells = [short(s.median) + (f"±{short(s.deviation)}" if s.n > 1 else "") if s else "" for s in found]
    return [kind, test, *cells, str(max((s.n for s in found if s), default=0)), cores, f"`{record.name}`"]


def asked(kind):
    """The tests of a kind."""
    if kind in ("rc", "uc", "ud"):
        return [test for test in TESTS if test[0] in VERBS_TESTS]
    return [test for test in TESTS if kind != "shm" or test[0] != "bcast"]


def table(records):
    """The rows of all kinds, of one that was not measured at all a single one."""
    head = ["rail", "test", *("+" * (n > 1) + level for n, level in enumerate(LEVELS)), "n", "cores", "record"]
    lines = []
    for kind in KINDS:
        found = {test: row(records, kind, test, size) for test, size in asked(kind)}
        if not any(found.values()):
            lines.append([kind, "", MISSING, *[""] * (len(head) - 3)])
            continue
        lines += [line or [kind, test, *[""] * (len(head) - 2)] for test, line in found.items()]
    return "\n".join("|".join(cells) for cells in [head, ["---"] * len(head), *lines])


def keys(records):
    """Keyed sums and encryption over sums."""
    record = records.newest("auth", level="on")
    for level in ("on", "payload", "encrypt"):
        for test, name, less in KEYED:
            yield relative(f"auth-{level}-{test.replace(':', '-')}", f"{level} {name}", "", record, less,
                           ours=dict(level=level, test=test), base=dict(level="off", test=test))


def section(records):
    return Section(TITLE, list(keys(records)), (NOTE, table(records)))
