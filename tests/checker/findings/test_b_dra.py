"""B1 (N60), D3 (N60b): GPUs that come through dynamic resource allocation, in claims and as extended resources.

Tests gpuflow/checker/dra/inventory.py, gpuflow/checker/dra/plan.py and
gpuflow/checker/pipeline/nodes/verdicts.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.checker.dra_scenes import (
    GPU,
    LISTED,
    PARTITION,
    Body,
    device_class,
    exactly,
    gpu,
    gpus,
    holding,
    judged,
    partitions,
    request,
    slice_of,
    step,
    steps,
    template,
)
from tests.checker.whole_scenes import A100, NAMESPACE, codes, line, node, running, text_of

RESOURCE = "nvidia.com/gpu"
STANDS_IN = device_class(resource=RESOURCE)


def labeled(name: str, **more: Any) -> Body:
    """A node without a device plug-in, with the labels of an A100 node."""
    return node(name, labels=A100, **more)


def asks(count: int, copies: int = 1) -> str:
    over = f", for_each: {{i: [{', '.join(map(str, range(copies)))}]}}" if copies > 1 else ""
    return f"steps: {{a: {{command: [x], gpu: a100-80gb x {count}{over}}}}}"


# Extended resources that a class stands for ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "copies", "verdict"), [(1, 1, "always"), (4, 2, "always"), (4, 3, "may-queue"), (5, 1, "never")]
)
def test_b1_devices_of_a_class_count_as_the_resource_it_stands_for(count: int, copies: int, verdict: str) -> None:
    nodes = [labeled("n"), labeled("m"), gpus("n", 4), gpus("m", 4)]
    report = judged(asks(count, copies), STANDS_IN, *nodes)
    assert report.verdict == verdict
    scope = line(report, "Nodes", RESOURCE)
    assert (str(scope.hard), scope.verdict) == ("8", verdict)


def test_b1_a_refusal_is_in_the_schedulers_words() -> None:
    report = judged(asks(5), STANDS_IN, labeled("n"), gpus("n", 4))
    assert codes(report) == ["GF506"]
    assert report.findings[0].kubernetes == "0/1 nodes are available: 1 cannot allocate all claims."
    assert "nvidia.com/gpu: asked 5, the largest eligible node has 4" in text_of(report, "GF506")


def test_b1_devices_in_use_are_not_free() -> None:
    objects = [STANDS_IN, labeled("n"), gpus("n", 4)]
    assert judged(asks(4), *objects).verdict == "always"
    report = judged(asks(4), *objects, holding("n", "gpu-1"))
    assert report.verdict == "may-queue"
    assert (str(line(report, "Nodes", RESOURCE).used), str(line(report, "Nodes", RESOURCE).hard)) == ("1", "4")


def test_b1_a_bound_pod_is_counted_by_its_claim_and_not_twice() -> None:
    objects = [STANDS_IN, labeled("n"), gpus("n", 4), running("x", "n", 1), holding("n", "gpu-0")]
    assert judged(asks(3), *objects).verdict == "always"
    assert judged(asks(4), *objects).verdict == "may-queue"


def test_b1_a_device_plug_in_comes_first_on_a_node_that_has_it() -> None:
    objects = [STANDS_IN, node("n", 2), labeled("m"), gpus("n", 8), gpus("m", 1)]
    assert judged(asks(2), *objects).verdict == "always"
    assert judged(asks(3), *objects).verdict == "never"


def test_b1_without_the_class_no_node_has_the_resource() -> None:
    assert judged(asks(1), device_class(), labeled("n"), gpus("n", 4)).verdict == "never"


def test_b1_classes_that_nobody_listed_may_stand_for_what_no_node_has() -> None:
    report = judged(asks(1), labeled("n"), listed=frozenset())
    assert report.verdict == "unknown"
    assert "no node has nvidia.com/gpu, and the snapshot does not show whether a class does" in text_of(report, "GF547")
    assert judged(asks(1), labeled("n")).verdict == "never"
    # A device plug-in of the same vendor is at work: it would have said so.
    assert judged(asks(1), labeled("n", offers={"nvidia.com/mig-1g.10gb": "7"}), listed=frozenset()).verdict == "never"


def test_b1_claims_that_nobody_listed_may_hold_the_devices() -> None:
    report = judged(asks(1), STANDS_IN, labeled("n"), gpus("n", 4), listed=LISTED - {"ResourceClaim"})
    assert report.verdict == "unknown"
    assert "the snapshot shows no ResourceClaim" in text_of(report, "GF547")


def test_d3_a_class_says_nothing_to_a_pipeline_without_devices() -> None:
    report = judged("steps: {a: {command: [x]}}", STANDS_IN, labeled("n"), gpus("n", 4))
    assert (report.verdict, codes(report)) == ("always", [])


# Claims ---------------------------------------------------------------------------------------------------

TWO_NODES = [device_class(), node("n"), node("m"), gpus("n", 4), gpus("m", 4)]


@pytest.mark.parametrize(
    ("count", "copies", "verdict"), [(1, 8, "always"), (1, 9, "may-queue"), (3, 2, "always"), (5, 1, "never")]
)
def test_a_claim_of_a_template_is_counted_in_devices(count: int, copies: int, verdict: str) -> None:
    report = judged(steps(step(copies=copies)), *TWO_NODES, template(exactly(count=count)))
    assert report.verdict == verdict
    assert line(report, "Nodes", f"{GPU}.deviceclass.resource.k8s.io/devices").verdict == verdict


def test_a_claim_that_no_node_can_satisfy_is_never() -> None:
    report = judged(steps(), *TWO_NODES, template(exactly(count=5)))
    assert codes(report) == ["GF546"]
    assert 'step "a" finds the devices of claim gpus on no node' in text_of(report, "GF546")
    assert "asked 5, the largest eligible node has 4" in text_of(report, "GF546")
    assert report.findings[0].kubernetes == "0/2 nodes are available: 2 cannot allocate all claims."


def test_steps_that_claim_the_same_devices_compete() -> None:
    lines = [step(), step(name="b")]
    one_node = [device_class(), node("n"), gpus("n", 3)]
    assert judged(steps(*lines), *one_node, template(exactly(count=1))).verdict == "always"
    assert judged(steps(*lines), *one_node, template(exactly(count=2))).verdict == "may-queue"
    after = [step(), step(name="b", needs="[a]")]
    assert judged(steps(*after), *one_node, template(exactly(count=2))).verdict == "always"


@pytest.mark.parametrize(
    ("selector", "verdict"),
    [
        (f"device.attributes['{GPU}'].productName.startsWith('NVIDIA H100')", "always"),
        (f"device.attributes['{GPU}'].productName == 'NVIDIA L4'", "never"),
        (f"device.capacity['{GPU}'].memory.compareTo(quantity('80Gi')) >= 0", "always"),
        (f"device.capacity['{GPU}'].memory.compareTo(quantity('81Gi')) >= 0", "never"),
        (f"device.attributes['{GPU}'].driverVersion.isLessThan(semver('570.0.0'))", "never"),
        (f"device.attributes['{GPU}'].profile == '1g.10gb'", "never"),  # an error on every device
        (f"size(device.attributes['{GPU}'].productName) > 5", "unknown"),
    ],
)
def test_selectors_decide_which_devices_count(selector: str, verdict: str) -> None:
    report = judged(steps(), device_class(), node("n"), gpus("n", 1), template(exactly(selector=selector)))
    assert report.verdict == verdict
    if verdict == "unknown":
        assert "size()" in text_of(report, "GF547") and "is not evaluated here" in text_of(report, "GF547")


def test_a_selector_that_fails_on_one_of_the_devices_is_unknown() -> None:
    odd = gpu(1)
    del odd["attributes"]["productName"]
    slices = slice_of("n", [gpu(0), odd])
    selector = f"device.attributes['{GPU}'].productName == 'NVIDIA H100 80GB HBM3'"
    report = judged(steps(), device_class(), node("n"), slices, template(exactly(selector=selector)))
    assert report.verdict == "unknown"
    assert "no such key: productName" in text_of(report, "GF547")


def test_partitions_share_the_counters_of_their_gpu() -> None:
    mig = device_class("mig.nvidia.com", PARTITION)
    objects = [mig, node("n"), *partitions("n", "1g.10gb", [0, 1, 2, 3, 4, 5, 6], 1)]
    ask = template(exactly(device_class="mig.nvidia.com", selector=f"device.attributes['{GPU}'].profile == '1g.10gb'"))
    assert judged(steps(step(copies=7)), *objects, ask).verdict == "always"
    assert judged(steps(step(copies=8)), *objects, ask).verdict == "may-queue"


def test_partitions_that_overlap_are_not_counted_one_by_one() -> None:
    mig = device_class("mig.nvidia.com", PARTITION)
    objects = [mig, node("n"), *partitions("n", "4g.40gb", [0, 2, 4], 4)]
    two, three = (template(exactly(count=count, device_class="mig.nvidia.com")) for count in (2, 3))
    assert judged(steps(), *objects, two).verdict == "always"
    assert judged(steps(), *objects, three).verdict == "never"
    assert judged(steps(step(copies=2)), *objects, two).verdict == "may-queue"


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ({"constraints": [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}]}, "always"),
        ({"constraints": [{"matchAttribute": f"{GPU}/uuid"}]}, "never"),
    ],
)
def test_constraints_over_the_devices_of_a_claim(more: Body, verdict: str) -> None:
    assert judged(steps(), *TWO_NODES, template(exactly(count=2), **more)).verdict == verdict


def test_all_devices_that_no_constraint_allows_together_are_never() -> None:
    every = {"name": "r", "exactly": request(allocationMode="All")}
    apart = [{"matchAttribute": f"{GPU}/uuid"}]
    assert judged(steps(), *TWO_NODES, template(every, constraints=apart)).verdict == "never"
    # The error ends the attempt on the node that could take it too.
    other = slice_of("m", [gpu(0)])
    objects = [*TWO_NODES[:-1], other]
    report = judged(steps(), *objects, template(every, constraints=apart))
    assert report.verdict == "unknown" and "a claim constraint would not be satisfied" in text_of(report, "GF547")


def test_one_of_several_alternatives_is_enough() -> None:
    given = {"name": "r", "firstAvailable": [{"name": "x", **request(8)}, {"name": "y", **request(2)}]}
    assert judged(steps(), *TWO_NODES, template(given)).verdict == "always"
    large = {"name": "r", "firstAvailable": [{"name": "x", **request(8)}, {"name": "y", **request(6)}]}
    assert judged(steps(), *TWO_NODES, template(large)).verdict == "never"


def test_all_devices_of_a_node_wait_for_the_one_in_use() -> None:
    every = template({"name": "r", "exactly": request(allocationMode="All")})
    objects = [device_class(), node("n"), gpus("n", 4), every]
    assert judged(steps(), *objects).verdict == "always"
    assert judged(steps(), *objects, holding("n", "gpu-2")).verdict == "may-queue"


def test_a_tainted_device_needs_a_toleration() -> None:
    taint = {"key": "broken", "effect": "NoSchedule"}
    objects = [device_class(), node("n"), slice_of("n", [gpu(0, taints=[taint])])]
    assert judged(steps(), *objects, template()).verdict == "never"
    tolerant = template(exactly(tolerations=[{"key": "broken", "operator": "Exists"}]))
    assert judged(steps(), *objects, tolerant).verdict == "always"


def test_a_pool_that_is_being_updated_is_unknown() -> None:
    objects = [device_class(), node("n"), slice_of("n", [gpu(0)], 2), template(exactly(count=2))]
    report = judged(steps(), *objects)
    assert report.verdict == "unknown" and "is being updated" in text_of(report, "GF547")


@pytest.mark.parametrize("missing", ["DeviceClass", "ResourceClaimTemplate"])
def test_an_object_that_a_claim_names_and_that_is_not_there(missing: str) -> None:
    objects = [each for each in (*TWO_NODES, template()) if each["kind"] != missing]
    report = judged(steps(), *objects)
    assert (report.verdict, codes(report)) == ("never", ["GF546"])
    assert judged(steps(), *objects, listed=LISTED - {missing}).verdict == "unknown"


def test_a_claim_by_name_that_is_held_keeps_its_pod_on_the_node() -> None:
    mine = holding("n", "gpu-0", name="mine", namespace=NAMESPACE)
    where = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}
    mine["status"]["allocation"]["nodeSelector"] = where
    text = steps(step("{claim: mine}"))
    assert judged(text, *TWO_NODES, mine).verdict == "always"
    full = running("x", "n", requests={"cpu": "64"})
    assert judged(text, *TWO_NODES, mine, full).verdict == "may-queue"
    assert judged(text, *TWO_NODES).verdict == "never"


def test_pods_that_share_a_claim_are_not_counted() -> None:
    mine = holding("n", name="mine", namespace=NAMESPACE)
    del mine["status"]
    assert judged(steps(step("{claim: mine}")), *TWO_NODES, mine).verdict == "always"
    report = judged(steps(step("{claim: mine}", copies=2)), *TWO_NODES, mine)
    assert report.verdict == "unknown" and "several pods share the claim mine" in text_of(report, "GF547")


def test_devices_that_several_nodes_reach_are_unknown() -> None:
    shared = slice_of("n", [gpu(0)])
    del shared["spec"]["nodeName"]
    shared["spec"]["allNodes"] = True
    report = judged(steps(), device_class(), node("n"), node("m"), shared, template())
    assert report.verdict == "unknown" and "devices that several nodes reach" in text_of(report, "GF547")


def test_steps_with_different_claims_on_the_same_devices_are_judged_with_care() -> None:
    any_gpu, fast = (
        template(name="any"),
        template(exactly(selector=f"device.attributes['{GPU}'].uuid == 'GPU-0'"), name="one"),
    )
    lines = steps(step("{template: any}"), step("{template: one}", name="b"))
    assert judged(lines, device_class(), node("n"), gpus("n", 2), any_gpu, fast).verdict == "may-queue"
    after = steps(step("{template: any}"), step("{template: one}", name="b", needs="[a]"))
    assert judged(after, device_class(), node("n"), gpus("n", 2), any_gpu, fast).verdict == "always"


def test_the_devices_of_new_nodes_are_unknown() -> None:
    report = judged(steps(), device_class(), node("n"), node("g", group=3), gpus("n", 1), template(exactly(count=2)))
    assert report.verdict == "unknown" and "which devices the nodes bring that a node group adds" in text_of(
        report, "GF547"
    )


def test_steps_of_which_one_has_a_constraint_still_share_their_devices() -> None:
    plain = template(name="plain")
    bound = template(exactly(count=2), name="bound", constraints=[{"matchAttribute": f"{GPU}/productName"}])
    lines = steps(step("{template: plain}"), step("{template: bound}", name="b"))
    report = judged(lines, device_class(), node("n"), gpus("n", 2), plain, bound)
    assert (report.verdict, codes(report)) == ("may-queue", ["GF515"])
    assert "steps that run at the same time may take the devices of its claims on 1 node" in text_of(report, "GF515")
    held = judged(lines, device_class(), node("n"), gpus("n", 2), plain, bound, holding("n", "gpu-0"))
    assert "none of 1 node (for a) has the devices of its claims free" in text_of(held, "GF515")


def test_a_pod_of_others_that_waits_for_devices_may_take_them() -> None:
    waiting = running("x", "")
    del waiting["spec"]["nodeName"]
    objects = [device_class(), node("n"), gpus("n", 2), template()]
    assert judged(steps(), *objects, waiting).verdict == "always"
    waiting["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": "x"}]
    report = judged(steps(), *objects, waiting)
    assert report.verdict == "unknown" and "waits for devices too" in text_of(report, "GF547")


def part(amount: str, name: str = "gpus") -> Body:
    return template(exactly(capacity={"requests": {"memory": amount}}), name=name)


@pytest.mark.parametrize(
    ("amount", "copies", "devices", "verdict"),
    [
        ("10Gi", 8, 1, "always"),
        ("10Gi", 9, 1, "may-queue"),
        ("10Gi", 16, 2, "always"),
        ("30Gi", 2, 1, "always"),
        ("30Gi", 3, 1, "may-queue"),
        ("30Gi", 4, 2, "always"),
        ("30Gi", 5, 2, "may-queue"),
        ("81Gi", 1, 2, "never"),
    ],
)
def test_l9_parts_of_a_device_are_counted_by_what_they_take(
    amount: str, copies: int, devices: int, verdict: str
) -> None:
    scene = [node("n"), device_class(), part(amount), gpus("n", devices, allowMultipleAllocations=True)]
    assert judged(steps(step(copies=copies)), *scene).verdict == verdict


def test_l9_large_parts_may_lie_so_that_a_larger_one_has_no_room() -> None:
    small, large = step(copies=2), step("{template: large}", name="b")
    scene = [node("n"), device_class(), part("30Gi"), part("60Gi", "large")]
    assert judged(steps(small, large), *scene, gpus("n", 2, allowMultipleAllocations=True)).verdict == "may-queue"
    assert judged(steps(small, large), *scene, gpus("n", 3, allowMultipleAllocations=True)).verdict == "always"


def test_l9_a_shared_device_without_a_capacity_is_there_for_everybody() -> None:
    free = {key: value for key, value in gpu(0, allowMultipleAllocations=True).items() if key != "capacity"}
    scene = [node("n"), device_class(), template(), slice_of("n", [free])]
    assert judged(steps(step(copies=20)), *scene).verdict == "always"
    assert judged(steps(step(gang="3")), *scene).verdict == "always"


def test_l9_a_part_of_all_is_the_whole_device() -> None:
    scene = [node("n"), device_class(), template(), gpus("n", 1, allowMultipleAllocations=True)]
    assert judged(steps(step(copies=2)), *scene).verdict == "may-queue"
    assert judged(steps(step()), *scene).verdict == "always"
