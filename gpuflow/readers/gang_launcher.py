"""Commands of gpuflow's own that look after a gang: the JobSet is one of their words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from gpuflow.demands.model import PodSet
from gpuflow.formats.nodes import as_list, mapping, text_of
from gpuflow.kubernetes.expansion import expand
from gpuflow.runtime.base.options import BadOption, Options
from gpuflow.runtime.gangs import gang_command, later_attempts
from gpuflow.runtime.gangs.later_attempts import Changes, EarlierAttempts

_MANIFEST: Final = "--manifest={"
MOST_STEPS: Final = 1000
"""How often memory is made to grow: a file may name any budget, and a factor close to 1."""


def manifest_in(words: Sequence[str]) -> dict[str, Any] | None:
    """The JobSet in the words of `gpuflow-run gang`, as the kubelet hands it over; None for any other command.

    What only the run fills in is empty, and no amount.
    """
    if _start(words) is None:
        return None
    for word in words:
        if word.startswith(_MANIFEST):
            try:
                found = json.loads(expand(word.partition("=")[2], {}))
            except ValueError:
                return None
            return found if isinstance(found, dict) else None
    return None


def gang_manifest(container: object) -> dict[str, Any] | None:
    """The JobSet in the command of a container; None for any other command."""
    return manifest_in(container_command(container))


def container_command(container: object) -> list[str]:
    """The words that a container is started with."""
    written = [word for field in ("command", "args") for word in as_list(mapping(container).get(field))]
    return [text_of(word) or "" for word in written]


def later_in(words: Sequence[str], ranks: Sequence[PodSet]) -> Iterator[tuple[str, tuple[PodSet, ...]]]:
    """When the last attempts of a gang have other pods than the first, and which. Of several sets the first leads."""
    options = _options(words)
    if options is None:
        return
    changes = later_attempts.changes_of(options)
    failures, interruptions = (
        (options.retries, options.retries) if options.retries is not None else (options.failures, options.interruptions)
    )
    happened = {
        "after running out of memory": EarlierAttempts(out_of_memory=min(failures, MOST_STEPS)),
        "after losing spot nodes": EarlierAttempts(interruptions=interruptions),
    }
    for when, before in happened.items():
        try:
            of_each = [changes.for_leader(), *[changes] * len(ranks)]
            later = tuple(_later_ranks(each, own, before) for each, own in zip(ranks, of_each, strict=False))
        except ValueError:
            continue  # an amount that is none: whoever reads the first attempt says so
        if later != tuple(ranks):
            yield when, later


def _later_ranks(ranks: PodSet, changes: Changes, before: EarlierAttempts) -> PodSet:
    return replace(ranks, pod={**ranks.pod, "spec": changes.spec(ranks.pod["spec"], before)})


def nodes_avoided_in(words: Sequence[str]) -> int:
    """How many nodes the last attempt keeps away from: one for each failure before it."""
    options = _options(words)
    if options is None or not options.other_node:
        return 0
    return int(options.failures if options.retries is None else options.retries)


def _start(words: Sequence[str]) -> int | None:
    """Where the options of the launcher begin."""
    for index, word in enumerate(words[:-1]):
        if word.rpartition("/")[2] == "gpuflow-run" and words[index + 1] == "gang":
            return index + 2
    return None


def _options(words: Sequence[str]) -> Options | None:
    """What the launcher is told; None for what it would refuse."""
    start = _start(words)
    if start is None:
        return None
    try:
        return gang_command.parse([expand(word, {}) for word in words[start:]], {})
    except BadOption:
        return None
