"""The examples as they can run on the one small node of the proof ground.

An example keeps everything it says but three things: CPU, memory and disk are small; `s3://` places that the
supervisor itself uses are folders on a mounted claim, because there is no object store; and the programs are stand-ins.
Images and GPU models are no edit: the site spells them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gpuflow.core import yaml_tree
from gpuflow.spec.pipeline import Pipeline

from .stage import CLAIM, MOUNT, ROOT
from .standins import IMAGE

SMALL: dict[str, Any] = {
    "cpu": {"request": "20m"},
    "memory": {"request": "32Mi", "limit": "256Mi"},
    "ephemeral_storage": "16Mi",
}
OBJECTS = f"{MOUNT}/objects"
DEVICES = {"nvidia.com/gpu": "8", "nvidia.com/gpu.shared": "8", "nvidia.com/mig-1g.10gb": "7", "rdma/hca": "4"}
"""What the node says it has while examples run; no device is attached."""
LABELS = {
    "gpuflow.test/gpu": "any",
    "nvidia.com/gpu.sharing-strategy": "mps",
    "example.com/fabric": "infiniband",
}
"""How the node is labeled meanwhile: the site's spelling of other models, and what examples ask for themselves."""


@dataclass(frozen=True)
class Example:
    """One example: its file, what a run of it is given, and which steps never run."""

    path: Path
    arguments: Mapping[str, str] = field(default_factory=dict)
    idle: frozenset[str] = frozenset()
    made: Mapping[str, str] = field(default_factory=dict)
    """Outputs that the example's own script writes, by `step.output`."""

    @property
    def name(self) -> str:
        return self.path.stem

    def document(self) -> dict[str, Any]:
        # gpuflow's own reader: to PyYAML the key `on` is true.
        tree = yaml_tree.parse(self.path.read_bytes(), str(self.path))
        return fitted(json.loads(json.dumps(tree)))


def fitted(document: dict[str, Any]) -> dict[str, Any]:
    """A pipeline's document, small enough for the node and without an object store."""
    result = {**document, "steps": {name: _fitted_step(step) for name, step in document["steps"].items()}}
    for section in ("defaults", "exit"):
        if section in document:
            steps = document[section]
            result[section] = (
                {name: _fitted_step(step) for name, step in steps.items()} if section == "exit" else _small(steps)
            )
    if "params" in document:
        result["params"] = {
            name: {**param, "default": _folder(param["default"])} if _is_store(document, name) else param
            for name, param in document["params"].items()
        }
    return result


def _is_store(document: dict[str, Any], name: str) -> bool:
    """Whether a parameter says where checkpoints are kept."""
    stores = [step.get("checkpoint", {}).get("store") for step in document["steps"].values()]
    return {"param": name} in stores


def _small(step: dict[str, Any]) -> dict[str, Any]:
    return {key: SMALL.get(key, value) for key, value in step.items()}


def _fitted_step(step: dict[str, Any]) -> dict[str, Any]:
    result = _small(step)
    for helpers in ("sidecars", "init_containers"):
        if helpers in step:
            result[helpers] = [_small(helper) for helper in step[helpers]]
    keeps = []
    if "checkpoint" in step:
        result["checkpoint"] = {**step["checkpoint"], "store": _folder(step["checkpoint"]["store"])}
        keeps.append("checkpoint")
    if "outputs" in step:
        result["outputs"] = {name: _fitted_output(output) for name, output in step["outputs"].items()}
        keeps += [name for name, output in step["outputs"].items() if isinstance(output, dict) and "uri" in output]
    volumes = dict(step.get("volumes", {}))
    if keeps:
        volumes[MOUNT] = {"claim": CLAIM}
    paths = [output.get("path", "") for output in result.get("outputs", {}).values() if isinstance(output, dict)]
    for folder in sorted({str(Path(path).parent) for path in paths if path}):
        volumes.setdefault(folder, {"empty_dir": "1Gi"})
    return {**result, "volumes": volumes} if volumes else result


def _fitted_output(output: Any) -> Any:
    return {**output, "uri": _folder(output["uri"])} if isinstance(output, dict) and "uri" in output else output


def _folder(text: Any) -> Any:
    """An `s3://` place as a folder; a join keeps its other parts."""
    if isinstance(text, str):
        return re.sub(r"^s3://", f"{OBJECTS}/", text)
    if isinstance(text, dict) and "join" in text:
        return {"join": [_folder(text["join"][0]), *text["join"][1:]]}
    return text


def site_text(pipelines: list[Pipeline]) -> str:
    """The proof ground's spelling: every image is the stand-ins', every GPU model is the node's."""
    images = sorted({image for pipeline in pipelines for image in _images(pipeline)})
    models = {name: {"labels": {"gpuflow.test/gpu": "any"}} for name in ("l4", "h100-80gb")}
    document = {
        "apiVersion": "gpuflow/v1",
        "kind": "Site",
        "name": "stage",
        "extends": "nvidia",
        "images": {"rewrites": dict.fromkeys(images, IMAGE)},
        "gpu": {"models": models},
    }
    return yaml.safe_dump(document)


def _images(pipeline: Pipeline) -> Iterator[str]:
    for name in (*pipeline.steps, *pipeline.exit):
        step = pipeline.effective(name)
        if step.pipeline is not None:
            yield from _images(step.pipeline)
        elif step.image is not None:
            yield step.image
            yield from (helper.image for helper in (*step.init_containers, *step.sidecars))


EXAMPLES = (
    Example(Path(__file__).with_name("lists.yaml")),
    Example(ROOT / "docs" / "examples" / "nightly.yaml", idle=frozenset({"notify"})),
    Example(ROOT / "docs" / "examples" / "finetune-eval.yaml", {"model": "s3://models/{{latest}}"}),
    Example(
        ROOT / "docs" / "examples" / "finetune.yaml",
        idle=frozenset({"page"}),
        made={"plan.languages": '["de", "en", "fr"]', "plan.rows": "1200000"},
    ),
    *(
        Example(path, idle=frozenset({"refuse"}))
        for path in sorted((ROOT / "argo_templates" / "sources").glob("*.yaml"))
    ),
)
