"""Templates of Argo: found by name, those that run a container as a step, with `retryStrategy` and metrics, what the
tags of Argo stand for in one template, and what gpuflow itself writes into compiled workflows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpuflow.core import yaml_tree
from gpuflow.core.errors import GpuflowError, Where
from gpuflow.formats.argo import Template, Workflow, template_of
from gpuflow.formats.documents import Library
from gpuflow.formats.nodes import as_list, mapping, maps, plain_value
from gpuflow.importing.pipelines import Draft, identifier
from gpuflow.importing.pods import Parts, PodReader, Step, whole_number
from gpuflow.importing.unsupported import TEMPLATE, Place, Unsupported
from gpuflow.kubernetes.pod_fields import BadPatch, strategic_merge_map_patch
from gpuflow.site import Site

RUNNER = "gpuflow-run"
OUTPUTS = "/gpuflow/outputs"
ATTEMPT = "=asInt(retries) + 1"
RETRIES = "asInt(lastRetry.exitCode) != 79"
"""A supervised step that is retried whatever ended it, unless the supervisor says that no attempt can help."""
_PAIRS = (
    ("'{'", "'$(GPUFLOW_BRACE)'"),
    ("'$'", "'$$'"),
    ("'%25'", "'%'"),
    ("'%7B'", "'{'"),
    ("'{'", "'%7B'"),
    ("'%'", "'%25'"),
)
_LIST = "sprig.replace('{' + '{', '{\\\\u007b', "
_ITEM = "(type(item) in ['map', 'array'] ? toJson(item) : string(item))"
_GUARD = re.compile(
    r"\((?P<ref>.+?) matches '.*?' \? (?P=ref) : sprig\.fail\('.* is not an? (?P<kind>\w+)'\)\)", re.DOTALL
)
_OPTION = re.compile(r"--([a-z-]+)(?:=(.*))?", re.DOTALL)
_OF_ENGINE = ("pipeline", "step", "run-id", "item", "engine", "outputs-dir", "timeout", "grace")
"""Options that follow from the rest of the step."""


def unwrap_expression(expression: str) -> tuple[str, str | None]:
    """The reference within an expression of ours, and the type that it is held to."""
    text, kind = expression.strip(), None
    while True:
        for old, new in _PAIRS:
            head = f"sprig.replace({old}, {new}, "
            if text.startswith(head) and text.endswith(")"):
                text = text[len(head) : -1]
                break
        else:
            if text.startswith(_LIST) and text.endswith(")"):
                text, kind = text[len(_LIST) : -1], "json"
            elif match := _GUARD.fullmatch(text):
                text, kind = match["ref"], match["kind"]
            else:
                return "item" if text == _ITEM else text, kind


def without_supervisor(
    main: Mapping[str, Any], spec: dict[str, Any], listing: Unsupported, place: Place
) -> tuple[Mapping[str, Any], dict[str, Any], dict[str, dict[str, Any]] | None]:
    """The container and the pod without gpuflow-run, and the outputs that it hands over; None: it has none."""
    words = as_list(main.get("command"))
    if words[:1] != [RUNNER] or "--" not in words:
        return main, spec, None
    end = words.index("--")
    outputs: dict[str, dict[str, Any]] = {}
    for word in words[1:end]:
        match = _OPTION.fullmatch(str(word))
        name, value = (match[1], match[2] or "") if match else (str(word), "")
        if name == "output":
            declared, _, path = value.partition("=")
            title, _, kind = declared.partition(":")
            outputs[title] = {"type": kind or "string", **({"path": path} if path else {})}
        elif name not in _OF_ENGINE:
            hint = "import the rest, and write checkpoint, retry or the uri of an artifact in the step"
            listing.cannot(f"{RUNNER} --{name}", "it is not read back", place.of(main, "command"), hint)
    mounts = [each for each in maps(main.get("volumeMounts")) if each.get("mountPath") != OUTPUTS]
    scratch = [each.get("name") for each in maps(main.get("volumeMounts")) if each.get("mountPath") == OUTPUTS]
    rest = {key: value for key, value in main.items() if key != "volumeMounts"}
    volumes = [each for each in maps(spec.get("volumes")) if each.get("name") not in scratch]
    pod = {**spec, "volumes": volumes} if volumes else {key: value for key, value in spec.items() if key != "volumes"}
    own = {**rest, "command": words[end + 1 :], **({"volumeMounts": mounts} if mounts else {})}
    return own, pod, outputs


_TYPED_OUTPUT = re.compile(r"tasks\['([^']+)'\]\.outputs\.parameters\['([^']+)'\]")
RUN = {"workflow.uid": "id", "workflow.name": "name"}
_OUTPUT = re.compile(r"(?:steps|tasks)\.(?P<step>[^.]+)\.outputs\.parameters\.(?P<name>.+)")
_EXPRESSION = re.compile(
    r"=\s*(?P<owner>inputs\.parameters|workflow\.parameters)(?:\.(?P<dotted>\w+)|\[['\"](?P<quoted>[^'\"\]]+)['\"]\])\s*"
)


class AnyItem(dict[str, Any]):
    """The item of a loop that is listed already."""


@dataclass
class Scope:
    """The values that a template sees; `draft` is the pipeline that they are spoken of in."""

    draft: Draft
    inputs: dict[str, Parts] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """The names of steps, by what Argo calls them."""
    item: Parts | dict[str, Any] | None = None
    """What {{item}} is: a text, or a map of texts."""
    outer: Callable[[str], Parts | None] | None = None
    """What workflow parameters are, outside of the outermost pipeline's own text."""
    refused: set[str] = field(default_factory=set)
    """Steps that are listed already: what refers to them is not listed again."""

    def __call__(self, tag: str) -> Parts | None:
        """What a tag stands for; None when no reference says it."""
        kind: str | None = None
        if tag == ATTEMPT:
            return ({"run": "attempt"},)
        if tag.startswith("="):
            inside, kind = unwrap_expression(tag[1:])
            if outcome := _TYPED_OUTPUT.fullmatch(inside):
                tag = f"tasks.{outcome[1]}.outputs.parameters.{outcome[2]}"
            else:
                tag = f"={inside}"
        found = self._look_up(tag)
        if kind is not None and found is not None and len(found) == 1 and isinstance(found[0], dict):
            self.draft.as_type(found[0], kind)
        return found

    def _look_up(self, tag: str) -> Parts | None:
        if match := _EXPRESSION.fullmatch(tag):
            tag = f"{match['owner']}.{match['dotted'] or match['quoted']}"
        if tag.replace(" ", "") == "=item":
            tag = "item"
        if tag.startswith("inputs.parameters."):
            return self.inputs.get(tag.removeprefix("inputs.parameters."))
        if tag.startswith("workflow.parameters."):
            return self.outer(tag.removeprefix("workflow.parameters.")) if self.outer else None
        if tag in RUN:
            return ({"run": RUN[tag]},)
        if tag == "item" or tag.startswith("item."):
            return self._item(tag.removeprefix("item").removeprefix("."))
        match = _OUTPUT.fullmatch(tag)
        return self._output(match["step"], match["name"]) if match else None

    def _item(self, key: str) -> Parts | None:
        if isinstance(self.item, AnyItem):
            return ({"item": "item"},)
        if isinstance(self.item, dict):
            value: Parts | None = self.item.get(key) if key else None
            return value
        return None if key else self.item

    def _output(self, step: str, name: str) -> Parts | None:
        found = self.names.get(step)
        if found is None:
            return ({"output": "refused.refused"},) if step in self.refused else None
        owner = self.draft.steps.get(found, {})
        known = owner.get("outputs", {}) if "pipeline" not in owner else owner["pipeline"].get("outputs", {})
        wanted = identifier(name, ())
        return ({"output": f"{found}.{wanted}"},) if wanted in known else None

    def with_item(self, item: Parts | dict[str, Any] | None) -> Scope:
        """The same, in a loop."""
        return replace(self, item=item)


