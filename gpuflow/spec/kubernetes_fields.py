"""Kubernetes' own fields in a step: affinity, DNS, topology spread, and `kubernetes: {merge: …}`.

A misspelled key is refused where it is written. `merge` is a patch of the pod: every word is one of Kubernetes', or a
directive of its patches. What a step says in the spec's own words, and what retries and the supervisor rely on, is not
changed by a patch: each such field is refused with the word to use instead. `spec_field_hint` gives the same hint for a
word of Kubernetes outside of a patch.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import PlainValidator, WithJsonSchema

from gpuflow.core.errors import did_you_mean
from gpuflow.kubernetes.labels import QUEUE_LABEL, QUEUE_PRIORITY_LABEL
from gpuflow.kubernetes.pod_fields import (
    DELETE_FROM,
    DIRECTIVE,
    ELEMENT_ORDER,
    RETAIN_KEYS,
    Field,
    fields_of,
    places_of,
)
from gpuflow.quantity import Quantity
from gpuflow.spec.model import Count, Model, Str, problem
from gpuflow.spec.names import LABEL_PREFIX, LabelKey, LabelValue
from gpuflow.spec.params import plain_json

Path = tuple[str | int, ...]
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_CHOICES = {"LabelSelectorRequirement": _OPERATORS, "NodeSelectorRequirement": (*_OPERATORS, "Gt", "Lt")}
"""What `operator` may be."""


def affinity(value: dict[str, Any]) -> dict[str, Any]:
    """The affinity object as plain data. Raises for what Kubernetes has no place for."""
    at: Path = ("affinity",)
    data: dict[str, Any] = plain_json(value, at)
    _map(data, "Affinity", at, "affinity", patch=False)
    return data


def _address(value: Any) -> str:
    try:
        if not isinstance(value, str):
            raise ValueError
        ipaddress.ip_address(value)
    except ValueError:
        hint = "write it like 10.0.0.7 or fd00::7"
        raise problem("GF127", f"{value!r:.60} is not an IP address", hint) from None
    return str(value)


IpAddress = Annotated[str, PlainValidator(_address), WithJsonSchema({"type": "string", "pattern": "^[0-9a-fA-F.:]+$"})]


class DnsConfig(Model):
    """How the pod asks for names."""

    nameservers: tuple[IpAddress, ...] = ()
    """Addresses of name servers."""
    searches: tuple[Str, ...] = ()
    """Domains that short names are looked up in."""
    options: dict[Str, Str | None] = {}
    """Options of the resolver, with or without a value: {ndots: "2", edns0: null}."""


class TopologySpread(Model):
    """One entry of topologySpreadConstraints."""

    topology_key: LabelKey
    """The node label whose values the pods are spread over."""
    max_skew: Count = 1
    """How many pods one value may have more than another."""
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "DoNotSchedule"
    """Wait, or take the best there is."""
    match_labels: dict[LabelKey, LabelValue] = {}
    """Which pods are counted; default: those of the same step."""
    min_domains: Count | None = None
    """The least number of values."""
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    """Whether only nodes that the pod may run on count."""
    node_taints_policy: Literal["Honor", "Ignore"] | None = None
    """Whether nodes with taints that the pod does not tolerate count."""
    match_label_keys: tuple[LabelKey, ...] = ()
    """Labels of the pod itself whose values must be the same."""


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
RESERVED_NAMES = ("wait", "init", "base")
"""Containers of the engines."""


def check_merge(value: dict[str, Any]) -> dict[str, Any]:
    """The patch as plain data. Raises for words that are not Kubernetes', and for those that the spec decides."""
    at: Path = ("merge",)
    data: dict[str, Any] = plain_json(value, at)
    _map(data, "PodTemplateSpec", at, "merge", patch=True)
    for path, word, instead in _reserved_fields(data):
        raise problem("GF372", *reserved_words(word, instead), at=(*at, *path))
    return data


def reserved_words(word: str, instead: str | None) -> tuple[str, str]:
    """The message and the way out for a field that is not a patch's to change."""
    if instead is None:
        return f"merge cannot change {word}, which gpuflow relies on", "take it out of the patch"
    return f"merge cannot change {word}: the spec has its own word for it", f"write {instead} in the step"


def _reserved_fields(data: dict[str, Any]) -> Iterator[tuple[Path, str, str | None]]:
    metadata, spec = data.get("metadata") or {}, data.get("spec") or {}
    for key in metadata:
        if key not in ("labels", "annotations") and not key.startswith("$"):
            yield ("metadata", key), f"metadata.{key}", None
    for key in metadata.get("labels") or {}:
        if key in OF_LABELS or key.startswith(LABEL_PREFIX):
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
        if container.get("name") in (MAIN, *RESERVED_NAMES):
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


