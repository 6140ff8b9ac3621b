"""What waits for a gang without holding a worker: for the queue, while its ranks run, and until they have ended.

It follows the JobSet of one attempt as the launcher of other engines does (`gpuflow.runtime.gang_following`), and notes
the verdict on it: whoever comes after a lost triggerer need not judge again what is gone by then. The runtime's
questions to the API server are asked over Airflow's connection in the triggerer's event loop.
"""

from __future__ import annotations

import asyncio
import json
import time
from functools import cached_property
from typing import Any

from aiohttp import ClientError  # type: ignore[import-not-found]  # comes with the Kubernetes client
from airflow.providers.cncf.kubernetes.hooks.kubernetes import AsyncKubernetesHook
from kubernetes_asyncio.client.exceptions import ApiException

from gpuflow.airflow import pod_status
from gpuflow.airflow.refusals import EXISTS, TRANSIENT, Refusal, refusal_of
from gpuflow.airflow.trigger import LOST_CONNECTION, GpuPodTrigger, is_past
from gpuflow.runtime.base.outcomes import SUCCEEDED
from gpuflow.runtime.gangs import attempt_object
from gpuflow.runtime.gangs.attempt_object import Shape
from gpuflow.runtime.gangs.attempt_verdict import Verdict
from gpuflow.runtime.gangs.kinds import KINDS, GangKind, kind_of
from gpuflow.runtime.gangs.watch import AttemptFollower, PodDrain, Questions, Watch, waiting_words
from gpuflow.runtime.supervise.kube_client import ApiRefusal, ApiUnreachable
from gpuflow.runtime.supervise.object_state import path_of


async def run_queries(asking: Questions, connection: Any) -> Any:
    """What a generator of questions finds out, each of them asked in turn. `ApiUnreachable`: ask all of it again."""
    try:
        question = next(asking)
        while True:
            try:
                answer = await send_query(connection, "GET", question.path, list(question.query.items()))
            except ApiRefusal as refusal:
                question = asking.throw(refusal)
            else:
                question = asking.send(answer)
    except StopIteration as done:
        return done.value


async def send_query(
    connection: Any, method: str, path: str, query: list[tuple[str, str]] | None = None, body: Any = None
) -> dict[str, Any]:
    """One request, with the words of the runtime for what is no success."""
    try:
        return await pod_status.request(connection, method, path, query, body)
    except ApiException as answer:
        if answer.status in TRANSIENT:
            raise ApiUnreachable(f"the API server answers {answer.status}") from None
        raise ApiRefusal(int(answer.status), _message(answer)) from None
    except (OSError, TimeoutError, ClientError) as trouble:
        raise ApiUnreachable(f"{type(trouble).__name__}: {trouble}") from None


