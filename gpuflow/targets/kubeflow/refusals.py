"""Parts of constructs that KFP carries otherwise. Each is refused by name, because dropping it would be silent.

Some can be left out when losses are accepted; they then stand in the artifact's header. Others would make a pipeline
that does something else, or that KFP cannot run at all. Of a patch of the pod, only what KFP's executor config has a
field for is carried.

The notes say what a reader of the artifact should know, although nothing is lost. KFP and Argo mount folders into every
step's container (`MOUNTS`: argocompiler/container.go, 2.17): what lies there is refused, or noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from gpuflow.core.errors import Finding, GpuflowError, Problem, Rule, Where, rule
from gpuflow.kubernetes.pod_fields import Field, fields_of
from gpuflow.plan import Plan, PlannedStep
from gpuflow.pod import Engine, pod_of
from gpuflow.pod.build import made_pod
from gpuflow.pod.supervision import has_records, saves_to_scratch
from gpuflow.pod.volumes import run_claim_volume
from gpuflow.spec.expression import asks_item, compared_texts
from gpuflow.spec.fan_out import Range
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.references import every_step, output_types
from gpuflow.spec.step import Step
from gpuflow.spec.storage_paths import is_below, normalize_path
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, Ref, parts_of
from gpuflow.targets import refusals as shared
from gpuflow.targets.capabilities import Loss, RefusalRule, named_steps, refusal
from gpuflow.targets.kubeflow import containers, references
from gpuflow.targets.kubeflow.client_calls import accounts
from gpuflow.targets.kubeflow.exit_steps import exit_reads, has_one_end
from gpuflow.targets.kubeflow.facts import FACTS, OLDEST, adds_containers
from gpuflow.targets.kubeflow.gangs import account_notes, gang_findings, own_pods, task_pod
from gpuflow.targets.kubeflow.installation import fs_group_losses, unowned_volumes
from gpuflow.targets.kubeflow.retries import restarts_at

Path = tuple[str, ...]
_ENV_SOURCES = ("secretKeyRef", "configMapKeyRef", "fieldRef")
_VOLUMES = {
    "emptyDir": ("medium", "sizeLimit"),
    "secret": ("secretName", "optional"),
    "configMap": ("name", "optional"),
    "persistentVolumeClaim": ("claimName",),
}
_CLAIM_TEMPLATE = (
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("spec", "accessModes"),
    ("spec", "storageClassName"),
    ("spec", "resources", "requests", "storage"),
)
"""What the executor config says of the claim of an ephemeral volume."""


def lost_changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The fields that a patch changes and KFP cannot carry, by their paths."""
    old, new = dict(_leaves(before, "PodTemplateSpec", ())), dict(_leaves(after, "PodTemplateSpec", ()))
    changed = [path for path in {**old, **new} if old.get(path, _MISSING) != new.get(path, _MISSING)]
    return list(dict.fromkeys(".".join(path) for path in changed if not _is_carried(path)))


_MISSING = object()


def _leaves(value: Any, type_name: str, path: Path) -> Iterator[tuple[Path, Any]]:
    """Every value of a pod with the way to it; entries of lists that have a key by that key."""
    known = fields_of(type_name)
    if not value:
        yield path, value
    for key, item in value.items():
        field = known.get(key) or Field(key, "any")
        place = (*path, key)
        if isinstance(item, dict):
            yield from _leaves(item, field.type, place)
        elif isinstance(item, list) and field.merge_key is not None:
            for each in item:
                yield from _leaves(each, field.type, (*place, str(each[field.merge_key])))
        else:
            yield place, item


def _is_carried(path: Path) -> bool:
    match path:
        case ("metadata", "labels" | "annotations", *_):
            return True
        case ("spec", "nodeSelector" | "tolerations" | "imagePullSecrets", *_):
            return True
        case ("spec", "affinity", "nodeAffinity", *_):
            return True
        case ("spec", "securityContext", "runAsUser" | "runAsGroup" | "runAsNonRoot"):
            return True
        case ("spec", "volumes", _, *rest):
            return rest == ["name"] or _is_volume(rest)
        case ("spec", "containers", "main", "volumeMounts", _, "name" | "mountPath"):
            return True
        case ("spec", "containers", "main", "env", _, *rest):
            return _is_variable(rest)
    return False