def _map(value: Any, type_name: str, at: Path, name: str, patch: bool) -> None:
    """Whether a map is a patch of a type, or an object of it, which has what is required and no directives."""
    if not isinstance(value, dict):
        raise _problem(f"{name} is a mapping, as in a Kubernetes manifest", at, patch)
    known = fields_of(type_name)
    for key, item in tuple(value.items()):
        if patch and (key in (DIRECTIVE, RETAIN_KEYS) or key.startswith((ELEMENT_ORDER, DELETE_FROM))):
            _directive(key, item, known, (*at, key))
        elif key not in known:
            hint = hint_for(key, type_name) if patch else did_you_mean(key, known)
            raise _problem(f"{name} has no {key!r:.60}", (*at, key), patch, hint)
        elif item is None:
            if not patch:  # to Kubernetes the same as a key that is not there
                del value[key]
        elif not patch and key == "operator":
            choices = _CHOICES[type_name]
            if item not in choices:
                raise _problem(f"{key} {item!r:.60} is none of {', '.join(choices)}", (*at, key), patch)
        else:
            _field(item, known[key], (*at, key), key, patch)
    missing = [] if patch else [key for key, field in known.items() if field.is_required and key not in value]
    if missing:
        raise _problem(f"{name} has no {missing[0]}", at, patch)


def _directive(key: str, item: Any, known: dict[str, Field], at: Path) -> None:
    if key == DIRECTIVE:
        if item not in ("delete", "replace"):
            raise problem("GF376", f"$patch {item!r:.40} is neither delete nor replace", "use one of the two", at=at)
        return
    field = key.partition("/")[2]
    if not isinstance(item, list) or (field and field not in known):
        hint = did_you_mean(field, known) if field and field not in known else "write a list"
        raise problem("GF376", f"{key[:60]} does not fit here", hint, at=at)


def _field(value: Any, field: Field, at: Path, name: str, patch: bool) -> None:
    if field.holds == "one":
        _check_value(value, field.type, at, name, patch)
    elif field.holds == "map":
        if not isinstance(value, dict):
            raise _problem(f"{name} is a mapping, as in a Kubernetes manifest", at, patch)
        for key, item in value.items():
            if not patch or (key != DIRECTIVE and item is not None):
                _check_value(item, field.type, (*at, key), f"{name}.{key:.60}", patch)
    else:
        if not isinstance(value, list):
            held = "texts" if field.type == "text" else "mappings"
            what = "is a list, as in a Kubernetes manifest" if patch else f"holds a list of {held}"
            raise _problem(f"{name} {what}", at, patch)
        for index, item in enumerate(value):
            _check_value(item, field.type, (*at, index), f"an entry of {name}", patch)
            key = field.merge_key
            if key is not None and isinstance(item, dict) and key not in item and item.get(DIRECTIVE) != "replace":
                hint = f"add {key}: …; by it Kubernetes finds the entry to change"
                raise problem("GF376", f"an entry of {name} has no {key}", hint, at=(*at, index))


_MANIFEST_HINT = "write it as in a Kubernetes manifest"
_SCALARS: dict[str, tuple[tuple[type, ...], str, str]] = {
    "text": ((str,), "text", "put it in quotes"),
    "bool": ((bool,), "true or false", "write true or false, without quotes"),
    "int": ((int,), "a whole number", "write digits only, without quotes"),
    "port": ((int, str), "a port: a number or a name", _MANIFEST_HINT),
}
"""The Python types of a value, what it is, and the way out."""


def _check_value(value: Any, type_name: str, at: Path, name: str, patch: bool) -> None:
    if type_name in _SCALARS:
        types, what, hint = _SCALARS[type_name]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise _problem(f"{name} is {what}", at, patch, hint if patch else _MANIFEST_HINT)
    elif type_name == "quantity":
        try:
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise ValueError("it is no text")
            Quantity(str(value))
        except ValueError as refusal:
            hint = "write it like 4, 500m or 16Gi"
            raise _problem(f"{name} is not a quantity: {refusal}", at, patch, hint) from None
    elif type_name != "any":
        _map(value, type_name, at, name, patch)


def _problem(message: str, at: Path, patch: bool, hint: str | None = _MANIFEST_HINT) -> Exception:
    return problem("GF371" if patch else "GF119", message, hint, at=at)


def hint_for(word: str, type_name: str) -> str:
    """Where a word belongs that a type does not have."""
    known = fields_of(type_name)
    camel = camel_case(word)
    if camel in known:
        return f"write {camel}: merge takes Kubernetes' own spelling"
    homes = places_of(word)
    if type_name == "PodTemplateSpec" and homes:
        if "PodSpec" in homes or homes[0] == "ObjectMeta":
            return f"write {'spec' if 'PodSpec' in homes else 'metadata'}: {{{word}: …}}"
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


