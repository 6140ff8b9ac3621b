"""Airflow, imported once: each order starts `airflow dags test` in a fork of this process.

An import of Airflow costs more than a whole run of a small DAG. Orders come as lines of JSON. The file that is named
on the command line appears when all is imported; the exit code of a run is in the file that its order names.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

IMPORTED = (
    "airflow.__main__",
    "airflow.api_fastapi.execution_api.app",
    "airflow.cli.commands.dag_command",
    "airflow.providers.cncf.kubernetes.operators.pod",
    "airflow.providers.standard.sensors.python",
    "airflow.sdk.execution_time.supervisor",
    "gpuflow.airflow.functions",
    "gpuflow.airflow.operator",
    "gpuflow.airflow.trigger",
)


def main(ready: Path) -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    _warm_up()
    ready.touch()
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            _play(order)
        threading.Thread(target=_reap, args=(child, Path(order["code"])), daemon=True).start()


def _warm_up() -> None:
    """The routes of Airflow's own API for tasks, which every run would make again. It opens nothing yet."""
    supervisor = importlib.import_module("airflow.sdk.execution_time.supervisor")
    app = supervisor.in_process_api_server().app
    if not getattr(app, "_cadwyn_initialized", True):
        app._cadwyn_initialize()


def _play(order: dict[str, Any]) -> None:
    """Be `airflow dags test …` with this environment and this log; never returns."""
    code = 1
    try:
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.environ.update(order["environment"])
        sys.argv = ["airflow", "dags", "test", *order["words"]]
        importlib.import_module("airflow.__main__").main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _reap(child: int, file: Path) -> None:
    _, status = os.waitpid(child, 0)
    partial = file.with_suffix(".new")
    partial.write_text(str(os.waitstatus_to_exitcode(status)))
    partial.replace(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
