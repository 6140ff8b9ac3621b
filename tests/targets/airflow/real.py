"""Plays one task against a real cluster: `python -m tests.targets.airflow.real '{"namespace": …, "pod": …}'`.

Runs in Airflow's environment and inside the cluster's network; prints how the task ended as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any

from gpuflow.airflow import GpuPodOperator, Pod, trigger

from .playing import Stage


def main(order: dict[str, Any]) -> None:
    os.environ.setdefault("AIRFLOW__GPUFLOW__DEPLOYMENT", "tests")  # no API server of Airflow to ask for its id
    pod, arguments = order["pod"], order.get("arguments", {})
    if order.get("lost_after") is not None:
        trigger.LOST_AFTER = order["lost_after"]

    def make() -> Any:
        return GpuPodOperator(
            **{
                "task_id": "train",
                "namespace": order["namespace"],
                "template": Pod(pod["metadata"], spec=pod["spec"]),
                "poll_interval": 0.5,
                "logging_interval": 1,
                **arguments,
            }
        )

    played = Stage().play(make, tries_before=order.get("tries_before", 0))
    print("ENDED", json.dumps(asdict(played)), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
