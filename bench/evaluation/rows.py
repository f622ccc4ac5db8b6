"""Rows of the page: a figure of a paper, ours, the best peer's in the same run, and whence."""

import statistics
from dataclasses import dataclass, field

import peers

from .records import classes, where
from .spread import Spread, by_round, differences, ratios, spread

MISSING = "not measured yet"


@dataclass(frozen=True)
class Row:
    """One line. `theirs` has the paper's figure and its place. `ours` is a spread, or a text if it
    has several figures; without it stands `reason`."""

    anchor: str
    name: str
    theirs: str = ""
    ours: object = None
    unit: str = ""
    less: bool = None  # less is better; None: neither
    peer: str = ""
    ratio: Spread = None
    cores: str = ""
    record: object = None
    reason: str = ""

    @property
    def judged(self):
        """The figure that later runs are compared with: the ratio to the peer, or else ours."""
        return self.ratio or (self.ours if isinstance(self.ours, Spread) else None)


@dataclass(frozen=True)
class Section:
    """A part of the page: paragraphs or tables, then rows, and pictures (file name -> content)."""

    title: str
    rows: list = field(default_factory=list)
    texts: tuple = ()
    pictures: dict = field(default_factory=dict)


def missing(anchor, name, theirs="", reason=MISSING, cores=""):
    return Row(anchor, name, theirs, reason=reason, cores=cores or "")


def of_class(rows, cores):
    return where(rows, **{"class": cores}) if cores else rows


def value(anchor, name, theirs, record, unit, less, *, ours, others=None, cores=None, column="value"):
    """A row of measured values. `ours`: columns and values of our rows; `others`: peer -> the same
    of its rows, of which the best counts; `cores`: the class, or that with most of our rows."""
    rows = record.rows(**ours) if record else []
    if not rows:
        return missing(anchor, name, theirs)
    cores = classes(rows)[0] if cores is None else cores
    rows = of_class(rows, cores)
    best, ratio = best_peer(record, others or {}, rows, less, cores, column)
    return Row(anchor, name, theirs, spread(by_round(rows, column).values()), unit, less, best, ratio,
               cores, record) if rows else missing(anchor, name, theirs)


def best_peer(record, others, rows, less, cores, column):
    """The name of the best peer by its median, and ours over it within rounds."""
    found = {}
    for name, wanted in others.items():
        theirs = of_class(record.rows(**wanted), cores)
        if by_round(theirs, column):
            found[name] = theirs
    if not found:
        return "", None
    best = (min if less else max)(
        found, key=lambda name: statistics.median(by_round(found[name], column).values()))
    return best, spread(ratios(rows, found[best], column))


def relative(anchor, name, theirs, record, less, *, ours, base, cores=None, column="value",
             inverted=False, difference="", scale=1.0):
    """A row of a ratio of two of our forms within rounds; `inverted`: of times, as a ratio of rates;
    `difference`: the unit of a difference instead, `scale` times that of the samples."""
    upper, lower = (record.rows(**which) if record else [] for which in (ours, base))
    if not upper or not lower:
        return missing(anchor, name, theirs, cores=cores)
    cores = classes(upper)[0] if cores is None else cores
    upper, lower = of_class(upper, cores), of_class(lower, cores)
    if inverted:
        upper, lower = lower, upper
    found = (differences if difference else ratios)(upper, lower, column)
    result = spread([scale * each for each in found])
    if not result:
        return missing(anchor, name, theirs, cores=cores)
    return Row(anchor, name, theirs, result, difference, less, cores=cores, record=record)


def contenders(test, size=None):
    """Rows of a test in a record of bench/run, by peer."""
    more = {"bytes": str(size)} if size else {}
    return {c.name: {"contender": c.name, "test": test, **more}
            for c in peers.CONTENDERS if not (c.ours or c.floor)}


def size_name(size):
    """A number of bytes in one word."""
    return next((f"{size >> shift}{unit}" for shift, unit in ((20, "M"), (10, "K")) if size >> shift), f"{size}B")
