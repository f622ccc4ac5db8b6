"""Each output in JSON has the members and types that its published schema names."""

import subprocess

import jsonschema
import pytest

import lab as labs
from schemas import assert_conforms
from test_use import RING, run


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's outputs")


def test_outputs_conform_to_their_schemas(stress, mpich, tmp_path):
    pages, file = tmp_path / "pages", tmp_path / "run.json"
    pages.mkdir()
    program = ["-n", 2, *stress(mpich, *RING)]
    result = run(mpich, ["--no-shm", f"--json={file}"], program, env={"FI_MARLINE_STATS_DIR": pages})
    assert result.ok, result.tail()
    ran = assert_conforms("run", file.read_text())
    assert (ran["verdict"], ran["program_status"]) == ("clean", 0), ran

    def output(*words):
        words = [str(labs.MARLINE), *words, "--json", str(pages)]
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout

    for name in ("stats", "events", "top", "report"):
        [job] = assert_conforms(name, output(name))["jobs"]
        assert job["job"], job
    with pytest.raises(jsonschema.ValidationError):
        assert_conforms("events", output("stats"))
