"""TCP rails: alone, beside UDP, with a link cut meanwhile, and where UDP is blocked, also without
being named in the settings."""

import contextlib
import json
import os
import subprocess

import pytest

import lab as labs
from lab import events
from test_faults import assert_right, goes_on, lasts, under_way

pytestmark = pytest.mark.any_mpi


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's rails")


def run(lab, stress, mpi, rails, *args, ranks=2):
    env = {"FI_MARLINE_RAILS": rails}
    # (Ranks of MPICH that share processors starve each other in its own shared memory.)
    return lab.run(mpi, stress(mpi, "--max-size", 1 << 20, *args), n=ranks, env=env, timeout=120,
                   options=["--no-shm"])


@pytest.mark.parametrize("rails", ["tcp:rail0", "tcp:rail0,tcp:rail1", "rail0,tcp:rail1"])
def test_tcp_carries_a_job(lab, stress, mpi, rails):
    result = run(lab, stress, mpi, rails, "--iterations", 2, ranks=4)
    assert_right(result)
    found = result.rails()
    assert list(found) == rails.split(","), result.tail()
    assert all(rail["packets_out"] > 100 for rail in found.values()), result.tail()


@pytest.mark.parametrize("rails", ["tcp:rail0,tcp:rail1", "rail0,tcp:rail1", "tcp:rail0,rail1"])
def test_a_link_is_cut_and_comes_back(lab, stress, mpich, rails):
    """The link of the second rail is cut for a second: data in flight moves to the first."""
    with under_way(lab, stress, mpich, "marline", 4, env={"FI_MARLINE_RAILS": rails}) as job:
        lab.fault("h1:1", "down")
        lasts(job, 1)
        lab.clear()
    assert_right(job.result)
    cut = job.result.rails()[rails.split(",")[1]]
    assert cut["failovers"] > 0, job.result.tail()


@contextlib.contextmanager
def udp_filtered(lab, rails="rail*", hook="output", verdict="drop"):
    """Drops (or rejects, by `verdict`) and counts all UDP between the hosts on these rails."""
    of = "oifname" if hook == "output" else "iifname"
    rules = f"table inet filter_udp {{ chain c {{ type filter hook {hook} priority 0; " \
            f"{of} \"{rails}\" meta l4proto udp counter {verdict}; }}; }}"
    for host in ("h0", "h1"):
        made = lab.exec(host, "nft", rules)
        assert made.returncode == 0, made.stderr
    try:
        yield
        dropped = lab.exec("h0", "nft", "list", "table", "inet", "filter_udp").stdout
        assert "counter packets 0 " not in dropped, dropped
    finally:
        for host in ("h0", "h1"):
            lab.exec(host, "nft", "delete", "table", "inet", "filter_udp")


def test_tcp_goes_on_where_udp_does_not_pass(lab, stress, mpich):
    """A filter drops all UDP between the hosts: with TCP on the same links the job is
    unaffected."""
    with udp_filtered(lab):
        result = run(lab, stress, mpich, "rail0,tcp:rail0", "--iterations", 1)
    assert_right(result)
    assert result.rails()["tcp:rail0"]["packets_out"] > 100, result.tail()


def test_without_udp_a_job_with_default_settings_runs_by_tcp(lab, stress, mpi):
    """TCP is not named in the settings: it stands by for each rail."""
    with udp_filtered(lab):
        result = lab.run(mpi, stress(mpi, "--max-size", 1 << 20, "--iterations", 1), timeout=120)
    assert_right(result)
    behind = {name: rail for name, rail in result.rails().items() if name.startswith("tcp:")}
    assert labs_total(behind) > 100, result.tail()


def test_udp_that_is_filtered_in_mid_run_is_replaced_by_tcp(lab, stress, mpi):
    """And UDP carries again when unblocked: the standby rails fall silent then."""
    with under_way(lab, stress, mpi, "marline", 4) as job, udp_filtered(lab):
        assert job.wait_for("takes over: no other carries", 30), job.output()
        assert goes_on(job), job.output()
    result = job.result
    assert_right(result)
    rails = result.rails()
    behind = {name: rail for name, rail in rails.items() if name.startswith("tcp:")}
    assert labs_total(behind) > 0, result.tail()
    before = [rail for name, rail in rails.items() if not name.startswith("tcp:")]
    assert sum(rail["failovers"] for rail in before) > 0, result.tail()


