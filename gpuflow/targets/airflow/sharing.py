"""Parts that several pods have in common are written once, at the top of the file, under a name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from gpuflow.targets.airflow.python import Call, Merged, Method, Name, source

STEP_LABEL = "gpuflow.dev/step"
SPEC_PARTS = {"securityContext": "SECURITY", "affinity": "AFFINITY", "tolerations": "TOLERATIONS"}
CONTAINER_PARTS = {"securityContext": "CONTAINER_SECURITY"}
CONTAINERS = ("initContainers", "containers")
SHORT = 60
"""What fits in this many characters is easier to read where it stands."""


class Shared:
    """The repeated parts of all pods, and their names."""

    def __init__(self, calls: list[Any]) -> None:
        parts = [part for call in calls for pod in _pods(call) for part in _parts(pod)]
        counted = Counter((stem, _key(value)) for stem, value in parts)
        self.constants: dict[str, Any] = {}
        self._names: dict[tuple[str, str], Name] = {}
        for stem, value in parts:
            key = stem, _key(value)
            if counted[key] > 1 and key not in self._names and len(key[1]) > SHORT:
                number = sum(1 for known, _ in self._names if known == stem) + 1
                name = stem if number == 1 else f"{stem}_{number}"
                self._names[key] = Name(name)
                self.constants[name] = value

    def named(self, call: Any) -> Any:
        """A task's call with names where its pod has parts in common with others."""
        if isinstance(call, Method):
            return Method(self.named(call.target), call.name, call.args, call.named)
        pod = call.named.get("template") if isinstance(call, Call) else None
        if pod is None:
            return call
        return Call(call.name, call.args, {**call.named, "template": self._pod(pod)})

    def _pod(self, pod: Call) -> Call:
        metadata, spec = dict(pod.args[0]), dict(pod.named["spec"])
        common, own = _labels(metadata)
        name = self._names.get(("LABELS", _key(common)))
        if name is not None:
            metadata["labels"] = Merged(name, own)
        self._replace(spec, SPEC_PARTS)
        for kind in CONTAINERS:
            if kind in spec:
                spec[kind] = [self._replace(dict(container), CONTAINER_PARTS) for container in spec[kind]]
        return Call(pod.name, (metadata,), {"spec": spec})

    def _replace(self, part: dict[str, Any], stems: dict[str, str]) -> dict[str, Any]:
        for key, stem in stems.items():
            if key in part:
                part[key] = self._names.get((stem, _key(part[key])), part[key])
        return part


def _pods(call: Any) -> Iterator[Call]:
    if isinstance(call, Method):
        yield from _pods(call.target)
    elif isinstance(call, Call) and isinstance(call.named.get("template"), Call):
        yield call.named["template"]


def _parts(pod: Call) -> Iterator[tuple[str, Any]]:
    yield "LABELS", _labels(pod.args[0])[0]
    spec = pod.named["spec"]
    for key, stem in SPEC_PARTS.items():
        if key in spec:
            yield stem, spec[key]
    for kind in CONTAINERS:
        for container in spec.get(kind, ()):
            for key, stem in CONTAINER_PARTS.items():
                if key in container:
                    yield stem, container[key]


def _labels(metadata: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Labels that other steps may have too, and the step's own."""
    labels = metadata.get("labels", {})
    return {k: v for k, v in labels.items() if k != STEP_LABEL}, {k: v for k, v in labels.items() if k == STEP_LABEL}


def _key(value: Any) -> str:
    """Equal for equal parts, however they are laid out."""
    return source(value)
