"""Why a number in a DAG file is what it is, as a comment beside it, where a reader would stop and wonder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuflow.targets.airflow.python import Call, Infix, Method, Name, Noted

LIMITS = "Pods that may exist at once: max_active_tasks does not count tasks that wait in the triggerer."
LINKS = "Buttons on the page of a task, from the site."
OF_RUN = "When it is over, steps fail and exit steps still run; with Airflow's dagrun_timeout they would not."
OF_GROUP = "When the time of a group is over, its steps fail and are not tried again."
APART = "Airflow's own retry_delay lies between them: 5 minutes, or [core] default_task_retry_delay"
DEFERRED = "running tasks only; pods are counted by limits="
LOST_WORKERS = "LOST_WORKERS"


def of_constant(name: str, value: Any) -> str:
    """The reason for a constant; nothing where its name says it all."""
    return _of_argument(name.partition("_")[0].lower(), value)


def _of_argument(name: str, value: Any) -> str:
    if name == "deadlines":
        return OF_RUN if any("run" in each.named for each in value) else OF_GROUP
    return {"limits": LIMITS, "links": LINKS}.get(name, "")


def with_reasons(node: Any, whole: Any) -> Any:
    """A task's call with a reason beside each number that needs one. `whole`: the call without names of constants."""
    if isinstance(node, Method):
        named = dict(node.named)
        if (count := _copies(named.get("item"))) > 1:
            named["item"] = Noted(named["item"], f"{count} tasks")
        return Method(with_reasons(node.target, whole.target), node.name, node.args, named)
    if not isinstance(node, Call):
        return node
    found = dict(_reasons(node.named, whole.named))
    named = {key: Noted(value, found[key]) if key in found else value for key, value in node.named.items()}
    supervised = not {"supervised", "workers"}.isdisjoint(node.named)
    for key in ("template", "leader"):
        if isinstance(node.named.get(key), Call):
            named[key] = _pod(node.named[key], supervised=supervised)
    return Call(node.name, node.args, named)


def of_settings(settings: Mapping[str, Any], tasks: list[Any]) -> dict[str, Any]:
    """The DAG's own settings with a reason beside those that need one."""
    counts = any("limits" in _named(task) for task in tasks)
    if "max_active_tasks" not in settings or not counts:
        return dict(settings)
    return {**settings, "max_active_tasks": Noted(settings["max_active_tasks"], DEFERRED)}


def _reasons(named: Mapping[str, Any], whole: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from _of_retries(named)
    if named.get("pool_slots") in _devices(whole.get("template")):
        yield "pool_slots", "one for each GPU, slice or share"
    for argument in ("deadlines", "limits", "links"):
        if isinstance(value := named.get(argument), list | dict) and value:
            yield argument, _of_argument(argument, value)
    if "schedule_timeout_seconds" in named:
        yield "schedule_timeout_seconds", "waiting for a node; by default it is 2 minutes, which fails queued steps"
    if "startup_timeout_seconds" in named and "schedule_timeout_seconds" in named:
        yield "startup_timeout_seconds", "pulling the image"


def _of_retries(named: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    retries, failures = named.get("retries"), named.get("failures")
    if retries == Name(LOST_WORKERS):
        yield "retries", "only for workers that die: a failure of the step is not retried"
    elif isinstance(retries, Infix):
        yield "retries", "the failures, and tries for workers that die; of a mapped task Airflow reads them here"
    elif retries and "retry_delay" not in named:
        yield "retries", APART
    if failures and "retry_delay" not in named:
        yield "failures", APART
    if named.get("interruptions") and "interruption_delay" not in named:
        yield "interruptions", "another pod at once, in the same try"


def _pod(pod: Call, *, supervised: bool) -> Call:
    spec = dict(pod.named["spec"])
    if "activeDeadlineSeconds" in spec:
        because = "the step's timeout"
        if supervised:
            because += ", which gpuflow-run keeps itself, and an hour for the image, init containers and the end"
        spec["activeDeadlineSeconds"] = Noted(spec["activeDeadlineSeconds"], because)
    command = spec["containers"][0].get("command", ())
    if "terminationGracePeriodSeconds" in spec and any(str(word).startswith("--grace=") for word in command):
        grace = spec["terminationGracePeriodSeconds"]
        spec["terminationGracePeriodSeconds"] = Noted(grace, "longer than --grace below, for the last checkpoint")
    return Call(pod.name, pod.args, {**pod.named, "spec": spec})


def _devices(pod: Any) -> set[int]:
    """How many devices of each kind a pod asks for."""
    if not isinstance(pod, Call):
        return set()
    limits = pod.named["spec"]["containers"][0].get("resources", {})
    amounts = limits.get("limits", {}) if isinstance(limits, Mapping) else {}
    return {int(amount) for key, amount in amounts.items() if "/" in key and str(amount).isdecimal()}


def _copies(items: Any) -> int:
    """How many tasks a fan-out makes, where nobody sees it at once."""
    if not (isinstance(items, Call) and items.name == "combinations"):
        return 0
    count = 1
    for source in items.args[0].values():
        count *= len(range(*source.args)) if isinstance(source, Call) else len(source)
    return count


def _named(call: Any) -> Mapping[str, Any]:
    if isinstance(call, Method):
        return _named(call.target)
    return call.named if isinstance(call, Call) else {}
