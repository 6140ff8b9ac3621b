"""A Workflow, WorkflowTemplate or CronWorkflow of Argo as the document of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuflow.formats.argo import workflow_of
from gpuflow.formats.documents import Document, Library
from gpuflow.formats.nodes import mapping, maps, plain_value
from gpuflow.importing.argo.graph import Graph
from gpuflow.importing.argo.templates import (
    GIVE_IT,
    NOT_GIVEN,
    WORKFLOW_OF_POD,
    Importer,
    Scope,
    metric_fields,
    refuse_artifacts,
)
from gpuflow.importing.pipelines import Draft, identifier, label, object_metadata, read_schedule
from gpuflow.importing.pods import Parts
from gpuflow.importing.unsupported import TEMPLATE, Place, Unsupported
from gpuflow.site import Site
from gpuflow.spec.names import LABEL_PREFIX

SPEC = (
    *WORKFLOW_OF_POD, "entrypoint", "arguments", "templates", "onExit", "parallelism", "activeDeadlineSeconds",
    "volumes", "volumeClaimTemplates", "volumeClaimGC", "podGC", "ttlStrategy", "archiveLogs", "priority",
    "podMetadata", "hooks", "metrics",
    "templateDefaults", "retryStrategy", "podSpecPatch", "workflowMetadata", "workflowTemplateRef",
)  # fmt: skip
HINTS = {
    "synchronization": "use a Kueue queue, or compile --semaphores",
    "artifactRepositoryRef": "outputs of type file and directory name their own uri",
    "podDisruptionBudget": "make one for the label gpuflow.dev/pipeline",
    "executor": "the site says it: engines.argo.executor",
}
CRON = (
    "schedule", "schedules", "timezone", "concurrencyPolicy", "suspend", "successfulJobsHistoryLimit",
    "failedJobsHistoryLimit", "workflowSpec", "workflowMetadata", "startingDeadlineSeconds",
)  # fmt: skip


def pipeline_of(document: Document, library: Library, site: Site, listing: Unsupported) -> Draft:
    place = Place(document)
    outer = mapping(document.tree.get("spec"))
    workflow = workflow_of(document, library)
    spec = workflow.own
    draft = Draft()
    _metadata(document, outer, draft, listing, place)
    if document.kind == "CronWorkflow":
        _schedule(outer, draft, listing, place, site)
    if workflow.missing is not None:
        where = place.of(spec, "workflowTemplateRef")
        listing.cannot(workflow.missing, NOT_GIVEN, where, GIVE_IT, TEMPLATE)
        return draft
    if workflow.behind is not None:
        if listing.has_wrong_shapes(workflow.behind.document):
            return draft
        listing.fields(spec, ("workflowTemplateRef", "arguments", "entrypoint"), "spec", place, HINTS)
        spec, place = workflow.tree, Place(workflow.behind.document)
    listing.fields(spec, SPEC, "spec", place, HINTS)
    listing.fields(spec.get("templateDefaults"), DEFAULTS, "templateDefaults", place)
    importer = Importer(workflow, spec, library, site, listing)
    _claims(spec, draft, importer, place)
    known = _params(spec, draft, listing, place)
    _engine_options(spec, draft, listing, place)
    scope = Scope(draft, outer=known.get)
    if not spec.get("entrypoint"):
        listing.cannot("entrypoint", "no template is named to start with", place.of(spec), "name one: entrypoint: …")
        return draft
    entry = importer.find({"template": spec["entrypoint"]}, workflow, place.of(spec, "entrypoint"))
    if spec.get("parallelism") is not None:
        draft.head["parallel"] = plain_value(spec["parallelism"])
    if entry is not None:
        graph = Graph(importer, draft, scope, entry, (id(entry.tree),))
        declared = [str(each.get("name")) for each in maps(mapping(entry.tree.get("inputs")).get("parameters"))]
        filled = {name: known[name] for name in declared if name in known}  # the workflow's arguments fill them
        graph.scope = graph.inputs({"name": entry.name}, entry, scope, filled)
        if entry.type in ("steps", "dag"):
            graph.fill()
        elif (step := graph.step({"name": entry.name}, entry, graph.scope)) is not None:
            draft.steps[label(entry.name, ())] = step
        last = spec.get("onExit") or mapping(mapping(spec.get("hooks")).get("exit")).get("template")
        if last and (ending := importer.find({"template": last}, workflow, place.of(spec, "onExit"))) is not None:
            after = Graph(importer, draft, scope, ending, (id(ending.tree),))
            draft.exit = after.exit_steps(ending)
    return draft


def _metadata(document: Document, outer: Mapping[str, Any], draft: Draft, listing: Unsupported, place: Place) -> None:
    metadata = object_metadata(document, listing, place)
    draft.head["name"] = label(document.name, ())
    own = mapping(outer.get("workflowMetadata"))
    listing.fields(own, ("labels", "annotations"), "workflowMetadata", place)
    labels = {**mapping(metadata.get("labels")), **mapping(own.get("labels"))}
    labels = {key: value for key, value in labels.items() if not str(key).startswith(LABEL_PREFIX)}
    if labels:
        draft.head["labels"] = {str(key): str(plain_value(value)) for key, value in labels.items()}
        listing.note("labels of the object stand on its pods as well", place.of(metadata, "labels"))
    annotations = {**mapping(metadata.get("annotations")), **mapping(own.get("annotations"))}
    annotations = {str(key): str(plain_value(value)) for key, value in annotations.items()}
    if description := annotations.pop("workflows.argoproj.io/description", None):
        draft.head["description"] = description.strip()
    if annotations:
        draft.argo["annotations"] = annotations


def _schedule(outer: Mapping[str, Any], draft: Draft, listing: Unsupported, place: Place, site: Site) -> None:
    listing.fields(outer, CRON, "spec", place, {"when": "let the first step decide", "stopStrategy": "suspend it"})
    crons = [*([outer["schedule"]] if outer.get("schedule") else []), *(outer.get("schedules") or ())]
    if len(crons) != 1:
        listing.cannot(
            "schedules", f"a pipeline has one schedule, and these are {len(crons)}", place.of(outer, "schedules")
        )
        return
    read_schedule(outer, crons[0], outer.get("timezone"), draft, site, listing, place)


def _claims(spec: Mapping[str, Any], draft: Draft, importer: Importer, place: Place) -> None:
    claims: dict[str, Any] = {}
    for each in maps(spec.get("volumeClaimTemplates")):
        name = str(mapping(each.get("metadata")).get("name"))
        own = plain_value(mapping(each.get("spec")))
        importer.listing.fields(each, ("apiVersion", "kind", "metadata", "spec", "status"), "claim", place)
        importer.listing.fields(each.get("metadata"), ("name", "creationTimestamp"), "claim", place)
        importer.listing.fields(mapping(each.get("spec")).get("resources"), ("requests",), "claim resources", place)
        importer.listing.fields(each.get("spec"), ("accessModes", "resources", "storageClassName"), "claim", place)
        modes = own.get("accessModes") or ["ReadWriteOnce"]
        if len(modes) != 1:
            importer.listing.cannot(f"claim {name}", "it has several access modes", place.of(each))
        title = label(name, claims, 40)
        size = mapping(mapping(own.get("resources")).get("requests")).get("storage")
        claims[title] = {"size": str(size), "access": modes[0]}
        if own.get("storageClassName"):
            claims[title]["storage_class"] = own["storageClassName"]
        importer.claims[name] = title
    if claims:
        draft.head["claims"] = claims
    strategy = mapping(spec.get("volumeClaimGC")).get("strategy")
    if strategy not in (None, "OnWorkflowCompletion"):
        hint = "delete the claims of failed runs too, or name claims that exist"
        importer.listing.cannot(
            f"volumeClaimGC {strategy}", "claims are deleted with the run", place.of(spec, "volumeClaimGC"), hint
        )


def _params(spec: Mapping[str, Any], draft: Draft, listing: Unsupported, place: Place) -> dict[str, Parts]:
    """The workflow's parameters, and what each tag of theirs stands for."""
    known: dict[str, Parts] = {}
    arguments = mapping(spec.get("arguments"))
    listing.fields(arguments, ("parameters", "artifacts"), "arguments", place)
    for each in maps(arguments.get("parameters")):
        name = str(each.get("name"))
        listing.fields(each, ("name", "value", "default", "enum", "description"), "parameter", place)
        title = identifier(name, draft.params)
        if title != name:
            listing.note(
                f'the parameter "{name}" is called {title}: references and Python need such names', place.of(each)
            )
        param: dict[str, Any] = {"type": "string"}
        value = each.get("value", each.get("default"))
        if value is not None:
            param["default"] = (
                value if isinstance(value, str) else getattr(value, "text", None) or str(plain_value(value)).lower()
            )
        if each.get("enum"):
            param["enum"] = [str(plain_value(item)) for item in each["enum"]]
        if each.get("description"):
            param["description"] = str(each["description"])
        draft.params[title] = param
        known[name] = ({"param": title},)
    refuse_artifacts(arguments, listing, place, "read it in the step that needs it")
    return known


