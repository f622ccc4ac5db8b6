"""Curves over all sizes: half round trips, windowed bandwidth, and messages per second of several
pairs; and a few sizes with several threads a rank. `bench/run` measures them beside its targets;
tests/programs/curve.c says what each is."""

import os
import statistics
import sys
from collections import defaultdict
from pathlib import Path

import peers
import svg

# No size between them goes unmeasured by more than a factor of two.
SIZES = [1 << power for power in range(23)]
PAIRS = (1, 2, 4)
RATE_BYTES = 8
# Test in the records: (title, what is drawn, less is better).
CURVES = {
    "curve-latency": ("Half a round trip", "us", True),
    "curve-bandwidth": ("Windows of messages, two ranks", "GB/s", False),
}
RATES = {f"rate-pairs{n}": f"8 B messages/s, {n} pair{'s' * (n > 1)}" for n in PAIRS}
# Threads of a rank that all call MPI, each with one of the other rank's, and what they do at once.
THREADS = (2, 4)
THREADED_LATENCY, THREADED_RATE = (8, 2048, 65536), (RATE_BYTES,)
THREADED_SECONDS, THREADED_SAMPLES = 0.1, 2
THREADED = {}
for _n in THREADS:
    THREADED[f"threads{_n}-latency"] = (f"Half a round trip, {_n} threads a rank", "us", True)
    THREADED[f"threads{_n}-rate"] = (f"Messages of all {_n} threads a rank", "M/s", False)
# Receives that are posted, or messages that wait, so many at once, and matched backwards; and more for
# ours alone: others pass over all of them for each message (MPICH over TCP 43 us at 16,384).
MATCHED, MATCHED_OURS = (1024, 4096, 16384), (1024, 4096, 16384, 65536)
MATCHING = {
    "match-posted": ("A message that finds one of so many receives", "us", True),
    "match-unexpected": ("A receive that finds one of so many messages", "us", True),
}
# What it is to be at most, or else at least: (target, largest size it is for).
TARGETS = {"curve-latency": [(0.85, 1024), (1.0, 1 << 30)], "curve-bandwidth": [(1.0, 1 << 30)],
         **{test: [(1.0, 1 << 30)] for test in [*THREADED, *MATCHING]}}


def threads_here():
    """Of THREADS: two always, and more where each thread of both ranks has a core of its own."""
    return [n for n in THREADS if n == 2 or 2 * n <= os.cpu_count()]


def threaded_tests():
    """TEST:BYTES of a job with threads."""
    return [f"latency:{size}" for size in THREADED_LATENCY] + [f"rate:{size}" for size in THREADED_RATE]


def name_of(test, ranks):
    """The name in the records of what `curve` calls `test`, with one thread."""
    if test == "rate":
        return f"rate-pairs{ranks // 2}"
    return f"match-{test}" if f"match-{test}" in MATCHING else f"curve-{test}"


def jobs(sizes, matched=MATCHED):
    """(ranks, tests) of each job that a contender runs in a round."""
    sweep = [f"{test}:{size}" for size in sizes for test in ("latency", "bandwidth")]
    sweep += [f"{test.removeprefix('match-')}:{count}" for count in matched for test in MATCHING]
    for pairs in PAIRS:
        yield 2 * pairs, [*(sweep if pairs == 1 else []), f"rate:{RATE_BYTES}"]


def measure(lab, contender, flag, args, sizes):
    """One round of one contender: lists of test, bytes, value, unit, hops and class."""
    rows = []
    matched = MATCHED[:1] if args.quick else MATCHED_OURS if contender.ours else MATCHED
    for ranks, tests in jobs(sizes, matched):
        program = ["curve", "--flag", flag, "--samples", 1, "--seconds", args.curve_seconds, "--pin", *tests]
        limit = 60 + len(tests) * (10 * args.curve_seconds + 2)
        for test, ranks_, _, *rest in _lines(contender, lab, program, limit, ranks):
            rows.append([name_of(test, int(ranks_)), *rest])
    return rows


