"""Debian's Slurm on the hosts of a lab: its daemons and munge, started and ended together."""

import os
import shlex
import subprocess
import time

import lab as labs

SETTINGS = """
ClusterName=lab
SlurmctldHost={name}-h0(10.99.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.sock
CredType=cred/munge
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={place}/task-prolog
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MailProg=/bin/true
NodeName={name}-h0 NodeAddr=10.99.0.1 CPUs=8
NodeName={name}-h1 NodeAddr=10.99.0.2 CPUs=8
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """Two nodes with eight processors each, whatever the machine has."""

    def __init__(self, lab, place):
        self.lab, self.place, self.daemons = lab, place, []

    def __enter__(self):
        place, name = self.place, self.lab.name
        for folder in ("state", f"{name}-h0", f"{name}-h1", "pmix"):
            (place / folder).mkdir()
        (place / "slurm.conf").write_text(SETTINGS.format(place=place, name=name))
        # The site's program, as if Marline were installed: it acts on jobs with MARLINE_MPI alone.
        prolog = place / "task-prolog"
        prolog.write_text(f"#!/bin/sh\nexport PATH={labs.MARLINE.parent}:$PATH "
                          f"MARLINE_PROVIDER_DIR={labs.PROVIDER_DIR}\n"
                          f"exec {labs.ROOT}/packaging/slurm/task-prolog\n")
        prolog.chmod(0o755)
        plugin, command = place / "spank_marline.so", place / "marline"
        built = subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", plugin,
                                labs.ROOT / "packaging/slurm/spank_marline.c"], capture_output=True, text=True)
        assert built.returncode == 0, built.stderr
        command.write_text(f'#!/bin/sh\nMARLINE_PROVIDER_DIR={labs.PROVIDER_DIR} exec {labs.MARLINE} "$@"\n')
        command.chmod(0o755)
        (place / "plugstack.conf").write_text(f"required {plugin} {command}\n")
        # Slurm need not use the machine's cgroups, which may not be mounted.
        (place / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        # Hosts of a lab share /tmp, where Slurm's PMIx servers would collide.
        (place / "mpi.conf").write_text(f"PMIxCliTmpDirBase={place}/pmix\n")
        key = place / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        files = {"key-file": key, **{f"{word}-file": place / f"munge.{word}" for word in ("pid", "log", "seed")}}
        options = [f"--{option}={path}" for option, path in files.items()]
        self.start("munged", "--foreground", "--force", f"--socket={place}/munge.sock", *options)
        limit = time.monotonic() + 60
        while not (place / "munge.sock").exists():
            assert self.daemons[0].running() and time.monotonic() < limit, self.daemons[0].output()
            time.sleep(0.02)
        self.start_on("h0", "slurmctld", "-D")
        for host in ("h0", "h1"):
            mounted = self.lab.exec(host, "mount", "-t", "tmpfs", "none", place / "pmix")
            assert mounted.returncode == 0, mounted.stderr
            self.start_on(host, "slurmd", "-D", "-N", f"{name}-{host}")
        ready = self.run("srun", "-N2", "true")
        assert ready.ok, ready.tail() + self.logs()
        return self

    def __exit__(self, *_):
        # Steps are not children of the daemons.
        self.run("scancel", "--user=root")
        limit = time.monotonic() + 60
        while self.run("squeue", "--noheader").out.strip() and time.monotonic() < limit:
            time.sleep(0.1)
        for daemon in reversed(self.daemons):
            daemon.kill()

    def start(self, *words):
        env = labs.clean_env({"SLURM_CONF": self.place / "slurm.conf",
                              "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"})
        self.daemons.append(labs.Running([str(word) for word in words], env))

    def on(self, host, *words):
        return [labs.MARLINE, "lab", "exec", "--name", self.lab.name, host, "--", *words]

    def start_on(self, host, *words):
        self.start(*self.on(host, *words))

    def run(self, *words, env=None, timeout=180):
        """Runs a command on the first host, as if by a user logged in there."""
        set = labs.clean_env({"SLURM_CONF": self.place / "slurm.conf", **(env or {})})
        words = [str(word) for word in self.on("h0", *words)]
        return labs.Running(words, set).wait(timeout)

    def batch(self, text, *options):
        """Submits a job script; returns its number and its output file, which includes standard
        error."""
        script = self.place / "job.sh"
        script.write_text(f"#!/bin/bash\n{text}\n")
        result = self.run("sbatch", "--parsable", f"--chdir={self.place}", *options, script)
        assert result.ok, result.tail()
        number = result.out.strip().splitlines()[-1]
        return number, self.place / f"slurm-{number}.out"

    def wait_until(self, number, *states, timeout=120):
        """Waits until a job is in one of these states, and returns the state."""
        limit = time.monotonic() + timeout
        while (state := self.state(number)) not in states:
            assert time.monotonic() < limit, f"job {number}: {state}\n{self.logs()}"
            time.sleep(0.1)
        return state

    def state(self, number):
        shown = self.run("scontrol", "--oneliner", "show", "job", number).out
        return dict(pair.split("=", 1) for pair in shlex.split(shown) if "=" in pair).get("JobState")

    def logs(self):
        return "\n".join(daemon.output()[-2000:] for daemon in self.daemons)
