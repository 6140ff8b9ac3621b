"""What KFP's launcher finds after a step with artifacts: files or pointers at its paths, and what to record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuflow.runtime.artifacts import kubeflow_outputs
from gpuflow.runtime.base.records import File, KeptOutput
from tests.runtime.harness import run, shell


def executor_input(folder: Path, *names: str) -> str:
    """The launcher's `{{$}}`, with places below a folder: `/minio` belongs to the pod."""
    artifacts = {name: {"artifacts": [{"name": name, "uri": f"{folder}/kfp/{name}", "type": {}}]} for name in names}
    return json.dumps({"inputs": {}, "outputs": {"artifacts": artifacts, "outputFile": f"{folder}/kfp/answer.json"}})


def told(folder: Path) -> dict[str, dict[str, Any]]:
    answer = json.loads((folder / "kfp" / "answer.json").read_text())
    return {name: found["artifacts"][0]["metadata"] for name, found in answer["artifacts"].items()}


def step(folder: Path, script: str, *options: str) -> Any:
    return run(
        *("--engine", "kubeflow", "--pipeline", "p", "--step", "train", "--run-id", "r1"),
        *("--outputs-dir", folder / "outputs", "--state", folder / "state", *options, *shell(script)),
    )


def test_a_model_is_a_pointer_with_its_digest_and_its_place(tmp_path: Path) -> None:
    done = step(
        tmp_path,
        "mkdir -p $GPUFLOW_OUTPUTS/model/sub; echo w > $GPUFLOW_OUTPUTS/model/w; echo x > $GPUFLOW_OUTPUTS/model/sub/x",
        *("--output", "model:directory", "--artifact", f"model={tmp_path}/keep", "--output-kind", "model=model"),
        *("--kubeflow", executor_input(tmp_path, "model"), "--item", "lr=1"),
    )
    assert done.returncode == 0, done.stderr
    found = told(tmp_path)["model"]
    pointer = json.loads((tmp_path / "kfp" / "model").read_text())[kubeflow_outputs.POINTER]
    assert pointer["uri"] == found["gpuflow_uri"] and pointer["uri"].endswith("/files")
    assert (Path(pointer["uri"]) / "sub" / "x").read_text() == "x\n"
    assert {key: found[key] for key in ("display_name", "bytes", "files", "gpuflow_attempt")} == {
        "display_name": "model",
        "bytes": 4,
        "files": 2,
        "gpuflow_attempt": 1,
    }
    assert [found[f"gpuflow_{key}"] for key in ("pipeline", "step", "run", "item")] == ["p", "train", "r1", "lr=1"]
    assert found["sha256"] == pointer["sha256"] and len(found["sha256"]) == 64


def test_files_that_are_handed_over_lie_where_the_launcher_uploads_from(tmp_path: Path) -> None:
    done = step(
        tmp_path,
        "mkdir -p $GPUFLOW_OUTPUTS/model/sub; echo x > $GPUFLOW_OUTPUTS/model/sub/x",
        *("--output", "model:directory", "--artifact", f"model={tmp_path}/keep", "--output-kind", "model=model"),
        *("--hand-over", "model", "--kubeflow", executor_input(tmp_path, "model")),
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "kfp" / "model" / "sub" / "x").read_text() == "x\n"


METRICS = '{"loss": 0.5, "steps": 10, "name": "x", "bad": NaN, "flag": true, "huge": 1' + "0" * 400 + "}"


