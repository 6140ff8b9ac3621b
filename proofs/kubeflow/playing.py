"""Playing cases on the private KFP: compile, furnish, start through kfp.Client, wait, and look at what came of it."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import yaml

from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.spec.canonical import meaning_of
from gpuflow.spec.loading import load
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.kubeflow import target
from gpuflow.targets.kubeflow.exit_steps import with_alerts
from gpuflow.targets.kubeflow.facts import KubeflowOptions
from gpuflow.targets.target import Request, compile_with
from tests.cluster import nodes
from tests.cluster.cluster import Cluster
from tests.cluster.kfp import PYTHON, RUN_LABEL, Kfp, KfpError, is_step
from tests.cluster.kube import KubeError
from tests.cluster.layout import REAL_NODE
from tests.targets.argo.cluster.examples import DEVICES, LABELS, _images
from tests.targets.argo.cluster.rehearsal import furnish
from tests.targets.argo.cluster.stage import CLAIM, ROOT, Stage
from tests.targets.argo.cluster.standins import register
from tests.targets.every_construct import SITE

from . import programs
from .all_cases import every_case
from .case import Case, Seen
from .comparing import differences, live, specified
from .knowing import VALUES_HERE, KnownRun, facts_of, specified_pods

IMAGE = f"kfp-examples-{hashlib.sha256(repr([case.document for case in every_case()]).encode()).hexdigest()[:8]}"
"""Named after what it must hold: another checkout on the same cluster does not put its own in the place of it."""
IMAGE_NAME = f"gpuflow.test/{IMAGE}:1"
HERE = {"k": "v", "node.example.com/spot": "true"}
"""Labels that the table's pipelines ask for, on top of those of the examples."""
CLASSES = ("fast", "slow")
VOLUMES = 12
"""How many volumes there are of each class for claims that KFP or Kubernetes makes; nothing provisions them."""
PATIENCE = 1500.0
Result = dict[str, Any]


def site_text(pipelines: Sequence[Pipeline]) -> str:
    """The table's site, with the stand-ins for all images and the node's label for all models of GPUs."""
    images = sorted({image for pipeline in pipelines for image in _images(pipeline)} - {IMAGE_NAME})
    models = {name: {"labels": {"gpuflow.test/gpu": "any"}} for name in ("l4", "t4", "h100-80gb")}
    return yaml.safe_dump(
        {
            **yaml.safe_load(SITE),
            "images": {
                "alerts": "gpuflow.test/python:1",
                "rewrites": {each: IMAGE_NAME for each in images if not each.startswith("gpuflow.test/")},
            },
            "gpu": {"models": models},
        }
    )


