"""The tasks of a pipeline: which run, what waits for what, what repeats, and how often Kubeflow runs a driver for it.

A component is read anew for each task that refers to it, with that task's inputs. Documents can name components that
contain themselves, that nest without end (`MOST_DEPTH`) or that multiply (`task_count`): what is not read is said.
A task whose container is `gpuflow-run gang` starts a JobSet, which stands in its command.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from gpuflow.core.errors import Finding, GpuflowError, Where, did_you_mean, fail
from gpuflow.demands.model import (
    LAUNCHER,
    ClaimDemand,
    Deadline,
    Demand,
    DriverPods,
    LaterAttempts,
    PodSet,
    StepDemand,
    UnseenPart,
)
from gpuflow.engines import NO_ENGINE, facts_of
from gpuflow.formats.documents import Document, Library
from gpuflow.formats.kfp import AT_THE_END, MOST_TASKS, Ir, Message, ir_of, outputs_of, task_count, waits_of
from gpuflow.graph import Dag, Leaf, Loop, Tree, Unknown, find_cycle, find_either, order
from gpuflow.pod.engine_containers import driver_pod, engine_of, settings_of
from gpuflow.readers.gang_launcher import later_in, manifest_in, nodes_avoided_in
from gpuflow.readers.interface import Options, PassiveObject, demand_of_manifest, with_parts
from gpuflow.readers.kfp.pods import (
    MODES,
    WORKSPACE_PATH,
    WORKSPACE_VOLUME,
    BuiltPod,
    Task,
    apply_settings,
    claims_of,
    is_claim_task,
    pod_of,
    quantity,
)
from gpuflow.readers.kfp.values import (
    KnownValue,
    OpenValue,
    Scope,
    Value,
    Values,
    condition_of,
    condition_tree,
    items_of,
    parse_json,
    run_parameters,
    task_inputs,
)
from gpuflow.site.model import Engine
from gpuflow.spec.expression import Expression, exclude

MOST_DEPTH = 50
EMPTY_LEAF = Leaf("", {}, 0)


@dataclass(frozen=True)
class Context:
    """What stands around a task."""

    path: str = ""
    copies: int | None = 1
    is_sure: bool = True
    is_exit: bool = False
    retries: int = 0
    """How often Kubeflow starts a failed task again, unless it says otherwise itself."""
    components: tuple[str, ...] = ()
    """The components around it, outermost first."""

    def name(self, task: str) -> str:
        return f"{self.path}.{task}" if self.path else task


@dataclass
class Part:
    """A task or a DAG, as it was read."""

    tree: Tree
    drivers: DriverPods = field(default_factory=DriverPods)
    outputs: dict[str, Value] = field(default_factory=dict)
    uris: dict[str, str] = field(default_factory=dict)
    is_skipped: bool = False
    """It never runs."""


@dataclass(frozen=True)
class Call:
    """A task, with the component that it refers to and what it hands to it."""

    name: str
    task: Message
    component: Message
    inputs: Values
    uris: Mapping[str, str]
    scope: Scope


@dataclass
class Tasks:
    """Reads the tasks, and collects what they ask for."""

    ir: Ir
    options: Options
    steps: list[StepDemand] = field(default_factory=list)
    unseen: list[UnseenPart] = field(default_factory=list)
    claims: list[ClaimDemand] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    conditional: dict[str, bool] = field(default_factory=dict)
    later: dict[str, dict[str, tuple[PodSet, ...]]] = field(default_factory=dict)
    """The pods of last attempts that are not like the first, by what must have happened, and by step."""
    only_at_most: str | None = None
    cached: list[str] = field(default_factory=list)
    """The tasks that may take their results from the cache."""
    library: Library = field(default_factory=Library)
    _names: set[str] = field(default_factory=set)

    def dag(self, component: Message, inputs: Values, uris: Mapping[str, str], around: Context) -> Part:
        """The tasks of a component, each after those that it waits for."""
        tasks = component.message("dag").message("tasks")
        before = {name: list(dict.fromkeys(self._waits_for(name, task, tasks))) for name, task in tasks.entries()}
        at_end = {
            name for name, task in tasks.entries() if task.message("triggerPolicy").text("strategy") == AT_THE_END
        }
        after: dict[str, list[str]] = {name: [] for name in before}
        for name, needs in before.items():
            for need in needs:
                after[need].append(name)
        cycle = find_cycle(after)
        if cycle:
            text = f"tasks wait for each other: {' -> '.join(cycle[:8])}"
            raise fail("GF728", text, where=tasks.where(cycle[0], key=True), hint="remove one of these dependencies")
        scope = Scope(inputs, uris=dict(uris))
        part = Part(EMPTY_LEAF)
        nodes: dict[str, Tree] = {}
        unsure: set[str] = set()
        skipped: set[str] = set()
        for name in order(after):
            # What is skipped does not succeed, and what waits for it does not run; exit tasks wait for any end.
            needed = () if name in at_end else before[name]
            if skipped.intersection(needed):
                skipped.add(name)
                nodes[name] = Leaf(around.name(name), {}, 0)
                continue
            # An exit task is started when each of the tasks that it names has ended, one time for each.
            times = len(before[name]) if name in at_end else 1
            here = replace(around, is_sure=around.is_sure and not unsure.intersection(needed))
            here = replace(here, is_exit=around.is_exit or name in at_end, copies=_times(around.copies, max(times, 1)))
            inner = self.task(name, tasks.entry(name), scope, here)
            if inner.is_skipped:
                skipped.add(name)
            # A loop that is skipped succeeds all the same: its condition stands inside.
            if not here.is_sure or (around.name(name) in self.conditional and not isinstance(inner.tree, Loop)):
                unsure.add(name)
            if times > 1:
                inner = replace(
                    inner, tree=Loop(around.name(name), inner.tree, times), drivers=inner.drivers.times(times)
                )
                after = {need: [each for each in names if each != name] for need, names in after.items()}
            nodes[name] = inner.tree
            part.drivers += inner.drivers if here.is_sure else replace(inner.drivers, at_least=0)
            scope.outputs |= {(name, key): value for key, value in inner.outputs.items()}
            scope.output_uris |= {(name, key): uri for key, uri in inner.uris.items()}
        self._check_exits(before, at_end, after, around)
        conditions = dict(_conditions(tasks))
        either = find_either(after, conditions, lambda one, other: exclude(conditions[one], conditions[other]))
        part.tree = Dag(nodes, after, None, either)
        part.outputs, part.uris = _outputs(component, scope)
        return part

    @cached_property
    def _engine(self) -> Engine:
        return engine_of(self.options.site, self.options.engine)

    def _check_exits(
        self, before: Mapping[str, Sequence[str]], at_end: set[str], after: Mapping[str, Sequence[str]], around: Context
    ) -> None:
        for name in at_end:
            beside = [each for need in before[name] for each in after[need] if each != name]
            if beside or len(before[name]) > 1:
                self.only_at_most = self.only_at_most or (
                    f"{around.name(name)} runs when {', '.join(before[name][:3])} ended, and what waits for the same "
                    "may have to wait for it"
                )

    def _waits_for(self, name: str, task: Message, tasks: Message) -> Iterator[str]:
        """The tasks that a task waits for, which must stand beside it."""
        for each, where in waits_of(task):
            if each not in tasks.value:
                hint = did_you_mean(each, tasks.value)
                raise fail(
                    "GF727", f'task "{name}" waits for "{each}", which is no task beside it', where=where, hint=hint
                )
            yield each

    def task(self, name: str, task: Message, scope: Scope, around: Context) -> Part:
        """One task with its condition and its loop."""
        path = around.name(name)
        component_name = task.message("componentRef").text("name")
        component = self.ir.component(component_name, name, task)
        where = task.where()
        if component_name in around.components or len(around.components) >= MOST_DEPTH:
            return self._too_deep(path, component_name, around, where)
        around = replace(around, retries=_retries(task, around.retries))
        inputs = task_inputs(task, component, scope)
        text = task.message("triggerPolicy").text("condition")
        if text:
            condition = condition_of(text, inputs)
            if condition.holds is False:
                # A loop's own driver finds out, and the loop succeeds.
                is_loop = "parameterIterator" in task
                return Part(self._engine_pod(path, where, around), is_skipped=not is_loop)
            if condition.holds is None:
                self.conditional[path] = condition.by_item
                around = replace(around, is_sure=False)
        call = Call(name, task, component, inputs, _artifacts(task, scope), scope)
        if "artifactIterator" in task:
            place = task.where("artifactIterator")
            self._refuse(f'task "{path}": Kubeflow does not implement loops over artifacts', place)
            items = Unknown(f"{path} runs over artifacts ({_place_text(place)})")
            return self._loop(call, items, replace(around, copies=None, is_sure=False))
        return self._parameter_loop(call, around) if "parameterIterator" in task else self.body(call, around)

    def _too_deep(self, path: str, component: str, around: Context, where: Where) -> Part:
        if component in around.components:
            because = f'componentRef: the component "{component}" contains itself, and nothing here ends that'
        else:
            because = f"componentRef: groups are nested deeper than {MOST_DEPTH} levels, and are not read any further"
        self.unseen.append(UnseenPart(path, because, where))
        return Part(EMPTY_LEAF, DriverPods(None, 0))

    def _parameter_loop(self, call: Call, around: Context) -> Part:
        path = around.name(call.name)
        iterator = call.task.message("parameterIterator")
        spec = iterator.message("items")
        source = spec.text("inputParameter")
        value: Value = KnownValue(parse_json(spec.text("raw")))
        if source:
            value = call.inputs.get(source, OpenValue(f'it has no input "{source}"'))
        items: list[Any] | Unknown
        if isinstance(value, KnownValue):
            found = items_of(value.value)
            if found is None:
                text = f'task "{path}": it runs over what is no list'
                raise fail(
                    "GF730", text, where=spec.where(), hint="Kubeflow's driver fails on it: give the loop a list"
                )
            items = found
            if isinstance(value, KnownValue) and value.is_default:
                name = source.rpartition("pipelinechannel--")[2]
                text = f'{path} runs over the parameter "{name}": counted with {len(found)} items, its default'
                hint = f"--param {name}=[…] checks the list of another run"
                self.findings.append(Finding("GF529", text, spec.where(), hint, "note"))
        else:
            among = [items_of(each) for each in value.among]
            most = max((len(each or ()) for each in among), default=None)
            items = Unknown(f"{path} runs over {source}: {value.because} ({_place_text(spec.where())})", most)
        inner = {**call.inputs, iterator.text("itemInput"): _item(items, value, path)}
        return self._loop(replace(call, inputs=inner), items, around)

    def _loop(self, call: Call, items: list[Any] | Unknown, around: Context) -> Part:
        path = around.name(call.name)
        copies = items if isinstance(items, Unknown) else len(items)
        number = None if isinstance(copies, Unknown) else copies
        body = self.body(
            call, replace(around, copies=_times(around.copies, number), is_sure=around.is_sure and bool(number))
        )
        limit = call.task.message("iteratorPolicy").integer("parallelismLimit")
        tree = Loop(path, body.tree, copies, limit if limit > 0 else None)
        if copies == 0:  # its driver finds that out
            return Part(Dag({"driver": self._engine_pod(path, call.task.where(), around), "items": tree}))
        return Part(tree, body.drivers.times(number) + DriverPods(1, 1))

    def body(self, call: Call, around: Context) -> Part:
        """What one copy of a task runs."""
        path, component_name = around.name(call.name), call.task.message("componentRef").text("name")
        if "dag" in call.component:
            inner = replace(around, path=path, components=(*around.components, component_name))
            part = self.dag(call.component, call.inputs, call.uris, inner)
            part.drivers += DriverPods(1, 1)
            return part
        label, executor = self.ir.executor(call.component, component_name)
        if "importer" in executor:
            return self._importer(path, call, executor, around)
        if "container" not in executor:
            kind = next((each for each in ("resolver", "customJob") if each in executor), "nothing")
            self._refuse(f'task "{path}": its executor is {kind}, which Kubeflow does not run', executor.where())
            because = f"{label}: what runs is {kind}, which Kubeflow does not run"
            self.unseen.append(UnseenPart(path, because, executor.where()))
            return Part(EMPTY_LEAF)
        spec = Task(path, executor, call.component, self.ir.settings(label), call.inputs, call.scope, call.uris)
        read = self._claim if is_claim_task(executor) else self._container
        return read(path, call.task, spec, around)

    def _container(self, path: str, task: Message, spec: Task, around: Context) -> Part:
        made = pod_of(spec)
        apply_settings(spec, made)
        self._note(path, made)
        is_cached = task.message("cachingOptions").flag("enableCache")
        if is_cached:
            self.cached.append(path)
        container = spec.executor.message("container")
        words = [*container.texts("command"), *container.texts("args")]
        gang = manifest_in(words)
        if gang is not None:
            return self._gang(path, task, around, made, words, gang)
        step = self._made_step(path, task, made, around, is_sure=around.is_sure and not is_cached)
        return Part(Leaf(step.name, {}, 1), DriverPods(1, 1))

    def _made_step(self, path: str, task: Message, made: BuiltPod, around: Context, *, is_sure: bool) -> StepDemand:
        step = StepDemand(
            self._unique_name(path),
            (PodSet("main", 1, self._with_account(made.pod)),),
            around.copies,
            where=replace(task.where(key=True), step=path),
            tries=1 + around.retries,
            is_exit=around.is_exit,
            is_sure=is_sure,
        )
        self.steps.append(with_parts(step, self.options, has_outputs=True))
        return self.steps[-1]

    def _gang(
        self, path: str, task: Message, around: Context, made: BuiltPod, words: list[str], manifest: dict[str, Any]
    ) -> Part:
        """The ranks, which are no pods of KFP's, and the pod that looks after them: the engine's part of the step."""
        launcher = self._made_step(path, task, made, around, is_sure=around.is_sure)
        try:
            ranks = demand_of_manifest(manifest, task.document.file, self.library, self.options)
        except GpuflowError as refusal:
            because = f"{manifest.get('kind')}: {refusal.findings[0].message}"
            self.unseen.append(UnseenPart(path, because, launcher.where))
            ranks = None
        sets = [each for step in ranks.steps for each in step.pod_sets] if ranks is not None else []
        if ranks is not None:
            self.unseen += [replace(each, step=path, where=launcher.where) for each in ranks.unseen]
        if sets:
            (own,) = launcher.pod_sets
            counted = self.options.engine != NO_ENGINE
            overhead = launcher.usage if counted else {}
            sets += [replace(own, name=LAUNCHER)] if counted else []
            avoided = nodes_avoided_in(words)
            self.steps[-1] = replace(launcher, pod_sets=tuple(sets), overhead=overhead, nodes_avoided=avoided)
            own_sets = [each for each in sets if each.name != LAUNCHER]
            for when, pods in later_in(words, own_sets):
                self.later.setdefault(when, {})[launcher.name] = (*pods, *sets[len(own_sets) :])
        return Part(Leaf(launcher.name, {}, self.steps[-1].pods), DriverPods(1, 1))

    def _note(self, path: str, made: BuiltPod) -> None:
        self.unseen += made.hidden
        self.findings += [self._warning_without_engine(each) for each in made.findings]
        self.only_at_most = self.only_at_most or made.only_at_most

    def _with_account(self, pod: dict[str, Any]) -> dict[str, Any]:
        account = self._engine.service_account
        return pod if account is None else {**pod, "spec": {"serviceAccountName": account, **pod["spec"]}}

    def _claim(self, path: str, task: Message, spec: Task, around: Context) -> Part:
        """A claim that Kubeflow's driver creates or deletes by itself: the task has no other pod."""
        found = claims_of(path, task, spec, around.copies)
        self.claims += found.claims
        self.unseen += found.unseen
        if not around.is_sure and found.claims:
            self.only_at_most = self.only_at_most or f"{path} makes its claim only in some runs"
        elif len(self.claims) > 1 and (around.path or task.texts("dependentTasks")):
            self.only_at_most = (
                self.only_at_most or f"{path} makes its claim while the run goes on; all are counted at once"
            )
        return Part(self._engine_pod(path, task.where(), around), outputs={"name": found.name})

    def _engine_pod(self, path: str, where: Where, around: Context) -> Tree:
        """A pod of Kubeflow's own; without the engine, none."""
        pod = driver_pod(self._engine, facts_of(self.options.engine))
        if pod is None:
            return Leaf(path, {}, 0)
        step = StepDemand(
            self._unique_name(path), (PodSet("main", 1, self._with_account(pod)),), around.copies, where=where
        )
        step = replace(step, is_exit=around.is_exit, is_sure=around.is_sure)
        self.steps.append(replace(step, overhead=step.usage))
        return Leaf(step.name, {}, 1)

    def _importer(self, path: str, call: Call, executor: Message, around: Context) -> Part:
        """An importer has one pod, of Kubeflow's own, that asks for as much as a driver does."""
        if call.task.message("triggerPolicy").text("condition"):
            text = f'task "{path}": Kubeflow takes no condition on an importer'
            self._refuse(text, call.task.where("triggerPolicy"))
        source = executor.message("importer").message("artifactUri")
        # An address is written as the value of a parameter is.
        given = Message(source.document, source.path[:-1], {"runtimeValue": source.value}, source.shown_from)
        value = Scope(call.inputs).parameter(given)
        uris = {}
        if isinstance(value, KnownValue) and isinstance(value.value, str):
            kept = f"{WORKSPACE_PATH}/" if executor.message("importer").flag("downloadToWorkspace") else ""
            names = call.component.message("outputDefinitions").message("artifacts").value
            uris = dict.fromkeys(names, kept + value.value)
        return Part(self._engine_pod(path, call.task.where(), around), uris=uris)

    def _refuse(self, text: str, where: Where) -> None:
        hint = "it runs on other backends that read this format"
        self.findings.append(self._warning_without_engine(Finding("GF729", text, where, hint)))

    def _warning_without_engine(self, finding: Finding) -> Finding:
        """The finding as a warning if no engine is given: another backend than Kubeflow's own may run the pipeline."""
        no_engine = self.options.engine == "none" and finding.severity == "error"
        return replace(finding, severity="warning") if no_engine else finding

    def _unique_name(self, path: str) -> str:
        """A name of its own: names of tasks may hold dots."""
        name, number = path, 1
        while name in self._names:
            number += 1
            name = f"{path}-{number}"
        self._names.add(name)
        return name


