"""Demand × cluster = report.

A snapshot leaves things open: quotas change, optional plug-ins may run, attempts may follow and runs may overlap.
`READINGS` are these questions. Each makes the other worlds that may turn out true, has them judged, and settles what
they say together.

What a namespace adds to its pods mirrors k8s.io/kubernetes/plugin/pkg/admission/podnodeselector.Plugin.Admit,
Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from gpuflow.checker.hints.refusals import Trials, memory_max, with_parallel
from gpuflow.checker.question import World, ask, place_pods, with_deadline
from gpuflow.checker.quota.namespace import namespace_policy
from gpuflow.checker.report import SEPARATOR, Outcome, Report, Verdict, merge_outcomes, outcome_of, worst_verdict
from gpuflow.checker.rules import apply_rules
from gpuflow.checker.rules.deadlocks import REPLICAS, with_gang_warnings
from gpuflow.checker.rules.snapshot import annotations_of, namespace_object
from gpuflow.checker.snapshot.missing_kinds import assumed_kinds, needed_kinds
from gpuflow.checker.snapshot.validation import NamespacePart, PreparedCluster, prepare_cluster
from gpuflow.cluster import Cluster, Manifest
from gpuflow.cluster.model import with_entry
from gpuflow.core.errors import Finding, Severity, Where, fail, join_names, list_names, warning
from gpuflow.core.work_budget import work_limit
from gpuflow.demands import Demand
from gpuflow.demands.model import LaterAttempts, Pod, SizeRange, sizes_of, split_mixed_steps
from gpuflow.engines import facts_of
from gpuflow.kubernetes.resources import ResourceList, read_map, read_resource_list

SEVERITIES = ("error", "warning", "note")
"""In this order findings are read."""
QUOTA = "ResourceQuota"

Judge = Callable[[World], Outcome]
Reading = Callable[[World, Judge], Outcome]


def check(demand: Demand, cluster: Cluster | PreparedCluster, namespace: str, *, runs: int | None = None) -> Report:
    """What the cluster will say to the pipeline, against this snapshot.

    `runs`: how many are active at the same time; `None`: as many as the engine lets overlap. For many pipelines and one
    cluster, pass the same `PreparedCluster`: it is validated and read once.
    """
    with work_limit():
        ready = prepare_cluster(cluster, namespace)
        nodes = len(ready.cluster.of("Node"))
        trials = Trials(lambda changed: judge_demand(changed, ready, runs), len(demand.steps), nodes)
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
        ready.cluster.brought_to(demand.namespaces(namespace)),
    )


def _outcome_or_bad_field(demand: Demand, ready: PreparedCluster, runs: int | None, trials: Trials) -> Outcome:
    """What the cluster says; a pod of somebody else's that nobody could create is one message."""
    try:
        return judge_demand(demand, ready, runs, trials)
    except ValueError as fault:
        if demand.pipeline is not None:
            raise  # ours can be read
        text = f"{demand.kind} {demand.name}: a field of its pods cannot be read: {fault}"
        raise fail("GF736", text, where=demand.where(demand.steps[0].name), hint="Kubernetes would refuse it") from None


def judge_demand(demand: Demand, ready: PreparedCluster, runs: int | None, trials: Trials | None = None) -> Outcome:
    """What the cluster says to a demand. Without `trials` only the verdict is asked for, and no advice is made."""
    namespaces = demand.namespaces(ready.namespace)
    if len(namespaces) > 1:
        return _outcome_over_namespaces(demand, namespaces, ready, runs, trials)
    return judge(World(demand, ready.seen_from(namespaces[0]), count_runs(demand, runs), trials, runs), READINGS)


def judge(world: World, readings: Sequence[Reading]) -> Outcome:
    """What the cluster says in a world, and in the others that may turn out true."""
    if not readings:
        return apply_rules(ask(world))
    return readings[0](world, partial(judge, readings=readings[1:]))


UNBOUNDED_RUNS: Final = 2**20
"""So many runs stand for any number of them."""


