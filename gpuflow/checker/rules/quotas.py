"""Rules about the ResourceQuotas of a namespace: what they refuse, what they leave open, and what they do not do.

Of some quotas it is not known what they say to a step: their usage is not counted yet, or they count what is not
modeled here.

Rules about volumes: claims that are refused, that stay pending forever, whose class matters and is not known, or
that hold less than a step puts into them.

These are the claims that a run makes, those of ephemeral volumes, and those that steps mount and that may not exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpuflow.checker.nodes.volumes import Claim, Storage
from gpuflow.checker.pipeline.nodes.mounted_claims import NO_VOLUMES
from gpuflow.checker.question import Question, check_rule
from gpuflow.checker.quota.namespace import StepAdmission
from gpuflow.checker.quota.peak import (
    COUNTED_PODS,
    COUNTED_WORKLOADS,
    QuotaLine,
    StoredObjects,
    charges_of_claims,
    counts_claims,
    run_claims,
    run_objects,
    where_of_claims,
)
from gpuflow.checker.report import LimitLine, amount, asking_clause, bounding_hint, cap_text, waiting_note
from gpuflow.checker.rules.pods import asked_resources
from gpuflow.cluster import Cluster, Manifest
from gpuflow.cluster.kinds import nearest_word
from gpuflow.cluster.model import once
from gpuflow.core.errors import Finding, Problem, Where, did_you_mean, join_names, list_names, warning
from gpuflow.demands import Demand
from gpuflow.demands.peaks import enclosing_steps
from gpuflow.demands.stored import StoredObject
from gpuflow.engines import facts_of
from gpuflow.kubernetes.admission.classes import default_class, is_default, name_of
from gpuflow.kubernetes.admission.field_errors import join_clauses, sentences
from gpuflow.kubernetes.admission.limit_range import broken_claim_bounds, read_limit_range
from gpuflow.kubernetes.admission.pod import read_pod
from gpuflow.kubernetes.admission.quota import (
    COMPUTE,
    QuotaExceeded,
    UsageUnknown,
    claims_of_pod,
    is_tracked_for_pods,
    usage_of,
)
from gpuflow.kubernetes.resources import read_map, read_maps
from gpuflow.quantity import Quantity


@check_rule("GF501", "GF509", "GF512", "GF514", "GF576", "GF805", "GF806", "GF807")
def quota_lines(q: Question) -> Iterator[Finding]:
    """Why lines of the quotas are not *always*; the verdict is that of each line."""
    return (finding for line in q.quota_lines for finding in _line_findings(q, line))


def _line_findings(q: Question, line: QuotaLine) -> Iterator[Finding]:
    """Why a line is not *always*, with the server's own words where a single pod already meets them."""
    scope, bound, item, at_least, stored = line
    demand = q.demand
    made = run_objects(demand).get(scope.resource)
    said = stored.documents if stored is not None and (made is None or scope.hard) else ()
    if said and at_least > scope.hard:
        yield _refused_for_ever(scope, item, [each for each in said if each.at_least])
        return
    if stored is not None and scope.verdict == "may-queue" and stored.fill_with_history(scope.hard):
        yield _full_of_history(demand, scope, stored)
        return
    if said:
        yield from _updates(scope, said)
    if at_least > scope.hard and (scope.hard or scope.resource != COUNTED_PODS):
        yield _cannot_finish(demand, scope, at_least)
        return
    if made is not None and made.per == "run" and scope.verdict == "never":
        yield Finding(
            "GF501",
            f"the run's own {made.kind} can never be created: quota {scope.name} allows "
            f"{amount(scope.hard, scope.resource)} of {scope.resource}",
            item.at("spec", "hard"),
            "run in another namespace, or have the quota raised; no step starts before",
        )
        return
    if scope.verdict == "always" or (scope.verdict == "never" and made is None):
        return  # the step that is too much for a line is named on its own
    words = next(
        (
            one.now.message
            for one in q.admissions
            for reason in one.now.reasons
            if isinstance(reason, QuotaExceeded | UsageUnknown)
            and reason.quota == scope.name
            and reason.names(scope.resource)
        ),
        None,
    )
    if scope.used is None:
        yield warning(
            "GF576",
            f"quota {scope.name} does not report yet how much of {scope.resource} is in use: what it leaves is unknown",
            item.at("status", "used"),
            "take the snapshot again when Kubernetes has caught up",
            kubernetes=words,
        )
        return
    where = (
        demand.where(scope.witness[0]) if scope.witness else Where() if made is not None else where_of_claims(demand)
    )
    where = said[0].where if said else where
    left = max(scope.hard - scope.used, Quantity.zero)
    asked = (bound.reached or Quantity.zero) * q.runs if scope.peak is None else scope.peak
    if scope.peak is None:
        yield from _unbounded_peak(q, line)
        if scope.verdict != "may-queue":
            return
    most, free, hard = (amount(each, scope.resource) for each in (asked, left, scope.hard))
    if scope.verdict == "unknown" and said:
        beside = next((each.because for each in said if not each.at_most and each.because), None)
        why = bound.because or beside or "a run that failed is kept beside those that succeeded"
        text = f"{_owners(said)} may store up to {most} of {scope.resource}; "
        text += f"quota {scope.name} leaves {free} of {hard}: {why}"
        yield warning("GF514", text, where, "have the quota raised to the most that there may be")
        return
    if scope.verdict == "unknown" and bound.reached is not None:
        cap = "give the pipeline a parallel cap, or" if demand.kind == "Pipeline" else "give it"
        hint = f"{cap} a quota for the most that it may hold"
        if scope.safe_parallelism is not None and facts_of(demand.engine).keeps_parallel:
            hint = f"with {cap_text(demand, scope.safe_parallelism)} this line of the quota always has room"
        text = f"{scope.resource}: quota {scope.name} leaves {free} of {hard}, and the worst moment is at most "
        text += f"{most}, perhaps less: {bound.because}"
        yield warning("GF514", text, where, hint)
        return
    if scope.witness:
        together = asking_clause(scope.witness)
    else:
        together = "the claims of the run ask" if made is None else f"the run's own {made.kind} asks"
    left_behind = scope.resource in (COUNTED_PODS, COUNTED_WORKLOADS) or (made is not None and made.per == "pod")
    hint = waiting_note(demand, "objects" if left_behind else "quota", scope.witness)
    if said:
        together = f"{_owners(said)} asks"
        applied = "kubectl apply does not ask again: apply it when there is room"
        hint = "its controller asks again until there is room" if all(each.by_controller for each in said) else applied
    if made is not None and made.per == "run":
        hint = f"nothing asks again: while old ones are kept, no run starts; delete some {made.kind}s first"
    is_less = bound.bound == "at-most" or demand.only_at_most is not None or bound.reached is not None
    most = f"up to {most}" if is_less and scope.peak is not None else most
    beside = ", without what is unknown" if scope.peak is None else ""
    text = f"{together} for {most} of {scope.resource}{beside}; quota {scope.name} leaves {free} of {hard}"
    asking = [demand.by_name[name] for name in scope.witness if name in demand.by_name and not said]
    fails = any(each.fails_when_refused for each in asking)
    yield Finding("GF512", text, where, hint, "error" if fails else "warning", kubernetes=words)


