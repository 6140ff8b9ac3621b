"""Verdicts against the truth: every moment of a small pipeline, in every order and every placement.

An *always* must never be wrong, a *never* neither. How often a *may-queue* is too careful shows in Hypothesis'
statistics (`pytest --hypothesis-show-statistics`).

Tests gpuflow/checker/contention/concurrency.py and gpuflow/checker/contention/proof.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations, product
from typing import Any, NamedTuple

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from gpuflow.checker.contention.concurrency import Concurrency, moment_bound
from gpuflow.checker.kueue import Kueue
from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.checker.kueue.scenes import cluster_queue, flavor, holder, local_queue, pod_set, workload
from tests.checker.whole_scenes import HEAD, Body, checked, node

Vector = tuple[int, int]
FIRST = "PreemptionOverBorrowing"


class Step(NamedTuple):
    """GPUs and cpus of a pod, copies, the cap on them, and the steps before it."""

    gpus: int
    cpus: int
    copies: int
    parallel: int | None
    needs: frozenset[int]


@st.composite
def pipelines(draw: st.DrawFn, most: int = 4) -> list[Step]:
    count = draw(st.integers(1, most))
    return [
        Step(
            draw(st.integers(1, 3)),
            draw(st.integers(1, 3)),
            draw(st.integers(1, 2)),
            draw(st.sampled_from([None, 1])),
            draw(st.frozensets(st.integers(0, index - 1), max_size=2)) if index else frozenset(),
        )
        for index in range(count)
    ]


def written(steps: list[Step], more: str = "") -> str:
    lines = []
    for index, step in enumerate(steps):
        fields = [f"command: [x], gpu: a100-80gb x {step.gpus}, cpu: {step.cpus}, memory: 1Mi"]
        if step.copies > 1:
            fields.append(f"for_each: {{i: {list(range(step.copies))}}}")
            fields += [f"parallel: {step.parallel}"] if step.parallel else []
        if step.needs:
            fields.append(f"needs: [{', '.join(f's{each}' for each in sorted(step.needs))}]")
        lines.append(f"  s{index}: {{{', '.join(fields)}{more}}}")
    return "steps:\n" + "\n".join(lines)


def ancestors(steps: list[Step], index: int) -> frozenset[int]:
    return steps[index].needs.union(*(ancestors(steps, each) for each in steps[index].needs))


def moments(steps: list[Step]) -> Iterator[list[int]]:
    """Every set of pods that may be alive at once, as the numbers of their steps."""
    above = [ancestors(steps, index) for index in range(len(steps))]
    for size in range(1, len(steps) + 1):
        for chosen in combinations(range(len(steps)), size):
            if any(one in above[other] for one in chosen for other in chosen):
                continue
            most = [min(steps[each].copies, steps[each].parallel or 9) for each in chosen]
            for counts in product(*(range(1, count + 1) for count in most)):
                yield [each for each, count in zip(chosen, counts, strict=True) for _ in range(count)]


def placements(free: list[Vector], pods: list[Vector]) -> Iterator[list[Vector]]:
    if not pods:
        yield free
        return
    first, *rest = pods
    for index, (gpus, cpus) in enumerate(free):
        if gpus >= first[0] and cpus >= first[1]:
            left = gpus - first[0], cpus - first[1]
            yield from placements([*free[:index], left, *free[index + 1 :]], rest)


def can_wait(steps: list[Step], nodes: list[Vector]) -> bool:
    for alive in moments(steps):
        for index in range(len(alive)):
            asking = steps[alive[index]]
            others = [(steps[each].gpus, steps[each].cpus) for each in (*alive[:index], *alive[index + 1 :])]
            for left in placements(nodes, others):
                if not any(gpus >= asking.gpus and cpus >= asking.cpus for gpus, cpus in left):
                    return True
    return False


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(pipelines(), st.lists(st.tuples(st.integers(1, 6), st.integers(1, 8)), min_size=1, max_size=3))
def test_the_verdict_on_nodes_is_never_wrong(steps: list[Step], nodes: list[Vector]) -> None:
    manifests = [node(f"n{index}", gpus, cpu=str(cpus)) for index, (gpus, cpus) in enumerate(nodes)]
    verdict = checked(written(steps), *manifests).verdict
    fits_alone = all(any(gpus >= step.gpus and cpus >= step.cpus for gpus, cpus in nodes) for step in steps)
    assert (verdict == "never") is not fits_alone
    if fits_alone:
        truth = "may-queue" if can_wait(steps, nodes) else "always"
        event(f"said {verdict}, true {truth}")
        assert verdict == truth or (verdict, truth) == ("may-queue", "always")


@settings(max_examples=100, deadline=None)
@given(pipelines(5))
def test_who_may_be_alive_beside_a_step_is_found(steps: list[Step]) -> None:
    concurrency = Concurrency(demand_of(loads(HEAD + written(steps), "p.yaml"), Site.load("nvidia")))
    truth: dict[int, set[int]] = {index: {index} for index in range(len(steps))}
    heaviest = 0
    for alive in moments(steps):
        for one in alive:
            truth[one].update(alive)
        heaviest = max(heaviest, sum(steps[each].gpus for each in alive))
    for index, others in truth.items():
        assert concurrency.concurrent_with(frozenset({f"s{index}"})) == {f"s{each}" for each in others}
    assert (
        concurrency.peak_load(tuple(((f"s{index}",), step.gpus) for index, step in enumerate(steps))).value == heaviest
    )


@settings(max_examples=100, deadline=None)
@given(pipelines(5), st.integers(1, 6))
def test_the_quick_bound_under_a_cap_is_never_too_low(steps: list[Step], cap: int) -> None:
    concurrency = Concurrency(demand_of(loads(HEAD + written(steps), "p.yaml"), Site.load("nvidia")))
    weights = {f"s{index}": step.gpus for index, step in enumerate(steps)}
    truth = max(sum(steps[each].gpus for each in alive) for alive in moments(steps) if len(alive) <= cap)
    bound = moment_bound(concurrency.tree, weights, concurrency.pods, cap)
    assert bound is not None and bound >= truth
    if len({step.gpus for step in steps}) == 1:
        assert bound == truth
    assert (
        concurrency.with_cap(cap).peak_load(tuple(((name,), weight) for name, weight in weights.items())).value == truth
    )


@st.composite
def quotas(draw: st.DrawFn) -> list[Body]:
    """One or two ClusterQueues, alone or in a cohort, of one or two flavors."""
    names = ["f", "g"][: draw(st.integers(1, 2))]
    together = draw(st.booleans())
    found: list[Body] = [flavor(name) for name in names]
    for name, local in (("cq", "lq"), ("cq2", "lq2")):

        def amount(most: int) -> dict[str, str]:
            quota = {"nominalQuota": str(draw(st.integers(0, most)))}
            if together:
                limits = draw(st.sampled_from([{}, {"borrowingLimit": "1"}, {"lendingLimit": "1"}]))
                return {**quota, **limits}
            return quota

        spec: dict[str, Any] = {"cohortName": "all"} if together else {}
        spec["preemption"] = draw(
            st.sampled_from(
                [
                    {},
                    {"withinClusterQueue": "LowerPriority"},
                    {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}},
                ]
            )
        )
        word = st.sampled_from(["MayStopSearch", "TryNextFlavor"])
        spec["flavorFungibility"] = draw(
            st.one_of(
                st.fixed_dictionaries({"whenCanBorrow": word, "whenCanPreempt": word}),
                st.just({**dict.fromkeys(("whenCanBorrow", "whenCanPreempt"), "TryNextFlavor"), "preference": FIRST}),
            )
        )
        resources = {each: {"nvidia.com/gpu": amount(6), "cpu": amount(8)} for each in names}
        found += [cluster_queue(resources, name=name, **spec), local_queue(local, name)]
    return found


def admitted_in_some_order_only(steps: list[Step], queues: list[str], manifests: list[Body], held: list[Body]) -> bool:
    """Whether some pod has to wait in some moment, when all others came before it in some order."""

    def kueue(holders: list[Body]) -> Kueue:
        kinds: dict[str, list[Body]] = {"ResourceFlavor": [], "ClusterQueue": [], "LocalQueue": []}
        for each in manifests:
            kinds[each["kind"]].append(each)
        return Kueue(
            flavors=kinds["ResourceFlavor"],
            cluster_queues=kinds["ClusterQueue"],
            local_queues=kinds["LocalQueue"],
            admitted=[*held, *holders],
        )

    for alive in moments(steps):
        for order in set(permutations(alive)):
            holders: list[Body] = []
            for place, each in enumerate(order):
                asks = pod_set(gpu=str(steps[each].gpus), cpu=str(steps[each].cpus))
                asking = workload(asks, name=f"w{place}", spec={"queueName": queues[each]})
                found = kueue(holders).assign(asking)
                if not found.fits:
                    return True
                usage: dict[str, dict[str, str]] = {}
                for resource, name in found.pod_sets["main"].items():
                    usage.setdefault(name, {})[resource] = found.usage["main"][resource]
                holders.append(holder(f"w{place}", usage, queue="cq2" if queues[each] == "lq2" else "cq"))
    return False


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(pipelines(3), quotas(), st.data())
def test_the_verdict_on_queues_is_never_wrong(steps: list[Step], manifests: list[Body], data: st.DataObject) -> None:
    queues = data.draw(st.lists(st.sampled_from(["lq", "lq2"]), min_size=len(steps), max_size=len(steps)))
    held = data.draw(st.sampled_from([[], [holder("x", {"f": {"nvidia.com/gpu": "2", "cpu": "1"}})]]))
    lines = written(steps, ", queue: %s").splitlines()
    text = "\n".join([lines[0], *(line % queue for line, queue in zip(lines[1:], queues, strict=True))])
    excluded = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "resources": {"excludeResourcePrefixes": ["memory"]},
    }
    verdict = checked(text, *manifests, *held, excluded).verdict
    waits = admitted_in_some_order_only(steps, queues, manifests, held)
    event(f"said {verdict}, {'somebody waits' if waits else 'nobody waits'}")
    assert verdict in ("always", "may-queue", "never")
    if waits:
        assert verdict != "always"
    else:
        assert verdict != "never"
