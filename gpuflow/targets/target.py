"""The base of every target: its options, what it compiles, the files it gives, and all that is said about them.

`Target` is one engine: facts, capabilities, typed options, refusals and notes load without its SDK; only `compile` may
need it. An option is a field of a frozen dataclass with its flag and help text. `compile_with` compiles. `judged` says
all that can be said of a pipeline without compiling it, so that no command finds less than another.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any, TypeVar

from gpuflow.core import gc_pause
from gpuflow.core.errors import EnvironmentFailure, Finding, GpuflowError, Rule, Unsound, install_line
from gpuflow.core.version import __version__
from gpuflow.engines import NO_ENGINE, EngineFacts, engine_names, load_engine
from gpuflow.plan import Plan, Restarts, plan_of, planned_step, supervision_of
from gpuflow.pod import pod_notes, pod_of
from gpuflow.pod.launcher import site_gang_account
from gpuflow.runtime import bundle
from gpuflow.site import Site
from gpuflow.site.model import exposed_in_site, without_site_silenced
from gpuflow.spec.canonical import digest_of_meaning, meaning_of
from gpuflow.spec.pipeline import Pipeline, changed_steps
from gpuflow.spec.rules.pipeline_rules import broken_rules
from gpuflow.spec.rules.remarks import remarks_on, without_silenced
from gpuflow.targets.capabilities import (
    Capabilities,
    Loss,
    RefusalRule,
    construct_losses,
    named_steps,
    partial_support_notes,
)
from gpuflow.targets.constructs import Use, uses
from gpuflow.targets.refusals import site_losses, site_weaknesses


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The options of a target that has none."""


@dataclass(frozen=True, slots=True)
class Flag:
    """How an option is written on the command line."""

    field: str
    flag: str
    help: str
    metavar: str | None
    """None for a flag that is on or off."""


def option(flag: str, help: str, *, metavar: str | None = None) -> Any:
    """A field of a target's options: text when it has a metavar, else on or off."""
    default: Any = False if metavar is None else None
    return dataclasses.field(default=default, metadata={"flag": flag, "help": help, "metavar": metavar})


def flags_of(options: type[Any]) -> list[Flag]:
    """The flags of a target's options, in their order."""
    return [
        Flag(field.name, field.metadata["flag"], field.metadata["help"], field.metadata["metavar"])
        for field in dataclasses.fields(options)
    ]


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

    known: Plan | None = dataclasses.field(default=None, repr=False, compare=False)
    """Its plan, where somebody has it already."""

    @cached_property
    def plan(self) -> Plan:
        """The pipeline on its site, step by step."""
        return self.known or plan_of(self.pipeline, self.site)

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


@dataclass(frozen=True)
class Compiled:
    """The files of one pipeline, and what they do not hold."""

    artifacts: tuple[Artifact, ...]
    losses: tuple[Loss, ...] = ()
    _explain: Callable[[], Iterable[Finding]] = dataclasses.field(default=tuple, repr=False, compare=False)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What its user should know: losses, weaker constructs, notes on the site and the engine. Made when asked for:
        whoever only writes the files does not wait for it."""
        return tuple(self._explain())

    def __getstate__(self) -> dict[str, Any]:
        """For another process: with its findings, since a pipeline may know places that cannot be sent there."""
        return {"artifacts": self.artifacts, "losses": self.losses, "findings": self.findings}

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
    refusal_rules: tuple[RefusalRule[Request], ...] = ()
    note_rules: tuple[Rule[Request], ...] = ()
    run_values: str = ""
    """What becomes of values that only the run knows, and who could still misuse them; for the reference."""
    separator: str | None = ""
    """What stands between pipelines on standard output; None when they cannot stand in one stream."""

    folder: str = "compiled/"
    """Where its users keep what is compiled; for `gpuflow init`, as is the next."""
    first_run: str = "hand what is compiled to the engine"
    """How a run is started, once the site has the names of the user's own cluster."""

    @property
    def name(self) -> str:
        return self.facts.name

    def capabilities_at(self, site: Site) -> Capabilities:
        """The table for one site, where what is installed there decides."""
        return self.capabilities

    def partial_losses(self, request: Request) -> Iterable[Loss]:
        """Parts of constructs that it does not support, and what these options cannot compile. Needs no SDK."""
        return (loss for each in self.refusal_rules for loss in each(request))

    def used_constructs(self, request: Request) -> Iterable[Use]:
        """The constructs that its table answers for: those that the pipeline uses, unless others carry them."""
        return request.uses

    def refusals(self, plan: Plan) -> Iterable[Finding]:
        """Why it does not compile a pipeline as it is written. Needs no SDK."""
        return (loss.refusal() for loss in losses_of(self, Request(plan.pipeline, plan.site, None, "", known=plan)))

    def alert_pod(self, plan: Plan) -> dict[str, Any] | None:
        """The pod that it sends alerts from, beside those of the steps; None: it needs none, or nobody is told."""
        return None

    def with_alerts(self, plan: Plan) -> Plan:
        """The plan with the steps that alerts become on this engine."""
        return plan

    def gang_account(self, site: Site, namespace: str | None, accounts: Sequence[str] | None) -> list[dict[str, Any]]:
        """What `gpuflow site gang` prints: who looks after gangs, and its Role. `accounts`: what --account names."""
        return site_gang_account(site, namespace)

    def restarts_at(self, site: Site) -> Restarts:
        """How it starts a step again, where what is installed at a site decides."""
        return "by cause"

    def partial_support(self, request: Request) -> Iterable[Finding]:
        """What it carries of these steps only in part, where a line of its table cannot say which and how."""
        return ()

    def notes(self, request: Request) -> Iterable[Finding]:
        """What a reader of the artifact should know about this pipeline, although nothing is lost."""
        return (finding for each in self.note_rules for finding in each(request))

    @abstractmethod
    def compile(self, request: Request) -> tuple[Artifact, ...]:
        """The files of one pipeline, the pipeline itself first."""

    def batch_files(self, batch: Batch) -> Iterable[Artifact]:
        """Files about all pipelines of one call."""
        return ()


