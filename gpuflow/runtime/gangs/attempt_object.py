"""The object of one attempt: its name, its labels, the counts before it, who owns it, and what must be there before it.

The counts are kept in the API server, as annotations of each attempt's object. A launcher that is lost leaves nothing
behind that the next one would need. `kinds` has the kinds.

What must be there before the object, and goes with it, is the TrainingRuntime of a TrainJob, or the PodGroup in which
Volcano places a JobSet.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from typing import NamedTuple

from gpuflow.runtime.base import attempt_folder
from gpuflow.runtime.base.outcomes import OUTCOMES, SUCCEEDED
from gpuflow.runtime.gangs.attempt_verdict import Verdict
from gpuflow.runtime.gangs.kinds import JOBSET, KINDS, kind_of
from gpuflow.runtime.gangs.later_attempts import Changes, EarlierAttempts, memory
from gpuflow.runtime.gangs.ranks.protocol import SECRET as SECRET_VARIABLE
from gpuflow.runtime.supervise.kube_client import ApiRefusal, ApiServer, Misuse, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from gpuflow.runtime.base.options import Options
    from gpuflow.runtime.gangs.kinds import GangKind

GANG, RUN, STEP = "gpuflow.dev/gang", "gpuflow.dev/run", "gpuflow.dev/step"
ATTEMPT, FAILURES, INTERRUPTIONS = "gpuflow.dev/attempt", "gpuflow.dev/failures", "gpuflow.dev/interruptions"
OUT_OF_MEMORY, FAILED_NODES = "gpuflow.dev/out-of-memory", "gpuflow.dev/failed-nodes"
IDENTITY, VERDICT = "gpuflow.dev/identity", "gpuflow.dev/verdict"
SECRET = "gpuflow.dev/gang-secret"
"""The annotation of an object whose pods are made from another one, which may have to be made anew with the same."""
MOST = 46
"""Letters of a JobSet's name. Its pods are called `<name>-worker-0-2-abcde`, in at most 63."""
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class Names(NamedTuple):
    """What tells a gang from all others. The options of the launcher have the same fields."""

    pipeline: str
    run_id: str
    step: str
    item: str | None = None
    task: str | None = None
    container: str = "main"


class Shape(NamedTuple):
    """What must be known of a gang to follow it."""

    size: int
    first: str
    """The replicated job that rank 0 belongs to."""
    grace: float
    """The longest time that a pod of it may take to stop."""
    kind: str = JOBSET.name


