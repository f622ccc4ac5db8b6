"""`marline doctor` names the state of bonds and of RoCE ports, which only a guest's kernel has."""

import re

import pytest

import lab as labs
from guest import in_guest
from schemas import assert_conforms

pytestmark = [pytest.mark.packages, pytest.mark.guest]
MODULES = labs.MPI_DIR / "kernel" / "modules"
# A bond of two ports, each joined with a port of a switch.
BOND = f"""
set -e
insmod {MODULES}/net/tls/tls.ko
insmod {MODULES}/drivers/net/bonding/bonding.ko max_bonds=0
ip netns add host
ip netns add switch
for n in 0 1; do ip link add port$n netns host type veth peer name end$n netns switch; done
bond() {{
    ip -n "$1" link add "$2" type bond miimon 20 "${{@:4}}"
    for port in $3; do ip -n "$1" link set $port down master "$2"; ip -n "$1" link set $port up; done
    ip -n "$1" link set "$2" up
}}
shows() {{ # WORDS COUNT: waits until the host's bond shows words so many times
    limit=$((SECONDS + 120))
    until [ "$(ip netns exec host grep -c "$1" /proc/net/bonding/bond0)" = "$2" ]; do
        [ $SECONDS -lt $limit ] || {{ ip netns exec host cat /proc/net/bonding/bond0; exit 1; }}
        sleep 0.05
    done
}}
doctor() {{
    echo "CASE $1"
    ip netns exec host env FI_MARLINE_RAILS=bond0 {labs.MARLINE} doctor --json || true
}}
"""


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's command")


def findings(said, case):
    """The findings of a case: severity, and what with its reason."""
    text = re.search(rf"^CASE {case}\n(.*?^}}$)", said, re.M | re.S)
    assert text, said
    found = assert_conforms("doctor", text[1])["findings"]
    return [(one["severity"], f"{one['what']}: {one['reason']}") for one in found]


def bonds(said, case):
    return [(severity, text) for severity, text in findings(said, case) if "bond0" in text]


def test_the_state_of_a_bond_is_named():
    said = in_guest(BOND, """
for n in 0 1; do ip -n switch link set end$n up; done
bond host bond0 "port0 port1" mode active-backup
ip -n host addr add 10.9.0.1/24 dev bond0
shows '^MII Status: up' 3
doctor healthy
ip -n switch link set end1 down
shows '^MII Status: down' 1
doctor down
ip -n switch link set end1 up
ip -n host link del bond0

lacp="mode 802.3ad lacp_rate fast"
bond host bond0 "port0 port1" $lacp
ip -n host addr add 10.9.0.1/24 dev bond0
shows '^Aggregator ID: 2' 1
doctor silent
for n in 0 1; do bond switch lag$n end$n $lacp; done
shows "Partner Mac Address: $(ip netns exec switch cat /sys/class/net/lag0/address)" 1
doctor unlike
for n in 0 1; do ip -n switch link del lag$n; done
bond switch lag "end0 end1" $lacp
shows '^Aggregator ID: 1' 2
shows 'Number of ports: 2' 1
doctor alike
ip netns del host
ip netns del switch
rmmod bonding tls
""")
    good = "bond0 is a bond of port0, port1"
    (healthy,) = bonds(said, "healthy")
    assert healthy[0] == "good" and healthy[1].startswith(f"{good} (fault-tolerance (active-backup))"), healthy
    assert [one for one in bonds(said, "down") if one[0] != "good"] == [
        ("warning", "port1, a port of bond0, is down: ")], said
    (alike,) = bonds(said, "alike")
    assert alike[0] == "good" and alike[1].startswith(f"{good} (IEEE 802.3ad"), alike
    for case, reason in (("silent", "no LACP comes from the switch"), ("unlike", "the ports have several LACP partners")):
        (warning,) = [one for one in bonds(said, case) if one[0] == "warning"]
        assert re.fullmatch(rf"bond0 carries nothing over port[01]: {reason}", warning[1]), warning


def test_roce_ports_are_named():
    said = in_guest(f"""
echo "CASE ports"
FI_MARLINE_RAILS=rc:rxe0 {labs.MARLINE} doctor --json || true
""")
    found = findings(said, "ports")
    for port in ("rxe0:1", "rxe1:1"):
        assert ("good", f"{port} has GIDs of RoCE version 2: ") in found, found
        for known in (f"{port} has neither PFC nor priorities: the driver of ", f"ECN of {port} cannot be read: the driver of "):
            assert any(severity == "good" and text.startswith(known) for severity, text in found), found
