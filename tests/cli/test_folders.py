"""A folder stands for the pipelines in it, by what its files say; nothing of it is left out in silence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuflow.cli.folders import is_pipeline
from gpuflow.spec.loading import load
from tests.cli.commands import Gpuflow

TEXT = """apiVersion: gpuflow/v1
kind: Pipeline
name: {name}
steps:
  only: {{image: i, command: [c], gpu: l4, cpu: 1, memory: 1Gi}}
"""
QUOTA = """apiVersion: v1
kind: ResourceQuota
metadata: {name: q, namespace: team}
spec: {hard: {requests.nvidia.com/gpu: "4"}}
status: {hard: {requests.nvidia.com/gpu: "4"}, used: {requests.nvidia.com/gpu: "0"}}
---
apiVersion: gpuflow/v1
kind: Snapshot
assumed: [Node]
"""
OTHERS = {
    "quota.yaml": QUOTA,
    "site.yaml": "apiVersion: gpuflow/v1\nkind: Site\nname: s\nextends: nvidia\n",
    "tekton.yaml": "apiVersion: tekton.dev/v1\nkind: Pipeline\nmetadata: {name: a}\nspec: {tasks: []}\n",
    "kfp.yaml": "apiVersion: pipelines.kubeflow.org/v2beta1\nkind: Pipeline\nmetadata: {name: a}\n",
    "values.json": '{"kind": "Values"}',
    "chart.yaml": "{{- if .Values.gpuflow }}\nkind: Pipeline\n{{- end }}\n",
    "empty.yaml": "",
    "notes.md": "kind: Pipeline\napiVersion: gpuflow/v1\n",
}
OUTPUTS = {"validate": [], "check": ["--cluster", "quota.yaml", "--namespace", "team"], "demand": []}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pipelines in a folder and below it, among files that are none; the working directory is above."""
    pipelines = tmp_path / "pipelines"
    (pipelines / "deep" / "er").mkdir(parents=True)
    (pipelines / "train.yaml").write_text(TEXT.format(name="train"))
    (pipelines / "deep" / "er" / "evaluate.yml").write_text(TEXT.format(name="evaluate"))
    tune = {"steps": {"only": {"image": "i", "command": ["c"]}}, "name": "tune", "kind": "Pipeline"}
    (pipelines / "deep" / "tune.json").write_text(json.dumps({**tune, "apiVersion": "gpuflow/v1"}))
    (tmp_path / "quota.yaml").write_text(QUOTA)
    monkeypatch.chdir(tmp_path)
    return pipelines


FOUND = ["pipelines/train.yaml", "pipelines/deep/tune.json", "pipelines/deep/er/evaluate.yml"]


@pytest.mark.parametrize("command", OUTPUTS)
def test_a_folder_stands_for_the_pipelines_in_it_and_below(gpuflow: Gpuflow, folder: Path, command: str) -> None:
    answer = gpuflow(command, "pipelines/", "--format", "json", *OUTPUTS[command])
    assert answer.code == 0, answer.err
    assert [each["file"] for each in answer.data] == FOUND
    assert answer.err == "pipelines/: 3 pipelines\n"


def test_compile_takes_a_folder_and_a_new_pipeline_is_stale_at_once(gpuflow: Gpuflow, folder: Path) -> None:
    words = ("compile", "pipelines", "--target", "airflow", "-o", "dags/")
    assert gpuflow(*words).code == 0
    assert sorted(path.name for path in Path("dags").iterdir()) == ["evaluate.py", "train.py", "tune.py"]
    assert gpuflow(*words, "--check").code == 0
    (folder / "added.yaml").write_text(TEXT.format(name="added"))
    answer = gpuflow(*words, "--check")
    assert (answer.code, "+++ dags/added.py" in answer.out) == (1, True)


def test_what_is_no_pipeline_is_left_out_and_counted(gpuflow: Gpuflow, folder: Path) -> None:
    for name, text in OTHERS.items():
        (folder / name).write_text(text)
    (folder / ".hidden.yaml").write_text(TEXT.format(name="hidden"))
    (folder / ".git").mkdir()
    (folder / ".git" / "kept.yaml").write_text(TEXT.format(name="kept"))
    (folder / "program.py").write_text("open('taken', 'w').close()\n")
    answer = gpuflow("validate", "pipelines/", "--allow-python")
    assert (answer.code, answer.out.count(": ok, pipeline")) == (0, 3)
    assert answer.err == (
        "pipelines/: 3 pipelines; not pipelines: pipelines/chart.yaml, pipelines/empty.yaml, pipelines/kfp.yaml and 4"
        " more; Python, not run unless named: pipelines/program.py\n"
    )
    assert not Path("taken").exists()


