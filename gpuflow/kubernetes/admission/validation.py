"""Validation of a pod: names, images, labels, tolerations, policies, references, DNS, spread constraints.

Covers what a pipeline step can get wrong, in the spec's own words or in a patch of its pod. The inner parts of volume
sources that belong to one vendor are not checked.

Mirrors ValidatePodCreate, validatePodDNSConfig, ValidateHostAliases and validateTopologySpreadConstraints in
k8s.io/kubernetes/pkg/apis/core/validation, Kubernetes v1.36.3.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from gpuflow.kubernetes.admission.container_validation import (
    device_faults,
    hook_faults,
    inside_faults,
    name_faults,
    pod_level_faults,
    port_faults,
    requirement_faults,
    source_faults,
    variable_faults,
    whole_source_faults,
)
from gpuflow.kubernetes.admission.field_errors import (
    FieldError,
    dns_label_faults,
    dns_subdomain_faults,
    duplicate,
    forbidden,
    invalid,
    invalid_list,
    invalid_number,
    label_value_faults,
    not_found,
    qualified_name_faults,
    required,
    sort_reasons,
    too_long,
    unsupported,
)
from gpuflow.kubernetes.admission.pod import Body, Container, Pod, read_integer, read_text
from gpuflow.kubernetes.labels import EFFECTS
from gpuflow.kubernetes.resources import BadField, read_map, read_maps

DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
MOST_NAMESERVERS, MOST_SEARCHES, MOST_SEARCH_CHARACTERS = 3, 32, 2048
IP: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
SEARCH: Final = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
SEARCH_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', "
    "and must start and end with an alphanumeric character "
    rf"(e.g. 'example.com', regex used for validation is '{SEARCH}(\.{SEARCH})*')"
)
SCHEDULE_ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")
NODE_POLICIES: Final = ("Honor", "Ignore")
POSITIVE_RULE: Final = "must be greater than zero"


def network_faults(spec: Body, labels: Body) -> Iterator[FieldError]:
    """What is wrong with DNS, with entries of /etc/hosts, and with the spread."""
    policy = read_text(spec, "dnsPolicy", "spec")
    if policy and policy not in DNS_POLICIES:
        yield unsupported("spec.dnsPolicy", policy, DNS_POLICIES)
    if policy == "None" or spec.get("dnsConfig") is not None:
        yield from _dns_config_faults(spec.get("dnsConfig"), policy)
    if spec.get("hostAliases"):
        yield from _host_alias_faults(read_maps(spec["hostAliases"], "spec.hostAliases"))
    if spec.get("topologySpreadConstraints"):
        field = "spec.topologySpreadConstraints"
        yield from _spread_faults([*read_maps(spec["topologySpreadConstraints"], field)], field, labels)


def _dns_config_faults(given: object, policy: str | None) -> Iterator[FieldError]:
    field = "spec.dnsConfig"
    if policy == "None" and given is None:
        yield required(field, "must provide `dnsConfig` when `dnsPolicy` is None")
        return
    config = read_map(given, field)
    servers, searches = (read_texts(config, key, field) for key in ("nameservers", "searches"))
    if policy == "None" and not servers:
        yield required(f"{field}.nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None")
        return
    if len(servers) > MOST_NAMESERVERS:
        detail = f"must not have more than {MOST_NAMESERVERS} nameservers"
        yield invalid_list(f"{field}.nameservers", servers, detail)
    for index, server in enumerate(servers):
        yield from _address(server, f"{field}.nameservers[{index}]")
    if len(searches) > MOST_SEARCHES:
        yield invalid_list(f"{field}.searches", searches, f"must not have more than {MOST_SEARCHES} search paths")
    if len(" ".join(searches)) > MOST_SEARCH_CHARACTERS:
        detail = f"must not have more than {MOST_SEARCH_CHARACTERS} characters (including spaces) in the search list"
        yield invalid_list(f"{field}.searches", searches, detail)
    for index, search in enumerate(searches):
        plain = search.removesuffix(".")
        if search != "." and not re.fullmatch(rf"{SEARCH}(\.{SEARCH})*", plain):
            yield invalid(f"{field}.searches[{index}]", plain, SEARCH_RULE)
    for index, option in enumerate(read_maps(config.get("options"), f"{field}.options")):
        if not read_text(option, "name", f"{field}.options[{index}]"):
            yield required(f"{field}.options[{index}]", "must not be empty")


def _host_alias_faults(aliases: Any) -> Iterator[FieldError]:
    for index, alias in enumerate(aliases):
        field = f"spec.hostAliases[{index}]"
        yield from _address(read_text(alias, "ip", field) or "", f"{field}.ip")
        for number, name in enumerate(read_texts(alias, "hostnames", field)):
            yield from name_faults(f"{field}.hostnames[{number}]", name, dns_subdomain_faults)


def _spread_faults(constraints: list[Body], field: str, labels: Body) -> Iterator[FieldError]:
    kinds = [(each.get("topologyKey") or "", each.get("whenUnsatisfiable") or "") for each in constraints]
    for index, constraint in enumerate(constraints):
        where = f"{field}[{index}]"
        skew = read_integer(constraint, "maxSkew", where) or 0
        if skew <= 0:
            yield invalid_number(f"{where}.maxSkew", skew, POSITIVE_RULE)
        key, action = (read_text(constraint, name, where) or "" for name in ("topologyKey", "whenUnsatisfiable"))
        if not key:
            yield required(f"{where}.topologyKey", "can not be empty")
        if action not in SCHEDULE_ACTIONS:
            yield unsupported(f"{where}.whenUnsatisfiable", action, SCHEDULE_ACTIONS)
        if kinds[index] in kinds[index + 1 :]:
            yield duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}")
        domains = read_integer(constraint, "minDomains", where)
        if domains is not None:
            if domains <= 0:
                yield invalid_number(f"{where}.minDomains", domains, POSITIVE_RULE)
            if action != "DoNotSchedule":
                detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                yield invalid_number(f"{where}.minDomains", domains, detail)
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            policy = read_text(constraint, name, where)
            if policy is not None and policy not in NODE_POLICIES:
                yield unsupported(f"{where}.{name}", policy, NODE_POLICIES)
        yield from _label_keys(constraint, where, labels)


def _label_keys(constraint: Body, where: str, labels: Body) -> Iterator[FieldError]:
    """Keys whose values the server takes from the pod and adds to the selector, so they may not stand there too."""
    keys = read_texts(constraint, "matchLabelKeys", where)
    if keys and constraint.get("labelSelector") is None:
        yield forbidden(f"{where}.matchLabelKeys", "must not be specified when labelSelector is not set")
        return
    selector = read_map(constraint.get("labelSelector"), f"{where}.labelSelector")
    own = read_map(selector.get("matchLabels"), f"{where}.labelSelector.matchLabels")
    for index, key in enumerate(keys):
        yield from name_faults(f"{where}.matchLabelKeys[{index}]", key, qualified_name_faults)
        if key in own and key in labels:
            yield invalid(f"{where}[{index}]", key, "exists in both matchLabelKeys and labelSelector")


def _address(text: str, field: str) -> Iterator[FieldError]:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        plain = ".".join(str(int(part)) for part in text.split(".")) if re.fullmatch(r"\d+(\.\d+){3}", text) else None
        leading = plain is not None and not any(_address(plain, field))
        yield invalid(field, text, "must not have leading 0s" if leading else IP)


def read_texts(holder: Body, key: str, where: str) -> list[str]:
    value = holder.get(key)
    if value is None:
        return []
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise BadField(f"{where}.{key}", f"must be a list of strings, not {value!r:.60}")
    return list(value)


MAX_INT32: Final = 2**31 - 1
POD_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
CONTAINER_RESTART_POLICIES: Final = ("Always", "Never", "OnFailure")
PROC_MOUNTS: Final = ("Default", "Unmasked")


def pod_faults(pod: Pod) -> tuple[FieldError, ...]:
    """Every clause of the 422 that this pod would get; none when it is valid."""
    spec = pod.spec
    faults = [*_metadata_faults(pod.metadata)]
    volumes = _volumes(spec["volumes"], faults) if spec.get("volumes") is not None else set()
    claims = _resource_claims(spec["resourceClaims"], faults) if spec.get("resourceClaims") is not None else set()
    _check_containers(pod, volumes, claims, faults)
    if pod.level is not None:
        faults.extend(pod_level_faults(pod))
        wanted = read_map(spec.get("resources"), "spec.resources").get("claims")
        if wanted is not None:
            field = "spec.resources.claims"
            faults.append(forbidden(field, "claims may not be set for Resources at pod-level"))
            faults.extend(_claim_faults(wanted, field, claims))
    if pod.overhead:
        faults.extend(requirement_faults({}, pod.overhead, "spec.overhead"))
    faults.extend(_spec_faults(pod))
    return sort_reasons(faults) if faults else ()


def _metadata_faults(metadata: Body) -> Iterator[FieldError]:
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if name:
        yield from name_faults("metadata.name", name, dns_subdomain_faults)
    elif not metadata.get("generateName"):
        yield required("metadata.name", "name or generateName is required")
    if namespace:
        yield from name_faults("metadata.namespace", namespace, dns_label_faults)
    if metadata.get("labels"):
        yield from label_faults(metadata["labels"], "metadata.labels")
    if metadata.get("annotations"):
        yield from annotation_faults(metadata["annotations"], "metadata.annotations")


MOST_ANNOTATIONS: Final = 256 * 1024
"""Bytes of all annotations of an object, keys and texts."""


def annotation_faults(annotations: object, field: str) -> Iterator[FieldError]:
    """Keys in any case, and how much there may be of all. Mirrors ValidateAnnotations."""
    size = 0
    for key, text in read_map(annotations, field).items():
        if not isinstance(key, str) or not (text is None or isinstance(text, str)):
            raise BadField(field, f"{key!r}: {text!r:.60} must be a string and have a string as its key")
        size += len(key.encode(errors="surrogatepass")) + len((text or "").encode(errors="surrogatepass"))
        yield from (invalid(field, key, fault) for fault in qualified_name_faults(key.lower()))
    if size > MOST_ANNOTATIONS:
        yield too_long(field, MOST_ANNOTATIONS)


def label_faults(labels: object, field: str) -> Iterator[FieldError]:
    for key, value in read_map(labels, field).items():
        if not isinstance(key, str) or not (value is None or isinstance(value, str)):
            raise BadField(field, f"{key!r}: {value!r} must be a string and have a string as its key")
        yield from name_faults(field, key, qualified_name_faults)
        yield from name_faults(field, value or "", label_value_faults)


def _check_containers(pod: Pod, volumes: set[str], claims: set[str], faults: list[FieldError]) -> None:
    if not pod.containers:
        faults.append(required("spec.containers"))
    names: set[str] = set()
    for field, containers in (("containers", pod.containers), ("initContainers", pod.init_containers)):
        for index, container in enumerate(containers):
            where = f"spec.{field}[{index}]"
            name = container.name
            if not name:
                faults.append(required(f"{where}.name"))
            elif dns_label_faults(name):
                faults.extend(name_faults(f"{where}.name", name, dns_label_faults))
            if name in names:
                faults.append(duplicate(f"{where}.name", name))
            names.add(name)
            faults.extend(requirement_faults(container.requests, container.limits, f"{where}.resources"))
            faults.extend(_one_container_faults(container, where, pod.spec, volumes, claims))
    if any(container.manifest.get("ports") is not None for container in pod.containers):
        faults.extend(_host_port_faults(pod.containers, pod.spec.get("hostNetwork") is True))


def _host_port_faults(containers: Iterable[Container], on_host: bool) -> Iterator[FieldError]:
    """A port of the node can be taken once; init containers may take it again, because they run before.

    On the network of its node every port of a pod is a port of the node, and no other number can be given to it.
    """
    taken: set[str] = set()
    for index, container in enumerate(containers):
        where = f"spec.containers[{index}].ports"
        for number, port in enumerate(read_maps(container.manifest.get("ports"), where)):
            wanted, own = port.get("hostPort"), port.get("containerPort")
            if on_host and wanted and wanted != own:
                detail = "must match `containerPort` when `hostNetwork` is true"
                yield invalid_number(f"{where}[{number}].hostPort", wanted, detail)
            taken_there = wanted or (own if on_host else None)
            if taken_there:
                place = f"{port.get('protocol') or 'TCP'}/{port.get('hostIP') or ''}/{taken_there}"
                if place in taken:
                    yield duplicate(f"{where}[{number}].hostPort", place)
                taken.add(place)


def _one_container_faults(
    container: Container, where: str, spec: Body, volumes: set[str], claims: set[str]
) -> Iterator[FieldError]:
    manifest = container.manifest
    image = read_text(manifest, "image", where)
    if not image:
        yield required(f"{where}.image")
    elif image.strip() != image:
        yield invalid(f"{where}.image", image, "must not have leading or trailing whitespace")
    policy = manifest.get("restartPolicy")
    if policy is not None and policy not in CONTAINER_RESTART_POLICIES:
        yield unsupported(f"{where}.restartPolicy", policy, CONTAINER_RESTART_POLICIES)
    if manifest.get("lifecycle"):
        yield from hook_faults(manifest, where, spec)
    if manifest.get("ports"):
        yield from port_faults(manifest["ports"], f"{where}.ports")
    if manifest.get("volumeDevices"):
        named = {str(each.get("name")): each for each in read_maps(spec.get("volumes"), "spec.volumes")}
        yield from device_faults(manifest["volumeDevices"], f"{where}.volumeDevices", named)
    if manifest.get("volumeMounts"):
        yield from _mount_faults(read_maps(manifest["volumeMounts"], f"{where}.volumeMounts"), where, volumes)
    wanted = (manifest.get("resources") or {}).get("claims")
    if wanted:
        yield from _claim_faults(wanted, f"{where}.resources.claims", claims)
    if manifest.get("securityContext"):
        yield from _security_faults(read_map(manifest["securityContext"], where), f"{where}.securityContext", spec)
    if manifest.get("env") is not None:
        yield from variable_faults(manifest["env"], f"{where}.env")
    if manifest.get("envFrom"):
        yield from whole_source_faults(manifest["envFrom"], f"{where}.envFrom")


def _security_faults(context: Body, where: str, spec: Body) -> Iterator[FieldError]:
    mount = read_text(context, "procMount", where)
    if mount is not None and mount not in PROC_MOUNTS:
        yield unsupported(f"{where}.procMount", mount, PROC_MOUNTS)
    elif mount == "Unmasked" and spec.get("hostUsers") is not False:
        yield invalid(f"{where}.procMount", mount, "`hostUsers` must be false to use `Unmasked`")
    for field in ("runAsUser", "runAsGroup"):
        number = read_integer(context, field, where)
        if number is not None and not 0 <= number <= MAX_INT32:
            yield invalid_number(f"{where}.{field}", number, f"must be between 0 and {MAX_INT32}, inclusive")


def _mount_faults(mounts: Iterable[Body], where: str, volumes: set[str]) -> Iterator[FieldError]:
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        name, path = mount.get("name"), mount.get("mountPath")
        for key in ("subPath", "subPathExpr"):
            if mount.get(key):
                yield from inside_faults(read_text(mount, key, where) or "", f"{where}.volumeMounts.{key}")
        if mount.get("subPath") and mount.get("subPathExpr"):
            detail = "subPathExpr and subPath are mutually exclusive"
            yield invalid(f"{where}.volumeMounts[{index}].subPathExpr", mount["subPathExpr"], detail)
        if path and type(path) is str and path not in paths and type(name) is str and name in volumes:
            paths.add(path)
            continue
        field = f"{where}.volumeMounts[{index}]"
        name = read_text(mount, "name", field) or ""
        path = read_text(mount, "mountPath", field) or ""
        if not name:
            yield required(f"{field}.name")
        if name not in volumes:
            yield not_found(f"{field}.name", name)
        if not path:
            yield required(f"{field}.mountPath")
        if path in paths:
            yield invalid(f"{field}.mountPath", path, "must be unique")
        paths.add(path)


def _claim_faults(wanted: object, field: str, claims: set[str]) -> Iterator[FieldError]:
    """A container names claims of the pod, each once, as a whole or by single requests."""
    seen: list[tuple[str, str]] = []
    for index, claim in enumerate(read_maps(wanted, field)):
        where = f"{field}[{index}]"
        name, request = (read_text(claim, part, where) or "" for part in ("name", "request"))
        if not name:
            yield required(where)
            continue
        if (name, "") in seen:
            yield duplicate(where, name)
        else:
            if request:
                yield from name_faults(f"{where}.request", request, dns_label_faults)
            if (name, request) in seen:
                yield duplicate(where, f"{name}/{request}")
            elif not request and any(other == name for other, _ in seen):
                yield duplicate(where, name)
            seen.append((name, request))
        if name not in claims:
            listed = f": {', '.join(sorted(claims))}" if claims else " which is empty"
            yield not_found(where, name, f"must be one of the names in pod.spec.resourceClaims{listed}")


def _volumes(listed: object, faults: list[FieldError]) -> set[str]:
    """The names of the good volumes; what is wrong with the others goes to `faults`."""
    names: set[str] = set()
    for index, volume in enumerate(read_maps(listed, "spec.volumes")):
        faults.extend(source_faults(volume, f"spec.volumes[{index}]"))
        name = volume.get("name")
        if name and type(name) is str and name not in names and not dns_label_faults(name):
            names.add(name)
            continue
        field = f"spec.volumes[{index}].name"
        name = read_text(volume, "name", f"spec.volumes[{index}]")
        faults.extend(name_faults(field, name, dns_label_faults) if name else [required(field)])
        if name in names:
            faults.append(duplicate(field, name or ""))
    return names


def _resource_claims(listed: object, faults: list[FieldError]) -> set[str]:
    names: set[str] = set()
    for index, claim in enumerate(read_maps(listed, "spec.resourceClaims")):
        field = f"spec.resourceClaims[{index}].name"
        name = read_text(claim, "name", f"spec.resourceClaims[{index}]") or ""
        if not name:
            faults.append(required(field))
        elif name in names:
            faults.append(duplicate(field, name))
        else:
            faults.extend(name_faults(field, name, dns_label_faults))
            names.add(name)
    return names


def _spec_faults(pod: Pod) -> Iterator[FieldError]:
    spec = pod.spec
    policy = read_text(spec, "restartPolicy", "spec")
    if policy and policy not in POD_RESTART_POLICIES:
        yield unsupported("spec.restartPolicy", policy, POD_RESTART_POLICIES)
    if pod.active_deadline is not None and not 1 <= pod.active_deadline <= MAX_INT32:
        detail = f"must be between 1 and {MAX_INT32}, inclusive"
        yield invalid_number("spec.activeDeadlineSeconds", pod.active_deadline, detail)
    for field, faults_of in SPEC_NAMES.items():
        if field in spec:
            name = read_text(spec, field, "spec")
            if name:
                yield from name_faults(f"spec.{field}", name, faults_of)
    if pod.priority_class:
        yield from name_faults("spec.priorityClassName", pod.priority_class, dns_subdomain_faults)
    if pod.runtime_class is not None:
        yield from name_faults("spec.runtimeClassName", pod.runtime_class, dns_subdomain_faults)
    if pod.preemption_policy not in (None, "PreemptLowerPriority", "Never"):
        policies = ("PreemptLowerPriority", "Never")
        yield unsupported("spec.preemptionPolicy", pod.preemption_policy or "", policies)
    selector = spec.get("nodeSelector") if pod.node_selector is None else pod.node_selector
    if selector:
        yield from label_faults(selector, "spec.nodeSelector")
    tolerations = spec.get("tolerations") if pod.tolerations is None else pod.tolerations
    if tolerations:
        for index, toleration in enumerate(read_maps(tolerations, "spec.tolerations")):
            yield from _toleration_faults(toleration, f"spec.tolerations[{index}]")
    yield from network_faults(spec, read_map(pod.metadata.get("labels"), "metadata.labels"))
    if spec.get("ephemeralContainers"):
        yield forbidden("spec.ephemeralContainers", "cannot be set on create")
    if spec.get("schedulingGates"):
        yield from _gate_faults(spec)


def _gate_faults(spec: Body) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, gate in enumerate(read_maps(spec["schedulingGates"], "spec.schedulingGates")):
        field = f"spec.schedulingGates[{index}]"
        name = read_text(gate, "name", field) or ""
        yield from name_faults(field, name, qualified_name_faults)
        if name in names:
            yield duplicate(field, name)
        names.add(name)
    if spec.get("nodeName"):
        yield forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")


SPEC_NAMES: Final[Mapping[str, Callable[[str], tuple[str, ...]]]] = {
    "serviceAccountName": dns_subdomain_faults,
    "nodeName": dns_subdomain_faults,
    "hostname": dns_label_faults,
    "subdomain": dns_label_faults,
}


def _toleration_faults(toleration: Body, field: str) -> Iterator[FieldError]:
    key = read_text(toleration, "key", field) or ""
    operator = read_text(toleration, "operator", field) or ""
    value = read_text(toleration, "value", field) or ""
    effect = read_text(toleration, "effect", field) or ""
    if key:
        yield from name_faults(f"{field}.key", key, qualified_name_faults)
    elif operator != "Exists":
        meaning = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid(f"{field}.operator", operator, meaning)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        yield invalid(f"{field}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
    if operator in ("", "Equal"):
        faults = label_value_faults(value)
        if faults:
            yield invalid(f"{field}.operator", value, ";".join(faults))
    elif operator == "Exists":
        if value:
            yield invalid(f"{field}.operator", value, "value must be empty when `operator` is 'Exists'")
    elif operator in ("Lt", "Gt"):
        yield unsupported(f"{field}.operator", operator, ("Equal", "Exists", "Lt", "Gt"))
    else:
        yield unsupported(f"{field}.operator", operator, ("Equal", "Exists"))
    if effect and effect not in EFFECTS:
        yield unsupported(f"{field}.effect", effect, EFFECTS)
