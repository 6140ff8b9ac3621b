"""A Workflow, WorkflowTemplate or CronWorkflow of Argo as the document of a pipeline.

Templates that call others, `steps` and `dag`, as the steps of a pipeline.

`when` and `depends` are taken as far as a pipeline says the same. `withItems`, `withParam` and `withSequence` become
`for_each`, or one step for each item.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuflow.core.errors import Where
from gpuflow.formats.argo import LOOPS, TYPES, Template, sequence_of, workflow_of
from gpuflow.formats.documents import Document, Library
from gpuflow.formats.nodes import mapping, maps, plain_value
from gpuflow.importing.argo.templates import (
    GIVE_IT,
    NOT_GIVEN,
    WORKFLOW_OF_POD,
    AnyItem,
    Importer,
    Scope,
    metric_fields,
    refuse_artifacts,
)
from gpuflow.importing.pipelines import Draft, Handing, identifier, in_order, label, object_metadata, read_schedule
from gpuflow.importing.pods import (
    TAG_HINT,
    Lookup,
    Parts,
    condition_in_words,
    fill_tags,
    operand,
    plain_text,
    scalar_text,
)
from gpuflow.importing.unsupported import TAG, TEMPLATE, Place, Unsupported
from gpuflow.site import Site
from gpuflow.spec.names import LABEL_PREFIX

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<tag>\{\{.*?\}\})
    | (?P<quoted>'[^']*'|"[^"]*")
    | (?P<op>==|!=|&&|\|\||\(|\))
    | (?P<word>[\w./-]+)
    )""",
    re.VERBOSE,
)
_STATUS = re.compile(
    r"\s*(?:\{\{\s*workflow\.status\s*\}\}|\"\{\{\s*workflow\.status\s*\}\}\")\s*(==|!=)\s*\"?Succeeded\"?\s*"
)


def condition(text: str, lookup: Lookup) -> str | None:
    """Argo's `when` as a condition of a pipeline; None when it says more than comparisons of texts."""

    def word_of(match: re.Match[str]) -> str | None:
        quoted = match["quoted"]
        tag = match["tag"] or (quoted and re.fullmatch(r"\{\{.*?\}\}", quoted[1:-1]) and quoted[1:-1])
        if match["op"]:
            return {"&&": "and", "||": "or"}.get(match["op"], match["op"])
        return (
            operand(lookup(tag[2:-2].strip()), json.dumps)
            if tag
            else json.dumps(quoted[1:-1] if quoted else match["word"])
        )

    return condition_in_words(_simple_tag(text.strip()), _TOKEN, word_of)


def _simple_tag(text: str) -> str:
    """`{{= inputs.parameters['x'] == 'yes'}}` with the tags that the other form has; anything else as it is."""
    expression = re.fullmatch(r"\{\{=(.*)\}\}", text, re.DOTALL)
    if expression is None:
        return text
    names = r"((?:inputs|workflow)\.parameters|(?:steps|tasks)(?:\.\w+|\[['\"][^'\"]+['\"]\])\.outputs\.parameters)"
    return re.sub(rf"{names}(\.\w+|\[['\"][^'\"]+['\"]\])", _as_tag, expression[1])


def _as_tag(match: re.Match[str]) -> str:
    return "{{" + re.sub(r"\[['\"]([^'\"]+)['\"]\]", r".\1", match[0]) + "}}"


def exit_status_of(text: str) -> str | None:
    """How a run must have ended for an exit step; None when `when` asks something else."""
    match = _STATUS.fullmatch(text)
    return None if match is None else {"==": "success", "!=": "failure"}[match[1]]


