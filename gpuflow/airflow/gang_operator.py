"""`GpuGangOperator`: a step whose pods work together, as one JobSet for each attempt.

Budgets, tries, deadlines, outputs and alerts are those of `GpuPodOperator`. What ends an attempt is judged as the
launcher of other engines judges it: a rank that was taken away makes it an interruption, whatever the others died of.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping, Sequence
from typing import Any

from kubernetes.client import CustomObjectsApi
from kubernetes.client.exceptions import ApiException

from gpuflow.airflow import attempts, pod_status
from gpuflow.airflow.attempts import End
from gpuflow.airflow.operator import GpuPodOperator
from gpuflow.airflow.pods import Pod
from gpuflow.airflow.references import Context, short_run_id
from gpuflow.airflow.refusals import EXISTS, Refusal, refusal_of
from gpuflow.airflow.step_pods import POD_CHECKED_KEY
from gpuflow.runtime.artifacts import outputs
from gpuflow.runtime.base import outcomes
from gpuflow.runtime.gangs.attempt_object import Gang, Names, owner_reference
from gpuflow.runtime.gangs.attempt_verdict import Verdict
from gpuflow.runtime.gangs.kinds import KINDS, WORDS, GangKind, Prerequisite, word_of
from gpuflow.runtime.gangs.ranks.protocol import new_secret
from gpuflow.runtime.gangs.watch import NO_OUTPUTS, SETTLE, read_outputs
from gpuflow.runtime.state.attempts import COSTS

LOG_PREFIX = "gpuflow-run: "
"""What every last word of a supervisor begins with."""
PODS_ONLY = "kubernetes_pod_operator"
"""The stock operator's label for its own pods: no JobSet, and no rank, is one of them."""
NOT_TAKEN = {
    "limits": "ranks are no pods of Airflow's, which counts none of them: let tasks wait for each other",
    "sidecar_resources": "outputs come from rank 0's last words: leave it out",
}
"""Arguments of `GpuPodOperator` that a gang cannot have."""


class GpuGangOperator(GpuPodOperator):
    """Runs one step as a gang.

    :param template: the pod of each rank, as for `GpuPodOperator`. Its command runs under `gpuflow-run --gang`.
    :param workers: how many ranks; beside a leader, how many others.
    :param leader: the pod of rank 0, where it is not like the others. Their commands need `--rank-offset=1` then, but
        for an MPIJob.
    :param leader_on_demand: fields of the leader's spec that replace its own after `fallback_after` interruptions,
        where they are not those of `on_demand`.
    :param kind: the kind of object, as `gangs.kind` of a site says it; the variables of `template` must be for it.
    :param scheduler: who places the pods, as `gangs.scheduler` of a site says it: volcano, of a JobSet.
    :param settle: seconds after a failed rank in which one that was taken away is still looked for.
    :param kwargs: arguments of `GpuPodOperator`, but for `limits` and `sidecar_resources`. `other_node` keeps later
        attempts away from the node of the rank that failed first.
    """

    ui_color = "#c1e3f0"
    template_fields: Sequence[str] = ("template", "leader")
    template_fields_renderers = {"template": "json", "leader": "json"}  # noqa: RUF012 (Airflow's own shape)

    def __init__(
        self,
        *,
        template: Pod,
        workers: int,
        leader: Pod | None = None,
        leader_on_demand: Mapping[str, Any] | None = None,
        kind: str = "jobset",
        scheduler: str | None = None,
        settle: float = SETTLE,
        **kwargs: Any,
    ) -> None:
        _refuse(kwargs)
        _check_kind(kind, scheduler, leader)
        super().__init__(template=template, **{"supervised": True, **kwargs})
        self.kind, self.scheduler, self.workers, self.settle = kind, scheduler, workers, settle
        self.leader, self.leader_on_demand = leader, leader_on_demand

    def _resume_or_create(self, context: Context, ledger: attempts.Ledger, pods: list[dict[str, Any]]) -> Any:
        for each in pods:
            kept = (each["metadata"].get("labels") or {}).get(POD_CHECKED_KEY) == "True"
            if not kept and not each["metadata"].get("deletionTimestamp"):
                self._set_owner(each)  # a worker that was lost may not have come to it
        return super()._resume_or_create(context, ledger, pods)

    def _trigger(self, **arguments: Any) -> Any:
        from gpuflow.airflow.gang_trigger import GpuGangTrigger

        gang = {
            "shape": self._shape(),
            "settle": self.settle,
            "final_exit_codes": list(self.final_exit_codes),
            "retryable_exit_codes": None if self.retryable_exit_codes is None else list(self.retryable_exit_codes),
        }
        return GpuGangTrigger(gang=gang, **arguments)

    def _shape(self) -> list[Any]:
        pods = [self.template] if self.leader is None else [self.leader, self.template]
        spans = [float(_manifest(pod)["spec"].get("terminationGracePeriodSeconds") or 30) for pod in pods]
        leading, working = self._kind.roles
        first, more = (working, 0) if self.leader is None else (leading, 1)
        return [self.workers + more, first, max(spans), self.what]

    def jobset(self) -> dict[str, Any]:
        """The JobSet of an attempt, or what else it is, as far as it is known before the run, for who reads the DAG."""
        return self._build_object(_manifest(self.template), None if self.leader is None else _manifest(self.leader))

    def _seen_in(self, event: Mapping[str, Any], there: dict[str, Any] | None) -> str | None:
        rank_0 = event.get("rank_0")
        return None if rank_0 is None else rank_0["metadata"]["name"]

    def _handle_event(
        self, context: Context, ledger: attempts.Ledger, event: Mapping[str, Any], there: dict[str, Any] | None
    ) -> Any:
        """Act on the trigger's verdict and on what rank 0 left."""
        self._deciding = True
        verdict = Verdict(**event["verdict"])
        values: dict[str, Any] = {}
        if verdict.outcome == outcomes.SUCCEEDED and self.outputs:
            verdict, values = self._outputs_of(event.get("rank_0"), verdict)
        if event.get("must_go") and there is not None:
            self._delete(there["metadata"]["name"])
            there = None
        interrupted = verdict.outcome == outcomes.INTERRUPTED
        words = _sentence(event.get("rank_0"), self._kind.container)
        if self.other_node and verdict.node is None and COSTS.get(verdict.outcome) == "failures":
            self.log.warning(
                "other_node: nobody knows which rank failed first; the next attempt keeps away from no more nodes"
            )
        what = f"{self.what} {event['name']}"
        end = End(what, verdict.outcome, verdict.because, interrupted, values, words, node=verdict.node)
        return self._follow_up(context, ledger, end, there)

    def _outputs_of(self, rank_0: Mapping[str, Any] | None, verdict: Verdict) -> tuple[Verdict, dict[str, Any]]:
        """The typed outputs. A gang that completed, and whose outputs nobody knows, has not succeeded."""
        declared = [outputs.Output(name, kind, None) for name, kind in self.outputs.items()]
        try:
            kept = read_outputs(declared, rank_0, self._kind.container)
        except outputs.BadOutput as refusal:
            return Verdict(outcomes.RETRYABLE, f"it succeeded, but {refusal}", 1), {}
        if kept is None:
            return Verdict(outcomes.INTERRUPTED, f"the {self.what} is completed, but {NO_OUTPUTS}"), {}
        values = {each.name: outputs.parse_value(each, kept[each.name].value or "") for each in declared}
        self.kept = {name: {"uri": values[name]} for name in self.artifacts if name in values}
        return verdict, values

    # -- the objects of its attempts -------------------------------------------------------------------------------

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
        words = changes.words(filled["spec"], ledger.before())
        if self.leader is not None:
            leading = self._with_values(self.leader, context, ledger)
            if self.leader_on_demand is not None:
                changes = changes._replace(on_demand=self.leader_on_demand)
            first = copy.deepcopy(self._adjust_pod(leading, ledger, changes))
            own = changes.words(leading["spec"], ledger.before())
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
        selector = self._selector(context)
        objects, place = self._objects, self._object_place
        try:
            found = self._call_api(lambda: objects.list_namespaced_custom_object(*place, label_selector=selector))
        except ApiException as answer:
            if answer.status != 403:
                raise
            self._refuse(f"Airflow may not list {self.what}s there (HTTP 403)", self._refusal_of(answer).words, "GF503")
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
        if pod is not None and not pod["metadata"].get("deletionTimestamp"):
            super()._clean_up(pod, ledger, succeeded=succeeded, delete=delete)

    def _patch(self, name: str, body: Mapping[str, Any]) -> None:
        self._call_api(lambda: self._objects.patch_namespaced_custom_object(*self._object_place, name, body))

    def _end_sidecar(self, name: str) -> None:
        """The outputs are in rank 0's last words."""

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


