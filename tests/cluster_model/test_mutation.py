"""Valid manifests, broken at random: only findings come of it, and never an *always* that nobody can explain."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow.checker.report import Report
from gpuflow.checker.run import check
from gpuflow.cluster import read_cluster
from gpuflow.core.codes import CODES
from gpuflow.core.errors import GpuflowError
from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.cluster_model.scenes import CLUSTER_QUEUE, LIMITS, NODE, PIPELINE, POD, QUEUED, QUEUES, QUOTA

EXTRAS = """apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: vip}
value: 100
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: fast}
handler: fast
overhead: {podFixed: {cpu: 10m}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: gold, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: example.com/disk
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: ns}
spec: {storageClassName: gold, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec: {storageClassName: gold, capacity: {storage: 1Gi}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: 10
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: racks}
spec: {levels: [{nodeLabel: rack}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: ask}
spec: {controllerName: example.com/ask}
status: {conditions: [{type: Active, status: "True"}]}
---
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
resources:
  transformations:
  - {input: nvidia.com/mig-1g.10gb, strategy: Replace, outputs: {nvidia.com/gpu: 1}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: w, namespace: other, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  queueName: q
  podSets:
  - name: main
    count: 1
    template: {spec: {containers: [{name: main, image: i, resources: {requests: {cpu: 1}}}]}}
status:
  admission:
    clusterQueue: cq
    podSetAssignments: [{name: main, count: 1, flavors: {cpu: a100}, resourceUsage: {cpu: 1}}]
  conditions:
  - {type: QuotaReserved, status: "True", reason: Admitted, lastTransitionTime: "2026-01-01T00:00:00Z"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: x}
webhooks:
- name: a
  rules: [{apiGroups: [""], operations: [CREATE], resources: [pods]}]
  namespaceSelector: {matchLabels: {a: b}}
"""
EVERYTHING = list(yaml.safe_load_all("---\n".join((QUOTA, LIMITS, NODE, POD, QUEUES, EXTRAS))))
WRONG: tuple[Any, ...] = (None, True, -1, 0.5, 10**30, "", "wrong", "-3", "a\nb", [], ["wrong"], {}, {"wrong": "wrong"})
Path_ = tuple[str | int, ...]

SITE = Site.load("nvidia")
DEMANDS = {text: demand_of(loads(text, "p.yaml"), SITE, "none") for text in (PIPELINE, QUEUED)}


def paths(tree: Any, above: Path_ = ()) -> Iterator[Path_]:
    """Every place in a document, the document itself left out."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in entries:
        yield (*above, key)
        yield from paths(value, (*above, key))


def holder(document: Any, path: Path_) -> Any:
    for part in path[:-1]:
        document = document[part]
    return document


def asked(documents: list[Any], pipeline: str) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.yaml"
        file.write_text(yaml.safe_dump_all(documents))
        return check(DEMANDS[pipeline], read_cluster(str(file)), "ns")


@st.composite
def broken(draw: st.DrawFn) -> list[Any]:
    """All the manifests, with one to three places of them changed, dropped or renamed."""
    documents = deepcopy(EVERYTHING)
    for _ in range(draw(st.integers(1, 3))):
        document = draw(st.sampled_from(documents))
        everywhere = list(paths(document))
        if not everywhere:
            continue
        path = draw(st.sampled_from(everywhere))
        place, last = holder(document, path), path[-1]
        match draw(st.sampled_from(("change", "drop", "rename"))):
            case "rename" if isinstance(place, dict):
                place[f"{last}x"] = place.pop(last)
            case "drop":
                del place[last]
            case _:
                place[last] = deepcopy(draw(st.sampled_from(WRONG)))
    return documents


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(broken(), st.sampled_from(sorted(DEMANDS)))
def test_a_broken_manifest_ends_in_a_report_or_in_findings_and_in_nothing_else(
    documents: list[Any], pipeline: str
) -> None:
    try:
        findings = asked(documents, pipeline).findings
    except GpuflowError as refusal:
        findings = refusal.findings
    assert all(finding.code in CODES and finding.message for finding in findings)


def test_the_manifests_that_are_broken_here_are_whole_to_begin_with() -> None:
    for pipeline in DEMANDS:
        report = asked(EVERYTHING, pipeline)
        assert [finding for finding in report.findings if finding.code in ("GF403", "GF407")] == []


NEVER = {
    "a quota": (PIPELINE, QUOTA.replace('"8"', '"1"'), ()),
    "a limit range": (PIPELINE, LIMITS.replace("64Gi", "1Mi"), (QUOTA,)),
    "a node": (PIPELINE, NODE.replace('gpu: "8"', 'gpu: "1"'), (QUOTA,)),
    "a queue": (
        QUEUED,
        CLUSTER_QUEUE.replace("nominalQuota: 4", "nominalQuota: 1"),
        (QUEUES.replace(CLUSTER_QUEUE + "---\n", ""),),
    ),
}
"""Scenes in which one manifest alone makes the verdict *never*: it, and the others."""
AMOUNTS = ("hard", "used", "max", "min", "default", "allocatable", "capacity", "labels", "nodeLabels")
"""Maps whose entries are a matter of choice: one less is another wish, not a mistake."""


def slips(document: Any) -> Iterator[tuple[str, list[Any]]]:
    """Every way to drop a field, to misspell it, or to give it a value of another type, one at a time."""
    for path in paths(document):
        if path[0] in ("metadata", "kind", "apiVersion") or not isinstance(path[-1], str):
            continue
        is_amount = len(path) > 1 and path[-2] in AMOUNTS
        for what in ("drop", "rename", "text", "list", "map", "null"):
            copy = deepcopy(document)
            place, last = holder(copy, path), path[-1]
            if what in ("drop", "rename"):
                if is_amount:
                    continue
                value = place.pop(last)
                if what == "rename":
                    place[last[:-1]] = value
            else:
                was = place[last]
                values: dict[str, Any] = {"text": "wrong", "list": ["wrong"], "map": {"wrong": "wrong"}, "null": None}
                if type(values[what]) is type(was) or (what == "map" and last in AMOUNTS):
                    continue
                place[last] = values[what]
            yield f"{what} {'.'.join(map(str, path))}", copy


@pytest.mark.parametrize("name", NEVER)
def test_what_makes_never_cannot_be_garbled_into_an_always_in_silence(name: str) -> None:
    pipeline, text, others = NEVER[name]
    (deciding,) = yaml.safe_load_all(text)
    rest = [document for other in others for document in yaml.safe_load_all(other)]
    assert asked([deciding, *rest], pipeline).verdict == "never"
    tried = 0
    for what, document in slips(deciding):
        tried += 1
        try:
            report = asked([document, *rest], pipeline)
        except GpuflowError:
            continue
        problems = [finding for finding in report.findings if finding.severity != "note"]
        assert report.verdict in ("never", "unknown") or problems, what
    assert tried > 10