class Player:
    """One KFP with what the cases expect to find in its namespace."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.kfp = Kfp(cluster)
        self.stage = Stage(cluster, self.kfp.kube, folder)

    def play(self, cases: Sequence[Case], keep: Callable[[Case, Result], None], at_once: int = 12) -> None:
        """Run cases side by side, `at_once` at a time, and hand over each result as it comes."""
        files, site, pipelines = self._compile(cases, keep)
        ready = [case for case in cases if case.name in files]
        self._volumes()
        waiting, running = list(ready), {}
        deadline = time.monotonic() + PATIENCE
        while waiting or running:
            while waiting and len(running) < at_once:
                case = waiting.pop(0)
                try:
                    self._furnish(pipelines[case.name], site)
                    started = time.monotonic()
                    more = {"service_account": case.service_account} if case.service_account else {}
                    run = self.kfp.run(files[case.name], case.arguments, name=case.name, **more)
                    running[run] = (case, started)
                except (KfpError, KubeError) as error:
                    keep(case, self._refused(case, str(error)))
            time.sleep(4)
            try:
                states = self.kfp.ask("states", runs=list(running))
            except KfpError:
                continue  # somebody restarts the API server
            for run, state in states.items():
                case, started = running[run]
                ended = state in ("SUCCEEDED", "FAILED", "CANCELED", "SKIPPED")
                if not ended and time.monotonic() <= deadline:
                    continue
                try:
                    result = self._judge(case, run, state, pipelines[case.name], site, time.monotonic() - started)
                except (KubeError, KfpError, subprocess.TimeoutExpired):
                    continue  # a busy machine: it is looked at again at the next turn
                del running[run]
                keep(case, result)
                if ended:
                    deadline = time.monotonic() + PATIENCE

    def judge_again(
        self, cases: Sequence[Case], kept: Mapping[str, Result], keep: Callable[[Case, Result], None]
    ) -> None:
        """Look once more at the pods of runs that were made before and are still there; no program is asked again."""
        pipelines, site = self._load(cases)
        pods, workflows = _by_run(self.kfp.kube.list("pods")), _by_run(self.kfp.kube.list("workflows"))
        for case in cases:
            before = kept[case.name]
            run = before.get("run", "")
            if case.check is None and run in workflows:
                found = {"run_id": run}
                seen = _seen(before["state"], found, pods.get(run, []), workflows[run][0], {})
                keep(case, self._judged(case, seen, pipelines[case.name], site, before["seconds"]))

    def _compile(
        self, cases: Sequence[Case], keep: Callable[[Case, Result], None]
    ) -> tuple[dict[str, Path], Site, dict[str, Pipeline]]:
        made = self.folder / "compiled"
        made.mkdir(exist_ok=True)
        pipelines, site = self._load(cases)
        self.cluster.image(register(list(pipelines.values()), VALUES_HERE, IMAGE))
        files = {}
        for case in cases:
            request = Request(pipelines[case.name], site, None, f"{case.name}.yaml", (), KubeflowOptions())
            try:
                text = _text(request, case)
            except GpuflowError as error:
                keep(case, {"name": case.name, "state": "NOT COMPILED", "complaints": [str(error)]})
                continue
            files[case.name] = made / f"{case.name}.yaml"
            documents = list(yaml.safe_load_all(text))
            if case.edit is not None:
                case.edit(documents)
            files[case.name].write_text(yaml.safe_dump_all(documents) if case.edit else text)
        return files, site, pipelines

    def _load(self, cases: Sequence[Case]) -> tuple[dict[str, Pipeline], Site]:
        """The pipelines, by name, and the site that spells them for this node."""
        sources = self.folder / "sources"
        sources.mkdir(exist_ok=True)
        pipelines: dict[str, Pipeline] = {}
        # All of them, whichever are run: the image has a stand-in for every program, and one may include another.
        documents_of = {case.name: case.document for case in (*every_case(), *cases)}
        for name, document in documents_of.items():
            (sources / f"{name}.yaml").write_text(yaml.safe_dump(dict(document), sort_keys=False))
        for name in documents_of:
            pipelines[name] = load(sources / f"{name}.yaml")
        site_file = sources / "site.yaml"
        site_file.write_text(site_text(list(pipelines.values())))
        return pipelines, Site.load(str(site_file))

    def _furnish(self, pipeline: Pipeline, site: Site) -> None:
        """Secrets, settings, claims and accounts that the pipeline names."""
        known = KnownRun(pipeline, "x", _Anything(), {}, {}, VALUES_HERE, _Anything())
        pods = list(specified_pods(known, site, lambda step, item: False))
        furnish(self.stage, pipeline, pods)
        for account in {pod["spec"].get("serviceAccountName") for pod in pods} - {None, "pipeline-runner"}:
            self.kfp.kube.apply(_runner(str(account), self.kfp.kube.namespace))

    def _volumes(self) -> None:
        volumes, own = [], uuid.uuid4().hex[:6]  # a volume that was used once is used no more
        for name in CLASSES:
            for number in range(VOLUMES):
                path = self.folder / "volumes" / f"{name}-{own}-{number}"
                path.mkdir(parents=True, exist_ok=True)
                path.chmod(0o777)
                spec = {
                    "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
                    "storageClassName": name,
                    "capacity": {"storage": "500Gi"},
                    "hostPath": {"path": str(path)},
                    "persistentVolumeReclaimPolicy": "Retain",
                }
                meta = {"name": f"kfp-{name}-{own}-{number}", "labels": self.stage.labels}
                volumes.append({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec})
        self.kfp.kube.apply(*volumes)

    def seen(self, run: str, state: str, *, logs: bool) -> Seen:
        """All there is to know of a run."""
        pods, printed = self.kfp.pods(run), {}
        for pod in filter(is_step, pods) if logs else ():
            with contextlib.suppress(KubeError):
                printed[pod["metadata"]["name"]] = self.kfp.log(pod["metadata"]["name"])
        return _seen(state, self.kfp.get(run), pods, self.kfp.workflow(run) or {}, printed)

    def _judge(self, case: Case, run: str, state: str, pipeline: Pipeline, site: Site, seconds: float) -> Result:
        return self._judged(case, self.seen(run, state, logs=case.check is not None), pipeline, site, seconds)

    def _judged(self, case: Case, seen: Seen, pipeline: Pipeline, site: Site, seconds: float) -> Result:
        run, state = str(seen.run["run_id"]), seen.state
        complaints = [] if state == case.state else [f"it ended {state}, not {case.state}: {self._why(seen)}"]
        compared, equal, differ = 0, 0, []
        if case.compares and seen.facts:
            whole = with_alerts(meaning_of(pipeline), site)
            known = KnownRun(whole, run, _texts(case.arguments), case.made, {}, VALUES_HERE, seen.facts)
            left = pipeline.deadline.seconds if pipeline.deadline else 0
            added = {*whole.steps, *whole.exit} - {*pipeline.steps, *pipeline.exit}

            def without(step: str, item: Mapping[str, Any]) -> bool:
                return case.leaves_out(step, item) or for_another_end(whole, step, state)

            compared, equal, differ = compare(specified_pods(known, site, without), seen, left, added)
        if case.check is not None:
            complaints += case.check(seen)
        return {
            "name": case.name,
            "constructs": list(case.constructs),
            "run": run,
            "state": state,
            "seconds": round(seconds),
            "pods": sum(map(len, seen.pods.values())),
            "drivers": seen.drivers,
            "compared": compared,
            "equal": equal,
            "differences": differ,
            "complaints": complaints,
            "note": case.note,
        }

    def _refused(self, case: Case, words: str) -> Result:
        right = case.state == "REFUSED"
        complaints = [] if right else [f"KFP refused it: {words[:1500]}"]
        return {
            "name": case.name, "constructs": list(case.constructs), "state": "REFUSED", "complaints": complaints,
            "note": words[:600],
        }  # fmt: skip

    def _why(self, seen: Seen) -> str:
        nodes_of = seen.workflow.get("status", {}).get("nodes", {}).values()
        words = [
            f"{node.get('displayName')}: {node.get('message')}"
            for node in nodes_of
            if node.get("type") == "Pod" and node.get("phase") in ("Failed", "Error", "Pending")
        ]
        return "; ".join([*words[:4], str(seen.run.get("error") or "")])[:1500]


def _seen(
    state: str,
    run: Mapping[str, Any],
    found: Sequence[dict[str, Any]],
    workflow: Mapping[str, Any],
    printed: Mapping[str, str],
) -> Seen:
    pods: dict[str, list[dict[str, Any]]] = {}
    logs: dict[str, list[str]] = {}
    for pod in filter(is_step, found):
        step = pod["metadata"]["labels"].get("gpuflow.dev/step", "?")
        pods.setdefault(step, []).append(pod)
        if pod["metadata"]["name"] in printed:
            logs.setdefault(step, []).append(printed[pod["metadata"]["name"]])
    drivers = len(found) - sum(map(len, pods.values()))
    return Seen(state, run, pods, drivers, logs, workflow, facts_of(run, workflow) if workflow else {})


def _by_run(found: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    runs: dict[str, list[dict[str, Any]]] = {}
    for each in found:
        runs.setdefault(each["metadata"].get("labels", {}).get(RUN_LABEL, ""), []).append(each)
    return runs


def for_another_end(pipeline: Pipeline, step: str, state: str) -> bool:
    """Whether it is an exit step for runs that end in another way: it has no pod."""
    wanted = {"SUCCEEDED": "success", "FAILED": "failure"}.get(state)
    return step in pipeline.exit and pipeline.exit[step].on in {"success", "failure"} - {wanted}


def compare(
    pods: Iterator[dict[str, Any]], seen: Seen, deadline: int = 0, added: Set[str] = frozenset()
) -> tuple[int, int, list[str]]:
    """Each pod of the spec beside one of the cluster's, step by step; how many, how many equal, and what differs.

    Argo gives a pod without a timeout what is left of the run's deadline. The steps that gpuflow has `added` are told
    by KFP where to write, after the words that the spec has.
    """
    ours: dict[str, list[dict[str, Any]]] = {}
    for pod in pods:
        ours.setdefault(pod["metadata"]["labels"]["gpuflow.dev/step"], []).append(specified(pod))
    compared, equal, found = 0, 0, []
    for step in sorted({*ours, *seen.pods}):
        left = [live(pod) for pod in seen.pods.get(step, ())]
        if len(left) != len(ours.get(step, ())):
            found.append(f"{step}: {len(left)} pods, and {len(ours.get(step, ()))} by the spec")
        for pod in ours.get(step, ()):
            if not left:
                break
            compared += 1
            best = min(left, key=lambda other: len(differences(pod, other)))
            left.remove(best)
            if step in added:
                best["words"] = best["words"][: len(pod["words"])]
            if pod["activeDeadlineSeconds"] is None and 0 < (best["activeDeadlineSeconds"] or 0) <= deadline:
                best["activeDeadlineSeconds"] = None
            if words := differences(pod, best):
                found.append(f"{step}: {'; '.join(words)}")
            else:
                equal += 1
    return compared, equal, found


def _runner(account: str, namespace: str) -> dict[str, Any]:
    """An account that may do what KFP's driver and launcher do in a pod; both run as the account of the run."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"runs-as-{account}"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "pipeline-runner"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }


