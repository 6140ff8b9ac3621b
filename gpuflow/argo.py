"""For Hera users: a pipeline as Hera objects, and gpuflow steps inside a hand-written workflow.

    train = gpuflow.argo.container(step, site="site.yaml", name="train")

    with Workflow(generate_name="nightly-", entrypoint="main", arguments={"lr": "2e-5"}) as workflow:
        with DAG(name="main"):
            fetch() >> train(lr=workflow.get_parameter("lr"))

`to_hera` gives the whole workflow, to go on with in Python. `container` gives one step as a template to call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hera.workflows import ClusterWorkflowTemplate, Container, Parameter, Workflow, WorkflowTemplate
from hera.workflows import CronWorkflow as _CronWorkflow
from hera.workflows import models as m

from gpuflow.core.errors import fail
from gpuflow.site import Site
from gpuflow.site.model import exposed_in_site, without_site_silenced
from gpuflow.spec.builder import caller
from gpuflow.spec.canonical import meaning_of
from gpuflow.spec.loading import load
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.rules.remarks import log_findings, remarks_on, step_template_warnings, without_silenced
from gpuflow.spec.step import Step
from gpuflow.targets.argo import target
from gpuflow.targets.argo.facts import ArgoOptions
from gpuflow.targets.argo.single_step import container_argument, place_of_call, standalone_template
from gpuflow.targets.argo.templates import PLACE_INPUT
from gpuflow.targets.argo.workflow import build, differences
from gpuflow.targets.single_step import refuse_arguments, site_of
from gpuflow.targets.target import Request, accept_losses

__all__ = ["StepContainer", "container", "to_hera"]


def to_hera(
    pipeline: Pipeline | str | Path,
    site: Site | str = "nvidia",
    *,
    namespace: str | None = None,
    kind: str | None = None,
) -> Any:
    """A Hera `WorkflowTemplate`, or a `CronWorkflow` when the pipeline has a schedule; `kind` asks for another.

    :param pipeline: a `gpuflow.Pipeline`, or its file.
    :param site: how the cluster names its GPUs and queues: a Site, a preset, or a file.
    :param namespace: where it runs; the site's namespace unless given.
    :param kind: WorkflowTemplate, ClusterWorkflowTemplate, CronWorkflow or Workflow.
    """
    checked = pipeline if isinstance(pipeline, Pipeline) else load(pipeline)
    where = site_of(site)
    request = Request(checked, where, namespace or where.namespace, str(checked.source.file), (), ArgoOptions(kind))
    accept_losses(target, request, allow_lossy=False)
    log_findings(
        without_site_silenced(where, without_silenced(checked, [*remarks_on(checked), *exposed_in_site(where)])),
        __name__,
    )
    manifest = build(replace(request, pipeline=meaning_of(checked), site=meaning_of(where)))
    made = _KINDS[manifest["kind"]].from_dict(manifest)
    if isinstance(made, CronWorkflow):
        made.run_metadata = m.WorkflowMetadata.model_validate(manifest["spec"]["workflowMetadata"])
    return made


class CronWorkflow(_CronWorkflow):  # type: ignore[misc]  # Hera is not installed where types are checked
    """Hera's CronWorkflow drops the labels that its runs get; this one keeps them."""

    run_metadata: Any = None

    def build(self) -> Any:
        model = super().build()
        model.spec.workflow_metadata = self.run_metadata
        return model


_KINDS = {
    "WorkflowTemplate": WorkflowTemplate,
    "Workflow": Workflow,
    "CronWorkflow": CronWorkflow,
    "ClusterWorkflowTemplate": ClusterWorkflowTemplate,
}


class StepContainer(Container):  # type: ignore[misc]  # as above
    """A step as Hera's `Container`. Called in a `DAG` or `Steps`, it makes a task of the step.

    What the step refers to are keyword arguments: text, numbers, or anything of Hera's that stands for a value.
    """

    def __call__(self, **options: Any) -> Any:
        inputs = [parameter.name for parameter in self.inputs or ()]
        takes = [name for name in inputs if name != PLACE_INPUT]
        given = {
            **_arguments_map(options.pop("arguments", None)),
            **{name: options.pop(name) for name in takes if name in options},
        }
        refuse_arguments(f'container "{self.name}"', takes, given)
        values = {name: container_argument(_value(name, given[name])) for name in takes}
        if PLACE_INPUT in inputs:
            looped = any(options.get(loop) for loop in _LOOPS)
            values[PLACE_INPUT] = place_of_call(options.get("name") or self.name, looped=looped)
        return super().__call__(arguments=[values] if values else [], **options)


def container(step: Step, site: Site | str = "nvidia", *, name: str = "step") -> StepContainer:
    """One step for a hand-written workflow: everything it says, as a template to call.

    :param step: what runs, a `gpuflow.Step`.
    :param site: as for `to_hera`.
    :param name: the template's name.
    """
    template = standalone_template(step, site_of(site), name)
    log_findings(step_template_warnings(step, caller()), __name__)
    model = m.Template.model_validate(template)
    inner = model.container
    metadata = model.metadata or m.Metadata()
    made = StepContainer(
        **{field: getattr(model, field) for field in _OF_TEMPLATE},
        **{field: getattr(inner, field) for field in _OF_CONTAINER},
        active_deadline_seconds=template.get("activeDeadlineSeconds"),
        annotations=metadata.annotations,
        labels=metadata.labels,
        pod_security_context=model.security_context,
        inputs=[Parameter(**entry) for entry in template.get("inputs", {}).get("parameters", [])] or None,
        outputs=[Parameter.from_model(entry) for entry in model.outputs.parameters] if model.outputs else None,
    )
    built = made._build_template().model_dump(mode="json", by_alias=True, exclude_none=True)
    lost = differences(template, built)
    if lost:
        raise AssertionError(f"Hera's Container loses or changes {', '.join(lost[:5])}")
    return made


_LOOPS = ("with_items", "with_param", "with_sequence")
_OF_TEMPLATE = (
    "affinity", "init_containers", "memoize", "name", "node_selector", "pod_spec_patch", "priority_class_name",
    "retry_strategy", "scheduler_name", "service_account_name", "sidecars", "synchronization", "tolerations", "volumes",
)  # fmt: skip
_OF_CONTAINER = (
    "command", "env", "env_from", "image", "image_pull_policy", "liveness_probe", "readiness_probe", "resources",
    "security_context", "startup_probe", "volume_mounts", "working_dir",
)  # fmt: skip


def _arguments_map(arguments: Any) -> dict[str, Any]:
    """Hera's `arguments`: a map, a parameter, or a list of these."""
    entries = arguments if isinstance(arguments, list) else [] if arguments is None else [arguments]
    found: dict[str, Any] = {}
    for entry in entries:
        found |= entry if isinstance(entry, Mapping) else {entry.name: entry}
    return found


def _value(name: str, value: Any) -> Any:
    """What a Hera parameter or expression stands for, as text with Argo's tags."""
    if isinstance(value, Parameter):
        return str(value)
    if type(value).__module__.startswith("hera.expr"):  # Hera gives its expressions no public type
        return f"{value:=}"
    if not isinstance(value, str | int | float | bool | list | dict | None):
        text = f'"{name}" is a {type(value).__name__}, which is not a value'
        raise fail("GF301", text, hint="pass text, a number, or a parameter: task.get_parameter(…)")
    return value
