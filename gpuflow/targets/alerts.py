"""Alerts as every target sees them: what the site asks for counts as if the pipeline had said it."""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.core.errors import Finding, Where
from gpuflow.plan import Plan
from gpuflow.site import Site
from gpuflow.site.policy import alerts_of
from gpuflow.spec.notify import Alert
from gpuflow.spec.pipeline import Pipeline
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
