"""The pods of one task: how they are made from the step's own, found again, counted, read, shown and cleaned up.

*Rendered Templates* of a task shows the pod field by field, under the names that KubernetesPodOperator has. Airflow
shows the attributes that `template_fields` names, after it has rendered them. Nothing in a step's pod may be rendered
as a template, so these attributes get their values from the filled pod, for as long as Airflow looks, and get back what
they were before the task begins: the stock operator would add them to the pod a second time.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.cncf.kubernetes.utils.pod_manager import EMPTY_XCOM_RESULT
from airflow.providers.cncf.kubernetes.utils.xcom_sidecar import PodDefaults
from airflow.providers.common.compat.sdk import AirflowException
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError  # type: ignore[import-not-found]  # comes with the client

from gpuflow.airflow import attempts, links, pod_status
from gpuflow.airflow.limits import ACTIVE, at_most, is_beyond, is_full
from gpuflow.airflow.pods import Pod
from gpuflow.airflow.references import ATTEMPT, Context, as_type, short_run_id
from gpuflow.airflow.refusals import AGAIN, Refusal, read_refusal
from gpuflow.quantity import Quantity
from gpuflow.runtime.gangs.later_attempts import Changes

POD_CHECKED_KEY = "already_checked"
"""The stock operator's mark on a pod that it has dealt with: no later try takes it for its own."""
RUN = "gpuflow.dev/run"
XCOM_RETURN_KEY = "return_value"
"""The output that is the value of the task itself, as Airflow calls it."""
KINDS: dict[str, type] = {"string": str, "int": int, "float": float, "bool": bool}
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


