"""The source of a function as it travels: the function alone, with nothing around it, exactly as it was written."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import symtable
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gpuflow.errors import Finding, GpuflowError, Where, fail

MOST = 128 * 1024 - 1
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
    if outside := sorted(_outside(shipped, plain.__name__)):
        raise GpuflowError(_undefined(name, each, plain.__globals__, where) for each in outside)
    size = len(shipped.encode())
    if size > MOST:
        hint = "put the program into the image, and import it inside the function"
        raise fail("GF363", f'the source of "{name}" is {size:,} bytes; {MOST:,} is the most', where=where, hint=hint)
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


def _outside(text: str, name: str) -> set[str]:
    """Names that the function uses and nobody defines where it runs. Type hints are not evaluated there."""
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


def _undefined(function: str, name: str, space: dict[str, Any], where: Where) -> Finding:
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
