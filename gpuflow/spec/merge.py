"""`kubernetes: {merge: …}`: a patch of the pod in Kubernetes' own words, judged where it is written.

Every word is one of Kubernetes', or a directive of its patches. What a step says in the spec's own words, and what
retries and the supervisor rely on, is not changed by a patch: each such field is refused with the word to use instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuflow.errors import did_you_mean
from gpuflow.kubernetes.labels import QUEUE_LABEL, QUEUE_PRIORITY_LABEL
from gpuflow.kubernetes.pod_fields import Field, fields_of, places_of
from gpuflow.kubernetes.strategic_merge import DELETE_FROM, DIRECTIVE, ELEMENT_ORDER, RETAIN_KEYS
from gpuflow.quantity import Quantity
from gpuflow.spec.model import problem
from gpuflow.spec.names import OURS
from gpuflow.spec.params import plain_json

Path = tuple[str | int, ...]
MAIN = "main"
"""The step's own container."""
OF_POD = {
    "activeDeadlineSeconds": "timeout",
    "ephemeralContainers": "init_containers or sidecars",
    "nodeName": "kubernetes: {node_selector: {kubernetes.io/hostname: …}}",
    "overhead": "kubernetes: {runtime_class: …}",
    "resources": "cpu, memory and gpu",
    "restartPolicy": "retry",
    "serviceAccount": "service_account",
    "serviceAccountName": "service_account",
    "terminationGracePeriodSeconds": "termination_grace",
}
"""Fields of a pod that the spec alone decides, and its word for each."""
OF_MAIN = {
    "args": "args",
    "command": "command",
    "image": "image",
    "imagePullPolicy": "image_pull_policy",
    "resources": "cpu, memory, gpu or kubernetes: {resources: …}",
    "restartPolicy": "retry",
    "restartPolicyRules": "retry",
    "terminationMessagePath": "outputs",
    "terminationMessagePolicy": "outputs",
    "workingDir": "working_dir",
}
"""Fields of the step's own container that the spec alone decides."""
OF_LABELS = {QUEUE_LABEL: "queue", QUEUE_PRIORITY_LABEL: "priority: {queue: …}"}
OUR_VARIABLES = "GPUFLOW_"
TAKEN_NAMES = ("wait", "init", "base")
"""Containers of the engines."""


def judged_merge(value: dict[str, Any]) -> dict[str, Any]:
    """The patch as plain data. Raises for words that are not Kubernetes', and for those that the spec decides."""
    at: Path = ("merge",)
    data: dict[str, Any] = plain_json(value, at)
    _map(data, "PodTemplateSpec", at, "merge")
    for path, word, instead in _taken(data):
        raise taken(word, instead, (*at, *path))
    return data


def taken(word: str, instead: str | None, at: Path = ()) -> Exception:
    """The refusal of a field that is not a patch's to change."""
    return problem("GF372", *taken_words(word, instead), at=at)


def taken_words(word: str, instead: str | None) -> tuple[str, str]:
    """The message and the way out of such a refusal."""
    if instead is None:
        return f"merge cannot change {word}, which gpuflow relies on", "take it out of the patch"
    return f"merge cannot change {word}: the spec has its own word for it", f"write {instead} in the step"


def _taken(data: dict[str, Any]) -> Iterator[tuple[Path, str, str | None]]:
    metadata, spec = data.get("metadata") or {}, data.get("spec") or {}
    for key in metadata:
        if key not in ("labels", "annotations") and not key.startswith("$"):
            yield ("metadata", key), f"metadata.{key}", None
    for key in metadata.get("labels") or {}:
        if key in OF_LABELS or key.startswith(OURS):
            yield ("metadata", "labels", key), f"the label {key}", OF_LABELS.get(key)
    for key in OF_POD.keys() & spec.keys():
        yield ("spec", key), f"spec.{key}", OF_POD[key]
    for index, container in enumerate(_elements(spec, "containers")):
        path, name = ("spec", "containers", index), container.get("name")
        if name != MAIN and DIRECTIVE not in container:
            yield (*path, "name"), f"the list of containers ({name!s:.60})", "sidecars or init_containers"
        for key in OF_MAIN.keys() & container.keys():
            yield (*path, key), f"{key} of main", OF_MAIN[key]
        for number, entry in enumerate(_elements(container, "env")):
            if str(entry.get("name")).startswith(OUR_VARIABLES):
                yield (*path, "env", number, "name"), f"the variable {entry['name']}", None
    for index, container in enumerate(_elements(spec, "initContainers")):
        if container.get("name") in (MAIN, *TAKEN_NAMES):
            yield ("spec", "initContainers", index, "name"), f"the name {container['name']}, an engine's own", None


