"""How a task of `GpuPodOperator` waits, and until when: in the trigger, or without a triggerer in the worker."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowTaskTimeout, TaskDeferred

from gpuflow.airflow import alerts, attempts, limits
from gpuflow.airflow.references import Context
from gpuflow.airflow.step_pods import RenderedPod


class WaitingPod(RenderedPod):
    """Everything `GpuPodOperator` does between two decisions."""

    interruption_delay: timedelta | None
    deadlines: Sequence[limits.deadline]
    queue_timeout: timedelta | None
    cause: str
    _deciding: bool
    _seen: str | None
    _asking: bool

    @abstractmethod
    def resume(self, context: Context, event: Mapping[str, Any]) -> Any:
        """The trigger has something to decide."""

    def _wait(
        self,
        context: Context,
        ledger: attempts.Ledger,
        name: str,
        wait_for: str,
        last_log: str = "",
        other_logs: dict[str, str] | None = None,
        *,
        manifest: dict[str, Any] | None = None,
        not_before: float = 0,
    ) -> Any:
        """Leave the worker until there is something to decide. Not deferrable: wait here, in the same way."""
        if wait_for == "end":
            self._set_owned_pod(name)
            self._set_linked_pod(name)
        # The triggerer may not see the connection, so its extras are passed along.
        extras = (self.hook.conn_extras if self.kubernetes_conn_id else None) or None
        if self.config_file or not extras:
            # KUBECONFIG of the worker beside a connection that names a cluster would be two answers to one question.
            self.convert_config_file_to_dict()
        trigger = self._trigger(
            pod_name=name,
            pod_namespace=self._namespace(manifest),
            wait_for=wait_for,
            manifest=manifest,
            limits=[limit.query(context) for limit in self.limits],
            not_before=not_before,
            queue_deadline=self._queue_deadline(ledger),
            deadline=self._last_moment(context),
            startup_timeout=self.startup_timeout_seconds,
            poll_interval=self.poll_interval,
            logging_interval=self.logging_interval or 30,
            ledger=ledger.document(),
            last_log=last_log,
            other_logs=other_logs or dict.fromkeys(self._other_containers(), ""),
            task_names={name: getattr(context["ti"], name) for name in ("dag_id", "task_id", "run_id", "map_index")},
            kubernetes_conn_id=self.kubernetes_conn_id,
            connection_extras=extras,
            cluster_context=self.cluster_context,
            config_dict=self._config_dict,
            in_cluster=self.in_cluster,
            on_kill_action=self.on_kill_action.value,
            termination_grace_period=self.termination_grace_period,
        )
        if self.deferrable:
            raise TaskDeferred(trigger=trigger, method_name="resume")
        try:
            event = asyncio.run(_first_event(trigger))
        except AirflowTaskTimeout:
            # Airflow's own alarm, a moment before the trigger's: the pod was not taken away, the task was too slow.
            event = {"what": "timeout", "name": name, "ledger": ledger.document()}
        return self.resume(context, event)

    def _trigger(self, **arguments: Any) -> Any:
        """What waits."""
        from gpuflow.airflow.trigger import GpuPodTrigger

        return GpuPodTrigger(**arguments)

    def _set_linked_pod(self, name: str) -> None:
        """Set the pod that the links point to."""
        self._seen = name

    def _set_owned_pod(self, name: str) -> None:
        """Set what the stock operator's `on_kill` deletes, from before the pod is created until its end is decided."""
        self.pod = SimpleNamespace(metadata=SimpleNamespace(name=name, namespace=self._namespace()))

    @staticmethod
    def _deadline(context: Context, limit: timedelta | None) -> float | None:
        """When a limit that began with this try is over. Airflow keeps the start over deferrals."""
        return None if limit is None else context["ti"].start_date.timestamp() + limit.total_seconds()

    def _queue_deadline(self, ledger: attempts.Ledger) -> float | None:
        """When the pod must have been given a node."""
        return None if self.queue_timeout is None else ledger.queued_at + self.queue_timeout.total_seconds()

    def _last_moment(self, context: Context) -> float | None:
        """When this try must be over: its own limit, or that of a sub-pipeline around it."""
        around = limits.first_deadline(self.deadlines, context)
        moments = [self._deadline(context, self.execution_timeout), None if around is None else around[0]]
        return min((moment for moment in moments if moment is not None), default=None)

    def _check_deadlines(self, context: Context) -> None:
        if (around := limits.first_deadline(self.deadlines, context)) is not None and time.time() > around[0]:
            self.cause = alerts.DEADLINE
            raise AirflowFailException(around[1].sentence())

    def _delay(self, count: int) -> float:
        """The wait before the next pod: it grows as the waits between tries do."""
        if self.interruption_delay is None:
            return 0.0
        factor = float(self.retry_exponential_backoff or 1)
        seconds: float = self.interruption_delay.total_seconds() * factor ** (count - 1)
        return min(seconds, self.max_retry_delay.total_seconds() if self.max_retry_delay else 3600.0)

    def on_kill(self) -> None:
        """Told to stop: a pod that has ended is evidence, and stays; the task is never green after this."""
        if self._deciding:
            self._killed = True
            return
        self._kill()
        if self._asking and self.pod is not None and self.on_kill_action.value != "keep_pod":
            self._delete_when_made(self.pod.metadata.name)

    def _kill(self) -> None:
        super().on_kill()


async def _first_event(trigger: Any) -> Mapping[str, Any]:
    async for event in trigger.run():
        payload: Mapping[str, Any] = event.payload
        return payload
    raise AirflowException("the trigger ended without an event")
