"""On a real KFP: results that are found again, volumes that a group owns, containers beside a step, changed components.

python -m proofs.kubeflow.carried --name kfp
"""

import argparse
import json
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import yaml
from kfp import compiler, dsl, kubernetes

import gpuflow
from gpuflow import kubeflow
from gpuflow.runtime.bundle import config_map
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.kubeflow import target
from gpuflow.targets.kubeflow.facts import KubeflowOptions
from gpuflow.targets.target import Request, compile_with
from tests.cluster import kubeflow as backend
from tests.cluster.cluster import Cluster
from tests.cluster.kfp import Kfp, is_step
from tests.cluster.layout import REAL_NODE

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\n"
SMALL = "cpu: {request: 20m}, memory: {request: 32Mi, limit: 256Mi}"
SMALL_STEP: dict[str, Any] = {"cpu": {"request": "20m"}, "memory": {"request": "32Mi", "limit": "256Mi"}}
IMAGE = "gpuflow.test/gpuflow:1"
CACHED = """
name: %(pipeline)s
defaults: {image: "%(image)s", %(small)s}
steps:
  made: {command: [sh, -c, 'echo 7 > "$GPUFLOW_OUTPUTS/n"'], outputs: {n: int}, cache: true, env: {MODE: %(mode)s}}
  fan:
    for_each: {i: [1, 2]}
    command: [sh, -c, 'echo "$0" > "$GPUFLOW_OUTPUTS/same"', {item: i}]
    outputs: {same: int}
    cache: true
  reads: {command: [echo, {output: made.n}, {output: fan.same}], cache: true}
"""
WRITES = """
name: writes
steps:
  write:
    image: "%(image)s"
    command: [sh, -c, 'id; ls -ld /claim; touch /claim/file && echo written']
    volumes: {/claim: {claim: %(claim)s}}
    cpu: {request: 20m}
    memory: {request: 32Mi, limit: 256Mi}
"""
HELPED = """
name: helped
steps:
  serve:
    image: "%(image)s"
    command: [sh, -c, 'until [ -s /tmp/x/beat ]; do sleep 1; done; cat /tmp/x/fetched']
    volumes: {/tmp/x: {empty_dir: 10Mi}}
    cpu: {request: 20m}
    memory: {request: 32Mi, limit: 256Mi}
    init_containers:
      - name: fetch
        image: "%(image)s"
        command: [sh, -c, 'echo "fetched in $MODE {{braces}}" > /tmp/x/fetched']
        env: {MODE: a hurry}
        volumes: {/tmp/x: {empty_dir: 10Mi}}
        memory: 32Mi
    sidecars:
      - name: beat
        image: "%(image)s"
        command: [sh, -c, 'while true; do date > /tmp/x/beat; sleep 1; done']
        volumes: {/tmp/x: {empty_dir: 10Mi}}
"""
ADJUSTED = """
name: greet
params: {who: {type: string, default: you}}
steps:
  say: {image: "%(image)s", command: [sh, -c, 'echo "$MODE $MORE $0"', {param: who}], env: {MODE: plain}, %(small)s}
"""
WAYS: dict[str, dict[str, Any]] = {
    "stock": {},
    "workflow": {"securityContext": {"fsGroup": 1000}},
    "templates": {"templateDefaults": {"securityContext": {"fsGroup": 1000}}},
    "pods": {"podSpecPatch": {"securityContext": {"fsGroup": 1000}}},
}
"""Where an administrator could set the group, as parts of COMPILED_PIPELINE_SPEC_PATCH."""


def site(**said: Any) -> Site:
    """A site whose images have a user, whose KFP is as said, and whose supervisor is this checkout's."""
    base = Site.load("nvidia")
    engine = base.engine("kubeflow").model_copy(update=said)
    runtime = base.runtime.model_copy(update={"delivery": "config-map"})
    return base.model_copy(update={"engines": {**base.engines, "kubeflow": engine}, "runtime": runtime})


