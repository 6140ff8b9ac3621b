"""Rules over documents of other tools: gangs, GPU limits, schedules, shared memory, updates, retries on spot nodes,
checkpoints that do not help where they are needed, and tasks of DAGs; `RULES` is the list. And the codes that a
document silences:

    # gpuflow: silence GF769 GF773
    metadata: {annotations: {gpuflow.dev/silence: "GF769, GF773"}}

A comment counts for its whole file, an annotation for its object, and `silence` of the site for everything. Annotations
are for documents from tools that drop comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpuflow.core import yaml_tree
from gpuflow.core.codes import CODES
from gpuflow.core.errors import Finding, Problem, Rule, Where, did_you_mean, list_names, rule, warning
from gpuflow.demands.gang_scheduling import (
    as_mapping,
    gangs_of,
    gpus,
    gpus_of_pod,
    is_queued,
    iter_maps,
    one_by_one_finding,
    starts_whole,
)
from gpuflow.formats.argo import workflow_of
from gpuflow.formats.documents import DAG, KFP, Document, Library
from gpuflow.kubernetes.labels import QUEUE_LABEL
from gpuflow.kubernetes.resources import read_quantity
from gpuflow.quantity import Quantity
from gpuflow.readers.findings.subject import (
    Subject,
    checkpoint_mounts,
    command_words,
    looks_like_torch,
    spot_label,
)
from gpuflow.readers.kubernetes.pods import Part, amount_or_percentage, surge_of
from gpuflow.site.model import without_site_silenced
from gpuflow.spec.problems import is_always_error
from gpuflow.spec.rules.remarks import without_codes

if TYPE_CHECKING:
    from gpuflow.formats.airflow import Task

SERVING: Final = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "DaemonSet", "Pod")
"""Kinds whose pods do not wait for each other."""
WORKFLOWS: Final = ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow")


@rule("GF771")
def gangs_without_scheduling(subject: Subject) -> Iterator[Finding]:
    """Members with GPUs that are placed one by one."""
    if subject.kind in SERVING or _operator_schedules(subject):
        return
    for step in gangs_of(subject.demand):
        if starts_whole(step):
            continue
        hint = f"label the object {QUEUE_LABEL}: QUEUE where Kueue runs, or use the scheduler of Volcano or a PodGroup"
        yield one_by_one_finding(step, subject.where(step.name), hint, overlaps=subject.demand.overlap is not None)


@rule("GF774")
def queue_on_pods(subject: Subject) -> Iterator[Problem]:
    """A queue that admits the pods of a gang one by one."""
    if subject.kind in (*SERVING, *WORKFLOWS, DAG[0]) or subject.document.group == KFP or _object_names_queue(subject):
        return
    for step in gangs_of(subject.demand, least_gpus=0):
        if any(is_queued(each.pod) for each in step.pod_sets):
            yield Problem(
                f'step "{step.name}": its pods name a queue and {subject.title} does not, so Kueue '
                "admits each pod on its own, and a part of the gang may wait for the rest",
                subject.where(step.name),
                f"move the label {QUEUE_LABEL} to metadata.labels of the {subject.kind}",
            )


@rule("GF775")
def queue_passed_by(subject: Subject) -> Iterator[Problem]:
    """A queue that a workflow names for itself, which Argo tells none of its pods."""
    name = as_mapping(as_mapping(subject.document.tree.get("metadata")).get("labels")).get(QUEUE_LABEL)
    if subject.kind not in WORKFLOWS or not name:
        return
    passing = [step.name for step in subject.demand.steps if not all(is_queued(each.pod) for each in step.pod_sets)]
    if passing:
        text = f"{subject.title} names queue {name} for itself, and Argo copies its labels to no pod: "
        text += f"{list_names(passing)} passes that queue by"
        hint = f"podMetadata: {{labels: {{{QUEUE_LABEL}: {name}}}}} in its spec labels every pod"
        yield Problem(text, subject.document.where("metadata", "labels", QUEUE_LABEL), hint)


def _object_names_queue(subject: Subject) -> bool:
    tree: Mapping[str, object] = subject.document.tree
    if subject.kind == "CronJob":
        tree = as_mapping(as_mapping(tree.get("spec")).get("jobTemplate"))
    return bool(as_mapping(as_mapping(tree.get("metadata")).get("labels")).get(QUEUE_LABEL))


def _operator_schedules(subject: Subject) -> bool:
    """Whether the operator is told to make a PodGroup."""
    spec = as_mapping(subject.document.tree.get("spec"))
    if as_mapping(spec.get("runPolicy")).get("schedulingPolicy"):
        return True
    if subject.kind == "TrainJob":
        name = as_mapping(spec.get("runtimeRef")).get("name")
        runtimes = (each for each in subject.documents if each.kind.endswith("TrainingRuntime") and each.name == name)
        return any(as_mapping(each.tree.get("spec")).get("podGroupPolicy") for each in runtimes)
    return False


@rule("GF761")
def gpus_without_limit(subject: Subject) -> Iterator[Problem]:
    """A request for GPUs without a limit, or with another one."""
    for asked in subject.containers():
        resources = asked.container.get("resources")
        if not isinstance(resources, Mapping):
            continue
        requests, limits = (_amounts(resources.get(side)) for side in ("requests", "limits"))
        for key, amount in requests.items():
            # Of an extended resource, whose name has a domain that is not Kubernetes' own, both must be the same.
            if "/" not in key or "kubernetes.io/" in key or limits.get(key) == amount:
                continue
            given = "no limit" if key not in limits else f"a limit of {limits[key]}"
            text = f"{asked.title} requests {amount} {key} and has {given}; Kubernetes refuses that"
            hint = f"resources: {{limits: {{{key}: {amount}}}}} says both"
            yield Problem(text, subject.where_of(asked, "resources", "requests", key), hint)


def _amounts(listed: object) -> dict[str, Quantity]:
    found: dict[str, Quantity] = {}
    for key, value in listed.items() if isinstance(listed, Mapping) else ():
        try:
            found[str(key)] = read_quantity(value)
        except ValueError:
            continue  # whoever reads the pod says so
    return found


_ONE_BY_ONE: Final = {
    "DAG": "max_active_runs=1 waits for the run before",
    "Workflow": "a mutex in synchronization waits for the run before",
}
"""What lets one run go on at a time, by the kind of the document; of others, their schedule does."""


@rule("GF772")
def overlapping_schedule(subject: Subject) -> Iterator[Problem]:
    """A check says the same with its verdict (GF553)."""
    overlap = subject.demand.overlap
    if overlap is not None:
        yield Problem(
            f"{subject.title} may run several times at once ({overlap.because}): the peak is that of one run",
            overlap.where,
            _ONE_BY_ONE.get(subject.kind, "concurrencyPolicy: Forbid waits for the run before, Replace stops it"),
        )


SHM = "/dev/shm"


@rule("GF769")
def small_shared_memory(subject: Subject) -> Iterator[Problem]:
    """PyTorch on several GPUs with the runtime's own /dev/shm."""
    for asked in subject.containers():
        number = gpus(asked.container)
        mounts = {str(mount.get("mountPath")).rstrip("/") for mount in iter_maps(asked.container.get("volumeMounts"))}
        if number < 2 or SHM in mounts or asked.pod["spec"].get("hostIPC") or not looks_like_torch(asked.container):
            continue
        text = f"{asked.title} uses {number} GPUs with PyTorch, and its {SHM} has the 64 MiB of the container runtime"
        hint = f"mount an emptyDir {{medium: Memory, sizeLimit: 16Gi}} at {SHM}; it counts in the memory limit"
        yield Problem(text, subject.where_of(asked, "volumeMounts"), hint)


