"""`bench/run` measures every size, ours and a peer's, with threads as well, and draws what it
measured."""

import csv
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

import lab as labs

sys.path.insert(0, str(labs.ROOT / "bench"))

import curves  # noqa: E402

OURS, PEER = "marline", "mpich tcp"


@pytest.mark.alone
def test_no_size_goes_unmeasured(tmp_path):
    words = [labs.ROOT / "bench" / "run", "--quick", "--only", f"={OURS},={PEER}",
             "--record", tmp_path, "--draw", tmp_path]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    [record] = tmp_path.glob("*-run.csv")
    with open(record, newline="") as lines:
        samples = list(csv.DictReader(lines))
    measured = {(s["contender"], s["test"], int(s["bytes"])) for s in samples if float(s["value"]) > 0}
    assert curves.SIZES[0] == 1 and curves.SIZES[-1] == 4 << 20
    assert all(large == 2 * small for small, large in zip(curves.SIZES, curves.SIZES[1:]))
    for name in (OURS, PEER):
        for test in curves.CURVES:
            missing = [size for size in curves.SIZES if (name, test, size) not in measured]
            assert not missing, f"{name}, {test}: {missing}\n{done.stderr}"
        for test in curves.RATES:
            assert (name, test, curves.RATE_BYTES) in measured, f"{name}, {test}\n{done.stderr}"
        for test in curves.MATCHING:
            assert (name, test, curves.MATCHED[0]) in measured, f"{name}, {test}\n{done.stderr}"
        for threads in curves.threads_here():
            for test, sizes in (("latency", curves.THREADED_LATENCY), ("rate", curves.THREADED_RATE)):
                wanted = {(name, f"threads{threads}-{test}", size) for size in sizes}
                assert wanted <= measured, f"{wanted - measured}\n{done.stderr}"
    distance = curves.kinds(samples)[0]
    for test in curves.CURVES:
        picture = ElementTree.parse(tmp_path / f"{test}.svg").getroot()
        # Pictures show one class of core distance: on a busy machine it may change between two
        # samples.
        drawn = {s["contender"] for s in samples if s["test"] == test and s["class"] == distance}
        texts = {text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")}
        assert drawn and drawn <= texts, f"{test}: {drawn}"
    assert "2 threads a rank" in done.stdout
    # (The table omits a size whose only samples saw the cores move.)
    assert "KiB" in done.stdout and f"over {PEER}" in done.stdout
