"""One fault in a manifest, at every place of it: what is said of it, word by word.

Each scene of `refusals/` is a cluster with every field that a check reads. One place at a time holds a value of another
type, is dropped or is misspelled, and a pipeline is checked. `refusals.jsonl.gz` has what was said: the findings with
code, message, place and hint, or a digest of the report where nothing is refused. `pytest --update-golden` writes it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuflow.checker.run import check
from gpuflow.cluster.manifests import cluster_of
from gpuflow.core import yaml_tree
from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.cluster_model.scenes import PIPELINE, QUEUED
from tests.cluster_model.test_mutation import WRONG, Path_, holder, paths

HERE = Path(__file__).parent
RECORDED = HERE / "refusals.jsonl.gz"
MOUNTS = PIPELINE.replace("count: 2}", "count: 2}, volumes: {/data: {claim: data}, /new: {claim: new}}")
DEVICES = PIPELINE.replace("gpu: {model: a100-80gb, count: 2}", "device_claim: {template: gpus}")
DEVICES += "  next: {command: [x], device_claim: {claim: own}}\n  later: {command: [x], device_claim: {claim: mine}}\n"
PIPELINES = {"nodes": MOUNTS, "queues": QUEUED, "devices": DEVICES}
KNOWN = {"apiVersion", "kind"}
DROP, RENAME = "drop", "rename"
EVERY = 40
"""So few of the cases are looked at where all would take long."""


def scene(name: str) -> list[Any]:
    return list(yaml.safe_load_all((HERE / "refusals" / f"{name}.yaml").read_text()))


def cases(documents: list[Any]) -> Iterator[tuple[int, Path_, Any]]:
    """The number of a document, a place of it, and what becomes of that."""
    for number, document in enumerate(documents):
        for path in paths(document):
            if path[0] not in KNOWN:
                yield from ((number, path, wrong) for wrong in (*WRONG, DROP, RENAME))


def changed(document: Any, path: Path_, wrong: Any) -> Any:
    document = deepcopy(document)
    place, last = holder(document, path), path[-1]
    if wrong == DROP or (wrong == RENAME and not isinstance(place, dict)):
        del place[last]
    elif wrong == RENAME:
        place[f"{last}x"] = place.pop(last)
    else:
        place[last] = deepcopy(wrong)
    return document


def placed(document: Any) -> Any:
    return yaml_tree.parse(yaml.safe_dump(document, sort_keys=False), "cluster.yaml")


def answers(name: str, every: int = 1) -> Iterator[tuple[int, list[str]]]:
    """The number of each case, with what it is and what is said of it."""
    documents = scene(name)
    whole = [placed(document) for document in documents]
    demand = demand_of(loads(PIPELINES[name], "p.yaml"), Site.load("nvidia"), "none")
    for index, (number, path, wrong) in enumerate(cases(documents)):
        if index % every:
            continue
        broken = placed(changed(documents[number], path, wrong))
        try:
            report = check(demand, cluster_of([*whole[:number], broken, *whole[number + 1 :]], "cluster.yaml"), "ns")
            said = f"{report.verdict} {sha256(json.dumps(report.document()).encode()).hexdigest()[:12]}"
        except GpuflowError as refusal:
            said = " | ".join(map(spelled, refusal.findings))
        body = documents[number]
        where = ".".join(map(str, path))
        yield index, [f"{name}: {body['kind']} {body.get('metadata', {}).get('name')} {where} = {wrong!r}", said]


def spelled(finding: Finding) -> str:
    return f"{finding.code} {finding.message} at {finding.where}, {finding.hint}"


@pytest.fixture(scope="module")
def recorded() -> dict[str, list[list[str]]]:
    with gzip.open(RECORDED, "rt") as stream:
        lines = [json.loads(line) for line in stream]
    return {name: [line for line in lines if line[0].startswith(f"{name}: ")] for name in PIPELINES}


@pytest.mark.parametrize("name", PIPELINES)
def test_the_scenes_are_whole_to_begin_with(name: str) -> None:
    demand = demand_of(loads(PIPELINES[name], "p.yaml"), Site.load("nvidia"), "none")
    report = check(demand, cluster_of(map(placed, scene(name)), "cluster.yaml"), "ns")
    assert [finding for finding in report.findings if finding.code in ("GF403", "GF407")] == []


@pytest.mark.parametrize("name", PIPELINES)
def test_a_fault_is_told_in_the_same_words(name: str, recorded: dict[str, list[list[str]]]) -> None:
    assert [said for index, said in answers(name, EVERY) if said != recorded[name][index]] == []


@pytest.mark.long
@pytest.mark.parametrize("name", PIPELINES)
def test_every_fault_is_told_in_the_same_words(
    name: str, recorded: dict[str, list[list[str]]], request: pytest.FixtureRequest
) -> None:
    found = [said for _, said in answers(name)]
    if request.config.getoption("--update-golden"):
        recorded[name] = found
        with gzip.GzipFile(RECORDED, "wb", mtime=0) as stream:
            stream.writelines(json.dumps(line).encode() + b"\n" for lines in recorded.values() for line in lines)
    assert found == recorded[name]
