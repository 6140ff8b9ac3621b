"""`gpuflow submit`, `status`, `logs`, `stop` and `retry` on a real Kubeflow Pipelines."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from . import kubeflow as addon
from .cluster import Cluster
from .kfp import PYTHON, ROOT, Kfp
from .waiting import until

pytestmark = pytest.mark.cluster

SITE = """
apiVersion: gpuflow/v1
kind: Site
name: live
extends: nvidia
namespace: kubeflow
images: {alerts: "%s"}
engines: {kubeflow: {retry: always}}
"""
ONCE, FLAKY = (f"{name}-{secrets.token_hex(3)}" for name in ("once", "flaky"))
"""Names of runs: KFP keeps those of earlier sessions."""
DEFAULTS = """
  image_pull_policy: IfNotPresent
  cpu: {request: 20m}
  memory: {request: 32Mi, limit: 256Mi}
"""
WHOLE = """
apiVersion: gpuflow/v1
kind: Pipeline
name: followed
params: {how: {type: string, default: good, enum: [good, wait]}, lr: {type: float, default: 0.5}}
defaults:
  image: "%(gpuflow)s"%(defaults)s
steps:
  prep:
    command:
      - python3
      - -c
      - |
        import os, sys
        out = os.environ["GPUFLOW_OUTPUTS"]
        open(out + "/rows", "w").write("42")
        open(out + "/names", "w").write('["ada", "bob"]')
        print("prepared with", sys.argv[1])
      - {param: lr}
    outputs: {rows: {type: int}, names: {type: json}}
  train:
    for_each: {name: {output: prep.names}}
    command:
      - python3
      - -c
      - |
        import os, sys
        open(os.environ["GPUFLOW_OUTPUTS"] + "/loss", "w").write("0.5" if sys.argv[1] == "ada" else "0.25")
        print("trained", sys.argv[1])
      - {item: name}
    outputs: {loss: {type: float}}
  tune:
    params: {rows: {output: prep.rows}}
    pipeline:
      apiVersion: gpuflow/v1
      kind: Pipeline
      name: tuning
      params: {rows: {type: int, default: 1}}
      defaults:
        image: "%(gpuflow)s"%(inner)s
      steps:
        search:
          command: [sh, -c, "printf %%s $0 > $GPUFLOW_OUTPUTS/best", {param: rows}]
          outputs: {best: {type: int}}
      outputs: {best: {output: search.best}}
  report:
    image: "%(python)s"
    command:
      - python3
      - -c
      - |
        import sys, time
        time.sleep(900 if sys.argv[4] == "wait" else 0)
        print("report", sys.argv[1:])
      - {output: prep.rows}
      - {output: train.loss}
      - {output: tune.best}
      - {param: how}
  deploy: {when: steps.prep.rows > 100, needs: [prep], image: "%(python)s", command: [python3, -c, pass]}
  after: {needs: [deploy], image: "%(python)s", command: [python3, -c, pass]}
  last: {needs: [report], image: "%(python)s", command: [python3, -c, pass]}
exit:
  alarm: {on: failure, image: "%(python)s", command: [python3, -c, pass]}
  tell: {image: "%(python)s", command: [python3, -c, pass]}
"""
AGAIN = """
apiVersion: gpuflow/v1
kind: Pipeline
name: again
defaults:
  image: "%(python)s"%(defaults)s
steps:
  good: {command: [python3, -c, "print('good')"]}
  flaky:
    needs: [good]
    env: {READY: {config_map: flaky, key: ready, optional: true}}
    command: [python3, -c, "import os, sys; print('tried'); sys.exit(0 if os.environ.get('READY') else 3)"]
  behind: {needs: [flaky], command: [python3, -c, "print('behind')"]}
"""
EXPECTED = {
    **dict.fromkeys(
        ("prep", "train", "train@0", "train@1", "tune", "tune.search", "report", "last", "tell"), "succeeded"
    ),
    **dict.fromkeys(("deploy", "after", "alarm"), "skipped"),
}


class CommandLine:
    """gpuflow, in the network of the cluster and with its kubeconfig."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.environment = {
            **os.environ,
            **cluster.environment(),
            "PYTHONPATH": str(ROOT),
            "GPUFLOW_KUBEFLOW_URL": addon.HOST,
            "CI": "",
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        where = ("--engine", "kubeflow", "--site", str(self.folder / "site.yaml"))
        command = [*self.cluster.enter, str(PYTHON), "-m", "gpuflow", words[0], *words[1:], *where]
        return subprocess.Popen(
            command, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder
        )

    def __call__(self, *words: str, code: int = 0) -> str:
        return self.end(self.start(*words), code)

    def end(self, process: subprocess.Popen[str], code: int = 0) -> str:
        out, err = process.communicate(timeout=1200)
        assert process.returncode == code, f"{out}\n{err}"
        return out

    def state(self, *words: str, code: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self(*words, "--format", "json", code=code))
        return found


