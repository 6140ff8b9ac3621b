"""The IR as KFP's driver reads it.

KFP hands a task's container, settings and condition to the driver as arguments of its pod, and the kubelet that starts
that pod expands `$$` and `$(NAME)` in them. What is left is expanded once more when the step's own pod starts. Which
variables a driver's pod has only the run tells; `$(NAME)` is kept.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from gpuflow.kubernetes.expansion import expanded

UNREAD = "podMetadata"
"""What Argo puts on the pod by itself: the driver has no part in it."""


def arriving(tree: Any) -> Any:
    """A container, a task or settings of the IR after the driver's kubelet. What does not change stays the same object,
    and what does knows its place in the file."""
    if isinstance(tree, str):
        return expanded(tree, {}) if "$" in tree else tree
    if not isinstance(tree, Mapping | list):
        return tree
    pairs = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    changed = {key: new for key, value in pairs if key != UNREAD and (new := arriving(value)) is not value}
    if not changed:
        return tree
    copied: Any = copy.copy(tree)
    for key, value in changed.items():
        copied[key] = value
    return copied
