"""Pipelines of Kubeflow, in the form that its compiler writes, as pipelines: tasks as steps, executors as pods."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpuflow.core.errors import GpuflowError, Where
from gpuflow.formats.documents import Document, Library
from gpuflow.formats.kfp import (
    AMOUNTS,
    AT_THE_END,
    VARIABLES,
    VOLUMES,
    Message,
    accelerator_of,
    amounts_of,
    as_driver_reads,
    ir_of,
    outputs_of,
    snake,
    waits_of,
)
from gpuflow.formats.nodes import plain_value
from gpuflow.importing.pipelines import Draft, Handing, identifier, in_order, label, object_metadata
from gpuflow.importing.pods import TAG_HINT, Parts, PodReader, condition_in_words, fill_tags, operand, plain_text
from gpuflow.importing.unsupported import KIND, TAG, TEMPLATE, Place, Unsupported
from gpuflow.pod.supervision import RUN_ID
from gpuflow.readers.kfp.values import unquote
from gpuflow.runtime.bundle import FILE
from gpuflow.site import Site

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<ref>inputs\.parameter_values\[['"](?P<name>[^'"]+)['"]\])
    | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    | (?P<number>[-+]?\d+(?:\.\d+)?)
    | (?P<op>==|!=|<=|>=|<|>|&&|\|\||!|\(|\))
    | (?P<word>true|false)
    )""",
    re.VERBOSE,
)
_CAST = re.compile(r"\b(?:int|double|string|bool)\((inputs\.parameter_values\[['\"][^'\"]+['\"]\])\)")
_LOGIC_WORDS = {"&&": "and", "||": "or", "!": "not"}


def condition(text: str, value: Callable[[str], Parts | None]) -> str | None:
    """The condition; None when it says more than a pipeline can."""

    def word_of(match: re.Match[str]) -> str | None:
        if match["ref"]:
            return operand(value(match["name"]) or None, _quote_text)
        if match["text"]:
            literal = unquote(match["text"])
            return None if literal is None else _quote_text(literal)
        found = match["op"] or match["number"] or match["word"]
        return _LOGIC_WORDS.get(found, found)

    return condition_in_words(_CAST.sub(r"\1", as_driver_reads(text.strip())), _TOKEN, word_of)


