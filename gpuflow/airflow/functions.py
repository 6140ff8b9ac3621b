"""`@gpu_task`: a Python function of a DAG file that runs in a pod with a GPU.

    @gpu_task(image="registry.example.com/train:1", gpu="a100-80gb", retry={"failures": 1, "interruptions": 10})
    def train(path: str, lr: float = 1e-4) -> float:
        import torch
        …
        return loss

    train(extract(), lr=0.1)                       # a task; extract() may be another task
    train.partial(path="s3://…").expand(lr=[0.1, 0.2])

The function becomes the command of a step, so its pod, its retries and its checkpoints are those of any other step.
Its return hint says what it passes on:

-> None                      nothing is passed on
-> float, int, str, bool     one value of this type
-> dict[str, float]          one XCom for each key, all of this type
-> a TypedDict, a dataclass  one XCom for each field, of its type
anything else, or nothing    one value, any JSON
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from types import NoneType
from typing import Any

import attr
from airflow.sdk.bases.decorator import DecoratedOperator, _TaskDecorator, get_unique_task_id
from airflow.sdk.definitions.context import KNOWN_CONTEXT_KEYS

from gpuflow.airflow.dags import make_object
from gpuflow.airflow.function_source import FROM_CONTEXT, SERIALIZERS, arguments, source_of
from gpuflow.airflow.operator import GpuPodOperator
from gpuflow.airflow.operator_arguments import refuse_arguments
from gpuflow.airflow.single_step import MAPPED_ARGUMENTS, StepTask, default_retries, load_site_of_dag, operator_of
from gpuflow.airflow.step_pods import XCOM_RETURN_KEY
from gpuflow.core.errors import Finding, GpuflowError, Where, did_you_mean, fail
from gpuflow.plan import supervision_of
from gpuflow.site import Site
from gpuflow.spec.builder import caller
from gpuflow.spec.rules.remarks import log_findings, step_template_warnings
from gpuflow.spec.step import Step
from gpuflow.spec.text import OutputRef, ParamRef
from gpuflow.targets.airflow.operators import with_mapped_retries

SCALARS: dict[Any, str] = {int: "int", float: "float", bool: "bool", str: "string"}


@dataclasses.dataclass(frozen=True)
class ReturnType:
    hint: Mapping[str, Any] | None
    """As the program in the container checks it; None for nothing."""
    multiple: bool = False
    """Whether each key of the map is an output of its own."""


def return_type(function: Callable[..., Any], multiple_outputs: bool | None, *, pushes: bool = True) -> ReturnType:
    """By the return hint; `multiple_outputs` overrules whether a map is one output or several."""
    kind = _return_type(function)
    if kind is NoneType or not pushes:
        return ReturnType(None)
    fields, each, needed = _fields(kind)
    if fields is None and each is None:
        if multiple_outputs:
            return ReturnType({"kind": "map", "fields": {}, "needed": [], "each": "json"}, True)
        return ReturnType({"kind": SCALARS.get(kind, "json")})
    hint = {"kind": "map", "fields": fields or {}, "needed": needed, "each": each or "json"}
    return ReturnType(hint, multiple_outputs is not False)


def _return_type(function: Callable[..., Any]) -> Any:
    """The return hint; `object` where there is none, or where it cannot be found out here."""
    try:
        return typing.get_type_hints(function).get("return", object)
    except Exception:  # names that only a type checker sees
        hint = getattr(function, "__annotations__", {}).get("return", object)
        return NoneType if hint in (None, "None") else object


def _fields(kind: Any) -> tuple[dict[str, str] | None, str | None, list[str]]:
    """Names and types of a map's entries, where they are known; the type of all of them; those that must be there."""
    if typing.is_typeddict(kind):
        hints = _hints(kind)
        return hints, None, sorted(kind.__required_keys__)
    if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")):
        hints = _hints(kind)
        return hints, None, sorted(hints)
    origin = typing.get_origin(kind) or kind
    if isinstance(origin, type) and issubclass(origin, Mapping):
        arguments = typing.get_args(kind)
        return None, SCALARS.get(arguments[1], "json") if len(arguments) == 2 else "json", []
    return None, None, []


