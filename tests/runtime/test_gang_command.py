"""`gpuflow-run gang` without a cluster: its options, and the JobSet of each attempt.

Tests gpuflow/runtime/gangs/attempt_object.py and gpuflow/runtime/gangs/gang_command.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.runtime.base.options import BadOption
from gpuflow.runtime.gangs import attempt_object, gang_command
from gpuflow.runtime.gangs.attempt_object import Gang, label_value, owner_of
from gpuflow.runtime.supervise import kube_client, object_state
from gpuflow.runtime.supervise.kube_client import Misuse
from gpuflow.runtime.supervise.main import main


def manifest(workers: int = 3, *, coordinator: bool = False) -> dict[str, Any]:
    template = {"metadata": {"labels": {"team": "nlp"}}, "spec": {"containers": [{"name": "main"}]}}
    job = {"spec": {"parallelism": workers, "completions": workers, "template": template}}
    spec: dict[str, Any] = {"replicatedJobs": [{"name": "worker", "replicas": 1, "template": job}]}
    if coordinator:
        spec["coordinator"] = {"replicatedJob": "worker", "jobIndex": 0, "podIndex": 0}
    labels = {"labels": {"kueue.x-k8s.io/queue-name": "q"}}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": labels, "spec": spec}


def made(*words: str, body: dict[str, Any] | None = None, owner: dict[str, Any] | None = None) -> Gang:
    return Gang(body or manifest(), gang_command.parse(["--manifest", "{}", "--run-id", "r", *words], {}), owner)


@given(st.text(max_size=70), st.integers(1, 2000), st.integers(1, 10**6), st.booleans())
def test_every_name_is_a_label_of_dns_and_leaves_room_for_the_pods(
    step: str, workers: int, attempt: int, coordinator: bool
) -> None:
    name = made("--step", step or "x", body=manifest(workers, coordinator=coordinator)).name(attempt)
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
    assert len(name) <= 46 and len(f"{name}-worker-0-{workers - 1}-abcde") <= 63
    assert not coordinator or len(f"{name}-worker-0-0.{name}") <= 63
    assert name.endswith(f"-{attempt}")


def test_the_object_has_name_labels_counts_and_owner_and_keeps_what_it_had() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    one = made("--pipeline", "demo", "--step", "pretrain", "--item", "a b", owner=owner)
    body = one.body(2, 1, 0)
    metadata = body["metadata"]
    assert metadata["labels"]["kueue.x-k8s.io/queue-name"] == "q"
    notes = metadata["annotations"]
    assert [notes[f"gpuflow.dev/{key}"] for key in ("attempt", "failures", "interruptions")] == ["2", "1", "0"]
    assert notes["gpuflow.dev/identity"] == "demo/r/pretrain/items/a%20b"
    assert metadata["ownerReferences"] == [owner]
    labels = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]["labels"]
    assert labels == {"team": "nlp", **{key: metadata["labels"][key] for key in labels if key != "team"}}
    assert labels["gpuflow.dev/gang"] == one.digest and labels["gpuflow.dev/step"] == "pretrain"
    assert one.body(2, 1, 0) == body and one.is_ours(body)
    assert not made("--step", "other").is_ours(body)


@given(st.text(max_size=80))
def test_a_label_value_is_one(text: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", label_value(text)) and len(label_value(text)) <= 63


def test_the_owner_is_the_controller_without_its_rights() -> None:
    reference = {"apiVersion": "a/v1", "kind": "Workflow", "name": "w", "uid": "u"}
    pod = {"metadata": {"name": "p", "uid": "v", "ownerReferences": [
        {**reference, "controller": True, "blockOwnerDeletion": True}]}}  # fmt: skip
    assert owner_of(pod, "controller") == (reference, "")
    assert owner_of(pod, "pod")[0] == {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "v"}
    assert owner_of({"metadata": {}}, "controller") == (None, "no controller owns the launcher's pod")
    assert owner_of(None, "pod")[0] is None and owner_of(pod, "none") == (None, "")


def test_a_count_that_somebody_changed_is_refused_and_not_guessed() -> None:
    body = made().body(1, 0, 0)
    body["metadata"]["annotations"][attempt_object.FAILURES] = "many"
    with pytest.raises(Misuse, match=r'failures is "many", and no number'):
        attempt_object.number(body, attempt_object.FAILURES)


def test_keys_with_dots_have_a_place() -> None:
    body = manifest()
    object_state.put(body, "metadata.labels['kueue.x-k8s.io/queue-name']", "other")
    object_state.put(body, "spec.replicatedJobs[0].template.spec.template.metadata.labels['a.b/c']", "=x")
    assert object_state.value_at(body, "metadata.labels['kueue.x-k8s.io/queue-name']") == "other"
    assert object_state.split("metadata.labels['a.b/c']=x=y") == ("metadata.labels['a.b/c']", "x=y")
    labels = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]["labels"]
    assert labels["a.b/c"] == "=x"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "--run-id is missing"),
        (["--run-id", "r", "--retries", "1", "--failures", "1"], "one budget for everything"),
        (["--run-id", "r", "--final-exit-codes", "3", "--retryable-exit-codes", "3"], "both final and retryable"),
        (["--run-id", "r", "--output", "a:int"], "--output needs --outputs-dir"),
        (["--run-id", "r", "--", "train"], "the command stands in the manifest"),
        (["--run-id", "r", "--checkpoint-dir", "x"], 'unknown option "--checkpoint-dir"'),
    ],
)
def test_misuse_is_said_in_one_sentence(words: list[str], sentence: str) -> None:
    with pytest.raises(BadOption, match=sentence):
        gang_command.parse(["--manifest", "{}", *words], {})


@pytest.mark.parametrize("wrong", ["kind", "pods"])
def test_a_manifest_that_is_no_gang_is_refused(wrong: str) -> None:
    body = manifest()
    body.update({"kind": "Job"} if wrong == "kind" else {"spec": {"replicatedJobs": [{"name": "w"}]}})
    with pytest.raises(Misuse, match="a gang is a JobSet" if wrong == "kind" else "not as JobSet wants it"):
        made(body=body)


def test_outside_a_pod_it_says_so_and_ends_with_78(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kube_client, "ACCOUNT", str(tmp_path))
    file = tmp_path / "gang.json"
    file.write_text(json.dumps(manifest()))
    assert main(["gang", "--manifest", str(file), "--run-id", "r"]) == 78
    assert "there is no service account here" in capfd.readouterr().err


def test_the_help_lists_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gang", "--help"]) == 0
    assert "--queue-timeout" in capsys.readouterr().out
    assert main(["--help"]) == 0
    assert "gpuflow-run gang" in capsys.readouterr().out