class StepPods(KubernetesPodOperator):  # type: ignore[misc]  # Airflow is not installed where types are checked
    """Everything `GpuPodOperator` does with the API server."""

    what = "pod"
    """What one attempt of the step is."""
    template: Pod | Mapping[str, Any]
    supervised: bool
    outputs: Mapping[str, str]
    artifacts: Mapping[str, Mapping[str, str]]
    kept: Mapping[str, Mapping[str, Any]]
    limits: Sequence[at_most]
    more_memory: Mapping[str, Any] | None
    other_node: bool
    fallback_after: int | None
    on_demand: Mapping[str, Any]
    sidecar_resources: Mapping[str, Any] | None
    _hidden: dict[str, Any] | None = None
    """What Airflow's attributes were before the pod was shown in them."""

    def _manifest(self, context: Context, ledger: attempts.Ledger) -> dict[str, Any]:
        """The pod to create: the step's own, and the additions that the guide lists."""
        adjusted = self._adjust_pod(self._with_values(self.template, context, ledger), ledger)
        self.pod_template_dict = adjusted
        self.name = self._pod_name(context, ledger)
        self.random_name_suffix = False
        self.xcom_sidecar_container_security_context = RESTRICTED
        body = self.build_pod_request_obj(context)
        body.metadata.annotations = {**(body.metadata.annotations or {}), **ledger.plus(pods=1).annotations()}
        for limit in self.limits:
            body.metadata.labels |= limit.labels(context)
        if self.sidecar_resources and self.outputs:
            body.spec.containers[-1].resources = self.sidecar_resources
        return _without_blanks(self.client.api_client.sanitize_for_serialization(body), adjusted)

    def _with_values(
        self, template: Pod | Mapping[str, Any], context: Context, ledger: attempts.Ledger
    ) -> Mapping[str, Any]:
        """A pod of the step with the values of this run, and where it asks for that, with the number of this pod."""
        template = getattr(template, "again", None) or template
        return template.resolve({**context, ATTEMPT: ledger.pods + 1}) if isinstance(template, Pod) else template

    def _adjust_pod(
        self, manifest: Mapping[str, Any], ledger: attempts.Ledger, changes: Changes | None = None
    ) -> dict[str, Any]:
        """The step's pod after spot losses, after running out of memory, and after failing on a node. `changes`: where
        a pod's are not those of the step. A supervisor in it is told what was seen of the pod before."""
        spec = dict(manifest["spec"])
        if self.supervised:
            spec = attempts.spec_with_last_pod(spec, ledger)
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": dict(manifest["metadata"]), "spec": spec}
        if not (ledger.interruptions or ledger.out_of_memory or ledger.failed_nodes):
            return pod
        return {**pod, "spec": (changes or self._changes()).spec(spec, ledger.before())}

    def _changes(self) -> Changes:
        """What the step's policies change in later attempts."""
        more = self.more_memory
        factor, most = (str(float(more["factor"])), str(Quantity(more["max"]))) if more else (None, "0")
        return Changes(factor, most, self.fallback_after, self.on_demand, self.other_node)

    def _pod_name(self, context: Context, ledger: attempts.Ledger) -> str:
        """The same name when the same pod is asked for twice, so that a lost answer never makes two pods."""
        ti = context["ti"]
        identity = f"{short_run_id(context)}/{ti.task_id}/{ti.map_index}/{ti.max_tries}/{ledger.pods}"
        digest = hashlib.sha256(identity.encode()).hexdigest()[:10]
        readable = re.sub(r"[^a-z0-9]+", "-", f"{ti.dag_id}-{ti.task_id}".lower()).strip("-")
        return f"{readable[:50].rstrip('-')}-{digest}".lstrip("-")

    def _get_ti_pod_labels(self, context: Context | None = None, *args: Any, **named: Any) -> dict[str, str]:
        """The stock operator's labels, and the run's name: two Airflows in one namespace never take over a pod. Of an
        id without any Latin letter the stock operator leaves a hyphen, which is no label."""
        labels = super()._get_ti_pod_labels(context, *args, **named)
        safe = {key: value if value[:1].isalnum() else f"x{value}" for key, value in labels.items()}
        return {**safe, RUN: short_run_id(context)} if context else safe

    def _namespace(self, manifest: Mapping[str, Any] | None = None) -> str:
        given = self.namespace or ((manifest or {}).get("metadata") or {}).get("namespace")
        return given or self.hook.get_namespace() or self._incluster_namespace or "default"

    def _selector(self, context: Context) -> str:
        labels = self._get_ti_pod_labels(context, include_try_number=False)
        return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))

    def _pods_of_task(self, context: Context) -> list[dict[str, Any]]:
        """Every pod this task instance has made and that is still there."""
        selector = self._selector(context)
        found = self._call_api(lambda: self.client.list_namespaced_pod(self._namespace(), label_selector=selector))
        return [dict(self.client.api_client.sanitize_for_serialization(pod)) for pod in found.items]

    def _create(self, manifest: dict[str, Any]) -> None:
        self.client.create_namespaced_pod(self._namespace(manifest), manifest)

    def _refusal_of(self, answer: ApiException) -> Refusal:
        """What a refusal to create it means."""
        return read_refusal(answer.status, answer.body)

    def _describe(self, made: Mapping[str, Any]) -> str:
        return pod_status.describe(made)

    def _delete(self, name: str) -> Any:
        """Delete one that this task made; None when it is gone already."""
        return self._call_api(lambda: self.client.delete_namespaced_pod(name, self._namespace()))

    def _counted_pods(self, question: Mapping[str, Any]) -> list[tuple[str, Mapping[str, str]]]:
        """The pods that count for a limit, oldest first."""
        found = self._call_api(
            lambda: self.client.list_namespaced_pod(
                self._namespace(), label_selector=question["selector"], field_selector=ACTIVE
            )
        )
        pods = sorted(found.items, key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.name))
        return [(pod.metadata.name, pod.metadata.labels or {}) for pod in pods]

    def _is_crowded(self, context: Context) -> bool:
        questions = [limit.query(context) for limit in self.limits]
        return any(is_full(question, self._counted_pods(question)) for question in questions)

    def _withdrawn(self, context: Context, name: str) -> bool:
        """Two tasks may take the last slot at once: the later pod is deleted before it has started."""
        questions = [limit.query(context) for limit in self.limits]
        if not any(is_beyond(question, name, self._counted_pods(question)) for question in questions):
            return False
        self.log.info("pod %s was over the limit; it waits for its turn", name)
        # Not by force: it may have begun by now, and the next one waits until it is gone.
        self._delete(name)
        return True

    def _newest_pod(self, pods: list[dict[str, Any]]) -> dict[str, Any]:
        """The pod to go on with: of several, which nothing here makes, the newest. The command runs in one of them."""
        *older, newest = sorted(
            pods, key=lambda pod: (attempts.pod_number(pod), pod["metadata"].get("creationTimestamp", ""))
        )
        for pod in older:
            if not pod_status.has_ended(pod):
                name = pod["metadata"]["name"]
                self.log.warning("%s %s is an older one of this task and still there: it is deleted", self.what, name)
                self._delete(name)
        return newest

    def _delete_when_made(self, name: str) -> None:
        """Delete a pod whose creation was under way when the task was told to stop, and may arrive later."""
        for wait in (1, 2, 4):
            time.sleep(wait)
            if self._delete(name) is not None:
                return

    def _read_outputs(self, pod: dict[str, Any] | None) -> tuple[dict[str, Any] | None, str | None]:
        """What the step left for others, typed, or what is wrong with it; neither when it can no longer be read."""
        if pod is None:
            return None, None
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        beside = ""
        for wait in (1, 2, 4, 8, 15, 0):
            remote = self._call_api(lambda: self.client.read_namespaced_pod(name, namespace))
            if remote is None or _has_ended(remote, PodDefaults.SIDECAR_CONTAINER_NAME):
                return None, None
            beside = self._why_no_sidecar(remote)
            try:
                if not beside:
                    found = self.extract_xcom(pod=remote)
                    self.kept = links.reported_artifacts(found, self.artifacts)
                    return self._typed_outputs(found)
                self.log.warning("the outputs of pod %s cannot be read: %s", name, beside)
            except Exception as trouble:
                self.log.warning("the outputs of pod %s could not be read: %s", name, trouble)
            time.sleep(wait)
        because = f": {beside}" if beside else ""
        raise AirflowException(
            f"pod {name} succeeded, but its outputs cannot be read now; they are still in the pod{because}"
        )

    def _why_no_sidecar(self, remote: Any) -> str:
        """Why the container that hands over the outputs does not run, as the pod says it; nothing while it does."""
        container = PodDefaults.SIDECAR_CONTAINER_NAME
        pod = self.client.api_client.sanitize_for_serialization(remote)
        waiting = pod_status.container_state(pod, container).get("waiting")
        if waiting is None:
            return ""
        image = next(each.get("image") for each in pod["spec"]["containers"] if each["name"] == container)
        said = ": ".join(filter(None, (waiting.get("reason"), waiting.get("message"))))
        text = f"its container {container} ({image}) does not start: {said or 'the kubelet gives no reason'}"
        if waiting.get("reason") not in pod_status.IMAGE_REASONS:
            return text
        whose = f'the connection "{self.kubernetes_conn_id}"' if self.kubernetes_conn_id else "a Kubernetes connection"
        return f"{text}; set xcom_sidecar_container_image in the extra of {whose} to an image that the cluster can pull"

    def _typed_outputs(self, found: Any) -> tuple[dict[str, Any] | None, str | None]:
        """What a program wrote, by the types of the step's outputs. A program without supervisor may write anything."""
        if XCOM_RETURN_KEY in self.outputs and not (isinstance(found, dict) and XCOM_RETURN_KEY in found):
            found = {} if found is None else {XCOM_RETURN_KEY: found}
        if not isinstance(found or {}, dict):
            return None, f"return.json holds {str(found)[:80]!r}, which is no map of outputs"
        values: dict[str, Any] = {}
        for name, kind in self.outputs.items():
            if name in (found or {}):
                try:
                    values[name] = as_type(found[name], kind)
                except (ValueError, TypeError):
                    values[name] = None
                if kind in KINDS and type(values[name]) is not KINDS[kind]:
                    return None, f'its output "{name}" is not of type {kind}: {str(found[name])[:80]!r}'
        return values, None

    def extract_xcom(self, pod: Any, **_: Any) -> dict[str, Any] | None:
        """The outputs as they are. The stock operator ends their container even when reading them broke off."""
        text = self.pod_manager.extract_xcom_json(pod)
        return None if text.rstrip() == EMPTY_XCOM_RESULT else json.loads(text)

    def _other_containers(self) -> list[str]:
        """The containers beside main whose logs are wanted too."""
        wanted = self.container_logs
        if wanted is True:
            spec = self.template.spec if isinstance(self.template, Pod) else self.template["spec"]
            wanted = [each["name"] for each in (*spec.get("initContainers", ()), *spec["containers"])]
        names = [wanted] if isinstance(wanted, str) else wanted
        return [name for name in names if name != "main"]

    def _log_events(self, pod: Mapping[str, Any] | None) -> None:
        """What Kubernetes said about a pod that failed, where that is wanted. It costs lines, never the task."""
        if pod is None or not self.log_events_on_failure:
            return
        name, namespace = pod["metadata"]["name"], pod["metadata"].get("namespace") or self._namespace()
        try:
            found = self.client.list_namespaced_event(namespace, field_selector=f"involvedObject.name={name}")
            for event in found.items:
                self.log.info("event of pod %s: %s: %s", name, event.reason, event.message)
        except Exception as trouble:
            self.log.warning("the events of pod %s could not be read: %s", name, trouble)

    def _clean_up(
        self, pod: dict[str, Any] | None, ledger: attempts.Ledger, *, succeeded: bool = False, delete: bool = False
    ) -> None:
        """Delete or keep the pod by policy. A kept one is marked, so that no later try takes it for its own."""
        if pod is None:
            return
        name, action = pod["metadata"]["name"], self.on_finish_action.value
        gone = delete or action == "delete_pod" or (action == "delete_succeeded_pod" and succeeded)
        try:
            if gone:
                if succeeded:
                    self._end_sidecar(name)
                self._delete(name)
                return
            self._patch(name, {"metadata": {"labels": {POD_CHECKED_KEY: "True"}, "annotations": ledger.annotations()}})
            self._end_sidecar(name)
        except Exception as trouble:
            self.log.warning("%s %s could not be cleaned up: %s", self.what, name, trouble)

    def _patch(self, name: str, body: Mapping[str, Any]) -> None:
        self._call_api(lambda: self.client.patch_namespaced_pod(name, self._namespace(), body))

    def _end_sidecar(self, name: str) -> None:
        """The container that returns the outputs runs until it is stopped; until then a kept pod holds its GPUs."""
        if not self.outputs:
            return
        namespace = self._namespace()
        pod = self.hook.get_pod(name, namespace)
        if pod.status.phase in ("Succeeded", "Failed") or _has_ended(pod, PodDefaults.SIDECAR_CONTAINER_NAME):
            return
        try:
            self.pod_manager.extract_xcom_kill(pod)
        except Exception as trouble:
            self.log.info("the output container could not be stopped (%s); its pod gets a deadline", trouble)
            self.client.patch_namespaced_pod(name, namespace, {"spec": {"activeDeadlineSeconds": 1}})

    def _call_api(self, question: Any) -> Any:
        """An answer of the API server; the request is repeated while the server is busy."""
        for wait in (1, 2, 4, 8, 15, 30):
            try:
                return question()
            except ApiException as answer:
                refusal = read_refusal(answer.status, answer.body)
                if answer.status == 404:
                    return None
                if refusal.then != AGAIN:
                    raise
                self.log.info("the API server answers %s; asking again in %d s", answer.status, wait)
            except (OSError, HTTPError) as trouble:
                self.log.info("the API server does not answer (%s); asking again in %d s", trouble, wait)
            time.sleep(wait)
        return question()

    def _push(self, context: Context, name: str, namespace: str) -> None:
        context["ti"].xcom_push(key="pod_name", value=name)
        context["ti"].xcom_push(key="pod_namespace", value=namespace)

    def _do_render_template_fields(self, parent: Any, template_fields: Any, *more: Any, **named: Any) -> None:
        super()._do_render_template_fields(parent, template_fields, *more, **named)
        if parent is self and hasattr(self.template, "serialize") and self._hidden is None:
            # Not by assignment: Airflow takes that for a change of the DAG. Read by parts: Airflow cuts long fields.
            shown = shown_fields(self.template.serialize(), self.namespace)
            self._hidden = {name: self.__dict__.get(name) for name in (*shown, "template_fields")}
            self.__dict__ |= {**shown, "template_fields": (*shown, *template_fields)}

    def hide(self) -> None:
        """Give the attributes back, before a pod is made."""
        hidden, self._hidden = self._hidden, None
        for name, value in (hidden or {}).items():
            if name == "template_fields" and value is None:
                self.__dict__.pop(name, None)  # that of the class
            else:
                self.__dict__[name] = value