@rule("GF773", severity="note")
def update_surges(subject: Subject) -> Iterator[Problem]:
    """What runs while an update replaces pods."""
    root = Part(subject.document, (), subject.document.tree)
    if subject.document.group == "apps" and subject.kind == "Deployment":
        spec = root.need("spec")
        count = spec.count("replicas", 1)
        yield from _surge_problem(subject, count, surge_of(spec, count), "pods", spec.at("strategy") or spec)
    elif subject.kind == "LeaderWorkerSet":
        spec = root.need("spec")
        count = spec.count("replicas", 1)
        surge = spec.at("rolloutStrategy", "rollingUpdateConfiguration", "maxSurge")
        if surge is not None:
            yield from _surge_problem(subject, count, amount_or_percentage(surge, count, "0%"), "groups", surge)
    elif subject.kind == "RayService":
        upgrade = root.at("spec", "upgradeStrategy")
        if upgrade is None or upgrade.text("type") != "None":
            yield from _surge_problem(subject, 1, 1, "Ray clusters", upgrade or root.need("spec"))


NO_SURGE = ", or set strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}"


def _surge_problem(subject: Subject, count: int, more: int, what: str, at: Part) -> Iterator[Problem]:
    if more:
        yield Problem(
            f"{subject.title}: the peak is that of the first start, with {count} of its {what}; an update runs up to "
            f"{count + more} at the same time",
            at.key_where,
            "leave room for them" + (NO_SURGE if subject.kind == "Deployment" else ""),
        )


