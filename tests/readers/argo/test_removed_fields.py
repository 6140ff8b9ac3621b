"""Fields that Argo 4 no longer has: they hold nothing back there, and each is named with its line and new spelling."""

from __future__ import annotations

import pytest

from gpuflow.checker.run import check
from gpuflow.cluster import Cluster
from gpuflow.core.errors import Finding
from gpuflow.demands import Demand
from gpuflow.readers import Options
from gpuflow.site import Site
from tests.assumed import ASSUMED
from tests.checker.whole_scenes import manifest
from tests.readers.argo.reading import HEAD, foreign, peak

SWEEP = """
spec:
  entrypoint: main
  templates:
  - name: main
    steps: [[{name: each, template: train, withSequence: {count: 9}}]]
  - name: train
    synchronization:
      LOCK
    container: {image: i, command: [x], resources: {limits: {nvidia.com/gpu: 1}}}
"""
SEMAPHORE = "{configMapKeyRef: {name: gpus, key: train}}"
GIVEN = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: gpus}\ndata: {train: '2'}\n"
TEMPLATE = """apiVersion: argoproj.io/v1alpha1
kind: WorkflowTemplate
metadata: {name: shared}
"""
CRON = """apiVersion: argoproj.io/v1alpha1
kind: CronWorkflow
metadata: {name: nightly}
spec:
  SCHEDULE
  workflowSpec:
    entrypoint: a
    SYNC
    templates:
    - {name: a, container: {image: i, command: [x]}}
"""


def site(version: str | None) -> Site:
    given = Site.load("nvidia").model_dump()
    given["engines"]["argo"]["version"] = version
    return Site.model_validate(given)


def read(version: str | None, text: str, *others: str) -> Demand:
    whole = text if text.startswith("apiVersion") else HEAD + text
    found = foreign(whole, *others).demand(Options(site(version), "argo"))
    assert isinstance(found, Demand)
    return found


def removed(demand: Demand) -> list[Finding]:
    return [each for each in demand.refusals if each.code == "GF719"]


def verdict(demand: Demand, gpus: int) -> str:
    hard = {"requests.nvidia.com/gpu": str(gpus)}
    body = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "ml"},
        "spec": {"hard": hard},
        "status": {"hard": hard, "used": dict.fromkeys(hard, "0")},
    }
    return check(demand, Cluster("c.yaml", (manifest(body),), assumed=ASSUMED), "ml").verdict


@pytest.mark.parametrize(
    ("lock", "held", "instead"),
    [
        (f"semaphore: {SEMAPHORE}", 2, 'semaphores: [{"configMapKeyRef": {"name": "gpus", "key": "train"}}]'),
        ("mutex: {name: one}", 1, 'mutexes: [{"name": "one"}]'),
    ],
)
def test_a_lock_of_one_word_counts_where_argo_has_it(lock: str, held: int, instead: str) -> None:
    text = SWEEP.replace("LOCK", lock)
    old = read("3.7.1", text, GIVEN)
    assert peak(old) == ("exact", held) and verdict(old, held) == "may-queue"  # others may hold it
    assert "GF832" in [each.code for each in old.waits]
    (note,) = removed(old)
    assert note.severity == "note" and instead in str(note.hint)
    for version in ("4.0", "v4.1.2", None, "latest"):
        new = read(version, text, GIVEN)
        assert peak(new) == ("exact", 9) and verdict(new, 8) == "may-queue"
        (finding,) = removed(new)
        assert (finding.severity, finding.where.line) == ("warning", 12)
        assert f"have no synchronization.{lock.split(':')[0]}" in finding.message and instead in str(finding.hint)
        unsaid = version not in ("4.0", "v4.1.2")
        assert ("does not say which Argo runs" in finding.message and "Argo 3.7 reads it" in finding.message) == unsaid


def test_the_lists_that_replaced_them_count_everywhere() -> None:
    text = SWEEP.replace("LOCK", f"semaphores: [{SEMAPHORE}]")
    for version in ("3.7", "4.0", None):
        assert peak(read(version, text, GIVEN)) == ("exact", 2) and not removed(read(version, text, GIVEN))


def test_a_lock_in_a_template_of_another_file_is_named_there() -> None:
    text = "spec: {workflowTemplateRef: {name: shared}}\n"
    shared = TEMPLATE + SWEEP.replace("LOCK", "mutex: {name: one}").lstrip()
    assert peak(read("3.7", text, shared)) == ("exact", 1)
    demand = read("4.0", text, shared)
    (finding,) = removed(demand)
    assert peak(demand) == ("exact", 9) and (finding.where.file, finding.where.line) == ("w1.yaml", 11)
    called = """
spec:
  entrypoint: main
  templates:
  - name: main
    steps: [[{name: e, templateRef: {name: shared, template: train}, withSequence: {count: 9}}]]
"""
    (finding,) = removed(read("4.0", called, shared))
    assert (finding.where.file, finding.where.line) == ("w1.yaml", 11)


def test_a_lock_in_the_defaults_of_all_templates_is_named_there() -> None:
    defaults = "spec:\n  templateDefaults: {synchronization: {mutex: {name: one}}}\n"
    text = SWEEP.replace("spec:\n", defaults, 1).replace("    synchronization:\n      LOCK\n", "")
    demand = read("4.0", text)
    assert peak(demand) == ("exact", 9)
    assert {(each.where.line, each.severity) for each in removed(demand)} == {(6, "warning")}


def test_a_mutex_of_the_whole_workflow_keeps_runs_of_a_schedule_apart_where_argo_has_it() -> None:
    text = CRON.replace("SCHEDULE", "schedules: ['0 1 * * *']").replace("SYNC", "synchronization: {mutex: {name: m}}")
    assert read("3.7", text).overlap is None
    assert read("4.0", text).overlap is not None
    (finding,) = removed(read("4.0", text))
    assert finding.where.line == 8 and "CronWorkflow nightly" in finding.message
    listed = text.replace("mutex: {name: m}", "mutexes: [{name: m}]")
    assert read("4.0", listed).overlap is None


def test_a_cron_workflow_with_nothing_but_schedule_never_runs_on_argo_4() -> None:
    text = CRON.replace("SCHEDULE", "schedule: '0 1 * * *'").replace("    SYNC\n", "")
    for version in ("4.0", None):
        (finding,) = removed(read(version, text))
        assert (finding.severity, finding.where.line) == ("error", 5)
        assert "the required schedules is missing" in finding.message
        assert 'write schedules: ["0 1 * * *"]' in str(finding.hint)
        assert verdict(read(version, text), 8) == "never"
    assert verdict(read("3.7", text), 8) != "never" and removed(read("3.7", text))[0].severity == "note"
    both = text.replace("  schedule:", "  schedules: ['0 2 * * *']\n  schedule:")
    (finding,) = removed(read("4.0", both))
    assert finding.severity == "warning" and "it starts no run" in finding.message


@pytest.mark.parametrize(
    ("before", "after", "line", "instead"),
    [
        ("entrypoint: main", "entrypoint: main\n  podPriority: 5", 7, "podPriorityClassName"),
        ("- name: train", "- name: train\n    priority: 5", 11, "priorityClassName"),
    ],
)
def test_a_priority_as_a_number_is_said_to_be_gone(before: str, after: str, line: int, instead: str) -> None:
    text = SWEEP.replace("LOCK", "mutexes: []").replace(before, after)
    for version in ("3.7", "4.0", None):
        (finding,) = removed(read(version, text))
        assert (finding.where.line, finding.severity) == (line, "warning")
        assert f"write {instead} with the name of a PriorityClass" in str(finding.hint)
    assert not removed(read("3.6", text))
