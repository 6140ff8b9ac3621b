"""`nvidia.com/gpu: 1`, the commonest line of all: short to write, and the same pod on every target."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from gpuflow import Step, gpu
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets import load_target
from gpuflow.targets.airflow.options import AirflowOptions
from gpuflow.targets.frame import Request, compile_with
from tests.targets.test_every_target import HERE

HEAD = 'apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: "i:1"}\n'
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
WAYS = ("2", "{count: 2}", "any x 2", "{model: any, count: 2}")


def pipeline(way: str) -> Pipeline:
    return loads(f"{HEAD}steps: {{a: {{command: [train], gpu: {way}}}}}\n", "p.yaml")


def compiled(target: str, made: Pipeline, **more: Any) -> str:
    request = Request(made, Site.load("nvidia"), "team-a", "p.yaml", **more)
    return compile_with(load_target(target), request, allow_lossy=False).artifact.text


def assert_any(pod: dict[str, Any], count: int) -> None:
    """So many GPUs of whatever kind, on tainted nodes too, and nothing that pins the pod to a product."""
    spec = pod["spec"]
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": str(count)}
    assert TOLERATION in spec["tolerations"]
    assert not spec.get("nodeSelector") and not spec.get("affinity")


@pytest.mark.parametrize("target", HERE)
def test_any_gpu_is_one_short_line_on_every_target(target: str) -> None:
    reader = importlib.import_module(f"tests.targets.{target}.pods")
    texts = {compiled(target, pipeline(way)) for way in WAYS}
    texts.add(compiled(target, Pipeline("p", defaults={"image": "i:1"}, steps={"a": {"command": ["train"], "gpu": 2}})))
    assert len({text.partition("sha256:")[0] + text.partition("sha256:")[2][64:] for text in texts}) == 1
    assert_any(reader.read_pods(texts.pop())["a"], 2)


@pytest.mark.parametrize("target", HERE)
def test_a_form_narrows_the_node_labels_on_every_target(target: str) -> None:
    reader = importlib.import_module(f"tests.targets.{target}.pods")
    spec = reader.read_pods(compiled(target, pipeline("a100-80gb sxm x 8")))["a"]["spec"]
    assert "NVIDIA-A100-SXM4-80GB" in str(spec) and "PCIe" not in str(spec)
    spec = reader.read_pods(compiled(target, pipeline("a100-80gb pcie")))["a"]["spec"]
    assert spec["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-A100-80GB-PCIe"}


def test_a_stock_airflow_dag_asks_for_any_gpu_too() -> None:
    text = compiled("airflow", pipeline("1"), options=AirflowOptions(standalone=True))
    assert '"nvidia.com/gpu": "1"' in text and "gpu.product" not in text


@pytest.mark.parametrize("wish", [1, gpu(), gpu(1), "any", {"count": 1}], ids=str)
@pytest.mark.parametrize("target", [name for name in HERE if name == "argo"])
def test_a_step_in_hand_written_hera_code_asks_for_any_gpu(target: str, wish: Any) -> None:
    from gpuflow.targets.argo.alone import template_alone

    template = template_alone(Step(image="i:1", command=["train"], gpu=wish), Site.load("nvidia"), "train")
    assert template["container"]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert TOLERATION in template["tolerations"] and "nodeSelector" not in template


@pytest.mark.parametrize("target", [name for name in HERE if name == "kubeflow"])
def test_a_step_in_hand_written_kfp_code_asks_for_any_gpu(target: str, tmp_path: Any) -> None:
    from kfp import compiler, dsl

    from gpuflow import kubeflow

    @dsl.pipeline
    def hand() -> None:
        kubeflow.component(Step(image="i:1", command=["train"], gpu=1), name="train")()

    compiler.Compiler().compile(hand, str(tmp_path / "hand.yaml"))
    text = (tmp_path / "hand.yaml").read_text()
    assert "nvidia.com/gpu" in text and "gpu.product" not in text