def _quote_text(text: str) -> str:
    """A text in a condition of a pipeline, where a backslash takes the next character as it is."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


TYPES = {
    "STRING": "string",
    "NUMBER_INTEGER": "int",
    "NUMBER_DOUBLE": "float",
    "BOOLEAN": "bool",
    "LIST": "json",
    "STRUCT": "json",
}
RUN = {"$.pipeline_job_uuid": "id", "$.pipeline_job_name": "name"}
OUTPUTS = "/tmp/outputs"
"""Where programs write the outputs whose paths Kubeflow chose for them."""
TASK = (
    "cachingOptions", "componentRef", "dependentTasks", "inputs", "iteratorPolicy", "parameterIterator", "retryPolicy",
    "taskInfo", "triggerPolicy",
)  # fmt: skip
SPEC = ("pipelineInfo", "root", "components", "deploymentSpec", "schemaVersion", "sdkVersion", "defaultPipelineRoot")
OF_VERSION = ("pipelineName", "displayName", "description", "pipelineSpec", "platformSpec")
OF_JOB = ("name", "displayName", "pipelineSpec", "platformSpec", "runtimeConfig")
"""What they say that is read, or names them."""
OF_TASK = {
    "cachingOptions": ("enableCache",),
    "componentRef": ("name",),
    "inputs": ("parameters", "artifacts"),
    "iteratorPolicy": ("parallelismLimit",),
    "parameterIterator": ("items", "itemInput"),
    "retryPolicy": ("maxRetryCount", "backoffDuration", "backoffFactor", "backoffMaxDuration"),
    "taskInfo": ("name",),
    "triggerPolicy": ("condition", "strategy"),
}
PARAMETER = ("parameterType", "defaultValue", "isOptional", "description", "literals")
ITEM = "item"
_INPUT = re.compile(r"\$\.inputs\.parameters\[['\"]([^'\"]+)['\"]\]")
_OUTPUT = re.compile(r"\$\.outputs\.parameters\[['\"]([^'\"]+)['\"]\]\.output_file")
_ARTIFACT = "Kubeflow's artifacts have no word in a pipeline"
_HINT = "write an output of type file or directory with its uri, and read it with inputs"
CONTAINER = ("image", "command", "args", "env", "resources")
CONFIG = (
    "activeDeadlineSeconds", "configMapAsEnv", "configMapAsVolume", "emptyDirMounts", "fieldPathAsEnv",
    "imagePullPolicy", "imagePullSecret", "nodeAffinity", "nodeSelector", "podMetadata", "pvcMount", "secretAsEnv",
    "secretAsVolume",
    "securityContext", "tolerations",
)  # fmt: skip

RUN_LABEL = "metadata.labels['pipeline/runid']"
"""Where gpuflow-run looks for the run's id in a pod of Kubeflow's."""
RUN_WORD = "--run-id={{$.pipeline_job_uuid}}"


@dataclass
class Scope:
    """The values that a component sees."""

    draft: Draft
    inputs: dict[str, Parts] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def __call__(self, tag: str) -> Parts | None:
        """What a placeholder stands for; None when no reference says it."""
        if tag in RUN:
            return ({"run": RUN[tag]},)
        if match := _INPUT.fullmatch(tag):
            return self.inputs.get(match[1])
        if match := _OUTPUT.fullmatch(tag):
            return (f"{OUTPUTS}/{match[1]}",)
        return None


class Importer:
    """Fills drafts from one pipeline."""

    def __init__(self, document: Document, library: Library, site: Site, listing: Unsupported) -> None:
        self.ir = ir_of(document, library)
        self.site, self.listing, self.place = site, listing, Place(document)
        kubernetes = self.ir.platform
        if kubernetes.get("pipelineConfig"):
            where, hint = self.at(kubernetes, "pipelineConfig"), "use claims, or a Kueue queue"
            listing.cannot("pipelineConfig", "a pipeline has no word for it", where, hint)
        self.fields(self.ir.beside, ("platforms",), "")
        self.fields(self.ir.beside.message("platforms"), ("kubernetes",), "platforms")
        self.fields(kubernetes, ("deploymentSpec", "pipelineConfig"), "kubernetes")
        if document.kind == "PipelineVersion":
            object_metadata(document, listing, self.place)
            self.fields(self.ir.whole, OF_VERSION, "spec")
        elif document.kind == "PipelineJob":
            self.fields(self.ir.whole, OF_JOB, document.kind)
            self.fields(self.ir.whole.message("runtimeConfig"), ("parameterValues", "parameters"), "runtimeConfig")
        for owner in (kubernetes, self.ir.spec):
            self.fields(owner.message("deploymentSpec"), ("executors",), "deploymentSpec")

    def fields(self, owner: Message, known: tuple[str, ...], what: str, hints: Mapping[str, str] | None = None) -> None:
        """List every field of a message that nobody has read, however protobuf's JSON spells those that are read."""
        self.listing.fields(owner.value, {*known, *map(snake, known)}, what, self.place, hints)

    def at(self, owner: Message, key: str | None = None) -> Where:
        return self.place.of(owner.value, key)

    def fill(self, draft: Draft, component: Message, scope: Scope, stack: tuple[str, ...]) -> None:
        """All tasks of a component, each after those that it waits for."""
        dag = component.message("dag")
        self._definitions(component)
        self.fields(dag, ("tasks", "outputs"), "dag")
        tasks = dict(dag.message("tasks").entries())
        for name in in_order({name: [need for need, _ in waits_of(task)] for name, task in tasks.items()}):
            self._task(draft, name, tasks[name], scope, stack)
        outputs = dag.message("outputs")
        for name, (task, key), output in outputs_of(component):
            step = scope.names.get(task)
            if step is None:
                why = "it is not the output of one step"
                self.listing.cannot(f"output {name}", why, self.at(output), code=TAG)
                continue
            draft.outputs[identifier(name, draft.outputs)] = {"output": f"{step}.{identifier(key, ())}"}
        if outputs.get("artifacts"):
            self.listing.cannot("output artifacts", _ARTIFACT, self.at(outputs, "artifacts"), _HINT)

    def _definitions(self, component: Message) -> None:
        """List what a component says beside its inputs, its outputs and what it does."""
        known = ("dag", "executorLabel", "inputDefinitions", "outputDefinitions")
        self.fields(component, known, "component")
        for side in known[2:]:
            self.fields(component.message(side), ("parameters", "artifacts"), side)
            for _, each in component.message(side).message("parameters").entries():
                self.fields(each, PARAMETER, "parameter")

    def _task(self, draft: Draft, name: str, task: Message, scope: Scope, stack: tuple[str, ...]) -> None:
        if not self.listing.has_room(f"task {name}", self.at(task)):
            return
        self.fields(task, TASK, "task", {"artifactIterator": _HINT})
        for key, known in OF_TASK.items():
            self.fields(task.message(key), known, key)
        self.fields(task.message("parameterIterator").message("items"), ("raw", "inputParameter"), "items")
        title = task.message("componentRef").text("name")
        component = self.ir.spec.message("components").entry(title)
        if title in stack or not component.value:
            why = "it calls itself" if title in stack else "there is no component of that name"
            self.listing.cannot(f"component {title}", why, self.at(task, "componentRef"), None, TEMPLATE)
            return
        loop = self._loop(draft, task, scope)
        given = self._inputs(task, component, scope)
        if loop is not None:
            given[loop[0]] = ({"item": ITEM},)
        step = self._step(draft, name, task, component, given, (*stack, title))
        if step is None:
            return
        needed = dict.fromkeys(need for need, _ in waits_of(task))
        before = [scope.names[need] for need in needed if need in scope.names]
        trigger = task.message("triggerPolicy")
        if loop is not None:
            step["for_each"] = {ITEM: loop[1]}
            limit = task.message("iteratorPolicy").integer("parallelismLimit")
            if limit:
                step["parallel"] = limit
        if trigger.text("condition"):
            self._read_condition(trigger, step, given)
        if trigger.text("strategy") == AT_THE_END:
            self._read_exit_task(draft, name, task, step, before)
            return
        if before:
            step["needs"] = list(dict.fromkeys(before))
        scope.names[name] = label(name, draft.steps)
        draft.steps[scope.names[name]] = step

    def _read_exit_task(self, draft: Draft, name: str, task: Message, step: dict[str, Any], before: list[str]) -> None:
        if "pipeline" in step or set(before) != set(draft.steps) or draft.head.get("name") is None:
            hint = "a pipeline has steps that run when everything has ended: exit"
            why = "it runs after some tasks, whatever became of them"
            self.listing.cannot(f"task {name}", why, self.at(task, "triggerPolicy"), hint)
            return
        draft.exit[label(name, (*draft.steps, *draft.exit))] = step

    def _read_condition(self, trigger: Message, step: dict[str, Any], given: Mapping[str, Parts]) -> None:
        text = trigger.text("condition")
        found = condition(text, given.get)
        if found is None:
            hint = "conditions compare parameters, outputs and items with texts and numbers"
            why = "no condition of a pipeline says it"
            self.listing.cannot(f"condition {text}", why, self.at(trigger, "condition"), hint, TAG)
        else:
            step["when"] = found

    def _loop(self, draft: Draft, task: Message, scope: Scope) -> tuple[str, Any] | None:
        iterator = task.message("parameterIterator")
        if not iterator.value:
            return None
        items, name = iterator.message("items"), iterator.text("itemInput")
        raw = _parse_json(items.text("raw"))
        if raw is not None:
            return name, raw
        given = self._value(task.message("inputs").message("parameters").entry(items.text("inputParameter")), scope)
        if given and len(given) == 1 and isinstance(given[0], dict) and set(given[0]) & {"param", "output"}:
            draft.as_json(given[0])
            return name, given[0]
        found = _parse_json(plain_text(given) or "") if given is not None else None
        if isinstance(found, list):
            return name, found
        self.listing.cannot("parameterIterator", "it runs over no list that a pipeline knows", self.at(iterator))
        return name, [""]

    def _inputs(self, task: Message, component: Message, scope: Scope) -> dict[str, Parts]:
        given = task.message("inputs").message("parameters")
        declared = component.message("inputDefinitions").message("parameters")
        found: dict[str, Parts] = {}
        item = task.message("parameterIterator").text("itemInput")
        for name in dict.fromkeys((*given.value, *declared.value)):
            if name == item:
                continue
            definition = declared.entry(name)
            if name in given.value:
                value = self._value(given.entry(name), scope)
            elif definition.get("defaultValue") is not None:
                value = (_text(definition.get("defaultValue")),)
            else:
                value = () if definition.flag("isOptional") else None
            if value is None:
                kinds = ", ".join(given.entry(name).value) or "nothing"
                where = self.at(given, name) if name in given.value else self.at(task)
                self.listing.cannot(f"input {name}", f"it comes from {kinds}", where, TAG_HINT, TAG)
            found[name] = value or ()
        self._refuse_artifacts(task.message("inputs"))
        return found

    def _refuse_artifacts(self, owner: Message) -> None:
        artifacts = owner.message("artifacts")
        for name in artifacts.value:
            self.listing.cannot(f"artifact {name}", _ARTIFACT, self.at(artifacts, name), _HINT)

    def _value(self, given: Message, scope: Scope) -> Parts | None:
        known = ("componentInputParameter", "runtimeValue", "taskOutputParameter", "parameterExpressionSelector")
        runtime = given.message("runtimeValue")
        self.fields(given, known, "input")
        self.fields(runtime, ("constant",), "runtimeValue")
        if given.text("parameterExpressionSelector"):
            return None
        if "componentInputParameter" in given:
            return scope.inputs.get(given.text("componentInputParameter"))
        if "runtimeValue" in given:
            parts, lost = fill_tags(_text(as_driver_reads(runtime.get("constant"))), scope)
            return None if lost else parts
        source = given.message("taskOutputParameter")
        step = scope.names.get(source.text("producerTask"))
        if step is None:
            return None
        return ({"output": f"{step}.{identifier(source.text('outputParameterKey'), ())}"},)

    def _step(
        self,
        draft: Draft,
        name: str,
        task: Message,
        component: Message,
        given: dict[str, Parts],
        stack: tuple[str, ...],
    ) -> dict[str, Any] | None:
        if component.message("dag").value:
            handed = Handing(Draft())
            declared = component.message("inputDefinitions").message("parameters")
            kinds = {key: TYPES.get(each.text("parameterType"), "string") for key, each in declared.entries()}
            inner = {key: handed(key, parts, kinds.get(key, "string")) for key, parts in given.items()}
            self.fill(handed.sub, component, Scope(handed.sub, inner), stack)
            return handed.step(name, draft)
        executors = self.ir.spec.message("deploymentSpec").message("executors")
        executor = executors.entry(component.text("executorLabel")).as_driver_argument()
        self.fields(executor, ("container", "importer"), "executor")
        if executor.message("container").value:
            return self._container(draft, task, component, executor.message("container"), given)
        what, hint = next(iter(executor.value), "nothing"), "run a container that does it"
        self.listing.cannot(f"executor {what}", "a step runs a container", self.at(executor), hint)
        return None

    def _container(
        self, draft: Draft, task: Message, component: Message, container: Message, given: dict[str, Parts]
    ) -> dict[str, Any]:
        before = len(self.listing.found)
        self._definitions(component)
        spec, main, metadata = self._pod(container, self.ir.settings(component.text("executorLabel")))
        reader = PodReader(self.listing, self.place, self.site, Scope(draft, given), {})
        reader.structured = _concat_parts
        step = reader.step(spec, main, {key: value for key, value in metadata.items() if value})
        step.where, step.secured = self.at(container), True
        for side in ("inputDefinitions", "outputDefinitions"):
            self._refuse_artifacts(component.message(side))
        outputs: dict[str, Any] = {}
        for key, each in component.message("outputDefinitions").message("parameters").entries():
            kind = TYPES.get(each.text("parameterType"), "string")
            outputs[identifier(key, outputs)] = {"type": kind, "path": f"{OUTPUTS}/{key}"}
        words = step.words
        if outputs:
            words["outputs"] = outputs
        if task.message("cachingOptions").flag("enableCache"):
            words["cache"] = True
        retry = task.message("retryPolicy")
        if retry.integer("maxRetryCount"):
            words["retry"] = _retry(retry)
        step.sound = len(self.listing.found) == before
        draft.pods.append(step)
        return words

    # --------------------------------------------------------------------- pods

    def _pod(self, container: Message, config: Message) -> tuple[dict[str, Any], dict[str, Any], Mapping[str, Any]]:
        """The pod's spec, its main container and its metadata."""
        self.fields(container, CONTAINER, "container")
        self.fields(config, CONFIG, "platform")
        container.texts("command"), container.texts("args")  # texts, or GF726; as they stand they know their places
        main: dict[str, Any] = {key: container.get(key) for key in CONTAINER[:4] if container.get(key)}
        main["resources"] = self._resources(container.message("resources"))
        spec: dict[str, Any] = {}
        volumes: list[Any] = []
        mounts: list[Any] = []

        def mount(each: Message, name: str, **volume: Any) -> None:
            volumes.append({"name": name, **volume})
            sub = {"subPath": each.text("subPath")} if each.text("subPath") else {}
            mounts.append({"name": name, "mountPath": each.text("mountPath") or None, **sub})

        env: list[Any] = [each.value for each in container.messages("env")]
        for each in config.messages("pvcMount"):
            name = _constant(each, "pvcNameParameter", "constant")
            if name is None:
                why = "the claim's name is only known in the run"
                self.listing.cannot("pvcMount", why, self.at(each), "name a claim")
                continue
            mount(each, f"claim-{len(volumes)}", persistentVolumeClaim={"claimName": name})
        for setting, named, kind, key in VOLUMES:
            for each, own, optional in self._named_objects(config, setting, named):
                mount(each, f"files-{len(volumes)}", **{kind: {key: own, **optional}})
        for each in config.messages("emptyDirMounts"):
            chosen = {key: each.text(key) for key in ("medium", "sizeLimit") if each.text(key)}
            mount(each, each.text("volumeName"), emptyDir=chosen)
        for setting, named, kind, key in VARIABLES:
            for each, own, optional in self._named_objects(config, setting, named):
                for pair in each.messages("keyToEnv"):
                    source = {"name": own, "key": pair.text(key) or None, **optional}
                    env.append({"name": pair.text("envVar") or None, "valueFrom": {kind: source}})
        for each in config.messages("fieldPathAsEnv"):
            named, path = each.text("name"), each.text("fieldPath")
            if named == RUN_ID and path == RUN_LABEL and (told := _command_with_run_id(main)):
                main["command"] = told
                continue
            env.append({"name": named, "valueFrom": {"fieldRef": {"fieldPath": path}}})
        if env:
            main["env"] = env
        if volumes:
            spec["volumes"], main["volumeMounts"] = volumes, mounts
        self._read_scheduling(config, spec)
        if config.text("imagePullPolicy"):
            main["imagePullPolicy"] = config.text("imagePullPolicy")
        secrets = [_constant(each, "secretNameParameter", "secretName") for each in config.messages("imagePullSecret")]
        if secrets:
            spec["imagePullSecrets"] = [{"name": name} for name in secrets if name]
        if config.integer("activeDeadlineSeconds"):
            spec["activeDeadlineSeconds"] = config.integer("activeDeadlineSeconds")
        security = config.message("securityContext")
        if security.value:
            self.fields(security, ("runAsUser", "runAsGroup", "runAsNonRoot"), "securityContext")
            numbers = {key: security.integer(key) for key in ("runAsUser", "runAsGroup") if key in security}
            spec["securityContext"] = numbers | ({"runAsNonRoot": True} if security.flag("runAsNonRoot") else {})
        return spec, main, config.message("podMetadata").value

    def _named_objects(
        self, config: Message, setting: str, named: str
    ) -> Iterator[tuple[Message, str, dict[str, bool]]]:
        """The entries of a setting about Secrets or ConfigMaps, each with the object's name and its `optional`."""
        for each in config.messages(setting):
            own = _constant(each, f"{named}Parameter", named)
            if own is None:
                self.listing.cannot(setting, "its name is only known in the run", self.at(each), "write the name")
            else:
                yield each, own, {"optional": True} if each.flag("optional") else {}

    def _read_scheduling(self, config: Message, spec: dict[str, Any]) -> None:
        selector = config.message("nodeSelector")
        self.fields(selector, ("labels",), "nodeSelector")
        if selector.strings("labels"):
            spec["nodeSelector"] = selector.get("labels")
        tolerations = []
        for each in config.messages("tolerations"):
            seconds = {"tolerationSeconds": each.integer("tolerationSeconds")} if "tolerationSeconds" in each else {}
            written = {key: value for key, value in plain_value(each.value).items() if value not in (None, "")}
            tolerations.append({**written, **seconds})
        if tolerations:
            spec["tolerations"] = tolerations
            if any("tolerationJson" in each for each in tolerations):
                self.listing.cannot("tolerationJson", "it is only known in the run", self.at(config, "tolerations"))
        if config.get("nodeAffinity"):
            hint = "write kubernetes: {affinity: {…}} in the step"
            self.listing.cannot("nodeAffinity", "it is not imported", self.at(config, "nodeAffinity"), hint)

    def _resources(self, resources: Message) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for side, name, _, amount, _ in amounts_of(resources):
            found.setdefault(side, {})[name] = amount
        accelerator = resources.message("accelerator")
        self.fields(accelerator, ("type", "count", "resourceType", "resourceCount"), "accelerator")
        kind, count = accelerator_of(resources)
        if kind and count:
            if "/" not in kind:
                hint = "name the resource of the cluster: nvidia.com/gpu"
                self.listing.cannot(f"accelerator {kind}", "it is no resource of a node", self.at(accelerator), hint)
            found.setdefault("limits", {})[kind] = count
        self.fields(resources, ("accelerator", *(word for row in AMOUNTS for word in row[2:4])), "resources")
        return found