@pytest.mark.parametrize("hook", ["input", "output"])
def test_udp_that_is_rejected_in_mid_run_is_replaced_by_tcp(lab, stress, mpich, hook):
    """Firewalls answer as if no socket had the ports: an answer from the peer's host counts as
    evidence, one from the own host does not. No peer is dead, as TCP passes."""
    with contextlib.ExitStack() as to_the_end:
        with under_way(lab, stress, mpich, "marline", 2) as job:
            to_the_end.enter_context(udp_filtered(lab, hook=hook, verdict="reject"))
            assert job.wait_for("takes over: no other carries", 30), job.output()
    assert_right(job.result)
    behind = {name: rail for name, rail in job.result.rails().items() if name.startswith("tcp:")}
    assert labs_total(behind) > 0, job.result.tail()


def test_with_udp_nothing_leaves_by_the_rails_behind(lab, stress, mpich, tmp_path):
    env = {"FI_MARLINE_STATS_DIR": tmp_path}
    result = lab.run(mpich, stress(mpich, "--iterations", 1, "--max-size", 65536), env=env)
    assert_right(result)
    assert not any(name.startswith("tcp:") for name in result.rails()), result.tail()


@pytest.mark.parametrize("kind", ["udp", "tcp"])
def test_the_preferred_kind_carries(lab, stress, mpich, tmp_path, kind):
    env = {"FI_MARLINE_RAILS": "rail0,tcp:rail0", "FI_MARLINE_POLICY": f"prefer={kind}",
           "FI_MARLINE_STATS_DIR": tmp_path}
    result = lab.run(mpich, stress(mpich, "--iterations", 1, "--max-size", 1 << 20), env=env, timeout=120)
    assert_right(result)
    # (TCP packets are larger, and first contact precedes its connection.)
    sent = {name: counted["wire_bytes_sent"] for name, counted in rail_counters(tmp_path).items()}
    preferred, other = sent["rail0"], sent["tcp:rail0"]
    if kind == "tcp":
        preferred, other = other, preferred
    assert preferred > 10 * other, result.tail()


def test_one_rail_is_active_and_the_other_stands_by(lab, stress, mpich, tmp_path):
    env = {"FI_MARLINE_RAILS": "rail0,rail1", "FI_MARLINE_POLICY": "active-standby",
           "FI_MARLINE_STATS_DIR": tmp_path}
    result = lab.run(mpich, stress(mpich, "--iterations", 1, "--max-size", 1 << 20), env=env, timeout=120)
    assert_right(result)
    sent = rail_counters(tmp_path)
    active, other = sorted((sent[rail]["wire_bytes_sent"] for rail in ("rail0", "rail1")), reverse=True)
    assert active > 10 * other > 0, result.tail()


def test_unlike_rails_share_by_their_rates(lab, mpich, tmp_path):
    """Of a rail of 400 Mbit/s and one of 100 the slower carries a part of long messages: a fifth on
    an otherwise idle machine."""
    for rail, rate in enumerate((400, 100)):
        lab.fault(rail, f"rate={rate}mbit")
    program = [mpich.program("pingpong"), "--tests", "bw4m", "--samples", 1, "--seconds", 1]
    result = lab.run(mpich, program, env={"FI_MARLINE_RAILS": "udp:rail0,udp:rail1",
                                          "FI_MARLINE_STATS_DIR": tmp_path})
    assert result.ok, result.tail()
    faster, slower = (rail["wire_bytes_sent"] for rail in rail_counters(tmp_path).values())
    assert 0.03 < slower / (faster + slower) < 0.3, result.tail()


