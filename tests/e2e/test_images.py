"""The container image, built by podman from its Containerfile and the deb, and the manifest for
Kubernetes."""

import re
import shutil
import subprocess

import pytest

import lab as labs
from test_packages import carried, package, run

pytestmark = pytest.mark.packages
RECIPES = labs.ROOT / "packaging" / "container"
BASE = "docker.io/library/debian:12-slim"
# Everything of podman stays below one directory, whose path is longer than podman takes for its state.
# crun needs cgroups of one version, and limits of its own would need CAP_SYS_RESOURCE.
APART = """
set -e
mount -t cgroup2 none /sys/fs/cgroup
mkdir -p {place}/run
mount --bind {place}/run /mnt
export CONTAINERS_CONF={place}/containers.conf
p() {{ podman --root={place}/storage --runroot=/mnt --cgroup-manager=cgroupfs "$@"; }}
{script}
"""


@pytest.fixture
def podman(tmp_path):
    """Runs shell lines that call `p`, podman with a storage of its own."""
    (tmp_path / "containers.conf").write_text("[containers]\ndefault_ulimits = []\n")

    def shell(script, timeout):
        text = APART.format(place=tmp_path, script=script)
        return run("unshare", "--mount", "bash", "-c", text, timeout=timeout)

    yield shell
    # A gigabyte that pytest would keep for its next three runs.
    for name in ("storage", "debian", "run"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)


def test_the_image_of_the_deb(podman, stress, mpich, tmp_path):
    """debootstrap's Debian takes the place of the registry's, from which nothing is fetched here. In
    the image a job runs with the MPI of the image."""
    package("deb", tmp_path / "deb")
    run("debootstrap", "--variant=minbase", "bookworm", tmp_path / "debian", timeout=1800)
    podman(f"tar -C {tmp_path}/debian -c . | p import - {BASE}", 600)
    # pip trusts what this machine trusts.
    (tmp_path / "pip.conf").write_text("[global]\ncert = /trusted.crt\n")
    trust = (f"--volume=/etc/ssl/certs/ca-certificates.crt:/trusted.crt:ro "
             f"--volume={tmp_path}/pip.conf:/etc/pip.conf:ro")
    podman(f"p build --network=host --isolation=chroot --pull=never {trust} -t marline "
           f"-f {RECIPES}/Containerfile {tmp_path}/deb", 1800)
    seen = f"--volume={labs.PROGRAMS.resolve()}:/programs:ro"
    program = stress(mpich, "--phases", "ring", "--iterations", 2)
    words = " ".join(map(str, ["/programs/mpich/stress", *program[1:]]))
    said = podman(f"p run --rm --cgroups=disabled --network=host -e FI_MARLINE_RAILS=lo -e LD_LIBRARY_PATH=/opt/mpi/lib {seen} marline "
                  f"marline run --no-shm --require -- mpiexec -n 2 {words}", 600)
    carried(said)
    said = podman("p run --rm --cgroups=disabled --network=none marline sh -c "
                  "'ssh-keygen -A && sshd -t && ssh -G worker && sshd -T'", 600)
    assert len(re.findall("^port 2222$", said, re.M)) == 2 and "strictmodes no" in said, said


CHECK = """
import sys, yaml, kubernetes_validate
job = yaml.safe_load(open(sys.argv[1]))
assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
for name, replica in job["spec"]["mpiReplicaSpecs"].items():
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name.lower()}, **replica["template"]}
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    print(name)
"""


def test_the_manifest_has_valid_pods():
    """By Kubernetes' schema, without fields that it does not know. (MPIJob itself is of the operator,
    whose schema is in no package.)"""
    python = labs.MPI_DIR / "recipes" / "bin" / "python"
    manifest = labs.ROOT / "packaging" / "kubernetes" / "mpijob.yaml"
    assert run(python, "-c", CHECK, manifest).split() == ["Launcher", "Worker"]


def test_a_wrong_field_of_a_pod_is_noticed(tmp_path):
    manifest = (labs.ROOT / "packaging" / "kubernetes" / "mpijob.yaml").read_text()
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(manifest.replace("hostNetwork:", "hostNetworks:"))
    python = labs.MPI_DIR / "recipes" / "bin" / "python"
    done = subprocess.run([python, "-c", CHECK, wrong], capture_output=True, text=True)
    assert done.returncode != 0 and "hostNetworks" in done.stderr, done.stderr
