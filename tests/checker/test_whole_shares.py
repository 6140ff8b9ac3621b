"""Several queues of one cohort, and several flavors before their nodes: who can really be in whose way.

Tests gpuflow/checker/contention/proof.py and gpuflow/checker/pipeline/queues/requests.py.
"""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from gpuflow.checker.kueue import Kueue
from gpuflow.checker.run import check
from gpuflow.cluster import Cluster
from gpuflow.core.errors import GpuflowError
from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.assumed import ASSUMED
from tests.checker.kueue.scenes import cluster_queue, cohort, flavor, holder, local_queue, pod_set, workload
from tests.checker.test_whole_truth import Step, Vector, moments, pipelines, placements, written
from tests.checker.whole_scenes import HEAD, NAMESPACE, Body, checked, codes, line, manifest, node, queues, quota

GPU = "nvidia.com/gpu"


def limited(gpu: int, **limits: int) -> dict[str, str | dict[str, str]]:
    """Quota of a flavor with limits on its GPUs alone: borrowingLimit, lendingLimit."""
    return {**quota(gpu), GPU: {"nominalQuota": str(gpu), **{key: str(limit) for key, limit in limits.items()}}}


def two_queues(first: int, second: int, above: str = "team", **limits: int) -> list[Body]:
    """Queues of one cohort: `left` and `right` with a LocalQueue each."""
    return [
        flavor("f"),
        cluster_queue({"f": limited(first, **limits)}, name="left", cohortName="team"),
        cluster_queue({"f": limited(second, **limits)}, name="right", cohortName=above),
        local_queue("l", "left"),
        local_queue("r", "right"),
    ]


def steps(left: int, right: int) -> str:
    each = f"command: [x], queue: {{}}, gpu: a100-80gb x {left}"
    return f"steps: {{a: {{{each.format('l')}}}, b: {{command: [x], queue: r, gpu: a100-80gb x {right}}}}}"


@pytest.mark.parametrize("limits", [{}, {"borrowingLimit": 0}, {"lendingLimit": 0}])
def test_steps_within_the_nominal_quota_of_their_own_queues_do_not_wait(limits: dict[str, int]) -> None:
    report = checked(steps(4, 4), *two_queues(4, 4, **limits))
    assert (report.verdict, codes(report)) == ("always", [])
    lines = [scope for scope in report.scopes if scope.resource == GPU]
    assert [(scope.name, str(scope.peak), scope.witness) for scope in lines] == [
        ("left", "4", ("a",)),
        ("right", "4", ("b",)),
    ]


def test_a_step_that_borrows_is_in_the_way_of_the_lender() -> None:
    report = checked(steps(4, 5), *two_queues(4, 4))
    assert (report.verdict, codes(report)) == ("may-queue", ["GF517", "GF517"])


def test_what_a_lending_limit_keeps_back_is_safe_and_the_rest_is_not() -> None:
    kept = two_queues(4, 4, lendingLimit=1)
    left = line(checked(steps(3, 5), *kept), "ClusterQueue", GPU)
    assert (left.name, left.verdict) == ("left", "always")
    assert checked(steps(4, 5), *kept).verdict == "may-queue"
    assert checked(steps(4, 6), *kept).verdict == "never"


def test_a_borrowing_limit_above_two_queues_counts_for_both_together() -> None:
    team = cohort("team", {"f": limited(0, borrowingLimit=2)}, parentName="org")
    org = cohort("org", {"f": quota(8)})
    manifests = [*two_queues(2, 2), team, org]
    assert checked(steps(3, 3), *manifests).verdict == "always"
    assert checked(steps(4, 3), *manifests).verdict == "may-queue"


def fan(count: int, gpus: int = 1, queue: str = "queue: lq, ") -> str:
    items = list(range(count))
    return f"steps: {{a: {{command: [x], {queue}gpu: a100-80gb x {gpus}, for_each: {{i: {items}}}}}}}"


SPOT, FIRM = {"pool": "spot"}, {"pool": "firm"}
NODES = [node("s", 4, labels=SPOT), node("o", 8, labels=FIRM)]


def pools(spot: int, firm: int) -> list[Body]:
    flavors = [flavor("spot", nodeLabels=SPOT), flavor("firm", nodeLabels=FIRM)]
    return queues({"spot": quota(spot), "firm": quota(firm)}, flavors=flavors)


