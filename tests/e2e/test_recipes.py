"""The recipes for EasyBuild, conda-forge and Spack install what is in the source tarball.

A `cargo` that hands over finished results saves each of them the same ten minutes:
test_packages.py::test_tarball_builds_offline compiles the tarball. No recipe has a network. The
compilers that the recipes name are empty modules and packages here, so that this machine's are
used."""

import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import lab as labs
from test_packages import BUILT, carried, job, package, run

pytestmark = pytest.mark.packages
TOOLS = labs.MPI_DIR / "recipes" / "bin"
OFFLINE = ("unshare", "--net", "--map-root-user")
LIBRARIES = tuple(f"lib/marline/libmarline-{name}.so" for name in ("fi", "mpi", "collectives"))
CARGO = """#!/bin/sh
set -e
[ "$1 $2 $3 $4" = "build --profile release --locked" ] || { echo "cargo $*: not foreseen" >&2; exit 1; }
grep -q 'directory = "vendor"' .cargo/config.toml
to=${CARGO_TARGET_DIR:-target}/release
mkdir -p "$to"
for name in marline libmarline_fi.so libmarline_mpi.so libmarline_collectives.so; do cp BUILT/$name "$to"; done
"""


@pytest.fixture(scope="module")
def recipes(tmp_path_factory):
    """The recipes for a tarball of this commit, below `place`, and its cargo below `place`/bin."""
    place = tmp_path_factory.mktemp("recipes")
    # One that `make dist` made before saves a minute.
    made = os.environ.get("MARLINE_TARBALL")
    tarball = Path(made) if made else package("dist", place / "tarball")
    run(labs.ROOT / "scripts" / "package", "recipes", tarball, f"file://{tarball.parent}", place)
    (place / "bin").mkdir()
    (place / "bin" / "cargo").write_text(CARGO.replace("BUILT", str(BUILT)))
    (place / "bin" / "cargo").chmod(0o755)
    return place, tarball


def path(place, *before):
    return ":".join(map(str, [*before, place / "bin", os.environ["PATH"]]))


def installed(prefix, stress, mpich):
    """All libraries are below a prefix, and a job runs with its command."""
    for name in LIBRARIES:
        assert (prefix / name).is_file()
    carried(run(*job(prefix / "bin" / "marline", f"{mpich.mpiexec}/bin/mpiexec", stress, mpich), FI_MARLINE_RAILS="lo"))


def test_no_word_of_a_recipe_is_left_open(recipes):
    place, _ = recipes
    files = [p for kind in ("spack", "easybuild", "conda") for p in (place / kind).rglob("*") if p.is_file()]
    assert len(files) == 4 and not [p for p in files if re.search("@[A-Z]+@", p.read_text())], files


def test_a_tarball_of_another_version_is_refused(tmp_path):
    (tmp_path / "marline-99.0.tar.xz").touch()
    words = [labs.ROOT / "scripts" / "package", "recipes", tmp_path / "marline-99.0.tar.xz", "file:///", tmp_path / "out"]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    assert done.returncode != 0 and "run `make dist`" in done.stderr, done.stderr


def module(folder, name, version, suffix=""):
    """A module file of EasyBuild for what this machine has in /usr."""
    word = name.upper()
    made = folder / name / f"{version}{suffix}"
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text(f"#%Module\nsetenv EBROOT{word} /usr\nsetenv EBVERSION{word} {version}\n")


def test_easybuild(recipes, stress, mpich, tmp_path):
    """EasyBuild builds, checks what it installed, and writes a module that gives the command."""
    place, _ = recipes
    [recipe] = (place / "easybuild").glob("*.eb")
    text = recipe.read_text()
    name, version = re.search(r"toolchain = {'name': '(\w+)', 'version': '([\d.]+)'}", text).groups()
    needs = re.findall(r"^    \('(\w+)', '([\d.]+)'\),$", text, re.M)
    assert [n for n, _ in needs] == ["binutils", "Rust"], text
    module(tmp_path / "have", name, version)
    for need in needs:
        module(tmp_path / "have", *need, f"-{name}-{version}")
    # What is linked here is linked by no compiler of EasyBuild's, which would set an RPATH.
    words = ["eb", "--modules-tool=EnvironmentModules", "--module-syntax=Tcl", "--disable-rpath",
             "--allow-use-as-root-and-accept-consequences", f"--prefix={tmp_path}/eb",
             f"--tmpdir={tmp_path}/tmp", str(recipe)]
    script = f'. /usr/share/modules/init/bash; export MODULEPATH={tmp_path}/have; exec "$@"'
    said = run(*OFFLINE, "bash", "-c", script, "bash", *words, PATH=path(place, TOOLS), HOME=tmp_path)
    assert "[SUCCESS] marline/" in said, said
    modules = f"{tmp_path}/have:{tmp_path}/eb/modules/all"
    script = f". /usr/share/modules/init/bash; export MODULEPATH={modules}; module load marline; command -v marline"
    [command] = [Path(line) for line in run("bash", "-c", script).splitlines() if line.endswith("/bin/marline")]
    assert command.is_relative_to(tmp_path / "eb" / "software"), command
    installed(command.parents[1], stress, mpich)


