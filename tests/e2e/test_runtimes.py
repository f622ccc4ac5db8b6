"""Each rank in a container of rootless podman or of systemd-nspawn on the hosts of a lab, with the
host's network: right bytes, and the right verdict."""

import os
import shlex
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

import lab as labs

pytestmark = pytest.mark.packages
RING = ("--phases", "ring", "--iterations", 2, "--max-size", 300000)
NOBODY = 65534
SEEN = ("/usr", "/etc/hosts", labs.ROOT, labs.MPI_DIR.resolve(), labs.PROVIDER_DIR.resolve(), labs.PROGRAMS.resolve())
# Limits of their own need CAP_SYS_RESOURCE, which a container around the tests may lack.
SETTINGS = "[containers]\ndefault_ulimits = []\n"
# In a mount namespace of its own: crun refuses hosts that have both versions of cgroups, nspawn
# such as have none, like those of a lab.
UNIFIED = """#!/bin/sh
[ -n "$apart" ] || apart=1 exec unshare --mount "$0"
mount -t cgroup2 none /sys/fs/cgroup
unset apart
"""
PODMAN = UNIFIED + """
exec setpriv --reuid={nobody} --regid={nobody} --clear-groups --inh-caps=-all \\
    env HOME={place}/home XDG_RUNTIME_DIR={place}/run CONTAINERS_CONF={place}/containers.conf \\
    podman run --rm --cgroups=disabled --network=host --no-hosts --env-host --read-only --cap-drop=all \\
    {binds} --rootfs {place}/root {program}
"""
# A container of nspawn inherits no variables; what launchers and Marline set is named one by one.
NSPAWN = UNIFIED + """
for name in $(env | sed -n 's/^\\(\\(PMI\\|MPI\\|MPIR\\|FI\\|MARLINE\\|LD\\)_[A-Z0-9_]*\\)=.*/\\1/p'); do
    set -- "$@" "--setenv=$name"
done
exec systemd-nspawn --quiet --register=no --keep-unit --machine=rank$$ --directory={place}/root --read-only \\
    --drop-capability=CAP_NET_RAW --pipe "$@" {binds} {program}
"""


@pytest.fixture
def place():
    """A directory that another user reaches, with an empty root for containers."""
    place = Path(tempfile.mkdtemp(prefix="marline-rank"))
    place.chmod(0o755)
    root = place / "root"
    for name in ("usr", "etc", "dev", "proc", "sys", "tmp", "run", "var"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / name).symlink_to(f"usr/{name}")
    shutil.copy("/usr/lib/os-release", root / "etc")
    for name in ("etc/hosts", "etc/hostname", "etc/resolv.conf", "run/.containerenv"):
        (root / name).touch()
    (root / "etc/mtab").symlink_to("/proc/mounts")
    for name in ("home", "run", "seen"):
        (place / name).mkdir(mode=0o700)
    for seen in [*SEEN, place / "seen"]:
        if Path(seen).is_dir():
            (root / str(seen).lstrip("/")).mkdir(parents=True, exist_ok=True)
    (place / "containers.conf").write_text(SETTINGS)
    for name in [place / "home", place / "run", place / "seen", root, *root.rglob("*")]:
        os.chown(name, NOBODY, NOBODY, follow_symlinks=False)
    yield place
    # Podman keeps a process that holds its user's name spaces.
    held = place / "run/libpod/tmp/pause.pid"
    if held.exists():
        os.kill(int(held.read_text()), signal.SIGKILL)
    shutil.rmtree(place)


def contained(place, kind, program):
    """The command line of a rank in a container."""
    if kind == "podman":
        text, option = PODMAN, "--volume={0}:{0}:ro"
    else:
        text, option = NSPAWN, "--bind-ro={0}"
    binds = [option.format(seen) for seen in SEEN]
    seen = place / "seen"
    binds.append(f"--volume={seen}:{seen}" if kind == "podman" else f"--bind={seen}")
    script = place / "rank"
    words = {"binds": shlex.join(binds), "program": shlex.join(map(str, program))}
    script.write_text(text.format(nobody=NOBODY, place=place, **words))
    script.chmod(0o755)
    return [script]


# An option of MPICH's mpiexec: its ranks reach it by a port, as a container inherits no descriptor.
LAUNCHER = "-pmi-port"


@pytest.mark.parametrize("kind", ["podman", "nspawn"])
def test_each_rank_in_a_container(lab, place, stress, mpich, kind):
    """A container apart from its host and from the others in everything but the network. Statistics
    pass by a directory that is bound into all of them."""
    env = {"FI_MARLINE_STATS_DIR": place / "seen"}
    program = [LAUNCHER, *contained(place, kind, stress(mpich, *RING))]
    result = lab.run(mpich, program, n=4, env=env, options=["--no-shm", "--require"])
    assert result.ok and result.find("^stress ok"), result.tail()
    assert result.find("^\0?Marline: 4 processes sent .* over 2 rails"), result.tail()


APART = "exec 2>&1; id -u; ls /proc | grep -c '^[0-9]'; grep CapEff /proc/self/status; touch /x || echo read-only; ls /dev/shm"


@pytest.mark.parametrize("kind", ["podman", "nspawn"])
def test_the_containers_are_apart(lab, place, kind, tmp_path):
    """Without this the test above would show nothing."""
    script = contained(place, kind, ["sh", "-c", APART])
    shared = Path("/dev/shm") / place.name
    shared.touch()
    try:
        done = lab.exec("h0", *script)
    finally:
        shared.unlink()
    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    lines = said.splitlines()
    assert lines[0] == "0" and int(lines[1]) < 8 and "read-only" in lines, said
    capabilities = int(next(line for line in lines if line.startswith("CapEff")).split()[1], 16)
    assert not capabilities >> 13 & 1 and (kind == "nspawn" or capabilities == 0), said
    assert place.name not in said, said