def _unbounded_peak(q: Question, line: QuotaLine) -> Iterator[Finding]:
    """What no number bounds: said once for all keys that it leaves open, where it is written."""
    because, demand = line.bound.because, q.demand
    open_lines = [each for each in q.quota_lines if each.scope.peak is None and each.bound.because == because]
    alike = [each.scope for each in open_lines if each.scope.verdict != "never" and each.scope.used is not None]
    if alike[0] is not line.scope:
        return
    names = [step.name for step in demand.steps if step.copies is None]
    loops = [each for each in names if any(f"loop {part!r}" in (because or "") for part in enclosing_steps(each))]
    found = next(iter(loops or names or line.scope.witness), None)
    keys = dict.fromkeys(each.resource for each in alike)
    text = f"{', '.join(keys)}: the worst moment is unknown: {because}"
    where = Where(demand.file) if found is None else demand.where(found)
    yield warning("GF514", text, where, bounding_hint(demand, "the fan-out" if found is None else f'"{found}"'))


def _owners(said: Sequence[StoredObject]) -> str:
    return join_names(list(dict.fromkeys(each.owner for each in said)))


def _refused_for_ever(line: LimitLine, item: Manifest, said: Sequence[StoredObject]) -> Finding:
    """An object that a quota never has room for: that of the document, or one that its controllers make."""
    own = [each for each in said if not each.by_controller]
    what, count = "can never be created", ""
    if not own:
        made = sum(each.at_least for each in said)
        what = f"never gets all that it needs: its controller makes {made} of {line.resource}"
    else:
        count = f" of {line.resource}"
    text = f"{_owners(own or said)} {what}: quota {line.name} allows {amount(line.hard, line.resource)}{count}"
    return Finding("GF805", text, item.at("spec", "hard"), "run in another namespace, or have the quota raised")


