"""Verdicts on pods that follow, avoid and spread, against every order of arrivals and endings on small clusters.

Tests gpuflow/checker/pipeline/nodes/domains.py and gpuflow/checker/nodes/capacity.py. Most of the scenes are in
test_domains_many.
"""

from __future__ import annotations

from random import Random

import pytest

from gpuflow.checker.nodes.pod_affinity import Affinity, PodAffinityTerm
from gpuflow.checker.report import Report
from gpuflow.kubernetes.labels import Requirement, Selector, can_hold
from tests.checker.findings.test_d_unknown import SELF, apart, bound, hosts, judged, spread, step_of, waiting
from tests.checker.nodes.domain_scenes import HOST, ZONE, Scheduler, TooMany, compare, draw, nodes_by_gpuflow, states
from tests.checker.whole_scenes import Body, codes, node, running, text_of


def test_no_always_and_no_never_is_wrong() -> None:
    said, _ = compare(range(70))
    assert said["too many states"] < 4
    assert said["always"] > 20 and said["never"] > 5 and said["unknown"] < 25, said


def test_the_small_scheduler_is_the_one_that_is_compared_with_kubernetes() -> None:
    compared = 0
    for seed in range(10_000, 10_040):
        scene, random = draw(Random(seed)), Random(seed)
        try:
            found = list(states(Scheduler(scene, cordons=False), scene))
        except TooMany:
            continue
        for state in random.sample(found, min(6, len(found))):
            for kind in scene.own:
                assert Scheduler(scene).open_to(kind, state) == nodes_by_gpuflow(scene, kind, state), (scene, state)
                compared += 1
    assert compared > 200


def together(labels: Body = SELF, key: str = ZONE, **more: object) -> Body:
    return apart(labels, key, field="podAffinity", **more)


def both(first: Body, second: Body) -> Body:
    return {"affinity": {**first["affinity"], **second["affinity"]}}


def verdict(spec: Body, *objects: Body, copies: int = 1, pods: int = 1, **more: str) -> str:
    return judged(step_of("a", spec, copies, pods, **more), *objects).verdict


def on_each(names: str, labels: Body) -> list[Body]:
    """A DaemonSet's pods on nodes n0, n1 ..."""
    return [bound(f"d{at}", f"n{at}", labels, owner="DaemonSet") for at in map(int, names)]


def test_copies_that_follow_the_first_have_room_where_every_domain_holds_them() -> None:
    assert verdict(together(), *hosts("x", "y"), copies=3) == "always"
    assert verdict(together(), *hosts("x", "y"), copies=3, cpu="22") == "may-queue"
    assert verdict(together(), *hosts("x", "x", "y", "y"), copies=4, cpu="30") == "always"
    assert verdict(together(), *hosts("x", "x", "y"), copies=4, cpu="30") == "may-queue"
    assert verdict(together(key=HOST), *hosts("x", "y"), copies=2) == "always"


def test_a_domain_that_can_only_take_a_part_of_a_gang_may_divide_it() -> None:
    assert verdict(together(), *hosts("x", "x", "y", "y"), pods=4, cpu="30") == "always"
    assert verdict(together(), *hosts("x", "x", "y"), pods=4, cpu="30") == "unknown"
    assert verdict(together(), *hosts("x", "y"), pods=4, cpu="30") == "never"
    # A pod in each zone that they mean: they may be in both.
    leaders = [bound("p", "n0"), bound("q", "n1")]
    assert verdict(together(), *hosts("x", "y"), *leaders, pods=4, cpu="30") == "unknown"


def test_who_is_followed_may_be_where_the_pod_cannot_go() -> None:
    here = {**together(), "nodeSelector": {ZONE: "x"}}
    assert verdict(dict(here), *hosts("x", "y"), copies=2) == "always"
    assert verdict(dict(here), *hosts("x", "y"), bound("p", "n1"), copies=2) == "unknown"
    free = step_of("b", {}, 1)
    assert judged([step_of("a", dict(here), 2), free], *hosts("x", "y")).verdict == "unknown"
    other = step_of("b", {}, 1, labels={"app": "b"})
    assert judged([step_of("a", dict(here), 2), other], *hosts("x", "y")).verdict == "always"
    assert verdict(dict(here), *hosts("x", "y"), waiting(SELF), copies=2) == "unknown"


