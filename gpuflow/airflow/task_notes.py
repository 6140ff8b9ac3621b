"""Why a task waits, where people look while it does: an XCom of the task, and with a connection, its note.

Airflow lets neither a task nor a trigger write a note: the Task SDK and the API behind it have no such request. Only
the public API has, for a user who may edit the task. So the note needs a connection with such a user (`[gpuflow]
notes_connection`); the XCom needs nothing. What cannot be written costs a line in the log, never the task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from airflow.providers.common.compat.sdk import conf

STATUS = "gpuflow_status"
"""The XCom that says where the task's pod is."""
OURS = "gpuflow: "
"""What every note of ours begins with. One that somebody else has written stays."""
LONGEST = 1000
"""Characters that a note may have."""
TIMEOUT = 10


class TaskNotes:
    """Tells the page of one task what its pod does."""

    def __init__(self, task: Mapping[str, Any] | None, log: Any) -> None:
        self._task, self._log = task, log
        self._connection = conf.get("gpuflow", "notes_connection", fallback="") if task else ""
        self._has_xcoms = bool(task)
        self._token: str | None = None

    async def tell(self, sentence: str) -> None:
        """Show a sentence. It is there until the next one."""
        if self._has_xcoms:
            self._has_xcoms = await self._tried(self._push(sentence), "an XCom", self._log.debug)
        if self._connection:
            wrote = await self._tried(self._write(sentence), "a note", self._log.warning)
            self._connection = self._connection if wrote else ""

    @staticmethod
    async def _tried(attempt: Any, what: str, log: Any) -> bool:
        try:
            await attempt
        except Exception as trouble:
            log("what the pod does is not shown as %s: %s: %s", what, type(trouble).__name__, trouble)
            return False
        return True

    async def _push(self, sentence: str) -> None:
        from airflow.sdk.execution_time.xcom import XCom

        assert self._task is not None
        await XCom.aset(STATUS, sentence, **self._task)

    async def _write(self, sentence: str) -> None:
        import aiohttp  # type: ignore[import-not-found]  # comes with the Kubernetes client
        from airflow.sdk import BaseHook

        connection = await BaseHook.aget_connection(self._connection)
        base = address(connection)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT)) as session:
            if self._token is None:
                self._token = await _token(session, base, connection)
            path = self._path(base)
            found = await _asked(session, "GET", path, self._token)
            if found is None:  # the token is too old by now
                self._token = await _token(session, base, connection)
                found = await _asked(session, "GET", path, self._token) or {}
            if (found.get("note") or OURS).startswith(OURS):
                body = {"note": f"{OURS}{sentence}"[:LONGEST]}
                await _asked(session, "PATCH", f"{path}?update_mask=note", self._token, body)

    def _path(self, base: str) -> str:
        task = self._task or {}
        index = "" if task["map_index"] < 0 else f"/{task['map_index']}"
        names = (quote(str(task[key]), safe="") for key in ("dag_id", "run_id", "task_id"))
        return "{}/api/v2/dags/{}/dagRuns/{}/taskInstances/{}{}".format(base, *names, index)


def address(connection: Any) -> str:
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


async def _asked(session: Any, method: str, url: str, token: str, body: Any = None) -> Any:
    """An answer of Airflow's public API; None when the token is not, or no longer, good."""
    async with session.request(method, url, json=body, headers={"Authorization": f"Bearer {token}"}) as answer:
        if answer.status == 401:
            return None
        if answer.status >= 400:
            raise PermissionError(f"Airflow's API answers {answer.status}")
        return await answer.json()
