"""The page docs/results.md and its pictures, out of records alone."""

import re
from pathlib import Path

from . import ablation, agreement, broadcast, checksums, failover, fragments, machine, scale, transports
from .spread import Spread, short

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = "results.md"
PARTS = (checksums, broadcast, failover, fragments, transports, ablation, scale)
HEAD = ["what", "paper", "ours", "mean±sd", "n", "peer", "ours/peer", "cores", "record"]
OPENING = """# Results beside the papers'

`make evaluation` makes this page out of [records](#records) ([method](design/performance.md)). Figures are medians of
rounds, in brackets the interval of 95 %. Peers ran in turn with ours. *Cores*: their distance, classes apart.
"""
# Record's kind -> how it is made, if not by bench/KIND.
COMMANDS = {
    "tune": "marline tune", "copy-and-sum": "make bench-checksums", "checksums-10gbit": "bench/checksums --rate 10gbit",
    "sim-group-scale": "marline sim --scale", "flow": "bench/gap --flow",
}


def sections(records):
    """All parts of the page."""
    return [part.section(records) for part in PARTS]


def cpu_text(cpu):
    """A processor's name in one word, with family and model."""
    found = re.search(r"family (\d+), model (\d+)", cpu) or re.search(r"\((\d+)/(\d+)/", cpu)
    name = next((word for word in ("EPYC", "Xeon", "Ryzen", "Core") if word in cpu), cpu.split(" ")[0])
    return f"{name}-{found[1]}-{found[2]}" if found else name


def figure(found):
    """A median with its interval."""
    if not isinstance(found, Spread):
        return found or ""
    wide = found.n > 1 and short(found.low) != short(found.high)
    return short(found.median) + (f" ({short(found.low)}-{short(found.high)})" if wide else "")


def cells(row):
    """The cells of a row, as HEAD names them."""
    name = f'<a id="{row.anchor}"></a>{row.name}'
    if row.ours is None:
        return [name, row.theirs, row.reason, *[""] * (len(HEAD) - 3)]
    middle = row.ours
    several = isinstance(middle, Spread) and middle.n > 1
    mean = f"{short(middle.mean)}±{short(middle.deviation)}" if several else ""
    count = str(middle.n) if isinstance(middle, Spread) else ""
    ours = f"{figure(middle)} {row.unit}".rstrip()
    return [name, row.theirs, ours, mean, count, row.peer, figure(row.ratio), row.cores, f"`{row.record.name}`"]


def table(lines):
    return "\n".join("|".join(line) for line in lines)


def section_text(section):
    parts = [f"## {section.title}"]
    if section.text:
        parts.append(section.text)
    if section.rows:
        parts.append(table([HEAD, ["---"] * len(HEAD), *map(cells, section.rows)]))
    parts += [f"![{name.split('.')[0]}]({name})" for name in section.pictures]
    return "\n\n".join(parts)


def sources(parts, records):
    """The table of the records that the page has figures of."""
    text = "\n".join(section_text(part) for part in parts)
    used = sorted((r for r in records.found if f"`{r.name}`" in text), key=lambda r: r.name)
    lines = [[f"`{r.name}`", cpu_text(r.cpu), f"`{COMMANDS.get(r.kind, f'bench/{r.kind}')}`"] for r in used]
    return "## Records\n\n" + table([["record", "processor", "command"], ["---"] * 3, *lines])


def text(records):
    """The page."""
    parts = sections(records)
    body = [OPENING.rstrip(), *machine.lines(records), *map(section_text, parts), agreement.text(parts, records),
            sources(parts, records)]
    return "\n\n".join(part for part in body if part) + "\n"


def write(records, folder=DOCS):
    """Writes the page and its pictures; the paths that it wrote."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = {PAGE: text(records)}
    for part in sections(records):
        files |= part.pictures
    for name, content in files.items():
        (folder / name).write_text(content)
    return [folder / name for name in files]


def stale(records, folder=DOCS):
    """Names of files that are not what the records give."""
    files = {PAGE: text(records)}
    for part in sections(records):
        files |= part.pictures
    return [name for name, content in files.items()
            if not (Path(folder) / name).exists() or (Path(folder) / name).read_text() != content]
