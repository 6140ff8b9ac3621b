"""What several tasks have in common is written once, at the top of the file, under a name that says what it is.

A name depends on the value and not on its place in the file, so that another step changes no other step's lines.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from gpuflow.catalog.catalog import models
from gpuflow.targets.airflow.python import Call, Extended, Merged, Method, Name, source

STEP_LABEL = "gpuflow.dev/step"
PIPELINE_LABEL = "gpuflow.dev/pipeline"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
SPEC_PARTS = {"securityContext": "SECURITY", "affinity": "AFFINITY", "tolerations": "TOLERATIONS"}
CONTAINER_PARTS = {"securityContext": "CONTAINER_SECURITY", "resources": "RESOURCES"}
ARGUMENTS = {"limits": "LIMITS", "deadlines": "DEADLINES", "links": "LINKS"}
STEMS = (
    "LINKS",
    "LIMITS",
    "DEADLINES",
    "LABELS",
    "ENV",
    *dict.fromkeys([*SPEC_PARTS.values(), *CONTAINER_PARTS.values()]),
)
"""In the order of the file."""
CONTAINERS = ("initContainers", "containers")
PODS = ("template", "leader")
"""Arguments that are pods."""
SHORT = 60
"""What fits in this many characters is easier to read where it stands."""


@dataclass(frozen=True)
class Defaults:
    """What the file's pipelines say for all their steps: the names of variables, by the pipeline's own name."""

    pipeline: str
    env: Mapping[str, frozenset[str]]


class Shared:
    """The repeated parts of all tasks, and their names."""

    def __init__(self, calls: list[Any], defaults: Defaults) -> None:
        self._defaults = defaults
        values: dict[tuple[str, str], Any] = {}
        counted: Counter[tuple[str, str]] = Counter()
        homes: dict[tuple[str, str], set[str]] = {}
        for call in calls:
            for stem, value, pipeline in self._parts(call):
                key = stem, _key(value)
                values[key] = value
                counted[key] += 1
                homes.setdefault(key, set()).add(pipeline)
        again = [key for key in values if counted[key] > 1 and (key[0] in ARGUMENTS.values() or len(key[1]) > SHORT)]
        self._names: dict[tuple[str, str], Name] = {}
        for stem in STEMS:
            # The most usual one has the plainest name.
            keys = sorted((key for key in again if key[0] == stem), key=lambda key: (-counted[key], key[1]))
            taken: set[str] = set()
            for key in keys:
                name = next(name for name in self._wishes(stem, values[key], homes[key]) if name not in taken)
                taken.add(name)
                self._names[key] = Name(name)
        ordered = sorted(self._names, key=lambda key: (STEMS.index(key[0]), self._names[key].text))
        self.constants: dict[str, Any] = {self._names[key].text: values[key] for key in ordered}

    def named(self, call: Any) -> Any:
        """A task's call with names where it has parts in common with others."""
        if isinstance(call, Method):
            return Method(self.named(call.target), call.name, call.args, call.named)
        if not isinstance(call, Call):
            return call
        named = self._replace(dict(call.named), ARGUMENTS)
        named |= {key: self._pod(named[key]) for key in PODS if isinstance(named.get(key), Call)}
        return Call(call.name, call.args, named)

    def _pod(self, pod: Call) -> Call:
        metadata, spec = dict(pod.args[0]), dict(pod.named["spec"])
        common, own = _labels(metadata)
        name = self._names.get(("LABELS", _key(common)))
        if name is not None:
            metadata["labels"] = Merged(name, own) if own else name
        self._replace(spec, SPEC_PARTS)
        for kind in CONTAINERS:
            if kind in spec:
                spec[kind] = [self._container(dict(container), pod) for container in spec[kind]]
        return Call(pod.name, (metadata,), {"spec": spec})

    def _container(self, container: dict[str, Any], pod: Call) -> dict[str, Any]:
        self._replace(container, CONTAINER_PARTS)
        common = self._env(container, pod)
        name = self._names.get(("ENV", _key(common))) if common else None
        if name is not None:
            own = container["env"][len(common) :]
            container["env"] = Extended(name, own) if own else name
        return container

    def _replace(self, part: dict[str, Any], stems: Mapping[str, str]) -> dict[str, Any]:
        for key, stem in stems.items():
            if key in part:
                part[key] = self._names.get((stem, _key(part[key])), part[key])
        return part

    def _parts(self, call: Any) -> Iterator[tuple[str, Any, str]]:
        """Everything in a task that another one may have too: the stem of its name, itself, and its pipeline."""
        if isinstance(call, Method):
            yield from self._parts(call.target)
        if not isinstance(call, Call):
            return
        yield from ((stem, call.named[key], "") for key, stem in ARGUMENTS.items() if key in call.named)
        for key in PODS:
            if isinstance(call.named.get(key), Call):
                yield from self._parts_of_pod(call.named[key])

    def _parts_of_pod(self, pod: Call) -> Iterator[tuple[str, Any, str]]:
        home = _pipeline(pod)
        yield "LABELS", _labels(pod.args[0])[0], home
        spec = pod.named["spec"]
        yield from ((stem, spec[key], home) for key, stem in SPEC_PARTS.items() if key in spec)
        for container in (each for kind in CONTAINERS for each in spec.get(kind, ())):
            yield from ((stem, container[key], home) for key, stem in CONTAINER_PARTS.items() if key in container)
            if common := self._env(container, pod):
                yield "ENV", common, home

    def _env(self, container: Mapping[str, Any], pod: Call) -> list[dict[str, Any]]:
        """The variables that a container has from the pipeline's defaults. They come first, and keep their order."""
        usual = self._defaults.env.get(_pipeline(pod), frozenset())
        return list(takewhile(lambda entry: entry["name"] in usual, container.get("env", ())))

    def _wishes(self, stem: str, value: Any, homes: set[str]) -> Iterator[str]:
        """Names for a value, the best one first. The last one no other value has."""
        tags = [tuple(filter(None, tag)) for tag in _TAGS.get(stem, _plain)(value)]
        if stem in ("LABELS", "ENV") and homes.isdisjoint(("", self._defaults.pipeline)):
            tags = [(min(homes), *tag) for tag in tags]
        for tag in (*tags, (hashlib.sha256(_key(value).encode()).hexdigest()[:6],)):
            yield _upper(stem, *tag)


