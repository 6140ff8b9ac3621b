"""Pods and what the real API server says of them: pod_answers.jsonl, asked of Kubernetes v1.36.3."""

import json
from pathlib import Path
from typing import Any

CONTAINER = {"name": "main", "image": "x"}


def answers() -> list[tuple[dict[str, Any], list[str]]]:
    """Each pod, and the clauses of its 422 in the order of the alphabet; none when it is taken."""
    lines = Path(__file__).with_suffix(".jsonl").read_text().splitlines()
    return [(_pod(row["spec"]), row["clauses"]) for row in map(json.loads, lines)]


def _pod(spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "p", "labels": {"own": "label"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [CONTAINER], **spec}}


def label(pod: dict[str, Any]) -> str:
    """The pod in the name of a test."""
    return json.dumps(pod["spec"]).removeprefix('{"containers": [{"name": "main", "image": "x"')[:70]
