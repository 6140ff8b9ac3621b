"""Rules about volumes: claims that are refused, that stay pending forever, whose class matters and is not known, or
that hold less than a step puts into them.

These are the claims that a run makes, those of ephemeral volumes, and those that steps mount and that may not exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpuflow.checker.nodes.storage import Claim, Storage
from gpuflow.checker.pipeline.nodes.mounted_claims import NO_VOLUMES
from gpuflow.checker.question import Question, check_rule
from gpuflow.checker.quota.claims import charges_of_claims, counts_claims, run_claims, where_of_claims
from gpuflow.checker.report import amount
from gpuflow.core.errors import Finding, Problem, Where, did_you_mean
from gpuflow.kubernetes.admission.classes import default_class, is_default, name_of
from gpuflow.kubernetes.admission.field_errors import join_clauses, sentences
from gpuflow.kubernetes.admission.limit_range import broken_claim_bounds, read_limit_range
from gpuflow.kubernetes.admission.usage import claims_of_pod
from gpuflow.kubernetes.resources import read_map, read_maps
from gpuflow.quantity import Quantity

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
