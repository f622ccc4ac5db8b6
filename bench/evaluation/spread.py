"""Medians of rounds, their spread, and ratios within rounds."""

import functools
import math
import statistics
from collections import defaultdict
from dataclasses import dataclass

import peers

# Fewer rounds than these have no interval.
ROUNDS_MIN = 5


@dataclass(frozen=True)
class Spread:
    """A figure from `n` rounds: 95 % of the medians of resampled rounds lie between `low`
    and `high`. All numbers are in the unit of the values."""

    median: float
    mean: float
    deviation: float
    low: float
    high: float
    n: int


def spread(values):
    """The spread of values, or None without any."""
    values = tuple(value for value in values if math.isfinite(value))
    return _spread(values) if values else None


@functools.lru_cache(maxsize=None)
def _spread(values):
    low, high = peers.interval(values) if len(values) > 1 else (values[0], values[0])
    return Spread(statistics.median(values), statistics.fmean(values), statistics.pstdev(values),
                  low, high, len(values))


def number(text):
    """A sample as a number; NaN for one that did not end in its time."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return math.nan


def by_round(rows, column="value"):
    """Round -> median of its samples."""
    groups = defaultdict(list)
    for row in rows:
        value = number(row[column])
        if not math.isnan(value):
            groups[row.get("date", ""), row.get("round", row.get("trial", ""))].append(value)
    return {key: statistics.median(values) for key, values in groups.items()}


def ratios(rows, base, column="value"):
    """Quotients of rows and others, within each round that has both."""
    upper, lower = by_round(rows, column), by_round(base, column)
    return [upper[key] / lower[key] for key in sorted(upper.keys() & lower.keys()) if lower[key]]


def differences(rows, base, column="value"):
    """Differences of rows and others, within each round that has both."""
    upper, lower = by_round(rows, column), by_round(base, column)
    return [upper[key] - lower[key] for key in sorted(upper.keys() & lower.keys())]


def curve(rows, x, column="value"):
    """(x, median) of the rows at each x, a column of whole numbers."""
    groups = defaultdict(list)
    for row in rows:
        value = number(row[column])
        if value > 0:
            groups[int(row[x])].append(value)
    return [(at, statistics.median(values)) for at, values in sorted(groups.items())]


def short(value):
    """Three digits, thousands apart."""
    digits = f"{value:.3g}"
    return f"{float(digits):,.0f}" if abs(value) >= 100 else digits