def _is_volume(rest: list[str]) -> bool:
    kind, *field = rest
    if kind == "ephemeral":
        inner = tuple(field[1:])
        return not inner or any(inner[: len(place)] == place for place in _CLAIM_TEMPLATE)
    return kind in _VOLUMES and (not field or field[0] in _VOLUMES[kind])


def _is_variable(rest: list[str]) -> bool:
    if rest in (["name"], ["value"]):
        return True
    return len(rest) == 3 and rest[1] in _ENV_SOURCES and rest[2] in ("name", "key", "optional", "fieldPath")


Place = tuple[str | int, ...]
Fault = tuple[str, Place, str]
MAX_EXACT_INTEGER = 2**53
LONGEST_CLAIM = 26
"""A run's claim is called by a UUID, a dash and this name, and so is the volume that mounts it."""


@refusal("GF397")
def old_version(plan: Plan) -> Iterable[Finding]:
    """A site whose KFP would drop or misread what is written."""
    return shared.version_problem(plan.site, FACTS.name, "KFP", OLDEST, "GF397", "2.17")


@refusal("GF301")
def carried_otherwise(plan: Plan) -> Iterator[Finding]:
    """What cannot be carried and cannot be left out."""
    return _findings_in_plan(plan, _pipeline, _step)


@refusal("GF301", optional=True)
def omissions(plan: Plan) -> Iterator[Finding]:
    """What is left out when losses are accepted."""
    return _findings_in_plan(plan, _pipeline_omissions, _step_omissions)


@refusal("GF301", optional=True)
def patches(plan: Plan) -> Iterator[Loss]:
    """Fields of patches that KFP has no place for, by name."""
    for each in own_pods(plan):
        hatch = each.step.kubernetes
        if hatch is None or hatch.merge is None:
            continue
        try:
            made = made_pod(each)
            lost = lost_changes(made.plain, made.manifest)
        except GpuflowError:
            continue  # said by whoever makes the pod
        if lost:
            text = f'kubeflow: step "{each.name}": KFP has no place for {", ".join(lost[:6])} of kubernetes.merge'
            hint = "let a mutating webhook add it to pods with the step's labels"
            yield Loss(text, each.where("kubernetes", "merge"), hint)


@refusal("GF301")
def helpers(plan: Plan) -> Iterator[Loss]:
    """What init containers and sidecars say that a KFP which adds containers has no word for."""
    if not adds_containers(plan.site):
        return  # refused as a whole
    for each in own_pods(plan):
        if not (each.step.init_containers or each.step.sidecars):
            continue
        name, claims = each.own_name, {run_claim_volume(claim) for claim in each.pipeline.claims}
        try:
            pod = pod_of(each, references.KubeflowSpelling(), Engine(FACTS.supervisor))
        except GpuflowError:
            continue  # said by whoever makes the pod
        for message, hint, optional in containers.helper_problems(pod, claims):
            yield Loss(f'kubeflow: step "{name}": {message}', each.where(), hint, optional=optional)


@refusal("GF301")
def scheduled_dates(plan: Plan) -> Iterator[Finding]:
    """A recurring run has the time when it was made, which may be the day after the one that it is for."""
    if plan.pipeline.schedule is None:
        return
    for each, ref, where in shared.dates_of(plan, "logical_date", "interval_end"):
        yield Finding(
            "GF301",
            f'kubeflow does not support run.{ref.field} (step "{each.name}") in a pipeline with a schedule: its '
            "recurring runs do not know their scheduled time",
            where,
            "leave the schedule out, and start the runs from a program of yours that passes the time as a parameter",
        )


def _findings_in_plan(
    plan: Plan,
    of_pipeline: Callable[[Pipeline, bool], Iterator[Fault]],
    of_step: Callable[[Pipeline, str, Step], Iterator[Fault]],
) -> Iterator[Finding]:
    def whole(pipeline: Pipeline, sub: bool) -> Iterator[Finding]:
        for message, place, hint in of_pipeline(pipeline, sub):
            yield Finding("GF301", f"kubeflow: {message}", pipeline.where(*place), hint)

    yield from whole(plan.pipeline, False)
    for each in plan.steps:
        for message, place, hint in of_step(each.pipeline, each.own_name, each.step):
            where = each.pipeline.where(each.section, each.own_name, *place)
            yield Finding("GF301", f'kubeflow: step "{each.name}": {message}', where, hint)
        if each.step.pipeline is not None:
            yield from whole(each.step.pipeline, True)


