"""Retries on a real Kubeflow: what becomes of a step that fails or is taken away, by the settings of the installation.

`python -m tests.cluster.kubeflow_retries --name NAME [--only PATTERN]` plays the cases and prints the table of
proofs/retries.md. Each case is a run of one step. Its program plays one act after the other: what it does
at its first start, at its second and so on, counted over all pods in a folder that they share.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.kubeflow import target
from gpuflow.targets.target import Request, compile_with

from . import kubeflow
from .cluster import Cluster
from .faults import Faults
from .kfp import ENDED, Kfp
from .layout import IMAGES
from .waiting import until

MOUNT, STEP = "/shared", "work"
TAKEN = ("delete", "evict", "force_delete")
"""What is done to a pod whose program hangs."""
KINDS = ("plain", "supervised", "counted")
"""No supervisor; a supervisor without a place to count in; one that has a place."""
PROGRAM = """
import os, sys, time
folder, *acts = sys.argv[1:]
pod = os.environ["KFP_POD_NAME"]
os.makedirs(folder, exist_ok=True)
with open(folder + "/starts", "a") as file:
    file.write(pod + "\\n")
number = len(open(folder + "/starts").readlines())
act = acts[number - 1] if number <= len(acts) else "ok"
print("start", number, act, flush=True)
if act == "fail":
    sys.exit(3)
if act == "final":
    sys.exit(9)
if act == "oom":
    held = []
    while True:
        held.append(b"x" * (8 << 20))
if act != "ok":
    open(folder + "/hangs-" + pod, "w").write(act)
    time.sleep(900)
if "GPUFLOW_OUTPUTS" in os.environ:
    open(os.environ["GPUFLOW_OUTPUTS"] + "/done", "w").write("1")