def _times(copies: int | None, times: int | None) -> int | None:
    return None if copies is None or times is None else copies * times


def _item(items: list[Any] | Unknown, value: Value, path: str) -> Value:
    """The item of a loop, as each copy of its body sees it."""
    if isinstance(items, Unknown):
        return OpenValue(f"it is an item of {path}", by_item=True)
    is_default = isinstance(value, KnownValue) and value.is_default
    if items and all(each == items[0] for each in items):
        return KnownValue(items[0], is_default=is_default)
    return OpenValue(f"each item of {path} has its own", by_item=True, among=tuple(items))


def _retries(task: Message, around: int) -> int:
    return max(0, task.message("retryPolicy").integer("maxRetryCount")) if "retryPolicy" in task else around


def _artifacts(task: Message, scope: Scope) -> dict[str, str]:
    """The addresses of a task's input artifacts, where they are known."""
    found: dict[str, str] = {}
    for name, spec in task.message("inputs").message("artifacts").entries():
        made = spec.message("taskOutputArtifact")
        given = spec.text("componentInputArtifact")
        uri = scope.uris.get(given) if given else None
        uri = uri or scope.output_uris.get((made.text("producerTask"), made.text("outputArtifactKey")))
        if uri is not None:
            found[name] = uri
    return found


def _outputs(component: Message, scope: Scope) -> tuple[dict[str, Value], dict[str, str]]:
    """What a DAG hands on of what its tasks gave it."""
    values = {name: scope.outputs[source] for name, source, _ in outputs_of(component) if source in scope.outputs}
    uris: dict[str, str] = {}
    for name, spec in component.message("dag").message("outputs").message("artifacts").entries():
        sources = list(spec.messages("artifactSelectors"))
        keys = [(each.text("producerSubtask"), each.text("outputArtifactKey")) for each in sources]
        if len(keys) == 1 and keys[0] in scope.output_uris:
            uris[name] = scope.output_uris[keys[0]]
    return values, uris