def overlapping_runs(world: World, judge: Judge) -> Outcome:
    """What the overlap of runs adds to the outcome of those that were counted."""
    first, demand, asked = judge(world), world.demand, world.asked_runs
    overlap = demand.overlap
    if overlap is None or (asked is not None and asked > 1):
        return first
    verdict: Verdict = "always"
    text = f"runs may overlap ({overlap.because})"
    hint = "{one} allows one only; --runs N says how many there really are at once"
    if asked is not None:
        text = f"{text}, and this check counts one run"
        hint = "--runs N counts N runs at once; {one} allows one only"
    elif overlap.at_most is not None:
        title = facts_of(demand.engine).title
        text = f"{text}: {overlap.at_most} at once are counted, the most that {title} has active"
    else:
        many = judge(world.without_advice(runs=UNBOUNDED_RUNS)).verdict
        if worst_verdict((first.verdict, many)) == first.verdict:
            text = f"{text}, and any number of them gets the same answer"
            hint = "--runs N shows the peak of N runs at once"
        else:
            verdict = "unknown" if many == "unknown" else "may-queue"
            text = f"{text}, in any number: the lines count one run, and others may have to wait"
    severity: Severity = "note" if verdict == "always" else "warning"
    words = {"Pipeline": "concurrency: forbid", "DAG": "max_active_runs=1", "Workflow": "a mutex in synchronization"}
    hint = hint.format(one=words.get(demand.kind, "concurrencyPolicy: Forbid"))
    finding = Finding("GF553", text, overlap.where, hint, severity)
    return merge_outcomes([first, Outcome(verdict, findings=(finding,))])


def count_runs(demand: Demand, asked: int | None) -> int:
    """How many runs a check counts: as many as were asked for, else as many as the engine has active at once.

    Where nothing bounds them it is one, and `overlapping_runs` says what more would meet.
    """
    if asked is not None:
        return asked
    return (demand.overlap.at_most if demand.overlap is not None else None) or 1


def changing_quotas(world: World, judge: Judge) -> Outcome:
    """While quotas change, only what the cluster says both before and after."""
    changes = list(_quota_changes(world.cluster, world.namespace))
    now = judge(world)
    if not changes:
        return now
    changed = world.ready.with_cluster(_with_changes(world.cluster, world.namespace))
    then = judge(replace(world, ready=changed))
    if then.verdict == now.verdict:
        return merge_outcomes([now, outcome_of(replace(each, severity="note") for each in changes)])
    milder = now if worst_verdict([now.verdict, then.verdict]) == then.verdict else then
    return merge_outcomes([milder, outcome_of(changes, "unknown")])


def _quota_changes(cluster: Cluster, namespace: str) -> Iterator[Finding]:
    """A finding for each quota that is being changed."""
    for item in cluster.of("ResourceQuota", namespace):
        wanted, enforced = _limits(item.body)
        differing = sorted(key for key in {*wanted, *enforced} if wanted.get(key) != enforced.get(key))
        if enforced and wanted and differing:
            key = differing[0]
            text = f"quota {item.name} is being changed: {key} is {wanted.get(key, 'missing')} in spec.hard and "
            text += f"{enforced.get(key, 'missing')} in status.hard"
            hint = "take the snapshot again when Kubernetes has caught up"
            yield warning("GF576", text, item.at("status", "hard", key), hint)


def _with_changes(cluster: Cluster, namespace: str) -> Cluster:
    """The cluster after all its quotas have changed."""
    return replace(
        cluster,
        objects=tuple(
            _with_new_limits(item)
            if item.kind == "ResourceQuota" and item.is_known and item.in_namespace(namespace)
            else item
            for item in cluster.objects
        ),
    )


def _with_new_limits(item: Manifest) -> Manifest:
    wanted, enforced = _limits(item.body)
    if not wanted or not enforced or wanted == enforced:
        return item
    status = with_entry(item.body["status"], "hard", item.body["spec"]["hard"])
    return replace(item, body=with_entry(item.body, "status", status))


def _limits(body: Mapping[str, Any]) -> tuple[ResourceList, ResourceList]:
    """What the quota shall limit, and what it limits now."""
    wanted, enforced = (
        read_resource_list(read_map(body.get(part), part).get("hard"), f"{part}.hard") for part in ("spec", "status")
    )
    return wanted, enforced


PLUGIN: Final = "scheduler.alpha.kubernetes.io/node-selector"
"""Read by PodNodeSelector, which an API server runs only when it is told to."""
OPENSHIFT: Final = "openshift.io/node-selector"
"""Read by every OpenShift."""
Selector = dict[str, str]


def possible_node_selectors(world: World, judge: Judge) -> Outcome:
    """With what the namespace adds to its pods; also where it is not known whether it does."""
    certain, possible = (node_selector(world.cluster, world.namespace, name) for name in (OPENSHIFT, PLUGIN))
    conflicts = outcome_of(_selector_conflicts(world.demand, certain), "never")
    world = replace(world, demand=with_node_selector(world.demand, certain))
    whole = merge_outcomes([conflicts, judge(world)])
    if not possible or whole.verdict == "never":
        return whole
    refused: Verdict = "never" if _conflicting_steps(world.demand, possible) else "always"
    there = judge(world.without_advice(demand=with_node_selector(world.demand, possible)))
    otherwise = worst_verdict([refused, there.verdict])
    if otherwise == whole.verdict:
        return whole
    return merge_outcomes([whole, outcome_of([_optional_selector(world, possible, otherwise)], "unknown")])


