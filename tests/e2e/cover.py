"""Which combinations of parameters `make test` runs.

A test of three MPIs and six faults is eighteen tests. With `--cover` a few of them run, chosen so that
each value of each parameter occurs; `make soak` runs all. A file with the mark `any_mpi` is about the
network rather than the MPI: each of its tests that has no other parameter runs with one MPI (`any_mpi(2)`:
with two), the next test with the next one.
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


def parameters(item):
    return getattr(getattr(item, "callspec", None), "params", {})


def tables(items, wanted):
    """The combinations of each test whose parameters are `wanted`."""
    found = {}
    for item in items:
        if wanted(parameters(item)):
            found.setdefault((item.fspath, item.originalname), []).append(item)
    return found


def by_turns(items):
    """Of the tests of files with the mark `any_mpi`, those that are left out."""
    turns, left = {}, set()
    for (path, _), table in tables(items, lambda params: {*params} == {"mpi"}).items():
        if mark := table[0].get_closest_marker("any_mpi"):
            count = mark.args[0] if mark.args else 1
            first = turns[path] = turns.get(path, -1) + 1
            left |= {*table} - {table[(first + n) % len(table)] for n in range(count)}
    return left


def split(items):
    """The tests that run, and those that are left to `make soak`, each in their order."""
    left = by_turns(items)
    for table in tables(items, lambda params: len(params) > 1).values():
        if len(table) >= FEW:
            left |= set(table) - set(cover(table))
    return [i for i in items if i not in left], [i for i in items if i in left]
