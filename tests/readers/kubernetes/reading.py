"""Reads a text as the command line does."""

from __future__ import annotations

from gpuflow.core import yaml_tree
from gpuflow.core.errors import Finding
from gpuflow.demands import Demand
from gpuflow.formats.documents import silenced_in
from gpuflow.readers import Options, PassiveObject, documents_of, foreign_in
from gpuflow.site import Site

FILE = "theirs.yaml"


def read(text: str, site: Site | None = None) -> list[Demand | PassiveObject]:
    """What each object of a text asks for."""
    documents = documents_of(yaml_tree.parse_all(text, FILE), FILE, silenced_in(text))
    return [each.demand(Options(site or Site.load("nvidia"))) for each in foreign_in(documents)[0]]


def demand(text: str, site: Site | None = None) -> Demand:
    """The demand of the first object."""
    found = read(text, site)[0]
    assert isinstance(found, Demand), found
    return found


def remarks(text: str, site: Site | None = None) -> list[str]:
    """The codes of what is said of the first object."""
    return [finding.code for finding in findings(text, site)]


def findings(text: str, site: Site | None = None) -> list[Finding]:
    """What is said of the first object."""
    source = demand(text, site).source
    assert source is not None
    return source.unsilenced_findings(source.warnings())