def _place_text(where: Where) -> str:
    return f"{where.file}:{where.line}"


ROOT = "root"
MAX_SHOWN = 3


def demand_of(document: Document, library: Library, options: Options) -> Demand | PassiveObject:
    """What a run of the pipeline asks of a cluster."""
    ir = ir_of(document, library)
    if not ir.root.value:
        return PassiveObject(document, "it has components and no root, so nothing runs them")
    tasks = Tasks(ir, options, library=library)
    whole = _root_part(ir, tasks, options) if task_count(ir) <= MOST_TASKS else _too_many_tasks(document, tasks)
    parts, facts = engine_of(options.site, options.engine), facts_of(options.engine)
    before = driver_pod(parts, facts)
    drivers = whole.drivers + DriverPods(1, 1)  # the run's own
    return Demand(
        document.name,
        tuple(tasks.steps),
        whole.tree,
        engine=options.engine,
        file=document.file,
        claims=(*_workspace(ir), *tasks.claims),
        deadline=_deadline(ir),
        driver=None if before is None else PodSet("driver", 1, before),
        driver_pods=None if before is None else _driver_pods(drivers, tasks),
        keeps_pods=facts.keeps_pods,
        conditional=tasks.conditional,
        later=tuple(LaterAttempts(when, pods) for when, pods in tasks.later.items()),
        refusals=(*dict.fromkeys(tasks.findings), *_cache_note(document, tasks)),
        engine_settings=settings_of(parts, options.engine),
        kind=document.kind,
        unseen=tuple(tasks.unseen),
        only_at_most=tasks.only_at_most,
    )


