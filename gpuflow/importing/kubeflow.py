"""Pipelines of Kubeflow, in the form that its compiler writes, as pipelines: tasks as steps, executors as pods."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuflow.formats.documents import Document, Library
from gpuflow.formats.nodes import as_list, mapping, maps, plain_value
from gpuflow.importing.draft import MOST_STEPS, Draft, Handing, identifier, label
from gpuflow.importing.pods import TAG_HINT, PodReader
from gpuflow.importing.unsupported import TAG, TEMPLATE, Place, Unsupported
from gpuflow.importing.values import Parts, fill_tags, plain_text
from gpuflow.pod.supervision import RUN_ID
from gpuflow.readers.kfp.conditions import unquote
from gpuflow.readers.kfp.ir import as_driver_reads
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
    words: list[str] = []
    at, text = 0, _CAST.sub(r"\1", as_driver_reads(text.strip()))
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        at = match.end()
        if match["ref"]:
            word = _reference(value(match["name"]))
            if word is None:
                return None
            words.append(word)
        elif match["text"]:
            literal = unquote(match["text"])
            if literal is None:
                return None
            words.append(_quote_text(literal))
        else:
            found = match["op"] or match["number"] or match["word"]
            words.append(_LOGIC_WORDS.get(found, found))
    return " ".join(words).replace("( ", "(").replace(" )", ")")


def _reference(parts: Parts | None) -> str | None:
    if parts is None or len(parts) != 1:
        return None
    (part,) = parts
    if isinstance(part, str):
        return _quote_text(part)
    ((kind, name),) = part.items() if len(part) == 1 else (("", ""),)
    return {"param": f"params.{name}", "output": f"steps.{name}", "item": f"item.{name}"}.get(kind)


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
TRIGGER_COMPLETED = "ALL_UPSTREAM_TASKS_COMPLETED"
_INPUT = re.compile(r"\$\.inputs\.parameters\[['\"]([^'\"]+)['\"]\]")
_OUTPUT = re.compile(r"\$\.outputs\.parameters\[['\"]([^'\"]+)['\"]\]\.output_file")
_ARTIFACT = "Kubeflow's artifacts have no word in a pipeline"
_HINT = "write an output of type file or directory with its uri, and read it with inputs"


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
        tree = document.tree
        self.spec = mapping(tree.get("pipelineSpec")) if document.kind == "PipelineJob" else tree
        platform = library.in_same_file(document, "PlatformSpec")
        kubernetes = mapping(mapping(platform.tree.get("platforms")).get("kubernetes")) if platform else {}
        self.configs = mapping(mapping(kubernetes.get("deploymentSpec")).get("executors"))
        self.components = mapping(self.spec.get("components"))
        self.executors = mapping(mapping(self.spec.get("deploymentSpec")).get("executors"))
        self.site, self.listing, self.place = site, listing, Place(document)
        if platform and kubernetes.get("pipelineConfig"):
            where = self.place.of(kubernetes, "pipelineConfig")
            listing.cannot("pipelineConfig", "a pipeline has no word for it", where, "use claims, or a Kueue queue")
        self.calls = 0
        if platform:
            listing.fields(platform.tree, ("platforms",), "", self.place)
            listing.fields(platform.tree.get("platforms"), ("kubernetes",), "platforms", self.place)
        listing.fields(kubernetes, ("deploymentSpec", "pipelineConfig"), "kubernetes", self.place)
        for owner in (kubernetes, self.spec):
            listing.fields(owner.get("deploymentSpec"), ("executors",), "deploymentSpec", self.place)

    def fill(self, draft: Draft, component: Mapping[str, Any], scope: Scope, stack: tuple[str, ...]) -> None:
        """All tasks of a component, each after those that it waits for."""
        dag = mapping(component.get("dag"))
        self._definitions(component)
        self.listing.fields(dag, ("tasks", "outputs"), "dag", self.place)
        waiting = {str(name): mapping(task) for name, task in mapping(dag.get("tasks")).items()}
        while waiting:
            ready = [name for name, task in waiting.items() if not set(self._needs(task)) & set(waiting)]
            for name in ready or list(waiting):
                self._task(draft, name, waiting.pop(name), scope, stack)
        for name, output in mapping(mapping(dag.get("outputs")).get("parameters")).items():
            source = mapping(mapping(output).get("valueFromParameter"))
            step = scope.names.get(str(source.get("producerSubtask")))
            if step is None:
                why = "it is not the output of one step"
                self.listing.cannot(f"output {name}", why, self.place.of(output), code=TAG)
                continue
            draft.outputs[identifier(str(name), draft.outputs)] = {
                "output": f"{step}.{identifier(str(source.get('outputParameterKey')), ())}"
            }
        if mapping(dag.get("outputs")).get("artifacts"):
            where = self.place.of(mapping(dag.get("outputs")), "artifacts")
            self.listing.cannot("output artifacts", _ARTIFACT, where, _HINT)

    def _definitions(self, component: Mapping[str, Any]) -> None:
        """List what a component says beside its inputs, its outputs and what it does."""
        listing, place = self.listing, self.place
        known = ("dag", "executorLabel", "inputDefinitions", "outputDefinitions")
        listing.fields(component, known, "component", place)
        for side in known[2:]:
            listing.fields(component.get(side), ("parameters", "artifacts"), side, place)
            for each in mapping(mapping(component.get(side)).get("parameters")).values():
                listing.fields(each, PARAMETER, "parameter", place)

    def _needs(self, task: Mapping[str, Any]) -> list[str]:
        found = [str(name) for name in as_list(task.get("dependentTasks"))]
        for value in mapping(mapping(task.get("inputs")).get("parameters")).values():
            producer = mapping(mapping(value).get("taskOutputParameter")).get("producerTask")
            found += [str(producer)] if producer else []
        return found

    def _task(self, draft: Draft, name: str, task: Mapping[str, Any], scope: Scope, stack: tuple[str, ...]) -> None:
        self.calls += 1
        if self.calls > MOST_STEPS:
            if self.calls == MOST_STEPS + 1:
                text = f"it becomes more than {MOST_STEPS:,} steps"
                self.listing.cannot(f"task {name}", text, self.place.of(task), "use a loop", TEMPLATE)
            return
        listing, place = self.listing, self.place
        listing.fields(task, TASK, "task", place, {"artifactIterator": _HINT})
        for key, known in OF_TASK.items():
            listing.fields(task.get(key), known, key, place)
        listing.fields(mapping(task.get("parameterIterator")).get("items"), ("raw", "inputParameter"), "items", place)
        title = str(mapping(task.get("componentRef")).get("name"))
        component = mapping(self.components.get(title))
        if title in stack or not component:
            why = "it calls itself" if title in stack else "there is no component of that name"
            listing.cannot(f"component {title}", why, place.of(task, "componentRef"), None, TEMPLATE)
            return
        loop = self._loop(draft, task, scope)
        given = self._inputs(task, component, scope)
        if loop is not None:
            given[loop[0]] = ({"item": ITEM},)
        step = self._step(draft, name, task, component, given, (*stack, title))
        if step is None:
            return
        before = [scope.names[need] for need in dict.fromkeys(self._needs(task)) if need in scope.names]
        trigger = mapping(task.get("triggerPolicy"))
        if loop is not None:
            step["for_each"] = {ITEM: loop[1]}
            limit = mapping(task.get("iteratorPolicy")).get("parallelismLimit")
            if limit:
                step["parallel"] = plain_value(limit)
        if trigger.get("condition"):
            self._read_condition(task, step, given)
        if trigger.get("strategy") == TRIGGER_COMPLETED:
            self._read_exit_task(draft, name, task, step, before)
            return
        if before:
            step["needs"] = list(dict.fromkeys(before))
        scope.names[name] = label(name, draft.steps)
        draft.steps[scope.names[name]] = step

    def _read_exit_task(
        self, draft: Draft, name: str, task: Mapping[str, Any], step: dict[str, Any], before: Any
    ) -> None:
        if "pipeline" in step or set(before) != set(draft.steps) or draft.head.get("name") is None:
            where = self.place.of(task, "triggerPolicy")
            hint = "a pipeline has steps that run when everything has ended: exit"
            self.listing.cannot(f"task {name}", "it runs after some tasks, whatever became of them", where, hint)
            return
        draft.exit[label(name, (*draft.steps, *draft.exit))] = step

    def _read_condition(self, task: Mapping[str, Any], step: dict[str, Any], given: Mapping[str, Parts]) -> None:
        trigger = mapping(task.get("triggerPolicy"))
        text = str(trigger["condition"])
        found = condition(text, given.get)
        if found is None:
            where = self.place.of(trigger, "condition")
            hint = "conditions compare parameters, outputs and items with texts and numbers"
            self.listing.cannot(f"condition {text}", "no condition of a pipeline says it", where, hint, TAG)
        else:
            step["when"] = found

    def _loop(self, draft: Draft, task: Mapping[str, Any], scope: Scope) -> tuple[str, Any] | None:
        iterator = mapping(task.get("parameterIterator"))
        if not iterator:
            return None
        items = mapping(iterator.get("items"))
        if items.get("raw") is not None:
            try:
                return str(iterator.get("itemInput")), json.loads(str(items["raw"]))
            except ValueError:
                pass
        inputs = mapping(mapping(task.get("inputs")).get("parameters"))
        given = self._value(inputs.get(str(items.get("inputParameter"))), scope)
        if given and len(given) == 1 and isinstance(given[0], dict) and set(given[0]) & {"param", "output"}:
            draft.as_json(given[0])
            return str(iterator.get("itemInput")), given[0]
        text = plain_text(given) if given is not None else None
        if text and text.startswith("["):
            return str(iterator.get("itemInput")), json.loads(text)
        self.listing.cannot("parameterIterator", "it runs over no list that a pipeline knows", self.place.of(iterator))
        return str(iterator.get("itemInput")), [""]

    def _inputs(self, task: Mapping[str, Any], component: Mapping[str, Any], scope: Scope) -> dict[str, Parts]:
        given = mapping(mapping(task.get("inputs")).get("parameters"))
        declared = mapping(mapping(component.get("inputDefinitions")).get("parameters"))
        found: dict[str, Parts] = {}
        item = mapping(task.get("parameterIterator")).get("itemInput")
        for name in (*given, *(key for key in declared if key not in given)):
            if name == item:
                continue
            value = self._value(given.get(name), scope) if name in given else None
            default = mapping(declared.get(name)).get("defaultValue")
            if value is None and name not in given and default is not None:
                value = (_text(default),)
            if value is None and name not in given and mapping(declared.get(name)).get("isOptional"):
                value = ()
            if value is None:
                kinds = ", ".join(mapping(given.get(name))) or "nothing"
                where = self.place.of(given, name) if name in given else self.place.of(task)
                self.listing.cannot(f"input {name}", f"it comes from {kinds}", where, TAG_HINT, TAG)
                value = ()
            found[str(name)] = value
        for name in mapping(mapping(task.get("inputs")).get("artifacts")):
            where = self.place.of(mapping(mapping(task.get("inputs")).get("artifacts")), name)
            self.listing.cannot(f"artifact {name}", _ARTIFACT, where, _HINT)
        return found

    def _value(self, value: Any, scope: Scope) -> Parts | None:
        given = mapping(value)
        known = ("componentInputParameter", "runtimeValue", "taskOutputParameter", "parameterExpressionSelector")
        self.listing.fields(given, known, "input", self.place)
        self.listing.fields(given.get("runtimeValue"), ("constant",), "runtimeValue", self.place)
        if given.get("parameterExpressionSelector"):
            return None
        if "componentInputParameter" in given:
            return scope.inputs.get(str(given["componentInputParameter"]))
        if "runtimeValue" in given:
            constant = mapping(given["runtimeValue"]).get("constant")
            parts, lost = fill_tags(_text(as_driver_reads(constant)), scope)
            return None if lost else parts
        source = mapping(given.get("taskOutputParameter"))
        step = scope.names.get(str(source.get("producerTask")))
        if step is None:
            return None
        return ({"output": f"{step}.{identifier(str(source.get('outputParameterKey')), ())}"},)

    def _step(
        self,
        draft: Draft,
        name: str,
        task: Mapping[str, Any],
        component: Mapping[str, Any],
        given: dict[str, Parts],
        stack: tuple[str, ...],
    ) -> dict[str, Any] | None:
        declared = mapping(mapping(component.get("inputDefinitions")).get("parameters"))
        if component.get("dag"):
            handed = Handing(Draft())
            kinds = {
                key: TYPES.get(str(mapping(each).get("parameterType")), "string") for key, each in declared.items()
            }
            inner = {key: handed(key, parts, kinds.get(key, "string")) for key, parts in given.items()}
            self.fill(handed.sub, component, Scope(handed.sub, inner), stack)
            return handed.step(name, draft)
        executor = mapping(as_driver_reads(self.executors.get(str(component.get("executorLabel")))))
        container = mapping(executor.get("container"))
        self.listing.fields(executor, ("container", "importer"), "executor", self.place)
        if not container:
            what = next(iter(executor), "nothing")
            where = self.place.of(executor)
            self.listing.cannot(f"executor {what}", "a step runs a container", where, "run a container that does it")
            return None
        return self._container(draft, name, task, component, container, given)

    def _container(
        self,
        draft: Draft,
        name: str,
        task: Mapping[str, Any],
        component: Mapping[str, Any],
        container: Mapping[str, Any],
        given: dict[str, Parts],
    ) -> dict[str, Any]:
        before = len(self.listing.found)
        self._definitions(component)
        config = mapping(as_driver_reads(self.configs.get(str(component.get("executorLabel")))))
        spec, main, metadata = pod_of(container, config, self.listing, self.place)
        scope = Scope(draft, given)
        reader = PodReader(self.listing, self.place, self.site, scope, {})
        reader.structured = _concat_parts
        step = reader.step(spec, main, {key: value for key, value in metadata.items() if value})
        step.where, step.secured = self.place.of(container), True
        for side in ("inputDefinitions", "outputDefinitions"):
            for artifact in mapping(mapping(component.get(side)).get("artifacts")):
                where = self.place.of(mapping(component.get(side))["artifacts"], artifact)
                self.listing.cannot(f"artifact {artifact}", _ARTIFACT, where, _HINT)
        outputs: dict[str, Any] = {}
        for key, each in mapping(mapping(component.get("outputDefinitions")).get("parameters")).items():
            kind = TYPES.get(str(mapping(each).get("parameterType")), "string")
            outputs[identifier(str(key), outputs)] = {"type": kind, "path": f"{OUTPUTS}/{key}"}
        words = step.words
        if outputs:
            words["outputs"] = outputs
        if mapping(task.get("cachingOptions")).get("enableCache"):
            words["cache"] = True
        retry = mapping(task.get("retryPolicy"))
        if retry.get("maxRetryCount"):
            words["retry"] = _retry(plain_value(retry))
        step.sound = len(self.listing.found) == before
        draft.pods.append(step)
        return words


def pipeline_of(document: Document, library: Library, site: Site, listing: Unsupported) -> Draft:
    importer = Importer(document, library, site, listing)
    draft = Draft()
    info = mapping(importer.spec.get("pipelineInfo"))
    draft.head["name"] = label(document.name, ())
    if info.get("description"):
        draft.head["description"] = str(info["description"])
    listing.fields(importer.spec, SPEC, "", importer.place)
    listing.fields(info, ("name", "displayName", "description"), "pipelineInfo", importer.place)
    root = mapping(importer.spec.get("root"))
    if not root.get("dag"):
        hint = "compile a pipeline that has the component as a task"
        listing.cannot("root", "it is a component and no pipeline", importer.place.of(root), hint)
        return draft
    scope = Scope(draft)
    for name, declared in mapping(mapping(root.get("inputDefinitions")).get("parameters")).items():
        each = mapping(declared)
        kind = TYPES.get(str(mapping(each).get("parameterType")))
        title = identifier(str(name), draft.params)
        where = importer.place.of(each)
        if kind is None:
            listing.cannot(f"parameter {name}", f"a pipeline has no type {each.get('parameterType')}", where)
        if title != name:
            listing.note(f'the parameter "{name}" is called {title}: references and Python need such names', where)
        param: dict[str, Any] = {"type": kind or "string"}
        if each.get("defaultValue") is not None:
            default = plain_value(each["defaultValue"])
            whole = kind == "int" and isinstance(default, float) and default.is_integer()
            param["default"] = int(default) if whole else default
        elif each.get("isOptional"):
            listing.cannot(f"parameter {name}", "it may have no value at all", where, "give it a default")
        if each.get("description"):
            param["description"] = str(each["description"])
        draft.params[title] = param
        scope.inputs[str(name)] = ({"param": title},)
    importer.fill(draft, root, scope, ())
    return draft


def _concat_parts(text: str) -> list[Any] | None:
    """The parts of `{"Concat": […]}`, which Kubeflow puts together; None for other text."""
    if not text.startswith('{"Concat"'):
        return None
    try:
        found = json.loads(text)["Concat"]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, list) and all(isinstance(each, str) for each in found) else None


def _retry(policy: Mapping[str, Any]) -> Any:
    count = int(policy["maxRetryCount"])
    start = str(policy.get("backoffDuration") or "0s")
    if start in ("0s", ""):
        return count
    backoff = {"start": start, "factor": max(int(policy.get("backoffFactor") or 1), 1)}
    if policy.get("backoffMaxDuration"):
        backoff["max"] = str(policy["backoffMaxDuration"])
    return {"any": count, "backoff": backoff}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(plain_value(value), ensure_ascii=False)


AMOUNTS = (
    ("limits", "cpu", "resourceCpuLimit", "cpuLimit", ""),
    ("limits", "memory", "resourceMemoryLimit", "memoryLimit", "G"),
    ("requests", "cpu", "resourceCpuRequest", "cpuRequest", ""),
    ("requests", "memory", "resourceMemoryRequest", "memoryRequest", "G"),
)
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


def pod_of(
    container: Mapping[str, Any], config: Mapping[str, Any], listing: Unsupported, place: Place
) -> tuple[dict[str, Any], dict[str, Any], Mapping[str, Any]]:
    """The pod's spec, its main container and its metadata."""
    listing.fields(container, CONTAINER, "container", place)
    listing.fields(config, CONFIG, "platform", place)
    main: dict[str, Any] = {key: container[key] for key in CONTAINER[:4] if container.get(key)}
    main["resources"] = _resources(mapping(container.get("resources")), listing, place)
    spec: dict[str, Any] = {}
    volumes: list[Any] = []
    mounts: list[Any] = []
    env: list[Any] = list(main.get("env") or ())
    for each in maps(config.get("pvcMount")):
        name = _constant(each, "pvcNameParameter", "constant")
        if name is None:
            listing.cannot("pvcMount", "the claim's name is only known in the run", place.of(each), "name a claim")
            continue
        volumes.append({"name": f"claim-{len(volumes)}", "persistentVolumeClaim": {"claimName": name}})
        mounts.append(_mount(each, volumes[-1]["name"]))
    for setting, kind, name in (("secretAsVolume", "secret", "secretName"), ("configMapAsVolume", "configMap", "name")):
        for each, own, optional in _named_objects(config, setting, listing, place):
            source = {name: own, **optional}
            volumes.append({"name": f"files-{len(volumes)}", kind: source})
            mounts.append(_mount(each, volumes[-1]["name"]))
    for each in maps(config.get("emptyDirMounts")):
        source = {key: each[key] for key in ("medium", "sizeLimit") if each.get(key)}
        volumes.append({"name": str(each.get("volumeName")), "emptyDir": source})
        mounts.append(_mount(each, volumes[-1]["name"]))
    for setting, kind, key in (
        ("secretAsEnv", "secretKeyRef", "secretKey"),
        ("configMapAsEnv", "configMapKeyRef", "configMapKey"),
    ):
        for each, own, optional in _named_objects(config, setting, listing, place):
            for pair in maps(each.get("keyToEnv")):
                source = {"name": own, "key": pair.get(key), **optional}
                env.append({"name": pair.get("envVar"), "valueFrom": {kind: source}})
    for each in maps(config.get("fieldPathAsEnv")):
        if each.get("name") == RUN_ID and each.get("fieldPath") == RUN_LABEL and (told := _command_with_run_id(main)):
            main["command"] = told
            continue
        env.append({"name": each.get("name"), "valueFrom": {"fieldRef": {"fieldPath": each.get("fieldPath")}}})
    if env:
        main["env"] = env
    if volumes:
        spec["volumes"], main["volumeMounts"] = volumes, mounts
    _read_scheduling(config, spec, listing, place)
    if config.get("imagePullPolicy"):
        main["imagePullPolicy"] = config["imagePullPolicy"]
    secrets = [_constant(each, "secretNameParameter", "secretName") for each in maps(config.get("imagePullSecret"))]
    if secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in secrets if name]
    if config.get("activeDeadlineSeconds"):
        spec["activeDeadlineSeconds"] = int(config["activeDeadlineSeconds"])
    security = mapping(config.get("securityContext"))
    if security:
        listing.fields(security, ("runAsUser", "runAsGroup", "runAsNonRoot"), "securityContext", place)
        numbers = {key: int(security[key]) for key in ("runAsUser", "runAsGroup") if security.get(key) is not None}
        spec["securityContext"] = numbers | ({"runAsNonRoot": True} if security.get("runAsNonRoot") else {})
    return spec, main, mapping(config.get("podMetadata"))