def retry_fields(strategy: Mapping[str, Any], listing: Unsupported, place: Place) -> dict[str, Any] | None:
    """The step's `retry`; None when it says something that is listed."""
    before = len(listing.found)
    given = plain_value(strategy)
    known = ["limit", "retryPolicy", "backoff", "affinity"]
    if given.get("expression") == RETRIES:
        known.append("expression")
    listing.fields(strategy, known, "retryStrategy", place, {"expression": "write final_exit_codes in retry"})
    limit = whole_number(given.get("limit"))
    if limit is None:
        why = "it retries without end" if given.get("limit") is None else _no_number(given["limit"])
        listing.cannot("retryStrategy limit", why, place.of(strategy, "limit"), "write a number")
    policy = str(given.get("retryPolicy") or "OnFailure")
    word = {"Always": "any", "OnFailure": "failures", "OnError": "interruptions"}.get(policy)
    if word is None:
        listing.cannot(f"retryPolicy {policy}", "a pipeline has no such class of failures", place.of(strategy))
    found: dict[str, Any] = {} if limit is None else {str(word): limit}
    backoff = mapping(given.get("backoff"))
    listing.fields(strategy.get("backoff"), ("duration", "factor", "cap"), "backoff", place)
    if backoff.get("duration"):
        start = str(backoff["duration"])
        factor = 1 if backoff.get("factor") is None else whole_number(backoff["factor"])
        if factor is None:
            what = place.of(strategy, "backoff")
            listing.cannot("backoff factor", _no_number(backoff["factor"]), what, "write a whole number")
        longest = {"max": str(backoff["cap"])} if backoff.get("cap") else {}
        start = start if whole_number(start) is None else f"{start}s"
        found["backoff"] = {"start": start, "factor": factor or 1, **longest}
    if mapping(given.get("affinity")).get("nodeAntiAffinity") is not None:
        found["other_node"] = True
    return found if len(listing.found) == before else None


