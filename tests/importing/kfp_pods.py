"""The pods that a Kubeflow pipeline starts when every parameter has its default, by the model of KFP's driver.

As `argo_pods`, for both sides alike. Differences that are allowed, beside those of tests/targets/kubeflow/test_pods.py:

1. names: of components, executors, tasks, inputs and outputs;
2. gpuflow's own labels; gpuflow-run around the program of a step with outputs, with the variable of the run's id;
3. an output's path: KFP chooses one, gpuflow has /tmp/outputs/NAME;
4. {"Concat": […]} is the text that KFP's launcher makes of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from gpuflow.pod.supervision import RUN_ID
from gpuflow.targets.kubeflow.references import RUN_LABEL
from tests.targets.kubeflow.driver_model import driver_pod
from tests.targets.kubeflow.test_pods import made

INPUT = re.compile(r"\{\{\$\.inputs\.parameters\[['\"]([^'\"]+)['\"]\]\}\}")
OUTPUT = re.compile(r"\{\{\$\.outputs\.parameters\[['\"]([^'\"]+)['\"]\]\.output_file\}\}")
VALUE = re.compile(r"inputs\.parameter_values\['([^']+)'\]")


def pods_of(text: str) -> list[str]:
    """Every pod, as text, sorted."""
    spec, platform, *_ = [*(each for each in yaml.safe_load_all(text) if each), {}]
    executors = platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})
    root = spec["root"]
    values = {
        name: text_of(each["defaultValue"]) if "defaultValue" in each else f"<{plain(name)}>"
        for name, each in root.get("inputDefinitions", {}).get("parameters", {}).items()
    }
    return sorted(_of(spec, executors, root, values))


def _of(spec: Any, configs: Any, component: Any, values: Mapping[str, str]) -> Iterator[str]:
    for task in component["dag"]["tasks"].values():
        inner = spec["components"][task["componentRef"]["name"]]
        for given in _calls(task, inner, values):
            trigger = task.get("triggerPolicy", {})
            condition = VALUE.sub(lambda match, own=given: own[match[1]], trigger.get("condition", ""))
            when = "at the end " if trigger.get("strategy") else ""
            when += f"when {re.sub(r'[^a-zA-Z0-9<>=!]', '', condition)} " if condition else ""
            if "dag" in inner:
                yield from (when + pod for pod in _of(spec, configs, inner, given))
                continue
            label = inner["executorLabel"]
            yield when + json.dumps(_pod(spec["deploymentSpec"]["executors"][label], configs.get(label, {}), given))


def _calls(task: Any, component: Any, values: Mapping[str, str]) -> Iterator[dict[str, str]]:
    declared = component.get("inputDefinitions", {}).get("parameters", {})
    found = {name: text_of(each["defaultValue"]) for name, each in declared.items() if "defaultValue" in each}
    for name, each in task.get("inputs", {}).get("parameters", {}).items():
        if "componentInputParameter" in each:
            found[name] = values[each["componentInputParameter"]]
        elif "taskOutputParameter" in each:
            source = each["taskOutputParameter"]
            found[name] = f"<{plain(source['producerTask'])} {plain(source['outputParameterKey'])}>"
        else:
            text = text_of(each["runtimeValue"]["constant"])
            found[name] = INPUT.sub(lambda match: values.get(match[1], match[0]), text)
    loop = task.get("parameterIterator")
    if loop is None:
        yield found
        return
    items = loop["items"]
    text = items["raw"] if "raw" in items else found[items["inputParameter"]]
    for item in json.loads(text) if text.startswith("[") else [f"<item of {text}>"]:
        yield {**found, loop["itemInput"]: text_of(item)}


def _pod(executor: Any, config: Any, values: Mapping[str, str]) -> dict[str, Any]:
    container = json.loads(OUTPUT.sub(r"/tmp/outputs/\1", json.dumps(executor["container"])))
    inputs = {name: {"defaultValue": value, "parameterType": "STRING"} for name, value in values.items()}
    pod = driver_pod(container, {"inputDefinitions": {"parameters": inputs}}, config, {})
    main = pod["containers"][0]
    main.setdefault("securityContext", {}).setdefault("capabilities", None)
    main.setdefault("args", [])
    found = made(pod)
    words = [_concatenated(word) for word in found["words"]]
    if words[0] == "gpuflow-run":
        words = words[words.index("--") + 1 :]
        assert found["env"].pop(RUN_ID) == ("fieldRef", RUN_LABEL)
    found["words"] = words
    metadata = config.get("podMetadata", {})
    labels = {key: value for key, value in metadata.get("labels", {}).items() if not key.startswith("gpuflow.dev/")}
    return {**found, "labels": labels, "annotations": metadata.get("annotations", {})}


def _concatenated(word: str) -> str:
    return "".join(json.loads(word)["Concat"]) if word.startswith('{"Concat"') else word


def plain(name: str) -> str:
    """A name as both sides have it."""
    return re.sub(r"[^a-z0-9]", "-", name.lower())


def text_of(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)
