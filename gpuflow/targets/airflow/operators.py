"""Each task as the call that makes it: operator, pod, pool, budgets and limits.

The pod of a task is data with references as calls. A pool counts GPUs, so that Airflow itself holds tasks back that the
cluster could not start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuflow.core import printable
from gpuflow.pod import Engine
from gpuflow.pod.build import MadePod, made_pod
from gpuflow.pod.gang_kinds import DEFAULT
from gpuflow.pod.later_attempts import on_demand_fields
from gpuflow.pod.launcher import launcher_for
from gpuflow.pod.placement import devices_of_step
from gpuflow.pod.volumes import run_claim_volume
from gpuflow.site import Site
from gpuflow.spec.duration import Duration
from gpuflow.spec.fan_out import Range
from gpuflow.spec.policies import Retry
from gpuflow.spec.step import Step
from gpuflow.spec.text import OutputRef, ParamRef
from gpuflow.targets.airflow.engine_options import docs, kept_assets, task_arguments
from gpuflow.targets.airflow.facts import FACTS, AirflowOptions
from gpuflow.targets.airflow.flow import Task, deadlines_of, limits_of
from gpuflow.targets.airflow.python_source import Call, Infix, Method, Name
from gpuflow.targets.airflow.references import MARK, Marks, Scope, is_dynamic, join_parts
from gpuflow.targets.target import Request


def pool_name(resource: str) -> str:
    """The pool that counts a resource: `nvidia.com/gpu` is `gpu`, `nvidia.com/mig-1g.10gb` is `gpu-mig-1g.10gb`."""
    short = resource.rpartition("/")[2]
    return "gpu" if short == "gpu" else f"gpu-{short}"


def slots(step: Step, site: Site) -> dict[str, int]:
    """The pool a step's task belongs to and the slots it takes there: one for each GPU, slice or share of its pods."""
    return {pool_name(resource): count for resource, count in devices_of_step(step, site).items()}


def _pod_data(task: Task, *, leads: bool = False) -> tuple[dict[str, Any], MadePod]:
    """`metadata` and `spec` of a step's pod, with calls where the values of a run belong. `leads`: of its leader."""
    scope, planned = task.scope, task.planned
    marks = Marks(scope)
    # The ranks of a gang leave their outputs in rank 0's last words, and none to Airflow.
    is_rank = planned.step.gang is not None
    out = Engine(FACTS.supervisor, FACTS.outputs_dir, scope.within)
    engine = Engine(within=scope.within, leads=leads) if is_rank else out
    pod_made = made_pod(planned, marks, engine)
    pod: dict[str, Any] = marks.replace(pod_made.manifest)
    if (copies := scope.copies()) and planned.supervision.is_supervised:
        _add_item_arguments(pod["spec"]["containers"][0]["command"], copies)
    made = {run_claim_volume(claim): claim for claim in scope.pipeline.claims}
    for volume in pod["spec"].get("volumes", ()):
        if volume["name"] in made:
            volume["persistentVolumeClaim"]["claimName"] = Call("claim", (claim_stem(scope, made[volume["name"]]),))
    return pod, pod_made


def _launcher_data(task: Task) -> dict[str, Any]:
    """The pod that looks after a gang where the stock operator makes it, with the gang in its command.

    Nobody owns the gang: the loss of this pod leaves it to the next try, which finds it.
    """
    marks = Marks(task.scope)
    engine = Engine(FACTS.supervisor, FACTS.outputs_dir, task.scope.within)
    pod = launcher_for(task.planned, marks, engine, lambda text: MARK in text, owner="none")
    replaced: dict[str, Any] = marks.replace(pod)
    return replaced


def _add_item_arguments(command: list[Any], copies: list[tuple[str, Any]]) -> None:
    """A supervised step of a flattened sub-pipeline keeps its state apart by the items around it too."""
    words = [word.args[0] if isinstance(word, Call) else word for word in command[: command.index("--")]]
    own = next((place for place, word in enumerate(words) if str(word).startswith("--item=")), None)
    around: list[Any] = []
    for key, value in copies:
        around += [f"{key}=", value, ","]
    if own is None:
        place = next(place for place, word in enumerate(words) if str(word).startswith("--run-id="))
        command.insert(place + 1, join_parts(["--item=", *around[:-1]]))
    else:
        rest = command[own].args if isinstance(command[own], Call) else (command[own],)
        command[own] = join_parts(["--item=", *around, rest[0].removeprefix("--item="), *rest[1:]])


def claim_stem(scope: Scope, claim: str) -> str:
    """What the names of a claim's volumes start with."""
    return "-".join((*scope.group, claim)) if scope.group else f"{scope.pipeline.name}-{claim}"


LOST_WORKERS = Name("LOST_WORKERS")
LAUNCHER_TRIES: dict[str, Any] = {"retries": 3, "retry_delay": Call("timedelta", (), {"seconds": 10})}
"""Of the pod that looks after a gang: one that was taken away finds its gang again. The budgets are its own matter."""


