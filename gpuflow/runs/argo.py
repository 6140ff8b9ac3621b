"""Runs on Argo Workflows, through the Kubernetes API: what `argo` itself does without a server.

The Workflow holds the whole compiled specification, so that a run needs no template in the cluster. Its name is chosen
here: after an answer that got lost, the same name shows whether the run was made.

`stop` sets the deadline of the run to now. Argo then sends SIGTERM to the programs, SIGKILL after the grace of their
pods, and runs the exit handler to its end. `spec.shutdown: Stop` starts the exit steps too, but ends the run before
they have ended when the handler is a DAG (`isShutdown` in dag.go, 4.0.2), and `Terminate` starts none. Only a run of
a template in the cluster, whose deadline Argo reads once, gets a `Stop`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import yaml

from gpuflow.cluster.api_server import LOG_IN, REFUSED_LOGIN, Answer, Reader, environment_failure
from gpuflow.core.errors import EnvironmentFailure, Finding, GpuflowError, Where, fail, join_names
from gpuflow.local.record import FAILED, INTERRUPTED, RUNNING, SUCCEEDED, WAITING
from gpuflow.plan import Plan
from gpuflow.pod.build import LABEL
from gpuflow.runs.argo_nodes import STOPPED, Steps, is_stopped
from gpuflow.runs.argo_retry import workflow_again
from gpuflow.runs.model import (
    STEP_ENDS,
    Connection,
    LogPart,
    LogQuery,
    RunState,
    Started,
    Submission,
    Unreachable,
)
from gpuflow.runtime.bundle import config_map, config_map_name
from gpuflow.runtime.gangs.kinds import KINDS
from gpuflow.spec.params import text_of

_STATES = {"Succeeded": SUCCEEDED, "Failed": FAILED, "Error": FAILED, "Running": RUNNING}
_LONGEST = 63
"""A run's name is the value of a label of its pods."""
_PODS_END = 120
"""Seconds that the pods of what is retried get to end."""
EVERY = 1.0
PIPELINE = f"{LABEL}pipeline"


def connect(connection: Connection) -> ArgoRuns:
    """The client; nothing is asked yet."""
    if connection.namespace is None:
        hint = "use --namespace NS, or set namespace in the site"
        raise fail("GF904", "no namespace is given, and runs on Argo are in one", where=Where("argo"), hint=hint)
    reader = Reader(connection.context, connection.kubeconfig, connection.timeout)
    return ArgoRuns(reader, connection.namespace, connection.url)


def workflow_of(document: Mapping[str, Any], submission: Submission, name: str) -> dict[str, Any]:
    """The run of a compiled WorkflowTemplate or CronWorkflow, with the values of its parameters."""
    outer = dict(document["spec"])
    of_runs = outer.pop("workflowMetadata", {})
    spec, given = outer.get("workflowSpec", outer), submission.params
    for each in spec.get("arguments", {}).get("parameters", ()):
        if each["name"] in given:
            each["value"] = text_of(given[each["name"]])
    labels = {**of_runs.get("labels", {}), PIPELINE: submission.plan.pipeline.name}
    metadata = {**of_runs, "name": name, "labels": labels}
    return {"apiVersion": document["apiVersion"], "kind": "Workflow", "metadata": metadata, "spec": spec}


