"""Pods, Jobs and CronJobs of Kubernetes as pipelines of one step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuflow.engines import ARGO
from gpuflow.importing.draft import Draft, label
from gpuflow.importing.pods import PodReader
from gpuflow.importing.unsupported import KIND, Place, Unsupported
from gpuflow.importing.values import Parts, mapping, plain_value
from gpuflow.kubernetes.labels import QUEUE_LABEL
from gpuflow.readers import Document, Library
from gpuflow.site import Site

JOB = (
    "template", "backoffLimit", "completions", "parallelism", "completionMode", "activeDeadlineSeconds", "suspend",
    "ttlSecondsAfterFinished",
)  # fmt: skip
CRON = (
    "schedule", "timeZone", "concurrencyPolicy", "suspend", "startingDeadlineSeconds", "successfulJobsHistoryLimit",
    "failedJobsHistoryLimit", "jobTemplate",
)  # fmt: skip
HINTS = {
    "podFailurePolicy": "write final_exit_codes or retryable_exit_codes in retry",
    "backoffLimitPerIndex": "write retry, which counts for each copy",
    "selector": "leave it out: the Job makes its own",
}
INDEX = "JOB_COMPLETION_INDEX"
"""Which copy of an indexed Job a pod is."""
USUAL_RETRIES = 6
"""What a Job does when it says nothing."""
METADATA = ("name", "generateName", "namespace", "labels", "annotations", "creationTimestamp")


def pipeline_of(document: Document, library: Library, site: Site, listing: Unsupported) -> Draft:
    """The pipeline of a Pod, a Job or a CronJob."""
    place = Place(document)
    draft = Draft(head={"name": label(document.name, ())})
    spec = mapping(document.tree.get("spec"))
    listing.fields(document.tree, ("apiVersion", "kind", "metadata", "spec", "status"), "", place)
    metadata = mapping(document.tree.get("metadata"))
    listing.fields(metadata, METADATA, "metadata", place)
    if metadata.get("namespace"):
        where = place.of(metadata, "namespace")
        listing.note(f"the namespace {metadata['namespace']} is said when compiling: --namespace", where)
    if document.kind == "Pod":
        _pod(spec, {key: metadata.get(key) for key in ("labels", "annotations")}, draft, site, listing, place)
    elif (document.kind, document.group) == ("Job", "batch"):
        _job(spec, metadata, draft, site, listing, place)
    elif document.kind == "CronJob":
        _schedule(spec, draft, site, listing, place)
        template = mapping(spec.get("jobTemplate"))
        _job(mapping(template.get("spec")), mapping(template.get("metadata")), draft, site, listing, place)
    else:
        why = "it runs without end, or its pods find each other in a way that a pipeline does not know"
        hint = "write its program as a step; several that run together are a gang"
        listing.cannot(f"{document.kind} {document.name}", why, document.where("kind"), hint, KIND)
    return draft


def _literal_tag(tag: str) -> Parts:
    return ("{{" + tag + "}}",)  # Kubernetes has no tags: the text is meant as it stands


def _pod(
    spec: Mapping[str, Any],
    metadata: Mapping[str, Any],
    draft: Draft,
    site: Site,
    listing: Unsupported,
    place: Place,
    *,
    in_job: bool = False,
    indexed: bool = False,
) -> dict[str, Any]:
    before = len(listing.found)
    containers = [each for each in spec.get("containers") or () if isinstance(each, Mapping)]
    if len(containers) != 1:
        hint = "make the others sidecars: init containers with restartPolicy: Always"
        why = f"a step has one program, and these are {len(containers)} containers that all must end"
        listing.cannot("containers", why, place.of(spec, "containers"), hint)
    policy = str(spec.get("restartPolicy") or "Always")
    if policy == "Always" or (policy == "OnFailure" and not in_job):
        hint = "write restartPolicy: Never"
        listing.cannot(
            f"restartPolicy {policy}", "it is started again without end", place.of(spec, "restartPolicy"), hint
        )
    if not containers:
        return {}
    reader = PodReader(listing, place, site, _literal_tag, {})
    if indexed:
        reader.set_outside[INDEX] = ({"item": "index"},)
    step = reader.step(spec, containers[0], {key: value for key, value in metadata.items() if value})
    step.sound = len(listing.found) == before
    draft.pods.append(step)
    draft.steps[label(str(containers[0].get("name") or "main"), ())] = step.words
    return step.words


def _job(
    spec: Mapping[str, Any], metadata: Mapping[str, Any], draft: Draft, site: Site, listing: Unsupported, place: Place
) -> None:
    listing.fields(spec, JOB, "spec", place, HINTS)
    template = mapping(spec.get("template"))
    listing.fields(template, ("metadata", "spec"), "template", place)
    inner = mapping(template.get("metadata"))
    listing.fields(inner, ("name", "labels", "annotations", "creationTimestamp"), "metadata", place)
    own = {key: inner.get(key) for key in ("labels", "annotations")}
    indexed = spec.get("completionMode") == "Indexed"
    words = _pod(mapping(template.get("spec")), own, draft, site, listing, place, in_job=True, indexed=indexed)
    if not words:
        return
    queue = mapping(metadata.get("labels")).get(QUEUE_LABEL)
    if queue:
        words["queue"] = str(queue)
    elif spec.get("suspend"):
        listing.cannot("suspend", "nothing says who lets it start", place.of(spec, "suspend"), "write queue: NAME")
    others = {key: value for key, value in mapping(metadata.get("labels")).items() if key != QUEUE_LABEL}
    if others:
        draft.head["labels"] = {str(key): str(plain_value(value)) for key, value in others.items()}
        listing.note("labels of the object stand on its pods as well", place.of(metadata, "labels"))
    if metadata.get("annotations"):
        words["annotations"] = {**plain_value(metadata["annotations"]), **words.get("annotations", {})}
        listing.note("annotations of the object stand on its pods", place.of(metadata, "annotations"))
    retries = plain_value(spec.get("backoffLimit", USUAL_RETRIES))
    if retries:
        words["retry"] = retries
    if str(mapping(template.get("spec")).get("restartPolicy")) == "OnFailure":
        listing.note("a failed container is not restarted in its pod: each attempt is a pod", place.of(template))
    if spec.get("activeDeadlineSeconds") is not None:
        draft.head["deadline"] = f"{plain_value(spec['activeDeadlineSeconds'])}s"
    if spec.get("ttlSecondsAfterFinished") is not None:
        seconds = f"{plain_value(spec['ttlSecondsAfterFinished'])}s"
        draft.head.setdefault("engines", {}).setdefault(ARGO, {})["ttl"] = {"success": seconds, "failure": seconds}
    _copies(spec, words, listing, place)


def _copies(spec: Mapping[str, Any], words: dict[str, Any], listing: Unsupported, place: Place) -> None:
    copies, at_once = plain_value(spec.get("completions")), plain_value(spec.get("parallelism"))
    indexed = spec.get("completionMode") == "Indexed"
    if copies is None and (at_once or 1) > 1:
        why = "its pods share a queue of work, and each decides when all is done"
        listing.cannot(f"parallelism {at_once}", why, place.of(spec, "parallelism"), "write completions as well")
    if at_once == 0:
        listing.cannot("parallelism 0", "it starts nothing", place.of(spec, "parallelism"), "write suspended: true")
    if copies and (copies > 1 or indexed):
        words["for_each"] = {"index": {"range": copies}}
        if (at_once or 1) < copies:
            words["parallel"] = at_once or 1
        if indexed:
            words["env"] = {**words.get("env", {}), INDEX: {"item": "index"}}


def _schedule(spec: Mapping[str, Any], draft: Draft, site: Site, listing: Unsupported, place: Place) -> None:
    listing.fields(spec, CRON, "spec", place)
    schedule: dict[str, Any] = {"cron": str(spec.get("schedule"))}
    schedule["concurrency"] = str(spec.get("concurrencyPolicy") or "Allow").lower()
    if spec.get("timeZone"):
        schedule["timezone"] = str(spec["timeZone"])
    else:
        text = "the schedule is read in UTC; Kubernetes reads it in the time zone of its controller"
        listing.note(text, place.of(spec, "schedule"))
    if spec.get("suspend"):
        schedule["suspended"] = True
    draft.head["schedule"] = schedule
    late, said = plain_value(spec.get("startingDeadlineSeconds")), site.engine(ARGO).starting_deadline
    if late and (said is None or said.seconds != late):
        hint = f"write it in the site: engines: {{argo: {{starting_deadline: {late}s}}}}"
        where = place.of(spec, "startingDeadlineSeconds")
        listing.cannot("startingDeadlineSeconds", "the site says it, for all schedules of the cluster", where, hint)
    pairs = (("successful", "successfulJobsHistoryLimit"), ("failed", "failedJobsHistoryLimit"))
    history = {word: plain_value(spec[key]) for word, key in pairs if spec.get(key) is not None}
    if history:
        draft.head.setdefault("engines", {}).setdefault(ARGO, {})["history"] = history
