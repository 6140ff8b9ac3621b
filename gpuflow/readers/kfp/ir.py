"""The parts of a pipeline's document, and of the platform document that belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuflow.errors import did_you_mean, fail
from gpuflow.readers.documents import PLATFORM, Document
from gpuflow.readers.frame import Library
from gpuflow.readers.kfp.message import Message


@dataclass(frozen=True)
class Ir:
    """A PipelineSpec, with what a run of it is started with."""

    spec: Message
    platform: Message
    """What `platforms.kubernetes` says; empty where there is no platform document."""
    given: Mapping[str, Any]
    """The parameters that a PipelineJob is started with."""

    @property
    def root(self) -> Message:
        return self.spec.message("root")

    def component(self, name: str, task: str, at: Message) -> Message:
        """The component that a task refers to."""
        components = self.spec.message("components")
        if name not in components.value:
            text = f'task "{task}" refers to the component "{name}", which is not in components'
            hint = did_you_mean(name, components.value) or "compile the pipeline again with kfp"
            raise fail("GF727", text, where=at.where("componentRef"), hint=hint)
        return components.entry(name)

    def executor(self, component: Message, name: str) -> tuple[str, Message]:
        """The executor of a component, with its label."""
        label = component.text("executorLabel")
        executors = self.spec.message("deploymentSpec").message("executors")
        if not label or label not in executors.value:
            what = (
                f'names the executor "{label}", which is not in deploymentSpec'
                if label
                else "has neither dag nor executor"
            )
            hint = did_you_mean(label, executors.value) if label else "compile the pipeline again with kfp"
            raise fail("GF727", f'the component "{name}" {what}', where=component.where("executorLabel"), hint=hint)
        return label, executors.entry(label).arrived()

    def settings(self, label: str) -> Message:
        """What the platform document says of an executor."""
        return self.platform.message("deploymentSpec").message("executors").entry(label).arrived()


def ir_of(document: Document, library: Library) -> Ir:
    """The parts of a document: a PipelineSpec, or something that a PipelineSpec stands in."""
    whole = Message(document, (), document.tree)
    if document.kind == "PipelineVersion":
        whole = whole.message("spec")
    if document.kind != "PipelineSpec":
        spec = whole.message("pipelineSpec")
        spec = Message(document, spec.path, spec.value, len(spec.path))
        platform = Message(document, spec.path[:-1], whole.value).message("platformSpec")
    else:
        spec, platform = whole, Message(document, (), {})
    beside = _platform_document(document, library) if not platform.value else None
    if beside is not None:
        platform = Message(beside, (), beside.tree)
    runtime = whole.message("runtimeConfig")
    given = {**_old_parameters(runtime.message("parameters")), **runtime.message("parameterValues").value}
    return Ir(spec, platform.message("platforms").entry("kubernetes"), given)


def _old_parameters(listed: Message) -> dict[str, Any]:
    """Parameters as older jobs give them: each says its type."""
    found = {}
    for name, spec in listed.entries():
        known = [spec.get(kind) for kind in ("stringValue", "intValue", "doubleValue") if kind in spec]
        found[name] = known[0] if known else None
    return found


def _platform_document(document: Document, library: Library) -> Document | None:
    """The platform document of the same file that comes next; of a file with one pipeline, any."""
    same = [each for each in library.documents if each.file == document.file]
    found = [each for each in same if each.kind == PLATFORM]
    others = [
        each.index for each in same if each.kind in ("PipelineSpec", "PipelineJob") and each.index > document.index
    ]
    end = min(others, default=None)
    later = [each for each in found if each.index > document.index and (end is None or each.index < end)]
    alone = sum(each.kind in ("PipelineSpec", "PipelineJob") for each in same) == 1
    return next(iter(later or (found if alone else [])), None)