@refusal("GF313")
def fan_outs(plan: Plan) -> Iterator[Finding]:
    """Fan-outs whose items would not fit into what KFP makes of them."""
    for each in plan.steps:
        found = (
            shared.fan_out_finding(each.step, each.name, "KFP", each.where("for_each")) if each.step.for_each else None
        )
        if found is not None:
            yield found


@refusal("GF301", "GF306")
def pods(plan: Plan) -> Iterator[Finding]:
    """What only a step's pod shows. It is made where there is something to look at: volumes, or braces in text."""
    tags_in_site = shared.holds_tags(plan.site)
    for each in plan.containers:
        merges = each.step.kubernetes is not None and each.step.kubernetes.merge is not None
        if each.step.volumes or merges or tags_in_site or shared.holds_tags(each.step):
            yield from _pod_findings(each)


def _pod_findings(each: PlannedStep) -> Iterator[Finding]:
    step, restarted = each.step, replace(each, restarts=restarts_at(each.site))
    try:
        pod = task_pod(restarted, references.KubeflowSpelling(), Engine(FACTS.supervisor, FACTS.outputs_dir))
    except GpuflowError:
        return  # said by whoever makes the pod
    main = pod["spec"]["containers"][0]
    words = containers.command_words(main, containers.step_outputs(step))
    for message, hint in (*containers.volume_problems(pod), *references.placeholder_problems(words)):
        yield Finding("GF301", f'step "{each.name}": {message}', each.where(), hint)
    main.pop("workingDir", None)  # a word of the command
    swallowed = references.lost_settings(pod)
    if swallowed is not None:
        yield Finding("GF301", f'step "{each.name}": {swallowed[0]}', each.where(), swallowed[1])
    yield from shared.unresolved_tags(each.name, pod, each.where())


def _pipeline(pipeline: Pipeline, sub: bool) -> Iterator[Fault]:
    for name, param in pipeline.params.items():
        yield from _values(pipeline, param.default, f'the default of "{name}"', ("params", name))
        yield from _values(pipeline, param.enum, f'a choice of "{name}"', ("params", name, "enum"))
        if "{{" in (param.description or ""):
            yield _braces(f'the description of "{name}"', ("params", name, "description"))
        if param.type == "json" and not isinstance(param.default, list | dict | None):
            yield f'the default of "{name}" is neither a list nor a map', ("params", name), "give it another type"
    for name, claim in pipeline.claims.items():
        if "{{" in (claim.storage_class or ""):
            yield _braces(f'the storage class of "{name}"', ("claims", name, "storage_class"))
        if claim.storage_class is None:
            text = f'the claim "{name}" names no storage_class, and KFP cannot ask for the cluster\'s default'
            yield text, ("claims", name), "name the class"
        if len(name) > LONGEST_CLAIM:
            text = f'the claim "{name}" is longer than {LONGEST_CLAIM} characters: KFP adds a prefix of 37 and uses '
            text += "the result as a volume name, which has at most 63"
            yield text, ("claims", name), "choose a shorter name"
    if sub and pipeline.claims:
        yield "KFP has no claims for a sub-pipeline", ("claims",), "move them to the pipeline that uses it"


def _pipeline_omissions(pipeline: Pipeline, sub: bool) -> Iterator[Fault]:
    wanted = set() if sub else accounts(pipeline)
    if len(wanted) > 1:
        shown = ", ".join(sorted(account or "none" for account in wanted))
        hint = "give all steps the same under defaults: service_account"
        yield f"a run has one service account, and the steps name several ({shown})", (), hint


