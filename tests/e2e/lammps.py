"""Debian's LAMMPS, as tests and benchmarks run it. Independent of pytest."""

import re
import shutil
from pathlib import Path

LMP = "/usr/bin/lmp"
EXAMPLES = Path("/usr/share/lammps/examples")
POTENTIALS = Path("/usr/share/lammps/potentials")

# A small copper crystal, as in LAMMPS' bench/in.eam.
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


def prepare(case, folder, run=None):
    """Writes the input into `folder`, with the number of steps reduced to `run`, or to a test's
    limit."""
    def steps(text, n):
        n = n if run is None else run
        return re.sub(r"(?m)^run\s+\d+", f"run {n}", re.sub(r"(?m)^(thermo)\s+\d+", r"\1 20", text))

    if case == "eam":
        shutil.copy(POTENTIALS / "Cu_u3.eam", folder)
        text = steps(EAM, 100)
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
    """The tables of thermodynamic output in a log, without timings."""
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
