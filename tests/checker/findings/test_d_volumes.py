"""Findings D1 and D2: pipelines with volume claims get the verdict that their storage allows.

Tests gpuflow/checker/nodes/volumes.py, gpuflow/checker/pipeline/nodes/claims.py and
gpuflow/checker/pipeline/nodes/mounted_claims.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from gpuflow.checker.report import Report
from gpuflow.checker.run import check
from gpuflow.cluster import cluster_of
from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.assumed import ASSUMED
from tests.checker.findings.snapshots import HOME, record, shown
from tests.checker.whole_scenes import HEAD, NAMESPACE, codes, node, running, text_of
from tests.readers.kubernetes.reading import demand

Body = dict[str, Any]
DRIVER = "disk.example.com"
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def pipeline(steps: str, access: str = "ReadWriteOnce", storage_class: str = "fast") -> str:
    return f"claims: {{work: {{size: 10Gi, access: {access}, storage_class: {storage_class}}}}}\nsteps: {{{steps}}}"


def step(name: str, more: str = "", *, mount: str = "new_claim: work") -> str:
    return f"{name}: {{command: [x], volumes: {{/work: {{{mount}}}}}{more}}}"


GPU = ", gpu: a100-80gb"
ONE = pipeline(step("a"))
ROW = pipeline(f"{step('a')}, {step('b', ', needs: [a]')}")
ROW_TO_GPU = pipeline(f"{step('a')}, {step('b', GPU + ', needs: [a]')}")
SIDE_BY_SIDE = f"{step('a', GPU)}, {step('b', GPU)}"


def of(kind: str, group: str, name: str, **more: Any) -> Body:
    namespace = {"namespace": more.pop("namespace")} if "namespace" in more else {}
    metadata = {"name": name, **namespace, **more.pop("metadata", {})}
    return {"apiVersion": group, "kind": kind, "metadata": metadata, **more}


def storage_class(mode: str = "WaitForFirstConsumer", provisioner: str = DRIVER, **more: Any) -> Body:
    more = {"provisioner": provisioner, "volumeBindingMode": mode, **more}
    return of("StorageClass", "storage.k8s.io/v1", "fast", **more)


def driver(**spec: Any) -> Body:
    return of("CSIDriver", "storage.k8s.io/v1", DRIVER, spec=spec)


def csi_nodes(*names: str, keys: tuple[str, ...] = (), most: int | None = None) -> list[Body]:
    limit = {} if most is None else {"allocatable": {"count": most}}
    drivers = [{"name": DRIVER, "topologyKeys": list(keys), **limit}]
    return [of("CSINode", "storage.k8s.io/v1", name, spec={"drivers": drivers}) for name in names]


def claim(volume: str = "pv", phase: str = "Bound", mode: str = "ReadWriteOnce", **more: Any) -> Body:
    named = {"volumeName": volume} if volume else {}
    spec = {"accessModes": [mode], "storageClassName": "fast", "resources": {"requests": {"storage": "10Gi"}}, **named}
    more = {"spec": spec, "status": {"phase": phase}, **more}
    return of("PersistentVolumeClaim", "v1", "data", namespace=NAMESPACE, **more)


def volume(mode: str = "ReadWriteOnce", on: str | None = None, phase: str = "Bound", **more: Any) -> Body:
    spec: Body = {"accessModes": [mode], "capacity": {"storage": "10Gi"}, "storageClassName": "fast"}
    spec |= {"csi": {"driver": DRIVER}}
    if phase == "Bound":
        spec["claimRef"] = {"namespace": NAMESPACE, "name": "data"}
    if on is not None:
        term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [on]}]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    return of("PersistentVolume", "v1", "pv", spec=spec, status={"phase": phase}, **more)


def holder(on: str = "n", phase: str = "Running") -> Body:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    spec = {"nodeName": on, "containers": containers, "volumes": volumes}
    return of("Pod", "v1", "other", namespace=NAMESPACE, spec=spec, status={"phase": phase})


def host(name: str, gpu: int = 0, zone: str | None = None) -> Body:
    return node(name, gpu, labels={HOST: name, **({ZONE: zone} if zone else {})})


N, M = host("n", 1), host("m", 1)
READS = f"steps: {{{step('a', mount='claim: data')}}}"


@pytest.mark.parametrize("mode", ["WaitForFirstConsumer", "Immediate"])
def test_c18_on_one_node_a_claim_of_the_run_is_always_mounted(mode: str) -> None:
    for text in (ONE, ROW, pipeline(SIDE_BY_SIDE.replace(GPU, ""))):
        report = shown(text, HOME, N, storage_class(mode))
        assert (report.verdict, codes(report)) == ("always", [])


def test_c18_a_volume_that_comes_to_its_only_pod_holds_nothing_back() -> None:
    assert shown(ONE, HOME, N, M, storage_class()).verdict == "always"
    retried = pipeline(step("a", ", retry: {failures: 1}"))
    assert shown(retried, HOME, N, host("small"), storage_class()).verdict == "always"


def test_r12_read_write_many_on_nodes_that_all_reach_it_is_always_with_a_note() -> None:
    text = pipeline(SIDE_BY_SIDE, "ReadWriteMany")
    report = shown(text, HOME, N, M, storage_class(), *csi_nodes("n", "m"))
    assert (report.verdict, codes(report)) == ("always", [])
    assert f"that {DRIVER} makes ReadWriteMany volumes" in text_of(report, "GF559")


def test_r12_without_topology_a_row_of_steps_moves_from_node_to_node() -> None:
    cpu = host("cpu")
    assert shown(ROW_TO_GPU, HOME, N, cpu, storage_class(), driver(), *csi_nodes("n", "cpu")).verdict == "always"


def test_what_topology_a_driver_has_matters_only_where_it_decides() -> None:
    """Both nodes have room for both steps: it is the same wherever the volume is. On `cpu` the second never runs."""
    assert shown(ROW, HOME, N, M, storage_class()).verdict == "always"
    report = shown(ROW_TO_GPU, HOME, N, host("cpu"), storage_class())
    assert (report.verdict, codes(report)) == ("unknown", ["GF558"])
    assert "a later pod must run on the same node, and b may not fit there" in text_of(report, "GF558")
    assert "csinode" in text_of(report, "GF558")


@pytest.mark.parametrize(("zones", "verdict"), [(("x", "x"), "always"), (("x", "y"), "unknown")])
def test_a_volume_keeps_later_steps_in_its_zone(zones: tuple[str, str], verdict: str) -> None:
    nodes = [host("n", 1, zones[0]), host("cpu", 0, zones[1])]
    report = shown(ROW_TO_GPU, HOME, *nodes, storage_class(), driver(), *csi_nodes("n", "cpu", keys=(ZONE,)))
    assert report.verdict == verdict


def test_pods_that_a_volume_keeps_together_may_wait_for_each_other() -> None:
    text = pipeline(SIDE_BY_SIDE, "ReadWriteMany")
    report = shown(text, HOME, N, M, storage_class(), *csi_nodes("n", "m", keys=(HOST,)))
    assert (report.verdict, codes(report)) == ("may-queue", ["GF557"])
    assert "keeps its pods where nodes have the same kubernetes.io/hostname" in text_of(report, "GF557")
    wide = [host("n", 2), host("m", 2)]
    assert shown(text, HOME, *wide, storage_class(), *csi_nodes("n", "m", keys=(HOST,))).verdict == "always"


def test_a_volume_that_is_made_at_once_may_come_to_be_where_no_step_can_run() -> None:
    text, immediate = pipeline(step("a", GPU)), storage_class("Immediate")
    report = shown(text, HOME, N, host("cpu"), immediate)
    assert (report.verdict, codes(report)) == ("unknown", ["GF558"])
    assert shown(text, HOME, N, host("cpu"), immediate, *csi_nodes("n", "cpu")).verdict == "always"
    terms = [{"matchLabelExpressions": [{"key": HOST, "values": ["n"]}]}]
    only = storage_class("Immediate", allowedTopologies=terms)
    assert shown(text, HOME, N, host("cpu"), only, *csi_nodes("n", "cpu", keys=(HOST,))).verdict == "always"


@pytest.mark.parametrize(
    ("objects", "verdict"),
    [
        ([driver()], "may-queue"),
        ([driver(attachRequired=False)], "always"),
        ([], "unknown"),
    ],
)
def test_a_disk_is_on_one_node_at_a_time(objects: list[Body], verdict: str) -> None:
    """The attach-detach controller forbids the second node: k8s.io/kubernetes/pkg/volume/util.IsMultiAttachAllowed."""
    text = pipeline(SIDE_BY_SIDE)
    report = shown(text, HOME, N, M, storage_class(), *csi_nodes("n", "m"), *objects)
    assert report.verdict == verdict
    if verdict == "may-queue":
        assert "Multi-Attach error" in text_of(report, "GF557")
    assert shown(text, HOME, host("n", 2), storage_class(), *csi_nodes("n"), *objects).verdict == "always"
    row = pipeline(f"{step('a', GPU)}, {step('b', GPU + ', needs: [a]')}")
    assert shown(row, HOME, N, M, storage_class(), *csi_nodes("n", "m"), *objects).verdict == "always"


def test_a_disk_that_a_pod_has_on_another_node_may_be_waited_for() -> None:
    scene = (HOME, N, M, volume(), claim(), driver(), storage_class())
    assert shown(READS, *scene).verdict == "always"
    report = shown(READS, *scene, holder())
    assert (report.verdict, codes(report)) == ("may-queue", ["GF557"])
    assert "pod other mounts it on n" in text_of(report, "GF557")


ALONE = "ReadWriteOncePod"


def test_v2_a_claim_for_one_pod_that_another_pod_has_is_waited_for() -> None:
    scene = (HOME, N, M, volume(ALONE), claim(mode=ALONE), storage_class())
    report = shown(READS, *scene, holder())
    assert (report.verdict, codes(report)) == ("may-queue", ["GF557"])
    assert "ReadWriteOncePod access mode already in-use by another pod" in text_of(report, "GF557")
    assert shown(READS, *scene, holder(phase="Succeeded")).verdict == "always"


def test_v2_steps_that_share_a_claim_for_one_pod_run_one_after_the_other() -> None:
    scene = (HOME, host("n", 2), storage_class())
    report = shown(pipeline(SIDE_BY_SIDE, ALONE), *scene)
    assert (report.verdict, codes(report)) == ("may-queue", ["GF557"])
    assert shown(ROW.replace("ReadWriteOnce", ALONE), *scene).verdict == "always"
    gang = pipeline(step("a", GPU + ", gang: {workers: 2}"), ALONE)
    report = shown(gang, *scene)
    assert report.verdict == "never"
    assert "the others never start" in text_of(report, "GF556")


def test_v8_a_claim_that_lost_its_volume_is_never_mounted() -> None:
    report = shown(READS, HOME, N, claim(phase="Lost"), storage_class())
    assert (report.verdict, codes(report)) == ("never", ["GF556"])
    lost = 'persistentvolumeclaim "data" bound to non-existent persistentvolume "pv"'
    assert lost in text_of(report, "GF556")


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        ([claim(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), volume()], '"data" is being deleted'),
        ([claim(), record("PersistentVolume")], 'persistentvolume "pv" not found'),
        ([claim("", "Pending"), storage_class(provisioner="kubernetes.io/no-provisioner"), record("PersistentVolume")],
         "didn't find available persistent volumes to bind"),
    ],
)  # fmt: skip
def test_a_claim_that_cannot_be_used_is_never_mounted(objects: list[Body], words: str) -> None:
    report = shown(READS, HOME, N, *objects)
    assert (report.verdict, codes(report)) == ("never", ["GF556"])
    assert words in text_of(report, "GF556")


def test_a_claim_that_does_not_exist_keeps_its_words() -> None:
    report = shown(READS, HOME, N, record("PersistentVolumeClaim"))
    assert report.verdict == "never"
    assert 'persistentvolumeclaim "data" not found' in text_of(report, "GF561")
    assert shown(READS, HOME, N).verdict == "unknown"


@pytest.mark.parametrize(("on", "gpu", "verdict"), [("n", 1, "always"), ("m", 1, "always"), ("m", 0, "never")])
def test_a_bound_volume_says_where_its_pods_run(on: str, gpu: int, verdict: str) -> None:
    text = f"steps: {{{step('a', GPU, mount='claim: data')}}}"
    report = shown(text, HOME, N, host("m", gpu), claim(), volume(on=on), driver(), storage_class())
    assert report.verdict == verdict
    if verdict == "never":
        assert "1 node(s) didn't match PersistentVolume's node affinity" in text_of(report, "GF506")
        assert "labels and taints" not in text_of(report, "GF506")


def test_a_volume_on_a_full_node_is_waited_for() -> None:
    text = f"steps: {{{step('a', GPU, mount='claim: data')}}}"
    taken = holder("m")
    taken["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "1"
    taken["spec"]["volumes"] = []
    scene = (HOME, N, M, claim(), driver(), storage_class(), taken)
    assert shown(text, *scene, volume(on="m")).verdict == "may-queue"
    assert shown(text, *scene, volume(on="n")).verdict == "always"


def test_a_claim_that_waits_for_its_volume_is_waited_for() -> None:
    report = shown(READS, HOME, N, claim("", "Pending"), storage_class("Immediate"))
    assert (report.verdict, codes(report)) == ("may-queue", ["GF557"])
    assert "pod has unbound immediate PersistentVolumeClaims" in text_of(report, "GF557")
    assert shown(READS, HOME, N, claim("", "Pending"), storage_class()).verdict == "always"


def test_a_volume_that_is_not_shown_is_unknown_where_nodes_differ() -> None:
    text = f"steps: {{{step('a', GPU, mount='claim: data')}}}"
    assert shown(text, HOME, N, claim(mode="ReadWriteMany")).verdict == "always"
    report = shown(text, HOME, N, host("cpu"), claim(mode="ReadWriteMany"))
    assert (report.verdict, codes(report)) == ("unknown", ["GF558"])


def test_local_volumes_are_found_on_their_nodes() -> None:
    local = storage_class(provisioner="kubernetes.io/no-provisioner")
    assert shown(ONE, HOME, N, M, local, volume(on="m", phase="Available")).verdict == "always"
    report = shown(pipeline(step("a", GPU)), HOME, N, host("m"), local, volume(on="m", phase="Available"))
    assert report.verdict == "never"
    assert "didn't find available persistent volumes to bind" in text_of(report, "GF506")
    assert shown(ONE, HOME, N, M, local, record("PersistentVolume")).verdict == "never"
    assert shown(ONE, HOME, N, M, local).verdict == "unknown"


@pytest.mark.parametrize(("size", "verdict"), [("10Gi", "always"), ("9Gi", "may-queue"), (None, "unknown")])
def test_free_storage_counts_where_a_driver_tells_it(size: str | None, verdict: str) -> None:
    more = {"storageClassName": "fast", "nodeTopology": {}, "capacity": size}
    told = [] if size is None else [of("CSIStorageCapacity", "storage.k8s.io/v1", "k", namespace="kube-system", **more)]
    report = shown(ONE, HOME, N, storage_class(), driver(storageCapacity=True), *told)
    assert report.verdict == verdict
    if verdict == "may-queue":
        assert "did not have enough free storage" in text_of(report, "GF515")


def test_topologies_that_no_node_is_in_are_never_provisioned() -> None:
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z"]}]}]
    report = shown(ONE, HOME, N, storage_class(allowedTopologies=terms))
    assert report.verdict == "never"
    assert "didn't find available persistent volumes to bind" in text_of(report, "GF506")
    assert shown(ONE, HOME, host("n", 1, "z"), storage_class(allowedTopologies=terms)).verdict == "always"


def test_shared_volumes_of_a_provisioner_of_disks_are_not_taken_for_granted() -> None:
    report = shown(pipeline(step("a"), "ReadWriteMany"), HOME, N, storage_class(provisioner="ebs.csi.aws.com"))
    assert (report.verdict, codes(report)) == ("unknown", ["GF558"])
    assert shown(ONE, HOME, N, storage_class(provisioner="ebs.csi.aws.com")).verdict == "always"


def test_nodes_without_the_driver_or_with_all_volumes_they_take_are_named() -> None:
    report = shown(ONE, HOME, N, M, storage_class(), driver(), *csi_nodes("n"), record("CSINode"))
    assert report.verdict == "unknown"
    assert f"node m does not run its driver {DRIVER}" in text_of(report, "GF558")
    assert shown(ONE, HOME, N, storage_class(), driver(), *csi_nodes("n", most=1)).verdict == "always"
    report = shown(ONE, HOME, N, storage_class(), driver(), *csi_nodes("n", most=1), holder())
    assert report.verdict == "unknown"
    assert f"node n takes 1 volumes of {DRIVER}" in text_of(report, "GF558")


def test_a_claim_that_one_run_after_the_other_mounts_is_not_known_where_two_claims_may_part() -> None:
    """Each claim may come to be on another node, and the step that mounts both fits nowhere then."""
    text = (
        "claims: {x: {size: 1Gi, storage_class: fast}, y: {size: 1Gi, storage_class: fast}}\n"
        "steps: {a: {command: [x], volumes: {/x: {new_claim: x}}}, b: {command: [x], volumes: {/y: {new_claim: y}}}, "
        "c: {command: [x], needs: [a, b], volumes: {/x: {new_claim: x}, /y: {new_claim: y}}}}"
    )
    tied = csi_nodes("n", "m", keys=(HOST,))
    assert shown(text, HOME, N, M, storage_class(), driver(), *tied).verdict == "unknown"
    assert shown(text, HOME, N, storage_class(), driver(), *tied[:1]).verdict == "always"
    assert shown(text, HOME, N, M, storage_class(), driver(), *csi_nodes("n", "m")).verdict == "always"


# Claims of each pod: those of a StatefulSet, and generic ephemeral volumes.

SET = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  replicas: 3
  serviceName: web
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Gi}}}
"""
EACH = "volumes: {/w: {ephemeral: {size: 10Gi, storage_class: fast}}}"
EPHEMERAL = f"steps: {{a: {{command: [x], for_each: {{i: [1, 2, 3]}}, {EACH}}}}}"
CLAIMS = ("PersistentVolume", "PersistentVolumeClaim", "StorageClass", "CSIDriver", "CSINode")
WEB = {"metadata": {"name": "data-web-1", "namespace": NAMESPACE}}