def operator(task: Task, request: Request, items: Any = None) -> Any:
    """The call for a step; with `items` it is mapped over them."""
    if task.mark is not None:
        return mark(task, items)
    named: dict[str, Any] = {"task_id": task.name, **docs(task.step)}
    named |= _approval(task) if task.step.approval else _container(task, request)
    named = task_arguments(named | _flow(task), task.step)
    name = _class_of(task, request)
    if items is None:
        return Call(name, (), named)
    if task.step.parallel is not None and not task.scope.keys:
        named["max_active_tis_per_dagrun"] = task.step.parallel
    if name != "Approve":
        named = with_mapped_retries(named)
    named["map_index_template"] = "{{ task.label }}"
    return Method(Call(f"{name}.partial", (), named), "expand", (), {"item": items})


def with_mapped_retries(named: Mapping[str, Any]) -> dict[str, Any]:
    """The scheduler reads the retries of a mapped task here; of any other the operator says them itself."""
    failures = named.get("failures", 0)
    tries = Infix("+", failures, LOST_WORKERS) if failures else LOST_WORKERS
    return dict(named) if "retries" in named else {**named, "failures": failures, "retries": tries}


def _class_of(task: Task, request: Request) -> str:
    if task.step.approval:
        return "Approve"
    is_gang = task.step.gang is not None and not request.options_as(AirflowOptions).standalone
    return "GpuGangOperator" if is_gang else "GpuPodOperator"


def mark(task: Task, items: Any = None) -> Any:
    """The beginning or the end of a sub-pipeline; with `items` one for each of them."""
    named = {"task_id": task.name, **_flow(task)}
    if items is None:
        return Call("Mark", (), named)
    return Method(Call("Mark.partial", (), named), "expand", (), {"item": items})


def item_list(task: Task, task_id: str) -> Call:
    """The task that lists the items of a fan-out which are only known in the run."""
    scope = task.scope
    named: dict[str, Any] = {"task_id": task_id.rpartition(".")[2]}
    if scope.keys:
        needed = [
            scope.list_id(need)
            for need in task.planned.own_needs
            if scope.may_drop_items(need) and task.step.if_skipped != "run"
        ]
        named |= {"within": [scope.lister, *needed], "keys": list(scope.keys)}
    if task.step.for_each:
        named["for_each"] = {scope.item_key(task.name, key): _source(task, key) for key in task.step.for_each}
        if (task.step.pipeline is not None or task.planned.supervision.keeps_state) and is_dynamic(task.step):
            named["distinct"] = True
    return Call("ListItems", (), {**named, **_flow(task)})


def fixed_items(task: Task) -> Any:
    """The items of a fan-out that are known already."""
    assert task.step.for_each is not None
    sources = {key: _source(task, key) for key in task.step.for_each}
    if len(sources) == 1 and isinstance(next(iter(sources.values())), list):
        ((key, values),) = sources.items()
        if len(values) <= 8:
            return [{key: value} for value in values]
    return Call("combinations", (sources,))


def _source(task: Task, key: str) -> Any:
    source = (task.step.for_each or {})[key]
    if isinstance(source, Range):
        bounds = (source.start, source.stop, source.step)
        return Call("range", bounds if source.step != 1 else bounds[:2] if source.start else (source.stop,))
    if isinstance(source, ParamRef | OutputRef):
        return task.scope.node(source)
    return list(source)


def _flow(task: Task) -> dict[str, Any]:
    named: dict[str, Any] = {}
    if task.due is not None:
        named["when"] = task.due
    if task.run_anyway:
        named["trigger_rule"] = "none_failed"
    return named


def _approval(task: Task) -> dict[str, Any]:
    approval = task.step.approval
    assert approval is not None
    limit = approval.timeout or task.step.timeout
    return {"message": approval.message, **({"response_timeout": span(limit)} if limit else {}), **_deadlines(task)}


def _deadlines(task: Task) -> dict[str, Any]:
    """The time limits around a step; an exit step runs although the run's time is over."""
    if task.planned.section == "exit":
        return {}
    found = [_deadline(*each) for each in deadlines_of(task.scope)]
    return {"deadlines": found} if found else {}


def _deadline(group: str, limit: Duration, begun: Any) -> Call:
    """`deadline(run=timedelta(hours=8))`, or the same of a sub-pipeline since its beginning."""
    if not group:
        return Call("deadline", (), {"run": span(limit)})
    return Call("deadline", (), {"group": group, "limit": span(limit), "since": begun})


