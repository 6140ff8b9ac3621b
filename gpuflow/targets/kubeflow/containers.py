"""The containers of a task without the SDK: the command, its outputs, its cached result, and the containers beside it.

KFP has no working directory and no references in environment variables: both are set by small programs that every image
with a shell has (`sh`, `env`) and that then become the command.

Outputs: an output with a `kind` is an artifact of the task under its own name, so that ML Metadata has it and other
components take it. Its URI, which gpuflow's own steps read, is a parameter beside it: kfp gives every output of a
component a name of its own, be it a parameter or an artifact.

Cache: KFP's key holds the image, the command, the values of inputs, the names and types of outputs and the names of
claims (`cacheutils.GenerateCacheKey`). It does not hold variables, Secrets, ConfigMaps and mounts: a step whose `env`
was changed would get its old result. So a cached step has one more input, a hash of them. What differs from run to run
by itself must not be an input: the supervisor reads the run's id from the pod.

Init containers and sidecars are for a KFP that adds containers to pods (`adds_containers`). The message is not in the
SDK that this version of gpuflow is made for, so it is written in its JSON form, field by field as the proto names them
(InitContainer of kubernetes_executor_config.proto). KFP's driver calls a volume after the Secret, ConfigMap or claim
behind it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuflow.core.errors import Finding, rule
from gpuflow.kubernetes.expansion import escape
from gpuflow.plan import Plan, PlannedStep
from gpuflow.pod.supervision import RUN_ID, TASK
from gpuflow.spec.engine_options.kubeflow import KubeflowPipeline, KubeflowTask
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import RunRef
from gpuflow.targets.capabilities import named_steps
from gpuflow.targets.kubeflow.references import BRACE, each_for_driver, for_driver, without_double_braces

_NO_OPTIONS = KubeflowTask()


def pipeline_options(pipeline: Pipeline) -> KubeflowPipeline:
    """What the pipeline says to Kubeflow alone."""
    return (pipeline.engines and pipeline.engines.kubeflow) or KubeflowPipeline()


def task_options(step: Step) -> KubeflowTask:
    """What a step says to Kubeflow alone."""
    return (step.engines and step.engines.kubeflow) or _NO_OPTIONS


def caching_options(step: Step) -> dict[str, Any]:
    """Whether the step's results are used again, and under which key (CachingOptions of the IR)."""
    if not step.cache:
        return {}
    key = task_options(step).cache_key
    return {"enableCache": True, **({"cacheKey": for_driver(key)} if key else {})}


TASK_PLACEHOLDER = "{{$}}"
"""What KFP's launcher replaces with all it knows of a task: where artifacts go, and where it reads about them."""


@dataclass(frozen=True, slots=True)
class StepOutputs:
    """The parameter of each output, the kind of those that are artifacts, and whose files KFP keeps too."""

    keys: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """The options of the supervisor that say it."""
        if not self.keys:
            return []
        told = [f"--output-kind={name}={kind}" for name, kind in self.kinds.items()]
        told += [f"--hand-over={name}" for name in self.files]
        return [
            *(f"--deliver={name}={{{{$.outputs.parameters['{key}'].output_file}}}}" for name, key in self.keys.items()),
            *(told and [*told, f"--kubeflow={TASK_PLACEHOLDER}"]),
        ]


NO_OUTPUTS = StepOutputs()
"""That of a step without outputs."""


def step_outputs(step: Step, *, alone: bool = False) -> StepOutputs:
    """The outputs of a step. `alone`: in a hand-written pipeline, where KFP's own components may read its files."""
    if not step.outputs:
        return NO_OUTPUTS
    said = task_options(step).hand_over
    files = alone if said is None else said
    kinds = {name: output.kind for name, output in step.outputs.items() if output.kind is not None}
    keys = {name: f"{name}-uri" if name in kinds else name for name in step.outputs}  # no output has '-' in its name
    return StepOutputs(keys, kinds, tuple(kinds) if files else ())


PLACEHOLDER = "{{$."
"""How a value begins that KFP's launcher fills in."""
ENTER = 'cd "$0" && exec "$@"'
"""Starts a command in a directory."""
RUN_AS_IT_IS = 'exec "$0" "$@"'
"""Starts a command whose name `env` would take for an assignment."""


