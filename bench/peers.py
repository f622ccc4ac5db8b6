"""The contenders and how each is started: Marline in its three forms and its peers."""

import contextlib
import csv
import datetime
import os
import random
import signal
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "e2e"))

import lab as labs  # noqa: E402


@dataclass(frozen=True)
class Contender:
    """One line of the table."""

    name: str
    mpi: str
    provider: str  # what `marline lab run --provider` takes
    env: dict = field(default_factory=dict)
    ours: bool = False
    more: tuple = ()  # arguments of the program
    floor: bool = False  # no MPI's transport: what the kernel allows
    curves: bool = False  # measured at all sizes

    def start(self, lab, program, timeout, n=2):
        mpi = labs.MPIS[self.mpi]
        words = [mpi.program(program[0]), *program[1:], *self.more]
        return lab.run(mpi, words, n=n, provider=self.provider, env=self.env, timeout=timeout)


def _ours(name, mpi="mpich", curves=True, **env):
    # The raw and reliable forms leave out what papers 2-4 price separately.
    return Contender(name, mpi, "marline", env, ours=True, curves=curves)


def _ofi(provider, **env):
    return {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": provider, **env}


CONTENDERS = [
    _ours("marline raw", curves=False, FI_MARLINE_RELIABILITY="off", FI_MARLINE_CHECKSUM="none"),
    _ours("marline reliable", curves=False, FI_MARLINE_CHECKSUM="none"),
    _ours("marline"),
    # Under the other MPIs: what an MPI itself costs differs more than the transports do.
    _ours("marline openmpi", "openmpi"),
    _ours("marline intel", "intel"),
    Contender("mpich tcp", "mpich", "tcp", curves=True),
    Contender("mpich rxd", "mpich", "none", _ofi("udp;ofi_rxd", FI_UDP_IFACE="rail0")),
    Contender("mpich ucx tcp", "mpich", "none", {
        "MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "tcp", "UCX_NET_DEVICES": "rail0"}),
    Contender("openmpi ob1 tcp", "openmpi", "tcp", curves=True),
    Contender("intel tcp", "intel", "tcp", curves=True),
    Contender("intel psm3", "intel", "none", {
        "I_MPI_OFI_PROVIDER": "psm3", "FI_PROVIDER": "psm3", "PSM3_NIC": "rail0",
        "PSM3_HAL": "sockets", "PSM3_DEVICES": "self,nic", "I_MPI_FABRICS": "ofi"}, curves=True),
    # Bare datagrams on one rail (tests/programs/bare.h): from memory to memory, with the bytes read
    # once more at each end, and by way of packets that have room for a head.
    Contender("bare udp", "mpich", "tcp", more=("--bare", "rail0"), floor=True),
    Contender("bare udp summed", "mpich", "tcp", more=("--bare-summed", "rail0"), floor=True),
    Contender("bare udp copied", "mpich", "tcp", more=("--bare-copied", "rail0"), floor=True),
]


def chosen(names):
    """The contenders whose name contains one of the comma-separated words, or is what follows a "=";
    all without words."""
    words = [w.strip() for w in names.split(",") if w.strip()]
    def is_meant(name):
        return any(name == w[1:] if w.startswith("=") else w in name for w in words)

    picked = [c for c in CONTENDERS if not words or is_meant(c.name)]
    if not picked:
        sys.exit(f"no contender is called {names}; there are: {', '.join(c.name for c in CONTENDERS)}")
    return picked


def cpu_model():
    """Its name, family and model: the names of guests' processors tell little."""
    lines = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines())
    first = {}
    for key, _, value in lines:
        first.setdefault(key.strip(), value.strip())
    name = first.get("model name", "unknown")
    return f"{name} (family {first.get('cpu family', '?')}, model {first.get('model', '?')})"


def library():
    """How the provider was built, `plain` or `guided`, as `make` noted."""
    note = labs.PROVIDER_DIR / "how"
    return note.read_text().strip() if note.exists() else "unknown"


def require_build(contenders):
    need = [labs.MARLINE, labs.PROGRAMS / "mpich" / "pingpong"]
    if any(c.ours for c in contenders):
        need.append(labs.PROVIDER_DIR / "libmarline-fi.so")
    for path in need:
        if not path.exists():
            sys.exit(f"{path} is missing: run `make build programs`")
    if not labs.MPI_DIR.exists():
        sys.exit(f"no MPIs in {labs.MPI_DIR}: run `make deps`, or set MARLINE_MPI_DIR")


def interval(ratios):
    """95 % of the medians of resampled rounds: what the median ratio may really be."""
    dice = random.Random(1)
    medians = sorted(statistics.median(dice.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[-51]


def verdict(ratio, low, high, target, most):
    """Says if a ratio known to lie between `low` and `high` is at most, or else at least, a target."""
    if most:
        good, sure, hopeless = ratio <= target, high <= target, low > target
    else:
        good, sure, hopeless = ratio >= target, low >= target, high < target
    if hopeless:
        return "NOT reached"
    if sure:
        return "reached"
    return f"{'reached' if good else 'not reached'} by the median, not certain"


def judged(ratios, target, most):
    """The rounds' median ratio, its interval and, with a target, what to say of it."""
    ratio, (low, high) = statistics.median(ratios), interval(ratios)
    text = f"{ratio:.2f} ({low:.2f} to {high:.2f}, {len(ratios)} rounds)"
    if target is None:
        return text
    sign = "at most" if most else "at least"
    return f"{text}   target: {sign} {target}  {verdict(ratio, low, high, target, most)}"


@contextlib.contextmanager
def kept_when_interrupted():
    """Ends what is inside at Ctrl-C, and goes on after it."""
    # A shell lets its background jobs ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted: what was measured counts", file=sys.stderr)


def record_folder():
    """The folder of samples: bench/record, or that in MARLINE_RECORD_DIR."""
    return Path(os.environ.get("MARLINE_RECORD_DIR", labs.ROOT / "bench" / "record"))


def write_csv(samples, suffix, folder=None):
    """Writes DATE-SUFFIX.csv to the folder of samples or another, with how our library was built, and
    says where."""
    samples = [{**sample, "library": sample.get("library", library())} for sample in samples]
    folder = Path(folder) if folder else record_folder()
    folder.mkdir(parents=True, exist_ok=True)
    stamp = datetime.datetime.now().strftime("%Y-%m-%d-%H%M")
    path, number = folder / f"{stamp}-{suffix}.csv", 2
    while path.exists():
        path, number = folder / f"{stamp}-{suffix}-{number}.csv", number + 1
    with open(path, "w", newline="") as out:
        writer = csv.DictWriter(out, samples[0].keys())
        writer.writeheader()
        writer.writerows(samples)
    return path
