"""The pods that an engine runs beside the steps, before the API server: Kubeflow's driver."""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.check.advice.refusals import refusal_hint
from gpuflow.check.quotas import Surroundings
from gpuflow.demand import Demand
from gpuflow.errors import Finding, Where
from gpuflow.pod.injected import driver_pod, engine_of


def refused_driver(demand: Demand, around: Surroundings) -> Iterator[Finding]:
    """A namespace that refuses the engine's own pods runs none of its steps."""
    pod = driver_pod(engine_of(demand.site, demand.engine))
    if pod is None or not demand.steps:
        return
    answer = around.admit_alone({**pod, "metadata": {"name": f"{demand.pipeline.name}-driver"}})
    if not answer.allowed:
        yield Finding(
            "GF508",
            f"the driver pod that {demand.engine.capitalize()} runs before every step can never be admitted",
            Where(demand.pipeline.source.file),
            refusal_hint(answer.message, demand.site, demand.engine)
            or f"have the namespace's limits changed, or correct engines.{demand.engine}.driver in the site",
            kubernetes=answer.message,
        )
