"""Rails past the kernel's stack that `marline xdpd` lends to users without privilege: jobs are right
and bypass the kernel, others are refused, and the service, an interface or a process that ends
changes nothing for the rest."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import lab as labs
from test_faults import assert_right, goes_on, under_way
from test_xdp import LIMIT_S, SHORT, programs

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the service needs privileges")

NOBODY = 65534
GROUP = "nogroup"
# A job's user without any privilege, and the service's with what its unit gives.
JOB = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all",
       "--inh-caps=-all")
CAPABILITIES = "-all,+net_admin,+net_raw,+bpf"
SERVICE = ("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", f"--bounding-set={CAPABILITIES}",
           f"--inh-caps={CAPABILITIES}", f"--ambient-caps={CAPABILITIES}")
PORTS = "21000-21009"


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's rails")


class Hosts:
    """Both hosts of a lab, each with a place for the service's socket, and the services."""

    def __init__(self, lab, folder):
        self.lab, self.folder, self.services = lab, folder, {}
        self.env = {
            "FI_MARLINE_RAILS": "xdp:rail0,tcp:rail1", "FI_MARLINE_XDPD": f"{folder}/xdpd.sock",
            "FI_MARLINE_PORTS": PORTS, "FI_MARLINE_PROFILE": "none",
        }

    def serve(self, host, *options):
        """Starts the service of a host and returns it when it lends."""
        words = [*SERVICE, labs.MARLINE, "xdpd", "--interface", "rail0", "--socket", self.env["FI_MARLINE_XDPD"]]
        words += options or ("--group", GROUP, "--ports", PORTS)
        command = [labs.MARLINE, "lab", "exec", "--name", self.lab.name, host, "--", *words]
        self.services[host] = labs.Running(list(map(str, command)), labs.clean_env({}))
        assert self.services[host].wait_for("xdpd: lends rail0", LIMIT_S), self.services[host].output()
        return self.services[host]

    def received(self, host):
        return received(self.lab, host)


def received(lab, host):
    """Frames that came to a host's interface, and datagrams that the kernel delivered to UDP sockets."""
    rows = re.findall(r"^Udp: (.*)$", lab.exec(host, "cat", "/proc/net/snmp").stdout, re.MULTILINE)
    datagrams = int(dict(zip(rows[0].split(), rows[1].split()))["InDatagrams"])
    rows = lab.exec(host, "cat", "/proc/net/snmp6").stdout
    datagrams += int(re.search(r"^Udp6InDatagrams\s+(\d+)", rows, re.MULTILINE)[1])
    peer = {"h0": "h1", "h1": "h0"}[host]
    frames = lab.exec(peer, "cat", "/sys/class/net/rail0/statistics/tx_packets").stdout
    return int(frames), datagrams


def assert_bypassed(before, after):
    """Nearly all frames bypassed the kernel."""
    frames, datagrams = after[0] - before[0], after[1] - before[1]
    assert frames > 100 and datagrams < frames / 10, f"{datagrams} of {frames} by the kernel"


@contextlib.contextmanager
def hosts_of(lab):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        mount = Path(folder, "run")
        mount.mkdir()
        for host in ("h0", "h1"):
            done = lab.exec(host, "mount", "-t", "tmpfs", "-o", "mode=1777", "xdpd", mount)
            assert done.returncode == 0, done.stderr
        both = Hosts(lab, mount)
        yield both
        lab.end_jobs()
        for service in both.services.values():
            service.kill()
        for host in ("h0", "h1"):
            lab.exec(host, "umount", mount)


@pytest.fixture
def hosts(lab):
    with hosts_of(lab) as both:
        yield both


@pytest.fixture
def unprivileged(stress):
    return lambda mpi, *args: [*JOB, *stress(mpi, *args)]


def until(condition, what):
    limit = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < limit, what()


def test_a_user_without_privilege_has_the_rail_by_the_service(hosts, unprivileged, mpich):
    services = [hosts.serve(host) for host in ("h0", "h1")]
    before = hosts.received("h1")
    result = hosts.lab.run(mpich, unprivileged(mpich, "--seed", 57), env=hosts.env)
    assert_right(result)
    assert not result.find("there is no rail"), result.tail()
    assert_bypassed(before, hosts.received("h1"))
    for service in services:
        assert service.wait_for(rf"rail0: queue 0 and port 210\d\d to user {NOBODY}$", LIMIT_S), service.output()
        assert service.wait_for(rf"port 210\d\d back from user {NOBODY}$", LIMIT_S), service.output()


def test_a_user_without_privilege_has_the_rail_over_ipv6(unprivileged, mpich):
    with labs.Lab(f"t{os.getpid()}-x6", options=["--ipv6"]) as lab, hosts_of(lab) as hosts:
        for host in ("h0", "h1"):
            hosts.serve(host)
        before = hosts.received("h1")
        result = lab.run(mpich, unprivileged(mpich, "--seed", 61), env=hosts.env)
        assert_right(result)
        assert not result.find("there is no rail"), result.tail()
        assert_bypassed(before, hosts.received("h1"))


