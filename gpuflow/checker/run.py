"""Demand × cluster = report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from gpuflow.checker.hints.refusals import refusal_hint
from gpuflow.checker.hints.trials import Trials, memory_max, with_parallel
from gpuflow.checker.pipeline.nodes.claims import small_claims, unusable_claims
from gpuflow.checker.pipeline.nodes.mounted_claims import MountedClaims
from gpuflow.checker.pipeline.placement import NamespacePart, placement_outcome
from gpuflow.checker.quota.claims import (
    pending_claims,
    refused_claims,
    refused_ephemeral_volumes,
    run_claims,
    unknown_classes,
)
from gpuflow.checker.quota.namespace import NamespacePolicy, StepAdmission, ineffective_keys, namespace_policy
from gpuflow.checker.quota.peak import QuotaLine, limit_lines, quota_findings, unknown_usage
from gpuflow.checker.report import SEPARATOR, Outcome, Report, Verdict, merge_outcomes, outcome_of, worst_verdict
from gpuflow.checker.rules import rule_findings
from gpuflow.checker.rules.deadlocks import with_gang_warnings
from gpuflow.checker.rules.pods import mig_nodes, most_expensive, order_dependent, unseen_parts
from gpuflow.checker.rules.runs import count_runs, later_outcome, overlap_outcome, with_deadline
from gpuflow.checker.snapshot.missing_kinds import (
    PASSES,
    assumed_kinds,
    closed_kinds,
    cluster_queues,
    has_default_queue,
    kinds_not_shown,
    named_queues,
    needed_kinds,
    queues_without_kueue,
    unmodeled_kinds,
)
from gpuflow.checker.snapshot.namespace_rules import (
    OPENSHIFT,
    PLUGIN,
    conflicting_steps,
    missing_accounts,
    namespace_refusals,
    node_selector,
    optional_selector,
    optional_whitelist,
    selector_conflicts,
    with_node_selector,
)
from gpuflow.checker.snapshot.prepared import PreparedCluster, prepare_cluster
from gpuflow.checker.snapshot.unknowns import (
    assumptions,
    changing_quotas,
    hidden_labels,
    related_queues,
    unknowns,
    with_changes,
)
from gpuflow.cluster import Cluster, Manifest
from gpuflow.core.errors import Finding, Where, did_you_mean, fail, join_names, list_names, warning
from gpuflow.core.work_budget import work_limit
from gpuflow.demands import Demand
from gpuflow.demands.model import LaterAttempts, split_mixed_steps

SEVERITIES = ("error", "warning", "note")
"""In this order findings are read."""
QUOTA = "ResourceQuota"


def check(demand: Demand, cluster: Cluster | PreparedCluster, namespace: str, *, runs: int | None = None) -> Report:
    """What the cluster will say to the pipeline, against this snapshot.

    `runs`: how many are active at the same time; `None`: as many as the engine lets overlap. For many pipelines and one
    cluster, pass the same `PreparedCluster`: it is validated and read once.
    """
    with work_limit():
        return _make_report(demand, prepare_cluster(cluster, namespace), namespace, runs)


def _make_report(demand: Demand, ready: PreparedCluster, namespace: str, runs: int | None) -> Report:
    nodes = len(ready.cluster.of("Node"))
    trials = Trials(lambda changed: _with_overlap(changed, ready, runs), len(demand.steps), nodes)
    whole = with_gang_warnings(_outcome_or_bad_field(demand, ready, runs, trials), demand, ready.cluster, namespace)
    findings = sorted(with_parallel(whole, demand, trials), key=lambda finding: SEVERITIES.index(finding.severity))
    if demand.source is not None:
        findings = demand.source.unsilenced_findings(findings)
    return Report(
        demand.name,
        SEPARATOR.join(demand.namespaces(namespace)),
        demand.engine,
        ready.cluster.source,
        whole.verdict,
        whole.scopes,
        tuple(findings),
        demand.file,
        assumed_kinds(ready.cluster, needed_kinds(ready.cluster, namespace, demand)),
        demand.kind,
        demand.by_itself,
    )


def _outcome_or_bad_field(demand: Demand, ready: PreparedCluster, runs: int | None, trials: Trials) -> Outcome:
    """What the cluster says; a pod of somebody else's that nobody could create is one message."""
    try:
        return _with_overlap(demand, ready, runs, trials)
    except ValueError as fault:
        if demand.pipeline is not None:
            raise  # ours can be read
        text = f"{demand.kind} {demand.name}: a field of its pods cannot be read: {fault}"
        raise fail("GF736", text, where=demand.where(demand.steps[0].name), hint="Kubernetes would refuse it") from None


