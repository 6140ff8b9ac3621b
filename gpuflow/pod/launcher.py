"""The pod that looks after a gang, and what its account must be allowed.

It creates the gang's object, waits, repeats rank 0's log, counts failures and interruptions, and creates the next.
`gpuflow site gang` prints the account, the Role and the RoleBinding as manifests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuflow.core.errors import Where, fail
from gpuflow.kubernetes.expansion import escape
from gpuflow.kubernetes.labels import QUEUE_LABEL, QUEUE_PRIORITY_LABEL
from gpuflow.plan import PlannedStep
from gpuflow.pod.build import PLAIN, container_security, leader_pod, made_pod, rewritten
from gpuflow.pod.gang import gang_object, manifest_arguments
from gpuflow.pod.gang_kinds import DEFAULT, SPELLINGS
from gpuflow.pod.later_attempts import changes_of
from gpuflow.pod.spelling import ReadableSpelling, Spelling, spell_text
from gpuflow.pod.supervision import DEFAULT_GRACE, GRACE_MARGIN, OUTPUTS, Engine, termination_grace
from gpuflow.pod.volumes import Volumes
from gpuflow.runtime import bundle
from gpuflow.runtime.bundle import delivery_command
from gpuflow.runtime.gangs.later_attempts import Changes
from gpuflow.site import Site
from gpuflow.spec.container import Security
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.policies import Retry
from gpuflow.spec.step import Step
from gpuflow.spec.text import ItemRef, RunRef

REQUESTS, LIMITS = {"cpu": "50m", "memory": "128Mi"}, {"memory": "256Mi"}
"""What it needs: it waits most of the time. Engines that start containers by a program of their own need the rest."""
OWNER = "controller"
"""Who owns the gang: what owns the launcher. Deleting a run deletes it; the loss of the launcher does not. An engine
that may not start a lost launcher again says `pod`: then nothing works on that nobody looks after."""
NOT_RETRIED = Retry()
MAIN = "main"
"""The container that the launcher takes for the program's unless it is told of another."""
SAME_AS_RANKS = ("imagePullSecrets", "securityContext")


def launcher_for(
    planned: PlannedStep,
    spelling: Spelling | None = None,
    engine: Engine = PLAIN,
    is_open: Callable[[str], bool] = lambda _: False,
    ranks: Mapping[str, Any] | None = None,
    owner: str = OWNER,
) -> dict[str, Any]:
    """The launcher's pod, with the whole gang in its command. `is_open`: which texts the engine still fills in.

    `ranks`: fields that the engine gives to its own pods, and that the ranks, which are not its pods, must have too.
    `owner`: who owns the gang, as `gpuflow-run gang` takes it.
    """
    step, site, spelling = planned.step, planned.site, spelling or ReadableSpelling()
    # The ranks hand their outputs to the launcher, and only that one to the engine.
    own = Engine(within=engine.within)
    worker, leader = made_pod(planned, spelling, own), leader_pod(planned, spelling, own)
    rank = _with_spec_fields(ranks, worker.manifest)
    first = None if leader is None else _with_spec_fields(ranks, leader.manifest)
    volumes, mounts = Volumes(), []
    if step.outputs and engine.outputs_dir == OUTPUTS:
        mounts.append(volumes.scratch(OUTPUTS))
    runtime = site.runtime
    if runtime.delivery == "config-map":
        mounts.append(volumes.config_map(runtime.mount, bundle.config_map_name(runtime.config_map)))
    words = ["gang", *_options(planned.pipeline, planned.own_name, step, spelling, engine, owner)]
    words += later_arguments(changes_of(worker), None if leader is None else changes_of(leader), spelling)
    container_name = SPELLINGS[site.gangs.made_as].kind.container
    if container_name != MAIN:
        words.append(f"--container={container_name}")
    words += manifest_arguments(gang_object(step, rank, first, site.gangs.made_as), spelling, is_open)
    image = site.gangs.image or step.image
    assert image is not None  # the rules refuse a step without one
    container: dict[str, Any] = {
        "name": "main",
        "image": rewritten(image, site),
        "imagePullPolicy": step.image_pull_policy if site.gangs.image is None else None,
        "command": delivery_command(
            words,
            delivery=runtime.delivery,
            mount=spell_text(runtime.mount, spelling),
            python=spell_text(runtime.python, spelling),
        ),
        "env": [{"name": "GPUFLOW_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "resources": {"requests": dict(REQUESTS), "limits": dict(LIMITS)},
        "volumeMounts": mounts,
        "securityContext": container_security(step.security or Security()),
    }
    labels = {key: value for key, value in rank["metadata"]["labels"].items() if key not in _QUEUE_LABELS}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "serviceAccountName": site.gangs.service_account,
        "automountServiceAccountToken": True,
        "terminationGracePeriodSeconds": grace_of(step) + GRACE_MARGIN,
        **{field: rank["spec"][field] for field in SAME_AS_RANKS if field in rank["spec"]},
        "containers": [{key: value for key, value in container.items() if value not in (None, [], {})}],
        "volumes": volumes.manifests(),
    }
    return {
        "metadata": {"labels": labels},
        "spec": {key: value for key, value in spec.items() if value not in (None, [], {})},
    }


def _with_spec_fields(fields: Mapping[str, Any] | None, pod: Mapping[str, Any]) -> dict[str, Any]:
    return {**pod, "spec": {**(fields or {}), **pod["spec"]}}


def later_arguments(changes: Changes, of_leader: Changes | None, spelling: Spelling) -> list[str]:
    """What later attempts have instead, as options of the launcher. `of_leader`: in the pod of the gang's leader."""
    given: dict[str, Any] = {
        "more-memory": changes.factor and f"{changes.factor}:{changes.most}",
        "other-node": changes.other_node or None,
    }
    first = changes if of_leader is None else of_leader
    if changes.fallback_after is not None and (changes.on_demand or first.on_demand):
        given |= {"fallback-after": changes.fallback_after, "on-demand": _fields(changes, spelling)}
        if first.on_demand != changes.on_demand:
            given["leader-on-demand"] = _fields(first, spelling)
    return [f"--{name}" if value is True else f"--{name}={value}" for name, value in given.items() if value is not None]


def _fields(changes: Changes, spelling: Spelling) -> str:
    return spelling.literal(escape(json.dumps(changes.on_demand, sort_keys=True, ensure_ascii=False)))


_QUEUE_LABELS = (QUEUE_LABEL, QUEUE_PRIORITY_LABEL)
"""A launcher that waits in its gang's queue could hold the place that the gang waits for."""


def grace_of(step: Step) -> int:
    """The seconds that the ranks have from SIGTERM to SIGKILL."""
    given = termination_grace(step)
    return DEFAULT_GRACE if given is None else given


def _options(pipeline: Pipeline, name: str, step: Step, spelling: Spelling, engine: Engine, owner: str) -> list[str]:
    retry = step.retry or NOT_RETRIED
    backoff = retry.backoff
    given: dict[str, Any] = {
        "pipeline": pipeline.name,
        "step": f"{engine.within}/{name}" if engine.within else name,
        "run-id": spelling.reference(RunRef("id")),
        "item": ",".join(f"{key}={spelling.reference(ItemRef(key))}" for key in step.for_each or ()) or None,
        "failures": retry.failures if retry.any is None else None,
        "interruptions": retry.interruptions if retry.any is None else None,
        "retries": retry.any,
        "backoff": backoff and str(backoff.start),
        "backoff-factor": backoff and backoff.factor,
        "backoff-max": backoff and backoff.max and str(backoff.max),
        "final-exit-codes": ",".join(map(str, retry.final_exit_codes)) or None,
        "retryable-exit-codes": retry.retryable_exit_codes and ",".join(map(str, retry.retryable_exit_codes)),
        "queue-timeout": step.queue_timeout and str(step.queue_timeout),
        "grace": f"{grace_of(step)}s",
        "owner": owner,
        "engine": engine.name,
        "outputs-dir": engine.outputs_dir if step.outputs else None,
    }
    words = [f"--{option}={value}" for option, value in given.items() if value is not None]
    return [*words, *(f"--output={output}:{declared.type}" for output, declared in step.outputs.items())]


RBAC = "rbac.authorization.k8s.io"
READ_RULES: list[dict[str, Any]] = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["get", "list"]},
]
REPORTS: dict[str, Any] = {
    "apiGroups": ["argoproj.io"],
    "resources": ["workflowtaskresults"],
    "verbs": ["create", "patch"],
}
"""What Argo's own container in the same pod asks for, where it has no account of its own."""


