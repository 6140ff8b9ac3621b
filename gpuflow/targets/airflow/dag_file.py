"""A DAG as the text of a Python file.

What several tasks have in common is written once, at the top of the file, under a name that says what it is. A name
depends on the value and not on its place in the file, so that another step changes no other step's lines. A comment
stands beside a number that a reader would wonder about.
"""

from __future__ import annotations

import ast
import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from gpuflow.catalog.catalog import models
from gpuflow.core.printable import comment
from gpuflow.plan import Plan
from gpuflow.targets.airflow.dag import RESERVED_NAMES, Dag, DagTask
from gpuflow.targets.airflow.python_source import (
    HOMES,
    Call,
    ExtendedList,
    Import,
    Infix,
    MergedDict,
    Method,
    Name,
    WithComment,
    comment_lines,
    names_in,
    source_text,
    walk,
    with_names,
)
from gpuflow.targets.airflow.refusals import image_lines
from gpuflow.targets.target import Request, header

WHY_LIMITS = "Pods that may exist at once: max_active_tasks does not count tasks that wait in the triggerer."
WHY_LINKS = "Buttons on the page of a task, from the site."
WHY_DEADLINE_OF_RUN = (
    "When it is over, steps fail and exit steps still run; with Airflow's dagrun_timeout they would not."
)
WHY_DEADLINE_OF_GROUP = "When the time of a group is over, its steps fail and are not tried again."
WHY_RETRY_DELAY = "Airflow's own retry_delay lies between them: 5 minutes, or [core] default_task_retry_delay"
WHY_MAX_ACTIVE_TASKS = "running tasks only; pods are counted by limits="
LOST_WORKERS = "LOST_WORKERS"


def _of_argument(name: str, value: Any) -> str:
    """The reason for an argument, or for a constant that is named after it; nothing where its name says it all."""
    if name == "deadlines":
        return WHY_DEADLINE_OF_RUN if any("run" in each.named for each in value) else WHY_DEADLINE_OF_GROUP
    return {"limits": WHY_LIMITS, "links": WHY_LINKS}.get(name, "")


def with_reasons(node: Any, whole: Any) -> Any:
    """A task's call with a reason beside each number that needs one. `whole`: the call without names of constants."""
    if isinstance(node, Method):
        named = dict(node.named)
        if (count := _copies(named.get("item"))) > 1:
            named["item"] = WithComment(named["item"], f"{count} tasks")
        return Method(with_reasons(node.target, whole.target), node.name, node.args, named)
    if not isinstance(node, Call):
        return node
    found = dict(_reasons(node.named, whole.named))
    named = {key: WithComment(value, found[key]) if key in found else value for key, value in node.named.items()}
    supervised = not {"supervised", "workers"}.isdisjoint(node.named)
    for key in ("template", "leader"):
        if isinstance(node.named.get(key), Call):
            named[key] = _pod(node.named[key], supervised=supervised)
    return Call(node.name, node.args, named)


def settings_with_reasons(settings: Mapping[str, Any], tasks: list[Any]) -> dict[str, Any]:
    """The DAG's own settings with a reason beside those that need one."""
    counts = any("limits" in _keyword_arguments(task) for task in tasks)
    if "max_active_tasks" not in settings or not counts:
        return dict(settings)
    return {**settings, "max_active_tasks": WithComment(settings["max_active_tasks"], WHY_MAX_ACTIVE_TASKS)}


