"""`GpuGangOperator`: a step whose pods work together, as one JobSet for each attempt.

Budgets, tries, deadlines, outputs and alerts are those of `GpuPodOperator`. What ends an attempt is judged as the
launcher of other engines judges it: a rank that was taken away makes it an interruption, whatever the others died of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubernetes.client.exceptions import ApiException

from gpuflow.airflow import attempts, pod_status
from gpuflow.airflow.attempts import End
from gpuflow.airflow.gang_objects import StepGangs
from gpuflow.airflow.operator import GpuPodOperator
from gpuflow.airflow.pods import Pod
from gpuflow.airflow.references import Context
from gpuflow.airflow.step_pods import POD_CHECKED_KEY
from gpuflow.runtime.artifacts import outputs
from gpuflow.runtime.base import outcomes
from gpuflow.runtime.gangs.attempt_verdict import Verdict
from gpuflow.runtime.gangs.kinds import KINDS, WORDS, word_of
from gpuflow.runtime.gangs.watch import NO_OUTPUTS, SETTLE, read_outputs
from gpuflow.runtime.state.attempts import COSTS

LOG_PREFIX = "gpuflow-run: "
"""What every last word of a supervisor begins with."""
NOT_TAKEN = {
    "limits": "ranks are no pods of Airflow's, which counts none of them: let tasks wait for each other",
    "sidecar_resources": "outputs come from rank 0's last words: leave it out",
}
"""Arguments of `GpuPodOperator` that a gang cannot have."""


class GpuGangOperator(StepGangs, GpuPodOperator):
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

    def _pods_of_task(self, context: Context) -> list[dict[str, Any]]:
        try:
            return super()._pods_of_task(context)
        except ApiException as answer:
            if answer.status != 403:
                raise
            self._refuse(f"Airflow may not list {self.what}s there (HTTP 403)", self._refusal_of(answer).words, "GF503")

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

    def _decide(self, context: Context, event: Mapping[str, Any]) -> Any:
        jobsets = self._pods_of_task(context)
        ledger = attempts.load_ledger(context, jobsets, event.get("ledger"))
        what, name = event["what"], event["name"]
        if what in ("room", "time"):
            return self._resume_or_create(context, ledger, jobsets)
        rank_0 = event.get("rank_0")
        self._seen = None if rank_0 is None else rank_0["metadata"]["name"]
        there = next((each for each in jobsets if each["metadata"]["name"] == name), None)
        if what in ("never", "late", "stuck", "timeout"):
            return self._give_up(context, ledger, event, there)
        return self._handle_verdict(context, ledger, event, there)

    def _handle_verdict(
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
        from gpuflow.site.gangs import scheduler_problem

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