def pipeline_of(document: Document, library: Library, site: Site, listing: Unsupported) -> Draft:
    draft = Draft()
    draft.head["name"] = label(document.name, ())
    try:
        _fill(draft, Importer(document, library, site, listing))
    except GpuflowError as refusal:
        listing.found += [replace(each, code=KIND) for each in refusal.findings]
    return draft


def _fill(draft: Draft, importer: Importer) -> None:
    listing, ir = importer.listing, importer.ir
    info = ir.spec.message("pipelineInfo")
    if info.text("description"):
        draft.head["description"] = info.text("description")
    importer.fields(ir.spec, SPEC, "")
    importer.fields(info, ("name", "displayName", "description"), "pipelineInfo")
    if not ir.root.message("dag").value:
        hint = "compile a pipeline that has the component as a task"
        listing.cannot("root", "it is a component and no pipeline", importer.at(ir.root), hint)
        return
    scope = Scope(draft)
    for name, each in ir.root.message("inputDefinitions").message("parameters").entries():
        kind = TYPES.get(each.text("parameterType"))
        title, where = identifier(name, draft.params), importer.at(each)
        if kind is None:
            listing.cannot(f"parameter {name}", f"a pipeline has no type {each.get('parameterType')}", where)
        if title != name:
            listing.note(f'the parameter "{name}" is called {title}: references and Python need such names', where)
        param: dict[str, Any] = {"type": kind or "string"}
        given = plain_value(ir.given.get(name))
        if given is not None or each.get("defaultValue") is not None:
            default = plain_value(each.get("defaultValue")) if given is None else given
            whole = kind == "int" and isinstance(default, float) and default.is_integer()
            param["default"] = int(default) if whole else default
        elif each.flag("isOptional"):
            listing.cannot(f"parameter {name}", "it may have no value at all", where, "give it a default")
        if each.text("description"):
            param["description"] = each.text("description")
        draft.params[title] = param
        scope.inputs[name] = ({"param": title},)
        if given is not None:
            listing.note(f"{name}: the value of the run is the default of the parameter", where)
    for name in (each for each in ir.given if each not in scope.inputs):
        where = importer.at(ir.whole, "runtimeConfig")
        listing.cannot(f"runtimeConfig {name}", "the pipeline has no parameter of that name", where, "remove it")
    importer.fill(draft, ir.root, scope, ())