def _step(pipeline: Pipeline, name: str, step: Step) -> Iterator[Fault]:
    if f"{name}-driver" in pipeline.steps or f"{name}-driver" in pipeline.exit:
        yield f'KFP names its own task "{name}-driver", like another step', (), f'rename "{name}-driver"'
    if any(name in (references.claim_task(claim), references.release_task(claim)) for claim in pipeline.claims):
        yield f'the task of a claim is also named "{name}"', (), "rename the step or the claim"
    yield from _fan_out(pipeline, name, step)
    yield from _shared_state(step)
    yield from _bare_text(step)
    yield from _compared_run_text(step)
    for key, value in step.params.items():
        if not isinstance(value, ParamRef | OutputRef | ItemRef):
            yield from _values(pipeline, value, f'"{key}"', ("params", key))
    for output, declared in step.outputs.items():
        yield from _values(pipeline, declared.default, f'the default of "{output}"', ("outputs", output, "default"))
        if name.startswith("loop-item") or f"{name}-{output}".endswith("loop-item"):
            text = f'the output "{output}" would be taken for a loop\'s item'
            yield text, ("outputs", output), "rename the step or the output"


def _shared_state(step: Step) -> Iterator[Fault]:
    """Copies of a sub-pipeline do not know their item, so a checkpoint inside would be that of all of them."""
    if step.pipeline is None or not step.for_each:
        return
    for name, inner in every_step(step.pipeline):
        store = () if inner.checkpoint is None else parts_of(inner.checkpoint.store)
        if store and not any(isinstance(part, ParamRef) for part in store):
            hint = "pass the item as a parameter, and use that in checkpoint.store: s3://bucket/{param: ...}"
            yield f'its copies would share the checkpoints of "{name}"', ("for_each",), hint


def _bare_text(step: Step) -> Iterator[Fault]:
    """Text that Argo reads where nothing can be spelled otherwise: a mount's path, an annotation."""
    places: list[tuple[Place, str | None]] = [
        (("checkpoint", "path"), step.checkpoint.path if step.checkpoint else None),
        *((("volumes", path), path) for path in step.volumes),
    ]
    for place, text in places:
        if "{{" in (text or ""):
            yield f"{text} holds {{{{, which Argo would evaluate", place, "choose another place"
    for key, text in step.annotations.items():
        if "{{" in text:
            yield _braces(f'the annotation "{key}"', ("annotations", key))


def _compared_run_text(step: Step) -> Iterator[Fault]:
    """Text of a run that a condition asks for comes through the arguments of a driver; only an output does not."""
    sources = step.for_each or {}
    for reference, literal in compared_texts(step.when):
        ref = reference.ref
        source = sources.get(ref.name) if isinstance(ref, ItemRef) else ref
        lost = references.replaced_part(literal, tuple) if isinstance(source, ParamRef) else None
        if lost is not None:
            text = f'its condition compares "{ref.name}" with {literal!r}, and a value of the run cannot hold {lost}'
            yield text, ("when",), "compare it with another text, or with the output of a step"


def _braces(what: str, place: Place) -> Fault:
    return f"{what} holds {{{{, which Argo would evaluate", place, "write it without the braces"


def _step_omissions(pipeline: Pipeline, name: str, step: Step) -> Iterator[Fault]:
    if step.gang is not None:
        return  # its ranks are no pods of KFP's
    for path, volume in step.volumes.items():
        claim = volume.claim or volume.new_claim
        if volume.read_only and not (volume.config_map or volume.secret):
            what = f'the claim "{claim}"' if claim else f"the volume at {path}"
            yield f"{what} would be mounted writable", ("volumes", path, "read_only"), "drop read_only"
        if volume.sub_path and not claim:
            hint = "mount the whole volume and use the path below it"
            yield "sub_path works on claims only", ("volumes", path, "sub_path"), hint
    affinity = (step.kubernetes.affinity if step.kubernetes else None) or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if affinity.get(kind):
            yield f"{kind} is never read by KFP's backend", ("kubernetes", "affinity"), "use nodeAffinity"