def needs(task: Mapping[str, Any], skippable: set[str]) -> tuple[list[str], bool] | None:
    """The tasks that one waits for, and whether it also runs when they were skipped. None: more than that."""
    if task.get("dependencies"):
        found = [str(name) for name in task["dependencies"]]
        return found, bool(skippable & set(found))
    text = str(task.get("depends") or "")
    bare: set[str] = set()
    done: set[str] = set()
    if "&&" not in text and "||" in text and not text.startswith("("):
        text = f"({text})"
    for term in (part.strip() for part in text.split("&&") if part.strip()):
        own = re.fullmatch(r"([A-Za-z0-9_-]+)(?:\.(Succeeded))?", term)
        either = re.fullmatch(r"\(([\w-]+)\.Succeeded \|\| \1\.Skipped(?: \|\| \1\.(?:Omitted|Daemoned))?\)", term)
        if either:
            bare.add(either[1])
        elif own:
            (done if own[2] else bare).add(own[1])
        else:
            return None
    if bare & skippable and done & skippable:
        return None
    order = re.findall(r"[A-Za-z0-9_-]+", text)
    return list(dict.fromkeys(name for name in order if name in bare | done)), bool(bare & skippable)


ITEM = "item"
MOST_UNROLLED = 50
"""So many items become steps of their own; more than that is no longer a pipeline that somebody reads."""


@dataclass(frozen=True)
class Loop:
    source: Any
    """What stands in `for_each`."""
    items: list[Any] | None = None
    """The items, where they are written."""


def loop_of(task: Mapping[str, Any], scope: Any, listing: Unsupported, place: Place) -> Loop | None:
    """The loop of a task; None when it has none, or one that is listed."""
    kind = next((key for key in LOOPS if task.get(key) is not None), None)
    if kind is None:
        return None
    if kind == "withItems":
        written = [_filled_item(item, scope, task, listing, place) for item in plain_value(task[kind])]
        return Loop(written, written)
    if kind == "withSequence":
        return _sequence(task, scope, listing, place)
    parts, lost = fill_tags(str(task[kind]), scope)
    text = plain_text(parts)
    if text is not None and not lost:
        try:
            items = json.loads(text)
        except ValueError:
            items = None
        if isinstance(items, list):
            return Loop(items, items)
    if len(parts) == 1 and isinstance(parts[0], dict) and set(parts[0]) & {"param", "output"}:
        scope.draft.as_json(parts[0])
        return Loop(parts[0])
    where = place.of(task, kind)
    listing.cannot(f"withParam {task[kind]}", "it is neither a parameter nor an output that a step declares", where)
    return None


def _filled_item(item: Any, scope: Any, task: Mapping[str, Any], listing: Unsupported, place: Place) -> Any:
    if isinstance(item, dict):
        return {key: _filled_item(value, scope, task, listing, place) for key, value in item.items()}
    if not isinstance(item, str) or "{{" not in item:
        return item
    parts, lost = fill_tags(item, scope)
    text = plain_text(parts)
    if lost or text is None:
        listing.cannot(f"item {item}", "an item of a list is no reference", place.of(task, "withItems"))
        return item
    return text


def _sequence(task: Mapping[str, Any], scope: Any, listing: Unsupported, place: Place) -> Loop | None:
    where = place.of(task, "withSequence")
    listing.fields(task["withSequence"], ("start", "end", "count", "format"), "withSequence", place)
    given = plain_value(task["withSequence"])
    numbers: dict[str, int] = {}
    for key in ("start", "end", "count"):
        if given.get(key) is None:
            continue
        text = plain_text(fill_tags(str(given[key]), scope)[0])
        try:
            numbers[key] = int(text or "")
        except ValueError:
            listing.cannot(f"withSequence {key}", "only the run knows the number", where, "use a list: withParam")
            return None
    counted = sequence_of(numbers)
    if not counted or counted.step < 0:
        listing.cannot("withSequence", "it counts down, or is empty", where, "write the numbers out: withItems")
        return None
    form = given.get("format")
    if form is None:
        start, stop = counted.start, counted.stop
        return Loop({"range": {"start": start, "stop": stop} if start else stop})
    if counted.stop - counted.start > 1000:
        listing.cannot("withSequence format", "a range has no format, and the list is too long", where)
        return None
    try:
        items = [form % number for number in counted]
        return Loop(items, items)
    except (TypeError, ValueError):
        listing.cannot("withSequence format", f"{form} is not understood", where, "write the items out: withItems")
        return None


def literal_item(item: Any) -> Parts | dict[str, Any]:
    """What {{item}} is for one item that is a step of its own."""
    if isinstance(item, dict):
        return {str(key): (_loop_text(value),) for key, value in item.items()}
    return (_loop_text(item),)


