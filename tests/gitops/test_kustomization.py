"""`gpuflow compile --kustomization`: a folder that kubectl and Argo CD apply as it is.

Tests gpuflow/targets/argo/kustomization.py.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.cli.commands import EXAMPLES, NIGHTLY, Gpuflow
from tests.engines import build

EVALUATION = str(EXAMPLES / "finetune-eval.yaml")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "argo_templates"


def compile_to(gpuflow: Gpuflow, folder: Path, *words: str) -> tuple[int, str, str]:
    return gpuflow("compile", *words, "--target", "argo", "-o", f"{folder}/", "--kustomization")


def test_it_lists_exactly_what_was_compiled_in_order_whatever_the_order_of_the_files(
    gpuflow: Gpuflow, folder: Path
) -> None:
    assert compile_to(gpuflow, folder, NIGHTLY, EVALUATION)[0] == 0
    first = (folder / "kustomization.yaml").read_bytes()
    assert yaml.safe_load(first) == {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["finetune-eval.yaml", "nightly.yaml"],
    }
    assert sorted(path.name for path in folder.iterdir()) == [
        "finetune-eval.yaml",
        "kustomization.yaml",
        "nightly.yaml",
    ]
    assert compile_to(gpuflow, folder, EVALUATION, NIGHTLY)[0] == 0
    assert (folder / "kustomization.yaml").read_bytes() == first


def test_without_the_option_a_folder_gets_the_engines_files_and_nothing_else(gpuflow: Gpuflow, folder: Path) -> None:
    assert gpuflow("compile", NIGHTLY, "--target", "argo", "-o", f"{folder}/").code == 0
    assert [path.name for path in folder.iterdir()] == ["nightly.yaml"]


def test_it_names_the_namespace_that_was_given(gpuflow: Gpuflow, folder: Path) -> None:
    compile_to(gpuflow, folder, NIGHTLY, "--namespace", "team-a")
    assert yaml.safe_load((folder / "kustomization.yaml").read_text())["namespace"] == "team-a"
    compile_to(gpuflow, folder, NIGHTLY, "--namespace", "team-a", "--as", "ClusterWorkflowTemplate")
    assert "namespace" not in yaml.safe_load((folder / "kustomization.yaml").read_text())


def test_check_covers_it(gpuflow: Gpuflow, folder: Path) -> None:
    compile_to(gpuflow, folder, NIGHTLY, EVALUATION)
    assert compile_to(gpuflow, folder, NIGHTLY, EVALUATION, "--check")[:2] == (0, "")
    path = folder / "kustomization.yaml"
    path.write_text(path.read_text().replace("- nightly.yaml\n", ""))
    before = path.read_bytes()
    code, out, err = compile_to(gpuflow, folder, NIGHTLY, EVALUATION, "--check")
    assert code == 1
    assert out.startswith(f"--- {path}\n")
    assert "\n+- nightly.yaml\n" in out
    assert "1 file is stale" in err
    assert path.read_bytes() == before
    path.unlink()
    assert compile_to(gpuflow, folder, NIGHTLY, EVALUATION, "--check")[0] == 1
    assert not path.exists()


def test_json_names_it_among_the_files(gpuflow: Gpuflow, folder: Path) -> None:
    words = ("compile", NIGHTLY, "--target", "argo", "-o", f"{folder}/", "--kustomization", "--format", "json")
    assert len(gpuflow(*words, "--check").data["stale"]) == 2
    assert gpuflow(*words).data["files"] == [str(folder / "nightly.yaml"), str(folder / "kustomization.yaml")]


HAND_WRITTEN = "resources: [nightly.yaml, quota.yaml]\n"
ADDED = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [nightly.yaml]\n"


@pytest.mark.parametrize(
    ("name", "text", "because"),
    [
        ("kustomization.yaml", HAND_WRITTEN, "gpuflow did not write it"),
        ("kustomization.yaml", "", "gpuflow did not write it"),
        ("kustomization.yml", HAND_WRITTEN, "kustomize reads only one of"),
        ("Kustomization", HAND_WRITTEN, "kustomize reads only one of"),
        ("kustomization.yaml", "# Made by gpuflow 0\n" + ADDED + "namePrefix: x-\nimages: []\n", "images, namePrefix"),
        (
            "kustomization.yaml",
            "# Made by gpuflow 0\nresources: [nightly.yaml, rbac.yaml]\n",
            "the resources rbac.yaml",
        ),
        ("kustomization.yaml", "# Made by gpuflow 0\nresources: [../other]\n", "the resources ../other"),
        ("kustomization.yaml", "# Made by gpuflow 0\n<<<<<<< ours\nresources: []\n", "it is not YAML"),
        ("kustomization.yaml", "# Made by gpuflow 0\n- nightly.yaml\n", "it is not a kustomization"),
        ("kustomization.yaml", "# Made by gpuflow 0\n# \n" + ADDED + "# Ask ops first\n", "someone added a comment"),
    ],
)
@pytest.mark.parametrize("check", [(), ("--check",)])
def test_what_somebody_else_wrote_is_refused_and_left_alone(
    gpuflow: Gpuflow, folder: Path, name: str, text: str, because: str, check: tuple[str, ...]
) -> None:
    folder.mkdir()
    (folder / "rbac.yaml").write_text("kind: Role\n")
    (folder / name).write_text(text)
    code, _, err = compile_to(gpuflow, folder, NIGHTLY, *check)
    assert code == 2
    assert f"{folder / name}: GF315 " in err
    assert because in err
    assert "resources: [../argo_templates]" in err
    assert (folder / name).read_text() == text
    assert not (folder / "nightly.yaml").exists()


def test_a_compiled_file_that_is_no_longer_listed_is_said(gpuflow: Gpuflow, folder: Path) -> None:
    compile_to(gpuflow, folder, NIGHTLY, EVALUATION)
    (folder / "notes.yaml").write_text("# mine\n")
    code, _, err = compile_to(gpuflow, folder, NIGHTLY)
    assert code == 0
    assert [line for line in err.splitlines() if "GF316" in line] == [
        f"{folder}/finetune-eval.yaml: GF316 {folder}/finetune-eval.yaml was compiled by gpuflow, "
        "but not by this command: kustomization.yaml does not list it"
    ]
    assert yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"] == ["nightly.yaml"]
    (folder / "finetune-eval.yaml").unlink()
    assert "GF316" not in compile_to(gpuflow, folder, NIGHTLY)[2]


def test_it_needs_a_folder_and_objects_with_a_name(gpuflow: Gpuflow, folder: Path, tmp_path: Path) -> None:
    refused = gpuflow("compile", NIGHTLY, "--target", "argo", "--kustomization")
    assert (refused.code, "GF903" in refused.err) == (2, True)
    refused = gpuflow("compile", NIGHTLY, "--target", "argo", "-o", tmp_path / "n.yaml", "--kustomization")
    assert (refused.code, "GF903" in refused.err) == (2, True)
    refused = gpuflow("compile", NIGHTLY, "--target", "airflow", "-o", f"{folder}/", "--kustomization")
    assert (refused.code, "GF903" in refused.err) == (2, True)
    code, _, err = compile_to(gpuflow, folder, NIGHTLY, "--as", "Workflow")
    assert (code, "argo submit --from" in err) == (2, True)
    assert not folder.exists()


def test_a_pipeline_called_kustomization_is_refused(gpuflow: Gpuflow, folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "p.yaml"
    source.write_text(
        "apiVersion: gpuflow/v1\nkind: Pipeline\nname: kustomization\nsteps: {a: {image: i, command: [x]}}"
    )
    code, _, err = compile_to(gpuflow, folder, str(source))
    assert (code, "GF304" in err, folder.exists()) == (2, True, False)


@pytest.mark.go
def test_kubectl_builds_the_folder_and_an_overlay_on_it(gpuflow: Gpuflow, folder: Path, tmp_path: Path) -> None:
    build.build(["kubectl"])
    compile_to(gpuflow, folder, NIGHTLY, EVALUATION, "--namespace", "team-a")
    overlay = tmp_path / "production"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text("namespace: production\nresources: [../argo_templates]\n")
    for place, namespace in ((folder, "team-a"), (overlay, "production")):
        command = [str(build.binary("kubectl")), "kustomize", str(place)]
        built = list(yaml.safe_load_all(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
        assert {(item["kind"], item["metadata"]["name"], item["metadata"]["namespace"]) for item in built} == {
            ("CronWorkflow", "nightly", namespace),
            ("WorkflowTemplate", "finetune-eval", namespace),
        }
        for item in built:
            item["metadata"]["namespace"] = "team-a"
            assert item == yaml.safe_load((folder / f"{item['metadata']['name']}.yaml").read_text())
