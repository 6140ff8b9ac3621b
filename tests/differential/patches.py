"""A pod and a strategic merge patch of it: every merge key, every directive, and patches that do not apply."""

from __future__ import annotations

from typing import Any

from tests.differential.draw import Draw, without_none
from tests.differential.oracle import Case

Manifest = dict[str, Any]
TEXTS = ("a", "b", "c")
SOURCES: tuple[Manifest, ...] = (
    {"emptyDir": {}},
    {"emptyDir": {"sizeLimit": "1Gi"}},
    {"configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}},
    {"hostPath": {"path": "/data"}},
)
LISTS: dict[str, tuple[str, str | None]] = {
    "volumes": ("PodSpec", "name"),
    "initContainers": ("PodSpec", "name"),
    "containers": ("PodSpec", "name"),
    "imagePullSecrets": ("PodSpec", "name"),
    "hostAliases": ("PodSpec", "ip"),
    "topologySpreadConstraints": ("PodSpec", "topologyKey"),
    "tolerations": ("PodSpec", None),
    "env": ("Container", "name"),
    "volumeMounts": ("Container", "mountPath"),
    "ports": ("Container", "containerPort"),
    "command": ("Container", None),
}


def case(draw: Draw) -> Case:
    """One pod template and its patch."""
    return {"pod": _pod(draw, patch=False), "patch": _pod(draw, patch=True)}


def _pod(draw: Draw, *, patch: bool) -> Manifest:
    spec = without_none(
        nodeSelector=_map(draw, patch) if draw.chance(0.4) else None,
        securityContext=_security(draw, patch) if draw.chance(0.4) else None,
        schedulerName=draw.pick(TEXTS) if draw.chance(0.3) else None,
        affinity=_affinity(draw, patch) if draw.chance(0.2) else None,
        **{name: _list(draw, name, patch) for name in LISTS if LISTS[name][0] == "PodSpec" and draw.chance(0.4)},
    )
    metadata = without_none(
        labels=_map(draw, patch) if draw.chance(0.5) else None,
        finalizers=draw.some(TEXTS) if draw.chance(0.3) else None,
    )
    return {"metadata": _directed(draw, metadata, patch), "spec": _directed(draw, spec, patch)}


def _map(draw: Draw, patch: bool) -> Manifest:
    found: Manifest = {key: draw.pick(TEXTS) for key in draw.some(TEXTS)}
    if patch and draw.chance(0.3):
        found[draw.pick(TEXTS)] = None
    if patch and draw.chance(0.1):
        found["$patch"] = draw.pick(("replace", "delete"))
    return found


def _security(draw: Draw, patch: bool) -> Manifest:
    return _directed(
        draw,
        without_none(
            runAsUser=draw.pick((1, 2)) if draw.chance(0.5) else None,
            supplementalGroups=draw.some((1, 2, 3)) if draw.chance(0.5) else None,
            seccompProfile={"type": draw.pick(TEXTS)} if draw.chance(0.5) else None,
        ),
        patch,
    )


def _affinity(draw: Draw, patch: bool) -> Manifest:
    terms = [{"matchExpressions": [{"key": draw.pick(TEXTS), "operator": "Exists"}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _list(draw: Draw, name: str, patch: bool) -> list[Any]:
    key = LISTS[name][1]
    if name == "command":
        return draw.some(TEXTS)
    items = [_element(draw, name, value, patch) for value in draw.some(_keys(name))]
    if draw.chance(0.3):
        items.reverse()
    if not patch or key is None:
        return items
    if draw.chance(0.2):
        items.append({key: draw.pick(_keys(name)), "$patch": "delete"})
    if draw.chance(0.05):
        items.append({"$patch": draw.pick(("replace", "replace", "merge", "keep", "delete"))})
    if items and draw.chance(0.03):
        items[0].pop(key, None)
    return items


def _keys(name: str) -> tuple[Any, ...]:
    return (1, 2, 3) if name == "ports" else ("/a", "/b") if name == "volumeMounts" else TEXTS


def _element(draw: Draw, name: str, value: Any, patch: bool) -> Manifest:
    key = LISTS[name][1] or "key"
    element: Manifest = {key: value}
    if name == "volumes":
        element |= draw.pick(SOURCES)
        if patch and draw.chance(0.3):
            element["$retainKeys"] = draw.some(tuple(element), 1)
    elif name in ("containers", "initContainers"):
        element |= without_none(
            image=draw.pick(TEXTS) if draw.chance(0.6) else None,
            **{each: _list(draw, each, patch) for each in LISTS if LISTS[each][0] == "Container" and draw.chance(0.4)},
            lifecycle={"preStop": {"exec": {"command": draw.some(TEXTS)}}} if draw.chance(0.2) else None,
        )
        element = _directed(draw, element, patch)
    elif name == "hostAliases":
        element["hostnames"] = draw.some(TEXTS)
    else:
        element["value" if name == "env" else "note"] = draw.pick(TEXTS)
    return element


def _directed(draw: Draw, part: Manifest, patch: bool) -> Manifest:
    """A part of a patch, perhaps with a directive of its own."""
    if not patch:
        return part
    if draw.chance(0.08):
        part[draw.pick((*LISTS, "runAsUser", "labels"))] = None
    if draw.chance(0.04):
        part["$patch"] = draw.pick(("replace", "delete", "keep"))
    name = draw.pick(("finalizers", "command"))
    if name not in part and draw.chance(0.1):  # beside the list itself the order of Go's maps would decide
        part[f"$deleteFromPrimitiveList/{name}"] = draw.some(TEXTS)
    # Kubernetes' own code panics over the order of elements that have no merge key.
    lists = [name for name in LISTS if name != "tolerations" and (name in part or draw.chance(0.02))]
    if lists and draw.chance(0.25):
        name = draw.pick(lists)
        key = LISTS[name][1]
        # An order that leaves elements out is sorted by what Go's append left in a shared array.
        order = [*draw.some(_keys(name), 1), *_keys(name)] if draw.chance(0.5) else list(reversed(_keys(name)))
        order = list(dict.fromkeys(order))
        part[f"$setElementOrder/{name}"] = order if key is None else [{key: value} for value in order]
    return part