def test_pods_that_stay_are_followed_for_good() -> None:
    spec = together({"app": "cache"})
    assert verdict(spec, *hosts("x", "x", "y")) == "unknown"
    assert verdict(spec, *hosts("x", "x", "y"), *on_each("0", {"app": "cache"}), copies=3) == "always"
    assert verdict(spec, *hosts("x", "x", "y"), *on_each("0", {"app": "cache"}), copies=3, cpu="40") == "may-queue"
    assert verdict(spec, *hosts("x", "x", "y"), bound("p", "n0", {"app": "cache"})) == "unknown"
    group = node("g", labels={HOST: "g", ZONE: "z"}, group=3)
    assert verdict(spec, *hosts("x", "y"), group, *on_each("0", {"app": "cache"})) == "always"
    assert verdict(together(), *hosts("x", "y"), group) == "unknown"


def contradicting(*terms: Body) -> Body:
    found = [term["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0] for term in terms]
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": found}}}


def test_terms_that_exclude_each_other_mean_no_pod() -> None:
    """The scheduler asks for one pod that all terms mean, not for one pod for each term."""
    two = contradicting(together({"app": "a"}), together({"app": "b"}, HOST))
    report = judged(step_of("a", two), *hosts("x", "y"), *on_each("0", {"app": "a"}), *on_each("1", {"app": "b"}))
    assert (report.verdict, codes(report)) == ("never", ["GF506"])
    assert "all terms must mean the same pod" in text_of(report, "GF506")
    # No pod is in two namespaces. The field of a namespace that is not shown says more in a snapshot: by hand.
    terms = (PodAffinityTerm(Selector(()), ZONE, frozenset({name}), None) for name in ("a", "b"))
    assert Affinity(tuple(terms), ()).follows_nobody
    assert verdict(together(labelSelector=None), *hosts("x")) == "never"
    assert verdict(contradicting(together({"app": "c"}), together({"tier": "b"}, HOST)), *hosts("x")) == "unknown"


def test_without_the_label_nobody_is_followed() -> None:
    report = judged(step_of("a", together(key="example.com/rack")), *hosts("x", "y"))
    assert report.verdict == "never" and "follows other pods by" in text_of(report, "GF506")


@pytest.mark.parametrize(
    ("requirements", "possible"),
    [
        ([("In", "a"), ("In", "b")], False),
        ([("In", "a"), ("NotIn", "a")], False),
        ([("Exists",), ("DoesNotExist",)], False),
        ([("NotIn", "a"), ("NotIn", "b"), ("Exists",)], True),
        ([("NotIn", "a"), ("DoesNotExist",)], True),
        ([("In", "a"), ("In", "a")], True),
        ([], True),
    ],
)
def test_whether_some_labels_meet_all_requirements(requirements: list[tuple[str, ...]], possible: bool) -> None:
    assert can_hold(Requirement("k", operator, values) for operator, *values in requirements) is possible  # type: ignore[arg-type]


def test_pods_that_keep_apart_by_zone_have_a_zone_while_there_are_as_many() -> None:
    zoned = apart(key=ZONE)
    assert verdict(zoned, *hosts("x", "x", "y", "y"), copies=2) == "always"
    assert verdict(zoned, *hosts("x", "x", "y", "z"), copies=3) == "always"
    report = judged(step_of("a", zoned, 3), *hosts("x", "x", "y", "y"))
    assert report.verdict == "may-queue"
    assert f"pods that keep apart from it by {ZONE} may be in every domain of 4 nodes" in text_of(report, "GF515")
    # A node without the label is in no zone.
    assert verdict(zoned, *hosts("x", "x"), node("w"), copies=5) == "always"


def test_a_zone_without_room_is_none_of_those_that_are_needed() -> None:
    full = [running(f"p{at}", f"n{at}", requests={"cpu": "64"}) for at in (0, 1)]
    assert verdict(apart(key=ZONE), *hosts("x", "x", "y", "y", "z"), *full, copies=2) == "always"
    assert verdict(apart(key=ZONE), *hosts("x", "x", "y", "y", "z"), *full, copies=3) == "may-queue"


def test_pods_of_other_nodes_close_the_zone_too() -> None:
    shy = step_of("a", {**apart({"app": "b"}, ZONE), "nodeSelector": {HOST: "n0"}})
    other = step_of("b", {"nodeSelector": {HOST: "n1"}}, labels={"app": "b"})
    assert judged([shy, other], *hosts("x", "x")).verdict == "may-queue"
    assert judged([shy, other], *hosts("x", "y", "y")).verdict == "always"
    asked_by_other = step_of("b", {**apart(SELF, ZONE), "nodeSelector": {HOST: "n1"}}, labels={"app": "b"})
    plain = step_of("a", {"nodeSelector": {HOST: "n0"}})
    assert judged([plain, asked_by_other], *hosts("x", "x")).verdict == "may-queue"


def test_several_runs_and_gangs_need_a_zone_for_each_pod() -> None:
    four = hosts(*"wwxxyyzz")
    assert judged(step_of("a", apart(key=ZONE), 2), *four, runs=2).verdict == "always"
    assert judged(step_of("a", apart(key=ZONE), 2), *four, runs=3).verdict == "may-queue"
    assert verdict(apart(key=ZONE), *four, pods=4) == "always"
    report = judged(step_of("a", apart(key=ZONE), pods=5), *four)
    assert report.verdict == "never" and "fewer domains than the 5 pods" in text_of(report, "GF506")
    assert verdict(apart(key=ZONE), *four, *on_each("0", SELF), pods=4) == "never"
    assert verdict(apart(key=ZONE), *four, bound("p", "n0"), pods=4) == "may-queue"


def test_a_fan_out_of_unknown_size_may_close_every_zone() -> None:
    step = step_of("a", apart(key=ZONE))
    report = judged(type(step)(step.name, step.pod_sets, None), *hosts("x", "x", "y", "y"))
    assert report.verdict == "unknown" and "GF514" in codes(report)


def two_constraints(first: Body, second: Body) -> Body:
    key = "topologySpreadConstraints"
    return {key: [*first[key], *second[key]]}


@pytest.mark.parametrize(
    ("second", "zones", "expected"),
    [
        (spread(HOST), "xxyy", "unknown"),
        (spread(HOST, maxSkew=3), "xxyy", "always"),
        (spread("example.com/rack"), "xxyy", "never"),
        (spread(HOST), "xxxx", "always"),
        (spread(HOST, minDomains=5), "xxxx", "unknown"),
        (spread(HOST, minDomains=5, maxSkew=3), "xxyy", "always"),
        (spread(HOST, labelSelector={"matchLabels": {"app": "nobody"}}), "xxyy", "always"),
    ],
)
def test_one_of_several_constraints_may_be_the_only_one_that_binds(second: Body, zones: str, expected: str) -> None:
    assert verdict(two_constraints(spread(), second), *hosts(*zones), copies=3) == expected


def test_balance_keeps_the_others_out_of_the_emptiest_domain() -> None:
    small = [node(f"n{at}", cpu="2", labels={HOST: f"n{at}", ZONE: "x"}) for at in range(3)]
    assert verdict(spread(HOST), *small, copies=6) == "always"
    assert verdict(spread(HOST), *small, copies=7) == "unknown"
    # Pods that the constraint does not count may all be there.
    crowd = step_of("b", {}, 2, labels={"app": "b"})
    assert judged([step_of("a", spread(HOST), 3), crowd], *small).verdict == "unknown"
    assert judged([step_of("a", spread(HOST), 3), step_of("b", {}, 1, labels={"app": "b"})], *small).verdict == "always"


def test_what_is_asked_together_must_hold_in_every_order() -> None:
    mixed = both(together(), apart(key=HOST))
    assert verdict(mixed, *hosts("x", "x", "y", "y"), copies=2) == "always"
    assert verdict(mixed, *hosts("x", "x", "y"), copies=2) == "may-queue"
    assert verdict({**together(), **spread(HOST, maxSkew=2)}, *hosts("x", "x"), copies=2) == "always"
    assert verdict({**together(), **spread(ZONE)}, *hosts("x", "y"), copies=2) == "unknown"


def test_labels_of_other_steps_count_where_somebody_asks_for_them() -> None:
    """Two steps that are alike but for their labels are told apart."""
    alike = [step_of("b", {}, 1, labels={"app": "b"}), step_of("c", {}, 1, labels={"app": "c"})]
    report: Report = judged([step_of("a", both(together({"app": "b"}), apart({"app": "c"}))), *alike], *hosts("x"))
    assert report.verdict == "unknown"
    counted = step_of("a", spread(ZONE, maxSkew=2, labelSelector={"matchLabels": {"app": "b"}}), 4)
    assert judged([counted, *alike], *hosts("x", "y")).verdict == "always"