def _loop_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


CALL = ("name", "template", "templateRef", "inline", "arguments", "when", "withItems", "withParam", "withSequence")
TASK = (*CALL, "depends", "dependencies")
FLOW_FIELDS = ("name", "inputs", "outputs", "steps", "dag", "parallelism", "metadata")
CALL_HINTS = {
    "continueOn": "a pipeline stops where a step fails; let the program end with 0 where that is fine",
    "hooks": "write exit: {…} for what runs at the end",
    "onExit": "write exit: {…} for what runs at the end of the run",
}


class Graph:
    """Fills one draft from one template."""

    def __init__(
        self, importer: Importer, draft: Draft, scope: Scope, template: Template, stack: tuple[Any, ...]
    ) -> None:
        self.importer, self.draft, self.scope, self.template, self.stack = importer, draft, scope, template, stack
        self.place = importer.place_of(template)
        self.listing = importer.listing
        self.made: dict[str, list[str]] = {}
        """The steps that a task became: several when its items are steps of their own."""

    def fill(self) -> None:
        """All steps of the template."""
        tree = self.template.tree
        self.listing.fields(tree, FLOW_FIELDS, "template", self.place)
        if tree.get("parallelism") is not None:
            least = self.draft.head.get("parallel")
            own = int(tree["parallelism"])
            self.draft.head["parallel"] = own if least is None else min(own, least)
        if self.template.type == "steps":
            self._steps(tree["steps"])
        else:
            self.listing.fields(tree["dag"], ("tasks",), "dag", self.place)
            self._dag(tree["dag"].get("tasks") or ())
        self._outputs(tree)

    def _steps(self, groups: Any) -> None:
        before: list[str] = []
        maybe = False
        for group in groups:
            calls = [each for each in group or () if isinstance(each, Mapping)] if isinstance(group, list) else []
            now: list[str] = []
            for call in calls:
                self.listing.fields(call, CALL, "step", self.place, CALL_HINTS)
                self._call(call, before, run_anyway=maybe)
                now += self.made.get(str(call.get("name")), [])
            maybe = any(call.get("when") for call in calls)
            before = now or before

    def _dag(self, tasks: Any) -> None:
        listed = {str(task.get("name")): task for task in tasks if isinstance(task, Mapping)}
        skippable = {name for name, task in listed.items() if task.get("when")}
        known = {name: needs(task, skippable) for name, task in listed.items()}
        for name in in_order({name: [] if waits is None else waits[0] for name, waits in known.items()}):
            task, waits = listed[name], known[name]
            self.listing.fields(task, TASK, "task", self.place, CALL_HINTS)
            if waits is None:
                hint = "a pipeline waits for steps that succeeded, or that were skipped; not for those that failed"
                self.listing.cannot(
                    f"depends {task.get('depends')}", "no needs says it", self.place.of(task, "depends"), hint
                )
                waits = ([], False)
            before = [step for need in waits[0] for step in self.made.get(need, [])]
            self._call(task, before, run_anyway=waits[1])

    # -------------------------------------------------------------------- calls

    def _call(self, call: Mapping[str, Any], before: list[str], *, run_anyway: bool) -> None:
        where = self.place.of(call)
        name = str(call.get("name"))
        if not self.listing.has_room(f"template {self.template.name}", where):
            return
        template = self.importer.find(call, self.template.workflow, where)
        if template is None:
            self.scope.refused.add(name)
            return
        before_loop = len(self.listing.found)
        loop = loop_of(call, self.scope, self.listing, self.place)
        if len(self.listing.found) > before_loop:
            self._step(call, template, self.scope.with_item(AnyItem()))  # what else cannot be said
            self.scope.refused.add(name)
            return
        shared: dict[str, Any] = {"needs": before} if before else {}
        if run_anyway:
            shared["if_skipped"] = "run"
        if loop is None or not any(isinstance(item, dict | list) for item in loop.items or ()):
            known = len(self.listing.found)
            step = self._step(call, template, self.scope.with_item(({"item": ITEM},)) if loop else self.scope)
            few = loop is not None and loop.items is not None and len(loop.items) <= MOST_UNROLLED
            if step is not None and (len(self.listing.found) == known or not few):
                if loop is not None:
                    step["for_each"] = {ITEM: loop.source}
                step.update(shared)
                self._add(name, name, step)
                return
            if not few:
                self.scope.refused.add(name)
                return
            del self.listing.found[known:]  # where an item is no text, each is a step of its own
        assert loop is not None
        self._unroll_loop(call, template, loop, shared, where)

    def _unroll_loop(self, call: Mapping[str, Any], template: Template, loop: Loop, shared: Any, where: Any) -> None:
        name = str(call.get("name"))
        if loop.items is None or len(loop.items) > MOST_UNROLLED:
            self.listing.cannot(f"loop of {name}", "its items are maps, and there are too many for steps", where)
            return
        for index, item in enumerate(loop.items):
            if isinstance(item, list):
                self.listing.cannot(f"item {item}", "a list in a list is no text", where)
            step = self._step(call, template, self.scope.with_item(literal_item(item)))
            if step is not None:
                step.update(shared)
                self._add(name, f"{name}-{index}", step)
        self.listing.note(f"{name}: each of its {len(loop.items)} items is a step of its own", where)

    def _add(self, call: str, name: str, step: dict[str, Any]) -> None:
        title = label(name, self.draft.steps)
        self.draft.steps[title] = step
        self.made.setdefault(call, []).append(title)
        if len(self.made[call]) == 1:
            self.scope.names[call] = title
        else:
            self.scope.names.pop(call, None)  # what several steps wrote is no longer one output

    def _step(self, call: Mapping[str, Any], template: Template, scope: Scope) -> dict[str, Any] | None:
        return self.step(call, template, self.inputs(call, template, scope), scope)

    def step(
        self, call: Mapping[str, Any], template: Template, inner: Scope, scope: Scope | None = None
    ) -> dict[str, Any] | None:
        """One call as the fields of a step: what the template sees, and what the call itself does."""
        scope = scope or inner
        step: dict[str, Any]
        if template.type in ("container", "script"):
            made = self.importer.step(template, inner)
            self.draft.pods.append(made)
            step = made.words
        elif template.type == "suspend":
            self.listing.fields(
                template.tree, ("name", "inputs", "suspend"), "template", self.importer.place_of(template)
            )
            self.listing.fields(template.tree["suspend"], (), "suspend", self.importer.place_of(template), SUSPEND)
            step = {"approval": f"Resume {call.get('name')}?"}
        elif template.type in ("steps", "dag"):
            nested = self._sub_pipeline(call, template, inner, scope)
            if nested is None:
                return None
            step = nested
        else:
            where = self.importer.place_of(template).of(template.tree, template.type)
            many = any(template.tree.get(each) is not None for each in TYPES)
            what = template.type or f"template {'that is several things' if many else 'without anything to run'}"
            self.listing.cannot(
                what, TYPE_REASONS.get(template.type or "", "a pipeline has no word for it"), where, RUN_IT
            )
            return None
        if call.get("when"):
            text = str(call["when"])
            found = condition(text, scope)
            if found is None:
                why = "no condition of a pipeline says it"
                hint = "conditions compare parameters, outputs and items with texts: params.x == 'yes'"
                self.listing.cannot(f"when {text}", why, self.place.of(call, "when"), hint, TAG)
            else:
                step["when"] = found
        return step

    def inputs(
        self, call: Mapping[str, Any], template: Template, scope: Scope, direct: Mapping[str, Parts] | None = None
    ) -> Scope:
        """The scope of a template that is called, with the values of its inputs in the words of the caller.

        `direct`: values that it gets without being called, as the entrypoint does.
        """
        arguments = mapping(call.get("arguments"))
        self.listing.fields(arguments, ("parameters", "artifacts"), "arguments", self.place)
        given: dict[str, Parts] = dict(direct or {})
        for each in maps(arguments.get("parameters")):
            self.listing.fields(each, ("name", "value"), "argument", self.place)
            given[str(each.get("name"))] = self._fill_tags(each.get("value"), scope, self.place.of(each, "value"))
        refuse_artifacts(arguments, self.listing, self.place)
        place = self.importer.place_of(template)
        declared = mapping(template.tree.get("inputs"))
        self.listing.fields(declared, ("parameters", "artifacts"), "inputs", place)
        found: dict[str, Parts] = {}
        for each in maps(declared.get("parameters")):
            name = str(each.get("name"))
            self.listing.fields(each, ("name", "value", "default", "description", "enum"), "input", place)
            if name in given:
                found[name] = given[name]
            elif each.get("value", each.get("default")) is not None:
                found[name] = self._fill_tags(each.get("value", each.get("default")), scope, place.of(each))
            elif each.get("valueFrom") is None:
                hint = "give it a value where the template is called, or a default"
                self.listing.cannot(f"input {name}", "nothing gives it a value", place.of(each), hint)
        leaf = template.type in ("container", "script")
        return Scope(scope.draft, found, scope.names if leaf else {}, outer=scope.outer, refused=scope.refused)

    def _fill_tags(self, value: Any, scope: Scope, where: Where) -> Parts:
        parts, lost = fill_tags("" if value is None else scalar_text(value), scope)
        for tag in lost:
            self.listing.cannot(tag, "no reference of a pipeline says it", where, TAG_HINT, TAG)
        return parts

    # ------------------------------------------------------------ sub-pipelines

    def _sub_pipeline(
        self, call: Mapping[str, Any], template: Template, inner: Scope, scope: Scope
    ) -> dict[str, Any] | None:
        identity = id(template.tree)
        if identity in self.stack:
            why = "it calls itself, and a pipeline has no recursion"
            where = self.place.of(call)
            self.listing.cannot(f"template {template.name}", why, where, "use a loop: for_each", TEMPLATE)
            return None
        handed = Handing(Draft())

        def outer(name: str) -> Parts | None:
            value = scope.outer(name) if scope.outer else None
            return None if value is None else handed(name, value)

        inputs = {name: handed(name, parts) for name, parts in inner.inputs.items()}
        own = Scope(handed.sub, inputs, {}, outer=outer)
        Graph(self.importer, handed.sub, own, template, (*self.stack, identity)).fill()
        return handed.step(str(call.get("name")), self.draft)

    def _outputs(self, tree: Mapping[str, Any]) -> None:
        outputs = tree.get("outputs")
        if not isinstance(outputs, Mapping):
            return
        for each in maps(outputs.get("parameters")):
            source = mapping(each.get("valueFrom"))
            parts, lost = fill_tags(str(source.get("parameter") or ""), self.scope)
            if lost or len(parts) != 1 or not isinstance(parts[0], dict) or "output" not in parts[0]:
                why = "it is not the output of one step"
                self.listing.cannot(f"output {each.get('name')}", why, self.place.of(each, "valueFrom"), code=TAG)
                continue
            self.draft.outputs[identifier(str(each.get("name")), self.draft.outputs)] = parts[0]
        refuse_artifacts(outputs, self.listing, self.place)

    # --------------------------------------------------------------------- exit

    def exit_steps(self, template: Template) -> dict[str, dict[str, Any]]:
        """The steps of an exit handler: they run at once, each by how the run ended."""
        if template.type in ("container", "script"):
            made = self.importer.step(template, self.scope)
            self.draft.pods.append(made)
            return {label(template.name, self.draft.steps): made.words}
        self.listing.fields(template.tree, FLOW_FIELDS, "template", self.importer.place_of(template))
        calls: list[Mapping[str, Any]] = []
        if template.type == "steps":
            groups = [group for group in template.tree["steps"] if group]
            calls = [each for group in groups for each in group if isinstance(each, Mapping)]
            if len(groups) > 1:
                why = "its steps run one after another, and exit steps all run at once"
                where = self.importer.place_of(template).of(template.tree, "steps")
                self.listing.cannot(f"exit handler {template.name}", why, where, "make it one step")
        elif template.type == "dag":
            calls = [each for each in template.tree["dag"].get("tasks") or () if isinstance(each, Mapping)]
        else:
            where = self.importer.place_of(template).of(template.tree)
            self.listing.cannot(f"exit handler {template.name}", "it runs no container", where, RUN_IT)
        found: dict[str, dict[str, Any]] = {}
        for call in calls:
            self.listing.fields(call, CALL[:6], "exit step", self.place, CALL_HINTS)
            inner = self.importer.find(call, template.workflow, self.place.of(call))
            if inner is None:
                continue
            on = exit_status_of(str(call["when"])) if call.get("when") else None
            plain_call = {key: value for key, value in call.items() if key != "when" or on is None}
            step = self._step(plain_call, inner, self.scope)
            if step is not None:
                step.update({"on": on} if on else {})
                found[label(str(call.get("name")), (*self.draft.steps, *found))] = step
        return found


