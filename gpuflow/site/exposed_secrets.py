"""Secrets that a site spells out."""

from __future__ import annotations

from gpuflow.errors import Finding, Where
from gpuflow.site.model import Site
from gpuflow.spec.exposed_secrets import password_in_address


def exposed_in_site(site: Site) -> list[Finding]:
    """A warning when the place where counts are kept holds a password: it stands in every artifact."""
    return list(password_in_address("runtime.state of the site", site.runtime.state, Where(site.source.file)))
