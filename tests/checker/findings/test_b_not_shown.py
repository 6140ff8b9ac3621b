"""Findings B2 and B3: *never* about what the snapshot does not hold, or what is about to change.

Tests gpuflow/checker/snapshot/missing_kinds.py and gpuflow/checker/rules/snapshot.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.checker.findings.snapshots import A100, HOME, LIMIT, NODE, ONE, QUEUED, home, record, shown
from tests.checker.kueue.scenes import cluster_queue, flavor, local_queue
from tests.checker.whole_scenes import codes, queues, quota, text_of

SELECTIVE = {"namespaceSelector": {"matchLabels": {"team": "nlp"}}}


def test_x8_flavors_that_nobody_looked_for_are_not_known() -> None:
    both = [cluster_queue({"f": quota(8)}), local_queue()]
    report = shown(QUEUED, HOME, NODE, *both)
    assert (report.verdict, codes(report)) == ("unknown", ["GF536"])
    assert "ResourceFlavor (queue lq)" in text_of(report, "GF536")
    assert shown(QUEUED, HOME, NODE, *both, flavor("f")).verdict == "always"
    assert shown(QUEUED, HOME, NODE, *both, flavor("other")).verdict == "never"  # a kind that is partly shown
    assert shown(QUEUED, HOME, NODE, *both, record("ResourceFlavor")).verdict == "never"


def test_x8_what_is_too_much_for_any_flavor_is_never_without_them_too() -> None:
    wide = QUEUED.replace("a100-80gb", "a100-80gb x 8")
    report = shown(wide, HOME, NODE, cluster_queue({"f": quota(4)}), local_queue())
    assert (report.verdict, "GF507" in codes(report)) == ("never", True)


def test_x9_local_queues_that_nobody_looked_for_are_not_known() -> None:
    both = [cluster_queue({"f": quota(8)}), flavor("f")]
    report = shown(QUEUED, HOME, NODE, *both)
    assert (report.verdict, codes(report)) == ("unknown", ["GF536"])
    assert "LocalQueue (queue lq)" in text_of(report, "GF536")
    assert shown(QUEUED, HOME, NODE, *both, local_queue("other")).verdict == "never"
    assert shown(QUEUED, HOME, NODE, *both, record("LocalQueue")).verdict == "never"


def test_x9_a_queue_that_takes_pods_which_name_none_may_be_among_them() -> None:
    both = [cluster_queue({"f": quota(8)}), flavor("f")]
    report = shown(A100, HOME, NODE, *both)
    assert (report.verdict, codes(report)) == ("unknown", ["GF536"])
    assert "whether a queue called default takes the pods that name none" in text_of(report, "GF536")
    assert shown(A100, HOME, NODE, *both, local_queue()).verdict == "always"
    assert shown(A100, HOME, NODE, *both, record("LocalQueue")).verdict == "always"


def test_x10_labels_of_a_namespace_that_is_not_shown_are_not_known() -> None:
    kueue = queues({"f": quota(8)}, **SELECTIVE)
    report = shown(QUEUED, NODE, LIMIT, *kueue)
    assert (report.verdict, codes(report)) == ("unknown", ["GF536"])
    assert "Namespace (whether queue lq is for team-a)" in text_of(report, "GF536")
    assert shown(QUEUED, HOME, NODE, LIMIT, *kueue).verdict == "never"
    assert shown(QUEUED, home(labels={"team": "nlp"}), NODE, LIMIT, *kueue).verdict == "always"


@pytest.mark.parametrize(("name", "verdict"), [("team-a", "always"), ("team-b", "never")])
def test_x10_the_name_of_a_namespace_is_known_without_it(name: str, verdict: str) -> None:
    selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
    assert shown(QUEUED, NODE, LIMIT, *queues({"f": quota(8)}, **selector)).verdict == verdict


CLASSES = {
    "PriorityClass": ("priority: high", {"apiVersion": "scheduling.k8s.io/v1", "value": 1}),
    "RuntimeClass": ("kubernetes: {runtime_class: high}", {"apiVersion": "node.k8s.io/v1", "handler": "h"}),
}


@pytest.mark.parametrize("kind", CLASSES)
def test_b2_a_class_is_known_by_the_same_rule(kind: str) -> None:
    field, body = CLASSES[kind]
    step = f"steps: {{a: {{command: [x], {field}}}}}"

    def named(name: str) -> dict[str, Any]:
        return {**body, "kind": kind, "metadata": {"name": name}}

    report = shown(step, HOME, NODE)
    assert (report.verdict, codes(report)) == ("unknown", ["GF536"])
    assert f"{kind} (high)" in text_of(report, "GF536")
    assert shown(step, HOME, NODE, named("high")).verdict == "always"
    assert shown(step, HOME, NODE, named("low")).verdict == "never"
    assert shown(step, HOME, NODE, record(kind)).verdict == "never"
    assert shown(ONE, HOME, NODE).verdict == "always"


def raised(enforced: str, wanted: str, key: str = "requests.nvidia.com/gpu") -> dict[str, Any]:
    return {**LIMIT, "spec": {"hard": {key: wanted}}, "status": {"hard": {key: enforced}, "used": {key: "0"}}}


def test_c16_a_quota_that_is_being_raised_refuses_nothing_forever() -> None:
    report = shown(A100, HOME, NODE, raised("0", "4"))
    assert (report.verdict, codes(report)) == ("unknown", ["GF576"])
    assert shown(A100, HOME, NODE, raised("0", "0")).verdict == "never"


def test_c16_what_is_too_much_before_and_after_is_never() -> None:
    wide = A100.replace("a100-80gb", "a100-80gb x 8")
    assert shown(wide, HOME, NODE, raised("2", "4")).verdict == "never"
    assert shown(wide, HOME, NODE, raised("8", "4")).verdict == "unknown"  # still admitted now


@pytest.mark.parametrize(("enforced", "wanted"), [("4", "8"), ("8", "4")])
def test_c16_a_change_that_decides_nothing_is_a_note(enforced: str, wanted: str) -> None:
    report = shown(A100, HOME, NODE, raised(enforced, wanted))
    assert (report.verdict, codes(report)) == ("always", [])
    assert "is being changed" in text_of(report, "GF576")
