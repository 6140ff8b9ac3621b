"""Secrets that a site spells out."""

from __future__ import annotations

from gpuflow.errors import Finding, Where
from gpuflow.site.model import Site
from gpuflow.spec.exposed_secrets import password_in_address


def exposed_in_site(site: Site) -> list[Finding]:
    """A warning when a place where things are kept holds a password: it stands in every artifact."""
    where, runtime = Where(site.source.file), site.runtime
    return [
        *password_in_address("runtime.state of the site", runtime.state, where),
        *password_in_address("runtime.artifacts of the site", runtime.artifacts, where),
    ]