def _text(request: Request, case: Case) -> str:
    """The compiled file; the refusals of the target are asked unless the case is there to show what they spare."""
    if not case.unrefused:
        return compile_with(target, request, allow_lossy=case.lossy).artifact.text
    meant = dataclasses.replace(request, pipeline=meaning_of(request.pipeline), site=meaning_of(request.site))
    return target.compile(meant)[0].text


class _Anything(dict[str, str]):
    """Some text for every name, where only the shape of pods matters."""

    def __contains__(self, key: object) -> bool:
        return False

    def __missing__(self, key: str) -> str:
        return "1"


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}


def gpuflow(*words: str) -> subprocess.CompletedProcess[str]:
    """The command line in the environment that has kfp."""
    command = [str(PYTHON), "-m", "gpuflow.cli.main", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, text=True, capture_output=True, check=False)


@contextlib.contextmanager
def ground(cluster: Cluster, name: str = "live") -> Iterator[Player]:
    """A player on this cluster: the node with devices and labels, a volume that pods share and the test can read."""
    kube = cluster.kube
    folder = cluster.layout.run / f"kfp-{name}"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    nodes.add_devices(kube, REAL_NODE, DEVICES)
    labels = {**LABELS, **HERE}
    kube("label", "node", REAL_NODE, "--overwrite", *(f"{key}={value}" for key, value in labels.items()))
    player = Player(cluster, folder)
    cluster.image(programs.register())
    cluster.image("python")  # what gpuflow adds to a pipeline runs in the site's image for alerts
    player.kfp.kube.apply(*player.stage.volume(CLAIM))
    try:
        yield player
    finally:
        player.kfp.close()
