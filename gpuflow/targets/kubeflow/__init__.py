"""Kubeflow Pipelines: a pipeline as KFP v2 IR with its Kubernetes platform document.

Written as plain data in the JSON form of the messages that KFP's own compiler and backend share; tests parse it with
them, so that no field is written that does not exist. Compiling needs no kfp. What KFP cannot say stands in
`capabilities`, and what it can say only in part in `refusals`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from gpuflow.core.errors import Finding, Rule
from gpuflow.plan import Plan, Restarts, plan_of
from gpuflow.pod.launcher import gang_role
from gpuflow.site import Site
from gpuflow.targets.capabilities import Capabilities, Loss, RefusalRule, asked_of_engine
from gpuflow.targets.constructs import Use
from gpuflow.targets.kubeflow.exit_steps import alert_refusals, unsure_ends, with_alerts
from gpuflow.targets.kubeflow.facts import CAPABILITIES, FACTS, KubeflowOptions, capabilities_at
from gpuflow.targets.kubeflow.gangs import ACCOUNT, BY_RANKS
from gpuflow.targets.kubeflow.refusals import NOTES, partial_losses, taken_mounts
from gpuflow.targets.kubeflow.retries import restarts_at, retries
from gpuflow.targets.target import Artifact, Request, Target

BESIDE_ALERTS: Final[tuple[RefusalRule[Plan], ...]] = (alert_refusals, taken_mounts)
"""Refusals that look at the plan without the steps that alerts become."""
SUPPORT: Final[tuple[Rule[Plan], ...]] = (retries, unsure_ends)


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
        return (finding for each in SUPPORT for finding in each(request.plan))

    def partial_losses(self, request: Request) -> Iterable[Loss]:
        yield from partial_losses(self.with_alerts(request.plan))
        yield from (loss for each in BESIDE_ALERTS for loss in each(request.plan))

    def with_alerts(self, plan: Plan) -> Plan:
        pipeline = with_alerts(plan.pipeline, plan.site)
        return plan if pipeline is plan.pipeline else plan_of(pipeline, plan.site)

    def notes(self, request: Request) -> Iterable[Finding]:
        return (finding for each in NOTES for finding in each(request.plan))

    def compile(self, request: Request) -> tuple[Artifact, ...]:
        from gpuflow.targets.kubeflow.document import compile_request

        return (compile_request(request),)


target = Kubeflow()
