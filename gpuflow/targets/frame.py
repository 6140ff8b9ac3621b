"""The frame every target fills: facts, capabilities, typed options, refusals, notes, and artifacts with a header."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any, TypeVar

from gpuflow import collector
from gpuflow.engines import NO_ENGINE, EngineFacts, load_engine
from gpuflow.errors import EnvironmentFailure, Finding, GpuflowError, install_line
from gpuflow.plan import Plan, PlannedStep, plan_of
from gpuflow.pod import pod_for, pod_notes
from gpuflow.pod.restarts import Restarts
from gpuflow.pod.supervision import is_supervised
from gpuflow.runtime import bundle
from gpuflow.site import Site
from gpuflow.site.exposed_secrets import exposed_in_site
from gpuflow.site.silence import heard_at
from gpuflow.spec.meaning import digest_of_meaning, meaning_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.remarks import heard, remarks_on
from gpuflow.targets.alerts import site_losses, site_weaknesses
from gpuflow.targets.capabilities import Capabilities
from gpuflow.targets.constructs import Use, uses
from gpuflow.targets.losses import Loss, construct_losses, named_steps, weaknesses
from gpuflow.targets.options import NoOptions
from gpuflow.version import __version__

Options = TypeVar("Options")


@dataclass(frozen=True)
class Request:
    """What is to be compiled, and how it is shown in the artifact."""

    pipeline: Pipeline
    site: Site
    namespace: str | None
    shown_source: str
    """The source's path as the header names it."""
    losses: tuple[Loss, ...] = ()
    """What is left out, and accepted."""
    options: Any = None
    """The target's own options; None for its defaults."""
    remarks: tuple[str, ...] = ()
    """More lines for the header."""
    weaker: tuple[Finding, ...] = ()
    """What is carried only in part."""
    restarts: Restarts = "by cause"
    """How the engine starts a step again."""
    file: str | None = None
    """The name of the file that it is written to, where the user chose one; else it is the target's to choose."""

    @cached_property
    def plan(self) -> Plan:
        """The pipeline on its site, step by step."""
        return plan_of(self.pipeline, self.site)

    @cached_property
    def uses(self) -> tuple[Use, ...]:
        """The constructs that the pipeline uses: what is lost and what is weaker are both looked for among them."""
        return tuple(uses(self.pipeline))

    def options_as(self, kind: type[Options]) -> Options:
        """The options as the target's own type."""
        if self.options is None:
            return kind()
        assert isinstance(self.options, kind), f"{type(self.options).__name__} are the options of another target"
        return self.options


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file to write: its name inside an output directory, and its text."""

    name: str
    text: str
    findings: tuple[Finding, ...] = ()
    """What only the finished artifact shows."""


@dataclass(frozen=True, slots=True)
class Batch:
    """All that one call compiles, for files that are about all of it."""

    artifacts: tuple[Artifact, ...]
    options: Any
    namespace: str | None
    folder: PurePath | None
    """Where it is written; None for standard output or a single file."""
    present: Callable[[], Mapping[str, str]]
    """The files that lie in the folder, with their text."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """The files of one pipeline, and what they do not hold."""

    artifacts: tuple[Artifact, ...]
    losses: tuple[Loss, ...] = ()
    findings: tuple[Finding, ...] = ()
    """What its user should know: losses, weaker constructs, notes on the site and the engine."""

    @property
    def artifact(self) -> Artifact:
        """The pipeline itself; other files may follow it."""
        return self.artifacts[0]

    @property
    def text(self) -> str:
        """The text of the pipeline itself."""
        return self.artifact.text


class Target(ABC):
    """One engine. Importing it needs no SDK; compiling may."""

    facts: EngineFacts
    capabilities: Capabilities
    options: type[Any] = NoOptions
    """Its own options: a frozen dataclass, from which the command line makes its flags."""
    run_values: str = ""
    """What becomes of values that only the run knows, and who could still misuse them; for the reference."""
    separator: str | None = ""
    """What stands between pipelines on standard output; None when they cannot stand in one stream."""

    @property
    def name(self) -> str:
        """The engine's name."""
        return self.facts.name

    def capabilities_at(self, site: Site) -> Capabilities:
        """The table for one site, where what is installed there decides."""
        return self.capabilities

    def partial_losses(self, request: Request) -> Iterable[Loss]:
        """Parts of constructs that it does not support, and what these options cannot compile. Needs no SDK."""
        return ()

    def asked_of_it(self, request: Request) -> Iterable[Use]:
        """The constructs that its table answers for: those that the pipeline uses, unless others carry them."""
        return request.uses

    def refusals(self, plan: Plan) -> Iterable[Finding]:
        """Why it does not compile a pipeline as it is written. Needs no SDK."""
        return (loss.refusal() for loss in losses_of(self, Request(plan.pipeline, plan.site, None, "")))

    def alert_pod(self, plan: Plan) -> dict[str, Any] | None:
        """The pod that it sends alerts from, beside those of the steps; None: it needs none, or nobody is told."""
        return None

    def with_alerts(self, plan: Plan) -> Plan:
        """The plan with the steps that alerts become on this engine."""
        return plan

    def restarts_at(self, site: Site) -> Restarts:
        """How it starts a step again, where what is installed at a site decides."""
        return "by cause"

    def weaker(self, request: Request) -> Iterable[Finding]:
        """What it carries of these steps only in part, where a line of its table cannot say which and how."""
        return ()

    def notes(self, request: Request) -> Iterable[Finding]:
        """What a reader of the artifact should know about this pipeline, although nothing is lost."""
        return ()

    @abstractmethod
    def compile(self, request: Request) -> tuple[Artifact, ...]:
        """The files of one pipeline, the pipeline itself first."""

    def beside(self, batch: Batch) -> Iterable[Artifact]:
        """Files about all pipelines of one call."""
        return ()