def rail_counters(folder):
    """The counters of each rail of a job with statistics in this directory, by the rail's name."""
    kept = subprocess.run([labs.MARLINE, "stats", "--json", folder], capture_output=True, text=True, check=True)
    return {rail["name"]: rail["rail"] for rail in json.loads(kept.stdout)["jobs"][0]["rails"]}


def labs_total(rails):
    return sum(rail["packets_out"] for rail in rails.values())


def without_what_was_seen(lab, stress, mpi, rail, kind, field, folder):
    """A job on one rail without standby rails, and its events. In its middle the switches drop the
    source ports or flow labels in use; the job continues."""
    rails = rail if rail.startswith("tcp:") else f"udp:{rail}"
    env = {"FI_MARLINE_RAILS": rails, "FI_MARLINE_STATS_DIR": folder}
    what = "iifname \"rail*\" meta l4proto " + ("tcp" if rail.startswith("tcp:") else "udp")
    # The set contains the flows seen within the first moments, and they are dropped.
    watch = f"table inet routes {{ set seen {{ {kind}; flags dynamic; size 64; }}; " \
            f"chain in {{ type filter hook input priority 0; {what} update @seen {{ {field} }}; }}; }}"
    drop = f"flush chain inet routes in; add rule inet routes in {what} {field} @seen counter drop"
    try:
        with under_way(lab, stress, mpi, "marline", 3, env=env) as job:
            made = lab.exec("h1", "nft", watch)
            assert made.returncode == 0, made.stderr
            assert goes_on(job), job.output()
            made = lab.exec("h1", "nft", drop)
            assert made.returncode == 0, made.stderr
        result = job.result
        dropped = lab.exec("h1", "nft", "list", "table", "inet", "routes").stdout
    finally:
        lab.exec("h1", "nft", "delete", "table", "inet", "routes")
    assert_right(result)
    assert "counter packets 0 " not in dropped, dropped
    return result, json.loads(events(folder, "--json"))["jobs"][0]["events"]


@pytest.mark.parametrize("rail", ["rail0", "tcp:rail0"])
def test_another_source_port_is_tried(lab, stress, mpich, rail, tmp_path):
    of = ("type inet_service", "th sport")
    result, told = without_what_was_seen(lab, stress, mpich, rail, *of, tmp_path)
    assert result.find(rf"^{rail}: another source port was tried"), result.tail()
    tried = {(event["host"][-2:], event["rail"]) for event in told if event["kind"] == "path-rerouted"}
    # Either end may be the first to replace a connection.
    either = {("h0", rail), *([("h1", rail)] if rail.startswith("tcp:") else [])}
    assert tried & either, told
    assert "is tried by another source port or connection" in events(tmp_path), events(tmp_path)


@pytest.mark.parametrize("rail", ["rail0", "tcp:rail0"])
def test_another_flow_label_is_tried(stress, mpich, rail, tmp_path):
    """The kernel derives labels from ports, and TCP's labels change on retransmission."""
    of = ("typeof ip6 flowlabel", "ip6 flowlabel")
    with labs.Lab(f"t{os.getpid()}-label", options=["--ipv6"]) as lab:
        _, told = without_what_was_seen(lab, stress, mpich, rail, *of, tmp_path)
    if not rail.startswith("tcp:"):
        assert any(event["kind"] == "path-rerouted" for event in told), told


def test_few_connections_serve_many_ranks(lab, stress, mpich):
    """Each rank has fewer connections than peers: they are closed and re-established, and links
    stay up. (One link of a starved rank may fail.)"""
    env = {"FI_MARLINE_RAILS": "tcp:rail0", "FI_MARLINE_TCP_CONNECTIONS": 2}
    program = stress(mpich, "--iterations", 1, "--max-size", 1 << 16)
    result = lab.run(mpich, program, n=6, env=env, timeout=120, options=["--no-shm"])
    assert_right(result)
    closed = int(result.find(r"^tcp:rail0:\s+(\d+)\s+connections\s+were\s+closed\s+for\s+others")[1])
    assert result.rails()["tcp:rail0"]["failovers"] < closed / 10, result.tail()