def _root_part(ir: Ir, tasks: Tasks, options: Options) -> Part:
    root = ir.root
    inputs = run_parameters(root, ir.given, options.params)
    if "dag" in root:
        return tasks.dag(root, inputs, {}, Context())
    # A component that was compiled alone: its one task is the pipeline.
    name = ir.executor(root, ROOT)[0].removeprefix("exec-") or ROOT
    task = Message(root.document, root.path, {"componentRef": {"name": ROOT}}, root.shown_from)
    part = tasks.body(Call(name, task, root, inputs, {}, Scope(inputs)), Context())
    part.tree = Dag({name: part.tree})
    return part


def _too_many_tasks(document: Document, tasks: Tasks) -> Part:
    because = f"root: the pipeline has more than {MOST_TASKS:,} tasks, and none of them is read"
    tasks.unseen.append(UnseenPart(document.name, because, document.where("root")))
    return Part(Dag({}), DriverPods(None, 0))


def _driver_pods(drivers: DriverPods, tasks: Tasks) -> DriverPods:
    if drivers.at_most is not None:
        return drivers
    because = next((each.because for each in tasks.unseen if each.resource is None), None)
    return replace(drivers, because=because or "how many copies a loop has is only known in the run")


def _workspace(ir: Ir) -> tuple[ClaimDemand, ...]:
    """The volume that all tasks of a run share, where the pipeline asks for one (argocompiler/argo.go)."""
    workspace = ir.platform.message("pipelineConfig").message("workspace")
    if "kubernetes" not in workspace.value:
        return ()
    size = workspace.text("size")
    if not size:
        raise fail(
            "GF730", "the workspace has no size", where=workspace.where(), hint="Kubeflow refuses it: give it a size"
        )
    patch = workspace.message("kubernetes").message("pvcSpecPatch")
    spec: dict[str, Any] = {
        "accessModes": [each for each in patch.texts("accessModes") if each in MODES],
        "resources": {"requests": {"storage": quantity(WORKSPACE_VOLUME, "size", size, workspace.where("size"))}},
    }
    if patch.text("storageClassName"):
        spec["storageClassName"] = patch.text("storageClassName")
    manifest = {"metadata": {"name": WORKSPACE_VOLUME}, "spec": spec}
    where, size_where = workspace.where(), workspace.where("size")
    return (
        ClaimDemand(WORKSPACE_VOLUME, manifest, WORKSPACE_VOLUME, where, size_where, patch.where("storageClassName")),
    )