@pytest.mark.parametrize("options, why", [
    (("--group", "root"), "only the group root may use it"),
    (("--group", GROUP, "--max-sockets", 0), "0 sockets are the limit"),
    (("--group", GROUP, "--ports", "30000-30001"), r"port \d+ is not lent, but 30000 to 30001 are"),
])
def test_the_refused_are_told_why_and_have_udp(hosts, unprivileged, mpich, options, why):
    service = hosts.serve("h0", *options)
    result = hosts.lab.run(mpich, unprivileged(mpich, "--seed", 58, *SHORT), env=hosts.env)
    assert_right(result)
    why = f"refuses user {NOBODY}: {why}"
    assert result.find(rf"there is no rail xdp:rail0: .*CAP_BPF.*; marline xdpd {why}.*; it is a UDP rail"), result.tail()
    assert result.find(r"there is no rail xdp:rail0: .*; marline xdpd is not there \(.*xdpd.sock: No such file"), (
        result.tail())
    assert service.wait_for(f"xdpd: {why}", LIMIT_S), service.output()


def test_a_job_survives_the_service_which_takes_it_up_again(hosts, unprivileged, mpich):
    first = [hosts.serve(host) for host in ("h0", "h1")][0]
    with under_way(hosts.lab, unprivileged, mpich, "marline", env=hosts.env) as job:
        first.kill()
        until(lambda: not programs(hosts.lab), lambda: hosts.lab.exec("h0", "ip", "link", "show").stdout)
        assert goes_on(job), job.output()
        second = hosts.serve("h0")
        assert second.wait_for(f"port .* to user {NOBODY}$", LIMIT_S), second.output() + job.output()
        before = hosts.received("h0")
        assert goes_on(job), job.output()
        assert_bypassed(before, hosts.received("h0"))
    assert_right(job.result)


def test_an_interface_goes_down_comes_back_and_changes_its_mtu(hosts, unprivileged, mpich):
    for host in ("h0", "h1"):
        hosts.serve(host)
    with under_way(hosts.lab, unprivileged, mpich, "marline", env=hosts.env) as job:
        for state in ("down", "up"):
            hosts.lab.fault("h1:0", state)
            assert goes_on(job), job.output()
        for mtu in (1_300, 1_500):
            for host in ("h0", "h1"):
                assert hosts.lab.exec(host, "ip", "link", "set", "rail0", "mtu", mtu).returncode == 0
            assert goes_on(job), job.output()
    assert_right(job.result)


def test_what_a_killed_process_had_is_taken_back(hosts, unprivileged, mpich):
    services = [hosts.serve(host) for host in ("h0", "h1")]
    with under_way(hosts.lab, unprivileged, mpich, "marline", env=hosts.env) as job:
        job.kill()
        for service in services:
            assert service.wait_for(rf"port \d+ back from user {NOBODY}$", LIMIT_S), service.output()
        port = int(re.search(r"port (\d+) back", services[0].output())[1])
        # The kernel gets the port's datagrams, and the next job the queue.
        listen = ["timeout", LIMIT_S, sys.executable, "-c", f"""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("10.100.0.1", {port}))
print("bound", flush=True)
print(s.recv(9))
"""]
        command = [labs.MARLINE, "lab", "exec", "--name", hosts.lab.name, "h0", "--", *listen]
        listener = labs.Running(list(map(str, command)), labs.clean_env({}))
        assert listener.wait_for("bound", LIMIT_S), listener.output()
        send = f'import socket; socket.socket(2, 2).sendto(b"kernel", ("10.100.0.1", {port}))'
        assert hosts.lab.exec("h1", sys.executable, "-c", send).returncode == 0
        assert listener.wait(LIMIT_S).find("b'kernel'"), listener.output()
    result = hosts.lab.run(mpich, unprivileged(mpich, "--seed", 59, *SHORT), env=hosts.env)
    assert_right(result)
    assert not result.find("there is no rail"), result.tail()


@contextlib.contextmanager
def stranger(lab, host):
    """A program of another party at an interface."""
    script = Path(__file__).with_name("xdp_stranger.py")
    words = [labs.MARLINE, "lab", "exec", "--name", lab.name, host, "--", sys.executable, script, "rail0"]
    with subprocess.Popen(list(map(str, words)), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"attached\n"
        yield
        assert programs(lab, host), "it is there still"
        process.stdin.close()
        assert process.wait(LIMIT_S) == 0


def test_a_program_of_another_party_is_named_and_left_alone(hosts, stress, mpich):
    with stranger(hosts.lab, "h0"):
        done = hosts.lab.exec("h0", labs.MARLINE, "xdpd", "--interface", "rail0", "--socket", hosts.env["FI_MARLINE_XDPD"])
        assert done.returncode, done.stderr
        assert re.search(r"rail0 has an XDP program already \(stranger, number \d+\)", done.stderr), done.stderr
        result = hosts.lab.run(mpich, stress(mpich, "--seed", 60, *SHORT), env=hosts.env)
        assert_right(result)
        assert result.find(r"there is no rail xdp:rail0: rail0 has an XDP program already \(stranger"), result.tail()


def test_the_doctor_tells_how_a_rail_is_to_be_had(hosts):
    hosts.serve("h0")
    env = [f"{name}={value}" for name, value in hosts.env.items()]
    ask = ("env", *env, *JOB, labs.MARLINE, "doctor")
    told = hosts.lab.exec("h0", *ask).stdout
    assert re.search(r"xdp:rail0 \(10\.100\.0\.1\), MTU 1500, driver \w+, program in the driver, queues: 1, "
                     r"by marline xdpd", told), told
    told = hosts.lab.exec("h1", *ask).stdout
    assert re.search(r"xdp:rail0: .*CAP_BPF.*marline xdpd is not there", told.replace("\n", " ")), told
    told = hosts.lab.exec("h1", "env", *env, labs.MARLINE, "doctor").stdout
    assert re.search(r"queues: 1, by own privileges", told), told
