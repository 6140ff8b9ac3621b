"""The rules of a check, each a function of one question with its code, in the order of a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from gpuflow.checker.pipeline.queues.setup import read_setup
from gpuflow.checker.question import CheckRule, Question, check_rule
from gpuflow.checker.report import Outcome, worst_verdict
from gpuflow.checker.rules import deadlocks, pods, quotas, snapshot
from gpuflow.checker.snapshot.missing_kinds import has_default_queue
from gpuflow.core.errors import Finding


@check_rule(severity="error", verdict="never")
def engine_refusals(q: Question) -> Iterable[Finding]:
    """What the engine, or the reader of the document, refuses."""
    return (each for each in q.demand.refusals if each.severity == "error")


@check_rule()
def engine_notes(q: Question) -> Iterable[Finding]:
    """What it says besides."""
    return (each for each in q.demand.refusals if each.severity != "error")


@check_rule("GF826", severity="error", verdict="never")
def kueue_refusals(q: Question) -> Iterable[Finding]:
    """What the webhooks of a Kueue refuse that is known to be configured for the kind."""
    return _of_kueue(q, known=True)


@check_rule("GF827", verdict="unknown")
def possible_kueue_refusals(q: Question) -> Iterable[Finding]:
    """The same where the snapshot does not show for which kinds Kueue is configured."""
    hint = "take a snapshot that shows Kueue's Configuration, or correct the field"
    for each in _of_kueue(q, known=False):
        text = f"{each.message}, if Kueue is configured for this kind, which the snapshot does not show"
        yield replace(each, code="GF827", message=text, hint=hint, severity="warning")


def _of_kueue(q: Question, *, known: bool) -> Iterator[Finding]:
    setup = read_setup(q.cluster, q.namespace) if q.demand.queue_refusals else None
    if setup is None or q.namespace not in setup.takes_pods_of or known != bool(setup.integrations):
        return
    queued = setup.takes_all or has_default_queue(q.cluster, q.namespace)
    for each in q.demand.queue_refusals:
        if (queued or not each.only_queued) and (not known or each.integration in setup.integrations):
            yield each.finding


@check_rule(
    "GF506", "GF507", "GF510", "GF511", "GF514", "GF515", "GF516", "GF517", "GF518", "GF519", "GF520", "GF522",
    "GF524", "GF525", "GF527", "GF528", "GF535", "GF546", "GF547", "GF556", "GF557", "GF558", "GF559", "GF574",
)  # fmt: skip
def placement(q: Question) -> Iterable[Finding]:
    """What queues and nodes say; the words are chosen where the verdict is, in `checker/pipeline`."""
    return q.placed.findings


@check_rule()
def document_warnings(q: Question) -> Iterable[Finding]:
    """What the document itself should be told, whatever the cluster."""
    return () if q.demand.source is None else q.demand.source.warnings()


@check_rule("GF815", "GF816", "GF817", "GF818", severity="error", verdict="never")
def refused_fields(q: Question) -> Iterable[Finding]:
    """What the API server refuses of the object itself, by its schema, asked as kubectl, Helm and Argo CD ask it."""
    return [each for each in _strict_findings(q) if _is_refused(each)]


@check_rule("GF815", "GF816", "GF817", "GF818", "GF819", verdict="unknown")
def maybe_refused_fields(q: Question) -> Iterable[Finding]:
    """What it refuses, loses or takes, depending on what was installed."""
    return [each for each in _strict_findings(q) if _is_open(each) and not _is_refused(each)]


@check_rule("GF815", "GF819")
def silenced_fields(q: Question) -> Iterable[Finding]:
    """What somebody vouches for, and kinds without a schema."""
    return [each for each in _strict_findings(q) if not _is_open(each)]


def _is_refused(finding: Finding) -> bool:
    return finding.severity == "error" and (finding.code != "GF815" or finding.kubernetes is not None)


def _is_open(finding: Finding) -> bool:
    if finding.code == "GF819":
        return finding.severity == "warning"
    return finding.code != "GF815" or finding.severity == "error"


def _strict_findings(q: Question) -> Iterable[Finding]:
    definitions = [each.body for each in q.cluster.of("CustomResourceDefinition")]
    return () if q.demand.source is None else q.demand.source.strict_findings(definitions)


RULES: Final[tuple[CheckRule, ...]] = (
    engine_refusals, refused_fields, maybe_refused_fields, silenced_fields, kueue_refusals, possible_kueue_refusals,
    engine_notes, snapshot.namespace_refusals, snapshot.missing_accounts, snapshot.objects_behind_their_users,
    snapshot.namesakes_in_files, snapshot.optional_whitelist, pods.refused_steps, pods.order_dependent_steps,
    quotas.refused_claims, quotas.refused_ephemeral_volumes, quotas.unfilled_claims, quotas.missing_claims,
    quotas.unknown_classes, quotas.unusable_claims, quotas.small_claims, pods.limit_range_gpus,
    quotas.ineffective_keys, quotas.quota_lines, quotas.unknown_usage, quotas.late_usage, quotas.claimed_devices,
    quotas.default_priority, placement, document_warnings, deadlocks.waits, deadlocks.open_questions,
    deadlocks.kept_beside, deadlocks.served_queue, pods.unseen_parts, pods.missing_devices,
    pods.devices_without_nodes, pods.mig_slices, pods.evicted_later, pods.refused_driver, deadlocks.gangs_above_quota,
    deadlocks.gang_deadlocks, deadlocks.waiting_counts_in_quota, pods.best_effort, pods.small_containers,
    pods.created_objects, deadlocks.deadline_counts_waiting,
    quotas.assumed_quotas, snapshot.cohort_cycles, snapshot.assumptions, snapshot.queues_without_kueue,
    snapshot.kinds_not_shown, snapshot.closed_kinds, snapshot.wrong_snapshot, quotas.empty_quotas,
    snapshot.other_namespace, snapshot.unknown_fields, snapshot.empty_limits, snapshot.silent_nodes,
    snapshot.lost_workloads, snapshot.unmodeled_objects, snapshot.hidden_labels,
)  # fmt: skip
"""In the order in which a report says them, within each severity."""


def apply_rules(q: Question) -> Outcome:
    """What all parts of the cluster say to one demand."""
    found = [(each.verdict, tuple(each(q))) for each in RULES]
    verdicts = [verdict for verdict, findings in found if verdict is not None and findings]
    return Outcome(
        worst_verdict([*verdicts, *(line.scope.verdict for line in q.quota_lines), q.placed.verdict]),
        tuple(q.lines),
        tuple(finding for _, findings in found for finding in findings),
    )