def _container(task: Task, request: Request) -> dict[str, Any]:
    step, scope, site = task.step, task.scope, request.site
    launched = step.gang is not None and request.options_as(AirflowOptions).standalone
    pod, made = (_launcher_data(task), None) if launched else _pod_data(task)
    first = made
    named: dict[str, Any] = {}
    if request.namespace is not None:
        named["namespace"] = request.namespace
    named["template"] = Call("Pod", (pod["metadata"],), {"spec": pod["spec"]})
    leads = step.gang is not None and step.gang.leader is not None and not launched
    if step.gang is not None and not launched:
        named["workers"] = step.gang.workers
        if leads:
            leader, first = _pod_data(task, leads=True)
            named["leader"] = Call("Pod", (leader["metadata"],), {"spec": leader["spec"]})
        if site.gangs.kind != DEFAULT:
            named["kind"] = site.gangs.kind
        if site.gangs.scheduler is not None:
            named["scheduler"] = site.gangs.scheduler
    values = {name: "string" if output.is_artifact else output.type for name, output in step.outputs.items()}
    if values:
        named["outputs"] = values
        sidecar = site.engine("airflow").output_containers.get("airflow-xcom-sidecar")
        if sidecar is not None and sidecar.limits and step.gang is None:
            parts = (("requests", sidecar.requests), ("limits", sidecar.limits))
            named["sidecar_resources"] = {
                part: {key: str(value) for key, value in amounts.items()} for part, amounts in parts if amounts
            }
    named |= _artifacts(task, request)
    if step.gang is None and task.planned.supervision.is_supervised:
        named["supervised"] = True
    named |= LAUNCHER_TRIES if launched else budgets(step.retry)
    if step.queue_timeout is not None and not launched:
        named["queue_timeout"] = span(step.queue_timeout)
    after = step.spot.fallback_after if step.spot is not None else None
    if after is not None and made is not None and first is not None:
        plain = on_demand_fields(made)
        first_plain = plain if first is made else on_demand_fields(first)
        if plain or first_plain:
            named |= {"fallback_after": after, "on_demand": plain}
        if first_plain != plain:
            named["leader_on_demand"] = first_plain
    whole = [] if request.pipeline.parallel is None else [Call("at_most", (request.pipeline.parallel,))]
    limits = [*whole, *(Call("at_most", (most, group), by) for most, group, by in limits_of(task))]
    if limits:
        named["limits"] = limits
    named |= _deadlines(task)
    if request.options_as(AirflowOptions).pools:
        for pool, count in slots(step, site).items():
            named |= {"pool": pool, "pool_slots": count}
    if links := site.engine("airflow").links:
        named["links"] = dict(sorted(links.items()))
    if request.pipeline.source.file is not None and not scope.group:
        # Without the line: a comment further up would move it, and Airflow would see a new version of the DAG.
        named["source"] = printable.line(request.shown_source)
    return named


def _artifacts(task: Task, request: Request) -> dict[str, Any]:
    """What Airflow learns of files and directories: the assets that change, and which output each of them is."""
    step = task.step
    declared = {name: output for name, output in step.outputs.items() if output.is_artifact}
    if not declared:
        return {}
    # Airflow 2 has no assets; only a step that names a place itself is refused there.
    site = None if (request.options_as(AirflowOptions).airflow or "").startswith("2.") else request.site
    assets = kept_assets(step, site, f"{task.scope.asset_home}/{task.name}")
    named: dict[str, Any] = {}
    if assets:
        named["outlets"] = [Call("Asset", (uri,)) for uri in dict.fromkeys(assets.values())]
    named["artifacts"] = {
        name: {
            **({"kind": output.kind} if output.kind is not None else {}),
            **({"asset": assets[name]} if name in assets else {}),
        }
        for name, output in declared.items()
    }
    return named


def budgets(retry: Retry | None) -> dict[str, Any]:
    """How often the step is started again, and the waits between attempts.

    A plain number is Airflow's own `retries`, which is what it says to whoever reads the file.
    """
    if retry is None:
        return {}
    backoff, more = retry.backoff, retry.more_memory
    named = {
        "retries": retry.any,
        "failures": retry.failures or None,
        "interruptions": retry.interruptions or None,
        # Without a backoff Airflow's own `retry_delay` counts, five minutes unless its settings say otherwise.
        "retry_delay": None if backoff is None else span(backoff.start),
        "interruption_delay": None if backoff is None or not retry.interruptions else span(backoff.start),
        "retry_exponential_backoff": None if backoff is None or backoff.factor == 1 else backoff.factor,
        "max_retry_delay": None if backoff is None or backoff.max is None else span(backoff.max),
        "final_exit_codes": retry.final_exit_codes or None,
        "retryable_exit_codes": retry.retryable_exit_codes,
        "other_node": retry.other_node or None,
        "more_memory": None if more is None else {"factor": more.factor, "max": str(more.max)},
    }
    return {key: value for key, value in named.items() if value is not None}


def span(duration: Duration) -> Call:
    """A duration as Python writes it: the largest unit that is exact."""
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if duration.seconds and duration.seconds % size == 0:
            return Call("timedelta", (), {unit: duration.seconds // size})
    return Call("timedelta", (), {"seconds": duration.seconds})