def node_selector(cluster: Cluster, namespace: str, annotation: str) -> Selector:
    """The labels that an annotation of the namespace asks of every node its pods run on; none where it says nothing."""
    item = namespace_object(cluster, namespace)
    if item is None:
        return {}
    text = annotations_of(item).get(annotation)
    pairs = [part.split("=") for part in text.split(",")] if isinstance(text, str) and text.strip() else []
    return {pair[0].strip(): pair[1].strip() for pair in pairs if len(pair) == 2}


def with_node_selector(demand: Demand, selector: Selector) -> Demand:
    """The demand with the pods as they are after the namespace's selector was added; what a pod says itself stays."""
    if not selector:
        return demand

    def pod_with_selector(pod: Pod) -> Pod:
        return {**pod, "spec": {**pod["spec"], "nodeSelector": {**selector, **pod["spec"].get("nodeSelector", {})}}}

    return demand.with_pods(pod_with_selector)


def _conflicting_steps(demand: Demand, selector: Selector) -> list[str]:
    """The steps that ask for another value of a label than their namespace does: they are refused."""
    asked = ((step.name, each.pod["spec"].get("nodeSelector", {})) for step in demand.steps for each in step.pod_sets)
    found = (name for name, own in asked if any(own.get(key, value) != value for key, value in selector.items()))
    return list(dict.fromkeys(found))


def _selector_conflicts(demand: Demand, selector: Selector) -> Iterator[Finding]:
    """The refusals that follow from a selector which is certain to be read."""
    steps = _conflicting_steps(demand, selector)
    if steps:
        words = "pod node label selector conflicts with its project node label selector"
        text = f"{list_names(steps)}: the node selector contradicts the one of the namespace, {_labels_of(selector)}"
        hint = f"remove it from the step, or have {OPENSHIFT} of the namespace changed"
        yield Finding(
            "GF506", text, demand.where(steps[0]), hint, kubernetes=f'pods "{steps[0]}" is forbidden: {words}'
        )


def _optional_selector(world: World, selector: Selector, verdict: str) -> Finding:
    """The verdict depends on a plug-in of the API server that the snapshot does not show."""
    item = namespace_object(world.cluster, world.namespace)
    return warning(
        "GF539",
        f"unknown, because {world.namespace} wants its pods on nodes with {_labels_of(selector)}: with the plug-in "
        f"PodNodeSelector the verdict is {verdict}, and a snapshot does not show whether the API server runs it",
        Where(world.cluster.source) if item is None else item.at("metadata", "annotations", PLUGIN),
        f"ask whether --enable-admission-plugins of the API server has PodNodeSelector; if not, remove {PLUGIN}",
    )


def _labels_of(selector: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))


LATER_OUTCOMES: Final[Mapping[Verdict, str]] = {
    "may-queue": "may have to wait",
    "unknown": "is not known to find room",
    "never": "can never be admitted",
}
LATER_HINT: Final = "make room for that attempt too, or take the policy out of retry or spot"


def later_attempts(world: World, judge: Judge) -> Outcome:
    """What later attempts add to the first. None of them is sure to come, so that none means *never*.

    Their pods may differ from the first: with more memory after running out of it, off spot nodes after losing some.
    """
    first = judge(world)
    verdicts: list[Verdict] = []
    findings = []
    for later in world.demand.later:
        outcome = judge(world.without_advice(demand=world.demand.at_later(later)))
        if worst_verdict((first.verdict, outcome.verdict)) != first.verdict:
            verdicts.append("unknown" if outcome.verdict == "unknown" else "may-queue")
            findings.append(_later_finding(world, first, later, outcome))
    return merge_outcomes([first, Outcome(worst_verdict(verdicts), findings=tuple(findings))])


def _later_finding(world: World, first: Outcome, later: LaterAttempts, outcome: Outcome) -> Finding:
    known = {(each.code, each.message) for each in first.findings}
    new = [each for each in outcome.findings if (each.code, each.message) not in known and each.severity != "note"]
    limits = world.cluster.of("LimitRange", world.namespace)
    most = None if world.trials is None else memory_max(first, world.demand, later, limits, world.trials)
    return warning(
        "GF525",
        f"{list_names(later.steps)}: {later.when}, a later attempt {LATER_OUTCOMES[outcome.verdict]}",
        world.demand.where(later.steps[0]),
        "\n".join((*(f"{each.code} {each.message}" for each in new[:2]), most or LATER_HINT)),
        kubernetes=next((each.kubernetes for each in new if each.kubernetes), None),
    )


LIMITS: Final = ("LimitRange", "ResourceQuota")


