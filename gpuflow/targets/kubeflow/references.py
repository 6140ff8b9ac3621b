"""References, names and user text in the IR.

KFP's backend reads meaning out of names: a loop's item is recognized by `loop-item`, a value handed into a sub-DAG by
`pipelinechannel--`, a condition's sub-DAG by `condition-`. So groups and their inputs have exactly the names that KFP's
own compiler gives them; only the inputs of a step's component, which nobody interprets, have names of gpuflow's.

A command passes Argo's substitution several times, then KFP's driver, the kubelet and KFP's launcher. Argo evaluates
every `{{…}}` it knows and offers no escape, so no literal `{{` may stand in the IR: the second brace is written as
`$(GPUFLOW_BRACE)`, which the kubelet replaces when the container starts, after Argo and the driver are done. The
launcher comes later still; what it would take for its own placeholder (`{{$}}`, `{{$.…}}`) a command cannot carry.

Two kubelets read most text. KFP hands the driver its work as arguments of the driver's pod, so the kubelet that starts
that pod expands `$$` and `$(NAME)` in them, and the step's own kubelet does it again in what is left
(argocompiler/container.go and dag.go, the args of the templates system-container-driver and system-dag-driver):

| part of the IR | goes through | kubelets that expand it |
|---|---|---|
| container: command, args, values of variables | `--container`, then the step's args and env | both |
| container: image | `--container` | the driver's |
| Kubernetes settings: names, keys, paths, selectors, claims of volumes | `--kubernetes_config` | the driver's |
| tasks: conditions, cache keys | `--task` | the driver's |
| values: defaults, constants, items | `--runtime_config`, `--component`, `--task`, then the step's args | both |
| values: outputs of other steps | ML Metadata, then the step's args | the step's |
| labels and annotations of the pod, numbers of retries | parameters of Argo's templates | none |
| descriptions, display names | shown from the IR that was uploaded | none |

So a command is escaped for the step's kubelet where it is spelled, and `for_driver` escapes it, and all that only the
driver reads, once more on its way into the IR.

Values (of parameters, outputs and items) go the same way without any of this: people type them, conditions compare
them, and the driver puts them into the pod's args, whoever made them. There Argo reads `{{…}}` and the kubelets read
`$$` and `$(NAME)`. Those that are known now are refused, those that are not are named in a note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from gpuflow.kubernetes.expansion import escape
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, Ref, RunRef
from gpuflow.targets.refusals import strings

RUN_LABEL = "metadata.labels['pipeline/runid']"
"""The run's id on every pod of a run, one-off or recurring: its API server puts it into the workflow's podMetadata."""
NODE_NAME = "metadata.annotations['workflows.argoproj.io/node-name']"
"""Argo's name of a task: the way to it through groups and turns of loops, with the numbers of attempts."""
CACHE_SETTINGS = "pipeline_cache-settings"
"""The input whose value changes with what KFP's cache does not look at. No channel has such a name."""
RUN_FACTS = {
    "id": "{{$.pipeline_job_uuid}}",
    "name": "{{$.pipeline_job_resource_name}}",
    "logical_date": "{{$.pipeline_job_create_time_utc}}",
    "interval_end": "{{$.pipeline_job_create_time_utc}}",
}
"""What KFP's driver replaces with a fact of the run, where it is the whole value of a task's input. The placeholder for
the schedule's time says no more: 2.17 reads it from a label of recurring runs in which its API server writes the time
when the run was made (CreateRun in resource_manager.go)."""


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """The name of a volume claim that is made for each run."""

    name: str


@dataclass(frozen=True, slots=True)
class ArtifactRef:
    """The artifact behind an output of a step: ML Metadata then knows who made it and who took it."""

    step: str
    name: str


@dataclass(frozen=True, slots=True)
class StatusRef:
    """How the steps of the run ended; for exit steps."""


Channel = ParamRef | OutputRef | ItemRef | RunRef | ClaimRef | StatusRef | ArtifactRef
"""Something that flows from one place of the pipeline to another."""


def input_name(channel: Channel) -> str:
    """The input of a step's own component. Params have no '-', steps no '_', so no two channels share a name."""
    match channel:
        case ParamRef(name):
            return name
        case OutputRef(step, name):
            return f"{step}-{name}"
        case ArtifactRef(step, name):
            return f"{step}-{name}-artifact"
        case ItemRef(name):
            return f"loop_item-{name}"
        case RunRef(field):
            return f"pipeline_run-{field}"
        case ClaimRef(name):
            return f"run_claim-{name}"
        case StatusRef():
            return "pipeline_run-status"


def channel_name(channel: Channel) -> str:
    """The input of a group (condition, loop, exit handler) that hands the channel on."""
    match channel:
        case ParamRef() | OutputRef() | ArtifactRef():
            return f"pipelinechannel--{input_name(channel)}"
        case ClaimRef(name):
            return f"pipelinechannel--{claim_task(name)}-name"
        case StatusRef():
            return "status"
        case _:
            raise TypeError(f"{channel} is never handed through a group")


