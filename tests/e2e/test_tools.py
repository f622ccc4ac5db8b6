"""libfabric's own tools, without an MPI: an administrator's first test. With `--provider tcp` the
tools that move data use libfabric's TCP, and the others are skipped."""

import re

import pytest

import lab as labs

# libfabric's name for the provider.
NAMES = {"marline": "marline", "tcp": "tcp;ofi_rxm"}
SIZES = ["64", "256", "1k", "4k", "64k", "1m"]
CONTROL_PORT = "47592"


@pytest.fixture
def marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline")


def command(lab, host, tmp_path, *words, **more):
    """A tool on a host of the lab, with its counters in a directory."""
    env = {
        "FI_PROVIDER_PATH": labs.PROVIDER_DIR,
        "FI_MARLINE_RAILS": "rail*",
        "FI_MARLINE_STATS_DIR": tmp_path,
        **more,
    }
    words = [str(word) for word in words]
    return [labs.MARLINE, "lab", "exec", "--name", lab.name, host, "--", *words], labs.clean_env(env)


def listens(lab, host, port):
    return f":{port} " in lab.exec(host, "ss", "-Htln").stdout


def pingpong(lab, provider, tmp_path, *words):
    """Client and server, which find each other by a TCP connection to the server's port. Returns
    Marline's counters."""
    words = ["fi_pingpong", "-p", NAMES[provider], "-e", "rdm", "-c", *words]
    server = labs.Running(*command(lab, "h0", tmp_path, *words))
    while server.running() and not listens(lab, "h0", CONTROL_PORT):
        pass
    client = labs.Running(*command(lab, "h1", tmp_path, *words, "10.100.0.1"))
    ends = client.wait(90), server.wait(20)
    said = "\n".join(end.tail() for end in ends)  # one fails with the other
    for end in ends:
        assert end.ok, said
        assert re.findall(r"^(\d+[km]?) +\d", end.out, re.MULTILINE) == SIZES, said
    counted = labs.counters(tmp_path) if provider == "marline" else None
    assert not counted or counted["messages_sent"] >= 2 * 10 * len(SIZES), counted
    return counted


def test_fi_info_lists_one_provider(lab, marline, tmp_path):
    words = ["fi_info", "-p", "marline", "-v"]
    shown = labs.Running(*command(lab, "h0", tmp_path, *words)).wait(20)
    assert shown.ok, shown.tail()
    assert re.findall("^ *type: (.*)", shown.out, re.MULTILINE) == ["FI_EP_RDM"], shown.tail()
    assert shown.find("^ *prov_name: marline$"), shown.tail()


@pytest.mark.parametrize("capability", ["FI_RMA", "FI_ATOMIC"])
def test_fi_info_says_how_remote_memory_is_offered(lab, marline, tmp_path, capability):
    words = ["fi_info", "-p", "marline", "-c", capability]
    env = {"FI_MARLINE_RMA": "off", "FI_LOG_LEVEL": "info"}
    refused = labs.Running(*command(lab, "h0", tmp_path, *words, **env)).wait(20)
    assert not refused.ok and refused.find("not offered.*FI_MARLINE_RMA=off"), refused.tail()
    shown = labs.Running(*command(lab, "h0", tmp_path, *words)).wait(20)
    assert shown.ok and shown.find("^provider: marline$"), shown.tail()


@pytest.mark.parametrize("kind", ["msg", "tagged"])
def test_fi_pingpong(lab, provider, tmp_path, kind):
    pingpong(lab, provider, tmp_path, "-m", kind)


@pytest.mark.parametrize("fault", ["drop=2%", "corrupt=1%"])
@pytest.mark.parametrize("kind", ["msg", "tagged"])
def test_fi_pingpong_on_rails_that_lose_or_damage(wire_lab, provider, tmp_path, kind, fault):
    """Every byte is checked (`-c`)."""
    if provider == "tcp" and fault.startswith("corrupt"):
        pytest.skip("TCP takes what is damaged for data")
    for rail in range(2):
        wire_lab.fault(rail, fault)
    counted = pingpong(wire_lab, provider, tmp_path, "-m", kind, "-I", 50)
    assert wire_lab.hits(fault.partition("=")[0]) > 0, wire_lab.status()
    assert not counted or counted["resent_pto"] > 0, counted


def test_fi_pingpong_with_a_rail_down(lab, provider, tmp_path):
    """The second rail: TCP would not start without the first, whose address it is given."""
    lab.fault(1, "down")
    pingpong(lab, provider, tmp_path)
