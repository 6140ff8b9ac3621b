"""What is different in the pod of a later attempt: more memory after running out of it, other nodes, no spot nodes.

The one maker of such pods. The launcher of a gang asks here, and so do Airflow's operator, Argo's templates and a
check, which get the changes from `gpuflow.pod.later_attempts`. So an attempt is the same wherever it runs.

`gpuflow-run gang` takes it as options:

    --more-memory 2:64Gi --other-node --fallback-after 3 --on-demand '{"tolerations": null}'

What has happened so far is noted in annotations of the newest object, beside the counts: how often it ran out of memory
and the nodes on which a rank failed first. Without one rank that is known to be the first, no node is named.
"""

from __future__ import annotations

import json
import re
from fractions import Fraction
from typing import Any, Mapping, NamedTuple, Sequence  # noqa: UP035 (runs on Python 3.8)

from gpuflow.runtime.base.options import BadOption, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuflow.runtime.base.options import Options

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_MEBI = 2**20
_BINARY = ("Mi", "Gi", "Ti", "Pi", "Ei")
_UNITS = {
    **{
        unit: Fraction(1000) ** power
        for power, unit in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)
    },
    **{unit: Fraction(1024) ** power for power, unit in enumerate(("Ki", *_BINARY), 1)},
}
_AMOUNT = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(?:([eE][+-]?[0-9]{1,3})|([numkMGTPE]|[KMGTPE]i)?)")


class EarlierAttempts(NamedTuple):
    """What happened to the attempts before this one."""

    out_of_memory: int = 0
    interruptions: int = 0
    failed_nodes: tuple[str, ...] = ()


class Changes(NamedTuple):
    """What the policies of a step change in later attempts. Amounts are texts, as Kubernetes takes them."""

    factor: str | None = None
    """After running out of memory, each attempt has so many times the memory of the one before."""
    most: str = "0"
    """But never more than this."""
    fallback_after: int | None = None
    """After so many interruptions the pod leaves spot nodes."""
    on_demand: Mapping[str, Any] = {}
    """The fields of the pod's spec that are different then; None: not there."""
    other_node: bool = False
    leader_on_demand: Mapping[str, Any] | None = None
    """What the leader has instead of `on_demand`, where it is not like the workers."""

    def for_leader(self) -> Changes:
        """What is different in the pod that leads."""
        return self if self.leader_on_demand is None else self._replace(on_demand=self.leader_on_demand)

    def spec(self, first: Mapping[str, Any], before: EarlierAttempts, container: int = 0) -> dict[str, Any]:
        """The spec of the attempt that comes after all that; `first` is that of the first attempt. `container`: which
        of the pod's containers is the one that grows."""
        spec = dict(first)
        if self._is_off_spot(before):
            spec = {key: value for key, value in {**spec, **self.on_demand}.items() if value is not None}
        if self.factor is not None and before.out_of_memory:
            containers = list(spec["containers"])
            containers[container] = self._grow_memory(containers[container], before.out_of_memory)
            spec["containers"] = containers
        if self.other_node and before.failed_nodes:
            spec["affinity"] = avoid_nodes(spec.get("affinity") or {}, before.failed_nodes)
        return spec

    def _is_off_spot(self, before: EarlierAttempts) -> bool:
        return self.fallback_after is not None and before.interruptions >= self.fallback_after

    def _grow_memory(self, container: Mapping[str, Any], times: int) -> dict[str, Any]:
        assert self.factor is not None
        resources = dict(container.get("resources") or {})
        for part in ("requests", "limits"):
            amounts = resources.get(part) or {}
            if "memory" in amounts:
                grown = grown_memory(str(amounts["memory"]), self.factor, self.most, times)
                resources[part] = {**amounts, "memory": grown}
        return {**container, "resources": resources} if resources else dict(container)

    def words(self, first: Mapping[str, Any], before: EarlierAttempts, container: int = 0) -> list[str]:
        """What is different, for a person; nothing for an attempt like the first."""
        made = self.spec(first, before, container)
        found = []
        old, new = memory(first["containers"][container]), memory(made["containers"][container])
        if old != new:
            found.append(f"memory {new} instead of {old} after running out of it {_times(before.out_of_memory)}")
        if self._is_off_spot(before):
            found.append(f"off spot nodes after being interrupted {_times(before.interruptions)}")
        if self.other_node and before.failed_nodes:
            found.append(f"not on {', '.join(before.failed_nodes)}, where a rank failed")
        return found


