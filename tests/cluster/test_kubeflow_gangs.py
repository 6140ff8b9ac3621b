"""A gang on a real Kubeflow Pipelines, as it is compiled: four ranks in one JobSet, looked after by the task's pod."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from . import kubeflow as addon
from .cluster import Cluster
from .faults import Faults
from .fixtures import AnyCluster
from .kfp import PYTHON, ROOT, Kfp
from .waiting import until

pytestmark = pytest.mark.cluster

RANK = "batch.kubernetes.io/job-completion-index"
WORD = "a word of the run, 'quoted' \"twice\""
SITE = {
    "apiVersion": "gpuflow/v1",
    "kind": "Site",
    "name": "gangs",
    "namespace": "kubeflow",
    "engines": {"kubeflow": {"service_account": "pipeline-runner"}},
}
SCRIPT = """\
echo "rank $GPUFLOW_RANK of $GPUFLOW_WORLD_SIZE, attempt $GPUFLOW_ATTEMPT after $GPUFLOW_INTERRUPTIONS: $WORD"
echo '{{b}} $(X) $$'
sleep $SECONDS_EACH
printf '%s' "$WORD" > "$GPUFLOW_OUTPUTS/said"
"""
KILL = """\
for each in /proc/[0-9]*; do
  words=$(tr '\\0' ' ' < $each/cmdline)
  case "$words" in *kfp-launcher*|*argoexec*) continue ;; *"gpuflow-run gang"*) kill -9 ${each#/proc/} ;; esac
done
"""
"""Ends the launcher's own program, and nothing of KFP's around it."""


@pytest.fixture(scope="module")
def kfp(private_cluster: Cluster, kubeflow: AnyCluster, jobset: AnyCluster) -> Iterator[Kfp]:
    private_cluster.image("gpuflow")
    addon.settings(private_cluster, addon.STOCK)
    with Kfp(private_cluster) as client:
        yield client


@pytest.fixture(scope="module")
def folder(kfp: Kfp, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where things are compiled, in a namespace whose runs may have gangs."""
    made = tmp_path_factory.mktemp("gangs")
    (made / "site.yaml").write_text(yaml.safe_dump(SITE))
    for manifest in yaml.safe_load_all(_gpuflow(made, "site", "gang", "site.yaml", "--engine", "kubeflow")):
        kfp.kube.apply(manifest)
    return made


def _gpuflow(folder: Path, *words: str) -> str:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [PYTHON, "-m", "gpuflow", *words], cwd=folder, env=environ, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Gang:
    """A run with a gang, and a step after it that reads what the gang wrote."""

    def __init__(self, kfp: Kfp, folder: Path, name: str, *, seconds: int) -> None:
        small = {"image": "gpuflow.test/gpuflow:1", "image_pull_policy": "IfNotPresent"}
        small |= {"cpu": {"request": "20m"}, "memory": {"request": "32Mi", "limit": "256Mi"}}  # type: ignore[dict-item]
        env = {"WORD": {"param": "word"}, "SECONDS_EACH": str(seconds)}
        train = {"gang": 4, "script": SCRIPT, "env": env, "retry": {"interruptions": 3, "backoff": {"start": "1s"}}}
        read = {"script": "printf 'read: %s\\n' \"$SAID\"", "env": {"SAID": {"output": "train.said"}}}
        pipeline = {
            "apiVersion": "gpuflow/v1",
            "kind": "Pipeline",
            "name": name,
            "silence": ["GF341"],
            "params": {"word": {"type": "string", "default": WORD}},
            "defaults": small,
            "steps": {"train": {**train, "outputs": {"said": "string"}}, "read": read},
        }
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(pipeline))
        words = ("compile", f"{name}.yaml", "--target", "kubeflow", "--site", "site.yaml", "-o", f"{name}.out.yaml")
        _gpuflow(folder, *words)
        self.kfp, self.kube, self.name = kfp, kfp.kube, name
        self.run = kfp.run(folder / f"{name}.out.yaml", name=name, service_account="pipeline-runner")

    def attempts(self) -> list[dict[str, Any]]:
        found = self.kube.list("jobset", f"gpuflow.dev/run={self.run}")
        return sorted(found, key=lambda item: int(item["metadata"]["annotations"]["gpuflow.dev/attempt"]))

    def counts(self) -> tuple[str, ...]:
        notes = self.attempts()[-1]["metadata"]["annotations"]
        return tuple(notes[f"gpuflow.dev/{name}"] for name in ("attempt", "failures", "interruptions"))

    def pods(self) -> list[dict[str, Any]]:
        """The ranks that are there, of all attempts."""
        return self.kube.list("pod", f"gpuflow.dev/run={self.run},{RANK}")

    def working(self) -> dict[int, str]:
        """Its four ranks, once all of them work."""

        def all_work() -> dict[int, str]:
            running = [pod for pod in self.pods() if pod["status"].get("phase") == "Running"]
            found = {int(pod["metadata"]["labels"][RANK]): pod["metadata"]["name"] for pod in running}
            begun = len(found) == 4 and "of 4, attempt" in self.kube("logs", found[0], "--container=main")
            return found if begun else {}

        return until("all ranks work", all_work, timeout=240, otherwise=lambda: str(self.kfp.tasks(self.run)))

    def pod(self, step: str) -> str:
        found = [pod for pod in self.kfp.pods(self.run) if pod["metadata"]["labels"].get("gpuflow.dev/step") == step]
        return str(found[-1]["metadata"]["name"])

    def ended(self, timeout: float = 400) -> str:
        return self.kfp.wait([self.run], timeout)[self.run]

    def nothing_works(self, timeout: float = 120) -> None:
        def idle() -> bool:
            return all(pod["status"].get("phase") in ("Succeeded", "Failed") for pod in self.pods())

        until("no rank works", idle, timeout=timeout, otherwise=lambda: str(self.pods()))


