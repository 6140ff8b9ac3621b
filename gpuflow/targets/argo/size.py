"""How large a run's Workflow object can become: Argo keeps the state of every node in it.

The controller refuses objects over 1 MiB as JSON: spec, and status with one entry per node. It packs the entries when
they do not fit, and gives up when that is not enough, unless an administrator has given it a database for them. The
figures per node are the means over the statuses in Argo's own test data, rounded up; they leave out long arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuflow.errors import Finding, Where
from gpuflow.plan import Plan
from gpuflow.pod.restarts import counts_budgets
from gpuflow.targets.argo.retries import most_retries

LARGEST = 1 << 20
"""The controller's MAX_WORKFLOW_SIZE when nobody has changed it."""
POD_BYTES = 700
"""A node that runs a pod, with a short argument or two."""
GROUP_BYTES = 500
"""A node that stands for others: a retried step, a loop, a DAG."""
PACKED = 0.15
"""What is left of the entries after gzip and base64."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes of a run: those that run pods, those that stand for others, and the pods that retries may add."""

    pods: int = 0
    groups: int = 0
    retries: int = 0

    def __add__(self, other: Nodes) -> Nodes:
        return Nodes(self.pods + other.pods, self.groups + other.groups, self.retries + other.retries)

    def times(self, copies: int) -> Nodes:
        return Nodes(self.pods * copies, self.groups * copies, self.retries * copies)

    @property
    def once(self) -> int:
        """About how many bytes they take in the status when nothing is retried."""
        return self.pods * POD_BYTES + self.groups * GROUP_BYTES

    @property
    def most(self) -> int:
        """The same when every retry is used."""
        return self.once + self.retries * POD_BYTES


def nodes_of(plan: Plan, within: str = "") -> Nodes:
    """The nodes of a run, or of a sub-pipeline. A loop over something only the run knows counts once."""
    total = Nodes(groups=1)
    for each in plan.inside[within]:
        counted = each.kind == "container" and counts_budgets(each.step, plan.site)
        retries = most_retries(each.step.retry, counted=counted) if each.kind == "container" else 0
        one = nodes_of(plan, each.name) if each.kind == "pipeline" else Nodes(1, 1 if retries else 0, retries)
        if each.step.for_each:
            one = Nodes(groups=1) + one.times(each.copies if isinstance(each.copies, int) else 1)
        total += one
    return total


def size_findings(plan: Plan, manifest: Mapping[str, Any]) -> tuple[Finding, ...]:
    """A warning when a run's object could pass what Argo's controller keeps."""
    written = len(json.dumps(manifest, separators=(",", ":"), ensure_ascii=False).encode())
    nodes = nodes_of(plan)
    if written + nodes.most <= LARGEST:
        return ()
    text = (
        f"a run of {nodes.pods + nodes.groups:,} nodes takes about {_mib(written + nodes.once)} of status and templates"
    )
    if nodes.retries:
        text += f", {_mib(written + nodes.most)} when every retry is used"
    text += f"; Argo stores at most {_mib(LARGEST)}"
    packed = written + int(nodes.most * PACKED)
    if packed <= LARGEST:
        hint = f"Argo compresses the node status if needed, here to about {_mib(packed)}; you need to do nothing"
    else:
        hint = (
            f"even compressed it would take about {_mib(packed)}: split the pipeline, or let the controller "
            "store node status in a database (persistence.nodeStatusOffLoad)"
        )
    return (Finding("GF311", text, Where(plan.pipeline.source.file), hint, "warning"),)


def _mib(size: int) -> str:
    return f"{size / LARGEST:.1f} MiB" if size >= LARGEST / 10 else f"{size / 1024:.0f} KiB"