@refusal("GF301", optional=True)
def unread_at_exit(plan: Plan) -> Iterator[Loss]:
    """Outputs that exit steps cannot read: nobody could write their default, or KFP may not know how a step ended."""
    pipeline = plan.pipeline
    for name, path, ref in exit_reads(pipeline):
        read, where = f"{ref.step}.{ref.name}", pipeline.where("exit", name, *path)
        if plan.site.images.alerts is None:
            yield Loss(
                f'kubeflow: exit "{name}": an exit task that reads an output of a step that did not end well never '
                f'starts, and site "{plan.site.name}" names no image for a container that writes the default of {read}',
                where,
                "set images.alerts in the site to an image with Python, such as python:3.13-slim",
            )
        elif not has_one_end(pipeline.effective(ref.step)):
            yield Loss(
                f'kubeflow: exit "{name}": "{ref.step}" is a fan-out, a sub-pipeline or has a condition, and KFP does '
                f"not always record how such a step ended: {read} would be its default",
                where,
                "let a plain step read the output and write it as its own, and read that",
            )


def _fan_out(pipeline: Pipeline, name: str, step: Step) -> Iterator[Fault]:
    sources = step.for_each or {}
    for variable, source in sources.items():
        if isinstance(source, tuple):
            yield from _values(pipeline, source, f'an item of "{variable}"', ("for_each", variable))
    nested = len(sources) > 1 and not all(isinstance(source, tuple | Range) for source in sources.values())
    if nested and name in _read_steps(pipeline):
        text = "a list of the run makes its fan-out nested loops, and KFP disagrees with itself about what a reader of "
        text += "their outputs gets: one list from the backend's driver, lists of lists from the local runner"
        yield text, ("for_each",), "let an earlier step write all combinations as one list, and run over that"
    if asks_item(step.when) and name in _read_steps(pipeline):
        text = "some of its copies may be left out, and KFP's driver fails on the outputs of the others"
        yield text, ("when",), "run every copy, and let it report in its output that there was nothing to do"


def _read_steps(pipeline: Pipeline) -> set[str]:
    """The steps whose outputs somebody reads."""
    refs = [ref for name in (*pipeline.steps, *pipeline.exit) for _, ref in pipeline.effective(name).references()]
    return {ref.step for ref in (*refs, *pipeline.outputs.values()) if isinstance(ref, OutputRef)}


def _values(pipeline: Pipeline, value: Any, what: str, place: Place) -> Iterator[Fault]:
    """What a value loses on its way: KFP hands numbers over as doubles, and text through Argo and the kubelet."""
    if isinstance(value, str):
        lost = references.replaced_part(value, partial(_variables, pipeline))
        if lost is not None:
            yield f"{what} holds {lost}", place, "write it in the command, or keep it in a file or a ConfigMap"
    elif isinstance(value, int) and abs(value) > MAX_EXACT_INTEGER:
        yield f"{what} is {value}, and KFP's numbers are exact up to {MAX_EXACT_INTEGER} only", place, "make it text"
    elif isinstance(value, dict):
        yield from _values(pipeline, [*value, *value.values()], what, place)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _values(pipeline, item, what, place)


def _variables(pipeline: Pipeline) -> set[str]:
    """The environment variables of all steps, those of sub-pipelines too: values are handed down."""
    leaders = (step.gang.leader for _, step in every_step(pipeline) if step.gang is not None)
    own = {key for leader in leaders if leader is not None for key in leader.env}
    return own | {key for _, step in every_step(pipeline) for key in step.env}


REFUSALS: Final[tuple[RefusalRule[Plan], ...]] = (
    old_version, carried_otherwise, scheduled_dates, fan_outs, pods, gang_findings, omissions, unread_at_exit,
    fs_group_losses, helpers, patches,
)  # fmt: skip
"""In the order in which they are said."""


def partial_losses(plan: Plan) -> Iterator[Loss]:
    return (loss for each in REFUSALS for loss in each(plan))


MOUNTS = ("/kfp-launcher", "/gcs", "/s3", "/minio", "/.local", "/.cache", "/.config", "/var/run/argo")
"""Each is an empty folder of the pod: what the image has there is hidden."""

MountPlace = tuple[tuple[str | int, ...], str]


