"""The graph of a pipeline: for the terminal, for Mermaid, for Graphviz."""

from __future__ import annotations

import json
from collections.abc import Callable

from gpuflow.graph import order
from gpuflow.printable import line
from gpuflow.spec import expression
from gpuflow.spec.fan_out import Range
from gpuflow.spec.flow import edges, upstream
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import OutputRef, ParamRef

Paint = Callable[..., str]


def facts(step: Step) -> list[str]:
    """What a reader wants to know of a step at a glance: devices, fan-out, budgets, queue, conditions."""
    words: list[str] = []
    if step.gpu is not None:
        words.append(f"{step.gpu.count}× {step.gpu.words}")
    if step.mig is not None:
        words.append(f"{step.mig.count}× {step.mig.profile} of {step.mig.model}")
    if step.shared_gpu is not None:
        words.append(f"shared {step.shared_gpu.model or 'GPU'} ({step.shared_gpu.by})")
    if step.device_claim is not None:
        words.append(f"claim {step.device_claim.claim or step.device_claim.template}")
    if step.gang is not None:
        led = ", one of them leads" if step.gang.leader is not None else ""
        words.append(f"gang of {step.gang.pods}{led}")
    words += [
        f"{name} {amount.request or amount.limit}"
        for name, amount in (("cpu", step.cpu), ("mem", step.memory))
        if amount
    ]
    for name, source in (step.for_each or {}).items():
        words.append(f"for each {name} {_source(source)}")
    if step.parallel is not None:
        words.append(f"{step.parallel} at once")
    if step.retry is not None and step.retry.any:
        words.append(f"retry {step.retry.any}")
    elif step.retry is not None and step.retry.attempts:
        words.append(f"retry {step.retry.failures} failures, {step.retry.interruptions} interruptions")
    if step.checkpoint is not None:
        words.append(f"checkpoint every {step.checkpoint.every}")
    if step.spot is not None:
        words.append(f"spot {step.spot.mode}")
    if step.queue is not None:
        words.append(f"queue {step.queue}")
    if step.pipeline is not None:
        count = len(step.pipeline.steps)
        words.append(f"pipeline {step.pipeline.name}, {count} step{'' if count == 1 else 's'}")
    if step.approval is not None:
        words.append(f"waits for a person: {step.approval.message}")
    if step.when is not None:
        words.append(f"when {expression.render(step.when)}")
    return [line(word) for word in words]


def _source(source: object) -> str:
    if isinstance(source, Range):
        return f"in {len(source.items)}"
    if isinstance(source, ParamRef):
        return f"of params.{source.name}"
    if isinstance(source, OutputRef):
        return f"of {source.step}.{source.name}"
    assert isinstance(source, tuple)
    return f"in {len(source)}"


def terminal(pipeline: Pipeline, paint: Paint) -> str:
    """Parameters, then the graph with what is known of each step at its right."""
    about = line(" ".join((pipeline.description or "").strip().split("\n")))
    lines = [paint(pipeline.name, "bold") + (f"  {about}" if about else "")]
    if pipeline.schedule is not None:
        lines.append(
            f"starts at {pipeline.schedule.cron} {pipeline.schedule.timezone}, overlap: {pipeline.schedule.concurrency}"
        )
    if pipeline.on_data:
        lines.append(f"starts on new data in {line(', '.join(pipeline.on_data))}")
    for key, param in pipeline.params.items():
        value = "required" if param.required else f"= {line(json.dumps(param.default, ensure_ascii=False))}"
        lines.append(f"param {key}: {param.type} {value}")
    lines.append("")
    rows = columns(edges(pipeline))
    width = max((len(art) + len(name) for art, name in rows if name), default=0)
    for art, name in rows:
        if name is None:
            lines.append(paint(art, "dim"))
            continue
        words = paint(" · ", "dim").join(facts(pipeline.effective(name)))
        lines.append(
            f"{paint(art, 'dim')}{paint(name, 'bold')}{' ' * (width - len(art) - len(name))}  {words}".rstrip()
        )
    for end in pipeline.exit:
        step = pipeline.effective(end)
        words = paint(" · ", "dim").join(facts(step))
        lines.append(f"{paint('at the end', 'dim')} {paint(end, 'bold')} ({step.on or 'always'})  {words}".rstrip())
    return "\n".join(lines) + "\n"


MOST_LANES = 24


