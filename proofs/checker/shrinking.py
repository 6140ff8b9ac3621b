"""The smallest case that shows the same fault."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace

from proofs.checker.case import Case, Manifest

KEPT = {"Namespace", "ServiceAccount", "DaemonSet"}


def shrunk(case: Case, still_shows: Callable[[Case], bool], most: int = 120) -> Case:
    """Greedy: each part is left out once, as long as the fault stays."""
    tries, again = 0, True
    while again and tries < most:
        again = False
        for smaller in _smaller(case):
            tries += 1
            if tries > most:
                break
            if still_shows(smaller):
                case, again = smaller, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    for name in list(case.pipeline["steps"]):
        if len(case.pipeline["steps"]) > 1:
            yield replace(case, pipeline=_without_step(case.pipeline, name))
    if "exit" in case.pipeline:
        yield replace(case, pipeline={key: value for key, value in case.pipeline.items() if key != "exit"})
    if "parallel" in case.pipeline:
        yield replace(case, pipeline={key: value for key, value in case.pipeline.items() if key != "parallel"})
    everything = [*case.shown, *(each for world in case.worlds for each in world)]
    for kind, home, name in dict.fromkeys(map(_name, everything)):
        # Without any node everything waits for ever, which is another fault.
        if kind not in KEPT and not (kind == "Node" and sum(each["kind"] == "Node" for each in case.shown) < 2):
            yield _without(case, (kind, home, name))
    for name, step in case.pipeline["steps"].items():
        for field in ("for_each", "parallel", "needs", "retry", "priority", "queue", "gpu"):
            if field in step:
                smaller = copy.deepcopy(case.pipeline)
                del smaller["steps"][name][field]
                if field == "for_each":
                    smaller["steps"][name].pop("parallel", None)
                yield replace(case, pipeline=smaller)


def _name(each: Manifest) -> tuple[str, str | None, str]:
    return each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]


def _without(case: Case, name: tuple[str, str | None, str]) -> Case:
    return replace(
        case,
        shown=tuple(each for each in case.shown if _name(each) != name),
        worlds=tuple(tuple(each for each in world if _name(each) != name) for world in case.worlds),
    )


def _without_step(pipeline: Manifest, name: str) -> Manifest:
    smaller = copy.deepcopy(pipeline)
    gone = smaller["steps"].pop(name)
    for step in smaller["steps"].values():
        if name in step.get("needs", ()):
            step["needs"] = [each for each in (*step["needs"], *gone.get("needs", ())) if each != name]
            step["needs"] = list(dict.fromkeys(step["needs"]))
            if not step["needs"]:
                del step["needs"]
    return smaller
