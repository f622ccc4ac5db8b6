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


def test_the_doctor_of_one_host_conforms_to_its_schema():
    def doctor(env):
        words = [str(labs.MARLINE), "doctor", "--json"]
        done = subprocess.run(words, env=labs.clean_env(env), capture_output=True, text=True, timeout=60)
        found = assert_conforms("doctor", done.stdout)
        assert done.returncode == found["exit_status"] and not done.stderr, (done.returncode, done.stderr)
        assert found["hosts"] == found["paths"] == []
        return found

    assert doctor({})["exit_status"] in (0, 1, 2)
    found = doctor({"FI_MARLINE_RAILS": "not-here"})
    assert found["exit_status"] == 2 and found["findings"][0]["severity"] == "broken", found