def merged_texts(patch: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """The words of commands and the values of variables in a patch: what reaches a program."""
    spec = patch.get("spec") or {}
    for field in ("containers", "initContainers"):
        for index, container in enumerate(_elements(spec, field)):
            for key in ("command", "args"):
                words = container.get(key) or ()
                yield from ((("spec", field, index, key, place), word) for place, word in enumerate(words))
            for number, entry in enumerate(_elements(container, "env")):
                if isinstance(entry.get("value"), str):
                    yield ("spec", field, index, "env", number, "value"), entry["value"]


def variables_of(patch: dict[str, Any]) -> dict[str, str]:
    """The variables that a patch sets to a plain text, of all containers."""
    spec = patch.get("spec") or {}
    return {
        entry["name"]: entry["value"]
        for field in ("containers", "initContainers")
        for container in _elements(spec, field)
        for entry in _elements(container, "env")
        if isinstance(entry.get("name"), str) and isinstance(entry.get("value"), str)
    }


def _elements(owner: dict[str, Any], field: str) -> list[dict[str, Any]]:
    return [each for each in owner.get(field) or () if isinstance(each, dict)]


def _map(value: Any, type_name: str, at: Path, name: str) -> None:
    if not isinstance(value, dict):
        raise _wrong(f"{name} is a mapping, as in a Kubernetes manifest", at)
    known = fields_of(type_name)
    for key, item in value.items():
        if key in (DIRECTIVE, RETAIN_KEYS) or key.startswith((ELEMENT_ORDER, DELETE_FROM)):
            _directive(key, item, known, (*at, key))
        elif key not in known:
            raise problem("GF371", f"{name} has no {key!r:.60}", hint_for(key, type_name), at=(*at, key))
        elif item is not None:
            _field(item, known[key], (*at, key), key)


def _directive(key: str, item: Any, known: dict[str, Field], at: Path) -> None:
    if key == DIRECTIVE:
        if item not in ("delete", "replace"):
            raise problem("GF376", f"$patch {item!r:.40} is neither delete nor replace", "use one of the two", at=at)
        return
    field = key.partition("/")[2]
    if not isinstance(item, list) or (field and field not in known):
        hint = did_you_mean(field, known) if field and field not in known else "write a list"
        raise problem("GF376", f"{key[:60]} does not fit here", hint, at=at)


def _field(value: Any, field: Field, at: Path, name: str) -> None:
    if field.holds == "one":
        _one(value, field.type, at, name)
    elif field.holds == "map":
        if not isinstance(value, dict):
            raise _wrong(f"{name} is a mapping, as in a Kubernetes manifest", at)
        for key, item in value.items():
            if key != DIRECTIVE and item is not None:
                _one(item, field.type, (*at, key), f"{name}.{key:.60}")
    else:
        if not isinstance(value, list):
            raise _wrong(f"{name} is a list, as in a Kubernetes manifest", at)
        for index, item in enumerate(value):
            _one(item, field.type, (*at, index), f"an entry of {name}")
            key = field.merge_key
            if key is not None and isinstance(item, dict) and key not in item and item.get(DIRECTIVE) != "replace":
                hint = f"add {key}: …; by it Kubernetes finds the entry to change"
                raise problem("GF376", f"an entry of {name} has no {key}", hint, at=(*at, index))


def _one(value: Any, type_name: str, at: Path, name: str) -> None:
    number = isinstance(value, int) and not isinstance(value, bool)
    if type_name == "any":
        return
    if type_name == "text":
        if not isinstance(value, str):
            raise _wrong(f"{name} is text", at, "put it in quotes")
    elif type_name == "bool":
        if not isinstance(value, bool):
            raise _wrong(f"{name} is true or false", at, "write true or false, without quotes")
    elif type_name == "int":
        if not number:
            raise _wrong(f"{name} is a whole number", at, "write digits only, without quotes")
    elif type_name == "port":
        if not number and not isinstance(value, str):
            raise _wrong(f"{name} is a port: a number or a name", at)
    elif type_name == "quantity":
        _quantity(value, at, name)
    else:
        _map(value, type_name, at, name)


def _quantity(value: Any, at: Path, name: str) -> None:
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError("it is no text")
        Quantity(str(value))
    except ValueError as refusal:
        raise _wrong(f"{name} is not a quantity: {refusal}", at, "write it like 4, 500m or 16Gi") from None


def _wrong(message: str, at: Path, hint: str = "write it as in a Kubernetes manifest") -> Exception:
    return problem("GF371", message, hint, at=at)


def hint_for(word: str, type_name: str) -> str:
    """Where a word belongs that a type does not have."""
    known = fields_of(type_name)
    camel = camel_case(word)
    if camel in known:
        return f"write {camel}: merge takes Kubernetes' own spelling"
    homes = places_of(word)
    if type_name == "PodTemplateSpec" and homes:
        home = {"PodSpec": "spec", "ObjectMeta": "metadata"}.get(homes[0])
        if "PodSpec" in homes or home:
            return f"write {'spec' if 'PodSpec' in homes else home}: {{{word}: …}}"
        if "Container" in homes:
            return f"write spec: {{containers: [{{name: main, {word}: …}}]}}"
    if type_name == "PodSpec" and "Container" in homes:
        return f"write containers: [{{name: main, {word}: …}}]"
    if type_name == "Container" and "PodSpec" in homes:
        return f"write spec: {{{word}: …}}: it is a field of the pod"
    return did_you_mean(word, known) or f"Kubernetes has no such field here: {', '.join(sorted(known)[:12])}, …"


def camel_case(word: str) -> str:
    """`node_selector` as Kubernetes spells it."""
    first, *rest = word.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)
