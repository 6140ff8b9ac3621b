"""Whether user code holds a token of the cluster, with and without an account of Argo's own containers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from ...cluster.cluster import Cluster
from ...cluster.conftest import argo, cluster, control_plane, private_cluster, proof_ground
from ...cluster.fixtures import AnyCluster
from ...cluster.waiting import until
from .cluster.stage import ENVIRONMENT, ROOT, Stage, stage

__all__ = ["argo", "cluster", "control_plane", "private_cluster", "proof_ground"]
pytestmark = pytest.mark.cluster

SITE = "apiVersion: gpuflow/v1\nkind: Site\nname: tokens\nextends: nvidia\n"
EXECUTOR = "engines: {argo: {executor: {service_account: executor, token_secret: executor.service-account-token}}}\n"
NOTE = "GF317"
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
SAYS = f"if [ -e {TOKEN} ]; then echo true; else echo false; fi > $GPUFLOW_OUTPUTS/holds"


def pipeline(name: str, image: str) -> str:
    """A step whose program and init container say whether they find a token; its output shows that it is reported."""
    before = {
        "name": "before",
        "image": image,
        "command": ["sh", "-c", f"if [ -e {TOKEN} ]; then echo token; else echo none; fi > /shared/before"],
        "volumes": {"/shared": {"empty_dir": "1Mi"}},
    }
    step = {
        "image": image,
        "image_pull_policy": "IfNotPresent",
        "command": ["sh", "-c", f"{SAYS}; cat /shared/before > $GPUFLOW_OUTPUTS/before"],
        "volumes": {"/shared": {"empty_dir": "1Mi"}},
        "init_containers": [before],
        "outputs": {"holds": "bool", "before": "string"},
    }
    document = {"apiVersion": "gpuflow/v1", "kind": "Pipeline", "name": name, "steps": {"look": step}}
    return yaml.safe_dump(document, sort_keys=False)


@pytest.fixture
def place(private_cluster: Cluster, argo: AnyCluster) -> Iterator[Stage]:
    with stage(private_cluster) as made:
        yield made


def outputs(place: Stage, site: str, name: str) -> tuple[str, dict[str, str]]:
    """How the run ended, and what the step said."""
    compiled = place.compile({name: pipeline(name, place.cluster.image("gpuflow"))}, site)
    place.start(compiled[name])

    def ended() -> dict[str, Any] | None:
        workflow = place.workflows()[name]
        return workflow if workflow.get("status", {}).get("finishedAt") else None

    done = until("the workflow to end", ended, timeout=120)
    assert done is not None
    (node,) = [one for one in done["status"]["nodes"].values() if one["type"] == "Pod"]
    said = {one["name"]: one["value"] for one in node.get("outputs", {}).get("parameters", ())}
    return done["status"]["phase"], said


def gpuflow(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(ENVIRONMENT / "bin" / "python"), "-m", "gpuflow.cli.main", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, text=True, capture_output=True, check=True)


def notes(place: Stage, site: str, name: str) -> str:
    """What `gpuflow compile` says about the pipeline."""
    files = {"site.yaml": site, f"{name}.yaml": pipeline(name, place.cluster.image("gpuflow"))}
    for file, text in files.items():
        (place.folder / file).write_text(text)
    source, given = str(place.folder / f"{name}.yaml"), str(place.folder / "site.yaml")
    return gpuflow("compile", source, "--target", "argo", "--namespace", "n", "--site", given).stderr


def test_without_an_account_for_argo_user_code_holds_a_token_and_the_note_says_so(place: Stage) -> None:
    assert NOTE in notes(place, SITE, "with-token")
    phase, said = outputs(place, SITE, "with-token")
    assert phase == "Succeeded"
    assert (said["holds"], said["before"].strip()) == ("true", "token")


def test_with_an_account_for_argo_user_code_holds_no_token_and_the_step_still_reports(place: Stage) -> None:
    assert NOTE not in notes(place, SITE + EXECUTOR, "without-token")
    printed = gpuflow("site", "executor", str(place.folder / "site.yaml"), "--namespace", place.kube.namespace).stdout
    place.kube("apply", "-f", "-", given=printed)
    # Only the account that the site names may report: the namespace's own loses the right.
    place.kube("delete", "rolebinding", "argo-executor")
    phase, said = outputs(place, SITE + EXECUTOR, "without-token")
    assert phase == "Succeeded"
    assert (said["holds"], said["before"].strip()) == ("false", "none")
