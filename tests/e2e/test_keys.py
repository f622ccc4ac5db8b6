"""Jobs with a key, on all kinds of rails, and ranks whose keys differ."""

import shlex

import lab as labs
import pytest
from test_faults import assert_right

KEYS = ("00112233445566778899aabbccddeeff" * 2, "10112233445566778899aabbccddeeff" * 2)


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's rails")


@pytest.mark.parametrize("rails", ["tcp:rail0,tcp:rail1", "rail0,tcp:rail1", "rail0,rail1", ""])
def test_a_key_carries_a_job(lab, stress, mpich, rails, tmp_path):
    env = {"FI_MARLINE_AUTH": "on", "FI_MARLINE_STATS_DIR": tmp_path}
    env.update({"FI_MARLINE_RAILS": rails} if rails else {})
    program = stress(mpich, "--iterations", 1, "--max-size", 1 << 20)
    result = lab.run(mpich, program, n=4, env=env, options=["--no-shm"], timeout=120)
    assert_right(result)
    assert labs.counters(tmp_path)["forged"] == 0


# What the ranks 0 and 1 are given, and the words of each about the other.
OFF = "export FI_MARLINE_AUTH=off"
DIFFERENCES = {
    "one without": (f"export FI_MARLINE_KEY={KEYS[0]}", OFF,
                    "FI_MARLINE_AUTH is off there and on here",
                    "FI_MARLINE_AUTH is on there and off here"),
    "two keys": (f"export FI_MARLINE_KEY={KEYS[0]}", f"export FI_MARLINE_KEY={KEYS[1]}",
                 "is not the one of this process", "is not the one of this process"),
}


@pytest.mark.parametrize("rails", ["rail0", "tcp:rail0", "shm"])
@pytest.mark.parametrize("case", DIFFERENCES)
def test_differing_keys_end_a_job(lab, stress, mpich, rails, case):
    """A rank names the difference, and the job ends, long before a peer timeout. (The launcher may end
    the other rank before that has found the difference.)"""
    first, second, here, there = DIFFERENCES[case]
    program = " ".join(shlex.quote(str(word)) for word in stress(mpich, "--iterations", 1))
    script = f"if [ $PMI_RANK = 0 ]; then {first}; else {second}; fi; exec {program}"
    options = ["--no-shm"] + (["--ppn", "2"] if rails == "shm" else [])
    env = {"FI_MARLINE_RAILS": rails, "FI_MARLINE_PEER_TIMEOUT_MS": 120_000}
    result = lab.run(mpich, ["sh", "-c", script], n=2, env=env, options=options, timeout=60)
    assert not result.timed_out and result.code != 0, result.tail()
    assert result.find(here) or result.find(there), result.tail()
    for key in KEYS:
        assert key not in result.out, "a key is never shown"
