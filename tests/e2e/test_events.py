"""Events: `marline run` and `marline events` name the outage that the lab makes."""

import json
import re
import time

import pytest

from lab import events
from schemas import assert_conforms
from test_faults import REPORT, assert_right, under_way

pytestmark = pytest.mark.any_mpi


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's events")


def job_with_fault(lab, stress, mpi, folder, target, *fault):
    """A job with a fault of a second in its middle; returns the reports during the fault, and the
    job's result."""
    env = {"FI_MARLINE_STATS_DIR": folder}
    with under_way(lab, stress, mpi, "marline", 4, env=env) as job:
        lab.fault(target, *fault)
        began, told = time.monotonic(), ""
        while time.monotonic() < began + 1 or "is down" not in told:
            assert job.running(), job.output()
            assert time.monotonic() < began + 30, told
            time.sleep(0.05)  # the duration of the outage, not a wait
            told = events(folder)
        lab.clear()
    assert_right(job.result)
    return told, job.result


LINE = r"^Marline:\s+rail1\s+%s\s+down\s+\d\d:\d\d:\d\d\s+to\s+\d\d:\d\d:\d\d,\s+\d+\s+packets?\s+moved"


def test_a_link_that_goes_down_is_named_with_its_host(lab, stress, mpi, tmp_path):
    told, result = job_with_fault(lab, stress, mpi, tmp_path, "h1:1", "down")
    # While the job runs, the rail's own host reports it.
    assert re.search(r" on \S*h1: rail rail1 is down: ", told), told
    assert result.find(LINE % r"on \S*h1"), result.tail()
    assert not result.find(r"^Marline: rail0 on "), result.tail()
    # Reported once at warning level, by the first process of the host.
    assert len(re.findall(r"rail rail1 is lost", result.out)) <= 4, result.tail()
    # And after the job, as text and JSON.
    assert re.search(r" on \S*h1: rail rail1 is up again", events(tmp_path)), events(tmp_path)
    jobs = assert_conforms("events", events(tmp_path, "--json"))["jobs"]
    assert len(jobs) == 1
    kinds = {(event["kind"], event["host"][-2:], event["rail"]) for event in jobs[0]["events"]}
    assert ("rail-down", "h1", "rail1") in kinds and ("rail-up", "h1", "rail1") in kinds, kinds
    assert ("path-down", "h1", "rail1") in kinds, kinds
    assert not any(kind == "rail-down" and rail == "rail0" for kind, _, rail in kinds), kinds


def test_a_link_that_falls_silent_is_named_between_its_hosts(lab, stress, mpich, tmp_path):
    told, result = job_with_fault(lab, stress, mpich, tmp_path, 1, "blackhole")
    assert "path rail1 to rail1 of rank " in told, told
    assert result.find(LINE % r"between \S*h0\s+and\s+\S*h1"), result.tail()
    assert not result.find(r"^Marline: rail0 "), result.tail()
    downs = [event for event in json.loads(events(tmp_path, "--json"))["jobs"][0]["events"]
             if event["kind"] == "path-down"]
    assert downs and all(event["rail"] == "rail1" for event in downs), downs
    assert {event["peer"]["rail"] for event in downs} == {"rail1"}, downs


def test_a_job_without_faults_has_no_outage(lab, stress, mpich, tmp_path):
    env = {"FI_MARLINE_STATS_DIR": tmp_path}
    result = lab.run(mpich, stress(mpich, "--iterations", 1, "--max-size", 65536), env=env)
    assert result.ok, result.tail()
    assert not result.find(r"^Marline: rail\d (on|between) \S*h\d"), result.tail()


def test_a_dead_peer_is_an_event(lab, stress, mpich, tmp_path):
    env = {"FI_MARLINE_STATS_DIR": tmp_path, "FI_MARLINE_PEER_TIMEOUT_MS": 2000}
    job = lab.start(mpich, stress(mpich, "--continue", 60, "--report", 0.3), env=env)
    assert job.wait_for(REPORT, 30), job.output()
    lab.fault(0, "blackhole")
    lab.fault(1, "blackhole")
    job.wait(60)
    lab.clear()
    assert "is dead" in events(tmp_path), events(tmp_path)
