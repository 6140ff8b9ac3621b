"""What waits for a pod without holding a worker: for room to create it, in the queue, while it runs, and to its end.

It judges nothing. It tells the operator what it saw last, so that a pod which is gone still leaves its evidence.

Why a task waits is shown where people look while it does: in an XCom of the task, and with a connection, in its note.
Airflow lets neither a task nor a trigger write a note: the Task SDK and the API behind it have no such request. Only
the public API has, for a user who may edit the task. So the note needs a connection with such a user (`[gpuflow]
notes_connection`); the XCom needs nothing. What cannot be written costs a line in the log, never the task.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from aiohttp import ClientError  # type: ignore[import-not-found]  # comes with the Kubernetes client
from airflow.providers.cncf.kubernetes.triggers.pod import KubernetesPodTrigger
from airflow.providers.common.compat.sdk import conf
from airflow.triggers.base import TriggerEvent
from kubernetes_asyncio import client as async_client
from kubernetes_asyncio.client.exceptions import ApiException

from gpuflow.airflow import pod_status
from gpuflow.airflow.limits import ACTIVE, is_full
from gpuflow.airflow.pod_status import Queue
from gpuflow.airflow.refusals import AGAIN, EXISTS, NEVER, WAIT, read_refusal

STATUS_XCOM = "gpuflow_status"
"""The XCom that says where the task's pod is."""
NOTE_PREFIX = "gpuflow: "
"""What every note of ours begins with. One that somebody else has written stays."""
LONGEST_NOTE = 1000
"""Characters that a note may have."""
NOTE_TIMEOUT = 10


class TaskNotes:
    """Shows on a task's page what its pod does."""

    def __init__(self, task: Mapping[str, Any] | None, log: Any) -> None:
        self._task, self._log = task, log
        self._connection = conf.get("gpuflow", "notes_connection", fallback="") if task else ""
        self._has_xcoms = bool(task)
        self._token: str | None = None

    async def show(self, sentence: str) -> None:
        """Show a sentence. It is there until the next one."""
        if self._has_xcoms:
            self._has_xcoms = await self._try_or_log(self._push(sentence), "an XCom", self._log.debug)
        if self._connection:
            wrote = await self._try_or_log(self._write(sentence), "a note", self._log.warning)
            self._connection = self._connection if wrote else ""

    @staticmethod
    async def _try_or_log(attempt: Any, what: str, log: Any) -> bool:
        try:
            await attempt
        except Exception as trouble:
            log("what the pod does is not shown as %s: %s: %s", what, type(trouble).__name__, trouble)
            return False
        return True

    async def _push(self, sentence: str) -> None:
        from airflow.sdk.execution_time.xcom import XCom

        assert self._task is not None
        await XCom.aset(STATUS_XCOM, sentence, **self._task)

    async def _write(self, sentence: str) -> None:
        import aiohttp
        from airflow.sdk import BaseHook

        connection = await BaseHook.aget_connection(self._connection)
        base = api_address(connection)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=NOTE_TIMEOUT)) as session:
            if self._token is None:
                self._token = await _token(session, base, connection)
            path = self._path(base)
            found = await _api_answer(session, "GET", path, self._token)
            if found is None:  # the token is too old by now
                self._token = await _token(session, base, connection)
                found = await _api_answer(session, "GET", path, self._token) or {}
            if (found.get("note") or NOTE_PREFIX).startswith(NOTE_PREFIX):
                body = {"note": f"{NOTE_PREFIX}{sentence}"[:LONGEST_NOTE]}
                await _api_answer(session, "PATCH", f"{path}?update_mask=note", self._token, body)

    def _path(self, base: str) -> str:
        task = self._task or {}
        index = "" if task["map_index"] < 0 else f"/{task['map_index']}"
        names = (quote(str(task[key]), safe="") for key in ("dag_id", "run_id", "task_id"))
        return "{}/api/v2/dags/{}/dagRuns/{}/taskInstances/{}{}".format(base, *names, index)


def api_address(connection: Any) -> str:
    """Where the API server is, of an HTTP connection in any of the ways to write one."""
    host = (connection.host or "").rstrip("/")
    if "://" not in host:
        host = f"{connection.schema or 'http'}://{host}"
    return f"{host}:{connection.port}" if connection.port else host