def command_words(main: dict[str, Any], outputs: StepOutputs) -> list[str]:
    """The container's command. `outputs`: what KFP's launcher looks for."""
    command = _with_output_paths(list(main["command"]), outputs)
    env = main.get("env", [])
    late = [f"{entry['name']}={entry['value']}" for entry in env if PLACEHOLDER in entry.get("value", "")]
    if late:
        if "=" in command[0]:
            command = ["sh", "-c", RUN_AS_IT_IS, *command]
        command = ["env", *late, *command]
    if "workingDir" in main:
        # Kubernetes takes a container's own directory as it is; a word of a command is read on the way.
        command = ["sh", "-c", ENTER, without_double_braces(escape(main["workingDir"])), *command]
    return command


def _with_output_paths(command: list[str], outputs: StepOutputs) -> list[str]:
    """The supervisor's command with the path where KFP's launcher expects each output; others unchanged."""
    at = next((index for index, word in enumerate(command) if word.startswith("--engine=")), 0)
    return [*command[:at], *outputs.arguments(), *command[at:]] if at else command


_OF_THE_RUN = (RUN_ID, TASK)


def cached_settings(step: Step, pod: dict[str, Any]) -> str | None:
    """A hash of what decides about the result and is not in KFP's key; None where there is nothing, or no cache."""
    if not step.cache or task_options(step).cache_key:
        return None
    spec, main = pod["spec"], pod["spec"]["containers"][0]
    said = {
        "env": sorted((entry for entry in main.get("env", []) if _counts(entry)), key=lambda entry: str(entry["name"])),
        "volumeMounts": main.get("volumeMounts", []),
        "volumes": spec.get("volumes", []),
        "initContainers": spec.get("initContainers", []),
    }
    if not any(said.values()):
        return None
    return hashlib.sha256(json.dumps(said, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]


def _counts(entry: dict[str, Any]) -> bool:
    """Whether a variable is part of the hash: those with references stand in the command, and are in the key."""
    return entry["name"] not in _OF_THE_RUN and PLACEHOLDER not in entry.get("value", "")


@rule("GF395", severity="note")
def never_cached(plan: Plan) -> Iterator[Finding]:
    """One note about all steps that ask for a cached result and can never get one."""
    found = {each.name: why for each in plan.containers for why in (_no_cache_reason(each),) if why}
    if found:
        whys = "; ".join(dict.fromkeys(found.values()))
        text = f"{named_steps(tuple(found))}: cache: true, and no run finds the result of another, because {whys}"
        hint = "leave it out of the step, or drop cache: true; or name the results that count as equal: "
        hint += "engines: {kubeflow: {cache_key: …}}"
        yield Finding("GF395", text, plan.where(next(iter(found))), hint, "note")


def _no_cache_reason(each: PlannedStep) -> str | None:
    step = each.step
    if not step.cache or task_options(step).cache_key:
        return None
    for _, ref in step.references():
        if isinstance(ref, RunRef):
            return f"{{run: {ref.field}}} differs from run to run and is part of KFP's key"
    for volume in step.volumes.values():
        if volume.new_claim is not None:
            return f'the claim "{volume.new_claim}" is made anew for each run, and its name is part of KFP\'s key'
    return None


_VOLUME_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def shared_volume_names(pod: dict[str, Any]) -> Iterator[str]:
    """Names that two volumes would share: the driver names a volume after its Secret, ConfigMap or claim."""
    seen: dict[str, str] = {}
    for volume in pod["spec"].get("volumes", []):
        kind, name = driver_name(volume)
        if seen.setdefault(name, kind) != kind:
            yield name


def driver_name(volume: dict[str, Any]) -> tuple[str, str]:
    """The kind of a volume, and what the driver calls it."""
    if "persistentVolumeClaim" in volume:
        return "claim", volume["persistentVolumeClaim"]["claimName"]
    if "secret" in volume:
        return "secret", volume["secret"]["secretName"]
    if "configMap" in volume:
        return "config map", volume["configMap"]["name"]
    return "scratch", volume["name"]


def volume_problems(pod: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Volumes that the driver would give the same name, or one that Kubernetes refuses, with the way out."""
    for name in shared_volume_names(pod):
        yield (
            f'kubeflow cannot mount two kinds of volume named "{name}": its driver names volumes '
            "after the Secret, ConfigMap or claim behind them",
            "rename one of the objects",
        )
    for volume in pod["spec"].get("volumes", []):
        kind, name = driver_name(volume)
        if not _VOLUME_NAME.fullmatch(name):
            yield (
                f'kubeflow cannot mount the {kind} "{name}": its driver gives the volume that name, and Kubernetes '
                "allows volumes at most 63 lower-case letters, digits and '-'",
                "create an object with a shorter name without dots, and mount that",
            )


INIT_CONTAINERS = "initContainers"
LAUNCHER = "kfp-launcher"
"""The init container that KFP itself adds."""
_NO_FIELD_FOR = {
    "envFrom": "whole Secrets or ConfigMaps as variables",
    "ports": "ports",
    "livenessProbe": "probes",
    "readinessProbe": "probes",
    "startupProbe": "probes",
    "lifecycle": "hooks",
}
Problem = tuple[str, str, bool]
"""What is wrong, the way out, and whether it may be left out."""


def helper_config(pod: dict[str, Any]) -> dict[str, Any]:
    """The part of an executor config that adds a pod's init containers and sidecars; nothing where it has none."""
    spec = pod["spec"]
    names = {volume["name"]: driver_name(volume)[1] for volume in spec.get("volumes", [])}
    written = [_init_container(container, names) for container in spec.get(INIT_CONTAINERS, [])]
    return {INIT_CONTAINERS: each_for_driver(written)} if written else {}


def _init_container(container: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    env = [{"name": entry["name"], "value": entry["value"]} for entry in container.get("env", []) if "value" in entry]
    words = list(container["command"])
    if any(f"$({BRACE})" in word for word in (*words, *(entry["value"] for entry in env))):
        env = [{"name": BRACE, "value": "{"}, *env]
    fields = {
        "command": words,
        "env": env,
        "image": container["image"],
        "name": container["name"],
        "resources": {key: dict(sorted(amounts.items())) for key, amounts in container.get("resources", {}).items()},
        "restartPolicy": container.get("restartPolicy"),
        "volumeMounts": [
            {"mountPath": mount["mountPath"], "volumeName": names[mount["name"]]}
            for mount in container.get("volumeMounts", [])
        ],
    }
    return {key: value for key, value in fields.items() if value}


def helper_problems(pod: dict[str, Any], run_claims: set[str]) -> Iterator[Problem]:
    """What KFP's init containers have no word for. `run_claims`: the volumes of claims that are made for each run."""
    spec = pod["spec"]
    own = {mount["name"] for mount in spec["containers"][0].get("volumeMounts", [])}
    for container in spec.get(INIT_CONTAINERS, []):
        who = f'the container "{container["name"]}"'
        if container["name"] == LAUNCHER:
            yield f"{who} has the name of KFP's own", "choose another name", False
        values = [entry["value"] for entry in container.get("env", []) if "value" in entry]
        if any(PLACEHOLDER in word for word in (*container["command"], *values)):
            yield f"{who} has references, and KFP fills in those of the step's own only", "write the value", False
        for entry in container.get("env", []):
            if "valueFrom" in entry:
                yield f"{who}: {entry['name']} comes from an object, and KFP has text only", "mount the object", False
        for what in dict.fromkeys(_NO_FIELD_FOR[key] for key in _NO_FIELD_FOR if container.get(key)):
            yield f"KFP has no {what} for {who}", "do without it", True
        for mount in container.get("volumeMounts", []):
            yield from _mount_problems(who, mount, own, run_claims)


def _mount_problems(who: str, mount: dict[str, Any], own: set[str], run_claims: set[str]) -> Iterator[Problem]:
    path = mount["mountPath"]
    if mount["name"] in run_claims:
        yield f"{who} mounts a claim of the run at {path}, whose name only the run knows", "mount another volume", False
    elif mount["name"] not in own:
        yield f"{who} mounts a volume at {path} that the step does not mount", "mount it in the step as well", False
    if mount.get("subPath"):
        yield f"{who}: KFP has no sub_path for the mount at {path}", "mount the whole volume", False
    if mount.get("readOnly"):
        yield f"{who}: the mount at {path} would be writable", "drop read_only", True
