"""`srun marline exec -- ./app` with a real Slurm, whose users need no settings."""

import re

import pytest

import lab as labs
from slurm import Slurm
from test_exec import EXEC, carried

pytestmark = pytest.mark.packages
RING = ("--phases", "ring", "--iterations", 2, "--max-size", 100000)
# As set by a module file or the site's profile.
RAILS = {"FI_MARLINE_RAILS": "rail0,rail1"}
LOG = {"FI_LOG_LEVEL": "info", "FI_LOG_PROV": "marline"}
ROOT = {f"{who}_ALLOW_RUN_AS_ROOT{word}": 1 for who in ("OMPI", "PRTE") for word in ("", "_CONFIRM")}


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with labs.Lab(f"slurm{tmp_path_factory.getbasetemp().name[-4:]}") as lab:
        lab.meet()
        with Slurm(lab, tmp_path_factory.mktemp("slurm")) as slurm:
            yield slurm


@pytest.mark.parametrize("name, pmi", [("mpich", "pmi2"), ("intel", "pmi2"), ("openmpi", "pmix")])
def test_srun(slurm, stress, name, pmi):
    mpi = labs.MPIS[name]
    result = slurm.run("srun", "-N2", "-n2", f"--mpi={pmi}", *EXEC, *stress(mpi, *RING), env={**RAILS, **mpi.env})
    assert result.find("^stress ok"), result.tail()
    carried(result)


def test_mpirun_in_an_allocation(slurm, stress, openmpi):
    """Open MPI's mpirun starts its daemons by srun."""
    words = ["salloc", "-N2", "-n2", f"{openmpi.mpiexec}/bin/mpirun", *EXEC, *stress(openmpi, *RING)]
    result = slurm.run(*words, env={**RAILS, **ROOT})
    assert result.find("^stress ok"), result.tail()
    carried(result)


@pytest.mark.parametrize("name, pmi", [("mpich", "pmi2"), ("openmpi", "pmix")])
def test_the_prolog_of_a_site(slurm, stress, name, pmi):
    """The job's line has no word of Marline; a variable asks for it."""
    mpi = labs.MPIS[name]
    words = ["srun", "-N2", "-n2", f"--mpi={pmi}", *stress(mpi, *RING)]
    result = slurm.run(*words, env={**RAILS, **mpi.env, "MARLINE_MPI": mpi.mpiexec})
    assert result.find("^stress ok"), result.tail()
    carried(result)


def authenticated(result, ranks=2):
    """The ranks have the same key, each of which would else refuse the others."""
    given = re.findall(r"FI_MARLINE_KEY(?:_FILE)?=\S+ \(given\)", result.out)
    assert len(given) >= ranks, result.tail()


def test_the_prolog_of_a_site_makes_a_key(slurm, stress, mpich, tmp_path):
    """In a directory that all nodes see, whichever rank is first."""
    words = ["srun", "-N2", "-n8", "--mpi=pmi2", *stress(mpich, *RING)]
    env = {**RAILS, **LOG, **mpich.env, "MARLINE_MPI": mpich.mpiexec, "MARLINE_KEY_DIR": tmp_path}
    result = slurm.run(*words, env=env)
    assert result.find("^stress ok"), result.tail()
    authenticated(result, 8)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600 and len(file.read_text()) == 64


def test_the_prolog_leaves_other_jobs_alone(slurm):
    result = slurm.run("srun", "-N2", "-n2", "/usr/bin/env")
    assert result.ok and result.find("^SLURM_PROCID=1"), result.tail()
    assert not result.find("^(FI_|MPIR_|OMPI_|LD_PRELOAD)"), result.tail()


def test_the_prolog_stops_a_job_whose_mpi_is_not_there(slurm):
    """Rather than let it run over another transport."""
    result = slurm.run("srun", "-N2", "-n2", "/bin/echo", "ran", env={"MARLINE_MPI": "/nowhere"})
    assert not result.ok and not result.find("^ran"), result.tail()


@pytest.mark.parametrize("name, pmi", [("mpich", "pmi2"), ("intel", "pmi2"), ("openmpi", "pmix")])
def test_an_option_of_srun(slurm, stress, name, pmi):
    """The SPANK plug-in sets up the ranks."""
    mpi = labs.MPIS[name]
    words = ["srun", f"--marline={mpi.mpiexec}", "-N2", "-n2", f"--mpi={pmi}", *stress(mpi, *RING)]
    result = slurm.run(*words, env={**RAILS, **LOG, **mpi.env})
    assert result.find("^stress ok"), result.tail()
    carried(result)
    authenticated(result)


