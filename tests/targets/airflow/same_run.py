"""Runs a DAG file so many times under one run id: `python -m tests.targets.airflow.same_run dags/nightly.py 2`.

The second time is a run that was cleared, as far as its tasks can tell.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from airflow.dag_processing.dagbag import DagBag

from gpuflow.airflow import references

DAY = datetime(2026, 11, 14, tzinfo=UTC)


def main(file: str, times: int) -> None:
    dag = DagBag(file).dags[Path(file).stem]
    for _ in range(times):
        references._run_name.cache_clear()  # as in a worker of its own
        assert str(dag.test(run_after=DAY, logical_date=DAY).state) == "success"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
