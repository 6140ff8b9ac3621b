"""What the API server shows of one attempt of a gang, and what it showed: pods vanish, and the last look counts.

It asks nobody by itself. A look is a generator of questions: whoever drives it asks them, in a thread or in an event
loop, and sends the answers back. So the launcher and an engine's own code see a gang with the same eyes.

`AttemptFollower` says when the attempt has ended, and when it waited too long; `PodDrain` says when its pods are gone.
They delete nothing: they say what is to be done. Rank 0 writes the outputs of the gang into its termination message;
here they are put where the engine looks.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, Callable, Generator, Mapping, NamedTuple, Sequence  # noqa: UP035 (runs on Python 3.8)

from gpuflow.runtime.artifacts import outputs
from gpuflow.runtime.artifacts.outputs import BadOutput
from gpuflow.runtime.base import termination_message
from gpuflow.runtime.base.outcomes import FINAL, INTERRUPTED, SUCCEEDED
from gpuflow.runtime.base.records import KeptOutput, text_digest
from gpuflow.runtime.gangs import attempt_verdict
from gpuflow.runtime.gangs.attempt_verdict import Verdict, name_of
from gpuflow.runtime.gangs.kinds import GROUP, JOBSET, KINDS, POD_GROUP
from gpuflow.runtime.supervise.kube_client import ApiRefusal, say
from gpuflow.runtime.supervise.object_state import format_value, path_of, value_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuflow.runtime.artifacts.outputs import Output
    from gpuflow.runtime.base.options import Options
    from gpuflow.runtime.gangs.attempt_object import Shape

_KUEUE = "kueue.x-k8s.io"
_MOST_NAMED = 8
_QUEUE = f"{_KUEUE}/queue-name"


class Question(NamedTuple):
    """A GET of the API server: its path, and its query."""

    path: str
    query: Mapping[str, str] = {}


Questions = Generator[Question, Any, Any]
"""Yields questions, and gets each answer, or the refusal (`ApiRefusal`) thrown. It ends with what it found out."""


def run_questions(asking: Questions, ask: Callable[[Question], dict[str, Any]]) -> Any:
    """What a generator of questions finds out, each of them asked in turn."""
    try:
        question = next(asking)
        while True:
            try:
                answer = ask(question)
            except ApiRefusal as refusal:
                question = asking.throw(refusal)
            else:
                question = asking.send(answer)
    except StopIteration as done:
        return done.value


class Watch:
    """One JobSet, or gang of another kind, with its Jobs, its pods and its Workload, from look to look."""

    def __init__(self, shape: Shape, path: str, namespace: str, tell: Callable[[str], None] = say) -> None:
        self.shape, self.path, self.namespace = shape, path, namespace
        self.name = path.rsplit("/", 1)[1]
        self.kind = KINDS[shape.kind]
        self.jobset: dict[str, Any] | None = None
        self.jobs: list[dict[str, Any]] = []
        self.workload: dict[str, Any] | None = None
        self.pods: dict[str, dict[str, Any]] = {}
        """Each pod of this start of the gang as it was last seen, by its uid."""
        self.gone: set[str] = set()
        """See `attempt_verdict.judge`."""
        self.there: set[str] = set()
        self.has_run = False
        """Whether all of its pods have run at some time."""
        self._uid: str | None = None
        self._workloads: str | None = None
        self._mute: set[str] = set()
        self._tell = tell

    def look(self) -> Questions:
        """Pods first: what has taken them away is then seen by the later looks."""
        selector = {"labelSelector": f"{self.kind.pods}={self.name}"}
        pods = (yield Question(path_of("v1", self.namespace, "pods"), selector))["items"]
        jobs = []
        if self.kind.leading_job is not None:
            path = path_of("batch/v1", self.namespace, "jobs", self.name + self.kind.leading_job)
            leading = yield from self._get_if_present(path)
            jobs = [] if leading is None else [leading]
        elif self.kind.has_jobs:
            jobs = (yield Question(path_of("batch/v1", self.namespace, "jobs"), selector))["items"]
        if self.jobset is not None:
            self.workload = yield from self._workload(self.jobset)
        self.jobset = yield from self._get_if_present(self.path)
        if self.jobset is None:
            return
        if self._uid not in (None, self.jobset["metadata"]["uid"]):
            self.jobset = None  # another one of the same name: ours was deleted
            return
        self._uid = self.jobset["metadata"]["uid"]
        makes_jobs: str | None = self._uid
        if self.kind.through:
            inner = yield from self._inner_jobset()
            makes_jobs = None if inner is None else inner["metadata"]["uid"]
            self.jobset = {**self.jobset, **({} if inner is None else {"runtime": {"spec": {"template": inner}}})}
        itself = dict(self.kind.as_job(self.jobset))
        self.jobs = [job for job in jobs if _owner(job) == makes_jobs] if self.kind.has_jobs else [itself]
        if self.kind.leading_job is not None:
            self.jobs.append(itself)
        own = {job["metadata"]["uid"] for job in self.jobs}
        self._remember([pod for pod in pods if _owner(pod) in own or pod["metadata"]["uid"] in self.pods])

    def _inner_jobset(self) -> Questions:
        """The JobSet that it makes, which has its name; None before it is there."""
        found = yield from self._get_if_present(path_of(JOBSET.api_version, self.namespace, JOBSET.plural, self.name))
        return found if found is not None and _owner(found) == self._uid else None

    def _get_if_present(self, path: str) -> Questions:
        try:
            return (yield Question(path))
        except ApiRefusal as refusal:
            if refusal.status != 404:
                raise
            return None

    def _remember(self, pods: list[dict[str, Any]]) -> None:
        assert self.jobset is not None
        failed = attempt_verdict.has_ended(self.jobset, self.jobs, self.kind)
        if self.kind.is_suspended(self.jobset) and not failed:
            # Kueue took the quota back: these pods are no part of the next start.
            self.pods, self.gone, self.there = {}, set(), set()
            return
        self.there = {pod["metadata"]["uid"] for pod in pods}
        self.pods.update({pod["metadata"]["uid"]: pod for pod in pods})
        for uid, pod in self.pods.items():
            if uid not in self.there and (not failed or pod["metadata"].get("deletionTimestamp")):
                self.gone.add(uid)
        self.has_run = self.has_run or len([pod for pod in pods if phase(pod) != "Pending"]) >= self.shape.size

    def verdict(self, **codes: Any) -> Verdict | None:
        """How it ended, by all that was seen; None while it goes on. `codes`: the container that counts, and which of
        its exit codes end the step for good, as `attempt_verdict.judge` takes them."""
        pods = list(self.pods.values())
        return attempt_verdict.judge(
            self.jobset, self.jobs, pods, self.workload, gone=self.gone, kind=self.kind, **codes
        )

    def live_pods(self) -> list[str]:
        """The pods that are there and have not ended."""
        return [name_of(self.pods[uid]) for uid in self.there if phase(self.pods[uid]) in ("Pending", "Running")]

    def rank_0(self) -> dict[str, Any] | None:
        """The pod of rank 0."""
        for pod in self.pods.values():
            labels = pod["metadata"].get("labels") or {}
            if labels.get(self.kind.rank) == "0" and labels.get(self.kind.role) == self.shape.first:
                return pod
        return None

    def names(self) -> str:
        """The pods by name, once all are there: an engine that did not make them does not show them."""
        if len(self.there) < self.shape.size:
            return ""
        names = sorted(str(self.pods[uid]["metadata"]["name"]) for uid in self.there)
        return ", ".join(names[:_MOST_NAMED]) + (
            f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        )

    def situation(self) -> Questions:
        """Where it stands, in one line; the same words as long as nothing changes."""
        if self.jobset is None:
            return "deleted"
        if self.kind.is_suspended(self.jobset):
            words = waiting_words(self.workload)
            where = (self.jobset["metadata"].get("labels") or {}).get(_QUEUE)
            return "waits in the queue" + (f" {where}" if where else "") + (f": {words}" if words else "")
        pods = [self.pods[uid] for uid in sorted(self.there)]
        size, running = self.shape.size, sum(phase(pod) == "Running" for pod in pods)
        ended = sum(phase(pod) in ("Succeeded", "Failed") for pod in pods)
        if running + ended >= size:
            return f"running, {running} of {size} pods" + (f", {ended} ended" if ended else "")
        lines = [f"{running} of {size} pods running, {len(pods)} there"]
        if len(pods) < size:
            lines += yield from self._refusals()
        if not pods and len(lines) == 1 and self.kind.queue is not None:
            lines.append(f"it waits in the queue {value_at(self.jobset, self.kind.queue) or 'default'}")
        lines += yield from self._pod_group_status()
        lines += sorted({_why_stuck(pod) for pod in pods if phase(pod) == "Pending"} - {""})[:3]
        return "; ".join(lines)

    def _pod_group_status(self) -> Questions:
        """Where a PodGroup of Volcano's waits whose pods these are, and Volcano's own words for why."""
        assert self.jobset is not None
        templates = [each.template for each in self.kind.pod_sets(self.jobset)] if self.kind is JOBSET else []
        name = ((templates[0].get("metadata") or {}).get("annotations") or {}).get(GROUP) if templates else None
        if not name:
            return []
        query = {"fieldSelector": f"metadata.name={name}"}
        groups = yield from self._get_optional(
            "PodGroups", path_of(POD_GROUP.api_version, self.namespace, POD_GROUP.plural), query
        )
        if groups is None:
            return []
        if not groups:
            return [f"its PodGroup {name} is gone, and Volcano places no pod without it"]
        row = value_at(groups[0], "status.conditions[type=Unschedulable]") or {}
        words = str(row.get("message") or "") if row.get("status") == "True" else ""
        where = f"it waits in the queue {value_at(groups[0], 'spec.queue') or 'default'}"
        return [f"{where}: {words}" if words else where]

    def _refusals(self) -> Questions:
        """Why pods are missing: their controller says it in events only."""
        own, texts = {self.name, *(job["metadata"]["name"] for job in self.jobs)}, []
        for kind, reason in self.kind.refusals:
            query = {"fieldSelector": f"involvedObject.kind={kind},reason={reason}"}
            items = (yield from self._get_optional("events", path_of("v1", self.namespace, "events"), query)) or []
            texts += [str(item.get("message")) for item in items if item["involvedObject"].get("name") in own]
        # Each try has a pod's name of its own.
        return sorted({re.sub(r'pods "[^"]*" is', "a pod is", each) for text in texts for each in _sentences(text)})

    def _workload(self, jobset: dict[str, Any]) -> Questions:
        if _QUEUE not in (jobset["metadata"].get("labels") or {}) and not self.kind.is_suspended(jobset):
            return None
        if self._workloads is None:
            try:
                version = (yield Question(f"/apis/{_KUEUE}"))["preferredVersion"]["version"]
            except (ApiRefusal, KeyError):
                version = ""
            self._workloads = version and path_of(f"{_KUEUE}/{version}", self.namespace, "workloads")
        if not self._workloads:
            return None
        query = {"labelSelector": f"{_KUEUE}/job-uid={jobset['metadata']['uid']}"}
        items = yield from self._get_optional("Kueue's workloads", self._workloads, query)
        return items[0] if items else None

    def _get_optional(self, what: str, path: str, query: dict[str, str]) -> Questions:
        """Read something that only helps to explain; a missing permission is logged once."""
        if what in self._mute:
            return None
        try:
            return (yield Question(path, query)).get("items") or []
        except ApiRefusal as refusal:
            self._mute.add(what)
            self._tell(f"{refusal}; {what} are not looked at")
            return None


def _sentences(text: str) -> list[str]:
    """The words of the API server in an event. Volcano prints its answers as Go does, with every field of them."""
    quoted = re.findall(r'Message:"((?:[^"\\]|\\.)*)"', text)
    return [each.replace('\\"', '"') for each in quoted] or [text]


def phase(pod: dict[str, Any]) -> str:
    """The phase, `Pending` before there is one."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def _owner(document: dict[str, Any]) -> str | None:
    for each in document["metadata"].get("ownerReferences") or ():
        if each.get("controller"):
            return str(each["uid"])
    return None