def _full_of_history(demand: Demand, line: LimitLine, stored: StoredObjects) -> Finding:
    """Finished runs that are kept, and leave no room for another one."""
    text = f"{_owners(stored.documents) or f'{demand.kind} {demand.name}'} keeps {stored.kept} of {line.resource} of "
    text += (
        f"runs that succeeded, and quota {line.name} allows {amount(line.hard, line.resource)}: then no run starts any "
    )
    text += "more, and nothing deletes them"
    word = "engines: {argo: {history: …}}" if demand.kind == "Pipeline" else "successfulJobsHistoryLimit"
    where = stored.documents[0].where if stored.documents else Where(demand.file)
    return Finding("GF806", text, where, f"keep fewer of them ({word}), or have the quota raised")


def _updates(line: LimitLine, said: Sequence[StoredObject]) -> Iterator[Finding]:
    """Old revisions are kept, so that an update needs more than the first start."""
    more = Quantity.from_units(sum(each.by_updates for each in said))
    if more and line.peak is not None and line.verdict == "always" and line.peak + more > line.hard:
        first, most, hard = (amount(each, line.resource) for each in (line.peak, line.peak + more, line.hard))
        text = f"{_owners(said)} has {first} of {line.resource} at first, and after updates up to "
        text += f"{most}; quota {line.name} allows {hard} and may refuse an update"
        yield Finding("GF807", text, said[0].where, "lower revisionHistoryLimit, or have the quota raised", "note")


def _cannot_finish(demand: Demand, line: LimitLine, at_least: Quantity) -> Finding:
    """A run that stores more than a quota ever allows."""
    made = run_objects(demand).get(line.resource)
    kind = "pods" if line.resource == COUNTED_PODS else "Workloads" if made is None else f"{made.kind}s"
    if not line.hard:
        text = f"no step can finish: quota {line.name} allows 0 of {line.resource}, and each step needs one"
        return Finding("GF501", text, Where(demand.file), "run in another namespace, or have the quota raised")
    steps = [step.name for step in demand.steps if step.is_sure]
    drivers = ", the engine's driver pods among them" if demand.driver is not None and kind != "Workloads" else ""
    text = f"the run cannot finish: {join_names(steps)} leave {at_least} {kind} behind{drivers}, which count until "
    text += f"the run is deleted; quota {line.name} allows {amount(line.hard, line.resource)} of {line.resource}"
    return Finding(
        "GF509", text, demand.where(steps[0]) if steps else Where(demand.file), facts_of(demand.engine).waits["objects"]
    )


@check_rule("GF576", verdict="unknown")
def unknown_usage(q: Question) -> Iterator[Problem]:
    """A quota without usage for one of its keys refuses every pod that it is for, whatever the pod asks for."""
    reported = {scope.name for scope in q.lines if scope.kind == "ResourceQuota" and scope.used is None}
    for item, quota in q.policy.quotas:
        missing = [key for key in quota.tracked if key not in quota.used]
        unknown = ((one, each) for one in q.admissions for each in one.now.reasons if isinstance(each, UsageUnknown))
        words = next((one.now.message for one, each in unknown if each.quota == quota.name), None)
        if missing and words and quota.name not in reported:
            yield Problem(
                f"quota {quota.name} does not report yet how much of {missing[0]} is in use: until it does, Kubernetes "
                "refuses every pod that it counts",
                item.at("status", "used"),
                "take the snapshot again when Kubernetes has caught up",
                kubernetes=words,
            )