JOB_KINDS = (
    "Job", "CronJob", "JobSet", "PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob", "TrainJob",
)  # fmt: skip
"""Kinds that come to an end: of others, pods are restarted in place as a matter of course."""


@rule("GF766")
def restarts_with_checkpoint(subject: Subject) -> Iterator[Problem]:
    """RestartPolicy OnFailure where a checkpoint waits to be used."""
    if subject.kind not in JOB_KINDS:
        return
    for asked in subject.containers():
        if asked.pod["spec"].get("restartPolicy") != "OnFailure":
            continue
        for _, mount in checkpoint_mounts(asked.container):
            text = f"{asked.title} keeps checkpoints in {mount.get('mountPath')}, and "
            text += "restartPolicy: OnFailure restarts it in place: an interruption counts like a failure"
            hint = "restartPolicy: Never with a podFailurePolicy that ignores DisruptionTarget; a new pod then goes on "
            hint += "from the checkpoint"
            yield Problem(text, subject.where(asked.step.name), hint)
            break


@rule("GF767")
def checkpoints_lost(subject: Subject) -> Iterator[Problem]:
    """Checkpoints in a volume that is deleted with its pod."""
    for asked in subject.containers():
        if _kept_by_supervisor(asked.container):
            continue
        lost = {str(each.get("name")) for each in iter_maps(asked.pod["spec"].get("volumes")) if "emptyDir" in each}
        for _, mount in checkpoint_mounts(asked.container):
            if str(mount.get("name")) in lost:
                text = f"{asked.title} keeps checkpoints in {mount.get('mountPath')}, "
                text += "an emptyDir, which is deleted with its pod"
                hint = "mount a persistentVolumeClaim there, or save to an object store"
                yield Problem(text, subject.where_of(asked, "volumeMounts"), hint)


def _kept_by_supervisor(container: Mapping[str, Any]) -> bool:
    """Whether gpuflow-run carries what is saved there to a store."""
    words = command_words(container)
    own = words[: words.index("--")] if "--" in words else words
    starts = [index for index, word in enumerate(own) if word.rpartition("/")[2] == "gpuflow-run"]
    return bool(starts) and any(word.startswith("--store=") for word in own[starts[0] :])


@rule("GF768", severity="note")
def restarted_members(subject: Subject) -> Iterator[Problem]:
    """Members of a gang with GPUs that are restarted one by one."""
    if subject.kind not in JOB_KINDS or "elasticPolicy" in as_mapping(subject.document.tree.get("spec")):
        return
    for step in subject.demand.steps:
        with_gpus = sum(each.count for each in step.pod_sets if gpus_of_pod(each.pod["spec"]))
        again = [each.name for each in step.pod_sets if each.pod["spec"].get("restartPolicy") == "OnFailure"]
        if with_gpus > 1 and again:
            yield Problem(
                f'step "{step.name}": {", ".join(again[:5])} of a gang restart in place (restartPolicy: OnFailure) '
                "while the other members hang with their GPUs",
                subject.where(step.name),
                "restartPolicy: Never, so that the whole gang starts again",
            )


