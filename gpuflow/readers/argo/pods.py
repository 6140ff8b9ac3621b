"""The pod that Argo's controller makes of a template, as far as admission and scheduling see it.

Mirrors createWorkflowPod of workflow/controller/workflowpod.go, Argo v4.0.2. What programs get (commands, arguments,
variables) stays as it is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpuflow import yaml_tree
from gpuflow.errors import GpuflowError
from gpuflow.kubernetes.strategic_merge import BadPatch, merged
from gpuflow.pod.injected import resources_of, with_engine
from gpuflow.readers.argo.parameters import TAG, Open, Scope, names_in, opened
from gpuflow.readers.argo.pod_shape import without_open, wrong_in
from gpuflow.readers.argo.spec import Spec
from gpuflow.readers.argo.values import listing, mapping, maps_in, number_of, plain, text_of
from gpuflow.site.model import Engine
from gpuflow.spec.duration import Duration

PROGRAM: Final = frozenset({
    "args", "command", "env", "envFrom", "image", "lifecycle", "livenessProbe", "ports", "readinessProbe", "source",
    "startupProbe", "workingDir",
})  # fmt: skip
"""What a container runs: no business of quota, queue or scheduler."""
OF_SPEC: Final = ("nodeSelector", "affinity", "tolerations")
"""Of the template, else of the template around it, else of the workflow."""
PLACEMENT: Final = (
    "affinity", "nodeName", "nodeSelector", "overhead", "priorityClassName", "resourceClaims", "runtimeClassName",
    "schedulerName", "serviceAccountName", "tolerations", "topologySpreadConstraints",
)  # fmt: skip
QUEUE: Final = "kueue.x-k8s.io/"
"""Labels that decide in which queue a pod waits."""
OWN_CONTAINERS: Final = (("initContainers", "init"), ("containers", "wait"))
"""What Argo adds to a pod; a patch may name them."""
ONLY_ENGINE: Final = ("data", "resource")
"""Templates whose pods run nothing but Argo's own program."""
_TOKEN: Final = "argo-variable-"


class BadPod(ValueError):
    """A template of which no pod can be made, and the field."""

    def __init__(self, reason: str, *path: str) -> None:
        super().__init__(reason)
        self.path = path


PATCHED = ("cpu", "memory", "nvidia.com/gpu")
"""What a patch that nobody knows may ask for."""


@dataclass(frozen=True)
class Missing:
    """A part of a pod that is not known."""

    value: Open
    resource: str | None = None
    """None: where it may run."""


@dataclass(frozen=True)
class Made:
    """A template's pod without and with what Argo adds, and what is not known of it."""

    bare: Mapping[str, Any]
    full: Mapping[str, Any]
    missing: tuple[Missing, ...] = ()


def place_of(tree: Mapping[str, Any], scope: Scope) -> str:
    """Where a template wants the pods of its steps, as a text that is the same for templates that want the same."""
    found = {field: _filled(tree[field], scope) for field in OF_SPEC if tree.get(field)}
    return json.dumps(found, default=str) if found else ""


