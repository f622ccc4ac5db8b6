"""The cost of a message in Marline's instructions (design section 7: counted, not timed).

Counts both ends, from the two calls that post a message to the two completions, with all polls
between. Valgrind has no AVX-512, so that counts differ slightly from those on a processor with it.
"""

import re
import shutil
import subprocess

import pytest

import lab as labs

EAGER = labs.TARGET / "release" / "examples" / "eager"

# The counts plus a thirtieth for other compilers and processors, or a tenth of long copies, whose
# methods depend on the processor; docs/design/performance.md has the counts and their reasons.
# Changes that need more are explained there; changes that need less lower the budget.
BUDGETS = [
    # Bytes, window, counted messages, instructions per message.
    (8, 1, 10_240, 13_520),
    (8, 64, 2_560, 4_470),
    (2_048, 1, 2_560, 15_600),
    (16_384, 1, 1_280, 48_800),
    (65_536, 1, 128, 170_000),
    (65_536, 64, 384, 114_000),
    # Between the shortest and the longest window.
    pytest.param(2_048, 64, 5_120, 7_310, marks=pytest.mark.soak),
    pytest.param(16_384, 64, 2_560, 46_840, marks=pytest.mark.soak),
]


def instructions(messages, window, length, out):
    command = ["valgrind", "--tool=callgrind", "--toggle-collect=eager::counted*"]
    command += [f"--callgrind-out-file={out}", EAGER, str(messages), str(window), str(length)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return int(re.search(r"Collected : (\d+)", ran.stderr).group(1))


@pytest.mark.parametrize("length, window, counted, budget", BUDGETS)
def test_messages_stay_within_their_budget(length, window, counted, budget, tmp_path):
    assert shutil.which("valgrind"), "valgrind is missing: run `make deps`"
    assert EAGER.exists(), f"{EAGER} is missing: run `make eager`"
    each = instructions(counted, window, length, tmp_path / "counts") / counted
    assert each <= budget, f"{each:.0f} instructions a message"
    # A count far too low would mean that nothing was counted.
    assert each > budget / 4, f"{each:.0f} instructions a message"
