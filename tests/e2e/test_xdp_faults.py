"""Rails past the kernel's stack (AF_XDP) while the interface is reset, changes its queues or its MTU,
while other processes have its queues, and while only other rails carry. Each test checks that the job
is right, that the fault happened, and that frames bypass the kernel again afterwards."""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lab as labs
from test_faults import assert_right, goes_on, under_way
from test_xdp import BESIDE, LIMIT_S, SHORT, XDP, carried
from test_xdpd import assert_bypassed, received, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="programs need privileges")

# More than probes and acks of a path out of use.
SOME = 200


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's rails")


@pytest.fixture
def direct_lab():
    """Two hosts joined by cables of two queues, without a switch that would merge them."""
    with labs.Lab(f"t{os.getpid()}-xq", options=["--direct"]) as lab:
        for host in ("h0", "h1"):
            queues(lab, host, 2)
        lab.meet()
        yield lab
        lab.end_jobs()


def done(lab, host, *words):
    result = lab.exec(host, *words)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def queues(lab, host, count):
    """Sets the number of queues of a host's first rail, and asks the kernel for it."""
    done(lab, host, "ethtool", "-L", "rail0", "rx", count, "tx", count)
    assert done(lab, host, "ls", "/sys/class/net/rail0/queues").count("rx-") == count


def assert_bypasses(lab, job, host="h0"):
    """After a while nearly all frames bypass the kernel, as before the fault."""
    def bypasses():
        before = received(lab, host)
        assert goes_on(job), job.output()
        frames, datagrams = (new - old for new, old in zip(received(lab, host), before))
        return frames > 100 and datagrams < frames / 10

    until(bypasses, job.output)


@contextlib.contextmanager
def taken(lab, host, queue):
    """A process of another party has the AF_XDP socket of a queue."""
    script = Path(__file__).with_name("xdp_stranger.py")
    words = [labs.MARLINE, "lab", "exec", "--name", lab.name, host, "--", sys.executable, script, "rail0", queue]
    with subprocess.Popen(list(map(str, words)), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        said = process.stdout.readline()
        try:
            yield said
        finally:
            process.stdin.close()
            assert process.wait(LIMIT_S) == 0


def test_a_reset_of_the_interface(lab, stress, mpich):
    def changes():
        return int(done(lab, "h1", "cat", "/sys/class/net/rail0/carrier_changes"))

    with under_way(lab, stress, mpich, "marline", env=XDP) as job:
        before = changes()
        for _ in range(3):
            done(lab, "h1", "sh", "-c", "ip link set rail0 down && ip link set rail0 up")
        assert changes() > before
        assert_bypasses(lab, job, "h1")
    assert_right(job.result)


def test_another_number_of_queues(lab, stress, mpich):
    with under_way(lab, stress, mpich, "marline", env=XDP) as job:
        for count in (2, 1):
            queues(lab, "h1", count)
            assert goes_on(job), job.output()
        assert_bypasses(lab, job, "h1")
    assert_right(job.result)


def test_other_mtus(lab, stress, mpich):
    with under_way(lab, stress, mpich, "marline", env=XDP) as job:
        for mtu in (1_300, 3_000, 1_500):
            for host in ("h0", "h1"):
                done(lab, host, "ip", "link", "set", "rail0", "mtu", mtu)
            assert goes_on(job), job.output()
        assert_bypasses(lab, job)
    assert_right(job.result)
    assert job.result.rails()["xdp:rail0"]["resent"], job.result.tail()


def test_another_process_has_the_queue(lab, stress, mpich):
    with taken(lab, "h0", 0) as said:
        assert said == b"attached\n"
        result = lab.run(mpich, stress(mpich, "--seed", 64, *SHORT), env=XDP)
        assert_right(result)
        assert result.find("there is no rail xdp:rail0: no queue of rail0 is free"), result.tail()
    with under_way(lab, stress, mpich, "marline", env=XDP) as job:
        with taken(lab, "h0", 0) as said:
            assert b"errno 16" in said, said
        assert_bypasses(lab, job)
    assert_right(job.result)


def test_every_queue_delivers_to_the_rail(direct_lab, stress, mpich):
    """A queue that another process has is left out: the host with one sends by its second queue, and
    the other host receives most by its second (the kernel sends by any)."""
    lab = direct_lab
    with taken(lab, "h1", 0) as said:
        assert said == b"attached\n"
        told = lab.exec("h1", "env", "FI_MARLINE_RAILS=xdp:rail0", labs.MARLINE, "doctor").stdout
        assert "queues: 1 of 2, by own privileges" in told, told
        before = received(lab, "h0")
        result = lab.run(mpich, stress(mpich, "--seed", 65), env=XDP)
        assert_right(result)
        assert not result.find("there is no rail"), result.tail()
        assert_bypassed(before, received(lab, "h0"))
    counts = done(lab, "h0", "ethtool", "-S", "rail0")
    first, second = (int(re.search(rf"rx_queue_{queue}_xdp_packets: (\d+)", counts)[1]) for queue in (0, 1))
    assert second > 100 and second > 2 * first, counts


def test_traffic_goes_by_udp_and_tcp_and_comes_back(lab, stress, mpich, tmp_path):
    env = {**BESIDE, "FI_MARLINE_RAILS": "xdp:rail0,udp:rail0,tcp:rail1", "FI_MARLINE_STATS_DIR": tmp_path}

    def assert_carried(job, by, without):
        """After a while one rail carries, and others nothing but probes."""
        def carries():
            before = carried(tmp_path)[0]
            assert goes_on(job), job.output()
            new = carried(tmp_path)[0] - before
            return new[by] > SOME and all(new[other] < SOME for other in without)

        until(carries, lambda: f"{by}: {labs.raw(tmp_path)}")

    with under_way(lab, stress, mpich, "marline", env=env) as job:
        assert_carried(job, "xdp:rail0", ())
        # Both ends' ports: flows of other ports would reach the other end's.
        ports = re.findall(r"^  rail xdp:rail0 10\.100\.0\.\d:(\d+) ", labs.raw(tmp_path), re.MULTILINE)
        assert len(ports) == 2, labs.raw(tmp_path)
        for port in ports:
            lab.fault(0, "blackhole", f"port={port}-{port}")
        assert_carried(job, "rail0", ["xdp:rail0"])
        lab.fault("h1:0", "down")
        assert_carried(job, "tcp:rail1", ["xdp:rail0", "rail0"])
        assert lab.hits("blackhole")
        lab.fault("h1:0", "up")
        lab.clear()
        assert_carried(job, "xdp:rail0", ())
    assert_right(job.result)