def _message(answer: ApiException) -> str:
    try:
        return str(json.loads(answer.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(answer.reason or answer.status)


PATIENCE = 60.0
"""Seconds in which a refusal to look at the gang may be a passing one."""


class GpuGangTrigger(GpuPodTrigger):
    """Waits for one thing about one JobSet; `pod_name` is its name. `gang`: its shape, and which exit codes mean what.
    `wait_for`: as of `GpuPodTrigger`."""

    def __init__(self, *, gang: dict[str, Any], **arguments: Any) -> None:
        super().__init__(**arguments)
        self.gang = gang

    @property
    def _kind(self) -> GangKind:
        return KINDS[Shape(*self.gang["shape"]).kind]

    @property
    def what(self) -> str:  # type: ignore[override]
        """The kind, as manifests name it."""
        return self._kind.name

    @property
    def container(self) -> str:  # type: ignore[override]
        """The one that the program runs in, as the kind wants it to be called."""
        return self._kind.container

    def meaning_of(self, status: int | None, body: str | bytes | None) -> Refusal:
        """The meaning of a failed request to create the gang."""
        return refusal_of(status, body, kind_of(self.manifest or {}) or self._kind)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """As of a pod, and what is known of the gang."""
        path, arguments = super().serialize()
        return path, {**arguments, "gang": self.gang}

    @cached_property
    def hook(self) -> Any:
        return _GangHook(
            self._kind,
            conn_id=self.kubernetes_conn_id,
            in_cluster=self.in_cluster,
            config_dict=self.config_dict,
            cluster_context=self.cluster_context,
            connection_extras=self.connection_extras,
        )

    @property
    def _path(self) -> str:
        return path_of(self._kind.api_version, self.pod_namespace, self._kind.plural, self.pod_name)

    async def _try_to_create(self, api: Any) -> None:
        kind = kind_of(self.manifest or {}) or self._kind
        first, body = kind.split(self.manifest or {})
        if kind.before is not None and first is not None:
            try:
                await pod_status.request(
                    api.api_client, "POST", kind.before.folder(self.pod_namespace), [("dryRun", "All")], first
                )
            except ApiException as answer:
                if self.meaning_of(answer.status, answer.body).then != EXISTS:
                    raise
            else:
                return  # there is room for it; the object itself is refused as long as it is not there
        await pod_status.request(
            api.api_client,
            "POST",
            path_of(kind.api_version, self.pod_namespace, kind.plural),
            [("dryRun", "All")],
            body,
        )

    async def _end(self) -> dict[str, Any]:
        """Follow the JobSet until it ends or must be given up; the event carries rank 0's termination message."""
        heard: list[str] = []
        watch = Watch(Shape(*self.gang["shape"]), self._path, self.pod_namespace, self.log.info)
        settings = {name: self.gang[name] for name in ("settle", "final_exit_codes", "retryable_exit_codes")}
        following = AttemptFollower(
            watch, heard.append, queue_deadline=self.queue_deadline, container=self.container, **settings
        )
        next_logs = time.time() + self.logging_interval
        blind_since: float | None = None
        while True:
            over: dict[str, Any] | None = None
            try:
                async with self._api() as (api, connection):
                    verdict: Verdict | None = await run_queries(following.look(), connection)
                    verdict = _recorded_verdict(watch) or verdict
                    over = self._give_up_event(watch, following, verdict)
                    if verdict is not None or over is not None or following.is_settling or time.time() >= next_logs:
                        await self._copy_rank_0(api, watch)
                        next_logs = time.time() + self.logging_interval
            except (ApiUnreachable, *LOST_CONNECTION) as trouble:
                await self._report(f"the API server does not answer: {trouble}")
                verdict = None
                blind_since = None
            except ApiRefusal as refusal:
                # An API server that has just started may refuse what it allows a moment later.
                blind_since = blind_since or time.monotonic()
                if time.monotonic() - blind_since > PATIENCE:
                    because = f"Airflow may not follow its {self.what} (HTTP {refusal.status})"
                    return {"what": "never", "words": str(refusal), "because": because, "code": "GF503"}
                await self._report(f"{refusal}; asking again")
                verdict = None
            else:
                blind_since = None
            await self._report_all(heard)
            if over is not None:
                return {**over, **self._evidence(watch)}
            if verdict is not None:
                await self._close(watch, verdict, following.must_go)
                ended = {"what": "ended", "verdict": verdict._asdict(), "must_go": following.must_go}
                return {**ended, **self._evidence(watch)}
            await asyncio.sleep(self.poll_interval)

    def _give_up_event(
        self, watch: Watch, following: AttemptFollower, verdict: Verdict | None
    ) -> dict[str, Any] | None:
        """An event if the task must give up on an attempt that has not ended."""
        if following.is_late:
            return {"what": "late", "words": following.words}
        if verdict is not None:
            return None
        if is_past(self.deadline):
            return {"what": "timeout"}
        words = waiting_words(watch.workload)
        # Kueue says "insufficient unused quota" when waiting may help, "insufficient quota" when it cannot.
        if "insufficient quota" in words:
            return {"what": "never", "words": words, "because": "its queue can never admit it", "code": "GF501"}
        return self._stuck_event([pod_status.waiting_reason(watch.pods[uid], self.container) for uid in watch.there])

    async def _copy_rank_0(self, api: Any, watch: Watch) -> None:
        """New lines of rank 0 into the task's log, while its pod is there."""
        if (pod := watch.rank_0()) is None or pod["metadata"]["uid"] not in watch.there:
            return
        if {"running", "terminated"} & set(pod_status.container_state(pod, self.container)):
            self.last_log = await self._copy_log(api, self.container, self.last_log, pod["metadata"]["name"])

    async def _close(self, watch: Watch, verdict: Verdict, must_go: bool) -> None:
        """Write the verdict down, and wait until no rank of it runs any more: the next attempt has the same ranks."""
        if verdict.outcome == SUCCEEDED or watch.jobset is None:
            return
        if _recorded_verdict(watch) is None and not watch.jobset["metadata"].get("deletionTimestamp"):
            await self._note(verdict)
        if must_go and self._kind.replaces_pods:
            # Otherwise its controller goes on with a new pod, and the ranks never end.
            await self.hook.delete_pod(self.pod_name, self.pod_namespace)
        heard: list[str] = []
        draining = PodDrain(watch, heard.append, watch.shape.grace + self.gang["settle"])
        while not draining.is_over():
            await self._report_all(heard)
            await asyncio.sleep(self.poll_interval)
            try:
                async with self._api() as (api, connection):
                    await run_queries(watch.look(), connection)
                    await self._copy_rank_0(api, watch)
            except (ApiUnreachable, ApiRefusal, *LOST_CONNECTION) as trouble:
                await self._report(str(trouble))
        await self._report_all(heard)

    async def _report_all(self, heard: list[str]) -> None:
        while heard:
            await self._report(heard.pop(0))

    async def _note(self, verdict: Verdict) -> None:
        try:
            async with self._api() as (_, connection):
                await send_query(connection, "PATCH", self._path, None, attempt_object.note_verdict(verdict))
        except (ApiUnreachable, ApiRefusal) as trouble:
            self.log.warning("the verdict on %s %s is not written down: %s", self.what, self.pod_name, trouble)

    def _evidence(self, watch: Watch) -> dict[str, Any]:
        pod = watch.rank_0()
        return {"rank_0": None if pod is None else pod_status.evidence_of(pod), **self._log_position}


class _GangHook(AsyncKubernetesHook):  # type: ignore[misc]  # Airflow is not installed where types are checked
    """When a user stops a deferred task, Airflow's trigger deletes its pod through the hook: here, the gang."""

    def __init__(self, kind: GangKind, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._gang_kind = kind

    async def delete_pod(self, name: str, namespace: str, grace_period_seconds: int | None = None) -> None:
        """Delete the JobSet and every rank, each with the grace of its own."""
        async with self.get_conn() as connection:
            try:
                query = [("propagationPolicy", self._gang_kind.deletion)]
                path = path_of(self._gang_kind.api_version, namespace, self._gang_kind.plural, name)
                await send_query(connection, "DELETE", path, query)
            except ApiRefusal as refusal:
                if refusal.status != 404:
                    raise


def _recorded_verdict(watch: Watch) -> Verdict | None:
    return None if watch.jobset is None else attempt_object.read_verdict(watch.jobset)
