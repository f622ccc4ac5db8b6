"""`make test` runs a part of large tables of parameters that has every value."""

import itertools
from types import SimpleNamespace

import cover

MPIS, FAULTS, SIZES = ("mpich", "openmpi", "intel"), ("drop", "corrupt", "down", None), (8, 4 << 20)


class Item:
    """A test as pytest collects it, as far as `cover` looks at it."""

    def __init__(self, name, mark=None, **params):
        self.fspath, self.originalname, self.mark = "test_it.py", name, mark
        if params:
            self.callspec = SimpleNamespace(params=params)

    def get_closest_marker(self, name):
        return SimpleNamespace(args=self.mark) if name == "any_mpi" and self.mark is not None else None


def table(name, mark=None, **columns):
    rows = itertools.product(*columns.values())
    return [Item(name, mark, **dict(zip(columns, row))) for row in rows]


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


def test_tests_about_the_network_take_mpis_by_turns():
    for mark, count in (((), 1), ((2,), 2)):
        items = [item for name in "abc" for item in table(f"test_{name}", mark, mpi=MPIS)]
        runs, _ = cover.split(items)
        for names in ("abc", MPIS):
            ran = [item.originalname[-1] if names == "abc" else item.callspec.params["mpi"] for item in runs]
            assert sorted(ran) == sorted(count * [*names])
