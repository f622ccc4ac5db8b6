"""Programs from Debian on Debian's Open MPI 4.1.4, as they are."""

import re
import shutil
from pathlib import Path

import pytest

LMP = "/usr/bin/lmp"
EXAMPLES = Path("/usr/share/lammps/examples")
POTENTIALS = Path("/usr/share/lammps/potentials")

# Copper as LAMMPS' own bench/in.eam has it, small.
EAM = """units metal
atom_style atomic
lattice fcc 3.615
region box block 0 8 0 8 0 8
create_box 1 box
create_atoms 1 box
pair_style eam
pair_coeff 1 1 Cu_u3.eam
velocity all create 1600.0 376847 loop geom
neighbor 1.0 bin
neigh_modify every 1 delay 5 check yes
fix 1 all nve
timestep 0.005
thermo 20
run 100
"""


def prepare(case, folder):
    """The input in `folder`, with the number of steps cut to what a test may take."""
    def steps(text, n):
        return re.sub(r"(?m)^run\s+\d+", f"run {n}", re.sub(r"(?m)^(thermo)\s+\d+", r"\1 20", text))

    if case == "eam":
        shutil.copy(POTENTIALS / "Cu_u3.eam", folder)
        text = EAM
    elif case == "melt":
        text = steps((EXAMPLES / "melt" / "in.melt").read_text(), 200)
    elif case == "peptide":
        shutil.copy(EXAMPLES / "peptide" / "data.peptide", folder)
        text = steps((EXAMPLES / "peptide" / "in.peptide").read_text(), 100)
    else:
        chain = EXAMPLES / "COUPLE" / "multiple"
        shutil.copy(chain / "data.chain", folder)
        text = "variable t equal 1.0\n" + steps((chain / "in.chain").read_text(), 200)
    (folder / "in.test").write_text(text)


def thermo(log):
    """The tables of thermodynamic output, without timings."""
    rows, inside = [], False
    for line in Path(log).read_text().splitlines():
        line = re.sub(r"CPU = .*", "", line)
        if re.match(r"^[ -]*Step ", line):
            inside = True
        elif line.startswith("Loop time"):
            inside = False
        if inside and not line.startswith("WARNING"):
            rows.append(line.split())
    return rows


def lammps(lab, mpi, folder, provider, name):
    program = [LMP, "-in", "in.test", "-log", f"log.{name}", "-screen", "none"]
    result = lab.run(mpi, program, n=2, provider=provider, cwd=folder, timeout=120)
    assert result.ok, result.tail()
    return thermo(folder / f"log.{name}")


@pytest.mark.parametrize("case", ["melt", "peptide", "chain", "eam"])
def test_lammps_same_results_as_over_tcp(lab, openmpi4, provider, tmp_path, case):
    prepare(case, tmp_path)
    reference = lammps(lab, openmpi4, tmp_path, "tcp", "tcp")
    assert len(reference) > 3, reference
    assert lammps(lab, openmpi4, tmp_path, provider, "tested") == reference


def test_lammps_while_a_rail_is_cut(lab, openmpi4, provider, tmp_path):
    prepare("melt", tmp_path)
    reference = lammps(lab, openmpi4, tmp_path, "tcp", "tcp")
    lab.fault("1", "blackhole")
    assert lammps(lab, openmpi4, tmp_path, provider, "tested") == reference


def test_netpipe(lab, openmpi4, provider, tmp_path):
    program = ["/usr/bin/NPopenmpi", "-u", 1 << 20, "-n", 3, "-o", tmp_path / "np.out"]
    result = lab.run(openmpi4, program, provider=provider, timeout=90)
    assert result.ok, result.tail()
    sizes = [int(line.split()[0]) for line in (tmp_path / "np.out").read_text().splitlines()]
    assert sizes[0] == 1 and sizes[-1] > 1 << 19, sizes


def test_netpipe_checks_integrity(lab, openmpi4, provider, tmp_path):
    """-i: NetPIPE checks the data itself, size by size, and says of each that it is right."""
    program = ["/usr/bin/NPopenmpi", "-i", "-u", 1 << 18, "-n", 3, "-o", tmp_path / "np.out"]
    result = lab.run(openmpi4, program, provider=provider, timeout=90)
    assert result.ok, result.tail()
    sizes = (tmp_path / "np.out").read_text().splitlines()
    passed = result.out.count("Integrity check passed")
    assert passed == len(sizes) > 30, f"{passed} of {len(sizes)} sizes: {result.tail()}"
