"""Names of templates, and steps of one shape that share one template; what differs between them comes in as parameters.

A name is unique in a workflow, short enough for Argo, and the same every time.

Two templates have one shape when they are equal up to their names and up to short texts in commands, variables and the
step's label. Only steps whose names begin with the same word are looked at together: a new step may then change how
steps with that word are written, and never what stands there of any other. The texts that differ become inputs of the
shared template, and arguments of the tasks that use it. Such an argument is the text that stood in the template, with
the template's own inputs replaced by what the task handed over: Argo puts it back where it stood, so the pod is the
same to the byte. Templates that are equal altogether, such as those of a sub-pipeline that is used twice, become one as
well.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Any, NamedTuple

from gpuflow.core.caching import content_of, data_of
from gpuflow.pod.build import LABEL

LONGEST = 63
"""What Argo puts into pod names and labels is cut after this many characters, so nothing longer is written."""
_TOKENS = re.compile(r"[a-z]+|[0-9]+|-")


class Names:
    """Hands every template a name of its own: the wish itself, or the wish with a short hash of it."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken = set(reserved)

    def claim(self, wish: str) -> str:
        """A free name for the wish. `a` with a sub-step `b-c` and `a-b` with a sub-step `c` wish for the same."""
        for attempt in count():
            name = wish if attempt == 0 else _hashed_name(wish, attempt)
            if len(name) <= LONGEST and name not in self._taken:
                self._taken.add(name)
                return name
        raise AssertionError  # count() never ends

    def release(self, names: Iterable[str]) -> None:
        """Make names free again, because their templates are gone."""
        self._taken.difference_update(names)


def _hashed_name(wish: str, attempt: int) -> str:
    digest = hashlib.sha256(f"{wish}/{attempt}".encode()).hexdigest()[:8]
    return f"{wish[: LONGEST - 9].rstrip('-')}-{digest}"


def first_word(name: str) -> str:
    """The word a name begins with: `shard` for `shard-10`."""
    word = _TOKENS.match(name)
    return word[0] if word else name


def common_stem(names: Sequence[str]) -> str:
    """What names have in common, by whole words and numbers: `shard` for `shard-10` and `shard-11`; may be empty."""
    words = [_TOKENS.findall(name) for name in (names[0], *names[1:])]
    alike = takewhile(lambda column: len(set(column)) == 1, zip(*words, strict=False))
    return "".join(column[0] for column in alike).strip("-")


Template = dict[str, Any]
LONGEST_TEXT = 256
"""Argo copies arguments into the run's status, once for every node; long texts stay in templates, which it does not."""
STEP_LABEL = f"{LABEL}step"
_WORDS_FILLED_LATER = re.compile("[\t\n\r\x20-\x7e\x80-\ud7ff\ue000-\uffff]*")
"""What survives as an argument: Argo quotes what it replaces as Go does, which is not JSON for the rest."""
_TAG = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


class Slot(NamedTuple):
    """A place in a template whose text may differ: the step's label, a variable, or a word of a command."""

    place: str
    """`label`, `env` or `command`, in the order in which they name parameters: a label says most."""
    container: str = ""
    key: str | int = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """A template taken apart: what must be equal for sharing, and the texts that may differ."""

    template: Template
    skeleton: bytes
    slots: Mapping[Slot, str]


CONTAINERS = ("container", "initContainers", "sidecars")


def shape_of(template: Template) -> Shape:
    """The template's open texts, and the rest of it as one comparable value."""
    slots = {slot: text for slot, text in _texts(template) if _is_open(text)}
    rest = fill_slots(template, dict.fromkeys(slots))
    skeleton = {key: value for key, value in rest.items() if key not in ("name", "inputs")}
    inputs = template.get("inputs", {})
    # An input with nothing but a name is known by where it is used.
    skeleton["inputs"] = [[entry for entry in inputs.get("parameters", []) if len(entry) > 1], inputs.get("artifacts")]
    # A text of a type of its own is the same text in JSON.
    content = content_of(skeleton) or content_of(json.loads(json.dumps(skeleton)))
    assert content is not None  # JSON is plain data
    return Shape(template, content, slots)


def _texts(template: Template) -> Iterator[tuple[Slot, str]]:
    """Every text that has a slot."""
    labels = template.get("metadata", {}).get("labels", {})
    if STEP_LABEL in labels:
        yield Slot("label"), labels[STEP_LABEL]
    for container in (each for field in CONTAINERS for each in _containers(template.get(field, []))):
        name = container.get("name", "")
        for index, word in enumerate(container.get("command", ())):
            yield Slot("command", name, index), word
        for entry in container.get("env", ()):
            if "value" in entry:
                yield Slot("env", name, entry["name"]), entry["value"]


