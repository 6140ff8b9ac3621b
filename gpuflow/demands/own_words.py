"""What an engine's own words in a pipeline change about its demand: how many runs there are, and which pods stay."""

from __future__ import annotations

from gpuflow.demands.model import KeptPods
from gpuflow.engines import EngineFacts
from gpuflow.plan import Plan
from gpuflow.site.model import Engine
from gpuflow.spec.engine_words import PipelineEngines, StepEngines
from gpuflow.spec.engine_words.words import EngineWords
from gpuflow.spec.pipeline import Pipeline


def most_runs(pipeline: Pipeline, facts: EngineFacts) -> int | None:
    """The most runs that are active at once, where they may overlap; None: no bound."""
    words = _words(pipeline.engines, facts.name)
    said = None if words is None else words.most_runs()
    # Airflow gets max_active_runs=1 with a timetable, as it does with a schedule that says nothing.
    return said or (1 if has_timetable(pipeline, facts.name) else facts.most_runs)


def has_timetable(pipeline: Pipeline, engine: str) -> bool:
    """Whether runs start by a timetable of the user's own."""
    return engine == "airflow" and bool(
        pipeline.engines and pipeline.engines.airflow and pipeline.engines.airflow.timetable
    )


def kept_pods(plan: Plan, facts: EngineFacts) -> KeptPods:
    """Which finished pods stay: the engine's own words may keep those that succeeded too."""
    said = [plan.pipeline.engines, *(each.step.engines for each in plan.containers)]
    found = [words for words in (_words(engines, facts.name) for engines in said) if words is not None]
    return "all" if any(words.keeps_pods() for words in found) else facts.keeps_pods


def pods_collected(pipeline: Pipeline, parts: Engine, engine: str) -> bool:
    """Whether Argo deletes pods while the run goes on."""
    said = pipeline.engines.argo if engine == "argo" and pipeline.engines is not None else None
    policy = (said and said.pod_gc) or parts.pod_gc
    return policy is not None and policy.strategy in ("OnPodSuccess", "OnPodCompletion")


def _words(said: PipelineEngines | StepEngines | None, engine: str) -> EngineWords | None:
    return getattr(said, engine, None)
