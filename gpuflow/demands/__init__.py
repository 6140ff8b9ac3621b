"""What a pipeline asks of a cluster at its worst moment, per quota key: exact, at most, or unknown because."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuflow.engines import facts_of
from gpuflow.graph import Dag, Leaf, Loop, Peak, Tree, Unknown, peak
from gpuflow.kubernetes.admission.usage import compute_usage, usage_of_claim
from gpuflow.pod import pod_for
from gpuflow.pod.injected import driver_pod, engine_of, with_engine
from gpuflow.quantity import Quantity
from gpuflow.resources import pod_limits, pod_requests
from gpuflow.site.model import Engine, Site
from gpuflow.spec.expression import references
from gpuflow.spec.fan_out import Range
from gpuflow.spec.flow import called, edges
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef

ALIASES = ("cpu", "memory", "ephemeral-storage")
"""Kubernetes also counts these under `requests.`; one name is enough."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A quantity that is exact, at most this, or unknown. The witness is a set of steps that reach it together."""

    bound: str
    value: Quantity | None
    because: str | None = None
    witness: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """The contract's JSON shape."""
        value = None if self.value is None else str(self.value)
        return {"bound": self.bound, "value": value, "because": self.because, "witness": list(self.witness)}


@dataclass(frozen=True, slots=True)
class StepDemand:
    """One step: its pod as the engine creates it, and how many copies may run."""

    name: str
    copies: int | None
    """None when only the run will tell."""
    pods: int
    """Pods of one copy: more than one for a gang."""
    pod: Mapping[str, Any]
    usage: Mapping[str, Quantity]
    overhead: Mapping[str, Quantity]
    requests: Mapping[str, Quantity]
    limits: Mapping[str, Quantity]


@dataclass(frozen=True)
class Demand:
    """The whole pipeline's demand."""

    pipeline: Pipeline
    site: Site
    engine: str
    steps: tuple[StepDemand, ...]
    peak: Mapping[str, Bound]
    overhead: Mapping[str, Bound] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The contract's JSON shape."""
        return {
            "file": self.pipeline.source.file,
            "pipeline": self.pipeline.name,
            "engine": self.engine,
            "peak": {key: bound.document() for key, bound in sorted(self.peak.items())},
            "overhead": {key: bound.document() for key, bound in sorted(self.overhead.items())},
            "steps": [
                {
                    "name": step.name,
                    "copies": step.copies,
                    "requests": _strings(step.requests),
                    "limits": _strings(step.limits),
                }
                for step in self.steps
            ],
        }


def _uncapped(pipeline: Pipeline) -> Pipeline:
    """The pipeline without `parallel`, those inside it too; fan-outs keep theirs."""
    inner = {name: _uncapped(step.pipeline) for name, step in pipeline.steps.items() if step.pipeline is not None}
    steps = {name: pipeline.steps[name].model_copy(update={"pipeline": body}) for name, body in inner.items()}
    return pipeline.model_copy(update={"parallel": None, "steps": {**pipeline.steps, **steps}})


