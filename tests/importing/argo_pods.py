"""The pods that an Argo workflow starts when every parameter has its default, told apart by nothing but their content.

Written without any of the importer's code: it reads the original and what is compiled of the imported pipeline, and
gives for both the same list when both start the same pods. Differences that are allowed, each taken away here:

1.  names: of templates, steps, parameters, outputs, containers that are called main, and volumes (by their sources);
2.  gpuflow's own labels (gpuflow.dev/), labels of the workflow object, and variables of gpuflow (GPUFLOW_);
3.  `args` stand behind `command`; `$(NAME)` of a variable that is written stands as its value, `$$(` as `$(`;
4.  a script is its interpreter and its text: Argo hands it over as a file, gpuflow through a small shell program;
5.  a step with outputs runs under gpuflow-run, which brings a mount of its own and lets the pod live longer;
6.  a sidecar is a container beside the program, whether Argo starts it or the kubelet;
7.  the order of variables, mounts, tolerations; amounts are equal as amounts; an extended resource that is only a limit
    is a request as well;
8.  what the site says for every run: when pods and runs are deleted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from gpuflow.kubernetes.pod_fields import strategic_merge_map_patch
from gpuflow.pod.build import SCRIPT_RUNNER
from gpuflow.quantity import Quantity

MOST = 500
OF_POD = {
    "affinity", "automountServiceAccountToken", "hostAliases", "nodeSelector", "priorityClassName", "schedulerName",
    "securityContext", "serviceAccountName", "tolerations",
}  # fmt: skip
OF_WORKFLOW = {
    **{name: name for name in OF_POD if name != "priorityClassName"},
    "podPriorityClassName": "priorityClassName",
    "dnsConfig": "dnsConfig",
    "dnsPolicy": "dnsPolicy",
    "hostNetwork": "hostNetwork",
    "imagePullSecrets": "imagePullSecrets",
}
TAG = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
KEY = r"(?:\.([\w-]+)|\[['\"]([^'\"]+)['\"]\])"
REFERENCE = re.compile(
    rf"(?P<owner>workflow\.parameters|inputs\.parameters|(?:steps|tasks){KEY}\.outputs\.parameters){KEY}|\bitem\b(?:{KEY})?"
)


class Run:
    """One workflow with its templates, and those of other files."""

    def __init__(self, document: Mapping[str, Any], others: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
        spec = document["spec"]
        self.spec = spec.get("workflowSpec", spec)
        self.others = others
        own = self.spec.get("workflowTemplateRef")
        if own:
            kind = "ClusterWorkflowTemplate" if own.get("clusterScope") else "WorkflowTemplate"
            under = others[(kind, own["name"])]["spec"]
            given = {each["name"]: each for each in under.get("arguments", {}).get("parameters", [])}
            given |= {each["name"]: each for each in self.spec.get("arguments", {}).get("parameters", [])}
            entry = {"entrypoint": self.spec["entrypoint"]} if "entrypoint" in self.spec else {}
            self.spec = {**under, **entry, "arguments": {"parameters": list(given.values())}}
        parameters = self.spec.get("arguments", {}).get("parameters", [])
        self.parameters = {plain(each["name"]): text_of(each.get("value", each.get("default"))) for each in parameters}
        self.labels = {
            **document.get("metadata", {}).get("labels", {}),
            **spec.get("workflowMetadata", {}).get("labels", {}),
        }
        self.claims = {each["metadata"]["name"] for each in self.spec.get("volumeClaimTemplates", [])}

    def pods(self) -> list[str]:
        """Every pod, as text, sorted."""
        found = list(self._of(self._named(self.spec, self.spec["entrypoint"]), self.spec, dict(self.parameters)))
        last = self.spec.get("onExit") or self.spec.get("hooks", {}).get("exit", {}).get("template")
        if last:
            found += [f"at the end {pod}" for pod in self._of(self._named(self.spec, last), self.spec, {})]
        assert len(found) < MOST
        return sorted(found)

    def _named(self, spec: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        return next(each for each in spec["templates"] if each.get("name") == name)

    def _of(self, template: Mapping[str, Any], spec: Mapping[str, Any], inputs: dict[str, str]) -> Iterator[str]:
        declared = template.get("inputs", {}).get("parameters", [])
        defaults = {
            plain(each["name"]): self.text(text_of(each.get("value", each.get("default"))), {}, None)
            for each in declared
            if each.get("value", each.get("default")) is not None
        }
        inputs = {**defaults, **inputs}
        if "steps" in template or "dag" in template:
            groups = template.get("steps") or [template["dag"]["tasks"]]
            for call in (call for group in groups for call in group):
                yield from self._call(call, spec, inputs)
        elif "suspend" in template:
            yield "somebody resumes"
        else:
            yield json.dumps(self.pod(template, inputs), sort_keys=True)

    def _call(self, call: Mapping[str, Any], spec: Mapping[str, Any], inputs: dict[str, str]) -> Iterator[str]:
        template, theirs = call.get("inline"), spec
        reference = call.get("templateRef")
        if reference:
            kind = "ClusterWorkflowTemplate" if reference.get("clusterScope") else "WorkflowTemplate"
            theirs = self.others[(kind, reference["name"])]["spec"]
            template = self._named(theirs, reference["template"])
        elif template is None:
            template = self._named(spec, call["template"])
        when = self._condition(call["when"]) if call.get("when") else ""
        for item in self._items(call, inputs):
            given = {
                plain(each["name"]): self.text(text_of(each.get("value")), inputs, item)
                for each in call.get("arguments", {}).get("parameters", [])
            }
            when_item = re.sub(r"['\"\s()]", "", self.text(when, inputs, item))
            when_item = f"when {when_item} " if when else ""
            for pod in self._of(template, theirs, given):
                yield f"{when_item}{pod}"

    def _condition(self, when: str) -> str:
        """A condition with its references as tags, in whichever of the two languages it is written."""
        inside = re.sub(r"^\{\{=(.*)\}\}$", r"\1", when.strip(), flags=re.DOTALL)
        inside = REFERENCE.sub(lambda match: f"{{{{{match[0]}}}}}" if inside != when.strip() else match[0], inside)
        return inside

    def _items(self, call: Mapping[str, Any], inputs: dict[str, str]) -> list[Any]:
        if call.get("withItems") is not None:
            return [json.loads(self.text(json.dumps(item), inputs, None)) for item in call["withItems"]]
        if call.get("withSequence") is not None:
            given = {key: self.text(text_of(value), inputs, None) for key, value in call["withSequence"].items()}
            start = int(given.get("start", 0))
            stop = int(given["end"]) + 1 if "end" in given else start + int(given["count"])
            return [given.get("format", "%d") % number for number in range(start, stop)]
        if call.get("withParam") is not None:
            text = self.text(call["withParam"], inputs, None)
            return json.loads(text) if text.startswith("[") else [f"<item of {text}>"]
        return [None]

    # ------------------------------------------------------------------- texts

    def text(self, text: str, inputs: Mapping[str, str], item: Any) -> str:
        """The text with every tag as its value, or as a sign that is the same on both sides."""
        return TAG.sub(lambda match: self._tag(match[1].strip(), inputs, item, match[0]), text)

    def _tag(self, tag: str, inputs: Mapping[str, str], item: Any, whole: str) -> str:
        found = {match[0]: match for match in REFERENCE.finditer(tag)}
        if len(found) != 1:
            return whole
        (match,) = found.values()
        names = [name for name in match.groups()[1:] if name]
        if match["owner"] is None:
            if item is None:
                return whole
            return text_of(item[names[0]] if names else item)
        if match["owner"].startswith("workflow"):
            return self.parameters.get(plain(names[0]), whole)
        if match["owner"].startswith("inputs"):
            return inputs.get(plain(names[0]), whole)
        return f"<{' '.join(plain(name) for name in names)}>"

    # -------------------------------------------------------------------- pods

    def pod(self, template: Mapping[str, Any], inputs: Mapping[str, str]) -> dict[str, Any]:
        """One pod without what the list above takes away."""
        template = below(template, self.spec.get("templateDefaults", {}))
        template = filled(template, lambda text: self.text(text, inputs, None))
        spec: dict[str, Any] = {pod: self.spec[own] for own, pod in OF_WORKFLOW.items() if own in self.spec}
        spec |= {key: template[key] for key in OF_POD if key in template}
        aliases = [*self.spec.get("hostAliases", []), *template.get("hostAliases", [])]
        spec |= {"hostAliases": aliases} if aliases else {}
        main = dict(template.get("container") or template["script"])
        source = main.pop("source", None)
        helpers = [*template.get("initContainers", []), *({**e, "beside": True} for e in template.get("sidecars", []))]
        for each in helpers:
            if each.pop("mirrorVolumeMounts", False):
                each["volumeMounts"] = [*each.get("volumeMounts", []), *main.get("volumeMounts", [])]
        spec |= {"containers": [{**main, "name": "main"}], "initContainers": helpers}
        spec["volumes"] = [*self.spec.get("volumes", []), *template.get("volumes", [])]
        if "activeDeadlineSeconds" in template and not template.get("outputs", {}).get("parameters"):
            spec["activeDeadlineSeconds"] = int(template["activeDeadlineSeconds"])
        for patch in (self.spec.get("podSpecPatch"), template.get("podSpecPatch")):
            if patch:
                spec = strategic_merge_map_patch(
                    {"spec": spec}, {"spec": yaml.safe_load(self.text(patch, inputs, None))}
                )["spec"]
        return comparable(spec, template.get("metadata", {}), self.labels, self.claims, source)


def comparable(
    spec: dict[str, Any], metadata: Mapping[str, Any], labels: Mapping[str, str], claims: set[str], source: str | None
) -> dict[str, Any]:
    """A pod's spec and metadata without what the list at the top takes away."""
    sources = {each["name"]: {k: v for k, v in each.items() if k != "name"} for each in spec.pop("volumes", None) or ()}
    sources |= {claim: {"claim of the run": claim.removeprefix("run-")} for claim in claims}
    containers = [*spec.pop("containers"), *(spec.pop("initContainers", None) or ())]
    made = [_container(each, sources, source if index == 0 else None) for index, each in enumerate(containers)]
    if made[0].pop("supervised", False):
        spec.pop("activeDeadlineSeconds", None)
    own = {key: value for key, value in metadata.get("labels", {}).items() if not key.startswith("gpuflow.dev/")}
    if spec.get("tolerations"):
        spec["tolerations"] = sorted(spec["tolerations"], key=repr)
    return {
        **{key: value for key, value in spec.items() if value not in (None, [], {}) and key != "restartPolicy"},
        "containers": made,
        "labels": {key: value for key, value in own.items() if labels.get(key) != value},
        "annotations": metadata.get("annotations", {}),
    }


