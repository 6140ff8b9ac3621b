"""Pods, Jobs and CronJobs of Kubernetes as pipelines of one step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuflow.formats.documents import Document, Library
from gpuflow.formats.nodes import mapping, plain_value
from gpuflow.importing.pipelines import Draft, label, object_metadata, read_schedule
from gpuflow.importing.pods import PodReader
from gpuflow.importing.unsupported import KIND, Place, Unsupported
from gpuflow.kubernetes.labels import QUEUE_LABEL
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


@dataclass(frozen=True)
class Importer:
    """Fills the draft of one document."""

    draft: Draft
    site: Site
    listing: Unsupported
    place: Place

    def pod(
        self, spec: Mapping[str, Any], metadata: Mapping[str, Any], *, in_job: bool = False, indexed: bool = False
    ) -> dict[str, Any]:
        listing, place = self.listing, self.place
        before = len(listing.found)
        containers = [each for each in spec.get("containers") or () if isinstance(each, Mapping)]
        if len(containers) != 1:
            hint = "make the others sidecars: init containers with restartPolicy: Always"
            why = f"a step has one program, and these are {len(containers)} containers that all must end"
            listing.cannot("containers", why, place.of(spec, "containers"), hint)
        policy = str(spec.get("restartPolicy") or "Always")
        if policy == "Always" or (policy == "OnFailure" and not in_job):
            where = place.of(spec, "restartPolicy")
            why = "it is started again without end"
            listing.cannot(f"restartPolicy {policy}", why, where, "write restartPolicy: Never")
        if not containers:
            return {}
        # Kubernetes has no tags: the text is meant as it stands.
        reader = PodReader(listing, place, self.site, lambda tag: ("{{" + tag + "}}",), {})
        if indexed:
            reader.set_outside[INDEX] = ({"item": "index"},)
        labels = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
        step = reader.step(spec, containers[0], labels)
        step.sound = len(listing.found) == before
        self.draft.pods.append(step)
        self.draft.steps[label(str(containers[0].get("name") or "main"), ())] = step.words
        return step.words

    def job(self, spec: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        listing, place = self.listing, self.place
        listing.fields(spec, JOB, "spec", place, HINTS)
        template = mapping(spec.get("template"))
        listing.fields(template, ("metadata", "spec"), "template", place)
        inner = mapping(template.get("metadata"))
        listing.fields(inner, ("name", "labels", "annotations", "creationTimestamp"), "metadata", place)
        indexed = spec.get("completionMode") == "Indexed"
        words = self.pod(mapping(template.get("spec")), inner, in_job=True, indexed=indexed)
        if not words:
            return
        queue = mapping(metadata.get("labels")).get(QUEUE_LABEL)
        if queue:
            words["queue"] = str(queue)
        elif spec.get("suspend"):
            listing.cannot("suspend", "nothing says who lets it start", place.of(spec, "suspend"), "write queue: NAME")
        others = {key: value for key, value in mapping(metadata.get("labels")).items() if key != QUEUE_LABEL}
        if others:
            self.draft.head["labels"] = {str(key): str(plain_value(value)) for key, value in others.items()}
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
            self.draft.head["deadline"] = f"{plain_value(spec['activeDeadlineSeconds'])}s"
        if spec.get("ttlSecondsAfterFinished") is not None:
            seconds = f"{plain_value(spec['ttlSecondsAfterFinished'])}s"
            self.draft.argo["ttl"] = {"success": seconds, "failure": seconds}
        self._copies(spec, words)

    def _copies(self, spec: Mapping[str, Any], words: dict[str, Any]) -> None:
        listing, place = self.listing, self.place
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

    def schedule(self, spec: Mapping[str, Any]) -> None:
        listing, place = self.listing, self.place
        listing.fields(spec, CRON, "spec", place)
        if not spec.get("timeZone"):
            text = "the schedule is read in UTC; Kubernetes reads it in the time zone of its controller"
            listing.note(text, place.of(spec, "schedule"))
        read_schedule(spec, spec.get("schedule"), spec.get("timeZone"), self.draft, self.site, listing, place)


def pipeline_of(document: Document, library: Library, site: Site, listing: Unsupported) -> Draft:
    """The pipeline of a Pod, a Job or a CronJob."""
    place = Place(document)
    draft = Draft(head={"name": label(document.name, ())})
    spec = mapping(document.tree.get("spec"))
    metadata = object_metadata(document, listing, place)
    importer = Importer(draft, site, listing, place)
    if document.kind == "Pod":
        importer.pod(spec, metadata)
    elif (document.kind, document.group) == ("Job", "batch"):
        importer.job(spec, metadata)
    elif document.kind == "CronJob":
        importer.schedule(spec)
        template = mapping(spec.get("jobTemplate"))
        importer.job(mapping(template.get("spec")), mapping(template.get("metadata")))
    else:
        why = "it runs without end, or its pods find each other in a way that a pipeline does not know"
        hint = "write its program as a step; several that run together are a gang"
        listing.cannot(f"{document.kind} {document.name}", why, document.where("kind"), hint, KIND)
    return draft