@pytest.mark.parametrize("gpus", [1, 2])
def test_flavors_as_large_as_their_nodes_never_send_too_much_there(gpus: int) -> None:
    report = checked(fan(12 // gpus, gpus), *pools(4, 8), *NODES)
    assert (report.verdict, codes(report)) == ("always", [])
    peaks = {scope.name: str(scope.peak) for scope in report.scopes if scope.kind == "Nodes"}
    assert peaks == {"spot": "4", "firm": "8"}


def test_a_flavor_larger_than_its_nodes_may_send_too_much_there() -> None:
    report = checked(fan(12), *pools(6, 8), *NODES)
    assert (report.verdict, codes(report)) == ("may-queue", ["GF515"])
    assert line(report, "Nodes", GPU).verdict == "may-queue"


def test_pods_that_come_past_the_queue_may_fill_the_nodes() -> None:
    past = fan(12).replace("}}}", "}}, b: {command: [x], gpu: a100-80gb}}")
    report = checked(past, *pools(4, 8), *NODES)
    assert report.verdict == "may-queue"


def test_a_queue_that_charges_something_else_than_pods_ask_bounds_nothing() -> None:
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "metadata": {"name": "kueue"},
        "resources": {
            "transformations": [{"input": GPU, "strategy": "Replace", "outputs": {"example.com/credits": "1"}}]
        },
    }
    credits = {"example.com/credits": "4", "cpu": "999", "memory": "999Gi"}
    more = {**credits, "example.com/credits": "8"}
    flavors = [flavor("spot", nodeLabels=SPOT), flavor("firm", nodeLabels=FIRM)]
    report = checked(fan(12), *queues({"spot": credits, "firm": more}, flavors=flavors), configuration, *NODES)
    assert report.verdict == "may-queue"


def sent(steps: list[Step], order: tuple[int, ...], manifests: list[Body]) -> list[str] | None:
    """The flavors of pods that come in this order; `None` when one of them is not admitted at once."""
    kinds: dict[str, list[Body]] = {"ResourceFlavor": [], "ClusterQueue": [], "LocalQueue": []}
    for each in manifests:
        kinds[each["kind"]].append(each)
    held: list[Body] = []
    found: list[str] = []
    for place, each in enumerate(order):
        kueue = Kueue(
            flavors=kinds["ResourceFlavor"],
            cluster_queues=kinds["ClusterQueue"],
            local_queues=kinds["LocalQueue"],
            admitted=held,
        )
        answer = kueue.assign(workload(pod_set(gpu=str(steps[each].gpus), cpu="1", memory="1Mi"), name=f"w{place}"))
        if not answer.fits:
            return None
        name = answer.pod_sets["main"][GPU]
        held.append(holder(f"w{place}", {name: dict(answer.usage["main"])}))
        found.append(name)
    return found


def finds_no_room(steps: list[Step], manifests: list[Body], free: dict[str, list[Vector]]) -> bool:
    """Whether the last pod of some moment, in some order, may meet nodes of its flavor that are full."""
    for alive in moments(steps):
        for order in set(permutations(alive)):
            flavors = sent(steps, order, manifests)
            if flavors is None:
                return True
            own = [steps[each].gpus for each, name in zip(order[:-1], flavors[:-1], strict=True) if name == flavors[-1]]
            asked = steps[order[-1]].gpus
            for left in placements(free[flavors[-1]], [(gpus, 0) for gpus in own]):
                if not any(gpus >= asked for gpus, _ in left):
                    return True
    return False


AMOUNTS = st.lists(st.integers(1, 4), min_size=1, max_size=2)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(pipelines(3), st.integers(1, 6), st.integers(1, 6), AMOUNTS, AMOUNTS)
def test_always_holds_from_the_queue_to_the_nodes(
    steps: list[Step], spot: int, firm: int, on_spot: list[int], on_firm: list[int]
) -> None:
    manifests = pools(spot, firm)
    free = {"spot": [(gpus, 0) for gpus in on_spot], "firm": [(gpus, 0) for gpus in on_firm]}
    nodes = [
        node(f"{name}{index}", gpus, labels={"pool": name})
        for name, amounts in (("spot", on_spot), ("firm", on_firm))
        for index, gpus in enumerate(amounts)
    ]
    plain = [step._replace(cpus=1) for step in steps]
    report = checked(written(plain, ", queue: lq"), *manifests, *nodes)
    waits = finds_no_room(plain, manifests, free)
    event(f"said {report.verdict}, {'somebody waits' if waits else 'nobody waits'}")
    if waits:
        assert report.verdict != "always"


def test_a_status_that_is_no_map_is_an_error_in_the_manifest() -> None:
    broken = queues({"f": quota(8)})
    broken[1]["status"] = [{}]
    with pytest.raises(GpuflowError) as refusal:
        checked(fan(1), *broken)
    assert [(each.code, each.where.file) for each in refusal.value.findings] == [("GF403", "cluster.yaml")]


def test_a_namespace_may_leave_its_labels_empty() -> None:
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": None}}
    cluster = Cluster("cluster.yaml", (manifest(home),), assumed=ASSUMED)
    demand = demand_of(loads(HEAD + fan(1), "p.yaml"), Site.load("nvidia"), "none")
    assert check(demand, cluster, NAMESPACE).verdict == "always"
