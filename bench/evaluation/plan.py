"""The steps of the evaluation, in their order, with their time limits."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Seconds of all of it: at rest on two cores, and of a quick one.
FULL_S, QUICK_S = 2 * 3600, 15 * 60
# Less time than this share of its limit is of no use to a step.
USEFUL = 0.3
# A step that ran into its limit has so long to write what it has.
ENDING_S = 20


@dataclass(frozen=True)
class Step:
    """A program of bench, with its arguments and limit (seconds), in full and quick; quick None: not
    part of that."""

    program: str
    full: str
    full_s: int
    quick: str
    quick_s: int

    def words(self, quick):
        args = self.quick if quick else self.full
        return None if args is None else [str(ROOT / "bench" / self.program), *args.split()]

    def limit_s(self, quick):
        return self.quick_s if quick else self.full_s


SCHEMES = ("tcp,marline,multicast,multicast-original,multicast-basic,multicast-window,multicast-co-root2,"
           "multicast-aggregate10")
MORE_VERBS = "rc-nosums,rc-keys,uc-nosums,uc-keys,ud-nosums,ud-keys"
STEPS = (
    Step("run", "--rounds 5 --seconds 0.1 --curve-seconds 0.02", 1000,
         "--rounds 1 --samples 1 --seconds 0.05 --curve-seconds 0 --threads 0", 150),
    Step("netpipe", "--rounds 5", 300, "--rounds 1 --most 65536", 60),
    Step("model", "", 150, "--quick", 30),
    Step("checksums", "--rounds 7 --sizes 8,4096,65536,1048576,4194304", 500,
         "--rounds 1 --sizes 8,65536 --seconds 0.02", 60),
    Step("checksums", "--rounds 5 --sizes 8,65536,1048576 --rate 10gbit --algorithms crc64-nh", 240, None, 0),
    Step("sums", "--rounds 5", 240, None, 0),
    Step("sums", "--rounds 5 --busy", 240, "--rounds 1 --samples 1 --rails tcp:lo --checksums fnv1a --busy", 45),
    Step("apps", "--rounds 10", 400, "--rounds 1 --only sort,cg", 50),
    Step("bcast",
         f"--hosts 8 --mpis mpich --bytes 4,65536,1048576 --rounds 3 --seconds 0.2 --skew 10 --only {SCHEMES}", 570,
         "--hosts 4 --mpis mpich --bytes 4,65536 --rounds 1 --seconds 0.05 --only tcp,marline,multicast", 90),
    Step("gap", "--repeats 5 --kinds udp-udp,tcp-udp", 400, "--repeats 1 --kinds udp-udp --faults down,silent", 45),
    Step("gap", "--flow --kinds udp-udp,udp-tcp --faults down,silent", 90, None, 0),
    Step("progress", "--trials 5", 90, "--trials 1 --seconds 0.5", 40),
    Step("crowd", "--rounds 2", 240, None, 0),
    Step("smax", "--rounds 5", 180, "--rounds 1 --sizes 448,4032,0", 40),
    Step("loss", "--rounds 5 --seconds 1 --only marline,psm3", 400, "--rounds 1 --seconds 0.2 --only =marline", 45),
    Step("shipped", "--rounds 3", 400, "--rounds 1 --steps 20 --only lammps", 40),
    Step("ablation", "--rounds 4", 350, "--rounds 1 --seconds 0.02 --rails udp,tcp", 90),
    Step("verbs", "--parts curves,rate --seconds 400", 420, None, 0),
    Step("verbs", f"--parts curves,rate --only {MORE_VERBS} --seconds 380", 400, None, 0),
    Step("verbs", "--parts jac --seconds 250", 270, "--parts rate --only ud --seconds 100", 110),
    Step("verbs", "--parts lammps --seconds 300", 320, None, 0),
)


def run(step, words, limit_s, env):
    """Runs one step, and ends it at its limit by an interrupt, at which some write what they have.
    Whether it ended well."""
    child = subprocess.Popen(words, cwd=ROOT, env=env, start_new_session=True)
    try:
        return child.wait(limit_s) == 0
    except subprocess.TimeoutExpired:
        print(f"{step.program}: interrupted after {limit_s:.0f} s", file=sys.stderr)
        return interrupt(child)
    except KeyboardInterrupt:
        interrupt(child)
        raise


def interrupt(child):
    """Ends a step, which may write what it has; whether it ended well."""
    os.killpg(child.pid, signal.SIGINT)
    try:
        return child.wait(ENDING_S) == 0
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return False


def run_all(quick, folder, only=(), steps=STEPS, clock=time.monotonic, run=run):
    """Runs the steps while there is time; names of those that failed or had no time. Records go to
    `folder`."""
    env = {**os.environ, "MARLINE_RECORD_DIR": str(folder)}
    end, left_out = clock() + (QUICK_S if quick else FULL_S), []
    for step in steps:
        words = step.words(quick)
        if words is None or (only and step.program not in only):
            continue
        limit_s = min(step.limit_s(quick), end - clock())
        if limit_s < USEFUL * step.limit_s(quick):
            left_out.append(f"{step.program} {' '.join(words[1:])}: no time left")
            continue
        print(f"== {step.program} {' '.join(words[1:])} (at most {limit_s:.0f} s)", file=sys.stderr)
        if not run(step, words, limit_s, env):
            left_out.append(f"{step.program} {' '.join(words[1:])}: failed")
    return left_out