def losses_of(target: Target, request: Request) -> list[Loss]:
    """All that a target does not support of a pipeline: whole constructs first, then parts of them."""
    table = target.capabilities_at(request.site)
    return [
        *construct_losses(request.pipeline, table, target.name, used=target.used_constructs(request)),
        *site_losses(request.pipeline, request.site, table, target.name),
        *dict.fromkeys(target.partial_losses(request)),
    ]


def accept_losses(target: Target, request: Request, *, allow_lossy: bool) -> tuple[Loss, ...]:
    """What is left out. All that may not be left out is one error."""
    missing = losses_of(target, request)
    told = [loss.warning() if allow_lossy and loss.optional else loss.refusal() for loss in missing]
    if any(finding.severity == "error" for finding in told):
        raise GpuflowError([*told, *pod_refusals(request)])
    return tuple(missing)


def engine_findings(engine: str, plan: Plan, *, allow_lossy: bool = False) -> tuple[Finding, ...]:
    """Why an engine does not compile a pipeline; with `allow_lossy`, what it leaves out is a warning. Needs no SDK."""
    if engine == NO_ENGINE:
        return ()
    losses = losses_of(load_engine(engine), Request(plan.pipeline, plan.site, None, "", known=plan))
    return tuple(loss.warning() if allow_lossy and loss.optional else loss.refusal() for loss in losses)


@gc_pause.gc_paused()
def compile_with(target: Target, request: Request, *, allow_lossy: bool) -> Compiled:
    """The artifacts, and what they do not hold. Without `allow_lossy` a loss is an error."""
    pipeline, site = meaning_of(request.pipeline), meaning_of(request.site)
    if pipeline is not request.pipeline or site is not request.site:
        request = replace(request, pipeline=pipeline, site=site, known=None)
    missing = accept_losses(target, request, allow_lossy=allow_lossy)
    try:
        with needed_sdk(target.name):
            weaker, restarts = tuple(partial_support_of(target, request)), target.restarts_at(site)
            asked = replace(request, losses=missing, weaker=weaker, restarts=restarts, known=request.plan)
            return Compiled(target.compile(asked), missing)
    except EnvironmentFailure:
        raise
    except GpuflowError as refusal:
        # A target stops at the first pod that cannot be made.
        raise GpuflowError(dict.fromkeys((*pod_refusals(request), *refusal.findings))) from None


def pod_refusals(request: Request) -> Iterator[Finding]:
    """Why pods of this pipeline cannot be made on this site."""
    for planned in request.plan.containers:
        try:
            pod_of(planned)
        except GpuflowError as refusal:
            yield from refusal.findings


@gc_pause.gc_paused()
def findings_of(target: Target, request: Request, compiled: Compiled) -> list[Finding]:
    """Everything to tell about a compiled pipeline that neither its file nor the site silences."""
    return without_site_silenced(
        request.site, without_silenced(request.pipeline, remarks_of(target, request, compiled))
    )


def partial_support_of(target: Target, request: Request) -> list[Finding]:
    """What a target supports of a pipeline only in part: it compiles, with notes on the console and in the file."""
    table = target.capabilities_at(request.site)
    return [
        *partial_support_notes(request.pipeline, table, target.used_constructs(request)),
        *site_weaknesses(request.pipeline, request.site, table),
        *target.partial_support(request),
    ]


