"""`python -m proofs local-outputs`: a table of pipelines, run here and on Argo, Airflow and KFP, compared by bytes.

Every pipeline writes what it was given (values of each type, lists, items, defaults, files) into artifacts. They are
compared with what the table says, and each engine's with those of `gpuflow run`. `--local` runs them here alone, which
needs nothing but Python. The rest uses the cluster that is up under `--cluster`, or starts one and ends it. Ends with 1
where a run failed, or where an artifact is missing, damaged or of other bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from gpuflow.local import run
from gpuflow.local.record import SUCCEEDED
from proofs.airflow.__main__ import _commit
from tests.conftest import ROOT

HERE = Path(__file__).parent / "pipelines"
ALL = ("argo", "airflow", "kubeflow")
LOCAL = "local"
Digests = dict[str, dict[str, list[str]]]
TEXT = "a  b $HOME 'x' \"y\" ä"


@dataclass(frozen=True)
class Row:
    """One pipeline: the engines that can say it, and the bytes of its artifacts, or how many there are."""

    file: Path
    engines: tuple[str, ...] = ALL
    bytes: dict[str, list[str]] = field(default_factory=dict)
    """By step and output the text of the file, of each copy in any order."""
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.file.stem


TABLE = (
    Row(
        ROOT / "docs" / "examples" / "artifacts" / "best-model.yaml",
        counts={"data.set": 1, "train.model": 3, "best.model": 1, "evaluate.metrics": 1, "evaluate.report": 1},
    ),
    Row(
        HERE / "values.yaml",
        bytes={
            "last.got": [
                "\0".join(
                    [
                        *(TEXT, "12", "0.001", "true", '[1,{"a":"$x","b":[true,null]}]'),
                        *("7", "2.5", "true", '{"k":[1,2.5,"z"]}', "two\nlines $HOME '%s'"),
                    ]
                )
                + f"<7|0.001|{TEXT}>"
            ]
        },
    ),
    Row(
        HERE / "lists.yaml",
        bytes={
            "count.part": ["part 1", "part 2", "part 3"],
            "sum.got": [
                '[[300, 100, 200], ["small/1", "small/2", "big one/1", "big one/2"], ["part 3", "part 1", "part 2"]]'
            ],
        },
    ),
    Row(HERE / "conditions.yaml", bytes={"good.got": ["good 0.75"], "after-good.got": ["after"]}),
    Row(HERE / "nested.yaml", bytes={"add.file": ["x" * 11, "x" * 12, "x" * 15], "last.got": ["[11, 12, 15]"]}),
    # KFP knows no number of an attempt, and no step that runs although another was skipped.
    Row(HERE / "defaults.yaml", ("argo", "airflow"), {"anyway.got": ["9 attempt 2"], "report.got": ["9|attempt 2"]}),
)


def digest_of(files: Sequence[dict[str, Any]]) -> str:
    """Names, bytes and links. Without modes: an engine gives its programs an umask of its own."""
    lines = [[file["path"], file.get("sha256"), file.get("link")] for file in files]
    return hashlib.sha256(json.dumps(sorted(lines, key=str)).encode()).hexdigest()[:16]


def digests(artifacts: dict[str, dict[str, Any]]) -> Digests:
    """By step and output the digest of each artifact, sorted: copies come in no order of their own."""
    found: Digests = {}
    for uri, told in artifacts.items():
        head, _, tail = uri.rpartition("/artifacts/")
        parts = head.split("/")
        step = parts[-3] if len(parts) > 2 and parts[-2] == "items" else parts[-1]
        # Here a copy has a name of its own, and a step inside another one the names of both.
        name = re.sub(r"@\d+", "", unquote(step)).rpartition(".")[2]
        found.setdefault(name, {}).setdefault(tail.split("/")[0], []).append(digest_of(told["files"]))
    return {step: {name: sorted(each) for name, each in outputs.items()} for step, outputs in sorted(found.items())}


def damaged(artifacts: dict[str, dict[str, Any]]) -> list[str]:
    return [f"{uri} is damaged: {told['damaged']}" for uri, told in artifacts.items() if told["damaged"]]


def in_folder(store: Path) -> dict[str, dict[str, Any]]:
    """The artifacts of a folder, read and hashed again."""
    found = {}
    for path in store.rglob("manifest.json"):
        files = json.loads(path.read_bytes())["files"]
        bad = [file["path"] for file in files if file.get("sha256") and file["sha256"] != _sha256(path.parent, file)]
        found[str(path.parent)] = {"files": files, "damaged": bad}
    return found


def _sha256(place: Path, file: dict[str, Any]) -> str:
    return hashlib.sha256((place / "files" / file["path"]).read_bytes()).hexdigest()


def run_here(row: Row) -> dict[str, Any]:
    """The pipeline by `gpuflow run`."""
    with tempfile.TemporaryDirectory(prefix="gpuflow-local-outputs-") as folder:
        result = run(row.file, folder=folder)
        artifacts = in_folder(result.folder / "artifacts")
        why = [f"{step.name} {step.state}: {step.because}" for step in result.steps if step.because]
        good = result.state == SUCCEEDED
        return {"good": good, "why": why, "damaged": damaged(artifacts), "digests": digests(artifacts)}


def run_on_engines(rows: Sequence[Row], engines: Sequence[str], cluster: str) -> Iterator[tuple[Row, str, Any]]:
    """The pipelines on each engine that can say them."""
    from proofs.artifacts_engines.engines import ENGINES, GOOD
    from proofs.artifacts_engines.ground import Ground
    from tests.cluster.borrowing import borrowed

    with borrowed(cluster, "argo", "kubeflow") as there:
        for row in rows:
            ground = Ground(there, Path("/tmp") / f"gpuflow-local-outputs-{cluster}", row.file)
            for engine in (each for each in row.engines if each in engines):
                before = set(ground.artifacts())
                told = ENGINES[engine](ground)
                kept = {uri: each for uri, each in ground.artifacts().items() if uri not in before}
                result = {"good": told["state"] == GOOD[engine], "why": told["why"]}
                yield row, engine, {**result, "damaged": damaged(kept), "digests": digests(kept)}


def faults(row: Row, results: dict[str, Any]) -> list[str]:
    """What must not be, of one pipeline."""
    found = []
    for place, result in results.items():
        kept = {f"{step}.{name}": each for step, outs in result["digests"].items() for name, each in outs.items()}
        if not result["good"]:
            found.append(f"{row.name} on {place} did not succeed: {result['why']}")
        found += [f"{row.name} on {place}: {line}" for line in result["damaged"]]
        wanted = {name: sorted(digest_of([_file(name, text)]) for text in texts) for name, texts in row.bytes.items()}
        if wanted and kept != wanted:
            wrong = sorted(name for name in {*kept, *wanted} if kept.get(name) != wanted.get(name))
            found.append(f"{row.name} on {place}: {', '.join(wrong)} are not what the table says")
        if row.counts and {name: len(each) for name, each in kept.items()} != row.counts:
            found.append(f"{row.name} on {place} kept {kept}, and should have kept {row.counts}")
        if result["digests"] != results[LOCAL]["digests"]:
            found.append(f"{row.name}: {place} and this machine have different bytes")
    return found


def _file(name: str, text: str) -> dict[str, Any]:
    return {"path": name.partition(".")[2], "sha256": hashlib.sha256(text.encode()).hexdigest()}


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs local-outputs", description=__doc__.splitlines()[0])
    parser.add_argument("--cluster", default="artifacts", help="the name of the private cluster")
    parser.add_argument("--engine", choices=ALL, action="append", help="only these engines")
    parser.add_argument("--only", choices=[row.name for row in TABLE], action="append", help="only these pipelines")
    parser.add_argument("--local", action="store_true", help="on this machine alone")
    options = parser.parse_args(given)
    rows = [row for row in TABLE if not options.only or row.name in options.only]
    results: dict[str, dict[str, Any]] = {}
    for row in rows:
        results[row.name] = {LOCAL: run_here(row)}
        print(json.dumps({row.name: results[row.name]}), flush=True)
    if not options.local:
        for row, engine, result in run_on_engines(rows, options.engine or ALL, options.cluster):
            results[row.name][engine] = result
            print(json.dumps({row.name: {engine: result}}), flush=True)
    red = [line for row in rows for line in faults(row, results[row.name])]
    for line in red:
        print(f"RED {line}")
    runs = sum(len(each) for each in results.values())
    places = sorted({place for each in results.values() for place in each})
    artifacts = sum(
        len(each)
        for result in results.values()
        for outputs in result[LOCAL]["digests"].values()
        for each in outputs.values()
    )
    verdict = "RED" if red else "the same bytes" if len(places) > 1 else "what the table says"
    print(f"{len(rows)} pipelines, {runs} runs on {', '.join(places)}, {artifacts} artifacts at {_commit()}: {verdict}")
    return 1 if red or not artifacts else 0


if __name__ == "__main__":
    sys.exit(main())
