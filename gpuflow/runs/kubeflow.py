"""Runs on Kubeflow Pipelines, through its REST API; kfp's own client need not be installed.

Where KFP is and who asks is read as kfp reads it: GPUFLOW_KUBEFLOW_URL or KF_PIPELINES_ENDPOINT, else the site, else
the service of the cluster around; GPUFLOW_KUBEFLOW_TOKEN, or the file of a service account's token; and what kfp keeps
in `~/.config/kfp/context.json`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import yaml

from gpuflow.cluster.api_server import Reader
from gpuflow.core.errors import EnvironmentFailure, Finding, GpuflowError, Where, fail
from gpuflow.local.record import FAILED, INTERRUPTED, RUNNING, SUCCEEDED, WAITING
from gpuflow.plan import Plan
from gpuflow.runs.argo import ArgoRuns
from gpuflow.runs.kubeflow_steps import Data, Steps
from gpuflow.runs.model import Connection, LogPart, LogQuery, RunState, Started, Submission, Unreachable
from gpuflow.targets.kubeflow.client_calls import account_of

TIMEOUT = 30
WHERE = Where("kubeflow")
CONTEXT = "~/.config/kfp/context.json"
TOKEN_FILE = "/var/run/secrets/kubeflow/pipelines/token"
NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
SERVICE = "http://ml-pipeline.kubeflow.svc.cluster.local:8888"
ADDRESS = "set GPUFLOW_KUBEFLOW_URL, such as https://HOST/pipeline; kubectl port-forward svc/ml-pipeline 8888 gives one"
LOGIN = "set GPUFLOW_KUBEFLOW_TOKEN, or KF_PIPELINES_SA_TOKEN_PATH to a file with a token for pipelines.kubeflow.org"
STATES = {
    "SUCCEEDED": SUCCEEDED, "SKIPPED": SUCCEEDED, "FAILED": FAILED, "CANCELED": INTERRUPTED,
    "RUNNING": RUNNING, "CANCELING": RUNNING, "PAUSED": RUNNING,
}  # fmt: skip
"""KFP's states of a run; with any other it has not begun."""
RUNS, EXPERIMENTS = "/apis/v2beta1/runs", "/apis/v2beta1/experiments"
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A token is for the host that was named, and for no other."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Api:
    """One KFP, asked as one user."""

    def __init__(self, url: str | None = None) -> None:
        is_inside = "KUBERNETES_SERVICE_HOST" in os.environ
        self.url = (url or (SERVICE if is_inside else "")).rstrip("/")
        self.url = self.url if "://" in self.url or not self.url else f"https://{self.url}"  # as kfp reads it
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            text = "the address of KFP holds a user, or is none" if self.url else "nobody says where KFP is"
            raise fail("GF960", text, where=WHERE, hint=ADDRESS)
        has_pages = url and parts.port != 8888
        self.pages = os.environ.get("KF_PIPELINES_UI_ENDPOINT", self.url if has_pages else "").rstrip("/")
        self.context: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError, TypeError):
            self.context.update(json.loads(Path(CONTEXT).expanduser().read_text(encoding="utf-8")))
        self.namespace: str | None = self.context.get("namespace") or (_text(NAMESPACE_FILE) if is_inside else None)
        self._opener = urllib.request.build_opener(_NoRedirects)

    def _headers(self) -> dict[str, str]:
        """Who asks. A mounted token is read each time, because the kubelet renews it."""
        named, kept = os.environ.get("KF_PIPELINES_SA_TOKEN_PATH"), "client_authentication_"
        token = os.environ.get("GPUFLOW_KUBEFLOW_TOKEN") or _text(named or TOKEN_FILE)
        if named and not token:
            raise _failure("GF962", f"the file {named} has no token that can be read", LOGIN)
        if token and not (token.isascii() and token.isprintable()):
            raise _failure("GF962", "the token has characters that no request can carry", LOGIN)
        found = {"Accept": "application/json", "Content-Type": "application/json"}
        found |= {"Authorization": f"Bearer {token}"} if token else {}
        found |= {"Cookie": cookie} if (cookie := self.context.get(f"{kept}cookie")) else {}
        if name := self.context.get(f"{kept}header_name"):
            found[name] = str(self.context.get(f"{kept}header_value"))
        return found

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Data | None:
        """The answer; None where KFP has no such thing."""
        place = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        data, text = None if body is None else json.dumps(body).encode(), b""
        try:
            request = urllib.request.Request(place, data, self._headers(), method=method)
            with self._opener.open(request, timeout=TIMEOUT) as found:
                status, headers, text = found.status, found.headers, found.read()
        except urllib.error.HTTPError as refusal:
            with contextlib.suppress(OSError, http.client.HTTPException), refusal:
                text = refusal.read()
            status, headers = refusal.code, refusal.headers
        except (OSError, ValueError, http.client.HTTPException) as fault:
            because = getattr(fault, "reason", None) or fault or type(fault).__name__
            if isinstance(because, ssl.SSLError):
                hint = "SSL_CERT_FILE names a file with the certificate of its authority"
                raise _failure("GF961", f"no trusted connection to {self.url}: {because}", hint) from None
            raise Unreachable(f"Kubeflow Pipelines at {self.url} does not answer: {because}") from None
        return self._answer(status, headers, text)

    def _answer(self, status: int, headers: Mapping[str, str], content: bytes) -> Data | None:
        if status in (429, 502, 503, 504):
            raise Unreachable(f"Kubeflow Pipelines at {self.url} does not answer now: HTTP {status}")
        try:
            body = json.loads(content) if content.strip() else {}
        except ValueError:
            body = None
        said = body if isinstance(body, dict) else {}
        words = " ".join(str(said.get("message") or said.get("error") or "").split())[:400]
        if status == 401:
            text = f"Kubeflow Pipelines at {self.url} does not accept the token, or it has expired"
            raise _failure("GF962", f"{text}: {words}" if words else text, LOGIN)
        is_page = "html" in headers.get("Content-Type", "")
        if 300 <= status < 400 or is_page or (status < 300 and not isinstance(body, dict)):
            to = headers.get("Location", "").partition("?")[0]
            what = f"sends to {to}" if to else "answers with a page that is no JSON"
            text = f"{self.url} asks for a login, or is not the API of Kubeflow Pipelines: it {what}"
            raise _failure("GF961", text, f"{LOGIN}; {ADDRESS}")
        if status == 403:
            hint = "somebody must give this user rights there, or --namespace names another one"
            raise _failure("GF963", f"Kubeflow Pipelines does not allow it: {words or 'HTTP 403'}", hint)
        if status == 404:
            return None
        if status >= 400:
            raise fail("GF955", f"Kubeflow Pipelines refuses it (HTTP {status}): {words}", where=WHERE)
        return said

    def scope(self, namespace: str | None) -> dict[str, str]:
        """Where things are: in a KFP with users, in a namespace."""
        health = self.ask("GET", "/apis/v2beta1/healthz")
        if health is None:
            text = f"{self.url} has no API v2beta1: it is Kubeflow Pipelines 1, or something else"
            raise _failure("GF961", text, f"gpuflow needs KFP 2.17 or newer; {ADDRESS}")
        if not health.get("multi_user"):
            return {}
        if not (wanted := namespace or self.namespace):
            raise fail("GF904", "runs of this KFP are in namespaces", where=WHERE, hint="use --namespace NS")
        return {"namespace": wanted}