ARGO_HINT: Final = (
    "retryPolicy: Always and an expression that lets interruptions pass and stops at failures, such as "
    "\"lastRetry.status == 'Error' || asInt(lastRetry.exitCode) in [137, 143]\""
)


@rule("GF764", "GF765")
def retries_on_spot(subject: Subject) -> Iterator[Finding]:
    """By the rules of the engine that retries."""
    if subject.document.group == "argoproj.io" and subject.kind in WORKFLOWS:
        yield from _argo(subject)
    elif subject.document.group == KFP:
        yield from _kubeflow(subject)
    elif subject.document.group == "batch" or subject.kind == "JobSet":
        yield from _jobs(subject)


def _argo(subject: Subject) -> Iterator[Finding]:
    """Each template once, whatever calls it; what patches and defaults make of its pod counts."""
    seen: set[Where] = set()
    workflow = workflow_of(subject.document, Library(subject.documents).seen_from(subject.document))
    defaults = as_mapping(workflow.tree.get("templateDefaults"))
    for step in subject.demand.steps:
        label = spot_label(step.pod["spec"], subject.site)
        template = None if label is None else subject.tree_of(step.name)
        if not isinstance(template, yaml_tree.Map):
            continue
        if "retryStrategy" in template:
            holder: Mapping[str, Any] = template
            found = yaml_tree.where_of(template, ("retryStrategy",), key=True)
            where = Where(subject.where(step.name).file, found.line, found.column)
        else:
            holder, path = (defaults, ("templateDefaults",)) if "retryStrategy" in defaults else (workflow.tree, ())
            where = workflow.where(*path, "retryStrategy", key=True)
        retry = as_mapping(holder.get("retryStrategy"))
        if not retry or retry.get("expression") or where in seen:
            continue
        seen.add(where)
        policy = str(retry.get("retryPolicy") or "OnFailure")
        title = f'template "{template.get("name") or step.name}" runs on spot nodes ({label})'
        if policy not in ("Always", "OnError"):
            yield warning("GF765", f"{title}, and {policy} does not cover a pod that is deleted", where, ARGO_HINT)
        elif retry.get("limit") is not None:
            text = f"{title}, and its limit of {retry['limit']} counts every lost node like a failure"
            yield warning("GF764", text, where, ARGO_HINT)


def _kubeflow(subject: Subject) -> Iterator[Finding]:
    for step in subject.demand.steps:
        label = spot_label(step.pod["spec"], subject.site)
        if label is not None and step.tries > 1:
            yield warning(
                "GF765",
                f'task "{step.name}" runs on spot nodes ({label}), and set_retry has no policy: Kubeflow retries '
                "either failures or deleted pods, as it is installed, and never tells them apart",
                subject.where(step.name),
                "ask the administrator for templateDefaults with retryPolicy: Always (limit 0), and test it",
            )


def _jobs(subject: Subject) -> Iterator[Finding]:
    for path, spec in _job_specs(subject):
        pod = as_mapping(as_mapping(spec.get("template")).get("spec"))
        label = spot_label(pod, subject.site)
        if label is None or pod.get("restartPolicy") == "OnFailure" or _ignores_disruption(spec):
            continue
        limit = spec.get("backoffLimit", 6)
        if subject.kind == "JobSet":
            if _restarts_for_free(subject):
                continue
            what = "every lost node counts toward failurePolicy.maxRestarts"
            hint = "a failurePolicy rule RestartJobSetAndIgnoreMaxRestarts for DisruptionTarget (JobSet 0.10)"
        else:
            what = f"every lost node counts toward backoffLimit ({limit})"
            hint = (
                "podFailurePolicy: {rules: [{action: Ignore, onPodConditions: "
                "[{type: DisruptionTarget, status: 'True'}]}]}"
            )
        where = subject.document.where(*path, "backoffLimit", key=True)
        yield warning("GF764", f"{subject.title} runs on spot nodes ({label}), and {what}", where, hint)


