"""Which combinations of parameters `make test` runs.

A test of three MPIs and six faults is eighteen tests. With `--cover` a few of them run, chosen so that
each value of each parameter occurs; `make soak` runs all.
"""

# A test with fewer combinations runs whole.
FEW = 4


def values(item):
    """The parameters of one combination, as pairs of a name and a value."""
    return {(name, repr(value)) for name, value in item.callspec.params.items()}


def cover(items):
    """A small part of the combinations of one test that has each value of each parameter."""
    missing = set().union(*map(values, items))
    chosen = []
    # The diagonal of a table has each row and each column once: of equally useful combinations, the
    # one whose values were chosen least.
    used = dict.fromkeys(missing, 0)
    while missing:
        best = max(items, key=lambda i: (len(values(i) & missing), -sum(used[v] for v in values(i))))
        chosen.append(best)
        missing -= values(best)
        for value in values(best):
            used[value] += 1
    return chosen


def split(items):
    """The tests that run, and those that are left to `make soak`, each in their order."""
    tables = {}
    for item in items:
        if len(getattr(getattr(item, "callspec", None), "params", ())) > 1:
            tables.setdefault((item.fspath, item.originalname), []).append(item)
    left = set()
    for table in tables.values():
        if len(table) >= FEW:
            left |= set(table) - set(cover(table))
    return [i for i in items if i not in left], [i for i in items if i in left]
