"""Strangers choose file names, texts of documents and texts of manifests: no output of any command obeys them."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpuflow.core.printable import HIDDEN_CHARACTERS, escape_literal
from tests.cli.commands import DEMO, Answer, Gpuflow
from tests.conftest import ROOT


def quoted(text: str) -> str:
    """The text in YAML."""
    return escape_literal(json.dumps(text, ensure_ascii=False))


TRICK = "::error title=Review::approved ##[group]x ##vso[task.x] a|b `c` <img src=x> [d](e) @team https://e.x<h1>"
UNSEEN = "\u200b\u3164\U000e0041\ufe0f\u2800\xad\xa0"
"""What may stand in a file name, and nobody sees."""
CONTROL = "\x1b[31m\r\u202e\u2066\u2028\x85\x07"
HOSTILE = f"{TRICK}{UNSEEN}{CONTROL}\n::stop-commands::x\n  ::set-output name=stale::false\n---\n"
FILE = f"{TRICK.replace('/', '')}{UNSEEN}.yaml"
CONDITION = f"params.text == '{TRICK}'"
PIPELINE = f"""
apiVersion: gpuflow/v1
kind: Pipeline
name: p
description: {quoted(HOSTILE)}
params: {{text: {quoted(HOSTILE)}}}
steps:
  a: {{image: i, command: [run, {quoted(HOSTILE)}, {{param: text}}], cpu: 1, memory: 1Gi}}
  b: {{image: i, script: {quoted(HOSTILE)}, cpu: 1, memory: 1Gi, needs: [a], when: {quoted(CONDITION)}}}
  c: {{approval: {quoted(HOSTILE)}, needs: [b]}}
