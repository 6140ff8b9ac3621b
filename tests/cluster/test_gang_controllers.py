"""Gangs of every kind on Argo, under the controllers of their projects: JobSet, Trainer, the training operator, the MPI
operator, Volcano.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from gpuflow.runtime.gangs.kinds import WORDS

from . import gang_faults
from .cluster import Cluster
from .faults import Faults
from .fixtures import AnyCluster, with_addon
from .gang_runs import WORD
from .kube import Kube
from .queues import QUEUE
from .test_argo import ended
from .test_argo_gangs import Ground
from .test_gang_faults import preempts

__all__ = ["preempts"]
pytestmark = pytest.mark.cluster

ADDONS = {
    "jobset": ["jobset"],
    "trainjob": ["trainer"],
    "pytorchjob": ["training-operator"],
    "mpijob": ["mpi-operator"],
    "volcano": ["volcano"],
    "jobset+volcano": ["jobset", "volcano"],
}
SHAPES = [(kind, leads) for kind in ADDONS for leads in (False, True) if leads + 1 in WORDS[kind].sets]
LEADER = {"memory": "80Mi"}


@pytest.fixture
def ground(
    request: pytest.FixtureRequest, private_cluster: Cluster, argo: AnyCluster, namespace: Kube, tmp_path: Path
) -> Ground:
    """A namespace for gangs of the kind that a test names, and whether they have a leader."""
    kind, leads = request.param
    for addon in ADDONS[kind]:
        with_addon(private_cluster, addon)
    private_cluster.image("gpuflow")
    return Led(namespace, tmp_path, kind) if leads else Ground(namespace, tmp_path, kind)


class Led(Ground):
    """Gangs with a leader beside three workers."""

    def start(self, **words: Any) -> None:
        super().start(leader=LEADER, **words)


every_shape = pytest.mark.parametrize("ground", SHAPES, indirect=True, ids=lambda it: f"{it[0]}{'-led' * it[1]}")
every_kind = pytest.mark.parametrize(
    "ground", [(kind, kind == "mpijob") for kind in ADDONS], indirect=True, ids=lambda it: it[0]
)


@every_shape
def test_four_ranks_one_output_and_the_log_of_rank_0(ground: Ground) -> None:
    ground.start()
    assert ended(ground.kube, "run", 240)["status"]["phase"] == "Succeeded", ground.said()
    assert ground.counts() == ("1", "0", "0")
    log = ground.kube("logs", ground.launcher(), "--container=main")
    assert f"rank 0 of 4, attempt 1 after 0: {WORD}" in log
    (read,) = ground.kube.list("pod", "gpuflow.dev/step=read")
    assert WORD in ground.kube("logs", read["metadata"]["name"], "--container=main")


@every_shape
def test_an_evicted_rank_is_one_interruption_of_the_gang(ground: Ground, faults: Faults) -> None:
    ground.start(seconds=20)
    faults.evict(ground.all_run()[2])
    assert ended(ground.kube, "run", 300)["status"]["phase"] == "Succeeded", ground.said()
    assert ground.counts() == ("2", "0", "1")
    assert "rank 0 of 4, attempt 2 after 1" in ground.kube("logs", ground.launcher(), "--container=main")


@every_kind
def test_rank_0_gone_at_once_is_one_interruption(ground: Ground, faults: Faults) -> None:
    ground.start(seconds=20)
    faults.force_delete(ground.all_run()[0])
    assert ended(ground.kube, "run", 300)["status"]["phase"] == "Succeeded", ground.said()
    assert ground.counts() == ("2", "0", "1")


@every_shape
def test_a_rank_that_fails_is_one_failure(ground: Ground) -> None:
    ground.start(fails="31", failures=1)
    assert ended(ground.kube, "run", 300)["status"]["phase"] == "Succeeded", ground.said()
    assert ground.counts() == ("2", "1", "0")


@every_kind
def test_a_lost_launcher_finds_its_gang_again(ground: Ground, faults: Faults) -> None:
    ground.start(seconds=40)
    ground.all_run()
    (before,) = ground.attempts()
    faults.force_delete(ground.launcher())
    assert ended(ground.kube, "run", 300)["status"]["phase"] == "Succeeded", ground.said()
    (after,) = ground.attempts()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert ground.counts() == ("1", "0", "0")


@every_kind
def test_stopping_the_run_stops_every_rank(ground: Ground) -> None:
    ground.start(seconds=600)
    ground.all_run()
    ground.kube("patch", "workflow", "run", "--type=merge", "--patch", '{"spec":{"shutdown":"Terminate"}}')
    assert ended(ground.kube, "run", 120)["status"]["phase"] == "Failed"
    ground.nothing_left()


@pytest.mark.parametrize("ground", [("trainjob", False)], indirect=True)
def test_kueue_preempts_a_trainjob_and_gives_back(ground: Ground, faults: Faults, preempts: gang_faults.Fault) -> None:
    ground.start(script=gang_faults.SCRIPT, queue=QUEUE)
    (line,) = gang_faults.play(ground, faults, [preempts], random.Random(1))
    assert line.endswith(": attempt 1, 0 failures, 0 interruptions")
    gang_faults.finish(ground, 1)
    assert ended(ground.kube, "run", 240)["status"]["phase"] == "Succeeded", ground.said()
