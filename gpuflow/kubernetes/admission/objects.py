"""Validation of the objects that make pods: their metadata, and what the API server asks of a Job, a CronJob, a
Deployment, a ReplicaSet, a StatefulSet or a DaemonSet beside valid pods. The faults of the pods in a template are found
where those pods are judged (`validation`), and not here again.

The manifest is as it was written: defaults count as the server fills them in, of feature gates the default too.

Mirrors SetDefaults_*, generateSelector, ValidateObjectMeta (not ownerReferences), ValidateJob, ValidateCronJobCreate,
ValidateDeployment, ValidateReplicaSet, ValidateStatefulSet and ValidateDaemonSet in k8s.io/kubernetes/pkg/apis/batch
and apps, Kubernetes v1.36.3.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from zoneinfo import ZoneInfo, available_timezones

from gpuflow.core.cron import standard_fault
from gpuflow.kubernetes.admission.container_validation import claim_faults, name_faults
from gpuflow.kubernetes.admission.field_errors import (
    INVALID,
    FieldError,
    dns_label_faults,
    dns_subdomain_faults,
    forbidden,
    invalid,
    invalid_number,
    label_value_faults,
    qualified_name_faults,
    required,
    sort_reasons,
    too_long,
    unsupported,
)
from gpuflow.kubernetes.admission.pod import Body, read_flag, read_integer, read_text
from gpuflow.kubernetes.admission.validation import annotation_faults, label_faults
from gpuflow.kubernetes.labels import POD_OPERATORS, Requirement, Selector, read_labels, read_requirements
from gpuflow.kubernetes.resources import BadField, read_map, read_maps, read_texts

UID: Final = "uid-of-object"
"""Stands for the uid that the server gives."""
LONGEST_BASE, GIVEN_END = 58, "xxxxx"
"""Of a generated name, the server keeps so many characters and adds five."""
MANY_INDEXES, MANY_AT_ONCE, MOST_RULES, MOST_EXIT_CODES = 100_000, 10_000, 20, 255
NOT_NEGATIVE: Final = "must be greater than or equal to 0"
AT_MOST: Final = "must be less than or equal to"
UNREADABLE: Final = "invalid label selector"
NEEDS_INDEXED: Final = "requires indexed completion mode"
PERCENT: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)
PATH: Final = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")
JOB_NAMES: Final = ("job-name", "batch.kubernetes.io/job-name")
JOB_UIDS: Final = ("controller-uid", "batch.kubernetes.io/controller-uid")

Faults = Iterator[FieldError]


def object_faults(manifest: Body, kind: str, group: str) -> tuple[FieldError, ...]:
    """Every clause of the 422 that this object would get, but for those about its pods; none when it is valid.

    Of kinds that are not listed here, the metadata alone is judged.
    """
    names, rules = KINDS.get((kind, group), (dns_subdomain_faults, None))
    metadata = read_map(manifest.get("metadata"), "metadata")
    faults = [*metadata_faults(metadata, names)]
    if rules is not None:
        faults += rules(read_map(manifest.get("spec"), "spec"), object_name(metadata))
    return sort_reasons(faults)


def object_name(metadata: Body) -> str:
    """The name that it has, or gets, as long as it will be."""
    base = read_text(metadata, "generateName", "metadata")
    return read_text(metadata, "name", "metadata") or (f"{base[:LONGEST_BASE]}{GIVEN_END}" if base else "")


def metadata_faults(metadata: Body, names: Callable[[str], tuple[str, ...]]) -> Faults:
    """What is wrong with the metadata of any object."""
    base, name = read_text(metadata, "generateName", "metadata"), object_name(metadata)
    if base:
        ended = f"{base[:-2]}a" if len(base) > 1 and base.endswith("-") else base
        yield from (invalid("metadata.generateName", base, fault) for fault in names(ended))
    yield from name_faults("metadata.name", name, names) if name else ()
    yield from _those(not name and required("metadata.name", "name or generateName is required"))
    yield from label_faults(metadata.get("labels"), "metadata.labels")
    yield from annotation_faults(metadata.get("annotations"), "metadata.annotations")
    for index, finalizer in enumerate(read_texts(metadata.get("finalizers"), "metadata.finalizers")):
        yield from name_faults("metadata.finalizers", finalizer, qualified_name_faults)
        if "/" not in finalizer and finalizer not in ("kubernetes", "orphan", "foregroundDeletion"):
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid(f"metadata.finalizers[{index}]", finalizer, detail)


def _those(*faults: FieldError | bool | None) -> Faults:
    """Those that there are."""
    return (each for each in faults if isinstance(each, FieldError))


def _not_negative(holder: Body, where: str, *keys: str) -> Faults:
    numbers = {key: read_integer(holder, key, where) or 0 for key in keys}
    return (invalid_number(f"{where}.{key}", number, NOT_NEGATIVE) for key, number in numbers.items() if number < 0)


def _word(holder: Body, key: str, where: str, choices: tuple[str, ...], default: str = "") -> Faults:
    """A word that is none of its choices."""
    word = read_text(holder, key, where) or default
    return _those(word not in choices and unsupported(f"{where}.{key}", word, choices))


def _at_most(number: int | None, most: int, field: str, when: str = "") -> FieldError | bool:
    return number is not None and number > most and invalid_number(field, number, f"{AT_MOST} {most}{when}")


def _fault(field: str, value: object, detail: str) -> FieldError:
    """A value as the server prints it."""
    return FieldError(INVALID, field, json.dumps(value, separators=(",", ":"), ensure_ascii=False), detail)


def _too_many(field: str, listed: list[Any], most: int) -> FieldError | bool:
    return len(listed) > most and FieldError("Too many", field, str(len(listed)), f"must have at most {most} items")


def _inner(holder: Body, where: str, *keys: str) -> Body:
    for key in keys:
        where = f"{where}.{key}"
        holder = read_map(holder.get(key), where)
    return holder


def _template_labels(spec: Body) -> dict[str, str]:
    where = "spec.template.metadata.labels"
    labels = _inner(spec, "spec", "template", "metadata", "labels")
    return read_labels({key: text for key, text in sorted(labels.items()) if text is not None}, where)


def _selector_faults(
    spec: Body, *, like: Mapping[str, str] | None = None, kind: str = "", unreadable: str | None = None
) -> Faults:
    """The selector of an object, and whether it selects the pods of its template.

    `like`: the labels that a Job generates. `kind`: of an object whose selector must not be empty. `unreadable`: what
    is said once more of a selector that cannot be read. Mirrors ValidateLabelSelector and LabelSelectorAsSelector.
    """
    field = "spec.selector"
    given = _inner(spec, "spec", "selector")
    of_uid = {} if like is None else {JOB_UIDS[1]: UID}
    labels = {**of_uid, **{key: text or "" for key, text in _inner(given, field, "matchLabels").items()}}
    is_given = bool(of_uid) or spec.get("selector") is not None
    expressions = read_requirements(given.get("matchExpressions"), f"{field}.matchExpressions")
    requirements = (*(Requirement(key, "In", (text,)) for key, text in labels.items()), *expressions)
    yield from label_faults(labels, f"{field}.matchLabels")
    for index, each in enumerate(expressions):
        place = f"{field}.matchExpressions[{index}]"
        yield from name_faults(f"{place}.key", each.key, qualified_name_faults)
        known, one_of = each.operator in POD_OPERATORS, each.operator in ("In", "NotIn")
        need = "must be specified when `operator` is 'In' or 'NotIn'"
        none = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        yield from _those(
            not known and invalid(f"{place}.operator", each.operator, "not a valid selector operator"),
            one_of and not each.values and required(f"{place}.values", need),
            known and not one_of and bool(each.values) and forbidden(f"{place}.values", none),
        )
        for number, text in enumerate(each.values):
            yield from name_faults(f"{place}.values[{number}]", text, label_value_faults)
    shown: dict[str, Any] = {"matchLabels": dict(sorted(labels.items()))} if labels else {}
    if expressions:
        listed = [{"key": each.key, "operator": each.operator, "values": each.values} for each in expressions]
        shown["matchExpressions"] = [{key: text for key, text in each.items() if text != ()} for each in listed]
    sound = not any(each.fault or each.operator not in POD_OPERATORS for each in requirements)
    of_template = {**(like or {}), **_template_labels(spec)}
    has_labels = like is not None or "labels" in _inner(spec, "spec", "template", "metadata")
    matched = is_given and Selector(requirements).matches(of_template) if sound else True
    unlike = sound and like is not None and not Selector(requirements).matches(like)
    yield from _those(
        not is_given and kind != "daemonset" and required(field),
        is_given and not requirements and bool(kind) and _fault(field, {}, f"empty selector is invalid for {kind}"),
        not sound and unreadable is not None and _fault(field, shown, unreadable),
        unlike and _fault(field, shown, "`selector` not auto-generated"),
        not matched
        and _fault(
            "spec.template.metadata.labels",
            dict(sorted(of_template.items())) if has_labels else None,
            "`selector` does not match template `labels`",
        ),
    )


def job_faults(spec: Body, name: str) -> Faults:
    """Mirrors generateSelector, ValidateJob, ValidateJobSpec and validateGeneratedSelector."""
    generated = None
    if not read_flag(spec, "manualSelector", "spec"):
        generated = {**dict.fromkeys(JOB_NAMES, name), **dict.fromkeys(JOB_UIDS, UID)}
        own = _template_labels(spec)
        if not own.keys() >= set(JOB_NAMES):  # of labels that the author wrote, the pod says it
            yield from name_faults("spec.template.labels", name, label_value_faults)
        shown = dict(sorted({**generated, **own}.items()))
        for key, text in generated.items():
            field = f"spec.template.metadata.labels[{key}]"
            yield from _those(shown[key] != text and _fault(field, shown, f"must be '{text}'"))
    yield from _selector_faults(spec, like=generated)
    with_defaults = {"completions": 1, **spec} if spec.get("parallelism") is None else spec
    if with_defaults.get("completions") is None:
        with_defaults = {key: value for key, value in with_defaults.items() if key != "completions"}
    yield from job_spec_faults(with_defaults, "spec")
    last = (read_integer(with_defaults, "completions", "spec") or 0) - 1
    if spec.get("completionMode") == "Indexed" and last >= 0 and dns_label_faults(f"{name}-{last}"):
        yield invalid("metadata.name", name, f"will not able to create pod with invalid DNS label: {name}-{last}")


def job_spec_faults(spec: Body, where: str) -> Faults:
    """Mirrors validateJobSpec."""
    numbers = (
        "parallelism", "completions", "backoffLimitPerIndex", "maxFailedIndexes", "activeDeadlineSeconds",
        "backoffLimit", "ttlSecondsAfterFinished",
    )  # fmt: skip
    yield from _not_negative(spec, where, *numbers)
    at_once, completions, per_index, failed = (read_integer(spec, key, where) for key in numbers[:4])
    manager = read_text(spec, "managedBy", where)
    yield from () if manager is None else domain_path_faults(manager, f"{where}.managedBy")
    yield from _word(spec, "completionMode", where, ("NonIndexed", "Indexed"), "NonIndexed")
    indexed, has_policy = spec.get("completionMode") == "Indexed", spec.get("podFailurePolicy") is not None
    at = f"{where}.maxFailedIndexes"
    yield from _those(
        failed is not None
        and per_index is None
        and required(f"{where}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    )
    if indexed:
        above = f" when completions are above {MANY_INDEXES} and used with backoff limit per index"
        is_large = (completions or 0) > MANY_INDEXES and per_index is not None
        too_few = failed is not None and completions is not None and failed > completions
        missing = f"must be specified when completions is above {MANY_INDEXES}"
        yield from _those(
            completions is None and required(f"{where}.completions", "when completion mode is Indexed"),
            _at_most(at_once, MANY_INDEXES, f"{where}.parallelism", " when completion mode is Indexed"),
            too_few and invalid_number(at, failed or 0, f"{AT_MOST} completions"),
            _at_most(failed, MANY_INDEXES, at),
            is_large and failed is None and required(at, missing),
            is_large and _at_most(at_once, MANY_AT_ONCE, f"{where}.parallelism", above),
            is_large and _at_most(failed, MANY_AT_ONCE, at, above),
        )
    elif spec.get("completionMode") in (None, "NonIndexed"):
        field = f"{where}.backoffLimitPerIndex"
        yield from _those(per_index is not None and invalid_number(field, per_index, NEEDS_INDEXED))
        yield from _those(failed is not None and invalid_number(at, failed, NEEDS_INDEXED))
    pod = _inner(spec, where, "template", "spec")
    if has_policy:
        yield from _failure_policy(spec, where, pod)
    if spec.get("successPolicy") is not None and indexed:
        yield from _success_policy(_inner(spec, where, "successPolicy"), f"{where}.successPolicy.rules", completions)
    elif spec.get("successPolicy") is not None:
        yield FieldError(INVALID, f"{where}.successPolicy", None, NEEDS_INDEXED)
    replacements = ("Failed",) if has_policy else ("Failed", "TerminatingOrFailed")
    yield from _word(spec, "podReplacementPolicy", where, replacements, "Failed")
    restart, place = read_text(pod, "restartPolicy", f"{where}.template.spec") or "Always", f"{where}.template.spec"
    only_never = 'only "Never" is supported when podFailurePolicy is specified'
    if restart == "Always":
        yield required(f"{place}.restartPolicy", 'valid values: "OnFailure", "Never"')
    else:
        yield from _word(pod, "restartPolicy", place, ("OnFailure", "Never"))
        unlike = has_policy and restart == "OnFailure"
        yield from _those(unlike and invalid(f"{place}.restartPolicy", restart, only_never))


def domain_path_faults(text: str, field: str) -> Faults:
    """The name of a controller. Mirrors IsDomainPrefixedPath, and the length that a Job and a JobSet allow."""
    host, _, path = text.partition("/")
    if not (host and path):
        detail = 'must be a domain-prefixed path (such as "acme.io/foo")'
        yield invalid(field, text, detail) if text else required(field)
    else:
        yield from name_faults(field, host, dns_subdomain_faults)
        wrong = not re.fullmatch(PATH, path)
        yield from _those(wrong and invalid(field, path, f"Invalid path (regex used for validation is '{PATH}')"))
    yield from _those(len(text.encode()) > 63 and too_long(field, 63))


def _failure_policy(spec: Body, where: str, pod: Body) -> Faults:
    """Mirrors validatePodFailurePolicy."""
    field = f"{where}.podFailurePolicy.rules"
    rules = read_maps(_inner(spec, where, "podFailurePolicy").get("rules"), field)
    yield from _those(_too_many(field, rules, MOST_RULES))
    listed = [*(pod.get("containers") or ()), *(pod.get("initContainers") or ())]
    containers = {each.get("name") for each in read_maps(listed, f"{where}.template.spec.containers")}
    for place, rule in ((f"{field}[{index}]", rule) for index, rule in enumerate(rules)):
        action, conditions = rule.get("action"), read_maps(rule.get("onPodConditions"), f"{place}.onPodConditions")
        codes, some = rule.get("onExitCodes"), bool(conditions)
        by_index = action == "FailIndex" and spec.get("backoffLimitPerIndex") is None
        both = "specifying both OnExitCodes and OnPodConditions is not supported"
        neither = "specifying one of OnExitCodes and OnPodConditions is required"
        yield from _one_of(rule, "action", place, ACTIONS)
        yield from _those(
            by_index and invalid(f"{place}.action", "FailIndex", "requires the backoffLimitPerIndex to be set"),
            codes is not None and some and FieldError(INVALID, place, None, both),
            codes is None and not some and FieldError(INVALID, place, None, neither),
            _too_many(f"{place}.onPodConditions", conditions, MOST_RULES),
        )
        if codes is not None:
            yield from _exit_codes(read_map(codes, f"{place}.onExitCodes"), f"{place}.onExitCodes", containers)
        for number, condition in enumerate(conditions):
            at = f"{place}.onPodConditions[{number}]"
            yield from name_faults(f"{at}.type", read_text(condition, "type", at) or "", qualified_name_faults)
            yield from _word(condition, "status", at, ("False", "True", "Unknown"), "True")


def _one_of(holder: Body, key: str, where: str, choices: tuple[str, ...]) -> Faults:
    """A word that is missing, or none of its choices."""
    if not read_text(holder, key, where):
        yield required(f"{where}.{key}", f"valid values: [{' '.join(map(json.dumps, choices))}]")
    else:
        yield from _word(holder, key, where, choices)


def _exit_codes(codes: Body, place: str, containers: set[Any]) -> Faults:
    yield from _one_of(codes, "operator", place, ("In", "NotIn"))
    container, field, given = read_text(codes, "containerName", place), f"{place}.values", codes.get("values")
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in given or ()):
        raise BadField(field, f"must be a list of whole numbers, not {given!r:.60}")
    values = [int(each) for each in given or ()]
    other = "must be one of the container or initContainer names in the pod template"
    yield from _those(
        container not in (None, *containers) and invalid(f"{place}.containerName", container or "", other),
        not values and _fault(field, given, "at least one value is required"),
        _too_many(field, values, MOST_EXIT_CODES),
        values != sorted(values) and _fault(field, values, "must be ordered"),
    )
    for index, value in enumerate(values):
        is_zero, at = value == 0 and codes.get("operator") == "In", f"{field}[{index}]"
        yield from _those(is_zero and invalid_number(at, value, "must not be 0 for the In operator"))
        yield from _those(value in values[:index] and FieldError("Duplicate value", at, str(value)))


def _success_policy(policy: Body, field: str, completions: int | None) -> Faults:
    """Mirrors validateSuccessPolicy and validateIndexesFormat."""
    rules = read_maps(policy.get("rules"), field)
    none = "at least one rules must be specified when the successPolicy is specified"
    yield from _those(not rules and required(field, none), _too_many(field, rules, MOST_RULES))
    for place, rule in ((f"{field}[{index}]", rule) for index, rule in enumerate(rules)):
        count, indexes = read_integer(rule, "succeededCount", place), read_text(rule, "succeededIndexes", place)
        if count is None and indexes is None:
            yield required(place, "at least one of succeededCount or succeededIndexes must be specified")
        yield from _not_negative(rule, place, "succeededCount")
        total, fault = (0, None) if completions is None else _count_of(indexes or "", completions)
        at, of_indexes = f"{place}.succeededCount", "the number of indexes in the specified succeededIndexes field"
        yield from _those(
            bool(fault)
            and invalid(f"{place}.succeededIndexes", indexes or "", f"error parsing succeededIndexes: {fault}"),
            completions is not None and _at_most(count, completions, at, " (the number of specified completions)"),
            indexes is not None and completions is not None and _at_most(count, total, at, f" ({of_indexes})"),
        )


def _count_of(indexes: str, completions: int) -> tuple[int, str | None]:
    """How many indexes are named, such as `1,3-5`; or what is wrong with them."""
    total, last = 0, -1
    for part in indexes.split(",") if indexes else ():
        words = part.split("-")
        if len(words) > 2:
            rule = "the requirement that an index interval can have at most two parts separated by '-'"
            return 0, f"the fragment {json.dumps(part)} violates {rule}"
        for word in words:
            if not re.fullmatch(r"\+?\d{1,18}", word, re.ASCII):
                return 0, f"cannot convert string to integer for index: {json.dumps(word)}"
            if int(word) >= completions:
                return 0, f"too large index: {json.dumps(word)}"
        first, end = int(words[0]), int(words[-1])
        for before, after in ((first, end), (last, first)) if len(words) == 2 else ((last, first),):
            if before >= after:
                return 0, f"non-increasing order, previous: {before}, current: {after}"
        total, last = total + end - first + 1, end
    return total, None


def _cron_job(spec: Body, name: str) -> Faults:
    """Mirrors ValidateCronJobCreate and ValidateJobTemplateSpec. The template gets no defaults of a Job."""
    schedule, zone = read_text(spec, "schedule", "spec") or "", read_text(spec, "timeZone", "spec")
    has_zone, fault = "TZ" in schedule, standard_fault(schedule)
    use_field = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
    job, where = _inner(spec, "spec", "jobTemplate", "spec"), "spec.jobTemplate.spec"
    manual = FieldError("Unsupported value", f"{where}.manualSelector", "true", 'supported values: "nil", "false"')
    yield from _those(
        len(name) > 52 and invalid("metadata.name", name, "must be no more than 52 characters"),
        not schedule and required("spec.schedule"),
        has_zone and invalid("spec.schedule", schedule, use_field),
        bool(schedule and fault) and not has_zone and invalid("spec.schedule", schedule, fault or ""),
        job.get("selector") is not None
        and FieldError(INVALID, f"{where}.selector", None, "`selector` will be auto-generated"),
        read_flag(job, "manualSelector", where) and manual,
    )
    yield from () if zone is None else (invalid("spec.timeZone", zone, each) for each in _zone_faults(zone))
    limits = ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    yield from _not_negative(spec, "spec", *limits)
    yield from _word(spec, "concurrencyPolicy", "spec", ("Allow", "Forbid", "Replace"), "Allow")
    yield from job_spec_faults(job, where)


def _zone_faults(zone: str) -> Iterator[str]:
    """Mirrors validateTimeZone. Where this machine has no database of time zones, any name may be one."""
    if not zone:
        yield "timeZone must be nil or non-empty string"
    if zone.lower() == "local":
        yield "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
    try:
        known = zone in ("", "UTC", "Local") or bool(ZoneInfo(zone))
    except (ValueError, OSError, LookupError):
        known = not available_timezones()
    if not known:
        yield f"unknown time zone {zone}"


def _serving_pods(spec: Body, kind: str) -> Faults:
    """Pods that never end have no other restart policy, and no deadline."""
    pod, where = _inner(spec, "spec", "template", "spec"), "spec.template.spec"
    yield from _word(pod, "restartPolicy", where, ("Always",), "Always")
    detail = f"activeDeadlineSeconds in {kind} is not Supported"
    yield from _those(
        pod.get("activeDeadlineSeconds") is not None and forbidden(f"{where}.activeDeadlineSeconds", detail)
    )


def _replica_set(spec: Body, _: str = "") -> Faults:
    """Mirrors ValidateReplicaSetSpec."""
    yield from _not_negative(spec, "spec", "replicas", "minReadySeconds")
    faults = [*_selector_faults(spec, kind="deployment", unreadable=UNREADABLE)]
    yield from faults
    if not any(each.detail == UNREADABLE for each in faults):
        yield from _serving_pods(spec, "ReplicaSet")


def _strategy(strategy: Body, field: str, choices: tuple[str, ...]) -> Faults:
    for fault in _word(strategy, "type", field, choices, "RollingUpdate"):
        yield FieldError(fault.kind, field, None, fault.detail)


def _deployment(spec: Body, _: str) -> Faults:
    """Mirrors ValidateDeploymentSpec and ValidateDeploymentStrategy."""
    yield from _replica_set(spec)
    yield from _not_negative(spec, "spec", "revisionHistoryLimit", "progressDeadlineSeconds")
    deadline, ready = (read_integer(spec, key, "spec") for key in ("progressDeadlineSeconds", "minReadySeconds"))
    field, deadline = "spec.progressDeadlineSeconds", 600 if deadline is None else deadline
    late = deadline <= (ready or 0)
    yield from _those(late and invalid_number(field, deadline, "must be greater than minReadySeconds"))
    strategy, rolling = _inner(spec, "spec", "strategy"), _inner(spec, "spec", "strategy", "rollingUpdate")
    yield from _strategy(strategy, "spec.strategy", ("Recreate", "RollingUpdate"))
    place = "spec.strategy.rollingUpdate"
    if strategy.get("type") == "Recreate" and strategy.get("rollingUpdate") is not None:
        yield forbidden(place, "may not be specified when strategy `type` is 'Recreate'")
    elif strategy.get("type") in (None, "", "RollingUpdate"):
        given = _amount(rolling, "maxUnavailable", place, "25%")
        yield from _amount_faults(given, f"{place}.maxUnavailable")
        surge = _amount(rolling, "maxSurge", place, "25%")
        yield from _amount_faults(surge, f"{place}.maxSurge", most=None)
        none = not _number_of(given) and not _number_of(surge)
        yield from _those(none and _fault(f"{place}.maxUnavailable", given, "may not be 0 when `maxSurge` is 0"))


def _stateful_set(spec: Body, _: str) -> Faults:
    """Mirrors ValidateStatefulSetSpec. The server drops maxUnavailable: its feature gate is off."""
    management, retention = read_text(spec, "podManagementPolicy", "spec"), "persistentVolumeClaimRetentionPolicy"
    strategy, rolling = _inner(spec, "spec", "updateStrategy"), _inner(spec, "spec", "updateStrategy", "rollingUpdate")
    update, place = read_text(strategy, "type", "spec.updateStrategy"), "spec.updateStrategy.rollingUpdate"
    service = read_text(spec, "serviceName", "spec")
    orders, not_here = ("OrderedReady", "Parallel"), "only allowed for updateStrategy 'RollingUpdate'"
    updates, at = ("RollingUpdate", "OnDelete"), "spec.updateStrategy"
    yield from _those(
        (management or orders[0]) not in orders
        and invalid("spec.podManagementPolicy", management or "", "must be 'OrderedReady' or 'Parallel'"),
        (update or updates[0]) not in updates
        and FieldError(INVALID, at, None, "must be 'RollingUpdate' or 'OnDelete'"),
        update == "OnDelete"
        and strategy.get("rollingUpdate") is not None
        and FieldError(INVALID, place, None, not_here),
    )
    if (update or updates[0]) == updates[0]:
        yield from _not_negative(rolling, place, "partition")
    for key in ("whenDeleted", "whenScaled"):
        yield from _word(_inner(spec, "spec", retention), key, f"spec.{retention}", ("Retain", "Delete"), "Retain")
    for index, claim in enumerate(read_maps(spec.get("volumeClaimTemplates"), "spec.volumeClaimTemplates")):
        yield from claim_faults(claim, f"spec.volumeClaimTemplates[{index}].spec")
    yield from _not_negative(spec, "spec", "replicas", "minReadySeconds")
    yield from _not_negative(_inner(spec, "spec", "ordinals"), "spec.ordinals", "start")
    yield from name_faults("spec.serviceName", service, dns_label_faults) if service else ()
    yield from _selector_faults(spec, kind="statefulset", unreadable="")
    yield from _serving_pods(spec, "StatefulSet")


def _daemon_set(spec: Body, _: str) -> Faults:
    """Mirrors ValidateDaemonSetSpec."""
    yield from _selector_faults(spec, kind="daemonset")
    yield from _serving_pods(spec, "DaemonSet")
    yield from _not_negative(spec, "spec", "minReadySeconds", "revisionHistoryLimit")
    strategy, rolling = _inner(spec, "spec", "updateStrategy"), _inner(spec, "spec", "updateStrategy", "rollingUpdate")
    yield from _strategy(strategy, "spec.updateStrategy", ("RollingUpdate", "OnDelete"))
    if strategy.get("type") in (None, "", "RollingUpdate"):
        place = "spec.updateStrategy.rollingUpdate"
        given, surge = _amount(rolling, "maxUnavailable", place, 1), _amount(rolling, "maxSurge", place, 0)
        yield from _amount_faults(given, f"{place}.maxUnavailable")
        yield from _amount_faults(surge, f"{place}.maxSurge")
        both, none = _number_of(given) and _number_of(surge), not _number_of(given) and not _number_of(surge)
        yield from _those(
            bool(both) and _fault(f"{place}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"),
            none and required(f"{place}.maxUnavailable", "cannot be 0 when maxSurge is 0"),
        )


def _amount(holder: Body, key: str, where: str, default: int | str) -> int | str:
    value = holder.get(key)
    if isinstance(value, bool) or not (value is None or isinstance(value, int | str)):
        raise BadField(f"{where}.{key}", f"must be a whole number or a percentage, not {value!r}")
    return default if value is None else value


def _amount_faults(value: int | str, field: str, most: int | None = 100) -> Faults:
    """A number of pods, or a percentage of them. Mirrors ValidatePositiveIntOrPercent and IsNotMoreThan100Percent."""
    if isinstance(value, str) and not re.fullmatch("[0-9]+%", value, re.ASCII):
        yield _fault(field, value, PERCENT)
    elif isinstance(value, str) and most is not None and _number_of(value) > most:
        yield _fault(field, value, f"must not be greater than {most}%")
    elif isinstance(value, int) and value < 0:
        yield invalid_number(field, value, NOT_NEGATIVE)


def _number_of(value: int | str) -> int:
    """Mirrors getIntOrPercentValue: a text that is neither counts as 0."""
    text = str(value)
    text = text[:-1] if re.fullmatch("[0-9]+%", text, re.ASCII) else text
    return int(text[:18]) if re.fullmatch(r"[-+]?\d+", text, re.ASCII) else 0


KINDS: Final[
    Mapping[tuple[str, str], tuple[Callable[[str], tuple[str, ...]], Callable[[Body, str], Faults] | None]]
] = {
    ("Job", "batch"): (dns_subdomain_faults, job_faults),
    ("CronJob", "batch"): (dns_subdomain_faults, _cron_job),
    ("Deployment", "apps"): (dns_subdomain_faults, _deployment),
    ("ReplicaSet", "apps"): (dns_subdomain_faults, _replica_set),
    ("StatefulSet", "apps"): (dns_label_faults, _stateful_set),
    ("DaemonSet", "apps"): (dns_subdomain_faults, _daemon_set),
}
"""By kind and group: which names it can have, and its rules."""
