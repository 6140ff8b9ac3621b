"""Plays one task against a real cluster: `python -m tests.targets.airflow.real '{"namespace": …, "pod": …}'`.

Runs in Airflow's environment and inside the cluster's network; prints how the task ended as JSON. On SIGTERM it does
what Airflow does when a person stops the task: on_kill of the operator, or with `killed_in: trigger` of the trigger.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import asdict
from datetime import timedelta
from typing import Any, NoReturn

from gpuflow.airflow import GpuGangOperator, GpuPodOperator, Pod, trigger
from gpuflow.runtime.gangs import kinds

from . import playing
from .playing import Stage


class Killed(BaseException):
    """Somebody stopped the task."""


def main(order: dict[str, Any]) -> None:
    os.environ.setdefault("AIRFLOW__GPUFLOW__DEPLOYMENT", "tests")  # no API server of Airflow to ask for its id
    pod, arguments = order["pod"], order.get("arguments", {})
    if order.get("lost_after") is not None:
        trigger.LOST_AFTER = order["lost_after"]
    if order.get("jobset_version"):
        row = kinds.WORDS["jobset"]
        kinds.WORDS["jobset"] = row._replace(api_version=f"{row.group}/{order['jobset_version']}")
    if "queue_timeout" in arguments:
        arguments["queue_timeout"] = timedelta(seconds=arguments["queue_timeout"])
    tasks: list[Any] = []

    def make() -> Any:
        task = (GpuGangOperator if "workers" in arguments else GpuPodOperator)(
            **{
                "task_id": "train",
                "namespace": order["namespace"],
                "template": Pod(pod["metadata"], spec=pod["spec"]),
                "poll_interval": 0.5,
                "logging_interval": 1,
                **arguments,
            }
        )
        tasks.append(task)
        return task

    def told(*_: Any) -> NoReturn:
        if order.get("killed_in") != "trigger":
            tasks[-1].on_kill()
        raise Killed

    if order.get("killed_in"):
        signal.signal(signal.SIGTERM, told)
    try:
        played = Stage().play(make, tries_before=order.get("tries_before", 0))
    except Killed:
        if order["killed_in"] == "trigger":
            asyncio.run(playing.waiting[-1].on_kill())
        print("KILLED", flush=True)
        return
    print("ENDED", json.dumps(asdict(played)), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