@refusal("GF386")
def taken_mounts(plan: Plan) -> Iterator[Problem]:
    """Volumes where KFP mounts one itself: Kubernetes refuses two mounts of one path, and the step never starts."""
    for each in own_pods(plan):
        for place, path in _mount_places(each):
            if normalize_path(path) in MOUNTS:
                yield Problem(
                    f'step "{each.name}" mounts a volume at {path}, where KFP mounts one of its own: Kubernetes '
                    "refuses such a pod",
                    each.where(*place),
                    "mount it at another path, or at a folder below this one",
                )


@rule("GF387", severity="note")
def hidden_paths(plan: Plan) -> Iterator[Problem]:
    """Steps that work where KFP mounts an empty folder."""
    for each in own_pods(plan):
        for place, path in _used_paths(each):
            mount = next((mount for mount in MOUNTS if is_below(path, mount)), None)
            covered = any(is_below(path, own) for _, own in _mount_places(each))
            if mount is not None and not covered:
                yield Problem(
                    f'step "{each.name}": {path} is in {mount}, where KFP mounts an empty folder: files of the image '
                    "are hidden there, and what is written there goes with the pod",
                    each.where(*place),
                    "use another path",
                )


def _mount_places(each: PlannedStep) -> list[MountPlace]:
    found: list[MountPlace] = [(("volumes", path), path) for path in each.step.volumes]
    if each.step.checkpoint is not None and saves_to_scratch(each.step):
        found.append((("checkpoint", "path"), each.step.checkpoint.path))
    return found


def _used_paths(each: PlannedStep) -> Iterator[MountPlace]:
    step = each.step
    if step.working_dir is not None:
        yield ("working_dir",), step.working_dir
    for name, output in step.outputs.items():
        if output.path is not None:
            yield ("outputs", name, "path"), output.path


_TEXT = ("string", "json")
_CONTAINER = ("command", "args", "env", "outputs", "checkpoint")
"""Where a reference ends in what the container is started with: a URI and a store are options of the supervisor."""


@rule("GF305", severity="note")
def run_time_text(plan: Plan) -> Iterator[Problem]:
    """One note about all text that is only known when the pipeline runs, with the steps that are handed it."""
    handed: dict[str, Where] = {}
    for each in plan.containers:
        for place, ref in each.step.references():
            if place[0] in _CONTAINER and _is_run_time_text(each.pipeline, each.step, ref):
                handed[each.name] = each.where(*place)
                break
    if handed:
        text = f"{named_steps(tuple(handed))}: text that is only known in the run passes Argo and the kubelet, "
        text += "which replace {{…}} and $(NAME) in it and make $$ one $"
        hint = "pass such text in a file, or give the parameter an enum; whoever may start runs with any text can read "
        hint += "variables of these steps, Secrets included"
        yield Problem(text, next(iter(handed.values())), hint)


@rule("GF305", severity="note")
def key_notes(plan: Plan) -> Iterator[Problem]:
    """KFP can mount a Secret, but neither a single key of it nor with permissions of its own."""
    key = plan.site.runtime.key
    signed = tuple(each.name for each in own_pods(plan.under(restarts_at(plan.site))) if has_records(each))
    if key is not None and signed:
        yield Problem(
            f'{named_steps(signed)}: KFP mounts the whole Secret "{key.secret}", and every user in the container '
            "may read it",
            plan.by_name[signed[0]].where(),
            f'keep nothing but "{key.key}" in that Secret',
        )


def _is_run_time_text(pipeline: Pipeline, step: Step, ref: Ref) -> bool:
    """Whether a reference stands for text that somebody else writes: a parameter, an output, an item of either."""
    source = (step.for_each or {}).get(ref.name) if isinstance(ref, ItemRef) else ref
    if isinstance(source, ParamRef):
        param = pipeline.params[source.name]
        return param.type in _TEXT and not param.enum
    if not isinstance(source, OutputRef):
        return False
    before = pipeline.steps[source.step]
    one = before.model_copy(update={"for_each": None})  # a list of numbers is no text
    return output_types(one).get(source.name) in _TEXT


@rule("GF384")
def waits_without_end(plan: Plan) -> Iterator[Finding]:
    return shared.endless_waits(plan)


NOTES: Final[tuple[Rule[Plan], ...]] = (
    run_time_text, key_notes, hidden_paths, containers.never_cached, unowned_volumes, account_notes, waits_without_end,
)  # fmt: skip
