"""Images of today: a program that writes return.json itself needs nothing of gpuflow in its image."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuflow import Step
from gpuflow.airflow import GpuPodOperator
from gpuflow.api import compile as compiled
from gpuflow.core.errors import GpuflowError
from gpuflow.plan import supervision_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.cli.commands import Gpuflow
from tests.cli.conftest import gpuflow

from .playing import Stage
from .stand_in import GOOD, StandIn, _main, ended, running

__all__ = ["gpuflow"]
HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: i}\n"
Maker = Callable[..., Callable[[], Any]]


def step(fields: str) -> str:
    return f"{HEAD}steps:\n  a: {{command: [c], outputs: {{n: int}}, outputs_from: xcom, {fields}}}\n"


def test_the_command_is_the_programs_own() -> None:
    pipeline = loads(step("retry: {failures: 1, interruptions: 3}, timeout: 1h"))
    assert not supervision_of(pipeline.effective("a"), Site.load("nvidia")).is_supervised
    text = compiled(pipeline, target="airflow", namespace="ml").text
    assert "gpuflow-run" not in text
    assert '"command": ["c"]' in text and 'outputs={"n": "int"}' in text and "supervised" not in text
    assert '"activeDeadlineSeconds": 3600' in text


def test_a_default_may_say_it_for_all_steps_and_null_unsays_it() -> None:
    pipeline = loads(
        HEAD.replace("{image: i}", "{image: i, outputs_from: xcom}")
        + "steps:\n  a: {command: [c], outputs: {n: int}}\n  b: {command: [c], outputs: {n: int}, outputs_from: null}\n"
    )
    site = Site.load("nvidia")
    kept = {name: supervision_of(pipeline.effective(name), site).is_supervised for name in pipeline.steps}
    assert kept == {"a": False, "b": True}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("checkpoint: {path: /c, store: s3://b}", "a checkpoint needs gpuflow-run"),
        ("outputs: {n: {type: file, uri: s3://b/n}}", 'the output "n" is a file'),
        ("outputs: {n: {type: int, path: /n}}", 'the output "n" has a path'),
        ("outputs: {n: int, return_value: json}", "is the whole of return.json"),
    ],
)
def test_what_return_json_cannot_hold_is_refused_at_its_place(fields: str, words: str) -> None:
    text = step("x: 1").replace("outputs: {n: int}, ", "" if "outputs:" in fields else "outputs: {n: int}, ")
    with pytest.raises(GpuflowError) as refused:
        loads(text.replace("x: 1", fields))
    assert "GF364" in str(refused.value) and words in str(refused.value)
    assert refused.value.findings[0].where.line == 6
    with pytest.raises(GpuflowError, match="GF364"):
        Step(image="i", command=["x"], outputs={"n": {"type": "int", "path": "/n"}}, outputs_from="xcom")


@pytest.mark.parametrize("target", ["argo", "kubeflow"])
def test_other_engines_refuse_it_by_name_even_with_allow_lossy(gpuflow: Gpuflow, tmp_path: Path, target: str) -> None:
    (tmp_path / "p.yaml").write_text(step("cpu: 1"))
    answer = gpuflow("compile", tmp_path / "p.yaml", "--target", target, "--allow-lossy")
    assert answer.code != 0
    assert f"{target} does not support outputs_from" in answer.err and "$GPUFLOW_OUTPUTS/<name>" in answer.err


@pytest.mark.parametrize(
    ("outputs", "file", "state", "result", "words"),
    [
        ({"n": "int", "f": "float"}, {"n": 3, "f": 1, "more": 2}, "success", {"n": 3, "f": 1.0}, ""),
        ({"n": "int"}, {"m": 3}, "failed", None, "wrote no output n"),
        ({"n": "int"}, None, "failed", None, "wrote no output n"),
        ({"n": "int"}, [1, 2], "failed", None, "return.json holds '[1, 2]', which is no map of outputs"),
        ({"n": "int"}, {"n": "x"}, "failed", None, "its output \"n\" is not of type int: 'x'"),
        ({"n": "int"}, {"n": True}, "failed", None, 'its output "n" is not of type int'),
        ({"n": "string"}, {"n": 5}, "failed", None, 'its output "n" is not of type string'),
        ({"return_value": "json"}, [1, 2], "success", [1, 2], ""),
        ({"return_value": "json"}, {"a": 1}, "success", {"a": 1}, ""),
        ({"return_value": "json"}, {"return_value": None}, "success", None, ""),
    ],
)
def test_what_the_program_wrote_is_read_by_the_types_of_the_outputs(
    server: StandIn, maker: Maker, monkeypatch: pytest.MonkeyPatch, outputs: Any, file: Any, state: str, result: Any,
    words: str,
) -> None:  # fmt: skip
    server.tell(GOOD, GOOD, GOOD)
    monkeypatch.setattr(GpuPodOperator, "extract_xcom", lambda self, pod: json.loads(json.dumps(file)))
    monkeypatch.setattr(GpuPodOperator, "_end_sidecar", lambda self, name: None)
    played = Stage().play(maker(outputs=outputs, retries=0))
    assert (played.state, played.result) == (state, result), played.messages
    assert words in " ".join(played.messages)


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerError"])
def test_an_output_container_that_does_not_start_is_said_as_the_pod_says_it(
    server: StandIn,
    maker: Maker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    reason: str,
) -> None:
    """On a cluster without internet the image of Airflow's sidecar cannot be pulled: main ends well beside it."""
    monkeypatch.setattr("gpuflow.airflow.step_pods.time.sleep", lambda seconds: None)
    waiting = {"reason": reason, "message": 'failed to pull "alpine:3.24.2"'}
    sidecar = {**_main({"waiting": waiting}), "name": "airflow-xcom-sidecar"}
    both = [running(), ended(0)]
    for sight in both:
        sight["status"] |= {"phase": "Pending", "containerStatuses": [*sight["status"]["containerStatuses"], sidecar]}
    server.tell(both, both)
    played = Stage().play(maker(outputs={"n": "int"}, retries=0, kubernetes_conn_id="kubernetes_default"))
    log = capsys.readouterr().out
    image = server.made[0]["spec"]["containers"][-1]["image"]
    said = f'its container airflow-xcom-sidecar ({image}) does not start: {reason}: failed to pull "alpine:3.24.2"'
    hint = 'set xcom_sidecar_container_image in the extra of the connection "kubernetes_default"'
    assert (played.state, len(server.made)) == ("failed", 1)
    assert said in played.messages[-1] and said in log and "NoneType" not in log
    assert (hint in played.messages[-1]) == ("Image" in reason)
    # Long before that: what it costs should be seen before the work is done.
    assert log.index(f"running on gpu-1 with 1 nvidia.com/gpu; airflow-xcom-sidecar: {reason}") < log.index(said)


