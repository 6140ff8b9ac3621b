"""The runtime's questions to the API server, asked over Airflow's connection in the triggerer's event loop."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import ClientError  # type: ignore[import-not-found]  # comes with the Kubernetes client
from kubernetes_asyncio.client.exceptions import ApiException

from gpuflow.airflow.refusals import TRANSIENT
from gpuflow.runtime.api_server import Refused, Unreachable
from gpuflow.runtime.gang_watch import Asking

MERGE = "application/merge-patch+json"


async def answered(asking: Asking, connection: Any) -> Any:
    """What a generator of questions finds out, each of them asked in turn. `Unreachable`: ask all of it again."""
    try:
        question = next(asking)
        while True:
            try:
                answer = await asked(connection, "GET", question.path, list(question.query.items()))
            except Refused as refusal:
                question = asking.throw(refusal)
            else:
                question = asking.send(answer)
    except StopIteration as done:
        return done.value


async def asked(
    connection: Any, method: str, path: str, query: list[tuple[str, str]] | None = None, body: Any = None
) -> dict[str, Any]:
    """One request, with the words of the runtime for what is no success."""
    try:
        return await request(connection, method, path, query, body)
    except ApiException as answer:
        if answer.status in TRANSIENT:
            raise Unreachable(f"the API server answers {answer.status}") from None
        raise Refused(int(answer.status), _message(answer)) from None
    except (OSError, TimeoutError, ClientError) as trouble:
        raise Unreachable(f"{type(trouble).__name__}: {trouble}") from None


async def request(
    connection: Any, method: str, path: str, query: list[tuple[str, str]] | None = None, body: Any = None
) -> dict[str, Any]:
    """One request; what is no success as the Kubernetes client says it."""
    headers = {"Accept": "application/json", "Content-Type": MERGE if method == "PATCH" else "application/json"}
    answer: dict[str, Any] = await connection.call_api(
        path,
        method,
        query_params=query or [],
        header_params=headers,
        body=body,
        response_types_map={200: "object", 201: "object", 202: "object"},
        auth_settings=["BearerToken"],
        _return_http_data_only=True,
    )
    return answer


def _message(answer: ApiException) -> str:
    try:
        return str(json.loads(answer.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(answer.reason or answer.status)
