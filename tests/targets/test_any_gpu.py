"""`nvidia.com/gpu: 1`, the commonest line of all: short to write, and the same pod on every target."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from gpuflow.pod import pod_for
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets import load_target
from gpuflow.targets.airflow.facts import AirflowOptions
from gpuflow.targets.target import Request, compile_with
from tests.targets.test_every_target import HERE

HEAD = 'apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: "i:1"}\n'
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
WAYS = ("2", "{count: 2}", "any x 2", "{model: any, count: 2}")


def pipeline(way: str) -> Pipeline:
    return loads(f"{HEAD}steps: {{a: {{command: [train], gpu: {way}}}}}\n", "p.yaml")


def compiled(target: str, made: Pipeline, **more: Any) -> str:
    request = Request(made, Site.load("nvidia"), "team-a", "p.yaml", **more)
    return compile_with(load_target(target), request, allow_lossy=False).artifact.text


def assert_any(target: str, made: Pipeline, count: int) -> None:
    """The pod of the compiled file: so many GPUs of whatever kind, on tainted nodes too, and pinned to no product."""
    reader = importlib.import_module(f"tests.targets.{target}.pods")
    text = compiled(target, made)
    own = pod_for(made, "a", Site.load("nvidia"))
    assert reader.read_pods(text)["a"] == reader.comparable(own)
    spec = own["spec"]
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": str(count)}
    assert spec["tolerations"] == [TOLERATION]
    assert "nodeSelector" not in spec and "affinity" not in spec and "gpu.product" not in text


@pytest.mark.parametrize("target", HERE)
def test_any_gpu_is_one_short_line_on_every_target(target: str) -> None:
    texts = {compiled(target, pipeline(way)) for way in WAYS}
    assert len({text.partition("sha256:")[0] + text.partition("sha256:")[2][64:] for text in texts}) == 1
    assert_any(target, pipeline("2"), 2)
    assert_any(target, pipeline("any"), 1)
    assert_any(target, Pipeline("p", defaults={"image": "i:1"}, steps={"a": {"command": ["train"], "gpu": 2}}), 2)


@pytest.mark.parametrize("target", HERE)
def test_a_form_narrows_the_node_labels_on_every_target(target: str) -> None:
    text = compiled(target, pipeline("a100-80gb sxm x 8"))
    assert "NVIDIA-A100-SXM4-80GB" in text and "PCIe" not in text
    text = compiled(target, pipeline("a100-80gb pcie"))
    assert "NVIDIA-A100-80GB-PCIe" in text and "SXM" not in text


def test_a_stock_airflow_dag_asks_for_any_gpu_too() -> None:
    text = compiled("airflow", pipeline("1"), options=AirflowOptions(standalone=True))
    assert '"nvidia.com/gpu": "1"' in text and "gpu.product" not in text
