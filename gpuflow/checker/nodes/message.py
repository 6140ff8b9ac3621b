"""The scheduler's sentence about a pod that fits nowhere.

Mirrors k8s.io/kubernetes/pkg/scheduler/framework.FitError.Error, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

NO_NODES = "no nodes available to schedule pods"


def sentence(total: int, reasons: Iterable[Iterable[str]]) -> str:
    """Every reason with the number of nodes that gave it, in the order of the texts, numbers included."""
    counts = Counter(reason for node in reasons for reason in node)
    return refusal(total, ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items())))


def refusal(total: int, reason: str) -> str:
    return f"0/{total} nodes are available: {reason}."