def claim_task(name: str) -> str:
    return f"createpvc-{name}"


def release_task(name: str) -> str:
    return f"deletepvc-{name}"


def placeholder(name: str) -> str:
    """What KFP replaces with the value of a component's input."""
    return f"{{{{$.inputs.parameters['{name}']}}}}"


class Names:
    """Gives each component, executor and group a name of its own."""

    def __init__(self, *taken: str) -> None:
        self._taken: set[str] = set(taken)
        self._count = 0

    def unique_name(self, wish: str) -> str:
        """`wish`, or `wish-2`, `wish-3` … when it is taken."""
        name, number = wish, 1
        while name in self._taken:
            number += 1
            name = f"{wish}-{number}"
        self._taken.add(name)
        return name

    def group(self, kind: str, tasks: set[str]) -> str:
        """`condition-3`: the next number of the pipeline, past any step of that name."""
        while True:
            self._count += 1
            name = f"{kind}-{self._count}"
            if name not in tasks and name not in self._taken:
                self._taken.add(name)
                return name


BRACE = "GPUFLOW_BRACE"
_SAFE_BRACE = f"$({BRACE})"
_DOLLARS = re.compile(r"\$(\$|\(([^)]*)\))")
_PROXY = ("http_proxy", "https_proxy", "no_proxy")
"""Variables of driver pods that are not in capitals, where the installation has a proxy."""


class KubeflowSpelling:
    """References as KFP's placeholders; remembers which ones were used."""

    def __init__(self, name_of: Callable[[Channel], str] = input_name) -> None:
        self.used: dict[Channel, None] = {}
        self._name_of = name_of

    def literal(self, text: str) -> str:
        return without_double_braces(text)

    def reference(self, ref: Ref) -> str:
        self.used[ref] = None
        return placeholder(self._name_of(ref))


def for_driver(text: str) -> str:
    """What the kubelet of a driver's pod turns into `text`, whichever variables that pod has."""
    return escape(text)


def each_for_driver(data: Any) -> Any:
    """Plain data with every text in it, keys too, written `for_driver`."""
    if isinstance(data, str):
        return for_driver(data)
    if isinstance(data, dict):
        return {for_driver(key): each_for_driver(value) for key, value in data.items()}
    return [each_for_driver(item) for item in data] if isinstance(data, list) else data


def without_double_braces(text: str) -> str:
    """`text` with no `{{` in it, and no `{` at its end that a following placeholder would make one."""
    if "{" not in text:
        return text
    safe = text.replace("{{", "{" + _SAFE_BRACE)
    if not safe.endswith("{"):
        return safe
    before = safe[:-1]
    # A lone $ stood safely before the brace; before $( it has to be doubled.
    lone = (len(before) - len(before.rstrip("$"))) % 2
    return before + "$" * lone + _SAFE_BRACE


def placeholder_problems(words: list[str]) -> Iterator[tuple[str, str]]:
    """Words that KFP's launcher would read as a placeholder of its own, with the way out."""
    for mark in ("}}", "."):
        if any(f"{{{_SAFE_BRACE}${mark}" in word for word in words):
            shown = f"{{{{${mark}"
            yield (
                f"kubeflow does not support the text {shown} in a command: its launcher reads it as a placeholder",
                "pass it in an environment variable, which the launcher does not change",
            )


def replaced_part(value: str, variables: Callable[[], Collection[str]]) -> str | None:
    """What a value holds that would not arrive, and who takes it. `variables`: the names the steps give theirs.

    The kubelet leaves `$(NAME)` alone where the container has no such variable; KFP, Kubernetes and its services add
    some, in capitals but for a proxy's.
    """
    if "{{" in value:
        return "{{, which Argo would evaluate"
    if "$$" in value:
        return "$$, which the kubelet turns into $"
    for found in _DOLLARS.finditer(value):
        if found[2].isupper() or found[2] in _PROXY or found[2] in variables():
            return f"{found[0]}, which the kubelet would replace"
    return None


def lost_settings(pod: dict[str, Any]) -> tuple[str, str] | None:
    """A setting that metadata of the pod takes along, with the way out.

    Metadata stands beside the settings in one argument of the driver, and nothing escapes it: Argo puts it on the pod
    as it is. An open `$(` in it makes the driver's kubelet take all up to the next `)` for a name, and leave it alone.
    """
    opens = next((text for _, text in strings(pod.get("metadata", {})) if "$(" in text), None)
    if opens is None:
        return None
    spec = {key: value for key, value in pod["spec"].items() if key != "containers"}
    main = {key: value for key, value in pod["spec"]["containers"][0].items() if key not in ("command", "args", "env")}
    taken = next((text for _, text in strings([spec, main]) if for_driver(text) != text), None)
    if taken is None:
        return None
    return (
        f"its labels or annotations hold {opens[:60]!r}, and KFP's driver could not tell where {taken[:60]!r} begins",
        "write one of the two without $",
    )
