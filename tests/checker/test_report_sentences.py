"""What a tired person reads: sentences that agree with their subject, lists that end, hints that hold.

Tests gpuflow/checker/report.py, gpuflow/checker/report.py, gpuflow/report/ci_formats.py and gpuflow/report/text.py.
"""

from __future__ import annotations

import json

import pytest

from gpuflow.checker.fit import fit
from gpuflow.checker.report import Report
from gpuflow.cluster import Cluster
from gpuflow.core.errors import Finding, Where
from gpuflow.report.ci_formats import github, sarif
from gpuflow.report.text import comparison, markdown
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.assumed import ASSUMED
from tests.checker.whole_scenes import (
    HEAD,
    HOME,
    NAMESPACE,
    Body,
    checked,
    manifest,
    node,
    queues,
    quota,
    running,
    text_of,
)

MANY = 30


def steps(count: int, rest: str) -> str:
    return "steps:\n" + "".join(f"  s{index}: {{command: [x], {rest}}}\n" for index in range(count))


def gpus(hard: int, name: str = "q", **more: str) -> Body:
    amounts = {"requests.nvidia.com/gpu": str(hard), **more}
    status = {"hard": amounts, "used": dict.fromkeys(amounts, "0")}
    metadata = {"name": name, "namespace": NAMESPACE}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata,
        "spec": {"hard": amounts},
        "status": status,
    }


QUEUE = queues({"f": quota(2)})
SCENES: dict[str, tuple[str, list[Body], str]] = {
    "GF501": ("gpu: a100-80gb x 2", [gpus(1)], "can never be admitted"),
    "GF506": ("gpu: a100-80gb x 9", [node("n", 8)], "fit on no node"),
    "GF507": ("gpu: a100-80gb x 9, queue: lq", QUEUE, "wait in queue lq forever"),
    "GF512": ("gpu: a100-80gb", [gpus(2)], "together ask for 30"),
    "GF515": ("gpu: a100-80gb", [node("n", 2)], "together they ask for up to 30"),
    "GF517": ("gpu: a100-80gb, queue: lq", QUEUE, "together they ask for up to 30"),
}


@pytest.mark.parametrize("code", SCENES)
def test_many_steps_are_counted_and_the_verb_agrees_with_them(code: str) -> None:
    rest, objects, words = SCENES[code]
    report = checked(steps(MANY, rest), *objects)
    (message,) = [each.message for each in report.findings if each.code == code]
    assert "s0, s1, s2, s3, s4 and 25 more" in message
    assert words in message
    assert "s5" not in message


def test_one_step_and_several_on_a_full_node_have_their_verb() -> None:
    full = [node("n", 2), running("r", "n", 2)]
    assert 'step "s0" has no room now' in text_of(checked(steps(1, "gpu: a100-80gb"), *full), "GF515")
    assert "steps s0, s1 have no room now" in text_of(checked(steps(2, "gpu: a100-80gb"), *full), "GF515")


def test_the_parallelism_that_is_promised_is_the_largest_that_holds() -> None:
    text, objects = steps(9, "gpu: a100-80gb x 2"), [gpus(9), node("n", 8), node("m", 8)]
    assert "always admitted with parallel: 4" in text_of(checked(text, *objects), "GF512")
    assert checked(f"parallel: 4\n{text}", *objects).verdict == "always"
    assert checked(f"parallel: 5\n{text}", *objects).verdict == "may-queue"


def test_quotas_with_keys_in_common_say_what_each_says_alone() -> None:
    text = steps(3, "gpu: a100-80gb")
    pair = gpus(2), gpus(9, "r", pods="9", **{"requests.cpu": "1"})
    both = checked(text, *pair)
    apart = [scope for each in pair for scope in checked(text, each).scopes]
    assert list(both.scopes) == apart
    assert [scope.verdict for scope in apart] == ["may-queue", "always", "may-queue", "always"]


def test_the_last_line_of_markdown_is_no_part_of_the_last_finding() -> None:
    lines = markdown([checked(steps(3, "gpu: a100-80gb"), gpus(2))]).splitlines()
    (last,) = [index for index, line in enumerate(lines) if line.startswith("Checked against")]
    assert lines[last - 1] == ""


def test_a_comparison_says_what_still_fails_the_check() -> None:
    never = checked(steps(1, "gpu: a100-80gb x 2"), gpus(1))
    told = comparison(never, never)
    assert '- as before: **GF501** step "s0" can never be admitted' in told
    assert "  - Kubernetes: `pods" in told


FAILING = {"never", "unknown"}
LEVELS = {"always": "notice", "may-queue": "warning", "unknown": "error", "never": "error"}


@pytest.mark.parametrize("verdict", LEVELS)
def test_the_annotation_of_the_verdict_is_an_error_exactly_when_the_check_fails(verdict: str) -> None:
    report = Report("p", "ns", "none", "c", verdict, (), ())  # type: ignore[arg-type]  # a literal from the table above
    assert github([report], FAILING) == f"::{LEVELS[verdict]} title=gpuflow::p in ns: {verdict}\n"


def test_sarif_names_files_by_uris() -> None:
    finding = Finding("GF531", "kinds that are not judged", Where("my cluster/100%.yaml", 3, 1))
    document = json.loads(sarif([Report("p", "ns", "none", "my cluster", "unknown", (), (finding,))]))
    (result,) = document["runs"][0]["results"]
    (location,) = result["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "my%20cluster/100%25.yaml"


def test_a_fitted_pipeline_says_when_something_else_may_keep_it_waiting() -> None:
    pipeline = loads(HEAD + steps(4, "gpu: a100-80gb"), "p.yaml")
    for bodies, rest in (
        ([gpus(2)], ""),
        ([gpus(2), node("n", 2), running("r", "n", 2)], "check still says may-queue"),
    ):
        cluster = Cluster("c", tuple(map(manifest, (HOME, *bodies))), assumed=ASSUMED)
        found = fit(pipeline, Site.load("nvidia"), cluster, NAMESPACE, "none")
        assert found.pipeline.parallel == 2
        assert found.reason.startswith("parallelism 2: with more, requests.nvidia.com/gpu could pass quota q (2)")
        assert rest in found.reason
        assert ("still" in found.reason) is bool(rest)
