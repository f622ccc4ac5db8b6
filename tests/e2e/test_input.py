"""Bad input: foreign packets at the ports, invalid settings, missing interfaces, concurrent
jobs."""

import os
import re
import subprocess
import sys

import pytest

import lab as labs

pytestmark = pytest.mark.any_mpi

SENDER = labs.ROOT / "tests" / "e2e" / "noise.py"


def udp_ports(lab, host):
    """UDP ports with a socket on a rail address of that host."""
    text = lab.exec(host, "ss", "-Huan").stdout
    return sorted({int(p) for p in re.findall(r"\s\S+:(\d+)\s+\S+:\S+", text) if int(p) > 1023})


def test_random_and_truncated_datagrams(lab, stress, mpi, provider):
    program = stress(mpi, "--continue", 5, "--max-size", 1 << 20, "--report", 0.3)
    job = lab.start(mpi, program, provider=provider)
    assert job.wait_for("^stress t=", 30), job.output()
    ports = udp_ports(lab, "h1") if provider == "marline" else [4000]
    assert ports, "no UDP socket on h1"
    noise = lab.exec("h0", sys.executable, SENDER, "10.100.0.2", "3", "7", *ports)
    assert noise.returncode == 0, noise.stderr
    result = job.wait(90)
    assert result.ok and result.find("^stress ok"), result.tail()


def test_replayed_and_altered_real_datagrams(lab, stress, mpi, provider):
    """A neighbour on the network replays datagrams of this job with changed bytes."""
    program = stress(mpi, "--continue", 5, "--max-size", 1 << 20, "--report", 0.3)
    job = lab.start(mpi, program, provider=provider)
    assert job.wait_for("^stress t=", 30), job.output()
    noise = lab.exec("h1", sys.executable, SENDER, "--replay", "rail0", "3", "7")
    assert noise.returncode == 0, noise.stderr
    result = job.wait(90)
    assert result.ok and result.find("^stress ok"), result.tail()
    if provider == "marline":
        assert int(re.search(r"sent (\d+)", noise.stdout)[1]) > 10, noise.stdout


BAD_SETTINGS = {
    "unknown": ("FI_MARLINE_RIALS", "rail0", "FI_MARLINE_RIALS"),
    "no-such-interface": ("FI_MARLINE_RAILS", "rail0,nosuch7",
                          "FI_MARLINE_RAILS=rail0,nosuch7: .* matches nosuch7; there is lo .*rail1 [(]10"),
    "no-such-kind": ("FI_MARLINE_RAILS", "tpc:rail0", "there is no kind of rails tpc; there are udp, tcp, "),
    "checksum": ("FI_MARLINE_CHECKSUM", "md4", "(?i)checksum"),
    "reliability": ("FI_MARLINE_RELIABILITY", "perhaps", "(?i)reliability"),
    "contradiction": ("FI_MARLINE_TEST", "pto_floor_us=20000", "pto_cap_ms=10 .the default"),
}


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_bad_settings_are_refused_by_name(lab, stress, mpich, provider, case):
    if provider != "marline":
        return
    name, value, told = BAD_SETTINGS[case]
    result = lab.run(mpich, stress(mpich, "--phases", "ring"), env={name: value})
    assert not result.ok and not result.timed_out, result.tail()
    assert result.find(told), result.tail()


@pytest.mark.parametrize("name, value, told", [
    ("FI_MARLINE_RIALS", "eth0", "did you mean FI_MARLINE_RAILS"),
    ("FI_MARLINE_TICK_MS", "often", "FI_MARLINE_TICK_MS=.*cannot be used"),
])
def test_fi_info_warns_of_bad_settings(provider, name, value, told):
    """`fi_info`, by which users check a host's setup."""
    if provider != "marline":
        return
    env = labs.clean_env({"FI_PROVIDER_PATH": labs.PROVIDER_DIR, name: value})
    shown = subprocess.run(["fi_info", "-p", "marline"], env=env, capture_output=True, text=True)
    assert shown.returncode == 0 and "provider: marline" in shown.stdout, shown
    assert len(re.findall(told, shown.stdout + shown.stderr)) == 1, shown


def test_two_jobs_at_once(lab, stress, mpi, mpich, provider):
    """Both on the same hosts, rails and addresses."""
    def program(which, seed):
        return stress(which, "--continue", 4, "--max-size", 1 << 20, "--seed", seed)

    jobs = [lab.start(m, program(m, s), provider=provider) for m, s in ((mpi, 1), (mpich, 2))]
    for job in jobs:
        result = job.wait(90)
        assert result.ok and result.find("^stress ok"), result.tail()


