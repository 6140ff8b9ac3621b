"""What the options of `gpuflow-run gang` say of attempts that are not like the first.

    --more-memory 2:64Gi --other-node --fallback-after 3 --on-demand '{"tolerations": null}'

What has happened so far stands in annotations of the newest JobSet, beside the counts: how often it ran out of memory,
and the nodes on which a rank failed first. Without one rank that is known to be the first, no node is named.
"""

from __future__ import annotations

import json
from fractions import Fraction

from gpuflow.runtime.later_attempts import Changes, amount_of
from gpuflow.runtime.options import BadOption, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuflow.runtime.options import Options

TABLE = (
    Option("more-memory", "text", "FACTOR:MAX", None, "after out of memory: so many times more, at most MAX; 2:64Gi"),
    Option("other-node", "flag", "", False, "after a failure: not on the node of the rank that failed first"),
    Option("fallback-after", "count", "N", None, "after so many interruptions: with the fields of --on-demand"),
    Option("on-demand", "text", "JSON", None, "fields of the pods' spec off spot nodes; null: not there"),
    Option("leader-on-demand", "text", "JSON", None, "the same of the leader, where it is not like the workers"),
)


def changes_of(options: Options) -> Changes:
    """The options as one value; BadOption for what cannot be."""
    factor, most = _memory(options.more_memory)
    if (options.fallback_after is None) != (options.on_demand is None):
        raise BadOption("--fallback-after and --on-demand go together: when, and what is different then")
    if options.leader_on_demand is not None and options.on_demand is None:
        raise BadOption("--leader-on-demand goes with --on-demand: what is different in all other pods")
    leader_fields_of(options)
    return Changes(factor, most, options.fallback_after, _fields("on-demand", options.on_demand), options.other_node)


def leader_fields_of(options: Options) -> dict[str, Any] | None:
    """What is different off spot nodes in the pod that leads; None: the same as in the others."""
    text = options.leader_on_demand
    return None if text is None else _fields("leader-on-demand", text)


def _memory(text: str | None) -> tuple[str | None, str]:
    if text is None:
        return None, "0"
    factor, _, most = text.partition(":")
    try:
        amount_of(most)
        if Fraction(factor) <= 1:
            raise ValueError
    except (ValueError, ZeroDivisionError):
        raise BadOption(f'--more-memory: "{text[:80]}" is no factor above 1 and amount; write it like 2:64Gi') from None
    return factor, most


def _fields(option: str, text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError as wrong:
        raise BadOption(f"--{option} is no JSON: {wrong}") from None
    if not isinstance(found, dict) or "containers" in found:
        raise BadOption(f"--{option} must be a map of fields of a pod's spec, without containers")
    return found
