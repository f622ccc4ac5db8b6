"""Multicast in jobs with a key: broadcasts are right in spite of loss and damage, and of a host that
joins the group, sends in a member's name and replays what it heard (tests/strangers)."""

import contextlib
import re
import time

import pytest

import lab as labs
from test_multicast import Filter, assert_alike, assert_right, wait_until_multicast
from test_strangers import STRANGER, numbers, with_key

HOSTS = 4
# The last host is outside of the attacked job.
MEMBERS, OTHER, OTHERS_ADDRESS = 3, "h3", "10.100.0.4"


@pytest.fixture(scope="module")
def four(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's groups")
    assert STRANGER.exists(), "the stranger's toolbox is missing: run `make eager`"
    with labs.Lab(f"k{labs.os.getpid()}", hosts=HOSTS, options=["--no-offload"]) as lab:
        yield lab


@pytest.fixture(autouse=True)
def no_faults(four):
    yield
    four.clear()


@pytest.fixture(params=["mpich", "openmpi"])
def mpi(request):
    return labs.MPIS[request.param]


@pytest.mark.parametrize("fault, level", [("drop=1%", "on"), ("corrupt=0.5%", "on"),
                                          ("corrupt=0.5%", "encrypt")])
@pytest.mark.parametrize("program", ["bcast", "alike"])
def test_multicast_with_a_key_though_packets_are_lost_or_damaged(four, mpi, program, fault, level,
                                                                 tmp_path):
    """Damage is never taken for forgery."""
    for rail in (0, 1):
        four.fault(rail, fault)
    env = {**with_key(), "FI_MARLINE_AUTH": level, "FI_MARLINE_STATS_DIR": tmp_path}
    with Filter(four) as filtered:
        result = four.run(mpi, [mpi.program(program), "--count", 60], n=HOSTS, env=env,
                          options=["--multicast"], timeout=120)
        (sent, _), _, _ = filtered.counts("h1")
    (assert_right if program == "bcast" else assert_alike)(result)
    assert sent > 20 and four.hits() > 10, (sent, four.status())
    told = labs.counters(tmp_path)
    assert told["forged"] == 0, told
    assert "corrupt" not in fault or told["corrupt_heads"] > 0, told


def group_of(lab):
    """Address and port of the group that a host of the job has joined by its first rail."""
    shown = lab.exec("h0", "ss", "-Huanl").stdout
    groups = set(re.findall(r"\s(239\.[\d.]+)(?:%rail0)?:(\d+)\s", shown))
    assert groups, shown
    address, port = sorted(groups)[0]
    return f"{address}:{port}"


@contextlib.contextmanager
def attacked(lab, mpi, folder, env):
    """A job that multicasts until it is told to end, and a recording of its group's packets by a
    host that has joined the group."""
    (folder / "stats").mkdir()
    enough, recording = folder / "enough", folder / "recording"
    program = [mpi.program("bcast"), "--count", 20, "--until", enough]
    env = {"FI_MARLINE_STATS_DIR": folder / "stats", **env}
    with Filter(lab, hosts=MEMBERS) as filtered:
        job = lab.start(mpi, program, n=MEMBERS, env=env, options=["--multicast"])
        try:
            wait_until_multicast(filtered, job, 50)
            told = stranger(lab, "group-join", f"to={group_of(lab)}", f"into={recording}", "count=60")
            assert told["received"] == 60, (told, job.output())
            yield job, filtered, recording
            enough.touch()
            job.result = job.wait(60)
        finally:
            if job.running():
                job.kill()


def stranger(lab, *words):
    done = lab.exec(OTHER, STRANGER, *words, f"from={OTHERS_ADDRESS}")
    assert done.returncode == 0, (words, done.stderr)
    return numbers(done.stdout)


def grows(folder, name, before, more, job):
    end = time.monotonic() + 30
    while (now := labs.counters(folder / "stats")[name]) < before + more:
        assert job.running() and time.monotonic() < end, (name, before, more, now, job.output())
        time.sleep(0.05)


def test_a_group_with_a_key_obeys_no_stranger(four, mpi, tmp_path):
    """Packets in a member's name and replayed ones: counted, and nothing else happens."""
    with attacked(four, mpi, tmp_path, with_key()) as (job, filtered, recording):
        for attack, counter in (("group-forge", "forged"), ("replay", "replayed")):
            before = labs.counters(tmp_path / "stats")[counter]
            sent = stranger(four, attack, f"recording={recording}", "count=60")["sent"]
            grows(tmp_path, counter, before, sent // 2, job)
        wait_until_multicast(filtered, job, filtered.counts("h0")[0][0] + 50)
    assert_right(job.result)
    assert job.result.find("PEER DEAD") is None, job.result.tail()
