"""Regression marks: what fell against the last record of the same class of machine.

A figure fell if it is worse by more than 5 % and its interval does not meet that of the record
before; fewer than five rounds have no interval that could tell. A short run has one round of many
sizes: the changes of all sizes of a test are then judged together.
"""

import statistics
from collections import defaultdict

import peers

from .records import MOVED, of_file
from .spread import ROUNDS_MIN, number, short, spread

# An optimisation keeps its place with as much.
FALL_MIN = 0.05


def overlap(one, other):
    """Whether two intervals meet."""
    return one.low <= other.high and other.low <= one.high


def fell(before, after, less):
    """Whether a figure is worse than before by more than the interval; `less`: less is better, None:
    neither, which cannot fall."""
    if less is None or min(before.n, after.n) < ROUNDS_MIN or overlap(before, after):
        return False
    worse = after.median / before.median if less else before.median / after.median
    return worse > 1 + FALL_MIN


def figures(samples):
    """(class, contender, test, bytes) -> round -> median, of samples of bench/run."""
    groups = defaultdict(lambda: defaultdict(list))
    for s in samples:
        value = number(s["value"])
        if s["class"] != MOVED and value > 0:
            groups[s["class"], s["contender"], s["test"], int(s["bytes"])][s["date"], s["round"]].append(value)
    return {key: {of: statistics.median(values) for of, values in rounds.items()} for key, rounds in groups.items()}


def over_peers(samples, other):
    """Ours, each round over the peer that is best in these samples of those that both records have:
    moods of the machine are in both. Key -> (values, less is better)."""
    less = {s["test"]: s["unit"] == "us" for s in samples}
    found, there = figures(samples), figures(other)
    ours = {c.name for c in peers.CONTENDERS if c.ours}
    names = {c.name for c in peers.CONTENDERS if not (c.ours or c.floor)}
    result = {}
    for (kind, name, test, size), rounds in found.items():
        if name not in ours or (kind, name, test, size) not in there:
            continue
        beside = {peer: found[key] for peer in names
                  if (key := (kind, peer, test, size)) in found and key in there}
        pick = min if less[test] else max
        best = pick(beside, key=lambda peer: statistics.median(beside[peer].values())) if beside else None
        result[kind, name, test, size] = (best, less[test])
    return result


def values_of(found, key, best):
    """The rounds' values of a key, over those of a peer if there is one."""
    kind, _, test, size = key
    if best is None:
        return list(found[key].values())
    theirs = found[kind, best, test, size]
    return [value / theirs[of] for of, value in found[key].items() if of in theirs]


def falls(before, after):
    """Lines on what fell from the samples of one run to those of another."""
    old, new = figures(before), figures(after)
    lines, changes = [], defaultdict(list)
    for key, (best, less) in sorted(over_peers(after, before).items()):
        was, now = spread(values_of(old, key, best)), spread(values_of(new, key, best))
        if not was or not now:
            continue
        kind, name, test, size = key
        changes[kind, name, test].append(now.median / was.median if less else was.median / now.median)
        if fell(was, now, less):
            lines.append(f"{name}, {test}, {size} B, cores {kind}: {short(now.median)}, before {short(was.median)}"
                         + (f" (over {best})" if best else ""))
    for (kind, name, test), worse in changes.items():
        together = spread(worse)
        if together.n >= ROUNDS_MIN and together.low > 1 + FALL_MIN:
            lines.append(f"{name}, {test}, all {together.n} sizes, cores {kind}: worse by {short(together.median)} "
                         f"({short(together.low)}-{short(together.high)})")
    return lines


def last(records, samples, without=None):
    """The newest record of bench/run of this processor and kind of build that has such figures, without
    that of one path."""
    first = {"library": peers.library(), **samples[0]}
    keys = figures(samples).keys()
    for record in (of_file(path) for one in records.found for path in one.paths[::-1] if path != without):
        if record.kind != "run" or record.cpu != first["cpu"]:
            continue
        if record.library == first["library"] and keys & figures(record.all_rows).keys():
            return record
    return None
