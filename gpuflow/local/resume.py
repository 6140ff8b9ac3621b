"""Going on with a run: which run, what was changed in its source since, and what of it still runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gpuflow.core.errors import Where, did_you_mean, fail, join_names
from gpuflow.graph.order import reachable
from gpuflow.local import attempt as attempts
from gpuflow.local import gangs
from gpuflow.local.attempt import Containers
from gpuflow.local.record import (
    COMMAND,
    RUNNING,
    SKIPPED,
    SUCCEEDED,
    RunFolder,
    find,
    latest,
    write_whole,
)
from gpuflow.plan import Plan, plan_of
from gpuflow.pod.supervision import DEFAULT_GRACE, supervisor_grace
from gpuflow.runtime.base import container
from gpuflow.site import Site
from gpuflow.spec.canonical import digest, to_document, to_yaml
from gpuflow.spec.loading import loads
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.references import edges

LATEST = ""
"""`--resume` without an ID."""


def run_to_resume(folder: Path, pipeline: Pipeline, wanted: str, *, finished: bool | None = False) -> RunFolder:
    """The run that is meant: the latest of this pipeline, or the one that is named; GF926 where there is none."""
    run = latest(folder, pipeline.name, finished=finished) if wanted == LATEST else find(folder, wanted)
    if run is None:
        which = {False: "unfinished ", True: "finished ", None: ""}[finished]
        text = f'there is no {which}run of "{pipeline.name}" in {folder}'
        raise fail("GF926", text, where=COMMAND, hint="gpuflow runs lists the runs; without --resume a new one begins")
    if (other := run.facts().pipeline) != pipeline.name:
        text = f'run {run.id} is of the pipeline "{other}", not of "{pipeline.name}"'
        raise fail("GF926", text, where=COMMAND, hint="gpuflow runs lists the runs of each")
    return run


def top_level(pipeline: Pipeline, names: Iterable[str], option: str) -> list[str]:
    """These are steps of the pipeline itself; GF927 for one that is not."""
    found = list(names)
    for name in found:
        if name not in pipeline.steps:
            inside = "; it is inside a sub-pipeline, name that step" if "." in name else ""
            text = f'{option} {name}: "{pipeline.name}" has no step of this name{inside}'
            raise fail("GF927", text, where=Where(pipeline.source.file), hint=did_you_mean(name, pipeline.steps))
    return found


def with_dependents(pipeline: Pipeline, names: Iterable[str]) -> set[str]:
    """These steps, and all that wait for them."""
    wanted = set(names)
    return wanted | reachable(edges(pipeline), wanted)


def with_needs(plan: Plan, name: str) -> set[str]:
    """A step of the pipeline, and all that it waits for."""
    return {name} | reachable({each.name: each.needs for each in plan.steps}, [name])


def changed_steps(before: Pipeline, after: Pipeline, site: Site) -> list[str]:
    """The steps, by their full names, that do not say what they said; also those that came and went."""
    old, new = (_documents(plan_of(each, site)) for each in (before, after))
    return [name for name in {**new, **old} if old.get(name) != new.get(name)]


def _documents(plan: Plan) -> dict[str, str]:
    found = {}
    for planned in plan.steps:
        step = planned.step.model_copy(update={"pipeline": None}) if planned.step.pipeline else planned.step
        outputs = planned.step.pipeline.outputs if planned.step.pipeline else {}
        said = [planned.section, to_document(step), {name: str(ref.canonical()) for name, ref in outputs.items()}]
        found[planned.name] = json.dumps(said, sort_keys=True, default=str)
    return found


def has_open_steps(run: RunFolder, pipeline: Pipeline) -> bool:
    """Whether some step of the pipeline itself has begun or was reached, and is done again: exit steps run after it."""
    heads = ((key.partition(".")[0].partition("@")[0], step) for key, step in run.steps.items())
    return any(name in pipeline.steps and step.state not in (SUCCEEDED, SKIPPED) for name, step in heads)


def accepted_changes(run: RunFolder, pipeline: Pipeline, site: Site, again: set[str], *, edited: bool) -> list[str]:
    """The steps that the source has otherwise than the run, once the user has decided about them; GF925 before."""
    if run.facts().digest == digest(pipeline):
        return []
    changed = changed_steps(source_of(run), pipeline, site)
    open_ones = [name for name in changed if name.partition(".")[0] not in again]
    succeeded = [plan_name(key) for key, step in run.steps.items() if step.state == SUCCEEDED]  # copies among them
    done = [
        name
        for name in open_ones
        if name.partition(".")[0] in pipeline.steps
        and any(each == name or each.startswith(f"{name}.") for each in succeeded)
    ]
    if open_ones and (done or not edited):
        text = f"the source has changed since run {run.id}: {join_names(open_ones)}"
        if done:
            ways = [f"--again {name}" for name in dict.fromkeys(each.partition(".")[0] for each in done)]
            text += f"; of these {join_names(done)} succeeded with the old one"
            hint = f"run them anew in this run: {' '.join(ways)}; or begin a new run, without --resume"
            raise fail("GF925", text, where=Where(pipeline.source.file), hint=hint)
        hint = "go on with the new source: --edited; or begin a new run, without --resume"
        raise fail("GF925", text, where=Where(pipeline.source.file), hint=hint)
    return changed


def source_of(run: RunFolder) -> Pipeline:
    """The pipeline as the run has it."""
    file = run.path / "pipeline.yaml"
    return loads(file.read_bytes(), str(file))


def take_source(run: RunFolder, pipeline: Pipeline, params: Mapping[str, Any]) -> None:
    """The run has this source from now on. Its digest is written last: until then it is another one."""
    write_whole(run.path / "pipeline.yaml", to_yaml(pipeline))
    said = json.loads((run.path / "run.json").read_text(encoding="utf-8"))
    whole = {**said, "params": dict(params), "digest": digest(pipeline)}
    write_whole(run.path / "run.json", json.dumps(whole, indent=2) + "\n")


def end_leftovers(run: RunFolder, plan: Plan, containers: Containers | None, say: Callable[[str], None]) -> None:
    """What an earlier process of this run left running is ended as an interruption; an attempt that has ended meanwhile
    counts as it ended."""
    mark = str(run.path)
    here = container.all_processes()
    found = attempts.processes_of(mark)
    for supervisor in _supervisors(run):  # of a folder that had another path then
        found |= {pid: process for pid, process in here.items() if pid == supervisor}
        found |= container.descendants(supervisor, here)
    if found:
        say(f"ending what still runs of run {run.id}: {container.format_processes(found)}")
        _end(run, plan, found, mark)
    for key, step in list(run.steps.items()):
        if step.state != RUNNING:
            continue
        if containers is not None:
            containers.end(run, key, step.attempts, DEFAULT_GRACE)
        folder = run.attempt(key, step.attempts)
        planned, outputs = plan.by_name.get(plan_name(key)), run.files(key) / "outputs"
        end = attempts.LEFT if planned is None else gangs.end_left(planned, folder, outputs)
        attempts.write_end(run, key, step.attempts, end)


def _end(run: RunFolder, plan: Plan, found: container.Processes, mark: str) -> None:
    """SIGTERM to supervisors, and to programs that have lost theirs; their grace; then SIGKILL."""
    supervisors = {pid for pid in _supervisors(run) if pid in found}
    grace = float(DEFAULT_GRACE)
    for key in [key for key, step in run.steps.items() if step.state == RUNNING]:
        planned = plan.by_name.get(plan_name(key))
        own = supervisor_grace(planned.step) if planned is not None else None
        grace = max(grace, float(own.seconds) if own is not None else 0.0)
    here = container.all_processes()
    guarded = {pid for each in supervisors for pid in container.descendants(each, here)}
    for pid, process in found.items():
        if pid in supervisors or pid not in guarded:
            container.signal_process(process, 15)
    until = time.monotonic() + grace + attempts.KILL_MARGIN
    pause = 0.01
    while any(process.lives for process in found.values()) and time.monotonic() < until:
        time.sleep(pause)
        pause = min(0.2, pause * 1.5)
    for process in found.values():
        container.signal_process(process, 9)
    attempts.kill_all(mark)


def _supervisors(run: RunFolder) -> list[int]:
    """Those that were written down and live."""
    known = (each for step in run.steps.values() for each in step.supervisors)
    return [pid for pid, began in known if attempts.is_alive(pid, began)]


def plan_name(key: str) -> str:
    """The name in the plan of a key of a run: `tune.train` of `tune@2.train@0`."""
    return ".".join(part.partition("@")[0] for part in key.split("."))


def carry_over(source: RunFolder, run: RunFolder, names: Iterable[str]) -> None:
    """What these steps left in another run, in this one."""
    for name in names:
        step = source.steps.get(name)
        if step is not None and step.state in (SUCCEEDED, SKIPPED):
            run.write(
                "settled", step=name, state=step.state, because=f"taken from run {source.id}", outputs=step.outputs
            )


def require_same(plan: Plan, source: RunFolder, name: str, *, edited: bool) -> None:
    """Refuse a step that runs alone after what it needs was edited (GF925), or whose claims are not empty (GF929)."""
    step = plan.by_name[name]
    before = with_needs(plan, name) - {name}
    changed = [each for each in changed_steps(source_of(source), plan.pipeline, plan.site) if _head(each) in before]
    if changed and not edited:
        text = f'what "{name}" needs has changed since run {source.id}: {join_names(changed)}'
        hint = f"run it with what it needs: --until {name}; or take what the old source has made: --edited"
        raise fail("GF925", text, where=step.where(), hint=hint)
    inside = [each for each in plan.containers if _head(each.name) == name]
    mounted = any(volume.claim or volume.new_claim for each in inside for volume in each.step.volumes.values())
    if mounted and source.shared_folder.is_dir() and any(source.shared_folder.iterdir()):
        text = f'"{name}" has a claim, and what run {source.id} has left in it is not there in a new run'
        hint = f"run it anew in that run: --resume {source.id} --again {name}"
        raise fail("GF929", text, where=step.where(), hint=hint)


def _head(name: str) -> str:
    return name.partition(".")[0]


def require_needs(plan: Plan, run: RunFolder, name: str, source: RunFolder) -> None:
    """GF929 where a step that runs alone needs what the other run does not have."""
    missing = [need for need in plan.by_name[name].needs if run.step(need).state not in (SUCCEEDED, SKIPPED)]
    if missing:
        text = f'step "{name}" needs {join_names(missing)}, which did not succeed in run {source.id}'
        hint = f"run them first: gpuflow run FILE --until {name}; or name another run: --resume ID"
        raise fail("GF929", text, where=plan.by_name[name].where(), hint=hint)