def measure_threads(lab, contender, args):
    """The same with several threads a rank, which nobody pins."""
    rows, tests = [], threaded_tests()
    samples, seconds = (1, 0.001) if args.quick else (THREADED_SAMPLES, THREADED_SECONDS)
    for threads in args.threads:
        program = ["curve", "--threads", threads, "--samples", samples, "--seconds", seconds, *tests]
        limit = 60 + samples * len(tests) * (10 * seconds + 2)
        for test, _, _, *rest in _lines(contender, lab, program, limit, 2):
            rows.append([f"threads{threads}-{test}", *rest])
    return rows


def _lines(contender, lab, program, limit, ranks):
    """What `curve` printed, without its name: test, ranks, threads, bytes, value, unit, hops, class."""
    result = contender.start(lab, program, timeout=limit, n=ranks)
    if not result.ok:
        print(f"  {contender.name}, {ranks} ranks: failed\n{result.tail(12)}", file=sys.stderr)
    return [line.split(",")[1:] for line in result.out.splitlines() if line.startswith("curve,")]


def by_round(samples, kind):
    """(test, bytes, contender) -> round -> median, of samples of one class."""
    groups = defaultdict(lambda: defaultdict(list))
    for s in samples:
        if s["class"] == kind and s["test"] in {*CURVES, *RATES, *THREADED, *MATCHING}:
            key = s["test"], int(s["bytes"]), s["contender"]
            groups[key][s["date"], s["round"]].append(float(s["value"]))
    return {key: {number: statistics.median(values) for number, values in rounds.items()}
            for key, rounds in groups.items()}


def ratios(rounds, test, size, ours):
    """Of ours to the best peer within each round, and the peer that is best by its median."""
    others = {c.name: rounds[test, size, c.name] for c in peers.CONTENDERS
              if not (c.ours or c.floor) and (test, size, c.name) in rounds}
    mine = rounds.get((test, size, ours))
    if not others or not mine:
        return None, []
    pick = min if {**CURVES, **THREADED, **MATCHING}.get(test, ("", "", False))[2] else max
    best = pick(others, key=lambda name: statistics.median(others[name].values()))
    common = sorted(mine.keys() & others[best].keys())
    return best, [mine[n] / others[best][n] for n in common]


def table(samples, kind):
    """(test, bytes, ours) -> (median of ours, best peer, median ratio, low, high, rounds)."""
    rounds = by_round(samples, kind)
    result = {}
    for (test, size, name), values in rounds.items():
        best, list_ = ratios(rounds, test, size, name)
        if name in {c.name for c in peers.CONTENDERS if c.ours} and list_:
            result[test, size, name] = (statistics.median(values.values()), best,
                                        statistics.median(list_), *peers.interval(list_), len(list_))
    return result


def kinds(samples):
    """Classes of core distance, the one with most samples first; without those that moved."""
    count = defaultdict(int)
    for s in samples:
        if s["test"] in CURVES and s["class"] != "changed":
            count[s["class"]] += 1
    return sorted(count, key=count.get, reverse=True)


def target_of(test, size):
    return next((target for target, upto in TARGETS.get(test, []) if size <= upto), None)


def _cell(test, size, row, less):
    """Ours, its ratio to the best peer's with the interval, and a target if that is surely missed."""
    if not row:
        return "-"
    target = target_of(test, size)
    missed = target is not None and (row[3] > target if less else row[4] < target)
    return f"{row[0]:.4g}  {row[2]:.2f} ({row[3]:.2f} to {row[4]:.2f}){'!' if missed else ' '}"


def _print_ratios(tests, rows, where):
    """A table for each of `tests` that was measured, a line for each size."""
    names = [c.name for c in peers.CONTENDERS if any(n == c.name for _, _, n in rows)]
    for test, (title, unit, less) in tests.items():
        sizes = sorted({s for t, s, _ in rows if t == test})
        if not sizes:
            continue
        print(f"\n{title}, {unit}{where}: ours over the best peer's "
              f"({'less' if less else 'more'} is better), 95 % interval")
        print(f"  {'':<10}" + "".join(f"{name:>30}" for name in names) + "   best peer")
        for size in sizes:
            of_size = [rows.get((test, size, name)) for name in names]
            best = next((row[1] for row in of_size[::-1] if row), "")
            cells = "".join(f"{_cell(test, size, row, less):>30}" for row in of_size)
            label = f"{size:,}" if test in MATCHING else svg.size_text(size)
            print(f"  {label:<10}{cells}   {best}")


