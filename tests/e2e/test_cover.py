"""`make test` runs a part of large tables of parameters that has every value."""

import itertools
from types import SimpleNamespace

import cover

MPIS, FAULTS, SIZES = ("mpich", "openmpi", "intel"), ("drop", "corrupt", "down", None), (8, 4 << 20)


class Item:
    """A test as pytest collects it, as far as `cover` looks at it."""

    def __init__(self, name, **params):
        self.fspath, self.originalname = "test_it.py", name
        if params:
            self.callspec = SimpleNamespace(params=params)


def table(name, **columns):
    rows = itertools.product(*columns.values())
    return [Item(name, **dict(zip(columns, row))) for row in rows]


def test_each_value_of_a_large_table_runs_and_little_else():
    items = table("test_a", mpi=MPIS, fault=FAULTS, size=SIZES)
    runs, left = cover.split(items)
    for name, all_values in (("mpi", MPIS), ("fault", FAULTS), ("size", SIZES)):
        assert {item.callspec.params[name] for item in runs} == set(all_values)
    assert len(runs) <= len(FAULTS) + 1 and len(runs) + len(left) == len(items)


def test_small_tables_lists_and_tests_without_parameters_run_whole():
    items = [*table("test_a", mpi=MPIS, rails=(1,)), *table("test_b", fault=FAULTS),
             Item("test_c")]
    assert cover.split(items) == (items, [])
