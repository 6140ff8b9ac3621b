"""A step that stands alone in hand-written engine code: its keyword arguments, and what is not its own to say."""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from gpuflow.core.errors import fail
from gpuflow.site import Site
from gpuflow.spec.builder import caller
from gpuflow.spec.step import NO_COMMAND, Step
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, RunRef


def keywords_of(step: Step) -> Iterator[tuple[ParamRef | OutputRef, str]]:
    """`{param: lr}` is `lr`, `{output: prepare.shards}` is `shards`; where two would share a name, `prepare_shards`."""
    refs = list(dict.fromkeys(ref for _, ref in step.references() if not isinstance(ref, ItemRef | RunRef)))
    counts = Counter(ref.name for ref in refs)
    for ref in refs:
        is_shared = counts[ref.name] > 1 or keyword.iskeyword(ref.name)
        yield ref, f"{ref.step.replace('-', '_')}_{ref.name}" if isinstance(ref, OutputRef) and is_shared else ref.name


def site_of(site: Site | str) -> Site:
    """The site itself, or that of a preset's name or a file."""
    return site if isinstance(site, Site) else Site.load(site)


def refuse_arguments(what: str, takes: Collection[str], given: Collection[str]) -> None:
    """Raise where a call hands over what is not taken, or leaves something out."""
    unknown, missing = sorted({*given} - {*takes}), sorted({*takes} - {*given})
    if unknown or missing:
        wrong = f'takes no "{unknown[0]}"' if unknown else f'needs "{missing[0]}"'
        raise fail("GF301", f"{what} {wrong}; it takes {', '.join(takes) or 'nothing'}")


def refuse_unfit(name: str, step: Step, flow: Mapping[str, str], claims: str) -> None:
    """Raise for a name that is none, for a step that runs nothing, and for flow: `refuse_flow`."""
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?", name):
        text = f'"{name}" is not a step name that every engine accepts'
        raise fail("GF131", text, hint="lower-case letters, digits and '-'")
    refuse_nothing(step)
    refuse_flow(step, flow, claims)


def refuse_nothing(step: Step) -> None:
    """Raise for a step that only says what another task needs: here it is the task."""
    if isinstance(step, Step) and step.runs_nothing:
        raise fail(
            "GF164", "the step runs nothing: it has neither a command nor a script", where=caller(), hint=NO_COMMAND
        )


def refuse_flow(step: Step, flow: Mapping[str, str], claims: str) -> None:
    """Raise for what decides how steps hang together. `flow`: how the engine's users write each field themselves;
    `claims`: how they claim volumes for a run."""
    if not isinstance(step, Step):
        raise fail("GF301", f"expected a gpuflow.Step, not a {type(step).__name__}")
    for field, instead in flow.items():
        if getattr(step, field):
            raise fail(
                "GF301", f"{field} belongs to the pipeline, not to a step on its own", hint=f"write it with {instead}"
            )
    if any(volume.new_claim for volume in step.volumes.values()):
        raise fail("GF301", "new_claim belongs to the pipeline, not to a step on its own", hint=f"use {claims}")
    items = [ref.name for _, ref in step.references() if isinstance(ref, ItemRef)]
    if items:
        text = f"a step on its own has no fan-out, and so no {{item: {items[0]}}}"
        raise fail("GF301", text, hint=f"write {{param: {items[0]}}}, and pass the loop's item as {items[0]}=")
