"""The JobSets of one task: how each attempt's is made from the step's pod, found again, marked and deleted."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kubernetes.client import CustomObjectsApi
from kubernetes.client.exceptions import ApiException

from gpuflow.airflow import attempts
from gpuflow.airflow.deferral import WaitingPod
from gpuflow.airflow.pods import Pod
from gpuflow.airflow.references import Context, short_run_id
from gpuflow.airflow.refusals import EXISTS, NEVER, NOT_INSTALLED, Refusal, read_refusal
from gpuflow.airflow.step_pods import POD_CHECKED_KEY
from gpuflow.runtime.gangs.attempt_object import Gang, Names, owner_reference
from gpuflow.runtime.gangs.kinds import JOBSET, WORDS, GangKind, Prerequisite, word_of
from gpuflow.runtime.gangs.ranks.protocol import new_secret

PODS_ONLY = "kubernetes_pod_operator"
"""The stock operator's label for its own pods: no JobSet, and no rank, is one of them."""


def refusal_of(status: int | None, body: str | bytes | None, kind: GangKind = JOBSET) -> Refusal:
    """The meaning of a failed request to create a gang's object."""
    refusal = read_refusal(status, body)
    if status == 404:
        words = f"{NOT_INSTALLED}{' or no '.join(kind.served_by)} there"
        names = " or no ".join((kind.name, *([] if kind.before is None else [kind.before.plural])))
        return Refusal(NEVER, words, f"the cluster has no {names}, or not this namespace (HTTP 404)", "GF503")
    because = refusal.because.replace("create pods", f"create {kind.name}s").replace("the pod", f"the {kind.name}")
    return refusal._replace(because=because)


