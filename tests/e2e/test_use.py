"""Reports on whether Marline carried a job: the verdict of `marline run`, jobs of batch systems,
mistakes with launchers."""

import json
import os
import re
import signal
import subprocess

import pytest

import lab as labs

COLUMNS = 80
RING = ("--phases", "ring", "--iterations", 2, "--max-size", 100000)
ROOT = {f"{who}_ALLOW_RUN_AS_ROOT{word}": 1 for who in ("OMPI", "PRTE") for word in ("", "_CONFIRM")}


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline")


def run(*words, **options):
    return start(*words, **options).wait(60)


def start(mpi, options, words, env=None, launcher="mpiexec", before=()):
    """`marline run` after the words `before`, on this machine only."""
    command = [*before, labs.MARLINE, "run", "--provider-dir", labs.PROVIDER_DIR, *options, "--"]
    command += [f"{mpi.mpiexec}/bin/{launcher}", *words]
    env = labs.clean_env({**mpi.env, **ROOT, "FI_MARLINE_RAILS": "lo", **(env or {})})
    return labs.Running([str(word) for word in command], env)


def verdict(result):
    """The first line of the summary. (Open MPI's launcher may print a NUL before it.)"""
    return result.find("^\0?(Marline: .*)")[1]


@pytest.mark.parametrize("name", ["mpich", "intel"])
def test_shared_memory_of_the_mpi_is_no_success(stress, name):
    mpi = labs.MPIS[name]
    program = ["-n", 2, *stress(mpi, *RING)]
    result = run(mpi, [], program)
    assert result.ok, result.tail()
    assert verdict(result).startswith("Marline: NOT USED"), result.tail()
    assert "--no-shm" in result.out, result.tail()
    assert run(mpi, [], program, env={"MARLINE_REQUIRE": 1}).code == 125
    result = run(mpi, ["--no-shm", "--require"], program)
    assert result.ok and "sent" in verdict(result), result.tail()


def test_a_program_of_another_mpi_is_no_success(openmpi, mpich):
    """Each rank runs alone. (It may fail for that or not; Marline's verdict is the same.)"""
    result = run(openmpi, ["--require"], ["-n", 2, *map(str, [mpich.program("pingpong"), "--help"])])
    assert result.code != 0, result.tail()
    assert verdict(result).startswith("Marline: NOT USED"), result.tail()


@pytest.mark.parametrize("name, words", [
    ("mpich", ["-genv", "FI_PROVIDER", "tcp"]),
    ("openmpi", ["--mca", "pml", "ucx"]),
    ("openmpi", ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]),
    ("intel", ["-genv", "I_MPI_FABRICS", "shm"]),
])
def test_another_transport_is_refused(stress, name, words):
    mpi = labs.MPIS[name]
    result = run(mpi, [], ["-n", 2, *words, *stress(mpi, *RING)])
    assert result.code == 125 and " ".join(words[-3:]) in result.out, result.tail()
    assert not result.find("^stress ok"), result.tail()


@pytest.mark.parametrize("name, launcher", [("openmpi", "prterun"), ("intel", "mpirun")])
def test_other_launchers_of_an_mpi_work(stress, name, launcher):
    """Intel's mpirun is a script that searches PATH for mpiexec.hydra."""
    mpi = labs.MPIS[name]
    result = run(mpi, ["--no-shm", "--require"], ["-n", 2, *stress(mpi, *RING)], launcher=launcher)
    assert result.ok and result.find("^stress ok"), result.tail()


def test_a_healthy_run_in_a_few_lines(lab, stress, mpi):
    result = lab.run(mpi, stress(mpi, *RING))
    assert result.ok, result.tail()
    lines = result.out[result.out.index("Marline: "):].splitlines()
    assert re.fullmatch(r"Marline: 2 processes sent [\d.]+ .B over 2 rails in [\d.]+ s; .*", lines[0])
    assert max(map(len, lines)) <= COLUMNS, result.tail()
    assert result.rails()["rail0"]["packets_out"] > 0, result.tail()


