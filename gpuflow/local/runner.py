"""`gpuflow.local.run`: a pipeline on this machine, from its document to how it ended."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic_core import PydanticCustomError

from gpuflow.core.errors import EnvironmentFailure, Finding, GpuflowError, Where, did_you_mean, fail
from gpuflow.local import resume
from gpuflow.local.alerts import send_alerts
from gpuflow.local.approvals import Approvals
from gpuflow.local.attempt import Containers, Place, local_site
from gpuflow.local.console import Console
from gpuflow.local.containers import find_engine, write_supervisor
from gpuflow.local.events import Events
from gpuflow.local.machine import Room, this_machine
from gpuflow.local.preflight import CannotRunHere, Setting, refusals, remarks
from gpuflow.local.record import COMMAND, FAILED, FOLDER, INTERRUPTED, RUNNING, SUCCEEDED, RunFolder, create
from gpuflow.local.values import typed_value
from gpuflow.local.walk import Node, Walk
from gpuflow.plan import Plan, PlannedStep, plan_of
from gpuflow.pod.build import rewritten
from gpuflow.runtime.base.outcomes import EXIT_INTERRUPTED
from gpuflow.site import Site
from gpuflow.spec.canonical import digest, to_yaml
from gpuflow.spec.loading import load
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.references import output_types
from gpuflow.spec.rules.pipeline_rules import broken_rules

EXIT_CODES = {SUCCEEDED: 0, FAILED: 1, INTERRUPTED: EXIT_INTERRUPTED}


@dataclass(frozen=True)
class StepResult:
    """One step of a run."""

    name: str
    """Its full name; inside a copy of a sub-pipeline with the copy's number: tune@2.train."""
    state: str
    """succeeded, failed, interrupted, skipped, or not run."""
    attempts: int
    """How often it was started, all its copies together."""
    outputs: Mapping[str, Any]
    """By name, as their types; of a fan-out a list each."""
    because: str = ""
    """Why it is in this state, where that is not success."""
    progress: Mapping[str, Any] | None = None
    """How far its program came in this session, if it says so: step, total, metrics. Of a fan-out None."""


@dataclass(frozen=True)
class Run:
    """How a run on this machine ended."""

    run: str
    """Its id."""
    pipeline: str
    """The pipeline's name."""
    state: str
    """succeeded, failed or interrupted."""
    steps: tuple[StepResult, ...]
    """Every step, those of sub-pipelines behind the step that they are in."""
    folder: Path
    """Where its logs and outputs are."""

    @property
    def exit_code(self) -> int:
        """0, 1, or 75 for a run that was interrupted and can be resumed."""
        return EXIT_CODES[self.state]

    def document(self) -> dict[str, Any]:
        """The run as the JSON that programs read."""
        steps = [{key: value for key, value in asdict(each).items() if value not in ("", None)} for each in self.steps]
        return {**asdict(self), "steps": steps, "folder": str(self.folder)}


@dataclass(frozen=True)
class Options:
    """What a run may be told beside its parameters; the options of `gpuflow run` have the same names."""

    folder: str | Path = FOLDER
    site: Site | str | Path = "nvidia"
    resume: str | None = None
    until: str | None = None
    only: str | None = None
    again: Collection[str] = ()
    edited: bool = False
    jobs: int | None = None
    pretend_gpus: bool = False
    approve: Collection[str] = ()
    approvals: str = "ask"
    """What a question without an answer does where nobody is at a terminal: fail, or wait."""
    env_for: Mapping[str, str] = field(default_factory=dict)
    notify: bool = False
    allow_lossy: bool = False
    container: bool = False