def _with_overlap(demand: Demand, ready: PreparedCluster, runs: int | None, trials: Trials | None = None) -> Outcome:
    """What the cluster says to a demand. Without `trials` only the verdict is asked for, and no advice is made."""
    namespaces = demand.namespaces(ready.namespace)
    if len(namespaces) > 1:
        return _outcome_over_namespaces(demand, namespaces, ready, runs, trials)
    ready = ready.seen_from(namespaces[0])
    first = _with_quota_changes(demand, ready, count_runs(demand, runs), trials)
    return merge_outcomes(
        [first, overlap_outcome(first, demand, runs, lambda many: _with_quota_changes(demand, ready, many))]
    )


def _outcome_over_namespaces(
    demand: Demand, namespaces: Sequence[str], ready: PreparedCluster, runs: int | None, trials: Trials | None
) -> Outcome:
    """What each namespace says to the pods that go there, and what queues and nodes say to all of them together."""
    parts = []
    for name in namespaces:
        found = _with_overlap(demand.only_in(name, ready.namespace), ready.seen_from(name), runs)
        scopes = (each for each in found.scopes if each.kind == QUOTA)
        parts.append(replace(found, scopes=tuple(replace(each, name=f"{name}/{each.name}") for each in scopes)))
    whole = merge_outcomes([_shared_outcome(demand, namespaces, ready, runs, trials), *parts])
    once = {(each.code, each.message): each for each in reversed(whole.findings)}
    return replace(whole, scopes=tuple(dict.fromkeys(whole.scopes)), findings=tuple(reversed(once.values())))


def check_cluster_wide(demand: Demand, cluster: PreparedCluster) -> Outcome:
    """What ClusterQueues and nodes say to pipelines side by side that are in several namespaces."""
    namespaces = demand.namespaces(cluster.namespace)
    ready = cluster.seen_from(namespaces[0])
    nodes = len(ready.cluster.of("Node"))
    trials = Trials(lambda changed: _shared_outcome(changed, namespaces, ready, 1, None), len(demand.steps), nodes)
    return _shared_outcome(demand, namespaces, ready, 1, trials)


def _shared_outcome(
    demand: Demand, namespaces: Sequence[str], ready: PreparedCluster, runs: int | None, trials: Trials | None
) -> Outcome:
    """The same for first attempts, and for later ones."""
    first = _cluster_wide_outcome(demand, namespaces, ready, runs, trials)
    later = (_cluster_wide_outcome(demand.at_later(each), namespaces, ready, runs, None) for each in demand.later)
    return merge_outcomes(
        [first, *(each for each in later if worst_verdict((each.verdict, first.verdict)) != first.verdict)]
    )


def _cluster_wide_outcome(
    demand: Demand, namespaces: Sequence[str], ready: PreparedCluster, runs: int | None, trials: Trials | None
) -> Outcome:
    """What ClusterQueues and nodes, which namespaces share, say to the pods of all of them."""
    parts = []
    for name in namespaces:
        there = ready.seen_from(name)
        home = name if demand.runs_on else ready.namespace  # of several runs, each is at home in its own
        part = with_node_selector(demand.only_in(name, home), node_selector(there.cluster, name, OPENSHIFT))
        part = split_mixed_steps(with_deadline(part))
        policy = namespace_policy(there.cluster, name)
        parts.append(NamespacePart(there, part, policy, policy.admit_steps(part.steps)))
    whole = split_mixed_steps(with_deadline(demand))
    placed = placement_outcome(whole, parts, count_runs(demand, runs), trials=trials)
    bound = [step.name for step in whole.steps if _binds(step.pod["spec"])]
    if not bound or not ready.cluster.of("Node"):
        return placed
    text = (
        f"{list_names(bound)}: pods of several namespaces are counted together on the nodes without their volumes and "
    )
    hint = "each namespace alone is checked with them"
    unknown = Finding("GF535", f"{text}device claims", demand.where(bound[0]), hint, severity="warning")
    return merge_outcomes([placed, outcome_of([unknown], "unknown")])


def _binds(spec: Any) -> bool:
    """Whether a pod has volumes or devices that only some nodes have."""
    claims = any(volume.keys() & {"persistentVolumeClaim", "ephemeral"} for volume in spec.get("volumes") or ())
    return claims or bool(spec.get("resourceClaims"))