def _no_number(given: Any) -> str:
    return "the number is only known in the run" if "{{" in str(given) else f'"{given}" is no whole number'


def refuse_artifacts(
    owner: Mapping[str, Any], listing: Unsupported, place: Place, hint: str | None = None, what: str = "artifact"
) -> None:
    """List the artifacts of a template's inputs or outputs, or of a call's arguments."""
    for each in maps(owner.get("artifacts")):
        why = "Argo's artifact repository has no word in a pipeline"
        listing.cannot(f"{what} {each.get('name')}", why, place.of(each), hint)


def metric_fields(metrics: Any, listing: Unsupported, place: Place) -> list[dict[str, Any]]:
    """The metrics of a workflow or of a template."""
    found = []
    listing.fields(metrics, ("prometheus",), "metrics", place)
    for each in maps(mapping(metrics).get("prometheus")):
        listing.fields(each, ("name", "help", "labels", "when", "counter", "gauge", "histogram"), "metric", place)
        given = plain_value(each)
        metric = {key: given[key] for key in ("name", "help", "when", "gauge") if given.get(key)}
        if given.get("labels"):
            metric["labels"] = {str(pair.get("key")): str(pair.get("value")) for pair in maps(given["labels"])}
        if given.get("counter"):
            metric["counter"] = str(mapping(given["counter"]).get("value"))
        if given.get("histogram"):
            histogram = mapping(given["histogram"])
            metric["histogram"] = {"value": str(histogram.get("value")), "buckets": histogram.get("buckets") or []}
        found.append(metric)
    return found


TEMPLATE_OF_POD = (
    "affinity", "automountServiceAccountToken", "hostAliases", "initContainers", "nodeSelector", "priorityClassName",
    "schedulerName", "securityContext", "serviceAccountName", "tolerations", "volumes",
)  # fmt: skip
"""Fields of a template that are the pod's."""
WORKFLOW_OF_POD = (
    "affinity", "automountServiceAccountToken", "dnsConfig", "dnsPolicy", "hostAliases", "hostNetwork",
    "imagePullSecrets", "nodeSelector", "podPriorityClassName", "schedulerName", "securityContext",
    "serviceAccountName", "tolerations",
)  # fmt: skip
"""Fields of a workflow that are every pod's, unless its template says otherwise."""
LEAF = (
    *TEMPLATE_OF_POD, "name", "inputs", "outputs", "container", "script", "metadata", "retryStrategy", "sidecars",
    "activeDeadlineSeconds", "podSpecPatch", "metrics", "archiveLocation",
)  # fmt: skip


NOT_GIVEN, GIVE_IT = "it is in none of the files given", "name the file that holds it as well"


