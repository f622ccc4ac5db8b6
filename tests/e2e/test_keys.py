"""Jobs with a key, on all kinds of rails, and ranks whose keys differ."""

import re
import shlex
import subprocess

import lab as labs
import pytest
from test_faults import assert_right

KEYS = ("00112233445566778899aabbccddeeff" * 2, "10112233445566778899aabbccddeeff" * 2)


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's rails")


@pytest.mark.parametrize("level", ["on", "payload", "encrypt"])
@pytest.mark.parametrize("rails", ["tcp:rail0,tcp:rail1", "rail0,tcp:rail1", "rail0,rail1", "shm", ""])
def test_a_key_carries_a_job(lab, stress, mpich, rails, level, tmp_path):
    env = {"FI_MARLINE_AUTH": level, "FI_MARLINE_STATS_DIR": tmp_path}
    env.update({"FI_MARLINE_RAILS": rails} if rails else {})
    program = stress(mpich, "--iterations", 1, "--max-size", 1 << 20)
    options = ["--no-shm"] + (["--ppn", "4"] if rails == "shm" else [])
    result = lab.run(mpich, program, n=4, env=env, options=options, timeout=120)
    assert_right(result)
    told = labs.counters(tmp_path)
    assert told["forged"] == 0
    # Encrypted payloads travel in packets alone.
    assert (told["written"] > 0) == (level != "encrypt"), told


@pytest.mark.parametrize("rails", ["rail0,rail1", "tcp:rail0,tcp:rail1"])
def test_damaged_payloads_are_found_behind_encryption(wire_lab, stress, mpi, rails, tmp_path):
    for rail in (0, 1):
        wire_lab.fault(rail, "corrupt=0.5%")
    env = {"FI_MARLINE_AUTH": "encrypt", "FI_MARLINE_RAILS": rails, "FI_MARLINE_STATS_DIR": tmp_path}
    program = stress(mpi, "--iterations", 1, "--max-size", 1 << 20)
    result = wire_lab.run(mpi, program, n=2, env=env, options=["--no-shm"], timeout=120)
    assert_right(result)
    assert wire_lab.hits("corrupt") > 0
    told = labs.counters(tmp_path)
    assert told["corrupt_payloads"] + told["corrupt_heads"] + told["forged"] > 0, told
    assert rails.startswith("tcp") or told["forged"] == 0, told


# Says how long the key of a rank is, and whether any process of the machine shows it in its command
# line.
SHOW = """printenv FI_MARLINE_KEY | grep -qsFf - /proc/[0-9]*/cmdline && echo shown
echo key of ${#FI_MARLINE_KEY} $(printenv FI_MARLINE_KEY | cksum)"""


@pytest.mark.parametrize("name", ["mpich", "openmpi", "openmpi4"])
@pytest.mark.parametrize("auth", ["", "off"])
def test_every_job_has_a_key_of_its_own(lab, name, auth):
    """On all hosts, and in no command line; unless it is switched off."""
    env, mpi = {"FI_MARLINE_AUTH": auth} if auth else {}, labs.MPIS[name]
    results = [lab.run(mpi, ["sh", "-c", SHOW], n=2, env=env) for _ in range(2)]
    keys = [re.findall(r"^key of (\d+) (\d+)", result.out, re.MULTILINE) for result in results]
    assert all(len(key) == 2 and key[0] == key[1] for key in keys), results[0].tail()
    assert not any(result.find("^shown") for result in results), results[0].tail()
    (length, first), (_, second) = (key[0] for key in keys)
    assert (length, first == second) == (("0", True) if auth else ("64", False)), keys


def test_a_job_script_makes_a_key_and_ranks_do_not(mpich):
    """As under Slurm's plug-in, where each rank evaluates `marline env`."""
    words = [labs.MARLINE, "env", "--provider-dir", labs.PROVIDER_DIR, "--mpi", mpich.mpiexec]
    def keys(**env):
        done = subprocess.run(list(map(str, words)), env=labs.clean_env(env), capture_output=True,
                              text=True, check=True)
        return re.findall("^FI_MARLINE_KEY=(.*)$", done.stdout, re.MULTILINE)
    assert [len(key) for key in keys()] == [64]
    given = {"FI_MARLINE_KEY": KEYS[0]}
    assert keys(PMI_RANK="1") == keys(SLURM_STEP_ID="0") == keys(**given) == []


# What the ranks 0 and 1 are given, and the words of each about the other.
OFF = "export FI_MARLINE_AUTH=off"
DIFFERENCES = {
    "one without": (f"export FI_MARLINE_KEY={KEYS[0]}", OFF,
                    "FI_MARLINE_AUTH is off there and on here",
                    "FI_MARLINE_AUTH is on there and off here"),
    "two levels": (f"export FI_MARLINE_KEY={KEYS[0]}",
                   f"export FI_MARLINE_KEY={KEYS[0]} FI_MARLINE_AUTH=payload",
                   "is not the one of this process", "is not the one of this process"),
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
