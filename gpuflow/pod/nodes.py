"""The scheduling part of a pod: node selector, affinity, tolerations, topology."""

from __future__ import annotations

from typing import Any

from gpuflow.errors import fail
from gpuflow.pod.placement import Devices, Term
from gpuflow.pod.topology import asks_kueue, topology_label
from gpuflow.site import Site
from gpuflow.spec.hatch import TopologySpread
from gpuflow.spec.policies import Toleration
from gpuflow.spec.step import Step

Expression = dict[str, Any]
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def scheduling(step: Step, site: Site, devices: Devices, selector: dict[str, str]) -> dict[str, Any]:
    """Fields of the pod spec that decide where it runs. `selector` finds the sibling pods of the same step."""
    node_selector, terms = _split(devices.terms)
    extra = [_without(key, values) for key, values in devices.barred.items()]
    preferred: list[dict[str, Any]] = []
    tolerations: list[Toleration] = list(devices.tolerations)
    hatch = step.kubernetes
    if step.spot is not None:
        tolerations += site.spot.tolerations if step.spot.mode != "never" else ()
        if step.spot.mode == "require":
            if not site.spot.labels:
                raise fail(
                    "GF227",
                    f'site "{site.name}" does not say what a spot node is',
                    hint="set spot.labels, or use spot: prefer",
                )
            node_selector.update(site.spot.labels)
        elif step.spot.mode == "prefer" and site.spot.labels:
            preferred.append({"weight": 100, "preference": {"matchExpressions": _equal(site.spot.labels)}})
        elif step.spot.mode == "never":
            extra += [{"key": key, "operator": "NotIn", "values": [value]} for key, value in site.spot.labels.items()]
    if hatch is not None:
        node_selector.update(hatch.node_selector)
        tolerations += hatch.tolerations
    affinity = _affinity(terms, extra, preferred, hatch.affinity if hatch else None)
    spread: list[dict[str, Any]] = []
    if step.topology is not None and not asks_kueue(step, site):
        affinity, spread = _topology(step, site, affinity, selector)
    if hatch is not None:
        spread = [*spread, *(_spread(each, selector) for each in hatch.topology_spread)]
    fields = {
        "nodeSelector": node_selector,
        "affinity": affinity,
        "tolerations": _once([toleration.manifest() for toleration in tolerations]),
        "topologySpreadConstraints": spread,
    }
    return {key: value for key, value in fields.items() if value}


def _spread(wish: TopologySpread, selector: dict[str, str]) -> dict[str, Any]:
    """An entry of topologySpreadConstraints; unless it says otherwise it counts the pods of the same step."""
    fields = {
        "maxSkew": wish.max_skew,
        "topologyKey": wish.topology_key,
        "whenUnsatisfiable": wish.when_unsatisfiable,
        "labelSelector": {"matchLabels": wish.match_labels or selector},
        "minDomains": wish.min_domains,
        "nodeAffinityPolicy": wish.node_affinity_policy,
        "nodeTaintsPolicy": wish.node_taints_policy,
        "matchLabelKeys": list(wish.match_label_keys),
    }
    return {key: value for key, value in fields.items() if value not in (None, [])}


def _once(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for index, item in enumerate(items) if item not in items[:index]]


def _split(terms: tuple[Term, ...]) -> tuple[dict[str, str], list[list[Expression]]]:
    """One term with single values reads best as a node selector; anything else needs node affinity."""
    if len(terms) == 1 and all(len(values) == 1 for values in terms[0].values()):
        return {key: values[0] for key, values in terms[0].items()}, []
    return {}, [[{"key": k, "operator": "In", "values": list(v)} for k, v in term.items()] for term in terms]


def _without(key: str, values: tuple[str, ...]) -> Expression:
    """A node without the label, or with none of its values."""
    return (
        {"key": key, "operator": "NotIn", "values": list(values)}
        if values
        else {"key": key, "operator": "DoesNotExist"}
    )


def _equal(labels: dict[str, str]) -> list[Expression]:
    return [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]


def _affinity(
    terms: list[list[Expression]], extra: list[Expression], preferred: list[dict[str, Any]], own: dict[str, Any] | None
) -> dict[str, Any]:
    """Our node terms and the user's affinity object, both of which must hold."""
    result: dict[str, Any] = {key: dict(value) for key, value in (own or {}).items()}
    node: dict[str, Any] = dict(result.get("nodeAffinity", {}))
    theirs = node.get(REQUIRED, {}).get("nodeSelectorTerms", [])
    ours = [[*term, *extra] for term in terms] or ([extra] if extra else [])
    if ours:
        # Terms are alternatives, so "both" is every pair.
        pairs = [
            {**their, "matchExpressions": [*their.get("matchExpressions", []), *our]}
            for our in ours
            for their in theirs or [{}]
        ]
        node[REQUIRED] = {"nodeSelectorTerms": pairs}
    if preferred:
        node[PREFERRED] = [*node.get(PREFERRED, []), *preferred]
    if node:
        result["nodeAffinity"] = node
    return result


def _topology(
    step: Step, site: Site, affinity: dict[str, Any], selector: dict[str, str]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    assert step.topology is not None
    key = topology_label(step.topology.same or step.topology.spread or "node", site)
    siblings = {"labelSelector": {"matchLabels": selector}, "topologyKey": key}
    if step.topology.spread is not None:
        return affinity, [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **siblings}]
    together = dict(affinity.get("podAffinity", {}))
    together[REQUIRED] = [*together.get(REQUIRED, []), siblings]
    return {**affinity, "podAffinity": together}, []