class StepGangs(WaitingPod):
    """Everything `GpuGangOperator` does with the API server."""

    workers: int
    leader: Pod | Mapping[str, Any] | None
    leader_on_demand: Mapping[str, Any] | None
    kind: str
    """As `gangs.kind` of a site says it."""
    scheduler: str | None
    """As `gangs.scheduler` of a site says it."""

    @property
    def _kind(self) -> GangKind:
        return WORDS[word_of(self.kind, self.scheduler)]

    @property
    def what(self) -> str:  # type: ignore[override]
        """The kind, as manifests name it."""
        return self._kind.name

    @property
    def _object_place(self) -> tuple[str, str, str, str]:
        """The API path of its objects, as the client expects it."""
        return self._kind.group, self._kind.version, self._namespace(), self._kind.plural

    @property
    def _objects(self) -> Any:
        return CustomObjectsApi(self.client.api_client)

    def _gang(self, context: Context, pod: Mapping[str, Any], leader: Mapping[str, Any] | None) -> Gang:
        """Who the gang of this task is, with the manifest that each attempt is made from."""
        ti = context["ti"]
        item = str(ti.map_index) if ti.map_index is not None and ti.map_index >= 0 else None
        names = Names(ti.dag_id, short_run_id(context), ti.task_id, item, container=self._kind.container)
        return Gang(self._build_object(pod, leader), names, None)

    def _build_object(self, pod: Mapping[str, Any], leader: Mapping[str, Any] | None) -> dict[str, Any]:
        """The object of an attempt, without its name and number."""
        from gpuflow.pod.gang_kinds import SPELLINGS

        return SPELLINGS[self._kind.word].build(pod, self.workers, leader)

    def _manifest(self, context: Context, ledger: attempts.Ledger) -> dict[str, Any]:
        """The object of the next attempt: its number, the counts before it, and whose it is."""
        filled, changes = self._with_values(self.template, context, ledger), self._changes()
        pod, first = copy.deepcopy(self._adjust_pod(filled, ledger)), None
        words = changes.at_run_time().words(filled["spec"], ledger.before())
        if self.leader is not None:
            leading = self._with_values(self.leader, context, ledger)
            if self.leader_on_demand is not None:
                changes = replace(changes, on_demand=self.leader_on_demand)
            first = copy.deepcopy(self._adjust_pod(leading, ledger, changes))
            own = changes.at_run_time().words(leading["spec"], ledger.before())
            words = words if own == words else [*words, *(f"its leader: {each}" for each in own if each not in words)]
        gang = self._gang(context, pod, first)
        made = gang.body(ledger.pods + 1, ledger.failures, ledger.interruptions, secret=new_secret())
        for each in words:
            self.log.info("the next %s: %s", self.what, each)
        ours = self._get_ti_pod_labels(context, include_try_number=False)
        made["metadata"]["labels"] |= ours
        made["metadata"]["annotations"] |= ledger.plus(pods=1).annotations()
        for template in self._kind.templates(made):
            template["metadata"]["labels"] |= ours
        return made

    def _get_ti_pod_labels(self, context: Context | None = None, *args: Any, **named: Any) -> dict[str, str]:
        labels = super()._get_ti_pod_labels(context, *args, **named)
        return {key: value for key, value in labels.items() if key != PODS_ONLY}

    def _pods_of_task(self, context: Context) -> list[dict[str, Any]]:
        """Every JobSet this task instance has made and that is still there."""
        labels = self._get_ti_pod_labels(context, include_try_number=False)
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        found = self._call_api(
            lambda: self._objects.list_namespaced_custom_object(*self._object_place, label_selector=selector)
        )
        return list(found["items"]) if found is not None else []

    def _create(self, manifest: dict[str, Any]) -> None:
        first, body = self._kind.split(manifest)
        if self._kind.before is None or first is None:
            self._objects.create_namespaced_custom_object(*self._object_place, body)
            return
        where, name = self._prerequisite_place(self._kind.before), first["metadata"]["name"]
        try:
            self._objects.create_namespaced_custom_object(*where, first)
        except ApiException as answer:
            if refusal_of(answer.status, answer.body).then != EXISTS:
                raise
            # A worker that was lost may have left it; a gang that is there already keeps its own.
            if self._call_api(lambda: self._objects.get_namespaced_custom_object(*self._object_place, name)) is None:
                self._objects.delete_namespaced_custom_object(*where, name)
                self._recreate(where, first)
        self._set_owner(self._create_or_clean_up(body, where, name))

    def _prerequisite_place(self, first: Prerequisite) -> tuple[str, str, str, str]:
        """The API path of an attempt's prerequisite, as the client expects it."""
        return first.group, first.version, self._namespace(), first.plural

    def _set_owner(self, made: Mapping[str, Any]) -> None:
        """Make the attempt's object the owner of its prerequisites, so that they are deleted with it."""
        if self._kind.before is None or not made:
            return
        where, name = self._prerequisite_place(self._kind.before), made["metadata"]["name"]
        owned = {"metadata": {"ownerReferences": [owner_reference(self._kind, made)]}}
        try:
            self._call_api(lambda: self._objects.patch_namespaced_custom_object(*where, name, owned))
        except ApiException as refusal:
            what = f"{self._kind.before.plural} {name}"
            self.log.warning("%s stays when its %s is deleted: %s", what, self.what, refusal)

    def _recreate(self, where: tuple[str, ...], first: dict[str, Any]) -> None:
        try:
            self._objects.create_namespaced_custom_object(*where, first)
        except ApiException as answer:
            if refusal_of(answer.status, answer.body).then != EXISTS:
                raise
            # The old one is still going: not to be taken for a gang that is there.
            raise ApiException(status=503, reason=f"{first['kind']} is still being deleted") from None

    def _create_or_clean_up(self, body: dict[str, Any], where: tuple[str, ...], name: str) -> Any:
        """The object. If it is refused, what was created before it is deleted, since nothing else would delete it."""
        try:
            return self._objects.create_namespaced_custom_object(*self._object_place, body)
        except ApiException as answer:
            objects, own = self._objects, self._object_place
            with contextlib.suppress(ApiException):
                if refusal_of(answer.status, answer.body).then != EXISTS:
                    self._call_api(lambda: objects.delete_namespaced_custom_object(*where, name))
                else:
                    self._set_owner(self._call_api(lambda: objects.get_namespaced_custom_object(*own, name)) or {})
            raise

    def _refusal_of(self, answer: ApiException) -> Refusal:
        return refusal_of(answer.status, answer.body, self._kind)

    def _delete(self, name: str) -> Any:
        """Its pods go first, each with its grace; then it is gone."""
        return self._call_api(
            lambda: self._objects.delete_namespaced_custom_object(
                *self._object_place, name, propagation_policy=self._kind.deletion
            )
        )

    def _clean_up(
        self, pod: dict[str, Any] | None, ledger: attempts.Ledger, *, succeeded: bool = False, delete: bool = False
    ) -> None:
        """Delete or keep the JobSet by policy. A kept one is marked, so that no later try takes it for its own."""
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        name, action = pod["metadata"]["name"], self.on_finish_action.value
        gone = delete or action == "delete_pod" or (action == "delete_succeeded_pod" and succeeded)
        body = {"metadata": {"labels": {POD_CHECKED_KEY: "True"}, "annotations": ledger.annotations()}}
        try:
            if gone:
                self._delete(name)
                return
            self._call_api(lambda: self._objects.patch_namespaced_custom_object(*self._object_place, name, body))
        except Exception as trouble:
            self.log.warning("%s %s could not be cleaned up: %s", self.what, name, trouble)

    def _push(self, context: Context, name: str, namespace: str) -> None:
        context["ti"].xcom_push(key=f"{self.kind}_name", value=name)
        context["ti"].xcom_push(key=f"{self.kind}_namespace", value=namespace)

    def _set_linked_pod(self, name: str) -> None:
        """Links lead to the pod of rank 0, whose name is known when it has been seen."""

    def _describe(self, made: Mapping[str, Any]) -> str:
        return "being deleted" if made["metadata"].get("deletionTimestamp") else "created before"

    def _kill(self) -> None:
        """Told to stop: every rank goes with the JobSet."""
        self._killed = True
        if self.on_kill_action.value == "keep_pod":
            self.log.info("%s is kept, since on_kill_action is keep_pod", self.what)
        elif self.pod is not None:
            name = self.pod.metadata.name
            try:
                self._delete(name)
                self.log.info("%s %s: deleted; its pods have their grace to stop", self.what, name)
            except ApiException as refusal:
                self.log.error("%s %s: NOT deleted: %s", self.what, name, refusal)
