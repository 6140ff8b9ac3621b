"""What a function of `@gpu_task` needs in its container: its source, and its arguments as one word of the command.

The source is the function alone, with nothing around it, exactly as it was written. The arguments are made when the
task runs.
"""

from __future__ import annotations

import ast
import base64
import builtins
import functools
import importlib
import inspect
import json
import symtable
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gpuflow.airflow.references import Context, Value
from gpuflow.core.errors import Finding, GpuflowError, Where, fail

MAX_BYTES = 128 * 1024 - 1
"""Bytes of one word of a command that Linux takes (MAX_ARG_STRLEN), less the one that ends it."""
IF = "if 1:\n"
"""Before a definition that cannot be moved to the left without changing a text in it."""


def source_of(function: Callable[..., Any], is_ours: Callable[[Any], bool], where: Where) -> str:
    """The text that defines the function when it is run, or GF362. `is_ours`: whether a decorator is gpu_task."""
    name = getattr(function, "__name__", repr(function))
    plain = inspect.unwrap(function)
    if not isinstance(plain, types.FunctionType) or name == "<lambda>":
        raise fail("GF362", f"{name} is no function with a name", where=where, hint="write it with def")
    if inspect.iscoroutinefunction(plain) or inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        hint = "write a plain function that returns a value; it may call asyncio.run"
        raise fail("GF362", f'function "{name}" is a coroutine or a generator', where=where, hint=hint)
    try:
        text = inspect.getsource(plain)
    except (OSError, TypeError):
        hint = "write it in the DAG file, or in a module beside it"
        raise fail("GF362", f'the source of function "{name}" is not to be found', where=where, hint=hint) from None
    shipped = _without_decorators(text, plain, is_ours, where)
    if outside := sorted(_undefined_names(shipped, plain.__name__)):
        raise GpuflowError(_undefined_finding(name, each, plain.__globals__, where) for each in outside)
    size = len(shipped.encode())
    if size > MAX_BYTES:
        hint = "put the program into the image, and import it inside the function"
        raise fail(
            "GF363", f'the source of "{name}" is {size:,} bytes; {MAX_BYTES:,} is the most', where=where, hint=hint
        )
    return shipped


def _without_decorators(text: str, function: Any, is_ours: Callable[[Any], bool], where: Where) -> str:
    """The definition without our decorator and those above it, which have done their work already."""
    nested = text[:1].isspace()
    moved = textwrap.dedent(text)
    node = _definition(moved)
    if nested and (node is None or ast.dump(node) != ast.dump(_definition(IF + text) or ast.Module([], []))):
        # A text over several lines would lose its indentation, too.
        moved, node = IF + text, _definition(IF + text)
    if node is None:
        hint = "write it with def, on lines of its own"
        raise fail("GF362", f'the source of function "{function.__name__}" is not a definition', where=where, hint=hint)
    known = [is_ours(_value(each, function)) for each in node.decorator_list]
    if not any(known) and len(known) == 1:
        known = [True]  # kept in a variable that is not seen from here
    if not any(known) and known:
        hint = "write @gpu_task(…) itself above the function"
        raise fail("GF362", f'which decorator of "{function.__name__}" is gpu_task?', where=where, hint=hint)
    kept = node.decorator_list[len(known) - known[::-1].index(True) :] if known else []
    first = kept[0].lineno if kept else node.lineno
    lines = moved.splitlines(keepends=True)
    text = "".join(lines[first - 1 : node.end_lineno])
    return IF + text if moved.startswith(IF) else text


def _definition(text: str) -> ast.FunctionDef | None:
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return None
    node = body[0].body[0] if text.startswith(IF) and isinstance(body[0], ast.If) else body[0]
    return node if isinstance(node, ast.FunctionDef) else None


def _value(decorator: ast.expr, function: Any) -> Any:
    """What a decorator is, looked up by its dotted name; None where it is not seen from the function's module."""
    node = decorator.func if isinstance(decorator, ast.Call) else decorator
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    found = function.__globals__.get(node.id)
    for name in reversed(names):
        found = getattr(found, name, None)
    while isinstance(found, functools.partial):
        found = found.func
    return found


def _undefined_names(text: str, name: str) -> set[str]:
    """Names that the function uses and that are undefined where it runs. Type hints are not evaluated there."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    table = symtable.symtable(ast.unparse(tree), "function", "exec")
    used, defined = set(), {name, "__name__", *dir(builtins)}
    for each in _scopes([table]):
        top = each.get_type() == "module"
        for symbol in each.get_symbols():
            if (symbol.is_global() or top) and symbol.is_referenced():
                used.add(symbol.get_name())
            if (symbol.is_global() or top) and (symbol.is_assigned() or symbol.is_imported()):
                defined.add(symbol.get_name())
    return used - defined


def _scopes(tables: Iterable[symtable.SymbolTable]) -> Iterator[symtable.SymbolTable]:
    for table in tables:
        yield table
        yield from _scopes(table.get_children())


def _undefined_finding(function: str, name: str, space: dict[str, Any], where: Where) -> Finding:
    text = f'function "{function}" uses {name}, which is defined outside it; the container gets the function alone'
    value = space.get(name)
    if isinstance(value, types.ModuleType):
        own = value.__name__
        line = f"import {own}" if own == name else f"import {own} as {name}"
    elif getattr(value, "__module__", None) not in (None, space.get("__name__"), "__main__") and callable(value):
        line = f"from {value.__module__} import {name}"
    else:
        return Finding("GF362", text, where, f"define {name} inside the function, or pass it as an argument")
    return Finding("GF362", text, where, f"write `{line}` inside the function")


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
        args = [_plain_value(one, context) for one in task.op_args]
        kwargs = {name: _plain_value(one, context) for name, one in task.op_kwargs.items()}
        kwargs |= _from_context(task.python_callable, args, kwargs, context)
        word = _encoded_arguments((args, kwargs), self.serializer, task.python_callable.__name__)
        size = len(word.encode())
        if size > MAX_BYTES:
            text = f"the arguments of {task.python_callable.__name__} are {size:,} bytes; {MAX_BYTES:,} is the most"
            raise fail("GF363", text, hint="pass the place of the data, for example a URI, instead of the data")
        return word

    def __repr__(self) -> str:
        return f"arguments({self.serializer!r})"


def _from_context(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], context: Context
) -> dict[str, Any]:
    names = list(inspect.signature(function).parameters)[len(args) :]
    wanted = [name for name in names if name in FROM_CONTEXT and kwargs.get(name) is None]
    return {name: _plain_value(context.get(name), context) for name in wanted}


def _plain_value(value: Any, context: Context) -> Any:
    """A value as another Python can have it, without Airflow and its packages."""
    if isinstance(value, Value):
        return _plain_value(value.value(context), context)
    if isinstance(value, datetime):
        plain = value.astimezone(UTC) if value.tzinfo is not None else value
        moment = (plain.year, plain.month, plain.day, plain.hour, plain.minute, plain.second, plain.microsecond)
        return datetime(*moment, tzinfo=UTC if value.tzinfo is not None else None)
    if isinstance(value, Mapping):
        own = {key: _plain_value(part, context) for key, part in value.items()}
        return own if type(value) is dict or type(value).__module__.startswith("airflow.") else value
    if type(value) in (list, tuple):
        return type(value)(_plain_value(part, context) for part in value)
    if isinstance(value, Sequence) and type(value).__module__.startswith("airflow."):
        return [_plain_value(part, context) for part in value]  # what the copies of a mapped task returned, one by one
    return value


def _encoded_arguments(given: tuple[list[Any], dict[str, Any]], serializer: str, function: str) -> str:
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