def _job_specs(subject: Subject) -> Iterator[tuple[tuple[str | int, ...], Mapping[str, Any]]]:
    spec = as_mapping(subject.document.tree.get("spec"))
    if subject.kind == "CronJob":
        yield ("spec", "jobTemplate", "spec"), as_mapping(as_mapping(spec.get("jobTemplate")).get("spec"))
    elif subject.kind == "JobSet":
        for number, each in enumerate(iter_maps(spec.get("replicatedJobs"))):
            path = ("spec", "replicatedJobs", number, "template", "spec")
            yield path, as_mapping(as_mapping(each.get("template")).get("spec"))
    else:
        yield ("spec",), spec


def _ignores_disruption(spec: Mapping[str, Any]) -> bool:
    return any(
        rule.get("action") == "Ignore"
        and any(each.get("type") == "DisruptionTarget" for each in iter_maps(rule.get("onPodConditions")))
        for rule in iter_maps(as_mapping(spec.get("podFailurePolicy")).get("rules"))
    )


def _restarts_for_free(subject: Subject) -> bool:
    policy = as_mapping(as_mapping(subject.document.tree.get("spec")).get("failurePolicy"))
    return any(rule.get("action") == "RestartJobSetAndIgnoreMaxRestarts" for rule in iter_maps(policy.get("rules")))


@rule("GF751")
def old_spelling(subject: Subject) -> Iterator[Problem]:
    """Arguments of operators that ask for nothing any more."""
    dag = subject.document.dag
    for _, message, line, column, hint in () if dag is None else dag.old:
        yield Problem(message, Where(subject.document.file, line, column), hint)


@rule("GF752", severity="note")
def tasks_without_pods(subject: Subject) -> Iterator[Problem]:
    """Tasks of a DAG that run in its workers."""
    tasks = _dag_tasks(subject)
    bare = [task for task in tasks if task.makes is None and task.operator != "EmptyOperator"]
    if bare:
        text = f"{len(bare)} of {len(tasks)} tasks make no pods of their own; pods of workers are not counted"
        hint = "which executor runs them is not in the file: with KubernetesExecutor each has a pod"
        yield Problem(text, subject.document.where_of_task(), hint)


@rule("GF756")
def several_namespaces(subject: Subject) -> Iterator[Problem]:
    """A DAG whose pods go to more than one."""
    spaces = sorted({task.namespace for task in _dag_tasks(subject) if task.namespace})
    if len(spaces) > 1:
        text = f"its pods go to several namespaces ({', '.join(spaces[:5])}), and are counted together here"
        yield Problem(text, subject.document.where_of_task(), "the verdict is for one namespace: it may be too strict")


@rule("GF753", "GF754", "GF755")
def uncounted_pods(subject: Subject) -> Iterator[Finding]:
    """Pods of a DAG's tasks that are not counted, or not where they run; task by task."""
    for task in _dag_tasks(subject):
        name, where = task.task_id, subject.document.where_of_task(task)
        if task.executor_config:
            text = f"{name}: executor_config describes the worker's pod; it is not counted"
            yield Finding("GF753", text, where, "only KubernetesExecutor makes it", "note")
        if task.makes == "objects" and not task.waits:
            text = f"{name}: the task ends before its pods do; later tasks run beside them"
            yield Finding("GF754", text, where, "wait_until_job_complete=True waits for the Job", "note")
        if task.starts:
            text = f"{name}: it starts DAG {task.starts}, which is not counted here"
            yield Finding("GF755", text, where, "check the file of that DAG too", "note")


def _dag_tasks(subject: Subject) -> Sequence[Task]:
    """The tasks of a DAG; of other kinds none."""
    return () if subject.document.dag is None else subject.document.dag.tasks


ANNOTATION: Final = "gpuflow.dev/silence"


class Silence(NamedTuple):
    """Codes that are silenced at one place."""

    codes: tuple[str, ...]
    where: Where