def connect(connection: Connection) -> KubeflowClient:
    """The client; nothing is asked yet."""
    return KubeflowClient(connection)


class KubeflowClient:
    """`RunClient` for one KFP."""

    engine = "kubeflow"

    def __init__(self, connection: Connection) -> None:
        named = connection.url or os.environ.get("KF_PIPELINES_ENDPOINT") or connection.site_url
        self.api, self.connection, self.namespace = Api(named), connection, connection.namespace

    def submit(self, submission: Submission) -> Started:
        """One run of the compiled file, in the experiment that is called as the pipeline."""
        pipeline, name = submission.plan.pipeline, submission.name
        scope, made = self.api.scope(submission.namespace or self.namespace), None
        experiment = self._newest(EXPERIMENTS, pipeline.name, scope)
        if name and experiment and (found := self._newest(RUNS, name, {"experiment_id": experiment["experiment_id"]})):
            there = Finding("GF956", f"run {name} was there already: nothing was started", WHERE, None, "note")
            return Started(found["run_id"], self._page(found["run_id"]), is_new=False, findings=(there,))
        if experiment is None:
            if not submission.apply:
                text = f'Kubeflow Pipelines has no experiment "{pipeline.name}", in which its runs would be'
                raise fail("GF954", text, where=WHERE, hint="--apply creates it")
            made = experiment = self._must("POST", EXPERIMENTS, {"display_name": pipeline.name, **scope})
        spec, *platform = yaml.load_all(submission.compiled.text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        given = {key: value for key, value in submission.params.items() if value is not None}
        body = {
            "display_name": name or f"{pipeline.name} {datetime.now(UTC):%Y-%m-%d %H-%M-%S}",
            "experiment_id": experiment["experiment_id"],
            "pipeline_spec": {"pipeline_spec": spec, "platform_spec": platform[0]} if platform else spec,
            "runtime_config": {"parameters": given},
            "service_account": account_of(pipeline, submission.plan.site) or "",
        }
        try:
            run = self._must("POST", RUNS, body)["run_id"]
        except Unreachable as silence:
            hint = "submit it again with the same --name" if name else "look for it in the pages, and name it next time"
            text = f"nobody knows whether the run was started: {silence.findings[0].message}"
            raise _failure("GF966", text, hint) from None
        except GpuflowError:
            with contextlib.suppress(GpuflowError):
                _ = made and self.api.ask("DELETE", f"{EXPERIMENTS}/{made['experiment_id']}")
            raise
        created = Finding("GF958", f'created the experiment "{pipeline.name}"', WHERE, None, "note")
        return Started(run, self._page(run), findings=(created,) if made else ())

    def state(self, run: str, plan: Plan | None = None) -> RunState:
        found = self._run(run)
        id, said, spec = found["run_id"], found.get("state", ""), self._spec(found)
        state, workflow = STATES.get(said, WAITING), self._workflow(id)
        # KFP 2.17 says FAILED of a run that somebody has terminated. This is how it terminates one.
        is_stopped = said in ("CANCELED", "CANCELING") or _deadline(workflow) == 0
        state = INTERRUPTED if is_stopped and state == FAILED else state
        is_over = state not in (WAITING, RUNNING)
        because = (found.get("error") or {}).get("message") or ((workflow or {}).get("status") or {}).get("message", "")
        if workflow is None:
            because = "this KFP does not tell the workflow of a run (its API v1beta1), so its steps are not known"
        steps = () if workflow is None else Steps(spec, workflow, is_over=is_over, is_stopped=is_stopped).states(plan)
        because = "it was terminated" if state == INTERRUPTED else because
        shown = because if state != SUCCEEDED or workflow is None else ""
        return RunState(id, self.engine, spec["pipelineInfo"]["name"], self._page(id), state, steps, shown)

    def stop(self, run: str) -> RunState:
        """As *Terminate* in the pages: no exit step starts any more."""
        state = self.state(run)
        if not state.is_over:
            self._must("POST", f"{RUNS}/{state.run}:terminate")
            state = self.state(state.run)
        return state

    def retry(self, run: str) -> Started:
        """KFP keeps what succeeded, and starts the rest again."""
        found = self._run(run)
        id, state = found["run_id"], STATES.get(found.get("state", ""), WAITING)
        if state not in (FAILED, INTERRUPTED):
            text = f"run {id} is {state}, and Kubeflow Pipelines retries what has failed or was stopped"
            raise fail("GF953", text, where=WHERE, hint="gpuflow submit starts another run")
        self._must("POST", f"{RUNS}/{id}:retry")
        return Started(id, self._page(id))

    def logs(self, run: str, query: LogQuery) -> Iterator[LogPart]:
        """KFP's API has no logs: those of the pods are read from Kubernetes, by whoever may."""
        id = self._run(run)["run_id"]
        namespace = ((self._workflow(id) or {}).get("metadata") or {}).get("namespace") or self.namespace or "kubeflow"
        reader = Reader(self.connection.context, self.connection.kubeconfig, self.connection.timeout)
        return _Workflows(reader, namespace, self).logs(id, query)

    def _run(self, run: str) -> Data:
        """By its id, or the newest of its name."""
        known = self.api.ask("GET", f"{RUNS}/{run}") if _ID.fullmatch(run) else None
        if found := known or self._newest(RUNS, run, self.api.scope(self.namespace)):
            return found
        hint = "a run is named by the id that submit prints, or by its --name"
        raise fail("GF951", f'Kubeflow Pipelines at {self.api.url} has no run "{run}"', where=WHERE, hint=hint)

    def _newest(self, path: str, name: str, scope: Mapping[str, str]) -> Data | None:
        """The newest of this name that nobody has archived. KFP lets several have one, and decodes a filter twice."""
        words = {"predicates": [{"operation": "EQUALS", "key": "display_name", "string_value": name}]}
        query = {"filter": quote(json.dumps(words)), "sort_by": "created_at desc", "page_size": 20, **scope}
        found = self._must("GET", path, **query).get(path.rpartition("/")[2], ())
        kept = (each for each in found if each.get("storage_state") != "ARCHIVED" and each["display_name"] == name)
        return next(kept, None)

    def _spec(self, run: Data) -> Data:
        """The pipeline of a run: its own copy, or the version that it names."""
        spec = run.get("pipeline_spec")
        if version := run.get("pipeline_version_reference"):
            path = f"/apis/v2beta1/pipelines/{version['pipeline_id']}/versions/{version['pipeline_version_id']}"
            spec = self._must("GET", path).get("pipeline_spec")
        spec = (spec or {}).get("pipeline_spec") or spec
        if not isinstance(spec, dict) or "root" not in spec:
            raise fail("GF955", f"run {run['run_id']} is of a pipeline that KFP 2 cannot tell", where=WHERE)
        return spec

    def _workflow(self, id: str) -> Data | None:
        """The workflow behind a run, empty before it has begun; None where KFP does not tell it, or not its nodes."""
        if (found := self.api.ask("GET", f"/apis/v1beta1/runs/{id}")) is None:
            return None
        workflow = json.loads((found.get("pipeline_runtime") or {}).get("workflow_manifest") or "{}")
        return None if (workflow.get("status") or {}).get("offloadNodeStatusVersion") else workflow

    def _must(self, method: str, path: str, body: Any = None, **query: Any) -> Data:
        found = self.api.ask(method, path, body, **query)
        if found is None:
            raise fail("GF955", f"Kubeflow Pipelines at {self.api.url} has no {path}", where=WHERE, hint=ADDRESS)
        return found

    def _page(self, run: str) -> str:
        return f"{self.api.pages}/#/runs/details/{run}" if self.api.pages else ""


class _Workflows(ArgoRuns):
    """The workflows behind the runs of KFP: their pods have the logs."""

    def __init__(self, reader: Reader, namespace: str, client: KubeflowClient) -> None:
        super().__init__(reader, namespace)
        self._client = client

    def _workflow(self, run: str) -> Data:
        return {"metadata": {"name": run, "uid": run}}

    def _run_state(self, workflow: Data, plan: Plan | None = None) -> RunState:
        return self._client.state(workflow["metadata"]["name"], plan)

    def _where(self, run: str) -> Where:
        return WHERE


def _deadline(workflow: Data | None) -> Any:
    return ((workflow or {}).get("spec") or {}).get("activeDeadlineSeconds")


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip() or None
    except (OSError, ValueError):
        return None


def _failure(code: str, message: str, hint: str) -> EnvironmentFailure:
    return EnvironmentFailure(Finding(code, message, WHERE, hint))
