"""A few end-to-end tests that failed beside others get one more run, and are named."""

import re
import subprocess
import sys

import pytest

import lab as labs

FAILS_ONCE = """
import pathlib
def test_first():
    mark = pathlib.Path(__file__).with_suffix(".mark")
    was, _ = mark.exists(), mark.touch()
    assert was
"""
FAILS = "def test_bad():\n    assert False, {why!r}\n"


def run(tmp_path, text, *options):
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    alone\n")
    (tmp_path / "test_it.py").write_text(text)
    command = [sys.executable, labs.ROOT / "scripts" / "e2e", "-c", tmp_path / "pytest.ini", *options, tmp_path]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_test_that_passes_alone_is_named(tmp_path):
    done = run(tmp_path, FAILS_ONCE)
    assert done.returncode == 0 and "second run, alone, passed: test_it::test_first" in done.stdout


def test_a_test_that_fails_twice_fails(tmp_path):
    done = run(tmp_path, FAILS.format(why="no end"))
    assert done.returncode == 1 and "second run, alone, failed: test_it::test_bad" in done.stdout


@pytest.mark.parametrize("why, count", [("12 wrong bytes", 1), ("no end", 4)], ids=["data", "many"])
def test_no_second_run(tmp_path, why, count):
    tests = (FAILS.format(why=why).replace("bad", f"bad{n}") for n in range(count))
    done = run(tmp_path, "".join(tests))
    assert done.returncode == 1 and "second run" not in done.stdout


def test_what_must_be_alone_runs_after_all_others(tmp_path):
    text = "import pytest\n@pytest.mark.alone\ndef test_a():\n    pass\ndef test_b():\n    pass\n"
    done = run(tmp_path, text, "-v")
    assert done.returncode == 0 and re.findall(r"::(test_\w)", done.stdout) == ["test_b", "test_a"]
