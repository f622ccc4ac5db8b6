"""`make test` begins with a check of the room on each filesystem that it fills (scripts/check-space)."""

import os
import subprocess

import lab as labs

UNSHARE = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]


def check(tmp_path, then="true", **sizes):
    """Runs the script where each directory is a filesystem of its own, of 64 GiB or of the given
    size, which no other process sees."""
    places = {name: tmp_path / name for name in ("target", "mpi", "tmp")}
    places |= {"run": "/run", "shm": "/dev/shm"}
    lines = ["set -e"]
    for name, place in places.items():
        lines.append(f"mkdir -p {place}; mount -t tmpfs -o size={sizes.get(name, '64g')} none {place}")
    lines += [then, f"exec {labs.ROOT}/scripts/check-space {places['target']}/debug"]
    env = labs.clean_env({"MARLINE_MPI_DIR": str(places["mpi"]), "TMPDIR": str(places["tmp"])})
    return subprocess.run([*UNSHARE, "bash", "-c", "\n".join(lines)], capture_output=True, text=True, env=env)


def test_enough_room_is_no_word(tmp_path):
    done = check(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_each_place_without_room_is_named_with_what_is_free_and_needed(tmp_path):
    done = check(tmp_path, target="1g", shm="8m")
    assert done.returncode == 1
    lines = sorted(done.stderr.splitlines())
    assert len(lines) == 2, done.stderr
    assert lines[0] == "check-space: /dev/shm: 8 MiB free, 256 MiB needed"
    assert lines[1].startswith(f"check-space: {tmp_path}/target/debug: 1024 MiB free, "), done.stderr


def test_what_was_built_is_not_needed_again(tmp_path):
    """And directories of one filesystem share its room."""
    held = f"mkdir {tmp_path}/target/debug; fallocate -l 100M {tmp_path}/target/debug/built"
    needed = []
    for then in ("true", held, f"umount {tmp_path}/tmp; mount --bind {tmp_path}/target {tmp_path}/tmp"):
        done = check(tmp_path, then, target="1g")
        assert done.returncode == 1
        needed.append(int(done.stderr.split(" MiB needed")[0].split()[-1]))
    assert needed[1] == needed[0] - 100 and needed[2] > needed[0], needed