"""


@dataclass(frozen=True)
class Case:
    """One step on an installation with such settings, with these budgets, and what happens to it."""

    settings: str
    kind: str
    acts: tuple[str, ...]
    failures: int = 2
    interruptions: int = 2

    @property
    def name(self) -> str:
        acts = "-".join(self.acts).replace("_", "")
        return f"{self.settings}-{self.kind}-{self.failures}f{self.interruptions}i-{acts}"


@dataclass(frozen=True)
class Result:
    """What became of it. `idle`: pods in which the program was not started."""

    case: str
    state: str
    pods: int
    starts: int
    idle: int
    failures: int | None
    interruptions: int | None
    ends: tuple[str, ...]
    seconds: int


def cases() -> list[Case]:
    """Each fault once for each kind and each settings, and budgets that are just enough or just not."""
    faults = ("fail", "final", "oom", *TAKEN)
    found = [Case(settings, kind, (act,)) for settings in kubeflow.SETTINGS for kind in KINDS for act in faults]
    for kind in ("plain", "counted"):
        found += [Case("always", kind, ("delete",) * count, 0, 3) for count in (3, 4)]
    found += [
        Case("always", "counted", ("fail", "delete", "fail", "evict")),
        Case("always", "counted", ("fail", "fail", "fail")),
        Case("stock", "counted", ("fail", "delete", "fail")),
        Case("stock", "counted", ("fail", "fail", "fail")),
        Case("before", "counted", ("fail", "fail", "fail")),
    ]
    return found


def document(case: Case, folder: str, claim: str) -> dict[str, Any]:
    """The pipeline of a case."""
    step: dict[str, Any] = {
        "image": IMAGES["gpuflow"],
        "command": ["python3", "-c", PROGRAM, folder, *case.acts],
        "cpu": {"request": "20m"},
        "memory": {"request": "32Mi", "limit": "160Mi"},
        "volumes": {MOUNT: {"claim": claim}},
        "retry": {"failures": case.failures, "interruptions": case.interruptions, "final_exit_codes": [9]},
    }
    if case.kind != "plain":
        step["outputs"] = {"done": "int"}
    return {"apiVersion": "gpuflow/v1", "kind": "Pipeline", "name": "retries", "steps": {STEP: step}}


def site(case: Case) -> Site:
    """What a site says that has such an installation."""
    said: dict[str, Any] = {"apiVersion": "gpuflow/v1", "kind": "Site", "name": "retries"}
    if case.kind == "counted":
        said["runtime"] = {"state": f"{MOUNT}/store"}
    if case.settings == "always":
        said["engines"] = {"kubeflow": {"retry": "always"}}
    return Site.model_validate(said)


class Player:
    """Runs cases on one cluster; pods and proof share a folder."""

    def __init__(self, cluster: Cluster, kfp: Kfp, shared: Path, claim: str) -> None:
        self.cluster, self.kfp, self.shared, self.claim = cluster, kfp, shared, claim
        self.faults = Faults(cluster, kfp.kube)

    def play(self, wanted: Sequence[Case]) -> Iterator[Result]:
        """Cases of one setting, all at once."""
        (settings,) = {case.settings for case in wanted}
        kubeflow.settings(self.cluster, kubeflow.SETTINGS[settings])
        began = time.monotonic()
        runs = {self._start(case): case for case in wanted}
        struck: set[str] = set()
        ended: dict[str, str] = {}

        def look() -> bool:
            for case in runs.values():
                self._strike(case, struck)
            left = [run for run in runs if run not in ended]
            for run, state in self.kfp.ask("states", runs=left).items():
                if state in ENDED:
                    ended[run] = state
            return len(ended) == len(runs)

        until(f"{len(runs)} runs to end", look, timeout=1500, every=1.0)
        for run, case in runs.items():
            yield self._result(case, run, ended[run], round(time.monotonic() - began))

    def _start(self, case: Case) -> str:
        source = yaml.safe_dump(document(case, f"{MOUNT}/plays/{case.name}", self.claim), sort_keys=False)
        made = compile_with(target, Request(loads(source), site(case), None, "p.yaml"), allow_lossy=False)
        file = self.shared.parent / f"{case.name}.yaml"
        file.write_text(made.artifact.text)
        return self.kfp.run(file, name=case.name)

    def _strike(self, case: Case, struck: set[str]) -> None:
        for sign in sorted((self.shared / "plays" / case.name).glob("hangs-*")):
            pod, way = sign.name.removeprefix("hangs-"), sign.read_text()
            if way and f"{case.name}/{sign.stat().st_mtime_ns}" not in struck:
                struck.add(f"{case.name}/{sign.stat().st_mtime_ns}")
                getattr(self.faults, way)(pod)

    def _result(self, case: Case, run: str, state: str, seconds: int) -> Result:
        told = self.shared / "plays" / case.name / "starts"
        starts = told.read_text().split() if told.exists() else []
        ends = [f"{node['phase']}: {node.get('message', '')}"[:90] for node in self._pods(run)]
        failures, interruptions = self._counts(case, run)
        made = max(len(ends), len(set(starts)))
        idle = made - len(set(starts))
        return Result(case.name, state, made, len(starts), idle, failures, interruptions, tuple(ends), seconds)

    def _pods(self, run: str) -> list[dict[str, Any]]:
        """The pods of the step as Argo remembers them: one that was deleted is no longer there to be counted."""
        nodes = (self.kfp.workflow(run) or {}).get("status", {}).get("nodes", {}).values()
        found = [each for each in nodes if each.get("type") == "Pod" and "impl" in each.get("templateName", "")]
        return sorted(found, key=lambda node: (node.get("startedAt") or "", node["name"]))

    def _counts(self, case: Case, run: str) -> tuple[int | None, int | None]:
        """What the ledger says after the last attempt."""
        attempts = sorted((self.shared / "store").glob(f"retries/{run}/{STEP}/attempts/*.json"))
        claims = [path for path in attempts if path.stem.isdigit()]
        if not claims:
            return None, None
        claim = json.loads(claims[-1].read_text())
        failures, interruptions = claim["failures"], claim["interruptions"]
        ends = [path for path in attempts if path.name.startswith(f"{claims[-1].stem}-") and ".end." in path.name]
        outcome = json.loads(ends[-1].read_text())["outcome"] if ends else ""
        return failures + outcome.startswith(("failed", "out of")), interruptions + (outcome == "interrupted")


@contextmanager
def player(cluster: Cluster) -> Iterator[Player]:
    """A player with a volume of its own."""
    name = f"retries-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(prefix=name, dir=cluster.layout.run) as folder, Kfp(cluster) as kfp:
        shared = Path(folder) / "shared"
        for path in (shared, shared / "plays", shared / "store"):
            path.mkdir()
            path.chmod(0o777)
        kind: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        size = {"storage": "1Gi"}
        volume = {**kind, "capacity": size, "hostPath": {"path": str(shared)}}
        claim = {**kind, "resources": {"requests": size}, "volumeName": name}
        kfp.kube.create(
            {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume},
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": claim},
        )
        yield Player(cluster, kfp, shared, name)


def line(result: Result) -> str:
    """A line of the table."""
    counted = "–" if result.failures is None else f"{result.failures} / {result.interruptions}"
    ends = "; ".join(result.ends)
    return f"| {result.case} | {result.state} | {result.pods} | {result.starts} | {result.idle} | {counted} | {ends} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.kubeflow_retries", description=__doc__)
    parser.add_argument("--name", default="default", help="which private cluster")
    parser.add_argument("--only", default="", metavar="PATTERN")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--json", type=Path, help="also write the results there")
    options = parser.parse_args(arguments)
    cluster = Cluster.find(options.name)
    if cluster is None:
        print(f"cluster {options.name} is not up: python -m tests.cluster --name {options.name} up --kubeflow")
        return 1
    cluster.image("gpuflow")
    wanted = [case for case in cases() if re.search(options.only, case.name)]
    results: list[Result] = []
    with player(cluster) as ground:
        for settings in kubeflow.SETTINGS:
            group = [case for case in wanted if case.settings == settings]
            for first in range(0, len(group), options.at_once):
                for result in ground.play(group[first : first + options.at_once]):
                    results.append(result)
                    print(line(result), flush=True)
                    if options.json:
                        options.json.write_text(json.dumps([asdict(each) for each in results], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
