"""`make install` and `make uninstall`: installed files work in their place, and are removed
again."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

import lab as labs

pytestmark = pytest.mark.packages
BUILT = labs.MARLINE.parent


def install(*words):
    script = [labs.ROOT / "scripts" / "install", *words]
    done = subprocess.run([str(word) for word in script], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def said(*words, **env):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          env=labs.clean_env(env))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_installed_files_work_and_are_removed(stress, mpich, tmp_path):
    """Installed below a packager's DESTDIR and moved to its place afterwards, beside another
    file."""
    stage, place = tmp_path / "stage", tmp_path / "place"
    (stage / "opt" / "bin").mkdir(parents=True)
    (stage / "opt" / "bin" / "neighbour").touch()
    before = files(stage)
    install("put", BUILT, stage, "/opt")
    install("put", BUILT, stage, "/opt")
    stage.rename(place)
    marline = place / "opt" / "bin" / "marline"
    assert " (wire " in said(marline, "--version")
    words = [marline, "run", "--no-shm", "--require", "--", f"{mpich.mpiexec}/bin/mpiexec", "-n", 2]
    words += stress(mpich, "--phases", "ring", "--iterations", 2)
    env = {name: value for name, value in os.environ.items() if name != "MARLINE_PROVIDER_DIR"}
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60,
                          env={**env, "FI_MARLINE_RAILS": "lo"})
    assert done.returncode == 0 and "stress ok" in done.stdout, done.stdout + done.stderr
    for page in ("man1/marline.1", "man1/marline-exec.1", "man7/fi_marline.7"):
        assert (place / "opt/share/man" / page).is_file()
    install("remove", place, "/opt")
    assert files(place) == before


def test_the_shells_know_the_commands(tmp_path):
    install("put", BUILT, tmp_path, "/usr")
    script = tmp_path / "usr/share/bash-completion/completions/marline"
    ask = f'. {script}; COMP_WORDS=(marline e); COMP_CWORD=1; _marline marline e marline; echo "${{COMPREPLY[@]}}"'
    assert set(said("bash", "-c", ask).split()) >= {"exec", "env", "events"}


def test_a_module_is_loaded_and_unloaded(tmp_path):
    """Unloading restores the environment (except Modules' own list)."""
    prefix = tmp_path / "opt"
    install("put", BUILT, "", prefix)
    script = f"""
        . /usr/share/modules/init/bash
        module use {prefix}/share/modulefiles
        export -p | grep -vE ' (_|LOADEDMODULES)=' >{tmp_path}/before
        module load marline
        command -v marline; marline --version
        module unload marline
        export -p | grep -vE ' (_|LOADEDMODULES)=' >{tmp_path}/after
    """
    told = said("bash", "-c", script).splitlines()
    assert told[0] == f"{prefix}/bin/marline" and " (wire " in told[1], told
    assert (tmp_path / "before").read_text() == (tmp_path / "after").read_text()


def test_units_are_valid_and_do_what_they_say(stress, mpich, tmp_path):
    """systemd finds no fault with the units, and their commands run as it would run them. None is
    enabled: the timer and the measurement are the site's choice."""
    prefix = tmp_path / "opt"
    install("put", BUILT, "", prefix)
    units = sorted((prefix / "lib/systemd/system").iterdir())
    assert [u.name for u in units] == ["marline-metrics.service", "marline-metrics.timer", "marline-tune.service",
                                       "marline-xdpd.service"]
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    pages = tmp_path / "pages"
    pages.mkdir()
    text = units[0].read_text()
    [file] = re.findall("^Environment=FILE=(.*)$", text, re.M)
    [line] = re.findall("^ExecStart=(.*)$", text, re.M)
    made = tmp_path / Path(file).name
    words = shlex.split(line.replace("${FILE}", str(made)))
    assert f"\nReadWritePaths=-{Path(file).parent}\n" in text
    said(*words, FI_MARLINE_STATS_DIR=pages)
    assert re.search(r"^marline_processes\{host=\"[^\"]+\"\} 0$", made.read_text(), re.M), made.read_text()
    job = [prefix / "bin/marline", "run", "--no-shm", "--", f"{mpich.mpiexec}/bin/mpiexec", "-n", 2]
    said(*job, *stress(mpich, "--phases", "ring", "--iterations", 2), FI_MARLINE_RAILS="lo", FI_MARLINE_STATS_DIR=pages)
    said(*words, FI_MARLINE_STATS_DIR=pages)
    assert re.search("^marline_process_eager_sent_total{.*} [1-9]", made.read_text(), re.M), made.read_text()
    assert {path.name for path in tmp_path.glob(f"{made.name}*")} == {made.name, f"{made.name}.totals"}
    [line] = re.findall("^ExecStart=(.*)$", units[2].read_text(), re.M)
    profile = tmp_path / "profile.toml"
    said(*shlex.split(line.replace("/var/lib/marline/profile.toml", str(profile))), "--quick")
    assert profile.is_file()


def test_versions_are_named(lab, tmp_path):
    """By the command, and by the provider in libfabric's output."""
    version = said(labs.MARLINE, "--version").split(None, 1)[1].strip()
    env = [f"FI_PROVIDER_PATH={labs.PROVIDER_DIR}", "FI_LOG_LEVEL=info", "FI_LOG_PROV=marline"]
    shown = lab.exec("h0", "env", *env, "fi_info", "-p", "marline", "-v")
    assert f"marline: {version}\n" in shown.stdout, shown.stdout[:2000] + shown.stderr[:2000]