def states(run: dict[str, Any]) -> dict[str, str]:
    return {step["name"]: step["state"] for step in run["steps"]}


def step(run: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in run["steps"] if each["name"] == name)


def runs_named(kfp: Kfp, name: str) -> list[str]:
    found = kfp.ask("call", method="list_runs", page_size=100).get("runs") or ()
    return [each["run_id"] for each in found if each["display_name"] == name]


@pytest.fixture(scope="module")
def kfp(kubeflow: Cluster) -> Iterator[Kfp]:
    addon.settings(kubeflow, addon.ALWAYS)
    with Kfp(kubeflow) as client:
        yield client


@pytest.fixture(scope="module")
def gpuflow(kfp: Kfp, tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    folder, cluster = tmp_path_factory.mktemp("runs"), kfp.cluster
    images = {"python": cluster.image("python"), "gpuflow": cluster.image("gpuflow")}
    given = {**images, "defaults": DEFAULTS, "inner": DEFAULTS.replace("\n", "\n      ")}
    (folder / "site.yaml").write_text(SITE % images["python"])
    (folder / "whole.yaml").write_text(WHOLE % given)
    (folder / "again.yaml").write_text(AGAIN % given)
    return CommandLine(cluster, folder)


def test_a_run_is_started_once_and_followed_to_its_end_while_kfp_restarts(kfp: Kfp, gpuflow: CommandLine) -> None:
    watching = gpuflow.start(
        *("submit", "whole.yaml", "--name", ONCE, "--param", "lr=0.25", "--apply", "--watch", "--format", "json")
    )
    until("the run to begin", lambda: runs_named(kfp, ONCE), timeout=300)
    gpuflow.cluster.restart(addon.APISERVER)
    run = json.loads(gpuflow.end(watching))
    assert states(run) == EXPECTED
    assert step(run, "prep")["outputs"] == {"rows": "42"}
    assert json.loads(step(run, "train")["outputs"]["loss"]) == [0.5, 0.25]
    assert step(run, "tune")["outputs"] == {"best": "42"}
    assert "prepared with 0.25" in gpuflow("logs", run["run"], "prep")
    told = gpuflow("logs", ONCE, "train")
    assert "trained ada" in told
    assert "trained bob" in told
    assert "trained ada" not in gpuflow("logs", ONCE, "train@1")
    again = gpuflow.state("submit", "whole.yaml", "--name", ONCE)
    assert (again["run"], states(again)) == (run["run"], EXPECTED)
    assert runs_named(kfp, ONCE) == [run["run"]]


def test_a_failed_run_is_retried_where_it_failed(kfp: Kfp, gpuflow: CommandLine) -> None:
    kfp.kube("delete", "configmap", "flaky", "--ignore-not-found")
    failed = gpuflow.state("submit", "again.yaml", "--name", FLAKY, "--apply", "--watch", code=1)
    assert states(failed) == {"good": "succeeded", "flaky": "failed", "behind": "not run"}
    map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "flaky"}, "data": {"ready": "yes"}}
    kfp.kube.apply(map)
    gpuflow("retry", FLAKY)
    done = gpuflow.state("status", FLAKY, "--watch")
    assert states(done) == {"good": "succeeded", "flaky": "succeeded", "behind": "succeeded"}
    assert step(done, "good") == step(failed, "good")
    assert "nothing" not in gpuflow("logs", FLAKY, "flaky")


def test_a_run_that_is_stopped_is_interrupted_where_it_was(gpuflow: CommandLine) -> None:
    started = gpuflow.state("submit", "whole.yaml", "--param", "how=wait", "--apply")

    def is_at_work() -> bool:
        return states(gpuflow.state("status", started["run"]))["report"] == "running"

    until("the step to run", is_at_work, timeout=900, every=5.0)
    gpuflow("stop", started["run"])
    run = gpuflow.state("status", started["run"], "--watch", code=75)
    found = states(run)
    assert run["state"] == "interrupted"
    assert {name: found[name] for name in ("prep", "train", "report", "last")} == {
        "prep": "succeeded",
        "train": "succeeded",
        "report": "interrupted",
        "last": "not run",
    }
    assert found["tell"] in ("not run", "interrupted")  # KFP may have begun to prepare it
