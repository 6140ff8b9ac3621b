"""Two IRs side by side: what they say, without the names they chose.

Names of components, executors, groups and inputs are free; so is the split of a command into command and args, the
SDK's version, and inputs that a group is handed and nobody inside reads. What remains is a tree: every task with its
container, its Kubernetes settings, its policies, the tasks it waits for, and each placeholder replaced by where its
value comes from.
"""

from __future__ import annotations

import re
from typing import Any

INPUT = re.compile(r"\{\{\$\.inputs\.parameters\['([^']+)'\]\}\}")
CONDITION = re.compile(r"inputs\.parameter_values\['([^']+)'\]")
Sources = dict[str, str]


def normal_form(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """The meaning of an IR and its platform document."""
    spec, platform = documents[0], documents[1] if len(documents) > 1 else {}
    kubernetes = platform.get("platforms", {}).get("kubernetes", {})
    reader = _Reader(spec, kubernetes.get("deploymentSpec", {}).get("executors", {}))
    params = spec["root"].get("inputDefinitions", {}).get("parameters", {})
    return {
        "name": spec["pipelineInfo"]["name"],
        "description": spec["pipelineInfo"].get("description"),
        "schema": spec["schemaVersion"],
        "params": params,
        "config": kubernetes.get("pipelineConfig"),
        "outputs": reader.outputs(spec["root"]),
        "tasks": reader.dag(spec["root"], {name: f"<param {name}>" for name in params}),
    }


class _Reader:
    def __init__(self, spec: dict[str, Any], configs: dict[str, Any]) -> None:
        self.components = spec.get("components", {})
        self.executors = spec["deploymentSpec"]["executors"]
        self.configs = configs

    def dag(self, component: dict[str, Any], given: Sources) -> dict[str, Any]:
        tasks = component["dag"]["tasks"]
        return {self.identity(name, tasks[name]): self.task(tasks[name], tasks, given) for name in tasks}

    def outputs(self, component: dict[str, Any]) -> dict[str, tuple[str, str]]:
        """What a pipeline gives: the type of each output, and where it comes from."""
        types, chosen = (
            _parameters(component.get("outputDefinitions", {})),
            _parameters(component["dag"].get("outputs", {})),
        )
        tasks = component["dag"]["tasks"]
        made = {name: entry["valueFromParameter"] for name, entry in chosen.items()}
        return {
            name: (types[name]["parameterType"], self.output(one["producerSubtask"], one["outputParameterKey"], tasks))
            for name, one in made.items()
        }

    def identity(self, name: str, task: dict[str, Any]) -> str:
        """A group is known by what is in it, a step by its name."""
        component = self.components[task["componentRef"]["name"]]
        kind = re.sub(r"-\d+$", "", name)
        if "dag" in component and kind in ("condition", "for-loop", "exit-handler"):
            inner = component["dag"]["tasks"]
            return f"{kind}({', '.join(sorted(self.identity(key, inner[key]) for key in inner))})"
        return name

    def task(self, task: dict[str, Any], tasks: dict[str, Any], given: Sources) -> dict[str, Any]:
        component = self.components[task["componentRef"]["name"]]
        inputs = {name: self.source(entry, tasks, given) for name, entry in _parameters(task.get("inputs", {})).items()}
        result: dict[str, Any] = {
            "after": sorted(self.identity(name, tasks[name]) for name in task.get("dependentTasks", [])),
            "caching": task.get("cachingOptions"),
            "retry": task.get("retryPolicy"),
            "trigger": self.trigger(task.get("triggerPolicy"), inputs),
            "limit": task.get("iteratorPolicy"),
        }
        iterator = task.get("parameterIterator")
        if iterator is not None:
            items = iterator["items"]
            over = items.get("raw") or inputs[items["inputParameter"]]
            result["items"] = over
            inputs[iterator["itemInput"]] = f"<item of {over}>"
        types = {
            name: entry["parameterType"] for name, entry in _parameters(component.get("inputDefinitions", {})).items()
        }
        if "dag" in component:
            return {**result, "tasks": self.dag(component, {**_defaults(component), **inputs})}
        label = component["executorLabel"]
        outputs = _parameters(component.get("outputDefinitions", {}))
        return {
            **result,
            "inputs": {inputs[name]: kind for name, kind in types.items() if name in inputs},
            "outputs": {name: entry["parameterType"] for name, entry in outputs.items()},
            "container": self.container(self.executors[label]["container"], inputs),
            "config": self.config(self.configs.get(label, {}), tasks, given),
        }

    def container(self, container: dict[str, Any], inputs: Sources) -> dict[str, Any]:
        words = [*container.get("command", []), *container.get("args", [])]
        rest = {key: value for key, value in container.items() if key not in ("command", "args")}
        return {**rest, "words": [INPUT.sub(lambda match: inputs[match[1]], word) for word in words]}

    def config(self, config: Any, tasks: dict[str, Any], given: Sources) -> Any:
        """Kubernetes settings, volumes under no particular name."""
        if isinstance(config, dict):
            if "componentInputParameter" in config and "mountPath" not in config:
                return given[config["componentInputParameter"]]
            return {
                key: self.config(value, tasks, given)
                for key, value in config.items()
                if key not in ("volumeName", "componentInputParameter")
            }
        return [self.config(item, tasks, given) for item in config] if isinstance(config, list) else config

    def trigger(self, policy: dict[str, Any] | None, inputs: Sources) -> Any:
        if policy is None or "condition" not in policy:
            return policy
        return CONDITION.sub(lambda match: inputs[match[1]], policy["condition"])

    def source(self, entry: dict[str, Any], tasks: dict[str, Any], given: Sources) -> str:
        selector = entry.get("parameterExpressionSelector", "")
        if "componentInputParameter" in entry:
            return given[entry["componentInputParameter"]] + selector
        if "taskOutputParameter" in entry:
            made = entry["taskOutputParameter"]
            return self.output(made["producerTask"], made["outputParameterKey"], tasks) + selector
        if "taskFinalStatus" in entry:
            return "<final status>"
        return f"<constant {entry['runtimeValue']['constant']!r}>"

    def output(self, name: str, key: str, tasks: dict[str, Any]) -> str:
        """An output by the step that writes it, through the groups around that step."""
        component = self.components[tasks[name]["componentRef"]["name"]]
        if "dag" not in component or re.sub(r"-\d+$", "", name) not in ("condition", "for-loop"):
            return f"<output {name}.{key}>"
        chosen = component["dag"]["outputs"]["parameters"][key]["valueFromParameter"]
        inner = self.output(chosen["producerSubtask"], chosen["outputParameterKey"], component["dag"]["tasks"])
        return f"<all {inner}>" if name.startswith("for-loop") else inner


def _defaults(component: dict[str, Any]) -> Sources:
    """What the inputs of a pipeline are when it is handed nothing."""
    definitions = _parameters(component.get("inputDefinitions", {}))
    return {name: f"<default {entry.get('defaultValue')!r}>" for name, entry in definitions.items()}


def _parameters(definitions: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = definitions.get("parameters", {})
    return found