class PodMaker:
    """Makes pods; templates that ask for the same share one."""

    def __init__(self, spec: Spec, parts: Engine, name: str, claims: Mapping[str, Any]) -> None:
        self.spec, self.parts, self.name, self.claims = spec, parts, name, claims
        self.common = {
            key: plain(each) for key, each in spec.tree.items() if key not in ("arguments", "templateDefaults")
        }
        self._shared = _variables(self.common)
        self._made: dict[Any, Made] = {}
        self._names: dict[int, tuple[str, ...]] = {}
        self._kept: list[Any] = []  # so that no id is used again

    def made(self, tree: Mapping[str, Any], kind: str, scope: Scope, boundary: str, *, is_exit: bool) -> Made:
        """The pod of a template; `boundary` is what `place_of` says of the template around it. Raises `BadPod`."""
        names = self._named(tree)
        known = {**scope.values, **scope.attempt} if scope.attempt else scope.values
        key = (id(tree), boundary, is_exit, tuple(known.get(name) for name in names))
        found = self._made.get(key)
        if found is None:
            self._kept.append(tree)
            around = json.loads(boundary) if boundary else {}
            found = self._made[key] = self._make(tree, kind, scope, around, is_exit=is_exit)
        return found

    def _named(self, tree: Mapping[str, Any]) -> tuple[str, ...]:
        """The variables that its pod depends on."""
        known = self._names.get(id(tree))
        if known is None:
            known = self._names[id(tree)] = tuple(sorted(_variables(tree) | self._shared))
            self._kept.append(tree)
        return known

    def _make(
        self, tree: Mapping[str, Any], kind: str, scope: Scope, boundary: Mapping[str, Any], *, is_exit: bool
    ) -> Made:
        tree, common = _filled(tree, scope), _filled(self.common, scope)
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "containers": [*_main(tree, kind, self.parts), *_others(tree, "sidecars")],
        }
        init = list(_others(tree, "initContainers"))
        if init:
            spec["initContainers"] = init
        volumes = list(self._volumes(tree, common, spec))
        if volumes:
            spec["volumes"] = volumes
        for field in OF_SPEC:
            for source in (tree, boundary, common):
                if source.get(field):
                    spec[field] = source[field]
                    break
        for field, own, shared in (
            ("schedulerName", "schedulerName", "schedulerName"),
            ("priorityClassName", "priorityClassName", "podPriorityClassName"),
            ("securityContext", "securityContext", "securityContext"),
            ("serviceAccountName", "serviceAccountName", "serviceAccountName"),
            ("resourceClaims", "resourceClaims", "resourceClaims"),
            ("resources", "podResources", "podResources"),
        ):
            value = tree.get(own) or common.get(shared)
            if value:
                spec[field] = value
        token = tree.get("automountServiceAccountToken", common.get("automountServiceAccountToken"))
        if token is False:
            spec["automountServiceAccountToken"] = False
        for field in ("hostNetwork", "dnsPolicy", "dnsConfig", "imagePullSecrets"):
            if common.get(field):
                spec[field] = common[field]
        aliases = [*listing(common.get("hostAliases")), *listing(tree.get("hostAliases"))]
        if aliases:
            spec["hostAliases"] = aliases
        deadline = self._deadline(tree, common, is_exit=is_exit)
        if deadline is not None:
            spec["activeDeadlineSeconds"] = deadline
        metadata = self._metadata(tree, common, is_exit=is_exit)
        return self._finished({"metadata": metadata, "spec": spec}, tree, common, scope, kind)

    def _metadata(self, tree: Mapping[str, Any], common: Mapping[str, Any], *, is_exit: bool) -> dict[str, Any]:
        labels = {"workflows.argoproj.io/completed": "false", "workflows.argoproj.io/workflow": self.name}
        if is_exit:
            labels["workflows.argoproj.io/on-exit"] = "true"
        found: dict[str, Any] = {"labels": labels, "annotations": {}}
        for source in (mapping(common.get("podMetadata")), mapping(tree.get("metadata"))):
            for field in ("labels", "annotations"):
                more = source.get(field)
                if more is not None and not isinstance(more, Mapping):
                    raise BadPod(f"metadata.{field} is not a map", "metadata", field)
                found[field].update(more or {})
        return {field: each for field, each in found.items() if each}

    def _volumes(
        self, tree: Mapping[str, Any], common: Mapping[str, Any], spec: Mapping[str, Any]
    ) -> Iterator[Mapping[str, Any]]:
        own = [each for _, each in maps_in(tree.get("volumes"))]
        yield from own
        seen = {text_of(each.get("name")) for each in own}
        shared = {text_of(each.get("name")): each for _, each in maps_in(common.get("volumes"))}
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            for _, mount in maps_in(container.get("volumeMounts")):
                name = text_of(mount.get("name"))
                if name is None or name in seen:
                    continue
                seen.add(name)
                if name in shared:
                    yield shared[name]
                elif name in self.claims:
                    yield {"name": name, "persistentVolumeClaim": {"claimName": f"{self.name}-{name}"}}
                else:
                    raise BadPod(f"volume {name} is mounted, and the workflow has none of that name")

    def _deadline(self, tree: Mapping[str, Any], common: Mapping[str, Any], *, is_exit: bool) -> int | None:
        found = [number_of(tree.get("activeDeadlineSeconds")), _seconds(text_of(tree.get("timeout")))]
        if not is_exit:
            found.append(number_of(common.get("activeDeadlineSeconds")))
        return min((each for each in found if each is not None and each > 0), default=None)

    def _finished(
        self, pod: dict[str, Any], tree: Mapping[str, Any], common: Mapping[str, Any], scope: Scope, kind: str
    ) -> Made:
        """Patched, without what is not known, and checked."""
        missing: dict[Missing, None] = {}
        patches = [patch for patch in (self._patch(each, scope, missing) for each in (common, tree)) if patch]
        has_outputs = bool(mapping(tree.get("outputs")))
        if kind in ONLY_ENGINE:
            pod = self._own_program(pod)
        full = pod if kind in ONLY_ENGINE else with_engine(pod, self.parts, has_outputs=has_outputs)
        named = {
            group: [each["name"] for each in full["spec"].get(group, ()) if "name" in each]
            for group, _ in OWN_CONTAINERS
        }
        bare_pod: Mapping[str, Any] = pod
        for patch in patches:
            try:
                full = {**full, "spec": merged(full["spec"], patch, "PodSpec")}
                bare_pod = {**bare_pod, "spec": merged(bare_pod["spec"], patch, "PodSpec")}
            except (BadPatch, TypeError, AttributeError) as refusal:
                raise BadPod(f"podSpecPatch cannot be applied: {refusal}", "podSpecPatch") from None
        full = _known(full, scope, missing)
        for group, name in OWN_CONTAINERS:
            if name not in named[group]:
                full = _without(full, group, name)
            bare_pod = _without(bare_pod, group, name)
        bare = _known(bare_pod, scope, missing) if bare_pod["spec"] != full["spec"] else full
        for each in (bare, full):
            wrong = wrong_in(each)
            if wrong is not None:
                raise BadPod(wrong)
        return Made(bare, full, tuple(missing))

    def _own_program(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        """A pod whose main container is Argo's own, which asks for what Argo's own containers ask for."""
        made = with_engine({**pod, "spec": {**pod["spec"], "containers": []}}, self.parts, has_outputs=False)
        own = [{**each, "name": "main"} for each in made["spec"]["containers"] if each["name"] == "wait"]
        return {**made, "spec": {**made["spec"], "containers": own or pod["spec"]["containers"]}}

    def _patch(self, source: Mapping[str, Any], scope: Scope, missing: dict[Missing, None]) -> Mapping[str, Any] | None:
        written = source.get("podSpecPatch")
        if not written:
            return None
        if not isinstance(written, str):
            raise BadPod("podSpecPatch is not a text", "podSpecPatch")
        text, unknown = scope.filled(written)
        try:
            patch = parsed_with_tags(text, "podSpecPatch")
            if patch is None:
                return None
            if not isinstance(patch, dict):
                raise BadPod("podSpecPatch is not a map", "podSpecPatch")
        except BadPod:
            if not unknown:
                raise
            # What the run puts in decides the shape of the whole patch, as of Kubeflow's: it may set anything.
            missing.update(dict.fromkeys(Missing(unknown[0], resource) for resource in (*PATCHED, None)))
            return None
        if not unknown:
            return patch
        patch, left_out = without_open(patch, lambda each: _open_in(each, scope) is not None)
        for path in left_out:
            missing.update(dict.fromkeys(Missing(unknown[0], resource) for resource in _hidden_by(path)))
        return patch


def _hidden_by(path: tuple[str, ...]) -> tuple[str | None, ...]:
    """What is not known of a pod when this field of it is not: resources, and (None) where it may run."""
    if PROGRAM.intersection(path):
        return ()
    if "volumes" in path:
        return "storage", None
    if {"resources", "requests", "limits"}.intersection(path):
        return PATCHED
    return (*PATCHED, None) if not path or path[-1] in ("containers", "initContainers") else (None,)


def parsed_with_tags(text: str, field: str) -> Any:
    """A text of YAML or JSON in which tags may be left, which stay. Raises `BadPod`."""
    tags: list[str] = []

    def hide(match: Any) -> str:
        tags.append(match[0])
        return f"{_TOKEN}{len(tags) - 1}-"

    try:
        found = _with_nulls(yaml_tree.parse(TAG.sub(hide, text), field))
    except GpuflowError as refusal:
        raise BadPod(f"{field} is not valid YAML: {refusal.findings[0].message}", field) from None
    return _shown(found, tags) if tags else found


def _with_nulls(value: Any) -> Any:
    """The value in Python's own types; in a patch a null takes away."""
    match value:
        case Mapping():
            return {str(key): _with_nulls(each) for key, each in value.items()}
        case list():
            return [_with_nulls(each) for each in value]
        case _:
            return plain(value)


def _shown(value: Any, tags: list[str]) -> Any:
    match value:
        case str() if _TOKEN in value:
            for index, tag in enumerate(tags):
                value = value.replace(f"{_TOKEN}{index}-", tag)
            return value
        case dict():
            return {_shown(key, tags): _shown(each, tags) for key, each in value.items()}
        case list():
            return [_shown(each, tags) for each in value]
        case _:
            return value


def _variables(tree: Mapping[str, Any]) -> set[str]:
    # In JSON quotes are escaped, which would hide the names inside expressions.
    return names_in(json.dumps(_asked(tree), default=str).replace('\\"', "'"))


def _asked(value: Any) -> Any:
    """Without what containers run."""
    match value:
        case Mapping():
            return {key: _asked(each) for key, each in value.items() if key not in PROGRAM}
        case list():
            return [_asked(each) for each in value]
        case _:
            return value


def _filled(value: Any, scope: Scope) -> Any:
    """With the known variables filled in, but for what containers run and the patches, which are texts of their own."""
    match value:
        case str():
            return scope.filled(value)[0] if "{{" in value else value
        case Mapping():
            skipped = PROGRAM | {"podSpecPatch"}
            return {key: each if key in skipped else _filled(each, scope) for key, each in value.items()}
        case list():
            return [_filled(each, scope) for each in value]
        case _:
            return value


def _main(tree: Mapping[str, Any], kind: str, parts: Engine) -> Iterator[dict[str, Any]]:
    own = mapping(tree.get(kind))
    if kind in ONLY_ENGINE:
        # The same program as in `wait`: the controller gives both what its executor.resources says.
        yield {"name": "main", "image": "engine", "resources": resources_of(parts.containers.get("wait"))}
    elif kind == "containerSet":
        mounts = listing(own.get("volumeMounts"))
        found = [dict(each) for _, each in maps_in(own.get("containers"))]
        if not found:
            raise BadPod("containerSet has no containers", "containerSet")
        for each in found:
            each.pop("dependencies", None)
            if mounts:
                each["volumeMounts"] = [*listing(each.get("volumeMounts")), *mounts]
            yield each
    else:
        yield {**{key: each for key, each in own.items() if key != "source"}, "name": "main"}


def _others(tree: Mapping[str, Any], field: str) -> Iterator[dict[str, Any]]:
    for index, each in enumerate(listing(tree.get(field))):
        if not isinstance(each, Mapping):
            raise BadPod(f"{field}[{index}] is not a map", field)
        yield {key: value for key, value in each.items() if key != "mirrorVolumeMounts"}


def _without(pod: Mapping[str, Any], group: str, name: str) -> Mapping[str, Any]:
    """The pod without Argo's own container, which a patch has named."""
    found = pod["spec"].get(group)
    if not isinstance(found, list) or all(mapping(each).get("name") != name for each in found):
        return pod
    left = [each for each in found if mapping(each).get("name") != name]
    spec = {key: each for key, each in pod["spec"].items() if key != group}
    return {**pod, "spec": {**spec, group: left} if left else spec}


def _known(pod: Mapping[str, Any], scope: Scope, missing: dict[Missing, None]) -> Mapping[str, Any]:
    """The pod without what is not known; that is noted."""
    spec = dict(pod["spec"])
    for field in PLACEMENT:
        unknown = _open_in(spec.get(field), scope)
        if unknown is not None:
            missing[Missing(unknown)] = None
            del spec[field]
    for group in ("containers", "initContainers"):
        if isinstance(spec.get(group), list):
            spec[group] = [_known_amounts(each, scope, missing) for each in spec[group]]
    spec = _known_amounts(spec, scope, missing)
    if isinstance(spec.get("volumes"), list):
        kept = []
        for each in spec["volumes"]:
            unknown = _open_in(mapping(each).get("ephemeral"), scope)
            if unknown is None:
                kept.append(each)
            else:
                missing[Missing(unknown, "storage")] = None
        spec["volumes"] = kept
    metadata = dict(pod["metadata"])
    labels = metadata.get("labels")
    if isinstance(labels, Mapping):
        for key in [key for key in labels if isinstance(key, str) and key.startswith(QUEUE)]:
            unknown = _open_in(labels[key], scope)
            if unknown is not None:
                missing[Missing(unknown)] = None
                labels = {name: each for name, each in labels.items() if name != key}
        metadata["labels"] = labels
    return {"metadata": metadata, "spec": spec}


def _known_amounts(owner: Any, scope: Scope, missing: dict[Missing, None]) -> Any:
    if not isinstance(owner, Mapping) or not isinstance(owner.get("resources"), Mapping):
        return owner
    resources: dict[str, Any] = dict(owner["resources"])
    changed = False
    for side in ("requests", "limits"):
        amounts = resources.get(side)
        if not isinstance(amounts, Mapping):
            continue
        for key, amount in amounts.items():
            unknown = _open_in([key, amount], scope)
            if unknown is not None:
                # A name that is not known may be that of any resource.
                names = (key,) if "{{" not in key else PATCHED
                missing.update(dict.fromkeys(Missing(unknown, name) for name in names))
                resources[side] = {name: each for name, each in resources[side].items() if name != key}
                changed = True
    return {**owner, "resources": resources} if changed else owner


def _open_in(value: Any, scope: Scope) -> Open | None:
    """Why a value is not known; None when it is."""
    return opened(each for text in _texts(value) if "{{" in text for each in scope.filled(text)[1])


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for key, each in value.items():
                yield from _texts(key)
                yield from _texts(each)
        case list():
            for each in value:
                yield from _texts(each)


def _seconds(text: str | None) -> int | None:
    if not text:
        return None
    number = number_of(text)
    if number is not None:
        return number
    try:
        return Duration(text).seconds
    except ValueError:
        return None
