"""A gang whose program is mpirun, in pods: Open MPI and MPICH, on Argo, with nothing but the word `mpirun`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ..runtime.real_mpi import expected, processes
from .cluster import Cluster
from .faults import Faults
from .fixtures import AnyCluster, lacking
from .images import MPI_PROGRAMS
from .kube import Kube
from .test_argo import ended
from .test_argo_gangs import Ground
from .waiting import until

pytestmark = pytest.mark.cluster


@pytest.fixture
def ground(private_cluster: Cluster, argo: AnyCluster, jobset: AnyCluster, namespace: Kube, tmp_path: Path) -> Mpi:
    try:
        private_cluster.image("mpi")
    except FileNotFoundError as error:
        lacking(str(error))
    return Mpi(namespace, tmp_path)


class Mpi(Ground):
    """Three ranks with two processes each."""

    def launch(self, name: str, *words: str) -> None:
        """`words`: for the program, see `real_mpi`."""
        command = [f"mpirun.{name}", f"/{MPI_PROGRAMS[name]}", *words]
        step = {
            "image": "gpuflow.test/mpi:1",
            "image_pull_policy": "IfNotPresent",
            "cpu": {"request": "20m"},
            "memory": "128Mi",
            "command": command,
            "gang": {"workers": 3, "rendezvous": {"framework": "mpi", "processes_per_worker": 2}},
            "retry": {"failures": 1, "interruptions": 2, "backoff": {"start": "1s", "max": "2s"}},
        }
        head = {"apiVersion": "gpuflow/v1", "kind": "Pipeline", "name": "gangs", "silence": ["GF341"]}
        (self.folder / "p.yaml").write_text(yaml.safe_dump({**head, "steps": {"train": step}}))
        self.submit()

    def printed(self, attempt: int = 1) -> list[str]:
        """What the processes of an attempt printed, which rank 0 has all of."""
        pods = self.ranks(attempt)
        return processes(self.kube("logs", pods[0], "--container=main")) if 0 in pods else []


@pytest.mark.parametrize("name", MPI_PROGRAMS)
def test_mpirun_without_flags_starts_processes_in_every_pod(ground: Mpi, name: str) -> None:
    ground.launch(name)
    done = ended(ground.kube, "run", 300)
    log = ground.kube("logs", ground.launcher(), "--container=main")
    assert done["status"]["phase"] == "Succeeded", log
    assert processes(log) == expected("001122")
    assert ground.counts() == ("1", "0", "0")


@pytest.mark.parametrize("name", MPI_PROGRAMS)
def test_an_evicted_rank_is_an_interruption_and_mpirun_starts_again(ground: Mpi, faults: Faults, name: str) -> None:
    ground.launch(name, "wait")
    for attempt in (1, 2):
        until("all processes work", lambda n=attempt: ground.printed(n) == expected("001122"), timeout=180)
        if attempt == 1:
            faults.evict(ground.ranks(1)[2])
    assert ground.counts() == ("2", "0", "1")
    ground.kube("patch", "workflow", "run", "--type=merge", "--patch", '{"spec":{"shutdown":"Terminate"}}')
    assert ended(ground.kube, "run", 120)["status"]["phase"] == "Failed"
    until("every rank to end", lambda: not ground.ranks(2), timeout=60)
    ground.kube("delete", "workflow", "run")
    ground.nothing_left()  # attempt 1 is kept until then


@pytest.mark.parametrize("name", MPI_PROGRAMS)
def test_a_process_that_fails_costs_a_failure(ground: Mpi, name: str) -> None:
    ground.launch(name, "3", "5")
    assert ended(ground.kube, "run", 300)["status"]["phase"] == "Failed"
    assert ground.counts() == ("2", "1", "0"), "and the second attempt, too, so that the budget was spent"