def _hints(kind: Any) -> dict[str, str]:
    try:
        hints = typing.get_type_hints(kind)
    except Exception:
        hints = dict.fromkeys(kind.__annotations__, object)
    return {name: SCALARS.get(hint, "json") for name, hint in hints.items()}


ARGUMENTS = "gpuflow_arguments"
"""The parameter of the step that the arguments of the function are passed in."""
NOT_HERE = {
    "command": "the function is the command",
    "args": "the function takes arguments: pass them where it is called",
    "script": "the function is the program",
    "inputs": "pass the location as an argument",
    "when": "use @task.short_circuit or @task.branch of Airflow before it",
    "for_each": "call .expand(…)",
    "parallel": "write max_active_tis_per_dagrun=N",
    "needs": "write >> between tasks",
    "if_skipped": 'write trigger_rule="none_failed"',
    "on": "write trigger_rule=…",
    "params": "the function takes arguments: pass them where it is called",
    "approval": "use an operator of Airflow for it",
    "outputs_from": "leave it out: what the function returns is passed on, with gpuflow-run in the image or without",
    "cache": "leave it out: Airflow keeps no results of earlier runs",
    "gang": "leave it out: one task is one pod",
}
"""Fields of a step that a function has its own way to say."""
OWN_ARGUMENTS = ("namespace", "pipeline", "serializer", "python", "airflow", "site")
"""Arguments of the decorator that are neither a step's nor Airflow's."""


