"""Runs beside a real Hera, as a program of its own: the workflows of a file as the documents that Hera makes of them.

    python inside_hera.py FILE ANSWER_FILE

It imports nothing of gpuflow. Nothing is sent: `create` and its siblings give the workflow back.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

MOST_ANSWER = 48 * 1024 * 1024
SENDING = ("create", "lint", "update", "async_create", "async_lint", "async_update", "wait", "get")


def main() -> None:
    file, answer = sys.argv[1:3]
    sys.argv = [file]
    sys.path[:] = [each for each in sys.path if each != os.path.dirname(os.path.abspath(__file__))]
    said: dict[str, Any]
    try:
        said = {"documents": _documents(file)}
    except BaseException as fault:  # sys.exit in the file is a fault of the file too
        said = {"fault": _error_report(fault, file)}
    text = json.dumps(said)
    if len(text) > MOST_ANSWER:
        text = json.dumps({"fault": {"message": f"its workflows are {len(text):,} bytes of data; that is too large"}})
    Path(answer).write_text(text, encoding="utf-8")
    os._exit(0)


def _error_report(fault: BaseException, file: str) -> dict[str, Any]:
    frames = [each for each in traceback.extract_tb(fault.__traceback__) if each.filename == file]
    shown = str(fault).strip().splitlines()
    name = type(fault).__name__
    return {
        "message": f"{name}: {shown[0][:500]}" if shown else name,
        "line": frames[-1].lineno if frames else None,
        "missing": getattr(fault, "name", None) if isinstance(fault, ImportError) else None,
    }


def _documents(file: str) -> list[Any]:
    workflow = importlib.import_module("hera.workflows").Workflow
    made: list[Any] = []

    def keep(self: Any, *_: Any, **__: Any) -> Any:
        made.append(self)
        return self

    for name in SENDING:
        if hasattr(workflow, name):
            setattr(workflow, name, keep)
    sys.path.insert(0, str(Path(file).resolve().parent))
    spec = importlib.util.spec_from_file_location("gpuflow_hera_file", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpuflow_hera_file"] = module
    spec.loader.exec_module(module)
    for value in list(vars(module).values()):
        many = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
        made += [each for each in many if isinstance(each, workflow)]
    once = {id(each): each for each in made}
    return [json.loads(json.dumps(each.to_dict(), default=str)) for each in once.values()]


if __name__ == "__main__":
    main()
