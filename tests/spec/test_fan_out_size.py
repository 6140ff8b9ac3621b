"""Lists that are multiplied: a bound with the numbers in it, quickly."""

from __future__ import annotations

import time

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets import load_target
from gpuflow.targets.target import Request, losses_of

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: i}\n"


def test_a_product_that_ends_nowhere_is_refused_at_once() -> None:
    text = "steps: {a: {for_each: {i: {range: 5000}, j: {range: 5000}, k: {range: 5000}}, command: [x]}}"
    begun = time.process_time()
    with pytest.raises(GpuflowError) as refusal:
        loads(HEAD + text)
    assert time.process_time() - begun < 2
    (finding,) = refusal.value.findings
    assert finding.code == "GF163"
    assert "125,000,000,000 copies (5,000 x 5,000 x 5,000); 1,000,000 is the most" in finding.message


def test_lists_count_like_ranges_and_what_only_the_run_knows_does_not() -> None:
    many = list(range(1001))
    with pytest.raises(GpuflowError, match="GF163"):
        loads(HEAD + f"steps: {{a: {{for_each: {{i: {many}, j: {{range: 1000}}}}, command: [x]}}}}")
    text = f"params: {{l: {{type: json, default: {many}}}}}\n"
    text += "steps: {a: {for_each: {i: {param: l}, j: {range: 1000}}, command: [x]}}"
    loads(HEAD + text)


@pytest.mark.parametrize(("engine", "name"), [("argo", "Argo"), ("kubeflow", "KFP")])
@pytest.mark.parametrize(("size", "is_refused"), [(100, False), (101, True)])
def test_an_engine_that_writes_every_item_has_a_smaller_bound(
    engine: str, name: str, size: int, is_refused: bool
) -> None:
    text = f"steps: {{a: {{for_each: {{i: {{range: 1000}}, j: {{range: {size}}}}}, command: [x]}}}}"
    request = Request(loads(HEAD + text), Site.load("nvidia"), None, "p.yaml")
    found = [loss for loss in losses_of(load_target(engine), request) if loss.code == "GF313"]
    assert [loss.message for loss in found] == (
        [f'step "a": the fan-out makes 101,000 copies (1,000 x 101); 100,000 is the most for {name}']
        if is_refused
        else []
    )
    assert not any(loss.optional for loss in found)
