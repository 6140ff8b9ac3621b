"""Workflows written in tests, read as demands."""

from __future__ import annotations

from gpuflow.core import yaml_tree
from gpuflow.demands import Demand
from gpuflow.readers import ForeignObject, Library, Options, PassiveObject, documents_of, foreign_in
from gpuflow.site import Site

SITE = Site.load("nvidia")
HEAD = "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {generateName: w-}\n"
POD = "container: {image: i, command: [run], resources: {limits: {nvidia.com/gpu: 1}}}"


def foreign(text: str, *others: str) -> ForeignObject:
    """The first object of a text, with all others at hand."""
    documents = []
    for number, each in enumerate((text, *others)):
        file = f"w{number or ''}.yaml"
        documents += documents_of(yaml_tree.parse_all(each, file), file)
    found, _ = foreign_in(documents)
    return found[0]


def read(text: str, *others: str, engine: str = "none", params: dict[str, str] | None = None) -> Demand:
    """The demand of a workflow; `text` may leave out its head."""
    whole = text if text.startswith("apiVersion") else HEAD + text
    found = foreign(whole, *others).demand(Options(SITE, engine, params or {}))
    assert isinstance(found, Demand), found
    return found


def passive(text: str) -> PassiveObject:
    found = foreign(text).demand(Options(SITE))
    assert isinstance(found, PassiveObject), found
    return found


def peak(demand: Demand, key: str = "pods") -> tuple[str, int | None]:
    """The bound of a key, and its value."""
    found = demand.peak.get(key)
    if found is None:
        return "exact", 0
    return found.bound, None if found.value is None else found.value.milli // 1000


def pods(text: str, *others: str, **options: object) -> tuple[str, int | None]:
    """How many pods of a workflow run at once."""
    return peak(read(text, *others, **options))  # type: ignore[arg-type]  # what nobody should pass, or a table of options


__all__ = ["HEAD", "POD", "SITE", "Library", "foreign", "passive", "peak", "pods", "read"]
