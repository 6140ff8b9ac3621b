"""The examples and the ready-made components, as they can run on the proof ground's node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.targets.argo.cluster.examples import OBJECTS, ROOT, Example

from .case import Case, nothing

GIVEN: dict[str, dict[str, str]] = {
    "finetune-eval": {"model": "s3://models/latest"},
    "checkpointed-training": {"data": "s3://data", "store": f"{OBJECTS}/training"},
    "dataset-staging": {"source": "/usr/local/bin"},
    "mig-batch-inference": {"model": "s3://models/latest", "output": "s3://answers"},
    "quota-gate": {"pipeline": "/p.yaml", "namespace": "kubeflow"},
}
"""What a run is given for parameters without a default."""


def cases() -> Iterator[Case]:
    """Each example of docs/examples and of kfp_components/sources that KFP can say at all.

    Not `finetune`: KFP has no word for a dozen of its settings (compile lists them), so that what is left is another
    pipeline.
    """
    folder = ROOT / "docs" / "examples"
    yield _case("nightly", folder / "nightly.yaml", lossy=True)
    yield _case("finetune-eval", folder / "finetune-eval.yaml", lossy=True)
    yield _case("first", folder / "first" / "finetune.yaml", lossy=True)
    for path in sorted((ROOT / "kfp_components" / "sources").glob("*.yaml")):
        yield _case(path.stem, path, lossy=True)


def _case(name: str, path: Any, **more: Any) -> Case:
    document = Example(path).document()
    document["name"] = name
    # There is one clock in the cluster; schedules are shown by scenes.
    document.pop("schedule", None)
    return replace(Case(name, document, GIVEN.get(name, {}), leaves_out=nothing), **more)