@pytest.mark.parametrize("exported", ["ALL", "NONE"])
def test_the_option_makes_a_key_for_each_step(slurm, mpich, exported):
    """The same for all ranks, whatever the step inherits, unless the job has one or does without."""

    def variables(**env):
        words = ["srun", f"--marline={mpich.mpiexec}", "-N2", "-n4", f"--export={exported}", "/usr/bin/env"]
        result = slurm.run(*words, env=env)
        assert result.ok and "SLURM_MARLINE" not in result.out, result.tail()
        return re.findall(r"^FI_MARLINE_KEY=(\w*)$", result.out, re.M)

    first, second = variables(), variables()
    for keys in (first, second):
        assert len(keys) == 4 and len(set(keys)) == 1 and re.fullmatch("[0-9a-f]{64}", keys[0]), keys
    assert first[0] != second[0]
    assert variables(FI_MARLINE_AUTH="off") == []
    own = "5a" * 32
    assert variables(FI_MARLINE_KEY=own) == 4 * [own]


def test_the_option_finds_the_mpi_on_the_path(slurm, stress, mpich):
    words = ["srun", "--marline", "-N2", "-n2", "--mpi=pmi2", *stress(mpich, *RING)]
    result = slurm.run(*words, env={**RAILS, "PATH": f"{mpich.mpiexec}/bin:/usr/bin:/bin"})
    assert result.find("^stress ok"), result.tail()
    carried(result)


def test_the_option_stops_a_job_whose_mpi_is_not_there(slurm):
    result = slurm.run("srun", "--marline=/nowhere", "-N2", "-n2", "/bin/echo", "ran")
    assert not result.ok and not result.find("^ran"), result.tail()
    assert result.find("/nowhere"), result.tail()


def script(slurm, program):
    words = ["/usr/bin/env", "FI_MARLINE_RAILS=rail0,rail1", *EXEC, *program]
    return "srun --exact -N2 -n2 --mpi=pmi2 " + " ".join(map(str, words))


# Before its program: waits until a rank of the other step has started.
MEET = "/bin/sh -c ': >$1/begun-$2; until [ -e $1/begun-$3 ]; do /bin/sleep 0.1; done; shift 3; exec \"$@\"' sh"


def test_concurrent_steps_that_inherit_no_environment(slurm, stress, mpich):
    """Two concurrent steps of a batch job, each with its own summary in the job's output, with
    `--export=NONE` for the job and its steps. A step beside them has none of Marline's
    variables."""
    step = script(slurm, stress(mpich, *RING)).replace("srun", "srun --export=NONE")
    steps = [step.replace("/usr/bin/env", f"{MEET} {slurm.place} {pair} /usr/bin/env") for pair in ("a b", "b a")]
    text = f"{steps[0]} &\n{steps[1]} &\nwait\necho then\nsrun -N1 -n1 /usr/bin/env\n"
    number, out = slurm.batch(text, "-N2", "--ntasks-per-node=2", "--export=NONE")
    state = slurm.wait_until(number, "COMPLETED", "FAILED", "TIMEOUT")
    said = out.read_text()
    assert state == "COMPLETED" and len(re.findall("^stress ok", said, re.M)) == 2, said
    assert len(re.findall("^Marline: rank 0 sent .* over 2 rails", said, re.M)) == 2, said
    after = said.split("\nthen\n")[1]
    assert "SLURM_JOB_ID=" in after, after
    assert not re.search("^(FI_|MPIR_|OMPI_|LD_PRELOAD|MARLINE)", after, re.M), after


def test_a_job_that_is_put_back_after_its_node_failed(slurm, stress, mpich):
    """The first run ends with its node; the second completes and reports its traffic."""
    endless = script(slurm, stress(mpich, "--continue", 600, "--max-size", 100000, "--report", 0.3))
    text = f'if [ -z "$SLURM_RESTART_COUNT" ]; then {endless}; else {script(slurm, stress(mpich, *RING))}; fi'
    number, out = slurm.batch(text, "-N2", "-n2", "--requeue", "--open-mode=append")
    running = labs.Running(["tail", "-F", str(out)], labs.clean_env({}))
    try:
        assert running.wait_for("^stress t=", 120), running.output() + slurm.logs()
        node = f"NodeName={slurm.lab.name}-h1"
        assert slurm.run("scontrol", "update", node, "State=DOWN", "Reason=test").ok
        slurm.wait_until(number, "PENDING")
        # The node may be back already: its daemon kept running and reported that.
        slurm.run("scontrol", "update", node, "State=RESUME")
        # Slurm delays a requeued job by two minutes.
        assert slurm.run("scontrol", "update", f"JobId={number}", "StartTime=now").ok
        state = slurm.wait_until(number, "COMPLETED", "FAILED", "TIMEOUT", timeout=300)
    finally:
        running.kill()
    said = out.read_text()
    assert state == "COMPLETED" and re.search("^stress ok", said, re.M), said
    assert re.search("^Marline: rank 0 sent .* over 2 rails", said, re.M), said


def test_the_doctor_examines_the_hosts_of_an_allocation(slurm):
    result = slurm.run("salloc", "-N2", labs.MARLINE, "doctor", "--slurm", env=RAILS)
    assert result.ok and result.find("^good: all 4 ways between 2 hosts carry$"), result.tail()
