"""Bad input: strangers at the ports, wrong settings, no such interface, several jobs, many ranks."""

import re
import sys

import pytest

import lab as labs

SENDER = labs.ROOT / "tests" / "e2e" / "noise.py"


def udp_ports(lab, host):
    """UDP ports with a socket on a rail address of that host."""
    text = lab.exec(host, "ss", "-Huan").stdout
    return sorted({int(p) for p in re.findall(r"\s\S+:(\d+)\s+\S+:\S+", text) if int(p) > 1023})


def test_random_and_truncated_datagrams(lab, mpi, provider):
    program = [mpi.program("stress"), "--continue", 8, "--max-size", 1 << 20, "--report", 0.3]
    job = lab.start(mpi, program, provider=provider)
    assert job.wait_for("^stress t=", 30), job.output()
    ports = udp_ports(lab, "h1") if provider == "marline" else [4000]
    assert ports, "no UDP socket on h1"
    noise = lab.exec("h0", sys.executable, SENDER, "10.100.0.2", "3", "7", *ports)
    assert noise.returncode == 0, noise.stderr
    result = job.wait(90)
    assert result.ok and result.find("^stress ok"), result.tail()


def test_replayed_and_altered_real_datagrams(lab, mpi, provider):
    """What a neighbour on the network could do: datagrams of this job again, with bytes changed."""
    program = [mpi.program("stress"), "--continue", 8, "--max-size", 1 << 20, "--report", 0.3]
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
    "no-such-interface": ("FI_MARLINE_RAILS", "rail0,nosuch7", "nosuch7"),
    "checksum": ("FI_MARLINE_CHECKSUM", "md4", "(?i)checksum"),
    "reliability": ("FI_MARLINE_RELIABILITY", "perhaps", "(?i)reliability"),
}


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_bad_settings_are_refused_by_name(lab, mpich, provider, case):
    if provider != "marline":
        return
    name, value, told = BAD_SETTINGS[case]
    result = lab.run(mpich, [mpich.program("stress"), "--phases", "ring"], env={name: value})
    assert not result.ok and not result.timed_out, result.tail()
    assert result.find(told), result.tail()


def test_two_jobs_at_once(lab, mpi, mpich, provider):
    """Both on the same hosts, rails and addresses."""
    def program(which, seed):
        return [which.program("stress"), "--continue", 4, "--max-size", 1 << 20, "--seed", seed]

    jobs = [lab.start(m, program(m, s), provider=provider) for m, s in ((mpi, 1), (mpich, 2))]
    for job in jobs:
        result = job.wait(90)
        assert result.ok and result.find("^stress ok"), result.tail()


def test_four_times_more_ranks_than_cores(lab, mpi, provider):
    import os

    ranks = 4 * os.cpu_count()
    program = [mpi.program("stress"), "--max-size", 20000, "--window", 100]
    result = lab.run(mpi, program, n=ranks, provider=provider, timeout=240, options=["--no-shm"])
    assert result.ok and result.find(rf"^stress ok .*ranks={ranks}"), result.tail()


def test_one_rail_only_and_ipv6(mpich, provider):
    import os

    with labs.Lab(f"t{os.getpid()}-v6", rails=1, options=["--ipv6"]) as lab:
        program = [mpich.program("stress"), "--max-size", 1 << 20]
        result = lab.run(mpich, program, provider=provider)
        assert result.ok and result.find("^stress ok"), result.tail()