SUSPEND = {"duration": "let a step wait: command: [sleep, '60']"}
RUN_IT = "run a container that does it"
TYPE_REASONS = {
    "resource": "a step runs a container; it creates no other objects",
    "http": "a step runs a container; it sends no requests by itself",
    "containerSet": "a step has one program; others are its sidecars",
}


SPEC = (
    *WORKFLOW_OF_POD, "entrypoint", "arguments", "templates", "onExit", "parallelism", "activeDeadlineSeconds",
    "volumes", "volumeClaimTemplates", "volumeClaimGC", "podGC", "ttlStrategy", "archiveLogs", "priority",
    "podMetadata", "hooks", "metrics",
    "templateDefaults", "retryStrategy", "podSpecPatch", "workflowMetadata", "workflowTemplateRef",
)  # fmt: skip
HINTS = {
    "synchronization": "use a Kueue queue, or compile --semaphores",
    "artifactRepositoryRef": "outputs of type file and directory name their own uri",
    "podDisruptionBudget": "make one for the label gpuflow.dev/pipeline",
    "executor": "the site says it: engines.argo.executor",
}
CRON = (
    "schedule", "schedules", "timezone", "concurrencyPolicy", "suspend", "successfulJobsHistoryLimit",
    "failedJobsHistoryLimit", "workflowSpec", "workflowMetadata", "startingDeadlineSeconds",
)  # fmt: skip