def losses_of(target: Target, request: Request) -> list[Loss]:
    """All that a target does not support of a pipeline: whole constructs first, then parts of them."""
    table = target.capabilities_at(request.site)
    return [
        *construct_losses(request.pipeline, table, target.name, used=target.asked_of_it(request)),
        *site_losses(request.pipeline, request.site, table, target.name),
        *dict.fromkeys(target.partial_losses(request)),
    ]


def accepted(target: Target, request: Request, *, allow_lossy: bool) -> tuple[Loss, ...]:
    """What is left out. All that may not be left out is one error."""
    missing = losses_of(target, request)
    told = [loss.warning() if allow_lossy and loss.optional else loss.refusal() for loss in missing]
    if any(finding.severity == "error" for finding in told):
        raise GpuflowError([*told, *unmade_pods(request)])
    return tuple(missing)


def engine_findings(engine: str, pipeline: Pipeline, site: Site, *, allow_lossy: bool = False) -> tuple[Finding, ...]:
    """Why an engine does not compile a pipeline; with `allow_lossy`, what it leaves out is a warning. Needs no SDK."""
    if engine == NO_ENGINE:
        return ()
    losses = losses_of(load_engine(engine), Request(pipeline, site, None, ""))
    return tuple(loss.warning() if allow_lossy and loss.optional else loss.refusal() for loss in losses)


@collector.paused()
def compile_with(target: Target, request: Request, *, allow_lossy: bool) -> Compiled:
    """The artifacts, and what they do not hold. Without `allow_lossy` a loss is an error."""
    request = replace(request, pipeline=meaning_of(request.pipeline), site=meaning_of(request.site))
    missing = accepted(target, request, allow_lossy=allow_lossy)
    try:
        with needed_sdk(target.name):
            weaker, restarts = tuple(weaker_of(target, request)), target.restarts_at(request.site)
            asked = replace(request, losses=missing, weaker=weaker, restarts=restarts)
            return Compiled(target.compile(asked), missing)
    except EnvironmentFailure:
        raise
    except GpuflowError as refusal:
        # A target stops at the first pod that cannot be made.
        raise GpuflowError(dict.fromkeys((*unmade_pods(request), *refusal.findings))) from None


