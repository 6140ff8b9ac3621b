"""Decide first, word afterwards: a refusal is a value with fields and a sentence, and no code reads a sentence back.

Tests gpuflow/checker/kueue/reasons.py and gpuflow/kubernetes/admission/field_errors.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuflow.checker.kueue import assign_flavors
from gpuflow.checker.kueue.reasons import AboveCapacity, InadmissibleReason, NoUnusedQuota, UncoveredResource
from gpuflow.kubernetes.admission.decision import admit
from gpuflow.kubernetes.admission.field_errors import LimitRequired, RequestAboveLimit
from gpuflow.kubernetes.admission.limit_range import BoundViolation
from gpuflow.kubernetes.admission.quota import QuotaExceeded, UnspecifiedResources, UsageUnknown
from tests.checker.kueue.scenes import cluster_queue, flavor, holder, local_queue, pod_set, workload
from tests.conftest import ROOT

SENTENCES = {"message", "hint", "because", "kubernetes", "reason"}
"""The attributes of findings and answers that are sentences."""
READING = {"split", "rsplit", "partition", "rpartition", "startswith", "endswith", "find", "index", "replace"}
SEARCHING = {"search", "match", "fullmatch", "finditer", "findall", "split", "sub"}
LIVE = ("runtime", "airflow")
"""They read what a live cluster or store says: sentences that are not ours."""


def is_sentence(node: ast.AST) -> bool:
    """`x.message`, or `x.message or ""`."""
    if isinstance(node, ast.BoolOp):
        return any(map(is_sentence, node.values))
    return isinstance(node, ast.Attribute) and node.attr in SENTENCES


def readings(tree: ast.AST) -> Iterator[int]:
    """The lines that look for something in a sentence."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            if any(map(is_sentence, node.comparators)):
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            method, owner = node.func.attr, node.func.value
            if (method in READING and is_sentence(owner)) or (method in SEARCHING and any(map(is_sentence, node.args))):
                yield node.lineno


def test_the_search_for_readings_finds_them() -> None:
    found = 'if "x" in finding.message: pass\n(a.because or "").split(",")\n_TAINT.search(answer.message)\n'
    assert list(readings(ast.parse(found))) == [1, 2, 3]
    assert list(readings(ast.parse("print(finding.message, other.hint or '')\nx = known.message == a\n"))) == []


def test_no_code_reads_a_sentence_of_ours() -> None:
    package = ROOT / "gpuflow"
    files = [path for path in package.rglob("*.py") if path.relative_to(package).parts[0] not in LIVE]
    found = [f"{path.relative_to(ROOT)}:{line}" for path in files for line in readings(_tree(path))]
    assert found == []


def _tree(path: Path) -> ast.AST:
    return ast.parse(path.read_text(encoding="utf-8"))


def pod(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> dict[str, Any]:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "i", "resources": resources}]}}


def quota(status: dict[str, Any], **hard: str) -> dict[str, Any]:
    return {"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"hard": hard, **status}}


def limits(**item: dict[str, str] | str) -> dict[str, Any]:
    return {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", **item}]}}


def test_a_quota_says_what_it_lacks() -> None:
    answer = admit(pod({"cpu": "3"}), quotas=[quota({"used": {"cpu": "2"}}, cpu="4")])
    assert answer.reasons == (QuotaExceeded("q", {"cpu": "3"}, {"cpu": "2"}, {"cpu": "4"}),)
    assert answer.reason == "exceeded quota: q, requested: cpu=3, used: cpu=2, limited: cpu=4"
    assert answer.message == f'pods "p" is forbidden: {answer.reason}'


def test_a_quota_says_which_containers_are_silent_and_which_usage_is_missing() -> None:
    silent = admit(pod(), quotas=[quota({"used": {"limits.cpu": "0"}}, **{"limits.cpu": "4"})])
    assert silent.reasons == (UnspecifiedResources("q", {"limits.cpu": ("main",)}),)
    unknown = admit(pod({"cpu": "1"}), quotas=[quota({"used": {}}, cpu="4")])
    assert unknown.reasons == (UsageUnknown("q", ("cpu",)),)


@pytest.mark.parametrize(
    ("asked", "item", "expected"),
    [
        ({"cpu": "3"}, {"max": {"cpu": "2"}}, ("maximum", "cpu", "limit", "3")),
        ({"cpu": "1"}, {"min": {"cpu": "2"}}, ("minimum", "cpu", "request", "1")),
        ({"cpu": "1"}, {"min": {"memory": "1Gi"}, "default": {"memory": "1Gi"}}, None),
        ({}, {"maxLimitRequestRatio": {"cpu": "2"}}, ("ratio", "cpu", "request", None)),
    ],
)
def test_a_limit_range_says_which_bound_is_broken(
    asked: dict[str, str], item: dict[str, Any], expected: tuple[str | None, ...] | None
) -> None:
    answer = admit(pod(asked, asked), limit_ranges=[limits(**item)])
    found = [each for each in answer.reasons if isinstance(each, BoundViolation)]
    assert [(each.bound, each.resource, each.side, each.given) for each in found] == ([expected] if expected else [])
    assert answer.clauses == tuple(each.sentence() for each in found)


def test_validation_says_which_rule_a_resource_breaks() -> None:
    above = admit(pod({"cpu": "3"}, {"cpu": "2"}))
    assert [(type(each), each.resource) for each in above.reasons if isinstance(each, RequestAboveLimit)] == [
        (RequestAboveLimit, "cpu")
    ]
    bare = admit(pod({"nvidia.com/gpu": "1"}))
    assert [type(each) for each in bare.reasons] == [LimitRequired]


def test_kueue_says_which_flavor_lacks_what() -> None:
    def answer(gpu: str, queue: dict[str, Any], held: str = "0") -> Any:
        return assign_flavors(
            workload(pod_set(gpu=gpu)),
            flavors=[flavor("f")],
            cluster_queues=[queue],
            local_queues=[local_queue("lq", "cq")],
            admitted=[holder("h", {"f": {"nvidia.com/gpu": held}})],
        )

    four = cluster_queue({"f": {"cpu": "99", "memory": "99Gi", "nvidia.com/gpu": "4"}})
    assert answer("8", four).reasons == (AboveCapacity("nvidia.com/gpu", "f", 0, 8, 4),)
    assert answer("3", four, held="2").reasons == (NoUnusedQuota("nvidia.com/gpu", "f", 1),)
    assert answer("1", cluster_queue({"f": {"cpu": "99", "memory": "99Gi"}})).reasons == (
        UncoveredResource("nvidia.com/gpu"),
    )
    stopped = answer("1", cluster_queue({"f": {"nvidia.com/gpu": "4"}}, stopPolicy="Hold"))
    assert (stopped.verdict, stopped.blocked) == ("blocked", InadmissibleReason.CLUSTER_QUEUE_INACTIVE)
