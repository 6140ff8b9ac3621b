"""What is said of a document stays as it was, word for word, place for place: its demand, and what its import says.

The goldens are digests. With GPUFLOW_RECORDED=FOLDER what stands behind them is written there, to be compared.

Tests gpuflow/readers/argo/walk.py, gpuflow/readers/kfp/tasks.py and gpuflow/importing/argo/workflow.py.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from gpuflow.core.errors import GpuflowError
from gpuflow.formats.documents import Document
from gpuflow.importing.pipelines import import_document
from gpuflow.kubernetes.yaml_scalars import parse_manifests
from gpuflow.readers import ForeignObject, Library, Options, PassiveObject, documents_of, foreign_in
from gpuflow.readers.interface import parameters_of
from tests.formats.handwritten import documents
from tests.importing.samples import KFP, SITE, WORKFLOW
from tests.readers.argo.test_any_document import VALID, WORDS, places
from tests.readers.kfp.test_hostile import EVERYTHING, SETTINGS

GOLDEN = Path(__file__).parent / "golden"
FOLDERS = ("argo-workflows", "kubeflow-pipelines")
BATCHES, BATCH = 30, 100


def demand_text(foreign: ForeignObject, engine: str) -> str:
    """Everything that a reader says of an object."""
    try:
        found = foreign.demand(Options(SITE, engine))
    except GpuflowError as refusal:
        return "\n".join(each.render() for each in refusal.findings)
    if isinstance(found, PassiveObject):
        return found.finding().render()
    lines = [json.dumps(found.document(), sort_keys=True, default=str), repr(found.graph), repr(found.claims)]
    for step in found.steps:
        pods = json.dumps([each.pod for each in step.pod_sets], sort_keys=True, default=str)
        lines.append(f"{step.name} {step.where} {step.copies} {step.tries} {step.is_sure} {step.is_exit} {pods}")
    for part in found.unseen:
        lines.append(f"{part.step}: {part.because} {part.where} {part.resource} {part.hint} {part.is_placement}")
    warnings = found.source.warnings() if found.source is not None else ()
    lines += [each.render() for each in (*found.refusals, *warnings)]
    return "\n".join((*lines, str(sorted(parameters_of(foreign.document, foreign.library)))))


def import_text(foreign: ForeignObject) -> str:
    """Everything that the import of an object says, and the pipeline."""
    found = import_document(foreign.document, foreign.library, SITE)
    text = found.text() if found.pipeline is not None else ""
    return "\n".join((*(each.render() for each in (*found.findings, *found.notes)), text))


def faultless(text: Callable[[], str]) -> str:
    """The text; a fault of gpuflow's own where there is none, which is recorded as well."""
    try:
        return text()
    except (AttributeError, KeyError, TypeError, ValueError) as fault:
        return f"FAULT {fault!r}"


def said(foreign: ForeignObject, together: Library | None = None) -> dict[str, str]:
    """What is said of one object: alone without its engine and on it, with all files at hand, and as a pipeline."""
    found = {name: faultless(partial(demand_text, foreign, name)) for name in ("none", foreign.engine)}
    if together is not None:
        foreign = ForeignObject(foreign.document, together.seen_from(foreign.document))
        found["together"] = faultless(partial(demand_text, foreign, foreign.engine))
    return {**found, "import": faultless(partial(import_text, foreign))}


def line_of(name: str, words: dict[str, str]) -> str:
    folder = os.environ.get("GPUFLOW_RECORDED")
    if folder:
        path = Path(folder) / f"{name.replace('/', '_')}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(f"== {key}\n{text}" for key, text in words.items()), encoding="utf-8")
    digests = (f"{key}={hashlib.sha256(text.encode()).hexdigest()[:16]}" for key, text in words.items())
    return f"{name}: {' '.join(digests)}\n"


def read(text: str, file: str) -> list[Document]:
    return documents_of(parse_manifests(text, file), file)


def of_corpora(root: Path) -> Iterator[str]:
    for folder in FOLDERS:
        files: list[list[Document]] = []
        for path in sorted((root / folder).rglob("*.yaml")):
            try:
                files.append(read(path.read_text(encoding="utf-8"), str(path.relative_to(root))))
            except GpuflowError as refusal:
                yield f"{path.relative_to(root)}: {refusal.findings[0].code}\n"
        together = Library(tuple(each for some in files for each in some))
        for some in files:
            for foreign in foreign_in(some)[0]:
                document = foreign.document
                beside = together if document.group != "kfp" else Library(tuple(some))
                yield line_of(f"{document.file} {document.index} {document.kind}", said(foreign, beside))


def test_what_is_said_of_every_public_document_stays_as_it_was(
    corpora: Path, golden: Callable[[Path, str], None]
) -> None:
    golden(GOLDEN / "corpora.txt", "".join(of_corpora(corpora)))


def test_what_is_said_of_references_defaults_and_runs_stays_as_it_was(golden: Callable[[Path, str], None]) -> None:
    lines = [
        line_of(f"{name}, {foreign.document.kind} {foreign.document.index}", said(foreign))
        for name, text in documents().items()
        for foreign in foreign_in(read(text, "x.yaml"))[0]
    ]
    golden(GOLDEN / "handwritten.txt", "".join(lines))


def changed(whole: list[Any], random: Random) -> list[Any]:
    """The documents with one to three values replaced, or taken away."""
    whole = copy.deepcopy(whole)
    for _ in range(random.randint(1, 3)):
        *path, last = random.choice([path for path in places(whole) if len(path) > 1 and path[1:] != ("kind",)])
        owner: Any = whole
        for part in path:
            owner = owner[part]
        if random.random() < 0.2:
            del owner[last]
        else:
            owner[last] = random.choice(WORDS)
    return whole


@pytest.mark.long
def test_what_is_said_of_changed_documents_stays_as_it_was(golden: Callable[[Path, str], None]) -> None:
    random, lines = Random(1), []
    sources = [[VALID], [EVERYTHING, SETTINGS], list(yaml.safe_load_all(WORKFLOW)), list(yaml.safe_load_all(KFP))]
    sources += [list(yaml.safe_load_all(text)) for text in documents().values()]
    for batch in range(BATCHES):
        words: dict[str, list[str]] = {}
        for number in range(BATCH):
            some = changed(sources[(batch * BATCH + number) % len(sources)], random)
            trees = parse_manifests("\n---\n".join(json.dumps(each, indent=1) for each in some), "x.yaml")
            for foreign in foreign_in(documents_of(trees, "x.yaml"))[0]:
                for key, text in said(foreign).items():
                    words.setdefault(key, []).append(f"# {number}\n{text}")
        lines.append(line_of(f"{batch}", {key: "\n".join(texts) for key, texts in words.items()}))
    golden(GOLDEN / "changed.txt", "".join(lines))
