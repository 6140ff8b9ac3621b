"""`gpuflow check`, `gpuflow init` and `gpuflow demo` from outside.

Tests gpuflow/cli/check.py, gpuflow/cli/demo.py, gpuflow/cli/init.py and gpuflow/report/text.py.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.spec.loading import load
from tests.assumed import RECORD
from tests.cli.commands import DEMO, NIGHTLY, Answer, Gpuflow

CLUSTER = DEMO / "cluster"
SITE = ("--site", DEMO / "site.yaml")


def check(gpuflow: Gpuflow, *words: object, cluster: object = CLUSTER) -> Answer:
    return gpuflow("check", NIGHTLY, "--cluster", cluster, "--engine", "argo", *SITE, *words)


def quota(folder: Path, gpus: int) -> Path:
    file = folder / "quota.yaml"
    file.write_text(
        "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q, namespace: team-a}\n"
        f'spec: {{hard: {{requests.nvidia.com/gpu: "{gpus}"}}}}\n'
        f'status: {{hard: {{requests.nvidia.com/gpu: "{gpus}"}}, used: {{requests.nvidia.com/gpu: "0"}}}}\n'
        f"---\n{RECORD}"
    )
    return file


def test_the_demo_pipeline_is_always_admitted_in_the_demo_cluster(gpuflow: Gpuflow) -> None:
    answer = check(gpuflow)
    assert answer.code == 0
    assert answer.out.startswith("nightly in namespace team-a: ALWAYS\n")
    assert "Assumes no other workload grows." in answer.out


def test_json_has_the_contracts_shape(gpuflow: Gpuflow) -> None:
    data = check(gpuflow, "--format", "json").data
    assert {"file", "pipeline", "namespace", "engine", "verdict", "as_of", "scopes", "findings"} <= set(data)
    assert data["verdict"] == "always"
    assert (data["pipeline"], data["namespace"], data["engine"]) == ("nightly", "team-a", "argo")
    assert data["file"].endswith("nightly.yaml")
    for scope in data["scopes"]:
        assert {"kind", "name", "resource", "verdict", "used", "hard", "peak", "witness", "safe_parallelism"} <= set(
            scope
        )
    (gpus,) = [scope for scope in data["scopes"] if scope["resource"] == "requests.nvidia.com/gpu"]
    assert (gpus["used"], gpus["peak"], gpus["hard"], gpus["witness"]) == ("4", "2", "10", ["train"])


def test_never_says_kubernetes_own_sentence_and_exits_with_1(gpuflow: Gpuflow, tmp_path: Path) -> None:
    answer = check(gpuflow, "--format", "json", cluster=quota(tmp_path, 1))
    assert (answer.code, answer.data["verdict"]) == (1, "never")
    (finding,) = [finding for finding in answer.data["findings"] if finding["code"] == "GF501"]
    assert (
        "exceeded quota: q, requested: requests.nvidia.com/gpu=2, used: requests.nvidia.com/gpu=0, limited: "
        in (finding["kubernetes"])
    )
    assert (finding["where"]["file"], finding["where"]["step"]) == (NIGHTLY, "train")


@pytest.mark.parametrize(("fail_on", "code"), [(None, 0), ("never", 0), ("unknown", 0), ("may-queue", 1)])
def test_may_queue_fails_only_when_asked_to(fail_on: str | None, code: int, gpuflow: Gpuflow, tmp_path: Path) -> None:
    words = () if fail_on is None else ("--fail-on", fail_on)
    answer = check(gpuflow, "--runs", "2", "--format", "json", *words, cluster=quota(tmp_path, 3))
    assert (answer.data["verdict"], answer.code) == ("may-queue", code)


@pytest.mark.parametrize("fail_on", ["never", "unknown", "may-queue"])
def test_gangs_that_can_block_each_other_fail_whatever_fail_on_says(
    fail_on: str, gpuflow: Gpuflow, tmp_path: Path
) -> None:
    gang = "{command: [x], cpu: 1, memory: 1Gi, gpu: a100-80gb x 2, gang: 3}"
    file = tmp_path / "gangs.yaml"
    head = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: gangs\ndefaults: {image: i}\n"
    file.write_text(f"{head}steps: {{a: {gang}, b: {gang}}}\n")
    words = ("--namespace", "team-a", "--cluster", quota(tmp_path, 8), "--fail-on", fail_on)
    answer = gpuflow("check", file, *SITE, *words, "--format", "json")
    severities = {finding["code"]: finding["severity"] for finding in answer.data["findings"]}
    assert (answer.code, answer.data["verdict"], severities["GF555"]) == (1, "may-queue", "error")
    assert '<failure message="may-queue">' in gpuflow("check", file, *SITE, *words, "--format", "junit").out
    assert (
        "::error title=gpuflow::gangs in team-a: may-queue"
        in gpuflow("check", file, *SITE, *words, "--format", "github").out
    )


def test_a_comparison_of_several_files_is_one_json_array_and_has_no_other_machine_form(gpuflow: Gpuflow) -> None:
    one = check(gpuflow, "--compare", NIGHTLY, "--format", "json").data
    words = ("--cluster", CLUSTER, "--engine", "argo", *SITE, "--compare", NIGHTLY, "--format", "json")
    several = gpuflow("check", NIGHTLY, NIGHTLY, *words).data
    assert several == [one, one]
    refused = check(gpuflow, "--compare", NIGHTLY, "--format", "junit")
    assert (refused.code, refused.out, "--compare has no junit form" in refused.err) == (2, "", True)


def test_a_broken_pipeline_or_manifest_is_bad_input(gpuflow: Gpuflow, tmp_path: Path) -> None:
    for name, text, code in (("a.yaml", "kind: [", "GF101"), ("b.yaml", "kind: Pod\n", "GF402")):
        (tmp_path / name).write_text(text)
        answer = check(gpuflow, cluster=tmp_path / name)
        assert (answer.code, code in answer.err) == (2, True)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "GF401" in check(gpuflow, cluster=empty).err


def test_without_a_namespace_it_says_how_to_give_one(gpuflow: Gpuflow) -> None:
    answer = gpuflow("check", NIGHTLY, "--cluster", CLUSTER)
    assert (answer.code, "GF904" in answer.err, "--namespace" in answer.err) == (2, True, True)


def test_init_writes_a_project_that_validates_and_checks(
    gpuflow: Gpuflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gpuflow("init", tmp_path / "new").code == 0
    monkeypatch.chdir(tmp_path / "new")
    assert gpuflow("validate", "pipeline.yaml", "--site", "site.yaml").code == 0
    answer = gpuflow("check", "pipeline.yaml", "--site", "site.yaml", "--cluster", "cluster/", "--engine", "argo")
    assert answer.code == 0
    assert "ALWAYS" in answer.out
    assert gpuflow("compile", "pipeline.yaml", "--site", "site.yaml", "--target", "airflow").code == 0


def test_init_overwrites_nothing_unless_told_to(gpuflow: Gpuflow, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("mine")
    answer = gpuflow("init", tmp_path)
    assert (answer.code, "GF907" in answer.err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["site.yaml"]
    assert gpuflow("init", tmp_path, "--force").code == 0
    assert (tmp_path / "site.yaml").read_text() != "mine"


def test_the_demo_tells_three_stories_in_one_screen(
    gpuflow: Gpuflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "darwin")  # nothing is run: tests/cli/test_demo.py does
    answer = gpuflow("demo", "-o", tmp_path)
    assert answer.code == 0
    verdicts = [line.rsplit(": ", 1)[1] for line in answer.out.splitlines() if line.startswith("check ")]
    assert verdicts[0] == "ALWAYS"
    assert "ALWAYS" not in verdicts[1:]
    said = " ".join(answer.out.split())
    assert "exceeded quota: gpu-quota, requested: requests.nvidia.com/gpu=7, used: requests.nvidia.com/gpu=4" in said
    assert "GF513 the LimitRange gives 2 nvidia.com/gpu to every container that asks for none" in said
    assert len(answer.out.splitlines()) <= 35
    assert (tmp_path / "nightly.yaml").read_bytes() == (DEMO / "nightly.yaml").read_bytes()


def test_one_check_writes_every_format_that_is_asked_for(gpuflow: Gpuflow, tmp_path: Path) -> None:
    words = ("check", NIGHTLY, "--site", DEMO / "site.yaml", "--cluster", CLUSTER)
    formats = ("text", "json", "sarif", "junit", "markdown", "github")
    alone = {form: gpuflow(*words, "--format", form).out for form in formats}
    answer = gpuflow(*words, *(f"--report={form}={tmp_path / form}" for form in formats), "--format", "json")
    assert (answer.code, answer.out) == (0, alone["json"])
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == alone


@pytest.mark.parametrize("word", ["markdown", "markdown=", "html=x", "=x"])
def test_a_report_needs_a_format_and_a_file(gpuflow: Gpuflow, word: str) -> None:
    answer = gpuflow("check", NIGHTLY, "--site", DEMO / "site.yaml", "--cluster", CLUSTER, "--report", word)
    assert (answer.code, "GF903" in answer.err) == (2, True)


def test_a_report_overwrites_nothing_that_is_read(gpuflow: Gpuflow, tmp_path: Path) -> None:
    source = tmp_path / "pipeline.yaml"
    source.write_text(Path(NIGHTLY).read_text())
    words = ("check", source, "--site", DEMO / "site.yaml", "--cluster", CLUSTER)
    for given in ([f"--report=json={source}"], [f"--report=json={tmp_path}/r", f"--report=text={tmp_path}/r"]):
        answer = gpuflow(*words, *given)
        assert (answer.code, "GF903" in answer.err) == (2, True)
    assert source.read_text() == Path(NIGHTLY).read_text()


def test_a_new_pipeline_is_checked_alone_where_others_are_compared(
    gpuflow: Gpuflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.yaml").write_text(Path(NIGHTLY).read_text())
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "x"]):
        subprocess.run(["git", *who, *words], check=True)
    Path("new.yaml").write_text(Path(NIGHTLY).read_text().replace("name: nightly", "name: fresh"))
    Path("old.yaml").write_text(Path(NIGHTLY).read_text().replace("memory: ", "memory: 1", 1))
    words = ("check", ".", "--site", DEMO / "site.yaml", "--cluster", CLUSTER, "--compare", "git:HEAD")
    answer = gpuflow(*words)
    assert answer.code == 0
    assert "GF912 new.yaml is new: HEAD does not have it" in answer.err
    assert re.findall(r"^### .*?`([a-z]+)`.*(always)$", answer.out, re.MULTILINE) == [
        ("fresh", "always"),
        ("nightly", "always"),
    ]
    assert "peak before" in answer.out
    documents = gpuflow(*words, "--format", "json").data
    assert [document["before"] is None for document in documents] == [True, False]
    annotated = gpuflow(*words, "--format", "github", "--report=markdown=compared.md")
    assert (annotated.code, Path("compared.md").read_text()) == (0, answer.out)
    answer = gpuflow(*words[:-1], "git:nowhere")
    assert (answer.code, "GF908" in answer.err) == (2, True)


@pytest.mark.parametrize(
    ("version", "kind", "spec"),
    [
        ("v1", "Pod", "{containers: [{name: main, image: i}]}"),
        ("argoproj.io/v1alpha1", "Workflow", "{entrypoint: m, templates: [{name: m, container: {image: i}}]}"),
    ],
)
def test_a_manifest_of_kubernetes_is_checked_and_not_compiled(
    gpuflow: Gpuflow, tmp_path: Path, version: str, kind: str, spec: str
) -> None:
    file = tmp_path / "manifest.yaml"
    file.write_text(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\nspec: {spec}\n")
    answer = gpuflow("check", str(file), "--cluster", CLUSTER, "--namespace", "team-a", "--format", "json").data
    assert (answer["pipeline"], answer["verdict"]) == ("x", "never")
    assert "violates PodSecurity" in next(each["kubernetes"] for each in answer["findings"] if each["kubernetes"])
    refused = gpuflow("compile", str(file), "--target", "argo")
    assert refused.code == 2 and "GF706" in refused.err and "gpuflow import" in refused.err
    with pytest.raises(GpuflowError, match="name the pipeline that this one was compiled from"):
        load(file)


def test_a_list_that_was_given_is_not_called_a_default(gpuflow: Gpuflow, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nparams: {items: {type: json, default: [1, 2, 3]}}\n"
        "defaults: {image: i, cpu: 1, memory: 1Gi}\n"
        "steps:\n  a: {command: [x, {item: t}], for_each: {t: {param: items}}}\n"
    )
    words = ("check", file, "--cluster", quota(tmp_path, 1), "--namespace", "team-a")
    assert "counted with 3 items, its default" in gpuflow(*words).out
    given = gpuflow(*words, "--param", "items=[1,2]").out
    assert "counted with 2 items, as --param says" in given and "default" not in given.split("GF529")[1].split("\n")[0]
