"""OpenSSH on the hosts of a lab: a server on each, on a port of its own, and a client's configuration.
Keys, known hosts and accounts are files of the test; those of the machine and its users are not used."""

import os
import subprocess

import pytest

import lab as labs

SSHD = labs.MPI_DIR / "sshd" / "sshd"
PORT = 2022
SETTINGS = """
Port {port}
HostKey {place}/host
AuthorizedKeysFile {place}/user.pub
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PidFile none
PrintMotd no
"""
CLIENT = """
Host refusing
    IdentityFile {place}/stranger
Host * !refusing
    IdentityFile {place}/user
Host *
    Port {port}
    User root
    IdentitiesOnly yes
    UserKnownHostsFile {place}/known
    GlobalKnownHostsFile none
"""


class Ssh:
    """Servers on all hosts of a lab. `names` are names of hosts with addresses: each of them has a known
    key, unless its name is `unknown` (none), or `changed` (another one). `hidden` is a folder that the
    lab's last host does not have in sessions by ssh."""

    def __init__(self, lab, place, names, hidden):
        self.lab, self.place, self.names, self.hidden, self.servers = lab, place, names, hidden, []

    def __enter__(self):
        if not SSHD.exists():
            pytest.fail(f"{SSHD} is missing: run `scripts/install-deps packages`")
        for key in ("host", "user", "stranger"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", self.place / key]
            subprocess.run(words, check=True)
        self.write()
        for host in range(self.lab.hosts):
            self.serve(host)
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.kill()

    def write(self):
        """Writes the configurations, and `ssh`, which reads the client's."""
        place = self.place
        own, other = ((place / f"{key}.pub").read_text() for key in ("host", "stranger"))
        known = {name: other if name == "changed" else own for name in self.names if name != "unknown"}
        (place / "known").write_text("".join(f"{name} {key}" for name, key in known.items()))
        hosts = "".join(f"Host {name}\n    HostName {address}\n    HostKeyAlias {name}\n"
                        for name, address in self.names.items())
        (place / "client").write_text(hosts + CLIENT.format(place=place, port=PORT))
        (place / "server").write_text(SETTINGS.format(place=place, port=PORT))
        (place / "passwd").write_text(f"root:*:0:0::{place}:/bin/sh\nsshd:*:999:65534::/run/sshd:/bin/false\n")
        (place / "bin").mkdir()
        wrapper = place / "bin" / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {place}/client "$@"\n')
        wrapper.chmod(0o755)

    def serve(self, host):
        """Starts the server of a host. It sees accounts and a directory of its own."""
        place = self.place
        empty = ["/run", self.hidden] if host == self.lab.hosts - 1 else ["/run"]
        script = "".join(f"mount -t tmpfs none '{folder}'; " for folder in empty)
        script += (f"mkdir -m 755 /run/sshd; mount --bind {place}/passwd /etc/passwd; "
                   f"exec env LD_LIBRARY_PATH={SSHD.parent} {SSHD} -D -e -f {place}/server")
        words = [labs.MARLINE, "lab", "exec", "--name", self.lab.name, f"h{host}", "--", "unshare", "--mount",
                 "sh", "-ec", script]
        server = labs.Running([str(word) for word in words], labs.clean_env({}))
        self.servers.append(server)
        assert server.wait_for("^Server listening on 0.0.0.0", 60), server.output()

    def run(self, *words, env=None):
        """Runs a command on the first host, as if by a user logged in there."""
        path = f"{self.place}/bin:{os.environ['PATH']}"
        words = [labs.MARLINE, "lab", "exec", "--name", self.lab.name, "h0", "--", *words]
        set = labs.clean_env({"PATH": path, **(env or {})})
        return subprocess.run([str(word) for word in words], env=set, capture_output=True, text=True, timeout=120)