def _named_objects(
    config: Mapping[str, Any], field: str, listing: Unsupported, place: Place
) -> Iterator[tuple[Mapping[str, Any], str, dict[str, bool]]]:
    """The entries of a setting about Secrets or ConfigMaps, each with the object's name and its `optional`."""
    for each in maps(config.get(field)):
        own = each.get("secretName") or each.get("configMapName") or _constant(each, "secretNameParameter", "")
        own = own or _constant(each, "configMapNameParameter", "")
        if own is None:
            listing.cannot(field, "its name is only known in the run", place.of(each), "write the name")
        else:
            yield each, own, {"optional": True} if each.get("optional") else {}


def _command_with_run_id(main: Mapping[str, Any]) -> list[Any] | None:
    """The command of gpuflow-run with the run's id as an argument; None for another program's command.

    The variable that carries the id is gpuflow's own, which no pipeline may set, and gpuflow-run hands it to no program
    that it starts: a step that is supervised once more would not know its run.
    """
    words = list(main.get("command") or ())
    for index, word in enumerate(words):
        if str(word).rpartition("/")[2] == FILE:
            return [*words[: index + 1], RUN_WORD, *words[index + 1 :]]
    return None


def _read_scheduling(config: Mapping[str, Any], spec: dict[str, Any], listing: Unsupported, place: Place) -> None:
    selector = mapping(config.get("nodeSelector"))
    listing.fields(selector, ("labels",), "nodeSelector", place)
    if mapping(selector.get("labels")):
        spec["nodeSelector"] = selector["labels"]
    tolerations = [
        {key: value for key, value in plain_value(each).items() if value not in (None, "")}
        for each in maps(config.get("tolerations"))
    ]
    if tolerations:
        spec["tolerations"] = tolerations
        if any("tolerationJson" in each for each in tolerations):
            listing.cannot("tolerationJson", "it is only known in the run", place.of(config, "tolerations"))
    if config.get("nodeAffinity"):
        hint = "write kubernetes: {affinity: {…}} in the step"
        listing.cannot("nodeAffinity", "it is not imported", place.of(config, "nodeAffinity"), hint)