ROLE = "gpuflow-gang"
"""The Role that is bound to an account which is there already."""


def gang_rules(kind: str = DEFAULT) -> list[dict[str, Any]]:
    """What whoever looks after gangs of this kind must be allowed."""
    return [*SPELLINGS[kind].rules, *READ_RULES]


def gang_role(account: str, namespace: str | None, kind: str = DEFAULT) -> list[dict[str, Any]]:
    """A Role, and its binding to an account that an engine gives to all pods of a run."""
    return role_and_binding(ROLE, account, namespace, gang_rules(kind))


def gang_account(name: str, namespace: str | None, *, reports: bool, kind: str = DEFAULT) -> list[dict[str, Any]]:
    """The account, and a Role with its binding. `reports`: Argo's container uses the same account."""
    place = {} if namespace is None else {"namespace": namespace}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, **place}}
    return [account, *role_and_binding(name, name, namespace, [*gang_rules(kind), *([REPORTS] if reports else [])])]


def site_gang_account(site: Site, namespace: str | None, *, reports: bool = False) -> list[dict[str, Any]]:
    """The same, as the site names it."""
    if site.gangs.service_account is None:
        text = f'site "{site.name}" names no account for the pods that look after gangs'
        hint = "set gangs: {service_account: gpuflow-gang}"
        raise fail("GF379", text, where=Where(site.source.file), hint=hint)
    return gang_account(site.gangs.service_account, namespace, reports=reports, kind=site.gangs.made_as)


AIRFLOW_ACCOUNTS = ("airflow/airflow-worker", "airflow/airflow-triggerer")
"""Who runs GpuGangOperator and its trigger, as the chart of Airflow calls them in a release called airflow."""


def airflow_role(
    accounts: Sequence[tuple[str, str]], namespace: str | None, kind: str = DEFAULT
) -> list[dict[str, Any]]:
    """A Role, and its binding to accounts of Airflow's, each with its namespace: gangs run in another one."""
    role, binding = role_and_binding(ROLE, "", namespace, gang_rules(kind))
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": home} for home, name in accounts]
    return [role, {**binding, "subjects": subjects}]


def role_and_binding(
    name: str, account: str, namespace: str | None, rules: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """A Role, and its binding to an account of the same namespace."""
    place = {} if namespace is None else {"namespace": namespace}
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": name, **place}, "rules": rules},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, **place},
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account, **place}],
        },
    ]