@check_rule("GF576", verdict="unknown")
def late_usage(q: Question) -> Iterator[Problem]:
    """Quotas that say less is in use than the pods of their namespace hold, where the pipeline then has no room."""
    quotas = {quota.name: quota for _, quota in q.policy.quotas}
    for scope, _, item, _, _ in q.quota_lines:
        quota, used, peak = quotas.get(scope.name), scope.used, scope.peak or Quantity.zero
        if scope.verdict != "always" or quota is None or used is None or not is_tracked_for_pods(scope.resource):
            continue
        held = q.ready.live_usage.get(scope.resource, Quantity.zero)
        if held > used and quota.scopes:
            held = usage_of(quota, map(read_pod, q.ready.live_pods)).get(scope.resource, Quantity.zero)
        if used < held and held + peak > scope.hard:
            hold, more, hard = (amount(each, scope.resource) for each in (held, peak, scope.hard))
            said = f"says that {amount(used, scope.resource)} of {scope.resource} is in use, and pods hold {hold}"
            if not item.body.get("status"):
                said = f"has no status, and pods hold {hold} of {scope.resource}"
            text = f"quota {scope.name} {said}: with {more} more that is above {hard}"
            yield Problem(text, item.at("status", "used"), "take the snapshot again when Kubernetes has caught up")


CLAIMS_KEY = "count/resourceclaims.resource.k8s.io"
BY_DEVICE_CLASS = (".deviceclass.resource.k8s.io/", "requests.deviceclass.resource.kubernetes.io/")


@check_rule("GF535", verdict="unknown")
def claimed_devices(q: Question) -> Iterator[Problem]:
    """Claims for devices are made with the pods of a step, and quotas count them on their own."""
    claiming = [one.step.name for one in q.admissions if _makes_claims(one)]
    for _, quota in q.policy.quotas if claiming else ():
        keys = [key for key in sorted(quota.hard) if key == CLAIMS_KEY or any(word in key for word in BY_DEVICE_CLASS)]
        if keys and not quota.scopes:
            yield Problem(
                f"{list_names(claiming)}: it is unknown whether quota {quota.name} has room for the claimed devices; "
                f"not modeled: {', '.join(keys)}",
                q.where(claiming[0]),
                "compare the key with what the ResourceClaimTemplate asks for, times the pods that run at once",
            )


def _makes_claims(one: StepAdmission) -> bool:
    claims = read_maps(one.step.pod["spec"].get("resourceClaims"), "spec.resourceClaims")
    return any(each.get("resourceClaimTemplateName") for each in claims)


@check_rule("GF573", verdict="unknown")
def default_priority(q: Question) -> Iterator[Problem]:
    """Which quota a pod without a priority class counts in depends on the default class, when no class is known."""
    if q.policy.priority_classes is not None:
        return
    plain = [one.step.name for one in q.admissions if not one.step.pod["spec"].get("priorityClassName")]
    for item, quota in q.policy.quotas if plain else ():
        if quota.tracked and any(scope.name == "PriorityClass" for scope in quota.scopes):
            yield Problem(
                f"{list_names(plain)}: it is unknown whether quota {quota.name} counts it, because the snapshot has no "
                "PriorityClass objects and one of them may be the default",
                item.at("spec"),
                "add the cluster's PriorityClasses to the snapshot, or give the step a priority",
            )


COUNT_KEYS: Final = (
    "count/configmaps", "count/cronjobs.batch", "count/deployments.apps", "count/jobs.batch",
    "count/persistentvolumeclaims", "count/pods", "count/replicasets.apps", "count/secrets", "count/services",
    "count/statefulsets.apps", "count/workflows.argoproj.io", "count/workflowtaskresults.argoproj.io",
)  # fmt: skip
"""Objects that pipelines leave behind, as a quota counts them."""
STORAGE: Final = ("requests.storage", "persistentvolumeclaims")
DEVICES: Final = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu", "gpu.intel.com/i915", "rdma/hca")
MIG: Final = re.compile(r"nvidia\.com/mig-\d+g\.\d+gb(\.[a-z.]+)?")