def _with_quota_changes(demand: Demand, ready: PreparedCluster, runs: int, trials: Trials | None = None) -> Outcome:
    """What the cluster says; while quotas change, only what it says both before and after."""
    changes = list(changing_quotas(ready.cluster, ready.namespace))
    now = _with_node_selectors(demand, ready, runs, trials)
    if not changes:
        return now
    changed = ready.with_cluster(with_changes(ready.cluster, ready.namespace))
    then = _with_node_selectors(demand, changed, runs, trials)
    if then.verdict == now.verdict:
        return merge_outcomes([now, outcome_of(replace(each, severity="note") for each in changes)])
    milder = now if worst_verdict([now.verdict, then.verdict]) == then.verdict else then
    return merge_outcomes([milder, outcome_of(changes, "unknown")])


def _with_node_selectors(demand: Demand, ready: PreparedCluster, runs: int, trials: Trials | None = None) -> Outcome:
    """What the cluster says, with what the namespace adds to its pods; also where it is not known whether it does."""
    cluster, namespace = ready.cluster, ready.namespace
    certain, possible = (node_selector(cluster, namespace, name) for name in (OPENSHIFT, PLUGIN))
    conflicts = outcome_of(selector_conflicts(demand, certain), "never")
    demand = with_node_selector(demand, certain)
    whole = merge_outcomes([conflicts, _with_later_attempts(demand, ready, runs, trials)])
    if not possible or whole.verdict == "never":
        return whole
    refused: Verdict = "never" if conflicting_steps(demand, possible) else "always"
    otherwise = worst_verdict(
        [refused, _with_later_attempts(with_node_selector(demand, possible), ready, runs).verdict]
    )
    if otherwise == whole.verdict:
        return whole
    return merge_outcomes([whole, outcome_of([optional_selector(cluster, namespace, possible, otherwise)], "unknown")])


def _with_later_attempts(demand: Demand, ready: PreparedCluster, runs: int, trials: Trials | None = None) -> Outcome:
    """What all parts of the cluster say to the first attempts, and to later ones."""
    first = _outcome(demand, ready, runs, trials)
    limits = ready.cluster.of("LimitRange", ready.namespace)

    def hint(later: LaterAttempts) -> str | None:
        return None if trials is None else memory_max(first, demand, later, limits, trials)

    return merge_outcomes([first, later_outcome(first, demand, lambda later: _outcome(later, ready, runs), hint)])


def _outcome(demand: Demand, ready: PreparedCluster, runs: int, trials: Trials | None = None) -> Outcome:
    """What all parts of the cluster say to one demand."""
    cluster, namespace = ready.cluster, ready.namespace
    demand = split_mixed_steps(with_deadline(demand))
    policy = namespace_policy(cluster, namespace)
    admissions = policy.admit_steps(demand.steps)
    undecided = order_dependent(demand, policy.limit_ranges, admissions)
    admissions = [most_expensive(one) if one.step.name in undecided else one for one in admissions]
    mounted = _mounted_claims(demand, ready, policy)
    placed = placement_outcome(demand, [NamespacePart(ready, demand, policy, admissions)], runs, mounted, trials)
    default_queue = has_default_queue(cluster, namespace)
    quota_lines = list(limit_lines(demand, policy, admissions, runs, default_queue))
    lines = [*(line.scope for line in quota_lines), *placed.scopes]
    needed = needed_kinds(cluster, namespace, demand)
    broken_rules = list(rule_findings(demand, policy, admissions, lines, runs))
    return merge_outcomes(
        [
            outcome_of((finding for finding in demand.refusals if finding.severity == "error"), "never"),
            outcome_of(finding for finding in demand.refusals if finding.severity != "error"),
            outcome_of(namespace_refusals(cluster, namespace, demand), "never"),
            outcome_of(missing_accounts(cluster, namespace, demand), "never"),
            outcome_of(optional_whitelist(cluster, namespace, demand), "unknown"),
            outcome_of(_refused_steps(demand, admissions), "never"),
            outcome_of(dict.fromkeys(undecided.values()), "unknown"),
            _claims(demand, cluster, namespace, policy, admissions),
            outcome_of(unusable_claims(demand, mounted), "never"),
            outcome_of(small_claims(demand, ready.storage, namespace)),
            outcome_of(_limit_range_gpus(demand, cluster.of("LimitRange", namespace), admissions)),
            outcome_of(ineffective_keys(policy.quotas, cluster, _asked_resources(admissions))),
            _quotas(demand, admissions, quota_lines),
            outcome_of(unknown_usage(demand, policy, admissions, lines), "unknown"),
            placed,
            outcome_of(() if demand.source is None else demand.source.warnings()),
            outcome_of(unseen_parts(demand), "unknown"),
            outcome_of(mig_nodes(demand, cluster.of("Node"))),
            outcome_of((finding for finding in broken_rules if finding.severity == "error"), "never"),
            outcome_of(finding for finding in broken_rules if finding.severity != "error"),
            outcome_of((*_assumed_quotas(policy), *assumptions(cluster))),
            outcome_of(queues_without_kueue(cluster, namespace, needed)),
            outcome_of(kinds_not_shown(cluster, namespace, needed), "unknown"),
            outcome_of(closed_kinds(cluster, needed), "unknown"),
            outcome_of((*_wrong_snapshot(cluster, namespace, policy), *_open_questions(ready, admissions)), "unknown"),
            outcome_of(_unmodeled_findings(demand, cluster, namespace, admissions), "unknown"),
            outcome_of(hidden_labels(cluster, namespace, admissions), "unknown"),
        ]
    )


