"""What a site adds to every pipeline: whom it alerts, which codes it silences, and warnings about its own secrets."""

from __future__ import annotations

from collections.abc import Iterable

from gpuflow.core.errors import Finding, Where
from gpuflow.site.model import Site
from gpuflow.spec.notify import Alert
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.rules.remarks import secrets_in_text, without_codes


def alerts_of(pipeline: Pipeline, site: Site) -> tuple[Alert, ...]:
    """The pipeline's own first. An empty list in the pipeline un-says the site's; one said twice is sent once."""
    if pipeline.notify == ():
        return ()
    found: list[Alert] = []
    for alert in (*(pipeline.notify or ()), *site.notify):
        if alert not in found:
            found.append(alert)
    return tuple(found)


def exposed_in_site(site: Site) -> list[Finding]:
    """A warning when a place where things are kept holds a password: it stands in every artifact."""
    where, runtime = Where(site.source.file), site.runtime
    return [
        *secrets_in_text("runtime.state of the site", runtime.state, where),
        *secrets_in_text("runtime.artifacts of the site", runtime.artifacts, where),
    ]


def without_site_silenced(site: Site, findings: Iterable[Finding]) -> list[Finding]:
    """The findings without those that the site silences, and one line that counts them."""
    return without_codes(site.silence, findings, site.source.locate(("silence",), False))