def test_four_ranks_and_an_output_that_a_later_step_reads(kfp: Kfp, folder: Path) -> None:
    gang = Gang(kfp, folder, "gang-fine", seconds=3)
    ranks = gang.working()
    assert gang.ended() == "SUCCEEDED"
    assert gang.counts() == ("1", "0", "0")
    log = kfp.log(gang.pod("train"))
    assert f"rank 0 of 4, attempt 1 after 0: {WORD}" in log and "{{b}} $(X) $$" in log
    assert all(name in log for name in ranks.values()), "KFP does not show them: the log names them"
    assert f"read: {WORD}" in kfp.log(gang.pod("read"))


def test_an_evicted_rank_is_one_interruption_of_the_gang(private_cluster: Cluster, kfp: Kfp, folder: Path) -> None:
    gang = Gang(kfp, folder, "gang-evicted", seconds=20)
    Faults(private_cluster, kfp.kube).evict(gang.working()[2])
    assert gang.ended() == "SUCCEEDED"
    assert gang.counts() == ("2", "0", "1")
    assert "attempt 2 after 1" in kfp.log(gang.pod("train"))
    assert len([pod for pod in kfp.pods(gang.run) if pod["metadata"]["labels"].get("gpuflow.dev/step") == "train"]) == 1


def test_a_terminated_run_leaves_no_rank(kfp: Kfp, folder: Path) -> None:
    gang = Gang(kfp, folder, "gang-terminated", seconds=900)
    gang.working()
    kfp.ask("terminate", run=gang.run)
    assert gang.ended() == "FAILED"
    gang.nothing_works()


def test_a_launcher_that_is_killed_takes_its_gang_with_it(kfp: Kfp, folder: Path) -> None:
    """Its pod stays, so that Kubernetes deletes nothing: rank 0 misses it."""
    gang = Gang(kfp, folder, "gang-killed", seconds=900)
    gang.working()
    kfp.kube("exec", gang.pod("train"), "--container=main", "--", "sh", "-c", KILL)
    assert gang.ended() == "FAILED"
    gang.nothing_works(180)


def test_an_evicted_launcher_takes_its_gang_with_it(private_cluster: Cluster, kfp: Kfp, folder: Path) -> None:
    gang = Gang(kfp, folder, "gang-moved", seconds=900)
    gang.working()
    (before,) = gang.attempts()
    Faults(private_cluster, kfp.kube).evict(gang.pod("train"))

    def gone() -> bool:
        # The installation may have started the pod again, and that one a gang of its own.
        return before["metadata"]["uid"] not in [each["metadata"]["uid"] for each in gang.attempts()]

    until("the gang to be gone", gone, timeout=120)
    kfp.ask("terminate", run=gang.run)
    assert gang.ended() == "FAILED"
    gang.nothing_works()


def test_a_deleted_run_takes_its_gang_with_it(kfp: Kfp, folder: Path) -> None:
    gang = Gang(kfp, folder, "gang-deleted", seconds=900)
    gang.working()
    kfp.ask("terminate", run=gang.run)
    gang.ended()
    kfp.ask("delete", run=gang.run)
    until("the gang to be gone", lambda: not gang.attempts() and not gang.pods(), timeout=120)