def limits_behind(world: World, judge: Judge) -> Outcome:
    """What a limit refuses that stands behind the workload in its file: `kubectl apply` makes the workload first, and
    its pods may be there before the limit. Helm and Argo CD make limits first."""
    whole, demand, cluster = judge(world), world.demand, world.cluster
    if whole.verdict != "never" or not cluster.given or not demand.steps:
        return whole
    start = demand.where(demand.steps[0].name)
    behind = [
        each
        for each in cluster.objects
        if each.kind in LIMITS and each.is_new and each.in_namespace(world.namespace)
        if each.where.file == start.file and (each.where.line or 0) > (start.line or 0)
    ]
    before = replace(cluster, objects=tuple(each for each in cluster.objects if each not in behind))
    if not behind or judge(world.without_advice(ready=world.ready.with_cluster(before))).verdict == "never":
        return whole
    named = join_names([f"{each.kind} {each.name}" for each in behind])
    text = f"{demand.kind} {demand.name} stands before {named}: kubectl apply may let its first pods in before that"
    finding = warning("GF802", text, behind[0].where, "move it before the workload, or see why it refuses the pods")
    return merge_outcomes([replace(whole, verdict="unknown"), outcome_of([finding], "unknown")])


def nodes_of_daemons(world: World, judge: Judge) -> Outcome:
    """A DaemonSet has a pod on each node that its pods may go to. That there is none refuses nothing."""
    whole = judge(world)
    refusing = {each.code for each in whole.findings if each.severity == "error"}
    if world.demand.kind != "DaemonSet" or whole.verdict != "never" or refusing != {"GF506"}:
        return whole
    text = f"DaemonSet {world.demand.name}: as long as none of its pods may go to a node, it has no pods"
    where = world.demand.where(world.demand.steps[0].name)
    finding = warning("GF803", text, where, "does its node selector have a slip?")
    return merge_outcomes([replace(whole, verdict="unknown"), outcome_of([finding], "unknown")])


def other_sizes(world: World, judge: Judge) -> Outcome:
    """What a controller decides that may run fewer or more pods than the demand says: *always* only if the most of them
    always have room, *never* only if the fewest never have."""
    demand = world.demand
    size = demand.size or _size_of(world)
    if size is None:
        return judge(world)
    if size.may_grow:
        demand = demand.with_size(min(max(demand.steps[0].pods, size.least), size.most))
    first = judge(replace(world, demand=replace(demand, size=None)))
    text = f"{size.because} {size.least} to {size.most} pods"
    if size.least and judge(world.without_advice(demand=demand.with_size(size.least))).verdict == "never":
        words = Finding("GF838", f"{text}, and even {size.least} never have room", size.where, "ask for less")
        return merge_outcomes([first, outcome_of([words], "never")])
    if not size.may_grow:
        return first
    if first.verdict == "never":  # of as many as there are at first; fewer may be all that run
        first = replace(first, verdict="may-queue")
    most, verdict = judge(world.without_advice(demand=demand.with_size(size.most))).verdict, first.verdict
    if worst_verdict((verdict, most)) != verdict:
        verdict = "unknown" if most == "unknown" else "may-queue"
        text += f": with {size.most} it {LATER_OUTCOMES[most]}"
    peaks = demand.with_size(size.most).peak
    hint = "at the most: " + ", ".join(f"{key} {peaks[key].value}" for key in sorted(peaks))
    severity: Severity = "note" if verdict == "always" else "warning"
    return merge_outcomes([first, Outcome(verdict, findings=(Finding("GF838", text, size.where, hint, severity),))])


def _size_of(world: World) -> SizeRange | None:
    """The sizes between which a HorizontalPodAutoscaler of the snapshot keeps an object."""
    scalers = world.cluster.of("HorizontalPodAutoscaler", world.namespace) if world.demand.kind in REPLICAS else ()
    title = f"{world.demand.kind} {world.demand.name}"
    return next(filter(None, (sizes_of(each.body, title, each.where) for each in scalers)), None)


READINGS: Final[tuple[Reading, ...]] = (
    limits_behind,
    nodes_of_daemons,
    other_sizes,
    overlapping_runs,
    changing_quotas,
    possible_node_selectors,
    later_attempts,
)
"""What a snapshot leaves open, the outermost first."""


def _outcome_over_namespaces(
    demand: Demand, namespaces: Sequence[str], ready: PreparedCluster, runs: int | None, trials: Trials | None
) -> Outcome:
    """What each namespace says to the pods that go there, and what queues and nodes say to all of them together."""
    parts = []
    for name in namespaces:
        found = judge_demand(demand.only_in(name, ready.namespace), ready.seen_from(name), runs)
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
    placed = place_pods(whole, parts, count_runs(demand, runs), trials=trials)
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
