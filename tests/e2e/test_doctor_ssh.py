"""`marline doctor --hosts` by OpenSSH: a healthy lab gives 0, and a host that cannot be examined is
named with the command that mends it."""

import os
import re

import pytest

import lab as labs
from sshd import Ssh

pytestmark = pytest.mark.packages
# Hosts of the lab, of which the last has no Marline; names of one of them; a name of none.
HOSTS = 9
NAMES = {**{f"n{host}": f"10.99.0.{host + 1}" for host in range(HOSTS)},
         **dict.fromkeys(("changed", "unknown", "refusing"), "10.99.0.2"), "away": "10.99.0.77"}


@pytest.fixture(scope="module")
def ssh(tmp_path_factory):
    with labs.Lab(f"ssh{os.getpid()}", hosts=HOSTS) as lab:
        lab.meet()
        with Ssh(lab, tmp_path_factory.mktemp("ssh"), NAMES, labs.MARLINE.parent) as ssh:
            yield ssh


def doctor(ssh, hosts, *options):
    """Examines hosts from the first one; returns the exit status, and the output with a line for a
    finding."""
    done = ssh.run(labs.MARLINE, "doctor", "--hosts", hosts, *options, env={"FI_MARLINE_RAILS": "rail0,rail1"})
    assert done.stderr == "", done.stderr
    return done.returncode, re.sub(r"\n  (?! )", " ", done.stdout)


def test_eight_healthy_hosts_are_good(ssh):
    code, said = doctor(ssh, "n[0-7]")
    assert code == 0 and "good: all 112 ways between 8 hosts carry" in said, said


# Hosts that ssh does not reach, and the words that name them.
WRONG = {
    "away": ["broken: away: cannot be reached by ssh: ssh: connect to host 10.99.0.77 port 2022: No route to host",
             "    ssh -o ConnectTimeout=5 away true"],
    "unknown": ["broken: unknown: ssh does not know the host's key",
                "    ssh -o ConnectTimeout=5 unknown true    # and compare the fingerprint"],
    "changed": ["broken: changed: ssh gets another host key than the known one", "    ssh-keygen -f ",
                "    ssh -o ConnectTimeout=5 changed true"],
    "refusing": ["broken: refusing: the host refuses the login: root@10.99.0.2: Permission denied (publickey).",
                 "    ssh-copy-id refusing"],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_host_that_ssh_does_not_enter_is_named(ssh, name):
    """The others are examined all the same."""
    code, said = doctor(ssh, f"n[0-1],{name}")
    assert code == 2 and said.count("broken: ") == 1, said
    for words in [*WRONG[name], "good: all 4 ways between 2 hosts carry"]:
        assert words in said, said


def test_a_host_without_marline_is_named(ssh):
    code, said = doctor(ssh, "n[0-1],n8")
    assert code == 2 and said.count("broken: ") == 1, said
    for words in (f"broken: n8: marline is not installed at {labs.MARLINE}: sh: 1: {labs.MARLINE}: not found",
                  "    install it there, or name its path: --marline PATH", "good: all 4 ways between 2 hosts carry"):
        assert words in said, said