def test_a_folder_without_a_pipeline_is_an_error_that_names_what_is_there(gpuflow: Gpuflow, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(OTHERS["site.yaml"])
    answer = gpuflow("validate", tmp_path)
    assert answer.code == 2
    assert f"GF911 {tmp_path}: no pipeline; not pipelines: {tmp_path}/site.yaml" in answer.err


BROKEN = {
    "syntax": (TEXT.format(name="x") + "  - [", "GF101"),
    "kind": (TEXT.format(name="x").replace("Pipeline", "Pipelin"), "GF120"),
    "version": (TEXT.format(name="x").replace("apiVersion: gpuflow/v1\n", ""), "GF114"),
    "two": (TEXT.format(name="x") + "---\n" + TEXT.format(name="y"), "GF108"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_pipeline_is_not_taken_for_another_file(gpuflow: Gpuflow, folder: Path, how: str) -> None:
    text, code = BROKEN[how]
    (folder / "broken.yaml").write_text(text)
    answer = gpuflow("validate", "pipelines")
    assert (answer.code, f": {code} " in answer.err) == (2, True), answer.err


def test_a_link_out_of_the_repository_is_refused_and_one_to_a_folder_is_not_followed(
    gpuflow: Gpuflow, folder: Path
) -> None:
    (folder.parent / ".git").mkdir()
    (folder.parent.parent / "outside").mkdir(exist_ok=True)
    (folder.parent.parent / "outside" / "secret.yaml").write_text(TEXT.format(name="secret"))
    (folder / "all").symlink_to("../../outside")
    assert gpuflow("validate", "pipelines").code == 0
    (folder / "one.yaml").symlink_to("../../outside/secret.yaml")
    answer = gpuflow("validate", "pipelines")
    assert (answer.code, "GF140" in answer.err, "secret:" in answer.err) == (2, True, False)


def test_a_file_that_is_also_in_the_folder_counts_once(gpuflow: Gpuflow, folder: Path) -> None:
    """As pre-commit calls a hook: the folder of its arguments, then the files that changed."""
    answer = gpuflow("validate", "pipelines/", "pipelines/train.yaml", "./pipelines/train.yaml", "--format", "json")
    assert [each["file"] for each in answer.data] == FOUND


def test_the_hint_for_a_name_that_is_nearly_right_has_its_folder(gpuflow: Gpuflow, folder: Path) -> None:
    answer = gpuflow("validate", "pipelines/trian.yaml")
    assert 'did you mean "pipelines/train.yaml"?' in answer.err


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet=st.sampled_from("abkind:Pipelne -gfuow/v1\n{}\"'[]#&*"), max_size=80), st.booleans())
def test_whatever_loads_as_a_pipeline_is_found_by_content(tmp_path: Path, before: str, shuffled: bool) -> None:
    """Comments, quotes and the order of keys do not hide a pipeline."""
    head = "".join(f"# {each}\n" for each in before.split("\n"))
    text = TEXT.format(name="x")
    if shuffled:
        first, _, *rest = text.splitlines(keepends=True)
        text = "".join(rest) + "'kind': \"Pipeline\"\n" + first.replace("gpuflow/v1", "'gpuflow/v1'")
    file = tmp_path / "any.yaml"
    file.write_text(head + text)
    assert load(file).name == "x"
    assert is_pipeline(file)


def test_what_was_compiled_from_a_pipeline_of_the_folder_is_not_counted_once_more(
    gpuflow: Gpuflow, folder: Path, tmp_path: Path
) -> None:
    """`init` writes both into one folder, and its CI checks that folder."""
    head = "# Made by gpuflow 0.1.0 from {} sha256:0123456789abcdef for site s.\n"
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {{name: {}}}\nspec: {{containers: [{{name: a, image: i}}]}}\n"
    (folder / "compiled.yaml").write_text(head.format("pipelines/train.yaml") + pod.format("compiled"))
    (folder / "elsewhere.yaml").write_text(head.format("other/train.yaml") + pod.format("elsewhere"))
    answer = gpuflow("check", str(folder), "--cluster", "quota.yaml", "--namespace", "team")
    assert "3 pipelines, 1 file with workloads; compiled from these: " in answer.err
    assert "compiled in namespace" not in answer.out and "elsewhere in namespace team" in answer.out
    # Named by itself, it is asked about.
    alone = gpuflow("check", str(folder / "compiled.yaml"), "--cluster", "quota.yaml", "--namespace", "team")
    assert "compiled in namespace team" in alone.out
