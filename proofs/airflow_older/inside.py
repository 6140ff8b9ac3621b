"""Runs with the older Airflow's own Python, which has no gpuflow: `python inside.py DAG DAY`.

One process for all, because each start of Airflow costs seconds: makes the database, loads and serializes every file
of the DAG folder, and runs one DAG as `airflow dags test` does. Its last line is what came of it, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any


def airflow(*words: str) -> int:
    """The `airflow` command, in this process; its exit code."""
    from airflow.__main__ import main

    sys.argv = ["airflow", *words]
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def loaded() -> tuple[dict[str, str], dict[str, int]]:
    """Import errors by file, and the tasks of each DAG that Airflow can also store."""
    try:
        from airflow.dag_processing.dagbag import DagBag
    except ImportError:
        from airflow.models.dagbag import DagBag
    folder = os.environ["AIRFLOW__CORE__DAGS_FOLDER"]
    bag = DagBag(folder, include_examples=False)
    errors = {os.path.basename(file): str(text)[-600:] for file, text in bag.import_errors.items()}
    return errors, {name: stored(dag) for name, dag in bag.dags.items()}


def stored(dag: Any) -> int:
    """How many tasks are in what Airflow keeps in its database."""
    from airflow.serialization import serialized_objects

    serializer = getattr(serialized_objects, "DagSerialization", serialized_objects.SerializedDAG)
    text = json.dumps(serializer.to_dict(dag))
    return len(json.loads(text)["dag"]["tasks"])


def main(dag: str, day: str) -> None:
    import airflow as installed

    said: dict[str, Any] = {"version": installed.__version__, "migrated": airflow("db", "migrate")}
    said["errors"], said["dags"] = loaded()
    said["ran"] = airflow("dags", "test", dag, day)
    for stream in (sys.stderr, sys.stdout):
        stream.flush()
    print("\n" + json.dumps(said), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