def pipeline_of(document: Document, library: Library, site: Site, listing: Unsupported) -> Draft:
    place = Place(document)
    outer = mapping(document.tree.get("spec"))
    workflow = workflow_of(document, library)
    spec = workflow.own
    draft = Draft()
    _metadata(document, outer, draft, listing, place)
    if document.kind == "CronWorkflow":
        _schedule(outer, draft, listing, place, site)
    if workflow.missing is not None:
        where = place.of(spec, "workflowTemplateRef")
        listing.cannot(workflow.missing, NOT_GIVEN, where, GIVE_IT, TEMPLATE)
        return draft
    if workflow.behind is not None:
        if listing.has_wrong_shapes(workflow.behind.document):
            return draft
        listing.fields(spec, ("workflowTemplateRef", "arguments", "entrypoint"), "spec", place, HINTS)
        spec, place = workflow.tree, Place(workflow.behind.document)
    listing.fields(spec, SPEC, "spec", place, HINTS)
    listing.fields(spec.get("templateDefaults"), DEFAULTS, "templateDefaults", place)
    importer = Importer(workflow, spec, library, site, listing)
    _claims(spec, draft, importer, place)
    known = _params(spec, draft, listing, place)
    _engine_options(spec, draft, listing, place)
    scope = Scope(draft, outer=known.get)
    if not spec.get("entrypoint"):
        listing.cannot("entrypoint", "no template is named to start with", place.of(spec), "name one: entrypoint: …")
        return draft
    entry = importer.find({"template": spec["entrypoint"]}, workflow, place.of(spec, "entrypoint"))
    if spec.get("parallelism") is not None:
        draft.head["parallel"] = plain_value(spec["parallelism"])
    if entry is not None:
        graph = Graph(importer, draft, scope, entry, (id(entry.tree),))
        declared = [str(each.get("name")) for each in maps(mapping(entry.tree.get("inputs")).get("parameters"))]
        filled = {name: known[name] for name in declared if name in known}  # the workflow's arguments fill them
        graph.scope = graph.inputs({"name": entry.name}, entry, scope, filled)
        if entry.type in ("steps", "dag"):
            graph.fill()
        elif (step := graph.step({"name": entry.name}, entry, graph.scope)) is not None:
            draft.steps[label(entry.name, ())] = step
        last = spec.get("onExit") or mapping(mapping(spec.get("hooks")).get("exit")).get("template")
        if last and (ending := importer.find({"template": last}, workflow, place.of(spec, "onExit"))) is not None:
            after = Graph(importer, draft, scope, ending, (id(ending.tree),))
            draft.exit = after.exit_steps(ending)
    return draft


