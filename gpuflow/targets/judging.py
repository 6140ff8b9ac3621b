"""Everything that can be said of a pipeline without compiling it, so that no command finds less than another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuflow.engines import NO_ENGINE, engine_names, load_engine
from gpuflow.errors import Finding, GpuflowError, Unsound
from gpuflow.pod import pod_for
from gpuflow.site import Site
from gpuflow.site.exposed_secrets import exposed_in_site
from gpuflow.site.silence import heard_at
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.remarks import heard, remarks_on
from gpuflow.spec.rules import broken_rules
from gpuflow.spec.salvage import touched_steps
from gpuflow.targets.frame import Compiled, Request, engine_findings, losses_of, remarks_of, unmade_pods
from gpuflow.targets.losses import Loss, construct_losses

MOST_REASONS = 3


def judged(pipeline: Pipeline, site: Site, engine: str = NO_ENGINE, namespace: str | None = None) -> list[Finding]:
    """What the site and the engine refuse, and what else a reader should know; what the file silences is counted.

    Without an engine, a pipeline that is refused anyway gets one note about the engines that would refuse it too.
    """
    request = Request(pipeline, site, namespace or site.namespace, "")
    findings = [*unmade_pods(request), *engine_findings(engine, pipeline, site)]
    if engine == NO_ENGINE:
        findings += [*(_not_everywhere(request) if findings else ()), *remarks_on(pipeline), *exposed_in_site(site)]
    else:
        findings += remarks_of(load_engine(engine), request, Compiled(()))
    return heard_at(site, heard(pipeline, dict.fromkeys(findings)))


def further_faults(refusal: GpuflowError, site: Site, engine: str = NO_ENGINE) -> list[Finding]:
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
        broken |= {finding.where.step for finding in broken_rules(pipeline)} | touched_steps(taken)
    for name in (*pipeline.steps, *pipeline.exit):
        if name not in broken and pipeline.effective(name).runs_container:
            try:
                pod_for(pipeline, name, site)
            except GpuflowError as unmade:
                found += unmade.findings
    remarks = heard_at(site, heard(pipeline, remarks_on(pipeline)))
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
