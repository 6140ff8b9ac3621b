"""Whether the API server admits the pods that an engine adds to a run: Kubeflow's driver."""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.checker.hints.refusals import refusal_hint
from gpuflow.checker.quota.namespace import NamespacePolicy, driver_admission
from gpuflow.demands import Demand
from gpuflow.engines import facts_of
from gpuflow.errors import Finding, Where


def refused_driver(demand: Demand, policy: NamespacePolicy) -> Iterator[Finding]:
    """A namespace that refuses the engine's own pods runs none of its steps."""
    answer = driver_admission(demand, policy)
    if answer is not None and not answer.allowed:
        yield Finding(
            "GF508",
            f"the driver pod that {facts_of(demand.engine).title} runs before every step can never be admitted",
            Where(demand.file),
            refusal_hint(answer, demand)
            or f"have the namespace's limits changed, or correct {_paths(demand)} in the site",
            kubernetes=answer.message,
        )


def _paths(demand: Demand) -> str:
    """Where the site says what the containers of the driver pod use."""
    spec = {} if demand.driver is None else demand.driver.pod["spec"]
    names = [each["name"] for each in (*spec.get("containers", ()), *spec.get("initContainers", ()))]
    return ", ".join(demand.engine_settings[name] for name in names if name in demand.engine_settings)
