"""Rules about the namespace and the snapshot: what a namespace itself says to a new pod, and what is not shown.

Whether it takes any pod, and which service accounts it has, mirrors
k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle.Lifecycle.Admit and
k8s.io/kubernetes/plugin/pkg/admission/serviceaccount.Plugin.Admit, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuflow.checker.kueue.snapshot import cyclic_cohorts
from gpuflow.checker.kueue.workloads import read_cluster_queue, read_cohort
from gpuflow.checker.nodes.node_info import GROUP_MAX
from gpuflow.checker.nodes.pod_affinity import PodAffinityTerm, affinity_of
from gpuflow.checker.question import Question, check_rule
from gpuflow.checker.quota.peak import MadeKind, made_kinds
from gpuflow.checker.rules.pods import asked_resources
from gpuflow.checker.snapshot import missing_kinds
from gpuflow.cluster import Cluster, Manifest, fields
from gpuflow.cluster.kinds import SOURCES
from gpuflow.cluster.model import once
from gpuflow.core.errors import Problem, Where, did_you_mean, join_names, list_names
from gpuflow.demands import StepDemand
from gpuflow.demands.gang_scheduling import DEFAULT_SCHEDULER
from gpuflow.kubernetes.objects import Affinity, decode
from gpuflow.kubernetes.resources import read_map, read_maps

WHITELIST: Final = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
"""Read by PodTolerationRestriction, which is optional too."""
LIVE = "take a snapshot of the live cluster: gpuflow snapshot"
BOUNDS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
COUNTS = ("admitted", "reserving")


@check_rule("GF538", severity="error", verdict="never")
def namespace_refusals(q: Question) -> Iterator[Problem]:
    """Why the namespace takes no new pod at all."""
    cluster, namespace, demand = q.cluster, q.namespace, q.demand
    item = namespace_object(cluster, namespace)
    if item is None:
        # A manifest without a namespace is put into this one, so that some of it may be shown without itself.
        if "Namespace" in cluster.listed:
            names = [each.name for each in cluster.of("Namespace")]
            hint = did_you_mean(namespace, names) or "create the namespace first"
            words = f'namespaces "{namespace}" not found'
            yield Problem(f"the namespace {namespace} does not exist", Where(cluster.source), hint, kubernetes=words)
        return
    phase = read_map(item.body.get("status"), "status").get("phase")
    if phase == "Terminating" or read_map(item.body.get("metadata"), "metadata").get("deletionTimestamp"):
        pod = demand.steps[0].object_name if demand.steps else demand.name
        words = f"unable to create new content in namespace {namespace} because it is being terminated"
        yield Problem(
            f"the namespace {namespace} is being deleted",
            item.where,
            "use another namespace, or create it again when it is gone",
            kubernetes=f'pods "{pod}" is forbidden: {words}',
        )


@check_rule("GF540", severity="error", verdict="never")
def missing_accounts(q: Question) -> Iterator[Problem]:
    """Service accounts that steps name and that are not among those of the namespace."""
    accounts = q.cluster.bodies("ServiceAccount", q.namespace)
    if accounts is None:
        return
    names = {str(body["metadata"].get("name")) for body in accounts} | {missing_kinds.DEFAULT_ACCOUNT}
    wanted: dict[str, list[StepDemand]] = {}
    for step in q.demand.steps:
        name = step.pod["spec"].get("serviceAccountName")
        if name and name not in names:
            wanted.setdefault(name, []).append(step)
    for name, steps in wanted.items():
        reason = f'error looking up service account {q.namespace}/{name}: serviceaccount "{name}" not found'
        yield Problem(
            f"{list_names([step.name for step in steps])}: the service account {name} does not exist in {q.namespace}",
            q.where(steps[0].name),
            did_you_mean(name, names) or "create the service account first",
            kubernetes=f'pods "{steps[0].object_name}" is forbidden: {reason}',
        )


NAMED_BY_PODS: Final = {
    "ServiceAccount": "serviceAccountName", "PriorityClass": "priorityClassName", "RuntimeClass": "runtimeClassName",
}  # fmt: skip
"""The kinds without which a pod is not even created."""


@check_rule("GF800", verdict="unknown")
def objects_behind_their_users(q: Question) -> Iterator[Problem]:
    """What stands behind a workload in its file, and without which `kubectl apply` cannot create it.

    Controllers try again, nobody creates a pod of the file again, and nothing is created without its namespace.
    """
    start = q.where(q.demand.steps[0].name) if q.demand.steps else Where()
    specs = [step.pod["spec"] for step in q.demand.steps] if q.demand.kind == "Pod" else []
    wanted = {(kind, spec.get(field)) for spec in specs for kind, field in NAMED_BY_PODS.items()}
    wanted |= {("Namespace", q.namespace)} if q.cluster.creates(q.namespace) else set()
    for item in q.cluster.objects if wanted else ():
        is_here = item.is_new and item.where.file == start.file == q.demand.file
        is_behind = is_here and (item.where.line or 0) > (start.line or 0)
        if is_behind and (item.kind, item.name) in wanted and item.in_namespace(q.namespace):
            who = f"{q.demand.kind} {q.demand.name}"
            text = f"{who} stands before {item.kind} {item.name}: in this order the first kubectl apply is refused"
            hint = "move it behind, or apply the file twice; Helm and Argo CD sort objects by their kind"
            yield Problem(text, item.where, hint)


@check_rule("GF801")
def namesakes_in_files(q: Question) -> Iterator[Problem]:
    """Objects that the files bring more than once."""
    found: dict[object, Manifest] = {}
    for item in q.cluster.given:
        first = found.setdefault(item.key, item)
        if first is not item and item.in_namespace(q.namespace):
            text = f"{item.kind} {item.name} stands twice in the files: kubectl apply, and this check, take the last; "
            yield Problem(f"{text}Helm refuses it", item.where, f"the first stands in {first.where}; keep one")


@check_rule("GF539", verdict="unknown")
def optional_whitelist(q: Question) -> Iterator[Problem]:
    """Tolerations in a namespace that has a list of allowed ones, which another optional plug-in reads."""
    item = namespace_object(q.cluster, q.namespace)
    text = "" if item is None else str(annotations_of(item).get(WHITELIST) or "")
    steps = [step.name for step in q.demand.steps if any(each.pod["spec"].get("tolerations") for each in step.pod_sets)]
    if item is not None and steps and text.strip() not in ("", "[]"):
        yield Problem(
            f"{list_names(steps)}: unknown, because {q.namespace} has a list of allowed tolerations: with the plug-in "
            "PodTolerationRestriction others are refused, and a snapshot does not show whether the API server runs it",
            item.at("metadata", "annotations", WHITELIST),
            f"ask whether the API server runs PodTolerationRestriction; if not, remove {WHITELIST}",
        )


def annotations_of(item: Manifest) -> Mapping[str, Any]:
    return read_map(read_map(item.body.get("metadata"), "metadata").get("annotations"), "metadata.annotations")


def namespace_object(cluster: Cluster, namespace: str) -> Manifest | None:
    return next((item for item in cluster.of("Namespace") if item.name == namespace), None)


@check_rule("GF575")
def cohort_cycles(q: Question) -> Iterator[Problem]:
    """Cohorts that are above themselves."""
    manifests = {item.name: item for item in q.cluster.of("Cohort")}
    cohorts = {name: read_cohort(item.body) for name, item in manifests.items()}
    lost = cyclic_cohorts(cohorts)
    rings: set[frozenset[str]] = set()
    for name in sorted(lost):
        ring = [name]
        while (above := cohorts[ring[-1]].parent) not in ring:
            ring.append(above)
        if above == name and frozenset(ring) not in rings:
            rings.add(frozenset(ring))
            text = f"cohorts are each other's parents: {' -> '.join((*ring, name))}; Kueue admits nothing below them"
            yield Problem(text, manifests[name].at("spec", "parentName"), "remove one of these parents")


@check_rule("GF573", severity="note")
def assumptions(q: Question) -> Iterator[Problem]:
    """What is taken for granted where the snapshot says nothing."""
    cluster = q.cluster
    nodes = [] if cluster.knows("Pod") else [n for n in cluster.of("Node") if GROUP_MAX not in annotations_of(n)]
    if nodes:
        message = "the snapshot has nodes and no pods: the nodes are assumed to be empty"
        yield Problem(message, nodes[0].where, LIVE)
    queues = cluster.of("ClusterQueue")
    bare = [queue for queue in (*queues, *cluster.of("LocalQueue")) if not queue.body.get("status")]
    if bare:
        used = "" if cluster.knows("Workload") else ", with nothing in use"
        verb = "has" if len(bare) == 1 else "have"
        names = join_names([f"{item.kind} {item.name}" for item in bare])
        yield Problem(f"{names} {verb} no status: assumed active and as written{used}", bare[0].where, LIVE)


@check_rule("GF537")
def queues_without_kueue(q: Question) -> Iterator[Problem]:
    """Pods that name a queue in a cluster that has none: without Kueue the name is a label like any other."""
    listed = all(kind in q.cluster.listed and not q.cluster.of(kind) for kind in missing_kinds.QUEUES)
    if set(missing_kinds.QUEUES) <= q.needed.keys() and listed and not missing_kinds.runs_kueue(q.cluster):
        text = f"the cluster has no Kueue: {q.needed['LocalQueue']} holds nothing back, and the pods start without it"
        hint = f"install Kueue, or remove queue from the pipeline; is {q.namespace} on another cluster?"
        yield Problem(text, Where(q.cluster.source), hint)


@check_rule("GF536", verdict="unknown")
def kinds_not_shown(q: Question) -> Iterator[Problem]:
    """One finding with all kinds that the pods need and that are not known."""
    missing = {kind: why for kind, why in q.needed.items() if missing_kinds.is_open(q.cluster, q.namespace, kind)}
    if not missing:
        return
    by_reason: dict[str, list[str]] = {}
    for kind, why in missing.items():
        by_reason.setdefault(why, []).append(kind)
    words = "; ".join(f"{', '.join(kinds)} ({why})" for why, kinds in by_reason.items())
    plurals = ",".join(source.plural for kind in missing for source in SOURCES if source.kind == kind)
    first = next(iter(missing))
    yield Problem(
        f"the snapshot does not show what decides: {words}",
        Where(q.cluster.source),
        f"add it: gpuflow snapshot -o DIR --namespace {q.namespace}, or kubectl get {plurals} -A -o yaml > DIR/x.yaml\n"
        f"where the cluster has none of a kind, say so in a file: {{{missing_kinds.RECORD}, listed: [{first}]}}; "
        f"assumed: [{first}] leaves the kind out of the check"
        + ("; of a volume, others may be asked for then" if first in missing_kinds.VOLUMES else ""),
    )


@check_rule("GF571", verdict="unknown")
def closed_kinds(q: Question) -> Iterator[Problem]:
    """Kinds that the cluster has, would not show, and that can decide."""
    for reason, kinds in q.cluster.unread_by_reason().items():
        deciding = [kind for kind in kinds if kind not in missing_kinds.OPTIONAL or kind in q.needed]
        if deciding:
            text = f"unknown, because they could not be listed ({reason}): {', '.join(deciding)}"
            hint = "gpuflow snapshot --rbac prints the permissions that are needed"
            yield Problem(text, Where(q.cluster.source), hint)


@check_rule("GF533", verdict="unknown")
def wrong_snapshot(q: Question) -> Iterator[Problem]:
    """A snapshot that has nothing of this namespace."""
    cluster, namespace = q.cluster, q.namespace
    known = {item.namespace for item in cluster.objects if item.namespace is not None and not item.is_new}
    known |= {item.name for item in cluster.of("Namespace") if not item.is_new}
    if known and namespace not in known and "Namespace" not in cluster.listed:  # else it does not exist, GF538
        yield Problem(
            f'the snapshot has no object of namespace "{namespace}"',
            Where(cluster.source),
            did_you_mean(namespace, known) or f"it has {', '.join(sorted(known))}",
        )


@check_rule("GF533", verdict="unknown")
def other_namespace(q: Question) -> Iterator[Problem]:
    """A snapshot that was taken of another namespace."""
    cluster, namespace = q.cluster, q.namespace
    if not cluster.shows(namespace) and not cluster.creates(namespace):
        shown = list_names(cluster.namespaces or (), "namespace")
        text = f'the snapshot is of {shown}: it does not show what limits "{namespace}"'
        yield Problem(text, Where(cluster.source), f"take another with gpuflow snapshot --namespace {namespace}")


@check_rule("GF407", verdict="unknown")
def unknown_fields(q: Question) -> Iterator[Problem]:
    """Fields that no such object has."""
    for item, stray in _stray_fields(q.cluster):
        if item.in_namespace(q.namespace):
            *above, name = stray.path
            holder = ".".join(map(str, above)) or "it"
            yield Problem(
                f"{item.kind} {item.name}: {holder} has no field {name}; Kubernetes ignores or refuses it",
                item.at(*stray.path, key=True),
                did_you_mean(str(name), stray.known) or f"known there: {', '.join(stray.known)}",
            )


@once
def _stray_fields(cluster: Cluster) -> list[tuple[Manifest, fields.UnknownField]]:
    known = (each for each in cluster.objects if each.kind in fields.FIELDS and each.is_known)
    return [(each, stray) for each in known for stray in fields.unknown_fields(each.kind, each.body)]


@check_rule("GF534", severity="error", verdict="unknown")
def empty_limits(q: Question) -> Iterator[Problem]:
    """Limit ranges that say nothing, which is never meant."""
    for item in q.cluster.of("LimitRange", q.namespace):
        limits = read_maps(read_map(item.body.get("spec"), "spec").get("limits"), "spec.limits")
        if not limits or not all(any(limit.get(field) for field in BOUNDS) for limit in limits):
            yield Problem(
                f"limit range {item.name} limits nothing", item.at("spec", "limits"), "is the key misspelled?"
            )


@check_rule("GF572", verdict="unknown")
def silent_nodes(q: Question) -> Iterator[Problem]:
    """Nodes that do not say what they have hold nothing, which is not what their author meant."""
    for node in q.cluster.of("Node"):
        status = read_map(node.body.get("status"), "status")
        if not status.get("allocatable") and not status.get("capacity"):
            text = f"node {node.name} has no status.allocatable: it counts as a node that holds nothing"
            hint = "take the manifest from the live cluster, or add what the node offers"
            yield Problem(text, node.at("status"), hint)


@check_rule("GF574", verdict="unknown")
def lost_workloads(q: Question) -> Iterator[Problem]:
    """Queues that say that more is admitted, or waits, than the snapshot shows: who holds quota is then not known."""
    cluster, related = q.cluster, _related_queues(q)
    homes = {
        (item.namespace, item.name): str(read_map(item.body.get("spec"), "spec").get("clusterQueue") or "")
        for item in cluster.of("LocalQueue")
    }
    holders = Counter(_queue_of(item.body) for item in cluster.of("Workload"))
    lining_up = Counter(
        homes.get((item.namespace, str(read_map(item.body.get("spec"), "spec").get("queueName") or "")))
        for item in cluster.of("Workload")
        if not _queue_of(item.body)
    )
    for queue in cluster.of("ClusterQueue"):
        if queue.name not in related:
            continue  # who waits or runs there takes none of this quota
        status = read_map(queue.body.get("status"), "status")
        admitted = max(
            (n for n in (status.get(f"{word}Workloads") for word in COUNTS) if isinstance(n, int)), default=0
        )
        waiting, shown = status.get("pendingWorkloads"), holders[queue.name]
        words = f"has admitted {_workloads(admitted)}; the snapshot shows {shown}" if admitted > shown else None
        # A workload may have been admitted between the two lists, so that both kinds are compared together.
        if words is None and isinstance(waiting, int) and admitted + waiting > shown + lining_up[queue.name]:
            words = f"has {_workloads(waiting, 'pending')}; the snapshot shows {lining_up[queue.name]}"
        if words is not None:
            hint = "add the Workloads and LocalQueues of all namespaces: gpuflow snapshot, or kubectl get "
            hint += "workloads,localqueues -A -o yaml"
            yield Problem(f"ClusterQueue {queue.name} {words}", queue.at("status"), hint)


def _workloads(count: int, which: str = "") -> str:
    """`1 workload`, `2 pending workloads`."""
    return f"{count} {f'{which} ' if which else ''}workload{'' if count == 1 else 's'}"


def _queue_of(body: Any) -> str:
    admission = read_map(read_map(body.get("status"), "status").get("admission"), "status.admission")
    return str(admission.get("clusterQueue") or "")


def _related_queues(q: Question) -> set[str]:
    """The ClusterQueues that share quota with those of the pipeline: all in the same tree of cohorts."""
    cluster = q.cluster
    queues = missing_kinds.named_queues(cluster, q.namespace, [one.step.pod for one in q.admissions])
    names = [item.name for item in missing_kinds.cluster_queues(cluster, q.namespace, queues)]
    parents = {item.name: read_cohort(item.body).parent for item in cluster.of("Cohort")}

    def root(queue: Manifest) -> tuple[str, str]:
        cohort = read_cluster_queue(queue.body).cohort
        if not cohort:
            return "ClusterQueue", queue.name
        above, seen = cohort, {""}
        while above not in seen:
            cohort, above = above, parents.get(above) or ""
            seen.add(cohort)
        return "Cohort", cohort

    roots = {queue.name: root(queue) for queue in cluster.of("ClusterQueue")}
    own = {roots[name] for name in names if name in roots}
    return {name for name, top in roots.items() if top in own}


@check_rule("GF531", verdict="unknown")
def unmodeled_objects(q: Question) -> Iterator[Problem]:
    """Objects that may refuse or delay a pod unseen."""
    pods: list[Mapping[str, str] | None] = [one.step.pod["metadata"].get("labels", {}) for one in q.admissions]
    if q.demand.driver is not None:
        pods.append({})  # its drivers
    made = [*(MadeKind("", "pods", each) for each in pods or (None,)), *made_kinds(q.demand)]
    # Where nodes are shown, devices that stand for extended resources are judged.
    resources = () if q.cluster.of("Node") else asked_resources(q)
    named = {each.pod["spec"].get("schedulerName") for step in q.demand.steps for each in step.pod_sets}
    schedulers = named - {None, "", DEFAULT_SCHEDULER}
    kinds = missing_kinds.unmodeled_kinds(q.cluster, q.namespace, made, resources, schedulers)
    if kinds:
        brought = (item.where for item in q.cluster.given if {item.title, f"{item.title} {item.name}"} & {*kinds})
        yield Problem(
            f"these kinds may hold pods back and are not modeled: {', '.join(kinds)}",
            next(brought, Where(q.cluster.source)),
            "the verdict covers quotas, limit ranges, classes, Kueue's queues and nodes only\n"
            f"if you know that one lets these pods pass, annotate it with {missing_kinds.PASSES}: "
            '"true"; snapshots keep that',
        )


@check_rule("GF577", verdict="unknown")
def hidden_labels(q: Question) -> Iterator[Problem]:
    """Steps whose affinity to pods of other namespaces asks for labels that the snapshot does not show."""
    cluster, namespace = q.cluster, q.namespace
    if cluster.labels is None:
        return
    from gpuflow.cluster.tenants import KEPT_LABELS

    asking: dict[str, set[str]] = {}
    for one in q.admissions:
        affinity = affinity_of(decode(Affinity, one.step.pod["spec"].get("affinity"), "spec.affinity"), namespace)
        for term in (*affinity.together, *affinity.apart):
            keys = {key for key in _asked_keys(term, namespace) if not key.startswith(KEPT_LABELS)}
            hidden = keys - cluster.labels
            if hidden:
                asking.setdefault(one.step.name, set()).update(hidden)
    if asking:
        text = f"{list_names(sorted(asking))}: it is unknown which pods of other namespaces have the labels "
        text += f"{', '.join(sorted(set().union(*asking.values())))}; the snapshot does not show them"
        yield Problem(text, Where(cluster.source), "check against the live cluster: --cluster live")


def _asked_keys(term: PodAffinityTerm, namespace: str) -> Iterator[str]:
    """The keys it asks other namespaces for."""
    if term.namespace_selector is None and term.namespaces <= {namespace}:
        return
    for selector in (term.selector, term.namespace_selector):
        yield from (each.key for each in (selector.requirements if selector is not None else ()))
