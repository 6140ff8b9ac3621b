"""The frame every target fills: a capability table, a collector of losses, and artefacts with a header."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from gpuflow.engines import EngineFacts
from gpuflow.errors import EnvironmentFailure, Finding, GpuflowError, Where
from gpuflow.pod.supervision import is_supervised
from gpuflow.site import Site
from gpuflow.spec.flow import every_step
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.capabilities import Cannot, Capabilities, Weaker
from gpuflow.targets.constructs import VOCABULARY, uses
from gpuflow.version import __version__


@dataclass(frozen=True, slots=True)
class Loss:
    """One construct that an artefact does not hold, over all the steps that use it."""

    construct: str
    steps: tuple[str, ...]
    why: Cannot
    where: Where

    def sentence(self, target: str) -> str:
        """For people: target, construct, steps, reason."""
        whose = f" ({named_steps(self.steps)})" if self.steps else ""
        return f"{target} does not carry {self.construct}{whose}: {self.why.reason}"

    def finding(self, target: str) -> Finding:
        way = self.why.instead or "change the pipeline"
        hint = f"{way}; or --allow-lossy to compile without it"
        step = self.steps[0] if len(self.steps) == 1 else None
        where = Where(self.where.file, self.where.line, self.where.column, step)
        return Finding("GF301", self.sentence(target), where, hint)


def named_steps(names: tuple[str, ...]) -> str:
    """Steps by name in a sentence, the first few of them."""
    shown = ", ".join(f'"{name}"' for name in names[:4])
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"step{'s' if len(names) > 1 else ''} {shown}{more}"


def losses(pipeline: Pipeline, table: Capabilities) -> list[Loss]:
    """What a target would lose of this pipeline: one entry per construct, in the order of the vocabulary."""
    found: dict[str, list[tuple[str | None, Where]]] = {}
    for use in uses(pipeline):
        if isinstance(table[use.construct], Cannot):
            found.setdefault(use.construct, []).append((use.step, pipeline.where(*use.path)))
    result = []
    for construct in VOCABULARY:
        if construct in found:
            why = table[construct]
            assert isinstance(why, Cannot)
            steps = tuple(dict.fromkeys(step for step, _ in found[construct] if step is not None))
            result.append(Loss(construct, steps, why, found[construct][0][1]))
    return result


def weaknesses(pipeline: Pipeline, table: Capabilities) -> list[Finding]:
    """What a target carries only in part, as notes, one per construct."""
    notes: dict[str, Finding] = {}
    for use in uses(pipeline):
        how = table[use.construct]
        if isinstance(how, Weaker) and use.construct not in notes:
            notes[use.construct] = Finding(
                "GF305", f"{use.construct}: {how.reason}", pipeline.where(*use.path), severity="note"
            )
    return [notes[construct] for construct in sorted(notes)]


def site_notes(pipeline: Pipeline, site: Site) -> list[Finding]:
    """What a reader of the artefact should know about this site: wishes without effect, and what images must hold."""
    notes = []
    steps = list(every_step(pipeline))
    vain = [
        name for name, step in steps if step.spot and step.spot.mode in ("allow", "prefer") and not site.spot.labels
    ]
    if vain:
        text = f'spot has no effect ({named_steps(tuple(vain))}): site "{site.name}" does not say what a spot node is'
        notes.append(Finding("GF305", text, _where(pipeline, vain[0]), "set spot.labels in the site", "note"))
    kept = [name for name, step in steps if step.runs_container and is_supervised(step, site)]
    if kept and site.runtime.delivery == "image":
        text = f"{named_steps(tuple(kept))} {'need' if len(kept) > 1 else 'needs'} gpuflow-run in the image"
        hint = "install gpuflow in it, or set runtime.delivery: config-map in the site and apply `gpuflow site runtime`"
        notes.append(Finding("GF307", text, _where(pipeline, kept[0]), hint, "note"))
    return notes


def _where(pipeline: Pipeline, name: str) -> Where:
    top = name.split(".")[0]
    return pipeline.where("steps" if top in pipeline.steps else "exit", top, key=True)


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be compiled, and how it is shown in the artefact."""

    pipeline: Pipeline
    site: Site
    namespace: str | None
    shown_source: str
    """The source's path as the header names it."""
    losses: tuple[Loss, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    allow_lossy: bool = False
    """Whether what cannot be carried may be left out, as long as it is said."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file to write: its name inside an output directory, and its text."""

    name: str
    text: str
    findings: tuple[Finding, ...] = ()
    """What only the finished artefact shows."""


class Target(ABC):
    """One engine. Importing it needs no SDK; compiling may."""

    facts: EngineFacts
    capabilities: Capabilities

    @property
    def name(self) -> str:
        """The engine's name."""
        return self.facts.name

    def notes(self, request: Request) -> Iterable[Finding]:
        """What a reader of the artifact should know about this pipeline, although nothing is lost."""
        return ()

    @abstractmethod
    def compile(self, request: Request) -> Artifact:
        """The artifact."""


def compile_with(target: Target, request: Request, *, allow_lossy: bool) -> tuple[Artifact, list[Loss]]:
    """The artefact, and what it does not hold. Without `allow_lossy` a loss is an error."""
    missing = losses(request.pipeline, target.capabilities)
    if missing and not allow_lossy:
        raise GpuflowError(loss.finding(target.name) for loss in missing)
    filled = Request(
        request.pipeline,
        request.site,
        request.namespace,
        request.shown_source,
        tuple(missing),
        request.options,
        allow_lossy,
    )
    with needed_sdk(target.name):
        return target.compile(filled), missing


@contextmanager
def needed_sdk(engine: str) -> Iterator[None]:
    """A missing SDK as one message with the install command."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.split(".")[0] == "gpuflow":
            raise
        message = f"compiling for {engine} needs the package {missing.name}, which is not installed"
        hint = f'python -m pip install "gpuflow[{engine}]"'
        raise EnvironmentFailure(Finding("GF901", message, hint=hint)) from None


def header(request: Request, target: str) -> list[str]:
    """Lines for the top of an artefact: where it came from, for which site, and what it lost. No clock, no machine."""
    digest = request.pipeline.source.sha256
    origin = request.shown_source + (f" sha256:{digest[:16]}" if digest else "")
    lines = [
        f"Made by gpuflow {__version__} from {origin} for site {request.site.name}.",
        "Do not edit: change the source and compile again.",
    ]
    lines += [f"LOST: {loss.sentence(target)}" for loss in request.losses]
    return lines