async def _token(session: Any, base: str, connection: Any) -> str:
    """A user's token: the connection has it as its password, or has the user's name and password."""
    if not connection.login:
        return str(connection.password)
    user = {"username": connection.login, "password": connection.password}
    async with session.post(f"{base}/auth/token", json=user) as answer:
        if answer.status >= 400:
            raise PermissionError(f"Airflow's API gives {connection.login} no token: {answer.status}")
        return str((await answer.json())["access_token"])


async def _api_answer(session: Any, method: str, url: str, token: str, body: Any = None) -> Any:
    """An answer of Airflow's public API; None when the token is not, or no longer, good."""
    async with session.request(method, url, json=body, headers={"Authorization": f"Bearer {token}"}) as answer:
        if answer.status == 401:
            return None
        if answer.status >= 400:
            raise PermissionError(f"Airflow's API answers {answer.status}")
        return await answer.json()


LOST_CONNECTION = (OSError, TimeoutError, ClientError)
"""The API server restarts, or the network is away: the pod goes on, and so does the wait."""
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$")
KEPT_ARGUMENTS = (
    "pod_name", "pod_namespace", "wait_for", "manifest", "limits", "not_before", "queue_deadline", "deadline",
    "startup_timeout", "poll_interval", "logging_interval", "ledger", "last_log", "other_logs", "task_names",
)  # fmt: skip
"""Of a trigger, those that are attributes by the same names; the others are the connection's."""
LOST_AFTER = 300
"""Seconds past its grace period after which a pod that should be gone counts as lost with its node."""


