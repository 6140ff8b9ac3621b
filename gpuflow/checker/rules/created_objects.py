"""Steps that create objects of the cluster while they run: pods that no demand holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from gpuflow.checker.wording import listed, where_of
from gpuflow.demands import Demand
from gpuflow.errors import Finding

PROGRAM, ACTION = "gpuflow-run", "create"


def created_objects(demand: Demand) -> Iterator[Finding]:
    """Steps whose command is `gpuflow-run create`: the pods of what they create are not counted, and that is said."""
    names = [step.name for step in demand.steps if any(_creates(each.pod) for each in step.pod_sets)]
    if names:
        runs = "creates an object while it runs" if len(names) == 1 else "create objects while they run"
        yield Finding(
            "GF326",
            f"{listed(names)} {runs}, and this verdict does not count the pods of what is created",
            where_of(demand, names[0]),
            "keep its manifest in a file, and check both: gpuflow check PIPELINE MANIFEST --together",
            severity="warning",
        )


def _creates(pod: Mapping[str, Any]) -> bool:
    for container in pod["spec"]["containers"]:
        words = [str(word).rsplit("/", 1)[-1] for word in (*container.get("command", ()), *container.get("args", ()))]
        if (PROGRAM, ACTION) in pairwise(words):
            return True
    return False
