"""Gangs under many faults on a real cluster, so many on each engine: `python -m proofs gang-faults --count 30`."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from . import gang_faults, test_airflow_gangs, test_argo_gangs
from .faults import Faults
from .fixtures import AnyCluster
from .gang_runs import GangRun
from .kube import Kube
from .queues import QUEUE, priority, queue
from .test_argo import ended

pytestmark = pytest.mark.cluster
COUNT, SEED = int(os.environ.get("GANG_FAULTS", "4")), int(os.environ.get("GANG_SEED", "1"))
on_argo, on_airflow = test_argo_gangs.ground, test_airflow_gangs.ground


def hurt(run: GangRun, faults: Faults, kinds: list[gang_faults.Fault], engine: str) -> None:
    """Every kind as often as the others, in any order; then the gang may end."""
    chance = random.Random(f"{engine} {SEED}")
    drawn = [kinds[index % len(kinds)] for index in range(COUNT)]
    chance.shuffle(drawn)
    lines = []
    for line in gang_faults.play(run, faults, drawn, chance):
        print(f"{engine}, {len(lines) + 1} of {COUNT}: {line}", flush=True)
        lines.append(line)
    assert len(lines) == COUNT
    gang_faults.finish(run, int(run.counts()[0]))


@pytest.fixture
def preempts(cluster: AnyCluster, kueue: AnyCluster, namespace: Kube) -> Iterator[gang_faults.Fault]:
    """A queue with room for one gang, and the fault that takes it."""
    with queue(namespace, gang_faults.QUOTA, preempt=True), priority(namespace, 1000) as urgent:
        yield gang_faults.preempting(cluster.image("busybox"), urgent)


def words() -> dict[str, Any]:
    return {"script": gang_faults.SCRIPT, "failures": COUNT, "interruptions": COUNT, "queue": QUEUE}


def test_a_gang_on_argo_goes_on_after_every_fault(
    on_argo: test_argo_gangs.Ground, faults: Faults, preempts: gang_faults.Fault
) -> None:
    on_argo.start(**words())
    hurt(on_argo, faults, [*gang_faults.ANYWHERE, preempts, gang_faults.losing(on_argo.launcher)], "Argo")
    assert ended(on_argo.kube, "run", 240)["status"]["phase"] == "Succeeded"
    on_argo.kube("delete", "workflow", "run")
    on_argo.nothing_left()


def test_a_gang_on_airflow_goes_on_after_every_fault(
    on_airflow: test_airflow_gangs.Ground, faults: Faults, preempts: gang_faults.Fault
) -> None:
    run = on_airflow.start(**words())
    hurt(on_airflow, faults, [*gang_faults.ANYWHERE, preempts], "Airflow")
    log = on_airflow.ended(run)
    assert "state:success" in log or "state=success" in log