@pytest.mark.parametrize("full", ["/dev/shm", "/dev/shm and /tmp", "the directory that is set"])
def test_no_room_for_statistics_is_reported(stress, openmpi, tmp_path, full):
    """File systems without room, in the job's own mount namespace: the job runs, and is not
    reported as having used another transport."""
    env = {"FI_MARLINE_STATS_DIR": tmp_path} if full.startswith("the") else {"TMPDIR": "/tmp"}
    places = [tmp_path] if full.startswith("the") else full.split(" and ")
    fill = "; ".join(f"mount -t tmpfs -o size=64k none {place} && head -c 1M /dev/zero >{place}/fill"
                     for place in places)
    result = run(openmpi, ["--no-shm", "--require"], ["-n", 2, *stress(openmpi, *RING)], env=env,
                 before=["unshare", "-m", "sh", "-c", f'{fill}; exec "$@"', "sh"])
    if full == "/dev/shm":
        assert result.ok and verdict(result).startswith("Marline: 2 processes sent"), result.tail()
        assert result.find(r"^marline: /dev/shm: No space left .*; statistics go to /tmp"), result.tail()
    elif full == "/dev/shm and /tmp":
        assert result.code == 125, result.tail()
        assert result.find("^marline: no place for statistics: /dev/shm: No space"), result.tail()
    else:
        assert result.code == 125 and result.find("^stress ok"), result.tail()
        assert verdict(result).startswith("Marline: UNKNOWN: "), result.tail()


@pytest.mark.parametrize("setting", ["CHECKSUM=none", "RELIABILITY=off"])
def test_disabled_protection_is_the_verdict(lab, stress, mpich, setting):
    name, value = setting.split("=")
    result = lab.run(mpich, stress(mpich, *RING), env={f"FI_MARLINE_{name}": value})
    assert verdict(result).startswith(f"Marline: UNPROTECTED: FI_MARLINE_{setting}"), result.tail()


@pytest.mark.parametrize("name", ["mpich", "openmpi"])
def test_a_dead_peer_is_the_verdict(lab, stress, name):
    """All rails blackholed: the job ends, and the summary names the dead peer."""
    mpi = labs.MPIS[name]
    program = stress(mpi, "--continue", 60, "--max-size", 100000, "--report", 0.3)
    job = lab.start(mpi, program, env={"FI_MARLINE_PEER_TIMEOUT_MS": 2000})
    assert job.wait_for("^stress t=", 30), job.output()
    for rail in (0, 1):
        lab.fault(rail, "blackhole")
    result = job.wait(60)
    assert not result.timed_out and result.code != 0, result.tail()
    assert lab.hits("blackhole") > 0
    assert verdict(result).startswith("Marline: PEER DEAD: "), result.tail()