def silences_of(document: Document) -> Iterator[Silence]:
    """Where the document silences which codes; a place without codes that can be silenced is none."""
    for words, where in _silence_places(document):
        codes = tuple(word for word in words if word in CODES and not is_always_error(word))
        if codes:
            yield Silence(codes, where)


@rule("GF783")
def unused_silences(subject: Subject) -> Iterator[Problem]:
    """Words that silence nothing."""
    for words, where in _silence_places(subject.document):
        for word in dict.fromkeys(words):
            if word not in CODES:
                hint = did_you_mean(word, CODES) or "gpuflow explain lists them"
                yield Problem(f'"{word[:40]}" is not a code, and silences nothing', where, hint)
            elif is_always_error(word):
                text = f'{word} ("{CODES[word].title}") is an error, which cannot be silenced'
                yield Problem(text, where, f"gpuflow explain {word}")


def _silence_places(document: Document) -> Iterator[tuple[tuple[str, ...], Where]]:
    if document.silenced:
        first = min(each.line for each in document.silenced)
        yield tuple(each.code for each in document.silenced), Where(document.file, first, 1)
    metadata = document.tree.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    text = annotations.get(ANNOTATION) if isinstance(annotations, Mapping) else None
    if isinstance(text, str):
        where = document.where("metadata", "annotations", ANNOTATION)
        yield tuple(word for word in re.split(r"[\s,]+", text) if word), where


RULES: Final[tuple[Rule[Subject], ...]] = (
    old_spelling, tasks_without_pods, several_namespaces, uncounted_pods,
    gpus_without_limit, retries_on_spot, restarts_with_checkpoint, checkpoints_lost, restarted_members,
    small_shared_memory, gangs_without_scheduling, queue_on_pods, queue_passed_by,
    overlapping_schedule, update_surges, unused_silences,
)  # fmt: skip
"""In the order in which they are said, within each severity."""
CODES_OF_CHECK = {"GF553": "GF772"}
"""What a check says with its verdict, and the same without one: it is said once."""


def _once(findings: Iterable[Finding]) -> list[Finding]:
    """Without what a schema says of a place of which somebody has said more."""
    said, strict = list(findings), ("GF815", "GF816", "GF817", "GF818")
    places = {each.where for each in said if each.code not in strict}
    return [each for each in said if each.code not in strict or each.where not in places]


@dataclass(frozen=True)
class ForeignSource:
    """It is what the checker knows as `Source`."""

    subject: Subject
    _strict: dict[tuple[int, ...], tuple[Finding, ...]] = field(default_factory=dict, compare=False, repr=False)

    def warnings(self) -> Iterator[Finding]:
        """What the author may not know."""
        return (finding for each in RULES for finding in each(self.subject))

    def strict_findings(self, definitions: Iterable[Mapping[str, Any]]) -> tuple[Finding, ...]:
        """What is wrong with its fields."""
        from gpuflow.readers.findings.strictness import strict_findings  # what is ours needs no schemas

        own = [each.tree for each in self.subject.documents if each.kind == "CustomResourceDefinition"]
        asked = (*definitions, *own)
        key = tuple(map(id, asked))
        if key not in self._strict:  # a check asks for each world
            found = strict_findings(self.subject.document, asked)
            if "GF815" in {*self.subject.site.silence, *(code for each in self._silences for code in each.codes)}:
                # A newer Kubernetes may have the field: whoever knows that says so.
                found = (replace(each, severity="warning") if each.code == "GF815" else each for each in found)
            self._strict[key] = tuple(found)
        return self._strict[key]

    @property
    def _silences(self) -> list[Silence]:
        return list(silences_of(self.subject.document))

    def unsilenced_findings(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings that neither the document nor the site silences."""
        left = _once(findings)
        again = {CODES_OF_CHECK[each.code] for each in left if each.code in CODES_OF_CHECK}
        left = [each for each in left if each.code not in again]
        for silence in self._silences:
            left = without_codes(silence.codes, left, silence.where)
        return without_site_silenced(self.subject.site, left)