def _engine_options(spec: Mapping[str, Any], draft: Draft, listing: Unsupported, place: Place) -> None:
    if spec.get("activeDeadlineSeconds") is not None:
        draft.head["deadline"] = f"{plain_value(spec['activeDeadlineSeconds'])}s"
    gc = mapping(spec.get("podGC"))
    if gc.get("strategy"):
        listing.fields(gc, ("strategy", "deleteDelayDuration"), "podGC", place)
        delay = {"delay": str(gc["deleteDelayDuration"])} if gc.get("deleteDelayDuration") else {}
        draft.argo["pod_gc"] = {"strategy": str(gc["strategy"]), **delay}
    times = mapping(spec.get("ttlStrategy"))
    if times:
        known = ("secondsAfterCompletion", "secondsAfterSuccess", "secondsAfterFailure")
        listing.fields(times, known, "ttlStrategy", place)
        ttl = {
            word: f"{plain_value(times.get(key, times.get('secondsAfterCompletion')))}s"
            for word, key in (("success", "secondsAfterSuccess"), ("failure", "secondsAfterFailure"))
            if times.get(key, times.get("secondsAfterCompletion")) is not None
        }
        draft.argo["ttl"] = ttl
    for key, word in (("archiveLogs", "archive_logs"), ("priority", "priority")):
        if spec.get(key) is not None:
            draft.argo[word] = plain_value(spec[key])
    if metrics := metric_fields(spec.get("metrics"), listing, place):
        draft.argo["metrics"] = metrics
    if spec.get("podMetadata"):
        draft.argo["pod_metadata"] = plain_value(spec["podMetadata"])
    for name, hook in mapping(spec.get("hooks")).items():
        hook = mapping(hook)
        reference = mapping(hook.get("templateRef"))
        if name == "exit" and set(hook) == {"template"} and not spec.get("onExit"):
            continue  # what runs at the end
        if name == "exit" or not reference or not hook.get("expression"):
            hint = "write exit: {…} for what runs at the end, or name a template of the cluster: templateRef"
            listing.cannot(f"hook {name}", "a hook of a pipeline runs a template of the cluster", place.of(hook), hint)
            continue
        pairs = (("name", "name"), ("template", "template"), ("cluster_scope", "clusterScope"))
        where = {word: plain_value(reference[key]) for word, key in pairs if reference.get(key)}
        values = {str(p["name"]): str(p.get("value")) for p in mapping(hook.get("arguments")).get("parameters") or ()}
        made = {
            "expression": str(hook["expression"]),
            "template_ref": where,
            **({"arguments": values} if values else {}),
        }
        draft.argo.setdefault("hooks", {})[str(name)] = made


DEFAULTS = (
    "container", "script", "retryStrategy", "activeDeadlineSeconds", "nodeSelector", "tolerations", "affinity",
    "metadata", "serviceAccountName", "securityContext", "priorityClassName", "schedulerName", "volumes",
    "initContainers", "sidecars", "automountServiceAccountToken", "hostAliases", "podSpecPatch",
)  # fmt: skip
