"""The pipelines: those that files of others become, and our own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gpuflow.core.errors import GpuflowError
from gpuflow.importing.pipelines import import_document
from gpuflow.readers import Library
from gpuflow.spec.canonical import to_yaml
from gpuflow.spec.loading import load
from tests.conftest import CORPORA, ROOT
from tests.importing.corpus import documents_below
from tests.importing.samples import SITE
from tests.local.programs import HEAD as LOCAL_HEAD
from tests.targets import every_construct


@dataclass(frozen=True, eq=False)
class Case:
    """One pipeline: where it is from, its name, and its canonical text."""

    group: str
    name: str
    text: str
    site: str = ""
    expected: dict[str, Any] | None = None
    """A case of tests/local/constructs.yaml, which runs as it is, with its own programs."""


def of_corpora() -> Iterator[Case | None]:
    """The objects that are pipelines of ours once they are imported; None for each of the others."""
    for folder in sorted(path for path in CORPORA.iterdir() if path.name in ("argo-workflows", "kueue")):
        yield from _imported(folder, folder.name)
    for name in ("ir", "compiled-workflows"):
        yield from _imported(CORPORA / "kubeflow-pipelines" / name, f"kubeflow-pipelines/{name}")


def _imported(root: Path, group: str) -> Iterator[Case | None]:
    library, active, _ = documents_below(root)
    for path, document in active:
        beside = Library(tuple(each for each in library.documents if each.file == document.file))
        result = import_document(document, beside if document.group == "kfp" else library, SITE)
        name = f"{path.relative_to(root)} {document.name}"
        yield None if result.pipeline is None else Case(group, name, result.text())


def of_our_own() -> Iterator[Case]:
    """Examples, what the templates and components are made of, and a pipeline for each construct."""
    for folder in ("docs/examples", "argo_templates/sources", "kfp_components/sources"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix == ".yaml" and "kind: Pipeline" in path.read_text() and "gpuflow/v1" in path.read_text():
                yield _own(path)
            elif path.suffix == ".py" and "gpuflow" in path.read_text():
                try:
                    yield _own(path)
                except GpuflowError:
                    continue  # a program, or an engine's own file
    for name, text in every_construct.PIPELINES.items():
        yield Case("constructs", name, every_construct.HEAD + text, every_construct.SITE)
    for case in yaml.safe_load((ROOT / "tests" / "local" / "constructs.yaml").read_text(encoding="utf-8")):
        yield Case("tests/local/constructs.yaml", case["name"], LOCAL_HEAD + case["text"], expected=case)


def _own(path: Path) -> Case:
    name = str(path.relative_to(ROOT))
    group = "examples" if name.startswith("docs/") else "templates and components"
    beside = path.with_name("site.yaml")
    return Case(group, name, to_yaml(load(str(path))), str(beside) if beside.exists() else "")