@dataclass
class Play:
    """What is started on a cluster, and what came of it."""

    cluster: Cluster
    kfp: Kfp
    folder: Path = field(default_factory=lambda: Path(mkdtemp()))
    tag: str = field(default_factory=lambda: uuid.uuid4().hex[:6])
    runs: dict[str, str] = field(default_factory=dict)

    def compile(self, name: str, source: str, on: Site | None = None, form: str | None = None, **words: Any) -> Path:
        text = source % {"image": IMAGE, "small": SMALL, **words}
        request = Request(loads(HEAD + text.lstrip()), on or site(), None, name, (), KubeflowOptions(form=form))
        path = self.folder / f"{name}.yaml"
        path.write_text(compile_with(target, request, allow_lossy=False).text)
        return path

    def by_hand(self, name: str, pipeline: Any) -> Path:
        path = self.folder / f"{name}.yaml"
        compiler.Compiler().compile(pipeline, str(path))
        return path

    def start(self, name: str, path: Path) -> None:
        self.runs[name] = self.kfp.run(path, name=f"{name}-{self.tag}")
        print(name, self.runs[name], file=sys.stderr, flush=True)

    def wait(self, *names: str) -> dict[str, str]:
        shown = {self.runs[name]: name for name in names}
        states = self.kfp.wait(
            shown, 1500, ended=lambda run, state: print(shown[run], state, file=sys.stderr, flush=True)
        )
        return {name: states[self.runs[name]] for name in names}

    def steps(self, name: str) -> list[dict[str, Any]]:
        return [pod for pod in self.kfp.pods(self.runs[name]) if is_step(pod)]

    def said(self, name: str) -> str:
        return "\n".join(self.kfp.log(pod["metadata"]["name"]) for pod in self.steps(name))

    def claim(self, name: str) -> str:
        """A volume that belongs to root, as a new one of most drivers does, and a claim for it."""
        whole, folder = f"{name}-{self.tag}", self.cluster.layout.run / "volumes" / f"{name}-{self.tag}"
        folder.mkdir(parents=True, mode=0o755)
        term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [REAL_NODE]}
        size, access = {"storage": "1Gi"}, ["ReadWriteMany"]
        volume = {
            "capacity": size,
            "accessModes": access,
            "local": {"path": str(folder)},
            "storageClassName": "",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        }
        claim = {"accessModes": access, "resources": {"requests": size}, "storageClassName": "", "volumeName": whole}
        self.kfp.kube.apply(
            {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": whole}, "spec": volume},
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": whole}, "spec": claim},
        )
        return whole

    def settings(self, patch: Mapping[str, Any]) -> None:
        """What gpuflow asks for retries, and more of the workflow."""
        always = backend.ALWAYS
        base = json.loads(always.spec_patch())
        pods = {**json.loads(base["podSpecPatch"]), **patch.get("podSpecPatch", {})}
        templates = {**base["templateDefaults"], **patch.get("templateDefaults", {})}
        whole = {**patch, "podSpecPatch": json.dumps(pods), "templateDefaults": templates}
        backend.settings(self.cluster, backend.Settings(retry=always.retry, patch=whole))


def adjusted(play: Play) -> Any:
    """A component from a file, and a task of somebody else's, both changed."""
    greet = kubeflow.load_component(play.compile("greet", ADJUSTED, form="component"))

    @dsl.container_component
    def own() -> dsl.ContainerSpec:
        return dsl.ContainerSpec(
            image=IMAGE, command=["sh", "-c", "id -u; echo home $HOME; touch /.local/file && echo ok"]
        )

    @dsl.pipeline(name="adjusted")
    def pipeline() -> None:
        task = greet(who="me").set_memory_limit("200Mi").set_env_variable("MORE", "more")
        kubernetes.add_pod_label(task, "cost", "low")
        mine = own().set_display_name("mine")
        kubeflow.configure(mine, gpuflow.Step(gpu=1, memory={"limit": "128Mi"}), name="mine")
        other = own().set_display_name("other")
        kubeflow.configure(other, gpuflow.Step(security={"user": 1234}, memory={"limit": "129Mi"}), name="other")

    return pipeline


def resumed(claim: str) -> Any:
    """Three tasks of one component, each of which fails once and resumes its own state."""
    text = 'echo "attempt $GPUFLOW_ATTEMPT of $GPUFLOW_RUN_TASK"; test "$GPUFLOW_ATTEMPT" -gt 1'
    step = gpuflow.Step(
        image=IMAGE,
        command=["sh", "-c", text, {"param": "n"}],
        checkpoint={"path": "/claim/checkpoints", "store": "/claim/store"},
        volumes={"/claim": {"claim": claim}},
        retry=1,
        **SMALL_STEP,
    )

    @dsl.pipeline(name="resumed")
    def pipeline() -> None:
        made = kubeflow.component(step, site(fs_group=1000, retry="always"), name="train")
        made(n="0")
        with dsl.ParallelFor(["1", "2"]) as n:
            made(n=n)

    return pipeline


def play(cluster: Cluster) -> dict[str, Any]:
    """Everything, and what was seen."""
    with Kfp(cluster) as kfp:
        ground = Play(cluster, kfp)
        kfp.kube.apply(config_map(site().runtime.config_map, backend.NAMESPACE))
        cached = {
            mode: ground.compile(f"cached-{mode}", CACHED, pipeline=f"cached-{ground.tag}", mode=mode)
            for mode in ("fast", "slow")
        }
        claims = {way: ground.claim(way) for way in (*WAYS, "resumed")}
        writes = {way: ground.compile(f"writes-{way}", WRITES, claim=claims[way]) for way in WAYS}
        by_hand = {"adjusted": ground.by_hand("adjusted", adjusted(ground))}
        by_hand["resumed"] = ground.by_hand("resumed", resumed(claims["resumed"]))
        helped = ground.compile("helped", HELPED, site(version="2.18"))
        before = cluster.state["programs"][backend.APISERVER]["env"].get("COMPILED_PIPELINE_SPEC_PATCH")
        try:
            for way, patch in WAYS.items():
                ground.settings(patch)
                ground.start(way, writes[way])
                if way == "templates":
                    ground.start("first", cached["fast"])
                    ground.start("helped", helped)
                    for name, path in by_hand.items():
                        ground.start(name, path)
        finally:
            named = (each for each in backend.SETTINGS.values() if each.spec_patch() == before)
            backend.settings(cluster, next(named, backend.STOCK))
        states = ground.wait("first")
        ground.start("second", cached["fast"])
        states |= ground.wait("second")
        ground.start("third", cached["slow"])
        states |= ground.wait("third", *WAYS, "helped", *by_hand)
        return {"states": states, **_seen(ground)}


def _seen(ground: Play) -> dict[str, Any]:
    pods = {name: ground.steps(name) for name in ground.runs}
    return {
        "pods": {
            name: sorted(pod["metadata"]["labels"].get("gpuflow.dev/step", "?") for pod in found)
            for name, found in pods.items()
        },
        "groups": {way: [pod["spec"]["securityContext"].get("fsGroup") for pod in pods[way]] for way in WAYS},
        "said": {name: ground.said(name) for name in ground.runs},
        "adjusted": [_short(pod) for pod in pods["adjusted"]],
        "helped": [each for pod in pods["helped"] for each in pod["spec"]["initContainers"]],
    }


def _short(pod: Mapping[str, Any]) -> dict[str, Any]:
    (main,) = [each for each in pod["spec"]["containers"] if each["name"] == "main"]
    return {
        "limits": main["resources"].get("limits", {}),
        "labels": pod["metadata"]["labels"],
        "user": main["securityContext"].get("runAsUser"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="default", help="which private cluster")
    cluster = Cluster.find(parser.parse_args().name)
    assert cluster is not None, "that cluster is not up"
    print(yaml.safe_dump(play(cluster), sort_keys=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
