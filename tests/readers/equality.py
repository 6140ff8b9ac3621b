"""The demand of a pipeline of ours against the demand read back from what an engine's target compiles of it.

One table of pipelines for all engines. Each engine's own test folder has a test that compiles, reads back and compares,
so that it runs where the engine's SDK is:

    @pytest.mark.parametrize("name", PIPELINES)
    def test_the_demand_of_the_file_is_the_demand_of_the_pipeline(name: str) -> None:
        pipeline = example(name)
        assert_same(pipeline.demand(), read_back(pipeline.compiled("argo"), pipeline.site), ALLOWED.get(name, {}))

`ALLOWED` is the engine's: by pipeline, the quota keys that differ, each with the reason. A reason that nothing needs
any more is an error. A few pipelines a target refuses whatever is allowed: `compiled` raises `GpuflowError`.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuflow.core import yaml_tree
from gpuflow.demands import Bound, Demand, demand_of
from gpuflow.readers import Options, PassiveObject, documents_of, foreign_in
from gpuflow.site import Site
from gpuflow.spec.loading import load, loads
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets import load_target
from gpuflow.targets.target import Request, compile_with
from tests.conftest import ROOT
from tests.targets.every_construct import HEAD, SITE
from tests.targets.every_construct import PIPELINES as CONSTRUCTS

EVERY_KEY = "*"
"""In a table of allowed differences: this reason holds for every key of the pipeline."""

EXAMPLES = (
    *("daily", "finetune", "finetune-eval", "gang", "nightly", "first/finetune"),
    *(f"quota/{name}" for name in ("eight", "larger", "nightly", "wider")),
)
"""All pipelines of docs/examples."""


@dataclass(frozen=True)
class Example:
    """One pipeline on one site."""

    name: str
    pipeline: Pipeline
    site: Site

    def demand(self) -> Demand:
        """What its own pods ask for, without an engine."""
        return demand_of(self.pipeline, self.site)

    def compiled(self, target: str) -> str:
        """The text of its first artifact; what the target cannot say is left out, and the test says so."""
        request = Request(self.pipeline, self.site, "team-a", "p.yaml")
        return compile_with(load_target(target), request, allow_lossy=True).artifact.text


@functools.cache
def example(name: str) -> Example:
    """A pipeline of the table."""
    kind, _, rest = name.partition(":")
    if kind == "construct":
        return Example(name, loads(HEAD + CONSTRUCTS[rest], "p.yaml"), _construct_site())
    folder = ROOT / "docs" / "examples"
    own_site = (folder / rest).parent / "site.yaml"
    site = Site.load(str(own_site)) if own_site.is_file() else Site.load("nvidia")
    return Example(name, load(str(folder / f"{rest}.yaml")), site)


PIPELINES = (*(f"example:{name}" for name in EXAMPLES), *(f"construct:{name}" for name in sorted(CONSTRUCTS)))
"""The names of all of them, for `pytest.mark.parametrize`."""


@functools.cache
def _construct_site() -> Site:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "site.yaml"
        path.write_text(SITE)
        return Site.load(str(path))


def read_back(text: str, site: Site, engine: str = "none") -> Demand:
    """The demand of the first object of a text that starts pods."""
    foreign, _ = foreign_in(documents_of(yaml_tree.parse_all(text, "compiled.yaml"), "compiled.yaml"))
    assert foreign, "the text holds no object that gpuflow reads"
    reasons = []
    for each in foreign:
        found = each.demand(Options(site, engine))
        if not isinstance(found, PassiveObject):
            return found
        reasons.append(found.because)
    raise AssertionError(f"nothing of it starts pods: {reasons}")


def differences(own: Demand, read: Demand) -> dict[str, tuple[str, str]]:
    """The quota keys whose peaks differ: what the pipeline asks for, and what the file does. Nothing is like 0."""
    found = {}
    for key in sorted({*own.peak, *read.peak}):
        ours, theirs = _shown(own.peak.get(key)), _shown(read.peak.get(key))
        if ours != theirs:
            found[key] = (ours, theirs)
    return found


def _shown(bound: Bound | None) -> str:
    if bound is None or (bound.bound == "exact" and not bound.value):
        return "0"
    return bound.bound if bound.value is None else f"{bound.bound} {bound.value}"


def assert_same(own: Demand, read: Demand, allowed: Mapping[str, str]) -> None:
    """Equal key by key, except for those that are allowed to differ; and those do."""
    found = differences(own, read)
    unexpected = {} if EVERY_KEY in allowed else {key: both for key, both in found.items() if key not in allowed}
    assert unexpected == {}, f"pipeline, file: {unexpected}"
    stale = [key for key in allowed if key not in found and not (key == EVERY_KEY and found)]
    assert stale == [], "these no longer differ: take them off the list"
