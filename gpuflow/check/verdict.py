"""Demand × cluster = report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gpuflow.check.queueing import stuck
from gpuflow.check.quotas import Judged, Surroundings, dead_keys, quota_findings, scopes, surroundings
from gpuflow.check.report import Report, Verdict, worst
from gpuflow.check.rooms import homeless
from gpuflow.check.survival import survival
from gpuflow.cluster import Cluster
from gpuflow.demand import Demand
from gpuflow.errors import Finding, Where, did_you_mean

JUDGED = {"Namespace", "ResourceQuota", "LimitRange", "PriorityClass", "RuntimeClass"}
IRRELEVANT = {
    "ConfigMap", "Secret", "Service", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding",
    "CustomResourceDefinition", "StorageClass", "PersistentVolumeClaim", "PersistentVolume", "NetworkPolicy", "Event",
}  # fmt: skip
"""Kinds that do not decide whether a pod is admitted here."""


def check(demand: Demand, cluster: Cluster, namespace: str, *, runs: int = 1) -> Report:
    """What the cluster will say to the pipeline, against this snapshot."""
    around = surroundings(cluster, namespace)
    judged = [around.judge(step) for step in demand.steps]
    findings: list[Finding] = [
        *_refused(demand, judged),
        *_limit_range_gpus(demand, around, judged),
        *dead_keys(around),
    ]
    lines = []
    for scope, bound, item in scopes(demand, around, judged, runs):
        lines.append(scope)
        findings += quota_findings(demand, scope, bound, item, judged)
    verdicts: list[Verdict] = [scope.verdict for scope in lines]
    verdicts += ["never" for one in judged if not one.ever.allowed]
    hopeless = [*homeless(demand, cluster, judged), *stuck(demand, cluster, namespace, judged)]
    findings += hopeless
    verdicts += ["never" for _ in hopeless]
    findings += survival(demand.pipeline, demand.site)
    findings += _assumed(around)
    strange = list(_strange(cluster, namespace, around))
    findings += strange
    verdicts += ["unknown" for _ in strange]
    unjudged = [kind for kind in cluster.kinds() if kind not in JUDGED and kind not in IRRELEVANT]
    if unjudged:
        verdicts.append("unknown")
        findings.append(
            Finding(
                "GF531",
                f"the snapshot holds kinds that may hold pods back and are not judged in full: {', '.join(unjudged)}",
                Where(cluster.source),
                "exact for quotas, limit ranges and classes; for nodes and queues only *never* is decided",
                severity="warning",
            )
        )
    return Report(
        demand.pipeline.name, namespace, demand.engine, cluster.source, worst(verdicts), tuple(lines), tuple(findings)
    )


def _refused(demand: Demand, judged: Sequence[Judged]) -> Iterator[Finding]:
    """Steps that the API server refuses even in an empty namespace. The same refusal of many steps is said once."""
    groups: dict[str, list[str]] = {}
    for one in judged:
        if not one.ever.allowed:
            text = one.ever.message or ""
            reason = text.split(" is forbidden: ", 1)[-1].split(" is invalid: ", 1)[-1]
            groups.setdefault(f"{one.ever.stage}\0{reason}", []).append(one.step.name)
    for key, names in groups.items():
        stage = key.split("\0")[0]
        first = next(one for one in judged if one.step.name == names[0])
        who = f'step "{names[0]}"' if len(names) == 1 else f"steps {', '.join(names)}"
        yield Finding(
            _STAGES.get(stage, "GF501"),
            f"{who} can never be admitted",
            _where(demand, names[0]),
            MUST_SPECIFY if "must specify" in (first.ever.message or "") else _HINTS.get(stage),
            kubernetes=first.ever.message,
        )


MUST_SPECIFY = "say these amounts in the step or in defaults; for an engine's containers, in its own configuration"
_STAGES = {
    "quota": "GF501",
    "limitrange": "GF502",
    "validation": "GF503",
    "podsecurity": "GF504",
    "priority": "GF505",
    "runtimeclass": "GF505",
}
_HINTS = {
    "quota": "ask for less in this step, or have the quota raised",
    "limitrange": "stay within the namespace's LimitRange, or have it changed",
    "validation": "what the LimitRange fills in and what the step asks for do not go together",
    "podsecurity": "drop what the namespace's Pod Security Standard forbids, or run in another namespace",
    "priority": "use a PriorityClass that exists",
    "runtimeclass": "use a RuntimeClass that exists",
}


def _where(demand: Demand, name: str) -> Where:
    top = name.split(".")[0]
    return demand.pipeline.where("steps" if top in demand.pipeline.steps else "exit", top, key=True)


def _limit_range_gpus(demand: Demand, around: Surroundings, judged: Sequence[Judged]) -> Iterator[Finding]:
    """GPUs that a LimitRange hands to containers which asked for none."""
    if not around.limit_ranges:
        return
    given: dict[tuple[str, str], dict[str, list[str]]] = {}
    for one in judged:
        before = dict(_containers(one.step.pod))
        for name, resources in _containers(one.ever.pod):
            for key, amount in resources.items():
                if "/" in key and key not in before.get(name, {}):
                    given.setdefault((key, str(amount)), {}).setdefault(one.step.name, []).append(name)
    for (key, amount), steps in given.items():
        groups: dict[str, list[str]] = {}
        for step, names in steps.items():
            groups.setdefault(", ".join(sorted(names)), []).append(step)
        who = "; ".join(f"{names} of {', '.join(members)}" for names, members in groups.items())
        yield Finding(
            "GF513",
            f"the LimitRange gives {amount} {key} to every container that asks for none: {who}",
            _where(demand, next(iter(steps))),
            f"in a LimitRange, max for {key} becomes the default of every container; drop it there and bound GPUs with "
            f"a quota on requests.{key}",
            severity="warning",
        )


def _containers(pod: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for field in ("initContainers", "containers"):
        for container in pod["spec"].get(field, []):
            resources = container.get("resources", {})
            yield container["name"], {**resources.get("requests", {}), **resources.get("limits", {})}


def _strange(cluster: Cluster, namespace: str, around: Surroundings) -> Iterator[Finding]:
    """Signs that the snapshot is not about this namespace, or says nothing where it should."""
    homes = {item.namespace for item in cluster.objects if item.namespace is not None}
    homes |= {item.name for item in cluster.of("Namespace")}
    if homes and namespace not in homes:
        yield Finding(
            "GF533",
            f'the snapshot holds nothing of namespace "{namespace}"',
            Where(cluster.source),
            did_you_mean(namespace, homes) or f"it has {', '.join(sorted(homes))}",
            severity="warning",
        )
    for item, quota in around.quotas:
        if not quota.hard:
            yield Finding("GF534", f"quota {quota.name} limits nothing: it has no hard", item.where, "is it misspelt?")


def _assumed(around: Surroundings) -> Iterator[Finding]:
    for item, quota in around.quotas:
        if quota.assumed:
            yield Finding(
                "GF532",
                f"quota {quota.name} has no status: taken as enforced as written, with nothing in use",
                item.where,
                "take a snapshot of the live cluster to see what is in use",
                severity="note",
            )
