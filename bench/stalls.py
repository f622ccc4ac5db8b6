"""What `pingpong --trace` tells: round trips that took long, and when they were under way."""

import re
import statistics


def traced(result):
    """(when the trace began by `time.monotonic`, what every other round trip took at most in ms,
    [(when one began, ms)])."""
    start, least = map(float, result.find(r"^trace-start,([\d.]+),([\d.]+)$").groups())
    trips = re.findall(r"^stall,([\d.]+),([\d.]+)$", result.out, re.MULTILINE)
    return start, least, [(float(t), float(ms)) for t, ms in trips]


def longest_ms(trips, least, spans):
    """The longest round trip that was under way in one of the spans."""
    there = (ms for t, ms in trips for start, end in spans if t < end and t + ms / 1e3 > start)
    return max(there, default=least)


def spread(values):
    """Median and quartiles, as text."""
    if len(values) < 2:
        return "-"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"
