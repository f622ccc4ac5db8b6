"""Processes spawned by a running job (MPI_Comm_spawn), on hosts that a launcher reaches as by ssh,
without its environment."""

import pytest

import lab as labs

RANKS, CHILDREN = 2, 2
# Slots for all on each host, so that no process waits for the end of earlier ones.
PER_HOST = 8


@pytest.mark.parametrize("name", ["mpich", "openmpi", "openmpi4"])
def test_spawned_processes_use_marline(provider, tmp_path, monkeypatch, name):
    if provider != "marline":
        pytest.skip("it is about Marline's settings")
    mpi = labs.MPIS[name]
    monkeypatch.setenv("MARLINE_LAB_DIR", str(tmp_path / "labs"))
    (tmp_path / "labs").mkdir(mode=0o700)
    (tmp_path / "stats").mkdir()
    with labs.Lab("spawn") as lab:
        agent = tmp_path / "labs" / "spawn" / "agent"
        bare = "exec env -i HOME=/root PATH=/usr/bin:/bin:/usr/sbin:/sbin "
        agent.write_text(agent.read_text().replace("exec ", bare, 1))
        env = {"FI_MARLINE_STATS_DIR": tmp_path / "stats"}
        result = lab.run(mpi, [mpi.program("spawn"), CHILDREN], n=RANKS, env=env,
                         options=("--ppn", str(PER_HOST)), timeout=90)
    assert result.ok and result.find(rf"^spawn ok children={CHILDREN} times=2$"), result.tail()
    pages = list((tmp_path / "stats").glob("*.page"))
    assert len(pages) >= RANKS + 2 * CHILDREN, f"{pages}\n{result.tail()}"
    assert "no room" not in result.out, result.tail()