def script_env(mpi, *options):
    """The settings that a job script evaluates."""
    words = [labs.MARLINE, "env", "--json", "--provider-dir", labs.PROVIDER_DIR, *options]
    done = subprocess.run([*map(str, words), "--mpi", mpi.mpiexec], env=labs.clean_env({}),
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def stats(*options, env=None):
    return subprocess.run([labs.MARLINE, "stats", *map(str, options)], capture_output=True, text=True,
                          env=labs.clean_env(env or {}))


def test_a_job_of_a_batch_system_has_a_summary(stress, mpich, tmp_path):
    """Started by another launcher with the variables of `marline env`, on hosts without common
    memory: rank 0 prints its own summary once; the directory has all ranks' statistics."""
    env = script_env(mpich, "--stats", tmp_path)
    env["FI_MARLINE_RAILS"] = "rail0,rail1"
    with labs.Lab(f"t{os.getpid()}-batch") as lab:
        for host in ("h0", "h1"):
            mount = lab.exec(host, "mount", "-t", "tmpfs", "none", "/dev/shm")
            assert mount.returncode == 0, mount.stderr
        result = lab.run(mpich, stress(mpich, *RING), n=4, provider="none", env=env)
        assert result.ok and result.find("^stress ok"), result.tail()
        told = re.findall("^Marline: .*", result.out, re.M)
        assert len(told) == 1 and told[0].startswith("Marline: rank 0 sent "), result.tail()
        assert result.rails()["rail0"]["packets_out"] > 0, result.tail()
    kept = stats("--require", env=env)
    assert kept.returncode == 0, kept.stdout + kept.stderr
    assert kept.stdout.startswith("Marline: 4 processes sent "), kept.stdout
    [job] = json.loads(stats("--json", env=env).stdout)["jobs"]
    assert job["processes"] == 4 and {page["host"] for page in job["pages"]} == {
        f"{lab.name}-h0", f"{lab.name}-h1"}, job
    assert "marline_rail_send_calls_total{" in stats("--prometheus", env=env).stdout


def test_jobs_in_one_directory_stay_apart(stress, mpi, tmp_path):
    """Two concurrent jobs, each with two processes; also with Open MPI 5, which opens two endpoints
    per process and sends by the second. The longer job is killed, and that is reported."""
    kept = {"FI_MARLINE_STATS_DIR": tmp_path}
    first = start(mpi, ["--no-shm"], ["-n", 2, *stress(mpi, "--continue", 60, "--report", 0.1)], kept)
    assert first.wait_for("^stress t=", 60), first.output()
    second = run(mpi, ["--no-shm"], ["-n", 2, *stress(mpi, *RING)], env=kept)
    assert second.ok and verdict(second).startswith("Marline: 2 processes sent"), second.tail()
    assert "MPI_Finalize" not in second.out, second.tail()
    for pid in first.descendants(r"^\S*/stress\b"):
        os.kill(pid, signal.SIGKILL)
    first = first.wait(60)
    assert first.code not in (0, None) and not first.timed_out, first.tail()
    assert first.find("^Marline: 2 processes sent"), first.tail()
    assert first.find(r"^Marline: rank 0 on \S+ and 1 more ended without MPI_Finalize"), first.tail()
    jobs = json.loads(stats("--json", tmp_path).stdout)["jobs"]
    assert [job["processes"] for job in jobs] == [2, 2], jobs
    assert [len(job["pages"]) for job in jobs] == [2, 2], jobs
    told = stats(tmp_path).stdout
    assert told.count("Marline: 2 processes sent") == 2 and "left no statistics" not in told, told
    assert told.count("ended without MPI_Finalize") == 1, told


def test_a_process_with_several_domains_counts_once(stress, mpich, tmp_path):
    """MPICH opens a domain for each of its interfaces, and Marline a page for each."""
    env = {"FI_MARLINE_STATS_DIR": tmp_path, "MPIR_CVAR_CH4_NUM_VCIS": 3}
    result = run(mpich, ["--no-shm"], ["-n", 2, *stress(mpich, *RING)], env=env)
    assert result.ok and verdict(result).startswith("Marline: 2 processes sent"), result.tail()
    [job] = json.loads(stats("--json", tmp_path).stdout)["jobs"]
    assert (job["processes"], job["processes_unused"]) == (2, 0) and len(job["pages"]) == 6, job


def test_a_job_of_a_batch_system_that_sent_nothing(stress, mpich, tmp_path):
    """Two ranks of one host in the MPI's shared memory: no message, but an exit status for
    scripts."""
    env = {**script_env(mpich, "--stats", tmp_path), "FI_MARLINE_RAILS": "lo"}
    words = [f"{mpich.mpiexec}/bin/mpiexec", "-n", "2", *map(str, stress(mpich, *RING))]
    result = labs.Running(words, labs.clean_env(env)).wait(60)
    assert result.ok and not result.find("^Marline: "), result.tail()
    kept = stats("--require", env=env)
    assert kept.returncode == 125, kept.stdout + kept.stderr