def _resources(resources: Mapping[str, Any], listing: Unsupported, place: Place) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for side, name, text, number, unit in AMOUNTS:
        if resources.get(text):
            found.setdefault(side, {})[name] = str(resources[text])
        elif resources.get(number):
            amount = resources[number]
            if not isinstance(amount, int | float):
                listing.cannot(f"resources {number}", "it is not a number", place.of(resources, number))
                continue
            found.setdefault(side, {})[name] = f"{float(amount):g}{unit}"
    accelerator = mapping(resources.get("accelerator"))
    listing.fields(accelerator, ("type", "count", "resourceType", "resourceCount"), "accelerator", place)
    kind = accelerator.get("resourceType") or accelerator.get("type")
    count = accelerator.get("resourceCount") or accelerator.get("count")
    if kind and count:
        if "/" not in str(kind):
            hint = "name the resource of the cluster: nvidia.com/gpu"
            listing.cannot(f"accelerator {kind}", "it is no resource of a node", place.of(accelerator), hint)
        found.setdefault("limits", {})[str(kind)] = str(count)
    known = ("accelerator", *(word for row in AMOUNTS for word in row[2:4]))
    listing.fields(resources, known, "resources", place)
    return found


def _constant(owner: Mapping[str, Any], field: str, also: str) -> str | None:
    value = mapping(mapping(owner.get(field)).get("runtimeValue")).get("constant") or owner.get(also)
    return str(value) if value else None


def _mount(each: Mapping[str, Any], name: str) -> dict[str, Any]:
    sub = {"subPath": each["subPath"]} if each.get("subPath") else {}
    return {"name": name, "mountPath": each.get("mountPath"), **sub}
