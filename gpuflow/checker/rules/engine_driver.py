"""The pods that an engine runs beside the steps, before the API server: Kubeflow's driver."""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.checker.hints.refusals import refusal_hint
from gpuflow.checker.quota.namespace import Surroundings, judged_driver
from gpuflow.demands import Demand
from gpuflow.errors import Finding, Where


def refused_driver(demand: Demand, around: Surroundings) -> Iterator[Finding]:
    """A namespace that refuses the engine's own pods runs none of its steps."""
    answer = judged_driver(demand, around)
    if answer is not None and not answer.allowed:
        yield Finding(
            "GF508",
            f"the driver pod that {demand.engine.capitalize()} runs before every step can never be admitted",
            Where(demand.pipeline.source.file),
            refusal_hint(answer.message, demand.site, demand.engine)
            or f"have the namespace's limits changed, or correct engines.{demand.engine}.driver in the site",
            kubernetes=answer.message,
        )
