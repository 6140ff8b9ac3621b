"""What the namespace itself says to a new pod: whether it takes any, which service accounts it has, and on which nodes
its pods may run.

Mirrors k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle.Lifecycle.Admit,
k8s.io/kubernetes/plugin/pkg/admission/serviceaccount.Plugin.Admit and podnodeselector.Plugin.Admit, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuflow.cluster import Cluster, Manifest
from gpuflow.core.errors import Finding, Where, did_you_mean, list_names, warning
from gpuflow.demands import Demand, StepDemand
from gpuflow.demands.model import Pod
from gpuflow.kubernetes.resources import read_map

PLUGIN: Final = "scheduler.alpha.kubernetes.io/node-selector"
"""Read by PodNodeSelector, which an API server runs only when it is told to."""
OPENSHIFT: Final = "openshift.io/node-selector"
"""Read by every OpenShift."""
WHITELIST: Final = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
"""Read by PodTolerationRestriction, which is optional too."""
DEFAULT_ACCOUNT: Final = "default"
"""The service account that every namespace has."""

Selector = dict[str, str]


def namespace_refusals(cluster: Cluster, namespace: str, demand: Demand) -> Iterator[Finding]:
    """Why the namespace takes no new pod at all."""
    pod = demand.steps[0].object_name if demand.steps else demand.name
    item = _namespace(cluster, namespace)
    if item is None:
        # A manifest without a namespace is put into this one, so that some of it may be shown without itself.
        if "Namespace" in cluster.listed:
            names = [each.name for each in cluster.of("Namespace")]
            hint = did_you_mean(namespace, names) or "create the namespace first"
            words = f'namespaces "{namespace}" not found'
            yield Finding(
                "GF538", f"the namespace {namespace} does not exist", Where(cluster.source), hint, kubernetes=words
            )
        return
    phase = read_map(item.body.get("status"), "status").get("phase")
    if phase == "Terminating" or read_map(item.body.get("metadata"), "metadata").get("deletionTimestamp"):
        words = f"unable to create new content in namespace {namespace} because it is being terminated"
        yield Finding(
            "GF538",
            f"the namespace {namespace} is being deleted",
            item.where,
            "use another namespace, or create it again when it is gone",
            kubernetes=f'pods "{pod}" is forbidden: {words}',
        )


def missing_accounts(cluster: Cluster, namespace: str, demand: Demand) -> Iterator[Finding]:
    """Service accounts that steps name and that are not among those of the namespace."""
    accounts = cluster.bodies("ServiceAccount", namespace)
    if accounts is None:
        return
    names = {str(body["metadata"].get("name")) for body in accounts} | {DEFAULT_ACCOUNT}
    wanted: dict[str, list[StepDemand]] = {}
    for step in demand.steps:
        name = step.pod["spec"].get("serviceAccountName")
        if name and name not in names:
            wanted.setdefault(name, []).append(step)
    for name, steps in wanted.items():
        reason = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        yield Finding(
            "GF540",
            f"{list_names([step.name for step in steps])}: the service account {name} does not exist in {namespace}",
            demand.where(steps[0].name),
            did_you_mean(name, names) or "create the service account first",
            kubernetes=f'pods "{steps[0].object_name}" is forbidden: {reason}',
        )


def node_selector(cluster: Cluster, namespace: str, annotation: str) -> Selector:
    """The labels that an annotation of the namespace asks of every node its pods run on; none where it says nothing."""
    item = _namespace(cluster, namespace)
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


def conflicting_steps(demand: Demand, selector: Selector) -> list[str]:
    """The steps that ask for another value of a label than their namespace does: they are refused."""
    return [step.name for step in demand.steps if any(_conflicts(each.pod, selector) for each in step.pod_sets)]


def selector_conflicts(demand: Demand, selector: Selector) -> Iterator[Finding]:
    """The refusals that follow from a selector which is certain to be read."""
    steps = conflicting_steps(demand, selector)
    if steps:
        words = "pod node label selector conflicts with its project node label selector"
        yield Finding(
            "GF506",
            f"{list_names(steps)}: the node selector contradicts the one of the namespace, {format_selector(selector)}",
            demand.where(steps[0]),
            f"remove it from the step, or have {OPENSHIFT} of the namespace changed",
            kubernetes=f'pods "{steps[0]}" is forbidden: {words}',
        )


def optional_selector(cluster: Cluster, namespace: str, selector: Selector, verdict: str) -> Finding:
    """The verdict depends on a plug-in of the API server that the snapshot does not show."""
    item = _namespace(cluster, namespace)
    return warning(
        "GF539",
        f"unknown, because {namespace} wants its pods on nodes with {format_selector(selector)}: with the plug-in "
        f"PodNodeSelector the verdict is {verdict}, and a snapshot does not show whether the API server runs it",
        Where(cluster.source) if item is None else item.at("metadata", "annotations", PLUGIN),
        f"ask whether --enable-admission-plugins of the API server has PodNodeSelector; if not, remove {PLUGIN}",
    )


def optional_whitelist(cluster: Cluster, namespace: str, demand: Demand) -> Iterator[Finding]:
    """Tolerations in a namespace that has a list of allowed ones, which another optional plug-in reads."""
    item = _namespace(cluster, namespace)
    text = "" if item is None else str(annotations_of(item).get(WHITELIST) or "")
    steps = [step.name for step in demand.steps if any(each.pod["spec"].get("tolerations") for each in step.pod_sets)]
    if item is not None and steps and text.strip() not in ("", "[]"):
        yield warning(
            "GF539",
            f"{list_names(steps)}: unknown, because {namespace} has a list of allowed tolerations: with the plug-in "
            "PodTolerationRestriction others are refused, and a snapshot does not show whether the API server runs it",
            item.at("metadata", "annotations", WHITELIST),
            f"ask whether the API server runs PodTolerationRestriction; if not, remove {WHITELIST}",
        )


def format_selector(selector: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))


def _conflicts(pod: Pod, selector: Selector) -> bool:
    own = pod["spec"].get("nodeSelector", {})
    return any(key in own and own[key] != value for key, value in selector.items())


def annotations_of(item: Manifest) -> Mapping[str, Any]:
    return read_map(read_map(item.body.get("metadata"), "metadata").get("annotations"), "metadata.annotations")


def _namespace(cluster: Cluster, namespace: str) -> Manifest | None:
    return next((item for item in cluster.of("Namespace") if item.name == namespace), None)