class GpuPodTrigger(KubernetesPodTrigger):  # type: ignore[misc]  # Airflow is not installed where types are checked
    """Waits for one thing about one pod. `wait_for`: `time` (until `not_before`), `room` (until the API server would
    take `manifest`) or `end`."""

    what = "pod"
    container = "main"
    """The one that the program runs in."""
    meaning_of = staticmethod(read_refusal)
    """What a refusal to create it means."""

    def __init__(
        self,
        *,
        pod_name: str,
        pod_namespace: str,
        wait_for: str,
        manifest: dict[str, Any] | None = None,
        limits: list[dict[str, Any]] | None = None,
        not_before: float = 0,
        queue_deadline: float | None = None,
        deadline: float | None = None,
        startup_timeout: int = 600,
        poll_interval: float = 5,
        logging_interval: int = 30,
        ledger: dict[str, Any] | None = None,
        last_log: str = "",
        other_logs: dict[str, str] | None = None,
        task_names: dict[str, Any] | None = None,
        **connection: Any,
    ) -> None:
        super().__init__(
            pod_name=pod_name,
            pod_namespace=pod_namespace,
            trigger_start_time=datetime.now(tz=UTC),
            base_container_name="main",
            poll_interval=poll_interval,
            startup_timeout=startup_timeout,
            **connection,
        )
        self.wait_for, self.manifest, self.limits = wait_for, manifest, limits or []
        self.not_before, self.queue_deadline, self.deadline = not_before, queue_deadline, deadline
        self.logging_interval, self.ledger, self.last_log = logging_interval, ledger or {}, last_log
        self.other_logs = other_logs or {}  # containers beside main, each with the time of its last copied line
        self.task_names = task_names
        self._connection = connection
        self._notes = TaskNotes(task_names, self.log)
        self._said = ""
        self._stuck_since: float | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Everything needed to go on in another triggerer, the counts so far included."""
        given = {name: getattr(self, name) for name in KEPT_ARGUMENTS}
        return f"{type(self).__module__}.{type(self).__name__}", {**given, **self._connection}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event, when there is something for the operator to do."""
        waits = {"time": self._time, "room": self._wait_for_quota, "end": self._end}
        event = await waits[self.wait_for]()
        self._fired_event = True
        named = {"name": self.pod_name, "namespace": self.pod_namespace, "ledger": self.ledger}
        yield TriggerEvent({**named, **event})

    async def _time(self) -> dict[str, Any]:
        await asyncio.sleep(max(0.0, self.not_before - time.time()))
        return {"what": "time"}

    async def _wait_for_quota(self) -> dict[str, Any]:
        """Repeat a dry run until the quota and the run's own limit on pods admit the pod."""
        while True:
            # Asked before the time is looked at: a triggerer that begins late still has Kubernetes' words.
            told = await self._limit_reached() or await self._dry_run_refusal()
            if isinstance(told, dict):
                return told
            if told is not None:
                await self._report(told)
            if is_past(self.deadline) or is_past(self.queue_deadline):
                return {"what": "timeout" if is_past(self.deadline) else "late", "words": self._said}
            if told is None:
                return {"what": "room"}
            await asyncio.sleep(self.poll_interval)

    async def _limit_reached(self) -> str | None:
        for limit in self.limits:
            try:
                async with self._api() as (api, _):
                    found = await api.list_namespaced_pod(
                        self.pod_namespace, label_selector=limit["selector"], field_selector=ACTIVE
                    )
            except ApiException as answer:
                return self._transient_message(answer)
            except LOST_CONNECTION as trouble:
                return f"the API server does not answer: {_error_line(trouble)}"
            pods = [(pod.metadata.name, pod.metadata.labels or {}) for pod in found.items]
            if any(name == self.pod_name for name, _ in pods):
                continue  # it was made, and the answer was lost: it has its place
            if is_full(limit, pods):
                return f"waiting for its turn: {limit['words']}"
        return None

    async def _dry_run_refusal(self) -> str | dict[str, Any] | None:
        try:
            async with self._api() as (api, _):
                await self._try_to_create(api)
        except ApiException as answer:
            refusal = self.meaning_of(answer.status, answer.body)
            if refusal.then == NEVER:
                return {"what": "never", "words": refusal.words, "because": refusal.because, "code": refusal.code}
            if refusal.then == EXISTS:
                return None
            assert refusal.then in (WAIT, AGAIN)
            return f"waiting for room: {refusal.words}"
        except LOST_CONNECTION as trouble:
            return f"the API server does not answer: {_error_line(trouble)}"
        return None

    async def _try_to_create(self, api: Any) -> None:
        await api.create_namespaced_pod(self.pod_namespace, self.manifest, dry_run="All")

    async def _end(self) -> dict[str, Any]:
        """Watch the pod until its main container has ended or it is gone; the last sight of it goes with the event."""
        last: dict[str, Any] | None = None
        queue = Queue()
        next_logs = time.time() + self.logging_interval
        while True:
            try:
                async with self._api() as (api, connection):
                    pod = connection.sanitize_for_serialization(
                        await api.read_namespaced_pod(self.pod_name, self.pod_namespace)
                    )
                    told = await queue.status_of(connection, pod)
                    over = self._pod_event(pod, told.never)
                    if over is not None or (time.time() >= next_logs and "running" in pod_status.container_state(pod)):
                        await self._copy_logs(api)
                        next_logs = time.time() + self.logging_interval
            except ApiException as answer:
                if answer.status == 404:
                    return {"what": "gone", "pod": last, **self._log_position}
                await self._report(self._transient_message(answer))
            except LOST_CONNECTION as trouble:
                await self._report(f"the API server does not answer: {_error_line(trouble)}")
            else:
                last = pod_status.evidence_of(pod)
                await self._report(pod_status.describe(pod) + (f"; {told.sentence}" if told.sentence else ""))
                if over is not None:
                    words = {"words": self._said} if over["what"] == "late" else {}
                    return {**over, **words, "pod": last, **self._log_position}
            await asyncio.sleep(self.poll_interval)

    def _pod_event(self, pod: dict[str, Any], never: str) -> dict[str, Any] | None:
        """An event if the pod needs an action now."""
        if pod_status.has_ended(pod):
            return {"what": "ended"}
        if _is_deletion_overdue(pod):
            return {"what": "lost"}
        if never:
            return {"what": "never", "words": never, "because": "its queue can never admit it", "code": "GF501"}
        if is_past(self.deadline):
            return {"what": "timeout"}
        if pod_status.is_queued(pod) and is_past(self.queue_deadline):
            return {"what": "late"}
        return self._stuck_event([pod_status.waiting_reason(pod)])

    def _stuck_event(self, reasons: list[str]) -> dict[str, Any] | None:
        """An event when a container that waits for one of these will not start, or has not for too long."""
        hopeless = [reason for reason in reasons if reason in pod_status.HOPELESS_REASONS]
        waiting = [reason for reason in reasons if reason in pod_status.STUCK_REASONS]
        if hopeless:
            return {"what": "stuck", "words": hopeless[0]}
        if not waiting:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = time.time()
        elif time.time() - self._stuck_since > self.startup_timeout:
            return {"what": "stuck", "words": waiting[0]}
        return None

    @property
    def _log_position(self) -> dict[str, Any]:
        """How far the logs have been copied."""
        return {"last_log": self.last_log, **({"other_logs": self.other_logs} if self.other_logs else {})}

    async def _copy_logs(self, api: Any) -> None:
        """New lines of the containers into the task's log. A broken stream costs lines, never the task."""
        self.last_log = await self._copy_log(api, "main", self.last_log)
        for name, last in self.other_logs.items():
            self.other_logs[name] = await self._copy_log(api, name, last)

    async def _copy_log(self, api: Any, container: str, before: str, pod: str | None = None) -> str:
        """New lines of one container; the time of the last one."""
        pod = pod or self.pod_name
        # A node's clock may be ahead of ours: ask for at least two rounds, and leave out what was copied already.
        since = None if not before else max(_seconds_since(before), 2 * int(self.logging_interval)) + 1
        try:
            answer = await api.read_namespaced_pod_log(
                pod,
                self.pod_namespace,
                container=container,
                timestamps=True,
                since_seconds=since,
                _preload_content=False,  # the client would decode it, and a program may print anything
            )
            text = (await answer.read()).decode("utf-8", "replace")
            if answer.status != 200:
                raise ApiException(status=answer.status, reason=text[:200])
        except (ApiException, *LOST_CONNECTION) as trouble:
            whose = f"pod {pod}" if container == self.container else f"container {container} of pod {pod}"
            self.log.warning("logs of %s could not be read: %s", whose, _error_line(trouble))
            return before
        last, is_new, progress = before, False, ""
        for line in text.split("\n"):  # a progress bar's carriage returns end no line
            stamp, _, words = line.partition(" ")
            if STAMP.match(stamp):
                is_new = stamp > before
                last = max(stamp, last)
            else:
                words = line
            if is_new and line:
                self.log.info("[%s] %s", container, words)
                progress = words if words.startswith("gpuflow-run: progress ") else progress
        if progress:  # shown with the last sentence, until there is another one
            await self._notes.show(f"{self._said}; {progress[len('gpuflow-run: ') :][:LONGEST_NOTE]}")
        return last

    def _transient_message(self, answer: ApiException) -> str:
        """A sentence for an answer that will change by itself; any other is an error of the set-up."""
        if answer.status == 403:
            raise answer
        return f"the API server answers {answer.status}; asking again"

    async def _report(self, sentence: str) -> None:
        """Write a new sentence to the task's log and page; a repeated one is dropped."""
        if sentence != self._said:
            self._said = sentence
            self.log.info("%s %s: %s", self.what, self.pod_name, sentence)
            await self._notes.show(sentence)

    @asynccontextmanager
    async def _api(self) -> AsyncIterator[tuple[Any, Any]]:
        async with self.hook.get_conn() as connection:
            yield async_client.CoreV1Api(connection), connection


def is_past(moment: float | None) -> bool:
    """Whether a moment, if there is one, is over."""
    return moment is not None and time.time() > moment


def _is_deletion_overdue(pod: dict[str, Any]) -> bool:
    """A pod that was deleted long ago and is still there: its node does not answer any more."""
    metadata = pod.get("metadata") or {}
    if not metadata.get("deletionTimestamp"):
        return False
    # The time stamp already lies a grace period after the deletion.
    return _seconds_since(metadata["deletionTimestamp"]) > LOST_AFTER


def _seconds_since(stamp: str) -> int:
    moment = datetime.fromisoformat(re.sub(r"\.\d+", "", stamp))
    return int((datetime.now(tz=UTC) - moment).total_seconds())


def _error_line(trouble: BaseException) -> str:
    return f"{type(trouble).__name__}: {trouble}".splitlines()[0][:200]
