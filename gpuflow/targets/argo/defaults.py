"""What the site says about every run: its account, when pods and runs are deleted, whether programs get a token."""

from __future__ import annotations

from typing import Any

from gpuflow.site import Site
from gpuflow.site.model import Executor
from gpuflow.spec.engine_words.argo import PodGC, Ttl
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.targets.argo.facts import FACTS
from gpuflow.targets.argo.own_words import workflow_words


def run_defaults(pipeline: Pipeline, site: Site) -> dict[str, Any]:
    """Fields of a workflow's spec; None for those that neither the pipeline nor the site asks for."""
    engine = site.engine(FACTS.name)
    own = workflow_words(pipeline)
    return {
        "serviceAccountName": engine.service_account,
        **_executor(engine.executor),
        "podGC": _pod_gc(own.pod_gc or engine.pod_gc),
        "ttlStrategy": _ttl(own.ttl or engine.ttl),
    }


def keeps_token(step: Step, site: Site) -> bool:
    """A step that names an account of its own asks for what the account may do, so it keeps that account's token."""
    return site.engine(FACTS.name).executor is not None and step.service_account is not None


def given_by_argo(step: Step, site: Site) -> dict[str, Any]:
    """What the workflow gives to its own pods: the account, and whether programs get its token."""
    engine = site.engine(FACTS.name)
    account = {} if engine.service_account is None else {"serviceAccountName": engine.service_account}
    bare = engine.executor is not None and step.service_account is None
    return {**account, **({"automountServiceAccountToken": False} if bare else {})}


def _executor(executor: Executor | None) -> dict[str, Any]:
    """Argo refuses the first without the second (setupServiceAccount in workflowpod.go, 4.0.2)."""
    if executor is None:
        return {}
    return {"automountServiceAccountToken": False, "executor": {"serviceAccountName": executor.service_account}}


def _pod_gc(policy: PodGC | None) -> dict[str, Any] | None:
    if policy is None:
        return None
    delay = {} if policy.delay is None else {"deleteDelayDuration": f"{policy.delay.seconds}s"}
    return {"strategy": policy.strategy, **delay}


def _ttl(ttl: Ttl | None) -> dict[str, Any] | None:
    if ttl is None:
        return None
    times = {"secondsAfterSuccess": ttl.success, "secondsAfterFailure": ttl.failure}
    return {field: time.seconds for field, time in times.items() if time is not None} or None
