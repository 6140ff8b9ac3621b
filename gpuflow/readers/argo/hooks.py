"""Exit handlers and lifecycle hooks of a step: what runs when it has ended, and what runs beside it.

Mirrors executeTmplLifeCycleHook and runOnExitNode of workflow/controller, Argo v4.0.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpuflow.graph import Dag, Leaf, Tree
from gpuflow.readers.argo.nodes import At, Child, Place
from gpuflow.readers.argo.spec import arguments_of
from gpuflow.readers.argo.values import mapping, text_of
from gpuflow.readers.argo.walk import Walk, in_turn

EXIT = "exit"
LOOPS = ("withItems", "withParam", "withSequence")
_ENDED = re.compile(r"""['"](Succeeded|Failed|Error)['"]""")


def with_hooks(walk: Walk, call: Mapping[str, Any], child: Child, at: At, name: str, place: Place) -> Child:
    """A step with what its hooks run."""
    beside: dict[str, Tree] = {}
    after: dict[str, Tree] = {}
    is_pods, count = child.is_pods, child.count
    for key, hook, spot, ends in hooks_of(walk, call, place):
        inside = replace(at, sure=False, on_exit=at.on_exit or key == EXIT)
        called = f"{name}.{'onExit' if key == EXIT else f'hook-{key}'}"
        if key != EXIT or text_of(hook.get("expression")):
            walk.found.conditional[called] = False
        found = run_hook(walk, hook, inside, called, spot)
        (after if ends else beside)[called] = found.tree
        is_pods = is_pods and found.is_pods
        count = None if count is None or found.count is None else count + found.count
    if not beside and not after:
        return child
    tree = Dag({name: child.tree, **beside}) if beside else child.tree
    if after:
        tree = in_turn(tree, Dag(after))
        if child.is_daemon or any(call.get(each) for each in LOOPS):
            # A daemon ends with its template, and the handlers of all copies need not live at once.
            walk.found.at_most.append(f"the exit handler of {name} may never run beside all that it could")
    return replace(child, tree=tree, is_pods=is_pods, count=count)


def hooks_of(walk: Walk, call: Mapping[str, Any], place: Place) -> Iterator[tuple[str, Mapping[str, Any], Place, bool]]:
    """The hooks of a step or workflow: name, hook, place, and whether it starts only when the step has ended."""
    hooks = mapping(call.get("hooks"))
    written = text_of(call.get("onExit"))
    if written:
        yield EXIT, {"template": written}, place.at("onExit"), True
    for key, hook in hooks.items():
        if not isinstance(hook, Mapping) or (key == EXIT and written):
            continue
        expression = text_of(hook.get("expression")) or ""
        spot = place.at("hooks", str(key))
        if key == EXIT:
            yield EXIT, hook, spot, True
            continue
        ended = _ENDED.search(expression) is not None and "Running" not in expression and "!" not in expression
        running = "'Running'" in expression or '"Running"' in expression
        if not ended and not running:
            walk.found.at_most.append(f"hook {key} may never run beside its step")
        yield re.sub(r"[^A-Za-z0-9_-]", "-", str(key)), hook, spot, ended


def run_hook(walk: Walk, hook: Mapping[str, Any], at: At, name: str, place: Place) -> Child:
    """The template that a hook calls; without arguments of its own it gets those of the workflow."""
    walk.found.names[name] = None
    template = walk.resolved(hook, at, name, place)
    if template is None:
        return Child(Leaf(name, {}, 0), count=0)
    source = hook if mapping(hook.get("arguments")) else walk.spec.tree
    return walk.template(template, arguments_of(source, at.scope, walk.library), at, name, place)
