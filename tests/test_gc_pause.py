"""The search for garbage is paused while a pipeline is read and compiled, and nowhere else."""

import gc
from collections.abc import Iterator

import pytest

from gpuflow import GpuflowError
from gpuflow.core import gc_pause, yaml_tree
from gpuflow.spec.loading import loads

PIPELINE = """apiVersion: gpuflow/v1
kind: Pipeline
name: small
steps:
  work: {image: "registry.example.com/work:1", command: [work]}
"""


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    was = gc.isenabled()
    yield
    if was:
        gc.enable()
    else:
        gc.disable()


def test_it_is_paused_while_a_pipeline_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, parse = [], yaml_tree.parse
    monkeypatch.setattr(yaml_tree, "parse", lambda *given: (seen.append(gc.isenabled()), parse(*given))[1])
    gc.enable()
    loads(PIPELINE)
    assert seen == [False]
    assert gc.isenabled()


def test_it_goes_on_after_a_refusal() -> None:
    gc.enable()
    with pytest.raises(GpuflowError):
        loads("steps: [")
    assert gc.isenabled()


def test_one_pause_inside_another_ends_with_the_outer_one() -> None:
    gc.enable()
    with gc_pause.gc_paused():
        with gc_pause.gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_whoever_switched_it_off_finds_it_off() -> None:
    gc.disable()
    loads(PIPELINE)
    assert not gc.isenabled()
