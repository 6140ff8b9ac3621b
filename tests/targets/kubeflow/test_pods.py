"""The pod that KFP's driver makes of our IR holds what the step's own pod holds, up to the list below.

Written list, as in docs/reference/kubeflow.md:
- KFP's launcher is the command and the step's words are its args; the supervisor is told where KFP looks for outputs;
- `$(GPUFLOW_BRACE)` stands for a brace that Argo would read;
- variables with references are set by `env`, the working directory by `cd`, an exit step for one outcome by `case`;
- devices stand in the limits only, where Kubernetes copies them from;
- who runs is said on the container, not on the pod, and nothing says fsGroup; the seccomp profile and the ban on
  privilege escalation stand in KFP's own container template;
- volumes are named after the object behind them; files of a ConfigMap have its default mode.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpuflow.plan import planned_step
from gpuflow.pod import pod_of
from gpuflow.site import Site
from gpuflow.spec.canonical import meaning_of
from gpuflow.spec.loading import loads
from gpuflow.spec.text import Ref
from gpuflow.targets.kubeflow.build import ENGINE
from gpuflow.targets.kubeflow.containers import ENTER, RUN_AS_IT_IS
from gpuflow.targets.kubeflow.references import BRACE, input_name
from tests.targets.kubeflow.compiling import HEAD, documents
from tests.targets.kubeflow.driver_model import driver_pods
from tests.targets.kubeflow.kubelets import kubelet
from tests.targets.kubeflow.test_ir import SOURCES

SITE = Site.load("nvidia")


class Named:
    """References as the model of the driver resolves them: an input without a default is `<its name>`."""

    def literal(self, text: str) -> str:
        return text

    def reference(self, ref: Ref) -> str:
        return f"<{input_name(ref)}>"


def wanted(pod: dict[str, Any]) -> dict[str, Any]:
    """What the step's own pod holds."""
    spec, main = pod["spec"], pod["spec"]["containers"][0]
    security, resources = spec["securityContext"], main.get("resources", {})
    sources = {volume["name"]: _source(volume) for volume in spec.get("volumes", [])}
    return {
        "image": main["image"],
        "words": [kubelet(word, {}) for word in main["command"]],
        "directory": main.get("workingDir"),
        "env": {entry["name"]: _variable(entry, {}) for entry in main.get("env", [])},
        "requests": {key: value for key, value in resources.get("requests", {}).items() if "/" not in key},
        "limits": resources.get("limits", {}),
        "mounts": {m["mountPath"]: (sources[m["name"]], m.get("subPath")) for m in main.get("volumeMounts", [])},
        "identity": {key: security[key] for key in ("runAsUser", "runAsGroup", "runAsNonRoot") if key in security},
        "capabilities": main["securityContext"].get("capabilities"),
        **_shared(spec, main),
    }


def made(pod: dict[str, Any]) -> dict[str, Any]:
    """What the driver's pod holds, with the work-arounds of the written list undone."""
    main = pod["containers"][0]
    variables = {BRACE: "{"}
    entries = [entry for entry in main.get("env", []) if entry["name"] not in (BRACE, "GPUFLOW_COMPONENT")]
    env = {entry["name"]: _variable(entry, variables) for entry in entries}
    words = [kubelet(word, variables) for word in main["args"] if not word.startswith("--deliver=")]
    if words[:2] == ["sh", "-c"] and words[2].startswith('case "$0"'):
        words = words[4:]
    directory = None
    if words[:3] == ["sh", "-c", ENTER]:
        directory, words = words[3], words[4:]
    if words[0] == "env":
        late = [word for word in words[1:] if "=" in word][: next(i for i, w in enumerate(words[1:]) if "=" not in w)]
        env |= dict(word.split("=", 1) for word in late)
        words = words[1 + len(late) :]
    if words[:3] == ["sh", "-c", RUN_AS_IT_IS]:
        words = words[3:]
    context = main["securityContext"]
    sources = {volume["name"]: _source(volume) for volume in pod.get("volumes", [])}
    return {
        "image": main["image"],
        "words": words,
        "directory": directory,
        "env": env,
        "requests": main["resources"].get("requests", {}),
        "limits": main["resources"].get("limits", {}),
        "mounts": {m["mountPath"]: (sources[m["name"]], m.get("subPath")) for m in main.get("volumeMounts", [])},
        "identity": {key: context[key] for key in ("runAsUser", "runAsGroup", "runAsNonRoot") if key in context},
        "capabilities": context["capabilities"],
        **_shared(pod, main),
    }


def _shared(spec: dict[str, Any], main: dict[str, Any]) -> dict[str, Any]:
    keys = ("nodeSelector", "tolerations", "affinity", "activeDeadlineSeconds", "imagePullSecrets")
    return {**{key: spec.get(key) for key in keys}, "imagePullPolicy": main.get("imagePullPolicy")}


def _variable(entry: dict[str, Any], variables: dict[str, str]) -> Any:
    if "valueFrom" not in entry:
        return kubelet(entry.get("value", ""), variables)  # the IR leaves empty text out
    ((kind, ref),) = entry["valueFrom"].items()
    if kind == "fieldRef":
        return kind, ref["fieldPath"]
    return kind, ref["name"], ref["key"], ref.get("optional", False)


def _source(volume: dict[str, Any]) -> Any:
    kind = next(key for key in volume if key != "name")
    unsaid = ("optional", "defaultMode") if kind == "configMap" else ("optional",)
    source = {key: value for key, value in volume[kind].items() if key not in unsaid}
    if kind == "persistentVolumeClaim":
        return "claim", re.sub("^the ", "", source["claimName"])
    return kind, source


@pytest.mark.parametrize("name", SOURCES)
def test_the_drivers_pod_holds_what_the_steps_pod_holds(name: str) -> None:
    spec, platform = documents(SOURCES[name])
    check_pods(loads(HEAD + SOURCES[name].lstrip()), spec, platform)


def check_pods(pipeline: Any, spec: dict[str, Any], platform: dict[str, Any]) -> None:
    """Each of the driver's pods against the pod of the step it belongs to."""
    pipeline = meaning_of(pipeline)
    claims = {f"pipelinechannel--createpvc-{claim}-name": f"the {claim}" for claim in pipeline.claims}
    pods = driver_pods(spec, platform, claims)
    configs = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    for label, pod in pods.items():
        if pod["containers"][0]["image"].startswith("argostub/"):
            continue
        outer, inner = _owner(pipeline, label.removeprefix("exec-"))
        own = pod_of(planned_step(outer, inner, SITE, "unknown"), Named(), ENGINE)
        assert made(pod) == wanted(own)
        assert configs[label]["podMetadata"]["labels"] == own["metadata"]["labels"]
        assert configs[label]["podMetadata"].get("annotations") == own["metadata"].get("annotations")
    own_steps = [step for step in (*pipeline.steps.values(), *pipeline.exit.values()) if step.runs_container]
    assert len(pods) >= len(own_steps)


def _owner(pipeline: Any, path: str) -> tuple[Any, str]:
    if path in pipeline.exit or (path in pipeline.steps and pipeline.steps[path].runs_container):
        return pipeline, path
    for name, step in pipeline.steps.items():
        if step.pipeline is not None and path.startswith(f"{name}-"):
            return _owner(step.pipeline, path.removeprefix(f"{name}-"))
    raise AssertionError(f"{path} belongs to no step")
