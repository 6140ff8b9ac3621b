"""What the webhooks of Kueue refuse of an object, where Kueue runs and is configured for its kind.

Mirrors ValidateJobOnCreate and ValidateTASPodSetRequest in pkg/controller/jobframework, and validateCreate of the Job,
pod, RayJob, RayCluster and RayService webhooks, Kueue v0.19.2 with its default feature gates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuflow.demands.model import QueueRefusal
from gpuflow.formats.documents import Document
from gpuflow.formats.nodes import mapping, maps
from gpuflow.kubernetes.admission.container_validation import name_faults
from gpuflow.kubernetes.admission.field_errors import (
    INVALID,
    FieldError,
    dns_subdomain_faults,
    forbidden,
    invalid,
    qualified_name_faults,
    required,
)
from gpuflow.kubernetes.labels import QUEUE_LABEL
from gpuflow.readers.findings.strictness import clause_finding
from gpuflow.readers.kubernetes.pods import INTEGRATIONS

KUEUE: Final = "kueue.x-k8s.io/"
GROUP, TOTAL = f"{KUEUE}pod-group-name", f"{KUEUE}pod-group-total-count"
MODES: Final = tuple(f"{KUEUE}podset-{word}-topology" for word in ("required", "preferred", "unconstrained"))
MOST_POD_SETS: Final = 18
QUEUE_ONLY: Final = ("Deployment", "StatefulSet", "LeaderWorkerSet")
"""Of these Kueue looks at the name of the queue, and no more of what is here."""
RAY_SPECS: Final = {"RayCluster": "spec", "RayJob": "spec.rayClusterSpec", "RayService": "spec.rayClusterConfig"}

Faults = Iterator[FieldError]
Tree = Mapping[str, Any]


def queue_refusals(document: Document) -> tuple[QueueRefusal, ...]:
    """The refusals, each with what must be true of Kueue for it."""
    integration = INTEGRATIONS.get((document.kind, document.group), "pod" if document.kind == "Pod" else None)
    if integration is None:
        return ()
    at = "spec.jobTemplate." if document.kind == "CronJob" else ""
    tree = mapping(mapping(document.tree.get("spec")).get("jobTemplate")) if at else document.tree
    metadata = mapping(tree.get("metadata"))
    labels, annotations = mapping(metadata.get("labels")), mapping(metadata.get("annotations"))
    faults = [(each, False) for each in _of_any(labels, document.kind)]
    if document.kind not in QUEUE_ONLY:
        templates = [(path, of) for path, of in _templates(tree, "") if "spec" in of]
        faults += [(each, False) for path, of in templates for each in _topology(path, of)]
    if integration == "batch/job":
        faults += [(each, False) for each in _partial(annotations, mapping(tree.get("spec")))]
    if document.kind == "Pod":
        faults += [(each, False) for each in _pod_group(labels, annotations)]
    if document.kind in RAY_SPECS and annotations.get(f"{KUEUE}elastic-job") != "true":
        faults += [(each, True) for each in _ray(document.kind, mapping(tree.get("spec")))]
    named = bool(labels.get(QUEUE_LABEL))
    return tuple(
        QueueRefusal(
            clause_finding("GF826", "Kueue's webhook", document, _below(each, at)), integration, queued and not named
        )
        for each, queued in faults
    )


def _below(fault: FieldError, at: str) -> FieldError:
    return FieldError(fault.kind, f"{at}{fault.field}", fault.value, fault.detail)


def _templates(tree: Any, path: str) -> Iterator[tuple[str, Tree]]:
    """The object, where it is a pod, and every pod template in it."""
    if isinstance(tree, Mapping):
        if "containers" in mapping(tree.get("spec")):
            yield f"{path}metadata", tree
            return
        for key, value in tree.items():
            yield from _templates(value, f"{path}{key}.")
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from _templates(value, f"{path[:-1]}[{index}].")


def _of_any(labels: Tree, kind: str) -> Faults:
    keys = (QUEUE_LABEL,) if kind in QUEUE_ONLY else (QUEUE_LABEL, f"{KUEUE}prebuilt-workload-name")
    for key in keys:
        value = labels.get(key)
        if isinstance(value, str) and (faults := dns_subdomain_faults(value)):
            yield invalid(f"metadata.labels[{key}]", value, ",".join(faults))
    key = f"{KUEUE}max-exec-time-seconds"
    if kind not in QUEUE_ONLY and isinstance(value := labels.get(key), str):
        yield from _number(value, f"metadata.labels[{key}]", "should be greater than 0")


def _number(text: str, field: str, detail: str, most: int | None = None) -> Faults:
    """A text that is no number, or none from 1 to the most."""
    if not re.fullmatch(r"[-+]?\d{1,18}", text, re.ASCII):
        yield invalid(field, text, f'strconv.Atoi: parsing "{text}": invalid syntax')
    elif int(text) <= 0 or (most is not None and int(text) > most):
        yield FieldError(INVALID, field, str(int(text)), detail)


def _partial(annotations: Tree, spec: Tree) -> Faults:
    """Mirrors validatePartialAdmissionCreate and podsCount."""
    key = f"{KUEUE}job-min-parallelism"
    parallelism, completions = spec.get("parallelism"), spec.get("completions")
    pods = parallelism if isinstance(parallelism, int) else 1
    pods = min(pods, completions) if isinstance(completions, int) else pods
    if isinstance(value := annotations.get(key), str):
        yield from _number(value, f"metadata.annotations[{key}]", f"should be between 0 and {pods - 1}", pods - 1)


def _pod_group(labels: Tree, annotations: Tree) -> Faults:
    """Mirrors validateManagedLabel and validatePodGroupMetadata."""
    managed, count = labels.get(f"{KUEUE}managed"), annotations.get(TOTAL)
    if managed not in (None, "true"):
        yield forbidden(f"metadata.labels[{KUEUE}managed]", "managed label value can only be 'true'")
    what = "annotation" if annotations.get(GROUP) else "label"
    both = f"both the '{TOTAL}' annotation and the '{GROUP}' {what} should be set"
    if not annotations.get(GROUP) and not labels.get(GROUP):
        if count is not None:
            yield required(f"metadata.labels[{GROUP}]", both)
    elif count is None:
        yield required(f"metadata.annotations[{TOTAL}]", both)
    if isinstance(count, str):
        yield from _number(count, f"metadata.annotations[{TOTAL}]", "incorrect group total count")


def _topology(path: str, template: Tree) -> Faults:
    """Mirrors ValidateTASPodSetRequest, without the slices of pod sets."""
    annotations = mapping(mapping(template.get("metadata")).get("annotations"))
    given = [key for key in MODES if isinstance(annotations.get(key), str)]
    if len(given) > 1:
        listed = ", ".join(f'"{key}"' for key in MODES)
        yield FieldError(
            INVALID, f"{path}.annotations", None, f"must not contain more than one topology annotation: [{listed}]"
        )
    for key in given:
        field = f"{path}.annotations[{key}]"
        if key != MODES[2]:
            yield from name_faults(field, annotations[key], qualified_name_faults)
        elif annotations[key] not in ("1", "t", "T", "true", "TRUE", "True", "0", "f", "F", "false", "FALSE", "False"):
            yield invalid(field, annotations[key], "must be a boolean value")


def _ray(kind: str, spec: Tree) -> Faults:
    """Of an object in a queue. Mirrors validateCreate of its webhook, and ValidateCreate of jobs/raycluster."""
    field, cluster = RAY_SPECS[kind], spec if kind == "RayCluster" else mapping(spec.get(RAY_SPECS[kind][5:]))
    if kind == "RayJob" and mapping(spec.get("clusterSelector")):
        if cluster:
            text = "a kueue managed job should not use an existing cluster"
            yield FieldError(INVALID, "spec.clusterSelector", None, text)
        return
    if kind == "RayJob" and not spec.get("shutdownAfterJobFinishes"):
        text = "a kueue managed job should delete the cluster after finishing"
        yield FieldError(INVALID, "spec.shutdownAfterJobFinishes", "false", text)
    if cluster.get("enableInTreeAutoscaling") is True:
        text = "a kueue managed job should only use autoscaling when workload slicing is enabled"
        if kind == "RayCluster":
            text = "a kueue-managed RayCluster can use autoscaling only as an elastic job: enable the "
            text += f'ElasticJobsViaWorkloadSlices feature gate and set the "{KUEUE}elastic-job": "true" annotation'
        yield FieldError(INVALID, f"{field}.enableInTreeAutoscaling", "true", text)
    groups = maps(cluster.get("workerGroupSpecs"))
    if len(groups) >= MOST_POD_SETS:
        detail = f"must have at most {MOST_POD_SETS} items"
        yield FieldError("Too many", f"{field}.workerGroupSpecs", str(len(groups) + 1), detail)
    for index, group in enumerate(groups):
        if group.get("groupName") == "head":
            yield forbidden(f"{field}.workerGroupSpecs[{index}].groupName", '"head" is reserved for the head group')
