"""What each layer costs on each kind of rail: raw, reliable, with sums, with keys, with multicast."""

from .records import classes, where
from .rows import MISSING, Section, relative
from .spread import by_round, short, spread

TITLE = "Ablation"
KINDS = ("udp", "xdp", "tcp", "shm", "rc", "uc", "ud")
LEVELS = ("raw", "reliable", "sums", "authentication", "multicast")
TESTS = (("latency", "8", "8 B, us"), ("rate", "8", "8 B, M/s"), ("bw64k", "65536", "64 KiB, GB/s"),
         ("bw4m", "4194304", "4 MiB, GB/s"), ("bcast", "65536", "64 KiB to 4 hosts, us"))
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
        return record, lambda level: record.rows(combination=kind + FORMS.get(level, "-"), what=what, bytes=size), factor
    of, column, forms, more = ELSEWHERE.get(kind, ("", "", {}, {}))
    record = records.newest(of, test=test, **more, **{column: forms["sums"]}) if of else None
    return record, lambda level: record.rows(test=test, bytes=size, **more, **{column: forms.get(level, "-")}), 1


def row(records, kind, test, size, title):
    """Cells of one kind and test: a figure for each level, rounds, cores, record."""
    record, of_level, factor = source(records, kind, test, size)
    name = f"{kind}, {title}"
    if not record:
        return [name, MISSING, *[""] * (len(LEVELS) + 2)]
    cores = classes(of_level("sums"))[0]
    found = []
    for level in LEVELS:
        rows = where(of_level(level), **{"class": cores}) if cores else of_level(level)
        found.append(spread([factor * value for value in by_round(rows).values()]))
    cells = [short(s.median) + (f"±{short(s.deviation)}" if s.n > 1 else "") if s else "" for s in found]
    return [name, *cells, str(max((s.n for s in found if s), default=0)), cores, f"`{record.name}`"]


def table(records):
    """The rows of all kinds that a test can be asked of."""
    head = ["rail", *("+ " * (n > 1) + level for n, level in enumerate(LEVELS)), "n", "cores", "record"]
    lines = [row(records, kind, *test) for kind in KINDS for test in TESTS
             if not (kind == "shm" and test[0] == "bcast")]
    return "\n".join("|".join(cells) for cells in [head, ["---"] * len(head), *lines])


def keys(records):
    """Keyed sums and encryption over sums."""
    record = records.newest("auth", level="on")
    for test, name, less in (("latency:8", "8 B time", True), ("bandwidth:4194304", "4 MiB bandwidth", False)):
        for level, title in (("on", "keyed sums"), ("encrypt", "encryption")):
            yield relative(f"auth-{level}-{test.split(':')[0]}", f"{title} over sums, {name}", "", record, less,
                           ours=dict(level=level, test=test), base=dict(level="off", test=test))


def section(records):
    return Section(TITLE, list(keys(records)), text=table(records))