def _container(container: Mapping[str, Any], sources: Mapping[str, Any], source: str | None) -> dict[str, Any]:
    found = {key: value for key, value in container.items() if value not in (None, [], {}) and key != "restartPolicy"}
    found["beside"] = bool(container.get("beside") or container.get("restartPolicy") == "Always")
    variables: dict[str, Any] = {}
    known: dict[str, str] = {}
    for each in found.pop("env", []):
        value = expanded(each["value"], known) if isinstance(each.get("value"), str) else each.get("valueFrom") or ""
        if isinstance(value, str):
            known[each["name"]] = value
        variables[each["name"]] = value
    words = [expanded(word, known) for word in (*found.pop("command", []), *found.pop("args", []))]
    found["env"] = {key: value for key, value in variables.items() if not key.startswith("GPUFLOW_")}
    if words[:1] == ["gpuflow-run"]:
        words = words[words.index("--") + 1 :]
        found["supervised"] = True
    if words[:3] == ["sh", "-c", SCRIPT_RUNNER]:
        words = [*words[4:], "the script", words[3]]
    if source is not None:
        words = [*words, "the script", source]
    found["words"] = words
    mounts = {}
    for each in found.pop("volumeMounts", []):
        if each["mountPath"] != "/gpuflow/outputs":
            rest = {key: value for key, value in each.items() if key not in ("name", "mountPath") and value}
            mounts[each["mountPath"]] = [rest, sources[each["name"]]]
    found["mounts"] = mounts
    resources = found.pop("resources", {})
    limits = {key: str(Quantity(str(value))) for key, value in resources.get("limits", {}).items()}
    requests = {key: str(Quantity(str(value))) for key, value in resources.get("requests", {}).items()}
    found["limits"] = limits
    found["requests"] = {**{key: value for key, value in limits.items() if "/" in key}, **requests}
    return found


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """As the kubelet hands it to the program."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[1] is None else variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)\s]+)\)", value, text)


def below(own: Any, under: Any) -> Any:
    if not (isinstance(own, Mapping) and isinstance(under, Mapping)):
        return own
    return {**under, **{key: below(value, under.get(key)) for key, value in own.items()}}


def filled(value: Any, fill: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: item if key == "podSpecPatch" else filled(item, fill) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, fill) for item in value]
    return fill(value) if isinstance(value, str) else value


def plain(name: str) -> str:
    """A name as both sides have it."""
    return re.sub(r"[^a-z0-9]", "-", name.lower())


def text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, separators=(",", ":"))
