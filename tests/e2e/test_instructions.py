"""The cost of a short message in our own instructions (design section 7: counted, not timed).

Both ends of it, from the two calls that post it to the two completions, with all polls between.
Valgrind has no AVX-512, so its count differs a little from that of a processor which has.
"""

import re
import shutil
import subprocess

import pytest

import lab as labs

EAGER = labs.TARGET / "release" / "examples" / "eager"

# What was counted, a thirtieth more for other compilers and processors; docs/decisions/0183 has the
# counts and their reasons. A change that needs more says why there; one that needs less lowers it.
BUDGETS = {"one by one": (1, 12_830), "in windows of 64": (64, 4_320)}


def instructions(messages, window, out):
    command = ["valgrind", "--tool=callgrind", "--toggle-collect=eager::volley*"]
    command += [f"--callgrind-out-file={out}", EAGER, str(messages), str(window)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return int(re.search(r"Collected : (\d+)", ran.stderr).group(1))


@pytest.mark.parametrize("how", BUDGETS)
def test_short_messages_stay_within_their_budget(how, tmp_path):
    assert shutil.which("valgrind"), "valgrind is missing: run `make deps`"
    assert EAGER.exists(), f"{EAGER} is missing: run `make eager`"
    window, budget = BUDGETS[how]
    # Both have the work that is done once (first contact, page faults).
    few, many = (instructions(n, window, tmp_path / str(n)) for n in (1_280, 11_520))
    each = (many - few) / (11_520 - 1_280)
    assert each <= budget, f"{each:.0f} instructions a message"
    # A count far below would be one of nothing.
    assert each > budget / 4, f"{each:.0f} instructions a message"