def _open_questions(ready: PreparedCluster, admissions: Sequence[StepAdmission]) -> Iterator[Finding]:
    """What the snapshot leaves open of the namespace and of the queues that its pods go to."""
    cluster, namespace = ready.cluster, ready.namespace
    queues = named_queues(cluster, namespace, [one.step.pod for one in admissions])
    own = [item.name for item in cluster_queues(cluster, namespace, queues)]
    return unknowns(cluster, namespace, related_queues(cluster, own))


def _mounted_claims(demand: Demand, ready: PreparedCluster, policy: NamespacePolicy) -> MountedClaims:
    """The claims that the pods mount, with what the snapshot says of them."""
    cluster, namespace = ready.cluster, ready.namespace
    return MountedClaims(
        demand,
        [each.pod for step in demand.steps for each in step.pod_sets],
        run_claims(demand, policy.storage_classes),
        ready.storage,
        namespace,
        knows_claims=cluster.bodies("PersistentVolumeClaim", namespace) is not None,
        assumed=cluster.assumed,
    )


def _claims(
    demand: Demand, cluster: Cluster, namespace: str, policy: NamespacePolicy, admissions: Sequence[StepAdmission]
) -> Outcome:
    """Volumes: claims that are refused, that stay pending forever, or whose class matters and is not known."""
    quotas = [quota for _, quota in policy.quotas]
    claims = run_claims(demand, policy.storage_classes)
    unknown = unknown_classes(demand, quotas, cluster.source) if policy.storage_classes is None else ()
    return merge_outcomes(
        [
            outcome_of(refused_claims(demand, claims, quotas, policy.limit_ranges), "never"),
            outcome_of(refused_ephemeral_volumes(demand, policy.limit_ranges, policy.storage_classes), "never"),
            outcome_of(pending_claims(demand, cluster, namespace, admissions), "never"),
            outcome_of(unknown, "unknown"),
        ]
    )


def _quotas(demand: Demand, admissions: Sequence[StepAdmission], lines: Sequence[QuotaLine]) -> Outcome:
    """The lines of the quotas, with why each of them is not *always*."""
    findings = [finding for line in lines for finding in quota_findings(demand, line, admissions)]
    scopes = tuple(line.scope for line in lines)
    return Outcome(worst_verdict(scope.verdict for scope in scopes), scopes, tuple(findings))


def _unmodeled_findings(
    demand: Demand, cluster: Cluster, namespace: str, admissions: Sequence[StepAdmission]
) -> Iterator[Finding]:
    pods: list[dict[str, str]] = [one.step.pod["metadata"].get("labels", {}) for one in admissions]
    if demand.driver is not None:
        pods.append({})  # its drivers
    # Where nodes are shown, devices that stand for extended resources are judged.
    kinds = unmodeled_kinds(cluster, namespace, pods, () if cluster.of("Node") else _asked_resources(admissions))
    if kinds:
        yield warning(
            "GF531",
            f"these kinds may hold pods back and are not modeled: {', '.join(kinds)}",
            Where(cluster.source),
            "the verdict covers quotas, limit ranges, classes, Kueue's queues and nodes only\n"
            f'if you know that one lets these pods pass, annotate it with {PASSES}: "true"; snapshots keep that',
        )


