"""How many tasks a pipeline has when each component stands where a task refers to it, worked out without doing so."""

from __future__ import annotations

from gpuflow.readers.kfp.ir import Ir
from gpuflow.readers.kfp.message import Message

MOST_TASKS = 20_000
"""A pipeline of more tasks is not read: Kubeflow's own limit is a workflow of 1 MiB, some hundred tasks."""
MOST_NESTED = 100


def task_count(ir: Ir) -> int:
    """The number of tasks; one that contains itself counts once."""
    components = ir.spec.message("components")
    known: dict[str, int] = {}
    open_now: set[str] = set()

    def count(component: Message) -> int:
        return sum(1 + within(task.message("componentRef").text("name")) for _, task in _tasks(component))

    def within(name: str) -> int:
        if name not in components.value or name in open_now:
            return 0
        if name not in known:
            if len(open_now) >= MOST_NESTED:
                return 0
            open_now.add(name)
            known[name] = min(count(components.entry(name)), MOST_TASKS + 1)
            open_now.remove(name)
        return known[name]

    return count(ir.root)


def _tasks(component: Message) -> list[tuple[str, Message]]:
    return list(component.message("dag").message("tasks").entries())