def test_standalone_says_which_images_need_gpuflow_run(gpuflow: Gpuflow, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        step("cpu: 1")
        + "  b: {needs: a, command: [b, {output: a.n}]}\n"
        + "  c: {command: [c], outputs: {o: int}}\n  d: {command: [d], checkpoint: {path: /c, store: s3://b}}\n"
    )
    answer = gpuflow("compile", tmp_path / "p.yaml", "--target", "airflow", "--standalone")
    head = [line for line in answer.out.splitlines() if line.startswith("#")]
    assert head[2] == "# gpuflow-run must be in the image: c (for its outputs), d (for its checkpoint)."
    assert head[3] == "# Nothing of gpuflow in the image: a, b."
    assert "GF366 gpuflow-run must be in the image: c (for its outputs), d (for its checkpoint)" in answer.err
    assert 'steps "a", "b" need nothing' in answer.err
    tree = ast.parse(answer.out)
    imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not any(str(module).startswith("gpuflow") for module in imported)
    free = gpuflow("compile", tmp_path / "p.yaml", "--target", "airflow")
    assert "GF366" not in free.err and "Nothing of gpuflow" not in free.out


def test_standalone_mounts_it_where_the_site_says_so(gpuflow: Gpuflow, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(HEAD + "steps:\n  c: {command: [c], outputs: {o: int}}\n")
    site = "apiVersion: gpuflow/v1\nkind: Site\nname: s\nruntime: {delivery: config-map}\n"
    (tmp_path / "site.yaml").write_text(site)
    words = ("compile", tmp_path / "p.yaml", "--target", "airflow", "--standalone", "--site", tmp_path / "site.yaml")
    assert "# gpuflow-run is mounted from ConfigMap gpuflow-runtime-" in gpuflow(*words).out


def test_standalone_without_any_supervised_step_says_so(gpuflow: Gpuflow, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(step("cpu: 1"))
    answer = gpuflow("compile", tmp_path / "p.yaml", "--target", "airflow", "--standalone")
    assert "no image needs gpuflow-run" in answer.err
    assert "# Nothing of gpuflow in the image: a." in answer.out
