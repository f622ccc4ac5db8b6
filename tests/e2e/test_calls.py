"""The system calls of a message by its length, at both ends (counted, not timed): one to send each
super-packet and one to receive it, and nothing else, as long as nobody has to ask before.

The engines of the example `eager` play ping-pong over two rails of loopback, in packets as Ethernet
has them, with a clock that goes by with each look at it; so counts repeat.
"""

import os
import re
import subprocess

import pytest

import lab as labs

EAGER = labs.TARGET / "release" / "examples" / "eager"
SOURCE = labs.ROOT / "tests" / "e2e" / "count_calls.c"
ETHERNET = 1_472
RAILS = 2

# (bytes, calls that send, calls that receive something). 64 KiB plus headers exceed one
# super-packet. From 128 KiB on a message has a request, a grant, and an ack of its end, and a
# direct write is read in two calls, of which the first peeks at its kind. A tenth is allowed for
# occasional work.
BUDGETS = [
    (1_024, 1, 1),
    (2_048, 1, 1),
    (4_096, 1, 1),
    (8_192, 1, 1),
    (16_384, 1, 1),
    (32_768, 1, 1),
    (65_536, 2, 2),
    (131_072, 6, 9),
    (262_144, 8, 13),
    (524_288, 12, 21),
    (1_048_576, 20, 37),
]


@pytest.fixture(scope="module")
def counter(tmp_path_factory):
    """Builds the counting library."""
    library = tmp_path_factory.mktemp("calls") / "count_calls.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    return library


def calls(counter, messages, length, kind="message"):
    command = [EAGER, messages, 1, length, ETHERNET, RAILS, kind]
    env = {**os.environ, "LD_PRELOAD": str(counter)}
    ran = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=env, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return [int(n) for n in re.search(r"^calls (\d+) (\d+)$", ran.stderr, re.MULTILINE).groups()]


@pytest.mark.parametrize("length, sends, reads", BUDGETS)
def test_a_message_takes_no_more_calls_than_its_packets_need(counter, length, sends, reads):
    assert EAGER.exists(), f"{EAGER} is missing: run `make eager`"
    # Both counts include first contact and the probing of packet sizes.
    few, many = (calls(counter, n, length) for n in (128, 640))
    sent, received = ((b - a) / (640 - 128) for a, b in zip(few, many))
    assert sent <= 1.1 * sends, f"{sent:.2f} calls to send a message"
    assert received <= 1.1 * reads, f"{received:.2f} calls to receive a message"
    # A lower count would mean that not all calls were counted, or that the budget is too high.
    assert sent >= 0.9 * sends and received >= 0.9 * reads, (sent, received)


@pytest.mark.parametrize("kind", ["write", "read", "add"])
@pytest.mark.parametrize("length", [8, 1_024])
def test_a_remote_operation_takes_a_packet_each_way(counter, kind, length):
    """Acks are piggybacked on the next operation and on its answer."""
    few, many = (calls(counter, n, length, kind) for n in (256, 1_280))
    sent, received = ((b - a) / 512 for a, b in zip(few, many))
    assert 1.9 <= sent <= 2.2, f"{sent:.2f} calls to send an operation and its answer"
    assert 1.9 <= received <= 2.2, f"{received:.2f} calls to receive them"