class GpuFunctionOperator(DecoratedOperator, GpuPodOperator):  # type: ignore[misc]  # as everywhere: no Airflow here
    """Runs a function as a pod. Its arguments are templates, as those of any function of Airflow's own `@task`."""

    custom_operator_name = "@gpu_task"
    template_fields: Sequence[str] = ("op_args", "op_kwargs", *GpuPodOperator.template_fields)
    template_fields_renderers = {  # noqa: RUF012 (Airflow's own shape)
        **GpuPodOperator.template_fields_renderers,
        "op_args": "py",
        "op_kwargs": "py",
    }
    shallow_copy_attrs: Sequence[str] = ("python_callable",)

    def __init__(self, *, multiple_outputs: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.multiple_outputs = multiple_outputs


@attr.define(slots=False)
class GpuTask(_TaskDecorator):  # type: ignore[misc]  # Airflow is not installed where types are checked
    """A decorated function: call it for a task, or `expand`, `expand_kwargs`, `partial` and `override` it first."""

    where: Where = attr.field(factory=Where)
    source: str = ""
    returned: ReturnType = attr.field(factory=lambda: ReturnType(None))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _TaskDecorator.__call__(self._with_operator_arguments(), *args, **kwargs)

    def _expand(self, expand_input: Any, *, strict: bool) -> Any:
        return _TaskDecorator._expand(self._with_operator_arguments(mapped=True), expand_input, strict=strict)

    def override(self, **kwargs: Any) -> Any:
        """The same function with other arguments of the decorator."""
        _refuse_names(kwargs, self.where)
        refuse_arguments(kwargs.get("airflow") or {}, "gpu_task", FUNCTIONS_TOO)
        if "site" in kwargs:
            kwargs["site"] = load_site_of_dag(kwargs["site"], sys._getframe(1).f_globals)
        if "multiple_outputs" in kwargs:
            result = return_type(self.function, kwargs.pop("multiple_outputs"))
            return EVOLVE(self, returned=result).override(**kwargs)
        return super().override(**kwargs)

    def _with_operator_arguments(self, *, mapped: bool = False) -> Any:
        """The decorator with the operator's arguments, derived from the step and its position in the DAG."""
        given = dict(self.kwargs)
        inside = {name: given.pop(name) for name in ("op_args", "op_kwargs") if name in given}
        more = {**{name: value for name, value in given.items() if name not in FIELDS}, **given.pop("airflow", {})}
        own = {name: more.pop(name) for name in OWN_ARGUMENTS if name in more}
        more["task_id"] = get_unique_task_id(more["task_id"], more.get("dag"), more.get("task_group"))
        fields = {name: value for name, value in given.items() if name in FIELDS}
        pushes = more.pop("do_xcom_push", True)
        result = self.returned if pushes else ReturnType(None)
        step = self._step(fields, own, result)
        if step.retry is not None and more.get("retries") is not None:
            text = f'retries of Airflow stands beside the retry of "{self.function.__name__}"'
            raise fail("GF361", text, where=self.where, hint="keep one: remove retries, or retry")
        task = StepTask(step, own["site"], own.get("namespace"), own.get("pipeline", "airflow"), more)
        call = operator_of(
            task, {ARGUMENTS: arguments(own.get("serializer", "pickle"))}, mapped=(MAPPED_ARGUMENTS,) * mapped
        )
        given_retries = step.retry is None and default_retries(more) is not None
        arguments_of = with_mapped_retries(call.named) if mapped and not given_retries else dict(call.named)
        named = {**task.own_retries, **make_object(arguments_of, {}), **more, **inside}
        return EVOLVE(self, kwargs=named, multiple_outputs=result.multiple)

    def _step(self, fields: Mapping[str, Any], own: Mapping[str, Any], result: ReturnType) -> Any:
        """The function as a step. It writes Airflow's file itself where nothing else asks for the supervisor."""
        site, name = own["site"], self.function.__name__
        words = [own.get("python") or site.runtime.python, "-c", RUNNER(), name, self.source, {"param": ARGUMENTS}]
        words.append(json.dumps(result.hint, sort_keys=True))
        step = STEP(name, **fields, command=words)
        if result.hint is not None:
            outputs = {**fields.get("outputs", {}), XCOM_RETURN_KEY: "json"}
            alone = {} if supervision_of(step, site).is_supervised else {"outputs_from": "xcom"}
            step = STEP(name, **{**fields, "outputs": outputs}, **alone, command=words)
        return step


# What these take, types do not say: they are Airflow's, or made by a metaclass.
EVOLVE: Any = attr.evolve
GPU_TASK: Any = GpuTask
STEP: Any = Step

FIELDS = frozenset(Step.model_fields) - set(OWN_ARGUMENTS)
"""Fields of a step. Its `pipeline` is a name here."""


@functools.cache
def RUNNER() -> str:
    """The program that calls the function in the container."""
    return (resources.files("gpuflow") / "airflow" / "function_runner.py").read_text(encoding="utf-8")


def gpu_task(
    python_callable: Callable[..., Any] | None = None,
    *,
    site: Site | str = "nvidia",
    namespace: str | None = None,
    pipeline: str = "airflow",
    serializer: str = "pickle",
    python: str | None = None,
    multiple_outputs: bool | None = None,
    airflow: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Any:
    """A Python function of a DAG file that runs in a pod with a GPU.

    The rules are those of `@task.kubernetes`: the source of the function alone is shipped, so it imports what it needs
    inside; arguments are plain values, templates, or values of other tasks; what it returns is the task's XCom. The
    function may be called, and has `.expand`, `.expand_kwargs`, `.partial` and `.override`.

    :param python_callable: the function, where `@gpu_task` stands without arguments.
    :param site: how the cluster names its GPUs and queues: a Site, a preset, or a file. A relative path starts at the
        folder of the DAG file.
    :param namespace: where the pods run; the site's namespace unless given.
    :param pipeline: the pipeline's name in the labels of the pods, and in the paths of their checkpoints.
    :param serializer: how arguments travel that JSON cannot hold: "pickle", "dill" or "cloudpickle". The last two must
        be installed on the worker and in the image.
    :param python: the Python of the image; the site's `runtime.python` (python3) unless given.
    :param multiple_outputs: whether each key of a returned map is an XCom of its own. Unless given, the return hint
        says so: dict[str, …], a TypedDict or a dataclass is, anything else is not.
    :param airflow: arguments of Airflow's operator whose names a step has too, such as `{"queue": "celery-queue"}`.
    :param fields: every field of `gpuflow.Step` except command, script and those about order and items: `image`,
        `gpu`, `mig`, `shared_gpu`, `cpu`, `memory`, `env`, `volumes`, `queue`, `retry`, `checkpoint`, `timeout`, …;
        and arguments of Airflow's operator: `task_id`, `trigger_rule`, `pool`, `on_failure_callback`, `retries`, …
    """
    where = caller()
    if python_callable is not None and not callable(python_callable):
        raise fail("GF362", f"gpu_task takes named arguments, not {python_callable!r}", where=where, hint="image=…")
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") == "functools":
        frame = frame.f_back
    site = load_site_of_dag(site, frame.f_globals)
    if serializer not in SERIALIZERS:
        hint = did_you_mean(serializer, SERIALIZERS) or f"one of {', '.join(SERIALIZERS)}"
        raise fail("GF362", f'"{serializer}" is no serializer', where=where, hint=hint)
    _refuse_names(fields, where)
    refuse_arguments(airflow or {}, "gpu_task", FUNCTIONS_TOO)
    own: dict[str, Any] = {"site": site, "pipeline": pipeline, "serializer": serializer}
    own |= {"namespace": namespace} if namespace is not None else {}
    own |= {"python": python} if python is not None else {}
    kwargs = {**fields, **own, "airflow": dict(airflow or {})}

    def decorate(function: Callable[..., Any]) -> GpuTask:
        return _make_task(function, kwargs, multiple_outputs, where)

    return decorate if python_callable is None else decorate(python_callable)


FUNCTIONS_TOO = ("do_xcom_push", "multiple_outputs", "render_template_as_native_obj")
"""Arguments of Airflow that mean something for a function, and not for a step."""


def _make_task(
    function: Callable[..., Any], kwargs: Mapping[str, Any], multiple_outputs: bool | None, where: Where
) -> GpuTask:
    source = source_of(function, lambda found: found is gpu_task or isinstance(found, GpuTask), where)
    _refuse_context(function, where)
    result = return_type(function, multiple_outputs)
    task: GpuTask = GPU_TASK(
        function=function,
        operator_class=GpuFunctionOperator,
        multiple_outputs=result.multiple,
        kwargs=dict(kwargs),
        where=where,
        source=source,
        returned=result,
    )
    step = task._step({name: value for name, value in kwargs.items() if name in FIELDS}, kwargs, result)
    refs = [ref.name for _, ref in step.references() if isinstance(ref, ParamRef | OutputRef) and ref.name != ARGUMENTS]
    if refs:
        text = f'"{function.__name__}" uses {{param: {refs[0]}}}, and a function has no parameters but its own'
        raise fail("GF362", text, where=where, hint=f"pass {refs[0]} as an argument of the function")
    log_findings([each for each in step_template_warnings(step, where) if "command" not in each.message], __name__)
    return task


def _refuse_names(given: Mapping[str, Any], where: Where) -> None:
    """What a function says in another way, what Airflow's operator would do behind its back, and what nobody knows."""
    found = [
        Finding("GF362", f"gpu_task does not take {name}", where, hint)
        for name, hint in NOT_HERE.items()
        if given.get(name) is not None
    ]
    if found:
        raise GpuflowError(found)
    rest = {name: value for name, value in given.items() if name not in FIELDS and name not in OWN_ARGUMENTS}
    refuse_arguments(rest, "gpu_task", FUNCTIONS_TOO)


def _refuse_context(function: Callable[..., Any], where: Where) -> None:
    """Arguments that Airflow would fill in by name with objects of the worker."""
    names = [name for name in inspect.signature(function).parameters if name in KNOWN_CONTEXT_KEYS]
    wrong = [name for name in names if name not in FROM_CONTEXT]
    if wrong:
        text = f'function "{function.__name__}" takes {wrong[0]}, which only a worker of Airflow has'
        raise fail("GF362", text, where=where, hint=f"it may take {', '.join(FROM_CONTEXT)}; pass the rest as values")
