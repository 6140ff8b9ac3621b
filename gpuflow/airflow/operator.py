"""`GpuPodOperator`: a KubernetesPodOperator that waits in queues, tells interruptions from failures, and never lies.

The worker only decides; all waiting is done by the trigger. One round is: make the pod (or find the one that a lost
worker made), hand it to the trigger, and when something has happened judge it by the one table of evidence.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowTaskTimeout, TaskDeferred
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError  # type: ignore[import-not-found]  # comes with the client

from gpuflow.airflow import alerts, attempts, pod_status
from gpuflow.airflow import limits as times
from gpuflow.airflow import links as kept_files
from gpuflow.airflow.attempts import Budgets, End
from gpuflow.airflow.limits import at_most, skip_unless_due
from gpuflow.airflow.links import links_of
from gpuflow.airflow.operator_arguments import neutral_arguments, refuse_arguments
from gpuflow.airflow.pods import Pod
from gpuflow.airflow.references import Context, Value, as_text
from gpuflow.airflow.refusals import AGAIN, EXISTS, NEVER, refusal_hint
from gpuflow.airflow.step_pods import POD_CHECKED_KEY, XCOM_RETURN_KEY, StepPods
from gpuflow.runtime.base import outcomes


class GpuPodOperator(StepPods):
    """Runs one step as a pod.

    :param template: the pod, as data; references in it are filled in when the task runs. Nothing in it is a template.
    :param outputs: names and types of the values the step writes to `/airflow/xcom/return.json`. `return_value` is the
        whole of it, unless it is an entry there.
    :param artifacts: of the outputs those that are files or directories: `{"model": {"kind": "model", "asset": URI}}`.
        The event of that asset, which must be among `outlets`, says where the run has kept it, its digest and size.
    :param supervised: the command runs under gpuflow-run, so only its success marker makes exit code 0 a success.
    :param retries: alone: how many more tries there are, whatever ended the pod. Each end costs one.
    :param failures: instead: how often a failed pod is followed by another Airflow try.
    :param interruptions: and how often an interrupted pod is replaced, within the same try.
    :param interruption_delay: the wait before the first of them; it grows by `retry_exponential_backoff`.
    :param when: a condition; the task is skipped when it is false.
    :param only_after_failure: for exit steps: skipped when nothing before it failed.
    :param item: the fan-out item of a mapped task.
    :param limits: how many pods of the run, or of a part of it, may exist at once: `[at_most(24)]`.
    :param deadlines: until when the sub-pipelines around it must be done, a list of `deadline(…)`.
    :param queue_timeout: the longest each pod may wait for quota, queue or node; default: no limit.
    :param final_exit_codes: exit codes after which there is no retry.
    :param retryable_exit_codes: if given, only these are retried.
    :param more_memory: `{"factor": 2, "max": "64Gi"}`: after running out of memory the next try gets more, never less.
    :param other_node: after a failure, the next try runs on another node.
    :param fallback_after: after so many interruptions, `on_demand` replaces those fields of the pod's spec.
    :param sidecar_resources: resources of the container that passes the outputs on.
    :param source: where the step is written, for the link in the UI.
    :param links: more links in the UI, by name: `{"Pod": "https://k8s.example.com/{namespace}/{pod}"}`. One that names
        `{output}`, `{uri}`, `{bucket}` or `{key}` is there once for each of `artifacts`.
    :param on_demand: fields of the pod's spec that replace its own after `fallback_after` interruptions.
    :param poll_interval: seconds between two looks at the pod.
    :param logging_interval: seconds between two copies of its log.
    :param startup_timeout_seconds: how long a pod that has a node may fail to start.
    :param deferrable: wait in the triggerer; with False in the worker.
    :param on_finish_action: what becomes of a pod that ended: `delete_succeeded_pod`, `delete_pod` or `keep_pod`.
    :param kwargs: arguments of Airflow's KubernetesPodOperator and BaseOperator, such as `namespace` and
        `trigger_rule`.
    """

    template_fields: Sequence[str] = ("template",)
    template_fields_renderers = {"template": "json"}  # noqa: RUF012 (Airflow's own shape)
    operator_extra_links = property(links_of)
    ui_color = "#d5f0c1"

    def __init__(
        self,
        *,
        template: Pod,
        outputs: Mapping[str, str] | None = None,
        artifacts: Mapping[str, Mapping[str, str]] | None = None,
        supervised: bool = False,
        failures: int | None = None,
        interruptions: int | None = None,
        interruption_delay: timedelta | None = None,
        when: Value | bool | None = None,
        only_after_failure: bool = False,
        item: Mapping[str, Any] | None = None,
        limits: Sequence[at_most] = (),
        deadlines: Sequence[times.deadline] = (),
        queue_timeout: timedelta | None = None,
        final_exit_codes: Sequence[int] = (),
        retryable_exit_codes: Sequence[int] | None = None,
        more_memory: Mapping[str, Any] | None = None,
        other_node: bool = False,
        fallback_after: int | None = None,
        on_demand: Mapping[str, Any] | None = None,
        sidecar_resources: Mapping[str, Any] | None = None,
        source: str | None = None,
        links: Mapping[str, str] | None = None,
        retries: int | None = None,
        poll_interval: float = 5,
        logging_interval: int | None = 30,
        startup_timeout_seconds: int = 600,
        deferrable: bool = True,
        on_finish_action: str = "delete_succeeded_pod",
        **kwargs: Any,
    ) -> None:
        refuse_arguments(kwargs, type(self).__name__)
        budgets = Budgets.from_arguments(failures, interruptions, retries)
        super().__init__(
            base_container_name="main",
            do_xcom_push=bool(outputs),
            multiple_outputs=bool(outputs) and XCOM_RETURN_KEY not in (outputs or ()),
            retries=budgets.tries,
            poll_interval=poll_interval,
            logging_interval=logging_interval,
            startup_timeout_seconds=startup_timeout_seconds,
            deferrable=deferrable,
            on_finish_action=on_finish_action,
            **neutral_arguments(kwargs.get("default_args") or {}, kwargs.get("task_id", "?")),
            **kwargs,
        )
        self.template = template
        self.outputs = outputs or {}
        self.artifacts = artifacts or {}
        self.kept = {}
        self.supervised = supervised
        self.budgets = budgets
        self.interruption_delay = interruption_delay
        self.when = when
        self.only_after_failure = only_after_failure
        self.item = item
        self.limits = limits
        self.deadlines = deadlines
        self.queue_timeout = queue_timeout
        self.final_exit_codes = final_exit_codes
        self.retryable_exit_codes = retryable_exit_codes
        self.more_memory = more_memory
        self.other_node = other_node
        self.fallback_after = fallback_after
        self.on_demand = on_demand or {}
        self.sidecar_resources = sidecar_resources
        self.source = source
        self.links = links or {}
        self._deciding = False
        self._seen: str | None = None
        self._asking = False
        self.cause = alerts.FAILURE

    @property
    def label(self) -> str:
        """The name of a mapped task's item, shown in the UI."""
        return ", ".join(f"{key}={as_text(value)}" for key, value in (self.item or {}).items())

    # -- one round ------------------------------------------------------------------------------------------------

    def execute(self, context: Context) -> Any:
        """Start, or go on with what an earlier try of this task left behind."""
        self.hide()
        with alerts.record_cause(self, context):
            skip_unless_due(self, context)
            pods = self._pods_of_task(context)
            return self._resume_or_create(context, attempts.load_ledger(context, pods), pods)

    def _resume_or_create(self, context: Context, ledger: attempts.Ledger, pods: list[dict[str, Any]]) -> Any:
        """Take up the pod that is there, or make the next one, unless the task was over before a worker died."""
        left = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(POD_CHECKED_KEY) != "True"]
        if (word := ledger.recorded_end(context)) is not None:
            return self._repeat(context, word, left, ledger)
        if not left:
            return self._start(context, ledger)
        pod = self._newest_pod(left)
        self._set_linked_pod(pod["metadata"]["name"])
        self.log.info("continuing with %s %s: %s", self.what, pod["metadata"]["name"], self._describe(pod))
        if pod_status.has_ended(pod):
            return self._handle_end(context, ledger, pod)
        return self._wait(context, ledger, pod["metadata"]["name"], "end")

    def _repeat(
        self, context: Context, word: Mapping[str, Any], left: list[dict[str, Any]], ledger: attempts.Ledger
    ) -> Any:
        """Report again how the task ended: an earlier worker died before its report arrived."""
        for pod in left:
            self._clean_up(pod, ledger, succeeded="failed" not in word)
        if "failed" in word:
            raise AirflowFailException(f"{word['failed']} (so an earlier try ended, and Airflow did not hear of it)")
        self.log.info("the pod of an earlier try succeeded, and Airflow did not hear of it: no other pod is made")
        self.kept = word.get("artifacts") or {}
        return self._return_value(context, dict(word.get("outputs") or {}))

    def resume(self, context: Context, event: Mapping[str, Any]) -> Any:
        """The trigger has something to decide."""
        self.hide()
        with alerts.record_cause(self, context):
            return self._decide(context, event)

    def _decide(self, context: Context, event: Mapping[str, Any]) -> Any:
        pods = self._pods_of_task(context)
        ledger = attempts.load_ledger(context, pods, event.get("ledger"))
        what, name = event["what"], event["name"]
        if what in ("room", "time"):
            return self._resume_or_create(context, ledger, pods)
        there = next((pod for pod in pods if pod["metadata"]["name"] == name), None)
        self._seen = self._seen_in(event, there)
        if what in ("never", "late", "stuck", "timeout"):
            return self._give_up(context, ledger, event, there)
        return self._handle_event(context, ledger, event, there)

    def _seen_in(self, event: Mapping[str, Any], there: dict[str, Any] | None) -> str | None:
        """The pod that the links point to from now on."""
        return event["name"] if event.get("pod") or there is not None else self._seen

    def _handle_event(
        self, context: Context, ledger: attempts.Ledger, event: Mapping[str, Any], there: dict[str, Any] | None
    ) -> Any:
        """Go on waiting for a pod that has not ended, or act on its end."""
        stays = event["what"] != "lost" or (there is not None and not pod_status.is_leaving(there))
        if there is not None and not pod_status.has_ended(there) and stays:
            last_log, other_logs = event.get("last_log", ""), event.get("other_logs")
            return self._wait(context, ledger, event["name"], "end", last_log, other_logs)
        return self._handle_end(context, ledger, there, event.get("pod"))

    def _start(self, context: Context, ledger: attempts.Ledger) -> Any:
        """Make the next pod, or wait until there is room for it."""
        self._deciding = False
        self._check_deadlines(context)
        ledger = ledger.with_queue_start(time.time())
        manifest = self._manifest(context, ledger)
        name = manifest["metadata"]["name"]
        if self._is_crowded(context):
            return self._wait(context, ledger, name, "room", manifest=manifest)
        self._set_owned_pod(name)
        self._asking = True
        try:
            self._create(manifest)
        except ApiException as answer:
            refusal = self._refusal_of(answer)
            if refusal.then == NEVER:
                self._refuse(refusal.because, refusal.words, refusal.code)
            if refusal.then != EXISTS:
                self.log.info("%s %s: %s", self.what, name, refusal.words)
                delay = 5.0 if refusal.then == AGAIN else 0.0
                return self._wait(context, ledger, name, "room", manifest=manifest, not_before=time.time() + delay)
            self.log.info("%s %s already exists: an earlier answer from the API server was lost", self.what, name)
        except (OSError, HTTPError) as trouble:
            self.log.info("%s %s: the API server does not answer: %s", self.what, name, trouble)
            return self._wait(context, ledger, name, "room", manifest=manifest)
        finally:
            self._asking = False
        ledger = ledger.plus(pods=1)
        attempts.save_ledger(context, ledger)
        if self._withdrawn(context, name):
            ledger = ledger.with_withdrawn_pod()
            attempts.save_ledger(context, ledger)
            return self._wait(context, ledger, name, "room", manifest=self._manifest(context, ledger))
        self._push(context, name, self._namespace(manifest))
        self.log.info("created %s %s%s", self.what, name, self.budgets.usage_text(ledger))
        return self._wait(context, ledger, name, "end")

    def _handle_end(
        self, context: Context, ledger: attempts.Ledger, pod: dict[str, Any] | None, last: dict[str, Any] | None = None
    ) -> Any:
        """Classify the end of a pod that has ended or disappeared, and act on it."""
        from gpuflow.runtime.supervise import evidence

        self._deciding = True
        seen = evidence.from_pod(pod or last, "main", supervised=self.supervised)
        if pod is None and not (last and pod_status.has_ended(last)):
            seen = seen._replace(deleted=True)
        verdict = evidence.judge(
            seen, final_exit_codes=self.final_exit_codes, retryable_exit_codes=self.retryable_exit_codes
        )
        name = ((pod or last or {}).get("metadata") or {}).get("name", "?")
        outcome, because = verdict if verdict is not None else (outcomes.INTERRUPTED, "it disappeared before it ended")
        if self.supervised and outcome == outcomes.RETRYABLE and seen.exit_code == 137 and not seen.said:
            # The supervisor has last words, also when its program is killed. Without them it was killed itself.
            outcome, because = outcomes.INTERRUPTED, "the supervisor was killed, and nobody says why"
        values: dict[str, Any] | None = {}
        if outcome == outcomes.SUCCEEDED and self.outputs:
            values, wrong = self._read_outputs(pod)
            if wrong is not None:
                outcome, because = outcomes.RETRYABLE, f"it succeeded, but {wrong}"
            elif values is None:
                outcome, because = outcomes.INTERRUPTED, "it succeeded, but was gone before its outputs could be read"
            elif missing := [name for name in self.outputs if name not in values]:
                outcome, because = outcomes.RETRYABLE, f"it succeeded, but wrote no output {', '.join(missing)}"
        interrupted = outcome in (outcomes.INTERRUPTED, outcomes.NEVER_STARTED) or _spent_by_interruption(seen)
        end = End(
            f"pod {name}",
            outcome,
            because,
            interrupted,
            values or {},
            pod_status.end_message(pod or last or {}),
            attempts.account_of_pod(ledger.pods, seen, pod or last),
            ((pod or last or {}).get("spec") or {}).get("nodeName"),
        )
        return self._follow_up(context, ledger, end, pod, last)

    def _follow_up(
        self,
        context: Context,
        ledger: attempts.Ledger,
        end: End,
        there: dict[str, Any] | None,
        last: dict[str, Any] | None = None,
    ) -> Any:
        """Count an end, and do what follows from it. `there`: the object, while it still is; `last`: as last seen."""
        self.log.info("%s: %s: %s", end.what, end.outcome, end.because)
        if self._killed:
            raise AirflowException(f"the task was told to stop; {end.what} was {end.outcome}")
        if end.outcome == outcomes.SUCCEEDED:
            ledger = ledger.with_success(context, end.values, self.kept)
            attempts.save_ledger(context, ledger)
            self._clean_up(there, ledger, succeeded=True)
            return self._return_value(context, dict(end.values))
        was_counted = ledger.judged == ledger.pods  # by a try that died, or could not mark the pod
        interrupted = end.interrupted
        self.cause = alerts.INTERRUPTION if interrupted else alerts.cause_of_end(end.outcome, end.last_words)
        if interrupted:
            ledger = ledger.with_pod_end(end.told, interruptions=1)
        else:
            out_of_memory = 1 if end.outcome == outcomes.OUT_OF_MEMORY else 0
            ledger = ledger.with_pod_end(end.told, failures=1, out_of_memory=out_of_memory)
            if self.other_node:
                ledger = ledger.without_node(end.node)
        sentence = f"{end.what} failed: {end.because}{end.last_words}"
        no_more = "it is not retried" if end.outcome == outcomes.FINAL else None
        if interrupted and no_more is None:
            sentence = f"interrupted: {end.because}"
        no_more = no_more or self.budgets.exhausted_text(ledger, interrupted=interrupted)
        if no_more:
            ledger = ledger.with_failure(context, f"{sentence}; {no_more}")
        attempts.save_ledger(context, ledger)
        self._log_events(there or last)
        self._clean_up(there, ledger)
        if no_more:
            raise AirflowFailException(f"{sentence}; {no_more}")
        counted = self.budgets.progress_text(ledger, interrupted=interrupted)
        if was_counted:
            return self._start(context, ledger)
        if interrupted and self.budgets.any is None:
            return self._start_next_pod(context, ledger, counted)
        # Airflow has no try left. Where a worker died, the step may still have an attempt.
        if self.budgets.any is not None and context["ti"].try_number > context["ti"].max_tries:
            return self._start(context, ledger)
        raise AirflowException(f"{sentence}; {counted}")

    def _return_value(self, context: Context, values: dict[str, Any]) -> Any:
        """What the task returns: the map of its outputs, or one output as its value, the others as further XComs."""
        for name, note in self.kept.items():
            self.log.info("%s", kept_files.artifact_line(name, note))
        kept_files.describe_assets(context, self.artifacts, self.kept)
        if XCOM_RETURN_KEY not in values:
            return values or None
        for name, value in values.items():
            if name != XCOM_RETURN_KEY:
                context["ti"].xcom_push(key=name, value=value)
        return values[XCOM_RETURN_KEY]

    def _start_next_pod(self, context: Context, ledger: attempts.Ledger, counted: str) -> Any:
        """After an interruption: another pod in the same try."""
        delay = self._delay(ledger.interruptions)
        self.log.info("%s: creating another %s%s", counted, self.what, f" in {delay:.0f} s" if delay else "")
        if not delay:
            return self._start(context, ledger)
        return self._wait(context, ledger, "-", "time", not_before=time.time() + delay)

    def _give_up(
        self, context: Context, ledger: attempts.Ledger, event: Mapping[str, Any], pod: dict[str, Any] | None
    ) -> NoReturn:
        """It will not start or end in time: never admitted, waited too long, no container, or out of time."""
        from gpuflow.runtime.supervise import evidence

        what, counts = event["what"], event["what"] in ("stuck", "timeout")
        if counts:
            # Before the pod is deleted: whoever finds it on its way out must not take it for an interruption.
            seen = evidence.from_pod(pod or event.get("pod"), "main", supervised=self.supervised)
            if what == "timeout":
                seen = seen._replace(phase="Failed", reason="DeadlineExceeded")
            told = attempts.account_of_pod(ledger.pods, seen, None if what == "timeout" else pod)
            is_waiting = ledger.judged == ledger.pods  # for room: there is no pod that could be judged again
            ledger = ledger.plus(failures=1) if is_waiting else ledger.with_pod_end(told, failures=1)
        sentence, no_more = self._give_up_reason(what, event.get("words", "")), None
        if what == "late" or (counts and (no_more := self.budgets.exhausted_text(ledger, interrupted=False))):
            ledger = ledger.with_failure(context, f"{sentence}; {no_more}" if no_more else sentence)
        attempts.save_ledger(context, ledger)
        self._log_events(pod or event.get("pod"))
        self._clean_up(pod, ledger, delete=True)
        if what == "timeout":
            self._check_deadlines(context)
        if what == "never":
            self._refuse(event.get("because", ""), event.get("words", ""), event.get("code", "GF501"))
        self.cause = alerts.TIMED_OUT if what == "timeout" else alerts.FAILURE
        if what == "late":
            self.cause = alerts.QUOTA
        if (word := ledger.recorded_end(context)) is not None:
            raise AirflowFailException(word["failed"])
        raise AirflowException(sentence)

    def _give_up_reason(self, what: str, words: str) -> str:
        """Why a pod is given up."""
        if what == "late":
            return f"waited longer than {self.queue_timeout}{f': {words}' if words else ''}"
        if what == "timeout":
            return f"the task took longer than its execution_timeout of {self.execution_timeout}"
        return f"the container could not be started: {words}"

    def _refuse(self, because: str, words: str, code: str) -> NoReturn:
        from gpuflow.core.errors import Finding, Where

        self.cause = alerts.QUOTA if code == "GF501" else alerts.REFUSED
        file, _, line = (self.source or "").partition("#L")
        where = Where(file or None, int(line) if line.isdigit() else None)
        message = f'step "{self.task_id}" can never be admitted: {because}'
        raise AirflowFailException(Finding(code, message, where, refusal_hint(words), kubernetes=words).render())

    # -- waiting, in the trigger or without a triggerer in the worker ---------------------------------------------

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
        around = times.first_deadline(self.deadlines, context)
        moments = [self._deadline(context, self.execution_timeout), None if around is None else around[0]]
        return min((moment for moment in moments if moment is not None), default=None)

    def _check_deadlines(self, context: Context) -> None:
        if (around := times.first_deadline(self.deadlines, context)) is not None and time.time() > around[0]:
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


def _spent_by_interruption(seen: Any) -> bool:
    """Whether the supervisor ended the step for good because of one interruption too many: the pod was taken away."""
    from gpuflow.runtime.supervise import evidence

    if seen.exit_code != outcomes.EXIT_FINAL:
        return False
    verdict = evidence.judge(seen._replace(exit_code=None))
    return verdict is not None and verdict.outcome == outcomes.INTERRUPTED


async def _first_event(trigger: Any) -> Mapping[str, Any]:
    async for event in trigger.run():
        payload: Mapping[str, Any] = event.payload
        return payload
    raise AirflowException("the trigger ended without an event")