def waiting_words(workload: dict[str, Any] | None) -> str:
    """Kueue's own words for why it waits."""
    for kind in ("QuotaReserved", "Admitted"):
        row = value_at(workload, f"status.conditions[type={kind}]")
        if row and row.get("status") == "False" and row.get("message"):
            return str(row["message"])
    return ""


def _why_stuck(pod: dict[str, Any]) -> str:
    """Why a pod does not start: no node, no image."""
    row = value_at(pod, "status.conditions[type=PodScheduled]") or {}
    if row.get("status") == "False" and row.get("message"):
        return f"{name_of(pod)}: {row['message']}"
    for status in value_at(pod, "status.containerStatuses") or ():
        waiting = (status.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            words = ": ".join(str(waiting[key]) for key in ("reason", "message") if waiting.get(key))
            return f"{name_of(pod)}: {words}"
    return ""


SETTLE = 20.0
"""Seconds after a failed rank in which one that was taken away would still show."""


class AttemptFollower:
    """What the looks at one attempt add up to."""

    def __init__(
        self,
        watch: Watch,
        tell: Callable[[str], None],
        *,
        settle: float = SETTLE,
        queue_deadline: float | None = None,
        **codes: Any,
    ) -> None:
        """`codes`: as `Watch.verdict` takes them."""
        self.watch, self._tell, self._codes = watch, tell, codes
        self._settle, self._queue_deadline = settle, queue_deadline
        self._settled: float | None = None
        self.words = ""
        """Where it stands, as it was last said."""
        self.is_late = False
        """Whether it ended because it waited too long."""
        self.must_go = False
        """Whether its object is to be deleted: nobody waits for it any more."""

    @property
    def is_settling(self) -> bool:
        """Whether a rank has failed, and others are still looked at."""
        return self._settled is not None

    def look(self) -> Questions:
        """One look: how it ended, None while it goes on."""
        watch = self.watch
        yield from watch.look()
        verdict = watch.verdict(**self._codes)
        if verdict is None:
            self._settled = None
            return (yield from self._check_queue())
        ended = watch.jobset is not None and attempt_verdict.has_ended(watch.jobset, watch.jobs, watch.kind)
        if verdict.outcome in (SUCCEEDED, INTERRUPTED):
            # Its controller would go on, with another pod in the place of the one that was taken away.
            there = watch.jobset is not None and not watch.jobset["metadata"].get("deletionTimestamp")
            self.must_go = verdict.outcome == INTERRUPTED and watch.kind.replaces_pods and there and not ended
            return verdict
        # One rank that failed may be the first sign of another that is being taken away.
        now = time.monotonic()
        if self._settled is None:
            self._settled = now + self._settle
            self._tell(verdict.because)
        if now < self._settled and (watch.live_pods() or not ended):
            return None
        self.must_go = attempt_verdict.deactivation_message(watch.workload) is not None
        return verdict

    def _check_queue(self) -> Questions:
        words = yield from self.watch.situation()
        if words != self.words:
            self._tell(words)
            self.words = words
        if self._queue_deadline is None or self.watch.has_run or time.time() <= self._queue_deadline:
            return None
        self.is_late = self.must_go = True
        return Verdict(FINAL, f"waited too long until all its pods ran: {words}")


class PodDrain:
    """Two starts of one rank never run side by side, unless the first cannot be stopped."""

    def __init__(self, watch: Watch, tell: Callable[[str], None], seconds: float) -> None:
        self._watch, self._tell, self._said = watch, tell, False
        self._until = time.monotonic() + seconds

    def is_over(self) -> bool:
        """After a look: whether its pods have ended, or had their time."""
        alive = [] if self._watch.jobset is None else self._watch.live_pods()
        if not alive:
            return True
        if time.monotonic() >= self._until:
            self._tell(f"{', '.join(sorted(alive))} did not end in its grace; going on")
            return True
        if not self._said:
            self._tell("waiting until its pods have ended")
            self._said = True
        return False


NO_OUTPUTS = "rank 0 left no outputs: nobody knows that its work is done"


def deliver_outputs(options: Options, rank_0: Mapping[str, Any] | None) -> str | None:
    """Put the declared outputs where the engine looks; why not, when rank 0 has not said them."""
    if not (declared := outputs.parse(options.output)):
        return None
    if (kept := read_outputs(declared, rank_0, options.container)) is None:
        return NO_OUTPUTS
    if options.engine == "kubeflow":
        for output in declared:
            value = kept[output.name].value
            if value is not None:
                outputs.number_for_kubeflow(output, value)
    if options.outputs_dir:
        os.makedirs(options.outputs_dir, exist_ok=True)
    outputs.deliver(kept, options.engine, options.outputs_dir or "", outputs.pairs(options.deliver, "deliver"))
    return None


def read_outputs(
    declared: Sequence[Output], rank_0: Mapping[str, Any] | None, container: str
) -> dict[str, KeptOutput] | None:
    """The declared outputs in rank 0's last words; None when it left no word, BadOutput when they are not as declared.
    Of a file or directory the words say where it is kept."""
    if (given := _outputs_in_message(rank_0, container)) is None:
        return None
    kept = {}
    for output in declared:
        if given.get(output.name) is None:
            raise BadOutput(f'rank 0 left no output "{output.name}"')
        text = format_value(given[output.name])
        if not output.is_kept:
            outputs.parse_value(output, text)
        said = {"uri" if output.is_kept else "value": text}
        kept[output.name] = KeptOutput(type=output.kind, sha256=text_digest(text), **said)
    return kept


def _outputs_in_message(pod: Mapping[str, Any] | None, container: str) -> dict[str, Any] | None:
    states = ((pod or {}).get("status") or {}).get("containerStatuses") or ()
    for status in [each for each in states if each.get("name") == container] or list(states)[:1]:
        ended = (status.get("state") or {}).get("terminated") or {}
        facts = termination_message.parse(ended.get("message")) if ended.get("exitCode") == 0 else None
        given = (facts or {}).get("outputs")
        return given if isinstance(given, dict) else None
    return None