def test_four_times_more_ranks_than_cores(lab, stress, mpi, provider):
    ranks = 4 * os.cpu_count()
    program = stress(mpi, "--max-size", 20000, "--window", 100)
    result = lab.run(mpi, program, n=ranks, provider=provider, timeout=240, options=["--no-shm"])
    assert result.ok and result.find(rf"^stress ok .*ranks={ranks}"), result.tail()


@pytest.fixture
def busy():
    """As many busy processes as there are cores."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
             for _ in range(os.cpu_count())]
    yield loops
    for loop in loops:
        loop.kill()
        loop.wait()


@pytest.mark.alone
def test_beside_busy_processes(lab, stress, mpi, provider, busy):
    """If a rank polls once per time slice, slow peers, rails and last messages must not be taken
    for dead. (Few failovers: every rail is read after a poll gap.)"""
    program = stress(mpi, "--max-size", 4 << 20)
    for _ in range(3):
        result = lab.run(mpi, program, provider=provider, timeout=120)
        assert result.ok and result.find("^stress ok"), result.tail()
        if provider == "marline":
            failovers = sum(rail["failovers"] for rail in result.rails().values())
            assert failovers <= 10, result.tail()
    assert all(loop.poll() is None for loop in busy), "no longer busy"


def test_one_rail_only_and_ipv6(stress, mpich, provider):
    with labs.Lab(f"t{os.getpid()}-v6", rails=1, options=["--ipv6"]) as lab:
        program = stress(mpich, "--max-size", 1 << 20)
        result = lab.run(mpich, program, provider=provider)
        assert result.ok and result.find("^stress ok"), result.tail()


def test_a_host_with_memory_of_its_own(stress, mpich, provider, tmp_path):
    """As on a cluster, where hosts share no /dev/shm: the job runs, and the summary reports what is
    missing and how to get it."""
    if provider != "marline":
        return
    with labs.Lab(f"t{os.getpid()}-shm") as lab:
        mount = lab.exec("h1", "mount", "-t", "tmpfs", "none", "/dev/shm")
        assert mount.returncode == 0, mount.stderr
        program = stress(mpich, "--phases", "ring", "--iterations", 2, "--max-size", 10000)
        result = lab.run(mpich, program)
        assert result.ok and result.find("^stress ok"), result.tail()
        assert result.find("^Marline: 1 of 2 processes left no statistics here"), result.tail()
        env = {"FI_MARLINE_STATS_DIR": tmp_path, "FI_MARLINE_CHECKSUM": "crc32c"}
        result = lab.run(mpich, program, env=env)
        assert result.ok and result.find("^Marline: 2 processes"), result.tail()
        assert not result.find("left no statistics"), result.tail()
        # During the job `marline stats` on that host shows its counters.
        job = lab.start(mpich, stress(mpich, "--continue", 8, "--report", 0.3))
        assert job.wait_for("^stress t=", 30), job.output()
        shown = lab.exec("h1", labs.MARLINE, "stats", "--raw")
        assert shown.returncode == 0, shown.stderr
        assert "/dev/shm/marline-" in shown.stdout and "\n  peer " in shown.stdout, shown.stdout
        result = job.wait(90)
        assert result.ok, result.tail()
    kept = subprocess.run([labs.MARLINE, "stats", "--raw", tmp_path], capture_output=True, text=True)
    assert kept.returncode == 0, kept.stderr
    peers = re.findall("^  peer .*", kept.stdout, re.M)
    assert len(peers) == 2 and all(", sums by crc32c:" in p for p in peers), kept.stdout


def test_a_lab_without_a_switch(stress, mpich, provider):
    """Two hosts joined by cables, for measurements; options that need a switch are refused."""
    with labs.Lab(f"t{os.getpid()}-direct", options=["--direct"]) as lab:
        program = stress(mpich, "--phases", "ring", "--iterations", 2, "--max-size", 100000)
        result = lab.run(mpich, program, provider=provider)
        assert result.ok and result.find("^stress ok"), result.tail()
        words = [labs.MARLINE, "lab", "fault", "--name", lab.name, "0", "drop=1%"]
        refused = subprocess.run(words, capture_output=True, text=True)
        assert refused.returncode != 0 and "without --direct" in refused.stderr, refused.stderr
    words = [labs.MARLINE, "lab", "up", "--name", "t-three", "--hosts", "3", "--direct"]
    refused = subprocess.run(words, capture_output=True, text=True)
    assert refused.returncode != 0 and "3 need a switch" in refused.stderr, refused.stderr