def report(samples):
    """Prints the ratio and its interval at each size, and which sizes miss their target."""
    if not {s["test"] for s in samples} & {*CURVES, *RATES, *THREADED, *MATCHING}:
        return
    for kind in kinds(samples):
        _print_ratios({**CURVES, **MATCHING}, table(samples, kind), f", cores {kind}")
    # Threads have no cores of their own, so there is one class only.
    for kind in {s["class"] for s in samples if s["test"] in THREADED}:
        _print_ratios(THREADED, table(samples, kind), "")
    print("\n  ! misses its target by more than the interval: at most the best peer's time at each size and, "
          "with one thread,\n  0.85 of it up to 1 KiB, at least its bandwidth and rate")
    for test, title in RATES.items():
        # Only two ranks have cores of their own.
        for kind in {s["class"] for s in samples if s["test"] == test} - {"changed"}:
            for (t, _, name), row in table(samples, kind).items():
                if t == test:
                    print(f"  {title} ({kind}), {name}: {row[0]:.2f} M/s, over {row[1]} "
                          f"{row[2]:.2f} ({row[3]:.2f} to {row[4]:.2f}, {row[5]} rounds)")


def _values(rounds, test, size, name):
    found = rounds.get((test, size, name))
    return statistics.median(found.values()) if found else None


def _picture(title, unit, at, values, shares, less=False, count=""):
    """Two panels: the values of all at each x, and our ratios. `values(name, x)` may be None."""
    def lines(names, of):
        for contender in names:
            points = [(x, *point) for x in at if (point := of(contender.name, x)) is not None]
            if points:
                yield svg.Line(contender.name, points, dashed=not contender.ours)

    ours = [c for c in peers.CONTENDERS if c.ours]
    panels = [svg.Panel(f"{title} (medians; logarithmic)", unit,
                        list(lines(peers.CONTENDERS, values)), unit=count)]
    compared = list(lines(ours, shares))
    if compared:
        better = "less" if less else "more"
        panels.append(svg.Panel(f"Ours over the best peer's, with 95 % intervals ({better} is better)",
                                "ratio", compared, height=220, unit=count,
                                levels=[1.0] + ([0.85] if less else [])))
    return svg.picture(panels)


def draw(samples, folder):
    """Writes the pictures: values of all, and our ratios with their intervals."""
    kind = kinds(samples)[0]
    pictures, tables = {}, {k: table(samples, k) for k in {s["class"] for s in samples}}
    rounds = {k: by_round(samples, k) for k in tables}
    for test, (title, unit, less) in CURVES.items():
        def value(name, size):
            found = _values(rounds[kind], test, size, name)
            return None if found is None else (found,)

        def share(name, size):
            row = tables[kind].get((test, size, name))
            return row and row[2:5]

        pictures[test] = _picture(f"{title}, cores {kind}", unit, SIZES, value, share, less)

    def of_pairs(number, find):
        # Two ranks have cores of their own, of which the class is known; more ranks share them.
        return next((found for k in (kind, "unknown")
                     if (found := find(k, f"rate-pairs{number}")) is not None), None)

    def rate(name, number):
        found = of_pairs(number, lambda k, test: _values(rounds.get(k, {}), test, RATE_BYTES, name))
        return None if found is None else (found,)

    def rate_share(name, number):
        row = of_pairs(number, lambda k, test: tables.get(k, {}).get((test, RATE_BYTES, name)))
        return row and row[2:5]

    pictures["rate-pairs"] = _picture("8 B messages per second, all pairs together", "M/s", PAIRS, rate,
                                      rate_share, count="pairs")
    written = []
    for name, text in pictures.items():
        path = Path(folder) / f"{name}.svg"
        path.write_text(text)
        written.append(path)
    return written
