"""How things grow with the number of hosts: the records of simulations and of large jobs."""

import math
import re

import svg

from . import ranks
from .rows import Row, Section
from .spread import number, short

TITLE = "Scale"
# Columns that count what grows.
NOTE = "From fewest to most hosts: growth; then jobs of 64 ranks (16 hosts, two cores)."
COUNTS = ("endpoints", "ranks", "hosts")
GROWTHS = {
    "1": lambda n: 0.0, "log N": math.log2, "N": float, "N log N": lambda n: n * math.log2(n),
    "N²": lambda n: float(n) ** 2,
}
# Columns that say nothing of the protocol: the simulator's own time and memory.
OWN = ("seconds", "resident_mb", "messages", "peers", "packets", "wall time")
# Columns of a record with a row for each value.
LONG = {"part", "quantity", "unit", "value"}


def fit(points):
    """(name of the growth, residual) of a + b f(N) that is closest to the points, by least squares of
    relative errors; of nearly equal ones the slowest."""
    best = None
    for name, f in GROWTHS.items():
        residual = _residual([(f(n), y) for n, y in points])
        if best is None or residual < 0.8 * best[1] - 1e-6:
            best = name, residual
    return best


def _residual(points):
    """The root of the mean squared relative error of the best line; of one that falls, that of none."""
    weights = [1 / max(y * y, 1e-18) for _, y in points]
    total = sum(weights)
    x0 = sum(w * x for w, (x, _) in zip(weights, points)) / total
    y0 = sum(w * y for w, (_, y) in zip(weights, points)) / total
    wide = sum(w * (x - x0) ** 2 for w, (x, _) in zip(weights, points))
    slope = sum(w * (x - x0) * (y - y0) for w, (x, y) in zip(weights, points)) / wide if wide else 0.0
    slope = max(slope, 0.0)
    errors = (((y0 + slope * (x - x0) - y) / y) ** 2 if y else 0.0 for x, y in points)
    return math.sqrt(sum(errors) / len(points))


def series(record):
    """(what, of which work, unit) -> [(N, value)] of a record: a row for each value, or a column."""
    first = record.all_rows[0]
    count = next((c for c in COUNTS if c in first), None)
    if not count:
        return {}
    found = {}
    if LONG <= {*first}:
        for row in record.all_rows:
            if row["quantity"] not in OWN and "wall time" not in row["unit"]:
                key = row["quantity"], row["part"], row["unit"]
                found.setdefault(key, []).append((int(row[count]), number(row["value"])))
        return found
    numeric = [c for c in first if c != count and not math.isnan(number(first[c]))]
    words = [c for c in first if c not in numeric and c not in (count, "date", "cpu", "library")]
    for row in record.all_rows:
        work = " ".join(row[c] for c in words)
        for column in numeric:
            if column not in OWN and not math.isnan(value := number(row[column])):
                found.setdefault((column, work, ""), []).append((int(row[count]), value))
    return found


def brief(unit):
    """A unit without blanks, for a cell of the table."""
    return re.sub(r"^bytes", "B", unit).replace(" per ", "/").replace("per ", "/").replace(" ", "-")


def rows(record):
    anchors = set()
    for (column, work, unit), points in series(record).items():
        points.sort()
        if len({n for n, _ in points}) < 3:
            continue
        first, last, growth = points[0][1], points[-1][1], fit(points)[0].replace(" ", "")
        words = f"scale-{record.kind}-{work}-{column}"
        # The second of two quantities with one name has its unit, too.
        words += f"-{unit}" * (words in anchors)
        anchors.add(words)
        anchor = re.sub(r"[^a-z0-9-]", "-", words.lower())
        yield Row(anchor, anchor.removeprefix(f"scale-{record.kind}-"), "", f"{short(first)}→{short(last)}",
                  f"{brief(unit)}:{growth}".strip(":"), cores="simulated", record=record)


def picture(records):
    panels = []
    for record in records:
        found = series(record)
        for column in dict.fromkeys(column for column, _, _ in found):
            lines = [svg.Line(work or column, sorted(points)) for (c, work, _), points in found.items()
                     if c == column and min(y for _, y in points) > 0]
            if lines:
                panels.append(svg.Panel(column.replace("_", " "), "", lines, unit="hosts", height=180))
    return {"results-scale.svg": svg.picture(panels)} if panels else {}


def section(records):
    """The newest record of simulated clusters, and real jobs of many ranks."""
    newest = records.newest("scale")
    found = [newest] if newest else []
    simulated = [row for record in found for row in rows(record)]
    return Section(TITLE, [*simulated, *ranks.job_rows(records)], (NOTE,), pictures=picture(found))