@check_rule("GF521")
def ineffective_keys(q: Question) -> Iterator[Problem]:
    """Quota keys that look like limits and do nothing."""
    known = {*DEVICES, *asked_resources(q), *_node_resources(q.cluster)}
    for item, quota in q.policy.quotas:
        for key in quota.hard:
            meant = _intended_key(key, known)
            if meant is not None:
                section = "spec" if quota.assumed else "status"
                yield Problem(
                    f'quota {quota.name}: the key "{key}" is accepted and never enforced',
                    item.at("spec", "hard", key, key=True)
                    if key in read_map(read_map(item.body.get("spec"), "spec").get("hard"), "spec.hard")
                    else item.at(section, "hard", key, key=True),
                    f'write "{meant}" instead',
                )


@once
def _node_resources(cluster: Cluster) -> set[str]:
    """The extended resources of the nodes."""
    states = [read_map(node.body.get("status"), "status") for node in cluster.of("Node")]
    fields = [read_map(each.get(key), f"status.{key}") for each in states for key in ("allocatable", "capacity")]
    return {name for field in fields for name in field if "/" in name}


def _intended_key(key: str, devices: set[str]) -> str | None:
    """The key that would do what this one only seems to do; nothing when it works as it stands."""
    if "/" not in key:
        return None
    if key.startswith("count/"):
        near = nearest_word(key, COUNT_KEYS)
        return near if near != key else None
    if ".storageclass." in key or ".volumeattributesclass." in key:
        prefix, _, what = key.partition("/")
        return None if what in STORAGE else f"{prefix}/{nearest_word(what, STORAGE) or STORAGE[0]}"
    if ".deviceclass.resource.k8s.io/" in key:
        return None
    if not is_tracked_for_pods(key):
        bare = re.sub(r"^(limits?|requests?)\.", "", key)
        return f"requests.{nearest_word(bare, devices) or bare}" if bare not in COMPUTE else f"requests.{bare}"
    name = key.removeprefix("requests.")
    if name in devices or MIG.fullmatch(name):
        return None
    near = nearest_word(name, devices)
    return f"requests.{near}" if near else None


@check_rule("GF532", severity="note")
def assumed_quotas(q: Question) -> Iterator[Problem]:
    """Quotas without a status."""
    for item, quota in q.policy.quotas:
        if quota.assumed:
            text = f"quota {quota.name} has no status: assumed as written, with nothing in use"
            yield Problem(text, item.where, "take a snapshot of the live cluster to see what is in use")


@check_rule("GF534", severity="error", verdict="unknown")
def empty_quotas(q: Question) -> Iterator[Problem]:
    """Quotas that say nothing, which is never meant."""
    for item, quota in q.policy.quotas:
        if not quota.hard:
            section = "spec" if quota.assumed else "status"
            message = f"quota {quota.name} limits nothing: its {section} has no hard"
            yield Problem(message, item.at(section), "is the key misspelled?")


BY_CLASS: Final = ".storageclass.storage.k8s.io/"
"""Stands in every quota key that counts the claims of one storage class."""


@check_rule("GF501", "GF502", severity="error", verdict="never")
def refused_claims(q: Question) -> Iterator[Finding]:
    """Claims that the namespace refuses even when it is empty: no step that mounts one ever starts."""
    claims = run_claims(q.demand, q.policy.storage_classes, q.policy.brought_claims)
    for own in q.demand.claims:
        who, subject = f'claim "{own.name}"', f'persistentvolumeclaims "{own.name}"'
        yield from _refused_sizes(claims[own.name], who, subject, own.size_where, q.policy.limit_ranges)
    where = where_of_claims(q.demand)
    for item in q.cluster.of("PersistentVolumeClaim", q.namespace) if q.policy.brought_claims else ():
        if item.is_new and item.name in claims:
            who, subject = f'claim "{item.name}"', f'persistentvolumeclaims "{item.name}"'
            yield from _refused_sizes(claims[item.name], who, subject, item.where, q.policy.limit_ranges)
            where = where if where.file else item.where
    charges = charges_of_claims(claims)
    for _, quota in q.policy.quotas:
        for key in sorted(charges.keys() & quota.hard.keys()):
            if counts_claims(quota) and charges[key] > quota.hard[key]:
                who = f'claim "{next(iter(claims))}" asks' if len(claims) == 1 else "the claims of one run ask"
                text = f"{who} for {charges[key]} of {key}, and quota {quota.name} allows at most {quota.hard[key]}"
                hint = "ask for less in claims, or have the quota raised"
                yield Finding("GF501", text, where, hint)