def _metadata(document: Document, outer: Mapping[str, Any], draft: Draft, listing: Unsupported, place: Place) -> None:
    metadata = object_metadata(document, listing, place)
    draft.head["name"] = label(document.name, ())
    own = mapping(outer.get("workflowMetadata"))
    listing.fields(own, ("labels", "annotations"), "workflowMetadata", place)
    labels = {**mapping(metadata.get("labels")), **mapping(own.get("labels"))}
    labels = {key: value for key, value in labels.items() if not str(key).startswith(LABEL_PREFIX)}
    if labels:
        draft.head["labels"] = {str(key): str(plain_value(value)) for key, value in labels.items()}
        listing.note("labels of the object stand on its pods as well", place.of(metadata, "labels"))
    annotations = {**mapping(metadata.get("annotations")), **mapping(own.get("annotations"))}
    annotations = {str(key): str(plain_value(value)) for key, value in annotations.items()}
    if description := annotations.pop("workflows.argoproj.io/description", None):
        draft.head["description"] = description.strip()
    if annotations:
        draft.argo["annotations"] = annotations


def _schedule(outer: Mapping[str, Any], draft: Draft, listing: Unsupported, place: Place, site: Site) -> None:
    listing.fields(outer, CRON, "spec", place, {"when": "let the first step decide", "stopStrategy": "suspend it"})
    crons = [*([outer["schedule"]] if outer.get("schedule") else []), *(outer.get("schedules") or ())]
    if len(crons) != 1:
        listing.cannot(
            "schedules", f"a pipeline has one schedule, and these are {len(crons)}", place.of(outer, "schedules")
        )
        return
    read_schedule(outer, crons[0], outer.get("timezone"), draft, site, listing, place)


