"""Argo Workflows: YAML fit to commit, built on Hera's typed models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpuflow.plan import Plan
from gpuflow.pod.engine_containers import agent_spec
from gpuflow.pod.launcher import site_gang_account
from gpuflow.site import Site
from gpuflow.targets.argo.alerts import alert_rules, sent_by_agent
from gpuflow.targets.argo.facts import CAPABILITIES, FACTS, ArgoOptions
from gpuflow.targets.argo.refusals import BY_LAUNCHER, REFUSALS, RULES
from gpuflow.targets.capabilities import asked_of_engine
from gpuflow.targets.constructs import Use
from gpuflow.targets.target import Artifact, Batch, Request, Target


class Argo(Target):
    """Compiles to a WorkflowTemplate, or to a CronWorkflow when there is a schedule; --as selects another kind."""

    facts = FACTS
    capabilities = CAPABILITIES
    options = ArgoOptions
    run_values = (
        "An int, a float or a bool that only the run knows (a parameter, an output, an item) must look like "
        "one: digits with a sign; a number that may have a point and an exponent, or inf or nan; true or "
        "false. It reaches the program as it was given, of any length: `007`, `-0`, `1e3` for a float. "
        "Anything else ends the step: `parameter n is not an int`. Text and JSON may hold anything: neither "
        "Argo nor the kubelet replaces `{{…}}` or `$(NAME)` in it. Two things are Argo's own. It evaluates "
        "`{{…}}` in the arguments of the run itself, which no step reads. And whoever may choose the template "
        "that a run begins with (`argo submit --entrypoint`) calls it past these checks: let such people "
        "start nothing that has secrets."
    )
    refusal_rules = REFUSALS
    note_rules = RULES
    separator = "---\n"
    folder = "argo_templates/"
    first_run = (
        "gpuflow site executor site.yaml | kubectl apply -f - && kubectl apply -f argo_templates/"
        " && argo submit -n my-team --from workflowtemplate/my-pipeline"
    )

    def used_constructs(self, request: Request) -> Iterable[Use]:
        return asked_of_engine(request.plan, request.uses, BY_LAUNCHER)

    def compile(self, request: Request) -> tuple[Artifact, ...]:
        from gpuflow.targets.argo.workflow import compile_request  # loads Hera

        rules = alert_rules(request) if request.options_as(ArgoOptions).alert_rules else None
        return (compile_request(request), *(() if rules is None else (rules,)))

    def alert_pod(self, plan: Plan) -> dict[str, Any] | None:
        return {"metadata": {}, "spec": agent_spec()} if sent_by_agent(plan.pipeline, plan.site) else None

    def gang_account(self, site: Site, namespace: str | None, accounts: Sequence[str] | None) -> list[dict[str, Any]]:
        return site_gang_account(site, namespace, reports=site.engine(FACTS.name).executor is None)

    def batch_files(self, batch: Batch) -> Iterable[Artifact]:
        from gpuflow.targets.argo.kustomization import kustomization_files

        return kustomization_files(batch)


target = Argo()
