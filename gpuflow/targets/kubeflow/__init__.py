"""Kubeflow Pipelines: a pipeline as KFP v2 IR with its Kubernetes platform document.

Built from the protobuf messages that KFP's own compiler and backend share, so a field that does not exist cannot be
written. What KFP cannot say stands in `capabilities`, and what it can say only in part in `refusals`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpuflow.core.errors import Finding
from gpuflow.plan import Plan, Restarts, plan_of
from gpuflow.pod.launcher import gang_role
from gpuflow.site import Site
from gpuflow.targets.capabilities import Capabilities, Loss, asked_of_engine, optional_loss, refusal_loss
from gpuflow.targets.constructs import Use
from gpuflow.targets.kubeflow.containers import never_cached
from gpuflow.targets.kubeflow.exit_steps import alert_refusals, unsure_ends, with_alerts
from gpuflow.targets.kubeflow.facts import CAPABILITIES, FACTS, KubeflowOptions, capabilities_at
from gpuflow.targets.kubeflow.gangs import ACCOUNT, BY_RANKS, account_notes
from gpuflow.targets.kubeflow.installation import unowned_volumes
from gpuflow.targets.kubeflow.notes import hidden_paths, key_notes, notes, taken_mounts
from gpuflow.targets.kubeflow.refusals import partial_losses
from gpuflow.targets.kubeflow.retries import restarts_at, retry_notes
from gpuflow.targets.refusals import endless_waits
from gpuflow.targets.target import Artifact, Request, Target


class Kubeflow(Target):
    """One package per pipeline."""

    facts = FACTS
    capabilities = CAPABILITIES
    options = KubeflowOptions
    run_values = (
        "KFP itself checks that a parameter is the int, the float or the bool, or one of the enum, that it is "
        "declared as. Text and JSON it puts into the pod's arguments as they are, and KFP has no place for an "
        "expression that would protect them: Argo then evaluates `{{…}}` in them, and the kubelet replaces "
        "`$(NAME)` by the variable of that name, which may hold a Secret, and makes `$$` one `$`; the value of a "
        "parameter passes two kubelets, that of the driver's pod first. The note GF305 names the steps. Give such a "
        "parameter an enum, or pass the text in a file; let only people start these runs who may read what the steps "
        "can read."
    )
    separator = None
    first_run = "upload compiled/my-pipeline.yaml, or use the client's lines at the top of it"

    def capabilities_at(self, site: Site) -> Capabilities:
        return capabilities_at(site)

    def restarts_at(self, site: Site) -> Restarts:
        return restarts_at(site)

    def gang_account(self, site: Site, namespace: str | None, accounts: Sequence[str] | None) -> list[dict[str, Any]]:
        return gang_role(site.engine(FACTS.name).service_account or ACCOUNT, namespace, site.gangs.made_as)

    def used_constructs(self, request: Request) -> Iterable[Use]:
        return asked_of_engine(request.plan, request.uses, BY_RANKS)

    def partial_support(self, request: Request) -> Iterable[Finding]:
        yield from retry_notes(request.plan, restarts_at(request.site))
        yield from unsure_ends(request.plan)

    def partial_losses(self, request: Request) -> Iterable[Loss]:
        yield from partial_losses(self.with_alerts(request.plan))
        yield from map(optional_loss, alert_refusals(request))
        yield from map(refusal_loss, taken_mounts(request.plan))

    def with_alerts(self, plan: Plan) -> Plan:
        pipeline = with_alerts(plan.pipeline, plan.site)
        return plan if pipeline is plan.pipeline else plan_of(pipeline, plan.site)

    def notes(self, request: Request) -> Iterable[Finding]:
        yield from notes(request.plan)
        yield from key_notes(request.plan)
        yield from hidden_paths(request.plan)
        yield from never_cached(request.plan)
        yield from unowned_volumes(request.plan)
        yield from account_notes(request.plan)
        yield from endless_waits(request.plan)

    def compile(self, request: Request) -> tuple[Artifact, ...]:
        from gpuflow.targets.kubeflow.document import compile_request  # loads kfp

        return (compile_request(request),)


target = Kubeflow()
