"""What gpuflow compiles for Argo, read back as anybody's workflow, asks for the same as the pipeline itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuflow.core import yaml_tree
from gpuflow.core.errors import GpuflowError
from gpuflow.demands import Demand, demand_of
from gpuflow.readers import Options, documents_of, foreign_in
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.argo import target
from gpuflow.targets.argo.facts import ArgoOptions
from gpuflow.targets.target import Request, compile_with
from tests.targets.every_construct import HEAD, PIPELINES, SITE
from tests.targets.test_same_meaning import BESIDE, TEXTS

ALL = {
    **{name: (HEAD + text, "p.yaml") for name, text in PIPELINES.items()},
    **{n: (t, BESIDE) for n, t in TEXTS.items()},
}
DIFFERENT = {
    "for_each.dynamic_matrix": "the list of all combinations is an expression that the reader does not work out",
    "when.item": "the reader answers the condition for each item that is written out; the pipeline's demand does not",
}
"""Pipelines whose peaks are not the same, and why."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    file = tmp_path_factory.mktemp("site") / "site.yaml"
    file.write_text(SITE, encoding="utf-8")
    return Site.load(str(file))


def read_back(pipeline: Pipeline, site: Site, engine: str = "none") -> Demand | None:
    """The demand of what is compiled; None when Argo does not support the pipeline."""
    request = Request(pipeline, site, "team-a", "p.yaml", (), ArgoOptions())
    try:
        text = compile_with(target, request, allow_lossy=False).artifact.text
    except GpuflowError:
        return None
    active, _ = foreign_in(documents_of(yaml_tree.parse_all(text, "w.yaml"), "w.yaml"))
    found = active[0].demand(Options(site, engine))
    assert isinstance(found, Demand)
    return found


def peaks(demand: Demand) -> dict[str, tuple[str, str]]:
    return {key: (bound.bound, str(bound.value)) for key, bound in demand.peak.items()}


@pytest.mark.parametrize("name", sorted(ALL))
def test_the_compiled_workflow_asks_for_what_the_pipeline_asks_for(name: str, site: Site) -> None:
    text, file = ALL[name]
    pipeline = loads(text, file)
    back = read_back(pipeline, site)
    if back is None:
        return  # said by the capability table, which has tests of its own
    assert not back.refusals
    if name in DIFFERENT:
        assert peaks(back) != peaks(demand_of(pipeline, site)), "it is no longer different: remove it from the list"
        return
    assert peaks(back) == peaks(demand_of(pipeline, site))


def test_with_the_engine_s_own_containers_it_is_the_same_too(site: Site) -> None:
    for name in ("nightly.yaml", "daily.yaml", "claims", "for_each.parallel", "shm", "sidecars"):
        if name not in ALL:
            continue
        text, file = ALL[name]
        pipeline = loads(text, file)
        back = read_back(pipeline, site, "argo")
        assert back is not None
        assert peaks(back) == peaks(demand_of(pipeline, site, "argo")), name


def test_what_later_attempts_ask_for_is_the_same(site: Site) -> None:
    text, file = ALL["retry.more_memory"]
    pipeline = loads(text, file)
    back, own = read_back(pipeline, site), demand_of(pipeline, site)
    assert back is not None
    (theirs,), (ours,) = back.later, own.later
    assert theirs.when == ours.when
    assert peaks(back.at_later(theirs)) == peaks(own.at_later(ours))


def test_examples_in_git_are_read(site: Site) -> None:
    for file in sorted((Path(__file__).parents[3] / "argo_templates").glob("*.yaml")):
        text = file.read_text(encoding="utf-8")
        active, _ = foreign_in(documents_of(yaml_tree.parse_all(text, file.name), file.name))
        for each in active:
            found = each.demand(Options(site))
            assert isinstance(found, Demand) and found.steps and not found.refusals and not found.unseen
