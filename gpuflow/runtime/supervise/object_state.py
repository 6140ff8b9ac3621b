"""An object of the cluster: its address, and how it ended, by its kind or by conditions that the user gives.

A place is written like `status.conditions[type=Complete].status`: names with dots between them, `[0]` for one entry of
a list, `[key=value]` for the entry that has it, `['a.b/c']` for a name with dots in it. A condition is a place, `=`,
and the value as text.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

_EXPANDED_FIELDS = re.compile(
    r"(^|/)(?<!/lifecycle/postStart/exec/)(?<!/lifecycle/preStop/exec/)(command|args)/\*$|/env/\*/value$"
    r"|/volumeMounts/\*/subPathExpr$"
)
"""Where the kubelet replaces `$(NAME)`: in containers and in the commands of probes, and not in those of hooks."""
_VARIABLE = re.compile(r"\$+(?=\()|\${2,}")
"""What the kubelet reads; any other `$` is a letter to it."""
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]|\['([^']+)'\]|\[([^=\]]+)=([^\]]*)\]")


def group_path(api_version: str) -> str:
    """The address of a group in one version (`batch/v1`), or of the core (`v1`)."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def path_of(api_version: str, namespace: str, plural: str, name: str = "") -> str:
    """The address of an object; without a name, of all of them in a namespace."""
    return f"{group_path(api_version)}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")


def _condition_is_true(kind: str) -> str:
    return f"status.conditions[type={kind}].status=True"


GOOD: dict[str, tuple[str, ...]] = {
    "Job": (_condition_is_true("Complete"),),
    "JobSet": ("status.terminalState=Completed", _condition_is_true("Completed")),
    "TrainJob": (_condition_is_true("Complete"),),
    "Experiment": (_condition_is_true("Succeeded"),),
    "PyTorchJob": (_condition_is_true("Succeeded"),),
    "MPIJob": (_condition_is_true("Succeeded"),),
    "Volcano Job": ("status.state.phase=Completed",),
}
"""When an object has done its work, by what `name_of` calls it."""
BAD: dict[str, tuple[str, ...]] = {kind: (_condition_is_true("Failed"),) for kind in GOOD}
"""When it has failed for good. Retries of its own do not show there."""
BAD["JobSet"] = ("status.terminalState=Failed", _condition_is_true("Failed"))
BAD["Volcano Job"] = tuple(f"status.state.phase={phase}" for phase in ("Failed", "Terminated", "Aborted"))
PODS = {
    "Job": "batch.kubernetes.io/job-name",
    "JobSet": "jobset.sigs.k8s.io/jobset-name",
    "TrainJob": "jobset.sigs.k8s.io/jobset-name",
    "Experiment": "katib.kubeflow.org/experiment",
    "PyTorchJob": "training.kubeflow.org/job-name",
    "MPIJob": "training.kubeflow.org/job-name",
    "Volcano Job": "volcano.sh/job-name",
}
"""The label by which the pods of an object are found; its value is the object's name."""


def name_of(manifest: Mapping[str, Any]) -> str:
    """What the kind of an object is called here: Volcano's Job is another than that of Kubernetes."""
    kind = str(manifest.get("kind"))
    return f"Volcano {kind}" if str(manifest.get("apiVersion")).startswith("batch.volcano.sh/") else kind


def value_at(document: Any, place: str) -> Any:
    """The value at a place; None where there is none."""
    return _walk(document, _steps(place))


def _walk(document: Any, steps: Iterable[tuple[str, str, str, str]]) -> Any:
    for name, index, key, value in steps:
        if name:
            document = document.get(name) if isinstance(document, dict) else None
        elif not isinstance(document, list):
            return None
        elif index:
            document = document[int(index)] if int(index) < len(document) else None
        else:
            same = (entry for entry in document if isinstance(entry, dict) and str(entry.get(key)) == value)
            document = next(same, None)
    return document


def _steps(place: str) -> Iterator[tuple[str, str, str, str]]:
    at = 0
    while at < len(place):
        match = _STEP.match(place, at)
        if match is None:
            raise ValueError(f'"{place}" is no place; write it like status.conditions[type=Complete].status')
        name, index, quoted, key, value = (part or "" for part in match.groups())
        yield name or quoted, index, key, value
        at = match.end() + (1 if place[match.end() : match.end() + 1] == "." else 0)


def split(condition: str) -> tuple[str, str]:
    """A condition as its place and its value: the first `=` outside brackets parts them."""
    depth = 0
    for index, letter in enumerate(condition):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "=" and depth == 0:
            list(_steps(condition[:index]))
            return condition[:index], condition[index + 1 :]
    raise ValueError(f'"{condition}" is no condition; write it like status.phase=Succeeded')


def holds(document: Any, conditions: Sequence[str]) -> bool:
    """Whether one of the conditions holds."""
    for condition in conditions:
        place, value = split(condition)
        if format_value(value_at(document, place)) == value:
            return True
    return False


def format_value(value: Any) -> str:
    """A value as conditions and outputs write it."""
    if value is None or isinstance(value, bool):
        return {None: "", True: "true", False: "false"}[value]
    if isinstance(value, (dict, list)):
        import json

        return json.dumps(value, sort_keys=True)
    return str(value)


def put(document: dict[str, Any], place: str, value: str) -> None:
    """Set a value of a manifest: text, in a place whose surroundings are there. A program gets it as it is: where the
    kubelet would replace `$(NAME)`, be it by a Secret, the `$` are doubled."""
    steps = list(_steps(place))
    if _EXPANDED_FIELDS.search("/".join(name or "*" for name, *_ in steps)):
        value = _VARIABLE.sub(lambda match: 2 * match[0], value)
    name, index, _, _ = steps[-1]
    around = _walk(document, steps[:-1])
    if name and isinstance(around, dict):
        around[name] = value
    elif index and isinstance(around, list) and int(index) < len(around):
        around[int(index)] = value
    else:
        raise ValueError(f"the manifest has no place {place}")


def words_of(document: dict[str, Any]) -> str:
    """What the object says of itself: its conditions that hold, with reason and message."""
    listed = value_at(document, "status.conditions") or []
    lines = []
    for entry in listed:
        if entry.get("status") == "True":
            why = ": ".join(text for text in (entry.get("reason"), entry.get("message")) if text)
            lines.append(f"{entry.get('type')}" + (f" ({why})" if why else ""))
    places = ("status.terminalState", "status.state.phase", "status.phase")
    phase = next(filter(None, (value_at(document, place) for place in places)), None)
    return ", ".join(lines) or str(phase or "no condition yet")