def _claims(spec: Mapping[str, Any], draft: Draft, importer: Importer, place: Place) -> None:
    claims: dict[str, Any] = {}
    for each in maps(spec.get("volumeClaimTemplates")):
        name = str(mapping(each.get("metadata")).get("name"))
        own = plain_value(mapping(each.get("spec")))
        importer.listing.fields(each, ("apiVersion", "kind", "metadata", "spec", "status"), "claim", place)
        importer.listing.fields(each.get("metadata"), ("name", "creationTimestamp"), "claim", place)
        importer.listing.fields(mapping(each.get("spec")).get("resources"), ("requests",), "claim resources", place)
        importer.listing.fields(each.get("spec"), ("accessModes", "resources", "storageClassName"), "claim", place)
        modes = own.get("accessModes") or ["ReadWriteOnce"]
        if len(modes) != 1:
            importer.listing.cannot(f"claim {name}", "it has several access modes", place.of(each))
        title = label(name, claims, 40)
        size = mapping(mapping(own.get("resources")).get("requests")).get("storage")
        claims[title] = {"size": str(size), "access": modes[0]}
        if own.get("storageClassName"):
            claims[title]["storage_class"] = own["storageClassName"]
        importer.claims[name] = title
    if claims:
        draft.head["claims"] = claims
    strategy = mapping(spec.get("volumeClaimGC")).get("strategy")
    if strategy not in (None, "OnWorkflowCompletion"):
        hint = "delete the claims of failed runs too, or name claims that exist"
        importer.listing.cannot(
            f"volumeClaimGC {strategy}", "claims are deleted with the run", place.of(spec, "volumeClaimGC"), hint
        )