def _plain(value: Any) -> Iterator[tuple[str, ...]]:
    yield ()


def _label_tags(value: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    yield ()
    yield (value.get(QUEUE_LABEL, ""),)


def _groups(value: Any) -> Iterator[tuple[str, ...]]:
    """`LIMITS_EVALUATE`, by the innermost group that is limited; what is about the run alone needs no more words."""
    calls = [each for each in value if isinstance(each, Call)] if isinstance(value, list) else []
    groups = [str(each.named.get("group") or (each.args[1] if len(each.args) > 1 else "")) for each in calls]
    yield (groups[-1] if groups else "",)


def _resources(value: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """`RESOURCES_2CPU_8GI`, by the limits, and by the requests where these differ."""
    most = _amounts(value.get("limits") or value.get("requests") or {})
    if most:
        yield most
        yield (*most, "from", *_amounts(value.get("requests") or {}))


_UNITS = {"memory": "", "ephemeral-storage": "disk"}


def _amounts(amounts: Mapping[str, Any]) -> tuple[str, ...]:
    words = []
    for resource, amount in amounts.items():
        short = resource.rpartition("/")[2]
        words.append(
            str(amount) if short == "memory" else f"{amount}{'disk' if short == 'ephemeral-storage' else short}"
        )
    return tuple(words)


def _affinity(value: Any) -> Iterator[tuple[str, ...]]:
    """`AFFINITY_A100_80GB`, by the GPUs that the nodes have, or by the labels that are asked for."""
    asked = tuple(dict.fromkeys(_values(value)))
    gpus = tuple(model.id for model in models() if not set(asked).isdisjoint(model.products))
    if gpus:
        yield gpus
    if asked:
        yield asked


def _values(tree: Any) -> Iterator[str]:
    if isinstance(tree, Mapping):
        if isinstance(tree.get("values"), list):
            yield from (each for each in tree["values"] if isinstance(each, str))
        for part in tree.values():
            yield from _values(part)
    elif isinstance(tree, list):
        for part in tree:
            yield from _values(part)


def _tolerations(value: list[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    keys = tuple(str(each.get("key", "any")).rpartition("/")[2] for each in value)
    if keys:
        yield keys


def _security(value: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The most usual one needs no more than its stem."""
    yield ()
    if value.get("readOnlyRootFilesystem"):
        yield ("read only",)
    if "runAsUser" in value:
        yield (f"user {value['runAsUser']}",)


_TAGS: dict[str, Callable[[Any], Iterable[tuple[str, ...]]]] = {
    "LIMITS": _groups,
    "DEADLINES": _groups,
    "LABELS": _label_tags,
    "RESOURCES": _resources,
    "AFFINITY": _affinity,
    "TOLERATIONS": _tolerations,
    "SECURITY": _security,
    "CONTAINER_SECURITY": _security,
}


def _upper(*words: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", "_".join(words).upper().encode("ascii", "ignore").decode()).strip("_")


def _pipeline(pod: Call) -> str:
    return str(pod.args[0].get("labels", {}).get(PIPELINE_LABEL, ""))


def _labels(metadata: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Labels that other steps may have too, and the step's own."""
    labels = metadata.get("labels", {})
    return {k: v for k, v in labels.items() if k != STEP_LABEL}, {k: v for k, v in labels.items() if k == STEP_LABEL}


def _key(value: Any) -> str:
    """Equal for equal parts, however they are laid out."""
    return source(value)
