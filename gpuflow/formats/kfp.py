"""The IR of a pipeline and its platform document, as protobuf messages with the place of every field.

Kubeflow reads its documents as protobuf's JSON: a field may be called `cpuLimit` or `cpu_limit`, whole numbers may be
texts, and null is the same as nothing.

KFP hands a task's container, settings and condition to the driver as arguments of its pod, and the kubelet that starts
that pod expands `$$` and `$(NAME)` in them. What is left is expanded once more when the step's own pod starts. Which
variables a driver's pod has only the run tells; `$(NAME)` is kept.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from typing import Any, TypeVar

from gpuflow.core.errors import GpuflowError, Where, did_you_mean, fail
from gpuflow.formats.documents import PLATFORM, Document, Library
from gpuflow.kubernetes.expansion import expand

T = TypeVar("T")
AMOUNTS = (
    ("limits", "memory", "resourceMemoryLimit", "memoryLimit", "G"),
    ("requests", "memory", "resourceMemoryRequest", "memoryRequest", "G"),
    ("limits", "cpu", "resourceCpuLimit", "cpuLimit", ""),
    ("requests", "cpu", "resourceCpuRequest", "cpuRequest", ""),
)
"""The amounts of a container: the text that says one, the number that older documents have, and its unit."""
VOLUMES = (
    ("secretAsVolume", "secretName", "secret", "secretName"),
    ("configMapAsVolume", "configMapName", "configMap", "name"),
)
"""Settings that mount an object: the field that names it, and how a volume of Kubernetes spells its kind and name."""
VARIABLES = (
    ("secretAsEnv", "secretName", "secretKeyRef", "secretKey"),
    ("configMapAsEnv", "configMapName", "configMapKeyRef", "configMapKey"),
)
"""Settings that make variables of an object: the field that names it, the kind of reference, the field of its key."""
CREATE_CLAIM, DELETE_CLAIM = "argostub/createpvc", "argostub/deletepvc"
"""Images that never run: KFP's driver does their work itself."""
AT_THE_END = "ALL_UPSTREAM_TASKS_COMPLETED"
"""The strategy of a task that runs whatever became of those before it."""
UNREAD_FIELD = "podMetadata"
"""What Argo puts on the pod by itself: the driver has no part in it."""


def as_driver_reads(tree: Any) -> Any:
    """A container, a task or settings of the IR after the driver's kubelet. What does not change stays the same object,
    and what does knows its place in the file."""
    if isinstance(tree, str):
        return expand(tree, {}) if "$" in tree else tree
    if not isinstance(tree, Mapping | list):
        return tree
    pairs = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    changed = {key: new for key, value in pairs if key != UNREAD_FIELD and (new := as_driver_reads(value)) is not value}
    if not changed:
        return tree
    copied: Any = copy.copy(tree)
    for key, value in changed.items():
        copied[key] = value
    return copied