@check_rule("GF502", "GF561", severity="error", verdict="never")
def refused_ephemeral_volumes(q: Question) -> Iterator[Finding]:
    """Ephemeral volumes whose claims the namespace refuses, or that no storage class fills: the pod stays pending."""
    default = default_class(q.policy.storage_classes or ())
    for step in q.demand.steps:
        for name, claim in claims_of_pod(step.pod["spec"], default):
            who = f'step "{step.name}": the claim of its volume {name}'
            yield from _refused_sizes(claim, who, "persistentvolumeclaims", q.where(step.name), q.policy.limit_ranges)
            yield from _unfilled_ephemeral(q, step.name, name, claim)


def _refused_sizes(
    claim: Mapping[str, Any], who: str, subject: str, where: Where, limit_ranges: Sequence[Mapping[str, Any]]
) -> Iterator[Finding]:
    """What LimitRanges say to a claim, which is called `who` here and `subject` by Kubernetes."""
    for limit_range in map(read_limit_range, limit_ranges):
        broken = broken_claim_bounds(claim, limit_range)
        if broken:
            text = f"{who} can never be created: LimitRange {limit_range.name} refuses its size"
            hint = "stay within the namespace's LimitRange, or have it changed"
            yield Finding(
                "GF502", text, where, hint, kubernetes=f"{subject} is forbidden: {join_clauses(sentences(broken))}"
            )


def _unfilled_ephemeral(q: Question, step: str, name: str, claim: Mapping[str, Any]) -> Iterator[Finding]:
    classes = q.policy.storage_classes
    if classes is None:
        return
    names = sorted(map(name_of, classes))
    wanted = claim["spec"].get("storageClassName")
    if wanted in names or wanted == "":
        return
    what = "names no storage class, and the cluster has no default" if wanted is None else f"asks for {wanted}"
    yield Finding(
        "GF561",
        f'step "{step}": its ephemeral volume {name} {what}{"" if wanted is None else ", which does not exist"}: '
        "the pod stays pending",
        q.where(step),
        f"give it storage_class: {' or '.join(names)}" if names else "create a StorageClass",
    )


@check_rule("GF561", severity="error", verdict="never")
def unfilled_claims(q: Question) -> Iterator[Problem]:
    """Claims of the run whose storage class makes no volumes because it does not exist."""
    classes = q.cluster.bodies("StorageClass")
    if classes is None:
        return
    names = sorted(name_of(body) for body in classes)
    volumes = [read_map(each.body.get("spec"), "spec") for each in q.cluster.of("PersistentVolume")]
    ready = {str(spec.get("storageClassName") or "") for spec in volumes}
    for claim in q.demand.claims:
        name, wanted = claim.name, claim.storage_class
        if wanted is None and not any(map(is_default, classes)) and "" not in ready:
            yield Problem(
                f'claim "{name}" names no storage class, and the cluster has no default: it stays pending',
                claim.where,
                f"give it storage_class: {' or '.join(names)}" if names else "create a StorageClass",
                kubernetes="no persistent volumes available for this claim and no storage class is set",
            )
        elif wanted and wanted not in names and wanted not in ready:
            known = did_you_mean(wanted, names) or f"the cluster has {', '.join(names) or 'none'}"
            text = f'claim "{name}" asks for storage class {wanted}, which does not exist: it stays pending'
            kubernetes = f'storageclass.storage.k8s.io "{wanted}" not found'
            yield Problem(text, claim.class_where, known, kubernetes=kubernetes)