def of_text(text: str, *objects: Body, listed: tuple[str, ...] = CLAIMS) -> Report:
    """The report on a document of Kubernetes' own, or on a pipeline of ours, on nodes n and m."""
    own = text.startswith("steps:")
    theirs = demand_of(loads(HEAD + text, "p.yaml"), Site.load("nvidia"), "none") if own else demand(text)
    said = record(*listed, assumed=sorted(ASSUMED - {*CLAIMS}))
    nodes = [node(name, labels={HOST: name, ZONE: f"z{name}"}) for name in ("n", "m")]
    return check(theirs, cluster_of((HOME, said, *nodes, *objects), "cluster/"), NAMESPACE)


@pytest.mark.parametrize("text", [SET, EPHEMERAL])
@pytest.mark.parametrize(("most", "verdict"), [(2, "unknown"), (3, "always"), (None, "always")])
def test_l8_each_pod_gets_a_volume_where_it_goes(text: str, most: int | None, verdict: str) -> None:
    report = of_text(text, storage_class(), driver(), *csi_nodes("n", "m", keys=(HOST,), most=most))
    assert (report.verdict, codes(report)) == (verdict, ["GF558"] if verdict == "unknown" else [])


CSI = csi_nodes("n", "m", keys=(ZONE,))


def allowed(*zones: str) -> dict[str, Any]:
    return {"allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]}]}


@pytest.mark.parametrize("text", [SET, EPHEMERAL])
@pytest.mark.parametrize(
    ("objects", "verdict"),
    [
        ([storage_class(**allowed("zn")), driver(), *CSI], "always"),  # all go to node n
        ([storage_class(**allowed("zx")), driver(), *CSI], "never"),
        ([storage_class("Immediate"), driver(), *CSI], "always"),  # either node has room for all
        ([storage_class("Immediate"), driver(), *CSI, running("p", "n", requests={"cpu": "62"})], "may-queue"),
        ([storage_class(), driver(storageCapacity=True), *CSI], "unknown"),
        ([storage_class(provisioner="kubernetes.io/no-provisioner")], "never"),
        ([storage_class(provisioner="kubernetes.io/no-provisioner"), volume(phase="Available")], "unknown"),
        ([storage_class(), driver(), *CSI, volume(phase="Available", on="n")], "always"),
        ([storage_class(**allowed("zn")), driver(), *CSI, volume(phase="Available", on="m")], "unknown"),
        ([storage_class("Immediate"), driver(), *CSI, volume(phase="Available", on="m")], "unknown"),
        ([storage_class(), driver(), *csi_nodes("n", keys=(ZONE,))], "unknown"),  # m does not run the driver
        ([of("StorageClass", "storage.k8s.io/v1", "other", provisioner=DRIVER), driver(), *CSI], "never"),
    ],
)
def test_l8_the_class_of_claims_of_each_pod_decides_where(text: str, objects: list[Body], verdict: str) -> None:
    assert of_text(text, *objects).verdict == verdict


def test_l8_claims_that_are_there_already_are_not_made() -> None:
    ready = [storage_class(), driver(), *CSI]
    report = of_text(SET, *ready, {**claim(), **WEB}, volume(on="n"))
    assert (report.verdict, codes(report)) == ("unknown", ["GF558"])
    assert "claim data-web-1 is there already" in text_of(report, "GF558")
    other = {**claim(), "metadata": {"name": "data-website-1", "namespace": NAMESPACE}}
    assert of_text(SET, *ready, other, volume(on="n")).verdict == "always"
    # Without a provisioner, it is the claims that are there that have volumes.
    static = storage_class(provisioner="kubernetes.io/no-provisioner")
    assert of_text(SET, static, {**claim(), **WEB}, volume(on="n")).verdict == "unknown"


@pytest.mark.parametrize("kind", ["StorageClass", "CSINode", "PersistentVolumeClaim"])
def test_l8_what_nobody_looked_at_is_unknown(kind: str) -> None:
    ready = [each for each in (storage_class(), driver(), *CSI) if each["kind"] != kind]
    listed = tuple(each for each in CLAIMS if each != kind)
    assert of_text(SET, *ready, listed=listed).verdict == "unknown"


def test_l8_a_volume_may_be_where_a_spread_forbids_its_pod() -> None:
    by_zone = f"topologySpreadConstraints: [{{maxSkew: 1, topologyKey: {ZONE}, whenUnsatisfiable: DoNotSchedule, "
    by_zone += "labelSelector: {matchLabels: {app: web}}}]"
    text = SET.replace("      containers:", f"      {by_zone}\n      containers:")
    assert of_text(text, storage_class(), driver(), *CSI).verdict == "always"
    assert of_text(text, storage_class("Immediate"), driver(), *CSI).verdict == "unknown"


def test_l8_two_volumes_that_may_come_to_be_in_two_zones_are_unknown() -> None:
    two = SET + SET[SET.index("  - metadata: {name: data}") :].replace("name: data", "name: log").lstrip("\n")
    ready = [driver(), *CSI]
    assert of_text(two, storage_class(), *ready).verdict == "always"
    assert of_text(two, storage_class("Immediate"), *ready).verdict == "unknown"