def _refused_steps(demand: Demand, admissions: Sequence[StepAdmission]) -> Iterator[Finding]:
    """Steps that the API server refuses even in an empty namespace. The same refusal of many steps is reported once."""
    groups: dict[tuple[str, str | None], list[StepAdmission]] = {}
    for one in admissions:
        if not one.ever.allowed:
            groups.setdefault((one.ever.stage, one.ever.reason), []).append(one)
    for (stage, _), members in groups.items():
        first = members[0]
        yield Finding(
            _STAGES.get(stage, "GF501"),
            f"{list_names([one.step.name for one in members])} can never be admitted",
            demand.where(first.step.name),
            refusal_hint(first.ever, demand) or _HINTS.get(stage),
            kubernetes=first.ever.message,
        )


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
    "validation": "write that field as Kubernetes wants it; if the step has none of it, a LimitRange's default or the "
    "site adds it",
    "podsecurity": "drop what the namespace's Pod Security Standard forbids, or run in another namespace",
    "priority": "use a PriorityClass that exists",
    "runtimeclass": "use a RuntimeClass that exists",
}


def _limit_range_gpus(
    demand: Demand, limit_ranges: Sequence[Manifest], admissions: Sequence[StepAdmission]
) -> Iterator[Finding]:
    """GPUs that a LimitRange hands to containers which asked for none."""
    if not limit_ranges:
        return
    given: dict[tuple[str, str], dict[str, list[str]]] = {}
    for one in admissions:
        before = dict(_containers(one.step.pod))
        for name, resources in _containers(one.ever.pod):
            for key, amount in resources.items():
                if "/" in key and key not in before.get(name, {}):
                    given.setdefault((key, str(amount)), {}).setdefault(one.step.name, []).append(name)
    for (key, amount), steps in given.items():
        groups: dict[str, list[str]] = {}
        for step, names in steps.items():
            groups.setdefault(", ".join(sorted(names)), []).append(step)
        who = "; ".join(f"{names} of {join_names(members)}" for names, members in groups.items())
        yield warning(
            "GF513",
            f"the LimitRange gives {amount} {key} to every container that asks for none: {who}",
            _limit_range_line(limit_ranges, key) or demand.where(next(iter(steps))),
            f"in a LimitRange, max for {key} becomes the default of every container; drop it there and bound GPUs with "
            f"a quota on requests.{key}",
        )


def _limit_range_line(limit_ranges: Sequence[Manifest], key: str) -> Where | None:
    """The line of the LimitRange that names a resource for containers."""
    for item in limit_ranges:
        for index, bounds in enumerate(item.body["spec"].get("limits") or ()):
            for field in ("default", "max", "defaultRequest", "min"):
                if bounds.get("type") == "Container" and key in (bounds.get(field) or {}):
                    return item.at("spec", "limits", index, field, key, key=True)
    return None


def _asked_resources(admissions: Sequence[StepAdmission]) -> set[str]:
    """The extended resources that the steps ask for."""
    return {key for one in admissions for _, resources in _containers(one.step.pod) for key in resources if "/" in key}


def _containers(pod: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for field in ("initContainers", "containers"):
        for container in pod["spec"].get(field, []):
            resources = container.get("resources", {})
            yield container["name"], {**resources.get("requests", {}), **resources.get("limits", {})}


def _wrong_snapshot(cluster: Cluster, namespace: str, policy: NamespacePolicy) -> Iterator[Finding]:
    """Signs that the snapshot is not about this namespace, or says nothing where it should."""
    namespaces = {item.namespace for item in cluster.objects if item.namespace is not None}
    namespaces |= {item.name for item in cluster.of("Namespace")}
    if (
        namespaces and namespace not in namespaces and "Namespace" not in cluster.listed
    ):  # else it does not exist, GF538
        yield warning(
            "GF533",
            f'the snapshot has no object of namespace "{namespace}"',
            Where(cluster.source),
            did_you_mean(namespace, namespaces) or f"it has {', '.join(sorted(namespaces))}",
        )
    for item, quota in policy.quotas:
        if not quota.hard:
            section = "spec" if quota.assumed else "status"
            message = f"quota {quota.name} limits nothing: its {section} has no hard"
            yield Finding("GF534", message, item.at(section), "is the key misspelled?")


def _assumed_quotas(policy: NamespacePolicy) -> Iterator[Finding]:
    for item, quota in policy.quotas:
        if quota.assumed:
            yield Finding(
                "GF532",
                f"quota {quota.name} has no status: assumed as written, with nothing in use",
                item.where,
                "take a snapshot of the live cluster to see what is in use",
                severity="note",
            )