def test_metrics_are_numbers_and_the_rest_is_said(tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text(METRICS)
    done = step(
        tmp_path,
        f"cp {tmp_path}/metrics.json $GPUFLOW_OUTPUTS/m; echo '<h1>' > $GPUFLOW_OUTPUTS/page",
        *("--output", "m:file", "--output", "page:file", "--output-kind", "m=metrics", "--output-kind", "page=html"),
        *("--artifact", f"m={tmp_path}/keep/m", "--artifact", f"page={tmp_path}/keep/page"),
        *("--kubeflow", executor_input(tmp_path, "m", "page")),
    )
    assert done.returncode == 0, done.stderr
    assert told(tmp_path)["m"] == {"display_name": "m", "loss": 0.5, "steps": 10.0}
    assert 'Kubeflow shows only numbers: bad, flag, huge, name of the output "m" left out' in done.stderr
    assert (tmp_path / "kfp" / "page").read_text() == "<h1>\n"
    assert "gpuflow_uri" in told(tmp_path)["page"]


@pytest.mark.parametrize(
    ("text", "said"),
    [("no json", "cannot be read as JSON"), ("[1]", "it is no JSON object"), ("[" * 100000, "cannot be read as JSON")],
)
def test_metrics_that_are_none_fail_nobody(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text(text)
    done = step(
        tmp_path,
        f"cp {tmp_path}/metrics.json $GPUFLOW_OUTPUTS/m",
        *("--output", "m:file", "--output-kind", "m=metrics", "--artifact", f"m={tmp_path}/keep/m"),
        *("--kubeflow", executor_input(tmp_path, "m")),
    )
    assert done.returncode == 0, done.stderr
    assert told(tmp_path)["m"] == {"display_name": "m"}
    assert said in done.stderr


def artifact(folder: Path, data: Any) -> kubeflow_outputs.Artifact:
    (folder / "c").write_text(json.dumps(data))
    file = File(path="c", size=1, sha256="0" * 64)
    kept = KeptOutput(type="file", sha256="0" * 64, bytes=1, uri="s3://b/000001-ab/files/c", files=[file])
    return kubeflow_outputs.Artifact("c", kubeflow_outputs.CLASSIFICATION, kept, str(folder / "c"))


def test_a_confusion_matrix_and_a_curve_are_written_in_kfps_words(tmp_path: Path) -> None:
    data = {"categories": ["a", "b"], "matrix": [[1, 2], [3, 4]], "fpr": [0, 1], "tpr": [0, 1], "threshold": [1, 0]}
    found = artifact(tmp_path, data).metadata({}, print)
    assert found["confusionMatrix"] == {
        "annotationSpecs": [{"displayName": "a"}, {"displayName": "b"}],
        "rows": [{"row": [1.0, 2.0]}, {"row": [3.0, 4.0]}],
    }
    assert found["confidenceMetrics"][0] == {"confidenceThreshold": 1.0, "falsePositiveRate": 0.0, "recall": 0.0}
    assert found["files"] == 1


@pytest.mark.parametrize(
    "data",
    [
        {"matrix": [[1]]},
        {"matrix": 5, "categories": []},
        {"fpr": [1], "tpr": [], "threshold": [1]},
        {"other": 1},
        [],
        3,
    ],
)
def test_classification_metrics_that_are_none_are_said(data: Any, tmp_path: Path) -> None:
    said: list[str] = []
    found = artifact(tmp_path, data).metadata({}, said.append)
    assert "confusionMatrix" not in found
    assert said and said[0].startswith('Kubeflow shows nothing of the output "c"')


def test_what_an_earlier_attempt_kept_is_told_again_with_its_files(tmp_path: Path) -> None:
    options = (
        *("--output", "page:file", "--output-kind", "page=html", "--artifact", f"page={tmp_path}/keep"),
        *("--kubeflow", executor_input(tmp_path, "page")),
    )
    assert step(tmp_path, "echo first > $GPUFLOW_OUTPUTS/page", *options).returncode == 0
    before = told(tmp_path)
    for made in (tmp_path / "kfp", tmp_path / "outputs"):
        made.rename(tmp_path / f"old-{made.name}")
    done = step(tmp_path, "echo second > $GPUFLOW_OUTPUTS/page", *options)
    assert done.returncode == 0, done.stderr
    assert "has succeeded already" in done.stderr
    assert (tmp_path / "kfp" / "page").read_text() == "first\n"
    assert told(tmp_path) == before


def test_a_pointer_leads_to_what_it_names_and_files_stay_files(tmp_path: Path) -> None:
    (tmp_path / "pointer").write_text(json.dumps({kubeflow_outputs.POINTER: {"uri": "s3://b/m/000001-ab/files"}}))
    (tmp_path / "data.json").write_text('{"uri": "s3://elsewhere"}')
    mounts = [f"{tmp_path}/"]
    assert kubeflow_outputs.resolve_input(str(tmp_path / "pointer"), mounts) == ("s3://b/m/000001-ab/files", None)
    assert kubeflow_outputs.resolve_input(str(tmp_path / "data.json"), mounts) == (str(tmp_path / "data.json"), "file")
    for other in (f"{tmp_path}/", str(tmp_path / "none"), "s3://b/x", "[]"):
        assert kubeflow_outputs.resolve_input(other, mounts) == (other, None)
    # Elsewhere nothing is followed: data of somebody's own may look like a pointer.
    assert kubeflow_outputs.resolve_input(str(tmp_path / "pointer")) == (str(tmp_path / "pointer"), None)


def test_what_is_no_word_of_the_launcher_is_refused_before_the_command_starts(tmp_path: Path) -> None:
    done = step(
        tmp_path,
        f"echo w > $GPUFLOW_OUTPUTS/m; touch {tmp_path}/started",
        *("--output", "m:file", "--output-kind", "m=model", "--artifact", f"m={tmp_path}/keep", "--kubeflow", "{{$}}"),
    )
    assert done.returncode == 78 and not (tmp_path / "started").exists()
    assert "--kubeflow is not what KFP's launcher says of a task" in done.stderr


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("minio://b/a/m", "/minio/b/a/m"),
        ("s3://b/a/m", "/s3/b/a/m"),
        ("gs://b/a/m", "/gcs/b/a/m"),
        ("/local/m", "/local/m"),
        ("az://b/m", None),
    ],
)
def test_places_are_those_of_the_launcher(uri: str, place: str | None) -> None:
    said = {"outputs": {"artifacts": {"m": {"artifacts": [{"uri": uri}]}}, "outputFile": "/x"}}
    found = kubeflow_outputs.Task(json.dumps(said)).place("m")
    assert (found and found[0]) == place