def columns(after: dict[str, list[str]]) -> list[tuple[str, str | None]]:
    """The graph as rows of text: a step per row, a column per open edge, rows between where edges split or meet.

    A graph with more open edges than a terminal is wide is listed by depth instead.
    """
    rows: list[tuple[str, str | None]] = []
    open_to: list[str | None] = []
    for name in order(after):
        own = [column for column, target in enumerate(open_to) if target == name]
        column = own[0] if own else _free(open_to)
        if len(own) > 1:
            rows.append((_joint(open_to, column, dict.fromkeys(own[1:], "╯")), None))
            for other in own:
                open_to[other] = None
        if column == len(open_to):
            open_to.append(None)
        open_to[column] = None
        cells = ["● " if index == column else ("│ " if target else "  ") for index, target in enumerate(open_to)]
        rows.append(("".join(cells).rstrip() + " ", name))
        shared = {index: "┤" for index, target in enumerate(open_to) if target in after[name]}
        fresh = [target for target in after[name] if target not in open_to]
        for position, target in enumerate(fresh):
            place = column if position == 0 else _free(open_to)
            if place == len(open_to):
                open_to.append(None)
            open_to[place] = target
            if position:
                shared[place] = "╮"
        if shared:
            rows.append((_joint(open_to, column, shared), None))
        while open_to and open_to[-1] is None:
            open_to.pop()
        if len(open_to) > MOST_LANES:
            return _by_depth(after)
    return rows


def _free(open_to: list[str | None]) -> int:
    return next((index for index, target in enumerate(open_to) if target is None), len(open_to))


_LEFT = {"┤": "├", "╮": "╭", "╯": "╰"}
_INSIDE = {"┤": "┼", "╮": "┬", "╯": "┴"}
"""An end of a horizontal line, drawn from the right; as it looks at the left end, and where the line goes on."""


def _joint(open_to: list[str | None], column: int, ends: dict[int, str]) -> str:
    """The row in which one column is connected with others."""
    low, high = min(column, *ends), max(column, *ends)
    cells = []
    for index, target in enumerate(open_to):
        inside = low < index < high
        if index == column:
            corner = "├" if high > column else "┤"
            mark = (
                corner if open_to[column] or any(end == "╯" for end in ends.values()) else "╰" if high > column else "╯"
            )
        elif index in ends:
            mark = (_INSIDE if inside else _LEFT if index < column else {}).get(ends[index], ends[index])
        elif inside:
            mark = "┼" if target else "─"
        else:
            mark = "│" if target else " "
        cells.append(mark + ("─" if low <= index < high else " "))
    return "".join(cells).rstrip()


def _by_depth(after: dict[str, list[str]]) -> list[tuple[str, str | None]]:
    depth = dict.fromkeys(after, 0)
    for name in order(after):
        for target in after[name]:
            depth[target] = max(depth[target], depth[name] + 1)
    return [("  " * min(depth[name], 20), name) for name in order(after)]


def mermaid(pipeline: Pipeline) -> str:
    """A Mermaid flowchart, as GitHub and GitLab draw it."""
    lines = ["flowchart TD"]
    ids = {name: f"s{index}" for index, name in enumerate((*pipeline.steps, *pipeline.exit))}
    for name in (*pipeline.steps, *pipeline.exit):
        label = "<br/>".join([f"<b>{name}</b>", *map(html, facts(pipeline.effective(name)))])
        lines.append(f'  {ids[name]}["{label}"]')
    for name, needs in upstream(pipeline).items():
        lines += [f"  {ids[need]} --> {ids[name]}" for need in needs]
    ends = [name for name, targets in edges(pipeline).items() if not targets]
    for name in pipeline.exit:
        lines += [f"  {ids[end]} -.-> {ids[name]}" for end in ends]
    return "\n".join(lines) + "\n"


def html(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


def dot(pipeline: Pipeline) -> str:
    """A Graphviz digraph."""
    lines = [f"digraph {json.dumps(pipeline.name)} {{", "  rankdir=TB;", "  node [shape=box];"]
    for name in (*pipeline.steps, *pipeline.exit):
        label = json.dumps("\n".join([name, *facts(pipeline.effective(name))]), ensure_ascii=False)
        style = ", style=dashed" if name in pipeline.exit else ""
        lines.append(f"  {json.dumps(name)} [label={label}{style}];")
    for name, needs in upstream(pipeline).items():
        lines += [f"  {json.dumps(need)} -> {json.dumps(name)};" for need in needs]
    ends = [name for name, targets in edges(pipeline).items() if not targets]
    for name in pipeline.exit:
        lines += [f"  {json.dumps(end)} -> {json.dumps(name)} [style=dashed];" for end in ends]
    return "\n".join([*lines, "}"]) + "\n"