@check_rule("GF561", severity="error", verdict="never")
def missing_claims(q: Question) -> Iterator[Problem]:
    """Claims that steps mount and that the namespace does not have."""
    claims = q.cluster.bodies("PersistentVolumeClaim", q.namespace)
    if claims is None:
        return
    names = sorted(name_of(body) for body in claims)
    own = {claim.volume for claim in q.demand.claims}
    wanted: dict[str, list[str]] = {}
    for one in q.admissions:
        for volume in read_maps(one.step.pod["spec"].get("volumes"), "spec.volumes"):
            claim = read_map(volume.get("persistentVolumeClaim"), "persistentVolumeClaim").get("claimName")
            if claim is not None and volume["name"] not in own and claim not in names:
                wanted.setdefault(claim, []).append(one.step.name)
    for claim, steps in wanted.items():
        who = f'step "{steps[0]}" mounts' if len(steps) == 1 else f"steps {', '.join(steps)} mount"
        yield Problem(
            f"{who} the claim {claim}, which does not exist in {q.namespace}: the pod stays pending",
            q.where(steps[0]),
            did_you_mean(claim, names) or "create the claim first",
            kubernetes=f'persistentvolumeclaim "{claim}" not found',
        )


@check_rule("GF573", verdict="unknown")
def unknown_classes(q: Question) -> Iterator[Problem]:
    """Quotas that count by storage class, where the snapshot does not say which class a claim gets."""
    if q.policy.storage_classes is not None:
        return
    nameless = [claim.name for claim in q.demand.claims if claim.storage_class is None]
    for step in q.demand.steps:
        made = claims_of_pod(step.pod["spec"])
        nameless += [name for name, claim in made if "storageClassName" not in claim["spec"]]
    for _, quota in q.policy.quotas if nameless else ():
        keys = [key for key in sorted(quota.hard) if BY_CLASS in key]
        if keys and counts_claims(quota):
            yield Problem(
                f'claim "{nameless[0]}" names no storage class and the snapshot has none: it is not known whether '
                f"{keys[0]} of quota {quota.name} counts it",
                Where(q.cluster.source),
                "give the claim a storage_class, or add the cluster's StorageClasses to the snapshot",
            )
            return


@check_rule("GF556", severity="error", verdict="never")
def unusable_claims(q: Question) -> Iterator[Problem]:
    """Claims with which no pod ever starts, whatever the nodes are like."""
    for mounted in q.mounted.mounted.values():
        if mounted.never is not None:
            text = f"{mounted.words} of {q.mounted.users_phrase(mounted)} {mounted.because}: the pod stays pending"
            hint = "make a PersistentVolume for it" if mounted.never in NO_VOLUMES else "make the claim anew"
            yield Problem(text, q.mounted.where(mounted), hint, kubernetes=mounted.never)


@check_rule("GF360")
def small_claims(q: Question) -> Iterator[Problem]:
    """A warning for each step and claim. What else lies there is not known, so it is not counted."""
    # The pods of a gang are steps of their own here, and each has the sizes of the whole step.
    put = {
        (step.part_of or step.name, name): size
        for step in q.demand.steps
        for name, size in step.put_into_claims.items()
    }
    for (step, name), taken in put.items():
        claim = q.ready.storage.claims.get((q.namespace, name))
        holds = Quantity.zero if claim is None else _room_of_claim(claim, q.ready.storage)
        if holds and taken > holds:
            has, takes = amount(holds, "storage"), amount(taken, "storage")
            text = f'step "{step}": the claim "{name}" holds {has}, and the inputs and outputs there take {takes}'
            enough = amount(taken, "storage", round_up=True)
            yield Problem(text, q.where(step), f"raise the claim to {enough} or more, or put files elsewhere")


def _room_of_claim(claim: Claim, storage: Storage) -> Quantity:
    """What it asked for, or more where it got a larger volume; zero: nothing says it."""
    volume = (storage.volumes or {}).get(claim.volume)
    return max(claim.size, claim.capacity, Quantity.zero if volume is None else volume.size)
