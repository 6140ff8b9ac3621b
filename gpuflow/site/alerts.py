"""Who is told how a run ended: whom the pipeline names, and whom its site does."""

from __future__ import annotations

from gpuflow.site.model import Site
from gpuflow.spec.notify import Alert
from gpuflow.spec.pipeline import Pipeline


def alerts_of(pipeline: Pipeline, site: Site) -> tuple[Alert, ...]:
    """The pipeline's own first. An empty list in the pipeline un-says the site's; one said twice is sent once."""
    if pipeline.notify == ():
        return ()
    found: list[Alert] = []
    for alert in (*(pipeline.notify or ()), *site.notify):
        if alert not in found:
            found.append(alert)
    return tuple(found)