@dataclass
class Importer:
    """What all templates of one import share."""

    workflow: Workflow
    """The workflow that runs."""
    spec: Mapping[str, Any]
    """Its fields, where they stand in one document with their places."""
    library: Library
    site: Site
    listing: Unsupported
    claims: dict[str, str] = field(default_factory=dict)

    def place_of(self, template: Template) -> Place:
        document = template.workflow.document
        return Place(document, Place(document).of(template.tree))

    def find(self, call: Mapping[str, Any], within: Workflow, where: Where) -> Template | None:
        """The template that a task or step calls."""
        found = template_of(call, within, (), self.library, str)
        if not found.is_given:
            self.listing.cannot(str(found.owner), NOT_GIVEN, where, GIVE_IT, TEMPLATE)
        elif found.template is None:
            self.listing.cannot(f"template {found.wanted or None}", "there is none of that name", where, None, TEMPLATE)
        elif self.listing.has_wrong_shapes(found.template.workflow.document):
            return None
        return found.template

    def step(self, template: Template, scope: Scope) -> Step:
        """A container or a script as a step."""
        before = len(self.listing.found)
        tree, place, listing = self._with_defaults(template), self.place_of(template), self.listing
        script = tree.get("script")
        main: Mapping[str, Any] = mapping(script if script is not None else tree.get("container"))
        listing.fields(tree, LEAF, "template", place, HINTS)
        names = {"podPriorityClassName": "priorityClassName"}
        spec = {names.get(key, key): self.spec[key] for key in WORKFLOW_OF_POD if self.spec.get(key) is not None}
        volumes = [*(self.spec.get("volumes") or ()), *(tree.get("volumes") or ())]
        aliases = [*(self.spec.get("hostAliases") or ()), *(tree.get("hostAliases") or ())]
        spec |= {key: tree[key] for key in TEMPLATE_OF_POD if tree.get(key) not in (None, [], {})}
        if aliases:
            spec["hostAliases"] = aliases
        if volumes:
            spec["volumes"] = volumes
        helpers = [*(tree.get("initContainers") or ()), *map(_as_sidecar, tree.get("sidecars") or ())]
        if helpers:
            spec["initContainers"] = [_with_main_mounts(each, main) for each in helpers]
        if tree.get("activeDeadlineSeconds") is not None:
            spec["activeDeadlineSeconds"] = tree["activeDeadlineSeconds"]
        main = {key: value for key, value in main.items() if key != "source"} if script is not None else main
        if script is not None and "name" not in script:
            main = _with_positions(main, script)
        reader = PodReader(listing, place, self.site, scope, self.claims)
        for owner in (self.spec, tree):
            spec, main = self._apply_pod_patch(owner.get("podSpecPatch"), owner, spec, main, reader)
        main, spec, outputs = without_supervisor(main, spec, listing, place)
        source = None if script is None else script.get("source", "")
        step = reader.step(spec, main, mapping(tree.get("metadata")), source)
        step.where = place.of(template.tree)
        self._retry(tree, step, place)
        self._outputs(tree, step, place, reader)
        if outputs is not None:
            for name, output in outputs.items():
                said = step.words.get("outputs", {}).get(name, {})
                output |= {"default": said["default"]} if "default" in said else {}
            step.words["outputs"] = outputs
        self._artifacts(tree, place)
        self._template_options(tree, step, place)
        step.sound = len(listing.found) == before
        return step

    def _with_defaults(self, template: Template) -> Mapping[str, Any]:
        """The template with `templateDefaults`, which Argo merges below it."""
        if not self.workflow.defaults:
            return template.tree
        try:
            merged = self.workflow.with_defaults(template)
        except (BadPatch, TypeError, AttributeError) as refusal:
            where = self.workflow.where("templateDefaults")
            self.listing.cannot("templateDefaults", f"they cannot be merged: {refusal}", where)
            return template.tree
        found: Mapping[str, Any] = _with_positions(merged, template.tree)
        return found

    def _apply_pod_patch(
        self, patch: Any, owner: Mapping[str, Any], spec: dict[str, Any], main: Any, reader: PodReader
    ) -> tuple[dict[str, Any], Any]:
        """The pod after `podSpecPatch`, which Argo merges into it."""
        if not patch:
            return spec, main
        where = reader.place.of(owner, "podSpecPatch")
        text = reader.value(str(patch), owner, "podSpecPatch")
        try:
            given = yaml_tree.parse(text, "podSpecPatch")
            if not isinstance(given, Mapping):
                raise BadPatch("it is not a map")
            pod = strategic_merge_map_patch(
                {"spec": {**plain_value(spec), "containers": [{**plain_value(main), "name": "main"}]}},
                {"spec": plain_value(given)},
            )
        except (GpuflowError, BadPatch) as refusal:
            self.listing.cannot("podSpecPatch", f"it cannot be applied: {refusal}", where)
            return spec, main
        containers = {each.get("name"): each for each in pod["spec"].pop("containers")}
        own = containers.pop("main")
        if containers:
            self.listing.cannot("podSpecPatch", f"it changes the containers {', '.join(map(str, containers))}", where)
        return pod["spec"], own

    def _retry(self, tree: Mapping[str, Any], step: Step, place: Place) -> None:
        strategy = tree.get("retryStrategy") or self.spec.get("retryStrategy")
        if isinstance(strategy, Mapping):
            words = retry_fields(strategy, self.listing, place)
            if words:
                step.words["retry"] = words["any"] if set(words) == {"any"} else words

    def _outputs(self, tree: Mapping[str, Any], step: Step, place: Place, reader: PodReader) -> None:
        outputs: dict[str, Any] = {}
        for each in maps(mapping(tree.get("outputs")).get("parameters")):
            source = mapping(each.get("valueFrom"))
            self.listing.fields(each, ("name", "valueFrom", "description"), "output", place)
            if not source.get("path"):
                kinds = ", ".join(source) or "no value"
                hint = "write it to a file, and name the file: valueFrom: {path: …}"
                text = f"output {each.get('name')}"
                self.listing.cannot(text, f"it comes from {kinds}, not from a file", place.of(each), hint)
                continue
            self.listing.fields(source, ("path", "default"), "valueFrom", place)
            output = {"type": "string", "path": reader.plain_field(source, "path")}
            if source.get("default") is not None:
                output["default"] = str(reader.plain_field(source, "default"))
            outputs[identifier(str(each.get("name")), outputs)] = output
        if outputs:
            step.words["outputs"] = outputs
        self.listing.fields(tree.get("outputs"), ("parameters", "artifacts"), "outputs", place)

    def _artifacts(self, tree: Mapping[str, Any], place: Place) -> None:
        hint = "write an output of type file or directory with its uri, and read it with inputs"
        for side in ("inputs", "outputs"):
            refuse_artifacts(mapping(tree.get(side)), self.listing, place, hint, f"{side} artifact")

    def _template_options(self, tree: Mapping[str, Any], step: Step, place: Place) -> None:
        location = mapping(tree.get("archiveLocation"))
        self.listing.fields(location, ("archiveLogs",), "archiveLocation", place)
        words: dict[str, Any] = {}
        if location.get("archiveLogs") is not None:
            words["archive_logs"] = plain_value(location["archiveLogs"])
        if metrics := metric_fields(tree.get("metrics"), self.listing, place):
            words["metrics"] = metrics
        if words:
            step.words["engines"] = {"argo": words}


