"""The commands that README.md, the user guide and the page on tuning show do what they say.

A block marked "sh run" is run as it stands, in a shell at the root of the repository, with the
built `marline` and MPICH's `mpiexec` on PATH. Every other "sh" block has to be excused here.
"""

import os
import re
import subprocess

import pytest

import lab as labs

DOCUMENTS = ("README.md", "docs/user-guide.md", "docs/tuning.md")
BLOCK = re.compile(r"^```sh( run)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LIMIT_S = 120

# First line of a block that is not run, and why.
EXCUSED = {
    "make demo     # installs what is missing, builds, and tells the story in under three minutes":
        "minutes; it has a test of its own in its exit status",
    "make build": "builds for minutes; this test runs what it built",
    "make bench              # latency, bandwidth, message rate: ours and six peers, interleaved":
        "many minutes",
    "marline run -- mpiexec -n 4 -hosts node1,node2 ./app": "names of somebody's hosts and program",
}


def blocks():
    """(document, whether it is to be run, text) of every shell block."""
    for name in DOCUMENTS:
        for mark, text in BLOCK.findall((labs.ROOT / name).read_text()):
            yield name, bool(mark), text


def test_every_shell_block_is_run_or_excused():
    left = {text.splitlines()[0] for _, run, text in blocks() if not run}
    assert left == set(EXCUSED)


def test_plain_blocks_hold_no_commands():
    """Grammar and output stand in blocks without a language; commands must not hide there."""
    for name in DOCUMENTS:
        plain = re.sub(BLOCK, "", (labs.ROOT / name).read_text())
        hidden = re.findall(r"^```\w*\n((?:marline|cargo|make) [^A-Z\n]*)$", plain, re.MULTILINE)
        assert not hidden, f"{name}: mark as sh: {hidden}"


RUN = [pytest.param(text, id=f"{name}:{text.splitlines()[0]}") for name, run, text in blocks() if run]


@pytest.mark.parametrize("text", RUN)
def test_shown_commands_work(text, mpich):
    name = f"t{os.getpid()}-docs"
    path = [labs.MARLINE.parent, labs.Path(mpich.mpiexec) / "bin", os.environ["PATH"]]
    env = labs.clean_env({
        "PATH": ":".join(map(str, path)),
        "MARLINE_LAB": name,
        "MARLINE_PROVIDER_DIR": labs.PROVIDER_DIR,
    })
    # The MPIs may be elsewhere on this machine.
    text = text.replace(" .mpi/", f" {labs.MPI_DIR}/")
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text], cwd=labs.ROOT, env=env, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        labs.Lab(name).down()


@pytest.mark.parametrize("words", [
    [], ["run"], ["env"], ["lab"], ["lab", "up"], ["lab", "status"], ["lab", "exec"],
    ["lab", "run"], ["lab", "fault"], ["lab", "down"], ["tune"], ["model"], ["stats"], ["sim"],
], ids=" ".join)
def test_help_explains_every_option(words):
    done = subprocess.run([labs.MARLINE, *words, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Usage: marline" in done.stdout
    # An option whose line ends with its name explains nothing, nor does the line below it.
    lines = done.stdout.splitlines() + [""]
    for line, below in zip(lines, lines[1:]):
        bare = re.fullmatch(r" +(?:-\w, +)?--[\w-]+(?: <\w+>)?", line)
        assert not bare or below.startswith("          "), line
