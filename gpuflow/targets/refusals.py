"""What more than one engine refuses, with the readings that it takes.

The engine's version at a site; fan-outs whose items do not fit into an artifact; dates that no run has; and text of a
pod that the engine would take for a tag of its own, outside the words that are spelled for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from gpuflow.core.caching import ByType, content_of
from gpuflow.core.errors import Finding, Problem, Where
from gpuflow.plan import Plan, PlannedStep
from gpuflow.site import Site
from gpuflow.site.model import alerts_of
from gpuflow.spec.fan_out import product_of, written_sizes
from gpuflow.spec.model import Model
from gpuflow.spec.notify import Alert
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import Join, RunRef
from gpuflow.targets.capabilities import Capabilities, Loss, NoSupport, PartialSupport, named_steps

NO_ALERTS_HINT = "or say notify: [] in the pipeline, and its runs tell nobody"


def alerts_with_places(pipeline: Pipeline, site: Site) -> Iterator[tuple[Alert, Where]]:
    """Each alert of a run, and where it is written: the pipeline's own first."""
    own = pipeline.notify or ()
    for alert in alerts_of(pipeline, site):
        if alert in own:
            yield alert, pipeline.where("notify", own.index(alert), alert.channel)
        else:
            yield alert, site.source.locate(("notify", site.notify.index(alert), alert.channel), False)


def lacking_alerts(
    pipeline: Pipeline, site: Site, channels: Collection[str], lacks: Callable[[Alert], tuple[str, str] | None]
) -> Iterator[Problem]:
    """Alerts of these channels that cannot be sent as they are. `lacks`: what one lacks, and the way out."""
    for alert, where in alerts_with_places(pipeline, site):
        lacking = lacks(alert) if alert.channel in channels else None
        if lacking is not None:
            yield Problem(f"notify.{alert.channel}: {lacking[0]}", where, f"{lacking[1]}; {NO_ALERTS_HINT}")


def site_losses(pipeline: Pipeline, site: Site, table: Capabilities, target: str) -> Iterator[Loss]:
    """Alerts of the site that a target cannot send."""
    for alert, where in _of_site(pipeline, site):
        construct = f"notify.{alert.channel}"
        why = table[construct]
        if isinstance(why, NoSupport):
            message = f'{target} does not support {construct} of site "{site.name}": {why.reason}'
            yield Loss(message, where, f"{why.instead}; {NO_ALERTS_HINT}", construct)


def site_weaknesses(pipeline: Pipeline, site: Site, table: Capabilities) -> Iterator[Finding]:
    """Alerts of the site that a target sends only in part, where the pipeline's own are none of that kind."""
    said = {alert.channel for alert in pipeline.notify or ()}
    for alert, where in _of_site(pipeline, site):
        how = table[f"notify.{alert.channel}"]
        if isinstance(how, PartialSupport) and alert.channel not in said:
            said.add(alert.channel)
            text = f'notify.{alert.channel} of site "{site.name}": {how.reason}'
            yield Finding("GF305", text, where, severity="note")


def endless_waits(plan: Plan, *, queue_timeout: bool = False) -> Iterator[Finding]:
    """An alert tells of an end. `queue_timeout`: whether this engine keeps it."""
    first = next(alerts_with_places(plan.pipeline, plan.site), None)
    if first is None or plan.pipeline.deadline is not None:
        return
    endless = [each.name for each in plan.containers if not (queue_timeout and each.step.queue_timeout)]
    if endless:
        hint = "give the pipeline a deadline" + (", or these steps queue_timeout" if queue_timeout else "")
        text = "may wait for quota, a queue or a node without end, and nobody is told before the run ends"
        yield Finding("GF384", f"{named_steps(tuple(endless))} {text}", first[1], hint, "warning")


def _of_site(pipeline: Pipeline, site: Site) -> Iterator[tuple[Alert, Where]]:
    own = pipeline.notify or ()
    yield from ((alert, where) for alert, where in alerts_with_places(pipeline, site) if alert not in own)


Version = tuple[int, int]


def version_at(site: Site, engine: str) -> Version | None:
    """The engine's version at the site; None where it says none that can be read."""
    return site.engine(engine).release


def version_problem(site: Site, engine: str, title: str, oldest: Version, code: str, example: str) -> list[Finding]:
    """A site whose engine would drop or misread what is written, or that says no version. `example`: one that is."""
    said, found, least = site.engine(engine).version, version_at(site, engine), ".".join(map(str, oldest))
    if said is None or (found is not None and found >= oldest):
        return []
    what = f"is older than {least}" if found is not None else f"is not a version such as {example}"
    hint = f"artifacts are for {title} {least} and later: correct engines.{engine}.version, or upgrade {title}"
    return [Finding(code, f'site "{site.name}" runs {title} {said}, which {what}', Where(site.source.file), hint)]


MOST_ITEMS = 100_000
"""More items than that fit into no object of Kubernetes, and each is a pod."""


def fan_out_finding(step: Step, name: str, engine: str, where: Where) -> Finding | None:
    """A refusal when the lists of the document multiply to more than the engine's artifact could hold."""
    sizes = written_sizes(step.for_each or {})
    if math.prod(sizes) <= MOST_ITEMS:
        return None
    text = f'step "{name}": the fan-out makes {product_of(sizes)}; {MOST_ITEMS:,} is the most for {engine}'
    return Finding("GF313", text, where, "let each copy work through several items, or split the pipeline")


def dates_of(plan: Plan, *fields: str) -> Iterator[tuple[PlannedStep, RunRef, Where]]:
    """The references to dates of the run, or to these of them, with their places."""
    for each in plan.steps:
        for path, ref in each.step.references():
            if isinstance(ref, RunRef) and ref.is_date and (not fields or ref.field in fields):
                yield each, ref, each.where(*path)


Path = tuple[str | int, ...]


def unresolved_tags(name: str, pod: dict[str, Any], where: Where) -> Iterator[Finding]:
    """Argo, under KFP too, replaces tags in every field; outside commands and variables nothing hides them."""
    content = content_of(pod)
    if content is not None and b"{{" not in content:
        return
    for path, text in strings(pod):
        # Words of a command and plain values of variables were spelled for the engine.
        if "{{" in text and not ("command" in path or "args" in path or (path[-1] == "value" and "env" in path)):
            message = f'step "{name}": Argo would replace the tag in {".".join(map(str, path))}: {text[:60]!r}'
            yield Finding("GF306", message, where, "only commands, arguments, scripts and variables can hold {{")


def holds_tags(value: Any) -> bool:
    """Whether any text in a value, or in a model's fields, holds what begins or ends a tag."""
    left = [value]
    while left:  # of every step of a pipeline, so without a call for each text
        part = left.pop()
        kind = type(part)
        if kind is str:
            if "{{" in part or "}}" in part:
                return True
        elif part:
            parts = _PARTS[kind]
            if parts is not None:
                left += parts(part)
    return False


def _parts(kind: type) -> Callable[[Any], Iterable[Any]] | None:
    """How to get at what a value of this type holds; None: it holds no text."""
    ways: tuple[tuple[Any, Callable[[Any], Iterable[Any]]], ...] = (
        (str, lambda value: (str(value),)),
        (dict, lambda value: (*value, *value.values())),
        ((list, tuple), lambda value: value),
        (Join, lambda value: value.parts),
        (Model, lambda value: filter(None, value.__dict__.values())),
    )
    return next((way for base, way in ways if issubclass(kind, base)), None)


_PARTS = ByType(_parts)


def strings(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Every text in plain data, keys of maps too, with the way to it."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield (*path, key), key
            yield from strings(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from strings(item, (*path, index))