def memory(container: Mapping[str, Any]) -> str | None:
    """The memory that a container may use, or else asks for; None when nobody says."""
    resources = container.get("resources") or {}
    for part in ("limits", "requests"):
        if (found := (resources.get(part) or {}).get("memory")) is not None:
            return str(found)
    return None


def grown_memory(first: str, factor: str, most: str, times: int) -> str:
    """The memory after running out of it so many times: whole mebibytes, at most `most`, never less than before."""
    amount, limit = amount_of(first), amount_of(most)
    if not times or amount >= limit:
        return first
    # A factor is a decimal number that somebody wrote: 1000Mi times 1.1 is 1100Mi, and no float says so.
    by = Fraction(factor)
    for _ in range(times):
        amount *= by
        if amount >= limit:
            return most
    mebibytes = -int(-amount // _MEBI)
    return most if mebibytes * _MEBI >= limit else _spell_amount(mebibytes)


def amount_of(text: str) -> Fraction:
    """An amount of Kubernetes as a number; ValueError for any other text."""
    if (match := _AMOUNT.fullmatch(text)) is None:
        raise ValueError(f'"{text}" is no amount; write it like 64Gi')
    number, exponent, unit = match.groups()
    return Fraction(number + (exponent or "")) * (1 if exponent else _UNITS[unit or ""])


def _spell_amount(mebibytes: int) -> str:
    power = 0
    while mebibytes % 1024 == 0 and power + 1 < len(_BINARY):
        mebibytes, power = mebibytes // 1024, power + 1
    return f"{mebibytes}{_BINARY[power]}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def avoid_nodes(affinity: Mapping[str, Any], nodes: Sequence[str]) -> dict[str, Any]:
    """The affinity, and none of these nodes. By their own names: the hostname label may say something else."""
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    elsewhere = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    terms = (node_affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    # Of several terms one is enough for the scheduler, so each of them must say it.
    terms = [{**term, "matchFields": [*term.get("matchFields", ()), *elsewhere]} for term in terms]
    return {**affinity, "nodeAffinity": {**node_affinity, REQUIRED: {"nodeSelectorTerms": terms}}}


OPTIONS = (
    Option("more-memory", "text", "FACTOR:MAX", None, "after out of memory: so many times more, at most MAX; 2:64Gi"),
    Option("other-node", "flag", "", False, "after a failure: not on the node of the rank that failed first"),
    Option("fallback-after", "count", "N", None, "after so many interruptions: with the fields of --on-demand"),
    Option("on-demand", "text", "JSON", None, "fields of the pods' spec off spot nodes; null: not there"),
    Option("leader-on-demand", "text", "JSON", None, "the same of the leader, where it is not like the workers"),
)


def changes_of(options: Options) -> Changes:
    """The options as one value; BadOption for what cannot be."""
    factor, most = _memory_policy(options.more_memory)
    if (options.fallback_after is None) != (options.on_demand is None):
        raise BadOption("--fallback-after and --on-demand go together: when, and what is different then")
    if options.leader_on_demand is not None and options.on_demand is None:
        raise BadOption("--leader-on-demand goes with --on-demand: what is different in all other pods")
    text = options.leader_on_demand
    leading = None if text is None else _pod_fields("leader-on-demand", text)
    others = _pod_fields("on-demand", options.on_demand)
    return Changes(factor, most, options.fallback_after, others, options.other_node, leading)


def _memory_policy(text: str | None) -> tuple[str | None, str]:
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


def _pod_fields(option: str, text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError as wrong:
        raise BadOption(f"--{option} is no JSON: {wrong}") from None
    if not isinstance(found, dict) or "containers" in found:
        raise BadOption(f"--{option} must be a map of fields of a pod's spec, without containers")
    return found
