"""Plays tasks of compiled DAG files against a real cluster: `python -m proofs.retries.airflow_player FOLDER`.

Runs in Airflow's environment and inside the cluster's network. The DAG files, the operator, its trigger and its hook
are Airflow's and ours; around them stands what the scheduler does for one task: the next try after an AirflowException,
none after an AirflowFailException, the trigger's event, the task's state. Each order `orders/NAME.json` is played in a
thread of its own, and how it ended is written to `ends/NAME.json`.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
import time
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.targets.airflow.playing import Stage

STEP = "work"


class Task(Stage):
    """One task of a DAG of its own."""

    dag_id = ""

    def context(self, task: Any, try_number: int = 1) -> dict[str, Any]:
        context = super().context(task, try_number)
        named = {**vars(context["ti"]), "dag_id": self.dag_id}
        context["ti"] = SimpleNamespace(**named)
        context["dag_run"] = SimpleNamespace(**{**vars(context["dag_run"]), "dag_id": self.dag_id})
        return context


def play(folder: Path, order: dict[str, str]) -> None:
    name = order["name"]
    try:
        spec = importlib.util.spec_from_file_location(f"dag_{name}", order["file"])
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)

        def make() -> Any:
            spec.loader.exec_module(module)
            task = module.dag.get_task(STEP)
            task.poll_interval = 1.0
            return task

        stage = Task()
        stage.dag_id = name
        played = stage.play(make)
        assert stage.store is not None
        end = {
            "state": "succeeded" if played.state == "success" else "failed",
            "message": " | ".join(played.messages)[-2000:],
            "tries": played.tries,
            "ledger": stage.store.get("gpuflow_ledger", {}),
            "nodes": [],
        }
    except BaseException:
        end = {"state": "broken", "message": traceback.format_exc()[-3000:], "ledger": {}, "nodes": []}
    partial = folder / f"{name}.end"
    partial.write_text(json.dumps(end))
    partial.rename(folder / "ends" / f"{name}.json")


def main(folder: Path) -> None:
    begun: set[str] = set()
    while True:
        for path in sorted((folder / "orders").glob("*.json")):
            if path.name not in begun:
                begun.add(path.name)
                order = json.loads(path.read_text())
                threading.Thread(target=play, args=(folder, order), daemon=True).start()
        time.sleep(0.3)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
