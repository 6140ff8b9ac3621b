"""The demand of a Kubeflow pipeline."""

from __future__ import annotations

from typing import Any

from gpuflow.core.errors import Finding, fail
from gpuflow.demands.model import ClaimDemand, Deadline, Demand, DriverPods, LaterAttempts, PodSet, UnseenPart
from gpuflow.engines import facts_of
from gpuflow.formats.documents import Document, Library
from gpuflow.formats.kfp import MOST_TASKS, Ir, Message, ir_of, task_count
from gpuflow.graph import Dag
from gpuflow.pod.engine_containers import driver_pod, engine_of, settings_of
from gpuflow.readers.interface import Options, PassiveObject
from gpuflow.readers.kfp.pods import WORKSPACE_VOLUME, quantity
from gpuflow.readers.kfp.settings import MODES
from gpuflow.readers.kfp.tasks import Call, Context, Drivers, Part, Tasks
from gpuflow.readers.kfp.values import Scope, run_parameters

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
    drivers = whole.drivers + Drivers(1, 1)  # the run's own
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
    return Part(Dag({}), Drivers(None, 0))


def _driver_pods(drivers: Drivers, tasks: Tasks) -> DriverPods:
    because = None
    if drivers.most is None:
        because = next((each.because for each in tasks.unseen if each.resource is None), None)
        because = because or "how many copies a loop has is only known in the run"
    return DriverPods(drivers.most, drivers.least, because)


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
