"""What counts as an earlier equal run for KFP's cache: everything that decides about the result, nothing of the run.

Tests gpuflow/targets/kubeflow/containers.py.
"""

from pathlib import Path

import pytest
import yaml
from kfp import compiler, dsl

import gpuflow
from gpuflow import kubeflow
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.kubeflow import target
from gpuflow.targets.target import Request, compile_with, findings_of
from tests.targets.kubeflow.cache_key import keys_of
from tests.targets.kubeflow.compiling import HEAD, compiled

ONE = """
name: one
params: {{lr: 0.1}}
claims: {{fresh: {{size: 1Gi, storage_class: fast}}}}
steps:
  train:
    image: i:1
    command: [train, {{param: lr}}]
    cache: true
    {more}
"""
PLACES = {
    "outputs": ONE.format(more="outputs: {loss: float}"),
    "a loop": ONE.format(more="outputs: {loss: float}\n    for_each: {n: [1, 2]}"),
    "a condition": ONE.format(more="outputs: {loss: float}\n    when: params.lr > 0"),
    "a checkpoint": ONE.format(more="checkpoint: {path: /c, store: 's3://m'}\n    outputs: {loss: float}"),
    "a sub-pipeline": """
name: outer
steps:
  inner:
    pipeline:
      name: inner
      steps: {train: {image: "i:1", command: [x], cache: true, outputs: {loss: float}}}
""",
}


def notes_of(source: str, site: Site | None = None) -> dict[str, list[str]]:
    """What compiling says, by code."""
    request = Request(loads(HEAD + source.lstrip()), site or Site.load("nvidia"), None, "pipeline.yaml")
    found: dict[str, list[str]] = {}
    for finding in findings_of(target, request, compile_with(target, request, allow_lossy=True)):
        found.setdefault(finding.code, []).append(finding.message)
    return found


@pytest.mark.parametrize("place", PLACES)
def test_a_second_run_of_a_supervised_step_is_equal_to_the_first(place: str) -> None:
    text = compiled(PLACES[place])
    first, second = keys_of(text, "run-1"), keys_of(text, "run-2")
    assert first == second
    assert list(first) == ["train"]
    executors = list(yaml.safe_load_all(text))[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    (config,) = [config for config in executors.values() if "fieldPathAsEnv" in config]
    assert config["fieldPathAsEnv"] == [
        {"fieldPath": "metadata.labels['pipeline/runid']", "name": "GPUFLOW_RUN_RUN_ID"}
    ]
    assert "GF395" not in notes_of(PLACES[place])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("env: {MODE: fast}", "env: {MODE: slow}"),
        ("env: {MODE: fast}", "env: {MODE: fast, MORE: x}"),
        ("env: {T: {secret: a, key: k}}", "env: {T: {secret: b, key: k}}"),
        ("env: {T: {config_map: a, key: k}}", "env: {T: {config_map: a, key: other}}"),
        ("volumes: {/d: {config_map: a}}", "volumes: {/d: {config_map: b}}"),
        ("volumes: {/d: {claim: a, sub_path: x}}", "volumes: {/d: {claim: a, sub_path: y}}"),
        ("env: {MODE: fast}", "labels: {team: nlp}"),
    ],
)
def test_another_variable_object_or_mount_is_another_result(before: str, after: str) -> None:
    assert keys_of(compiled(ONE.format(more=before)), "r") != keys_of(compiled(ONE.format(more=after)), "r")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("memory: 1Gi", "memory: 2Gi"),
        ("env: {A: x, B: y}", "env: {B: y, A: x}"),
        ("env: {A: x}\n    labels: {team: nlp}", "env: {A: x}\n    labels: {team: vision}"),
        ("gpu: l4", "gpu: a100-80gb"),
        ("retry: 1\n    timeout: 1h", "retry: 2\n    timeout: 2h"),
    ],
)
def test_where_and_how_often_a_step_runs_decides_nothing(before: str, after: str) -> None:
    assert keys_of(compiled(ONE.format(more=before)), "r") == keys_of(compiled(ONE.format(more=after)), "r")


def test_a_step_that_is_not_cached_has_no_input_for_the_cache() -> None:
    text = compiled(ONE.format(more="env: {MODE: fast}").replace("cache: true", "cache: false"))
    assert "pipeline_cache-settings" not in text


def test_a_key_of_ones_own_replaces_all_of_it() -> None:
    source = ONE.format(more="env: {MODE: %s}\n    engines: {kubeflow: {cache_key: mine}}")
    first, second = (keys_of(compiled(source % mode), "r")["train"] for mode in ("fast", "slow"))
    assert first == second
    assert first["cache_key"] == "mine"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("args: [{run: id}]", "{run: id} differs from run to run"),
        ("args: [{run: logical_date}]", "{run: logical_date} differs from run to run"),
        ("outputs: {m: {type: file, uri: {join: ['s3://m/', {run: id}]}}}", "{run: id} differs from run to run"),
        ("volumes: {/d: {new_claim: fresh}}", 'the claim "fresh" is made anew for each run'),
    ],
)
def test_a_step_that_no_run_finds_a_result_for_is_named(more: str, why: str) -> None:
    source = ONE.format(more=more)
    (said,) = notes_of(source)["GF395"]
    assert 'step "train": cache: true' in said
    assert why in said
    text = compiled(source)
    assert keys_of(text, "run-1") != keys_of(text, "run-2"), "the note would be wrong"
    assert "GF395" not in notes_of(source + "\n    engines: {kubeflow: {cache_key: mine}}")


def test_tasks_of_a_component_find_earlier_results_too(tmp_path: Path) -> None:
    def text_of(mode: str) -> str:
        fields = {"checkpoint": {"path": "/c", "store": "s3://models"}, "outputs": {"loss": float}}
        step = gpuflow.Step(image="i:1", command=["x"], cache=True, env={"MODE": mode}, **fields)

        @dsl.pipeline(name="by-hand")
        def by_hand() -> None:
            kubeflow.component(step, name="train")()
            with dsl.ParallelFor([1, 2]):
                kubeflow.component(step, name="train")()

        compiler.Compiler().compile(by_hand, str(tmp_path / "hand.yaml"))
        return (tmp_path / "hand.yaml").read_text()

    fast = text_of("fast")
    assert set(keys_of(fast, "run-1")) == {"train", "train-2"}
    assert keys_of(fast, "run-1") == keys_of(fast, "run-2")
    assert keys_of(fast, "run-1") != keys_of(text_of("slow"), "run-1")