_STEP = {
    "activeDeadlineSeconds": "timeout: 2h",
    "affinity": "kubernetes: {affinity: {…}}",
    "containers": "command, image and the other fields in the step itself, or sidecars: for more containers",
    "dnsConfig": "kubernetes: {dns_config: {…}}",
    "dnsPolicy": "kubernetes: {dns_policy: …}",
    "emptyDir": "volumes: {/scratch: {empty_dir: 10Gi}}",
    "envFrom": "env_from: [{secret: …}]",
    "environment": "env: {NAME: value}",
    "hostAliases": "kubernetes: {host_aliases: {10.0.0.7: [name]}}",
    "hostIPC": "kubernetes: {host_ipc: true}",
    "hostNetwork": "kubernetes: {host_network: true}",
    "hostPath": "volumes: {/data: {host_path: …}}",
    "imagePullPolicy": "image_pull_policy: …",
    "imagePullSecrets": "image_pull_secrets: [name]",
    "initContainers": "init_containers: […]",
    "limits": "cpu: {request: 2, limit: 4} and memory: {request: 8Gi, limit: 16Gi}",
    "livenessProbe": "probes: {liveness: {…}}",
    "nodeSelector": "kubernetes: {node_selector: {…}}",
    "priorityClassName": "priority: …",
    "readinessProbe": "probes: {readiness: {…}}",
    "requests": "cpu: {request: 2, limit: 4} and memory: {request: 8Gi, limit: 16Gi}",
    "resources": "cpu: 4, memory: 16Gi and gpu: …; other extended resources: kubernetes: {resources: {…}}",
    "restartPolicy": "retry: 3",
    "runAsUser": "security: {user: …}",
    "runtimeClassName": "kubernetes: {runtime_class: …}",
    "schedulerName": "kubernetes: {scheduler: …}",
    "securityContext": "security: {user: …, read_only_root: true, …}",
    "serviceAccount": "service_account: …",
    "serviceAccountName": "service_account: …",
    "startupProbe": "probes: {startup: {…}}",
    "terminationGracePeriodSeconds": "termination_grace: 90s",
    "tolerations": "kubernetes: {tolerations: [{…}]}",
    "topologySpreadConstraints": "topology: {spread: zone}, or kubernetes: {topology_spread: [{…}]}",
    "volumeMounts": "volumes: {/data: {claim: …}}, by the path of the mount",
    "workingDir": "working_dir: /work",
}
_VOLUME = {
    "claimName": "claim: …",
    "configMap": "config_map: …",
    "defaultMode": 'default_mode: "0440"',
    "emptyDir": "empty_dir: 10Gi",
    "hostPath": "host_path: /path/on/the/node",
    "medium": "memory: 10Gi, instead of empty_dir",
    "mountPath": "volumes: {/path: {…}}: the path is the key",
    "name": "volumes: {/path: {…}}: volumes have no names here, the path is the key",
    "persistentVolumeClaim": "claim: …",
    "pvc": "claim: …",
    "readOnly": "read_only: true",
    "secretName": "secret: …",
    "serviceAccountToken": "projected: [{token: {path: …, audience: …}}]",
    "sizeLimit": "empty_dir: 10Gi, or memory: 10Gi",
    "subPath": "sub_path: …",
    "volumeClaimTemplate": "ephemeral: {size: 10Gi}",
}
_KUBERNETES = {
    "hostIPC": "host_ipc: true",
    "runtimeClassName": "runtime_class: …",
    "schedulerName": "scheduler: …",
    "topologySpreadConstraints": "topology_spread: [{…}]",
    "patch": "merge: {…}",
    "podSpecPatch": "merge: {spec: {…}}",
}
_OF_STEP = ("Step", "Settings")
_AMBIGUOUS_WORDS = ("name", "volumes", "env", "command", "args", "image", "spec", "metadata", "lifecycle")
"""Words that Kubernetes shares with the spec, or that say too little by themselves."""


def spec_field_hint(word: str, model: str, known: set[str]) -> str | None:
    """What to write in a model of the spec instead of a word of Kubernetes; None when it is none of these."""
    camel = camel_case(word)
    if model == "Pipeline" and (camel in _STEP or camel in fields_of("PodSpec")):
        inner = spec_field_hint(word, "Settings", known)
        return None if inner is None else f"in a step or in defaults, {inner}"
    if model in _OF_STEP or model == "Helper":
        found = _STEP.get(camel)
        if model == "Helper" and (found is None or found.startswith("kubernetes:") or camel == "securityContext"):
            return None
        if found is not None:
            return f"write {found}"
        if camel in fields_of("PodSpec") and camel not in _AMBIGUOUS_WORDS:
            return f"write kubernetes: {{merge: {{spec: {{{camel}: …}}}}}}"
        if camel in fields_of("Container") and camel not in _AMBIGUOUS_WORDS:
            return f"write kubernetes: {{merge: {{spec: {{containers: [{{name: main, {camel}: …}}]}}}}}}"
    if model == "Volume":
        found = _VOLUME.get(camel)
        if found is None and camel in fields_of("Volume"):
            return "write kubernetes: {merge: {spec: {volumes: […], containers: [{name: main, volumeMounts: […]}]}}}"
        return None if found is None else f"write {found}"
    if model == "Kubernetes":
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in camel)
        if snake in known:
            return f"write {snake}: …"
        if camel in _KUBERNETES:
            return f"write {_KUBERNETES[camel]}"
        if camel in fields_of("PodSpec"):
            return f"write merge: {{spec: {{{camel}: …}}}}"
    return None
