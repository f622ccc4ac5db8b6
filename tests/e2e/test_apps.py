"""Unmodified programs from Debian with Debian's Open MPI 4.1.4."""

import pytest

from lammps import LMP, prepare, thermo


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
    """-i: NetPIPE checks the data of each size and reports the result."""
    program = ["/usr/bin/NPopenmpi", "-i", "-u", 1 << 18, "-n", 3, "-o", tmp_path / "np.out"]
    result = lab.run(openmpi4, program, provider=provider, timeout=90)
    assert result.ok, result.tail()
    sizes = (tmp_path / "np.out").read_text().splitlines()
    passed = result.out.count("Integrity check passed")
    assert passed == len(sizes) > 30, f"{passed} of {len(sizes)} sizes: {result.tail()}"
