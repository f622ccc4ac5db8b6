"""Hosts with different values of settings that must agree, and hosts without a common kind of rail:
each side gets an error at first contact that names both values, and the job ends."""

import re

import re

import pytest

pytestmark = pytest.mark.any_mpi

# A timeout for hangs; a busy machine takes time to start and end a job.
LIMIT_S = 120


def unlike(tmp_path, variable, first, others):
    """A script that starts a program with one value of a setting on rank 0 and another on all
    others."""
    script = tmp_path / "unlike"
    script.write_text("#!/bin/sh\n"
                      "rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\n"
                      f'if [ "$rank" = 0 ]; then export {variable}={first}; '
                      f"else export {variable}={others}; fi\n"
                      'exec "$@"\n')
    script.chmod(0o755)
    return script


def refused(lab, mpi, program, folder):
    folder.mkdir()
    env = {"FI_LOG_LEVEL": "warn", "FI_MARLINE_STATS_DIR": folder}
    result = lab.run(mpi, program, env=env, timeout=LIMIT_S)
    assert not result.timed_out, result.tail()
    assert result.code != 0, result.tail()
    return result


@pytest.mark.parametrize("native_rank", [0, 1])
def test_reliability_on_one_side_is_refused_on_both(lab, stress, mpi, tmp_path, native_rank):
    values = ("off", "on") if native_rank == 0 else ("on", "off")
    script = unlike(tmp_path, "FI_MARLINE_RELIABILITY", *values)
    result = refused(lab, mpi, [script, *stress(mpi)], tmp_path / "pages")
    # The launcher may end the second rank before its report: unit tests show both sides.
    told = r"peer \w+ at [0-9.:]+ is refused: FI_MARLINE_RELIABILITY=(on here and off|off here and on) there"
    assert result.find(told), f"{told}\n{result.tail()}"
    assert result.find(r"Marline: PEER REFUSED: "), result.tail()


def test_no_common_kind_of_rail_is_reported_at_once(lab, stress, mpi, tmp_path):
    script = unlike(tmp_path, "FI_MARLINE_RAILS", "udp:rail0,udp:rail1", "tcp:rail0,tcp:rail1")
    result = refused(lab, mpi, [script, *stress(mpi)], tmp_path / "pages")
    assert result.find(r"no common kind of rail: here (udp|tcp) [0-9.:]+, "
                       r"(udp|tcp) [0-9.:]+, there (udp|tcp) "), result.tail()
    # A rank that ends before the location of its pages is known is named by its address.
    assert result.find(r"Marline: PEER REFUSED: "), result.tail()
    assert result.find(r"no\s+common\s+kind\s+of\s+rail:\s+(UDP|TCP)\s+over"), result.tail()
    assert not result.find(r"NOT USED|silent"), result.tail()


def test_multicast_schemes_that_differ_are_refused_on_all_sides(lab, mpi, tmp_path, provider):
    """The job goes on from rank to rank; each rank's log names both values."""
    if provider != "marline":
        pytest.skip("it is about Marline's groups")
    script = unlike(tmp_path, "FI_MARLINE_TEST", "multicast_scheme=basic", "multicast_scheme=window")
    # Of one datatype: Open MPI cuts those of others elsewhere, over TCP as well.
    program = [script, mpi.program("bcast"), "--plain", "--count", 20]
    result = lab.run(mpi, program, n=4, options=["--multicast"], env={"FI_LOG_LEVEL": "warn"}, timeout=LIMIT_S)
    assert result.ok and result.find("^bcast ok "), result.tail()
    told = re.findall(r"libfabric:(\d+):.*no multicast: FI_MARLINE_TEST=multicast_scheme=basic at member 0 .*, "
                      r"but window at member ", result.out)
    assert len(set(told)) == 4, f"{told}\n{result.tail()}"
