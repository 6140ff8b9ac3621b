"""Validation of how a pod finds names, and of how its copies are spread over nodes.

Mirrors validatePodDNSConfig, ValidateHostAliases and validateTopologySpreadConstraints in
k8s.io/kubernetes/pkg/apis/core/validation, Kubernetes v1.36.3.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, Final

from gpuflow.kubernetes.admission.clauses import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    invalid_list,
    invalid_number,
    required,
    unsupported,
)
from gpuflow.kubernetes.admission.names import dns_subdomain_faults, qualified_name_faults
from gpuflow.kubernetes.admission.pod import Body, read_integer, read_text
from gpuflow.resources import BadField, read_map, read_maps

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
POSITIVE: Final = "must be greater than zero"


def network_faults(spec: Body, labels: Body) -> Iterator[FieldError]:
    """What is wrong with DNS, with entries of /etc/hosts, and with the spread."""
    policy = read_text(spec, "dnsPolicy", "spec")
    if policy and policy not in DNS_POLICIES:
        yield unsupported("spec.dnsPolicy", policy, DNS_POLICIES)
    if policy == "None" or spec.get("dnsConfig") is not None:
        yield from _dns_config(spec.get("dnsConfig"), policy)
    if spec.get("hostAliases"):
        yield from _host_aliases(read_maps(spec["hostAliases"], "spec.hostAliases"))
    if spec.get("topologySpreadConstraints"):
        field = "spec.topologySpreadConstraints"
        yield from _spread([*read_maps(spec["topologySpreadConstraints"], field)], field, labels)


def _dns_config(given: object, policy: str | None) -> Iterator[FieldError]:
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


def _host_aliases(aliases: Any) -> Iterator[FieldError]:
    for index, alias in enumerate(aliases):
        field = f"spec.hostAliases[{index}]"
        yield from _address(read_text(alias, "ip", field) or "", f"{field}.ip")
        for number, name in enumerate(read_texts(alias, "hostnames", field)):
            yield from _subdomain(name, f"{field}.hostnames[{number}]")


def _spread(constraints: list[Body], field: str, labels: Body) -> Iterator[FieldError]:
    kinds = [(each.get("topologyKey") or "", each.get("whenUnsatisfiable") or "") for each in constraints]
    for index, constraint in enumerate(constraints):
        where = f"{field}[{index}]"
        skew = read_integer(constraint, "maxSkew", where) or 0
        if skew <= 0:
            yield invalid_number(f"{where}.maxSkew", skew, POSITIVE)
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
                yield invalid_number(f"{where}.minDomains", domains, POSITIVE)
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
        for fault in qualified_name_faults(key):
            yield invalid(f"{where}.matchLabelKeys[{index}]", key, fault)
        if key in own and key in labels:
            yield invalid(f"{where}[{index}]", key, "exists in both matchLabelKeys and labelSelector")


def _address(text: str, field: str) -> Iterator[FieldError]:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        plain = ".".join(str(int(part)) for part in text.split(".")) if re.fullmatch(r"\d+(\.\d+){3}", text) else None
        leading = plain is not None and not any(_address(plain, field))
        yield invalid(field, text, "must not have leading 0s" if leading else IP)


def _subdomain(name: str, field: str) -> Iterator[FieldError]:
    for fault in dns_subdomain_faults(name):
        yield invalid(field, name, fault)


def read_texts(holder: Body, key: str, where: str) -> list[str]:
    value = holder.get(key)
    if value is None:
        return []
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise BadField(f"{where}.{key}", f"must be a list of strings, not {value!r:.60}")
    return list(value)
