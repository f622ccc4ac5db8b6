"""Packages, as installed on a machine without a compiler: deb, rpm, wheel and the source tarball.

Wheels contain the results of `make portable` (MARLINE_PORTABLE), the other packages those in the
directory of MARLINE_BIN."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import lab as labs
from test_demo import assert_story, demo

pytestmark = pytest.mark.packages
BUILT = labs.MARLINE.parent
PORTABLE = Path(os.environ.get(
    "MARLINE_PORTABLE", labs.TARGET / "portable" / f"{os.uname().machine}-unknown-linux-gnu" / "release"))
# Tools missing on users' machines.
COMPILERS = ("cc", "gcc", "git", "cargo", "rustc")


def run(*words, timeout=900, cwd=None, **env):
    """Runs a command without Marline's variables; returns both its outputs, raises if it fails."""
    clean = {n: v for n, v in labs.clean_env(env).items() if not n.startswith("MARLINE_")}
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, env=clean,
                          timeout=timeout, cwd=cwd)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def package(kind, out, built=BUILT):
    words = [kind, *([] if kind == "dist" else [built]), out]
    return Path(run(labs.ROOT / "scripts" / "package", *words).split()[-1])


def job(marline, mpiexec, stress, mpich):
    program = stress(mpich, "--phases", "ring", "--iterations", 2)
    return [marline, "run", "--no-shm", "--require", "--", mpiexec, "-n", 2, *program]


def carried(said):
    assert "stress ok" in said and re.search("^Marline: 2 processes sent", said, re.M), said


# An overlay over this machine's files, which confines installation and removal.
APART = """
set -e
mount -t tmpfs none {work}
mkdir {work}/upper {work}/work {work}/root
mount -t overlay -o lowerdir=/,upperdir={work}/upper,workdir={work}/work none {work}/root
mkdir -p {work}/root{mpi} {work}/root{programs} {work}/root{package}
mount --bind {mpi} {work}/root{mpi}
mount --bind {programs} {work}/root{programs}
mount --bind {package} {work}/root{package}
for d in dev proc sys; do mount --rbind /$d {work}/root/$d; done
for d in tmp run; do mount -t tmpfs none {work}/root/$d; done
mkdir -p {work}/root{package}
mount --bind {package} {work}/root{package}
exec chroot {work}/root sh -c "$1"
"""


def test_deb(stress, mpich, tmp_path):
    """Installed by apt, used for a job, purged: every file is as before."""
    work, out = tmp_path / "work", tmp_path / "out"
    work.mkdir()
    made = package("deb", out)
    # Excludes directories that other processes change, and dpkg's and apt's own files.
    files = r"find /usr /etc /opt /var \( -path /var/lib/dpkg -o -path /var/log -o -path /var/cache \
              -o -path /var/lib/apt -o -path /var/lib/containers -o -path /var/tmp \) -prune -o -print | sort"
    rm = "; ".join(f"rm -f /usr/bin/{name}" for name in COMPILERS)
    words = " ".join(f"'{word}'" for word in job("marline", f"{mpich.mpiexec}/bin/mpiexec", stress, mpich))
    script = f"""
        set -e
        cd /
        {rm}
        {files} >/tmp/before
        apt-get install -y -qq --no-install-recommends {made} >/tmp/said 2>&1 || {{ cat /tmp/said; exit 1; }}
        which marline
        marline --version
        {files} | comm -13 /tmp/before - | head -3
        {words}
        apt-get purge -y -qq marline >/tmp/said 2>&1 || {{ cat /tmp/said; exit 1; }}
        {files} | diff /tmp/before - && echo nothing is left
    """
    apart = APART.format(work=work, mpi=labs.MPI_DIR, programs=labs.PROGRAMS, package=out)
    said = run("unshare", "-m", "sh", "-c", apart, "sh", script, PATH="/usr/sbin:/usr/bin:/sbin:/bin",
               FI_MARLINE_RAILS="lo", DEBIAN_FRONTEND="noninteractive")
    assert "/usr/bin/marline" in said.split(), said
    carried(said)
    assert "nothing is left" in said, said