"""
RECORD = f"""
apiVersion: gpuflow/v1
kind: Snapshot
namespace: {quoted(HOSTILE)}
listed: [Pod]
unread: {{Node: {quoted(HOSTILE)}, {quoted(HOSTILE)}: no}}
---
apiVersion: {quoted("evil.example/" + HOSTILE)}
kind: {quoted(HOSTILE)}
metadata: {{name: x}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {{name: odd, namespace: team-a}}
spec: {{hard: {{pods: "1"}}, {quoted(HOSTILE)}: 1}}
status: {{hard: {{pods: "1"}}, used: {{pods: "0"}}}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / f"{TRICK}{UNSEEN}"
    (folder / "cluster").mkdir(parents=True)
    (folder / FILE).write_text(PIPELINE, encoding="utf-8")
    (folder / "cluster" / FILE).write_text(RECORD, encoding="utf-8")
    (folder / "cluster" / "team-a.yaml").write_text((DEMO / "cluster" / "team-a.yaml").read_text())
    site = (DEMO / "site.yaml").read_text().replace("The embedded example cluster", quoted(HOSTILE))
    (folder / f"site {FILE}").write_text(site, encoding="utf-8")
    return folder


def assert_harmless(answer: Answer, *, own_commands: bool = False, keeps_lines: bool = False) -> None:
    """Nothing hidden, and nothing that GitHub's runner would obey: it trims a line, then looks for `::` and `##[`.

    `own_commands`: standard output is commands of ours; `keeps_lines`: it has lines of a stranger's file.
    """
    assert "Traceback" not in answer.err
    assert "GF999" not in answer.err
    for text in (answer.out, answer.err):
        found = HIDDEN_CHARACTERS.search(text.replace("\n", ""))
        assert found is None, (found, text[max(0, found.start() - 80) :][:200])
        for line in text.split("\n"):
            assert not re.search(r"##[a-z]*\[", line), line
            if own_commands and text is answer.out and line:
                assert re.match(r"::(error|warning|notice) [^:]*::", line), line
            else:
                assert not line.strip().startswith("::"), line
            assert keeps_lines or not re.match(r"\s*(\\x3a)?:*(stop-commands|set-output)", line), (
                "a line of a stranger's"
            )


@pytest.mark.parametrize("format", ["text", "json", "sarif", "junit", "markdown", "github"])
def test_a_check_says_what_strangers_wrote_as_text_only(gpuflow: Gpuflow, folder: Path, format: str) -> None:
    options = ("--site", folder / f"site {FILE}", "--cluster", folder / "cluster", "--format", format)
    answer = gpuflow("check", folder / FILE, "--engine", "argo", *options)
    assert answer.code in (0, 1), answer.err
    assert_harmless(answer, own_commands=format == "github")
    if format == "json":
        assert any(HOSTILE.strip() in finding["message"] for finding in answer.data["findings"])
    if format == "junit":
        assert ElementTree.fromstring(answer.out).find("testsuite/testcase/failure") is not None
    if format == "sarif":
        texts = [result["message"]["text"] for result in answer.data["runs"][0]["results"]]
        assert texts
        assert not [text for text in texts if HIDDEN_CHARACTERS.search(text.replace("\n", ""))]
    if format == "markdown":
        text = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", answer.out)
        assert "e.x&lt;h1>" in text
        assert "<" not in text.replace("<!-- -->", "") and "://" not in text
        rows = [line for line in answer.out.split("\n") if line.startswith("|")]
        assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7}


def test_a_comparison_says_what_strangers_wrote_as_text_only(gpuflow: Gpuflow, folder: Path) -> None:
    options = ("--site", folder / f"site {FILE}", "--cluster", folder / "cluster", "--compare", folder / FILE)
    for format in ("text", "json"):
        answer = gpuflow("check", folder / FILE, "--engine", "argo", *options, "--format", format)
        assert answer.code in (0, 1), answer.err
        assert_harmless(answer)


@pytest.mark.parametrize(
    "words",
    [
        ("validate",), ("validate", "--format", "json"), ("demand",), ("demand", "--format", "json"),
        ("show",), ("show", "--format", "yaml"), ("show", "--format", "mermaid"), ("show", "--format", "dot"),
        ("show", "--format", "json"), ("compile", "--target", "airflow"), ("airflow", "pools"),
        ("compile", "--target", "airflow", "--format", "json"), ("compile", "--target", "airflow", "--standalone"),
    ],
    ids="-".join,
)  # fmt: skip
def test_no_command_obeys_a_pipeline_or_its_name(gpuflow: Gpuflow, folder: Path, words: tuple[str, ...]) -> None:
    answer = gpuflow(*words, folder / FILE, "--site", folder / f"site {FILE}")
    assert_harmless(answer)
    if "--standalone" not in words:
        assert answer.code == 0, answer.err
    if words[-1] == "json":
        assert "title=Review" in json.dumps(answer.data)


def test_a_site_is_shown_as_text_only(gpuflow: Gpuflow, folder: Path) -> None:
    for words in (("show",), ("show", "--format", "json"), ("runtime",)):
        answer = gpuflow("site", words[0], folder / f"site {FILE}", *words[1:])
        assert answer.code == 0, answer.err
        assert_harmless(answer)


def test_refusals_show_names_and_values_as_text_only(gpuflow: Gpuflow, folder: Path) -> None:
    (folder / FILE).write_text(PIPELINE.replace("cpu: 1", f"cpu: {quoted(HOSTILE)}"), encoding="utf-8")
    for words in (("validate",), ("show",), ("compile", "--target", "airflow"), ("validate", "--format", "json")):
        answer = gpuflow(*words, folder / FILE)
        assert answer.code == 2
        assert_harmless(answer)
    for words in (
        ("show", HOSTILE),
        (HOSTILE,),
        ("explain", HOSTILE),
        ("check", FILE, f"--{HOSTILE}"),
        ("gpus", "show", HOSTILE),
    ):
        answer = gpuflow(*words)
        assert answer.code == 2
        assert_harmless(answer)


def test_a_stale_file_is_shown_without_being_obeyed(gpuflow: Gpuflow, folder: Path) -> None:
    """The diff shows what a stranger committed, context lines first: the runner trims the blank before them."""
    output = folder / "dags"
    assert_harmless(gpuflow("compile", folder / FILE, "--target", "airflow", "-o", f"{output}/"))
    (compiled,) = output.iterdir()
    compiled.write_text(f"# old\n{HOSTILE}{compiled.read_text(encoding='utf-8')}{HOSTILE}", encoding="utf-8")
    for format in ("text", "json"):
        answer = gpuflow(
            "compile", folder / FILE, "--target", "airflow", "-o", f"{output}/", "--check", "--format", format
        )
        assert answer.code == 1
        assert "stop-commands" in answer.out
        assert_harmless(answer, keeps_lines=True)


def test_colors_are_ours_alone(gpuflow: Gpuflow, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    options = ("--site", folder / f"site {FILE}", "--cluster", folder / "cluster")
    for words in (("check", folder / FILE, *options), ("show", folder / FILE), ("show", HOSTILE)):
        answer = gpuflow(*words)
        assert "\x1b[" in answer.out + answer.err
        assert "31mx" not in answer.out
        plain = [re.sub("\x1b\\[[0-9;]+m", "", text) for text in answer[1:]]
        assert_harmless(Answer(answer.code, *plain))


@pytest.mark.parametrize("character", ["\n", "\r", "\x1b", "\x7f", "\x85", "\u2028", "\u202e", "\u2066", "\u061c"])
def test_a_file_name_with_a_control_character_is_refused(gpuflow: Gpuflow, tmp_path: Path, character: str) -> None:
    odd = f'x{character}import os; os.system("true")#.yaml'.replace("/", "")
    plain = tmp_path / "plain.yaml"
    plain.write_text(PIPELINE, encoding="utf-8")
    (tmp_path / odd).write_text(PIPELINE, encoding="utf-8")
    (tmp_path / "outer.yaml").write_text(
        f"apiVersion: gpuflow/v1\nkind: Pipeline\nname: o\nsteps:\n  a:\n    pipeline: {quoted(odd)}\n",
        encoding="utf-8",
    )
    site = tmp_path / f"site{odd}"
    site.write_text((DEMO / "site.yaml").read_text())
    extending = tmp_path / "site.yaml"
    extending.write_text(f"apiVersion: gpuflow/v1\nkind: Site\nextends: {quoted(site.name)}\n", encoding="utf-8")
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    (cluster / odd).write_text((DEMO / "cluster" / "team-a.yaml").read_text())
    for place, *words in (
        (str(tmp_path), "validate", tmp_path / odd),
        (str(tmp_path), "compile", tmp_path / odd, "--target", "airflow", "-o", f"{tmp_path}/dags/"),
        (f"{tmp_path}/outer.yaml:6:15", "validate", tmp_path / "outer.yaml"),
        (str(tmp_path), "validate", plain, "--site", site),
        (f"{extending}:3:10", "validate", plain, "--site", extending),
        (str(cluster), "check", plain, "--cluster", cluster, "--namespace", "team-a"),
    ):
        answer = gpuflow(*words)
        assert answer.code == 2
        assert answer.err.startswith(place)
        assert "GF129" in answer.err
        assert "rename" in answer.err
        assert_harmless(answer)
    assert not (tmp_path / "dags").exists()


def test_a_site_has_a_name_that_every_engine_accepts(gpuflow: Gpuflow, tmp_path: Path) -> None:
    site, pipeline = tmp_path / "site.yaml", tmp_path / "p.yaml"
    pipeline.write_text(PIPELINE, encoding="utf-8")
    for name in ("s\nimport os; os.system('true')", "a b", "S", "\u202e", "---"):
        site.write_text(f"apiVersion: gpuflow/v1\nkind: Site\nextends: nvidia\nname: {quoted(name)}\n")
        answer = gpuflow("compile", pipeline, "--target", "airflow", "--site", site)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith(f"{site}:4:7: GF131")
        assert_harmless(answer)


@pytest.mark.parametrize(
    ("head", "metadata", "key"),
    [
        ("apiVersion: v1\nkind: ResourceQuota", {"name": HOSTILE, "namespace": "team-a"}, "name"),
        ("apiVersion: v1\nkind: ResourceQuota", {"name": "Quota", "namespace": "team-a"}, "name"),
        ("apiVersion: v1\nkind: LimitRange", {"name": "a", "namespace": "team-a\n::error::"}, "namespace"),
        ("apiVersion: v1\nkind: Namespace", {"name": "a.b"}, "name"),
        ("apiVersion: v1\nkind: Pod", {"generateName": "a|<img>"}, "generateName"),
        ("apiVersion: rbac.authorization.k8s.io/v1\nkind: Role", {"name": "a\u202eb"}, "name"),
        ("apiVersion: example.com/v1\nkind: Thing", {"name": "a\nb"}, "name"),
        ("apiVersion: example.com/v1\nkind: Thing", {"name": ".."}, "name"),
    ],
)  # fmt: skip
def test_an_object_whose_name_kubernetes_refuses_is_not_read(
    gpuflow: Gpuflow, folder: Path, head: str, metadata: dict[str, str], key: str
) -> None:
    manifest = folder / "cluster" / "object.yaml"
    manifest.write_text(f"{head}\nmetadata:\n" + "".join(f"  {k}: {quoted(v)}\n" for k, v in metadata.items()))
    for format in ("text", "markdown", "junit"):
        answer = gpuflow(
            "check", folder / FILE, "--cluster", folder / "cluster", "--namespace", "team-a", "--format", format
        )
        assert (answer.code, answer.out) == (2, "")
        assert re.search(rf"object\.yaml:\d+:\d+: GF138 metadata\.{key} of the ", answer.err)
        assert_harmless(answer)


@pytest.mark.parametrize(
    ("kind", "name"), [("Role", "system:node"), ("ClusterRole", "Admin"), ("ConfigMap", "kube-root-ca.crt")]
)
def test_names_that_kubernetes_accepts_are_read(gpuflow: Gpuflow, folder: Path, kind: str, name: str) -> None:
    group = "v1" if kind == "ConfigMap" else "rbac.authorization.k8s.io/v1"
    manifest = folder / "cluster" / "object.yaml"
    manifest.write_text(f"apiVersion: {group}\nkind: {kind}\nmetadata: {{name: {quoted(name)}}}\n")
    assert gpuflow("check", folder / FILE, "--cluster", folder / "cluster", "--namespace", "team-a").code in (0, 1)


@pytest.mark.slow
def test_only_the_door_writes_to_the_terminal() -> None:
    """`say` and `put` of the terminal; what Python prints of a pipeline's own file is its author's.

    The version is said before the terminal is imported: one line, without a word of anybody else.
    """
    version = "gpuflow/cli/main.py: sys.stdout.write(f'gpuflow {__version__}\\n')"
    in_containers = {"gpuflow/targets/kubeflow/ask_argo.py"}  # a program of its own, which gpuflow never runs
    allowed = {"gpuflow/cli/terminal.py", *in_containers}
    found = []
    for path in sorted((ROOT / "gpuflow").rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        if place in allowed or place.startswith(("gpuflow/runtime/", "gpuflow/demo/")):  # programs of steps
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        said = [node.func for node in calls if f"{place}: {ast.unparse(node)}" == version]
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in ("write", "writelines") and node not in said:
                written = ast.unparse(node.value)
                found += (
                    [f"{place}:{node.lineno}"] if written in ("sys.stdout", "sys.stderr", "stdout", "stderr") else []
                )
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                found.append(f"{place}:{node.lineno}")
    assert found == []


def test_only_the_door_writes_comments_and_json_for_people() -> None:
    """A comment that is put together elsewhere could be ended by what it holds."""
    made = re.compile(r"""f["']# \{|ensure_ascii=False\) \+ "\\n"|quoteattr|saxutils""")
    files = [path for folder in ("targets", "report", "cli") for path in (ROOT / "gpuflow" / folder).rglob("*.py")]
    assert [path.name for path in files if made.search(path.read_text(encoding="utf-8"))] == []
