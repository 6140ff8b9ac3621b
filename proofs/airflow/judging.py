"""What must have been seen, case by case; whatever else was seen is red."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .cases import TASKS

EXPECTED: Mapping[str, Mapping[str, Any]] = {
    "equal pods": {
        "stock": {"run": "success", "pods": 6, "callbacks": 6},
        "migrated": {"run": "success", "pods": 6, "callbacks": 6},
        **{task: {"differs": []} for task in TASKS},
    },
    "killed pod": {
        # Stock: each lost pod is a try, and `retries=1` is spent by the second.
        "stock": {"run": "failed", "kills": 2, "try of each killed pod": [1, 2], "tries of train": 2},
        "migrated": {
            "run": "success",
            "kills": 2,
            "try of each killed pod": [1, 1],
            "tries of train": 1,
            "pods of train": 3,
        },
    },
    "full quota": {
        "stock": {"run": "failed", "tries of train": 2, "pods of train": 0},
        "migrated": {"run": "success", "tries of train": 1, "pods of train": 1},
    },
    "nightly": {
        "good night": {
            "run": "success",
            "date": True,
            "suites of the date": 3,
            "MIG slices": 3,
            "scores": True,
            "published": True,
            "held back": False,
            "hold": "skipped",
            "alerts": 0,
        },
        "bad night": {
            "run": "failed",
            "evaluate": ["upstream_failed"],
            "exit step": True,
            "alerts": 1,
            # `airflow dags test` calls back outside the DAG processor, where nobody answers which tasks failed: the
            # alert has no steps here. tests/targets/airflow/test_airflow_alerts.py has them, with a whole Airflow.
            "alert says": {"pipeline": "nightly", "status": "failure", "date": "2026-04-16T02:15:00+00:00"},
        },
    },
    "handwritten": {
        "run": "success",
        "sensor": "success",
        "setup": True,
        "mapped functions": 2,
        "XCom to TaskFlow": True,
        "XCom to a step": True,
        "teardown": True,
        "asset": ["s3://lake/model"],
    },
    "functions": {
        "run": "failed",
        "XCom in and out": {"loss": 0.25, "steps": 6, "return_value": {"loss": 0.25, "steps": 6}},
        "one value": {"return_value": 1.5},
        "mapped": {"return_value[0]": {"lr": 1.0, "loss": 0.25}, "return_value[1]": {"lr": 0.5, "loss": 0.125}},
        "gathered": 0.125,
        "override": {"loss": 0.5, "steps": 4},
        "serializers": {"pickle": ["set", "a", "b"], "dill": ["set", "a", "b"]},
        "second try": {"state": "success", "tries": 2},
        "nothing": {"return_value": None},
        "failing": {
            "state": "failed",
            "tries": 2,
            "traceback": ["    return sizes[number]", "           ~~~~~^^^^^^^^", "KeyError: 3"],
        },
    },
}


def wrong(case: str, seen: Mapping[str, Any]) -> list[str]:
    """What is not as it must be: `path: seen, not expected`."""
    return list(_wrong(seen, EXPECTED[case], ""))


def _wrong(seen: Any, expected: Any, path: str) -> Iterator[str]:
    if isinstance(expected, Mapping) and isinstance(seen, Mapping):
        for key, value in expected.items():
            yield from _wrong(seen.get(key), value, f"{path}.{key}" if path else str(key))
    elif seen != expected:
        yield f"{path}: {seen!r}, not {expected!r}"