def _reasons(named: Mapping[str, Any], whole: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from _of_retries(named)
    if named.get("pool_slots") in _devices(whole.get("template")):
        yield "pool_slots", "one for each GPU, slice or share"
    for argument in ("deadlines", "limits", "links"):
        if isinstance(value := named.get(argument), list | dict) and value:
            yield argument, _of_argument(argument, value)
    if "schedule_timeout_seconds" in named:
        yield "schedule_timeout_seconds", "waiting for a node; by default it is 2 minutes, which fails queued steps"
    if "startup_timeout_seconds" in named and "schedule_timeout_seconds" in named:
        yield "startup_timeout_seconds", "pulling the image"


def _of_retries(named: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    retries, failures = named.get("retries"), named.get("failures")
    if retries == Name(LOST_WORKERS):
        yield "retries", "only for workers that die: a failure of the step is not retried"
    elif isinstance(retries, Infix):
        yield "retries", "the failures, and tries for workers that die; of a mapped task Airflow reads them here"
    elif retries and "retry_delay" not in named:
        yield "retries", WHY_RETRY_DELAY
    if failures and "retry_delay" not in named:
        yield "failures", WHY_RETRY_DELAY
    if named.get("interruptions") and "interruption_delay" not in named:
        yield "interruptions", "another pod at once, in the same try"


def _pod(pod: Call, *, supervised: bool) -> Call:
    spec = dict(pod.named["spec"])
    if "activeDeadlineSeconds" in spec:
        because = "the step's timeout"
        if supervised:
            because += ", which gpuflow-run keeps itself, and an hour for the image, init containers and the end"
        spec["activeDeadlineSeconds"] = WithComment(spec["activeDeadlineSeconds"], because)
    command = spec["containers"][0].get("command", ())
    if "terminationGracePeriodSeconds" in spec and any(str(word).startswith("--grace=") for word in command):
        grace = spec["terminationGracePeriodSeconds"]
        spec["terminationGracePeriodSeconds"] = WithComment(grace, "longer than --grace below, for the last checkpoint")
    return Call(pod.name, pod.args, {**pod.named, "spec": spec})


def _devices(pod: Any) -> set[int]:
    """How many devices of each kind a pod asks for."""
    if not isinstance(pod, Call):
        return set()
    limits = pod.named["spec"]["containers"][0].get("resources", {})
    amounts = limits.get("limits", {}) if isinstance(limits, Mapping) else {}
    return {int(amount) for key, amount in amounts.items() if "/" in key and str(amount).isdecimal()}


def _copies(items: Any) -> int:
    """How many tasks a fan-out makes, where nobody sees it at once."""
    if not (isinstance(items, Call) and items.name == "combinations"):
        return 0
    sources = items.args[0].values()
    return math.prod(len(range(*source.args)) if isinstance(source, Call) else len(source) for source in sources)


def _keyword_arguments(call: Any) -> Mapping[str, Any]:
    if isinstance(call, Method):
        return _keyword_arguments(call.target)
    return call.named if isinstance(call, Call) else {}


STEP_LABEL = "gpuflow.dev/step"
PIPELINE_LABEL = "gpuflow.dev/pipeline"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
SPEC_PARTS = {"securityContext": "SECURITY", "affinity": "AFFINITY", "tolerations": "TOLERATIONS"}
CONTAINER_PARTS = {"securityContext": "CONTAINER_SECURITY", "resources": "RESOURCES"}
ARGUMENTS = {"limits": "LIMITS", "deadlines": "DEADLINES", "links": "LINKS"}
STEMS = (
    "LINKS",
    "LIMITS",
    "DEADLINES",
    "LABELS",
    "ENV",
    *dict.fromkeys([*SPEC_PARTS.values(), *CONTAINER_PARTS.values()]),
)
"""In the order of the file."""
CONTAINERS = ("initContainers", "containers")
PODS = ("template", "leader")
"""Arguments that are pods."""
INLINE_WIDTH = 60
"""What fits in this many characters is easier to read where it stands."""


@dataclass(frozen=True)
class Defaults:
    """What the file's pipelines say for all their steps: the names of variables, by the pipeline's own name."""

    pipeline: str
    env: Mapping[str, frozenset[str]]


MakePart = Callable[[str, Any, str], Any]
"""From the stem of a part's name, the part and its pipeline: what stands in its place."""


class SharedParts:
    """The repeated parts of all tasks, and their names."""

    def __init__(self, calls: list[Any], defaults: Defaults) -> None:
        self._defaults = defaults
        values: dict[tuple[str, str], Any] = {}
        counted: Counter[tuple[str, str]] = Counter()
        homes: dict[tuple[str, str], set[str]] = {}

        def note(stem: str, value: Any, pipeline: str) -> Any:
            key = stem, source_text(value)
            values[key] = value
            counted[key] += 1
            homes.setdefault(key, set()).add(pipeline)
            return value

        for call in calls:
            self._with_parts(call, note)
        again = [
            key for key in values if counted[key] > 1 and (key[0] in ARGUMENTS.values() or len(key[1]) > INLINE_WIDTH)
        ]
        self._names: dict[tuple[str, str], Name] = {}
        for stem in STEMS:
            # The most usual one has the plainest name.
            keys = sorted((key for key in again if key[0] == stem), key=lambda key: (-counted[key], key[1]))
            taken: set[str] = set()
            for key in keys:
                name = next(name for name in self._candidate_names(stem, values[key], homes[key]) if name not in taken)
                taken.add(name)
                self._names[key] = Name(name)
        ordered = sorted(self._names, key=lambda key: (STEMS.index(key[0]), self._names[key].text))
        self.constants: dict[str, Any] = {self._names[key].text: values[key] for key in ordered}

    def with_names(self, call: Any) -> Any:
        """A task's call with names where it has parts in common with others."""
        return self._with_parts(call, lambda stem, value, _: self._names.get((stem, source_text(value)), value))

    def _with_parts(self, call: Any, made_of: MakePart) -> Any:
        """A task's call with another part for each that other tasks may have too."""
        if isinstance(call, Method):
            return Method(self._with_parts(call.target, made_of), call.name, call.args, call.named)
        if not isinstance(call, Call):
            return call
        named = _replace_parts(call.named, ARGUMENTS, "", made_of)
        named |= {key: self._pod(named[key], made_of) for key in PODS if isinstance(named.get(key), Call)}
        return Call(call.name, call.args, named)

    def _pod(self, pod: Call, made_of: MakePart) -> Call:
        metadata, home = dict(pod.args[0]), str(pod.args[0].get("labels", {}).get(PIPELINE_LABEL, ""))
        common, own = _labels(metadata)
        name = made_of("LABELS", common, home)
        if name is not common:
            metadata["labels"] = MergedDict(name, own) if own else name
        spec = _replace_parts(pod.named["spec"], SPEC_PARTS, home, made_of)
        for kind in CONTAINERS:
            if kind in spec:
                spec[kind] = [self._container(container, home, made_of) for container in spec[kind]]
        return Call(pod.name, (metadata,), {"spec": spec})

    def _container(self, container: Mapping[str, Any], home: str, made_of: MakePart) -> dict[str, Any]:
        changed = _replace_parts(container, CONTAINER_PARTS, home, made_of)
        # The variables from the pipeline's defaults come first, and keep their order.
        usual = self._defaults.env.get(home, frozenset())
        common = list(takewhile(lambda entry: entry["name"] in usual, container.get("env", ())))
        name: Any = made_of("ENV", common, home) if common else common
        if name is not common:
            own = container["env"][len(common) :]
            changed["env"] = ExtendedList(name, own) if own else name
        return changed

    def _candidate_names(self, stem: str, value: Any, homes: set[str]) -> Iterator[str]:
        """Names for a value, the best one first. The last one no other value has."""
        tags = [tuple(filter(None, tag)) for tag in _TAGS.get(stem, lambda _: [()])(value)]
        if stem in ("LABELS", "ENV") and homes.isdisjoint(("", self._defaults.pipeline)):
            tags = [(min(homes), *tag) for tag in tags]
        for tag in (*tags, (hashlib.sha256(source_text(value).encode()).hexdigest()[:6],)):
            words = "_".join((stem, *tag)).upper().encode("ascii", "ignore").decode()
            yield re.sub(r"[^A-Z0-9]+", "_", words).strip("_")


def _groups(value: Any) -> Iterator[tuple[str, ...]]:
    """`LIMITS_EVALUATE`, by the innermost group that is limited; what is about the run alone needs no more words."""
    calls = [each for each in value if isinstance(each, Call)] if isinstance(value, list) else []
    groups = [str(each.named.get("group") or (each.args[1] if len(each.args) > 1 else "")) for each in calls]
    yield (groups[-1] if groups else "",)


def _resources(value: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """`RESOURCES_2CPU_8GI`, by the limits, and by the requests where these differ."""
    most = _amounts(value.get("limits") or value.get("requests") or {})
    if most:
        yield most
        yield (*most, "from", *_amounts(value.get("requests") or {}))


def _amounts(amounts: Mapping[str, Any]) -> tuple[str, ...]:
    units = {"memory": "", "ephemeral-storage": "disk"}
    short = {resource: resource.rpartition("/")[2] for resource in amounts}
    return tuple(f"{amount}{units.get(short[key], short[key])}" for key, amount in amounts.items())


def _affinity(value: Any) -> Iterator[tuple[str, ...]]:
    """`AFFINITY_A100_80GB`, by the GPUs that the nodes have, or by the labels that are asked for."""
    lists = (part["values"] for part in walk(value) if isinstance(part, dict) and isinstance(part.get("values"), list))
    asked = tuple(dict.fromkeys(each for values in lists for each in values if isinstance(each, str)))
    gpus = tuple(model.id for model in models() if not set(asked).isdisjoint(model.products))
    if gpus:
        yield gpus
    if asked:
        yield asked


def _tolerations(value: list[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    keys = tuple(str(each.get("key", "any")).rpartition("/")[2] for each in value)
    if keys:
        yield keys


def _security(value: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The most usual one needs no more than its stem."""
    yield ()
    if value.get("readOnlyRootFilesystem"):
        yield ("read only",)
    if "runAsUser" in value:
        yield (f"user {value['runAsUser']}",)


_TAGS: dict[str, Callable[[Any], Iterable[tuple[str, ...]]]] = {
    "LIMITS": _groups,
    "DEADLINES": _groups,
    "LABELS": lambda labels: [(), (labels.get(QUEUE_LABEL, ""),)],
    "RESOURCES": _resources,
    "AFFINITY": _affinity,
    "TOLERATIONS": _tolerations,
    "SECURITY": _security,
    "CONTAINER_SECURITY": _security,
}


def _replace_parts(part: Mapping[str, Any], stems: Mapping[str, str], home: str, made_of: MakePart) -> dict[str, Any]:
    return {key: made_of(stems[key], value, home) if key in stems else value for key, value in part.items()}


def _labels(metadata: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Labels that other steps may have too, and the step's own."""
    labels = metadata.get("labels", {})
    return {k: v for k, v in labels.items() if k != STEP_LABEL}, {k: v for k, v in labels.items() if k == STEP_LABEL}


FILE_NAMES = ("dag", "ends", "run_name", "literal")
"""Names that the file itself gives."""
BASE_MODULE = HOMES["KubernetesPodOperator"]
"""What gpuflow.airflow stands on. A DAG processor loads the Airflow modules that a file names before it forks for each
file; what only gpuflow names, each fork would load anew, for a second of processor time."""
_WHY_BASE_MODULE = comment_lines(
    "gpuflow's operators build on this module. Imported here, a DAG processor loads it once, before it forks."
)


def dag_file(dag: Dag, request: Request, homes: Mapping[str, str] = HOMES) -> str:
    """The text of the file. `homes`: where its names are imported from."""
    own = _own_imports(dag)
    tasks = [DagTask(made.variable, made.group, with_names(made.call, own)) for made in dag.tasks] if own else dag.tasks
    dag = replace(dag, settings=with_names(dag.settings, own), tasks=tasks)
    names = names_in([dag.settings, *(made.call for made in dag.tasks)]) | _bases(dag.functions)
    used = {"DAG"} | {name for name in names if name in HOMES}
    if any(made.group for made in dag.tasks):
        used.add("TaskGroup")
    lines = [*comment([*header(request), *image_lines(request)]).splitlines(), "", *_imports(used, own, homes), ""]
    for function in dag.functions:
        lines += ["", function, ""]
    lines += [""] if dag.functions else []
    calls = [made.call for made in dag.tasks]
    shared = SharedParts(calls, _defaults(request.plan))
    lines += _constants(shared.constants)
    settings = settings_with_reasons(dag.settings, calls)
    lines += [*([""] if shared.constants else []), f"with {source_text(Call('DAG', (), settings), '', 12)} as dag:"]
    lines += _tasks(
        [
            DagTask(made.variable, made.group, with_reasons(shared.with_names(made.call), made.call))
            for made in dag.tasks
        ]
    )
    lines += _edges(dag.edges)
    lines += [*([""] if dag.roles else []), *(f"    {source_text(role, '    ')}" for role in dag.roles)]
    return "\n".join(lines) + "\n"


def _bases(definitions: Iterable[str]) -> set[str]:
    """What the classes that the file defines stand on."""
    parts = [part for text in definitions for part in ast.parse(text).body if isinstance(part, ast.ClassDef)]
    return {base.id for part in parts for base in part.bases if isinstance(base, ast.Name)}


def _constants(constants: Mapping[str, Any]) -> list[str]:
    """Constants, each kind with its reason before the first of them."""
    lines: list[str] = []
    said: set[str] = set()
    for name, value in constants.items():
        if (because := _of_argument(name.partition("_")[0].lower(), value)) and because not in said:
            said.add(because)
            lines += comment_lines(because)
        lines.append(f"{name} = {source_text(value, '', len(name) + 3)}")
    return lines


def _defaults(plan: Plan) -> Defaults:
    """The variables that the defaults of each pipeline in the file give to its steps."""
    env: dict[str, frozenset[str]] = {}
    for each, _ in plan.pipelines:
        env[each.name] = env.get(each.name, frozenset()) | frozenset(each.defaults.env)
    return Defaults(plan.pipeline.name, env)


def _own_imports(dag: Dag) -> dict[tuple[str, str], str]:
    """What the user names by import path, and the name that each has in the file: its own, unless that is taken."""
    names: dict[tuple[str, str], str] = {}
    taken = {*dag.taken, *RESERVED_NAMES, *FILE_NAMES}
    for each in walk([dag.settings, *(made.call for made in dag.tasks)]):
        if not isinstance(each, Import) or (each.module, each.attribute) in names:
            continue
        name = each.attribute
        if HOMES.get(name) == each.module:  # the file means the same object by this name
            names[each.module, name] = name
            continue
        if name in taken or name.isupper():  # in capitals, the file names parts of pods
            name = f"{each.module}.{each.attribute}".replace(".", "_").lower()
        while name in taken:
            name += "_"
        taken.add(name)
        names[each.module, each.attribute] = name
    return names


def _imports(used: set[str], own: Mapping[tuple[str, str], str], homes: Mapping[str, str]) -> list[str]:
    """Import lines as isort groups them: standard library, Airflow, gpuflow, and the user's own."""
    modules: dict[str, list[str]] = {}
    for name in sorted(used):
        modules.setdefault(homes[name], []).append(name)
    for (module, attribute), name in sorted(own.items()):
        modules.setdefault(module, []).append(attribute if name == attribute else f"{attribute} as {name}")
    modules = {module: sorted({*names}, key=_in_order) for module, names in modules.items()}
    theirs = {module for module, _ in own}
    stock = sorted(m for m in modules if m.startswith("airflow."))
    groups = [["datetime", "zoneinfo"], stock, ["gpuflow.airflow"]]
    groups.append(sorted(theirs - {module for group in groups for module in group}))
    lines: list[str] = []
    for group in groups:
        block = [line for module in group if module in modules for line in _import(module, modules[module])]
        if group is stock and "gpuflow.airflow" in modules and BASE_MODULE not in modules:
            block = [*_WHY_BASE_MODULE, f"import {BASE_MODULE}  # noqa: F401", *block]
        if block:
            lines += [*([""] if lines else []), *block]
    return lines


def _in_order(name: str) -> tuple[bool, bool, str]:
    """Constants, then classes, then functions."""
    return not name.isupper(), not name[0].isupper(), name


def _import(module: str, names: list[str]) -> list[str]:
    """One line for a module, and one for each name that it has another name in the file."""
    renamed = [([name], [f"from {module} import {name}"]) for name in names if " as " in name]
    plain = [name for name in names if " as " not in name]
    lines = [*renamed, *([(plain, _import_plain(module, plain))] if plain else [])]
    return [line for _, block in sorted(lines, key=lambda each: _in_order(each[0][0])) for line in block]


def _import_plain(module: str, names: list[str]) -> list[str]:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= 110:
        return [line]
    return [f"from {module} import (", *(f"    {name}," for name in names), ")"]


def _tasks(tasks: list[DagTask]) -> list[str]:
    """Tasks in document order; neighbors of one group share its `with` block."""
    lines: list[str] = []
    opened: tuple[str, ...] = ()
    for made in tasks:
        common = 0
        while common < min(len(opened), len(made.group)) and opened[common] == made.group[common]:
            common += 1
        for depth in range(common, len(made.group)):
            lines.append(f"{'    ' * (depth + 1)}with TaskGroup({source_text(made.group[depth])}):")
        opened = made.group
        indent = "    " * (len(opened) + 1)
        lines.append(f"{indent}{made.variable} = {source_text(made.call, indent, len(made.variable) + 3)}")
    return lines


def _edges(edges: list[tuple[tuple[str, ...], str]]) -> list[str]:
    """`a >> b` lines; a long list that several tasks wait for gets the name `ends`."""
    if not edges:
        return []
    counted = Counter(before for before, _ in edges if len(before) > 3)
    ends = next((before for before, count in counted.items() if count > 1), ())
    lines = [""]
    if ends:
        lines.append(f"    ends = {source_text([Name(name) for name in ends], '    ', 7)}")
    return lines + [f"    {_edge(before, after, ends)}" for before, after in edges]


def _edge(before: tuple[str, ...], after: str, ends: tuple[str, ...]) -> str:
    if before == ends:
        return f"ends >> {after}"
    if len(before) == 1:
        return f"{before[0]} >> {after}"
    names = list(before)
    if ends and set(ends) < set(before):
        names = ["*ends", *(name for name in before if name not in ends)]
    return f"{source_text([Name(name) for name in names], '    ', len(after) + 4)} >> {after}"
