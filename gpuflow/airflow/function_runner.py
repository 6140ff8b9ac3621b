"""Runs a function of gpu_task in its container: python3 -c THIS NAME SOURCE ARGUMENTS RESULT"""

from __future__ import annotations
import __future__

import base64
import importlib
import json
import linecache
import os
import sys
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "float": (float, int), "bool": (bool,), "string": (str,)}


def given(word: str) -> Any:
    kind, _, text = word.partition(":")
    return json.loads(text) if kind == "json" else importlib.import_module(kind).loads(base64.b64decode(text))


def plain(value: Any) -> Any:
    for name in ("tolist", "_asdict", "isoformat"):  # arrays and their numbers, named tuples, dates
        if hasattr(value, name):
            return getattr(value, name)()
    if hasattr(value, "__dataclass_fields__"):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    raise TypeError(f"a value of type {type(value).__name__} is not JSON; return numbers, text, lists or dicts")


def fitting(value: Any, kind: str, what: str) -> Any:
    fits = kind not in TYPES or type(value) in TYPES[kind]  # after JSON, so that there are no subclasses
    if not fits:
        raise TypeError(f"{what} is {value!r:.80}, and its type hint says {kind}")
    return float(value) if kind == "float" else value


def result(value: Any, hint: Any) -> Any:
    value = json.loads(json.dumps(plain(value) if hasattr(value, "_asdict") else value, default=plain))
    if hint["kind"] != "map":
        return fitting(value, hint["kind"], "the returned value")
    if not isinstance(value, dict):
        raise TypeError(f"the returned value is {value!r:.80}, and its type hint says a map")
    missing = [name for name in hint["needed"] if name not in value]
    if missing:
        raise TypeError(f"the returned value has no {', '.join(missing)}, which its type hint has")
    kinds = hint["fields"]
    return {name: fitting(one, kinds.get(name, hint["each"]), f"returned {name}") for name, one in value.items()}


def main(name: str, source: str, arguments: str, returns: str) -> None:
    file, space = f"<gpu_task {name}>", {"__name__": "__main__"}
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(source, file, "exec", __future__.annotations.compiler_flag, True), space)
    args, kwargs = given(arguments)
    function: Any = space[name]
    value, hint = function(*args, **kwargs), json.loads(returns)
    if hint is None:
        return
    value, folder = result(value, hint), os.environ.get("GPUFLOW_OUTPUTS")
    path = os.path.join(folder, "return_value") if folder else "/airflow/xcom/return.json"
    with open(path, "w", encoding="utf-8") as out:
        json.dump(value if folder else {"return_value": value}, out, ensure_ascii=False)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as fault:
        traceback.print_exc()  # with the lines of the function, which Python itself looks for in a file
        if "GPUFLOW_ATTEMPT" not in os.environ and os.access("/dev/termination-log", os.W_OK):
            with open("/dev/termination-log", "w", encoding="utf-8") as log:
                log.write(f"{type(fault).__name__}: {fault}"[:1000])
        sys.exit(1)