def _has_ended(pod: Any, container: str) -> bool:
    found = [status for status in pod.status.container_statuses or () if status.name == container]
    return any(status.state is not None and status.state.terminated is not None for status in found)


def _without_blanks(pod: dict[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """The stock operator writes an empty value for every argument it was not given; the step's pod has none of them."""
    spec, main = pod["spec"], pod["spec"]["containers"][0]
    for part, asked in ((spec, template["spec"]), (main, template["spec"]["containers"][0])):
        for key in [key for key, value in part.items() if not value and key not in asked]:
            del part[key]
    return pod


SHOWN_OF_MAIN = {
    "image": "image",
    "cmds": "command",
    "arguments": "args",
    "env_vars": "env",
    "env_from": "envFrom",
    "container_resources": "resources",
    "volume_mounts": "volumeMounts",
}
"""Attributes of the stock operator, and fields of the main container."""
SHOWN_OF_SPEC = {"node_selector": "nodeSelector", "tolerations": "tolerations", "volumes": "volumes"}
SHOWN_OF_METADATA = {"labels": "labels", "annotations": "annotations"}


def shown_fields(pod: Mapping[str, Any], namespace: str | None) -> dict[str, Any]:
    """The fields of a pod as Airflow shows them; those that the pod does not have are left out."""
    spec, metadata = pod.get("spec") or {}, pod.get("metadata") or {}
    main = (spec.get("containers") or [{}])[0]
    found = {"namespace": namespace or metadata.get("namespace")}
    for part, fields in ((main, SHOWN_OF_MAIN), (spec, SHOWN_OF_SPEC), (metadata, SHOWN_OF_METADATA)):
        found |= {name: part.get(field) for name, field in fields.items()}
    return {name: value for name, value in found.items() if value}
