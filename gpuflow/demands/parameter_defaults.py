"""Fan-outs over parameters are counted with the parameter's default; a run can be started with another list."""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.errors import Finding, listed
from gpuflow.graph import Unknown
from gpuflow.plan import Plan, PlannedStep
from gpuflow.spec.text import ParamRef


def counted_with_defaults(plan: Plan) -> Iterator[Finding]:
    """A note for each parameter of the pipeline whose default decides how many copies of steps are counted."""
    found: dict[str, list[PlannedStep]] = {}
    for each in plan.steps:
        for source in (each.step.for_each or {}).values():
            if each.parent is None and isinstance(source, ParamRef) and not isinstance(each.copies, Unknown):
                found.setdefault(source.name, []).append(each)
    for name, steps in found.items():
        default = plan.pipeline.params[name].default
        items = len(default) if isinstance(default, list) else 0
        verb = "runs" if len(steps) == 1 else "run"
        yield Finding(
            "GF529",
            f'{listed([each.name for each in steps])} {verb} over the parameter "{name}": counted with '
            f"{items} item{'' if items == 1 else 's'}, its default",
            steps[0].where("for_each"),
            f"--param {name}=[…] checks the list of another run; parallel bounds the fan-out whatever the list is",
            severity="note",
        )
