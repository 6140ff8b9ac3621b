"""The arguments of a function on their way into its container: one word of the command, made when the task runs."""

from __future__ import annotations

import base64
import importlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gpuflow.airflow.function_source import MOST
from gpuflow.airflow.references import Context, Value
from gpuflow.errors import fail

SERIALIZERS = ("pickle", "dill", "cloudpickle")
"""What Airflow's own decorators offer. Values that JSON holds exactly travel as JSON, whatever is chosen."""
PROTOCOL = 4
"""Every Python since 3.8 reads it; the image's may be older than the worker's."""
FROM_CONTEXT = (
    "ds", "ds_nodash", "ts", "ts_nodash", "ts_nodash_with_tz", "run_id", "logical_date", "data_interval_start",
    "data_interval_end", "params",
)  # fmt: skip
"""Arguments that a function gets by their names alone, as those of `@task`: facts of the run that are plain data."""


class arguments(Value):
    """What the task's function is called with: after Airflow has filled in templates and the values of other tasks."""

    def __init__(self, serializer: str = "pickle") -> None:
        self.serializer = serializer

    def value(self, context: Context) -> str:
        task = context["task"]
        args = [_settled(one, context) for one in task.op_args]
        kwargs = {name: _settled(one, context) for name, one in task.op_kwargs.items()}
        kwargs |= _from_context(task.python_callable, args, kwargs, context)
        word = _word((args, kwargs), self.serializer, task.python_callable.__name__)
        size = len(word.encode())
        if size > MOST:
            text = f"the arguments of {task.python_callable.__name__} are {size:,} bytes; {MOST:,} is the most"
            raise fail("GF363", text, hint="pass the place of the data, for example a URI, instead of the data")
        return word

    def __repr__(self) -> str:
        return f"arguments({self.serializer!r})"


def _from_context(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], context: Context
) -> dict[str, Any]:
    names = list(inspect.signature(function).parameters)[len(args) :]
    wanted = [name for name in names if name in FROM_CONTEXT and kwargs.get(name) is None]
    return {name: _settled(context.get(name), context) for name in wanted}


def _settled(value: Any, context: Context) -> Any:
    """A value as another Python can have it, without Airflow and its packages."""
    if isinstance(value, Value):
        return _settled(value.value(context), context)
    if isinstance(value, datetime):
        plain = value.astimezone(UTC) if value.tzinfo is not None else value
        moment = (plain.year, plain.month, plain.day, plain.hour, plain.minute, plain.second, plain.microsecond)
        return datetime(*moment, tzinfo=UTC if value.tzinfo is not None else None)
    if isinstance(value, Mapping):
        own = {key: _settled(part, context) for key, part in value.items()}
        return own if type(value) is dict or type(value).__module__.startswith("airflow.") else value
    if type(value) in (list, tuple):
        return type(value)(_settled(part, context) for part in value)
    if isinstance(value, Sequence) and type(value).__module__.startswith("airflow."):
        return [_settled(part, context) for part in value]  # what the copies of a mapped task returned, one by one
    return value


def _word(given: tuple[list[Any], dict[str, Any]], serializer: str, function: str) -> str:
    others = [one for one in (*given[0], *given[1].values()) if not _is_json(one)]
    if not others:
        return "json:" + json.dumps(given, ensure_ascii=False, separators=(",", ":"))
    kinds = ", ".join(sorted({type(one).__name__ for one in others}))
    try:
        dumps = importlib.import_module(serializer).dumps
    except ImportError:
        text = f"arguments of {function} ({kinds}) are no JSON, and {serializer} is not installed on this worker"
        hint = f"install {serializer} on the workers and in the image, or pass numbers, text, lists and maps"
        raise fail("GF349", text, hint=hint) from None
    try:
        data = dumps(given, protocol=PROTOCOL)
    except Exception as trouble:  # each serializer, and each class with a way of its own, has other errors
        text = f"arguments of {function} ({kinds}) are no JSON, and {serializer} cannot hold them: {trouble}"
        raise fail("GF349", text, hint="pass numbers, text, lists and maps, or the place of the data") from None
    return f"{serializer}:{base64.b64encode(data).decode()}"


def _is_json(value: Any) -> bool:
    """Whether JSON gives back exactly this."""
    if type(value) is list:
        return all(map(_is_json, value))
    if type(value) is dict:
        return all(type(key) is str and _is_json(part) for key, part in value.items())
    return value is None or type(value) in (str, int, float, bool)
