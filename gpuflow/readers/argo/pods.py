"""The pod that Argo's controller makes of a template, as far as admission and scheduling see it.

Mirrors createWorkflowPod of workflow/controller/workflowpod.go, Argo v4.0.2. What programs get (commands, arguments,
variables) stays as it is written. A field of the wrong type is refused as the API server refuses it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpuflow.core import yaml_tree
from gpuflow.core.errors import GpuflowError
from gpuflow.formats.argo import Workflow
from gpuflow.formats.nodes import as_list, as_plain, mapping, maps_in, number_of, text_of
from gpuflow.kubernetes.pod_fields import SCALARS, BadPatch, Field, fields_of, strategic_merge_map_patch
from gpuflow.pod.engine_containers import resources_of, with_engine
from gpuflow.quantity import Quantity
from gpuflow.readers.argo.variables import TAG, OpenValue, Scope, filled_tree, merge_open, names_in
from gpuflow.site.model import Engine
from gpuflow.spec.duration import Duration

DEEPEST = 40
Path = tuple[str, ...]


def wrong_in(pod: Mapping[str, Any]) -> str | None:
    """The first field of a pod that Kubernetes cannot read, and why; None when there is none."""
    found = _wrong_value(pod, Field("pod", "PodTemplateSpec"), "", 0)
    if found is not None:
        return found
    for group in ("containers", "initContainers"):
        names = [each.get("name") for each in pod["spec"].get(group) or ()]
        if not all(names):
            return f"{group}: a container has no name"
    return None


def without_open(patch: Mapping[str, Any], is_open: Callable[[str], bool]) -> tuple[dict[str, Any], list[Path]]:
    """A patch of a pod's spec without the parts whose shape only the run knows, and the fields that were left out.

    Such a part is a text in place of a map, a list, a number or a bool, a field whose name is not known, and a
    container whose name is not. Texts and amounts stay: they have their shape.
    """
    left_out: list[Path] = []

    def opens(value: Any, field: Field) -> bool:
        has_shape = field.holds == "one" and field.type in ("text", "port", "any")
        return isinstance(value, str) and not has_shape and is_open(value)

    def keep_sure(value: Any, field: Field, at: Path) -> Any:
        if field.holds == "list" and isinstance(value, list):
            element = Field(field.name, field.type)
            left = [each for each in value if not opens(each, element) and not is_other(each, field)]
            left_out.extend([at] if len(left) < len(value) else [])
            return [keep_sure(each, element, at) for each in left]
        if not isinstance(value, dict):
            return value
        found, known = {}, fields_of(field.type) if field.holds == "one" else {}
        for key, each in value.items():
            of = known.get(key)
            if is_open(key) or (of is not None and opens(each, of)):
                left_out.append(at if is_open(key) else (*at, key))
            else:
                found[key] = each if of is None else keep_sure(each, of, (*at, key))
        return found

    def is_other(value: Any, field: Field) -> bool:
        name = value.get("name") if isinstance(value, dict) and field.type == "Container" else None
        return isinstance(name, str) and is_open(name)

    return keep_sure(patch, Field("spec", "PodSpec"), ()), left_out


def wrong_in_claim(claim: Mapping[str, Any]) -> str | None:
    """The same, of a claim for a volume."""
    return _wrong_value(claim, Field("claim", "PersistentVolumeClaimTemplate"), "", 0)


def _wrong_value(value: Any, field: Field, at: str, depth: int) -> str | None:
    if depth > DEEPEST:
        return f"{at}: nested too deeply"
    if value is None:
        return None
    if field.holds == "list":
        if not isinstance(value, list):
            return f"{at} is not a list"
        return _first(
            _wrong_value(each, Field(field.name, field.type), f"{at}[{index}]", depth + 1)
            if each is not None
            else f"{at}[{index}] is empty"
            for index, each in enumerate(value)
        )
    if field.holds == "map":
        if not isinstance(value, dict):
            return f"{at} is not a map"
        return _first(
            _wrong_value(each, Field(field.name, field.type), f"{at}.{key}", depth + 1) for key, each in value.items()
        )
    if field.type in SCALARS:
        return _scalar(value, field.type, at)
    if not isinstance(value, dict):
        return f"{at or 'the pod'} is not a map"
    known = fields_of(field.type)
    return _first(
        _wrong_value(each, known[key], f"{at}.{key}" if at else key, depth + 1)
        for key, each in value.items()
        if key in known  # the API server drops what it does not know
    )


def _first(found: Any) -> str | None:
    return next((each for each in found if each is not None), None)


def _scalar(value: Any, kind: str, at: str) -> str | None:
    if kind == "quantity":
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return f"{at} is not a quantity"
        try:
            if Quantity(str(value)) < Quantity.zero:
                return f"{at} is negative"
        except ValueError as refusal:
            return f"{at} is not a quantity: {refusal}"
        return None
    if kind == "int":
        return None if isinstance(value, int) and not isinstance(value, bool) else f"{at} is not a whole number"
    if kind == "bool":
        return None if isinstance(value, bool) else f"{at} is not true or false"
    if kind == "text":
        return None if isinstance(value, str) else f"{at} is not a text"
    if kind == "port":
        return None if isinstance(value, str | int) and not isinstance(value, bool) else f"{at} is not a port"
    return None


PROGRAM: Final = frozenset({
    "args", "command", "env", "envFrom", "image", "lifecycle", "livenessProbe", "ports", "readinessProbe", "source",
    "startupProbe", "workingDir",
})  # fmt: skip
"""What a container runs: no business of quota, queue or scheduler."""
UNFILLED: Final = PROGRAM | {"podSpecPatch"}
"""What stays as it is written: patches are texts of their own."""
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


PATCHABLE_RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
"""What a patch that nobody knows may ask for."""


@dataclass(frozen=True)
class Missing:
    """A part of a pod that is not known."""

    value: OpenValue
    resource: str | None = None
    """None: where it may run."""


@dataclass(frozen=True)
class BuiltPod:
    """A template's pod without and with Argo's additions, and the parts of it that are unknown."""

    bare: Mapping[str, Any]
    full: Mapping[str, Any]
    missing: tuple[Missing, ...] = ()


def place_of(tree: Mapping[str, Any], scope: Scope) -> str:
    """Where a template wants the pods of its steps, as a text that is the same for templates that want the same."""
    found = {field: filled_tree(tree[field], scope, UNFILLED) for field in OF_SPEC if tree.get(field)}
    return json.dumps(found, default=str) if found else ""


class PodMaker:
    """Makes pods; templates that ask for the same share one."""

    def __init__(self, workflow: Workflow, parts: Engine, claims: Mapping[str, Any]) -> None:
        self.parts, self.name, self.claims = parts, workflow.document.name, claims
        self.common = {
            key: as_plain(each) for key, each in workflow.tree.items() if key not in ("arguments", "templateDefaults")
        }
        self._shared = _variables(self.common)
        self._made: dict[Any, BuiltPod] = {}
        self._names: dict[int, tuple[str, ...]] = {}
        self._kept: list[Any] = []  # so that no id is used again

    def make(self, tree: Mapping[str, Any], kind: str, scope: Scope, boundary: str, *, is_exit: bool) -> BuiltPod:
        """The pod of a template; `boundary` is what `place_of` says of the template around it. Raises `BadPod`."""
        names = self._variables_of(tree)
        known = {**scope.values, **scope.attempt} if scope.attempt else scope.values
        key = (id(tree), boundary, is_exit, tuple(known.get(name) for name in names))
        found = self._made.get(key)
        if found is None:
            self._kept.append(tree)
            around = json.loads(boundary) if boundary else {}
            found = self._made[key] = self._make(tree, kind, scope, around, is_exit=is_exit)
        return found

    def _variables_of(self, tree: Mapping[str, Any]) -> tuple[str, ...]:
        """The variables that its pod depends on."""
        known = self._names.get(id(tree))
        if known is None:
            known = self._names[id(tree)] = tuple(sorted(_variables(tree) | self._shared))
            self._kept.append(tree)
        return known

    def _make(
        self, tree: Mapping[str, Any], kind: str, scope: Scope, boundary: Mapping[str, Any], *, is_exit: bool
    ) -> BuiltPod:
        tree, common = filled_tree(tree, scope, UNFILLED), filled_tree(self.common, scope, UNFILLED)
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "containers": [*_main(tree, kind, self.parts), *_helper_containers(tree, "sidecars")],
        }
        init = list(_helper_containers(tree, "initContainers"))
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
        aliases = [*as_list(common.get("hostAliases")), *as_list(tree.get("hostAliases"))]
        if aliases:
            spec["hostAliases"] = aliases
        deadline = self._deadline(tree, common, is_exit=is_exit)
        if deadline is not None:
            spec["activeDeadlineSeconds"] = deadline
        metadata = self._metadata(tree, common, is_exit=is_exit)
        return self._finish({"metadata": metadata, "spec": spec}, tree, common, scope, kind)

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

    def _finish(
        self, pod: dict[str, Any], tree: Mapping[str, Any], common: Mapping[str, Any], scope: Scope, kind: str
    ) -> BuiltPod:
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
                full = {**full, "spec": strategic_merge_map_patch(full["spec"], patch, "PodSpec")}
                bare_pod = {**bare_pod, "spec": strategic_merge_map_patch(bare_pod["spec"], patch, "PodSpec")}
            except (BadPatch, TypeError, AttributeError) as refusal:
                raise BadPod(f"podSpecPatch cannot be applied: {refusal}", "podSpecPatch") from None
        full = _known_parts(full, scope, missing)
        for group, name in OWN_CONTAINERS:
            if name not in named[group]:
                full = _without_container(full, group, name)
            bare_pod = _without_container(bare_pod, group, name)
        bare = _known_parts(bare_pod, scope, missing) if bare_pod["spec"] != full["spec"] else full
        for each in (bare, full):
            wrong = wrong_in(each)
            if wrong is not None:
                raise BadPod(wrong)
        return BuiltPod(bare, full, tuple(missing))

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
        text, unknown = scope.fill(written)
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
            missing.update(dict.fromkeys(Missing(unknown[0], resource) for resource in (*PATCHABLE_RESOURCES, None)))
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
        return PATCHABLE_RESOURCES
    return (*PATCHABLE_RESOURCES, None) if not path or path[-1] in ("containers", "initContainers") else (None,)


def parsed_with_tags(text: str, field: str) -> Any:
    """A text of YAML or JSON in which tags may be left, which stay. Raises `BadPod`."""
    tags: list[str] = []

    def hide(match: Any) -> str:
        tags.append(match[0])
        return f"{_TOKEN}{len(tags) - 1}-"

    try:
        found = as_plain(yaml_tree.parse(TAG.sub(hide, text), field), nulls=True)
    except GpuflowError as refusal:
        raise BadPod(f"{field} is not valid YAML: {refusal.findings[0].message}", field) from None
    return _restore_tags(found, tags) if tags else found


def _restore_tags(value: Any, tags: list[str]) -> Any:
    match value:
        case str() if _TOKEN in value:
            for index, tag in enumerate(tags):
                value = value.replace(f"{_TOKEN}{index}-", tag)
            return value
        case dict():
            return {_restore_tags(key, tags): _restore_tags(each, tags) for key, each in value.items()}
        case list():
            return [_restore_tags(each, tags) for each in value]
        case _:
            return value


def _variables(tree: Mapping[str, Any]) -> set[str]:
    # In JSON quotes are escaped, which would hide the names inside expressions.
    return names_in(json.dumps(_without_programs(tree), default=str).replace('\\"', "'"))


def _without_programs(value: Any) -> Any:
    """Without what containers run."""
    match value:
        case Mapping():
            return {key: _without_programs(each) for key, each in value.items() if key not in PROGRAM}
        case list():
            return [_without_programs(each) for each in value]
        case _:
            return value


def _main(tree: Mapping[str, Any], kind: str, parts: Engine) -> Iterator[dict[str, Any]]:
    own = mapping(tree.get(kind))
    if kind in ONLY_ENGINE:
        # The same program as in `wait`: the controller gives both what its executor.resources says.
        yield {"name": "main", "image": "engine", "resources": resources_of(parts.containers.get("wait"))}
    elif kind == "containerSet":
        mounts = as_list(own.get("volumeMounts"))
        found = [dict(each) for _, each in maps_in(own.get("containers"))]
        if not found:
            raise BadPod("containerSet has no containers", "containerSet")
        for each in found:
            each.pop("dependencies", None)
            if mounts:
                each["volumeMounts"] = [*as_list(each.get("volumeMounts")), *mounts]
            yield each
    else:
        yield {**{key: each for key, each in own.items() if key != "source"}, "name": "main"}


def _helper_containers(tree: Mapping[str, Any], field: str) -> Iterator[dict[str, Any]]:
    for index, each in enumerate(as_list(tree.get(field))):
        if not isinstance(each, Mapping):
            raise BadPod(f"{field}[{index}] is not a map", field)
        yield {key: value for key, value in each.items() if key != "mirrorVolumeMounts"}


def _without_container(pod: Mapping[str, Any], group: str, name: str) -> Mapping[str, Any]:
    """The pod without Argo's own container, which a patch has named."""
    found = pod["spec"].get(group)
    if not isinstance(found, list) or all(mapping(each).get("name") != name for each in found):
        return pod
    left = [each for each in found if mapping(each).get("name") != name]
    spec = {key: each for key, each in pod["spec"].items() if key != group}
    return {**pod, "spec": {**spec, group: left} if left else spec}


def _known_parts(pod: Mapping[str, Any], scope: Scope, missing: dict[Missing, None]) -> Mapping[str, Any]:
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
        volumes = [(each, _open_in(mapping(each).get("ephemeral"), scope)) for each in spec["volumes"]]
        spec["volumes"] = [each for each, unknown in volumes if unknown is None]
        missing.update({Missing(unknown, "storage"): None for _, unknown in volumes if unknown is not None})
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
                names = (key,) if "{{" not in key else PATCHABLE_RESOURCES
                missing.update(dict.fromkeys(Missing(unknown, name) for name in names))
                resources[side] = {name: each for name, each in resources[side].items() if name != key}
                changed = True
    return {**owner, "resources": resources} if changed else owner


def _open_in(value: Any, scope: Scope) -> OpenValue | None:
    """Why a value is not known; None when it is."""
    return merge_open(each for text in _texts(value) if "{{" in text for each in scope.fill(text)[1])


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
    try:
        return Duration(text).seconds if (number := number_of(text)) is None else number
    except ValueError:
        return None