class Gang:
    """Who a gang is, and what the object of each of its attempts looks like."""

    def __init__(self, manifest: dict[str, Any], options: Options | Names, owner: Mapping[str, Any] | None) -> None:
        self.identity = attempt_folder.identity_path(
            options.pipeline, options.run_id, options.step, options.item, options.task
        )
        self.digest = hashlib.sha256(self.identity.encode()).hexdigest()[:10]
        self._manifest, self._owner = manifest, owner
        self.environment: dict[str, str] = {}
        """Variables that the ranks have from their launcher."""
        self.changes = Changes()
        """What later attempts have instead."""
        self._container = options.container
        self._step = options.step
        self._labels = {GANG: self.digest, RUN: label_value(options.run_id)}
        self._step_label = {STEP: label_value(options.step)}
        if (kind := kind_of(manifest)) is None:
            what = f"{manifest.get('kind')} of {manifest.get('apiVersion')}"
            raise Misuse(f"the manifest is a {what}; a gang is a {' or a '.join(KINDS)}")
        self.kind = kind
        try:
            self.sets = self.kind.pod_sets(manifest)
            size = sum(each.size for each in self.sets)
            coordinator = self.kind.jobset_spec(manifest).get("coordinator") or {}
            first = str(coordinator.get("replicatedJob") or self.sets[0].name)
            spans = [each["spec"].get("terminationGracePeriodSeconds", 30) for each in kind.templates(manifest)]
            self.shape = Shape(size, first, float(max(spans)), self.kind.name)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as wrong:
            place = "spec.replicatedJobs" if self.kind.kind == JOBSET.kind else "its spec"
            raise Misuse(f"the manifest has no pods: {place} is not as {self.kind.name} wants it ({wrong!r})") from None

    def name(self, attempt: int) -> str:
        """`pretrain-3f9c1a2b7d-1`: the same for the same attempt, so that *there already* means *ours*."""
        rest = f"-{self.digest}-{attempt}"
        room = self._room() - len(rest)
        # A Service has the same name, and must begin with a letter.
        word = re.sub(r"[^a-z0-9]+", "-", self._step.lower()).strip("-")
        word = (word if word[:1].isalpha() else f"g-{word}".rstrip("-"))[: max(0, room)].rstrip("-")
        if not word:
            raise Misuse("there is no room for a name: the names of its sets of pods are too long")
        return word + rest

    def _room(self) -> int:
        """The letters of a name: Kubernetes takes 63 for a pod's name and for the label that names rank 0's host."""
        most = min(MOST, 63 - max(len(each.tail) for each in self.sets))
        spec = self.kind.jobset_spec(self._manifest)
        if spec.get("coordinator"):
            leader = spec["coordinator"]
            host = f"-{leader.get('replicatedJob')}-{leader.get('jobIndex', 0)}-{leader.get('podIndex', 0)}."
            subdomain = (spec.get("network") or {}).get("subdomain")
            # Without one of its own, the subdomain is the name once more.
            most = min(most, 63 - len(host) - len(subdomain) if subdomain else (63 - len(host)) // 2)
        return most

    def body(
        self, attempt: int, failures: int, interruptions: int, before: EarlierAttempts | None = None, secret: str = ""
    ) -> dict[str, Any]:
        """The object of one attempt. `before`: what else is known of those before, by which it may be different.
        `secret`: what its ranks know each other by, unless the manifest says it."""
        made = copy.deepcopy(self._manifest)
        metadata = made["metadata"]
        metadata.pop("generateName", None)
        metadata["name"] = self.name(attempt)
        metadata["labels"] = {**self._step_label, **(metadata.get("labels") or {}), **self._labels}
        counts = {ATTEMPT: str(attempt), FAILURES: str(failures), INTERRUPTIONS: str(interruptions)}
        notes = {**counts, **_annotations_of_earlier(before or EarlierAttempts()), IDENTITY: self.identity}
        if secret and self.kind.through:
            notes[SECRET] = secret
        variables = {**self.environment, **({SECRET_VARIABLE: secret} if secret else {})}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **notes}
        if self._owner is not None:
            metadata["ownerReferences"] = [dict(self._owner)]
        for each in self.kind.pod_sets(made):
            template = each.template
            if before is not None:
                changes = self._changes_in(each.name)
                later = changes.spec(template["spec"], before, self._grows(template["spec"]))
                template["spec"] = copy.deepcopy(later)
            inner = template.setdefault("metadata", {})
            inner["labels"] = {**self._step_label, **(inner.get("labels") or {}), **self._labels}
            self._keep_apart(template["spec"])
            inner["annotations"] = {**(inner.get("annotations") or {}), **counts}
            container = template["spec"]["containers"][self._grows(template["spec"])]
            there = container.get("env") or []
            known = {each.get("name") for each in there}
            told = [{"name": name, "value": variables[name]} for name in sorted(variables) if name not in known]
            if told:
                container["env"] = [*there, *told]
        return made

    def differences(self, before: EarlierAttempts) -> list[str]:
        """What is different in an attempt after all that, for a person."""
        found = []
        for each in self.sets:
            spec = each.template["spec"]
            found.append((each.name, self._changes_in(each.name).words(spec, before, self._grows(spec))))
        if len({tuple(words) for _, words in found}) == 1:
            return list(found[0][1])
        shared = [word for word in found[0][1] if all(word in words for _, words in found)]
        own = [f"{name}: {word}" for name, words in found for word in words if word not in shared]
        return [*own, *shared]

    def _changes_in(self, pod_set: str) -> Changes:
        """What is different later in the pods of one set."""
        return self.changes.for_leader() if pod_set == self.shape.first else self.changes

    def has_memory(self) -> bool:
        """Whether there is an amount that could grow."""
        specs = [each["spec"] for each in self.kind.templates(self._manifest)]
        return any(memory(spec["containers"][self._grows(spec)]) is not None for spec in specs)

    def _grows(self, spec: Mapping[str, Any]) -> int:
        """Which container is the program's."""
        names = [each["name"] for each in spec["containers"]]
        return names.index(self._container) if self._container in names else 0

    def _keep_apart(self, spec: dict[str, Any]) -> None:
        """Ranks are placed by the ranks of their own gang: not by its launcher, other copies, or another run."""
        affinity = (spec.get("affinity") or {}).get("podAffinity") or {}
        terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or []
        for each in (*terms, *(spec.get("topologySpreadConstraints") or [])):
            chosen = (each.get("labelSelector") or {}).get("matchLabels") or {}
            if STEP in chosen:
                each["labelSelector"] = {"matchLabels": {GANG: self.digest}}

    def is_ours(self, jobset: Mapping[str, Any]) -> bool:
        """Whether an object with our label is ours; the label is a short hash, and two gangs might share it."""
        return (jobset["metadata"].get("annotations") or {}).get(IDENTITY) == self.identity


def label_value(text: str) -> str:
    """A text as the value of a label; what cannot be one is hashed."""
    return text if _LABEL.fullmatch(text) else hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def number(jobset: Mapping[str, Any], annotation: str) -> int:
    """A count in an annotation; a value that is no number is an error."""
    text = str((jobset["metadata"].get("annotations") or {}).get(annotation, ""))
    if not re.fullmatch(r"[0-9]{1,9}", text):
        what = jobset.get("kind") or "object"  # a list of objects leaves it out
        raise Misuse(f'{what} {jobset["metadata"]["name"]}: the annotation {annotation} is "{text}", and no number')
    return int(text)


