"""The user's own patch of a step's pod, merged as Kubernetes merges it, and what it changes of ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuflow.core.errors import fail
from gpuflow.kubernetes.pod_fields import DIRECTIVES, BadPatch, Field, fields_of, strategic_merge_map_patch
from gpuflow.pod.spelling import Spelling
from gpuflow.spec.kubernetes_fields import MAIN, OF_LABELS, OF_MAIN, OF_POD, OUR_VARIABLES, reserved_words
from gpuflow.spec.names import LABEL_PREFIX

Pod = dict[str, Any]
SUPERVISOR = "/gpuflow"
"""Below this path the supervisor has its own files."""
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS = ("postStart", "preStop")


def merged_pod(pod: Pod, patch: Mapping[str, Any], spelling: Spelling, runtime_mount: str) -> Pod:
    """The pod with the patch. Raises where it would break what the spec promises."""
    try:
        after = strategic_merge_map_patch(pod, _escape_patch(patch, spelling))
    except BadPatch as refusal:
        place = ".".join(map(str, refusal.at))
        raise fail("GF376", f"kubernetes.merge cannot be applied: {place}: {refusal.reason}") from None
    after = _without_empty_fields(after)
    for word, instead in _broken_promises(pod, after, runtime_mount):
        message, hint = reserved_words(word, instead)
        raise fail("GF372", message, hint=hint)
    if lost := _unknown_volume(after):
        hint = "add it to volumes of the patch, or mount it with volumes: {PATH: {…}} of the step"
        raise fail("GF376", f'kubernetes.merge mounts the volume "{lost}", which the pod does not have', hint=hint)
    return after


def _unknown_volume(pod: Pod) -> str | None:
    """A volume that is mounted and not there: the API server refuses such a pod."""
    spec = pod.get("spec", {})
    there = {volume.get("name") for volume in spec.get("volumes") or ()}
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for mount in container.get("volumeMounts") or ():
            if mount.get("name") not in there:
                return str(mount.get("name"))
    return None


def _escape_patch(patch: Mapping[str, Any], spelling: Spelling) -> dict[str, Any]:
    """The patch with its commands and variables safe from the engine's tags. `$(NAME)` in it is Kubernetes' own."""
    spec = patch.get("spec")
    if not isinstance(spec, dict):
        return dict(patch)
    changed = {
        field: [_container(each, spelling) for each in spec[field]]
        for field in ("containers", "initContainers")
        if isinstance(spec.get(field), list)
    }
    return {**patch, "spec": {**spec, **changed}}


def _container(container: dict[str, Any], spelling: Spelling) -> dict[str, Any]:
    result = dict(container)
    for field in ("command", "args"):
        if isinstance(result.get(field), list):
            result[field] = [spelling.literal(word) for word in result[field]]
    if isinstance(result.get("env"), list):
        result["env"] = [
            {**each, "value": spelling.literal(each["value"])} if isinstance(each.get("value"), str) else each
            for each in result["env"]
        ]
    for probe in _PROBES:
        if isinstance(result.get(probe), dict):
            result[probe] = _handler(result[probe], spelling)
    if isinstance(result.get("lifecycle"), dict):
        hooks = {name: hook for name, hook in result["lifecycle"].items() if name in _HOOKS and isinstance(hook, dict)}
        result["lifecycle"] = {
            **result["lifecycle"],
            **{name: _handler(hook, spelling) for name, hook in hooks.items()},
        }
    return result


def _handler(handler: dict[str, Any], spelling: Spelling) -> dict[str, Any]:
    action = handler.get("exec")
    if not isinstance(action, dict) or not isinstance(action.get("command"), list):
        return handler
    return {**handler, "exec": {**action, "command": [spelling.literal(word) for word in action["command"]]}}


def _without_empty_fields(pod: Pod) -> Pod:
    """Without directives that stood in new elements, and without fields that the patch emptied."""
    plain = _without_directives(pod)
    spec = plain.get("spec", {})
    for field in ("containers", "initContainers"):
        if field in spec:
            spec[field] = [_nonempty(container) for container in spec[field]]
    return {"metadata": _nonempty(plain.get("metadata", {})), "spec": _nonempty(spec)}


def _nonempty(part: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if value not in (None, [], {})}


def _without_directives(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_directives(item) for key, item in value.items() if not key.startswith(DIRECTIVES)}
    return [_without_directives(item) for item in value] if isinstance(value, list) else value


def _broken_promises(before: Pod, after: Pod, runtime_mount: str) -> Iterator[tuple[str, str | None]]:
    """What the patch removes or changes although the spec promises it, by directives or otherwise."""
    mine, (main, *_) = after["spec"], before["spec"]["containers"]
    names = [each.get("name") for each in mine.get("containers", ())]
    if names != [MAIN]:
        yield f"the list of containers ({', '.join(map(str, names)) or 'none'})", "sidecars or init_containers"
        return
    (own,) = mine["containers"]
    yield from ((f"spec.{key}", OF_POD[key]) for key in OF_POD if mine.get(key) != before["spec"].get(key))
    yield from ((f"{key} of main", OF_MAIN[key]) for key in OF_MAIN if own.get(key) != main.get(key))
    wanted, found = before["metadata"].get("labels", {}), after["metadata"].get("labels", {})
    for key in sorted(wanted.keys() | found.keys()):
        if (key in OF_LABELS or key.startswith(LABEL_PREFIX)) and wanted.get(key) != found.get(key):
            yield f"the label {key}", OF_LABELS.get(key)
    theirs = {each["name"] for each in main.get("env", ())}
    for each in own.get("env", ()):
        if each["name"].startswith(OUR_VARIABLES) and each["name"] not in theirs:
            yield f"the variable {each['name']}", None
    if _supervisors(before, main, runtime_mount) != _supervisors(after, own, runtime_mount):
        yield "the files of the supervisor", None
    old = {each["name"] for each in before["spec"].get("initContainers", ())}
    for each in mine.get("initContainers", ()):
        if each["name"] not in old and not (each.get("image") and each.get("command")):
            yield f"the list of init containers: {each['name']} has no image or no command", None


def _supervisors(pod: Pod, main: dict[str, Any], runtime_mount: str) -> list[Any]:
    """The mounts that the supervisor needs, with their volumes."""
    volumes = {each["name"]: each for each in pod["spec"].get("volumes", ())}
    places = (SUPERVISOR, runtime_mount)
    mounts = [
        mount
        for mount in main.get("volumeMounts", ())
        if any(mount["mountPath"] == place or mount["mountPath"].startswith(f"{place}/") for place in places)
    ]
    return sorted(([mount, volumes.get(mount["name"])] for mount in mounts), key=repr)


def overridden(before: Pod, after: Pod) -> tuple[str, ...]:
    """The fields of our pod that a patch changed or took away, by their paths."""
    return tuple(_changed_fields(before, after, "PodTemplateSpec", ""))


def _changed_fields(before: Any, after: Any, type_name: str, path: str) -> Iterator[str]:
    known = fields_of(type_name)
    for key, value in before.items():
        place = f"{path}.{key}" if path else key
        if after.get(key) == value:
            continue
        field = known.get(key) or Field(key, "any")
        now = after.get(key)
        if isinstance(value, dict) and isinstance(now, dict):
            yield from _changed_fields(value, now, field.type, place)
        elif field.merge_key is not None and isinstance(value, list) and isinstance(now, list):
            found = {each.get(field.merge_key): each for each in now}
            for each in value:
                name = each[field.merge_key]
                if name not in found:
                    yield f"{place}[{name}]"
                elif isinstance(each, dict):
                    yield from _changed_fields(each, found[name], field.type, f"{place}[{name}]")
        else:
            yield place
