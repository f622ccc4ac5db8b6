"""The page docs/results.md and its pictures, out of records alone."""

import re
from pathlib import Path

from . import ablation, agreement, broadcast, checksums, failover, fragments, machine, scale, shipped, transports
from .spread import Spread, short

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = "results.md"
PARTS = (checksums, broadcast, failover, fragments, transports, shipped, ablation, scale)
HEAD = ["what", "paper", "ours", "unit", "95 %", "mean±sd", "n", "peer", "ours/peer", "95 %", "cores", "record"]
OPENING = """# Results beside the papers'

`make evaluation` makes this page out of [records](#records) ([method](design/performance.md)). *Ours* is the median of
rounds, with its interval; peers ran in turn with ours; records of a day and machine are one. *Cores*: their
distance, classes apart. F is a figure, T a table, S a slide; after a slash in *paper* stands Open MPI's.
"""
# Record's kind -> how it is made, if not by bench/KIND.
COMMANDS = {
    "tune": "marline tune", "copy-and-sum": "make bench-checksums",
    "checksums-10gbit": "bench/checksums --rate 10gbit", "scale": "marline-sim --scale",
    "sim-scale": "marline-sim --scale",
    "sim-group-scale": "marline-sim --profile group --scale 1024", "flow": "bench/gap --flow",
}


def sections(records):
    """All parts of the page."""
    return [part.section(records) for part in PARTS]


def cpu_text(cpu):
    """A processor's name in one word, with family and model."""
    found = re.search(r"family (\d+), model (\d+)", cpu) or re.search(r"\((\d+)/(\d+)/", cpu)
    name = next((word for word in ("EPYC", "Xeon", "Ryzen", "Core") if word in cpu), cpu.split(" ")[0])
    return f"{name}-{found[1]}-{found[2]}" if found else name


def linked(folder=DOCS):
    """Anchors of rows that documents link to."""
    pages = [*folder.parent.glob("*.md"), *folder.rglob("*.md")]
    return {anchor for file in pages for anchor in re.findall(r"results\.md#([a-z0-9-]+)\)", file.read_text())}


def figure(found):
    """A median, or a text as it is."""
    return short(found.median) if isinstance(found, Spread) else found or ""


def interval(found):
    """The interval of a median, if it has one."""
    wide = isinstance(found, Spread) and found.n > 1 and short(found.low) != short(found.high)
    return f"{short(found.low)}–{short(found.high)}" if wide else ""


def cells(row, anchors=()):
    """The cells of a row, as HEAD names them; with its anchor if that is one of `anchors`."""
    name = f'<a id="{row.anchor}"></a>{row.name}' if row.anchor in anchors else row.name
    if row.ours is None:
        return [name, row.theirs, row.reason, *[""] * (len(HEAD) - 5), row.cores, ""]
    middle = row.ours
    several = isinstance(middle, Spread) and middle.n > 1
    mean = f"{short(middle.mean)}±{short(middle.deviation)}" if several else ""
    count = str(middle.n) if isinstance(middle, Spread) else ""
    return [name, row.theirs, figure(middle), row.unit, interval(middle), mean, count, row.peer, figure(row.ratio),
            interval(row.ratio), row.cores, f"`{row.record.name}`"]


def table(lines):
    return "\n".join("|".join(line) for line in lines)


def section_text(section, anchors=()):
    parts = [f"## {section.title}", *section.texts]
    if section.rows:
        lines = [cells(row, anchors) for row in section.rows]
        parts.append(table([HEAD, ["---"] * len(HEAD), *lines]))
    parts += [f"![{name.split('.')[0]}]({name})" for name in section.pictures]
    return "\n\n".join(parts)


def sources(text, records):
    """The table of the records that a page has figures of."""
    used = sorted((r for r in records.found if f"`{r.name}`" in text), key=lambda r: r.name)
    lines = [[",".join(f"`{path.stem}`" for path in r.paths), cpu_text(r.cpu),
              f"`{COMMANDS.get(r.kind, f'bench/{r.kind}')}`"] for r in used]
    return "## Records\n\n" + table([["record", "processor", "command"], ["---"] * 3, *lines])


def files(records, anchors):
    """Name -> content of the page and its pictures."""
    parts = sections(records)
    body = [OPENING.rstrip(), *machine.lines(records), *(section_text(part, anchors) for part in parts),
            agreement.text(parts, records)]
    body.append(sources("\n".join(body), records))
    pictures = {name: content for part in parts for name, content in part.pictures.items()}
    return {PAGE: "\n\n".join(part for part in body if part) + "\n", **pictures}


def write(records, folder=DOCS, anchors=None):
    """Writes the page and its pictures; the paths that it wrote. `anchors`: those that rows get."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    made = files(records, linked() if anchors is None else anchors)
    for name, content in made.items():
        (folder / name).write_text(content)
    return [folder / name for name in made]


def stale(records, folder=DOCS, anchors=None):
    """Names of files that are not what the records give."""
    made = files(records, linked() if anchors is None else anchors)
    return [name for name, content in made.items()
            if not (Path(folder) / name).exists() or (Path(folder) / name).read_text() != content]