def read_earlier_attempts(jobset: Mapping[str, Any]) -> EarlierAttempts:
    """What is noted of the attempts before a JobSet's, beside their number."""
    notes = jobset["metadata"].get("annotations") or {}
    out_of_memory = number(jobset, OUT_OF_MEMORY) if OUT_OF_MEMORY in notes else 0
    nodes = tuple(filter(None, str(notes.get(FAILED_NODES, "")).split(",")))
    return EarlierAttempts(out_of_memory, number(jobset, INTERRUPTIONS), nodes)


def _annotations_of_earlier(before: EarlierAttempts) -> dict[str, str]:
    """Only what has happened: the next launcher finds it here."""
    notes = {OUT_OF_MEMORY: str(before.out_of_memory)} if before.out_of_memory else {}
    return {**notes, **({FAILED_NODES: ",".join(before.failed_nodes)} if before.failed_nodes else {})}


def note_verdict(verdict: Verdict) -> dict[str, Any]:
    """The change of a JobSet that writes down how it ended: what was found out outlives its evidence."""
    return {"metadata": {"annotations": {VERDICT: json.dumps(verdict._asdict())}}}


def read_verdict(jobset: Mapping[str, Any]) -> Verdict | None:
    """The verdict that an earlier launcher recorded; None for anything else."""
    text = (jobset["metadata"].get("annotations") or {}).get(VERDICT)
    try:
        verdict = Verdict(**json.loads(text or ""))
    except (ValueError, TypeError):
        return None
    fine = verdict.outcome in OUTCOMES and verdict.outcome != SUCCEEDED and isinstance(verdict.because, str)
    fine = fine and isinstance(verdict.node, (str, type(None)))
    return verdict if fine and (verdict.code is None or isinstance(verdict.code, int)) else None


def owner_of(pod: Mapping[str, Any] | None, kind: str) -> tuple[dict[str, Any] | None, str]:
    """The owner reference for `--owner`, and why there is none.

    Without `controller` and `blockOwnerDeletion`: Kueue leaves an object alone whose controller it manages, and the
    latter needs a right of its own. Garbage collection needs neither.
    """
    if kind == "none":
        return None, ""
    if pod is None:
        return None, "the launcher's own pod is not known ($GPUFLOW_POD_NAME)"
    if kind == "pod":
        metadata = pod["metadata"]
        return {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}, ""
    for each in pod["metadata"].get("ownerReferences") or ():
        if each.get("controller"):
            return {key: each[key] for key in ("apiVersion", "kind", "name", "uid")}, ""
    return None, "no controller owns the launcher's pod"


def prepare_prerequisite(
    api: ApiServer, folder: str, first: dict[str, Any], is_ours: Callable[[Mapping[str, Any]], bool]
) -> None:
    """Create it. An unused one that a lost launcher left may be out of date and is replaced."""
    path = f"{folder}/{first['metadata']['name']}"
    try:
        api.retry_while_unreachable(lambda: api.create(folder, first))
    except ApiRefusal as refusal:
        if refusal.status != 409:
            raise
        if (there := api.get_if_present(path)) is not None and not is_ours(there):
            raise Misuse(f"{_own_name(first)} is there already, and this run did not create it") from None
        api.retry_while_unreachable(lambda: api.delete(path))
        api.retry_while_unreachable(lambda: api.create(folder, first))


def give_to_object(
    api: ApiServer, folder: str, kind: GangKind, made: Mapping[str, Any], first: Mapping[str, Any] | None = None
) -> None:
    """Let what has the name of an attempt's object go with it from now on. `first`: made anew where it is gone. It goes
    with the run until then, and what ended that may have taken it away and left the object."""
    name = made["metadata"]["name"]
    owners = {"ownerReferences": [owner_reference(kind, made)]}
    try:
        try:
            api.retry_while_unreachable(lambda: api.merge(f"{folder}/{name}", {"metadata": owners}))
        except ApiRefusal as refusal:
            if refusal.status != 404 or first is None:
                raise
            again = {**first, "metadata": {**first["metadata"], **owners}}
            api.retry_while_unreachable(lambda: api.create(folder, again))
            say(f"{_own_name(first)}: it was gone, and is made anew")
    except ApiRefusal as refusal:
        say(f"{refusal}; what stands before {kind.name} {name} may go sooner or later than it")


def owner_reference(kind: GangKind, made: Mapping[str, Any]) -> dict[str, Any]:
    """The owner reference by which dependents are deleted with the object."""
    metadata = made["metadata"]
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": metadata["name"], "uid": metadata["uid"]}


def _own_name(document: Mapping[str, Any]) -> str:
    return f"{document['kind']} {document['metadata']['name']}"