def _containers(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_open(text: str) -> bool:
    """Whether the text can be handed over as an argument: short, plain, with no tag that only a pod can fill."""
    if len(text) > LONGEST_TEXT or not ((text.isascii() and text.isprintable()) or _WORDS_FILLED_LATER.fullmatch(text)):
        return False
    return "{{" not in text or all(tag.startswith(("inputs.parameters.", "workflow.")) for tag in _TAG.findall(text))


def fill_slots(template: Template, texts: Mapping[Slot, str | None]) -> Template:
    """The template with other texts in some of its slots."""
    result = dict(template)
    if Slot("label") in texts:
        labels = {**template["metadata"]["labels"], STEP_LABEL: texts[Slot("label")]}
        result["metadata"] = {**template["metadata"], "labels": labels}
    for field in CONTAINERS:
        if field in template:
            parts = [_filled_container(container, texts) for container in _containers(template[field])]
            result[field] = parts if isinstance(template[field], list) else parts[0]
    return result


def _filled_container(container: Mapping[str, Any], texts: Mapping[Slot, str | None]) -> dict[str, Any]:
    name = container.get("name", "")
    result = dict(container)
    if "command" in container:
        words = enumerate(container["command"])
        result["command"] = [texts.get(Slot("command", name, index), word) for index, word in words]
    if "env" in container:
        result["env"] = [
            {**entry, "value": texts[slot]} if (slot := Slot("env", name, entry["name"])) in texts else entry
            for entry in container["env"]
        ]
    return result


MOST_PARAMETERS = 6
"""More than this and a reader no longer sees the step for its arguments."""
HEAD = ("name", "template", "depends", "when")
"""What stands before the arguments of a task."""
_INPUT = re.compile(r"\{\{inputs\.parameters\.([\w-]+)\}\}")
_MENTION = re.compile(r"inputs\.parameters(?:\.([\w-]+)|\['([\w-]+)'\])")
_OPTION = re.compile(r"--?[A-Za-z][\w-]*=")


@dataclass(frozen=True, slots=True)
class Parameter:
    """An input of a shared template, and the slots it fills, each behind a prefix that all members have."""

    name: str
    slots: Mapping[Slot, str]


def share_templates(templates: Sequence[Template], keep: Sequence[str]) -> list[Template]:
    """The same workflow with one template per shape; `keep` names those that stay whatever they are equal to."""
    names = Names(template["name"] for template in templates)
    instead: dict[str, Template] = {}
    calls: dict[str, Call] = {}
    for group in _groups(templates):
        names.release(member.template["name"] for member in group)
        template, values = _shared_template(group, names)
        inputs = frozenset(entry["name"] for entry in template.get("inputs", {}).get("parameters", []))
        instead[group[0].template["name"]] = template
        for member, own in zip(group, values, strict=True):
            calls[member.template["name"]] = Call(template["name"], inputs, own)

    def apply_call(task: dict[str, Any]) -> dict[str, Any]:
        return calls[task["template"]].apply(task) if task["template"] in calls else task

    left = [instead.get(one["name"], one) for one in templates if one["name"] in instead or one["name"] not in calls]
    return _without_duplicates([_with_tasks(template, apply_call) for template in left], keep)


def _groups(templates: Sequence[Template]) -> Iterator[list[Shape]]:
    """Templates of one shape and kin, in the order of their first members, two or more together."""
    found: dict[tuple[str, bytes], list[Shape]] = {}
    for template in templates:
        if "container" in template:
            shape = shape_of(template)
            found.setdefault((first_word(_step_name(shape)), shape.skeleton), []).append(shape)
    for group in found.values():
        yield from _close(group)


def _step_name(shape: Shape) -> str:
    """The step's own name; that of the template also says where it stands."""
    return shape.slots.get(Slot("label"), shape.template["name"])


def _close(group: list[Shape]) -> Iterator[list[Shape]]:
    """The group, split until its members differ in few texts, each time by the text with the fewest variants."""
    differing = _differing_slots(group)
    if not differing:
        return  # one step, or equal ones: nothing to hand over
    # They may differ in two parameters for a pair, two more for every further step.
    if len(_columns(group, differing)) <= min(MOST_PARAMETERS, 2 * (len(group) - 1)):
        yield group
        return
    fewest = min(differing, key=lambda slot: len({member.slots[slot] for member in group}))
    parts: dict[str, list[Shape]] = {}
    for member in group:
        parts.setdefault(member.slots[fewest], []).append(member)
    for part in parts.values():
        yield from _close(part)


def _differing_slots(group: Sequence[Shape]) -> list[Slot]:
    first = group[0].slots
    return [slot for slot in first if any(member.slots[slot] != first[slot] for member in group[1:])]


def _columns(group: Sequence[Shape], differing: Sequence[Slot]) -> dict[tuple[str, ...], dict[Slot, str]]:
    """What differs, as one column of texts over the members; slots with the same column share it."""
    columns: dict[tuple[str, ...], dict[Slot, str]] = {}
    for slot in sorted(differing, key=lambda slot: slot.place != "label"):
        texts = [member.slots[slot] for member in group]
        option = _OPTION.match(texts[0])
        prefix = option[0] if option and all(text.startswith(option[0]) for text in texts) else ""
        columns.setdefault(tuple(text[len(prefix) :] for text in texts), {})[slot] = prefix
    return columns


def _shared_template(group: Sequence[Shape], names: Names) -> tuple[Template, list[dict[str, str]]]:
    """The template of a group, and each member's values for its new inputs."""
    first = group[0]
    differing = _differing_slots(group)
    columns = _columns(group, differing)
    fixed = {slot: text for slot, text in first.slots.items() if slot not in set(differing)}
    said = json.dumps([data_of(first.skeleton), *fixed.values()])
    kept = {dotted or quoted for dotted, quoted in _MENTION.findall(said)}
    parameters, taken = [], Names(kept)
    for slots in columns.values():
        leading = next(iter(slots))
        parameters.append(Parameter(taken.claim(_parameter_name(leading, slots[leading], fixed)), slots))
    texts = {slot: _tag(one.name, prefix) for one in parameters for slot, prefix in one.slots.items()}
    own = [entry for entry in first.template.get("inputs", {}).get("parameters", []) if entry["name"] in kept]
    inputs = {**first.template.get("inputs", {}), "parameters": [*own, *({"name": one.name} for one in parameters)]}
    alike = common_stem([member.template["name"] for member in group]) or common_stem(
        [_step_name(member) for member in group]
    )
    template = {
        "name": names.claim(alike),
        "inputs": inputs,
        **{k: v for k, v in first.template.items() if k not in ("name", "inputs")},
    }
    values = [
        {one.name: column[number] for one, column in zip(parameters, columns, strict=True)}
        for number in range(len(group))
    ]
    return fill_slots({key: value for key, value in template.items() if value != {"parameters": []}}, texts), values


def _tag(name: str, prefix: str = "") -> str:
    return f"{prefix}{{{{inputs.parameters.{name}}}}}"


def _parameter_name(slot: Slot, prefix: str, fixed: Mapping[Slot, str]) -> str:
    """`step`, a variable's name, the option in front of a word, or the word's number in the command."""
    if slot.place == "label":
        return "step"
    wish = slot.key if isinstance(slot.key, str) else _word_name(slot, prefix, fixed)
    named = "-".join(part for part in (slot.container, wish) if part)
    return re.sub(r"[^A-Za-z0-9_-]+", "-", named)[:50].strip("-") or "text"


def _word_name(slot: Slot, prefix: str, fixed: Mapping[Slot, str]) -> str:
    assert isinstance(slot.key, int)
    if prefix:
        return prefix.strip("-=")
    words = [fixed.get(Slot("command", slot.container, index), "") for index in range(slot.key)]
    if words and words[-1].startswith("-") and words[-1].strip("-"):
        return words[-1].strip("-").partition("=")[0]
    # A supervised command stands behind `--`; its words are counted from there.
    own = len(words) - (words.index("--") + 1 if "--" in words else 0)
    return f"arg-{own}"


@dataclass(frozen=True, slots=True)
class Call:
    """How a task calls the shared template instead of its own."""

    template: str
    inputs: frozenset[str]
    values: Mapping[str, str]

    def apply(self, task: dict[str, Any]) -> dict[str, Any]:
        """The task with the shared template; its values in the task's own words for what it handed over before."""
        given = {entry["name"]: entry for entry in task.get("arguments", {}).get("parameters", [])}

        def passed_value(match: re.Match[str]) -> str:
            return str(given[match[1]]["value"])

        kept = [entry for name, entry in given.items() if name in self.inputs and name not in self.values]
        added = [{"name": name, "value": _INPUT.sub(passed_value, text)} for name, text in self.values.items()]
        head: dict[str, Any] = {key: task[key] for key in HEAD if key in task}
        rest = {key: value for key, value in task.items() if key not in head and key != "arguments"}
        arguments = {"arguments": {"parameters": [*kept, *added]}} if kept or added else {}
        return {**head, "template": self.template, **arguments, **rest}


def _with_tasks(template: Template, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Template:
    if "dag" not in template:
        return template
    return {**template, "dag": {**template["dag"], "tasks": [change(task) for task in template["dag"]["tasks"]]}}


def _without_duplicates(templates: list[Template], keep: Sequence[str]) -> list[Template]:
    """Templates that are equal up to their names become the first of them; then so may their callers, and so on."""
    while True:
        first: dict[str, str] = {}
        instead: dict[str, str] = {}
        for template in templates:
            if template["name"] not in keep:
                said = json.dumps({key: value for key, value in template.items() if key != "name"})
                instead[template["name"]] = first.setdefault(said, template["name"])
        if all(name == chosen for name, chosen in instead.items()):
            return templates

        def rename_task(task: dict[str, Any], chosen: Mapping[str, str] = instead) -> dict[str, Any]:
            return {**task, "template": chosen.get(task["template"], task["template"])}

        templates = [
            _with_tasks(template, rename_task)
            for template in templates
            if instead.get(template["name"], template["name"]) == template["name"]
        ]
