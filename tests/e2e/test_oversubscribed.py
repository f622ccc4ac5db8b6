"""Four ranks to each processor, and random faults: no live rank is declared dead, and all data is right.

`MARLINE_SOAK_MINUTES` says for how long (2 if not), `MARLINE_SOAK_SEED` which faults are drawn."""

import contextlib
import os
import random
import re
import time
from collections import Counter
from pathlib import Path

import pytest

import lab as labs
from test_faults import REPORT, goes_on, lasts

RAILS, HOSTS = (0, 1), ("h0", "h1")
KINDS = ["", "udp:rail0,udp:rail1", "tcp:rail0,tcp:rail1", "udp:rail0,tcp:rail1"]
LIMIT_S = 600  # of what hangs: a machine with four ranks a processor is slow


@pytest.fixture(scope="module")
def small_lab():
    """Without segmentation offload, so that switches may have a smaller MTU."""
    with labs.Lab(f"t{os.getpid()}-crowd", options=["--no-offload"]) as lab:
        lab.meet()
        yield lab


class Faults:
    """Faults drawn one after the other, and how often each of them met packets."""

    def __init__(self, lab, seed):
        self.lab, self.draw, self.met = lab, random.Random(seed), Counter()
        self.slow = ["rate=20mbit", "rate=200mbit"]
        with contextlib.suppress(RuntimeError):  # some kernels cannot delay packets
            lab.fault(0, "delay=1ms")
            self.slow += ["delay=1ms", "delay=10ms", "delay=50ms"]
        lab.clear()

    def targets(self):
        """A rail, a rail of one host, or all rails."""
        rail, host = self.draw.choice(RAILS), self.draw.choice(HOSTS)
        return self.draw.choice([[rail], [f"{host}:{rail}"], [f"{host}:{r}" for r in RAILS], list(RAILS)])

    def one(self, job):
        """One fault for some seconds, and its end."""
        draw = self.draw
        word, seconds = draw.choice([
            (f"drop={draw.choice([1, 5, 20])}%", draw.uniform(1, 5)),
            ("down", draw.uniform(0.2, 7)),
            ("blackhole", draw.uniform(0.2, 7)),
            (draw.choice(self.slow), draw.uniform(1, 5)),
            (f"mtu={draw.choice([700, 1000, 1300])}", draw.uniform(1, 5)),
            ("forget", draw.uniform(1, 5)),
            ("reset", draw.uniform(0.5, 3)),
        ])
        name = word.split("=")[0]
        if name == "reset":
            return self.reset(job, seconds)
        before = self.lab.hits()
        targets = self.targets()
        for target in targets:
            self.lab.fault(target, word)
        lasts(job, seconds)
        self.met[name] += name in ("down", "delay", "rate") or self.lab.hits() > before
        for target in targets:
            self.lab.fault(target, "up" if name == "down" else "clear")
        return f"{word} on {targets} for {seconds:.1f} s"

    def reset(self, job, seconds):
        """A firewall of a host resets its connections; the kernel ends that in time."""
        host = self.draw.choice(HOSTS)
        table = f"table inet wall {{ set on {{ type inet_proto; flags timeout; " \
                f"elements = {{ tcp timeout {int(1000 * seconds)}ms }}; }}; " \
                'chain c { type filter hook input priority 0; iifname "rail*" ' \
                "meta l4proto tcp meta l4proto @on counter reject with tcp reset; }; }"
        made = self.lab.exec(host, "nft", table)
        assert made.returncode == 0, made.stderr
        try:
            lasts(job, seconds)
            found = self.lab.exec(host, "nft", "list", "table", "inet", "wall").stdout
            self.met["reset"] += bool(re.search(r"counter packets [1-9]", found))
        finally:
            self.lab.exec(host, "nft", "delete", "table", "inet", "wall")
        return f"connections of {host} reset for {seconds:.1f} s"


def crowd(lab, stress, mpi, rails, faults, folder):
    """One job, in which five faults are made; how it went: `""`, or what was wrong."""
    enough = Path(folder) / "enough"
    enough.unlink(missing_ok=True)
    ranks = 4 * os.cpu_count()
    env = {"FI_LOG_LEVEL": "warn", **({"FI_MARLINE_RAILS": rails} if rails else {})}
    program = stress(mpi, "--continue", 5, "--max-size", 1 << 17, "--report", 0.5, "--until", enough)
    job = lab.start(mpi, program, n=ranks, env=env, options=["--no-multicast"])
    made = []
    try:
        if not job.wait_for(REPORT, 120):
            return f"it never began\n{job.output()}"
        for _ in range(5):
            if not job.running():
                break
            made.append(faults.one(job))
        goes_on(job, LIMIT_S)
        enough.touch()
        result = job.wait(LIMIT_S)
    except AssertionError as ended:
        result = None
        made.append(f"ended: {str(ended)[-2000:]}")
    finally:
        if job.running():
            job.kill()
        lab.clear()
    if result and result.ok and result.find(r"^stress ok ") and not result.find("is dead"):
        return ""
    return f"{mpi.name}, {rails or 'all rails'}: {made}\n{job.output()[-3000:]}"


@pytest.mark.soak
@pytest.mark.alone
def test_no_live_rank_is_declared_dead(small_lab, stress, provider, tmp_path):
    if provider != "marline":
        pytest.skip("it is about Marline's rails")
    seed = int(os.environ.get("MARLINE_SOAK_SEED", time.time_ns() // 1000))
    end = time.monotonic() + 60 * float(os.environ.get("MARLINE_SOAK_MINUTES", 2))
    faults, runs, wrong = Faults(small_lab, seed), 0, []
    while time.monotonic() < end:
        mpi = labs.MPIS[faults.draw.choice(["mpich", "openmpi", "intel"])]
        said = crowd(small_lab, stress, mpi, faults.draw.choice(KINDS), faults, tmp_path)
        runs, wrong = runs + 1, wrong + ([said] if said else [])
        print(f"seed {seed}: {runs} runs, {dict(faults.met)}, {len(wrong)} wrong", flush=True)
        if said:
            print(said, flush=True)
    assert not wrong, wrong
    assert sum(faults.met.values()) > 2 * runs, faults.met