def remarks_of(target: Target, request: Request, compiled: Compiled) -> list[Finding]:
    """What a pipeline lost, what is weaker, what else a reader should know."""
    return [
        *(loss.warning() for loss in compiled.losses),
        *partial_support_of(target, request),
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
        names = named_steps(tuple(each.name for each in vain))
        text = f'spot has no effect ({names}): site "{site.name}" does not say what a spot node is'
        notes.append(Finding("GF305", text, vain[0].where(), "set spot.labels in the site", "note"))
    kept = [each for each in plan.containers if supervision_of(each.step, site, restarts).is_supervised]
    if kept and site.runtime.delivery == "image":
        names = named_steps(tuple(each.name for each in kept))
        text = f"{names} {'need' if len(kept) > 1 else 'needs'} gpuflow-run in the image"
        hint = "install gpuflow in it, or set runtime.delivery: config-map in the site and apply `gpuflow site runtime`"
        notes.append(Finding("GF307", text, kept[0].where(), hint, "note"))
    return notes


def _supervisor(request: Request) -> list[str]:
    """Which supervisor the steps run and where it is mounted, so that readers of the artifact can compare."""
    runtime = request.site.runtime
    steps = request.plan.containers if runtime.delivery == "config-map" else ()
    if not any(supervision_of(each.step, request.site, request.restarts).is_supervised for each in steps):
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


MOST_REASONS = 3


def validation_findings(
    pipeline: Pipeline, site: Site, engine: str = NO_ENGINE, namespace: str | None = None
) -> list[Finding]:
    """What the site and the engine refuse, and what else a reader should know; what the file silences is counted.

    Without an engine, a pipeline that is refused anyway gets one note about the engines that would refuse it too.
    """
    request = Request(pipeline, site, namespace or site.namespace, "")
    findings = [*pod_refusals(request), *engine_findings(engine, request.plan)]
    if engine == NO_ENGINE:
        findings += [*(_not_everywhere(request) if findings else ()), *remarks_on(pipeline), *exposed_in_site(site)]
    else:
        findings += remarks_of(load_engine(engine), request, Compiled(()))
    return without_site_silenced(site, without_silenced(pipeline, dict.fromkeys(findings)))


def findings_beside_broken_rules(refusal: GpuflowError, site: Site, engine: str = NO_ENGINE) -> list[Finding]:
    """What else is wrong with a pipeline that breaks rules: what the engine does not support, and pods of sound steps.

    What needs a sound pipeline to be judged is found when its rules hold. Of one with parts of the wrong shape, pods
    and remarks are judged of the steps that these parts do not concern.
    """
    if not isinstance(refusal, Unsound):
        return []
    pipeline, taken = refusal.document, refusal.taken
    broken = {finding.where.step for finding in refusal.findings}
    found: list[Finding] = []
    if engine != NO_ENGINE:
        table = load_engine(engine).capabilities_at(site)
        losses = construct_losses(pipeline, table, engine, counts=lambda use: not _was_moved(use.path, taken))
        found += (loss.refusal() for loss in losses)
    if any(path[:1] not in (("steps",), ("exit",)) for path in taken):
        return found
    if taken:
        broken |= {finding.where.step for finding in broken_rules(pipeline)} | changed_steps(taken)
    for name in (*pipeline.steps, *pipeline.exit):
        if name not in broken and pipeline.effective(name).runs_container:
            try:
                pod_of(planned_step(pipeline, name, site))
            except GpuflowError as unmade:
                found += unmade.findings
    remarks = without_site_silenced(site, without_silenced(pipeline, remarks_on(pipeline)))
    return [*found, *(each for each in remarks if not taken or each.where.step not in broken)]


def _was_moved(path: Sequence[str | int], taken: Sequence[tuple[str | int, ...]]) -> bool:
    """Whether a part stands in a list that lost an item, so that its number is another one in the file."""
    return any(isinstance(each[-1], int) and tuple(path[: len(each) - 1]) == each[:-1] for each in taken if each)


def _not_everywhere(request: Request) -> Iterator[Finding]:
    refused = {name: losses_of(load_engine(name), request) for name in engine_names()}
    told = [f"{name} ({_reasons(losses)})" for name, losses in refused.items() if losses]
    if told:
        where, hint = request.pipeline.where(), "gpuflow validate --engine ENGINE says why, and what to do"
        yield Finding("GF344", f"not every engine would compile it: {', '.join(told)}", where, hint, "note")


def _reasons(losses: list[Loss]) -> str:
    words = list(dict.fromkeys(loss.construct or loss.code for loss in losses))
    more = f" and {len(words) - MOST_REASONS} more" if len(words) > MOST_REASONS else ""
    return ", ".join(words[:MOST_REASONS]) + more
