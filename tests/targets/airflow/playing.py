"""Airflow around one task, as little of it as the operator sees: context, deferral, tries and the task state."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, ClassVar

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    TaskDeferred,
)

from gpuflow.airflow import Pod
from gpuflow.airflow.trigger import GpuPodTrigger

POD = Pod(
    {"labels": {"gpuflow.dev/step": "train"}},
    spec={
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "main",
                "image": "registry.example.com/train:1",
                "command": ["train", "{{ not a template }}"],
                "resources": {"limits": {"memory": "4Gi", "nvidia.com/gpu": "1"}},
            }
        ],
        "tolerations": [{"key": "spot", "operator": "Exists"}],
    },
)


class TaskState:
    """What Airflow 3.3 keeps for a task over its tries."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return self.kept.get(key, default)

    def set(self, key: str, value: Any, **_: Any) -> None:
        self.kept[key] = json.loads(json.dumps(value))


@dataclass
class Played:
    """How a task instance ended."""

    state: str
    result: Any = None
    tries: int = 1
    deferrals: int = 0
    messages: list[str] = field(default_factory=list)


@dataclass
class Stage:
    """One task instance of one run."""

    store: TaskState | None = field(default_factory=TaskState)
    params: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)
    max_tries: int = 0
    began: datetime = field(default_factory=lambda: datetime.now(tz=UTC))
    run_id: ClassVar[str] = "manual__2026-11-14T10:00:00+00:00"

    def context(self, task: Any, try_number: int = 1) -> dict[str, Any]:
        ti = SimpleNamespace(
            dag_id="finetune",
            task_id=task.task_id,
            run_id=self.run_id,
            map_index=-1,
            try_number=try_number,
            max_tries=self.max_tries or task.retries,
            start_date=datetime.now(tz=UTC),
            xcom_push=lambda key, value: None,
            xcom_pull=self._pulled,
            get_task_states=lambda dag_id, task_ids, run_ids: {run_ids[0]: dict(self.states)},
        )
        run = SimpleNamespace(dag_id=ti.dag_id, run_id=ti.run_id, start_date=self.began)
        dag = SimpleNamespace()
        context = {"ti": ti, "dag_run": run, "run_id": ti.run_id, "dag": dag, "task": task, "params": self.params}
        return context if self.store is None else {**context, "task_state_store": self.store}

    def _pulled(self, task_ids: list[str], key: str, map_indexes: list[int] | None = None) -> list[Any]:
        """As Airflow answers when it is asked with a list of task ids."""
        found = self.outputs.get((task_ids[0], key), [None])
        values = found if isinstance(found, list) else [found]
        return values if map_indexes is None else [values[index] for index in map_indexes]

    def play(self, make: Any, *, tries_before: int = 0) -> Played:
        """Run the task to its end: a fresh operator for every try and every resumption, as on a worker."""
        played = Played("running", tries=tries_before)
        while True:
            played.tries += 1
            try:
                played.result = self._one_try(make, played)
                played.state = "success"
                return played
            except AirflowSkipException as word:
                played.state = "skipped"
                played.messages.append(str(word))
                return played
            except AirflowFailException as word:
                played.state = "failed"
                played.messages.append(str(word))
                return played
            except AirflowException as word:
                played.messages.append(str(word))
                if played.tries > make().retries:
                    played.state = "failed"
                    return played

    def _one_try(self, make: Any, played: Played) -> Any:
        event: Any = None
        while True:
            task = make()
            context = self.context(task, played.tries)
            try:
                return task.execute(context) if event is None else task.resume(context, event)
            except TaskDeferred as pause:
                played.deferrals += 1
                event = fired(pause.trigger)


waiting: list[GpuPodTrigger] = []
"""The triggers that were started, the last of them perhaps still waiting."""


def fired(trigger: GpuPodTrigger) -> dict[str, Any]:
    """The event of a trigger that has been through the database."""
    _, kwargs = trigger.serialize()
    again = type(trigger)(**json.loads(json.dumps(kwargs)))
    waiting.append(again)

    async def first() -> dict[str, Any]:
        async for event in again.run():
            payload: dict[str, Any] = event.payload
            return payload
        raise AssertionError("the trigger ended without an event")

    return json.loads(json.dumps(asyncio.run(first())))
