"""Raw samples: the records of bench/record, the newest of each kind first. Those of one day and machine
count as one."""

import csv
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "record"
NAME = re.compile(r"(\d{4}-\d\d-\d\d(?:-\d{4})?)-(.+?)(?:-\d)?\.csv")
# The class of a sample during which the ranks' cores moved; nothing counts it.
MOVED = "changed"
# Processors of records whose program writes none.
PROCESSORS = {"2026-11-26-0050-copy-and-sum": "AMD EPYC (family 26, model 2)"}


@dataclass(frozen=True)
class Record:
    """The samples of a program on one machine in a day, from all their files."""

    paths: tuple
    stamp: str
    kind: str

    @cached_property
    def all_rows(self):
        return [row for path in self.paths for row in read(path)]

    @property
    def name(self):
        """That of the newest file."""
        return self.paths[-1].stem

    @property
    def date(self):
        return self.stamp[:10]

    @property
    def cpu(self):
        """The processor's name and model; empty if the file has none."""
        first = self.all_rows[0] if self.all_rows else {}
        return first.get("cpu") or PROCESSORS.get(self.name, "")

    @property
    def library(self):
        """How the library was built."""
        return self.all_rows[0].get("library", "") if self.all_rows else ""

    @cached_property
    def _found(self):
        return {}

    def rows(self, **wanted):
        """The rows with these values, which are looked for once."""
        key = tuple(sorted(wanted.items()))
        if key not in self._found:
            self._found[key] = where(self.all_rows, **wanted)
        return self._found[key]


def read(path):
    """The rows of a file."""
    with open(path, newline="") as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def of_file(path):
    """The record of one file alone; its name need not be that of a record."""
    name = NAME.fullmatch(path.name)
    return Record((path,), *((name[1], name[2]) if name else ("", "")))


def together(files):
    """Records of a kind, processor, build and day as one."""
    groups = defaultdict(list)
    for record in files:
        groups[record.kind, record.cpu, record.library, record.date].append(record)
    for same in groups.values():
        same.sort(key=lambda record: record.name)
        yield Record(tuple(record.paths[0] for record in same), same[-1].stamp, same[-1].kind)


def where(rows, **wanted):
    """The rows whose columns have these values, of each a text or a tuple of texts."""
    def fits(row):
        return all(row.get(column) in (value if isinstance(value, tuple) else (value,))
                   for column, value in wanted.items())

    return [row for row in rows if row.get("class") != MOVED and fits(row)]


def classes(rows):
    """Classes of core distance, the one with most samples first; an empty one without classes."""
    count = Counter(row.get("class", "") for row in rows)
    return [name for name, _ in count.most_common() if name != MOVED] or [""]


class Records:
    """The records of one folder, without some of them."""

    def __init__(self, folder=None):
        files = [of_file(path) for path in Path(folder or FOLDER).glob("*.csv") if NAME.fullmatch(path.name)]
        self.found = sorted(together(files), key=lambda record: (record.stamp, record.name), reverse=True)

    def before(self, record):
        """The records of the same processor, without this one and newer ones of its kind."""
        older = Records.__new__(Records)
        older.found = [r for r in self.found
                       if r.cpu == record.cpu and (r.kind != record.kind or r.stamp < record.stamp)]
        return older

    def has(self, kind):
        """Whether there is one of a kind."""
        return any(record.kind == kind for record in self.found)

    def newest(self, kind, **wanted):
        """The newest record of a kind that has such rows, or None."""
        of_kind = (record for record in self.found if record.kind == kind)
        return next((record for record in of_kind if record.rows(**wanted)), None)