def _params(spec: Mapping[str, Any], draft: Draft, listing: Unsupported, place: Place) -> dict[str, Parts]:
    """The workflow's parameters, and what each tag of theirs stands for."""
    known: dict[str, Parts] = {}
    arguments = mapping(spec.get("arguments"))
    listing.fields(arguments, ("parameters", "artifacts"), "arguments", place)
    for each in maps(arguments.get("parameters")):
        name = str(each.get("name"))
        listing.fields(each, ("name", "value", "default", "enum", "description"), "parameter", place)
        title = identifier(name, draft.params)
        if title != name:
            listing.note(
                f'the parameter "{name}" is called {title}: references and Python need such names', place.of(each)
            )
        param: dict[str, Any] = {"type": "string"}
        value = each.get("value", each.get("default"))
        if value is not None:
            param["default"] = (
                value if isinstance(value, str) else getattr(value, "text", None) or str(plain_value(value)).lower()
            )
        if each.get("enum"):
            param["enum"] = [str(plain_value(item)) for item in each["enum"]]
        if each.get("description"):
            param["description"] = str(each["description"])
        draft.params[title] = param
        known[name] = ({"param": title},)
    refuse_artifacts(arguments, listing, place, "read it in the step that needs it")
    return known


def _engine_options(spec: Mapping[str, Any], draft: Draft, listing: Unsupported, place: Place) -> None:
    if spec.get("activeDeadlineSeconds") is not None:
        draft.head["deadline"] = f"{plain_value(spec['activeDeadlineSeconds'])}s"
    gc = mapping(spec.get("podGC"))
    if gc.get("strategy"):
        listing.fields(gc, ("strategy", "deleteDelayDuration"), "podGC", place)
        delay = {"delay": str(gc["deleteDelayDuration"])} if gc.get("deleteDelayDuration") else {}
        draft.argo["pod_gc"] = {"strategy": str(gc["strategy"]), **delay}
    times = mapping(spec.get("ttlStrategy"))
    if times:
        known = ("secondsAfterCompletion", "secondsAfterSuccess", "secondsAfterFailure")
        listing.fields(times, known, "ttlStrategy", place)
        ttl = {
            word: f"{plain_value(times.get(key, times.get('secondsAfterCompletion')))}s"
            for word, key in (("success", "secondsAfterSuccess"), ("failure", "secondsAfterFailure"))
            if times.get(key, times.get("secondsAfterCompletion")) is not None
        }
        draft.argo["ttl"] = ttl
    for key, word in (("archiveLogs", "archive_logs"), ("priority", "priority")):
        if spec.get(key) is not None:
            draft.argo[word] = plain_value(spec[key])
    if metrics := metric_fields(spec.get("metrics"), listing, place):
        draft.argo["metrics"] = metrics
    if spec.get("podMetadata"):
        draft.argo["pod_metadata"] = plain_value(spec["podMetadata"])
    for name, hook in mapping(spec.get("hooks")).items():
        hook = mapping(hook)
        reference = mapping(hook.get("templateRef"))
        if name == "exit" and set(hook) == {"template"} and not spec.get("onExit"):
            continue  # what runs at the end
        if name == "exit" or not reference or not hook.get("expression"):
            hint = "write exit: {…} for what runs at the end, or name a template of the cluster: templateRef"
            listing.cannot(f"hook {name}", "a hook of a pipeline runs a template of the cluster", place.of(hook), hint)
            continue
        pairs = (("name", "name"), ("template", "template"), ("cluster_scope", "clusterScope"))
        where = {word: plain_value(reference[key]) for word, key in pairs if reference.get(key)}
        values = {str(p["name"]): str(p.get("value")) for p in mapping(hook.get("arguments")).get("parameters") or ()}
        made = {
            "expression": str(hook["expression"]),
            "template_ref": where,
            **({"arguments": values} if values else {}),
        }
        draft.argo.setdefault("hooks", {})[str(name)] = made


DEFAULTS = (
    "container", "script", "retryStrategy", "activeDeadlineSeconds", "nodeSelector", "tolerations", "affinity",
    "metadata", "serviceAccountName", "securityContext", "priorityClassName", "schedulerName", "volumes",
    "initContainers", "sidecars", "automountServiceAccountToken", "hostAliases", "podSpecPatch",
)  # fmt: skip
