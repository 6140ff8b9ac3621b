"""What a site silences for everything that is checked against it."""

from __future__ import annotations

from collections.abc import Iterable

from gpuflow.errors import Finding
from gpuflow.site.model import Site
from gpuflow.spec.remarks import without


def heard_at(site: Site, findings: Iterable[Finding]) -> list[Finding]:
    """The findings without those that the site silences, and one line that counts them."""
    return without(site.silence, findings, site.source.locate(("silence",), False))
