"""A gang under a real mpirun: Open MPI and MPICH, where they are installed. No ssh is used, and none need be there.

All ranks are on one machine here, so that their hosts are called `rank-1`, `rank-2`; a pod has an address of its own.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.runtime.gangs import Gang, orphans_of
from tests.runtime.harness import eventually
from tests.runtime.real_mpi import Mpi, expected, processes, real
from tests.runtime.test_mpi import SAVES

__all__ = ["real"]


OPERATORS = {
    "K_MPI_JOB_ROLE": "launcher",
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
    "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    "OMPI_MCA_orte_set_default_slots": "1",
    "HYDRA_HOST_FILE": "/etc/mpi/hostfile",
    "HYDRA_LAUNCH_EXTRA_ARGS": "-o ConnectionAttempts=10",
}
"""What Kubeflow's MPI operator (0.8.2) sets in a Launcher for Open MPI, and for MPICH."""


def gang_of(
    real: Mpi,
    folder: Path,
    *program: str,
    words: tuple[object, ...] = (),
    slots: int = 2,
    size: int = 3,
    more: Mapping[str, str] | None = None,
) -> Gang:
    """A gang of 2 slots on each rank; of rank 0 `slots`."""
    gang = Gang(folder, size)
    gang.start("--mpi", 2, *words, "--", real.mpirun, *program, ranks=range(1, size), environ=real.environ)
    gang.start("--mpi", slots, *words, "--", real.mpirun, *program, ranks=[0], environ={**real.environ, **(more or {})})
    return gang


@pytest.mark.parametrize("slots", [2, 0])
def test_mpirun_without_flags_starts_a_process_for_every_slot(real: Mpi, tmp_path: Path, slots: int) -> None:
    gang = gang_of(real, tmp_path, real.program, slots=slots)
    assert gang.all_end_with(0)
    assert processes(gang.printed(0)) == expected("001122" if slots else "1122")
    assert not orphans_of(tmp_path)


def test_in_an_mpijob_the_operators_own_words_lead_nobody_astray(real: Mpi, tmp_path: Path) -> None:
    gang = gang_of(real, tmp_path, real.program, slots=0, more=OPERATORS)
    assert gang.all_end_with(0)
    assert processes(gang.printed(0)) == expected("1122")


def test_a_process_that_fails_on_one_rank_is_a_failure_of_the_gang_with_its_code(real: Mpi, tmp_path: Path) -> None:
    gang = gang_of(real, tmp_path, real.program, "3", "5")
    assert gang.all_end_with(5)
    assert '"outcome": "failed (retryable)"' in gang.last_words(0)
    assert not orphans_of(tmp_path)


def test_a_rank_that_is_killed_is_an_interruption(real: Mpi, tmp_path: Path) -> None:
    gang = gang_of(real, tmp_path, real.program, "wait")
    eventually(lambda: len(_of(tmp_path, "program")) == 6)
    gang.send(2, signal.SIGKILL)
    codes = gang.codes()
    assert (codes[0], codes[1]) == (75, 75), gang.said()
    assert "rank 2 is lost" in gang.last_words(0)


@pytest.mark.parametrize("told", [0, 2])
def test_a_stop_of_any_rank_stops_all_and_programs_that_save_have_their_grace(
    real: Mpi, tmp_path: Path, told: int
) -> None:
    saves = SAVES.replace('own + "/up"', 'own + f"/up-{os.getpid()}"').replace('"/saved"', 'f"/saved-{os.getpid()}"')
    (tmp_path / "saves.py").write_text(saves)
    gang = gang_of(real, tmp_path, sys.executable, str(tmp_path / "saves.py"), words=("--grace", "20s"))
    eventually(lambda: len(list(tmp_path.glob("*/up-*"))) == 6)
    time.sleep(2)  # the ranks say it with their next sign of life
    gang.send(told, signal.SIGTERM)
    assert gang.all_end_with(75)
    assert {name.parent.name for name in tmp_path.glob("*/saved-*")} == {"0", "1", "2"}
    assert len(list(tmp_path.glob("*/saved-*"))) == 6
    assert not orphans_of(tmp_path)


def _of(folder: Path, name: str) -> list[int]:
    """Processes of this gang that run a program of this name."""
    found = []
    for pid in orphans_of(folder):
        try:
            found += [pid] if Path(f"/proc/{pid}/comm").read_text().strip() == name else []
        except OSError:
            continue
    return found
