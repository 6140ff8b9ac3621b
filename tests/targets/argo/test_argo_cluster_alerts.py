"""Alerts on a running Argo: a local server gets them when a step's pods are refused, whatever programs say."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from ...cluster.cluster import Cluster
from ...cluster.conftest import argo, cluster, control_plane, private_cluster, proof_ground
from ...cluster.fixtures import AnyCluster
from ...cluster.layout import ADDRESS
from ...cluster.waiting import until
from .cluster.stage import ENVIRONMENT, ROOT, Stage, stage

__all__ = ["argo", "cluster", "control_plane", "private_cluster", "proof_ground"]
pytestmark = pytest.mark.cluster

SITE = (
    "apiVersion: gpuflow/v1\nkind: Site\nname: alerts\nextends: nvidia\n"
    "engines: {argo: {url: https://argo.example.com/}}\n"
)
TOKEN = "Bearer of-the-secret"
LAST_WORDS = 'it said "{{workflow.uid}}" {{=1+1}} \\n \x7f\x7f and \U000e0fff <b>'
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "no-gpus"},
    "spec": {"hard": {"requests.nvidia.com/gpu": "0"}},
}
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "alerts"},
    "stringData": {"hook": TOKEN},
}


@dataclass(frozen=True)
class Post:
    """A server in the cluster's network."""

    file: Path

    @property
    def port(self) -> int:
        return int(self.file.read_text().splitlines()[0])

    def got(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()[1:]]


@pytest.fixture
def place(private_cluster: Cluster, argo: AnyCluster) -> Iterator[Stage]:
    with stage(private_cluster) as made:
        made.kube.create(QUOTA, SECRET)
        yield made


@pytest.fixture
def post(place: Stage) -> Iterator[Post]:
    file = place.folder / "received"
    words = [*place.cluster.enter, sys.executable, "-m", "tests.receiver", ADDRESS, str(file)]
    process = subprocess.Popen(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        until("the server", lambda: file.exists() and file.read_text(), timeout=60)
        yield Post(file)
    finally:
        process.kill()
        process.wait()


def pipeline(name: str, image: str, port: int, step: dict[str, Any], **more: Any) -> str:
    hook = {
        "url": f"http://{ADDRESS}:{port}/hook",
        "headers": {"Authorization": {"secret": "alerts", "key": "hook"}, "X-Team": "nlp"},
    }
    document = {
        "apiVersion": "gpuflow/v1",
        "kind": "Pipeline",
        "name": name,
        "deadline": "10m",
        "defaults": {"image": image, "image_pull_policy": "IfNotPresent", "cpu": "20m"},
        "notify": [{"webhook": hook, "on": ["failure", "success"]}],
        "steps": {"train": step},
        **more,
    }
    return yaml.safe_dump(document, sort_keys=False)


def play(place: Stage, name: str, text: str) -> dict[str, Any]:
    """The workflow when it has ended."""
    compiled = place.compile({name: text}, SITE)
    source = place.folder / "sources"
    words = ["argo", "agent", str(source / f"{name}.yaml"), "--site", str(source / "site.yaml")]
    printed = subprocess.run(
        [str(ENVIRONMENT / "bin" / "python"), "-m", "gpuflow.cli.main", *words, "--namespace", place.kube.namespace],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        capture_output=True,
        check=True,
    ).stdout
    place.kube("apply", "-f", "-", given=printed)
    place.start(compiled[name])

    looked = itertools.count()

    def ended() -> dict[str, Any] | None:
        # In the last second before a deadline createWorkflowPod makes no pod and says nothing (workflowpod.go, 4.0.2),
        # so the controller next looks when something changes, or after 20 minutes.
        place.kube("annotate", "workflow", name, f"gpuflow.test/looked={next(looked)}", "--overwrite")
        time.sleep(5)
        workflow = place.workflows()[name]
        return workflow if workflow.get("status", {}).get("finishedAt") else None

    done = until("the workflow to end", ended, timeout=400)
    assert done is not None
    return done


def test_gpu_pods_are_refused_and_the_agent_still_tells(place: Stage, post: Post) -> None:
    step = {"command": ["true"], "kubernetes": {"resources": {"nvidia.com/gpu": 1}}}
    text = pipeline("refused", place.cluster.image("gpuflow"), post.port, step, deadline="20s")
    done = play(place, "refused", text)
    assert done["status"]["phase"] == "Failed"
    assert not [pod["metadata"]["name"] for pod in place.kube.list("pod") if "train" in pod["metadata"]["name"]]
    (request,) = post.got()
    assert request["headers"]["authorization"] == TOKEN and request["headers"]["x-team"] == "nlp"
    body = request["body"]
    assert (body["pipeline"], body["run"], body["status"], body["cause"]) == (
        "refused",
        "refused",
        "failure",
        "deadline",
    )
    assert body["date"] == done["metadata"]["creationTimestamp"]
    assert [(each["step"], each["cause"]) for each in body["steps"]] == [("train", "deadline")]
    assert body["link"] == f"https://argo.example.com/workflows/{place.kube.namespace}/refused"
    labels = f'pipeline="refused".*run_namespace="{place.kube.namespace}".*status="Failed"'
    assert re.search(rf"^argo_workflows_gpuflow_runs\{{.*{labels}.*\}} 1$", metrics(place), re.MULTILINE)


def test_what_a_program_says_arrives_as_text(place: Stage, post: Post) -> None:
    said = "import sys; open('/dev/termination-log', 'w').write(sys.argv[1]); sys.exit(3)"
    step = {"command": ["python3", "-c", said, LAST_WORDS]}
    done = play(place, "speaking", pipeline("speaking", place.cluster.image("gpuflow"), post.port, step))
    assert done["status"]["phase"] == "Failed"
    (request,) = post.got()
    (failed,) = request["body"]["steps"]
    node = next(each for each in done["status"]["nodes"].values() if each["type"] == "Pod")
    assert "{{workflow.uid}}" in node["message"], "the program's words are in what Argo says"
    expected = node["message"].replace("\x7f", "?").replace("\U000e0fff", "?")
    assert failed == {"step": "train", "cause": "failure", "message": expected}


def test_an_alert_that_nobody_takes_fails_no_run(place: Stage, post: Post) -> None:
    step = {"command": ["true"]}
    done = play(place, "unheard", pipeline("unheard", place.cluster.image("gpuflow"), 9, step))
    assert done["status"]["phase"] == "Succeeded"
    sent = [each for each in done["status"]["nodes"].values() if each["type"] == "HTTP"]
    assert len(sent) == 3 and all(each["phase"] == "Failed" for each in sent), sent
    assert not post.got()


def metrics(place: Stage) -> str:
    """What the controller counts."""
    read = "import ssl, urllib.request as u; c = ssl._create_unverified_context()\n"
    read += "print(u.urlopen('https://127.0.0.1:9090/metrics', context=c).read().decode())"
    words = [*place.cluster.enter, sys.executable, "-c", read]
    return subprocess.run(words, text=True, capture_output=True, check=True).stdout
