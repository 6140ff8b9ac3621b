"""A gang on Argo, as it is compiled: four ranks in one JobSet, looked after by the pod of Argo's own.

What holds for every kind of object is in test_gang_controllers.py.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuflow.runtime.gangs.kinds import WORDS

from .. import gang_words
from .cluster import Cluster
from .faults import Faults
from .fixtures import AnyCluster, lacking
from .gang_runs import SCRIPT, WORD, GangRun, pipeline
from .kube import Kube
from .test_argo import ended

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
SITE: dict[str, Any] = {
    "apiVersion": "gpuflow/v1",
    "kind": "Site",
    "name": "gangs",
    "gangs": {"service_account": "gpuflow-gang"},
    "engines": {"argo": {"executor": {"service_account": "argo-executor", "token_secret": "argo-executor-token"}}},
}


@pytest.fixture
def ground(private_cluster: Cluster, argo: AnyCluster, jobset: AnyCluster, namespace: Kube, tmp_path: Path) -> Ground:
    private_cluster.image("gpuflow")
    return Ground(namespace, tmp_path)


class Ground(GangRun):
    """A namespace in which gangs may run, and pipelines of one gang."""

    def __init__(self, kube: Kube, folder: Path, kind: str = "jobset") -> None:
        """`kind`: of the gangs, and after a plus who schedules them."""
        super().__init__(kube, WORDS[kind])
        self.folder = folder
        site = {**SITE, "gangs": {**SITE["gangs"], **gang_words.said(kind)}}
        (folder / "site.yaml").write_text(yaml.safe_dump(site))
        for account in ("gang", "executor"):
            words = ("site", account, "site.yaml", "--namespace", kube.namespace)
            for manifest in yaml.safe_load_all(self.gpuflow(*words)):
                kube.create(manifest)

    def gpuflow(self, *words: str) -> str:
        python = ROOT / ".venvs" / "argo" / "bin" / "python"
        if not python.exists():
            lacking("compiling for Argo needs .venvs/argo with gpuflow[argo]")
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [python, "-m", "gpuflow", *words], cwd=self.folder, env=environ, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, **words: Any) -> None:
        """`words`: see `gang_runs.pipeline`."""
        (self.folder / "p.yaml").write_text(yaml.safe_dump(pipeline(**words)))
        self.submit()

    def submit(self) -> None:
        """Compile what is written, and run it."""
        compiling = ("compile", "p.yaml", "--target", "argo", "--site", "site.yaml", "--namespace", self.kube.namespace)
        self.kube.create(yaml.safe_load(self.gpuflow(*compiling)))
        meta = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "run"}}
        self.kube.create({**meta, "spec": {"workflowTemplateRef": {"name": "gangs"}}})

    def said(self) -> str:
        """What the launcher and Argo say."""
        runs = [each.get("status", {}).get("message") for each in self.kube.list("workflow")]
        return f"{runs}\n{self.kube('logs', self.launcher(), '--container=main') if self.launcher() else ''}"

    def launcher(self) -> str:
        """The newest one, or an empty text."""
        pods = self.kube.list("pod", "workflows.argoproj.io/workflow=run,gpuflow.dev/step=train")
        launchers = [pod["metadata"] for pod in pods if "gpuflow.dev/gang" not in pod["metadata"]["labels"]]
        newest = max(launchers, key=lambda meta: str(meta["creationTimestamp"]), default={"name": ""})
        return str(newest["name"])


def test_four_ranks_one_output_and_text_as_it_was_written(ground: Ground) -> None:
    ground.start()
    done = ended(ground.kube, "run", 240)
    assert done["status"]["phase"] == "Succeeded", ground.said()
    assert ground.counts() == ("1", "0", "0")
    log = ground.kube("logs", ground.launcher(), "--container=main")
    assert f"rank 0 of 4, attempt 1 after 0: {WORD}" in log
    (read,) = ground.kube.list("pod", "gpuflow.dev/step=read")
    assert WORD in ground.kube("logs", read["metadata"]["name"], "--container=main")


LEADER = {
    "memory": "80Mi",
    "env": {"ROLE": "head"},
    "script": SCRIPT.replace("rank $GPUFLOW_RANK", "the $ROLE at $GPUFLOW_LEADER is rank $GPUFLOW_RANK"),
}


def test_a_leader_that_is_not_like_its_workers_is_rank_0(ground: Ground, faults: Faults) -> None:
    ground.start(seconds=15, leader=LEADER)
    ranks = ground.all_run()
    memory = [
        ground.kube.get("pod", ranks[rank])["spec"]["containers"][0]["resources"]["limits"]["memory"]
        for rank in range(4)
    ]
    assert memory == ["80Mi", "96Mi", "96Mi", "96Mi"]
    first = ground.kube("logs", ranks[0], "--container=main")
    name = ground.attempts()[0]["metadata"]["name"]
    assert f"the head at {name}-leader-0-0.{name} is rank 0 of 4, attempt 1 after 0: {WORD}" in first
    faults.evict(ranks[3])
    assert ended(ground.kube, "run", 300)["status"]["phase"] == "Succeeded", ground.said()
    assert ground.counts() == ("2", "0", "1")
    assert "is rank 0 of 4, attempt 2 after 1" in ground.kube("logs", ground.launcher(), "--container=main")
    (read,) = ground.kube.list("pod", "gpuflow.dev/step=read")
    assert WORD in ground.kube("logs", read["metadata"]["name"], "--container=main"), "outputs are the leader's"


def test_a_spent_budget_ends_the_run(ground: Ground) -> None:
    ground.start(fails="11")
    done = ended(ground.kube, "run", 240)
    assert done["status"]["phase"] == "Failed"
    assert ground.counts() == ("1", "0", "0") and len(ground.attempts()) == 1