class ArgoRuns:
    """The Workflows of one namespace."""

    engine = "argo"

    def __init__(self, reader: Reader, namespace: str, url: str | None = None) -> None:
        self._reader, self.namespace, self._url = reader, namespace, url
        self._workflows = f"/apis/argoproj.io/v1alpha1/namespaces/{namespace}/workflows"
        self._core = f"/api/v1/namespaces/{namespace}"

    def submit(self, submission: Submission) -> Started:
        pipeline = submission.plan.pipeline.name
        name = submission.name or f"{pipeline[: _LONGEST - 6].rstrip('-.')}-{secrets.token_hex(3)[:5]}"
        if len(name) > _LONGEST:
            text = f'"{name}" has {len(name)} characters, and a run on Argo at most {_LONGEST}'
            raise fail("GF903", text, where=Where("gpuflow submit"), hint="give a shorter --name")
        workflow = workflow_of(yaml.safe_load(submission.compiled.text), submission, name)
        if submission.name and (found := self._find(name)) is not None:
            return self._there_already(name, pipeline, found)
        created = self._supply(submission)
        notes = [Finding("GF948", f"created ConfigMap {created}", Where("argo"), None, "note")] if created else []
        try:
            answer = self._ask("POST", self._workflows, workflow, missing="Argo Workflows is not installed here")
            if answer.status == 409:
                return self._there_already(name, pipeline, self._find(name) or workflow)
        except GpuflowError as trouble:
            with suppress(GpuflowError):
                if isinstance(trouble, Unreachable) and self._find(name) is not None:
                    return Started(name, self._page(name), findings=tuple(notes))
            with suppress(GpuflowError):
                if created:
                    self._ask("DELETE", f"{self._core}/configmaps/{created}")
            raise
        return Started(name, self._page(name), findings=tuple(notes))

    def state(self, run: str, plan: Plan | None = None) -> RunState:
        return self._run_state(self._workflow(run), plan)

    def stop(self, run: str) -> RunState:
        workflow = self._workflow(run)
        if not self._run_state(workflow).is_over and not is_stopped(workflow):
            change: dict[str, Any] = {"spec": {"shutdown": "Stop"}}
            if "workflowTemplateRef" not in workflow["spec"]:
                before = str(workflow["spec"].get("activeDeadlineSeconds", ""))
                change = {"metadata": {"annotations": {STOPPED: before}}, "spec": {"activeDeadlineSeconds": 0}}
            workflow = self._ask("PATCH", self._path(run), change).body
        return self._run_state(workflow)

    def retry(self, run: str) -> Started:
        for _ in range(3):  # the controller may change it in between
            workflow = self._workflow(run)
            if not self._run_state(workflow).is_over:
                raise fail("GF943", f"run {run} has not ended", where=self._where(run), hint=f"gpuflow stop {run}")
            if (found := workflow_again(workflow)) is None:
                text = f"nothing of run {run} has failed" + _hidden_nodes(workflow)
                raise fail("GF943", text, where=self._where(run), hint="gpuflow submit starts another run")
            new, pods = found
            self._delete_pods(run, pods)
            if self._ask("PUT", self._path(run), new).status != 409:
                return Started(run, self._page(run))
        raise Unreachable(f"run {run} is being changed by others")

    def logs(self, run: str, query: LogQuery) -> Iterator[LogPart]:
        shown: set[str] = set()
        while True:
            workflow = self._workflow(run)
            state = self._run_state(workflow)
            steps = [each for each in state.steps if _is_part_of(each.name, query.step)]
            if not steps:
                known = ", ".join(each.name for each in state.steps[:20])
                text = f'run {run} has no step "{query.step}"'
                raise fail("GF927", text, where=self._where(run), hint=f"it has {known}")
            is_over = state.is_over or all(each.state in STEP_ENDS for each in steps)
            for each in steps:
                for title, pod in self._pods(workflow, each.name, each.pods, query):
                    for text in self._log(pod, query.follow) if pod not in shown else ():
                        shown.add(pod)
                        yield LogPart(title, text)
            if is_over or not query.follow:
                break
            time.sleep(EVERY)
        if not shown:
            hint = "Argo's podGC may have deleted its pods: the archive of logs, where there is one, is in Argo's UI"
            raise fail("GF927", f'run {run} has no log of "{query.step}"', where=self._where(run), hint=hint)

    # -- what a run consists of

    def _run_state(self, workflow: Mapping[str, Any], plan: Plan | None = None) -> RunState:
        status, metadata = workflow.get("status") or {}, workflow["metadata"]
        labels, run = metadata.get("labels") or {}, str(metadata["name"])
        state = _STATES.get(status.get("phase") or "", WAITING)
        because = "" if state in (SUCCEEDED, RUNNING) else str(status.get("message") or "")
        if state == FAILED and is_stopped(workflow):
            state, because = INTERRUPTED, "somebody stopped it"
        if state == WAITING and not because:
            because = "Argo has not begun it: does its controller run, and does it watch this namespace?"
        pipeline = labels.get(PIPELINE) or labels.get("workflows.argoproj.io/workflow-template") or run
        steps = Steps(workflow).states(plan)
        if state == FAILED and not because:
            because = join_names([each.name for each in steps if each.state == FAILED and each.pods])
            because = because and f"{because} failed"
        return RunState(run, self.engine, pipeline, self._page(run), state, steps, because + _hidden_nodes(workflow))

    def _pods(
        self, workflow: Mapping[str, Any], step: str, pods: tuple[str, ...], query: LogQuery
    ) -> Iterator[tuple[str, str]]:
        """The title and the pod of each attempt; of a gang also those of its ranks."""
        for number, pod in enumerate(pods, 1):
            if query.attempt in (None, number) and query.rank is None:
                yield f"{step}, attempt {number}", pod
        own = step.rpartition(".")[2].partition("@")[0]
        answer = self._reader.get(f"{self._core}/pods", {"labelSelector": f"gpuflow.dev/gang,gpuflow.dev/step={own}"})
        for metadata in (pod["metadata"] for pod in answer.body.get("items") or ()):
            labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
            attempt = notes.get("gpuflow.dev/attempt", "1")
            rank = next((labels[each.rank] for each in KINDS.values() if each.rank in labels), "0")
            is_ours = labels.get("gpuflow.dev/run") in (workflow["metadata"].get("uid"), workflow["metadata"]["name"])
            if is_ours and query.attempt in (None, int(attempt)) and query.rank in (None, int(rank)):
                yield f"{step}, attempt {attempt}, rank {rank}", metadata["name"]

    def _log(self, pod: str, follow: bool) -> Iterator[str]:
        query = {"container": "main", **({"follow": "true"} if follow else {})}
        try:
            yield from self._reader.text(f"{self._core}/pods/{pod}/log", query)
        except EnvironmentFailure as trouble:
            raise _as_unreachable(trouble) from None

    def _page(self, run: str) -> str:
        return f"{self._url.rstrip('/')}/workflows/{self.namespace}/{run}" if self._url else ""

    def _path(self, run: str) -> str:
        return f"{self._workflows}/{quote(run, safe='')}"

    def _where(self, run: str) -> Where:
        return Where(f"argo {self.namespace}/{run}")

    # -- questions to the API server

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, missing: str = "") -> Answer:
        """An answer that is no refusal; 404 and 409 are for the caller, but for 404 where `missing` says what it is."""
        try:
            answer = self._reader.get(path, {}) if method == "GET" else self._reader.send(method, path, body)
        except EnvironmentFailure as trouble:
            raise _as_unreachable(trouble) from None
        said = answer.sentence or answer.reason
        if answer.status == 401:
            raise environment_failure("GF411", REFUSED_LOGIN, LOG_IN)
        if answer.status == 429 or answer.status >= 500:
            raise Unreachable(f"the cluster does not answer: {said}")
        if answer.status == 403 or (answer.status == 404 and missing):
            text = missing if answer.status == 404 else f"you may not do it in namespace {self.namespace}"
            hint = "ask who runs the cluster, or name another --namespace or --context"
            raise environment_failure("GF945", f"{text}: {said}", hint)
        if answer.status >= 400 and answer.status not in (404, 409):
            raise fail("GF945", f"Argo's run is refused: {said}", where=Where("argo"))
        return answer

    def _find(self, run: str) -> Mapping[str, Any] | None:
        answer = self._ask("GET", self._path(run))
        return answer.body if answer.status == 200 else None

    def _workflow(self, run: str) -> Mapping[str, Any]:
        if (found := self._find(run)) is None:
            hint = "name its --namespace or --context; a run that was deleted is only in Argo's archive, in its UI"
            text = f"there is no run {run} in namespace {self.namespace}"
            raise fail("GF941", text, where=self._where(run), hint=hint)
        return found

    def _there_already(self, run: str, pipeline: str, workflow: Mapping[str, Any]) -> Started:
        other = (workflow["metadata"].get("labels") or {}).get(PIPELINE)
        if other != pipeline:
            text = f"there is a run {run} already, and it is one of {other or 'something else'}"
            raise fail("GF903", text, where=self._where(run), hint="give another --name")
        text = f"run {run} was there already: nothing was started"
        return Started(run, self._page(run), False, (Finding("GF946", text, self._where(run), None, "note"),))

    def _supply(self, submission: Submission) -> str | None:
        """Create the supervisor's ConfigMap where the run needs it and it is missing. The name of what was made."""
        prefix = submission.plan.site.runtime.config_map
        name = config_map_name(prefix)
        # Whoever may not look can still start: the pods then say what they lack.
        if (
            name not in submission.compiled.text
            or self._reader.get(f"{self._core}/configmaps/{name}", {}).status != 404
        ):
            return None
        if not submission.apply:
            text = f"namespace {self.namespace} lacks the ConfigMap {name}, which holds gpuflow-run"
            hint = "--apply creates it; so does gpuflow site runtime SITE | kubectl apply --server-side -f -"
            raise fail("GF944", text, where=Where("argo"), hint=hint)
        self._ask("POST", f"{self._core}/configmaps", config_map(prefix, self.namespace))
        return name

    def _delete_pods(self, run: str, pods: list[str]) -> None:
        """Delete pods, and wait until they are gone."""
        for pod in pods:
            self._ask("DELETE", f"{self._core}/pods/{pod}")
        end = time.monotonic() + _PODS_END
        while pods := [each for each in pods if self._ask("GET", f"{self._core}/pods/{each}").status != 404]:
            if time.monotonic() > end:
                text = f"pods of run {run} still end: {', '.join(pods[:3])}"
                raise fail("GF943", text, where=self._where(run), hint="retry it later")
            time.sleep(EVERY)


def _hidden_nodes(workflow: Mapping[str, Any]) -> str:
    status = workflow.get("status") or {}
    if status.get("offloadNodeStatusVersion") and not status.get("nodes"):
        return "its steps are in Argo's database, which only Argo's UI reads"
    return ""


def _is_part_of(name: str, step: str) -> bool:
    return name == step or name.startswith((f"{step}@", f"{step}."))


def _as_unreachable(trouble: EnvironmentFailure) -> Exception:
    """No answer is a moment's trouble; a kubeconfig that cannot be used stays one."""
    first = trouble.findings[0]
    return Unreachable(first.message) if first.code == "GF412" else trouble