HINTS = {
    "timeout": "write activeDeadlineSeconds, which counts from the pod's start",
    "synchronization": "use a Kueue queue, or compile --semaphores",
    "memoize": "write cache: true in the step",
    "daemon": "run it as a Deployment, or as a sidecar of the step that needs it",
    "parallelism": "write parallel in the step that has the loop",
}


def _with_positions(tree: Any, like: Any) -> Any:
    """The map with the places of another, and those in it too, so that messages know the line."""
    if not isinstance(like, yaml_tree.Map) or not isinstance(tree, Mapping):
        return tree
    found = yaml_tree.Map(like.spot)
    found.update({key: _with_positions(each, like.get(key)) for key, each in tree.items()})
    found.key_at, found.value_at = like.key_at, like.value_at
    return found


def _with_main_mounts(container: Mapping[str, Any], main: Any) -> Any:
    """`mirrorVolumeMounts`: the container has the mounts of the program too."""
    if not container.get("mirrorVolumeMounts"):
        return container
    mounts = [*(container.get("volumeMounts") or ()), *(mapping(main).get("volumeMounts") or ())]
    rest = {key: value for key, value in container.items() if key != "mirrorVolumeMounts"}
    return _with_positions({**rest, **({"volumeMounts": mounts} if mounts else {})}, container)


def _as_sidecar(container: Mapping[str, Any]) -> Any:
    return _with_positions({**container, "restartPolicy": "Always"}, container)