def _strings(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {key: str(value) for key, value in sorted(amounts.items())}


def demand_of(pipeline: Pipeline, site: Site, engine: str = "none") -> Demand:
    """The demand of a pipeline on a site, with what the engine adds to it and the limits it keeps."""
    pipeline = pipeline if facts_of(engine).keeps_parallel else _uncapped(pipeline)
    steps = tuple(_steps(pipeline, site, engine_of(site, engine), "", 1))
    usages = {step.name: step.usage for step in steps}
    overheads = {step.name: step.overhead for step in steps}
    peaks = peaks_of(pipeline, steps, usages)
    overhead = {key: bound for key, bound in peaks_of(pipeline, steps, overheads).items() if bound.value}
    for key, quantity in claims_of(pipeline).items():
        peaks[key] = Bound("exact", quantity)
    return Demand(pipeline, site, engine, steps, peaks, overhead)


def peaks_of(
    pipeline: Pipeline, steps: Iterable[StepDemand], usages: Mapping[str, Mapping[str, Quantity]]
) -> dict[str, Bound]:
    """The worst moment per quota key when each step's pod costs what `usages` says."""
    forms = {key: quantity for usage in usages.values() for key, quantity in usage.items() if key not in ALIASES}
    if not forms:
        return {}
    tree, conditional = tree_of(pipeline, steps, usages), dict(_conditional(pipeline))
    # Most steps limit what they request, so several keys ask the same question of the graph: it is answered once.
    solved: dict[tuple[int, ...], Peak] = {}
    bounds = {}
    for key, form in forms.items():
        weights = tuple(usage[key].milli if key in usage else 0 for usage in usages.values())
        if weights not in solved:
            solved[weights] = peak(tree, key)
        bounds[key] = _bound(solved[weights], form, conditional)
    return bounds


def tree_of(pipeline: Pipeline, steps: Iterable[StepDemand], usages: Mapping[str, Mapping[str, Quantity]]) -> Tree:
    """The pipeline as the graph that peaks are computed on; weights are thousandths, so that cpu stays exact."""
    leaves: dict[str, Tree] = {}
    for step in steps:
        weights = {key: value.milli * step.pods for key, value in usages[step.name].items()}
        leaves[step.name] = Leaf(step.name, weights, step.pods)
    return _tree(pipeline, leaves, "")


def _tree(pipeline: Pipeline, leaves: Mapping[str, Tree], prefix: str) -> Tree:
    nodes = {name: _node(pipeline, name, leaves, prefix) for name in pipeline.steps}
    main: Tree = Dag(nodes, edges(pipeline), pipeline.parallel)
    if not pipeline.exit:
        return main
    ends = {name: _node(pipeline, name, leaves, prefix) for name in pipeline.exit}
    return Dag({"main": main, "exit": Dag(ends, {}, pipeline.parallel)}, {"main": ["exit"]})


def _node(pipeline: Pipeline, name: str, leaves: Mapping[str, Tree], prefix: str) -> Tree:
    step, full = pipeline.effective(name), prefix + name
    if step.pipeline is not None:
        body = _tree(called(pipeline, step), leaves, f"{full}.")
    else:
        body = leaves.get(full) or Leaf(full, {}, 0)  # an approval has no pod
    return body if step.for_each is None else Loop(full, body, copies_of(pipeline, step, full), step.parallel)


def _steps(pipeline: Pipeline, site: Site, parts: Engine, prefix: str, times: int | None) -> Iterator[StepDemand]:
    """Every container step. Inside a fan-out's sub-pipeline there are `times` as many of each."""
    for name in (*pipeline.steps, *pipeline.exit):
        step = pipeline.effective(name)
        own = copies_of(pipeline, step, prefix + name)
        copies = None if times is None or isinstance(own, Unknown) else times * own
        if step.pipeline is not None:
            yield from _steps(called(pipeline, step), site, parts, f"{prefix}{name}.", copies)
        elif step.runs_container:
            yield _step_demand(pipeline, name, prefix + name, step, site, parts, copies)


def _step_demand(
    pipeline: Pipeline, name: str, full: str, step: Step, site: Site, parts: Engine, copies: int | None
) -> StepDemand:
    bare = pod_for(pipeline, name, site)
    pod = with_engine(bare, step, parts)
    requests, limits = _sums(pod)
    usage = compute_usage(requests, limits)
    own = usage if pod is bare else compute_usage(*_sums(bare))
    driver = driver_pod(parts)
    if driver is not None:
        # The driver ends before the step's own pod starts: the larger of the two counts.
        usage = _largest(usage, compute_usage(*_sums(driver)))
    overhead = {key: value - own.get(key, Quantity.zero) for key, value in usage.items()}
    return StepDemand(
        full,
        copies,
        step.gang.pods if step.gang else 1,
        pod,
        usage,
        {key: value for key, value in overhead.items() if value > Quantity.zero},
        requests,
        limits,
    )


def _largest(one: Mapping[str, Quantity], other: Mapping[str, Quantity]) -> dict[str, Quantity]:
    return {key: max(one.get(key, Quantity.zero), other.get(key, Quantity.zero)) for key in {**one, **other}}


def _sums(pod: Mapping[str, Any]) -> tuple[dict[str, Quantity], dict[str, Quantity]]:
    """What the whole pod requests, and its limits."""
    stored = _defaulted(pod)
    return pod_requests(stored), pod_limits(stored)


def _defaulted(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The pod with requests filled in from limits, as the API server does before anything is counted."""

    def filled(container: Mapping[str, Any]) -> Mapping[str, Any]:
        resources = container.get("resources", {})
        limits = resources.get("limits", {})
        if not limits.keys() - resources.get("requests", {}).keys():
            return container
        return {**container, "resources": {**resources, "requests": {**limits, **resources.get("requests", {})}}}

    spec = pod["spec"]
    lists = {
        key: [filled(container) for container in spec[key]] for key in ("initContainers", "containers") if key in spec
    }
    return {**pod, "spec": {**spec, **lists}}


def copies_of(pipeline: Pipeline, step: Step, name: str) -> int | Unknown:
    """How many copies a fan-out makes: the product of its lists."""
    total = 1
    for _variable, source in (step.for_each or {}).items():
        if isinstance(source, Range):
            total *= len(source.items)
        elif isinstance(source, OutputRef):
            return Unknown(f"{name} runs over {source.step}.{source.name}, which only the run will tell")
        elif isinstance(source, ParamRef):
            default = pipeline.params[source.name].default
            if not isinstance(default, list):
                return Unknown(f'{name} runs over the parameter "{source.name}", whose value is only known in the run')
            total *= len(default)
        else:
            total *= len(source)
    return total


def claims_of(pipeline: Pipeline) -> dict[str, Quantity]:
    """What the claims of a run ask for; they live as long as the run."""
    total: dict[str, Quantity] = {}
    for claim in pipeline.claims.values():
        manifest: dict[str, Any] = {"spec": {"resources": {"requests": {"storage": str(claim.size)}}}}
        if claim.storage_class is not None:
            manifest["spec"]["storageClassName"] = claim.storage_class
        for key, value in usage_of_claim(manifest).items():
            if not key.startswith("count/"):
                total[key] = total.get(key, Quantity.zero) + value
    return total


def _conditional(pipeline: Pipeline, prefix: str = "") -> Iterator[tuple[str, bool]]:
    """Steps that may not run though the run gets to them, and whether each item of a fan-out has its own answer."""
    for name, step in (*pipeline.steps.items(), *pipeline.exit.items()):
        if step.when is not None or step.on in ("success", "failure"):
            asked = () if step.when is None else references(step.when)
            yield prefix + name, any(isinstance(found.ref, ItemRef) for found in asked)
        if step.pipeline is not None:
            yield from _conditional(step.pipeline, f"{prefix}{name}.")


def _and_around(step: str) -> Iterator[str]:
    """A step by its way, and the steps whose sub-pipelines it stands in: `a.b` and `a`."""
    while step:
        yield step
        step = step.rpartition(".")[0]


def _bound(found: Peak, form: Quantity, conditional: Mapping[str, bool]) -> Bound:
    if found.value is None:
        return Bound("unknown", None, found.because, found.witness)
    value = Quantity.from_nano(found.value * 1_000_000, form.format)
    asked = list(dict.fromkeys(each for step in found.witness for each in _and_around(step) if each in conditional))
    by_item = [step for step in asked if conditional[step]]
    if found.bound == "exact" and len(asked) > 1:
        return Bound(
            "at-most", value, f"{' and '.join(asked)} have conditions that may exclude each other", found.witness
        )
    if found.bound == "exact" and by_item:
        return Bound("at-most", value, f"the condition of {by_item[0]} may leave items out", found.witness)
    return Bound(found.bound, value, found.because, found.witness)
