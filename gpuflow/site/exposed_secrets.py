"""Secrets that a site spells out."""

from __future__ import annotations

from gpuflow.errors import Finding, Where
from gpuflow.site.model import Site
from gpuflow.spec.exposed_secrets import secrets_in_text


def exposed_in_site(site: Site) -> list[Finding]:
    """A warning when a place where things are kept holds a password: it stands in every artifact."""
    where, runtime = Where(site.source.file), site.runtime
    return [
        *secrets_in_text("runtime.state of the site", runtime.state, where),
        *secrets_in_text("runtime.artifacts of the site", runtime.artifacts, where),
    ]