def _deadline(ir: Ir) -> Deadline | None:
    config = ir.platform.message("pipelineConfig")
    seconds = config.integer("activeDeadlineSeconds")
    return Deadline(f"{seconds}s", seconds, config.where("activeDeadlineSeconds")) if seconds > 0 else None


def _cache_note(document: Document, tasks: Tasks) -> list[Finding]:
    if not tasks.cached:
        return []
    count = len(tasks.cached)
    named = ", ".join(tasks.cached[:MAX_SHOWN]) + (f" and {count - MAX_SHOWN} more" if count > MAX_SHOWN else "")
    return [
        Finding(
            "GF734",
            f"{named}: Kubeflow may take the result from its cache, and then runs no pod; the peaks are those of a run "
            "that finds nothing there",
            document.where(),
            "cachingOptions.enableCache says so",
            severity="note",
        )
    ]


def _conditions(tasks: Message) -> Iterator[tuple[str, Expression]]:
    """The conditions of tasks that are no loops, about the sources of their inputs."""
    for name, task in tasks.entries():
        text = task.message("triggerPolicy").text("condition")
        if text and "parameterIterator" not in task and "artifactIterator" not in task:
            given = task.message("inputs").message("parameters").value
            tree = condition_tree(text, {key: json.dumps(source, sort_keys=True) for key, source in given.items()})
            if tree is not None:
                yield name, tree