@dataclass(frozen=True, slots=True)
class Message:
    """A mapping of a document; an empty one where there is none."""

    document: Document
    path: tuple[str | int, ...]
    value: Mapping[str, Any]
    shown_from: int = 0
    """How much of the path is left out when it is named."""

    def where(self, *names: str, key: bool = False) -> Where:
        """The place of the message, or of a field of it."""
        return self.document.where(*self.path, *(self._key(name) for name in names[:1]), *names[1:], key=key)

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def get(self, name: str) -> Any:
        """The value of a field as it is written; None where there is none."""
        value = self.value.get(name)
        return self.value.get(snake(name)) if value is None and self.value else value

    def message(self, name: str) -> Message:
        return self._below(self.get(name), self._key(name))

    def _below(self, value: Any, *path: str | int) -> Message:
        """A part of it, which must be a message; an empty one where there is none."""
        if value is not None and not isinstance(value, Mapping):
            raise self._wrong_value(value, "a mapping", *path)
        return Message(self.document, (*self.path, *path), {} if value is None else value, self.shown_from)

    def as_driver_argument(self) -> Message:
        """The message as KFP's driver reads it in the arguments of its pod."""
        return replace(self, value=as_driver_reads(self.value))

    def entry(self, name: str) -> Message:
        """The message under a key of a map, whose keys are nobody's field names."""
        return self._below(self.value.get(name), name)

    def entries(self) -> Iterator[tuple[str, Message]]:
        """The messages of a map."""
        for name in self.value:
            yield name, self.entry(name)

    def messages(self, name: str) -> Iterator[Message]:
        """A field that is a list of messages."""
        for index, value in enumerate(self._list(name)):
            if value is None:
                raise self._wrong_value(value, "a mapping", self._key(name), index)
            yield self._below(value, self._key(name), index)

    def texts(self, name: str) -> list[str]:
        """A field that is a list of texts."""
        for index, value in enumerate(self._list(name)):
            if not isinstance(value, str):
                raise self._wrong_value(value, "a text", self._key(name), index)
        return list(self._list(name))

    def text(self, name: str) -> str:
        """A text; empty where there is none."""
        return self._typed_value(name, str, "a text") or ""

    def flag(self, name: str) -> bool:
        """A bool; false where there is none."""
        return bool(self._typed_value(name, bool, "true or false"))

    def integer(self, name: str) -> int:
        """A whole number; 0 where there is none."""
        value = self.get(name)
        if value is None:
            return 0
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,19}", value):
            return int(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_whole(value):
            raise self._wrong_value(value, "a whole number", self._key(name))
        return int(value)

    def number(self, name: str) -> float:
        """A number; 0 where there is none."""
        value = self.get(name)
        if value is None:
            return 0.0
        try:
            found = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
        except (ValueError, OverflowError):
            found = math.nan
        if not math.isfinite(found):
            raise self._wrong_value(value, "a number", self._key(name))
        return found

    def strings(self, name: str) -> dict[str, str]:
        """A map of texts."""
        found = self.message(name)
        for key, value in found.value.items():
            if not isinstance(value, str):
                raise found._wrong_value(value, "a text", key)
        return dict(found.value)

    def old_value(self) -> Any:
        """A value as older documents give it: each says its type."""
        return next((self.get(key) for key in ("stringValue", "intValue", "doubleValue") if key in self), None)

    def _list(self, name: str) -> list[Any]:
        return self._typed_value(name, list, "a list") or []

    def _typed_value(self, name: str, kind: type[T], wanted: str) -> T | None:
        """A field that must have a type; None where there is none."""
        value = self.get(name)
        if value is not None and not isinstance(value, kind):
            raise self._wrong_value(value, wanted, self._key(name))
        return value

    def _key(self, name: str) -> str:
        """How the document spells a field."""
        spelled = snake(name) if self.value and self.value.get(name) is None else name
        return spelled if self.value.get(spelled) is not None else name

    def _wrong_value(self, value: object, wanted: str, *path: str | int) -> GpuflowError:
        """GF726: a value of another shape."""
        named = ".".join(map(str, (*self.path, *path)[self.shown_from :]))
        text = f"{named} is {_describe(value)}; it should be {wanted}"
        where = self.document.where(*self.path, *path)
        return fail("GF726", text, where=where, hint="compile the pipeline again with kfp")


def _describe(value: object) -> str:
    for kind, words in ((bool, "true or false"), (str, "a text"), (Mapping, "a mapping"), (list, "a list")):
        if isinstance(value, kind):
            return words
    return "nothing" if value is None else f"the number {str(value)[:20]}"


def _is_whole(value: float) -> bool:
    return math.isfinite(value) and int(value) == value and abs(value) < 2**63


@cache
def snake(name: str) -> str:
    """The name of a field as protobuf itself writes it."""
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def go_number(value: float) -> str:
    """A float as Go's `%v` prints it."""
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1e21:
        return format(Decimal(repr(float(value))).normalize(), "f")
    return repr(value)


def amounts_of(resources: Message) -> Iterator[tuple[str, str, str, str, Where]]:
    """What a container asks for: requests or limits, the resource, its field, the amount as a text, and its place."""
    for side, resource, name, old, unit in AMOUNTS:
        if resources.text(name):
            yield side, resource, name, resources.text(name), resources.where(name)
        elif resources.number(old):
            yield side, resource, name, go_number(resources.number(old)) + unit, resources.where(old)


def accelerator_of(resources: Message) -> tuple[str, str]:
    """The resource that an accelerator is, and how many; empty texts where a document does not say."""
    spec = resources.message("accelerator")
    older = spec.integer("count")
    count = spec.text("resourceCount") or (str(older) if older > 0 else "")
    return spec.text("resourceType") or spec.text("type"), count


@dataclass(frozen=True)
class Ir:
    """A PipelineSpec, with what a run of it is started with."""

    spec: Message
    platform: Message
    """What `platforms.kubernetes` says; empty where there is no platform document."""
    given: Mapping[str, Any]
    """The parameters that a PipelineJob is started with."""
    beside: Message
    """The whole platform document."""
    whole: Message
    """What the PipelineSpec stands in; the PipelineSpec itself where it stands alone."""

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
        return label, executors.entry(label).as_driver_argument()

    def settings(self, label: str) -> Message:
        """What the platform document says of an executor."""
        return self.platform.message("deploymentSpec").message("executors").entry(label).as_driver_argument()


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
    old = {name: spec.old_value() for name, spec in runtime.message("parameters").entries()}
    given = {**old, **runtime.message("parameterValues").value}
    return Ir(spec, platform.message("platforms").entry("kubernetes"), given, platform, whole)


def outputs_of(component: Message) -> Iterator[tuple[str, tuple[str, str], Message]]:
    """The parameters that a DAG hands on: the name, whose output it is of which name, and where it says so."""
    for name, output in component.message("dag").message("outputs").message("parameters").entries():
        source = output.message("valueFromParameter")
        yield name, (source.text("producerSubtask"), source.text("outputParameterKey")), output


def waits_of(task: Message) -> list[tuple[str, Where]]:
    """The tasks that a task waits for, those it names and those whose outputs it reads, each with where it says so."""
    found = [(each, task.where("dependentTasks")) for each in task.texts("dependentTasks")]
    for kind, field in (("parameters", "taskOutputParameter"), ("artifacts", "taskOutputArtifact")):
        for _, spec in task.message("inputs").message(kind).entries():
            if field in spec:
                found.append((spec.message(field).text("producerTask"), spec.where(field)))
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


MOST_TASKS = 20_000
"""A pipeline of more tasks is not read: Kubeflow's own limit is a workflow of 1 MiB, some hundred tasks."""
MOST_NESTED = 100


def task_count(ir: Ir) -> int:
    """The number of tasks; one that contains itself counts once."""
    components = ir.spec.message("components")
    known: dict[str, int] = {}
    open_now: set[str] = set()

    def count(component: Message) -> int:
        tasks = list(component.message("dag").message("tasks").entries())
        return sum(1 + within(task.message("componentRef").text("name")) for _, task in tasks)

    def within(name: str) -> int:
        if name not in components.value or name in open_now:
            return 0
        if name not in known:
            if len(open_now) >= MOST_NESTED:
                return 0
            open_now.add(name)
            known[name] = min(count(components.entry(name)), MOST_TASKS + 1)
            open_now.remove(name)
        return known[name]

    return count(ir.root)