def _manifest(pod: Pod | Mapping[str, Any]) -> Mapping[str, Any]:
    return {"metadata": pod.metadata, "spec": pod.spec} if isinstance(pod, Pod) else pod


def _sentence(rank_0: Mapping[str, Any] | None, container: str = "main") -> str:
    """What rank 0's supervisor says of the end, which knows the rank that was first: all of them exit alike."""
    ended = pod_status.container_state(rank_0 or {}, container).get("terminated") or {}
    line = str(ended.get("message") or "").partition("\n")[0]
    return f" ({line})" if line.startswith(LOG_PREFIX) else ""


def _check_kind(kind: str, scheduler: str | None, leader: Pod | None) -> None:
    words = [each.word for each in KINDS.values()]
    row = WORDS.get(word_of(kind, scheduler)) if kind in words else None
    if row is not None and (1 if leader is None else 2) in row.sets:
        return
    from gpuflow.core.errors import Finding, GpuflowError
    from gpuflow.spec.builder import caller

    if row is not None:
        from gpuflow.pod.gang_kinds import shape_problem

        problem, hint = shape_problem(row, leads=leader is not None) or ("", "")
        raise GpuflowError([Finding("GF408", problem, caller(), hint)])
    if kind in words and scheduler is not None:
        from gpuflow.site.model import scheduler_problem

        problem, hint = scheduler_problem(kind, scheduler)
        raise GpuflowError([Finding("GF416", problem, caller(), hint)])
    hint = f"write one of {', '.join(words)}"
    raise GpuflowError([Finding("GF408", f"a gang cannot be a {kind!r}", caller(), hint)])


def _refuse(given: Mapping[str, Any]) -> None:
    wrong = [name for name in NOT_TAKEN if given.get(name)]
    if not wrong:
        return
    from gpuflow.core.errors import Finding, GpuflowError
    from gpuflow.spec.builder import caller

    where = caller()
    raise GpuflowError(
        Finding("GF378", f"GpuGangOperator does not take {name}", where, NOT_TAKEN[name]) for name in wrong
    )