def _concat_parts(text: str) -> list[Any] | None:
    """The parts of `{"Concat": […]}`, which Kubeflow puts together; None for other text."""
    found = _parse_json(text) if text.startswith('{"Concat"') else None
    parts = found.get("Concat") if isinstance(found, dict) else None
    return parts if isinstance(parts, list) and all(isinstance(each, str) for each in parts) else None


def _parse_json(text: str) -> Any:
    """What a text says in JSON; None where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _retry(policy: Message) -> Any:
    count, start = policy.integer("maxRetryCount"), policy.text("backoffDuration")
    if start in ("0s", ""):
        return count
    backoff = {"start": start, "factor": max(int(policy.number("backoffFactor")), 1)}
    if policy.text("backoffMaxDuration"):
        backoff["max"] = policy.text("backoffMaxDuration")
    return {"any": count, "backoff": backoff}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(plain_value(value), ensure_ascii=False)


def _command_with_run_id(main: Mapping[str, Any]) -> list[Any] | None:
    """The command of gpuflow-run with the run's id as an argument; None for another program's command.

    The variable that carries the id is gpuflow's own, which no pipeline may set, and gpuflow-run hands it to no program
    that it starts: a step that is supervised once more would not know its run.
    """
    words = list(main.get("command") or ())
    for index, word in enumerate(words):
        if word.rpartition("/")[2] == FILE:
            return [*words[: index + 1], RUN_WORD, *words[index + 1 :]]
    return None


def _constant(owner: Message, parameter: str, name: str) -> str | None:
    """A name that a setting gives as a constant, or by itself; None where only the run knows it."""
    value = owner.message(parameter).message("runtimeValue").get("constant") or owner.get(name)
    return str(value) if value else None