def run(
    pipeline: Pipeline | str | Path,
    *,
    params: Mapping[str, Any] | None = None,
    console: Console | None = None,
    **options: Any,
) -> Run:
    """Run a pipeline on this machine: its steps as processes here, its state in a folder.

    `params` are values of its parameters. `options`: folder, site, resume, until, only, again, edited, jobs,
    pretend_gpus, approve, approvals, env_for, notify, allow_lossy, container, as `gpuflow run` has them. Raises
    `GpuflowError` for what is wrong before anything starts; how the run ended is the result.
    """
    known = Options.__dataclass_fields__
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known)
            raise fail("GF903", f"run has no option {name}", where=Where("gpuflow.local.run"), hint=hint)
    if not sys.platform.startswith("linux"):
        text = f"steps run under gpuflow's supervisor, which needs Linux, and this is {sys.platform}"
        hint = "run gpuflow in a Linux container or virtual machine"
        raise EnvironmentFailure(Finding("GF928", text, COMMAND, hint))
    source = pipeline if isinstance(pipeline, Pipeline) else load(str(pipeline))
    return _Session(source, dict(params or {}), Options(**options), console or Console(lambda _: None)).run()


class _Session:
    """One process that runs a run."""

    def __init__(self, pipeline: Pipeline, params: dict[str, Any], options: Options, console: Console) -> None:
        self.options, self.console, self.pipeline, self.params = options, console, pipeline, params
        self.folder = Path(options.folder).resolve()  # by its path what is left of a run is found again
        self.site = options.site if isinstance(options.site, Site) else Site.load(str(options.site))
        self.containers: Containers | None = None
        self.room = Room(this_machine(), options.jobs, options.pretend_gpus)
        self.again = set(resume.top_level(pipeline, options.again, "--again"))
        for name, option in ((options.until, "--until"), (options.only, "--only")):
            resume.top_level(pipeline, [name] if name else [], option)
        if options.until and options.only:
            raise fail("GF903", "--until and --only exclude each other", where=COMMAND, hint="keep one")
        if options.approvals not in ("ask", "fail", "wait"):
            raise fail("GF903", f"approvals={options.approvals!r} is not ask, fail or wait", where=COMMAND)

    def run(self) -> Run:
        plan, options = plan_of(self.pipeline, self.site), self.options
        steps = self._steps(plan)
        self.containers = self._containers(steps) if options.container else None
        setting = Setting(
            os.environ, Path.cwd(), options.env_for, options.allow_lossy, self.folder, containers=self.containers
        )
        if found := refusals(steps, plan, self.room, setting):
            raise CannotRunHere(found)
        run = self._open(plan)
        try:
            return self._run(run, setting, steps)
        finally:
            run.close()

    def _containers(self, steps: list[PlannedStep]) -> Containers:
        """The engine for steps in their images, once it has all of them."""
        engine = find_engine()
        images = [each.step.image for each in steps if each.step.image is not None and each.step.runs_container]
        engine.require_images(rewritten(image, self.site) for image in images)
        engine.require_gpus(self.room.machine.gpus if any(each.step.gpu or each.step.mig for each in steps) else ())
        return Containers(engine, write_supervisor(self.folder / "supervisor"))

    def _steps(self, plan: Plan) -> list[PlannedStep]:
        """The steps that may run."""
        wanted = self._names_to_run(plan)
        return [each for each in plan.steps if wanted is None or each.name.partition(".")[0] in wanted]

    def _names_to_run(self, plan: Plan) -> set[str] | None:
        if self.options.only is not None:
            return {self.options.only}
        return None if self.options.until is None else resume.with_needs(plan, self.options.until)

    # -- which run

    def _open(self, plan: Plan) -> RunFolder:
        """A new run, or the one to go on with; this process holds it from now on."""
        options = self.options
        if options.only is not None:
            return self._open_for_one(plan, options.only)
        if options.resume is None and not self.again:
            return self._create()
        finished = None if self.again else False
        run = resume.run_to_resume(self.folder, self.pipeline, options.resume or resume.LATEST, finished=finished)
        run.lock()
        try:
            run.read()
            self._accept_params(run)
            again = resume.with_dependents(self.pipeline, self.again)
            resume.accepted_changes(run, self.pipeline, self.site, again, edited=options.edited)
            left = any(step.state == RUNNING for step in run.steps.values())
            containers = self.containers
            if containers is None and left and run.in_containers:
                containers = Containers(find_engine(), {})
            resume.end_leftovers(run, plan, containers, self.console.say)
            # What has ended meanwhile may be a step that was edited.
            changed = resume.accepted_changes(run, self.pipeline, self.site, again, edited=options.edited)
            if again or run.state in (FAILED, SUCCEEDED) or resume.has_open_steps(run, self.pipeline):
                run.write("again", steps=sorted({*again, *self.pipeline.exit}))
            if run.facts().digest != digest(self.pipeline):
                resume.take_source(run, self.pipeline, self._params(run.facts().params))
            if changed:
                self.console.say(f"the source has changed: {', '.join(changed)}")
        except BaseException:
            run.close()
            raise
        return run

    def _open_for_one(self, plan: Plan, name: str) -> RunFolder:
        source = resume.run_to_resume(self.folder, self.pipeline, self.options.resume or resume.LATEST, finished=True)
        self._accept_params(source)
        resume.require_same(plan, source, name, edited=self.options.edited)
        run = self._create(source.facts().params)
        try:
            resume.carry_over(source, run, (each for each in self.pipeline.steps if each != name))
            resume.require_needs(plan, run, name, source)
        except BaseException:
            run.close()
            raise
        self.console.say(f"what {name} needs is taken from run {source.id}")
        return run

    def _params(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all parameters: those of a run before, those that are given, and defaults."""
        kept = {name: value for name, value in known.items() if name in self.pipeline.params and value is not None}
        pipeline = with_values(self.pipeline, {**kept, **self.params})
        required = [name for name, param in pipeline.params.items() if param.required]
        if required:
            text = f"the parameter{'s' if len(required) > 1 else ''} {', '.join(required)} must be given"
            hint = " ".join(f"--param {name}=…" for name in required)
            raise fail("GF931", text, where=pipeline.where("params", required[0], key=True), hint=hint)
        return {name: param.default for name, param in pipeline.params.items()}

    def _create(self, known: Mapping[str, Any] | None = None) -> RunFolder:
        """A new run; `known`: the parameters of another one, which it keeps."""
        params, source = self._params(known or {}), self.pipeline.source.file
        facts = {
            "pipeline": self.pipeline.name,
            "digest": digest(self.pipeline),
            "source": None if source is None else str(Path(source).absolute()),
            "params": params,
            "site": self.site.name,
            "cwd": str(Path.cwd()),
        }
        return create(self.folder, facts, to_yaml(self.pipeline))

    def _accept_params(self, run: RunFolder) -> None:
        """A run keeps its parameters."""
        known = run.facts().params
        given = with_values(self.pipeline, self.params)
        for name, param in given.params.items():
            if param.is_given and name in known and known[name] != param.default:
                text = f'run {run.id} has "{name}" = {known.get(name)!r}, and --param says {param.default!r}'
                raise fail("GF930", text, where=COMMAND, hint="leave --param out, or begin a new run, without --resume")

    # -- the run itself

    def _run(self, run: RunFolder, setting: Setting, steps: list[PlannedStep]) -> Run:
        plan = plan_of(self.pipeline, local_site(self.site, run, self.containers))
        events, console = Events(), self.console
        place = Place(run, "", Path(run.facts().cwd), setting.environ, containers=self.containers)
        walk = Walk(plan, run, self.room, events, place, console.tell, self._names_to_run(plan))
        walk.pythons = setting.pythons
        approvals = Approvals(walk, events, console.say, self.options.approvals, self.options.approve)
        console.say(f"run {run.id} of {self.pipeline.name} in {run.path}", "bold")
        told = [*self.room.machine.told, *self.room.told]
        for sentence in told if run.begun else [*told, *remarks(steps, self.room, run, setting)]:
            console.say(sentence, "dim")
        run.write("opened", pid=os.getpid(), resumed=bool(run.begun), container=self.options.container)
        try:
            with events.stop_signals():
                walk.start()
                walk.advance()
                while not walk.is_over:
                    events.wait()
                    self._take_signals(walk, events)
                    walk.advance()
        except BaseException:
            walk.stop()  # whatever went wrong here, programs save and end, and the run can be resumed
            raise
        approvals.close()
        events.close()
        result = result_of(walk)
        run.write("closed", state=walk.state)
        self._say_end(walk, run)
        return result

    def _take_signals(self, walk: Walk, events: Events) -> None:
        while events.signals:
            events.signals.pop(0)
            if walk.is_stopping:
                self.console.say("ended at once", "yellow")
                walk.kill()
            else:
                self.console.say(
                    "told to stop: programs have their grace to save; once more ends them at once", "yellow"
                )
                walk.stop()

    def _say_end(self, walk: Walk, run: RunFolder) -> None:
        console, state = self.console, walk.state
        colors = {SUCCEEDED: "green", FAILED: "red", INTERRUPTED: "yellow"}
        if state != INTERRUPTED and self.options.until is None and self.options.only is None:
            send_alerts(walk, self.site, state, console.say, is_allowed=self.options.notify)
        console.say(f"run {run.id} {state}", colors[state])
        console.tree(walk.nodes())
        place = "" if self.options.folder == FOLDER else f" --folder {shlex.quote(str(self.options.folder))}"
        console.say(f"logs: gpuflow logs {run.id} STEP{place}; everything is in {run.path}")
        if state != SUCCEEDED:
            source = shlex.quote(self.pipeline.source.file or "FILE")
            console.say(f"go on with it: gpuflow run {source} --resume {run.id}{place}")


def result_of(walk: Walk) -> Run:
    """The run as a value."""
    counts: dict[str, int] = {}
    for key, step in walk.run.steps.items():
        head, _, tail = key.rpartition(".")
        name = f"{head}.{tail.partition('@')[0]}" if head else tail.partition("@")[0]
        counts[name] = counts.get(name, 0) + step.attempts
    steps = tuple(_step_result(node, counts.get(node.key, 0)) for node in walk.nodes())
    return Run(walk.run.id, walk.plan.pipeline.name, walk.state, steps, walk.run.path)


def _step_result(node: Node, count: int) -> StepResult:
    state = node.state if node.state in ("succeeded", "failed", "skipped", "not run") else ""
    state = state or (INTERRUPTED if count or node.inside else "not run")
    kinds = output_types(node.planned.step)
    outputs = {
        name: typed_value(text, kinds.get(name, "string"), f'the output "{name}"')
        for name, text in (node.outputs if node.state == SUCCEEDED else {}).items()
    }
    result = StepResult(node.key, state, count, outputs, node.because if state != SUCCEEDED else "")
    if (found := node.last_progress) is None:
        return result
    return replace(result, progress=found.document())


def with_values(pipeline: Pipeline, given: Mapping[str, Any]) -> Pipeline:
    """The pipeline with values for its parameters, checked again: a fan-out may run over one of them."""
    if not given:
        return pipeline
    params, where = dict(pipeline.params), Where(pipeline.source.file)
    for name, value in given.items():
        if name not in params:
            text = f'"{name}": pipeline "{pipeline.name}" has no such parameter'
            raise fail("GF178", text, where=where, hint=did_you_mean(name, params))
        try:
            params[name] = params[name].with_value(value)
        except PydanticCustomError as refusal:
            said = refusal.context or {}
            text = f"the parameter {name}: {said.get('message')}"
            raise fail(refusal.type, text, where=where, hint=said.get("hint")) from None
    changed = pipeline.model_copy(update={"params": params})
    if found := [finding for finding in broken_rules(changed) if finding.severity == "error"]:
        raise GpuflowError(found)
    return changed