def test_rpm(stress, mpich, tmp_path):
    """Installed into an empty root: only the package's files are there, and they are removed."""
    made, root = package("rpm", tmp_path), tmp_path / "root"
    rpm = ["rpm", "--root", root, "--define", "_dbpath /var/lib/rpm"]
    run(*rpm, "--initdb")
    # The root has no glibc.
    run(*rpm, "-i", "--nodeps", "--ignorearch", made)
    assert run(*rpm, "-V", "--nodeps", "marline") == ""
    carried(run(*job(root / "usr/bin/marline", f"{mpich.mpiexec}/bin/mpiexec", stress, mpich), FI_MARLINE_RAILS="lo"))
    assert (root / "usr/share/man/man1/marline-run.1").is_file()
    run(*rpm, "-e", "marline")
    left = [p for p in root.rglob("*") if p.is_file() and not p.is_relative_to(root / "var/lib/rpm")]
    assert not left and not (root / "usr/lib/marline").exists(), left


def pin(name):
    return (labs.ROOT / "scripts" / "requirements" / f"{name}.txt").read_text().split()


def test_wheel(stress, mpich, tmp_path):
    """`pip install marline mpich` in a fresh environment, and a job with that MPICH."""
    assert PORTABLE.is_dir(), f"{PORTABLE} is missing: run `make portable`"
    made = package("wheel", tmp_path, PORTABLE)
    run("/usr/bin/python3", "-m", "venv", tmp_path / "venv")
    bin = tmp_path / "venv" / "bin"
    run(bin / "pip", "install", "-q", made, *pin("mpich"))
    path = f"{bin}:/usr/bin:/bin"
    assert " (wire " in run(bin / "marline", "--version")
    carried(run(*job(bin / "marline", "mpiexec", stress, mpich), FI_MARLINE_RAILS="lo", PATH=path))
    # Without a compiler: a PATH that has only the tools of the lab beside the environment.
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "bash", "env", "ip", "tc", "nft", "ethtool", "unshare", "nsenter", "sed", "uname", "cat"):
        (tools / name).symlink_to(shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin"))
    assert_story(demo(bin / "marline", PATH=f"{bin}:{tools}"))
    before = set((tmp_path / "venv").rglob("*"))
    run(bin / "pip", "uninstall", "-q", "-y", "marline")
    gone = before - set((tmp_path / "venv").rglob("*"))
    assert bin / "marline" in gone and not list((tmp_path / "venv").rglob("*libmarline*"))


def test_the_portable_build_needs_an_old_glibc_alone(tmp_path):
    """auditwheel, by its own check of symbols, gives the wheel the same name."""
    assert PORTABLE.is_dir(), f"{PORTABLE} is missing: run `make portable`"
    made = package("wheel", tmp_path, PORTABLE)
    glibc = re.search(r"manylinux_2_(\d+)_", made.name)
    assert glibc and int(glibc[1]) <= 28, made.name
    tools = labs.MPI_DIR / "wheel" / "bin"
    said = run(tools / "auditwheel", "show", made, PATH=f"{tools}:{os.environ['PATH']}")
    words = " ".join(said.split())
    tag = re.search(r'is consistent with the following platform tag: "manylinux_2_(\d+)_', words)
    assert tag and int(tag[1]) <= 28, said
    loaded = set(re.findall(r"(lib\w+)\.so", words))
    assert loaded <= {"libc", "libm", "libdl", "libpthread", "librt"}, said


def test_tarball_builds_offline(tmp_path):
    """With an empty cargo home and without a git repository: everything in the packages compiles,
    and the command reports its commit."""
    made = package("dist", tmp_path)
    run("tar", "-xf", made, "-C", tmp_path)
    [tree] = (p for p in tmp_path.iterdir() if p.is_dir())
    # Rustup's proxy finds the compiler by its home directory.
    home = os.environ.get("RUSTUP_HOME", Path.home() / ".rustup")
    env = {"CARGO_HOME": tmp_path / "home", "RUSTUP_HOME": home, "CARGO_TARGET_DIR": tmp_path / "target"}
    shipped = [f"-pmarline-{name}" for name in ("cli", "provider", "mpi-shim", "collectives")]
    run("cargo", "check", "--offline", "--locked", *shipped, timeout=1200, cwd=tree, **env)
    commit = (tree / ".commit").read_text().strip()
    built = (tmp_path / "target").rglob("output")
    assert any(f"commit {commit[:12]})" in path.read_text(errors="replace") for path in built)
    licences = (tree / "THIRD-PARTY-LICENCES").read_text()
    assert re.search(r"^libc \d", licences, re.M) and "Permission is hereby granted" in licences
