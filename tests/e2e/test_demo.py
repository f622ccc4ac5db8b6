"""`marline demo`, with short runs: the story from the command and an MPI alone."""

import re
import subprocess
from pathlib import Path

import lab as labs


def demo(marline, *words, **env):
    """Runs the demonstration; returns its output."""
    words = [str(word) for word in (marline, "demo", "--seconds", 2, *words)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=labs.clean_env(env))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_story(said):
    """Over TCP messages are wrong or the job does not end; over Marline all is right."""
    rows = dict(re.findall(r"^   (healthy network|drops and corrupts|a link is cut) +(.*)$", said, re.M))
    bad = "WRONG BYTES|STUCK|DEAD"
    assert re.match(r"RIGHT, \d+ MB/s +RIGHT, \d+ MB/s$", rows["healthy network"]), said
    assert re.match(rf"({bad}) +RIGHT, [1-9]\d* resent$", rows["drops and corrupts"]), said
    assert re.match(rf"({bad}) +RIGHT, [1-9]\d* failovers$", rows["a link is cut"]), said


def test_the_story_ends_well(mpich):
    said = demo(labs.MARLINE, "--mpi", mpich.mpiexec, "--provider-dir", labs.PROVIDER_DIR)
    assert_story(said)
    assert said.startswith("Two hosts, two links") and "rail0" in said and "CUT" in said, said
    # Nothing of its lab is left.
    base = Path("/run/marline-lab")
    assert not base.is_dir() or not list(base.glob("demo*")), list(base.iterdir())