CONDA = """
import sys
from rattler_build import Stage0Recipe, ToolConfiguration, VariantConfig, EnvironmentIsolation, Package
recipe, channel = sys.argv[1:]
kinds = {"c_compiler": ("gcc", "14"), "rust_compiler": ("rust", "1.91"), "c_stdlib": ("sysroot", "2.28")}
for name, version in [*((f"{n}_linux-64", v) for n, v in kinds.values()), ("make", "4")]:
    text = f"package:\\n  name: {name}\\n  version: '{version}'\\nbuild:\\n  noarch: generic\\n  script: 'true'\\n"
    Stage0Recipe.from_yaml(text).run_build(output_dir=channel, channels=[])
variants = {key + end: [value] for key, pair in kinds.items() for end, value in zip(("", "_version"), pair)}
[made] = Stage0Recipe.from_file(recipe).run_build(
    variant_config=VariantConfig(variants), output_dir=channel, channels=["file://" + channel],
    tool_config=ToolConfiguration(test_strategy="native"), env_isolation=EnvironmentIsolation.NONE)
[package] = made.packages
print(package)
"""


def test_conda(recipes, stress, mpich, tmp_path):
    """rattler-build builds the package and runs the recipe's own tests on it; unpacked, it works."""
    place, _ = recipes
    wheel = labs.MPI_DIR / "wheel" / "bin"
    said = run(*OFFLINE, TOOLS / "python", "-c", CONDA, place / "conda" / "recipe.yaml", tmp_path / "channel",
               PATH=path(place, wheel), HOME=tmp_path)
    made = Path(said.strip().splitlines()[-1])
    assert made.suffix == ".conda", said
    run("python3", "-m", "zipfile", "-e", made, tmp_path / "package")
    [inside] = (tmp_path / "package").glob("pkg-*.tar.zst")
    (tmp_path / "prefix").mkdir()
    run("tar", "--zstd", "-xf", inside, "-C", tmp_path / "prefix")
    assert not (tmp_path / "prefix" / "share" / "modulefiles").exists()
    licences = [p.name for p in (tmp_path / "package").rglob("info-*")]
    assert licences, said
    installed(tmp_path / "prefix", stress, mpich)


class Recorder(types.ModuleType):
    """Spack's API as far as the recipe uses it: directives note their arguments."""

    def __init__(self):
        super().__init__("spack.package")
        self.said = []
        for name in ("license", "version", "depends_on", "requires", "conflicts"):
            setattr(self, name, lambda *words, _name=name, **named: self.said.append((_name, words, named)))
        self.Executable = lambda exe: lambda *words, **_: subprocess.run(
            [exe, *words], capture_output=True, text=True, check=True).stdout
        self.__all__ = ["license", "version", "depends_on", "requires", "conflicts", "Executable"]


@pytest.fixture
def spack(recipes, monkeypatch):
    """The recipe's class and its directives. Spack is neither in Debian nor on PyPI, so that the
    recipe's words and its calls of make are checked without it."""
    place, _ = recipes
    api, makefile = Recorder(), types.ModuleType("spack_repo.builtin.build_systems.makefile")
    makefile.MakefilePackage = type("MakefilePackage", (), {})
    for name in ("spack", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "spack.package", api)
    monkeypatch.setitem(sys.modules, makefile.__name__, makefile)
    scope = {"__name__": "package"}
    [recipe] = (place / "spack").rglob("package.py")
    exec(compile(recipe.read_text(), str(recipe), "exec"), scope)
    return scope["Marline"], api.said


def test_the_recipe_of_spack(recipes, spack, stress, mpich, tmp_path):
    place, tarball = recipes
    recipe, said = spack
    [(_, (version,), named)] = [line for line in said if line[0] == "version"]
    assert recipe.url == f"file://{tarball}" and tarball.name == f"marline-{version}.tar.xz"
    assert named["sha256"] == run("sha256sum", tarball).split()[0]
    [rust] = [words[0] for name, words, _ in said if name == "depends_on" and words[0].startswith("rust")]
    assert rust == "rust@" + re.search(r'rust-version = "(.*)"', (labs.ROOT / "Cargo.toml").read_text())[1] + ":"
    run("tar", "-xf", tarball, "-C", tmp_path)
    this = recipe()
    this.prefix = tmp_path / "prefix"
    for targets in (this.build_targets, this.install_targets):
        run(*OFFLINE, "make", *targets, cwd=tmp_path / f"marline-{version}", PATH=path(place))
    assert all((this.prefix / name).is_file() for name in this.sanity_check_is_file)
    assert recipe.determine_version(this.prefix / "bin" / "marline") == version
    installed(this.prefix, stress, mpich)
