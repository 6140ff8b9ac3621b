"""Gangs of every kind on a real API server: what is compiled is taken whole, by the definition that its project ships.

No controller runs: an unknown field is an error (`--validate=strict`), and the launcher makes and deletes its objects
with the Role that `gpuflow site gang` prints. The operator of Airflow does the same.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuflow.pod.gang_kinds import SPELLINGS
from gpuflow.runtime.gangs.attempt_object import Gang, Names
from gpuflow.runtime.gangs.kinds import WORDS
from gpuflow.runtime.gangs.later_attempts import Changes, EarlierAttempts
from gpuflow.spec.loading import loads

from ..engines.build import BuildError
from ..gang_words import said
from . import gang_definitions
from .cluster import Cluster
from .fixtures import AnyCluster, lacking
from .gang_launches import Launched, manifest_of, site_of
from .kube import Kube
from .test_gang_operator import ENVIRONMENT, Play
from .waiting import until

pytestmark = pytest.mark.control_plane

STEP = """\
    image: gpuflow.test/never-pulled:1
    command: [torchrun, train.py]
    gang: {workers: 3, leader: %s, rendezvous: {framework: torchrun, processes_per_worker: 2}}
    queue: research
    priority: {pod: training}
    timeout: 1h
    termination_grace: 1s
    memory: 1Gi
    shm: 1Gi
    sidecars: [{name: logs, image: "gpuflow.test/never-pulled:1", command: [run]}]
    checkpoint: {path: /ckpt, store: "s3://b/c", every: 10m}
    retry: {failures: 1, interruptions: 2}
"""
HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nsteps:\n  train:\n"
SHAPES = [(word, leads) for word in SPELLINGS for leads in (False, True) if (2 if leads else 1) in WORDS[word].sets]


def pipeline(leads: bool) -> Any:
    return loads((HEAD + STEP % ("{command: [lead], memory: 2Gi}" if leads else "null")).encode())


@pytest.fixture(scope="module")
def served(private_cluster: Cluster, control_plane: AnyCluster) -> None:
    """The definitions of all kinds."""
    try:
        for word in SPELLINGS:
            gang_definitions.install(private_cluster.kube, word)
    except BuildError as error:
        lacking(str(error))


@pytest.mark.parametrize(("word", "leads"), SHAPES)
def test_what_is_compiled_is_taken_whole(served: None, namespace: Kube, word: str, leads: bool) -> None:
    kind = WORDS[word]
    gang = Gang(manifest_of(pipeline(leads), site_of(word)), Names("p", "r", "train", container=kind.container), None)
    gang.changes = Changes("2", "64Gi", 1, {"nodeSelector": {"spot": "no"}}, True)
    for attempt, before in enumerate((EarlierAttempts(), EarlierAttempts(1, 1, ("node-7",))), 1):
        made = kind.split(gang.body(attempt, 0, before.interruptions, before))
        for each, row in zip(made, (kind.before, kind), strict=True):
            if each is not None and row is not None:
                place = f"{row.plural}.{row.group}"
                namespace("create", "--validate=strict", "-f", "-", given=json.dumps(each))
                there = namespace.get(place, gang.name(attempt))
                assert there is not None
                _within(each["spec"], there["spec"], "spec")


def _within(sent: Any, there: Any, place: str) -> None:
    """Nothing of what was sent is lost."""
    if isinstance(sent, dict):
        for key, value in sent.items():
            assert key in there, f"{place}.{key} is lost"
            _within(value, there[key], f"{place}.{key}")
    elif isinstance(sent, list):
        assert len(sent) == len(there), place
        for index, value in enumerate(sent):
            _within(value, there[index], f"{place}[{index}]")
    else:
        assert sent == there, place


@pytest.fixture
def launched(private_cluster: Cluster, served: None, namespace: Kube, tmp_path: Path) -> Iterator[list[Launched]]:
    made: list[Launched] = []
    yield made
    for each in made:
        each.close()


@pytest.mark.parametrize(("word", "leads"), SHAPES)
def test_the_printed_role_is_enough_to_make_follow_and_delete_it(
    launched: list[Launched], private_cluster: Cluster, namespace: Kube, tmp_path: Path, word: str, leads: bool
) -> None:
    kind = WORDS[word]
    launcher = Launched(private_cluster, namespace, tmp_path, pipeline(leads), site_of(word))
    launched.append(launcher)
    launcher.start()
    resource = f"{kind.plural}.{kind.group}"
    (made,) = until("the attempt", lambda: namespace.list(resource), timeout=60, otherwise=launcher.said)
    size = 4 if leads else 3
    line = f"{kind.name} {made['metadata']['name']}: created in {namespace.namespace}, attempt 1, {size} pods"
    until("the launcher to say so", lambda: line in launcher.said(), timeout=60, otherwise=launcher.said)
    until(
        "where it stands", lambda: "waits in the queue research" in launcher.said(), timeout=60, otherwise=launcher.said
    )
    if kind.before is not None:
        (first,) = namespace.list(f"{kind.before.plural}.{kind.before.group}")
        assert [each["uid"] for each in first["metadata"]["ownerReferences"]] == [made["metadata"]["uid"]]
    assert launcher.process is not None
    launcher.process.send_signal(signal.SIGTERM)
    assert launcher.code() == 75
    assert "NOT deleted" not in launcher.said() and "forbidden" not in launcher.said(), launcher.said()
    until("it to be gone", lambda: not namespace.list(resource), timeout=30)
    if kind.before is not None:
        before = f"{kind.before.plural}.{kind.before.group}"
        until("what stood before it to be gone", lambda: not namespace.list(before), timeout=60)


@pytest.mark.parametrize("word", [word for word, leads in SHAPES if not leads and word != "jobset"])
def test_the_operator_of_airflow_makes_and_deletes_it(
    served: None, private_cluster: Cluster, namespace: Kube, tmp_path: Path, word: str
) -> None:
    if not (ENVIRONMENT / "bin" / "airflow").exists():
        lacking("no Airflow in .venvs/airflow; make it: make .venvs/airflow/.ready")
    kind, play = WORDS[word], Play(private_cluster, namespace, tmp_path)
    worker = play.start({"killed_in": "operator"}, **said(word), deferrable=False)
    try:
        resource = f"{kind.plural}.{kind.group}"
        (made,) = until("the attempt", lambda: namespace.list(resource), timeout=120, otherwise=play.said)
        line = f"{kind.name} {made['metadata']['name']}: 0 of 3 pods running, 0 there"
        until("the task to follow it", lambda: line in play.said(), timeout=120, otherwise=play.said)
        if kind.before is not None:
            (first,) = namespace.list(f"{kind.before.plural}.{kind.before.group}")
            assert [each["uid"] for each in first["metadata"]["ownerReferences"]] == [made["metadata"]["uid"]]
        worker.send_signal(signal.SIGTERM)
        until("the task to stop", lambda: worker.poll() is not None, timeout=120, otherwise=play.said)
        until("it to be gone", lambda: not namespace.list(resource), timeout=60, otherwise=play.said)
        if kind.before is not None:
            before = f"{kind.before.plural}.{kind.before.group}"
            until("what stood before it to be gone", lambda: not namespace.list(before), timeout=60)
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.wait()
