"""`gpuflow-run create`, without a cluster: what it reads, and what it refuses. tests/cluster/test_create.py runs it.

Tests gpuflow/runtime/supervise/create.py and gpuflow/runtime/supervise/object_state.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuflow.runtime.gangs import gang_command
from gpuflow.runtime.supervise import create, kube_client, object_state
from gpuflow.runtime.supervise.main import main
from gpuflow.runtime.supervise.object_state import BAD, GOOD
from tests.differential.expansion import expanded

JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {"args": ["--lr", ""]}}


def done(kind: str, status: str = "True") -> dict[str, Any]:
    return {"status": {"conditions": [{"type": "Suspended", "status": "False"}, {"type": kind, "status": status}]}}


@pytest.mark.parametrize("kind", object_state.GOOD)
def test_every_known_kind_has_an_end_of_each_sort(kind: str) -> None:
    if kind == "Volcano Job":
        phases = {"Completed": GOOD, "Failed": BAD, "Terminated": BAD, "Aborted": BAD, "Running": ()}
        for phase, ends in phases.items():
            now = {"status": {"state": {"phase": phase}}}
            assert [object_state.holds(now, table[kind]) for table in (GOOD, BAD)] == [ends is GOOD, ends is BAD]
        return
    good = {"Job": "Complete", "TrainJob": "Complete", "JobSet": "Completed"}.get(kind, "Succeeded")
    assert object_state.holds(done(good), object_state.GOOD[kind])
    assert not object_state.holds(done(good, "False"), object_state.GOOD[kind])
    assert object_state.holds(done("Failed"), object_state.BAD[kind])
    assert not object_state.holds({"status": {}}, (*object_state.GOOD[kind], *object_state.BAD[kind]))
    assert kind in object_state.PODS


def test_a_job_of_volcano_is_not_taken_for_one_of_kubernetes() -> None:
    """Its end would never come: it has a phase, and no condition."""
    assert object_state.name_of(JOB) == "Job"
    assert object_state.name_of({**JOB, "apiVersion": "batch.volcano.sh/v1alpha1"}) == "Volcano Job"
    assert object_state.words_of({"status": {"state": {"phase": "Pending"}}}) == "Pending"


def test_a_place_leads_through_maps_lists_and_entries_by_key() -> None:
    best = {"status": {"best": {"values": [{"name": "lr", "value": "0.1"}, {"name": "n", "value": 3}]}}}
    assert object_state.value_at(best, "status.best.values[name=lr].value") == "0.1"
    assert object_state.value_at(best, "status.best.values[1].value") == 3
    for nowhere in (
        "status.worst",
        "status.best.values[9].value",
        "status.best[0]",
        "status.best.values[name=x].value",
    ):
        assert object_state.value_at(best, nowhere) is None


def test_a_condition_is_parted_at_the_equals_sign_outside_brackets() -> None:
    assert object_state.split("status.conditions[type=A].status=True") == ("status.conditions[type=A].status", "True")
    assert object_state.split("status.message=a=b") == ("status.message", "a=b")
    for wrong in ("status.phase", "status..x=1", "[=1", ""):
        with pytest.raises(ValueError, match="write it like"):
            object_state.split(wrong)


def test_values_of_the_run_are_put_into_the_manifest_as_text() -> None:
    request = create.Request(
        ["--manifest", json.dumps(JOB), "--set", 'spec.args[1]=a "quote" = {', "--set=metadata.x=1"]
    )
    made = request.manifest()
    assert made["spec"]["args"] == ["--lr", 'a "quote" = {']
    assert made["metadata"]["x"] == "1"


POD = """{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "annotations": {"a": ""}}, "spec": {
 "trainer": {"args": [""]}, "template": {"spec": {"containers": [{"name": "main", "image": "i", "command": [""],
 "args": ["--lr", ""], "env": [{"name": "X", "value": ""}], "volumeMounts": [{"name": "v", "subPathExpr": ""}],
 "livenessProbe": {"exec": {"command": [""]}}, "lifecycle": {"preStop": {"exec": {"command": [""]}}}}]}}}}"""
MAIN = "spec.template.spec.containers"
VALUES = ("$(DB_PASSWORD)", "$$(DB_PASSWORD)", "$$", "a=$(X)=$", "$", "${trialParameters.lr}", "$$$(X)$$$", "0.1", "")


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "place",
    [
        f"{MAIN}[0].args[1]", f"{MAIN}[name=main].args[1]", f"{MAIN}[0]['args'][1]", f"{MAIN}[0].command[0]",
        f"{MAIN}[0].env[0].value", f"{MAIN}[name=main].env[name=X].value", f"{MAIN}[0].volumeMounts[0].subPathExpr",
        f"{MAIN}[0].livenessProbe.exec.command[0]", "spec.trainer.args[0]",
    ],
)  # fmt: skip
def test_what_is_set_is_no_variable_of_the_created_pods_kubelet(place: str, value: str) -> None:
    change = f"--set={place}={value}"
    for made in (
        create.Request([f"--manifest={POD}", change]).manifest(),
        kube_client.manifest_from_text(
            POD, "--manifest", gang_command.parse(["--manifest=x", "--run-id=r", change], {}).set
        ),
    ):
        assert expanded(object_state.value_at(made, place), {"DB_PASSWORD": "secret", "X": "secret"}) == value


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "place", ["metadata.annotations.a", f"{MAIN}[0].image", f"{MAIN}[0].lifecycle.preStop.exec.command[0]"]
)
def test_where_no_kubelet_reads_it_what_is_set_stays_as_it_is(place: str, value: str) -> None:
    made = create.Request([f"--manifest={POD}", "--set", f"{place}={value}"]).manifest()
    assert object_state.value_at(made, place) == value


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "as a file or with --manifest"),
        (["job.json", "--manifest", "{}"], "and not both"),
        (["a.json", "b.json"], "two files"),
        (["--wait"], 'unknown option "--wait"'),
        (["--manifest"], "--manifest needs a value"),
    ],
)
def test_misuse_is_said_in_one_sentence(words: list[str], sentence: str) -> None:
    with pytest.raises(create.Misuse, match=sentence):
        create.Request(words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--manifest", "[1]"], "--manifest: the manifest has no apiVersion"),
        (["--manifest", '{"apiVersion": "v1", "kind": "Job"}'], "the manifest has no metadata"),
        (["/nowhere/job.json"], "/nowhere/job.json"),
        (["--manifest", json.dumps(JOB), "--set", "spec.none.here=1"], "the manifest has no place spec.none.here"),
        (["--manifest", json.dumps(JOB), "--set", "spec.args[7]=1"], "the manifest has no place"),
        (["--manifest", json.dumps(JOB), "--set", "spec"], "--set: "),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused(words: list[str], sentence: str) -> None:
    with pytest.raises(create.Misuse) as refusal:
        create.Request(words).manifest()
    assert sentence in str(refusal.value)


def test_outside_a_pod_it_says_so_and_ends_with_78(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kube_client, "ACCOUNT", str(tmp_path))
    file = tmp_path / "job.json"
    file.write_text(json.dumps(JOB))
    assert main(["create", str(file)]) == 78
    assert "there is no service account here" in capfd.readouterr().err


def test_the_help_lists_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["create", "--help"]) == 0
    assert "--run-id" in capsys.readouterr().out
    assert main(["--help"]) == 0
    assert "gpuflow-run create FILE" in capsys.readouterr().out