def unmade_pods(request: Request) -> Iterator[Finding]:
    """Why pods of this pipeline cannot be made on this site."""
    for planned in request.plan.containers:
        try:
            pod_for(planned.pipeline, planned.own_name, request.site)
        except GpuflowError as refusal:
            yield from refusal.findings


def findings_of(target: Target, request: Request, compiled: Compiled) -> list[Finding]:
    """Everything to tell about a compiled pipeline that neither its file nor the site silences."""
    return heard_at(request.site, heard(request.pipeline, remarks_of(target, request, compiled)))


def weaker_of(target: Target, request: Request) -> list[Finding]:
    """All that a target carries of a pipeline only in part: it compiles, and is said on the console and in the file."""
    table = target.capabilities_at(request.site)
    return [
        *weaknesses(request.pipeline, table, target.asked_of_it(request)),
        *site_weaknesses(request.pipeline, request.site, table),
        *target.weaker(request),
    ]


def remarks_of(target: Target, request: Request, compiled: Compiled) -> list[Finding]:
    """What a pipeline lost, what is weaker, what else a reader should know."""
    return [
        *(loss.warning() for loss in compiled.losses),
        *weaker_of(target, request),
        *site_notes(request.plan, target.restarts_at(request.site)),
        *pod_notes(request.plan),
        *remarks_on(request.pipeline),
        *exposed_in_site(request.site),
        *target.notes(request),
        *(finding for artifact in compiled.artifacts for finding in artifact.findings),
    ]


@contextmanager
def needed_sdk(engine: str) -> Iterator[None]:
    """A missing SDK as one message with the install command."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.split(".")[0] == "gpuflow":
            raise
        message = f"compiling for {engine} needs the package {missing.name}, which is not installed"
        raise EnvironmentFailure(Finding("GF901", message, hint=install_line(engine))) from None


def site_notes(plan: Plan, restarts: Restarts = "by cause") -> list[Finding]:
    """What a reader of the artifact should know about this site: wishes without effect, and what images must hold."""
    notes, site = [], plan.site
    vain = [each for each in plan.steps if each.step.spot and each.step.spot.mode in ("allow", "prefer")]
    if vain and not site.spot.labels:
        text = f'spot has no effect ({_named(vain)}): site "{site.name}" does not say what a spot node is'
        notes.append(Finding("GF305", text, vain[0].where(), "set spot.labels in the site", "note"))
    kept = [each for each in plan.containers if is_supervised(each.step, site, restarts)]
    if kept and site.runtime.delivery == "image":
        text = f"{_named(kept)} {'need' if len(kept) > 1 else 'needs'} gpuflow-run in the image"
        hint = "install gpuflow in it, or set runtime.delivery: config-map in the site and apply `gpuflow site runtime`"
        notes.append(Finding("GF307", text, kept[0].where(), hint, "note"))
    return notes


def _named(steps: list[PlannedStep]) -> str:
    return named_steps(tuple(each.name for each in steps))


def _supervisor(request: Request) -> list[str]:
    """Which supervisor the steps run, where it is mounted: whoever reads the artifact can compare."""
    runtime = request.site.runtime
    steps = request.plan.containers if runtime.delivery == "config-map" else ()
    if not any(is_supervised(planned.step, request.site, request.restarts) for planned in steps):
        return []
    return [f"Supervisor: ConfigMap {bundle.config_map_name(runtime.config_map)}, sha256:{bundle.digest()}."]


def header(request: Request) -> list[str]:
    """What stands at the top of an artifact, for `comment`: where it came from, for which site, and what it lost.

    No clock, no machine. The hash is that of what the pipeline says: a comment in its file does not change it. What a
    target is asked to compile is the pipeline's meaning already.
    """
    origin = f"{request.shown_source} sha256:{digest_of_meaning(request.pipeline)[:16]}"
    lines = [
        f"Made by gpuflow {__version__} from {origin} for site {request.site.name}.",
        "Do not edit: change the source and compile again.",
    ]
    lines += _supervisor(request)
    lines += [f"LOST: {loss.message}" for loss in request.losses]
    lines += [f"WEAKER: {finding.message}" for finding in request.weaker]
    return [*lines, *request.remarks]
